#!/usr/bin/env python3
"""The whole way of an event, from its POST until its count is in an answer, beside what others would run on one machine.

    bench_whole.py FILE [ROUNDS] [EVENTS]     run by scripts/bench, which names the build

Each system has all processors, the client too, and counts the same events of FILE by the counters of etc/clicks.conf:

  millrace    `millrace up` with sync=0: queue, relay, stream and aggregator; the API is asked
  redis       XADD to a stream with appendfsync=always; redis_count adds each batch of the stream by HINCRBY; HVALS is asked
  clickhouse  the events of each second are one INSERT into a Null table; a materialized view for each counter; SELECT is asked.
              Nothing of an event is stored before its INSERT, and nothing is synced.

The client posts 1,000 requests a second of 1, 10 and 50 events for SECONDS each, whatever the answers take, then EVENTS events (redis: a
fifth) as fast as they are taken by CONNECTIONS connections, 100 a request (clickhouse: BULK an INSERT, 2 connections). Meanwhile it asks
for the count of all events again and again, with PAUSE between. A request is visible when an answer has counted as many events as were
due up to it, and at clickhouse not before its INSERT is answered, because its views are written in turn. Its time begins when it was due.
After that four questions are asked and their answers compared with a count of the lines by this program. Shown are medians of the
rounds; processor time includes the questions."""
import collections
import itertools
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import sys
import threading
import time
import traceback

import harness
import measuring
import peer_servers

SECONDS = 3  # at each rate that is offered
REQUESTS = 1000  # a second
AT_FULL_RATE = 100  # events a request
BULK = 250000
CONNECTIONS = 8
PAUSE = 0.001  # seconds between two questions
LIMIT = 300  # seconds until all must be visible
SHARE_OF = {"redis": 5}  # of EVENTS at full rate
PERIOD = "from=2012-01-01&to=2014-01-01"
TOTAL_OF = {"c.all": "all", "c.u": "u"}


def processors():
    return ",".join(map(str, os.sched_getaffinity(0)))


def named(text):
    return text or "None"


class Millrace:
    name = "millrace"

    def __init__(self, bench):
        directory = bench.path("millrace")
        shutil.rmtree(directory, ignore_errors=True)
        config = bench.write("whole.conf", harness.pipeline_config(directory, simplequeue={"sync": 0, "max_memory": "4G"},
                                                                   pubsub={"sync": 0, "streams": "clicks"}))
        self.pipeline = harness.Pipeline(bench, config, directory).wait_ready()
        self.connect()

    def processes(self):
        return {name: self.pipeline.daemon_pid(name) for name in self.pipeline.run_file()["daemons"]}

    def stop(self):
        self.pipeline.interrupt()

    def encode(self, lines):
        body = b"".join(lines)
        return b"POST /mput HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def client(self):
        s = socket.create_connection(("127.0.0.1", int(self.pipeline.daemon_url("simplequeue").rsplit(":", 1)[1])))
        s.settimeout(LIMIT)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def post(request, _):
            s.sendall(request)
            reply = b""
            while not reply.endswith(b"\r\n\r\n"):  # 200 has no body
                text = s.recv(65536)
                reply += text
                if not text or b" 200 " not in reply[:20]:
                    raise AssertionError("simplequeue answers %r" % reply)
        return post

    def connect(self):
        self.api = harness.connect(self.pipeline.daemon_url("api"), LIMIT)

    def ask(self, target):
        self.api.request("GET", target)
        reply = self.api.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise AssertionError(text)
        return json.loads(text)

    def total(self, ns, key):
        return self.ask("/v1/series?unit=month&%s&%s" % (PERIOD, harness.query(ns=ns, key=key)))["total"]

    def breakdown(self, ns, key):
        found = self.ask("/v1/breakdown?limit=1000&%s&%s" % (PERIOD, harness.query(ns=ns, key=key)))
        return {row["key"]: row["n"] for row in found["rows"]}


class Redis:
    name = "redis"

    def __init__(self, bench):
        self.server = peer_servers.Redis(bench, "always", processors())
        self.connect()
        self.counting = bench.spawn("redis_count", [harness.program("redis_count"), str(self.server.port)], processors())

    def processes(self):
        return {"redis": self.server.process.pid, "redis_count": self.counting.pid}

    def stop(self):
        for p in (self.counting, self.server.process):
            p.kill()
            p.wait()

    def encode(self, lines):
        return b"".join(peer_servers.command(b"XADD", b"events", b"*", b"e", line[:-1]) for line in lines)

    def client(self):
        self.server.connect()
        s = self.server.socket

        def post(commands, events):
            self.server.pipeline(s, commands, 2 * events)
        return post

    def connect(self):
        self.server.connect()
        self.answers = self.server.socket.makefile("rb")

    def ask(self, *words):
        self.server.socket.sendall(peer_servers.command(*words))
        return peer_servers.answer(self.answers)

    def total(self, ns, key):
        return sum(map(int, self.ask(b"HVALS", ("%s|%s" % (ns, key)).encode())))

    def breakdown(self, ns, key):
        found = collections.Counter()
        hours = self.ask(b"HKEYS", ("%s|%s" % (TOTAL_OF[ns], key)).encode())
        self.server.socket.sendall(b"".join(peer_servers.command(b"HGETALL", ("%s|%s|" % (ns, key)).encode() + h) for h in hours))
        for _ in hours:
            pairs = peer_servers.answer(self.answers)
            for sub, n in zip(pairs[::2], pairs[1::2]):
                found[sub.decode()] += int(n)
        return found


