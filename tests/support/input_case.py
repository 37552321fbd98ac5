"""`aggregator --input FILE...`: its counts against those of count_lines, which counts the same bytes without files or cursors."""
import glob
import os
import subprocess

import harness


class InputTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("test.conf", "[aggregator]\ndata_dir = %s\n" % self.path("data") + harness.sample_counters())

    def generate(self, events, seed=1, damaged=0.01):
        """Clicks with heartbeats and damaged lines."""
        done = subprocess.run([harness.program("clickgen"), "--events=%d" % events, "--seed=%d" % seed, "--users=300", "--links=2000",
                               "--heartbeats=0.03", "--damaged=%f" % damaged], stdout=subprocess.PIPE, check=True)
        return done.stdout

    def expected(self, data):
        """The slice's text, and (events, skipped, rejected)."""
        done = subprocess.run([harness.program("count_lines"), self.config], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=True)
        return done.stdout, tuple(int(n) for n in done.stderr.split()[1::2])

    def command(self, *files, options=()):
        return [harness.program("aggregator"), "--config", self.config, *options, "--input", *files]

    def count(self, *files, expect=0, options=()):
        done = subprocess.run(self.command(*files, options=options), capture_output=True, timeout=harness.LONG, cwd=self.dir)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stderr.decode()

    def slices(self):
        return sorted(glob.glob(self.path("data", "slices", "*.db")))

    def counted(self):
        done = subprocess.run([harness.program("millrace"), "slice", self.slices()[-1]], capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def rejects(self):
        return b"".join(harness.read_file(f) for f in sorted(glob.glob(self.path("data", "rejects", "*")))).splitlines()

    def check_counted(self, *blobs):
        """The slice and the rejects hold every line of these bytes once."""
        lines = b"".join(data if data.endswith(b"\n") or not data else data + b"\n" for data in blobs)
        text, (_, _, rejected) = self.expected(lines)
        self.assertEqual(self.counted(), text)
        self.assertEqual(len(self.rejects()), rejected)
