#!/usr/bin/env python3
"""Requests a second of sortdb over HTTP, on one processor, beside a bare loop that answers with the same bytes and, if go is
installed, a Go server over the same file. Then the API's processor time for breakdowns.

    bench_sortdb.py [ROUNDS]        run by scripts/bench, which names the build

RECORDS (10,000,000) records like `c.u|user00012345.c3h5,JP:1 US:2` are in one file. Servers have processor 0, the client has
processor 1. Ratios are of the same round, shown is the median."""
from collections import Counter
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import time

import harness
import measuring

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "daemons"))
from sortdb_case import point_at, write_generation  # noqa: E402
from test_api import Source  # noqa: E402
from test_api_rollups import component, records_of, HOUR, HOURS, START  # noqa: E402

RECORDS = int(os.environ.get("RECORDS", 10_000_000))
REQUESTS = {"get": 100_000, "fwmatch": 100_000, "range": 5_000}
COUNTRIES = ["%c%c" % (65 + i // 6, 65 + i % 6) for i in range(30)]
ASKS = 50


def client(port, kind, *more):
    done = subprocess.run([harness.program("bench_reads"), str(port), kind, str(RECORDS), str(REQUESTS[kind]), *more],
                          capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


class Reads(measuring.Bench):
    def begin(self):
        path = self.path("db")
        with open(path, "w") as f:
            for i in range(RECORDS):
                f.write("c.u|user%08d.c3h5,JP:1 US:2\n" % i)
        sortdb = self.start("sortdb", "--threads=1", "--field-separator=,", "--db-file", path)
        measuring.pin(sortdb.process.pid, 0)
        self.ports = {"sortdb": int(sortdb.url.rsplit(":", 1)[1])}
        if shutil.which("go"):
            self.ports["Go"] = self.start_go(path)

    def start_go(self, path):
        peer = self.path("peer_sortdb")
        source = os.path.join(harness.ROOT, "bench", "peer_sortdb", "main.go")
        subprocess.run(["go", "build", "-o", peer, source], check=True, env=dict(os.environ, GOCACHE=self.path("go"), GO111MODULE="off"))
        process = subprocess.Popen(harness.dies_with_us(["taskset", "-c", "0", peer, path]), stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return int(process.stdout.readline())

    def compare(self, rounds):
        for kind in REQUESTS:
            seen = {"bare loop": [], **{name: [] for name in self.ports if (name, kind) != ("Go", "fwmatch")}}
            for _ in range(rounds):
                seen["bare loop"].append(client(self.ports["sortdb"], kind, "bare"))
                for name in seen:
                    if name != "bare loop":
                        seen[name].append(client(self.ports[name], kind))
            for name, rates in seen.items():
                ratio = statistics.median(r / b for r, b in zip(rates, seen["bare loop"]))
                print("%-8s %-10s %9.0f requests/s   %.2f of the bare loop" % (kind, name, statistics.median(rates), ratio))


class Breakdowns(measuring.Bench):
    """A year by country of a key with clicks in every hour, and the top 10 of a month's 100,000 links."""

    def begin(self):
        hours = {START + h * HOUR: {c: 1 + (h + i) % 9 for i, c in enumerate(COUNTRIES)} for h in range(HOURS)}
        records = list(records_of("k", {t: Counter(c) for t, c in hours.items()}))
        texts = {component(t): t for t in (b"http://example.com/%06d" % i for i in range(100_000))}
        records += [(b"lookup|" + s, t) for s, t in texts.items()]
        records.append((b"c.u|l.c1", b" ".join(s + b":%d" % (1 + hash(s) % 100_000) for s in sorted(texts))))
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, records)
        point_at(self.path("archive"), 1)
        sortdb = self.start("sortdb", "--archive", self.path("archive"), "--threads=1")
        config = self.write("bench.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--sortdb-url", sortdb.url, "--aggregator-url", Source(self).url)

    def measure(self, name, query):
        took = []
        for _ in range(5):
            before, began = measuring.cpu_seconds(self.api.process.pid), time.monotonic()
            for _ in range(ASKS):
                r = self.api.get("/v1/breakdown?by=country&limit=10&" + query)
                assert r.status == 200, r
            took.append(((measuring.cpu_seconds(self.api.process.pid) - before) / ASKS, (time.monotonic() - began) / ASKS))
        cpu, wall = (1e3 * statistics.median(t[i] for t in took) for i in range(2))
        print("%-36s %6.2f ms of the API's processor time, %6.2f ms in all" % (name, cpu, wall))

    def compare(self):
        start = START + 5 * HOUR
        self.measure("a year by country, 30 countries", harness.query(user="k", from_=start, to=start + (HOURS - 24) * HOUR))
        month = int(datetime.datetime(2012, 2, 1, tzinfo=datetime.timezone.utc).timestamp())
        self.measure("the top 10 of a month's 100,000 links", harness.query(user="l", from_=START, to=month))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for bench in (Reads(), Breakdowns()):
        bench.setUp()
        try:
            bench.begin()
            bench.compare(*([rounds] if isinstance(bench, Reads) else []))
        finally:
            bench.doCleanups()


if __name__ == "__main__":
    main()
