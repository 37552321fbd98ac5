"""An API over three cells, with events divided by a hash of the user, answers each question as one pipeline with all events: before,
between and after compactions of single cells, and while daemons are killed. A cell that is away, slow, or counts otherwise is named."""
# seconds: 60
# parts: 5
# full: MILLRACE_ROUNDS=100
# processors: 2
import json
import os
import signal
import threading
import time
import zlib

import harness
from harness import query, seeded, wait_until
from sortdb_case import point_at, write_generation
from test_api import MARCH, Source, hour_text
from test_api_partial import refuse, short
from test_api_sources import Archive

COUNTERS = """
[input]
time = t
resolution = 15m
[total all]
key = "all"
label = feed
[subtotal u.all]
key = l
label = user
[total u]
key = l
label = user
[subtotal c.u]
key = c
label = country
[subtotal m.u]
key = m
label = page
[subtotal ms.u]
key = bucket(ms)
label = ms
[unique v.u]
member = v
label = visitor
[unique q.u]
member = v
by = quarter
label = quarterly
[total revenue]
key = l
value = price
scale = 2
[subtotal c.revenue]
key = c
[total buys]
key = l
having = price
[subtotal c.buys]
key = c
"""
CELLS = ("east", "north", "west")
USERS = ["a", "b,c", "a user with a long name", "é", "z"]
COUNTRIES = ["JP", "US", "Côte d'Ivoire", "a country with a long name"]
START, DAYS, DAY, MINUTE = 1772323200, 40, 86400, 60  # 2026-03-01
SPAN = {"from_": START, "to": START + DAYS * DAY}
VOLATILE = ("complete_until", "complete", "held_by")


def cell_of(event):
    return CELLS[zlib.crc32(event["v"].encode()) % len(CELLS)]


def settled(answer):
    """Without the members that depend on the time of the question."""
    if isinstance(answer, dict):
        return {name: settled(value) for name, value in answer.items() if name not in VOLATILE}
    return [settled(value) for value in answer] if isinstance(answer, list) else answer


def questions(minutes):
    """(path, parameters) of each kind. `minutes`: a span of the last minutes."""
    for unit, zone in (("day", "America/New_York"), ("hour", "Asia/Kolkata"), ("15m", "UTC"), ("month", "Australia/Lord_Howe"), ("mweek", "UTC")):
        yield "series", {"user": "a", "unit": unit, "timezone": zone, **SPAN}
    yield "series", {"user": USERS, "unit": "week", **SPAN}
    yield "series", {"feed": "", "period": "all", "unit": "month"}
    yield "series", {"user": "a user with a long name", "by": "country", "sub": COUNTRIES[2:], **SPAN}
    yield "series", {"feed": "", "by": "user", "top": 2, **SPAN}
    yield "series", {"revenue": "a", "mean": 1, **SPAN}
    yield "series", {"user": "never counted", **SPAN}
    for limit in (1, 3, 20, 1000):
        yield "breakdown", {"user": "a", "by": "page", "limit": limit, **SPAN}
        yield "top", {"counter": "user", "limit": limit, "timezone": "Asia/Kathmandu", **SPAN}
    yield "breakdown", {"user": "z", "by": "page", "limit": 4, "period": "all"}
    yield "breakdown", {"revenue": "b,c", "by": "c", "mean": 1, **SPAN}
    yield "breakdown", {"user": "é", "by": "country", "against": "before", "from_": START + 20 * DAY, "to": START + DAYS * DAY}
    yield "compare", {"user": "a", "unit": "week", "from_": START + 21 * DAY, "to": START + 35 * DAY}
    yield "quantile", {"user": "a", "by": "ms", "q": "0.1,0.5,0.99", **SPAN}
    yield "quantile", {"user": "b,c", "by": "ms", "q": "0.5", "unit": "week", **SPAN}
    yield "uniques", {"user": "a", "unit": "week", "count": "visitor", **SPAN}
    yield "uniques", {"user": ["a", "z"], "unit": "day", "window": 7, "count": "visitor", **SPAN}
    yield "uniques", {"user": "é", "unit": "hour", "count": "quarterly", "timezone": "Asia/Kolkata", "from_": START, "to": START + 2 * DAY}
    yield "retention", {"user": "a", "unit": "week", "count": "visitor", **SPAN}
    yield "cohort", {"all": "user:a", "not": "user:z", "count": "visitor", **SPAN}
    yield "series", {"user": "a", "unit": "minute", **minutes}
    yield "breakdown", {"user": "a", "by": "page", "limit": 2, "unit": "minute", **minutes}
    yield "top", {"counter": "user", "limit": 3, "unit": "minute", **minutes}


