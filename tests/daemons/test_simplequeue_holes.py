"""What a power cut under sync=never, or a repair, took from a queue's journal is gone; but no id of it is given to another
message, for a relay that published the old one would take the new one for published."""
import glob
import os
import re
import shutil

import harness
from queue_test import OnDisk, QueueTest

LINE = b"x" * 1000


class HolesTest(OnDisk, QueueTest):
    def fill(self, q, requests):
        """The highest id of what was put."""
        for _ in range(requests):
            ids = q.post("/mput", b"\n".join([LINE] * 20)).header("X-Millrace-Ids")
        return int(ids.split("-")[1])

    def next_id(self, q):
        return int(q.post("/put", b"new").header("X-Millrace-Id"))

    def segments(self):
        return sorted(glob.glob(self.path("data", "queues", "default", "*.seg")))

    def newest(self):
        return self.segments()[-1]

    def lose(self, frames):
        """A power cut: the newest segment keeps so many of its frames with data."""
        dump = self.run_program("millrace", "journal", "dump", os.path.dirname(self.newest())).stdout.decode()
        part = dump[dump.index(os.path.basename(self.newest())):]
        at = int(re.findall(r"^ +(\d+) data ", part, re.M)[frames])
        size = os.path.getsize(self.newest())
        with open(self.newest(), "r+b") as f:
            f.seek(at)
            f.write(bytes(size - at))

    def booted(self, build):
        """For each of the two builds, the other build's daemon counts as one of another boot."""
        q = self.daemon(build, "--data-dir=" + self.path("data"), "--sync=never", env={"MILLRACE_IO_LOG": self.path("iolog")})
        return q.wait_ready()

    def test_ids_lost_in_a_power_cut_are_not_given_again(self):
        q = self.booted("simplequeue_iolog")
        self.fill(q, 2)
        highest = self.fill(q, 1)
        for build, frames in (("simplequeue", 2), ("simplequeue_iolog", 0)):  # at last even the record of the opening is lost
            q.kill9()
            self.lose(frames)
            q = self.booted(build)
            first = self.next_id(q)
            self.assertGreater(first, highest)
            highest = self.fill(q, 2)
            self.assertEqual(highest, first + 40, "behind a hole they rise by one again")
        self.assertEqual(self.numbers(q)["depth"], 20 + 41)
        self.assertEqual([i for i, _, _ in self.reserve(q, "items=100")[1]][-42:], [20] + list(range(first, first + 41)))

    def damage(self):
        """Damages the middle of the second of the queue's several segments. Returns the highest id, and the segment's path."""
        q = self.queue("--segment-bytes=65536")
        highest = self.fill(q, 15)
        q.stop()
        damaged = self.segments()[1]
        with open(damaged, "r+b") as f:
            f.seek(30000)
            f.write(b"ZZZZ")
        return highest, damaged

    def test_ids_lost_in_a_repair_are_not_given_again(self):
        highest, damaged = self.damage()
        self.assertEqual(self.run_program("millrace", "journal", "repair", os.path.dirname(damaged)).returncode, 0)
        q = self.queue("--segment-bytes=65536")
        first = self.next_id(q)
        self.assertGreater(first, highest)
        q.stop()
        q = self.queue("--segment-bytes=65536")
        self.assertEqual(self.next_id(q), first + 1, "an opening that finds no new hole goes on")

    def test_what_stands_behind_damage_can_be_had(self):
        """As docs/guide/damage.md says."""
        highest, damaged = self.damage()
        done = self.run_program("simplequeue", "--port=0", "--data-dir=" + self.path("data"))
        self.assertEqual(done.returncode, 78)
        self.assertIn(damaged.encode() + b": damaged at byte", done.stderr)
        self.assertIn(b"millrace journal", done.stderr)
        self.assertEqual(self.run_program("millrace", "journal", "repair", os.path.dirname(damaged)).returncode, 0)
        q = self.queue()
        kept = [i for i, _, _ in self.reserve(q, "items=1000")[1]]
        self.assertEqual(kept, list(range(1, len(kept) + 1)))
        shutil.copytree(glob.glob(self.path("data", "queues", "default~damaged-*"))[0], self.path("other", "queues", "rescued"))
        os.unlink(self.path("other", "queues", "rescued", os.path.basename(damaged)))
        done = self.run_program("simplequeue", "--restored", "--port=0", "--data-dir=" + self.path("other"))
        self.assertEqual(done.returncode, 0, done.stderr)
        rescued = self.start("simplequeue", "--data-dir=" + self.path("other"))
        behind = [i for i, _, _ in self.reserve(rescued, "queue=rescued&items=1000")[1]]
        self.assertGreater(behind[0], kept[-1])
        self.assertEqual(behind, list(range(behind[0], highest + 1)))


if __name__ == "__main__":
    harness.main()
