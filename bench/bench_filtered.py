#!/usr/bin/env python3
"""What pubsub_filtered does with real events from receiving them to having them published: two fields dropped, one hashed.

    bench_filtered.py CLICKS [ROUNDS]        run by scripts/bench, which names the build

The stream lies in pubsub, which has processor 0 and takes what comes back; pubsub_filtered has processor 1. Each round goes through
the whole stream into a new one. Shown are medians: events a second of its processor time, all of it from its start on, which is what
a core does; and events a second of the clock, which pubsub limits too."""
import os
import statistics
import sys
import time

import harness
import measuring


class Filtering(measuring.Streams):
    def mark(self, target):
        reply = self.pubsub.get("/producer?stream=%s&producer=bench" % target)
        return int(reply.json()["mark"]) if reply.status == 200 else 0

    def measure(self, number):
        """Events a second of processor time, and of the clock."""
        target = "out-%d" % number
        began = time.monotonic()
        f = self.daemon("pubsub_filtered", "--pubsub_url=" + self.pubsub.url, "--stream=s", "--to_stream=" + target,
                        "--producer=bench", "--drop=a,ll", "--hash=g", "--hash_key_file=" + self.key, port=False)
        measuring.pin(f.pid, 1)
        harness.wait_until(lambda: self.mark(target) == self.bytes, "all to be published")
        took, used = time.monotonic() - began, measuring.cpu_seconds(f.pid)
        f.stop()
        return self.events / used, self.events / took


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    bench = Filtering()
    bench.setUp()
    try:
        bench.key = bench.write("key", "0123456789abcdef0123456789abcdef")
        os.chmod(bench.key, 0o600)
        bench.fill(sys.argv[1])
        bench.measure(0)
        results = [bench.measure(1 + r) for r in range(rounds)]
        print("%.0f events/s of processor time, %.0f by the clock" % tuple(map(statistics.median, zip(*results))))
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
