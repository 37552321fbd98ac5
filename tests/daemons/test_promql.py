"""lib/promql against a real Prometheus over the same samples, and against Prometheus' own files of tests if MILLRACE_PROMQL_TESTS names
their directory (promql/testdata of its source)."""
# full: MILLRACE_ROUNDS=1000
import glob
import json
import math
import os
import shutil
import subprocess
import urllib.parse

import harness
from harness import wait_until

START = 1700000000  # seconds
LENGTH = 5400
GAUGES = ("room_temperature", "tank_level")
COUNTERS = ("pulses_total", "litres_total")
SCALARS = ("0.5", "2", "3", "-1.5", "10", "0", "1e3", "time()", "scalar(tank_level{site=\"west\",unit=\"1\"})", "Inf", "NaN")
RANGES = ("1m", "90s", "2m30s", "5m", "20m")
LABELS = ("site", "unit", "kind")
MAPS = ("abs", "ceil", "floor", "exp", "sqrt", "ln", "log2", "log10", "sgn", "round", "sin", "atan", "deg", "timestamp",
        "sort", "sort_desc")
DATES = ("minute", "hour", "day_of_month", "day_of_week", "day_of_year", "month", "year", "days_in_month")
GAUGE_RANGES = ("delta", "idelta", "deriv", "changes", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
                "count_over_time", "last_over_time", "present_over_time", "resets")
COUNTER_RANGES = ("rate", "increase", "irate", "resets", "changes")


def samples(r):
    """{series: [(milliseconds, value)]}: gauges with gaps and NaN, counters with resets, and histograms."""
    found = {}
    for site in ("west", "east"):
        for unit in "123":
            labels = 'site="%s",unit="%s"' % (site, unit)
            offset = r.randrange(15000)
            times = [(START + s) * 1000 + offset for s in range(0, LENGTH, 15)]
            first, last = (0, len(times)) if r.random() < 0.6 else sorted(r.sample(range(len(times)), 2))
            times = [t for t in times[first:last] if r.random() > 0.02]
            for name in GAUGES:
                found["%s{%s}" % (name, labels)] = [
                    (t, float("nan") if r.random() < 0.003 else round(r.uniform(-20, 40), 3)) for t in times]
            for name in COUNTERS:
                value, rows = r.uniform(0, 100), []
                for t in times:
                    value = 0 if r.random() < 0.01 else value + r.choice((0, 1, r.uniform(0, 9)))
                    rows.append((t, value))
                found['%s{kind="%s",%s}' % (name, r.choice("ab"), labels)] = rows
            bounds, counts = ("0.1", "0.5", "2", "+Inf"), [0, 0, 0, 0]
            rows = {b: [] for b in bounds}
            for t in times:
                for k in range(r.randrange(6)):
                    reached = r.randrange(4)
                    counts = [c + (i >= reached) for i, c in enumerate(counts)]
                for b, c in zip(bounds, counts):
                    rows[b].append((t, c))
            for b in bounds:
                found['wait_seconds_bucket{le="%s",%s}' % (b, labels)] = rows[b]
    return {s: rows for s, rows in found.items() if rows}


