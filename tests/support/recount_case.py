"""A pipeline of single daemons whose counters change, and the archive of an undisturbed run under the new counters."""
import hashlib
import itertools
import json
import os
import re

import harness
from harness import wait_until


def real_lines():
    return (line for path in harness.real_files() for line in harness.read_file(path).split(b"\n") if line)


UNIQUES = """
[unique v.u]
member = c
[unique w.u]
member = tz
by = hour
"""


class RecountTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.new = self.configuration("new.conf", harness.sample_counters() + UNIQUES)
        old = re.sub(r"(?ms)^\[subtotal c\.u\].*?(?=^\[|\Z)", "[subtotal z.u]\nkey = tz\nlabel = zone\n", harness.sample_counters())
        self.assertNotEqual(old, harness.sample_counters())
        self.old = self.configuration("old.conf", old)
        self.archive, self.recounted = self.path("run", "archive"), self.path("run", "recount")
        self.posted = 0

    def serve(self, name, *args):
        return self.start(name, *args, listen="unix:" + self.path(name + ".socket"))

    def configuration(self, name, counters):
        """The settings by which the tools find the daemons."""
        text = "[millrace]\ndata_dir = %s\n" % self.path("run")
        for daemon in ("pubsub", "aggregator", "sortdb"):
            text += "[%s]\naddress = unix:%s\n" % (daemon, self.path(daemon + ".socket"))
        return self.write(name, text + counters)

    def lines(self, n, seed=1):
        """Lines of the real feed if it is on this machine, some of them damaged; otherwise generated lines."""
        if harness.real_files():
            lines = list(itertools.islice(real_lines(), (seed - 1) * 20000, (seed - 1) * 20000 + n))
            self.assertEqual(len(lines), n)
            return [line[:len(line) // 2] if i % 97 == 0 else line for i, line in enumerate(lines, 1)]
        done = self.run_program("clickgen", "--events=%d" % n, "--seed=%d" % seed, "--users=300", "--links=2000",
                                "--heartbeats=0.03", "--damaged=0.01")
        return [line for line in done.stdout.splitlines() if line]

    def post(self, lines, stream="clicks"):
        for i in range(0, len(lines), 5000):
            reply = self.pubsub.post("/pub?stream=" + stream, b"\n".join(lines[i:i + 5000]))
            self.assertEqual(reply.status, 200, reply)
            self.posted = int(reply.json()["end"])

    def count(self, config, *args):
        """Starts the aggregator and waits until all is counted."""
        self.aggregator = self.serve("aggregator", "--config=" + config, "--data-dir=" + self.path("run", "aggregator"),
                                     "--archive=" + self.archive, *args)
        self.wait_counted()

    def wait_counted(self, aggregator=None):
        wait_until(lambda: int((aggregator or self.aggregator).stats()["streams"]["clicks"]["offset"]) == self.posted,
                   "all to be counted", timeout=harness.LONG)

    def init(self):
        os.makedirs(self.path("run"), exist_ok=True)
        self.assertEqual(self.run_program("compactor", "--archive=" + self.archive, "--init").returncode, 0)
        self.sortdb = self.serve("sortdb", "--archive=" + self.archive)

    def millrace(self, *args, config=None, expect=0):
        done = self.run_program("millrace", args[0], "--config", config or self.new, *args[1:])
        text = (done.stdout + done.stderr).decode()
        self.assertEqual(done.returncode, expect, text)
        return text

    def manifest(self, archive=None):
        with open(os.path.join(archive or self.archive, "current", "manifest.json")) as f:
            return json.load(f)

    def files(self, archive=None):
        """The digests of the current generation's data."""
        current = os.path.join(archive or self.archive, "current")
        return {name: hashlib.sha256(harness.read_file(os.path.join(current, name))).hexdigest()
                for name in sorted(os.listdir(current)) if name.endswith(".csv")}

    def undisturbed(self):
        """Makes the archive of an aggregator that has the new counters from the first line on."""
        own = self.path("undisturbed")
        self.assertEqual(self.run_program("compactor", "--archive=" + self.path("expected"), "--init").returncode, 0)
        a = self.start("aggregator", "--config=" + self.new, "--data-dir=" + own, "--cursor=undisturbed",
                       "--archive=" + self.path("expected"))
        self.wait_counted(a)
        done = self.run_program("compactor", "--archive=" + self.path("expected"), "--slices=" + os.path.join(own, "slices"),
                                "--aggregator-url=" + a.url, "--sortdb-url=none")
        self.assertEqual(done.returncode, 0, done.stderr)
        wait_until(lambda: {c["name"]: c["offset"] for c in self.pubsub.get("/cursors").json()["cursors"]}["undisturbed"]
                   == str(self.posted), "its cursor to reach the end")
        a.stop()
        return self.files(self.path("expected"))

    def check_exact(self):
        """After another compaction the pipeline's archive has the bytes of the undisturbed run."""
        self.wait_counted()
        self.millrace("compact")
        expected = self.undisturbed()
        self.assertIn(b"\nc.u|", harness.read_file(os.path.join(self.archive, "current", "shard-0-of-1.csv")))
        self.assertEqual(self.files(), expected)
        sets = [[line for line in self.export(archive).splitlines() if b",@" in line] for archive in (self.archive, self.path("expected"))]
        self.assertTrue(sets[0])
        self.assertEqual(sets[0], sets[1])

    def export(self, archive):
        done = self.run_program("compactor", "--archive=" + archive, "--export")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
