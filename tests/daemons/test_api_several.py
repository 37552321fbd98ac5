"""Several series in one answer: of keys, of sub keys, and of the largest sub keys with all others. Each equals the series that is asked
for alone, over an archive with days and months and an aggregator that this test plays; the sources are asked once."""
import collections
import csv
import hashlib
import io

import harness
from harness import query, seeded
from record_text import stored
from test_api import Source, hour_text
from test_api_rollups import component, records_of, RollupsCase, DAY, HOUR, START

SPAN = {"from_": START + 40 * DAY, "to": START + 71 * DAY}
UNITS = (("hour", "Europe/Berlin"), ("day", "UTC"), ("day", "America/New_York"), ("mweek", "Asia/Tokyo"), ("month", "UTC"))


class SeveralOfSubtotals(RollupsCase):
    """Of the subtotals of one key."""

    def setUp(self):
        super().setUp()
        rng = seeded()
        self.hours = self.make(rng, 0.3)
        self.begin(records_of("k", self.hours))
        last = START + 70 * DAY
        self.live.records["c.u|k." + hour_text(last)] = "US:7 ZZ:1"
        self.hours[last] = self.hours.get(last, collections.Counter()) + collections.Counter({"US": 7, "ZZ": 1})

    def several(self, status=200, **params):
        r = self.api.get("/v1/series?%s" % query(**params))
        self.assertEqual(r.status, status, (params, r))
        return r

    def alone(self, sub, **params):
        return self.several(user="k", by="country", sub=sub, **params).json()

    def sum_rows(self, series):
        return [sum(column) for column in zip(*([r["n"] for r in s["rows"]] for s in series))]

    def test_sub_keys(self):
        for unit, zone in UNITS:
            del self.live.asked[:]
            got = self.several(user="k", by="country", sub=["US", "none", "AU"], unit=unit, timezone=zone, **SPAN).json()
            self.assertEqual(len(self.live.asked), 2)
            self.assertEqual((got["key"], [s["sub"] for s in got["series"]]), ("k", ["US", "none", "AU"]))
            for s in got["series"]:
                one = self.alone(s["sub"], unit=unit, timezone=zone, **SPAN)
                self.assertEqual((s["total"], s["rows"]), (one["total"], one["rows"]), (s["sub"], unit))
            self.assertEqual(got["total"], sum(s["total"] for s in got["series"]))

    def test_the_largest_and_all_others(self):
        expected = sum((n for t, n in self.hours.items() if SPAN["from_"] <= t < SPAN["to"]), collections.Counter())
        largest = [k for k, _ in sorted(expected.items(), key=lambda r: (-r[1], r[0]))]
        for unit, zone in UNITS:
            del self.live.asked[:]
            got = self.several(user="k", by="country", top=3, unit=unit, timezone=zone, **SPAN).json()
            self.assertEqual(len(self.live.asked), 3)
            self.assertEqual([s["sub"] for s in got["series"]], largest[:3] + [None])
            self.assertEqual([s.get("other", False) for s in got["series"]], [False] * 3 + [True])
            for s in got["series"][:3]:
                one = self.alone(s["sub"], unit=unit, timezone=zone, **SPAN)
                self.assertEqual((s["total"], s["rows"]), (one["total"], one["rows"]), (s["sub"], unit))
            everything = self.several(user="k", by="country", sub=list(expected), unit=unit, timezone=zone, **SPAN).json()
            self.assertEqual((self.sum_rows(got["series"]), got["total"]), (self.sum_rows(everything["series"]), sum(expected.values())))
        whole = self.several(user="k", by="country", top=100, unit="month", period="all").json()
        self.assertEqual((whole["series"][-1]["total"], whole["total"]), (0, sum(sum(n.values()) for n in self.hours.values())))

    def test_csv(self):
        text = self.several(user="k", by="country", top=1, unit="day", format="csv", **SPAN).text
        rows = list(csv.reader(io.StringIO(text)))
        got = self.several(user="k", by="country", top=1, unit="day", **SPAN).json()
        self.assertEqual(rows[0], ["sub", "t", "date", "n", "complete"])
        self.assertEqual([[r[0] or None, int(r[1]), r[2], int(r[3])] for r in rows[1:]],
                         [[s["sub"], r["t"], r["date"], r["n"]] for s in got["series"] for r in s["rows"]])

    def test_an_empty_key(self):
        got = self.several(user="never", by="country", top=5, units=2).json()
        self.assertEqual([(s["sub"], [r["n"] for r in s["rows"]]) for s in got["series"]], [(None, [0, 0])])


