#!/usr/bin/env python3
"""Counting by the aggregator, beside a loop that shares no code with it.

    bench_count_daemon.py CONFIG FILE [ROUNDS] [EVENTS]     run by scripts/bench, which names the build

FILE has one event a line and is repeated until EVENTS are counted. Each round measures in turn, by the processor time of the whole
process:

  bare loop   bare_count: lines parsed, interned, added in one table and sorted once, in memory
  in process  bench_count: from lines in memory to a committed slice
  daemon      the aggregator with its stream, from its start to its end: lines received from pubsub, to a committed slice

Shown are medians of events a second of processor time, and of the ratios to the bare loop of the same round."""
import os
import statistics
import subprocess
import sys

import harness
import measuring


class Counting(measuring.Bench):
    def publish(self, path, events):
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", "--streams=s")
        with open(path, "rb") as f:
            lines = f.read().splitlines(keepends=True)
        for at in range(0, events, 2000):
            body = b"".join(lines[i % len(lines)] for i in range(at, min(at + 2000, events)))
            reply = self.pubsub.post("/pub?stream=s", body)
            if reply.status != 200:
                raise AssertionError(reply)
        self.end = reply.json()["end"]
        measuring.pin(self.pubsub.pid, 0)

    def daemon_seconds(self, config, number):
        before = measuring.children_seconds()
        name = "c%d" % number
        d = self.daemon("aggregator", "--config=" + config, "--data-dir=" + self.path(name), "--cursor=" + name, "--streams=s",
                        "--pubsub-url=" + self.pubsub.url)
        measuring.pin(d.pid, 1)
        d.wait_listening()
        harness.wait_until(lambda: d.stats()["streams"]["s"]["offset"] == self.end, lambda: d.log, harness.LONG, interval=0.2)
        if d.stats()["events"] != self.events:
            raise AssertionError("the aggregator counted %d events, the bare loop %d" % (d.stats()["events"], self.events))
        d.stop()
        return measuring.children_seconds() - before

    def output(self, program, *args):
        return subprocess.run([harness.program(program), *args], check=True, stdout=subprocess.PIPE, cwd=self.dir).stdout.decode()


def main():
    config, path = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    events = int(sys.argv[4]) if len(sys.argv) > 4 else 1000000
    bench, found = Counting(), {"bare loop": [], "in process": [], "daemon": []}
    bench.setUp()
    try:
        bench.publish(path, events)
        for i in range(rounds):
            seconds, counted, counts = bench.output("bare_count", path, str(events)).split()
            bench.events = int(counted)
            found["bare loop"].append(events / float(seconds))
            said = bench.output("bench_count", config, path, "1", str(events))
            found["in process"].append(float(said.split("to a committed slice ")[1].split()[0]))
            found["daemon"].append(events / bench.daemon_seconds(config, i))
    finally:
        bench.doCleanups()
    print("%d events, %s different counts" % (events, counts))
    for name, rates in found.items():
        ratio = statistics.median(r / b for r, b in zip(rates, found["bare loop"]))
        print("%-11s %9.0f events a processor second   %.2f of the bare loop" % (name, statistics.median(rates), ratio))


main()
