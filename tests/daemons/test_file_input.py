"""aggregator --input FILE...: every line of every file is counted once, whatever the file is called and however it is packed."""
# full: MILLRACE_ROUNDS=2
import gzip
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import threading
import unittest

import harness
from input_case import InputTest
from small_disk import SmallDisk


def lines_of(n):
    return b"".join(b'{"t":%d,"l":"u%d"}\n' % (1331923247 + i, i) for i in range(n))


class FileInput(InputTest):
    def test_plain_and_packed(self):
        blobs = [self.generate(1000, seed) for seed in (1, 2, 3)]
        self.write("a.ndjson", blobs[0])
        self.write("b.ndjson.gz", gzip.compress(blobs[1]))
        self.write("c.ndjson", blobs[2])
        subprocess.run(["zstd", "-q", "--rm", self.path("c.ndjson")], check=True)
        said = self.count("a.ndjson", "b.ndjson.gz", "c.ndjson.zst")
        self.check_counted(*blobs)
        events, skipped, rejected = self.expected(b"".join(blobs))[1]
        self.assertIn("counted %d, rejected %d, skipped %d; 0 of 3 files were counted before" % (events, rejected, skipped), said)
        entry = json.loads(self.rejects()[0])
        self.assertEqual((entry["file"], "stream" in entry), ("a.ndjson", False))
        at = int(entry["offset"])
        self.assertEqual(blobs[0][at:at + entry["bytes"]].decode("utf-8", "replace"), entry["line"])

    def test_the_same_bytes_are_counted_once(self):
        data = self.generate(3000)
        self.write("a.ndjson", data)
        self.write("copy.ndjson", data)
        self.write("packed.gz", gzip.compress(data))
        self.assertIn("2 of 3 files were counted before", self.count("a.ndjson", "copy.ndjson", "packed.gz"))
        os.rename(self.path("a.ndjson"), self.path("renamed.ndjson"))
        self.assertIn("counted 0, rejected 0, skipped 0; 1 of 1 file was counted before", self.count("renamed.ndjson"))
        self.check_counted(data)

    def test_on_a_full_disk_it_states_what_is_committed(self):
        data = self.generate(25000)
        self.write("log", data)
        disk = SmallDisk(self, "1500k", "data")
        said = self.count("log", expect=75, options=["--max-memory=32M", "--flush-interval=20"])
        events, rejected, skipped = map(int, re.search(r"counted (\d+), rejected (\d+), skipped (\d+);", said).groups())
        committed = dict(sqlite3.connect(self.slices()[-1]).execute("SELECT key, value FROM meta"))
        self.assertEqual((events, rejected, skipped), tuple(committed[k] for k in ("events", "rejected", "skipped")))
        self.assertTrue(0 < events + rejected + skipped < data.count(b"\n"), said)
        disk.grow("100m")
        self.count("log")
        self.check_counted(data)

    def test_a_file_that_grew(self):
        data = self.generate(3000)
        lines = data.splitlines(True)
        self.write("log", b"".join(lines[:1000]))
        self.count("log")
        self.write("log.gz", gzip.compress(data))
        self.count("log.gz")
        self.check_counted(data)

    def test_a_half_written_last_line_is_counted_once_it_ends(self):
        half = "the last line, at offset %d, is half-written and not counted yet"
        for name, end in (("unix", b"\n"), ("windows", b"\r\n")):
            data = b""
            for line in [b'{"t":%d,"l":"%s","x":{"k":"v"}}' % (1331923247 + i, name.encode()) for i in range(4)] + [b"damaged"]:
                text, line = line, line + end
                for n in range(1, len(line) + 1):
                    if n % 24 and n < len(line) - 3 or (not data and n == len(text)):
                        continue
                    self.write(name, data + line[:n])
                    is_whole = line[:n] in (text + end[:-1], line) and (text != b"damaged" or n == len(line))
                    (self.assertNotIn if is_whole else self.assertIn)(half % len(data), self.count(name))
                data += line
            self.assertIn("1 of 1 file was counted before", self.count(name))
            self.assertIn(b"u|%s,c3gi:4\n" % name.encode(), self.counted())
        self.assertEqual(len(self.rejects()), 2)

    def test_a_last_line_without_lf_is_counted_if_it_is_whole(self):
        data = self.generate(1000)
        self.write("log", data + lines_of(2)[:-1])
        self.assertNotIn("half-written", self.count("log"))
        self.check_counted(data, lines_of(2))
        self.assertIn("1 of 1 file was counted before", self.count("log"))
        self.write("log", data + lines_of(3))
        self.count("log")
        self.check_counted(data, lines_of(3))

    def test_a_changed_file_is_refused_by_name(self):
        data = self.generate(500)
        lines = data.splitlines(True)
        other = self.generate(500, seed=9)
        self.write("log", data)
        self.count("log")
        same_length = b"".join(lines[:250] + [lines[250].replace(b"1", b"2")] + lines[251:])
        self.assertNotEqual(same_length, data)
        for changed in (b"".join(lines[:-1]), b"".join(lines[:250] + lines[251:]), lines[0], same_length, same_length + lines[1]):
            self.write("log", changed)
            self.write("other", other)
            self.assertRegex(self.count("log", "other", expect=65), "log: the file begins like a counted file")
        self.check_counted(data, other)

    def test_a_file_that_changes_between_its_two_reads_is_known_again(self):
        lines = self.generate(5000).splitlines(True)
        data = b"".join(lines)
        self.write("whole", data)
        self.count("whole")
        self.write("joined", lines[0] + b"".join(lines[1:]).replace(b"\n", b" ") + lines[0])
        stopping = threading.Event()

        def exchange():
            while not stopping.is_set():
                for target in ("whole", "joined"):
                    os.symlink(self.path(target), self.path("next"))
                    os.replace(self.path("next"), self.path("log"))

        os.symlink(self.path("whole"), self.path("log"))
        thread = threading.Thread(target=exchange)
        thread.start()
        try:
            harness.wait_until(lambda: b"changed while it was read" in subprocess.run(
                self.command("log"), capture_output=True, cwd=self.dir).stderr, "a change between the two reads", harness.LONG)
        finally:
            stopping.set()
            thread.join()
        self.assertIn("1 of 1 file was counted before", self.count("whole"))
        self.check_counted(data)

    def test_wrong_files_are_named_before_any_is_counted(self):
        data = self.generate(100)
        self.write("good", data)
        self.write("bad.xz", b"\xfd7zXZ\0rest")
        os.mkdir(self.path("dir"))
        said = self.count("good", "absent", "dir", expect=66)
        self.assertRegex(said, r"absent: No such file")
        self.assertRegex(said, r"dir: Is a directory")
        self.assertRegex(self.count("good", "bad.xz", expect=65), "bad.xz: compressed with xz; decompress the file first with `xz -dk`")
        self.assertEqual(self.slices(), [])
        self.count("good")
        self.check_counted(data)

    def test_a_damaged_file_keeps_the_lines_before_the_damage(self):
        data, other = self.generate(5000), self.generate(100, seed=5)
        packed = gzip.compress(data)
        self.write("log.gz", packed[:len(packed) // 2])
        self.write("other", other)
        self.assertRegex(self.count("log.gz", "other", expect=65), "log.gz: truncated")
        self.assertGreater(int(self.expected(data)[1][0]), 0)
        self.write("log.gz", packed)
        self.count("log.gz", "other")
        self.check_counted(data, other)

    def test_long_and_empty_lines(self):
        good = b'{"t":1331923247,"l":"a"}\n'
        long = b'{"t":1331923247,"l":"' + b"x" * 5000 + b'"}\n'
        self.write("log", good + b"\n\r\n" + long + good)
        self.count("log", options=["--max-line=100"])
        self.count("log", options=["--max-line=100"])
        entries = [json.loads(line) for line in self.rejects()]
        self.assertEqual([(e["bytes"], e["offset"]) for e in entries], [(len(long) - 1, str(len(good) + 3))])
        self.assertIn(b"u|a,c3gi:2", self.counted())

    def test_usage(self):
        self.write("log", b"")
        for args in (["--input"], ["log"]):
            done = self.run_program("aggregator", "--config", self.config, *args)
            self.assertEqual(done.returncode, 78)
            self.assertIn(b"--input needs files", done.stderr)

    def test_the_directories_of_the_pipeline(self):
        """With [millrace] data_dir, as `millrace up` and the other commands have them."""
        data = self.generate(1000)
        self.write("log", data)
        config = self.write("clicks.conf", harness.pipeline_config("millrace-data"))

        def millrace(*args):
            done = subprocess.run([harness.program("millrace"), *args], capture_output=True, text=True, cwd=self.dir)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout + done.stderr
        count = ("aggregator", "--config", "clicks.conf", "--input", "log")
        self.assertIn("data_dir = millrace-data/aggregator ; [millrace]", " ".join(millrace(*count, "--check-config").split()))
        self.assertIn("0 of 1 file was counted before", millrace(*count))
        pipeline = harness.Pipeline(self, config, self.path("millrace-data"), "--data-dir=" + self.path("millrace-data")).wait_ready()
        self.assertEqual(pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events_total"], self.expected(data)[1][0])
        millrace("compact", "--config", "clicks.conf", "--data-dir=millrace-data")
        pipeline.interrupt()
        shutil.rmtree(self.path("millrace-data", "aggregator"))  # the archive knows the file too
        self.assertIn("1 of 1 file was counted before", millrace(*count))

    @unittest.skipUnless(harness.rounds(1) > 1, "long")
    def test_many_files_are_known_again(self):
        """A run over more than half of the files that may be counted continues."""
        names = ["f%d" % i for i in range(5001)]
        for i, name in enumerate(names):
            self.write(name, b'{"t":1331923249,"l":"u%d"}\n' % i)
        self.assertIn("counted 5001, rejected 0, skipped 0; 0 of 5001 files", self.count(*names))
        self.assertIn("counted 0, rejected 0, skipped 0; 5001 of 5001 files", self.count(*names))

    def test_one_owner(self):
        self.write("log", self.generate(10))
        self.daemon("aggregator", "--config", self.config).wait_listening()
        self.assertRegex(self.count("log", expect=75), "in use by process")

    def test_progress_on_a_terminal(self):
        self.write("log", self.generate(20000))
        ours, theirs = pty.openpty()
        process = subprocess.Popen(self.command("log"), stderr=theirs, cwd=self.dir)
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(process.wait(), 0)
        self.assertTrue(re.search(rb"100 %  \d+ lines  \d+ lines/s", shown), shown)

    def test_streams_and_files_in_one_slice(self):
        """The cursors of files and of streams stay beside one another, through a seal."""
        data = self.generate(500)
        self.write("log", data)
        self.count("log")
        pubsub = self.start("pubsub", "--data-dir", self.path("pubsub"), "--streams=one,two")
        options = ["--config", self.config, "--pubsub-url", pubsub.url, "--streams=one,two"]
        aggregator = self.start("aggregator", *options)
        blobs = [data]
        for stream in ("one", "two"):
            blobs.append(self.generate(300, seed=len(stream) + len(blobs)))
            self.assertEqual(pubsub.post("/pub?stream=" + stream, blobs[-1]).status, 200)
        total = sum(sum(self.expected(blob)[1]) for blob in blobs)

        def lines():
            n = aggregator.stats()
            return n["events_total"] + n["skipped_total"] + n["rejected_total"]
        harness.wait_until(lambda: lines() == total, aggregator.log)
        self.assertEqual(aggregator.post("/seal?slice=1").status, 200)
        aggregator.stop()
        self.assertEqual(len(self.slices()), 2)
        text = subprocess.run([harness.program("millrace"), "slice", self.slices()[0]], capture_output=True, check=True).stdout
        self.assertEqual(text, self.expected(b"".join(blobs))[0])
        self.assertIn("1 of 1 file was counted before", self.count("log"))
        self.assertEqual(self.counted(), b"")


if __name__ == "__main__":
    harness.main()
