#!/usr/bin/env python3
"""Latest items of many lists: writes to the store at four delays, items a second, and reads beside redis lists.

    bench_lists.py [ROUNDS]        run by scripts/bench, which names the build

The law: USERS follow FOLLOWED of AUTHORS each, and RATE items a second come from authors at random. Time is compressed: a delay of 60 s is run
as 60 s / SPEED, at SPEED times the rate, so that as many entries come to a list during the delay. With e entries to a list in a delay on average, and
arrivals at random, a list is saved once for 1 + e entries (the column law).

The rates: items for FOLLOWERS lists each, in requests of 32 connections, acknowledged when they are durable; then reads of the 20 latest items with their
data. redis (scripts/setup --bench) has LPUSH and LTRIM for each list and SET for the item, in a pipeline, with appendfsync always; it reads by SORT ... GET.
Servers have processor 0, the client has processor 1."""
import os
import random
import selectors
import shutil
import socket
import statistics
import sys
import time

import harness
import measuring
import peer_servers

USERS, AUTHORS, FOLLOWED, RATE, SPEED = 5_000, 250, 10, 4, 10
DELAYS = (0, 1, 10, 60)
FOLLOWERS, KEEP, ITEMS, READS = 100, 100, 4_000, 40_000
CONNECTIONS, DATA = 32, b"d" * 200


class Talk:
    """Connections with one request in progress each. `reply` returns the length of a complete reply at the buffer's beginning, else 0."""
    def __init__(self, connect, reply, n=CONNECTIONS):
        self.reply, self.selector = reply, selectors.DefaultSelector()
        self.sockets = [connect() for _ in range(n)]
        for s in self.sockets:
            self.selector.register(s, selectors.EVENT_READ)

    def run(self, requests):
        """Sends all requests; returns their times in seconds."""
        requests, times, begun, got = iter(requests), [], {}, {}

        def send(s):
            request = next(requests, None)
            if request is not None:
                begun[s], got[s] = time.monotonic(), b""
                s.sendall(request)
        for s in self.sockets:
            send(s)
        while begun:
            for key, _ in self.selector.select():
                s = key.fileobj
                got[s] += s.recv(1 << 18)
                if self.reply(got[s]):
                    times.append(time.monotonic() - begun.pop(s))
                    send(s)
        return times


def http_reply(text):
    head = text.find(b"\r\n\r\n")
    if head < 0:
        return 0
    assert text.startswith(b"HTTP/1.1 200"), text[:300]
    at = text.lower().find(b"content-length:", 0, head)
    return len(text) == head + 4 + int(text[at + 15:text.find(b"\r", at)])


def http_request(method, target, body=b""):
    return b"%s %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (method, target, len(body), body)


def followers(author):
    return [b"u%d" % ((author * FOLLOWERS + i) % USERS) for i in range(FOLLOWERS)]


