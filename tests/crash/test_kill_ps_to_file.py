"""ps_to_file is killed, its pubsub is killed, its disk fills: the archive holds every line once."""
# full: MILLRACE_ROUNDS=200
import glob
import json
import os
import signal
import threading
import time

import harness
from archive_case import T0, ArchiveTest
from harness import wait_until
from small_disk import SmallDisk


class Killed(ArchiveTest):
    def rounds(self, *args):
        busy = True

        def run():
            while busy:
                self.publish(self.random.randrange(1, 200))
                time.sleep(0.005)
        publisher = threading.Thread(target=run)
        publisher.start()
        try:
            for n in range(harness.rounds(3)):
                w = self.writer(*args)
                time.sleep(self.random.uniform(0.02, 0.3))
                if self.random.random() < 0.5:
                    w.process.send_signal(signal.SIGHUP)
                    time.sleep(self.random.uniform(0, 0.05))
                if n % 3 == 1:
                    self.pubsub.kill9()
                    self.start_pubsub()
                w.kill9()
        finally:
            busy = False
            publisher.join()
        self.finish(self.writer(*args), len(self.stream()))

    def test_by_arrival(self):
        self.rounds("--compress=gzip")
        self.assertEqual(b"".join(self.archived()), self.stream())

    def test_by_event_time(self):
        self.rounds("--time_field=t", "--max_open=4")
        lines = b"".join(self.archived()).splitlines(True)
        self.assertEqual(sorted(lines), sorted(self.stream().splitlines(True)))


class FullDisk(ArchiveTest):
    def wait_for_room(self, *args):
        """All lines go into files that cannot be finished before the disk has room. Returns the lines of the files."""
        disk = SmallDisk(self, "512k", "out")
        w = self.writer(*args).wait_listening()
        for _ in range(30):
            self.publish(200)
        wait_until(lambda: b"No space" in w.get("/health").body, w.log)
        self.assertEqual((w.get("/health").status, w.stats()["wanting"]), (503, 1))
        disk.grow("64m")
        self.publish(10)
        self.finish(w, len(self.stream()))
        return b"".join(self.archived())

    def test_it_waits_for_room(self):
        self.assertEqual(self.wait_for_room(), self.stream())

    def test_packed(self):
        self.assertEqual(self.wait_for_room("--compress=gzip"), self.stream())

    def test_by_event_time(self):
        archived = self.wait_for_room("--time_field=t").splitlines(True)
        self.assertEqual(sorted(archived), sorted(self.stream().splitlines(True)))

    def test_by_event_time_and_packed(self):
        archived = self.wait_for_room("--time_field=t", "--compress=zstd").splitlines(True)
        self.assertEqual(sorted(archived), sorted(self.stream().splitlines(True)))

    def take_finished(self, taken):
        """Takes and removes each finished file, as after an upload."""
        for path in glob.glob(self.path("out/s-*.manifest.json")):
            with open(path) as f:
                file = self.path("out", json.load(f)["file"])
            if os.path.exists(file):
                taken.append(harness.read_file(file))
                os.unlink(file)
                os.unlink(path)

    def test_what_is_complete_is_finished_before_more_lines_come(self):
        """A disk is full of complete files. Only finished files are taken away. The room that they leave goes to manifests first, and to
        more lines once no file can get a manifest."""
        disk = SmallDisk(self, "2m", "out")
        taken = []
        disk.take(700 << 10)
        w = self.writer("--time_field=t", "--max_open=3", "--close_after=200ms", name="s-%Y%m%d-%H%M.ndjson").wait_listening()
        lines = [b'{"t":%d,"n":%d,"x":"%s"}\n' % (T0 + i // 600 * 60, i, b"x" * 400) for i in range(9000)]
        for at in range(0, len(lines), 500):
            self.assertEqual(self.pubsub.post("/pub?stream=s", b"".join(lines[at:at + 500])).status, 200)
        self.wait_full(w)
        disk.give_back()

        self.take_all(w, taken, lines)

    def take_all(self, w, taken, lines):
        def all_taken():
            self.take_finished(taken)
            return sum(map(len, taken)) == len(self.stream())
        wait_until(all_taken, lambda: "all to be finished: %s\n%s" % (list(os.walk(self.path("out"))), w.log))
        self.assertEqual(sorted(b"".join(taken).splitlines(True)), sorted(lines))
        w.stop()

    def test_lines_leave_room_for_the_state_and_manifests(self):
        """The disk has room for one line beside its reserve. The second line waits until the file with the first is published and
        removed."""
        disk = SmallDisk(self, "1m", "out")
        disk.take((1024 - 64 - 140) << 10)  # 64 kB are the reserve
        lines = [b'{"t":%d,"n":%d,"x":"%s"}\n' % (T0, i, b"x" * (130 << 10)) for i in range(4)]
        self.assertEqual(self.pubsub.post("/pub?stream=s", b"".join(lines)).status, 200)
        w = self.writer("--time_field=t", "--close_after=100ms", name="s-%Y%m%d-%H%M.ndjson")
        self.take_all(w.wait_listening(), [], lines)

    def publish_what_packs_badly(self, n):
        """A kilobyte a line, of which half is left."""
        lines = b"".join(b'{"x":"%s"}\n' % self.random.randbytes(500).hex().encode() for _ in range(n))
        self.assertEqual(self.pubsub.post("/pub?stream=s", lines).status, 200)

    def wait_full(self, w):
        wait_until(lambda: b"No space" in w.get("/health").body, lambda: w.log)

    def test_lines_come_while_a_file_waits_for_room_to_be_packed(self):
        disk = SmallDisk(self, "1m", "out")
        began = time.monotonic()
        w = self.writer("--compress=gzip").wait_ready()
        self.publish_what_packs_badly(600)
        self.wait_committed(w, len(self.stream()))
        disk.take(300 << 10)
        w.process.send_signal(signal.SIGHUP)
        self.wait_full(w)
        for _ in range(5):
            self.publish(10)
            self.wait_committed(w, len(self.stream()))
        self.assertEqual((w.get("/health").status, w.stats()["wanting"]), (503, 1))
        self.assertLessEqual(w.log.count("waiting for space"), 1 + (time.monotonic() - began) // 60)
        w.kill9()
        w = self.writer("--compress=gzip").wait_listening()
        self.wait_full(w)
        disk.grow("64m")
        self.finish(w, len(self.stream()))
        self.assertEqual(b"".join(self.archived()), self.stream())


if __name__ == "__main__":
    harness.main()
