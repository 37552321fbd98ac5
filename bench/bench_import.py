#!/usr/bin/env python3
"""How fast the compactor imports unsorted records into an empty archive, beside GNU sort of the same lines.

    bench_import.py [ROUNDS]        run by scripts/bench, which names the build

LINES subtotals of random users and hours, in random order. The import and sort each have 256 MB and the same processors: first one, then
two. The archive has as many shards, because the compactor merges each with a thread of its own. sort only orders and writes the lines; the
import also checks each line, adds up, derives the rollups, makes the index and syncs. Shown are medians of seconds and of processor
seconds, and the ratio within each round. Rounds alternate."""
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

import harness
import measuring

LINES = int(os.environ.get("LINES", 5000000))
DIGITS = "0123456789abcdefghijklmnopqrstuv"
HOURS = ["c3%s%s" % (DIGITS[day], DIGITS[hour]) for day in range(1, 29) for hour in range(24)]


def make_lines(path):
    """Each key once, in an order that does not depend on the run."""
    rng = random.Random(1)
    with open(path + ".new", "w") as f:
        for _ in range(LINES // 100000):
            f.writelines("c.u|user%07d.%s,JP:%d US:%d\n" % (rng.randrange(10000000), rng.choice(HOURS), rng.randrange(1, 9),
                                                           rng.randrange(1, 9)) for _ in range(100000))
    os.rename(path + ".new", path)


class Importing(measuring.Bench):
    def timed(self, processors, *command):
        before = measuring.children_seconds()
        began = time.monotonic()
        subprocess.run(["taskset", "-c", "0-%d" % (processors - 1), *command], check=True, stderr=subprocess.PIPE,
                       env=dict(os.environ, LC_ALL="C"))
        return time.monotonic() - began, measuring.children_seconds() - before

    def sort(self, processors, lines):
        return self.timed(processors, "sort", "-S", "256M", "--parallel=%d" % processors, "-T", self.dir, "-o", self.path("sorted"),
                          lines)

    def imported(self, processors, lines):
        shutil.rmtree(self.path("archive"), ignore_errors=True)
        return self.timed(processors, harness.program("compactor"), "--archive=" + self.path("archive"),
                          "--aggregator-url=none", "--sortdb-url=none", "--memory=256M", "--shards=%d" % processors,
                          "--import", lines)

    def measure(self, lines, rounds):
        megabytes = os.path.getsize(lines) / 1e6
        for processors in (1, 2):
            pairs = [(self.sort(processors, lines), self.imported(processors, lines)) for _ in range(rounds)]
            for i, what in enumerate(("seconds", "processor seconds")):
                sort, imports = (statistics.median(pair[way][i] for pair in pairs) for way in (0, 1))
                ratio = statistics.median(pair[0][i] / pair[1][i] for pair in pairs)
                print("%d processors, %d lines of %.0f MB: sort %.2f, import %.2f %s, ratio %.2f (%.0f MB/s)" % (
                    processors, LINES, megabytes, sort, imports, what, ratio, megabytes / imports))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    lines = os.path.abspath("import-%d.csv" % LINES)
    if not os.path.exists(lines):
        make_lines(lines)
    bench = Importing()
    bench.setUp()
    try:
        bench.measure(lines, rounds)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
