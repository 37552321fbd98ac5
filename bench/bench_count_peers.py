#!/usr/bin/env python3
"""Counting beside clickhouse-server and redis-server: the counters of CONFIG over the events of FILE, in bulk and in batches.

    bench_count_peers.py CONFIG FILE [ROUNDS] [EVENTS]     run by scripts/bench, which names the build

Shown are medians of events a second of the server's processor time; the work of the peers' clients is not counted.

  millrace    bench_count: from lines to a committed slice. A batch is what one read of the stream gives.
  clickhouse  events inserted as JSON lines into a Null table; a materialized view for each counter groups a batch by key, sub key and
              hour into a SummingMergeTree. Measured until the last insert is answered, without the merges that follow it.
  redis       one pipelined HINCRBY an event and counter, into a hash for each counter, key and hour; appendfsync everysec.

The peers know the counters of clicks.conf only. Peers that are not installed (scripts/setup --bench) are left out."""
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import urllib.parse

import harness
import measuring

# counter: key, sub key or "" (clicks.conf)
COUNTERS = {"all": ("all", ""), "u": ("l", ""), "h": ("h", ""), "d": ("host(u)", ""), "c.all": ("all", "c"),
            "r.all": ("all", "host(r)"), "u.all": ("all", "l"), "h.all": ("all", "h"), "c.u": ("l", "c"), "r.u": ("l", "r"),
            "h.u": ("l", "h"), "c.h": ("h", "c"), "r.h": ("h", "r"), "c.d": ("host(u)", "c")}
FIELDS = ("c", "r", "u", "l", "h")
PIPELINE = 10000  # commands
CLICKHOUSE = """<yandex><logger><level>none</level><console>0</console></logger><listen_host>127.0.0.1</listen_host>
<http_port>{port}</http_port><path>{dir}/</path><tmp_path>{dir}/tmp/</tmp_path><users_config>{dir}/users.xml</users_config>
<mark_cache_size>67108864</mark_cache_size><default_profile>default</default_profile>
<default_database>default</default_database></yandex>"""
USERS = """<yandex><profiles><default><input_format_skip_unknown_fields>1</input_format_skip_unknown_fields>
<max_threads>1</max_threads></default></profiles>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>
</users><quotas><default></default></quotas></yandex>"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Peers(measuring.Bench):
    def spawn(self, name, argv):
        log = open(self.path(name + ".log"), "ab")
        self.addCleanup(log.close)
        p = subprocess.Popen(["taskset", "-c", "0", *harness.dies_with_us(argv)], stdout=log, stderr=log, cwd=self.dir)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

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
        port, place = free_port(), self.path("clickhouse")
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place + "/tmp")
        for name, text in (("config.xml", CLICKHOUSE), ("users.xml", USERS)):
            with open(os.path.join(place, name), "w") as f:
                f.write(text.format(port=port, dir=place))
        p = self.spawn("clickhouse", ["clickhouse-server", "--config-file=" + place + "/config.xml"])
        c = None

        def ask(statement, body=b""):
            c.request("POST", "/?query=" + urllib.parse.quote(statement), body)
            reply = c.getresponse()
            text = reply.read()
            if reply.status != 200:
                raise AssertionError(text)
            return text

        def answers():
            nonlocal c
            try:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
                return ask("SELECT 1") == b"1\n"
            except OSError:
                return False
        harness.wait_until(answers, "clickhouse to answer")
        ask("CREATE TABLE events (t UInt32, _heartbeat_ UInt32, %s) ENGINE = Null" %
            ", ".join(f + " String" for f in FIELDS))
        for i, (key, sub) in enumerate(COUNTERS.values()):
            as_sql = {"all": "'all'", "": "''", "host(u)": "domain(u)", "host(r)": "domain(r)"}
            ask("CREATE TABLE counts%d (key String, sub String, hour UInt32, n UInt64) ENGINE = SummingMergeTree "
                "ORDER BY (key, sub, hour)" % i)
            ask("CREATE MATERIALIZED VIEW view%d TO counts%d AS SELECT %s AS key, %s AS sub, intDiv(t, 3600) AS hour, "
                "count() AS n FROM events WHERE _heartbeat_ = 0 GROUP BY key, sub, hour" %
                (i, i, as_sql.get(key, key), as_sql.get(sub, sub)))
        clicks = 0
        before = measuring.cpu_seconds(p.pid)
        for body in self.bodies(lines, events, batch):
            clicks += body.count(b"\n") - body.count(b'"_heartbeat_"')
            ask("INSERT INTO events FORMAT JSONEachRow", body)
        used = measuring.cpu_seconds(p.pid) - before
        counted = int(ask("SELECT sum(n) FROM counts0"))
        if counted != clicks:
            raise AssertionError("clickhouse counted %d of %d clicks" % (counted, clicks))
        p.kill()
        p.wait()
        return events / used

    def redis(self, lines, events):
        port = free_port()
        p = self.spawn("redis", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.dir,
                                 "--appendonly", "yes", "--appendfsync", "everysec"])
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

        def connected():
            try:
                return socket.create_connection(("127.0.0.1", port))
            except OSError:
                return None
        s = harness.wait_until(connected, "redis to listen")
        before = measuring.cpu_seconds(p.pid)
        for i in range(0, len(with_values), PIPELINE):
            batch = with_values[i:i + PIPELINE]
            out = b"".join(b"*4\r\n$7\r\nHINCRBY\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$1\r\n1\r\n" % (len(k), k, len(v), v)
                           for k, v in ((k.encode(), v.encode()) for k, v in batch))
            s.sendall(out)
            answers = 0
            while answers < len(batch):
                answers += s.recv(1 << 20).count(b"\n")
        used = measuring.cpu_seconds(p.pid) - before
        s.close()
        p.kill()
        p.wait()
        return min(events, len(lines)) / used


def is_json(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def main():
    config, path = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    events = int(sys.argv[4]) if len(sys.argv) > 4 else 1000000
    with open(path, "rb") as f:
        # clickhouse 18 has no default for null, and refuses a batch with a damaged line
        lines = [x.replace(b": null", b': ""') for x in f.read().splitlines(keepends=True) if is_json(x)]
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