class SeveralKeys(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = Source(self)
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--aggregator-url", self.source.url, "--queue-url", self.source.url)

    def ask(self, status=200, path="series", **params):
        r = self.api.get("/v1/%s?%s" % (path, query(**params)))
        self.assertEqual(r.status, status, (params, r))
        return r

    def test_a_hundred_keys_in_one_request(self):
        rng = seeded()
        keys = ["key %d" % i for i in range(60)] + ["k%d" % i for i in range(39)] + ["http://www.facebook.com/"]
        names = dict(zip(keys, ["u|" + k for k in keys]))
        for k in keys:
            stored = k if len(k) < 12 and not set(k) & set(" :,.|") else component(k.encode()).decode()
            names[k] = "u|" + stored
            hours = sorted(rng.sample(range(100), 5))
            self.source.records[names[k]] = " ".join("%s:%d" % (hour_text(START + h * HOUR), rng.randrange(1, 9)) for h in hours)
        for name in ("user", "key"):
            del self.source.asked[:]
            params = {"ns": "u", "key": keys} if name == "key" else {"user": keys}
            got = self.ask(from_=START, to=START + 5 * DAY, **params).json()
            self.assertEqual(len(self.source.asked), 1)
            self.assertEqual([s["key"] for s in got["series"]], keys)
            self.assertNotIn("key", got)
            for s in rng.sample(got["series"], 10):
                one = self.ask(from_=START, to=START + 5 * DAY, user=s["key"]).json()
                self.assertEqual((s["total"], s["rows"]), (one["total"], one["rows"]), s["key"])
        long = self.ask(from_=START, to=START + 20 * DAY, unit="hour", user=keys)  # sent in pieces
        self.assertEqual([(s["key"], s["total"], len(s["rows"])) for s in long.json()["series"]],
                         [(s["key"], s["total"], 480) for s in got["series"]])
        rows = list(csv.reader(io.StringIO(self.ask(from_=START, to=START + 20 * DAY, unit="hour", user=keys, format="csv").text)))
        self.assertEqual([(r[0], int(r[1]), int(r[3])) for r in rows[1:]],
                         [(s["key"], r["t"], r["n"]) for s in long.json()["series"] for r in s["rows"]])
        got = self.ask(user=["k1", "nobody"], period="all", unit="month").json()
        self.assertEqual([len(s["rows"]) for s in got["series"]], [len(got["series"][0]["rows"])] * 2)
        self.assertEqual([s["rows"][0]["date"] for s in got["series"]], ["2012-01-01"] * 2)
        self.ask(400, user=keys + ["one more"])

    def test_limited_counters(self):
        text = harness.sample_counters().replace("[total u]\n", "[total u]\nmax_keys = 5\n")
        config = self.write("limited.conf", text.replace("[subtotal c.u]\n", "[subtotal c.u]\nmax_keys = 2\n"))
        self.api = self.start("api", "--config", config, "--aggregator-url", self.source.url, "--queue-url", self.source.url)
        hour, span = hour_text(START), {"from_": START, "to": START + HOUR}
        self.source.records = {"u|a": hour + ":3", "u|(other)": hour + ":4", "c.u|a." + hour: "(other):2 US:1 JP:5"}
        for keys, totals in ((["a", "b"], [3, 0]), (["b", "(other)"], [0, 4]), (["(other)", "a"], [4, 3])):
            got = self.ask(user=keys, **span).json()
            self.assertEqual(([s["total"] for s in got["series"]], got["over_max_keys"]), (totals, 4))
        got = self.ask(user="a", by="country", sub=["US", "JP"], **span).json()
        self.assertEqual(([s["total"] for s in got["series"]], got["over_max_keys"]), ([1, 5], 2))
        got = self.ask(user="a", by="country", top=1, **span).json()
        self.assertEqual(([s["total"] for s in got["series"]], got["over_max_keys"]), ([5, 3], 2))

    def test_a_key_and_its_cut_text(self):
        """They are one key (docs/formats/records.md), whose counts must not be added up twice."""
        text = "http://example.com/" + 600 * "x"
        cut = text[:479] + "~" + hashlib.md5(text.encode()).hexdigest()[:16]
        cut += hashlib.md5(cut.encode()).hexdigest()[:16]
        name, hour, span = stored(text.encode()).decode(), hour_text(START), {"from_": START, "to": START + HOUR}
        self.source.records = {"u|" + name: hour + ":3", "u|k": hour + ":4", "r.u|k." + hour: name + ":4"}
        for one in (text, cut):
            self.assertEqual(self.ask(user=one, **span).json()["total"], 3)
        for params in ({"user": [text, "k", cut]}, {"user": "k", "by": "referrer", "sub": [text, cut]}):
            self.assertIn("given twice", self.ask(400, **params, **span).json()["detail"])

    def test_sums_that_are_too_large(self):
        hour, span = hour_text(START), {"from_": START, "to": START + HOUR}
        self.source.records = {"u|a": "%s:%d" % (hour, 2 ** 63 - 1), "u|b": hour + ":1"}
        self.assertEqual(self.ask(422, user=["a", "b"], **span).json()["code"], "sum-too-large")

    def test_what_is_refused(self):
        for params in ({"user": ["a", "a"]}, {"user": ["a", ""]}, {"user": ["a", "b"], "by": "country", "sub": "US"},
                       {"user": ["a", "b"], "by": "country", "sub": ["US", "JP"]}, {"user": "a", "top": 5},
                       {"user": "a", "by": "country", "top": 0}, {"user": "a", "by": "country", "top": 101},
                       {"user": "a", "by": "country", "top": 5, "sub": "US"}, {"user": "a", "unit": ["day", "hour"]},
                       {"user": ["a", "b"], "unit": "hour", "units": 60000}, {"user": ["a", "b"], "domain": "c"},
                       {"path": "compare", "user": ["a", "b"]}, {"path": "breakdown", "user": ["a", "b"], "by": "country"},
                       {"path": "breakdown", "user": "a", "by": "country", "top": 5}, {"path": "top", "counter": "user", "top": 5}):
            self.assertEqual(self.ask(400, **params).json()["code"], "bad-parameter", params)
        self.assertEqual(self.source.asked, [])


if __name__ == "__main__":
    harness.main()
