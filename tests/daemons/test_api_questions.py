"""Random questions to a whole pipeline, half of whose events are archived, against the oracle: series, several series, the largest over
time, comparisons, breakdowns and top; all units, zones with and without daylight saving, and spans around its changes."""
# full: MILLRACE_ROUNDS=40
import collections
import datetime
import json
import os
import unittest
import zoneinfo

import answers
import harness
from harness import seeded, wait_until

HOUR, DAY = 3600, 86400
ZONES = ({"timezone": "UTC"}, {"timezone": "America/New_York"}, {"timezone": "Europe/Berlin"}, {"timezone": "America/Sao_Paulo"},
         {"timezone": "Australia/Sydney"}, {"timezone": "America/Havana"}, {"hour_offset": -5}, {"timezone": "Asia/Kolkata", "round": "hour"})
FILES = 3 if harness.rounds(1) > 1 else 1
MADE = 60  # events around each change
LABELS = {"u": "user", "h": "link", "d": "domain", "all": "feed"}
TIMES = ("format", "timezone", "period")
ENDPOINTS = {"series": {"user": "a"}, "breakdown": {"user": "a", "by": "country"}, "compare": {"user": "a"}, "top": {"counter": "user"},
             "counters": {}, "freshness": {}, "openapi.json": {}, "lookup": {"prefix": ""}, "incr": {"ns": "u", "key": "a"}, "events": {}}


def tzinfo(zone):
    if "hour_offset" in zone:
        return datetime.timezone(datetime.timedelta(hours=zone["hour_offset"]))
    return zoneinfo.ZoneInfo(zone["timezone"])


def changes():
    """The hours in which a zone changes its offset, in 2012 and 2013."""
    found = []
    for zone in ZONES:
        tz, before = tzinfo(zone), None
        for t in range(1325376000, 1388534400, HOUR):
            offset = datetime.datetime.fromtimestamp(t, tz).utcoffset()
            if before is not None and offset != before:
                found.append(t)
            before = offset
    return sorted(set(found))


