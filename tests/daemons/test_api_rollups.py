"""Breakdowns and subtotals' series over an archive with days and months, against a model: any span and zone, from few records;
days whose hours were dropped are counted whole or refused."""
import base64
import collections
import datetime
import hashlib
import os
import zoneinfo

import harness
from harness import main, query, seeded
from sortdb_case import point_at, write_generation, SortdbTest
from test_api import Source, hour_text

HOUR, DAY = 3600, 86400
START = int(datetime.datetime(2012, 1, 1, tzinfo=datetime.timezone.utc).timestamp())
HOURS = 366 * 24
COUNTRIES = ["AU", "BR", "DE", "FR", "GB", "IN", "JP", "US"]


def component(text):
    return base64.b64encode(hashlib.md5(text).digest()[:8])


def line(key, period, counts):
    return ("c.u|%s.%s" % (key, period)).encode(), " ".join("%s:%d" % c for c in sorted(counts.items())).encode()


def records_of(key, hours, dropped=0):
    """Records of one key: `hours` is {time: Counter}; hours before `dropped` are left out, but every day stays."""
    days, months = collections.defaultdict(list), collections.defaultdict(set)
    for t in hours:
        days[hour_text(t)[:3]].append(t)
        months[hour_text(t)[:2]].add(hour_text(t)[:3])
    for t, counts in hours.items():
        if t >= dropped:
            yield line(key, hour_text(t), counts)
    for day, times in days.items():
        if len(times) > 1 or times[0] < dropped:
            yield line(key, day, sum((hours[t] for t in times), collections.Counter()))
    for month, days_ in months.items():
        if len(days_) > 1:
            yield line(key, month, sum((hours[t] for d in days_ for t in days[d]), collections.Counter()))


class RollupsCase(SortdbTest):
    def begin(self, records):
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, list(records), 2)
        point_at(self.path("archive"), 1)
        self.sortdb = self.start("sortdb", "--archive", self.path("archive"))
        self.live = Source(self)
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--sortdb-url", self.sortdb.url, "--aggregator-url", self.live.url)

    def make(self, rng, density):
        return {START + h * HOUR: collections.Counter({c: rng.randrange(1, 9) for c in rng.sample(COUNTRIES, rng.randrange(1, 5))})
                for h in range(HOURS) if rng.random() < density}

    def ask(self, path, status=200, **params):
        r = self.api.get("/v1/%s?%s" % (path, query(by="country", **params)))
        self.assertEqual(r.status, status, (params, r))
        return r.json()


