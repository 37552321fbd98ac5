#!/usr/bin/env python3
"""Metrics beside Debian's prometheus and victoria-metrics: scrapes, bytes on disk, queries of a day; and how millrace's costs grow.

    bench_metrics.py [ROUNDS]     run by scripts/bench, which names the build

The programs of a system run on processor 0, the targets and the client on processor 1. No system syncs its log (pubsub: --sync=never).

  scrapes  TARGETS targets with 1,000 series each, every second, for WINDOW seconds after the first scrapes: processor time of
           all programs of the system for a sample. Then the highest of the FACTORS of 1 / this time at which all samples arrive
  disk     SERIES series of a day and two hours, one sample in 15 s (bench_metric_store), after all merges. promtool and
           VictoriaMetrics' import get the same samples
  queries  of these samples, a day at 60 s step: the first question to a server that has just started (files are in the page cache), and
           the same question again. The rows of the three systems are compared, and the sums of metricdb and Prometheus
  growth   millrace with four rates at an interval of a second, and with four numbers of series at one rate

Shown are medians of the rounds; growth: of at most three. PARTS names the parts to run (default: "scrapes queries growth")."""
import collections
import ctypes
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.parse

import harness
import measuring
import peer_servers
from bench_growth import medians, report, size_of
from metrics_target import Target, reply

