#!/usr/bin/env python3
"""Different users of 1, 7 and 30 days: millrace's sets beside a loop over raw bitmaps and redis-server, each on processor 0.

    bench_sets.py [ROUNDS] [USERS_MILLION]     run by scripts/bench, which names the build

Of 128 million users 60 % or 1 % are active a day, at random. Shown are medians in milliseconds, and the ratio to the loop.

  loop      the days' bitmaps are in memory; words are united in blocks that stay in the cache, and counted (bare_sets.c)
  millrace  the days' sets are in a mapped file, whose pages are in memory and verified; opening the sets is included
  redis     a string of bits a day; BITOP OR, then BITCOUNT

Without redis-server (scripts/setup --bench) its column is left out."""
import os
import shutil
import statistics
import subprocess
import sys
import time

import harness
import measuring
import peer_servers

SPANS = (1, 7, 30)
DAYS = 30


def run(*args):
    def pin():
        os.sched_setaffinity(0, {0})
    return subprocess.run([str(a) for a in args], check=True, stdout=subprocess.PIPE, preexec_fn=pin).stdout.decode()


def rows(text):
    """{days: (members, microseconds)}"""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if words[0].isdigit():
            found[int(words[0])] = (int(words[1]), float(words[2]))
    return found


def ask(server, *words):
    server.socket.sendall(peer_servers.command(*words))
    with server.socket.makefile("rb") as f:
        head = f.readline()
    if head[:1] not in b":+":
        raise AssertionError("redis answers %r" % head)
    return head[1:-2]


class Sets(peer_servers.Peers):
    def redis(self, users, percent, rounds):
        server = peer_servers.Redis(self, "no")
        measuring.pin(server.process.pid, 0)
        path = self.path("day")
        for d in range(DAYS):
            run(harness.program("bare_sets"), users, percent, 0, d, path)
            with open(path, "rb") as f:
                ask(server, b"SET", b"day%d" % d, f.read())
        found = {}
        for days in SPANS:
            keys, times = [b"day%d" % d for d in range(days)], []
            for _ in range(rounds):
                start = time.monotonic()
                if days > 1:
                    ask(server, b"BITOP", b"OR", b"union", *keys)
                n = ask(server, b"BITCOUNT", b"union" if days > 1 else keys[0])
                times.append((time.monotonic() - start) * 1e6)
            found[days] = (int(n), statistics.median(times))
        server.process.kill()
        server.process.wait()
        return found

    def measure(self, percent, users, rounds):
        loop = rows(run(harness.program("bare_sets"), users, percent, rounds))
        ours = rows(run(harness.program("bench_sets"), self.path("sets"), users, percent, rounds))
        redis = self.redis(users, percent, min(rounds, 5)) if shutil.which("redis-server") else {}
        for days in SPANS:
            for other in (ours, redis):
                if other and other[days][0] != loop[days][0]:
                    raise AssertionError("%d days of %d %%: %r, the loop counts %r" % (days, percent, other[days], loop[days]))
            line = "%2d days, %2d %% active: loop %7.2f ms, millrace %7.3f ms (%.2f)" % (
                days, percent, loop[days][1] / 1e3, ours[days][1] / 1e3, ours[days][1] / loop[days][1])
            print(line + (", redis %8.1f ms" % (redis[days][1] / 1e3) if redis else ""), flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    users = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    bench = Sets()
    bench.setUp()
    try:
        for percent in (60, 1):
            bench.measure(percent, users, rounds)
    finally:
        bench.doCleanups()


main()
