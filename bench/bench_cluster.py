#!/usr/bin/env python3
"""How the costs of a cluster grow with its hosts and cells, all on this machine: four sizes of each, and the fitted law of each cost.

    bench_cluster.py [ROUNDS]     run by scripts/bench, which names the build; needs nats-server and ss

  hosts    so many queues with relays, and so many cells, each with one queue's partition, through one nats-server: events/s from the start
           of the relays until all is counted, and each program's processor time for an event (generated clicks, 14 counters)
  cells    that an API asks: the time of a question. Each cell has the same clicks, half of them in its archive
  network  bytes between hosts for an event, with one nats-server and with three that have three replicas: all bytes that queue_to_nats,
           the nats-servers and nats_to_pubsub receive over TCP

SCALE divides the numbers of events, to try the script."""
import os
import re
import statistics
import subprocess
import sys
import time
import zlib

import harness
import measuring
from bench_growth import Growth, medians, report
from nats_test import NatsServer

SCALE = int(os.environ.get("SCALE", 1))
SIZES = [1, 2, 4, 8]
CELLS = [1, 2, 4, 16]
SERVERS = [1, 3]
EVENTS = 1_000_000 // SCALE
OF_CELL = 100_000 // SCALE
OF_NETWORK = 200_000 // SCALE
QUESTIONS = 100
SECONDS = 600


