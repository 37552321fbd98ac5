#!/usr/bin/env python3
"""Live subscribers of pubsub, beside redis PUBLISH and NATS: each server on processor 0, asked by the same lean client on
processor 1, messages of 450 bytes.

    bench_streams.py streams [ROUNDS]          delivered messages a second: 1, 10 and 100 subscribers, published 100 a request
    bench_streams.py stream_latency [ROUNDS]   from publisher to subscriber, at 50,000 messages a second, 10 a request, beside a bare
                                               loop that writes to the subscriber what is published
    bench_streams.py streams_slow [ROUNDS]     98 subscribers of pubsub, without and with two more: one that reads 1 KB/s, one stopped

Run by scripts/bench, which names the build. Each round measures every server in turn; shown are medians, of figures and of the
ratios within a round. Peers that are not installed (scripts/setup --bench) are left out."""
import os
import shutil
import socket
import statistics
import subprocess
import sys

import harness
import measuring

DELIVERED = {1: 600000, 10: 2500000, 100: 4000000}  # messages a measurement: about a second
# Connections that publish: more did not help redis and pubsub, nor a second one NATS, in a few rounds of each.
PUBLISHERS = {"pubsub": 4, "redis": 4, "nats": 1}
RATE, SECONDS = 50000, 0.5


class Bench(measuring.Bench):
    def peer(self, name):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        argv = {"redis": ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir,
                          "--client-output-buffer-limit", "pubsub 0 0 0"],
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

    def bare(self):
        p = subprocess.Popen([harness.program("bench_stream_latency"), "bare"], stdout=subprocess.PIPE)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        return int(p.stdout.readline())

    def peers(self):
        return {name: self.peer(name) for name in ("redis", "nats") if shutil.which(name + "-server")}


def run(program, *args):
    done = subprocess.run([harness.program(program), *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def delivered(protocol, port, subscribers, *more):
    messages = DELIVERED[100 if subscribers > 10 else subscribers] // subscribers
    return run("bench_streams", protocol, port, subscribers, messages, PUBLISHERS[protocol], *more)[0]


def streams(bench, rounds):
    servers = {"pubsub": bench.pubsub("never"), **bench.peers()}
    for subscribers in (1, 10, 100):
        seen = [{name: delivered(name, port, subscribers) for name, port in servers.items()} for _ in range(rounds)]
        text = "  ".join("%s %.2f M/s" % (name, statistics.median(s[name] for s in seen) / 1e6) for name in servers)
        if len(servers) > 1:
            ratio = statistics.median(s["pubsub"] / max(v for n, v in s.items() if n != "pubsub") for s in seen)
            text += "   pubsub %.2f of the best peer" % ratio
        print("%3d subscribers: %s" % (subscribers, text), flush=True)


def stream_latency(bench, rounds):
    beside = "" if measuring.prefer() else "; beside others' work"
    servers = {"a bare loop": ("pubsub", bench.bare()),
               **{"pubsub, sync=" + sync: ("pubsub", bench.pubsub(sync)) for sync in ("never", "0", "5")}}
    if shutil.which("redis-server"):  # NATS puts pings between the messages: they are not found by counting bytes
        servers["redis"] = ("redis", bench.peer("redis"))
    seen = {label: [] for label in servers}
    for _ in range(rounds):
        for label, (protocol, port) in servers.items():
            seen[label].append(run("bench_stream_latency", protocol, port, RATE, SECONDS))
    print("%-20s %9s %9s %9s %9s %16s   rounds without stolen time (milliseconds, %d messages/s in batches of 10%s)"
          % ("", "p50", "p99", "p99.9", "worst", "p99 less bare's", RATE, beside))
    for label, rows in seen.items():
        more = statistics.median(row[1] - bare[1] for row, bare in zip(rows, seen["a bare loop"]))
        print("%-20s %9.3f %9.3f %9.3f %9.3f %16.3f   %d of %d" % (
            label, *(statistics.median(column) for column in list(zip(*rows))[:4]), more, sum(row[4] for row in rows), rounds))


def streams_slow(bench, rounds):
    port = bench.pubsub("never")
    seen = [(delivered("pubsub", port, 98), delivered("pubsub", port, 98, "slow")) for _ in range(rounds)]
    print("98 subscribers: %.2f M/s, beside a slow and a stopped one %.2f M/s: %.2f of it (asked: 0.9)" % (
        statistics.median(a for a, _ in seen) / 1e6, statistics.median(b for _, b in seen) / 1e6,
        statistics.median(b / a for a, b in seen)))


def main():
    what = {"streams": streams, "stream_latency": stream_latency, "streams_slow": streams_slow}[sys.argv[1]]
    bench = Bench()
    bench.setUp()
    try:
        what(bench, int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
