"""metricdb between a real pubsub and Prometheus' HTTP API: every sample of the stream once, and answers that are those of a real
Prometheus with the same samples."""
# seconds: 60
# parts: 3
# full: MILLRACE_ROUNDS=60
import json
import os
import socket
import threading
import time
import urllib.parse

import harness
from harness import request, wait_until
from metricdb_case import STALE, MetricdbTest, Prometheus, ask, difference, line_of, series_of
from scraper_case import ScraperTest

T = 1732977600000  # a multiple of all widths up to an hour
S = 1000


def up(i, **more):
    return {"__name__": "up", "instance": "host%d" % i, "job": "node", **more}


class Api(MetricdbTest):
    """The endpoints and their errors, without Prometheus."""

    def setUp(self):
        super().setUp()
        self.pubsub()
        self.publish(*((up(i), T + k * 10 * S + i, i + k) for k in range(30) for i in range(3)), ({"__name__": "other", "zone": "ä\"\\"}, T, 0.5))
        self.db = self.metricdb()
        self.wait_read(self.db)

    def ask(self, path, **params):
        return ask(self.db.url, path, **params)

    def data(self, path, **params):
        status, document = self.ask(path, **params)
        self.assertEqual((status, document["status"]), (200, "success"), document)
        return document["data"]

    def test_answers(self):
        data = self.data("query", query="up{instance=\"host1\"}", time=(T + 290 * S + 500) / S)
        self.assertEqual(data, {"resultType": "vector", "result": [{"metric": up(1), "value": [1732977890.5, "30"]}]})
        data = self.data("query_range", query="up{instance=\"host2\"}", start="2024-11-30T14:40:00.002Z", end=T / S + 30, step="10s")
        self.assertEqual(data, {"resultType": "matrix", "result": [{"metric": up(2), "values": [[T / S + 0.002, "2"], [T / S + 10.002, "3"], [T / S + 20.002, "4"]]}]})
        self.assertEqual(self.data("query", query="1 + 1", time=5), {"resultType": "scalar", "result": [5, "2"]})
        self.assertEqual(self.data("query", query="\"a\"", time=5), {"resultType": "string", "result": [5, "a"]})
        self.assertEqual(self.data("query", query="up", time=5), {"resultType": "vector", "result": []})
        rate, = self.data("query", query="sum(rate(up[4m]))", time=T / S + 290)["result"]
        self.assertAlmostEqual(float(rate["value"][1]), 0.3)

    def test_labels(self):
        self.assertEqual(self.data("labels"), ["__name__", "instance", "job", "zone"])
        self.assertEqual(self.data("labels", match="up"), ["__name__", "instance", "job"])
        self.assertEqual(self.data("label/instance/values"), ["host0", "host1", "host2"])
        self.assertEqual(self.data("label/__name__/values", match=["up{instance=\"host1\"}", "other"]), ["other", "up"])
        self.assertEqual(self.data("label/zone/values"), ["ä\"\\"])
        self.assertEqual(self.data("label/none/values"), [])
        self.assertEqual(self.data("series", match=["up{instance=~\"host[01]\"}", "{job=\"node\",instance!=\"host2\"}"]), [up(0), up(1)])
        self.assertEqual(self.data("series", match="up", start=1, end=2), [])
        self.assertEqual(self.data("label/job/values", start=T / S - 3600, end=T / S - 1800), [])
        self.assertEqual(self.data("metadata"), {})
        self.assertEqual(self.data("status/buildinfo")["version"], "2.42.0")

    def test_forms(self):
        """POST with a form is the same as GET."""
        for path, params in (("query", {"query": "sum(up) by (job)", "time": T / S}), ("query_range", {"query": "up", "start": T / S, "end": T / S + 60, "step": 15}),
                             ("labels", {}), ("series", {"match": ["up", "other"]})):
            self.assertEqual(self.ask(path, **params), self.ask(path, _post=True, **params))

    def test_errors(self):
        """Status and type of each error, which test_prometheus compares with the real ones."""
        for path, params, status, kind, text in (
                ("query", {}, 400, "bad_data", "invalid parameter \"query\""), ("query", {"query": "up{"}, 400, "bad_data", "invalid parameter \"query\": 1:4: parse error: "),
                ("query", {"query": "up", "time": "x"}, 400, "bad_data", "invalid parameter \"time\": cannot parse \"x\" to a valid timestamp"),
                ("query", {"query": "up", "timeout": "x"}, 400, "bad_data", "invalid parameter \"timeout\": cannot parse \"x\" to a valid duration"),
                ("query_range", {"query": "up"}, 400, "bad_data", "invalid parameter \"start\": cannot parse \"\" to a valid timestamp"),
                ("query_range", {"query": "up", "start": 2, "end": 1, "step": 1}, 400, "bad_data", "invalid parameter \"end\": end timestamp must not be before start time"),
                ("query_range", {"query": "up", "start": 1, "end": 2}, 400, "bad_data", "invalid parameter \"step\": cannot parse \"\" to a valid duration"),
                ("query_range", {"query": "up", "start": 1, "end": 2, "step": 0}, 400, "bad_data", "zero or negative query resolution"),
                ("query_range", {"query": "up", "start": 0, "end": 11001, "step": 1}, 400, "bad_data", "exceeded maximum resolution of 11,000 points"),
                ("query_range", {"query": "up[1m]", "start": 1, "end": 2, "step": 1}, 400, "bad_data", "invalid expression type \"range vector\" for range query"),
                ("series", {}, 400, "bad_data", "no match[] parameter provided"), ("series", {"match": "{}"}, 400, "bad_data", "invalid parameter \"match[]\": "),
                ("label/a-b/values", {}, 400, "bad_data", "invalid label name: \"a-b\""),
                ("query", {"query": "up + on(job) up", "time": T / S + 60}, 422, "execution", "many-to-many")):
            answer = self.ask(path, **params)
            self.assertEqual((answer[0], answer[1].get("errorType")), (status, kind), (path, params, answer))
            self.assertIn(text, answer[1]["error"])
        self.assertEqual(self.data("query_range", query="up", start=0, end=11000, step=1)["result"], [])
        for method, path, status in (("PUT", "/api/v1/query?query=1", 405), ("GET", "/api/v1/label//values", 404), ("GET", "/api/v1/none", 404), ("GET", "/api/v1/query?query=%", 400)):
            self.assertEqual(request(self.db.url, method, path).status, status, path)

    def test_limits(self):
        self.db.stop()
        db = self.metricdb("--query-max-series=2", "--query-max-buckets=15", "--query-threads=1")
        self.wait_read(db)
        self.assertEqual(ask(db.url, "query", query="up{instance=\"host1\"}", time=T / S)[0], 200)
        for path, params in (("query", {"query": "up", "time": T / S}), ("series", {"match": "up"}), ("labels", {}),
                             ("query", {"query": "count_over_time(up{instance!=\"host1\"}[4m])", "time": T / S + 300})):
            status, document = ask(db.url, path, **params)
            self.assertEqual((status, document.get("errorType")), (422, "execution"), (path, params, document))


