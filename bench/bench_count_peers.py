#!/usr/bin/env python3
"""Counting beside clickhouse-server and redis-server: the counters of CONFIG over the events of FILE, in bulk and in batches.

    bench_count_peers.py CONFIG FILE [ROUNDS] [EVENTS]     run by scripts/bench, which names the build

Shown are medians of events a second of the server's processor time; the work of the peers' clients is not counted.

  millrace    bench_count: from lines to a committed slice. A batch is what one read of the stream gives.
  clickhouse  events inserted as JSON lines into a Null table; a materialized view for each counter groups a batch by key, sub key and
              hour into a SummingMergeTree. Measured until the last insert is answered, without the merges that follow it.
  redis       one pipelined HINCRBY an event and counter, into a hash for each counter, key and hour; appendfsync everysec.

The peers know the counters of clicks.conf only. Peers that are not installed (scripts/setup --bench) are left out."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import urllib.parse

import harness
import measuring
import peer_servers
from peer_servers import COUNTERS, FIELDS

PIPELINE = 10000  # commands


class Peers(peer_servers.Peers):
    def bodies(self, lines, events, batch):
        """Texts of `batch` lines each, `events` in all."""
        at = sent = 0
        while sent < events:
            n = min(batch, events - sent, len(lines) - at)
            yield b"".join(lines[at:at + n])
            sent += n
            at = (at + n) % len(lines)

    def millrace(self, config, path, events, batch):
        out = subprocess.run([harness.program("bench_count"), config, path, "1", str(events), str(batch)], check=True,
                             stdout=subprocess.PIPE, cwd=self.dir).stdout.decode()
        return float(out.split("to a committed slice ")[1].split()[0])

    def clickhouse(self, lines, events, batch):
        server = peer_servers.Clickhouse(self)
        clicks = 0
        before = measuring.cpu_seconds(server.process.pid)
        for body in self.bodies(lines, events, batch):
            clicks += body.count(b"\n") - body.count(b'"_heartbeat_"')
            server.insert(body)
        used = measuring.cpu_seconds(server.process.pid) - before
        counted = int(server.ask("SELECT sum(n) FROM counts0"))
        if counted != clicks:
            raise AssertionError("clickhouse counted %d of %d clicks" % (counted, clicks))
        server.process.kill()
        server.process.wait()
        return events / used

    def redis(self, lines, events):
        server = peer_servers.Redis(self)
        with_values = []
        for line in lines[:events]:
            e = json.loads(line)
            if "_heartbeat_" in e:
                continue
            values = {f: e.get(f) or "" for f in FIELDS}
            values.update({"all": "all", "": "", "host(u)": urllib.parse.urlsplit(values["u"]).hostname or "",
                           "host(r)": urllib.parse.urlsplit(values["r"]).hostname or ""})
            hour = e["t"] // 3600
            for name, (key, sub) in COUNTERS.items():
                with_values.append(("%s|%s|%d" % (name, values[key], hour), values[sub]))
        before = measuring.cpu_seconds(server.process.pid)
        for i in range(0, len(with_values), PIPELINE):
            batch = with_values[i:i + PIPELINE]
            server.pipeline(server.socket, b"".join(peer_servers.command(b"HINCRBY", k.encode(), v.encode(), b"1") for k, v in batch), len(batch))
        used = measuring.cpu_seconds(server.process.pid) - before
        server.process.kill()
        server.process.wait()
        return min(events, len(lines)) / used


def main():
    config, path = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    events = int(sys.argv[4]) if len(sys.argv) > 4 else 1000000
    lines = peer_servers.lines_of(path)
    bench, found = Peers(), {}
    bench.setUp()
    try:
        for _ in range(rounds):
            # Fewer events in small batches: ClickHouse would take minutes.
            for batch, n in ((events, events), (1000, events // 10), (100, events // 100)):
                found.setdefault(("millrace", batch), []).append(bench.millrace(config, path, events, min(batch, 2000)))
                if shutil.which("clickhouse-server"):
                    found.setdefault(("clickhouse", batch), []).append(bench.clickhouse(lines, n, batch))
            if shutil.which("redis-server"):
                found.setdefault(("redis", events), []).append(bench.redis(lines, min(events, 50000)))
    finally:
        bench.doCleanups()
    for (name, batch), rates in found.items():
        best = statistics.median(found.get(("clickhouse", events), [0]))
        print("%-10s %8s a batch %9.0f events a processor second%s" %
              (name, "bulk" if batch == events else batch, statistics.median(rates),
               "   %.1f of clickhouse in bulk" % (statistics.median(rates) / best) if name == "millrace" and best else ""))


main()
