"""The api's answers about sets equal sets that Python makes of the same events: in memory, in slices and in archives of one and
three shards, while they are compacted, whatever is killed."""
# seconds: 20
import bisect
import collections
import csv
import datetime
import io
import json
import os
import threading
import unittest
import urllib.parse
import zoneinfo

import harness
import test_aggregator

COUNTERS = """
[input]
time = t
max_ahead = 0

[total all]
key = "all"
label = feed
[total u]
key = l
label = user
[total p]
key = p
label = page
max_keys = 500
[subtotal c.u]
key = c
[unique v.u]
member = v
label = visitor
[unique h.u]
member = v
by = hour
label = hourly
[unique v.p]
member = v
label = visitor
[unique v.all]
member = v
label = visitor
[unique a.all]
member = agent
label = agent
"""
DAY, HOUR = 86400, 3600
START = 1772323200  # 2026-03-01, a Sunday; New York changes its clocks on 8 March
SPAN = 45 * DAY
USERS = ["bitly", "nasa", "a user, longer than 12 bytes", "a.b"]
PAGES = ["/", "/pricing?a=1;period=7d", "2026-03@x:y", "/sign up"]
UTC = datetime.timezone.utc


def zone_of(name):
    return UTC if name == "UTC" else zoneinfo.ZoneInfo(name)


def unit_start(t, unit, tz):
    """The start of the unit as a local date, or the hour."""
    d = datetime.datetime.fromtimestamp(t - t % HOUR, tz)
    if unit == "hour":
        return t - t % HOUR
    if unit == "week":
        d -= datetime.timedelta(days=d.isoweekday() % 7)
    elif unit == "mweek":
        d -= datetime.timedelta(days=d.isoweekday() - 1)
    elif unit == "month":
        d = d.replace(day=1)
    return int(datetime.datetime(d.year, d.month, d.day, tzinfo=tz).timestamp())


def next_unit(t, unit, tz):
    if unit == "hour":
        return t + HOUR
    d = datetime.datetime.fromtimestamp(t, tz).replace(tzinfo=None)
    if unit == "month":
        d = (d.replace(day=1) + datetime.timedelta(days=32)).replace(day=1)
    else:
        d += datetime.timedelta(days=1 if unit == "day" else 7)
    return int(d.replace(tzinfo=tz).timestamp())


def units_of(from_, to, unit, tz, before=0):
    first = unit_start(from_, unit, tz)
    for _ in range(before):
        first = unit_start(first - 1, unit, tz)
    out = [first]
    while next_unit(out[-1], unit, tz) < to:
        out.append(next_unit(out[-1], unit, tz))
    return [(t, next_unit(t, unit, tz)) for t in out]


def member(v):
    if v in (None, ""):
        return None
    return str(v)


class Model:
    def __init__(self):
        self.events = []

    def add(self, e):
        if member(e.get("v")) is not None:
            bisect.insort(self.events, (e["t"], e["l"], e["p"], member(e["v"])))

    def members(self, from_, to, **keys):
        users, pages = keys.get("user"), keys.get("page")
        first, last = bisect.bisect_left(self.events, (from_,)), bisect.bisect_left(self.events, (to,))
        return {v for _, l, p, v in self.events[first:last] if (users is None or l in users) and (pages is None or p in pages)}


def random_event(rng):
    t = START + rng.randrange(SPAN)
    kind = rng.random()
    v = rng.randrange(3000) if kind < 0.4 else str(rng.choice([1 << 31, (1 << 32) - 1, 1 << 32]) - rng.randrange(300)) if kind < 0.6 else \
        "visitor-%d" % rng.randrange(4000) if kind < 0.95 else rng.choice([None, "", "007", "None"])
    page = rng.choices(range(4), [8, 2, 1, 1])[0]
    return {"t": t, "l": rng.choices(USERS, [8, 4, 1, 1])[0], "p": PAGES[page], "c": "US", "v": v, "agent": "a%d" % rng.randrange(20)}


