#!/usr/bin/env python3
"""Checks a second of spamfilter over HTTP, on one processor, beside a bare loop that answers the same checks from a hash table.

    bench_marks.py [ROUNDS]        run by scripts/bench, which names the build

MARKS (1,000,000) marks are loaded. A request has one link, or LINES links in its body; half of the links are marked. Servers have
processor 0, the client has processor 1. Ratios are of the same round, shown is the median."""
import os
import statistics
import subprocess
import sys

import harness
import measuring

MARKS = int(os.environ.get("MARKS", 1_000_000))
LINES = 1000
SINGLE = "/check?url=https%3A%2F%2Fwww.site#.example%2Fa%2Fpage"
REQUESTS = {"one link a request": 200_000, "%d links a request" % LINES: 1_000}


class Checks(measuring.Bench):
    def begin(self):
        spamfilter = self.start("spamfilter", "--data-dir", self.path("marks"))
        path = self.write("marks/load/list", "".join("site%02d.example\n" % i for i in range(0, 2 * MARKS, 2)))
        self.body = self.write("links", "".join("https://www.site%02d.example/a/page\n" % (i * (2 * MARKS // LINES - 1)) for i in range(LINES)))
        assert spamfilter.post("/load?file=list").status == 200
        harness.wait_until(lambda: spamfilter.stats()["load"]["state"] == "done", spamfilter.stats)
        measuring.pin(spamfilter.process.pid, 0)
        bare = subprocess.Popen(harness.dies_with_us(["taskset", "-c", "0", harness.program("bare_marks"), path]),
                                stdout=subprocess.PIPE, text=True)
        self.bare_pid = bare.pid
        self.addCleanup(bare.wait)
        self.addCleanup(bare.kill)
        self.ports = {"bare loop": int(bare.stdout.readline()), "spamfilter": int(spamfilter.url.rsplit(":", 1)[1])}

    def client(self, port, kind):
        what = ("target", SINGLE) if kind.startswith("one") else ("check", self.body)
        done = subprocess.run([harness.program("bench_reads"), str(port), *what, str(REQUESTS[kind])],
                              capture_output=True, text=True, check=True)
        return float(done.stdout.split()[0])

    def check_same_answers(self):
        answers = [harness.request("http://127.0.0.1:%d" % port, "POST", "/check", harness.read_file(self.body)).text for port in self.ports.values()]
        bare, marked = (answer.count('"marked":true') for answer in answers)
        assert bare == LINES // 2 <= marked <= bare + 0.03 * LINES, (bare, marked)  # false positives: 1 % by default

    def compare(self, rounds):
        for kind in REQUESTS:
            seen = {name: [] for name in self.ports}
            for _ in range(rounds):
                for name, port in self.ports.items():
                    seen[name].append(self.client(port, kind) * (1 if kind.startswith("one") else LINES))
            for name, rates in seen.items():
                ratio = statistics.median(r / b for r, b in zip(rates, seen["bare loop"]))
                print("%-22s %-10s %9.0f links/s   %.2f of the bare loop" % (kind, name, statistics.median(rates), ratio))


def main():
    bench = Checks()
    bench.setUp()
    try:
        bench.begin()
        bench.check_same_answers()
        bench.compare(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
