#!/usr/bin/env python3
"""How cost grows with events, keys, years and subscribers: four sizes of each, the fitted law of each cost, and where it bends.

    bench_growth.py [ROUNDS] [PICTURE.svg]     run by scripts/bench, which names the build

  events       counted by the aggregator: its processor time, peak memory, and the bytes of its slices (generated clicks, 14 counters)
  keys         10 million events with so many different keys, one counter: the same, and the time of a get
  years        of an archive of 25 users with clicks from 30 countries in every hour: compaction of one more day, a series of one
               year's days, a breakdown of all years
  subscribers  of one stream: pubsub's processor time for a published message of 450 bytes, and its memory

A law is cost = a * size^b by least squares of the logarithms; with |b| below LEVEL the cost is level. Its error is that of the size whose
cost is furthest from the law. A cost bends where the slopes of two neighbouring steps differ most, if they differ by more than BEND. Shown
are medians of the rounds. SCALE divides the numbers of events and keys, to try the script."""
import collections
import http.client
import math
import os
import random
import statistics
import subprocess
import sys
import time

import harness
import measuring

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "daemons"))
from test_api_rollups import hour_text  # noqa: E402

SCALE = int(os.environ.get("SCALE", 1))
BEND = 0.25
LEVEL = 0.1
EVENTS = [n // SCALE for n in (100_000, 1_000_000, 3_000_000, 10_000_000)]
KEYS = [n // SCALE for n in (10_000, 100_000, 1_000_000, 10_000_000)]
YEARS = [1, 2, 4, 8]
SUBSCRIBERS = [1, 10, 100, 1000]
DELIVERED = {1: 300_000, 10: 1_000_000, 100: 3_000_000, 1000: 10_000_000}
START = 1104537600  # 2005
HOURS = 8760
USERS, COUNTRIES = 25, 30
GETS = 2000
BODY = 900_000  # bytes of a request
ONE_COUNTER = "[input]\ntime = t\n[total h]\nkey = h\nlabel = link\n"
USERS_BY_COUNTRY = "[input]\ntime = t\n[total u]\nkey = l\nlabel = user\n[subtotal c.u]\nkey = c\nlabel = country\n"


def peak_memory(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))


def size_of(directory):
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(directory) for name in names)