class Cells(harness.MillraceTest):
    def begin(self, counters=None):
        """The pipelines `one` and those of the cells, and the API over the cells."""
        self.random = seeded()
        self.events, self.pipelines, self.ports, self.counters = [], {}, {}, counters or {}
        for name in ("one", *CELLS):
            self.ports[name] = {"aggregator": {"port": self.keep_port()}, "sortdb": {"port": self.keep_port()}}
            self.pipelines[name] = self.up(name, self.counters.get(name, COUNTERS), wait=False)
        for pipeline in self.pipelines.values():
            pipeline.wait_ready()
        self.config = self.write("cells.conf", self.sections() + COUNTERS)
        self.api = self.start("api", "--config", self.config)

    def up(self, name, counters=COUNTERS, wait=True):
        """The stream of one cell has another name, as that of a cluster of its own."""
        stream = {"streams": "visits" if name == "north" else "clicks"}
        config = self.write(name + ".conf", harness.pipeline_config(
            self.path(name), counters, millrace=dict(stream), pubsub=dict(stream),
            **{daemon: dict(settings) for daemon, settings in self.ports[name].items()}))
        pipeline = harness.Pipeline(self, config, self.path(name))
        return pipeline.wait_ready() if wait else pipeline

    def url(self, cell, daemon):
        return "http://127.0.0.1:" + self.ports[cell][daemon]["port"]

    def sections(self):
        """The API maps the archive of one cell, and asks sortdb for the others."""
        return "".join("[cell %s]\naggregator_url = %s\n%s\n" % (
            cell, self.url(cell, "aggregator"),
            "archive = " + self.path(cell, "archive") if cell == CELLS[0] else "sortdb_url = " + self.url(cell, "sortdb")) for cell in CELLS)

    def event(self, recent):
        rng = self.random
        e = {"t": int(time.time()) - rng.randrange(20) * MINUTE if recent else START + rng.randrange(DAYS * DAY), "l": rng.choice(USERS),
             "c": rng.choice(COUNTRIES), "m": "page with a long name %d" % min(int(rng.expovariate(0.1)), 40), "v": "visitor %d" % rng.randrange(60),
             "ms": rng.randrange(3000)}
        if rng.random() < 0.5:
            e["price"] = "%d.%02d" % (rng.randrange(-9, 90), rng.randrange(100))
        return e

    def put(self, n):
        added = [self.event(i % 5 == 0) for i in range(n)]
        self.events += added
        for name, pipeline in self.pipelines.items():
            own = [json.dumps(e, ensure_ascii=False) for e in added if name in ("one", cell_of(e))]
            self.assertEqual(pipeline.ask("simplequeue", "POST", "/mput", "\n".join(own).encode()).status, 200)
        self.wait_counted()

    def wait_counted(self, names=("one", *CELLS)):
        for name in names:
            n = sum(name in ("one", cell_of(e)) for e in self.events)
            wait_until(lambda: self.pipelines[name].ask("aggregator", "GET", "/stats?format=json").json()["events_total"] == n,
                       "%s to count %d events" % (name, n), timeout=harness.LONG)

    def compact(self, *names):
        for name in names:
            done = self.run_program("millrace", "compact", "--config", self.path(name + ".conf"))
            self.assertEqual(done.returncode, 0, done)

    def minutes(self):
        now = int(time.time()) // MINUTE * MINUTE
        return {"from_": now - 15 * MINUTE, "to": now - MINUTE}

    def ask(self, path, status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(**params)))
        self.assertEqual(reply.status, status, (path, params, reply))
        return reply

    def expected(self, path, params):
        reply = self.pipelines["one"].ask("api", "GET", "/v1/%s?%s" % (path, query(**params)))
        self.assertEqual(reply.status, 200, (path, params, reply))
        return settled(reply.json())

    def check(self):
        minutes = self.minutes()
        target = "/v1/series?" + query(feed="", unit="minute", **minutes)
        wait_until(lambda: self.api.get(target).status == 200, "the minutes to be held, also after a restart", timeout=harness.LONG)
        for path, params in questions(minutes):
            with self.subTest(path=path, **params):
                got = self.ask(path, **params).json()
                self.assertEqual(settled(got), self.expected(path, params))
        self.check_lookups()

    def check_lookups(self):
        for params in ({"prefix": ""}, {"contains": "LONG"}, {"prefix": "a", "counter": "user"}):
            for limit in (1, 2, 100):
                rows = []
                for ask in (lambda **p: self.ask("lookup", **p).json(),
                            lambda **p: self.pipelines["one"].ask("api", "GET", "/v1/lookup?" + query(**p)).json()):
                    found, more = [], {}
                    while more is not None:
                        got = ask(limit=limit, **params, **more)
                        found += got["rows"]
                        more = {"continuation": got["continuation"]} if "continuation" in got else None
                    rows.append(found)
                self.assertEqual(rows[0], rows[1])
                self.assertTrue(rows[0])

    def check_pages(self):
        """The rows of a breakdown, three at a time."""
        params = {"user": "a", "by": "page", **SPAN}
        rows, after = [], None
        while True:
            got = self.ask("breakdown", limit=3, after=after, **params).json()
            rows += got["rows"]
            after = got.get("next")
            if after is None:
                break
        self.assertEqual(settled([r["key"] for r in rows]), [r["key"] for r in self.expected("breakdown", {"limit": 1000, **params})["rows"]])

    def test_answers_are_those_of_one_pipeline(self):
        self.begin()
        self.put(1500)
        self.check()
        for names in (("east",), ("west", "one"), ("north", "east"), CELLS):
            self.compact(*names)
            self.check()
            self.put(300)
            self.check()
        self.check_pages()
        self.check_completeness()
        self.check_shown()

    def check_completeness(self):
        """complete_until is the least of the cells."""
        until = lambda: [int(self.pipelines[c].ask("aggregator", "GET", "/stats?format=json").json()["complete_until"]) for c in CELLS]
        wait_until(lambda: min(until()) > START + DAYS * DAY, "all events of the span to be complete")
        got = self.ask("series", user="a", unit="month", **SPAN).json()
        self.assertTrue(all(r["complete"] for r in got["rows"]), got)
        before = until()
        fresh = self.ask("freshness").json()
        self.assertTrue(min(before) <= fresh["complete_until"] <= min(until()), (before, fresh))
        self.assertEqual(sorted(s["cell"] for s in fresh["streams"]), sorted(CELLS))
        self.assertIn(fresh["archive"]["cell"], CELLS)
        self.assertEqual(fresh["missing"], [])
        self.assertEqual(fresh["newest_event"], max(e["t"] for e in self.events))

    def check_shown(self):
        self.assertEqual(self.api.get("/health").status, 200)
        metrics = lambda: self.api.get("/metrics").text
        for cell in CELLS:
            wait_until(lambda: 'millrace_api_cell_ready{cell="%s"} 1\n' % cell in metrics(), metrics)
        shown = wait_until(lambda: self.shown(("ready",)), "all daemons of the cells to be ready")
        self.assertEqual(sorted(shown), sorted([("aggregator", c) for c in CELLS] + [("sortdb", c) for c in CELLS[1:]]))
        counted = sum(cell_of(e) in CELLS for e in self.events)
        history = lambda: self.api.get("/v1/pipeline").json()["history"]
        wait_until(lambda: history()[-1]["counted"] == counted, lambda: "the history to have all events: %s" % history())

    def shown(self, states):
        """The daemons of the cells in /v1/pipeline, if all are in one of the states."""
        found = {(d["name"], d["cell"]): d["state"] for d in self.api.get("/v1/pipeline").json()["daemons"] if "cell" in d}
        return found if all(state in states for state in found.values()) else None

    def test_answers_do_not_change_while_single_cells_are_compacted_and_killed(self):
        self.begin()
        self.put(800)
        minutes = self.minutes()
        asked = [(path, params, self.expected(path, params)) for path, params in questions(minutes) if "unit=minute" not in query(**params)
                 and params.get("from_") != minutes["from_"]]
        ended, wrong, refused = threading.Event(), [], []

        def watch():
            while not ended.is_set():
                for path, params, answer in asked:
                    reply = self.api.get("/v1/%s?%s" % (path, query(**params)))
                    if reply.status == 503 and any(cell + "/" in reply.json()["detail"] for cell in CELLS):
                        refused.append(reply.json()["detail"])
                    elif reply.status != 200 or settled(reply.json()) != answer:
                        wrong.append((path, params, reply.body))
        watchers = [threading.Thread(target=watch) for _ in range(2)]
        for w in watchers:
            w.start()
        try:
            for cell in (*CELLS, *CELLS[:2]):
                self.compact(cell)
            self.assertEqual(refused, [])  # nothing was killed yet
            for _ in range(harness.rounds(3)):
                cell, daemon = self.random.choice(CELLS), self.random.choice(("aggregator", "sortdb"))
                self.pipelines[cell].kill9_daemon(daemon)
                self.compact(self.random.choice([c for c in CELLS if c != cell]))
                self.wait_counted([cell])
        finally:
            ended.set()
            for w in watchers:
                w.join()
        self.assertEqual(wrong[:1], [])
        wait_until(lambda: self.api.get("/health").status == 200, "all cells to answer")
        self.check()

    def without(self, cell, **wanted):
        return sum(cell_of(e) != cell and START <= e["t"] < START + DAYS * DAY and all(e[k] == v for k, v in wanted.items()) for e in self.events)

    def test_a_cell_that_is_away_or_slow_is_named(self):
        self.begin()
        self.put(600)
        self.compact("west", "north")
        self.put(200)
        self.pipelines["west"].interrupt()
        got = self.ask("series", 503, user="a", **SPAN).json()
        self.assertEqual(got["code"], "upstream-unavailable")
        self.assertRegex(got["detail"], r"^west/sortdb at \S+: .*since 20")
        self.assertEqual([m["source"] for m in got["missing"]], ["west/sortdb"])
        self.ask("lookup", 503, prefix="")
        for partial in ("allow", 30):
            self.check_without_west(partial)
        health = wait_until(lambda: (h := self.api.get("/health")).status == 503 and h, "the api to see that the cell is away")
        self.assertIn("west/aggregator at " + self.url("west", "aggregator"), health.text)
        self.assertNotIn("east", health.text)
        metrics = self.api.get("/metrics").text
        self.assertIn('millrace_api_cell_ready{cell="west"} 0\n', metrics)
        self.assertIn('millrace_api_cell_ready{cell="east"} 1\n', metrics)
        wait_until(lambda: [name for name, state in self.shown(("ready", "unreachable")).items() if state == "unreachable"] ==
                   [("aggregator", "west"), ("sortdb", "west")], "the daemons of the cell to be unreachable")
        fresh = self.ask("freshness").json()
        self.assertEqual(([m["source"] for m in fresh["missing"]], fresh["complete_until"]), (["west/sortdb", "west/aggregator"], None))
        self.pipelines["west"] = self.up("west")
        wait_until(lambda: self.api.get("/health").status == 200, "the cell to answer again")
        self.check()
        harness.slower_and_slower(1, self.left_out_after, tries=3)

    def check_without_west(self, partial):
        reply = self.ask("series", user="a", partial=partial, **SPAN)
        got = reply.json()
        self.assertEqual((got["total"], got["partial"], got["complete_until"]), (self.without("west", l="a"), True, None))
        self.assertEqual([m["source"] for m in got["missing"]], ["west/sortdb", "west/aggregator"])
        self.assertFalse(any(r["complete"] for r in got["rows"]))
        self.assertIn("west/", reply.header("X-Millrace-Missing"))
        got = self.ask("breakdown", user="a", by="page", limit=3, partial=partial, **SPAN).json()
        self.assertEqual(got["total"], self.without("west", l="a"))
        self.assertTrue(all(not r["key"].startswith("\\") and "long name" in r["key"] for r in got["rows"]))
        got = self.ask("uniques", user="a", count="visitor", partial=partial, **SPAN).json()
        self.assertEqual(got["total"], len({e["v"] for e in self.events if e["l"] == "a" and cell_of(e) != "west" and START <= e["t"] < START + DAYS * DAY}))
        self.assertEqual({m["source"] for m in got["missing"]}, {"west/sortdb", "west/aggregator"})

    def left_out_after(self, seconds):
        """An aggregator that hangs: its cell's archive answers."""
        pid = self.pipelines["north"].daemon_pid("aggregator")
        os.kill(pid, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            got = self.ask("series", user="a", partial=seconds, **SPAN).json()
            self.assertEqual(([m["source"] for m in got["missing"]], got["partial"]), (["north/aggregator"], True))
            self.assertGreater(time.monotonic() - begin, 0.9 * seconds)
            self.assertTrue(self.without("north", l="a") < got["total"] < self.expected("series", {"user": "a", **SPAN})["total"], got["total"])
        finally:
            os.kill(pid, signal.SIGCONT)
        got = self.ask("series", user="a", **SPAN).json()
        self.assertEqual(settled(got), self.expected("series", {"user": "a", **SPAN}))

    def test_a_cell_that_does_not_count_the_counter_is_named(self):
        section = "[subtotal c.u]\nkey = c\nlabel = country\n"
        self.assertIn(section, COUNTERS)
        self.begin({"north": COUNTERS.replace(section, "")})
        self.put(300)
        got = self.ask("breakdown", user="a", by="country", **SPAN).json()
        self.assertRegex(got["note"], "^the aggregator of cell north does not count this counter")
        self.assertIsNone(got["complete_until"])
        self.assertFalse(any(r["complete"] for r in got["rows"]))
        self.assertEqual(got["total"], self.without("north", l="a"))
        got = self.ask("series", user="a", **SPAN).json()
        self.assertNotIn("note", got)
        self.assertEqual(settled(got), self.expected("series", {"user": "a", **SPAN}))

    def test_a_compactor_reloads_an_api_that_maps_several_archives(self):
        self.begin()
        self.put(200)
        self.compact(*CELLS)
        self.put(200)
        self.api.stop()
        sections = "".join("[cell %s]\naggregator_url = %s\narchive = %s\n" % (c, self.url(c, "aggregator"), self.path(c, "archive")) for c in CELLS)
        self.api = self.start("api", "--config", self.write("mapped.conf", sections + COUNTERS))
        for cell in CELLS:
            done = self.run_program("compactor", "--config", self.path(cell + ".conf"), "--archive", self.path(cell, "archive"),
                                    "--slices", self.path(cell, "aggregator", "slices"),
                                    "--aggregator-url", self.url(cell, "aggregator"), "--sortdb-url", self.api.url)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.pipelines[cell].ask("aggregator", "GET", "/slices").json()["slices"], [])
        self.check()

    def test_a_pipeline_may_be_a_cell_of_its_own_api(self):
        self.ports = {"here": {"aggregator": {"port": self.keep_port()}, "sortdb": {"port": self.keep_port()}}}
        section = "[cell here]\naggregator_url = %s\nsortdb_url = %s\n" % (self.url("here", "aggregator"), self.url("here", "sortdb"))
        up = self.up("here", section + COUNTERS)
        wait_until(lambda: up.ask("api", "GET", "/health").status == 200, "the cell to answer")
        self.assertEqual(up.ask("api", "GET", "/v1/freshness").json()["archive"]["cell"], "here")

    def test_the_sections_are_checked(self):
        east = "[cell east]\naggregator_url = http://east:8082\nsortdb_url = http://east:8083\n"
        west = "[cell west]\naggregator_url = http://west:8082\narchive = /srv/west\n"
        for text, error in (
                ("[cell]\naggregator_url = http://east:8082\n", "1: [cell NAME] needs a name"),
                ("[cell east]\nsortdb_url = http://east:8083\n", "1: [cell east] needs aggregator_url"),
                ("[cell east]\naggregator_url = http://east:8082\n", "1: [cell east] needs either sortdb_url or archive"),
                (east + "archive = /srv/east\n", "1: [cell east] needs either sortdb_url or archive"),
                (east + "archiv = /srv/east\n", "4: "),
                (east.replace("http://east:8082", "east:port"), "2: aggregator_url \"east:port\" is not an address"),
                (east + west.replace("west:8082", "east:8082"), "5: aggregator_url is also set in [cell east]"),
                (east + "[api]\narchive = /srv/archive\n", "5: archive: it has no effect with [cell NAME]"),
                (east + "[api]\nsql = yes\n", "5: sql: it has no effect with [cell NAME]"),
                (east + "[api]\naggregator_token_file = t\n", "5: aggregator_token_file: it has no effect with [cell NAME]"),
                (east + "[api]\nsortdb_token_file = t\n", "5: sortdb_token_file: it has no effect with [cell NAME]"),
                ("".join(east.replace("east", "c%d" % i) for i in range(65)), "193: more than 64 cells")):
            config = self.write("wrong.conf", text + COUNTERS)
            done = self.run_program("api", "--check-config", "--config", config)
            self.assertEqual(done.returncode, 78, (text, done))
            self.assertIn("wrong.conf:" + error, done.stderr.decode().replace("\\\"", "\""))
        config = self.write("right.conf", east + COUNTERS)
        for setting in ("archive", "sortdb_url", "aggregator_url", "sortdb_token_file", "aggregator_token_file"):
            done = self.run_program("api", "--check-config", "--config", config, "--%s=http://127.0.0.1:1" % setting)
            self.assertEqual(done.returncode, 78, (setting, done))
            self.assertIn("it has no effect with [cell NAME]", done.stderr.decode())
        token = self.write("token", "secret")
        os.chmod(token, 0o600)
        inherited = self.write("inherited.conf", east + "[aggregator]\nauth_token_file = %s\n" % token + COUNTERS)
        done = self.run_program("api", "--check-config", "--config", inherited)
        self.assertEqual(done.returncode, 0, done)
        guide = harness.read_file(os.path.join(harness.ROOT, "docs", "guide", "scaling.md")).decode()
        done = self.run_program("api", "--check-config", "--config", self.write("guide.conf", guide.split("```\n")[1]))
        self.assertEqual(done.returncode, 0, done)
        config = self.write("right.conf", east + west + COUNTERS)
        done = self.run_program("api", "--check-config", "--config", config)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"(?s)\[cell east\]\naggregator_url = http://east:8082.*\[cell west\]\n.*archive = /srv/west")