class Clickhouse:
    name = "clickhouse"

    def __init__(self, bench):
        self.server = peer_servers.Clickhouse(bench, processors(), len(os.sched_getaffinity(0)))

    def processes(self):
        return {"clickhouse": self.server.process.pid}

    def stop(self):
        self.server.process.kill()
        self.server.process.wait()

    def encode(self, lines):
        return b"".join(lines)

    def client(self):
        self.server.connect()
        connection = self.server.connection

        def post(lines, _):
            self.server.insert(lines, connection)
        return post

    def connect(self):
        self.server.connect()

    def rows(self, ns, key, what):
        table = "counts%d" % list(peer_servers.COUNTERS).index(ns)
        text = self.server.ask("SELECT %s FROM %s WHERE key = '%s' %s" % (
            what, table, "" if key == "None" else key, "GROUP BY sub" if "sub" in what.split(",") else ""))
        return [line.split("\t") for line in text.decode().splitlines()]

    def total(self, ns, key):
        return int(self.rows(ns, key, "sum(n)")[0][0])

    def breakdown(self, ns, key):
        return {named(sub): int(n) for sub, n in self.rows(ns, key, "sub,sum(n)")}


class Load:
    """Requests that a process of its own sends. Those of clickhouse wait for the end of their second."""

    def __init__(self, system, lines, events, per_request, rate):
        self.system, self.rate = system, rate
        pieces = [[lines[i % len(lines)] for i in range(at, min(at + per_request, events))] for at in range(0, events, per_request)]
        self.sizes = [len(piece) for piece in pieces]
        self.requests = [system.encode(piece) for piece in pieces]
        self.clicks = list(itertools.accumulate(sum(b'"_heartbeat_"' not in line for line in piece) for piece in pieces))
        self.is_bulk = system.name == "clickhouse"

    def run(self, pipe):
        self.next, self.lock = 0, threading.Lock()
        self.posted, self.answered = [None] * len(self.requests), [None] * len(self.requests)
        self.begin = time.monotonic() + 0.1
        in_seconds = self.is_bulk and self.rate
        clients = [self.system.client() for _ in range(1 if in_seconds else 2 if self.is_bulk else CONNECTIONS)]
        threads = [threading.Thread(target=self.work, args=(self.seconds if in_seconds else self.singles, c)) for c in clients]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        pipe.send((self.posted, self.answered))

    @staticmethod
    def work(how, post):
        try:
            how(post)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def due(self, i):
        return self.begin + i / self.rate

    def singles(self, post):
        while True:
            with self.lock:
                i = self.next
                self.next += 1
            if i >= len(self.requests):
                return
            if self.rate:
                time.sleep(max(0, self.due(i) - time.monotonic()))
            self.posted[i] = self.due(i) if self.rate else time.monotonic()
            post(self.requests[i], self.sizes[i])
            self.answered[i] = time.monotonic()

    def seconds(self, post):
        at = 0
        while at < len(self.requests):
            time.sleep(max(0, self.due(at + self.rate) - time.monotonic()))
            end = min(int((time.monotonic() - self.begin) * self.rate), len(self.requests))
            self.posted[at:end] = map(self.due, range(at, end))
            post(b"".join(self.requests[at:end]), 0)
            self.answered[at:end] = [time.monotonic()] * (end - at)
            at = end


def measure(system, load):
    """Seconds until all is visible, and of each request from its time until then."""
    counted = system.total("all", "all")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=load.run, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    seen, times = [(0, 0)], None
    limit = time.monotonic() + LIMIT
    while seen[-1][1] < load.clicks[-1] or times is None:
        if time.monotonic() > limit or (process.exitcode or 0) != 0:
            raise AssertionError("%s made %d of %d events visible" % (system.name, seen[-1][1], load.clicks[-1]))
        time.sleep(PAUSE)
        n = system.total("all", "all") - counted
        seen.append((time.monotonic(), n))
        if times is None and ours.poll():
            try:
                times = ours.recv()
            except EOFError:
                raise AssertionError("the client of %s failed" % system.name) from None
    process.join()
    posted, answered = map(sorted, times)
    took, at, visible = [], 0, 0
    for i, clicks in enumerate(load.clicks):
        while seen[at][1] < clicks:
            at += 1
        visible = max(seen[at][0], answered[i] if load.is_bulk else 0)
        if clicks > (load.clicks[i - 1] if i > 0 else 0):
            took.append(visible - posted[i])
    return visible - posted[0], sorted(took)


