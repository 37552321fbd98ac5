"""The power goes while ps_to_file writes, commits, packs, renames and removes files: after it every line is in the archive
once, and a file that has its name is whole. A build that logs its file operations does the work, killed once in the middle.
Then what a cut may leave is rebuilt: at random places, started again as it is; and behind every single operation, for every
order in which names may have reached the disk, recovered by archive_recover in a blink (every twelfth of them, and all in the long
round)."""
# seconds: 35
# full: MILLRACE_ROUNDS=100
import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

import harness
import power_cut
from archive_case import ArchiveTest
from harness import wait_until

STATE = "state/s.json"


class Logged(ArchiveTest):
    """The state and the files are in different directories: a sync of one directory does not store names of the other."""

    def writer(self, *args, directory=None, **kw):
        state = os.path.join(directory or self.path("out"), STATE)
        return super().writer("--state=" + state, *args, directory=directory, **kw)

    def state(self, directory=None):
        return json.loads(harness.read_file(os.path.join(directory or self.path("out"), STATE)))

    def start_logged(self, *args, **env):
        env = {"MILLRACE_IO_LOG": self.path("iolog"), **env}
        return self.writer(*args, program="ps_to_file_iolog", env=env)

    def moved(self, state, root):
        """The state with the paths of the copied files: the state names files by their paths."""
        return state.replace(self.path("out").encode() + b"/", root.encode() + b"/")


class AtRandom(Logged):
    def run_logged(self, *args):
        w = self.start_logged(*args).wait_ready()
        for n in range(40):
            self.publish(self.random.randrange(1, 60))
            if n % 10 == 5:
                w.process.send_signal(signal.SIGHUP)
            if n % 2 == 1:
                self.wait_committed(w, len(self.stream()))
        self.finish(w, len(self.stream()))
        return harness.read_file(self.path("iolog"))

    def move(self, root):
        path = os.path.join(root, STATE)
        if os.path.exists(path):
            text = harness.read_file(path)
            with open(path, "wb") as f:
                f.write(self.moved(text, root))

    def cuts(self, log, *args):
        for n in range(harness.rounds(2)):
            root = self.path("cut%d" % n)
            os.mkdir(root)
            power_cut.cut(log, self.random.randrange(len(log) + 1), self.random, self.path("out"), root)
            self.move(root)
            self.finish(self.writer(*args, directory=root), len(self.stream()), root)
            yield b"".join(self.archived(root))
            shutil.rmtree(root)

    def test_by_arrival(self):
        log = self.run_logged("--compress=zstd")
        for archived in self.cuts(log, "--compress=zstd"):
            self.assertEqual(archived, self.stream())

    def test_by_event_time(self):
        log = self.run_logged("--time_field=t", "--max_open=4")
        expected = sorted(self.stream().splitlines(True))
        for archived in self.cuts(log, "--time_field=t", "--max_open=4"):
            self.assertEqual(sorted(archived.splitlines(True)), expected)


class TakenAway(Logged):
    def killed_behind_the_name(self, suffix, *args):
        """A mover takes a published file and its manifest before the next process looks."""
        w = self.start_logged(*args, MILLRACE_IO_KILL=suffix).wait_ready()
        self.publish(20)
        self.wait_committed(w, len(self.stream()))
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not w.alive(), "it to be killed")
        self.assertTrue(self.state()["files"][0]["finishing"])
        os.mkdir(self.path("away"))
        for path in glob.glob(self.path("out/s-*")):
            self.assertTrue(path.endswith((suffix, ".manifest.json")), path)
            os.rename(path, self.path("away", os.path.basename(path)))
        w = self.writer(*args).wait_ready()
        wait_until(lambda: "published and moved away" in w.log, lambda: w.log)
        self.publish(20)
        self.finish(w, len(self.stream()))
        self.assertEqual(b"".join(self.archived(self.path("away")) + self.archived()), self.stream())

    def test_plain(self):
        self.killed_behind_the_name(".ndjson")

    def test_packed(self):
        self.killed_behind_the_name(".gz", "--compress=gzip")


