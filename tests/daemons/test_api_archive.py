"""An api that maps the archive itself: the answers of one that asks sortdb, exact through every change of the generation."""
import base64
import collections
import hashlib
import json
import os
import re
import signal
import threading

import harness
import test_api
from harness import query, wait_until
from sortdb_case import point_at, write_generation, SortdbTest
from test_api import MARCH, hour_text
from test_api_rollups import COUNTRIES, DAY, HOUR, START, records_of

SPAN = {"from_": MARCH, "to": MARCH + 7200, "unit": "hour"}


class ArchiveCase(SortdbTest):
    def setUp(self):
        super().setUp()
        self.config = self.write("test.conf", harness.sample_counters())
        self.archive = self.path("archive")
        os.mkdir(self.archive)
        self.live = test_api.Source(self)

    def begin(self, records, number=1, through=1, shards=1):
        write_generation(self.archive, number, through, list(records), shards)
        point_at(self.archive, number)

    def start_api(self, *args):
        api = self.start("api", "--config", self.config, "--aggregator-url", self.live.url, *args)
        if "--archive" in args:
            wait_until(lambda: "reading the archive" in api.log, lambda: api.log)
        return api

    def mapped(self, *args):
        self.api = self.start_api("--archive", self.archive, *args)
        return self.api

    def total(self, user="k", **params):
        return self.api.get("/v1/series?" + query(user=user, **{**SPAN, **params}))


class SameAnswersTest(ArchiveCase):
    def test_as_sortdb_answers(self):
        rng = harness.seeded()
        hours = {START + h * HOUR: collections.Counter({c: rng.randrange(1, 9) for c in rng.sample(COUNTRIES, 3)})
                 for h in range(366 * 24) if rng.random() < 0.3}
        names = [base64.b64encode(hashlib.md5(b"http://%d.example/" % i).digest()[:8]) for i in range(20000)]
        wide = b" ".join(b"%s:%d" % (name, i % 7 + 1) for i, name in sorted(enumerate(names), key=lambda x: x[1]))
        records = list(records_of("k", hours)) + [
            (b"u|k", " ".join("%s:%d" % (hour_text(t), sum(n.values())) for t, n in sorted(hours.items())).encode()),
            (b"u|other", hour_text(MARCH).encode() + b":4"), (b"r.u|k." + hour_text(MARCH).encode(), wide)]
        records += [(b"lookup|" + name, b"http://%d.example/" % i) for i, name in enumerate(names)]
        self.assertGreater(len(wide), 256 << 10)
        self.live.records["u|k"] = hour_text(MARCH) + ":100"
        for shards in (1, 3):
            self.begin(records, shards, 1, shards)
            sortdb = self.start("sortdb", "--archive", self.archive)
            apis = self.mapped(), self.start_api("--sortdb-url", sortdb.url)
            spans = [{"from_": t, "to": t + rng.randrange(1, 90 * 24) * HOUR, "unit": rng.choice(("hour", "day", "month")),
                      "timezone": rng.choice(("UTC", "America/New_York"))} for t in (START + rng.randrange(300 * 24) * HOUR for _ in range(12))]
            targets = [path + "?" + query(**{**span, **params}) for span in spans for path, params in (
                ("series", {"user": "k"}), ("series", {"user": "absent"}), ("series", {"user": "k", "by": "country", "sub": "US"}),
                ("compare", {"user": "k"}), ("breakdown", {"user": "k", "by": "country", "unit": None}),
                ("series", {"user": "k", "by": "country", "top": 2}))]
            targets += ["breakdown?" + query(user="k", by="referrer", limit=n, from_=MARCH, to=MARCH + 7200) for n in (1, 10, 5000)]
            targets += ["series?user=k&user=other&" + query(**SPAN), "series?user=k&by=country&sub=US&sub=JP&" + query(**SPAN),
                        "series?user=k&by=referrer&sub=http%3A%2F%2F7.example%2F&" + query(**SPAN)]
            for target in targets:
                got, expected = (api.get("/v1/" + target) for api in apis)
                self.assertEqual((got.status, expected.status), (200, 200), (target, got, expected))
                self.assertEqual(got.body, expected.body, target)
            self.assertEqual(self.total().json()["total"], 100 + sum(hours.get(MARCH + h, collections.Counter()).total() for h in (0, HOUR)))