def used_seconds(system):
    return {**{name: measuring.cpu_seconds(pid) for name, pid in system.processes().items()}, "client": measuring.children_seconds()}


def expected_of(lines, loads):
    """What the four questions must be answered with: {(ns, key): {sub or "": n}}."""
    times = [0] * len(lines)
    for load in loads:
        for i in range(len(lines)):
            times[i] += load // len(lines) + (i < load % len(lines))
    total, countries = collections.Counter(), collections.defaultdict(collections.Counter)
    for line, n in zip(lines, times):
        e = json.loads(line)
        if n > 0 and "_heartbeat_" not in e:
            total[named(e.get("l"))] += n
            countries[named(e.get("l"))][named(e.get("c"))] += n
    user = total.most_common(1)[0][0]
    return {("all", "all"): sum(total.values()), ("u", user): total[user],
            ("c.all", "all"): dict(sum(countries.values(), collections.Counter())), ("c.u", user): dict(countries[user])}


def ask(system, expected):
    """Milliseconds of each question, the median of ten."""
    found = []
    for (ns, key), right in expected.items():
        took = []
        for _ in range(10):
            began = time.perf_counter()
            answer = (system.total if isinstance(right, int) else system.breakdown)(ns, key)
            took.append(1e3 * (time.perf_counter() - began))
            if answer != right:
                raise AssertionError("%s answers %s of %s with %.200r, not %.200r" % (system.name, ns, key, answer, right))
        found.append(statistics.median(took))
    return found


def run(kind, bench, lines, events):
    """One round of a system: {rate: (events a second, p50, p99, longest)}, the times of the questions, and the processor time of each
    process for an event at full rate."""
    system = kind(bench)
    try:
        found, sent = {}, []
        for per_request in (1, 10, 50, None):
            n = SECONDS * REQUESTS * per_request if per_request else events // SHARE_OF.get(kind.name, 1)
            of_full = BULK if kind is Clickhouse else AT_FULL_RATE
            load = Load(system, lines, n, per_request or of_full, REQUESTS if per_request else 0)
            before = used_seconds(system)
            seconds, took = measure(system, load)
            used = {name: 1e6 * (after - before[name]) / n for name, after in used_seconds(system).items()}
            at = [took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)], took[-1]]
            found[per_request] = (n / seconds, *(1e3 * t for t in at))
            sent.append(n)
        return found, ask(system, expected_of(lines, sent)), used
    finally:
        system.stop()


def main():
    path = os.path.realpath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    events = int(sys.argv[3]) if len(sys.argv) > 3 else 2000000
    lines = [x for x in peer_servers.lines_of(path) if json.loads(x).keys() & {"t", "_heartbeat_"}]
    kinds = [Millrace] + [k for k in (Redis, Clickhouse) if shutil.which(k.name + "-server")]
    if len(kinds) < 3:
        print("redis-server or clickhouse-server is not installed (scripts/setup --bench)", file=sys.stderr)
    rows = collections.defaultdict(list)
    bench = peer_servers.Peers()
    bench.setUp()
    try:
        for i in range(rounds):
            for kind in kinds[i % len(kinds):] + kinds[:i % len(kinds)]:
                print("round %d of %d: %s" % (i + 1, rounds, kind.name), file=sys.stderr)
                rows[kind.name].append(run(kind, bench, lines, events))
    finally:
        bench.doCleanups()
    show(rows)


def show(rows):
    print("%-10s %12s   POST to visible, milliseconds: p50 p99 longest" % ("", "events/s"))
    for per_request in (1, 10, 50, None):
        for name, found in rows.items():
            rate, *took = (statistics.median(column) for column in zip(*(f[0][per_request] for f in found)))
            text = "offered {:,}/s".format(REQUESTS * per_request) if per_request else "full rate; a backlog grows"
            print("%-10s %12s   %9.1f %9.1f %9.1f   %s" % (name, "{:,.0f}".format(rate), *took, text))
    for name in rows:
        ratio = statistics.median(ours[0][None][0] / theirs[0][None][0] for ours, theirs in zip(rows["millrace"], rows[name]))
        if name != "millrace":
            print("millrace at full rate: %.2f of %s" % (ratio, name))
    print("%-10s milliseconds of an answer: all events, one user, countries of all, countries of the user" % "")
    for name, found in rows.items():
        print("%-10s %s" % (name, " ".join("%9.2f" % statistics.median(column) for column in zip(*(f[1] for f in found)))))
    print("microseconds of processor time for an event at full rate, and processors busy")
    for name, found in rows.items():
        busy = statistics.median(sum(f[2].values()) * f[0][None][0] / 1e6 for f in found)
        print("%-10s %s; %.2f busy" % (name, ", ".join("%s %.2f" % (p, statistics.median(f[2][p] for f in found)) for p in found[0][2]), busy))


if __name__ == "__main__":
    main()