class Everywhere(Logged):
    """`text` is the stream, `lines` its lines, sorted. What a cut left lies in memory, where making it costs nothing."""

    def setUp(self):
        super().setUp()
        self.memory = tempfile.mkdtemp(prefix="millrace-test-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.addCleanup(shutil.rmtree, self.memory)

    def committed(self):
        try:
            return int(self.state()["offset"]) == len(self.stream())
        except OSError:
            return False

    def is_finished(self):
        return not self.state()["files"]

    def lives_until(self, condition, w, *args):
        """Waits for the condition. If the writer was killed, starts the next writer and asks it to finish its files. Returns the writer
        that runs."""
        wait_until(lambda: not w.alive() or condition(), condition.__name__)
        if w.alive():
            return w
        w = self.start_logged(*args).wait_ready()
        w.process.send_signal(signal.SIGHUP)
        wait_until(condition, condition.__name__)
        return w

    def run_logged(self, *args, kill=None):
        """Writes a few files. The writer is killed after one of its first operations, and started again. Every second file is finished
        while the next file is begun."""
        w = self.start_logged(*args, MILLRACE_IO_KILL=kill or str(self.random.randrange(1, 90)))
        for n in range(4):
            self.publish(self.random.randrange(1, 9))
            w = self.lives_until(self.committed, w, *args)
            w.process.send_signal(signal.SIGHUP)
            if n % 2 == 0:
                w = self.lives_until(self.is_finished, w, *args)
        self.finish(w, len(self.stream()))
        self.text = self.stream()
        self.lines = sorted(self.text.splitlines(True))
        return harness.read_file(self.path("iolog"))

    def check_named(self, files, by_event):
        """A file with its final name is complete after every cut."""
        files = {os.path.basename(path): text for path, text in files.items()}
        for name, text in files.items():
            if name.endswith(".manifest.json") or not name.startswith("s-"):
                continue
            m = json.loads(files[re.sub(r"\.gz$", "", name) + ".manifest.json"])
            text = gzip.decompress(text) if name.endswith(".gz") else text
            self.assertEqual((m["file"], int(m["bytes"]), int(m["lines"])), (name, len(text), text.count(b"\n")))
            if by_event:
                self.assertLessEqual(set(text.splitlines(True)), set(self.lines))
            else:
                self.assertEqual(text, self.text[int(m["first"]):int(m["end"])])

    def check_recovered(self, files, recover, by_event):
        root = os.path.join(self.memory, "cut")
        os.mkdir(root)
        power_cut.write_files(files, self.path("out"), root)
        recover.stdin.write(root + "\n")
        recover.stdin.flush()
        self.assertEqual(recover.stdout.readline(), "ok\n")
        archived = self.archived(root)
        if by_event:
            self.assertEqual(sorted(b"".join(archived).splitlines(True)), self.lines)
        else:
            self.assertEqual(b"".join(archived), self.text)
        shutil.rmtree(root)

    def cut_everywhere(self, log, compression, *time_field):
        command = [harness.program("archive_recover"), self.write("stream", self.text), compression, *time_field]
        state = os.path.join(self.path("out"), STATE)
        stride = 1 if harness.rounds(2) >= 100 else 12
        first = self.random.randrange(stride)
        with subprocess.Popen(harness.dies_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as recover:
            for n, (what, files) in enumerate(power_cut.every_cut(log, self.random)):
                if state in files:
                    files[state] = self.moved(files[state], os.path.join(self.memory, "cut"))
                try:
                    self.check_named(files, bool(time_field))
                    if n % stride == first:
                        self.check_recovered(files, recover, bool(time_field))
                except Exception as e:
                    raise AssertionError("cut %d, %s" % (n, what)) from e
        self.assertGreater(n, 150)
        self.assertEqual(recover.returncode, 0)

    def test_by_arrival(self):
        self.publish(1, padding=270000)  # worth a write before a file may be made
        self.cut_everywhere(self.run_logged(), "none")

    def test_by_arrival_packed(self):
        """Killed behind the renaming of a packed file, before that was durable."""
        self.cut_everywhere(self.run_logged("--compress=gzip", kill=".gz"), "gzip")

    def test_by_arrival_made(self):
        """Killed behind the making of a file, before its name was durable: the next life finds it and goes on with it."""
        self.cut_everywhere(self.run_logged(kill=".part"), "none")

    def test_by_event_time_packed(self):
        self.cut_everywhere(self.run_logged("--compress=gzip", "--time_field=t", "--max_open=2"), "gzip", "t")

    def test_by_event_time(self):
        self.cut_everywhere(self.run_logged("--time_field=t", "--max_open=2"), "none", "t")


if __name__ == "__main__":
    harness.main()
