"""The same samples in metricdb and in a real Prometheus: random queries have the same answers, and wrong ones the same errors."""
# seconds: 60
# full: MILLRACE_ROUNDS=3000
import json
import math

import harness
from metricdb_case import MetricdbTest, Prometheus, ask, difference, line_of

T, S, HOUR = 1732977600000, 1000, 3600
SPAN = 40 * 60  # seconds of samples
JOBS, HOSTS = ("a", "b"), ("i0", "i1", "i2")
RANGES = ("30s", "1m", "95s", "4m", "9m50s")


def labels_of(**labels):
    return tuple(sorted(labels.items()))


def make_samples(rng):
    """{labels: [(ms, value)]}: one sample in each 10 s or less often, with gaps, resets, NaN, series that begin late or end early."""
    samples = {}

    def fill(labels, next_value, every=10):
        offset, begin, end = rng.randrange(10 * S), rng.choice((0, 0, 600)), rng.choice((SPAN, SPAN, SPAN - 700))
        values = samples[labels] = []
        for at in range(begin, end, every):
            if rng.random() < 0.02 or 1200 <= at < 1200 + rng.choice((0, 0, 400)):
                continue
            values.append((T + at * S + offset, next_value()))
    for job in JOBS:
        for host in HOSTS:
            state = {"c": 0.0, "g": 50, "h": [0, 0, 0, 0]}

            def counter():
                state["c"] = 0.0 if rng.random() < 0.01 else state["c"] + rng.choice((0, 1, 2.5, 100))
                return state["c"]

            def gauge():
                state["g"] += rng.randrange(-5, 6)
                return math.nan if rng.random() < 0.01 else float(state["g"])
            fill(labels_of(__name__="c_total", job=job, instance=host), counter, rng.choice((10, 10, 30)))
            fill(labels_of(__name__="g", job=job, instance=host), gauge)
            fill(labels_of(__name__="r", job=job, instance=host), rng.random)
            at = rng.randrange(10 * S)
            for k in range(SPAN // 10):
                bucket = rng.randrange(4)
                state["h"] = [n + (i >= bucket) for i, n in enumerate(state["h"])]
                for i, le in enumerate(("0.1", "0.5", "1", "+Inf")):
                    samples.setdefault(labels_of(__name__="h_bucket", job=job, instance=host, le=le), []).append((T + k * 10 * S + at, float(state["h"][i])))
        fill(labels_of(__name__="weight", job=job), lambda: float(rng.randrange(1, 9)), 20)
    return samples


class Queries:
    """Random expressions of the subset."""

    def __init__(self, rng):
        self.rng, self.pick = rng, rng.choice

    def selector(self):
        name = self.pick(("c_total", "g", "g", "weight", "{__name__=~\"c_.*|weight\"}"))
        matcher = self.pick(("", "", "job=\"a\"", "job!=\"a\"", "instance=~\"i[01]\"", "instance!~\"i0|i1\"", "none=\"\"", "job=~\"a|b\",instance=\"i2\""))
        return name[:-1] + "," + matcher + "}" if name[0] == "{" and matcher else name if not matcher else name + "{" + matcher + "}"

    def offset(self):
        return self.pick(("", "", "", " offset 1m", " offset 95s", " offset -30s"))

    def of_range(self):
        f = self.pick(("rate", "increase", "irate", "delta", "idelta", "resets", "changes", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
                       "count_over_time", "last_over_time", "present_over_time", "quantile_over_time", "absent_over_time"))
        q = self.pick(("0.5", "0.9", "0", "1")) + ", " if f.startswith("quantile") else ""
        name = self.pick(("c_total", "g")) if f in ("rate", "increase", "delta") else self.selector()
        return "%s(%s%s[%s]%s)" % (f, q, name, self.pick(RANGES), self.offset())

    def vector(self, depth):
        if depth == 0 or self.rng.random() < 0.15:
            return self.pick((self.of_range, self.of_range, lambda: self.selector() + self.offset()))()
        return self.pick((self.aggregate, self.aggregate, self.binary, self.function, self.histogram))(depth - 1)

    def aggregate(self, depth):
        f = self.pick(("sum", "avg", "min", "max", "count", "group", "topk", "bottomk", "quantile"))
        by = self.pick(("", "by (job) ", "by (instance, job) ", "without (instance) ", "by () ", "without (job, le) "))
        first = {"topk": "2, ", "bottomk": "1, ", "quantile": "0.3, "}.get(f, "")
        # Of equal values, topk and bottomk choose any. Those of `r` are not equal.
        unequal = f in ("topk", "bottomk") and self.pick(("r", "r{job=\"a\"} offset 1m", "avg_over_time(r[95s])", "r * 2", "max by (job) (r)"))
        return "%s %s(%s%s)" % (f, by, first, unequal or self.vector(depth))

    def binary(self, depth):
        number = self.pick(("2", "0.5", "-3", "1e3", "0"))
        how = self.rng.randrange(6)
        if how == 0:
            return "%s %s %s" % (self.vector(depth), self.pick(("+", "-", "*", "/", "%", "^")), number)
        if how == 1:
            return "g %s %s%s" % (self.pick((">", "<", ">=", "<=", "==", "!=")), self.pick(("", "bool ")), self.pick(("50", "45", "g offset 1m")))
        if how == 2:
            return "%s %s %s" % (self.pick(("g", "c_total")), self.pick(("and", "or", "unless")), self.vector(depth))
        if how == 3:
            return "g * on (job) group_left () weight"
        if how == 4:
            return "sum by (job) (%s) %s on (job) weight" % (self.selector(), self.pick(("+", "*", "/", "-")))
        return "%s %s ignoring (none) %s" % (self.of_range(), self.pick(("+", "*", "/")), self.pick(("g", "c_total")))

    def function(self, depth):
        f = self.pick(("abs(%s)", "ceil(%s)", "floor(%s)", "round(%s)", "sqrt(%s)", "sgn(%s)", "clamp(%s, 2, 40)", "clamp_min(%s, 10)", "-(%s)", "timestamp(%s)", "vector(scalar(%s))",
                       "absent(%s)", "label_replace(%s, \"new\", \"$1-x\", \"instance\", \"i(.*)\")", "label_join(%s, \"both\", \"/\", \"job\", \"instance\")", "(%s)", "%s * 2 > 10"))
        return f % self.vector(depth)

    def histogram(self, depth):
        return "histogram_quantile(%s, sum by (le%s) (rate(h_bucket[%s])))" % (self.pick(("0.5", "0.9", "0.99", "0")), self.pick(("", ", job")), self.pick(RANGES[1:]))


class Compared(MetricdbTest):
    def setUp(self):
        super().setUp()
        self.rng = harness.seeded()
        self.samples = make_samples(self.rng)
        self.pubsub()
        lines = sorted((t, labels, v) for labels, values in self.samples.items() for t, v in values)
        for i in range(0, len(lines), 20000):
            self.publish_lines("".join(line_of(dict(labels), t, v) for t, labels, v in lines[i:i + 20000]))
        self.prometheus = Prometheus(self, self.samples)
        self.db = self.metricdb("--block=1s")
        self.wait_read(self.db)

    def both(self, path, **params):
        return ask(self.db.url, path, **params), self.prometheus.ask(path, **params)

    def test_random_queries(self):
        queries, n_errors, n_empty = Queries(self.rng), 0, 0
        for _ in range(harness.rounds(200)):
            query = queries.vector(self.rng.randrange(3))
            start = T / S + self.rng.randrange(300, SPAN) + self.rng.choice((0, 0.5, 0.123))
            if self.rng.random() < 0.4:
                path, params = "query", {"query": query, "time": start}
            else:
                step = self.rng.choice((10, 15, 50, 97))  # steps of whole minutes may read buckets of a minute
                path, params = "query_range", {"query": query, "start": start, "end": start + step * self.rng.randrange(30), "step": step}
            ours, theirs = self.both(path, **params)
            wrong = difference(ours, theirs)
            self.assertIsNone(wrong, "%s %s\n%s\n%s" % (path, params, json.dumps(ours)[:1500], json.dumps(theirs)[:1500]))
            if path == "query_range":
                self.assertEqual(ask(self.db.url, path, **params), ours, "with kept steps")
            n_errors += theirs[0] != 200
            n_empty += theirs[0] == 200 and not theirs[1]["data"]["result"]
        repeated = {"query": "sum(g)", "start": T / S, "end": T / S + SPAN, "step": 15}

        def are_reused():  # once the samples are in a block
            ask(self.db.url, "query_range", **repeated)
            return self.db.stats()["query_steps_reused_total"] > 0
        harness.wait_until(are_reused, self.db.stats)
        self.assertLess(n_errors + n_empty, harness.rounds(200) * 0.6, "most queries have answers")

    def test_labels_and_errors(self):
        for path, params in (("labels", {}), ("labels", {"match": "weight"}), ("label/instance/values", {}), ("label/__name__/values", {"match": ["g", "{job=\"a\"}"]}),
                             ("label/le/values", {"match": "g"}), ("series", {"match": ["weight", "{job=\"a\",instance=\"i0\"}"]}), ("metadata", {})):
            ours, theirs = self.both(path, **params)
            self.assertEqual(ours, theirs, (path, params))
        for path, params in (("query", {}), ("query", {"query": "g{"}), ("query", {"query": "g["}), ("query", {"query": "sum(g"}), ("query", {"query": "nope(g)"}), ("query", {"query": "g + on(job) g", "time": T / S + 60}),
                             ("query", {"query": "g", "time": "x"}), ("query", {"query": "g", "timeout": "x"}), ("query_range", {"query": "g"}), ("query_range", {"query": "g", "start": 2, "end": 1, "step": 1}),
                             ("query_range", {"query": "g", "start": 1, "end": 2}), ("query_range", {"query": "g", "start": 1, "end": 2, "step": -1}), ("query_range", {"query": "g", "start": 0, "end": 11001, "step": 1}),
                             ("query_range", {"query": "g", "start": 0, "end": 11000, "step": 1}), ("query_range", {"query": "g[1m]", "start": 1, "end": 2, "step": 1}), ("query_range", {"query": "\"a\"", "start": 1, "end": 2, "step": 1}),
                             ("series", {}), ("series", {"match": "{}"}), ("series", {"match": "g["}), ("label/a-b/values", {}), ("query", {"query": "g[5m]", "time": T / S + 300}), ("query", {"query": "1", "time": 1}),
                             ("query", {"query": "\"a\"", "time": 1}), ("query", {"query": "vector(1)", "time": "2024-11-30T14:40:00.5+00:00"})):
            ours, theirs = self.both(path, **params)
            same = difference(ours, theirs) if "resultType" in str(theirs) else (ours[0], ours[1].get("errorType")) != (theirs[0], theirs[1].get("errorType"))
            self.assertFalse(same, (path, params, same, ours, theirs))


if __name__ == "__main__":
    harness.main()