class Cluster(Growth):
    def servers(self, n):
        routes = [self.keep_port() for _ in range(n)]
        cluster = 'cluster { name: "c", listen: "127.0.0.1:%%s", routes: [%s] }\n' % ", ".join('"nats://127.0.0.1:%s"' % r for r in routes)
        found = [NatsServer(self, "n%d" % i, cluster % route if n > 1 else "") for i, route in enumerate(routes)]
        for server in found:
            server.start()
        return found, routes

    def queue(self, name, taken):
        """A queue in a partition of its own."""
        while True:
            queue = self.start("simplequeue", "--data-dir=" + self.path(name), "--sync=never", "--max-memory=4G")
            queue.post("/follow?reader=queue_to_nats.clicks", b"")  # makes the queue
            partition = zlib.crc32(queue.stats()["queues"]["default"]["queue_id"].encode()) % 64
            if partition not in taken:
                taken.append(partition)
                return queue
            queue.stop()
            subprocess.run(["rm", "-r", self.path(name)], check=True)

    def flow(self, hosts, events, n_servers=1):
        """Counts events that so many queues hold. Returns (seconds, the programs by name, the ports of the nats-servers)."""
        servers, routes = self.servers(n_servers)
        urls = "--nats-url=" + " ".join(server.url for server in servers)
        config, taken, programs = self.write("clicks.conf", harness.sample_counters()), [], {"nats-server": [s.process for s in servers]}

        def start(program, *args, **kw):
            programs.setdefault(program, []).append(self.daemon(program, *args, **kw))
            return programs[program][-1]
        programs["simplequeue"] = [self.queue("queue%d" % i, taken) for i in range(hosts)]
        self.bytes = 0
        for i, text in enumerate(self.clicks(events)):
            self.bytes += len(text)
            reply = programs["simplequeue"][i % hosts].post("/mput", text)
            if reply.status != 200:
                raise AssertionError(reply)
        for i, partition in enumerate(taken):
            place = self.path("cell%d" % i)
            pubsub = start("pubsub", "--data-dir=" + place, "--sync=never").wait_ready()
            start("nats_to_pubsub", "--pubsub-url=" + pubsub.url, urls, "--partitions=%d" % partition)
            start("aggregator", "--config=" + config, "--data-dir=" + place + "-counts", "--pubsub-url=" + pubsub.url, "--streams=clicks").wait_listening()
        began = time.monotonic()
        for queue in programs["simplequeue"]:
            start("queue_to_nats", "--queue-url=" + queue.url, urls, "--create", "--replicas=%d" % n_servers, "--settle-after=1h")

        def counted():
            found = [a.stats() for a in programs["aggregator"]]
            return sum(s["events_total"] + s["skipped_total"] for s in found) >= events
        harness.wait_until(counted, "all to be counted", SECONDS, interval=0.05)
        return time.monotonic() - began, programs, [str(s.port) for s in servers] + routes

    def hosts(self, n):
        took, programs, _ = self.flow(n, EVENTS)
        costs = {"events/s": EVENTS / took}
        for name, found in programs.items():
            costs[name + ", us"] = 1e6 * sum(measuring.cpu_seconds(p.pid) for p in found) / EVENTS
        return costs

    def network(self, n_servers):
        """Bytes for an event. A loopback connection has two sockets, and each byte arrives at one of them."""
        _, _, ports = self.flow(1, OF_NETWORK, n_servers)
        lines = subprocess.run(["ss", "-tinH", "state", "established"], check=True, capture_output=True, text=True).stdout.splitlines()
        found = sum(int(re.search(r"bytes_received:(\d+)|$", facts)[1] or 0) for sockets, facts in zip(lines[::2], lines[1::2])
                    if set(re.findall(r":(\d+)(?=\s|$)", sockets)) & set(ports))
        return {"bytes of an event": self.bytes / OF_NETWORK, "bytes received between hosts": found / OF_NETWORK}

    def pipelines(self):
        """The pipelines of the largest number of cells, each with the same clicks, half of them in its archive."""
        found, first, second = [], [], []
        for i, text in enumerate(self.clicks(OF_CELL)):
            (first, second)[i % 2].append(text)
        for i in range(CELLS[-1]):
            place = self.path("cell%d" % i)
            config = self.write("cell%d.conf" % i, harness.pipeline_config(place, millrace={"run": "pubsub aggregator sortdb"}))
            found.append(harness.Pipeline(self, config, place).wait_ready())
            for texts in (first, second):
                for text in texts:
                    if found[i].ask("pubsub", "POST", "/pub?stream=clicks", text).status != 200:
                        raise AssertionError("pubsub refuses")
                done = self.run_program("millrace", "status", "--wait", "--config=" + config)
                if texts is first:
                    done = self.run_program("millrace", "compact", "--config=" + config)
                if done.returncode != 0:
                    raise AssertionError(done)
        return found

    def questions(self, pipelines, n, number):
        sections = "".join("[cell c%d]\naggregator_url = %s\nsortdb_url = %s\n" % (i, p.daemon_url("aggregator"), p.daemon_url("sortdb"))
                           for i, p in enumerate(pipelines[:n]))
        api = self.start("api", "--config=" + self.write("api-%d-%d.conf" % (n, number), sections + harness.sample_counters()))
        span = "&from=1360281600&to=%d" % (1360281600 + 7 * 86400)
        costs = {}
        for name, target in (("series of a week, ms", "/v1/series?feed=all&unit=day"), ("breakdown by country, ms", "/v1/breakdown?feed=all&by=country"),
                             ("breakdown by link, ms", "/v1/breakdown?feed=all&by=link")):
            took = []
            for _ in range(QUESTIONS):
                began = time.perf_counter()
                reply = api.get(target + span)
                took.append(1e3 * (time.perf_counter() - began))
                if reply.status != 200 or reply.json()["total"] == 0:
                    raise AssertionError(reply)
            costs[name] = statistics.median(took)
        api.stop()
        return costs


def alone(measure):
    """The measurement with a directory and daemons of its own, which end with it."""
    def measured(size, _):
        bench = Cluster()
        bench.setUp()
        try:
            return measure(bench, size)
        finally:
            bench.doCleanups()
    return measured


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    report("hosts", SIZES, medians(rounds, SIZES, alone(Cluster.hosts)))
    for name, values in medians(rounds, SERVERS, alone(Cluster.network)).items():
        print("%-36s %s" % (name + ", 1 and 3 nats-servers", " ".join("%.0f" % value for value in values)))
    bench = Cluster()
    bench.setUp()
    try:
        pipelines = bench.pipelines()
        report("cells", CELLS, medians(rounds, CELLS, lambda n, i: bench.questions(pipelines, n, i)))
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