class UniquesCase(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.rng, self.model = harness.seeded(), Model()
        self.pubsub = test_aggregator.Pubsub(self)
        self.config = self.write("counters.conf", COUNTERS)
        self.archive, self.port, self.apis = self.path("archive"), self.keep_port(), []
        self.url = "http://127.0.0.1:%s" % self.port

    def launch(self):
        self.aggregator = self.start("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--pubsub-url",
                                     self.pubsub.url, "--flush-interval=50ms", "--archive", self.archive, "--port", self.port, port=False)

    def start_apis(self, shards):
        done = self.run_program("compactor", "--archive=" + self.archive, "--init", "--shards=%d" % shards)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.sortdb = self.start("sortdb", "--archive=" + self.archive)
        common = ["--config", self.config, "--aggregator-url", self.url]
        self.apis = [self.start("api", *common, "--archive", self.archive), self.start("api", *common, "--sortdb-url", self.sortdb.url)]
        harness.wait_until(lambda: "reading the archive" in self.apis[0].log, lambda: self.apis[0].log)

    def publish(self, events):
        for e in events:
            self.model.add(e)
        self.pubsub.publish([json.dumps(e).encode() for e in events])

    def wait_counted(self):
        harness.wait_until(lambda: int(self.aggregator.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data),
                           "all to be counted", timeout=harness.LONG)

    def compact(self, *more):
        """Returns once sortdb and the api that maps the archive serve the new generation."""
        done = self.run_program("compactor", "--archive=" + self.archive, "--slices=" + self.path("data", "slices"),
                                "--aggregator-url=" + self.url, "--sortdb-url=%s,%s" % (self.sortdb.url, self.apis[0].url), *more)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def ask(self, api, path, params):
        r = api.get("/v1/%s?%s" % (path, urllib.parse.urlencode(params)))
        self.assertEqual(r.status, 200, (path, params, r, r.body))
        return r.json()

    def uniques(self, api, users, unit="day", from_=START, to=START + SPAN, zone="UTC", window=1, count="visitor"):
        tz = zone_of(zone)
        params = [("user", u) for u in users] + [("unit", unit), ("from", from_), ("to", to), ("timezone", zone), ("count", count)]
        params += [("window", window)] if window > 1 else []
        got = self.ask(api, "uniques", params)
        rows = []
        for start, end in units_of(from_, to, unit, tz):
            first = units_of(start, start + 1, unit, tz, window - 1)[0][0] if window > 1 else max(start, from_)
            rows.append((start, len(self.model.members(first, min(end, to), user=users))))
        self.assertEqual([(r["t"], r["n"]) for r in got["rows"]], rows, params)
        self.assertEqual((got["total"], got["additive"]), (len(self.model.members(from_, to, user=users)), False), params)
        return got

    def retention(self, api, users, unit, from_, to, lookback):
        got = self.ask(api, "retention", [("user", u) for u in users] + [("unit", unit), ("from", from_), ("to", to),
                                                                          ("lookback", lookback), ("count", "visitor")])
        seen, units = [], units_of(from_, to, unit, UTC, lookback)
        for start, end in units:
            seen.append(self.model.members(start, end, user=users))
        self.assertEqual((got["from"], got["to"]), (units[lookback][0], units[-1][1]))
        expected = []
        for i in range(lookback, len(units)):
            first = seen[i].difference(*seen[:i])
            expected.append((units[i][0], len(first), [len(first & later) for later in seen[i + 1:]]))
        self.assertEqual([(r["t"], r["n"], [c["n"] for c in r["retained"]]) for r in got["rows"]], expected)

    def cohort(self, api, sets):
        """`sets`: (role, label, key, from, to) with from None for the query's period."""
        params, groups = [("from", START), ("to", START + SPAN)], collections.defaultdict(list)
        for role, label, key, from_, to in sets:
            period = "%d..%d@" % (from_, to) if from_ else ""
            params.append((role, "%s%s:%s" % (period, label, key)))
            keys = {} if label == "feed" else {label: [key]}
            groups[role].append(self.model.members(from_ or START, to or START + SPAN, **keys))
        got = self.ask(api, "cohort", params + [("count", "visitor")])
        out = set.intersection(*groups["all"]) if groups["all"] else set.union(*groups["any"])
        out = out & set.union(*groups["any"]) if groups["any"] else out
        out = out.difference(*groups["not"])
        self.assertEqual(got["n"], len(out), params)
        self.assertEqual([s["n"] for s in got["sets"]],
                         [len(m) for m in [self.model.members(f or START, t or START + SPAN, **({} if l == "feed" else {l: [k]}))
                                           for _, l, k, f, t in sets]])

    def random_cohort(self, api):
        sets = []
        for role in self.rng.choices(["all", "any", "not"], [3, 2, 2], k=self.rng.randrange(1, 6)):
            label = self.rng.choice(["user", "page", "feed"])
            key = "" if label == "feed" else self.rng.choice(USERS if label == "user" else PAGES)
            from_ = self.rng.choice([None, START + self.rng.randrange(30) * DAY])
            sets.append((role, label, key, from_, from_ and from_ + self.rng.randrange(1, 20) * DAY))
        if not any(s[0] in ("all", "any") for s in sets):
            sets.append(("any", "feed", "", None, None))
        # The answer has the sets in the order of the request.
        self.cohort(api, sets)

    def questions(self, api, n=4):
        rng = self.rng
        self.uniques(api, USERS[:1])
        self.uniques(api, USERS, "month")
        self.uniques(api, USERS[:2], "month", START + 20 * DAY, START + 40 * DAY, window=2)
        for _ in range(n):
            users = rng.sample(USERS, rng.randrange(1, 4))
            from_ = START + rng.randrange(40) * DAY
            to = from_ + rng.randrange(1, 30) * DAY
            self.uniques(api, users, rng.choice(["day", "week", "mweek", "month"]), from_, to, window=rng.choice([1, 1, 3, 30]))
            zone = rng.choice(["UTC", "America/New_York", "Pacific/Auckland"])
            hours = from_ + rng.randrange(24) * HOUR
            self.uniques(api, users, rng.choice(["hour", "day", "week", "month"]), hours, hours + rng.randrange(1, 400) * HOUR, zone,
                         rng.choice([1, 1, 4]), "hourly")
            self.random_cohort(api)
        self.retention(api, USERS[:rng.randrange(1, 3)], rng.choice(["week", "mweek", "day"]), START + rng.randrange(14, 20) * DAY,
                       START + rng.randrange(34, 40) * DAY, rng.randrange(3))


class Uniques(UniquesCase):
    def check(self, n=3):
        self.wait_counted()
        for api in self.apis:
            self.questions(api, n)

    def run_pipeline(self, shards):
        self.launch()
        self.start_apis(shards)
        self.publish([random_event(self.rng) for _ in range(3000)])
        self.check()
        self.compact()
        self.check()
        self.publish([random_event(self.rng) for _ in range(1500)])  # most are late for an archived day
        self.check()
        self.aggregator.kill9()
        self.launch()
        self.check(1)
        self.compact("--shards=%d" % (4 - shards))
        self.check()
        self.publish([random_event(self.rng) for _ in range(500)])
        self.check(1)
        self.compact()
        self.check(1)

    def test_one_shard(self):
        self.run_pipeline(1)

    def test_three_shards(self):
        self.run_pipeline(3)

    def test_dropped_hours(self):
        """Whole days stay exact, also with late events; a part of a day is refused, not guessed."""
        self.launch()
        self.start_apis(3)
        def check():
            self.wait_counted()
            for api in self.apis:
                for unit, window in (("day", 1), ("week", 1), ("month", 1), ("day", 5), ("month", 2)):
                    self.uniques(api, USERS[:2], unit, START, START + SPAN, window=window, count="hourly")
                    self.uniques(api, USERS[:2], unit, START + 3 * DAY, START + 33 * DAY, window=window, count="hourly")
                self.uniques(api, USERS, "hour", START + 10 * DAY, START + 12 * DAY, count="hourly")
                self.uniques(api, USERS, "day", START + 12 * DAY + HOUR, START + 22 * DAY + HOUR, "America/New_York", count="hourly")
                for from_, to in ((3 * DAY + HOUR, 4 * DAY), (3 * DAY, 3 * DAY + HOUR), (2 * DAY, 3 * DAY + HOUR)):
                    r = api.get("/v1/uniques?" + urllib.parse.urlencode([("user", USERS[0]), ("unit", "hour"), ("from", START + from_),
                                                                         ("to", START + to), ("count", "hourly")]))
                    self.assertEqual(r.status, 422, r.body)
        self.publish([random_event(self.rng) for _ in range(3000)])
        self.wait_counted()
        self.compact()
        self.compact("--drop-hours-before=2026-03-11")
        check()
        self.publish([random_event(self.rng) for _ in range(1500)])
        check()
        self.compact()
        check()
        done = self.run_program("compactor", "--archive=" + self.archive, "--verify")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_during_compactions(self):
        self.launch()
        self.start_apis(3)
        for _ in range(harness.rounds(3)):
            self.publish([random_event(self.rng) for _ in range(1500)])
            self.wait_counted()
            failures, asked = [], 0
            compacting = threading.Thread(target=lambda: failures.append(self.run_compactor()))
            compacting.start()
            while compacting.is_alive() or asked == 0:
                asked += 1
                for api in self.apis:
                    self.questions(api, 0)
            compacting.join()
            self.assertEqual(failures, [0])

    def run_compactor(self):
        """Only sortdb is told of the new generation: the other api finds it when a question needs a cleared slice."""
        done = self.run_program("compactor", "--archive=" + self.archive, "--slices=" + self.path("data", "slices"),
                                "--aggregator-url=" + self.url, "--sortdb-url=" + self.sortdb.url)
        return done.returncode or 0

    def test_large_sets(self):
        """Sets whose texts have many pages, bitmaps and lists."""
        self.launch()
        self.start_apis(1)
        many = [{"t": START + DAY * (i % 2), "l": "bitly", "p": "/", "v": i // 2 if i % 3 else "v%d" % i} for i in range(150000)]
        self.publish(many)
        self.check(0)
        self.compact()
        self.check(0)
        self.publish(many[::7] + [{"t": START, "l": "bitly", "p": "/", "v": "new%d" % i} for i in range(30000)])
        self.check(0)
        self.cohort(self.apis[0], [("all", "user", "bitly", START, START + DAY), ("not", "user", "bitly", START + DAY, START + 2 * DAY)])


        self.leave(self.apis[0])

    def leave(self, api):
        """Clients that leave at any stage of an answer, and an api that stops meanwhile."""
        target = "/v1/uniques?user=bitly&count=visitor&window=30&unit=day&from=%d&to=%d" % (START - 200 * DAY, START + 3 * DAY)
        connections = []
        for i in range(24):
            connections.append(harness.connect(api.url))
            connections[-1].request("GET", target)
            if i % 3 == 2:
                self.uniques(api, ["nasa"])
                connections.pop(self.rng.randrange(len(connections))).close()
        api.stop()
        for connection in connections:
            connection.close()

    def test_many_small_sets(self):
        """Their texts are many pieces of the archive's file, which cut lines anywhere."""
        self.launch()
        self.start_apis(1)
        hours = 9000
        self.publish([{"t": START + h * HOUR, "l": "bitly", "p": "/", "v": "%d-%d" % (h % 7, i)} for h in range(hours) for i in range(1 + h % 3)])
        self.check(0)
        self.compact()
        self.wait_counted()
        for api in self.apis:
            self.uniques(api, USERS[:1], "hour", START, START + hours * HOUR, count="hourly")
            self.uniques(api, USERS[:1], "week", START, START + hours * HOUR, "America/New_York", count="hourly")


class Answers(UniquesCase):
    def setUp(self):
        super().setUp()
        self.launch()
        self.start_apis(1)
        self.api = self.apis[0]

    def refused(self, path, query, status, *texts):
        r = self.api.get("/v1/%s?%s" % (path, query))
        self.assertEqual(r.status, status, (query, r.body))
        for text in texts:
            self.assertIn(text, r.text)

    def test_refusals(self):
        for query, status, *texts in (
                ("user=bitly", 400, "visitor", "hourly", "count="), ("user=bitly&count=x", 404, "visitor"),
                ("user=bitly&count=visitor&timezone=Europe/Berlin", 422, "day-sets", "by = hour"),
                ("user=bitly&count=visitor&timezone=Asia/Kolkata", 422, "day-sets"),
                ("user=bitly&count=hourly&timezone=Asia/Kolkata", 422, "part-hour-zone", "round=hour"),
                ("user=bitly&count=visitor&unit=hour", 422, "unit=day"), ("user=bitly&count=visitor&from=%d&to=%d" % (START + HOUR, START + DAY), 422, "midnight"),
                ("user=bitly&count=visitor&window=0", 400, "window"), ("user=bitly&count=visitor&by=c", 400, "by is a parameter of", "count"), ("ns=c.u&key=k", 400, "count=LABEL"),
                ("user=bitly&count=visitor&top=3", 400), ("user=bitly&count=visitor&stickiness=2", 400),
                ("user=bitly&count=visitor&windw=3", 400, "did you mean window"), ("user=&count=visitor", 400, "no key"),
                ("ns=v.u&key=k&count=hourly", 400, "v.u counts the members"), ("ns=v.u&key=k&count=x", 404, "visitor"), ("ns=x.u&key=k", 404), ("user=bitly&count=hourly&unit=hour&units=200000", 400, "units"),
                ("user=bitly&user=bitly&count=visitor", 400, "twice"), ("user=bitly&count=visitor&period=all&unit=hour", 422)):
            self.refused("uniques", query, status, *texts)
        self.refused("series", "ns=v.u&key=k", 400, "/v1/uniques")
        for query, status, *texts in (
                ("", 400, "all= or any="), ("not=page:x", 400, "all= or any="), ("all=page", 400, "LABEL:KEY"), ("all=x:y", 404, "counters (ns, label): all feed, u user"),
                ("all=usr:y", 404, "did you mean user?"), ("all=v.x:y", 404, "did you mean v."), ("all=c.u:y", 404, "no counter"),
                ("all=v.u:k&count=hourly", 400, "no set uses"), ("all=page:x&user=k", 400, "all=user:KEY"), ("all=page:x&usr=k", 400, "parameters: units unit_ref"),
                ("all=page:x&by2=k", 400, '"by2\\""'),
                ("all=page:", 400, "no key"), ("all=2026-13@page:x", 400), ("all=never@page:x", 400, "FROM..TO"),
                ("all=user:k", 400, "count="), ("all=page:x&user=k", 400), ("all=page:x&unit=day", 400), ("any=1h@page:x", 422, "midnight"),
                ("all=feed:&count=agent&any=user:k", 404), ("all=2026-03-02..2026-03-02@page:x", 400),
                ("&".join("any=page:%d" % i for i in range(65)), 400, "64")):
            self.refused("cohort", query, status, *texts)
        self.refused("retention", "page=k&units=60", 400, "64")
        self.refused("retention", "page=k&period=all", 400, "limited")

    def test_forms(self):
        self.publish([{"t": START + DAY * d, "l": "bitly", "p": "/", "v": v} for d in range(3) for v in range(d, d + 4)])
        self.wait_counted()
        span = "&from=%d&to=%d" % (START, START + 3 * DAY)
        by_ns = self.ask(self.api, "uniques", [("ns", "v.u"), ("key", "bitly"), ("from", START), ("to", START + 3 * DAY)])
        self.assertEqual((by_ns["ns"], by_ns["count"], by_ns["total"], [r["n"] for r in by_ns["rows"]]), ("v.u", "visitor", 6, [4, 4, 4]))
        self.assertIn("64-bit hash", by_ns["hash"])
        table = self.api.get("/v1/uniques?page=/&window=2&format=csv" + span)
        self.assertEqual(table.header("Content-Type"), "text/csv; charset=utf-8")
        self.assertEqual([line.split(",")[2] for line in table.text.splitlines()], ["n", "4", "5", "5"])
        sticky = self.api.get("/v1/uniques?page=/&stickiness=1&unit=month" + span).json()
        self.assertEqual((sticky["rows"][0]["n"], sticky["rows"][0]["daily"]), (6, 4.0))
        self.assertAlmostEqual(sticky["stickiness"], 4 / 6, places=5)
        all_time = self.api.get("/v1/uniques?page=/&period=all&unit=month").json()
        self.assertEqual((all_time["from"], all_time["total"], all_time["rows"][0]["n"]), (START, 6, 6))
        retained = self.api.get("/v1/retention?page=/&unit=day&lookback=0&format=csv" + span).text.splitlines()
        self.assertEqual([",".join(line.split(",")[2:4]) for line in retained], ["after,n", "0,4", "1,3", "2,2", "0,1", "1,1", "0,1"])
        cohort = self.api.get("/v1/cohort?all=2026-03-01@page:/&not=2026-03-02@feed:&count=visitor&format=csv").text.splitlines()
        self.assertEqual([line.split(",")[6] for line in cohort], ["n", "4", "4", "1"])
        cohort = self.api.get("/v1/cohort?all=2026-03-01@v.p:/&not=2026-03-02@h.u:bitly").json()
        self.assertEqual((cohort["n"], [s["ns"] for s in cohort["sets"]]), (1, ["v.p", "h.u"]))
        self.check_approximate(span)
        counters = self.api.get("/v1/counters").json()["totals"]
        self.assertEqual([u["label"] for u in counters[1]["uniques"]], ["visitor", "hourly"])
        self.assertEqual(counters[1]["uniques"][1], {"ns": "h.u", "label": "hourly", "member": "v", "by": "hour"})
        self.assertEqual(self.api.get("/v1/uniques?page=absent" + span).json()["total"], 0)

    def check_approximate(self, span):
        """Sets of UTC hours, asked for by a zone of half hours: no row is complete."""
        zone = "&timezone=Asia/Kolkata&round=hour"
        for target in ("uniques?user=bitly&count=hourly&stickiness=1" + span, "uniques?user=bitly&count=hourly&unit=hour&window=2" + span,
                       "retention?user=bitly&count=hourly&unit=day&lookback=1" + span,
                       "cohort?all=2026-03-01@h.u:bitly&not=2026-03-02@h.u:bitly"):
            exact, reply = self.api.get("/v1/" + target).json(), self.api.get("/v1/" + target + zone)
            got = reply.json()
            for answer, marks in (exact, (True, None, None)), (got, (False, True, "hour")):
                rows = answer.get("rows") or answer["sets"] + [answer]
                rows += [cell for row in rows for cell in row.get("retained", [])]
                self.assertEqual({(r["complete"], r.get("approximate")) for r in rows}, {marks[:2]}, answer)
                self.assertEqual((answer.get("approximate"), answer.get("round")), marks[1:])
            self.assertNotIn("max-age", reply.header("Cache-Control"))
            lines = csv.DictReader(io.StringIO(self.api.get("/v1/" + target + zone + "&format=csv").text))
            self.assertEqual({(r["complete"], r["approximate"]) for r in lines}, {("false", "true")})
        # Only the set is in a time of half hours: clocks of Lord Howe Island are 10.5 hours ahead in winter, 11 in summer.
        winter = "cohort?all=2025-07@h.u:bitly&period=2026-01&timezone=Australia/Lord_Howe"
        self.assertEqual(self.api.get("/v1/" + winter).json()["code"], "part-hour-zone")
        self.assertEqual(self.api.get("/v1/" + winter + "&round=hour").json()["approximate"], True)

    def query(self, *words):
        done = self.run_program("millrace", "query", *words, "--api-url", self.api.url, env={**os.environ, "LC_ALL": "C"})
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode()

    def test_the_command(self):
        self.publish([{"t": START + DAY * d, "l": "bitly", "p": "/", "v": v} for d in range(3) for v in range(d, d + 4)])
        self.wait_counted()
        span = "--from", str(START), "--to", str(START + 3 * DAY)
        out = self.query("uniques", "--user", "bitly", "--count", "visitor", "--stickiness", "1", *span)
        self.assertRegex(out, r"(?s)2026-03-01 +4 .*\ntotal +6\n.*rows do not add up.*\na day has 4\.00 members on average, 66\.67 %")
        out = self.query("retention", "--page", "/", "--unit", "day", "--lookback", "0", *span)
        self.assertRegex(out, r"first seen +members +1 +2 *\n2026-03-01 +4 +75\.0. +50\.0. *\n2026-03-02 +1 +100\.0. *\n2026-03-03 +1\n")
        out = self.query("cohort", "--all", "2026-03-01@page:/", "--not", "2026-03-02@feed:", "--count", "visitor")
        self.assertRegex(out, r" 4 +all +2026-03-01 to 2026-03-01 +page .*/.*\n +4 +not .*\n +1 +cohort\n")
        self.assertIn("user (u) by c; counts each visitor, hourly\n", self.query("counters"))

    def test_a_counter_that_was_added_later(self):
        self.aggregator.stop()
        with open(self.config, "a") as f:
            f.write("[unique w.p]\nmember = v\nlabel = added\n")
        self.publish([{"t": START, "l": "bitly", "p": "/", "v": 1}])
        self.launch()
        self.wait_counted()
        self.api = self.start("api", "--config", self.config, "--aggregator-url", self.url)
        before = "--from", str(START), "--to", str(START + DAY), "--count", "added"
        self.assertRegex(self.query("uniques", "--page", "/", *before), r"2026-03-01 +- .*\ntotal +-\n(?s:.*)counted since ")
        self.assertRegex(self.query("retention", "--page", "/", "--unit", "day", "--lookback", "0", "--from", str(START), "--to",
                                    str(START + 2 * DAY), "--count", "added"), r"2026-03-01 +- +- *\n2026-03-02 +-\n(?s:.*)counted since ")
        self.assertRegex(self.query("cohort", "--all", "page:/", *before), r" - +all .*\n +- +cohort\ncounted since ")

    def test_a_token_sees_its_keys_only(self):
        os.chmod(self.write("tokens", "shop read SS keys=u|bitly,all|all\n"), 0o600)
        api = self.start("api", "--config", self.config, "--aggregator-url", self.url, "--tokens-file", self.path("tokens"))
        for target, status in (("uniques?user=bitly", 200), ("uniques?user=nasa", 403), ("uniques?user=bitly&user=nasa", 403),
                               ("retention?user=bitly", 200), ("retention?user=nasa", 403), ("cohort?all=user:bitly&not=feed:", 200),
                               ("cohort?all=user:bitly&not=user:nasa", 403), ("cohort?all=page:/", 403)):
            r = api.get("/v1/%s&count=visitor" % target, headers={"Authorization": "Bearer SS"})
            self.assertEqual(r.status, status, (target, r.body))

    def test_dropped_hours(self):
        """Whole days are still answered; parts of them are refused."""
        self.publish([random_event(self.rng) for _ in range(3000)])
        self.wait_counted()
        self.compact()
        self.compact("--drop-hours-before=2026-03-20")
        for self.api in self.apis:
            self.uniques(self.api, USERS[:1], "day", START, START + 40 * DAY, count="hourly")
            self.uniques(self.api, USERS[:1], "hour", START + 25 * DAY, START + 27 * DAY, count="hourly")
            for query in ("unit=hour&from=%d" % (START + DAY), "unit=week&from=%d" % (START + DAY + HOUR),
                          "timezone=America/New_York&from=%d" % (START + DAY)):
                self.refused("uniques", "user=bitly&count=hourly&%s&to=%d" % (query, START + 9 * DAY), 422, "hours-dropped")

    def test_a_missing_source(self):
        self.publish([random_event(self.rng) for _ in range(400)])
        self.wait_counted()
        self.compact()
        expected = self.uniques(self.api, USERS[:1])
        self.aggregator.kill9()
        params = [("user", "bitly"), ("count", "visitor"), ("from", START), ("to", START + SPAN)]
        r = self.api.get("/v1/uniques?" + urllib.parse.urlencode(params))
        self.assertEqual((r.status, r.json()["missing"][0]["source"]), (503, "aggregator"))
        partial = self.ask(self.api, "uniques", params + [("partial", "allow")])
        self.assertEqual((partial["partial"], partial["total"]), (True, expected["total"]))

    def test_opened_sets_count_towards_max_buffered(self):
        """Sets with numbers in all containers, of which each needs 2.6 MB once it is opened."""
        words = " ".join("%06xAQA" % i for i in range(1 << 16))
        with open(self.path("sets"), "w") as f:
            for day in range(1, 15):
                f.write("v.u|bitly.q3%s,@%s\n" % ("0123456789abcdef"[day], words))
        self.compact("--import", self.path("sets"))
        target = "/v1/uniques?user=bitly&count=visitor&unit=week&from=%d&to=%d"
        small = self.start("api", "--config", self.config, "--aggregator-url", self.url, "--archive", self.archive, "--max-buffered=64M")
        harness.wait_until(lambda: "reading the archive" in small.log, lambda: small.log)
        for _ in range(3):
            r = small.get(target % (START, START + 13 * DAY))
            self.assertEqual((r.status, r.json()["code"]), (413, "answer-too-large"), r.body)
            self.assertIn("shorter time", r.json()["hint"])
            r = small.get(target % (START, START + 8 * DAY))
            self.assertEqual((r.status, r.json()["total"]), (200, 1 << 16), r.body)
        self.assertEqual(self.apis[0].post("/reload").status, 200)
        self.assertEqual(self.apis[0].get(target % (START, START + 13 * DAY)).json()["total"], 1 << 16)

    def test_damaged_sets_are_named(self):
        self.publish([random_event(self.rng) for _ in range(3000)])
        self.wait_counted()
        self.compact()
        current = os.path.join(self.archive, os.readlink(os.path.join(self.archive, "current")))
        sets = os.path.join(current, "shard-0-of-1.sets")
        self.api.stop()
        data = harness.read_file(sets)
        at = data.index(b"v.u|bitly.q3\0") + 64
        with open(sets, "r+b") as f:
            f.seek(at)
            f.write(bytes([data[at] ^ 1]))
        self.api = self.start("api", "--config", self.config, "--aggregator-url", self.url, "--archive", self.archive)
        harness.wait_until(lambda: "reading the archive" in self.api.log, lambda: self.api.log)
        for _ in range(3):
            r = self.api.get("/v1/uniques?user=bitly&count=visitor&unit=month&from=%d&to=%d" % (START, START + 62 * DAY))
            self.assertEqual(r.status, 503, r.body)
            self.assertRegex(r.json()["detail"], r"shard-0-of-1.sets: damaged: .*v.u\|bitly.q3")
            self.assertEqual(self.api.get("/v1/series?user=bitly&from=%d&to=%d" % (START, START + DAY)).status, 200)
            self.uniques(self.api, ["nasa"])


if __name__ == "__main__":
    unittest.main()
