"""Counts by minute from the aggregator's ring: late events, kill -9 and refill, a compaction, little memory, and refused requests. The
expected counts come from the published events."""
import collections
import csv
import io
import json
import time
import unittest

import harness
from harness import query, seeded, wait_until

MINUTE = 60
COUNTERS = """
[input]
time = t
skip_if = _heartbeat_
[total all]
key = "all"
label = feed
[total u]
key = l
label = user
[subtotal c.u]
key = c
label = country
[subtotal u.all]
key = l
label = user
[total p]
key = m
label = page
[total revenue]
key = l
value = price
scale = 2
[subtotal c.revenue]
key = c
[total buys]
key = l
having = price
"""
USERS = ["a", "b,c", "a user with a long name", "http://example.org/", "é", "z"]


class MinutesTest(harness.MillraceTest):
    def begin(self, pubsub=None, **settings):
        self.rng = seeded()
        self.events = []
        data = self.path("data")
        self.config = self.write("pipeline.conf", harness.pipeline_config(data, COUNTERS, aggregator=settings, pubsub=pubsub or {}))
        self.pipeline = harness.Pipeline(self, self.config, data).wait_ready()

    def publish(self, n, ages=(0, 0, 0, 1, 2, 5, 20, 40, 118, 125, 300, -3)):
        lines = []
        for _ in range(n):
            e = {"t": int(time.time()) - self.rng.choice(ages) * MINUTE, "l": self.rng.choice(USERS), "c": self.rng.choice(["JP", "US", "Côte d'Ivoire"]),
                 "m": "p%d" % self.rng.randrange(50)}
            if self.rng.random() < 0.5:
                e["price"] = self.rng.choice([None, "12.5", -3, 0, "0.01"])
            if self.rng.random() < 0.1:
                lines.append(json.dumps({"_heartbeat_": 1}))
            self.events.append(e)
            lines.append(json.dumps(e, ensure_ascii=False))
        reply = self.pipeline.ask("pubsub", "POST", "/pub?stream=clicks", "\n".join(lines).encode())
        self.assertEqual(reply.status, 200, reply)
        self.end = int(reply.json()["end"])

    def wait_counted(self):
        stats = lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        wait_until(lambda: int(stats()["streams"]["clicks"]["offset"]) == self.end, "all to be counted", timeout=harness.LONG)

    def ask(self, what, status=200, **params):
        reply = self.pipeline.ask("api", "GET", "/v1/%s?%s" % (what, query(**params)))
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def wait_held(self, **params):
        def held():
            reply = self.pipeline.ask("api", "GET", "/v1/series?" + query(feed="", **params))
            self.assertIn(reply.status, (200, 422, 503), reply)
            return reply.status == 200
        wait_until(held, "the minutes to be held", timeout=harness.LONG)

    def expected(self, from_, to, **wanted):
        return [e for e in self.events if from_ <= e["t"] // MINUTE * MINUTE < to and all(e[k] == v for k, v in wanted.items())]

    def check_series(self, params, wanted, **span):
        got = self.ask("series", unit="minute", **params, **span)
        n = collections.Counter(e["t"] // MINUTE * MINUTE for e in self.expected(got["from"], got["to"], **wanted))
        self.assertEqual([(row["t"], row["n"]) for row in got["rows"]], [(t, n[t]) for t in range(got["from"], got["to"], MINUTE)], got)
        self.assertEqual(got["total"], sum(n.values()))
        self.assertEqual(got["unit"], "minute")
        until = got["complete_until"] or 0
        self.assertEqual([row["complete"] for row in got["rows"]], [t + MINUTE <= until for t in range(got["from"], got["to"], MINUTE)])
        return got

    def check_rows(self, got, field, **wanted):
        n = collections.Counter(e[field] for e in self.expected(got["from"], got["to"], **wanted))
        rows = sorted(n.items(), key=lambda item: (-item[1], item[0].encode()))[:10]
        self.assertEqual([(row["key"], row["n"]) for row in got["rows"]], rows, got)
        self.assertEqual(got["total"], sum(n.values()))
        self.assertEqual(got["distinct"], len(n))
        self.assertEqual(got["other"], got["total"] - sum(row[1] for row in rows))

    def check(self, **span):
        user = self.rng.choice(USERS)
        self.check_series({"feed": ""}, {}, **span)
        self.check_series({"user": user}, {"l": user}, **span)
        self.check_series({"user": user, "by": "country", "sub": "Côte d'Ivoire"}, {"l": user, "c": "Côte d'Ivoire"}, **span)
        self.check_rows(self.ask("breakdown", user=user, by="country", **span), "c", l=user)
        self.check_rows(self.ask("top", counter="user", **span), "l")
        self.check_rows(self.ask("top", counter="page", **span), "m")  # no subtotal has all pages

    def check_values(self):
        """The rows of a value counter are sums of the value, and those of its events count only events with the field."""
        for user in USERS:
            got = self.ask("series", revenue=user, period="30m")
            sold = [e for e in self.expected(got["from"], got["to"], l=user) if e.get("price") is not None]
            cents, countries, n = collections.Counter(), collections.Counter(), collections.Counter()
            for e in sold:
                cents[e["t"] // MINUTE * MINUTE] += round(float(e["price"]) * 100)
                countries[e["c"]] += round(float(e["price"]) * 100)
                n[e["t"] // MINUTE * MINUTE] += 1
            self.assertEqual([row["n"] for row in got["rows"]], [cents[t] / 100 for t in range(got["from"], got["to"], MINUTE)], got)
            self.assertEqual(got["total"], sum(cents.values()) / 100)
            buys = self.ask("series", buys=user, period="30m")
            self.assertEqual([row["n"] for row in buys["rows"]], [n[t] for t in range(buys["from"], buys["to"], MINUTE)], buys)
            got = self.ask("breakdown", revenue=user, by="c", period="30m")
            rows = sorted(countries.items(), key=lambda item: (-item[1], item[0].encode()))
            self.assertEqual([(row["key"], row["n"]) for row in got["rows"]], [(c, m / 100) for c, m in rows], got)
            positive = all(m >= 0 for m in countries.values())
            self.assertEqual([row["share"] is not None for row in got["rows"]], [positive] * len(rows), got)
        reply = self.pipeline.ask("api", "GET", "/v1/series?revenue=z&period=3m&format=csv")
        self.assertRegex(reply.text.splitlines()[-1], r"^\d+,[^,]*,-?\d+\.\d\d,(true|false)$")
        self.ask("series", revenue="z", period="3m", mean=1, status=400)

    def test_counts(self):
        self.begin()
        self.publish(2000)
        self.wait_counted()
        for period in ("1m", "5m", "30m", "120m"):
            self.check(period=period)
        self.check_values()
        self.assertEqual(len(self.ask("series", feed="", unit="minute")["rows"]), 30)
        now = int(time.time()) // MINUTE * MINUTE
        self.check_series({"user": "z"}, {"l": "z"}, from_=now - 50 * MINUTE, to=now - 10 * MINUTE)
        got = self.ask("series", feed="", period="10m", timezone="Asia/Kathmandu")
        self.assertTrue(got["rows"][0]["date"].endswith(":00+05:45"), got)
        reply = self.pipeline.ask("api", "GET", "/v1/series?feed=&period=3m&format=csv")
        rows = list(csv.reader(io.StringIO(reply.text)))
        self.assertEqual(rows[0], ["t", "date", "n", "complete"])
        self.assertEqual(len(rows), 4)
        said = self.run_program("millrace", "query", "series", "--config", self.config, "--feed", "", "--unit", "minute", "--period", "30m")
        self.assertEqual(said.returncode, 0, said)
        said = self.run_program("millrace", "top", "--config", self.config, "--counter", "user", "--period", "30m", "--once")
        self.assertEqual(said.returncode, 0, said)
        self.assertIn(b"a user with a long name", said.stdout)
        self.assertNotIn(b" lines in ", said.stdout)

    def test_killed_and_refilled(self):
        self.begin()
        self.publish(1000)
        self.wait_counted()
        for i in range(3):
            if i == 1:
                done = self.run_program("millrace", "compact", "--config", self.config)
                self.assertEqual(done.returncode, 0, done)
            self.pipeline.kill9_daemon("aggregator")
            self.publish(300)
            self.wait_held(period="120m")
            self.publish(300)
            self.wait_counted()
            self.check(period="120m")
            self.check(period="5m")
            self.check_values()

    def test_replaced_texts(self):
        """New texts of 15 MB replace the interner, so the texts of earlier rows come from their lookups."""
        self.begin(max_memory="32M")
        self.publish(500)
        self.wait_counted()
        for i in range(20):
            events = [{"t": int(time.time()), "l": "z", "c": "JP", "m": "page %d %s" % (i * 4000 + k, "x" * 80)} for k in range(4000)]
            reply = self.pipeline.ask("pubsub", "POST", "/pub?stream=clicks", "\n".join(map(json.dumps, events)).encode())
            self.assertEqual(reply.status, 200, reply)
            self.end = int(reply.json()["end"])
            self.events += events
        self.wait_counted()
        for _ in range(3):
            self.check(period="120m")

    def test_expired_lines(self):
        """Without all lines of the time, the minutes are refused: never fewer counts."""
        self.begin(pubsub={"retain_bytes": "512K", "segment_bytes": "64K"})
        stream = lambda: self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"][0]
        self.publish(500)
        filler = json.dumps({"_heartbeat_": "x" * 100000}).encode()
        def expired():
            reply = self.pipeline.ask("pubsub", "POST", "/pub?stream=clicks", filler)
            self.assertEqual(reply.status, 200, reply)
            self.end = int(reply.json()["end"])
            return int(stream()["earliest"]) > 0
        wait_until(expired, "retention", timeout=harness.LONG)
        self.wait_counted()
        self.check(period="120m")
        self.pipeline.kill9_daemon("aggregator")
        wait_until(lambda: "minutes refilled" in self.pipeline.log, "the refill", timeout=harness.LONG)
        self.assertEqual(self.ask("series", status=422, feed="", period="120m")["code"], "minutes-not-held")

    def test_little_memory(self):
        self.begin(minutes_memory="64K")
        self.publish(8000, ages=[0, 1, 2, 3, 4, 5, 6, 7, 8, 30, 100])
        self.wait_counted()
        refused = self.ask("series", status=422, feed="", period="120m")
        self.assertEqual(refused["code"], "minutes-not-held")
        self.assertIn("in memory", refused["detail"])
        now = int(time.time()) // MINUTE * MINUTE
        self.assertEqual(refused["from"] % MINUTE, 0)
        self.assertLess(refused["from"], now + 11 * MINUTE)
        if refused["from"] <= now:
            self.check_series({"feed": ""}, {}, from_=refused["from"], to=now + MINUTE)

    def test_refused(self):
        self.begin(minutes_memory=0)
        self.assertEqual(self.ask("series", status=422, feed="", period="5m")["code"], "minutes-off")
        for what, params in (("series", {"period": "0m"}), ("series", {"period": "121m"}), ("series", {"period": "5m", "unit": "day"}),
                             ("series", {"unit": "minute", "period": "7d"}), ("series", {"unit": "minute", "units": 3}),
                             ("series", {"unit": "minute", "from": 30, "to": 120}), ("series", {"unit": "minute", "from": 0, "to": 7260}),
                             ("series", {"unit": "minute", "to": 120}), ("compare", {"period": "5m"})):
            self.assertEqual(self.ask(what, status=400, feed="", **params)["code"], "bad-parameter", params)
        for question in ("top?counter=user", "breakdown?user=a&by=country"):
            refused = self.pipeline.ask("api", "GET", "/v1/%s&period=5m&against=before" % question)
            self.assertEqual((refused.status, refused.json()["detail"]), (400, "there are no comparisons by minute"))
            self.assertEqual(self.pipeline.ask("api", "GET", "/v1/%s&period=5m&after=3-5553" % question).status, 400)
        refused = self.pipeline.ask("api", "GET", "/v1/breakdown?feed=&by=country&where=user:a&period=5m")
        self.assertEqual((refused.status, refused.json()["detail"]), (400, "there are no conditions by minute"))
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/series?user=a&user=z&period=5m").status, 400)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/series?ns=gone&key=a&period=5m").status, 404)


if __name__ == "__main__":
    harness.main()
