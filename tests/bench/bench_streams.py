#!/usr/bin/env python3
"""Messages of 450 bytes, published 100 at a time, delivered to 1, 10 and 100 live subscribers: pubsub beside redis PUBLISH
and NATS, each on processor 0, asked by the same lean client on processor 1.

    bench_streams.py [ROUNDS]        run by scripts/bench, which names the build

Each round measures every server in turn; shown are medians of messages delivered a second, summed over the subscribers, and
pubsub's ratio to the best peer. Peers that are not installed (scripts/setup --bench) are left out."""
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time

import harness
import measuring

DELIVERED = 1000000  # messages a measurement, at least 20,000 of them published


class Bench(measuring.Bench):
    def peer(self, name):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        argv = {"redis": ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir],
                "nats": ["nats-server", "-a", "127.0.0.1", "-p", str(port)]}[name]
        log = open(self.path(name + ".log"), "wb")
        self.addCleanup(log.close)
        process = subprocess.Popen(["taskset", "-c", "0", *harness.dies_with_us(argv)], stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", port)) == 0
        harness.wait_until(listens, name + " to listen")
        return port

    def pubsub(self, sync):
        p = self.start("pubsub", "--data-dir=" + self.path("data-" + sync), "--sync=" + sync, "--streams=s",
                       "--retain-bytes=512M")
        measuring.pin(p.pid, 0)
        return int(p.url.rsplit(":", 1)[1])

    def measure(self, protocol, port, subscribers):
        run = subprocess.run([harness.program("bench_streams"), protocol, str(port), str(subscribers),
                              str(max(DELIVERED // subscribers, 20000))], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(run.stderr)
        return float(run.stdout)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    bench = Bench()
    bench.setUp()
    try:
        servers = [("pubsub, never", "pubsub", bench.pubsub("never"))]
        servers += [(name, name, bench.peer(name)) for name in ("redis", "nats") if shutil.which(name + "-server")]
        for subscribers in (1, 10, 100):
            seen = {label: [] for label, _, _ in servers}
            for _ in range(rounds):
                for label, protocol, port in servers:
                    seen[label].append(bench.measure(protocol, port, subscribers))
                    time.sleep(0.1)
            medians = {label: statistics.median(values) for label, values in seen.items()}
            best = max([v for label, v in medians.items() if not label.startswith("pubsub")], default=0)
            print("%3d subscribers:" % subscribers, "  ".join("%s %.2f M/s" % (k, v / 1e6) for k, v in medians.items()),
                  "  pubsub %.2f of the best peer" % (medians["pubsub, never"] / best) if best else "", flush=True)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
