#!/usr/bin/env python3
"""queue_to_nats beside a bare publisher of libnats with one message of the same size in flight, on one nats-server with a stream
of one replica: bytes a second of events of 450 bytes.

    bench_nats.py [ROUNDS] [EVENTS]      needs nats-server

Each round fills a queue, then measures the bare publisher and the relay in turn. Shown are the medians and the median ratio within
a round, and the processor time of relay, queue and server for an event of the relay."""
import statistics
import subprocess
import sys
import time

import harness
import measuring
from nats_test import Client, NatsServer

LINE = b"x" * 449
SECONDS = 5


def delivered(relay):
    return relay.stats()["messages_delivered_total"]


def measure(events):
    bench = measuring.Bench()
    bench.setUp()
    try:
        server = NatsServer(bench, "n").start()
        queue = bench.start("simplequeue", "--data-dir=" + bench.path("q"), "--sync=never", "--max-memory=4G")
        for _ in range(events // 2000):
            assert queue.post("/mput", b"\n".join([LINE] * 2000)).status == 200
        relay = bench.daemon("queue_to_nats", "--queue-url=" + queue.url, "--nats-url=" + server.url, "--create", "--replicas=1")
        relay.wait_listening()
        harness.wait_until(lambda: relay.alive() and relay.get("/health").status == 200, "the relay", interval=0.001)
        before, start = delivered(relay), time.monotonic()
        cpu = [measuring.cpu_seconds(p.pid) for p in (relay, queue, server.process)]
        harness.wait_until(lambda: delivered(relay) >= events, "all events", timeout=300, interval=0.02)
        took = time.monotonic() - start
        used = [measuring.cpu_seconds(p.pid) - c for p, c in zip((relay, queue, server.process), cpu)]
        batches = relay.stats()["deliveries_total"]
        size = events * 450 // batches
        relay.stop()
        state = Client(server).api("STREAM.DELETE.clicks")
        assert state["success"]
        bare = float(subprocess.run([harness.program("bare_nats"), server.url, "bare", str(size), str(SECONDS)],
                                    check=True, capture_output=True).stdout)
        return (events - before) * 450 / took, bare, size, [1e6 * u / (events - before) for u in used]
    finally:
        bench.doCleanups()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    events = int(sys.argv[2]) if len(sys.argv) > 2 else 1000000
    found = [measure(events) for _ in range(rounds)]
    relay, bare = (statistics.median(f[i] for f in found) for i in (0, 1))
    print("queue_to_nats %.0f MB/s, %.0f events/s; bare libnats %.0f MB/s; ratio %.2f; messages of %d KB"
          % (relay / 1e6, relay / 450, bare / 1e6, statistics.median(f[0] / f[1] for f in found), found[0][2] // 1000))
    print("us an event: relay %.2f, queue %.2f, nats-server %.2f" % tuple(statistics.median(f[3][i] for f in found) for i in range(3)))


if __name__ == "__main__":
    main()