class Lists(peer_servers.Peers):
    def serve(self, name, edges, *args):
        d = self.start("lists", "--data-dir=" + self.path(name), "--keep=%d" % KEEP, *args)
        measuring.pin(d.pid, 0)
        for i in range(0, len(edges), 10_000):
            assert d.post("/edges", b"".join(b"%s\ta%d\n" % edge for edge in edges[i:i + 10_000])).status == 200
        harness.wait_until(lambda: d.stats()["oldest_change_seconds"] == 0, d.stats)
        return d

    def law(self):
        rng = random.Random(1)
        edges = [(b"u%d" % u, a) for u in range(USERS) for a in rng.sample(range(AUTHORS), FOLLOWED)]
        edges.sort(key=lambda e: e[1])
        print("%d users follow %d of %d authors; %d items a second, each for %d lists on average" % (USERS, FOLLOWED, AUTHORS, RATE, USERS * FOLLOWED // AUTHORS))
        for delay in DELAYS:
            d = self.serve("law%d" % delay, edges, "--delay=%dms" % (delay * 1000 // SPEED))
            self.feed(d, rng, max(2 * delay, 20) / SPEED)
            before = d.stats()
            took = self.feed(d, rng, max(3 * delay, 50) / SPEED)
            after = d.stats()
            entries, lists, saves = (after[n] - before[n] for n in ("entries_changed_total", "saved_keys_total", "saves_total"))
            print("delay %2d s: %5.0f entries/s, %5.0f lists/s written, %6.3f a entry (law %.3f), %4.1f transactions/s, %5.1f KB/s" % (
                delay, entries / took / SPEED, lists / took / SPEED, lists / entries, 1 / (1 + entries / took / SPEED / USERS * delay), saves / took / SPEED,
                (after["saved_bytes_total"] - before["saved_bytes_total"]) / took / SPEED / 1e3), flush=True)
            d.stop()

    def feed(self, d, rng, seconds):
        talk = Talk(lambda: socket.create_connection(("127.0.0.1", int(d.url.rsplit(":", 1)[1]))), http_reply, 1)
        start, n = time.monotonic(), 0
        while (now := time.monotonic()) - start < seconds:
            if n < (now - start) * RATE * SPEED:
                self.number += 1
                n += 1
                talk.run([http_request(b"POST", b"/add?id=i%d&author=a%d" % (self.number, rng.randrange(AUTHORS)), DATA)])
            else:
                time.sleep(0.001)
        return time.monotonic() - start

    def rates(self, rounds):
        os.sched_setaffinity(0, {1})
        d = self.serve("rates", [(u, a) for a in range(USERS // FOLLOWERS) for u in followers(a)], "--delay=10s")
        port = int(d.url.rsplit(":", 1)[1])
        servers = {"lists": (Talk(lambda: socket.create_connection(("127.0.0.1", port)), http_reply),
                             lambda n: http_request(b"POST", b"/add?id=i%d&author=a%d" % (n, n % (USERS // FOLLOWERS)), DATA),
                             lambda n: http_request(b"GET", b"/get?limit=20&key=u%d" % (n * 7919 % USERS)), http_reply)}
        if shutil.which("redis-server"):
            servers["redis"] = self.redis()
        seen = {name: [] for name in servers}
        for _ in range(rounds):
            for name, (talk, add, get, reply) in servers.items():
                talk.reply = reply if name == "lists" else redis_reply(2 * FOLLOWERS + 1)
                start = time.monotonic()
                talk.run([add(self.number + n) for n in range(ITEMS)])
                adds = ITEMS / (time.monotonic() - start)
                talk.reply = reply if name == "lists" else redis_reply(21)
                start = time.monotonic()
                times = sorted(talk.run([get(n) for n in range(READS)]))
                seen[name].append((adds, READS / (time.monotonic() - start), times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3))
            self.number += ITEMS
        for name, rows in seen.items():
            adds, gets, p50, p99 = (statistics.median(column) for column in zip(*rows))
            print("%-6s %6.0f items/s (%8.0f entries/s), %7.0f reads/s, %d at a time: p50 %.2f ms, p99 %.2f ms" % (
                name, adds, adds * FOLLOWERS, gets, CONNECTIONS, p50, p99), flush=True)

    def redis(self):
        server = peer_servers.Redis(self, "always")
        measuring.pin(server.process.pid, 0)
        command = peer_servers.command

        def add(n):
            parts = [command(b"SET", b"item:i%d" % n, DATA)]
            for key in followers(n % (USERS // FOLLOWERS)):
                parts += [command(b"LPUSH", key, b"i%d" % n), command(b"LTRIM", key, b"0", b"%d" % (KEEP - 1))]
            return b"".join(parts)
        return (Talk(server.connected, None), add,
                lambda n: command(b"SORT", b"u%d" % (n * 7919 % USERS), b"BY", b"nosort", b"LIMIT", b"0", b"20", b"GET", b"item:*"), None)


def redis_reply(replies):
    """A complete answer of LPUSH, LTRIM and SET has a line for each command; the answer to SORT begins with *20 and has 20 texts."""
    def is_complete(text):
        assert not text.startswith(b"-"), text[:300]
        if text[:1] == b"*":
            n = int(text[1:text.find(b"\r")]) if b"\r\n" in text else 20
            return text.count(b"\r\n") >= 1 + 2 * n and text.endswith(b"\r\n")
        return text.count(b"\r\n") >= replies
    return is_complete


def main():
    bench = Lists()
    bench.setUp()
    bench.number = 0
    try:
        bench.law()
        bench.rates(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
