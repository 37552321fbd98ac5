#!/usr/bin/env python3
"""The API's series over an archive that it maps: a year of days of a key with clicks in every hour. All connections ask for one key, then each
for its own.

    bench_api.py [ROUNDS]        run by scripts/bench, which names the build

API and aggregator have processor 0, the client has processor 1. Shown are the median of all rounds' requests a second and of their
processor time, beside a bare loop that answers with the same bytes, and the times of single requests one after the other."""
import http.client
import os
import statistics
import subprocess
import sys
import time

import harness
import measuring

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "daemons"))
from sortdb_case import point_at, write_generation  # noqa: E402
from test_api_rollups import HOUR, HOURS, START, hour_text  # noqa: E402

REQUESTS = int(os.environ.get("REQUESTS", 20_000))
SINGLE = 3_000
CONNECTIONS = 32  # of bench_reads
TARGET = "/v1/series?user=k%s&unit=day&from=%d&to=%d" % ("%s", START, START + HOURS * HOUR)


class Series(measuring.Bench):
    def begin(self):
        measuring.prefer()
        counts = " ".join("%s:%d" % (hour_text(START + h * HOUR), 1 + h % 9) for h in range(HOURS))
        archive = self.path("archive")
        os.mkdir(archive)
        write_generation(archive, 1, 0, [(b"u|k%02d" % i, counts.encode()) for i in range(CONNECTIONS)])
        point_at(archive, 1)
        config = self.write("bench.conf", harness.sample_counters())
        pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub"), "--streams=clicks")
        aggregator = self.start("aggregator", "--config", config, "--data-dir=" + self.path("aggregator"), "--pubsub-url=" + pubsub.url)
        self.api = self.start("api", "--config", config, "--aggregator-url=" + aggregator.url, "--archive=" + archive)
        self.processes = self.api.pid, aggregator.pid
        for pid in self.processes:
            measuring.pin(pid, 0)
        harness.wait_until(lambda: self.api.get(TARGET % "00").status == 200, lambda: self.api.get(TARGET % "00").text)

    def rate(self, key, *more):
        port = self.api.url.rsplit(":", 1)[1]
        done = subprocess.run([harness.program("bench_reads"), port, "target", TARGET % key, str(REQUESTS), *more],
                              capture_output=True, text=True, check=True)
        return [float(n) for n in done.stdout.split()]

    def single(self):
        os.sched_setaffinity(0, {1})
        c = http.client.HTTPConnection("127.0.0.1", int(self.api.url.rsplit(":", 1)[1]))
        took = []
        for _ in range(SINGLE):
            began = time.perf_counter()
            c.request("GET", TARGET % "00")
            c.getresponse().read()
            took.append(1e3 * (time.perf_counter() - began))
        took.sort()
        return took[SINGLE // 2], took[SINGLE * 99 // 100]

    def compare(self, key, what, rounds):
        ours, bare, used = [], [], []
        for _ in range(rounds):
            bare.append(self.rate("00", "bare"))
            before = [measuring.cpu_seconds(pid) for pid in self.processes]
            ours += self.rate(key)
            used.append([measuring.cpu_seconds(pid) - b for pid, b in zip(self.processes, before)])
        rates = [a / b for a, (b, _) in zip(ours, bare)]
        times = [b * REQUESTS / 1e6 / sum(u) for u, (_, b) in zip(used, bare)]
        print("a year of days, %s: %.0f requests/s, bare loop %.0f, ratio %.2f, by processor time %.2f" % (
            what, *(statistics.median(x) for x in (ours, [b for b, _ in bare], rates, times)),))
        print("processor time of a request: API %.0f us, aggregator %.0f us, bare loop %.1f us" % (
            *(1e6 * statistics.median(u[i] for u in used) / REQUESTS for i in range(2)), statistics.median(b for _, b in bare)))

    def print_single(self, rounds):
        print("single requests: p50 %.2f ms, p99 %.2f ms (median of %d rounds)" % (
            *(statistics.median(x) for x in zip(*(self.single() for _ in range(rounds)))), rounds))


def main():
    bench = Series()
    bench.setUp()
    try:
        bench.begin()
        rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
        bench.compare("00", "one key", rounds)
        bench.compare("#", "%d keys" % CONNECTIONS, rounds)
        bench.print_single(rounds)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
