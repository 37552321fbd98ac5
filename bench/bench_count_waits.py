#!/usr/bin/env python3
"""How long requests to the aggregator wait while it counts as fast as it can, with flushes, merges, seals and clears.

    bench_count_waits.py CONFIG CLICKS        run by scripts/bench, which names the build

pubsub and the client have processor 0, the aggregator has processor 1. Every 2 ms the client sends GET /ping, or a get of the total
of all events, in turn. Meanwhile a slice is sealed every two seconds, and the compactor archives and clears the sealed slices. The same
requests to the aggregator once it has counted everything show what the machine itself costs."""
import os
import sys
import threading
import time

import harness
import measuring

REQUESTS = ("/ping", "/get?key=all%7Call")
INTERVAL = 0.002
SEAL_INTERVAL = 2
IDLE = 5


class Waits(measuring.Bench):
    def probe(self, done):
        """Milliseconds of each request, for each of REQUESTS."""
        waits = [[] for _ in REQUESTS]
        while len(waits[0]) % 20 or not done():
            for target, w in zip(REQUESTS, waits):
                began = time.monotonic()
                status = self.aggregator.get(target).status
                w.append(1000 * (time.monotonic() - began))
                if status not in (200, 404):  # 404: nothing is counted since the last clear
                    raise AssertionError("%s: %d" % (target, status))
                time.sleep(INTERVAL)
        return [sorted(w) for w in waits]

    def compact(self, *more):
        return self.run_program("compactor", "--archive=" + self.path("archive"), "--slices=" + self.path("counts", "slices"),
                                "--aggregator-url=" + self.aggregator.url, "--sortdb-url=none", *more)

    def rotate(self):
        """Seals, archives and clears until everything is counted. The compactor seals by itself."""
        while not self.counted:
            done = self.compact()
            if done.returncode:
                raise AssertionError(done.stderr)
            self.rotations += 1
            time.sleep(SEAL_INTERVAL)

    def feed(self, clicks):
        """Publishes all lines, from a process of its own."""
        pid = os.fork()
        if pid == 0:
            os.sched_setaffinity(0, {0})
            for i in range(0, len(clicks), 2000):
                if self.pubsub.post("/pub?stream=s", b"".join(clicks[i:i + 2000])).status != 200:
                    os._exit(1)
            os._exit(0)
        return pid

    def is_counted(self):
        s = self.aggregator.stats()
        return s["events_total"] + s["skipped_total"] + s["rejected_total"] >= self.events

    def measure(self, config, clicks):
        self.rotations, self.counted, self.events = 0, False, len(clicks)
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("data"), "--sync=never", "--streams=s")
        if self.run_program("compactor", "--archive=" + self.path("archive"), "--init", "--shards=1").returncode:
            raise AssertionError("cannot make the archive")
        self.aggregator = self.start("aggregator", "--config=" + config, "--data_dir=" + self.path("counts"),
                                     "--archive=" + self.path("archive"), "--streams=s", "--pubsub_url=" + self.pubsub.url)
        measuring.pin(self.pubsub.pid, 0)
        measuring.pin(self.aggregator.pid, 1)
        rotating, began = threading.Thread(target=self.rotate), time.monotonic()
        feeder = self.feed(clicks)
        rotating.start()
        waits = self.probe(self.is_counted)
        self.counted, took = True, time.monotonic() - began
        rotating.join()
        if os.waitpid(feeder, 0)[1]:
            raise AssertionError("not everything was published")
        until = time.monotonic() + IDLE
        idle = self.probe(lambda: time.monotonic() > until)
        print("%d events, %.0f a second by the clock, %d seals and clears" % (self.events, self.events / took, self.rotations))
        show("counting", waits)
        show("idle", idle)


def show(when, waits_of):
    for target, waits in zip(REQUESTS, waits_of):
        show_one("%s %s" % (when, target), waits)


def show_one(name, waits):
    def at(q):
        return waits[min(len(waits) - 1, int(q * len(waits)))]
    print("%-28s %6d requests   median %.2f ms   p99 %.2f ms   p99.9 %.1f ms   longest %.1f ms" %
          (name, len(waits), at(0.5), at(0.99), at(0.999), waits[-1]))


def main():
    with open(sys.argv[2], "rb") as f:
        clicks = 4 * f.read().splitlines(keepends=True)
    bench = Waits()
    bench.setUp()
    try:
        bench.measure(sys.argv[1], clicks)
    finally:
        bench.doCleanups()


main()