class PlayedCells(harness.MillraceTest):
    """Two cells whose sortdb and aggregator this test plays."""
    SPAN = {"from_": MARCH, "to": MARCH + 7200, "unit": "hour"}

    def setUp(self):
        super().setUp()
        self.cells = {name: (Archive(self), Source(self)) for name in ("east", "west")}
        for n, sources in zip((3, 30), self.cells.values()):
            for i, source in enumerate(sources):
                source.records = {"u|k": "%s:%d" % (hour_text(MARCH), n + i), "c.u|k." + hour_text(MARCH): "US:%d JP:%d" % (n + i, n)}
        self.begin()

    def begin(self, counters=None):
        sections = "".join("[cell %s]\nsortdb_url = %s\naggregator_url = %s\n" % (name, archive.url, live.url)
                           for name, (archive, live) in self.cells.items())
        self.api = self.start("api", "--config", self.write("cells.conf", sections + (counters or harness.sample_counters())))

    def ask(self, path="series", status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(**{"user": "k", **self.SPAN, **params})))
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def check(self, counts, **params):
        """`counts`: those of US, and of JP, which are of half as many sources."""
        self.assertEqual(self.ask(**params)["total"], counts[0])
        got = self.ask("breakdown", unit=None, by="country", **params)
        self.assertEqual({r["key"]: r["n"] for r in got["rows"]}, dict(zip(("US", "JP"), counts)))
        return got

    def test_a_cell_that_starts_again_doubles_no_count(self):
        for restarts in range(4):
            for name, (_, live) in self.cells.items():
                left = [restarts]

                def cleared(h):
                    if left[0] == 0 or "after=" not in h.path:
                        return False
                    left[0] -= 1
                    h.answer(410, b"", {"X-Millrace-Cleared": 3})
                    return True
                live.act = cleared
                self.assertEqual(self.ask()["total"], 68, name)
                self.assertEqual(left, [0])
                left[0] = restarts
                self.check((68, 66))
                live.act = None

    def test_two_cells_that_always_start_again_end(self):
        def cleared(h):
            if "after=" not in h.path:
                return False
            h.answer(410, b"", {"X-Millrace-Cleared": 9})
            return True
        for _, live in self.cells.values():
            live.act = cleared
        got = self.ask(status=503)
        self.assertRegex(got["detail"], "the archive of http://127.0.0.1:[0-9]+ goes to slice 3, but slices up to 9 were cleared")
        self.assertLess(sum(len(live.asked) for _, live in self.cells.values()), 40)
        self.cells["east"][1].act = None
        got = self.ask(partial="allow")
        self.assertEqual((got["total"], {m["source"] for m in got["missing"]}), (7, {"west/sortdb", "west/aggregator"}))
        self.assertIn("goes to slice 3", got["missing"][0]["error"])

    def test_half_a_reply_is_in_no_sum(self):
        archive, live = self.cells["west"]
        for act in (short, refuse):
            live.act, archive.act = act, archive.reply
            self.ask(status=503)
            got = self.check((37, 36), partial="allow")
            self.assertEqual([m["source"] for m in got["missing"]], ["west/aggregator"])
            for archive.act in (short, refuse):
                got = self.check((7, 6), partial="allow")
                self.assertEqual([m["source"] for m in got["missing"]], ["west/sortdb", "west/aggregator"])
                self.assertIsNone(got["complete_until"])
            self.cells["east"][1].act, archive.act = act, archive.reply
            got = self.check((33, 33), partial="allow")  # one of the failures begins both cells again
            self.assertEqual({m["source"] for m in got["missing"]}, {"east/aggregator", "west/aggregator"})
            self.cells["east"][1].act = None
        archive.act = refuse
        for source in self.cells["east"]:
            source.act = refuse
        self.assertEqual(len(self.ask(status=503, partial="allow")["missing"]), 4)

    def test_sources_that_are_late_at_the_same_time_are_left_out_together(self):
        self.api.stop()
        self.cells = {name: (Archive(self), Source(self)) for name in ("east", "north", "south", "west")}
        released = threading.Event()
        self.addCleanup(released.set)

        def hang(h):
            if "after=" in h.path:
                released.wait(harness.PATIENCE)
            return False
        for archive, live in self.cells.values():
            archive.records["u|k"], live.records["u|k"] = hour_text(MARCH) + ":10", hour_text(MARCH) + ":1"
        self.begin()
        late = list(self.cells)[:3]
        for name in late:
            self.cells[name][1].act = hang
        got = self.ask(partial=2)
        self.assertEqual((got["total"], {m["source"] for m in got["missing"]}), (41, {name + "/aggregator" for name in late}))
        for name in late:  # a second request would cost the time a second time
            self.assertEqual(len([path for path in self.cells[name][1].asked if "after=" in path]), 1, name)

    def test_completeness_is_the_least_of_the_cells(self):
        (_, east), (_, west) = self.cells.values()
        east.complete_until, west.complete_until, east.since, west.since = MARCH + 7200, MARCH + 3600, MARCH + 1800, MARCH - 3600
        got = self.ask()
        self.assertEqual((got["complete_until"], got["counted_since"]), (MARCH + 3600, MARCH + 1800))
        self.assertEqual([r["complete"] for r in got["rows"]], [False, False])
        east.since = None
        self.assertEqual([r["complete"] for r in self.ask()["rows"]], [True, False])

        def held(h):
            h.answer(200, b"", {"X-Millrace-Complete-Until": MARCH, "X-Millrace-Held-By": "clicks/web2"})
            return True
        west.act = held
        self.assertEqual(self.ask()["held_by"], "west/clicks/web2")

    def test_quarter_hours_are_known_once_every_cell_counts_them(self):
        since = {}

        def answers(name, source):
            def act(h):
                if not h.path.startswith(("/mget", "/range")):
                    return False
                h.answer(200, b"", {"X-Millrace-Complete-Until": MARCH, **({"X-Millrace-Quarters-Since": since[name]} if name in since else {})})
                return True
            source.act = act
        for name, (_, live) in self.cells.items():
            answers(name, live)
        self.api.stop()
        self.begin(harness.sample_counters().replace("[input]", "[input]\nresolution = 15m"))
        zone = {"timezone": "Asia/Kolkata", "from_": MARCH + 1800, "to": MARCH + 5400}
        for times, status in (({}, 422), ({"east": MARCH}, 422), ({"east": MARCH, "west": MARCH}, 200), ({"east": MARCH, "west": MARCH + 3600}, 422),
                              ({"west": MARCH}, 422), ({"east": MARCH - 3600, "west": MARCH}, 200)):
            since.clear()
            since.update(times)
            self.ask(status=status, **zone)

    def test_a_single_cell_is_checked_without_a_question(self):
        self.api.stop()
        del self.cells["west"]
        self.begin()
        ready = lambda: [line for line in self.api.get("/metrics").text.splitlines() if line.startswith("millrace_api_cell_ready{")]
        for check, value in ((200, 1), (503, 0), (200, 1)):
            for source in self.cells["east"]:
                source.check = check
            wait_until(lambda: ready() == ['millrace_api_cell_ready{cell="east"} %d' % value], lambda: "%d, not %s" % (value, ready()))

    def test_reload_opens_the_archive_of_each_cell(self):
        self.api.stop()
        archives = {name: self.path(name) for name in ("north", "south")}
        for name, archive in archives.items():
            os.mkdir(archive)
        generation = lambda name, n: (write_generation(archives[name], n, n, [(b"u|k", b"%s:%d" % (hour_text(MARCH).encode(), n))]),
                                      point_at(archives[name], n))
        sections = "".join("[cell %s]\narchive = %s\naggregator_url = %s\n" % (name, archive, live.url)
                           for (name, archive), (_, live) in zip(archives.items(), self.cells.values()))
        sections += "[cell east]\nsortdb_url = %s\naggregator_url = http://127.0.0.1:1\n" % self.cells["east"][0].url
        self.api = self.start("api", "--config", self.write("mapped.conf", sections + harness.sample_counters()))
        reply = self.api.post("/reload")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "reload-failed"))
        generation("south", 1)
        north, south = self.reload()
        self.assertEqual((north["cell"], south), ("north", {"cell": "south", "generation": 1, "through": 1, "content": south["content"]}))
        self.assertIn("current", north["error"])
        for n in (2, 3):
            for name in archives:
                generation(name, n)
            self.assertEqual([(a["cell"], a["generation"], a["through"]) for a in self.reload()], [("north", n, n), ("south", n, n)])
        generation("south", 4)
        self.reload()
        metrics = self.api.get("/metrics").text
        for name, n in (("north", 3), ("south", 4)):
            self.assertIn('millrace_api_archive_generation{cell="%s"} %d\n' % (name, n), metrics)
            self.assertIn('millrace_api_archive_made{cell="%s"} ' % name, metrics)
        self.assertEqual(self.api.get("/reload?format=text").status, 400)

    def reload(self):
        reply = self.api.post("/reload?format=json")
        self.assertEqual(reply.status, 200, reply)
        return reply.json()["archives"]


if __name__ == "__main__":
    harness.main()