def open_metrics(found):
    lines, name = [], None
    for series in sorted(found):
        if series.split("{")[0] != name:
            name = series.split("{")[0]
            lines.append("# TYPE %s unknown" % name)
        lines += ["%s %s %d.%03d" % (series, "NaN" if v != v else repr(v), t // 1000, t % 1000) for t, v in found[series]]
    return "\n".join(lines) + "\n# EOF\n"


class Expressions:
    """Random expressions of the subset. Ties and comparisons of computed numbers, which rounding could decide, are rare."""

    def __init__(self, r):
        self.r = r

    def matchers(self):
        r = self.r
        return r.choice(("", "", '{site="west"}', '{unit!="1"}', '{unit=~"1|3"}', '{site!~"e.*"}', '{kind="a"}', '{unit=~".+",site="east"}'))

    def modifiers(self):
        return self.r.choice(("",) * 6 + (" offset 2m", " offset -1m", " @ %d" % (START + 3000), " @ end()"))

    def selector(self, names):
        return self.r.choice(names) + self.matchers()

    def ranged(self, function, names):
        r = self.r
        if r.random() < 0.15 and function not in ("changes", "resets"):  # rounding could decide
            return "(%s)[%s:%s]%s" % (self.vector(1), r.choice(RANGES), r.choice(("", "30s", "1m")), self.modifiers())
        return "%s[%s]%s" % (self.selector(names), r.choice(RANGES), self.modifiers())

    def grouping(self):
        r = self.r
        names = ", ".join(r.sample(LABELS, r.randrange(3)))
        return r.choice(("", " by (%s) " % names, " without (%s) " % names))

    def aggregate(self, depth):
        r = self.r
        kind = r.choice(("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "topk", "bottomk", "quantile"))
        if kind in ("topk", "bottomk"):
            return "%s%s(%d, %s)" % (kind, self.grouping(), r.randrange(1, 4), self.selector(GAUGES))
        if kind == "quantile":
            return "quantile%s(%s, %s)" % (self.grouping(), r.choice(("0", "0.25", "0.9", "1", "1.5")), self.vector(depth - 1))
        return "%s%s(%s)" % (kind, self.grouping(), self.vector(depth - 1))

    def binary(self, depth):
        r = self.r
        left, right = self.vector(depth - 1), self.vector(depth - 1)
        kind = r.random()
        if kind < 0.35:
            pair = [left, r.choice(SCALARS)]
            r.shuffle(pair)
            return "%s %s %s" % (pair[0], r.choice(("+", "-", "*", "/", "%", "^", ">", "<=", "> bool", "!= bool")), pair[1])
        on = r.choice(("", "", " on (site, unit)", " ignoring (kind)", " on (unit)"))
        if kind < 0.6:
            return "%s %s%s %s" % (left, r.choice(("and", "or", "unless")), on, right)
        side = r.choice(("", " group_left", " group_right (kind)")) if on else ""
        return "%s %s%s%s %s" % (left, r.choice(("+", "-", "*", "/", ">", "< bool")), on, side, right)

    def vector(self, depth):
        r = self.r
        kind = r.random() if depth > 0 else r.random() * 0.3
        if kind < 0.12:
            return self.selector(GAUGES + COUNTERS) + self.modifiers()
        if kind < 0.22:
            function = r.choice(COUNTER_RANGES)
            return "%s(%s)" % (function, self.ranged(function, COUNTERS))
        if kind < 0.3:
            function = r.choice(GAUGE_RANGES)
            return "%s(%s)" % (function, self.ranged(function, GAUGES))
        if kind < 0.45:
            return "(%s)" % self.binary(depth)
        if kind < 0.65:
            return self.aggregate(depth)
        if kind < 0.67:  # a date of NaN or 1e20 is not defined
            return "%s(timestamp(%s) * %d)" % (r.choice(DATES), self.selector(GAUGES), r.randrange(-2, 3))
        if kind < 0.75:
            return "%s(%s)" % (r.choice(MAPS), self.vector(depth - 1))
        if kind < 0.8:
            return "histogram_quantile(%s, %s(wait_seconds_bucket%s[%s]))" % (
                r.choice(("0.1", "0.5", "0.95")), r.choice(("rate", "increase")), r.choice(("", '{site="west"}')), r.choice(RANGES))
        if kind < 0.84:
            return 'label_replace(%s, "%s", "%s", "site", "(.)(.*)")' % (self.vector(depth - 1), r.choice(("new", "unit")), r.choice(("$2-x", "$1", "")))
        if kind < 0.87:
            return 'label_join(%s, "new", "-", "site", "unit")' % self.vector(depth - 1)
        if kind < 0.9:
            return "%s(%s)" % (r.choice(("absent", "absent_over_time")), r.choice(('nothing{site="x",unit=~"1"}[5m]', 'tank_level{unit="1"}[1m]')))
        if kind < 0.93:
            return "-%s" % self.vector(depth - 1)
        if kind < 0.96:
            return "%s(%s, %s)" % (r.choice(("clamp_min", "clamp_max", "round")), self.vector(depth - 1), r.choice(("0.5", "5", "-3")))
        if kind < 0.98:
            return "quantile_over_time(%s, %s)" % (r.choice(("0.1", "0.5", "1")), self.ranged("quantile_over_time", GAUGES))
        return r.choice(("vector(%s)" % r.choice(SCALARS), # In Prometheus, the range of predict_linear moves with the step even after @.
                         "predict_linear(%s[%s], 600)" % (self.selector(GAUGES), r.choice(RANGES))))


def table(data):
    """{labels: {time: value}} of an answer."""
    if data["resultType"] in ("scalar", "string"):
        return {(): {data["result"][0]: float(data["result"][1])}}
    return {tuple(sorted(s["metric"].items())): {t: float(v) for t, v in s.get("values") or [s["value"]]} for s in data["result"]}


def near(a, b):
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-6)


class PromQL(harness.MillraceTest):
    def engine(self, found):
        """ask(start, end, step, expression) of lib/promql; times in milliseconds."""
        process = subprocess.Popen([harness.program("promql_query")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        for series, rows in found.items():
            process.stdin.writelines("add %s %d %r\n" % (series, t, v) for t, v in rows)

        def ask(start, end, step, expression):
            process.stdin.write("query %d %d %d %s\n" % (start, end, step, expression))
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        return ask

    def prometheus(self, found):
        """The same question to a Prometheus that has the same samples."""
        for name in ("promtool", "prometheus"):
            if not shutil.which(name):
                harness.not_installed(self, "Prometheus is not installed (apt-get install prometheus)")
        page, data, port = self.write("samples.om", open_metrics(found)), self.path("tsdb"), self.keep_port()
        done = subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", page, data], capture_output=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        config = self.write("prometheus.yml", "global: {scrape_interval: 1h}\n")
        with open(self.path("prometheus.log"), "wb") as log:
            process = subprocess.Popen(harness.dies_with_us([
                "prometheus", "--config.file=" + config, "--storage.tsdb.path=" + data, "--web.listen-address=127.0.0.1:" + port,
                "--storage.tsdb.retention.time=100y"]), stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def request(path, **parameters):
            try:
                return harness.request("http://127.0.0.1:" + port, "GET", path + "?" + urllib.parse.urlencode(parameters))
            except OSError:
                return None
        wait_until(lambda: (request("/-/ready") or harness.Reply(0, {}, b"")).status == 200, "Prometheus is ready")

        def ask(start, end, step, expression):
            if step == 0:
                reply = request("/api/v1/query", query=expression, time=start / 1000)
            else:
                reply = request("/api/v1/query_range", query=expression, start=start / 1000, end=end / 1000, step=step / 1000)
            answer = reply.json()
            return answer["data"] if answer["status"] == "success" else {"error": answer["error"]}
        return ask

    def compare(self, question, ours, theirs):
        self.assertEqual("error" in ours, "error" in theirs, "%s\n%s\n%s" % (question, str(ours)[:2000], str(theirs)[:2000]))
        if "error" in ours:
            return
        ours, theirs = table(ours), table(theirs)
        self.assertEqual(sorted(ours), sorted(theirs), question)
        for labels in theirs:
            self.assertEqual(sorted(ours[labels]), sorted(theirs[labels]), (question, labels))
            for t, v in theirs[labels].items():
                self.assertTrue(near(ours[labels][t], v), "%s: %s at %s: %r, Prometheus has %r" % (question, labels, t, ours[labels][t], v))

    def test_as_prometheus(self):
        r = harness.seeded()
        found = samples(r)
        ours, theirs, expressions = self.engine(found), self.prometheus(found), Expressions(r)
        n_errors = n_empty = 0
        for _ in range(harness.rounds(150)):
            expression = expressions.vector(r.randrange(4))
            start = (START + r.randrange(LENGTH)) * 1000 + r.choice((0, 0, 250))
            step = r.choice((0, 0, 15000, 60000, 301000))
            question = (start, start + step * r.randrange(20), step, expression)
            answer = ours(*question)
            self.compare(question, answer, theirs(*question))
            n_errors += "error" in answer
            n_empty += answer.get("result") == []
        self.assertLess(n_errors + n_empty, harness.rounds(150) * 2 / 3)

    def test_files_of_prometheus(self):
        directory = os.environ.get("MILLRACE_PROMQL_TESTS")
        if not directory:
            self.skipTest("MILLRACE_PROMQL_TESTS does not name Prometheus' promql/testdata")
        files = sorted(f for f in glob.glob(os.path.join(directory, "*.test")) if "native" not in f)
        self.assertTrue(files, directory)
        done = subprocess.run([harness.program("promql_files"), *files], capture_output=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stdout.decode())


if __name__ == "__main__":
    harness.main()
