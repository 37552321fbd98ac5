"""One key with very many sub keys in one hour, counted, asked for before compaction and after it. Meanwhile a process of its own gets other
records from the same daemons. The tests and `scripts/bench huge` share it."""
import collections
import os
import re
import subprocess
import sys
import time
import urllib.parse

import harness
from record_text import hour, stored

START = 1331920800  # c3gi
HOUR = hour(3, 16, 18)
TIES_MAX = 100000  # subtotals with equal counts that are ordered by text
OTHERS = 200  # users with a record of their own

# Gets a record every 5 ms until its input ends. Prints of each get when it began (monotonic seconds) and its milliseconds.
PROBE = """
import http.client, select, sys, time
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    began = time.monotonic()
    c.request("GET", sys.argv[2])
    r = c.getresponse()
    r.read()
    assert r.status == 200, r.status
    print(began, 1000 * (time.monotonic() - began))
"""


def text_of(i):
    """The text of a sub key: some are stored as they are, most by their hash."""
    return "p%d" % i if i % 10 == 0 else "https://example.org/page/%07d" % i


def count_of(i):
    """Few are counted more than once, so that most rows of an answer have the same count."""
    return 3 if i in (7, 77, 777, 7777, 77777) else 1


class Gets:
    """Gets of others' records while something else runs."""

    def __init__(self, daemon, target):
        self.process = subprocess.Popen([sys.executable, "-c", PROBE, str(urllib.parse.urlsplit(daemon.url).port), target],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self):
        """Sorted milliseconds. `self.times` is a list of the begin and the end of each get."""
        gets = [tuple(map(float, line.split())) for line in self.process.communicate()[0].splitlines()]
        self.times = [(began, began + ms / 1000) for began, ms in gets]
        return sorted(ms for _, ms in gets)

    def within(self, began, end):
        """How many gets began and ended between two times."""
        return sum(began < b and e < end for b, e in self.times)


class HugeCase(harness.MillraceTest):
    subs = 0
    known, ranked = (), (None, ())

    def write_events(self, path, first, end):
        with open(path, "w") as f:
            for i in range(first, end):
                line = '{"t":%d,"l":"huge","c":"%s"}\n' % (START + i % 3600, text_of(i))
                f.write(line * count_of(i))
            for i in range(OTHERS):
                f.write('{"t":%d,"l":"user%d","c":"JP"}\n' % (START, i))
        return path

    def count(self, subs, *settings, pieces=1, live=0):
        """Counts `subs` sub keys from files, and the last `live` of them from a stream. Starts the aggregator."""
        self.subs = subs
        self.config = self.write("huge.conf", "[aggregator]\ndata_dir = %s\narchive = %s\n%s%s" % (
            self.path("counts"), self.path("archive"), "".join(s + "\n" for s in settings), harness.USERS_BY_COUNTRY))
        self.run_checked("compactor", "--archive=" + self.path("archive"), "--init", "--shards=1")
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("stream"), "--sync=never", "--streams=s")
        filed, live = subs - live, live
        for k in range(pieces):
            events = self.write_events(self.path("events"), filed * k // pieces, filed * (k + 1) // pieces)
            self.run_checked("aggregator", "--config", self.config, "--input", events)
            os.unlink(events)
        self.aggregator = self.start("aggregator", "--config", self.config, "--streams=s", "--pubsub_url=" + self.pubsub.url)
        self.events = sum(map(count_of, range(filed))) + OTHERS * pieces
        self.publish(filed, subs)

    def publish(self, first, end):
        """Counts these sub keys from the stream."""
        with open(self.write_events(self.path("events"), first, end), "rb") as f:
            while data := f.read(8 << 20):
                data += f.readline()
                assert self.pubsub.post("/pub?stream=s", data).status == 200
        self.events += sum(map(count_of, range(first, end))) + OTHERS
        self.subs = max(self.subs, end)
        harness.wait_until(lambda: self.aggregator.stats()["events_total"] == self.events, "everything to be counted", harness.LONG)

    def run_checked(self, name, *args, timeout=harness.LONG):
        done = self.run_program(name, *args, timeout=timeout)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def serve(self, *settings):
        """Starts sortdb and the API over archive and aggregator."""
        self.sortdb = self.start("sortdb", "--archive=" + self.path("archive"))
        self.api = self.start("api", "--config", self.config, "--aggregator_url=" + self.aggregator.url,
                              "--sortdb_url=" + self.sortdb.url, "--upstream_timeout=%ds" % min(600, harness.LONG), *settings)

    def compact(self, *more):
        done = self.run_checked("compactor", "--archive=" + self.path("archive"), "--slices=" + self.path("counts", "slices"),
                                "--aggregator-url=" + self.aggregator.url, "--sortdb-url=" + self.sortdb.url, *more)
        return done

    def breakdown(self, limit=10, timeout=harness.LONG, **more):
        return self.api.get("/v1/breakdown?" + harness.query(user="huge", by="country", from_=START, to=START + 3600, limit=limit, **more),
                            timeout=timeout)

    def all_of(self):
        """The stored form, count and text of each sub key."""
        if len(self.known) != self.subs:
            self.known = [(stored(text_of(i).encode()), count_of(i), text_of(i)) for i in range(self.subs)]
        return self.known

    def rows(self, limit):
        """The rows of a breakdown: the largest counts, and among equal ones the lowest texts, or of too many the lowest stored forms."""
        known = self.all_of()
        if known is not self.ranked[0]:
            sizes = collections.Counter(n for _, n, _ in known)
            self.ranked = known, sorted((-n, sub if sizes[n] > TIES_MAX else text.encode(), text) for sub, n, text in known)
        return [(text, -n) for n, _, text in self.ranked[1][:limit]]

    def check_breakdown(self, limit=10):
        reply = self.breakdown(limit)
        self.assertEqual(reply.status, 200, reply)
        got, total = reply.json(), sum(map(count_of, range(self.subs)))
        self.assertEqual((got["total"], got["distinct"]), (total, self.subs))
        rows = self.rows(limit)
        self.assertEqual([(r["key"], r["n"]) for r in got["rows"]], rows)
        self.assertEqual(got["other"], total - sum(n for _, n in rows))


def peak_memory(daemon):
    """Bytes."""
    with open("/proc/%d/status" % daemon.pid) as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) << 10


def reset_peak(daemon):
    with open("/proc/%d/clear_refs" % daemon.pid, "w") as f:
        f.write("5")


def timed(ask):
    """Milliseconds, and what it returned."""
    began = time.monotonic()
    result = ask()
    return 1000 * (time.monotonic() - began), result