class Growth(measuring.Bench):
    def publish(self, name, pieces):
        """Texts of whole lines as stream `name` of a pubsub of its own."""
        pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub-" + name), "--sync=never", "--streams=s")
        for text in pieces:
            reply = pubsub.post("/pub?stream=s", text)
            if reply.status != 200:
                raise AssertionError(reply)
        return pubsub, reply.json()["end"]

    def clicks(self, events):
        generator = subprocess.Popen([harness.program("clickgen"), "--events=%d" % events, "--users=1000000", "--links=1000000"],
                                     stdout=subprocess.PIPE)
        rest = b""
        while True:
            text = rest + generator.stdout.read(BODY)
            end = text.rfind(b"\n") + 1
            if end == 0:
                break
            yield text[:end]
            rest = text[end:]
        if generator.wait() != 0:
            raise AssertionError("clickgen ended with %d" % generator.returncode)

    def numbered(self, events, keys):
        """Events with keys in an order that scatters them: a prime step."""
        for at in range(0, events, 20000):
            yield b"".join(b'{"t":%d,"h":"k%d"}\n' % (START, i * 7368787 % keys) for i in range(at, min(at + 20000, events)))

    def count(self, stream, events, config, number, gets=0):
        """Costs of an aggregator that counts a stream from its beginning to its end."""
        pubsub, end = stream
        directory = self.path("aggregator-%d" % number)
        before = measuring.children_seconds()
        d = self.daemon("aggregator", "--config=" + config, "--data-dir=" + directory, "--cursor=c%d" % number, "--streams=s",
                        "--pubsub-url=" + pubsub.url)
        d.wait_listening()
        harness.wait_until(lambda: d.stats()["streams"]["s"]["offset"] == end, lambda: d.log, 600, interval=0.2)
        if d.stats()["events"] + d.stats()["skipped"] != events:
            raise AssertionError("counted %s of %d events" % (d.stats(), events))
        costs, used = {"peak memory, MB": peak_memory(d.pid)}, measuring.cpu_seconds(d.pid)
        if gets:
            costs["a get, us"] = self.get_time(d, gets)
        of_gets = measuring.cpu_seconds(d.pid) - used
        d.stop()
        costs["processor time, s"] = measuring.children_seconds() - before - of_gets
        costs["slices, MB"] = size_of(directory) / 1e6
        subprocess.run(["rm", "-rf", directory], check=True)
        return costs

    def get_time(self, d, keys):
        c = http.client.HTTPConnection("127.0.0.1", int(d.url.rsplit(":", 1)[1]))
        took, numbers = [], random.Random(1)
        for _ in range(GETS):
            key = numbers.randrange(keys)
            began = time.perf_counter()
            c.request("GET", "/get?key=h%%7Ck%d" % key)
            reply = c.getresponse()
            reply.read()
            took.append(1e6 * (time.perf_counter() - began))
            if reply.status != 200:
                raise AssertionError("no count of k%d: %d" % (key, reply.status))
        return statistics.median(took)

    def years_file(self, name, first, hours):
        """Records of every pair and user for so many hours from hour `first` of START on."""
        hours = [(hour_text(START + h * 3600), 1 + h % 9) for h in range(first, first + hours)]
        counts = [" ".join("C%02d:%d" % (country, n) for country in range(COUNTRIES)) for n in range(10)]
        with open(self.path(name), "w") as f:
            for user in range(USERS):
                f.writelines("c.u|k%d.%s,%s\n" % (user, hour, counts[n]) for hour, n in hours)
                f.write("u|k%d,%s\n" % (user, " ".join("%s:%d" % (hour, COUNTRIES * n) for hour, n in hours)))
        return self.path(name)

    def compact(self, archive, *args):
        before = measuring.children_seconds()
        done = self.run_program("compactor", "--archive=" + archive, "--aggregator-url=none", "--sortdb-url=none", *args)
        if done.returncode != 0:
            raise AssertionError(done.stderr.decode()[:2000])
        return 1e3 * (measuring.children_seconds() - before)

    def archive(self, years, number):
        archive, hours = self.path("archive-%d-%d" % (years, number)), years * HOURS
        self.compact(archive, "--import", self.years_file("years", 0, hours))
        costs = {"compaction of a day, ms": self.compact(archive, "--import", self.years_file("day", hours, 24))}
        config = self.write("archive.conf", USERS_BY_COUNTRY)
        pubsub = self.start("pubsub", "--data-dir=" + self.path("p-%d-%d" % (years, number)), "--streams=clicks")
        aggregator = self.start("aggregator", "--config", config, "--data-dir=" + self.path("a-%d-%d" % (years, number)),
                                "--pubsub-url=" + pubsub.url)
        api = self.start("api", "--config", config, "--aggregator-url=" + aggregator.url, "--archive=" + archive)
        last = "from=%d&to=%d" % (START + (hours - HOURS) * 3600, START + hours * 3600)
        series = "/v1/series?user=k%d&unit=day&" + last
        breakdown = "/v1/breakdown?user=k%%d&by=country&from=%d&to=%d" % (START, START + hours * 3600)
        harness.wait_until(lambda: api.get(series % 0).status == 200, lambda: api.get(series % 0).text)
        costs["series of a year, ms"] = self.ask(api, series)
        costs["breakdown of all years, ms"] = self.ask(api, breakdown)
        for d in (api, aggregator, pubsub):
            d.stop()
        return costs

    def ask(self, api, target):
        """The median time of a first question, over the users."""
        took = []
        for user in range(1, USERS):
            began = time.perf_counter()
            reply = api.get(target % user)
            took.append(1e3 * (time.perf_counter() - began))
            if reply.status != 200 or reply.json()["total"] == 0:
                raise AssertionError(reply)
        return statistics.median(took)

    def subscribers(self, n, number):
        pubsub = self.start("pubsub", "--data-dir=" + self.path("s-%d-%d" % (n, number)), "--sync=never", "--streams=s",
                            "--retain-bytes=512M")
        measuring.pin(pubsub.pid, 0)
        messages = DELIVERED[n] // n
        before = measuring.cpu_seconds(pubsub.pid)
        subprocess.run([harness.program("bench_streams"), "pubsub", pubsub.url.rsplit(":", 1)[1], str(n), str(messages), "4"],
                       check=True, capture_output=True)
        costs = {"processor time of a message, us": 1e6 * (measuring.cpu_seconds(pubsub.pid) - before) / messages,
                 "peak memory, MB": peak_memory(pubsub.pid)}
        pubsub.stop()
        return costs


def law(sizes, costs):
    """(a, b) of cost = a * size^b."""
    x, y = [math.log(s) for s in sizes], [math.log(c) for c in costs]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    b = sum((p - mean_x) * (q - mean_y) for p, q in zip(x, y)) / sum((p - mean_x) ** 2 for p in x)
    return math.exp(mean_y - b * mean_x), b


def bend(sizes, costs):
    """(size, slope before, slope behind) where the slopes differ most, or None."""
    slopes = [math.log(d / c) / math.log(t / s) for s, t, c, d in zip(sizes, sizes[1:], costs, costs[1:])]
    found = max(zip(sizes[1:], slopes, slopes[1:]), key=lambda f: abs(f[2] - f[1]))
    return found if abs(found[2] - found[1]) > BEND else None


def error(sizes, costs):
    """The largest part by which a cost differs from the law."""
    a, b = law(sizes, costs)
    return max(abs(c / (a * s ** b) - 1) for s, c in zip(sizes, costs))