SCALE = int(os.environ.get("SCALE", 1))
PARTS = os.environ.get("PARTS", "scrapes queries growth").split()
OF_TARGET = 1000  # series
TARGETS = 100 // SCALE
WINDOW = 5
FACTORS = (0.95, 0.75)
RATES = [n // SCALE for n in (25_000, 50_000, 100_000, 200_000)]
INTERVALS = (1, 2, 4, 8)
ON_TIME = 0.98
SERIES, CUTS, INTERVAL = 1000, 157 if SCALE == 1 else 13, 15
BEGIN, DAY = 1700000040, 86400 if SCALE == 1 else 7200  # a whole minute after the first sample
QUERIES = {"x": "node_operations_total", "rate(x[5m])": "rate(node_operations_total[5m])",
           "sum by (mode) (rate(x[5m]))": "sum by (mode) (rate(node_operations_total[5m]))"}
TICK = 0.01  # of the kernel's count of processor time
PAGES = 16  # different pages; each target serves them in turn


def rss(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmRSS"))


def pages():
    """Pages of a target: constants, counters and gauges, as in bench_metric_store."""
    rng, found = random.Random(1), []
    values = [float(rng.randrange(100000)) for _ in range(OF_TARGET)]
    steps = [lambda v: v] * 4 + [lambda v: v + rng.randrange(20)] * 2 + [
        lambda v: v + rng.randrange(5000000), lambda v: round(v + rng.random() * 10, 2),
        lambda v: v if rng.random() < 0.75 else float(rng.randrange(100)), lambda v: float(rng.randrange(100000) * 4096)]
    for _ in range(PAGES):
        values = [steps[i % 10](v) for i, v in enumerate(values)]
        lines = ["# HELP node_%d_total Operations of the node since its start.\n# TYPE node_%d_total counter\n" % (i // 4, i // 4) * (i % 4 == 0) +
                 'node_%d_total{mode="m%d"} %r\n' % (i // 4, i % 4, v) for i, v in enumerate(values)]
        found.append(reply("".join(lines)))
    return found


class Paths(dict):
    """Each path serves the pages in turn."""

    def __init__(self):
        super().__init__()
        self.pages = pages()

    def get(self, path, _):
        if path not in self:
            self[path] = itertools.cycle(self.pages)
        return next(self[path])


class Serving:
    """The targets, in a process of their own."""

    def __init__(self, bench):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ctypes.CDLL(None).prctl(measuring.PR_SET_PDEATHSIG, signal.SIGKILL)
                target = Target(bench, Paths())
                os.write(writer, target.address.encode())
                target.thread.join()
            finally:
                os._exit(1)
        os.close(writer)
        self.address = os.read(reader, 100).decode()
        bench.addCleanup(os.waitpid, self.pid, 0)
        bench.addCleanup(os.kill, self.pid, 9)


def counter_of(url, name):
    text = harness.request(url, "GET", "/metrics").text
    return float(re.search(r"(?m)^%s (\S+)" % re.escape(name), text)[1])


class Millrace:
    name = "millrace"

    def __init__(self, bench):
        self.bench = bench

    def scrape(self, targets, interval):
        place = self.bench.path("millrace")
        pubsub = self.bench.start("pubsub", "--data-dir=" + place + "-stream", "--sync=never")
        os.mkdir(place + "-store")
        metricdb = self.bench.start("metricdb", "--data-dir=" + place + "-store", "--pubsub-url=" + pubsub.url)
        scraper = self.bench.daemon("scraper", "--pubsub-url=" + pubsub.url, "--files=" + targets, "--interval=%ds" % interval,
                                    "--timeout=%ds" % interval)
        self.daemons = [scraper, pubsub, metricdb]
        for d in self.daemons:
            measuring.pin(d.pid, 0)
        return {d.name: d.pid for d in self.daemons}

    def samples(self):
        return self.daemons[2].stats()["samples_total"]

    def load(self, store, _):
        self.store = os.path.dirname(store)

    def serve(self):
        """Without pubsub; queries need none."""
        self.daemons = [self.bench.daemon("metricdb", "--data-dir=" + self.store, "--pubsub-url=unix:" + self.bench.path("none"), "--keep=0",
                                          "--keep-minutes=0", "--keep-wide=0", "--query-timeout=10m").wait_listening()]
        measuring.pin(self.daemons[0].pid, 0)
        return self.daemons[0].url

    def stop(self):
        for d in self.daemons:
            d.kill9()
            shutil.rmtree(self.bench.path("millrace-stream"), ignore_errors=True)
        shutil.rmtree(self.bench.path("millrace-store"), ignore_errors=True)


class Peer:
    def __init__(self, bench):
        self.bench, self.place = bench, bench.path(self.name)

    def run(self, *args):
        self.url = "http://127.0.0.1:%d" % peer_servers.free_port()
        self.process = self.bench.spawn(self.name, [self.name, *args, *self.arguments(self.url[7:])], "0")

        def is_ready():
            try:
                return harness.request(self.url, "GET", self.ready).status == 200
            except harness.UNREACHABLE:
                return self.process.poll() is not None
        harness.wait_until(is_ready, self.name)
        if self.process.poll() is not None:
            raise AssertionError(harness.read_file(self.bench.path(self.name + ".log"))[-2000:])

    def scrape(self, targets, interval):
        self.config(self.bench.write(self.name + ".yml", "global: {scrape_interval: %ds, scrape_timeout: %ds}\nscrape_configs:\n"
                                     "- {job_name: a, file_sd_configs: [{files: [%s]}]}\n" % (interval, interval, targets)))
        return {self.name: self.process.pid}

    def samples(self):
        return counter_of(self.url, self.counter)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.place + "-scraped", ignore_errors=True)


class Prometheus(Peer):
    name, ready, counter = "prometheus", "/-/ready", "prometheus_tsdb_head_samples_appended_total{type=\"float\"}"

    def arguments(self, address):
        return ["--web.listen-address=" + address, "--storage.tsdb.retention.time=100y", "--log.level=warn"]

    def config(self, path):
        self.run("--config.file=" + path, "--storage.tsdb.path=" + self.place + "-scraped")

    def load(self, _, samples):
        """One block of 18 h and smaller ones: the largest that Prometheus would make of a day."""
        done = subprocess.run(["promtool", "tsdb", "create-blocks-from", "--max-block-duration=24h", "openmetrics", samples, self.place], check=True, capture_output=True)
        self.bench.write("none.yml", "global: {}\n")
        return done

    def serve(self):
        self.run("--config.file=" + self.bench.path("none.yml"), "--storage.tsdb.path=" + self.place)
        return self.url


class Victoria(Peer):
    name, ready, counter = "victoria-metrics", "/health", "vm_rows_inserted_total{type=\"promscrape\"}"

    def arguments(self, address):
        return ["-httpListenAddr=" + address, "-retentionPeriod=100y", "-loggerLevel=ERROR"]

    def config(self, path):
        self.run("-promscrape.config=" + path, "-storageDataPath=" + self.place + "-scraped")

    def load(self, _, samples):
        self.run("-storageDataPath=" + self.place)
        connection = harness.connect(self.url, 300)

        def ask(path, body=None):
            connection.request("POST", path, body)
            answer = connection.getresponse()
            if answer.read() is None or answer.status // 100 != 2:
                raise AssertionError(answer.status)
        with open(samples, "rb") as f:
            while lines := f.readlines(8 << 20):
                ask("/api/v1/import/prometheus", b"".join(lines).replace(b"# EOF\n", b"").replace(b"\n", b"000\n"))
        ask("/internal/force_flush")
        ask("/internal/force_merge")
        harness.wait_until(lambda: not re.search(r"(?m)^vm_active(_force)?_merges\S* [^0]", harness.request(self.url, "GET", "/metrics").text), "merges", 120)
        self.process.terminate()
        self.process.wait()

    def serve(self):
        self.run("-storageDataPath=" + self.place)
        return self.url


SYSTEMS = (Millrace, Prometheus, Victoria)


class Metrics(peer_servers.Peers):
    def setUp(self):
        super().setUp()
        os.sched_setaffinity(0, {1})
        self.serving = Serving(self)

    def scrapes(self, system, rate, interval=1):
        """Costs of a system that scrapes so many samples a second, and the share of the samples that arrived."""
        n = rate * interval // OF_TARGET
        targets = self.write("targets.json", json.dumps([{"targets": [self.serving.address], "labels": {
            "__metrics_path__": "/%d" % i, "instance": "host%d:9100" % i}} for i in range(n)]))
        pids = system.scrape(targets, interval)
        harness.wait_until(lambda: self.has_scraped(system, (2 if interval == 1 else 1) * n * OF_TARGET), "scrapes of each target", 180)
        began, first, used = time.monotonic(), system.samples(), {name: measuring.cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(max(WINDOW, interval))
        used = {name: max(measuring.cpu_seconds(pid) - used[name], TICK) for name, pid in pids.items()}
        samples, took = system.samples() - first, time.monotonic() - began
        costs = {"processor time, us": 1e6 * sum(used.values()) / samples}
        if len(pids) > 1:
            costs.update({name + ", us": 1e6 * seconds / samples for name, seconds in used.items()})
        costs["memory, MB"] = sum(rss(pid) for pid in pids.values())
        if len(pids) > 1:
            costs.update({name + ", MB": rss(pid) for name, pid in pids.items()})
        share = samples / took / rate
        system.stop()
        return costs, share

    @staticmethod
    def has_scraped(system, samples):
        try:
            return system.samples() >= samples
        except (KeyError, TypeError):  # no counter yet
            return False

    def all_scrapes(self, rounds):
        found = collections.defaultdict(lambda: collections.defaultdict(list))
        for _ in range(rounds):
            for system in SYSTEMS:
                costs, share = self.scrapes(system(self), TARGETS * OF_TARGET)
                for name, value in {**costs, "share of the samples": share}.items():
                    found[system.name][name].append(value)
        print("scrapes of %d series a second" % (TARGETS * OF_TARGET))
        for name, costs in found.items():
            print("  %-18s %s" % (name, "; ".join("%s %.3g" % (what, statistics.median(v)) for what, v in costs.items())), flush=True)
        of = {name: costs["processor time, us"] for name, costs in found.items()}
        for name in list(of)[1:]:
            print("  processor time of %s / millrace: %.2f" % (name, statistics.median(b / a for a, b in zip(of["millrace"], of[name]))), flush=True)
        for system in SYSTEMS:
            self.highest_rate(system, 1e6 / statistics.median(of[system.name]))

    def highest_rate(self, system, estimate):
        for factor in FACTORS:
            rate = int(estimate * factor / OF_TARGET / SCALE) * OF_TARGET
            costs, share = self.scrapes(system(self), rate)
            print("  %-18s %d samples a second: %.3f of them arrived, %.2f of the processor" % (system.name, rate, share, costs["processor time, us"] * rate * share / 1e6), flush=True)
            if share >= ON_TIME:
                return

    def on_time(self, rate, interval=1):
        costs, share = self.scrapes(Millrace(self), rate, interval)
        if share < ON_TIME:
            print("  %d samples a second at %d s: only %.3f of them arrived" % (rate, interval, share))
        return costs

    def loaded(self):
        """The systems with the same samples; prints their bytes."""
        store, samples = self.path("store", "blocks"), self.path("samples.om")
        os.makedirs(store)
        text = subprocess.run([harness.program("bench_metric_store"), store, str(SERIES), str(CUTS), str(INTERVAL), samples], check=True, capture_output=True).stdout.decode()
        n, systems = SERIES * CUTS * 600 // INTERVAL, [system(self) for system in SYSTEMS]
        finest = int(re.search(r"buckets of 10 s: \d+ blocks, (\d+) bytes", text)[1])
        print("disk: bytes of a sample, %d samples\n  %-18s %.2f (%.2f in all, with the wider buckets)" % (n, "millrace", finest / n, size_of(store) / n))
        for system in systems:
            system.load(store, samples)
            if system.name != "millrace":
                print("  %-18s %.2f" % (system.name, size_of(system.place) / n), flush=True)
        os.unlink(samples)
        return systems

    def queries(self, rounds):
        systems, found, of = self.loaded(), collections.defaultdict(list), {}
        for _ in range(rounds):
            for name, query in QUERIES.items():
                for system in systems:
                    url = system.serve()
                    took = [self.ask(url, query) for _ in range(2)]
                    found[name, system.name, "first"].append(took[0][0])
                    found[name, system.name, "again"].append(took[1][0])
                    of[name, system.name] = took[0][1]
                    system.stop()
        compare(of)
        print("query_range of a day, step 60 s: ms, first and again; ratio to millrace within a round")
        for name in QUERIES:
            for system in systems:
                ratios = [statistics.median(b / a for a, b in zip(found[name, "millrace", which], found[name, system.name, which])) for which in ("first", "again")]
                print("  %-28s %-18s %7.0f %7.0f   %.2f %.2f" % (name, system.name, *(statistics.median(found[name, system.name, which]) for which in ("first", "again")), *ratios), flush=True)

    @staticmethod
    def ask(url, query):
        began, connection = time.perf_counter(), harness.connect(url, 120)
        start = BEGIN + 600
        connection.request("GET", "/api/v1/query_range?" + urllib.parse.urlencode({"query": query, "start": start, "end": start + DAY, "step": 60}))
        answer = connection.getresponse()
        text = answer.read()
        took = 1e3 * (time.perf_counter() - began)
        connection.close()
        if answer.status != 200:
            raise AssertionError((url, query, text[:500]))
        return took, text


def compare(of):
    """The same rows and steps, and nearly the same sums in metricdb, which reads buckets of a minute, and Prometheus. VictoriaMetrics
    defines rate otherwise."""
    name = list(QUERIES)[-1]
    for query in QUERIES:
        sizes = {s.name: len(json.loads(of[query, s.name])["data"]["result"]) for s in SYSTEMS}
        if len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise AssertionError((query, sizes))
    ours, theirs = ({json.dumps(row["metric"], sort_keys=True): row["values"] for row in json.loads(of[name, s.name])["data"]["result"]} for s in SYSTEMS[:2])
    if {labels: [t for t, _ in values] for labels, values in ours.items()} != {labels: [t for t, _ in values] for labels, values in theirs.items()}:
        raise AssertionError("other steps")
    differences = [abs(float(a) / float(b) - 1) for labels, values in theirs.items() for (_, a), (_, b) in zip(ours[labels], values)]
    print("%s: metricdb differs from Prometheus by %.2g, at most %.2g" % (name, statistics.median(differences), max(differences)))
    if max(differences) > 0.1:
        raise AssertionError("other sums")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    bench = Metrics()
    bench.setUp()
    try:
        if "scrapes" in PARTS:
            bench.all_scrapes(rounds)
        if "growth" in PARTS:
            report("samples a second", RATES, medians(min(rounds, 3), RATES, lambda rate, _: bench.on_time(rate)))
            report("series, %d samples a second" % RATES[0], [RATES[0] * i for i in INTERVALS], medians(
                min(rounds, 3), INTERVALS, lambda interval, _: bench.on_time(RATES[0], interval)))
        if "queries" in PARTS:
            bench.queries(rounds)
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
