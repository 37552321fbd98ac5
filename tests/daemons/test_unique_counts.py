"""The sets of unique counters at the aggregator equal sets that Python makes of the same lines, whatever is killed."""
# full: MILLRACE_ROUNDS=30
import base64
import collections
import datetime
import json
import re
import sqlite3
import struct
import unittest
import urllib.parse

import harness
import test_aggregator
import xxh3

COUNTERS = """
[input]
time = t
max_ahead = 0

[total all]
key = "all"
[total u]
key = l
[total h]
key = h
max_keys = 3
[subtotal c.u]
key = c
[unique v.u]
member = v
label = visitor
[unique w.u]
member = host(r)
by = hour
[unique v.all]
member = v
[unique v.h]
member = v
by = hour
"""
DIGITS = "0123456789abcdefghijklmnopqrstuv"
MIDNIGHT = 1956528000  # 2032-01-01, from where hours have five characters
USERS = ["a", "a!x", "a-", "a.b", "twelve_bytes"]
MEMBERS = 3
RUNS_MERGED = 32


def hour_text(t):
    d = datetime.datetime.fromtimestamp(t, datetime.timezone.utc)
    year = d.year - 2000
    return ("w" if year >= 32 else "") + "".join(DIGITS[n] for n in (year % 32, d.month, d.day, d.hour))


def code(text):
    if re.fullmatch("0|[1-9][0-9]*", text) and int(text) < 1 << 32:
        return int(text)
    hashed = xxh3.seeded(text.encode(), 0)
    return hashed if hashed >= 1 << 32 else hashed ^ (1 << 64) - 1


def text_of(value):
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def host(text):
    found = re.match("[a-z]+://([^/]*)", text)
    return text if not found else found[1].lower() or "None"


class Model:
    def __init__(self):
        self.sets, self.slices, self.admitted = collections.defaultdict(set), [], set()

    def seal(self):
        self.slices.append(self.sets)
        self.sets, self.admitted = collections.defaultdict(set), set()

    def add(self, line, without=()):
        e = json.loads(line)
        if isinstance(e.get("v"), float):
            return
        link = e["h"] if e["h"] in self.admitted or len(self.admitted) < 3 else "(other)"
        if link != "(other)":
            self.admitted.add(link)
        hour = hour_text(e["t"])
        v = None if e.get("v") in (None, "") else text_of(e["v"])
        r = None if e.get("r") in (None, "") else host(text_of(e["r"]))
        user = test_aggregator.component(e["l"].encode()).decode()
        for ns, key, period, member in (("v.u", user, hour[:-1], v), ("w.u", user, hour, r), ("v.all", "all", hour[:-1], v),
                                        ("v.h", link, hour, v)):
            if member is not None and ns not in without:
                self.sets["%s|%s.%s" % (ns, key, period)].add(code(member))

    def united(self, after=0):
        out = collections.defaultdict(set)
        for sets in self.slices[after:] + [self.sets]:
            for key, members in sets.items():
                out[key] |= members
        return dict(out)


def short(members):
    if len(members) > MEMBERS:
        return "#%d" % len(members)
    return "=" + " ".join(str(m) if m < 1 << 32 else "~%016x" % m for m in sorted(members))


