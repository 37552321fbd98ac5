"""millrace journal check, dump and repair, on the directory of a real stream: whole, in use, torn and damaged."""
import glob
import os
import re

import harness
from harness import MillraceTest


class JournalToolTest(MillraceTest):
    def pubsub(self):
        return self.start("pubsub", "--data-dir=" + self.path("data"), "--streams=s", "--segment-bytes=64K")

    def tool(self, *args):
        done = self.run_program("millrace", "journal", *args)
        return done.returncode, (done.stdout + done.stderr).decode()

    def filled(self, requests=40):
        """A stopped stream of numbered lines: its journal's directory and its segments."""
        p = self.pubsub()
        lines = [b"%06d %s\n" % (n, b"x" * 90) for n in range(requests * 50)]
        for n in range(requests):
            self.assertEqual(p.post("/pub?stream=s&producer=w&mark=%d&next=%d" % (n, n + 1),
                                    b"".join(lines[n * 50:n * 50 + 50])).status, 200)
        p.stop()
        segments = sorted(glob.glob(self.path("data", "**", "*.seg"), recursive=True))
        self.assertGreater(len(segments), 2)
        return os.path.dirname(segments[0]), segments, b"".join(lines)

    def flip(self, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1]))

    def test_an_intact_journal(self):
        directory, segments, lines = self.filled()
        before = [harness.read_file(s) for s in segments]
        status, text = self.tool("check", directory)
        self.assertEqual((status, text.split(": ")[-1]), (0, "intact\n"), text)
        self.assertIn("%d segments" % len(segments), text)
        self.assertIn("%d bytes" % len(lines), text)
        status, text = self.tool("dump", directory + "/", "--payload")
        self.assertEqual(status, 0)
        self.assertEqual(len(re.findall(r"^  \d+ data .*producer=w mark=\d+", text, re.M)), 40)
        self.assertIn('"000000 xxx', text)
        self.assertEqual(self.tool("repair", directory), (0, "nothing to repair\n"))
        self.assertEqual([harness.read_file(s) for s in segments], before)

    def test_what_is_no_use(self):
        self.assertEqual(self.tool("check")[0], 64)
        self.assertEqual(self.tool("burn", self.dir)[0], 64)
        self.assertEqual(self.tool("check", self.path("nowhere"))[0], 78)
        self.assertEqual(self.tool("check", self.dir)[0], 78)
        self.assertEqual(self.tool("--help")[0], 0)

    def test_a_journal_in_use_is_refused(self):
        directory, segments, _ = self.filled()
        p = self.pubsub()
        status, text = self.tool("repair", directory)
        self.assertEqual(status, 78)
        self.assertIn("in use", text)
        p.stop()
        self.assertEqual(self.tool("check", directory)[0], 0)

    def test_a_torn_tail_is_no_damage(self):
        directory, segments, _ = self.filled()
        frames = self.tool("dump", directory)[1].split(segments[-1])[1]
        with open(segments[-1], "r+b") as f:
            f.truncate(int(re.findall(r"^  (\d+) close", frames, re.M)[-1]) + 20)
        status, text = self.tool("check", directory)
        self.assertEqual(status, 0, text)
        self.assertIn("torn at byte", text)

    def test_damage_is_named_and_repaired_without_reusing_an_offset(self):
        directory, segments, lines = self.filled()
        self.flip(segments[1], 20000)
        status, text = self.tool("check", directory)
        self.assertEqual(status, 65)
        self.assertRegex(text, re.escape(segments[1]) + r": damaged at byte \d+ \(offset \d+\)")
        damaged = harness.read_file(segments[1])
        status, text = self.tool("repair", directory)
        self.assertEqual(status, 0, text)
        kept = int(re.search(r"kept: offsets 0 to (\d+)", text).group(1))
        self.assertTrue(0 < kept < len(lines))
        aside = glob.glob(directory + "~damaged-*")
        self.assertEqual(len(aside), 1)
        moved = sorted(os.listdir(aside[0]))
        self.assertEqual(moved, [os.path.basename(s) for s in segments[1:]])
        self.assertEqual(harness.read_file(os.path.join(aside[0], moved[0])), damaged)
        self.assertEqual(self.tool("check", directory)[0], 0)
        p = self.pubsub()
        self.assertEqual(p.get("/sub?stream=s&from=0&follow=0").body, lines[:kept])
        reply = p.post("/pub?stream=s", b"after\n")
        self.assertEqual(reply.status, 200)
        self.assertEqual(p.get("/sub?stream=s&from=%d&follow=0" % (kept + 1)).status, 410)
        self.assertEqual(p.get("/sub?stream=s&from=%d&follow=0" % 2**40).body, b"after\n")

    def test_a_missing_segment(self):
        directory, segments, lines = self.filled()
        os.rename(segments[1], self.path("away"))
        status, text = self.tool("check", directory)
        self.assertEqual(status, 65)
        self.assertIn("missing", text)
        status, text = self.tool("repair", directory)
        self.assertEqual(status, 0, text)
        self.assertEqual(self.tool("check", directory)[0], 0)


if __name__ == "__main__":
    harness.main()
