#!/usr/bin/env python3
"""One hour of one key with a million and with five million sub keys: how long its breakdown takes, before compaction and after it, and
how long others wait meanwhile.

    bench_huge.py [ROUNDS]        run by scripts/bench, which names the build

SUBS: the numbers of sub keys. Most sub keys are counted once and stored by their hash, so most rows have the same count."""
import os
import statistics
import sys

import harness
import measuring
from huge_case import Gets, HugeCase, START, HOUR, peak_memory, reset_peak, text_of, timed
from record_text import stored

SUBS = [int(n) for n in os.environ.get("SUBS", "1000000 5000000").split()]
GETS = {"aggregator": "/mget?k=u%7Cuser7&after={after}", "sortdb": "/get?key=u%7Cuser7",
        "api": "/v1/series?user=user7&unit=hour&from=%d&to=%d" % (START, START + 3600)}


class Huge(measuring.Bench, HugeCase):
    def series(self, rounds):
        """A request for one sub key in the long line, to the daemon that has it."""
        daemon = self.sortdb if self.compacted else self.aggregator
        key, took = "c.u|huge." + HOUR.decode(), []
        for i in range(20 * rounds):
            sub = stored(text_of(i * (self.subs // 20 // rounds)).encode())
            ms, reply = timed(lambda: daemon.get("/range?" + harness.query(start=key, end=key, rollups="hour", sub=sub)))
            assert reply.status == 200 and sub in reply.body, reply
            took.append(ms)
        return statistics.median(took), max(took)

    def prefer(self, daemons, policy):
        """With SCHED_RR the daemons and this program go before what else the machine does, where that is allowed."""
        try:
            for pid in [os.getpid()] + [d.pid for d in daemons]:
                for task in os.listdir("/proc/%d/task" % pid):
                    os.sched_setscheduler(int(task), policy, os.sched_param(int(policy == os.SCHED_RR)))
        except OSError:
            print("without priority over other programs")

    def measure(self, rounds):
        daemons = {name: getattr(self, name) for name in GETS if name != "sortdb" or self.compacted}
        for d in daemons.values():
            reset_peak(d)
        self.prefer(daemons.values(), os.SCHED_RR)
        gets = {name: Gets(d, GETS[name].format(after=int(self.compacted))) for name, d in daemons.items()}
        took = []
        for _ in range(rounds):
            ms, reply = timed(self.breakdown)
            if reply.status != 200 or reply.json()["distinct"] != self.subs:
                raise AssertionError(reply)
            took.append(ms)
        waits = {name: g.stop() for name, g in gets.items()}
        print("%9d sub keys, %s: breakdown %.0f ms (slowest %.0f); sub= %.2f ms (slowest %.2f)" % (
            self.subs, "after compaction " if self.compacted else "before compaction", statistics.median(took), max(took),
            *self.series(rounds)))
        for name, times in waits.items():
            print("    others' gets at %-10s p99 %.2f ms, longest %.2f ms of %d; peak memory %d MB" % (
                name, times[len(times) * 99 // 100], times[-1], len(times), peak_memory(daemons[name]) >> 20), flush=True)

    def run_all(self, subs, rounds):
        self.compacted = False
        self.count(subs)
        self.serve()
        if not os.environ.get("AFTER"):
            self.measure(rounds)
        self.compact()
        self.compacted = True
        self.measure(rounds)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for subs in SUBS:
        bench = Huge()
        bench.setUp()
        try:
            bench.run_all(subs, rounds)
        finally:
            bench.doCleanups()


main()