def law_text(sizes, costs):
    b = law(sizes, costs)[1]
    return "level" if abs(b) < LEVEL else "size^%.2f" % b


def short(n):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if n >= limit:
            return "%g%s" % (float("%.3g" % (n / limit)), unit)
    return "%g" % float("%.3g" % n)


COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
WIDTH, HEIGHT, LEFT, TOP = 480, 300, 60, 40


def panel(title, sizes, costs, x0, y0):
    """One set of axes, both logarithmic: each cost as a multiple of its cost at the first size."""
    shown = {name: [v / values[0] for v in values] for name, values in costs.items()}
    every = [v for values in shown.values() for v in values]
    low, high = math.floor(math.log10(1.5 * min(every))), max(1, math.ceil(math.log10(max(every))))
    wide, tall = WIDTH - LEFT - 20, HEIGHT - TOP - 40 - 15 * len(costs)

    def x(size):
        return x0 + LEFT + wide * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y(value):
        return y0 + TOP + tall * (high - math.log10(value)) / (high - low)
    out = ['<text x="%d" y="%d" font-weight="bold">%s</text>' % (x0 + LEFT, y0 + 24, title)]
    for power in range(low, high + 1):
        at = y(10 ** power)
        out.append('<path d="M%.1f %.1fh%d" stroke="#d0d7de"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>' % (
            x0 + LEFT, at, wide, x0 + LEFT - 6, at + 4, "x" + short(10.0 ** power)))
    for size in sizes:
        out.append('<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>' % (x(size), y0 + TOP + tall + 16, short(size)))
    for i, (name, values) in enumerate(shown.items()):
        a, b = law(sizes, values)
        line = " ".join("%.1f,%.1f" % (x(s), y(v)) for s, v in zip(sizes, values))
        fitted = [(x(s), min(max(y(a * s ** b), y0 + TOP), y0 + TOP + tall)) for s in (sizes[0], sizes[-1])]
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (line, COLOURS[i]))
        out.append('<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" stroke-dasharray="3 3"/>' % (*fitted[0], *fitted[1], COLOURS[i]))
        out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (x(s), y(v), COLOURS[i]) for s, v in zip(sizes, values)]
        out.append('<text x="%d" y="%d" fill="%s">%s: %s</text>' % (
            x0 + LEFT, y0 + TOP + tall + 36 + 15 * i, COLOURS[i], name.split(",")[0],
            law_text(sizes, values)))
    return out


def picture(found):
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">' % (2 * WIDTH, 2 * HEIGHT),
           '<rect width="100%" height="100%" fill="white"/>']
    for i, (title, (sizes, costs)) in enumerate(found.items()):
        out += panel(title, sizes, costs, i % 2 * WIDTH, i // 2 * HEIGHT)
    return "\n".join(out + ["</svg>", ""])


def report(what, sizes, costs):
    print("%-36s %s   law" % (what, " ".join("%9s" % short(s) for s in sizes)))
    for name, values in costs.items():
        at = bend(sizes, values)
        text = "; bends at %s, from size^%.2f to size^%.2f" % (short(at[0]), at[1], at[2]) if at else ""
        print("  %-34s %s   %s, error %.0f%%%s" % (name, " ".join("%9.3g" % v for v in values), law_text(sizes, values),
                                                 100 * error(sizes, values), text), flush=True)


def medians(rounds, sizes, measure):
    """{cost: [its median for each size]}"""
    seen = [collections.defaultdict(list) for _ in sizes]
    for number in range(rounds):
        for at, size in enumerate(sizes):
            for name, value in measure(size, number).items():
                seen[at][name].append(value)
    return {name: [statistics.median(s[name]) for s in seen] for name in seen[0]}


def measure_all(bench, rounds):
    config, one = bench.write("bench.conf", harness.sample_counters()), bench.write("one.conf", ONE_COUNTER)
    streams = {n: bench.publish("e%d" % n, bench.clicks(n)) for n in EVENTS}
    yield "events", EVENTS, medians(rounds, EVENTS, lambda n, i: bench.count(streams[n], n, config, i))
    for pubsub, _ in streams.values():
        pubsub.stop()
    streams = {k: bench.publish("k%d" % k, bench.numbered(EVENTS[-1], k)) for k in KEYS}
    yield "keys", KEYS, medians(rounds, KEYS, lambda k, i: bench.count(streams[k], EVENTS[-1], one, i, k))
    for pubsub, _ in streams.values():
        pubsub.stop()
    yield "years", YEARS, medians(rounds, YEARS, bench.archive)
    yield "subscribers", SUBSCRIBERS, medians(rounds, SUBSCRIBERS, bench.subscribers)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    bench, found = Growth(), {}
    bench.setUp()
    try:
        for what, sizes, costs in measure_all(bench, rounds):
            report(what, sizes, costs)
            found[what] = (sizes, costs)
    finally:
        bench.doCleanups()
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as f:
            f.write(picture(found))


if __name__ == "__main__":
    main()