@unittest.skipUnless(harness.load_oracle(), "the oracle is not here")
class Questions(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random, self.changes = seeded(), changes()
        data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(data, aggregator={"flush_interval": "500ms"}))
        self.pipeline = harness.Pipeline(self, config, data).wait_ready()
        self.oracle = harness.load_oracle()
        self.counts = self.oracle.Counts(answers.CONFIG)
        lines = self.lines()
        self.put(lines[:len(lines) // 2])
        done = self.run_program("millrace", "compact", "--config", config)
        self.assertEqual(done.returncode, 0, done)
        self.put(lines[len(lines) // 2:])
        self.api = harness.connect(self.pipeline.daemon_url("api"))
        self.addCleanup(self.api.close)
        self.keys = [(ns, key) for ns, few in (("all", 1), ("u", 10), ("h", 8), ("d", 8)) for key in answers.busiest(self.counts, ns)[:few]]
        self.keys.append(("u", "never counted"))
        self.subs = collections.defaultdict(dict)  # (ns, stored key) -> hour -> sub key -> n
        for (name, key, hour), subs in self.counts.sub.items():
            self.subs[name, key][hour] = subs

    def lines(self):
        files = harness.real_files()[:FILES] or [answers.generate(self.path("events.ndjson"))]
        lines = [line for f in files for line in harness.read_file(f).split(b"\n") if line]
        real = [e for e in map(json.loads, (l for l in lines if l.endswith(b"}"))) if "l" in e]
        for change in self.changes:
            for event in self.random.sample(real, MADE):
                lines.append(json.dumps({**event, "t": change + self.random.randrange(-30 * HOUR, 30 * HOUR)}).encode())
        self.random.shuffle(lines)
        return lines

    def put(self, lines):
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)

        def counted():
            depth = self.pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            streams = self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"]
            here = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
            return depth == 0 and all(here[s["name"]]["offset"] == s["end"] for s in streams)
        wait_until(counted, "everything to be counted", timeout=harness.LONG)
        for line in lines:
            self.counts.add_line(line)

    def ask(self, what, status=200, **params):
        self.api.request("GET", "/v1/%s?%s" % (what, harness.query(**params)))
        reply = self.api.getresponse()
        body = reply.read()
        self.assertEqual(reply.status, status, (what, params, body))
        return json.loads(body)

    def name(self, ns, key):
        return {"ns": ns, "key": key} if self.random.random() < 0.5 else {LABELS[ns]: key}

    def span(self):
        """Around a change of the clocks, or of the real clicks; or one that is empty or in the future."""
        around = self.random.choice(self.changes * 4 + [max(h for hours in self.counts.total.values() for h in hours), 1577836800, 4102444800])
        start = around - self.random.randrange(40 * DAY)
        end = around + self.random.randrange(1, 40 * DAY)
        return start - start % HOUR, end + -end % HOUR

    def stored(self, key):
        return self.oracle.component(key.encode(), {})

    def hours(self, ns, key, sub=None):
        """hour -> n; `sub`: of this sub key."""
        if sub is None:
            return self.counts.total[ns, self.stored(key)]
        return {h: subs[self.stored(sub)] for h, subs in self.subs[ns, self.stored(key)].items() if self.stored(sub) in subs}

    def rows(self, hours, start, end, unit, zone):
        """[(t, n)] with zeros, over hours that start in [start, end)."""
        tz, rows = tzinfo(zone), collections.Counter()
        for h in range(-(-start // HOUR) * HOUR, end, HOUR):
            rows[self.oracle.unit_start(h, unit, tz)] += hours.get(h, 0)
        return sorted(rows.items())

    def check_rows(self, got, hours, start, end, unit, zone, what):
        expected = self.rows(hours, start, end, unit, zone)
        rows = [(r["t"], r["n"]) for r in got["rows"]]
        self.assertEqual(rows, expected, what)
        self.assertEqual(got["total"], sum(n for _, n in rows), what)

    def check_complete(self, answer, rows, what):
        ends = [r["t"] for r in rows[1:]] + [None]
        for row, end in zip(rows, ends):
            if end is not None:
                self.assertEqual(row["complete"], not answer.get("approximate") and end <= (answer["complete_until"] or 0), what)

    def expected_breakdown(self, name, key, start, end):
        sums = collections.Counter()
        for h, subs in self.subs[name, self.stored(key)].items():
            if start <= h < end:
                sums.update(subs)
        return {answers.text(self.counts, s): n for s, n in sums.items()}

    def check_breakdown(self, got, sums, limit, what):
        rows = [(r["key"], r["n"]) for r in got["rows"]]
        self.assertEqual(rows, sorted(rows, key=lambda r: (-r[1], r[0].encode())), what)
        self.assertEqual([n for _, n in rows], sorted(sums.values(), reverse=True)[:limit], what)
        self.assertEqual([sums.get(k) for k, _ in rows], [n for _, n in rows], what)
        shown, total = sum(n for _, n in rows), sum(sums.values())
        self.assertEqual((got["total"], got["distinct"], got["other"]), (total, len(sums), total - shown), what)

    def pick(self):
        unit, zone, (start, end) = self.random.choice(answers.UNITS), self.random.choice(ZONES), self.span()
        return unit, zone, start, end, {"unit": unit, "from_": start, "to": end, **zone}

    def pick_sub(self):
        """(ns of a subtotal, its label, key, ns of the total)"""
        ns, key = self.random.choice(self.keys)
        name = self.random.choice([s for s, _ in self.counts.subs if s.split(".", 1)[1] == ns])
        return name, key

    def one_series(self):
        unit, zone, start, end, params = self.pick()
        ns, key = self.random.choice(self.keys)
        got = self.ask("series", **self.name(ns, key), **params)
        self.check_rows(got, self.hours(ns, key), start, end, unit, zone, (key, params))
        self.check_complete(got, got["rows"], (key, params))

    def several_keys(self):
        unit, zone, start, end, params = self.pick()
        ns = self.random.choice(["u", "h", "d"])
        keys = [k for n, k in self.keys if n == ns]
        keys = self.random.sample(keys, self.random.randrange(2, len(keys)))
        got = self.ask("series", **self.name(ns, keys), **params)
        self.assertEqual([s["key"] for s in got["series"]], keys)
        for s in got["series"]:
            self.check_rows(s, self.hours(ns, s["key"]), start, end, unit, zone, (s["key"], params))
            self.check_complete(got, s["rows"], (s["key"], params))

    def sub_series(self):
        unit, zone, start, end, params = self.pick()
        name, key = self.pick_sub()
        texts = sorted(self.expected_breakdown(name, key, 0, 2 ** 40)) + ["none such"]
        subs = self.random.sample(texts, min(len(texts), self.random.randrange(1, 6)))
        got = self.ask("series", ns=name, key=key, sub=subs, **params)
        for sub, series in zip(subs, got["series"] if len(subs) > 1 else [got]):
            self.assertEqual(series["sub"], sub)
            self.check_rows(series, self.hours(name, key, sub), start, end, unit, zone, (name, key, sub, params))

    def largest_over_time(self):
        unit, zone, start, end, params = self.pick()
        name, key = self.pick_sub()
        n, sums = self.random.randrange(1, 8), self.expected_breakdown(name, key, start, end)
        got = self.ask("series", ns=name, key=key, top=n, **params)
        named, what = got["series"][:-1], (name, key, params)
        self.assertEqual([s["total"] for s in named], sorted(sums.values(), reverse=True)[:n], what)
        for s in named:
            self.check_rows(s, self.hours(name, key, s["sub"]), start, end, unit, zone, what)
        rest = collections.Counter()
        for h, subs in self.subs[name, self.stored(key)].items():
            rest[h] = sum(c for s, c in subs.items() if answers.text(self.counts, s) not in [m["sub"] for m in named])
        self.check_rows(got["series"][-1], rest, start, end, unit, zone, what)
        self.assertEqual(got["total"], sum(sums.values()), what)

    def breakdown(self):
        _, _, start, end, params = self.pick()
        name, key = self.pick_sub()
        limit = self.random.choice([1, 5, 50, 10000])
        got = self.ask("breakdown", ns=name, key=key, limit=limit, **{**params, "unit": None})
        self.check_breakdown(got, self.expected_breakdown(name, key, start, end), limit, (name, key, params))

    def top(self):
        _, _, start, end, params = self.pick()
        ns = self.random.choice(["u", "h"])
        got = self.ask("top", counter=LABELS[ns], limit=20, **{**params, "unit": None})
        self.check_breakdown(got, self.expected_breakdown(ns + ".all", "all", start, end), 20, (ns, params))

    def compare(self):
        unit, zone, start, end, params = self.pick()
        ns, key = self.random.choice(self.keys)
        before = self.span()
        against = "%d..%d" % before if self.random.random() < 0.5 else None
        if against is None:
            before = (2 * start - end, start)
        got = self.ask("compare", **self.name(ns, key), against=against, **params)
        self.check_rows(got, self.hours(ns, key), start, end, unit, zone, (key, params))
        n = sum(c for _, c in self.rows(self.hours(ns, key), *before, unit, zone))
        self.assertEqual(got["before"]["total"], n, (key, against, params))
        self.assertEqual(got["change"] is None, n == 0, (key, against, params))
        if n:
            self.assertAlmostEqual(got["change"], 100 * (got["total"] - n) / n, delta=0.006)

    def calendar_period(self):
        unit, zone = self.random.choice(answers.UNITS), self.random.choice(ZONES)
        ns, key = self.random.choice(self.keys)
        month = self.random.randrange(1, 13)
        year, tz = self.random.choice([2012, 2013]), tzinfo(zone)
        start = int(datetime.datetime(year, month, 1, tzinfo=tz).timestamp())
        end = int(datetime.datetime(year + month // 12, month % 12 + 1, 1, tzinfo=tz).timestamp())
        got = self.ask("series", **self.name(ns, key), unit=unit, period="%d-%02d" % (year, month), **zone)
        self.assertEqual((got["from"], got["to"]), (start, end))
        self.check_rows(got, self.hours(ns, key), start, end, unit, zone, (key, year, month, unit, zone))

    def all_time(self):
        zone, unit = self.random.choice(ZONES), self.random.choice(["day", "week", "mweek", "month"])
        ns, key = self.random.choice(self.keys[:-1])
        hours = self.hours(ns, key)
        got = self.ask("series", **self.name(ns, key), period="all", unit=unit, **{**zone, "round": "hour"})
        self.check_rows(got, hours, min(hours), got["to"], unit, zone, (key, unit, zone))
        self.assertEqual(got["rows"][0]["t"], self.oracle.unit_start(min(hours), unit, tzinfo(zone)))
        name, key = self.pick_sub()
        sums = self.expected_breakdown(name, key, 0, 2 ** 40)
        got = self.ask("breakdown", ns=name, key=key, limit=30, period="all", **{**zone, "round": "hour"})
        self.check_breakdown(got, sums, 30, (name, key))
        days = self.ask("series", ns=name.rpartition(".")[2], key=key, period="all", unit="day", **{**zone, "round": "hour"})
        self.assertEqual((got["from"], got["to"]), (days["from"], days["to"]), (name, key, zone))

    def test_random_questions(self):
        kinds = (self.one_series, self.several_keys, self.sub_series, self.largest_over_time, self.breakdown, self.top, self.compare,
                 self.calendar_period, self.all_time)
        for i in range(harness.rounds(2) * len(kinds)):
            kinds[i % len(kinds)]()
        self.refused()
        self.without_the_archive()
        fresh = self.ask("freshness")
        self.assertEqual((fresh["archive"]["generation"], fresh["archive"]["through"], fresh["missing"]), (1, 1, []))
        self.assertTrue(0 <= fresh["archive"]["age"] < 600 and 0 <= fresh["complete_age"] < 600)
        self.assertEqual([(s["stream"], s["lag_bytes"]) for s in fresh["streams"]], [("clicks", 0)])

    def refused(self):
        for what in ("series", "breakdown", "compare", "top"):
            for span in ({"from_": 1332720000, "to": 1332633600}, {"from_": "2012-03-26", "to": "2012-03-25"}, {"from_": 5, "to": 5}):
                self.assertEqual(self.ask(what, 400, **ENDPOINTS[what], **span)["code"], "bad-parameter")
            self.assertEqual(self.ask(what, 422, **ENDPOINTS[what], timezone="Asia/Kolkata")["code"], "part-hour-zone")
        for what, params in ENDPOINTS.items():
            for slip, meant in (("forma", "format"), ("limt", "limit"), ("timezon", "timezone"), ("queu", "queue"), ("perod", "period")):
                method = "POST" if what == "events" else "GET"
                reply = self.pipeline.ask("api", method, "/v1/%s?%s" % (what, harness.query(**params, **{slip: "1"})), b"{}" if method == "POST" else None)
                self.assertEqual(reply.status, 400, (what, slip, reply))
                got = reply.json()
                self.assertEqual(got["code"], "unknown-parameter", (what, slip))
                known = {"counters": (), "freshness": (), "openapi.json": (), "incr": ("queue",), "events": ("queue",),
                         "lookup": ("format", "limit"), "series": TIMES, "compare": TIMES}.get(what, TIMES + ("limit",))
                if meant in known:
                    self.assertIn("did you mean %s?" % meant, json.dumps(got))

    def without_the_archive(self):
        """The rest of the slices, from an aggregator that has cleared those that are archived."""
        api = self.start("api", "--config", self.pipeline.config_path, "--sortdb-url", "unix:" + self.path("nobody"),
                         "--aggregator-url", self.pipeline.daemon_url("aggregator"))
        live = json.loads(api.get("/v1/series?feed=&period=all&unit=month&partial=allow").body)
        whole = self.ask("series", feed="", period="all", unit="month")
        self.assertEqual((live["partial"], [m["source"] for m in live["missing"]]), (True, ["sortdb"]))
        self.assertTrue(0 < live["total"] < whole["total"])
        self.assertFalse(any(r["complete"] for r in live["rows"]))
        self.assertEqual(whole["total"], self.counts.events)
        reply = api.get("/v1/series?feed=&period=all&unit=month")
        self.assertEqual((reply.status, reply.json()["missing"][0]["source"]), (503, "sortdb"))


if __name__ == "__main__":
    harness.main()
