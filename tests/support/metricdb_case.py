"""What the tests of metricdb share: pubsub with a stream of samples, metricdb, and questions to Prometheus' HTTP API."""
import json
import math
import re
import shutil
import subprocess
import urllib.parse

import harness
from harness import request, wait_until

STALE = object()  # the value of a stale marker


def line_of(labels, at, value):
    """`at` is in milliseconds."""
    if value is STALE or not math.isfinite(value):
        text = json.dumps("stale" if value is STALE else "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf")
    else:
        text = repr(value)
    return "{\"t\":%d.%03d,\"labels\":%s,\"v\":%s}\n" % (at // 1000, at % 1000, json.dumps(labels, sort_keys=True), text)


def ask(url, path, _post=False, token=None, **params):
    """(status, document). A list has its parameter several times; `match` is match[]."""
    listed = [("match[]" if name == "match" else name, v) for name, values in params.items()
              for v in (values if isinstance(values, list) else [values])]
    form, headers = urllib.parse.urlencode(listed), {"Authorization": "Bearer " + token} if token else {}
    if _post:
        reply = request(url, "POST", "/api/v1/" + path, form, {**headers, "Content-Type": "application/x-www-form-urlencoded"})
    else:
        reply = request(url, "GET", "/api/v1/" + path + ("?" + form if form else ""), headers=headers)
    return reply.status, reply.json()


def is_near(a, b):
    if a == b:
        return True
    x, y = float(a), float(b)
    return (math.isnan(x) and math.isnan(y)) or abs(x - y) <= 1e-9 * max(1, abs(x), abs(y))


def series_of(document):
    """{labels: [(time, value)]} of an answer, or the scalar under ()."""
    data = document["data"]
    if data["resultType"] in ("scalar", "string"):
        return {(): [tuple(data["result"])]}
    return {tuple(sorted(s["metric"].items())): [tuple(p) for p in s.get("values", [s.get("value")])] for s in data["result"]}


def difference(ours, theirs):
    """What differs between two answers (status, document), or None. Errors need the same status and type."""
    if ours[0] != theirs[0] or ours[1]["status"] != theirs[1]["status"]:
        return "status"
    if ours[1]["status"] == "error":
        return None if ours[1]["errorType"] == theirs[1]["errorType"] else "errorType"
    if ours[1]["data"]["resultType"] != theirs[1]["data"]["resultType"]:
        return "resultType"
    mine, other = series_of(ours[1]), series_of(theirs[1])
    if set(mine) != set(other):
        return "series: %s" % sorted(set(mine) ^ set(other))[:3]
    for labels, points in mine.items():
        if [t for t, _ in points] != [t for t, _ in other[labels]]:
            return "times of %s: %s and %s" % (labels, points[:3], other[labels][:3])
        for (t, a), (_, b) in zip(points, other[labels]):
            if not is_near(a, b):
                return "%s at %s: %s and %s" % (labels, t, a, b)
    return None


class Prometheus:
    """A Prometheus over samples {labels as text: [(ms, value)]}, without stale markers, which promtool cannot write."""

    def __init__(self, test, samples):
        if not shutil.which("prometheus") or not shutil.which("promtool"):
            harness.not_installed(test, "Prometheus is not installed (apt-get install prometheus)")
        lines = []
        for labels, values in samples.items():
            name, rest = labels[0][1], ",".join("%s=%s" % (k, json.dumps(v)) for k, v in labels[1:])
            lines += ["%s{%s} %r %d.%03d\n" % (name, rest, v, t // 1000, t % 1000) for t, v in values]
        test.write("samples.om", "".join(lines).replace(" nan ", " NaN ").replace(" inf ", " +Inf ").replace(" -inf ", " -Inf ") + "# EOF\n")
        test.write("prometheus.yml", "global: {}\n")
        made = subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", test.path("samples.om"), test.path("prometheus")],
                              capture_output=True, timeout=harness.LONG)
        test.assertEqual(made.returncode, 0, made.stderr)
        with open(test.path("prometheus.log"), "wb") as log:
            self.process = subprocess.Popen(harness.dies_with_us(["prometheus", "--config.file=" + test.path("prometheus.yml"),
                "--storage.tsdb.path=" + test.path("prometheus"), "--storage.tsdb.retention.time=100y", "--web.listen-address=127.0.0.1:0"]),
                stdout=log, stderr=log, cwd=test.dir, start_new_session=True)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

        def address():
            log = harness.read_file(test.path("prometheus.log")).decode()
            test.assertIsNone(self.process.poll(), log)
            return "Server is ready" in log and re.search(r"Listening on\" address=(\S+)", log)
        self.url = "http://" + wait_until(address, "Prometheus").group(1)

    def ask(self, path, **params):
        return ask(self.url, path, **params)


class MetricdbTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub_url = "unix:" + self.path("p.sock")

    def pubsub(self, *args):
        return self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", *args, listen=self.pubsub_url)

    def metricdb(self, *args, ready=True, **kw):
        """Without retention, because the tests' samples are old."""
        start = self.start if ready else self.daemon
        return start("metricdb", "--data-dir=" + self.path("m"), "--pubsub-url=" + self.pubsub_url, "--keep=0", "--keep-minutes=0", "--keep-wide=0", *args, **kw)

    def publish(self, *samples):
        """Each sample is (labels, milliseconds, value)."""
        self.publish_lines("".join(line_of(*s) for s in samples))

    def publish_lines(self, lines):
        reply = request(self.pubsub_url, "POST", "/pub?stream=metrics", lines)
        self.assertEqual(reply.status, 200, reply)

    def wait_read(self, metricdb):
        """Waits until metricdb has every line that the stream now has."""
        streams = {s["name"]: s for s in request(self.pubsub_url, "GET", "/streams").json()["streams"]}
        end = int(streams["metrics"]["end"])
        wait_until(lambda: self.read_to(metricdb) >= end, lambda: "offset %d: %s" % (end, metricdb.stats()))

    @staticmethod
    def read_to(metricdb):
        return metricdb.stats()["read_offset"]