def read_chunk(word):
    chunk_id, data = int(word[:6], 16), base64.b64decode(word[6:] + "=" * (-len(word[6:]) % 4), validate=True)
    assert word[:6] == "%06x" % chunk_id
    if chunk_id >> 16 == 1:
        codes = [c for c, in struct.iter_unpack("<Q", data)]
        assert all(c >> 48 == chunk_id & 0xffff for c in codes)
        return codes
    assert chunk_id >> 16 == 0
    if len(data) == 8192:
        low = [i for i in range(65536) if data[i // 8] >> i % 8 & 1]
        assert len(low) >= 4096
    else:
        low = [c for c, in struct.iter_unpack("<H", data)]
        assert len(low) < 4096
    return [(chunk_id & 0xffff) << 16 | c for c in low]


def random_line(rng, i):
    """Of three days around a new year; most are late for one of them."""
    e = {"t": MIDNIGHT + rng.randrange(-30, 30) * 3600, "l": rng.choice(USERS), "h": "h%d" % rng.randrange(6),
         "c": rng.choice(["US", "JP"]), "r": rng.choice(["direct", "http://T.co/%d" % i, "http://", "", None, 5])}
    kind = rng.random()
    if kind < 0.45:
        e["v"] = "visitor-%d" % rng.randrange(2000)
    elif kind < 0.9:
        number = rng.choice([rng.randrange(9000), 1 << 32, (1 << 32) - 1, rng.randrange(1 << 31), -5])
        e["v"] = number if rng.random() < 0.5 else str(number)
    else:
        e["v"] = rng.choice([None, "", True, "007", 1.5, "None", "(other)", "\u00fc" * 3000])
    if rng.random() < 0.05:
        del e["v"]
    return json.dumps(e).encode()


class UniqueCounts(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub, self.model = test_aggregator.Pubsub(self), Model()
        self.config = self.write("counters.conf", COUNTERS)

    def launch(self, *args, flush="50ms"):
        d = self.daemon("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--pubsub-url",
                        self.pubsub.url, "--flush-interval=" + flush, *args)
        return d.wait_ready(harness.LONG)

    def publish(self, lines):
        for line in lines:
            self.model.add(line)
        self.pubsub.publish(lines)

    def wait_counted(self, d):
        harness.wait_until(lambda: int(d.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data), "all to be counted",
                           timeout=harness.LONG)

    def pages(self, d, target, **params):
        """The lines of an answer in as many parts as it takes; a line that continues another has the same key."""
        lines, parts, start = [], 0, params.pop("start", b"")
        while start is not None:
            r = d.get(target + "?" + harness.query(start=start or None, **params))
            if r.status == 404 and not lines:
                return [], 1
            self.assertEqual(r.status, 200, r)
            lines += r.body.decode().splitlines()
            start, parts = r.header("X-Millrace-Next"), parts + 1
            start = start and urllib.parse.unquote_to_bytes(start)
        return lines, parts

    def read_sets(self, lines):
        out, at = collections.defaultdict(list), {}
        for line in lines:
            key, value = line.split(",", 1)
            self.assertEqual(value[0], "@", line[:80])
            for word in value[1:].split(" "):
                codes = read_chunk(word)
                self.assertEqual(codes, sorted(set(codes)))
                self.assertGreater(word[:6], at.get(key, ""), "chunks ascend, also where an answer continues")
                at[key] = word[:6]
                out[key] += codes
        for codes in out.values():
            self.assertEqual(codes, sorted(codes))
        return {key: set(codes) for key, codes in out.items()}

    def check(self, d, after=0):
        self.wait_counted(d)
        truth = self.model.united(after)
        for ns in ("v.u", "w.u", "v.all", "v.h"):
            expected = {k: m for k, m in truth.items() if k.startswith(ns + "|")}
            lines, _ = self.pages(d, "/fwmatch", key=ns + "|", after=after)
            got = dict(line.split(",", 1) for line in lines)
            self.assertEqual(list(got), sorted(expected, key=lambda k: k + ","))
            self.assertEqual(got, {key: short(members) for key, members in expected.items()})
            lines, _ = self.pages(d, "/fwmatch", key=ns + "|", after=after, members=1)
            self.assertEqual(self.read_sets(lines), expected)
        return truth

    def test_sets_in_memory_and_on_disk(self):
        rng = harness.seeded()
        self.publish([random_line(rng, i) for i in range(3000)])
        d = self.launch(flush="1h")
        truth = self.check(d)
        self.publish([b'{"t":%d,"l":"many","h":"h0","v":%d}' % (MIDNIGHT, 3 * i) for i in range(7000)])
        truth = self.check(d)
        self.check_requests(d, truth)
        d.stop()
        d = self.launch()
        self.assertEqual(self.check(d), truth)
        self.check_requests(d, truth)

    def check_requests(self, d, truth):
        lines, parts = self.pages(d, "/range", start=b"v.", end=b"w.\xff", members=1, max_bytes=5000)
        self.assertGreater(parts, 10)
        self.assertEqual(self.read_sets(lines), truth)
        keys = ["v.u|many.w011", "v.all|all.w011", "v.u|a.vcv"]
        for key in keys:
            value = d.get("/get?" + harness.query(key=key)).text.rstrip("\n")
            self.assertEqual(value, short(truth[key]))
            chunks = d.get("/get?" + harness.query(key=key, members=1)).text.rstrip("\n")
            self.assertEqual(self.read_sets([key + "," + chunks]), {key: truth[key]})
        body = urllib.parse.urlencode([("k", k) for k in keys] + [("members", "1")]).encode()
        r = d.post("/mget", body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual(self.read_sets(r.text.splitlines()), {k: truth[k] for k in keys})
        self.assertEqual(d.get("/get?members=x&key=" + urllib.parse.quote(keys[0])).status, 400)
        self.assertEqual(d.get("/fwmatch?key=v.u%7C").header("X-Millrace-Not-Counted"), None)
        sub = d.get("/range?" + harness.query(start="v.u|many.w011", end="v.u|many.w011", rollups="hour") + "&sub=%00%00%00")
        self.assertEqual(sub.status, 404, sub)

    def test_sets_survive_kills_and_seals(self):
        rng = harness.seeded()
        d = self.launch()
        for i in range(harness.rounds(6)):
            self.publish([random_line(rng, n) for n in range(300)])
            act = rng.randrange(3)
            if act == 0:
                d.kill9()
                d = self.launch()
            elif act == 1:
                self.wait_counted(d)
                n = d.get("/slices").json()["open"]
                self.assertEqual(d.post("/seal?slice=%d" % n).json()["sealed"], n)
                self.model.seal()
            self.check(d)
        sealed = len(self.model.slices)
        self.check(d, after=sealed)
        self.wait_counted(d)
        n = d.get("/slices").json()["open"]
        if self.model.sets:
            d.post("/seal?slice=%d" % n)
            self.model.seal()
        d.stop()
        for n, sets in enumerate(self.model.slices, 1):
            self.check_slice_tool(self.path("data", "slices", "%010d.db" % n), sets)

    def check_slice_tool(self, path, sets):
        for members in (False, True):
            done = self.run_program("millrace", "slice", *["--members"] * members, path)
            self.assertEqual(done.returncode, 0, done)
            lines = [line for line in done.stdout.decode().splitlines() if re.match("[vw][.]", line)]
            if members:
                self.assertEqual(self.read_sets(lines), dict(sets))
            else:
                self.assertEqual(dict(line.split(",", 1) for line in lines), {k: short(m) for k, m in sets.items()})

    def test_files_make_the_same_sets(self):
        rng = harness.seeded()
        lines = [random_line(rng, i) for i in range(1000)]
        for line in lines:
            self.model.add(line)
        path = self.write("events.ndjson", b"".join(line + b"\n" for line in lines).decode())
        done = self.run_program("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--input", path)
        self.assertEqual(done.returncode, 0, done)
        self.check_slice_tool(self.path("data", "slices", "0000000001.db"), self.model.sets)

    def test_merged_runs_unite(self):
        """More flushes than a background merge takes."""
        rng = harness.seeded()
        d = self.launch(flush="10ms")
        rows = lambda: d.stats()["rows_flushed_total"]
        for _ in range(RUNS_MERGED + 2):
            before = rows()
            self.publish([random_line(rng, n) for n in range(40)])
            harness.wait_until(lambda: rows() > before, "a flush")
        harness.wait_until(self.has_merged_run, "a merge")
        self.check(d)

    def has_merged_run(self):
        db = sqlite3.connect("file:%s?mode=ro" % self.path("data", "slices", "0000000001.db"), uri=True)
        try:
            return db.execute("SELECT max(level) FROM runs").fetchone()[0] > 0
        finally:
            db.close()

    def test_a_changed_member_or_period_is_refused(self):
        self.publish([b'{"t":%d,"l":"a","h":"h","v":1}' % MIDNIGHT])
        d = self.launch()
        self.wait_counted(d)
        d.stop()
        for old, new in (("member = v\nlabel", "member = w\nlabel"), ("label = visitor", "label = visitor\nby = hour")):
            self.write("counters.conf", COUNTERS.replace(old, new))
            r = self.run_program("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--pubsub-url",
                                 self.pubsub.url, "--port=0")
            self.assertNotEqual(r.returncode, 0)
            self.assertIn(b"unique v.u member = v by = day", r.stderr)
        check = ["--config", self.config, "--data-dir", self.path("data"), "--check-config"]
        r = self.run_program("aggregator", *check)
        self.assertEqual(r.returncode, 0, r)
        self.write("counters.conf", COUNTERS.replace("by = hour", "by = quarter", 1))
        r = self.run_program("aggregator", *check)
        self.assertEqual(r.returncode, 78, r)
        self.assertIn(b"by = quarter needs [input] resolution = 15m", r.stderr)


if __name__ == "__main__":
    unittest.main()