class SwitchTest(ArchiveCase):
    def records(self, n):
        return [(b"u|k", b"%s:%d" % (hour_text(MARCH).encode(), n))]

    def aggregator(self, cleared, left):
        """Has cleared slices through `cleared`, and counts `left` after each through."""
        def act(h):
            after = int(re.search(r"after=(\d+)", h.path)[1])
            if after < cleared:
                h.answer(410, b"", {"X-Millrace-Cleared": cleared})
            else:
                body = b"u|k,%s:%d\n" % (hour_text(MARCH).encode(), left[after]) if left[after] else b""
                h.answer(200, body, {"X-Millrace-Complete-Until": 4000000000})
            return True
        self.live.act = act

    def test_after_410_the_new_generation_answers(self):
        self.begin(self.records(10))
        self.mapped()
        self.aggregator(1, {1: 5})
        self.assertEqual(self.total().json()["total"], 15)
        self.begin(self.records(15), 2, 2)
        self.aggregator(2, {2: 0})
        self.assertEqual(self.total().json()["total"], 15)  # at once: the api has not looked yet
        self.assertIn("&after=2", self.live.asked[-1])

    def test_it_notices_a_new_generation_by_itself(self):
        self.begin(self.records(10))
        self.mapped()
        self.begin(self.records(15), 2, 2)
        self.aggregator(0, {1: 5, 2: 0})
        wait_until(lambda: self.total().json()["total"] == 15 and "after=2" in self.live.asked[-1], lambda: self.api.log)

    def test_an_archive_that_lacks_what_was_cleared_is_named(self):
        self.begin(self.records(10))
        self.mapped()
        self.aggregator(2, {2: 0})
        self.live.check, self.live.cleared = 410, 2
        reply = self.total()
        self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"))
        self.assertEqual(reply.json()["detail"], "the archive of %s goes to slice 1, but slices up to 2 were cleared" % self.archive)
        self.assertTrue(reply.json()["hint"].startswith("make `current` a link to the newest generation"), reply)
        wait_until(lambda: self.api.get("/health").status == 503, lambda: self.api.log)
        notice, = json.loads(self.api.get("/health?format=json").text)["notices"]
        self.assertIn("the archive goes to slice 1, but slices up to 2 were cleared", notice["text"])
        self.assertEqual(notice["remedy"], reply.json()["hint"])
        self.begin(self.records(15), 2, 2)
        wait_until(lambda: self.api.get("/health").status == 200, lambda: self.api.log)

    def test_a_damaged_generation_is_not_used(self):
        self.begin(self.records(10))
        self.mapped()
        self.aggregator(0, {1: 5, 2: 0})
        directory = write_generation(self.archive, 2, 2, self.records(15))
        harness.flip(os.path.join(directory, "shard-0-of-1.csv"), 2)
        point_at(self.archive, 2)
        wait_until(lambda: "the former generation stays in use" in self.api.log, lambda: self.api.log)
        self.assertEqual(self.total().json()["total"], 15)
        reply = self.api.post("/reload")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "reload-failed"))
        self.assertIn("checksum", reply.json()["detail"])
        self.assertIn("warning: cannot open the archive, the former generation stays in use: ", self.api.get("/health").text)
        self.begin(self.records(15), 3, 2)
        self.assertEqual(self.api.post("/reload?format=json").json()["generation"], 3)
        self.assertEqual(self.total().json()["total"], 15)
        self.assertIn("after=2", self.live.asked[-1])

    def test_a_file_that_is_written_to_in_place(self):
        self.begin(self.records(10) + [(b"u|y", b"c3p1:1")])
        self.mapped()
        path = os.path.join(self.archive, "current", "shard-0-of-1.csv")
        os.utime(path, (1, 1))
        self.assertEqual(self.total().json()["total"], 10)
        wait_until(lambda: self.api.log.count("reading the archive") == 2, lambda: self.api.log)
        self.assertEqual(self.total().json()["total"], 10)  # the bytes are the same
        whole = harness.read_file(path)
        harness.flip(path, whole.index(b"u|y") + 2)
        self.assertEqual(self.total("y").status, 503)  # at once, and not an answer without events
        self.assertIn("shard-0-of-1.csv", self.total().json()["detail"])
        with open(path, "r+b") as f:
            f.write(whole)
        self.assertEqual(self.api.post("/reload").status, 200)
        self.assertEqual(self.total().json()["total"], 10)

    def test_a_bit_that_changes_on_the_disk(self):
        """No time of the file shows it: the scrub does."""
        self.begin(self.records(10))
        self.mapped()
        path = os.path.join(self.archive, "current", "shard-0-of-1.csv")
        times = os.stat(path)
        harness.flip(path, harness.read_file(path).index(b":1") + 1)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        wait_until(lambda: self.total().status == 503, lambda: self.total())
        self.assertIn("shard-0-of-1.csv", self.total().json()["detail"])

    def test_a_truncated_file_is_an_error(self):
        self.begin(self.records(10) + [(b"u|x%d" % i, b"c3p1:1") for i in range(5000)])
        self.mapped()
        self.assertEqual(self.total().status, 200)
        os.truncate(os.path.join(self.archive, "current", "shard-0-of-1.csv"), 4096)
        for user in ("k", "x4999"):
            reply = self.total(user)
            self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"))
            self.assertIn("shard-0-of-1.csv", reply.json()["detail"])
        self.assertEqual(self.total(partial="allow").json()["missing"][0]["source"], "archive")

    def test_without_an_archive_at_the_start(self):
        self.api = self.start("api", "--config", self.config, "--aggregator-url", self.live.url, "--archive", self.archive)
        wait_until(lambda: "cannot open the archive: " in self.api.get("/health").text, lambda: self.api.log)
        self.assertEqual(self.api.get("/health").status, 503, "queries get 503")
        self.assertEqual(self.api.get("/").status, 200, "all else works")
        self.assertEqual(self.total().status, 503)
        self.begin(self.records(10))
        wait_until(lambda: self.total().status == 200, lambda: self.api.log)
        self.assertEqual(self.total().json()["total"], 10)
        self.assertEqual(self.api.get("/health").text, "ready\n")

    def test_an_archive_that_counts_a_counter_since_another_time_than_the_aggregator_knows(self):
        """`current` was pointed at a generation from before a recount."""
        self.aggregator(0, {1: 5})
        has, lacks = "total u key = l\n", "total all key = \"all\"\n"
        for n, (counters, more, since, rows) in enumerate((
                (has, {}, None, [15, 0]), (has, {"since": {"u": str(MARCH + 3600)}}, MARCH + 3600, [None, 0]),
                (lacks, {}, 1353283200, [None, None]), (lacks, {"since": {"all": str(MARCH)}}, 1353283200, [None, None])), 1):
            write_generation(self.archive, n, 1, self.records(10), counters=counters, **more)
            point_at(self.archive, n)
            if n == 1:
                self.mapped()
                sortdb = self.start("sortdb", "--archive", self.archive)
                asks = self.start_api("--sortdb-url", sortdb.url)
            for daemon in (self.api, sortdb):
                self.assertEqual(daemon.post("/reload").status, 200)
            for api in (self.api, self.api, asks):  # the second answer is of kept sums
                got = api.get("/v1/series?" + query(user="k", **SPAN)).json()
                self.assertEqual(([r["n"] for r in got["rows"]], got.get("counted_since")), (rows, since), (n, api.name))

    def test_reload_answers_when_the_generation_is_in_use(self):
        self.begin(self.records(10))
        self.mapped()
        for n in range(2, 12):
            self.begin(self.records(n), n, n)
            self.aggregator(n, {n: 1})
            self.assertEqual(self.api.post("/reload?format=json").json()["through"], n)
            self.assertEqual(self.total().json()["total"], n + 1)
            self.assertIn("after=%d" % n, self.live.asked[-1])
        self.assertEqual(self.api.get("/metrics").text.count("millrace_api_archive_generation 11"), 1)

    def test_many_questions_through_many_changes(self):
        """The archive takes over what the aggregator had, again and again: every answer has it once."""
        state = {"through": 1}
        self.begin(self.records(1000))
        self.mapped()

        def act(h):
            now, after = state["through"], int(re.search(r"after=(\d+)", h.path)[1])
            if after < now - 1:
                h.answer(410, b"", {"X-Millrace-Cleared": now - 1})
            else:  # slice n counts n
                left = sum(range(after + 1, 41))
                h.answer(200, b"u|k,%s:%d\n" % (hour_text(MARCH).encode(), left) if left else b"",
                         {"X-Millrace-Complete-Until": 4000000000})
            return True
        self.live.act = act
        truth, wrong, over, answers = 1000 + sum(range(2, 41)), [], threading.Event(), []

        def watch():
            while not over.is_set():
                reply = self.total()
                answers.append(reply.status)
                if reply.status != 200 or reply.json()["total"] != truth:
                    wrong.append(reply)
        threads = [threading.Thread(target=watch, daemon=True) for _ in range(3)]
        for t in threads:
            t.start()
        for n in range(2, 41):
            self.begin(self.records(1000 + sum(range(2, n + 1))), n, n)
            if n % 2:
                self.api.post("/reload")
            state["through"] = n
            seen = len(answers)
            wait_until(lambda: len(answers) > seen + 3, "answers")
        over.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class SettingsTest(ArchiveCase):
    def test_the_archive_goes_before_sortdb(self):
        self.begin([(b"u|k", hour_text(MARCH).encode() + b":7")])
        self.mapped("--sortdb-url", "http://127.0.0.1:1")
        self.assertEqual(self.total().json()["total"], 7)

    def test_reload_without_an_archive(self):
        api = self.start_api()
        self.assertEqual((api.post("/reload").status, api.post("/reload").json()["code"]), (404, "no-archive"))

    def test_a_pipeline_answers_without_sortdb(self):
        """Also with a token that the compactor does not have: it waits for the API's /reload, which needs none."""
        data, token = self.path("data"), self.write("token", "secret")
        os.chmod(token, 0o600)
        config = self.write("pipeline.conf", harness.pipeline_config(data, api={"auth_token_file": token}))
        up = harness.Pipeline(self, config, data).wait_ready()
        bearer = {"Authorization": "Bearer secret"}
        up.ask("api", "POST", "/v1/events", b'{"t":%d,"l":"k"}' % MARCH, headers=bearer)
        target = "/v1/series?" + query(user="k", **SPAN)
        wait_until(lambda: up.ask("api", "GET", target, headers=bearer).json().get("total") == 1, "the count")
        done = self.run_program("millrace", "compact", "--config", config)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(up.ask("aggregator", "GET", "/slices").json()["slices"], [])
        pid = up.daemon_pid("sortdb")
        os.kill(pid, signal.SIGSTOP)
        try:
            self.assertEqual(up.ask("api", "GET", target, headers=bearer).json()["total"], 1)
        finally:
            os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    harness.main()
