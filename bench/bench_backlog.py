#!/usr/bin/env python3
"""A backlog of 1 GiB, read from its beginning by 1, 10 and 100 subscribers: pubsub beside a bare loop that sends the same files
with sendfile, 256 KB a call. Server on processor 0, the same lean reader on processor 1.

    bench_backlog.py [ROUNDS [FORM...]]      run by scripts/bench, which names the build; a FORM is frames or lines

`frames` were published 100 lines of 450 bytes at a time, `lines` one at a time. A hundred subscribers read the first 100 MiB
each, so that all together read 10 GiB at most. A round measures both servers in turn; shown are medians, with the
processor time that the server took a GB."""
import os
import statistics
import subprocess
import sys

import harness

GIB = 1 << 30
FORMS = {"frames": 100, "lines": 1}
EACH = {1: 2 * GIB, 10: 2 * GIB, 100: 100 << 20}


class Bench(harness.MillraceTest):
    """Not a test: it takes the harness's directory, daemons and clean-up."""

    def runTest(self):
        pass

    def run_bench(self, *args):
        run = subprocess.run([harness.program("bench_backlog"), *map(str, args)], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stderr)
        return run.stdout.split()

    def files(self, form):
        return self.path("data", "streams", form)

    def bare(self, form):
        """(port, pid)"""
        p = subprocess.Popen([harness.program("bench_backlog"), "serve", self.files(form)], stdout=subprocess.PIPE)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        return int(p.stdout.readline()), p.pid

    def pubsub(self):
        p = self.start("pubsub", "--data-dir=" + self.path("data"), "--sync=never", "--scrub-rate=0")
        for task in os.listdir("/proc/%d/task" % p.pid):
            os.sched_setaffinity(int(task), {0})
        return int(p.url.rsplit(":", 1)[1]), p.pid

    def cpu(self, pid):
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, server, form, subscribers):
        """(bytes a second, seconds of processor time a GB)"""
        port, pid = server
        before = self.cpu(pid)
        rate, got = self.run_bench("read", port, "/sub?stream=%s&from=earliest&follow=0" % form, subscribers,
                                   EACH[subscribers])
        return float(rate), (self.cpu(pid) - before) / (int(got) / 1e9)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    bench = Bench()
    bench.setUp()
    try:
        os.makedirs(bench.path("data", "streams"))
        forms = sys.argv[2:] or list(FORMS)
        for form in forms:
            bench.run_bench("make", bench.files(form), FORMS[form], GIB)
        pubsub = bench.pubsub()
        for form in forms:
            bare = bench.bare(form)
            for subscribers in EACH:
                seen = {"bare": [], "pubsub": []}
                for _ in range(rounds):
                    seen["bare"].append(bench.measure(bare, form, subscribers))
                    seen["pubsub"].append(bench.measure(pubsub, form, subscribers))
                ratio = statistics.median(p[0] / b[0] for p, b in zip(seen["pubsub"], seen["bare"]))
                print("%s, %3d subscribers:" % (form, subscribers), "  ".join(
                    "%s %.2f GB/s (%.3f s/GB)" % (k, statistics.median(x[0] for x in v) / 1e9,
                                                  statistics.median(x[1] for x in v)) for k, v in seen.items()),
                    "  ratio %.2f" % ratio, flush=True)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
