"""millrace journal check, dump and repair, on the directory of a real stream: whole, in use, torn and damaged."""
import glob
import os
import re
import shutil
import subprocess
import unittest

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

    def frames(self, directory):
        """For each segment its base and the positions of its frames with data. How many these are depends on the moment at which a
        spare file is ready."""
        parts = self.tool("dump", directory)[1].split(" base=")[1:]
        return [(int(re.match(r"\d+", part).group()), [int(at) for at in re.findall(r"(?m)^  (\d+) data ", part)]) for part in parts]

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
        self.assertEqual(self.tool("check", self.path("nowhere"))[0], 66)
        self.assertEqual(self.tool("check", self.dir)[0], 66)
        self.assertEqual(self.tool("--help")[0], 0)

    def test_a_journal_in_use_may_be_looked_at_and_not_repaired(self):
        directory, segments, lines = self.filled()
        p = self.pubsub()
        self.assertEqual(p.post("/pub?stream=s", b"live\n").status, 200)
        status, text = self.tool("check", directory)
        self.assertEqual((status, text.split(": ")[-1]), (0, "intact\n"), text)
        self.assertIn("%d bytes" % (len(lines) + len("live\n")), text)
        status, text = self.tool("dump", directory, "--payload")
        self.assertEqual(status, 0)
        self.assertIn('"live\\x0a"', text)
        status, text = self.tool("repair", directory)
        self.assertEqual(status, 78)
        self.assertIn("in use", text)
        harness.flip(segments[1], 20000)
        self.assertEqual(self.tool("check", directory)[0], 65)
        self.assertEqual(self.tool("repair", directory)[0], 78)
        harness.flip(segments[1], 20000)
        p.stop()
        self.assertEqual(self.tool("repair", directory), (0, "nothing to repair\n"))

    def test_a_directory_that_is_in_use_is_refused_to_another_daemon(self):
        """The journal's own lock holds where a link leads around the lock of the data directory."""
        self.filled()
        p = self.pubsub()
        os.mkdir(self.path("other"))
        os.symlink(self.path("data", "streams"), self.path("other", "streams"))
        second = self.daemon("pubsub", "--data-dir=" + self.path("other"), "--streams=s", "--segment-bytes=64K")
        self.assertNotEqual(second.process.wait(harness.PATIENCE), 0)
        self.assertIn(b"in use by another process", harness.read_file(second.log_path))
        self.assertEqual(p.post("/pub?stream=s", b"well\n").status, 200)

    def test_a_repair_that_was_interrupted_is_finished_by_another(self):
        """Killed as soon as it has written down what it will do (tests/unit/journal/test_journal_repair.c: anywhere)."""
        directory, segments, lines = self.filled()
        harness.flip(segments[1], self.frames(directory)[1][1][1] + 1000)
        note = os.path.join(directory, "repair")
        for attempt in range(200):
            tool = subprocess.Popen([harness.program("millrace"), "journal", "repair", directory],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while not os.path.exists(note) and tool.poll() is None:
                pass
            tool.kill()
            tool.wait()
            if b"stage done" not in harness.read_file(note):
                break
            shutil.rmtree(self.path("data"))
            directory, segments, lines = self.filled()
            harness.flip(segments[1], 20000)
        status, text = self.tool("check", directory)
        self.assertEqual(status, 65, text)
        self.assertIn("a repair was interrupted", text)
        p = self.daemon("pubsub", "--data-dir=" + self.path("data"), "--streams=s", "--segment-bytes=64K")
        self.assertNotEqual(p.process.wait(harness.PATIENCE), 0)
        self.assertIn(b"a repair was interrupted", harness.read_file(p.log_path))
        kept, _ = self.goes_on_above(directory, len(lines))
        self.assertTrue(0 < kept < len(lines))
        aside = glob.glob(directory + "~damaged-*")
        self.assertEqual([sorted(os.listdir(a)) for a in aside], [[os.path.basename(s) for s in segments[1:]]])

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
        harness.flip(segments[1], self.frames(directory)[1][1][1] + 1000)
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
        self.assertEqual(harness.broken_off(p.url, "/sub?stream=s&from=0&follow=0"), lines[:kept])
        self.assertEqual(p.get("/sub?stream=s&last=9&follow=0").body, b"", "the last lines begin after what is lost")
        reply = p.post("/pub?stream=s", b"after\n")
        self.assertEqual(reply.status, 200)
        self.assertEqual(p.get("/sub?stream=s&from=%d&follow=0" % (kept + 1)).status, 410)
        for begin in ("from=%d" % 2**40, "last=9"):
            self.assertEqual(p.get("/sub?stream=s&follow=0&" + begin).body, b"after\n")

    def goes_on_above(self, directory, given_out):
        """Repairs. The report of what is kept is right, and the next offset is above all that were used."""
        status, text = self.tool("repair", directory)
        self.assertEqual(status, 0, text)
        kept = int(re.search(r"kept: offsets 0 to (\d+)", text).group(1))
        at = int(re.search(r"the journal continues at offset (\d+)", text).group(1))
        self.assertGreaterEqual(at, given_out, text)
        self.assertEqual(at % 2**40, 0)
        p = self.pubsub()
        self.assertEqual(p.post("/pub?stream=s", b"after\n").json()["start"], str(at))
        self.assertEqual(p.get("/sub?stream=s&from=%d&follow=0" % (kept + 1)).status, 410)
        p.stop()
        return kept, at

    def test_no_offset_is_given_out_twice_whatever_is_damaged(self):
        directory, segments, lines = self.filled()
        found, last = self.frames(directory), len(segments) - 1
        middle = max(i for i, (_, positions) in enumerate(found) if len(positions) > 1)
        for damage, n, at, whole in (("all of the last", last, None, 0), ("its header", last, 40, 0), ("its first frame", last, 150, 0),
                                     ("a second frame", middle, found[middle][1][1] + 1000, 1)):
            with self.subTest(damage):
                shutil.rmtree(self.path("saved"), ignore_errors=True)
                shutil.copytree(directory, self.path("saved"))
                if at is None:
                    os.truncate(segments[n], 0)
                else:
                    harness.flip(segments[n], at)
                kept, _ = self.goes_on_above(directory, len(lines))
                self.assertEqual(kept, found[n][0] + whole * len(lines) // 40)
                shutil.rmtree(directory)
                shutil.copytree(self.path("saved"), directory)

    def test_newest_segments_that_were_deleted_are_missed(self):
        directory, segments, lines = self.filled()
        bases = [int(b) for b in re.findall(r" base=(\d+)", self.tool("dump", directory)[1])]
        for segment in segments[-2:]:
            os.unlink(segment)
        status, text = self.tool("check", directory)
        self.assertEqual(status, 65, text)
        self.assertIn(segments[-2] + ": missing", text)
        self.assertIn("number %d\n" % len(segments), text)
        p = self.daemon("pubsub", "--data-dir=" + self.path("data"), "--streams=s", "--segment-bytes=64K")
        self.assertEqual(p.process.wait(harness.PATIENCE), 78)
        self.assertIn(os.path.basename(segments[-2]).encode(), harness.read_file(p.log_path))
        kept, _ = self.goes_on_above(directory, len(lines))
        self.assertEqual(kept, bases[-2])
        self.assertEqual(glob.glob(directory + "~damaged-*"), [])
        self.assertEqual(self.tool("check", directory)[0], 0)

    def test_nor_when_the_damaged_header_began_after_a_hole(self):
        directory, segments, lines = self.filled()
        os.truncate(segments[-1], 0)
        _, at = self.goes_on_above(directory, len(lines))
        newest = sorted(glob.glob(directory + "/*.seg"))[-1]
        os.truncate(newest, 100)
        _, later = self.goes_on_above(directory, at + len(b"after\n"))
        self.assertGreater(later, at)

    def test_an_unknown_version_is_not_called_damaged(self):
        directory, segments, _ = self.filled()
        with open(segments[0], "r+b") as f:
            f.seek(8)
            f.write(b"\x03")
        before = [harness.read_file(s) for s in segments]
        for act in "check", "dump", "repair":
            status, text = self.tool(act, directory)
            self.assertEqual(status, 78, text)
            self.assertIn("unknown format version", text)
            self.assertNotIn("DAMAGED", text)
        self.assertEqual([harness.read_file(s) for s in segments], before)

    def test_it_is_asked_in_any_order_and_says_when_it_cannot_write(self):
        directory, _, _ = self.filled()
        self.assertEqual(self.tool("dump", "--payload", directory), self.tool("dump", directory, "--payload"))
        status, text = self.tool("check", "--help")
        self.assertEqual(status, 0)
        self.assertIn("\nusage: millrace journal check|dump|repair DIR\n", text)
        self.assertEqual(self.tool("check", directory, "--payload")[0], 64)
        self.assertEqual(self.tool("dump", directory, "--hex")[0], 64)
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.program("millrace"), "journal", "dump", directory], stdout=full,
                                  stderr=subprocess.PIPE, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 74)
        self.assertIn(b"No space left", done.stderr)

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "needs to become somebody else")
    def test_who_may_only_read_may_check(self):
        directory, segments, _ = self.filled()
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        def as_nobody(*args):
            done = subprocess.run([*nobody, harness.program("millrace"), "journal", *args],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=harness.PATIENCE)
            return done.returncode, done.stdout.decode()
        for where, dirs, files in os.walk(self.dir):
            os.chmod(where, 0o755)
            for name in files:
                os.chmod(os.path.join(where, name), 0o444)
        for path in (self.dir, harness.program("millrace")):
            if subprocess.run([*nobody, "test", "-r", path]).returncode:
                self.skipTest("what is above %s is closed to others" % path)
        status, text = as_nobody("check", directory)
        self.assertEqual(status, 0, text)
        os.chmod(segments[1], 0)
        status, text = as_nobody("check", directory)
        self.assertEqual(status, 66, text)
        self.assertIn(os.path.basename(segments[1]) + ": cannot read: Permission denied", text)
        os.chmod(directory, 0)
        status, text = as_nobody("check", directory)
        self.assertEqual(status, 66, text)
        self.assertIn("Permission denied", text)
        os.chmod(directory, 0o755)

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
