"""Answers of counters with a value, over a pipeline half of whose events are archived: series, breakdowns, top and comparisons equal a
model with Python's decimal to the digit, as JSON and CSV; means, shares and changes; quantiles of a histogram of buckets."""
import collections
import csv
import datetime
import decimal
import io
import json
import re
import shlex

import harness
from harness import seeded, wait_until

Decimal = decimal.Decimal
HOUR, DAY = 3600, 86400
START = 1333238400  # 1 April 2012
DAYS = 5
COUNTERS = """
[input]
time = t
max_ahead = 0

[total feed]
key = "all"
[subtotal product.feed]
key = product
[total product]
key = product
[subtotal ms.product]
key = bucket(ms)
[subtotal few.product]
key = bucket(ms)
max_keys = 3
[subtotal ms.revenue]
key = bucket(ms)
[total revenue]
key = product
value = price
scale = 2
unit = "€"
[subtotal c.revenue]
key = country
label = country
[total paid]
key = product
having = price
[subtotal c.paid]
key = country
label = country
[total all_revenue]
key = "all"
value = price
scale = 2
[subtotal product.all_revenue]
key = product
[total all_paid]
key = "all"
having = price
[subtotal p.all_paid]
key = product
[subtotal few.revenue]
key = country
max_keys = 1
[total weight]
key = product
value = kg
scale = 9
[subtotal c.weight]
key = country
"""
PRODUCTS = ["hat", "socks", "a product with a long name"]
COUNTRIES = ["JP", "US", "a country with a long name"]


def bucket(text):
    """The name of the bucket of a decimal."""
    number = Decimal(text)
    if number == 0:
        return "0"
    sign, digits, _ = number.as_tuple()
    exponent = number.adjusted()
    start = Decimal((sign, (digits + (0,))[:2], exponent - 1)).normalize()
    if -6 <= exponent <= 9:
        return "{:f}".format(start)
    text = "{:e}".format(start.scaleb(-exponent)).split("e")[0]
    return "%se%d" % (text.rstrip("0").rstrip(".") if "." in text else text, exponent)