class Stream(MetricdbTest):
    def value(self, db, query, at):
        status, document = ask(db.url, "query", query=query, time=at / S)
        self.assertEqual(status, 200, document)
        return {tuple(sorted(s["metric"].items())): float(s["value"][1]) for s in document["data"]["result"]}

    def kept(self):
        """The offset from which pubsub keeps the stream for metricdb."""
        cursors = {c["name"]: c for c in request(self.pubsub_url, "GET", "/cursors?stream=metrics").json()["cursors"]}
        return int(cursors["metricdb"]["offset"])

    def test_lines_that_are_no_samples(self):
        self.pubsub()
        good = {"__name__": "a", "x": "1"}
        self.publish_lines("no json\n{}x\n" + line_of(good, T, 1) + json.dumps({"t": T / S + 10, "v": 2, "labels": {"x": "1", "__name__": "a", "empty": ""}}) + "\n" +
                           line_of({}, T, 1) + line_of(good, -5 * S, 1) + line_of(good, T + 20 * S, STALE) + line_of(good, T + 5 * S, 9) + line_of(good, T + 10 * S, 9) + "{}   \n")
        db = self.metricdb()
        self.wait_read(db)
        self.assertEqual(self.value(db, "sum_over_time(a[5m])", T + 19 * S), {(("x", "1"),): 3})
        self.assertEqual(self.value(db, "a", T + 19 * S), {(("__name__", "a"), ("x", "1")): 2})
        self.assertEqual(self.value(db, "a", T + 20 * S), {}, "the marker ends the series")
        stats = db.stats()
        self.assertEqual((stats["samples_total"], stats["lines_malformed_total"]), (3, 2))
        self.assertEqual(stats["samples_dropped_total"], {"reason=\"not_later\"": 2, "reason=\"labels\"": 1, "reason=\"time\"": 1, "reason=\"max_series\"": 0})

    def test_samples_of_the_future(self):
        """A line with a time in a wrong unit does not end its series."""
        self.pubsub()
        now = int(time.time() * S)
        self.publish((up(0), now - 60 * S, 1), (up(0), now + 2 * 86400 * S, 9), (up(0), now * S, 9), (up(0), now - 30 * S, 2))
        db = self.metricdb()
        self.wait_read(db)
        self.assertEqual(self.value(db, "up", now), {tuple(sorted(up(0).items())): 2})
        self.assertEqual((db.stats()["samples_dropped_total"]["reason=\"time\""], db.stats()["lines_malformed_total"]), (1, 1))

    def test_two_metricdb(self):
        """Retention keeps the lines that one of two metricdb needs."""
        self.pubsub()
        self.publish((up(0), T, 1))
        for name, block in (("metricdb", "1s"), ("second", "1h")):
            args = ["--data-dir=" + self.path(name), "--pubsub-url=" + self.pubsub_url, "--keep=0", "--keep-minutes=0", "--keep-wide=0"]
            db = self.start("metricdb", *args, "--cursor=" + name, "--block=" + block)
            self.assertEqual(list(self.value(db, "up", T).values()), [1])

        def kept():
            return {c["name"]: int(c["offset"]) for c in request(self.pubsub_url, "GET", "/cursors?stream=metrics").json()["cursors"]}
        wait_until(lambda: kept() == {"metricdb": self.read_to(db), "second": 0}, kept)

    def test_lost_blocks(self):
        """metricdb does not start without one of its blocks until the operator accepts the loss, once."""
        self.pubsub()
        db = self.metricdb("--block=1s")
        for k in range(3):
            self.publish((up(k), T + k * 10 * S, k))
            self.wait_read(db)
            wait_until(lambda: db.stats()["blocks_written_total"] > k, lambda: db.stats())
        db.stop()
        os.unlink(self.path("m", "blocks", "10000-0000000001-0000000002.block"))
        db = self.metricdb(ready=False)
        self.assertNotEqual(db.process.wait(harness.PATIENCE), 0)
        self.assertIn("missing before", db.log)
        self.assertIn("--accept-loss", db.log)
        for args in (["--accept-loss"], []):
            db = self.metricdb(*args)
            self.assertEqual(sorted(self.value(db, "up", T + 30 * S).values()), [0, 2])
            self.assertEqual("the loss of blocks is accepted" in db.log, bool(args))
            db.stop()

    def test_series_beyond_the_limit(self):
        self.pubsub()
        self.publish(*((up(i), T + k, 1) for k in range(2) for i in range(5)))
        db = self.metricdb("--max-series=3")
        self.wait_read(db)
        self.assertEqual(self.value(db, "count(up)", T + S), {(): 3})
        self.assertEqual(db.stats()["samples_dropped_total"]["reason=\"max_series\""], 4)

    def test_blocks_and_restarts(self):
        """Answers do not depend on where blocks end, and a start reads only the lines after the last block."""
        pubsub = self.pubsub()
        db = self.metricdb("--block=1s")
        for k in range(4):
            self.publish(*((up(i), T + k * 60 * S + j * 10 * S, k * 6 + j) for j in range(6) for i in range(3)))
            self.wait_read(db)
            wait_until(lambda: db.stats()["blocks_written_total"] > k, lambda: db.stats())
        expected = [(q, self.value(db, q, T + 240 * S)) for q in ("up", "rate(up[3m])", "count_over_time(up[10m])", "sum(max_over_time(up[150s]))")]
        self.assertEqual(expected[2][1][(("instance", "host0"), ("job", "node"))], 24)
        wait_until(lambda: self.kept() == db.stats()["read_offset"], "retention to keep no line that a block has")
        db.stop()
        db = self.metricdb("--block=1h")
        self.assertEqual([(q, self.value(db, q, T + 240 * S)) for q, _ in expected], expected)
        self.assertEqual(db.stats()["samples_total"], 0)
        pubsub.stop()
        db.kill9()
        db = self.metricdb()  # ready without pubsub
        self.assertEqual([(q, self.value(db, q, T + 240 * S)) for q, _ in expected], expected)
        self.assertIn("warning", db.get("/health").text)

    def test_a_block_that_cannot_be_written(self):
        """Samples stay in memory and the stream waits, until the block can be written. Queries work meanwhile."""
        self.pubsub()
        db = self.metricdb("--block=1s")
        self.publish(*((up(0), T + k * S, 1) for k in range(10)))
        self.wait_read(db)
        wait_until(lambda: db.stats()["blocks_written_total"] == 1, "a block")
        kept = wait_until(lambda: self.kept() == db.stats()["read_offset"] and self.kept(), lambda: self.kept())
        os.rename(self.path("m", "blocks"), self.path("m", "away"))
        self.publish(*((up(0), T + k * S, 1) for k in range(10, 20)))
        wait_until(lambda: "blocks" in db.get("/health").text, lambda: db.get("/health").text)
        self.publish(*((up(0), T + k * S, 1) for k in range(20, 30)))
        self.assertEqual(self.value(db, "sum_over_time(up[1m])", T + 19 * S), {(("instance", "host0"), ("job", "node")): 20})
        self.assertEqual(self.kept(), kept, "retention keeps the lines that no block has")
        os.rename(self.path("m", "away"), self.path("m", "blocks"))
        self.wait_read(db)
        wait_until(lambda: db.get("/health").text == "ready\n", lambda: db.get("/health").text)
        for _ in range(2):
            self.assertEqual(self.value(db, "sum_over_time(up[1m])", T + 30 * S), {(("instance", "host0"), ("job", "node")): 30})
            db.kill9()
            db = self.metricdb()
            self.wait_read(db)

    def test_another_stream(self):
        """A stream that was made anew, or lost lines, stops the feed until the operator accepts the loss; queries go on."""
        pubsub = self.pubsub()
        self.publish((up(0), T, 1))
        db = self.metricdb("--block=1s")
        self.wait_read(db)
        wait_until(lambda: db.stats()["blocks_written_total"] > 0, "a block")
        db.stop()
        pubsub.stop()
        harness.shutil.rmtree(self.path("p"))
        self.pubsub()
        self.publish((up(0), T + 20 * S, 5))
        db = self.metricdb()
        self.assertIn("another", db.get("/health").text)
        self.assertEqual(self.value(db, "up", T + 30 * S)[tuple(sorted(up(0).items()))], 1)

    def test_a_heavy_query_stops_neither_samples_nor_other_queries(self):
        self.pubsub()
        self.publish(*((up(i), T + k * 10 * S, i) for k in range(100) for i in range(300)))
        db = self.metricdb("--query-threads=2", "--query-timeout=300ms", "--query-max-series=1000000")
        self.wait_read(db)
        heavy = "sum(" + " + ".join("count_over_time(up[%dm])" % m for m in range(10, 60)) + ")"
        answers = []

        def run():
            answers.append(ask(db.url, "query_range", query=heavy, start=T / S, end=T / S + 10000, step=1))
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: db.stats()["queries_running"] > 0 or answers, "the query to run")
        self.publish((up(0, late="yes"), T, 1))
        self.wait_read(db)
        self.assertEqual(self.value(db, "up{late=\"yes\"}", T), {tuple(sorted(up(0, late="yes").items())): 1})
        thread.join(harness.PATIENCE)
        (status, document), = answers
        self.assertEqual((status, document["errorType"], document["error"]), (503, "timeout", "query timed out in expression evaluation"))
        wait_until(lambda: db.stats()["queries_running"] == 0, "no query to run")

    def test_a_client_that_leaves(self):
        """The query of a client that disconnects ends, also while it waits for a thread. Alone these queries would take an hour."""
        self.pubsub()
        self.publish(*((up(i), T + k * 10 * S, i) for k in range(100) for i in range(300)))
        db = self.metricdb("--query-threads=1", "--query-timeout=1h", "--query-max-series=1000000", "--query-max-buckets=1000000000")
        self.wait_read(db)
        term = "quantile_over_time(0.5, up[59m])"
        form = urllib.parse.urlencode({"query": " + ".join([term] * 200), "start": T / S, "end": T / S + 10000, "step": 1})
        clients = []
        for n in range(3):
            c = socket.create_connection(("127.0.0.1", int(db.url.rpartition(":")[2])))
            self.addCleanup(c.close)
            c.sendall(b"GET /api/v1/query_range?%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % form.encode())
            clients.append(c)
            wait_until(lambda: (db.stats()["queries_running"], db.stats()["queries_waiting"]) == (1, n), lambda: db.stats())
        clients[1].close()
        wait_until(lambda: (db.stats()["queries_running"], db.stats()["queries_waiting"]) == (1, 1), lambda: db.stats())
        clients[0].close()
        wait_until(lambda: (db.stats()["queries_running"], db.stats()["queries_waiting"]) == (1, 0), lambda: db.stats())
        db.stop()  # a query ends with 503, so that metricdb can stop
        self.assertIn(b" 503 ", clients[2].recv(1000))

    def test_kills(self):
        """kill -9 at random while samples arrive and blocks are cut: every sample once."""
        rng = harness.seeded()
        self.pubsub()
        model, k, last = {}, 0, 0
        for _ in range(min(harness.rounds(6), 60)):
            db = self.metricdb("--block=1s", ready=False)
            deadline = time.monotonic() + rng.uniform(0.2, 2)
            while time.monotonic() < deadline:
                lines = []
                for _ in range(rng.randrange(1, 5)):
                    k += 1
                    for i in range(20):
                        lines.append((up(i), T + k * 1000 + i, rng.randrange(100)))
                        model.setdefault(i, []).append(lines[-1][2])
                self.publish(*lines)
                time.sleep(rng.uniform(0, 0.05))
            db.kill9()
        db = self.metricdb()
        self.wait_read(db)
        at, window = T + k * 1000 + 100, "%dms" % (k * 1000 + 200)
        for function, expected in (("count", len), ("sum", sum), ("min", min), ("max", max), ("last", lambda v: v[-1])):
            found = self.value(db, "%s_over_time(up[%s])" % (function, window), at)
            self.assertEqual({dict(labels)["instance"]: v for labels, v in found.items()}, {"host%d" % i: expected(v) for i, v in model.items()}, function)


class Together(ScraperTest):
    def test_scraper_to_query(self):
        target = self.target({"/metrics": "# TYPE a counter\na_total{code=\"200\"} 5\n"})
        self.write_targets((target.address, {"job": "web"}))
        self.pubsub()
        self.scraper()
        db = self.start("metricdb", "--data-dir=" + self.path("m"), "--pubsub-url=" + self.url)
        own = {"instance": target.address, "job": "web"}

        def found():
            data = ask(db.url, "query", query="{job=\"web\"}")[1]["data"]["result"]
            return {s["metric"]["__name__"]: s for s in data}
        series = wait_until(lambda: "a_total" in found() and found(), found)
        self.assertEqual(set(series), {"a_total", "up", "scrape_duration_seconds", "scrape_samples_scraped"})
        self.assertEqual((series["a_total"]["metric"], series["a_total"]["value"][1]), ({"__name__": "a_total", "code": "200", **own}, "5"))
        target.pages["/metrics"] = "b 1\n"
        wait_until(lambda: "a_total" not in found() and "b" in found(), found)


if __name__ == "__main__":
    harness.main()