class ApiRollups(RollupsCase):
    def check_breakdown(self, key, hours, start, end):
        expected = sum((n for t, n in hours.items() if start - HOUR < t < end), collections.Counter())
        got = self.ask("breakdown", user=key, from_=start, to=end, bounds="outward")
        rows = sorted(expected.items(), key=lambda r: (-r[1], r[0]))
        self.assertEqual([(r["key"], r["n"]) for r in got["rows"]], rows, (key, start, end))

    def check_series(self, key, hours, start, end, unit, zone):
        expected = collections.Counter()
        for t, n in hours.items():
            local = datetime.datetime.fromtimestamp(t, zoneinfo.ZoneInfo(zone))
            if start <= t < end:
                expected[local.strftime({"hour": "%Y-%m-%dT%H:00:00", "day": "%Y-%m-%d", "month": "%Y-%m-01"}[unit])] += n["US"]
        got = self.ask("series", user=key, sub="US", from_=start, to=end, unit=unit, timezone=zone)
        rows = collections.Counter()
        for r in got["rows"]:
            rows[r["date"][:19]] += r["n"]
        self.assertEqual(+rows, +expected, (key, start, end, unit, zone))

    def test_any_span_and_zone(self):
        rng = seeded()
        keys = {"full": self.make(rng, 1), "some": self.make(rng, 0.1), "few": self.make(rng, 0.002)}
        self.begin(r for key, hours in keys.items() for r in records_of(key, hours))
        for key, hours in keys.items():
            self.check_breakdown(key, hours, START, START + HOURS * HOUR)
            for _ in range(12):
                start = START + rng.randrange(HOURS) * HOUR
                end = min(START + HOURS * HOUR, start + rng.choice([1, 30, 24 * 40, HOURS]) * HOUR)
                self.check_breakdown(key, hours, start, end)
                self.check_breakdown(key, hours, start + 1 - rng.randrange(3), end + rng.randrange(3))
                self.check_series(key, hours, start, end, rng.choice(["hour", "day", "month"]),
                                  rng.choice(["UTC", "Europe/Berlin", "America/New_York"]))

    def test_a_year_is_read_from_about_a_hundred_records(self):
        hours = self.make(seeded(), 1)
        self.begin(records_of("k", hours))
        start = START + 9 * DAY + 5 * HOUR
        r = self.sortdb.get("/range?" + query(start="c.u|k." + hour_text(start), end="c.u|k." + hour_text(start + 350 * DAY), rollups="month"))
        self.assertLess(r.body.count(b"\n"), 110)
        self.check_breakdown("k", hours, start, start + 350 * DAY)

    def test_what_is_live_is_added(self):
        hours = self.make(seeded(), 0.5)
        self.begin(records_of("k", hours))
        last = START + (HOURS - 1) * HOUR
        self.live.records["c.u|k." + hour_text(last)] = "US:7 ZZ:1"
        hours[last] = hours.get(last, collections.Counter()) + collections.Counter({"US": 7, "ZZ": 1})
        self.check_breakdown("k", hours, START, START + HOURS * HOUR)
        self.check_series("k", hours, START, START + HOURS * HOUR, "month", "UTC")

    def test_hashed_ties(self):
        """Of equal counts the lowest texts are shown, and each text is asked for about once."""
        texts = {component(t): t for t in (b"http://example.com/%06d" % (i * 7919 % 1000000) for i in range(40000))}
        stored = sorted(texts)
        records = [(b"lookup|" + s, t) for s, t in texts.items()]
        records.append((b"c.u|k." + hour_text(START).encode(), b" ".join(s + b":3" for s in stored)))
        self.begin(records)
        for limit in (50, 10000):
            del self.live.asked[:]
            got = self.ask("breakdown", user="k", from_=START, to=START + HOUR, limit=limit)
            self.assertEqual([r["key"].encode() for r in got["rows"]], sorted(texts.values())[:limit])
            self.assertEqual((got["distinct"], got["total"], got["other"]), (40000, 120000, 3 * (40000 - limit)))
            self.assertIn(len(self.live.asked) - 2, range(40, 53))  # a thousand texts in each, or the rest of a round

    def test_dropped_hours(self):
        hours = self.make(seeded(), 0.05)
        dropped = START + 100 * DAY
        self.begin(records_of("k", hours, dropped))
        end = START + HOURS * HOUR
        self.check_breakdown("k", hours, START + 3 * DAY, end)
        self.check_series("k", hours, START + 3 * DAY, end, "day", "UTC")
        self.check_series("k", hours, START + 31 * DAY, end, "month", "UTC")
        self.check_series("k", hours, dropped, end, "hour", "Europe/Berlin")
        day = next(t for t in sorted(hours) if t > START + 9 * DAY and hours[t]["US"]) // DAY * DAY
        for path, params in (("breakdown", {"from_": day + HOUR, "to": end}), ("breakdown", {"from_": START, "to": day + DAY - HOUR}),
                             ("series", {"from_": day, "to": day + DAY, "sub": "US", "unit": "hour"}),
                             ("series", {"from_": day, "to": day + DAY, "sub": ["US", "AU"], "unit": "hour"}),
                             ("series", {"from_": day, "to": day + DAY, "top": 2, "unit": "hour"}),
                             ("series", {"from_": START, "to": end, "sub": "US", "timezone": "Asia/Tokyo"})):
            self.assertEqual(self.ask(path, 422, user="k", **params)["code"], "hours-dropped")

    def test_parameters(self):
        self.begin(records_of("k", self.make(seeded(), 0.05)))
        span = query(start="c.u|k.c1", end="c.u|k.c5un")
        for more in ("&rollups=year", "&sub=US", "&rollups=day" + "&sub=US" * 102):
            self.assertEqual(self.sortdb.get("/range?" + span + more).json()["code"], "bad-parameter", more)
        for start, end in (("c.u|k.c1", "c.u|l.c110"), ("u|k", "u|k"), ("c.u|k.c1", "c.u|k.c1ww"), ("c.u|k.c1", "c.u|k.c2")):
            r = self.sortdb.get("/range?rollups=month&" + query(start=start, end=end))
            self.assertEqual(r.json()["code"], "bad-parameter", (start, end))
        whole = self.sortdb.get("/range?rollups=month&sub=US&sub=JP&" + query(start="c.u|k.c1", end="c.u|k.ccvn"))
        self.assertEqual(whole.body.count(b"\n"), 12)
        self.check_pages(self.sortdb, "/range?" + query(start="c.u|k.c1", end="c.u|k.ccvn") + "&rollups=month&sub=US&sub=JP", whole.body, 5)
        self.assertEqual(self.sortdb.get("/range?rollups=month&sub=XX&" + query(start="c.u|k.c1", end="c.u|k.ccvn")).status, 404)


if __name__ == "__main__":
    main()