class ApiValues(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = seeded()
        data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(data, COUNTERS, aggregator={"flush_interval": "500ms"}))
        self.pipeline = harness.Pipeline(self, config, data).wait_ready()
        self.events = [self.event() for _ in range(1200)]
        self.put(self.events[:600])
        self.compact()
        self.put(self.events[600:])

    def compact(self):
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)

    def event(self):
        rng = self.random
        e = {"t": START + rng.randrange(DAYS * DAY), "product": rng.choice(PRODUCTS), "country": rng.choice(COUNTRIES)}
        if rng.random() < 0.7:
            e["price"] = str(Decimal(rng.randrange(-2000, 100000)) / 100)
        elif rng.random() < 0.3:
            e["price"] = None
        if rng.random() < 0.5:
            e["kg"] = "0.%09d" % rng.randrange(10**9)
        if rng.random() < 0.8:
            e["ms"] = self.duration()
        return e

    def duration(self):
        rng = self.random
        return rng.choice([rng.randrange(5000), "%.3f" % rng.expovariate(0.01), round(rng.expovariate(0.01), 3), 0, str(-rng.randrange(100))])

    def put(self, events):
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", "\n".join(map(json.dumps, events)).encode()).status, 200)

        def counted():
            depth = self.pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            streams = self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"]
            here = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
            return depth == 0 and all(here[s["name"]]["offset"] == s["end"] for s in streams)
        wait_until(counted, "everything to be counted", timeout=harness.LONG)

    def ask(self, what, status=200, **params):
        params.setdefault("from_", START)
        params.setdefault("to", START + DAYS * DAY)
        r = self.pipeline.ask("api", "GET", "/v1/%s?%s" % (what, harness.query(**params)))
        self.assertEqual(r.status, status, (what, params, r.body))
        if params.get("format") == "csv":
            return list(csv.reader(io.StringIO(r.text)))
        return json.loads(r.body, parse_float=Decimal)

    def amounts(self, field, **match):
        return [Decimal(e[field]) for e in self.events
                if e.get(field) is not None and START <= e["t"] < START + DAYS * DAY and all(e[k] == v for k, v in match.items())]

    def digits(self, n, scale):
        """The number has exactly `scale` digits after the point."""
        self.assertEqual(-Decimal(n).as_tuple().exponent, scale, n)

    def mean(self, amounts, scale):
        if not amounts:
            return None
        return (sum(amounts) / len(amounts)).quantize(Decimal(10) ** -(scale + 2), rounding=decimal.ROUND_HALF_EVEN)

    def by_day(self, field, product):
        days = [[] for _ in range(DAYS)]
        for e in self.events:
            if e["product"] == product and e.get(field) is not None:
                days[(e["t"] - START) // DAY].append(Decimal(e[field]))
        return days

    def test_series(self):
        for field, label, scale in (("price", "revenue", 2), ("kg", "weight", 9)):
            for product in PRODUCTS:
                days = self.by_day(field, product)
                got = self.ask("series", **{label: product})
                self.assertEqual([r["n"] for r in got["rows"]], [sum(d) for d in days])
                self.assertEqual((got["total"], got["scale"]), (sum(map(sum, days)), scale))
                for n in [got["total"]] + [r["n"] for r in got["rows"]]:
                    self.digits(n, scale)
        self.assertEqual((got.get("value_unit"), self.ask("series", revenue="hat")["value_unit"]), (None, "€"))
        sub = self.ask("series", revenue="hat", by="country", sub=COUNTRIES[2])
        self.assertEqual(sub["total"], sum(self.amounts("price", product="hat", country=COUNTRIES[2])))
        several = self.ask("series", revenue=PRODUCTS)
        self.assertEqual([s["total"] for s in several["series"]], [sum(self.amounts("price", product=p)) for p in PRODUCTS])
        self.digits(several["total"], 2)
        rows = self.ask("series", revenue="hat", format="csv")
        self.assertEqual([r[2] for r in rows[1:]], [str(sum(d)) for d in self.by_day("price", "hat")])
        count = self.ask("series", product="hat")
        self.assertNotIn("scale", count)
        self.assertIs(type(count["total"]), int)

    def test_means_of_series(self):
        for _ in range(2):  # the second answer may come from the cache of series
            got = self.ask("series", revenue="hat", mean=1)
            days = self.by_day("price", "hat")
            self.assertEqual([(r["n"], r["events"], r["mean"]) for r in got["rows"]],
                             [(sum(d), len(d), self.mean(d, 2)) for d in days])
            self.assertEqual((got["events"], got["mean"]), (sum(map(len, days)), self.mean(sum(days, []), 2)))
            self.assertNotIn("mean", self.ask("series", revenue="hat")["rows"][0])
        rows = self.ask("series", revenue="hat", mean=1, format="csv")
        self.assertEqual(rows[0], ["t", "date", "n", "events", "mean", "complete"])
        self.assertEqual([r[3:5] for r in rows[1:]], [[str(len(d)), str(self.mean(d, 2))] for d in days])
        empty = self.ask("series", revenue="none", mean=1)
        self.assertEqual([(r["n"], r["events"], r["mean"]) for r in empty["rows"]], [(0, 0, None)] * DAYS)
        whole = self.ask("series", revenue="hat", mean=1, from_=None, to=None, period="all", unit="month")
        self.assertEqual((whole["events"], whole["mean"]), (got["events"], got["mean"]))
        sub = self.ask("series", revenue="hat", by="country", sub="JP", mean=1)
        amounts = self.amounts("price", product="hat", country="JP")
        self.assertEqual((sub["events"], sub["mean"]), (len(amounts), self.mean(amounts, 2)))

    def test_lookup_lists_a_sum_of_zero(self):
        """Of a refund in the aggregator, of one whose purchase is archived, and in the archive. Without a value there is nothing to list."""
        sale = lambda key, price: {"t": START, "product": "zero " + key, "country": "JP", "price": price}
        paid = [("zero here", "paid", 2), ("zero here", "revenue", Decimal("0.00")), ("zero later", "paid", 2), ("zero later", "revenue", Decimal("0.00"))]

        def check():
            rows = [r for label in ("paid", "revenue") for r in self.ask("lookup", from_=None, to=None, prefix="zero", counter=label)["rows"]]
            self.assertEqual(sorted((r["key"], r["ns"], r["n"]) for r in rows), paid)
            self.assertEqual(self.ask("lookup", from_=None, to=None, prefix="zero", counter="revenue", format="csv")[1][3], "0.00")
        self.put([sale("later", "5"), sale("none", None)])
        self.compact()
        self.put([sale("later", "-5.00"), sale("here", "0.25"), sale("here", "-0.25")])
        check()
        self.compact()
        check()

    def test_breakdown_and_top(self):
        for what, name, field in (("breakdown", {"revenue": "hat", "by": "country"}, "country"), ("top", {"counter": "revenue"}, "product")):
            match = {"product": "hat"} if what == "breakdown" else {}
            texts = COUNTRIES if field == "country" else PRODUCTS
            amounts = {t: self.amounts("price", **{**match, field: t}) for t in texts}
            order = sorted(texts, key=lambda t: (-sum(amounts[t]), t))
            total = sum(map(sum, amounts.values()))
            for limit in (1, 3):
                got = self.ask(what, mean=1, limit=limit, **name)
                self.assertEqual([(r["key"], r["n"], r["events"], r["mean"]) for r in got["rows"]],
                                 [(t, sum(amounts[t]), len(amounts[t]), self.mean(amounts[t], 2)) for t in order[:limit]])
                self.assertEqual((got["total"], got["other"], got["scale"]), (total, total - sum(sum(amounts[t]) for t in order[:limit]), 2))
                self.assertEqual((got["events"], got["value_unit"]), (sum(map(len, amounts.values())), "€"))
                for r in got["rows"]:
                    self.assertAlmostEqual(float(r["share"]), float(sum(amounts[r["key"]]) / total), 5)
            self.against_an_earlier_time(what, name, field, match)
        self.assertEqual([r["n"] for r in self.ask("top", counter="product")["rows"]],
                         sorted((sum(e["product"] == p for e in self.events) for p in PRODUCTS), reverse=True))
        weights = self.ask("breakdown", weight="hat", by="c", format="csv")
        self.assertEqual({r[0]: r[1] for r in weights[1:]}, {c: str(sum(self.amounts("kg", product="hat", country=c))) for c in COUNTRIES})

    def against_an_earlier_time(self, what, name, field, match):
        """Rows of the last three days, with means, beside the sums of the two days before."""
        at = START + 2 * DAY
        sums = collections.defaultdict(lambda: [Decimal("0.00"), Decimal("0.00")])
        for e in self.events:
            if e.get("price") is not None and START <= e["t"] < START + DAYS * DAY and all(e[k] == v for k, v in match.items()):
                sums[e[field]][e["t"] < at] += Decimal(e["price"])

        def change(n, before):
            return round(float(100 * (n - before) / before), 2) if before > 0 else None

        params = {"from_": at, "against": "%d..%d" % (START, at), "mean": 1, **name}
        got = self.ask(what, **params)
        self.assertGreater(len(got["rows"]), 1)
        for r in got["rows"]:
            self.assertEqual([r["n"], r["before"]], sums[r["key"]])
            self.digits(r["before"], 2)
            self.assertAlmostEqual(r["change"] and float(r["change"]), change(*sums[r["key"]]), 1)
        total = [sum(s[i] for s in sums.values()) for i in (0, 1)]
        self.assertEqual([got["total"], got["before"]["total"]], total)
        self.digits(got["before"]["total"], 2)
        rows = self.ask(what, format="csv", **params)
        self.assertEqual(rows[0], ["key", "n", "share", "events", "mean", "complete", "before", "change"])
        self.assertEqual([(r[0], r[1], r[3], r[6]) for r in rows[1:]], [(r["key"], str(r["n"]), str(r["events"]), str(r["before"])) for r in got["rows"]])

    def test_shares_and_changes_of_negative_sums(self):
        far = START + 100 * DAY
        self.put([{"t": far, "product": "hat", "country": "JP", "price": -5}, {"t": far, "product": "hat", "country": "US", "price": 7.5},
                  {"t": far + DAY, "product": "hat", "country": "DE", "price": "1"}])
        span = {"from_": far, "to": far + DAY}
        for limit in (10, 1):  # a negative row; a negative rest
            got = self.ask("breakdown", revenue="hat", by="country", limit=limit, **span)
            self.assertEqual([(r["key"], r["n"], r["share"]) for r in got["rows"]],
                             [("US", Decimal("7.50"), None), ("JP", Decimal("-5.00"), None)][:limit])
        self.assertEqual((got["other"], got["total"]), (Decimal("-5.00"), Decimal("2.50")))
        rows = self.ask("breakdown", revenue="hat", by="country", format="csv", **span)
        self.assertEqual([r[:3] for r in rows], [["key", "n", "share"], ["US", "7.50", ""], ["JP", "-5.00", ""]])
        def change(country):
            return self.ask("compare", revenue="hat", by="country", sub=country, from_=far, to=far + DAY,
                            against="%d..%d" % (far + DAY, far + 2 * DAY))
        self.assertEqual((change("US")["change"], change("US")["before"]["total"]), (None, Decimal("0.00")))
        back = self.ask("compare", revenue="hat", by="country", sub="JP", from_=far + DAY, to=far + 2 * DAY)
        self.assertEqual((back["total"], back["before"]["total"], back["change"]), (Decimal("0.00"), Decimal("-5.00"), None))
        up = self.ask("compare", revenue="hat", from_=far + DAY, to=far + 2 * DAY)
        self.assertEqual((up["total"], up["rows"][0]["before"]["n"], up["change"]), (Decimal("1.00"), Decimal("2.50"), Decimal("-60.00")))

    def test_pages_of_positive_and_negative_sums(self):
        far = START + 100 * DAY
        prices = {"US": "7.50", "DE": "1.00", COUNTRIES[2]: "0.00", "AA": "-5.00", "another long name of a country": "-5.00", "yet another name of a country": "-5.00"}
        self.put([{"t": far, "product": "hat", "country": country, "price": price} for country, price in prices.items()])
        expected = [(country, Decimal(price)) for country, price in prices.items()]
        for limit in (1, 2, 4):
            rows, more = [], {}
            while len(rows) < 10:
                got = self.ask("breakdown", revenue="hat", by="country", limit=limit, mean=1, from_=far, to=far + DAY, **more)
                rows += [(r["key"], r["n"]) for r in got["rows"]]
                self.assertEqual([r["mean"] for r in got["rows"]], [r["n"] for r in got["rows"]])
                self.assertEqual(got["other"], sum(n for _, n in expected[len(rows):]))
                self.digits(got["other"], 2)
                self.assertEqual(got["total"], Decimal("-6.50"))
                if "next" not in got:
                    break
                more = {"after": got["next"]}
            self.assertEqual(rows, expected)

    def test_conditions_of_a_value(self):
        """Sums of the counter, or the two ways to get them: a counter of events has no sums."""
        whole = self.ask("breakdown", revenue="hat", by="country")
        self.assertEqual(self.ask("breakdown", ns="all_revenue", by="country", where="revenue:hat")["rows"], whole["rows"])
        for ns, adding, add in (("all_revenue", "value = price\nscale = 2\n", sum), ("all_paid", "having = price\n", len)):
            hint = self.ask("breakdown", 422, ns=ns, by="product", where="country:JP")["hint"]
            sections = hint[hint.index("["):hint.index("or count the lines")]
            self.assertIn("\nkey = country\n%s[subtotal product." % adding, sections)
            with open(self.pipeline.config_path) as f:
                more = self.write("more.conf", f.read() + "\n" + sections)
            self.assertEqual(self.run_program("aggregator", "--check-config", "--config", more).returncode, 0)
            command = shlex.split(hint[hint.index("millrace sql"):])
            rows = self.run_program(*command, "--format=json", "--config", self.pipeline.config_path)
            self.assertEqual({r["key"]: r["n"] for r in json.loads(rows.stdout, parse_float=Decimal)},
                             {p: add(self.amounts("price", product=p, country="JP")) for p in PRODUCTS}, command)
        self.assertEqual(self.ask("breakdown", 422, feed="", by="country", where="product:hat")["code"], "not-counted")

    def test_sums_over_max_keys(self):
        got = self.ask("breakdown", revenue="hat", by="few")
        self.assertEqual(sum(r["n"] for r in got["rows"]), got["total"])
        self.digits(got["over_max_keys"], 2)
        self.assertIn({"(other)": got["over_max_keys"]}, [{r["key"]: r["n"]} for r in got["rows"]])
        lines = self.query("breakdown", "--revenue", "hat", "--by", "few")
        self.assertIn("over max_keys: %s € of events counted as (other)" % got["over_max_keys"], lines)

    def test_a_unit_in_progress(self):
        """The hour in progress may end between the requests."""
        now = int(datetime.datetime.now().timestamp())
        self.put([{"t": t, "product": "new", "price": "2.50"} for t in (now - 2 * DAY, now - DAY, now)])
        got = self.ask("compare", revenue="new", units=3, from_=None, to=None)
        parts = [got["so_far"], *(r["so_far"] for r in got["rows"] if "so_far" in r)]
        self.assertEqual(len(parts), 2)
        for n in (got["total"], *(part[k] for part in parts for k in part if k in ("n", "total", "before"))):
            self.digits(n, 2)
        lines = self.run_program("millrace", "query", "compare", "--revenue", "new", "--units", "3", "--api-url", self.pipeline.daemon_url("api"))
        self.assertRegex(lines.stdout.decode(), r"(?m)^total +[0-9]\.[05]0 € +[0-9]\.[05]0 €.*  so far$")

    def test_a_mean_that_no_counter_divides(self):
        got = self.ask("series", 422, weight="hat", mean=1)
        self.assertEqual((got["code"], got["hint"]), ("no-events-counter", "add to the configuration:\n[total weight_n]\nkey = product\nhaving = kg\n"))
        got = self.ask("breakdown", 422, weight="hat", by="c", mean=1)
        self.assertEqual(got["hint"], "add to the configuration:\n[total weight_n]\nkey = product\nhaving = kg\n[subtotal c.weight_n]\nkey = country\nlabel = c\n")
        config = self.write("more.conf", harness.pipeline_config(self.path("data"), COUNTERS + got["hint"].split("\n", 1)[1]))
        self.assertEqual(self.run_program("aggregator", "--check-config", "--config", config).returncode, 0)
        self.assertEqual(self.ask("series", 422, product="hat", mean=1)["code"], "no-value")
        self.ask("series", 400, revenue="hat", mean=2)
        self.ask("series", 400, revenue=PRODUCTS[:2], mean=1)
        self.ask("compare", 400, revenue="hat", mean=1)

    def durations(self, product):
        """By day."""
        days = [[] for _ in range(DAYS)]
        for e in self.events:
            if e["product"] == product and "ms" in e:
                days[(e["t"] - START) // DAY].append(Decimal(str(e["ms"])))
        return days

    def check_quantile(self, row, numbers):
        numbers = sorted(numbers)
        self.assertEqual(row["n"], len(numbers), row)
        if not numbers:
            self.assertIsNone(row["value"])
            return
        exact = numbers[max(0, int((row["q"] * len(numbers)).to_integral_value(rounding=decimal.ROUND_CEILING)) - 1)]
        self.assertLessEqual(abs(Decimal(row["value"]) - exact), abs(exact) * Decimal("0.05"), (row, exact))
        self.assertEqual(bucket(row["value"]), bucket(exact), row)

    def test_histograms(self):
        for product in PRODUCTS:
            numbers = sum(self.durations(product), [])
            expected = collections.Counter(map(bucket, numbers))
            expected["None"] = sum(e["product"] == product and "ms" not in e for e in self.events)
            got = self.ask("breakdown", product=product, by="ms", limit=10000)
            self.assertEqual({r["key"]: r["n"] for r in got["rows"]}, +expected)

    def test_quantiles(self):
        qs = ["0", "0.001", "0.25", "0.5", "0.95", "0.99", "0.999999999", "1"]
        for product in PRODUCTS:
            days = self.durations(product)
            got = self.ask("quantile", product=product, by="ms", q=",".join(qs))
            self.assertEqual([str(r["q"]) for r in got["rows"]], qs)
            self.assertEqual(got["total"], sum(map(len, days)))
            self.assertNotIn("unit", got)
            for row in got["rows"]:
                row["q"] = Decimal(row["q"])
                self.check_quantile(row, sum(days, []))
            got = self.ask("quantile", product=product, by="ms", unit="day")
            self.assertEqual([(r["t"], r["q"]) for r in got["rows"]],
                             [(START + d * DAY, Decimal(q)) for d in range(DAYS) for q in ("0.5", "0.95", "0.99")])
            for row in got["rows"]:
                self.check_quantile(row, days[(row["t"] - START) // DAY])
        hours = self.ask("quantile", product="hat", by="ms", unit="hour", q="0.5")
        self.assertEqual(sum(r["n"] for r in hours["rows"]), hours["total"])
        self.assertIn(None, [r["value"] for r in hours["rows"]])
        whole = self.ask("quantile", product="hat", by="ms", period="all", from_=None, to=None)
        days = self.ask("series", product="hat", period="all", from_=None, to=None)
        self.assertEqual((whole["from"], whole["to"]), (days["from"], days["to"]))
        part = self.ask("quantile", product="hat", by="ms")
        self.assertEqual([(r["q"], r["value"], r["n"]) for r in whole["rows"]], [(r["q"], r["value"], r["n"]) for r in part["rows"]])
        for params, columns in (({}, ["q", "value", "n", "complete"]), ({"unit": "day"}, ["t", "date", "q", "value", "n", "complete"])):
            got = self.ask("quantile", product="hat", by="ms", **params)
            rows = self.ask("quantile", product="hat", by="ms", format="csv", **params)
            self.assertEqual(rows, [columns] + [[str(r[c]).lower() if c == "complete" else str(r[c]) for c in columns] for r in got["rows"]])
        empty = self.ask("quantile", product="none", by="ms")
        self.assertEqual([(r["value"], r["n"]) for r in empty["rows"]], [(None, 0)] * 3)

    def test_refused_quantiles(self):
        self.assertEqual(self.ask("quantile", 422, product="hat", by="few")["code"], "no-histogram")
        self.assertIn("value", self.ask("quantile", 422, revenue="hat", by="ms")["detail"])
        got = self.ask("quantile", 422, revenue="hat", by="country")
        self.assertEqual(got["hint"], "add to the configuration:\n[subtotal NAME.revenue]\nkey = bucket(FIELD)")
        self.ask("quantile", 400, product="hat")
        for q in ("", "2", "-0.1", "0.5,", "a", "50%", "0.5;0.9", ",".join(["0.5"] * 11), "0.1234567891"):
            self.assertEqual(self.ask("quantile", 400, product="hat", by="ms", q=q)["code"], "bad-parameter", q)

    def query(self, *args):
        done = self.run_program("millrace", "query", *args, "--api-url", self.pipeline.daemon_url("api"),
                                "--from", str(START), "--to", str(START + DAYS * DAY))
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode().splitlines()

    def test_the_command_prints_decimals(self):
        far, large = START + 100 * DAY, "90071992547409930.01"  # a double would not keep the last digits
        self.put([{"t": far, "product": "gold", "country": "JP", "price": large}])
        done = self.run_program("millrace", "query", "series", "--revenue", "gold", "--period", "all", "--api-url", self.pipeline.daemon_url("api"))
        self.assertIn("%s €" % large, done.stdout.decode())
        amounts = self.amounts("price", product="hat")
        lines = self.query("series", "--revenue", "hat", "--mean", "1")
        days = self.by_day("price", "hat")
        self.assertEqual([re.search(r"([-0-9.]+) €  mean +([-0-9.]+) € of (\d+)", line).groups() for line in lines[:DAYS + 1]],
                         [(str(sum(d)), str(self.mean(d, 2)), str(len(d))) for d in days + [amounts]])
        self.assertEqual(len({line.index("€") for line in lines[:DAYS + 1]}), 1)
        lines = self.query("breakdown", "--revenue", "hat", "--by", "country")
        sums = {c: sum(self.amounts("price", product="hat", country=c)) for c in COUNTRIES}
        self.assertEqual([re.match(r" *([-0-9.]+) € +[0-9.]+ %.*  (.*)", line).groups() for line in lines[:3]],
                         [(str(sums[c]), c) for c in sorted(sums, key=lambda c: -sums[c])])
        rows = self.ask("quantile", product="hat", by="ms")["rows"]
        lines = self.query("quantile", "--product", "hat", "--by", "ms")
        self.assertEqual([line.split() for line in lines[:3]],
                         [["p%g" % (100 * r["q"]), str(r["value"]), "of", str(r["n"])] for r in rows])

    def test_counters(self):
        totals = {t["ns"]: t for t in self.ask("counters", from_=None, to=None)["totals"]}
        self.assertEqual([totals["revenue"].get(k) for k in ("value", "scale", "unit", "having")], ["price", 2, "€", None])
        self.assertEqual(totals["paid"]["having"], "price")
        self.assertEqual(totals["revenue"]["subtotals"][0]["scale"], 2)
        self.assertNotIn("scale", totals["product"])
        rows = self.ask("lookup", from_=None, to=None, prefix="ha")["rows"]
        self.assertEqual({r["label"]: r["n"] for r in rows if r["key"] == "hat"}["revenue"], sum(self.amounts("price", product="hat")))


if __name__ == "__main__":
    harness.main()
