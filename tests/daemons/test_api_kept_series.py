"""Series whose archived part the API keeps: every answer, with its ETag, is that of an API that keeps nothing, whatever the aggregator counts
meanwhile and whichever generation is current; the memory is bounded."""
# full: MILLRACE_ROUNDS=20
import collections
import json
import random
import threading

import harness
from harness import query, seeded, wait_until
from test_api import MARCH, hour_text
from test_api_archive import ArchiveCase
from test_api_rollups import DAY, HOUR, START, component

SPANS = [(MARCH - 20 * DAY, MARCH + 20 * DAY), (MARCH - 300 * DAY, MARCH + 100 * DAY), (START + 3 * HOUR, START + 200 * DAY), (MARCH, MARCH + 7200)]
ZONES = [{}, {"timezone": "America/New_York"}, {"hour_offset": 9}, {"timezone": "Asia/Kolkata", "round": "hour"}]
LONG = "http://a.long.text/of/a/key"
ABOUT = [{"user": "k"}, {"user": LONG}, {"user": ["k", LONG]}, {"user": "never"}, {"feed": ""},
         {"user": "k", "by": "country", "sub": "US"}, {"user": "k", "by": "country", "sub": "JP"}]


class Kept(ArchiveCase):
    def hits(self):
        return self.api.get("/stats?format=json").json()["series_cache_hits_total"]

    def questions(self, rng, n):
        """Few enough that most are asked several times in one generation; each has a twin that differs in one parameter."""
        def pick(name):
            start, end = rng.choice(SPANS)
            return {"about": lambda: rng.choice(ABOUT), "zone": lambda: rng.choice(ZONES), "span": lambda: {"from_": start, "to": end},
                    "shape": lambda: rng.choice([{"unit": unit} for unit in ("hour", "day", "week", "mweek", "month")] +
                                                [{"unit": "week", "week_start": day} for day in ("monday", "friday")]),
                    "format": lambda: {"format": rng.choice(["json", "csv"])}}[name]()
        asked, names = [], ("about", "zone", "span", "shape", "format")
        for i in range(n):
            one = {name: pick(name) for name in names}
            other = {**one, names[i % len(names)]: pick(names[i % len(names)])}
            asked += ["/v1/series?" + query(**{k: v for part in q.values() for k, v in part.items()}) for q in (one, other)]
        return asked


class OneGenerationAfterTheOther(Kept):
    """The state changes only between two questions, so the answers are equal byte for byte."""

    def slices(self, rng, n):
        """The counts of each slice: record key -> hour or sub key -> n."""
        slices = []
        for _ in range(n):
            counts = collections.defaultdict(collections.Counter)
            for _ in range(rng.choice([0, 1, 30, 300])):
                t = rng.randrange(START // HOUR, START // HOUR + 300 * 24) * HOUR if rng.random() < 0.5 else MARCH + rng.randrange(40) * HOUR
                k, c = rng.choice(["k", "k", component(LONG.encode()).decode()]), rng.choice(["US", "JP", "(other)"])
                for key in ("u|" + k, "all|all"):
                    counts[key][hour_text(t)] += 1
                counts["c.u|%s.%s" % (k, hour_text(t))][c] += 1
            slices.append(counts)
        return slices

    def records(self, slices):
        sums = collections.defaultdict(collections.Counter)
        for counts in slices:
            for key, n in counts.items():
                sums[key].update(n)
        return {key: " ".join("%s:%d" % c for c in sorted(n.items())) for key, n in sums.items()}

    def show(self, slices, archived):
        """The archive has the first slices, the aggregator the others; both are asked from now on."""
        self.live.records = self.records(slices[archived:])
        if archived != self.archived:
            records = self.records(slices[:archived])
            self.begin([(k.encode(), v.encode()) for k, v in sorted(records.items())], archived + 1, archived)
            self.archived = archived
            for api in (self.api, self.sortdb):
                self.assertEqual(api.post("/reload").status, 200)
            for api, name in ((self.api, "archive_generation"), (self.sortdb, "generation")):
                wait_until(lambda: api.get("/stats?format=json").json()[name] == archived + 1, lambda: api.get("/stats").text)

    def test_any_answer(self):
        rng = seeded()
        slices, self.archived = self.slices(rng, 40), 0
        self.begin([], 1, 0)
        self.sortdb = self.start("sortdb", "--archive", self.archive)
        self.mapped()
        plain = self.start_api("--sortdb-url", self.sortdb.url)
        asked, archived, counted = self.questions(rng, 18), 1, 1
        for i in range(harness.rounds(1) * 60):
            act = rng.random()
            if act < 0.15 and counted < len(slices):
                counted += 1
            elif act < 0.2:
                archived = min(archived + rng.randrange(1, 3), counted)
            elif act < 0.25:
                self.live.complete_until = MARCH + rng.randrange(-5 * DAY, 30 * DAY)
            elif act < 0.27:
                self.live.since = rng.choice([None, MARCH - 3 * DAY, START])
            self.show(slices[:counted], archived)
            for target in rng.sample(asked, 4):
                got, expected = self.api.get(target), plain.get(target)
                what = (i, target, archived, counted)
                self.assertEqual((got.status, got.body), (expected.status, expected.body), what)
                for name in ("ETag", "Cache-Control", "X-Millrace-Complete-Until"):
                    self.assertEqual(got.header(name), expected.header(name), what)
        self.assertGreater(self.hits(), harness.rounds(1) * 60)

    def test_memory_is_bounded(self):
        value = " ".join("%s:1" % hour_text(START + h * HOUR) for h in range(366 * 24)).encode()
        self.begin([(b"u|k%03d" % i, value) for i in range(600)])
        self.mapped()
        span = {"from_": START, "to": START + 366 * DAY, "unit": "day"}

        def ask(i, **more):
            reply = self.api.get("/v1/series?" + query(user="k%03d" % i, **{**span, **more}))
            self.assertEqual(reply.status, 200)
            return reply.body
        first = ask(0)
        self.assertEqual(json.loads(first)["total"], 366 * 24)
        for i in range(600):
            self.assertEqual((ask(i), ask(i)), (first.replace(b"k000", b"k%03d" % i),) * 2)
        self.assertEqual(self.hits(), 600 + 1)
        kept = self.api.get("/stats?format=json").json()["series_cache_bytes"]
        self.assertTrue(8 << 20 < kept <= 16 << 20, kept)
        self.assertEqual(ask(0), first)  # was discarded
        self.assertEqual(self.hits(), 600 + 1)
        ask(599, unit="hour"), ask(599, unit="hour")
        self.assertLessEqual(self.api.get("/stats?format=json").json()["series_cache_bytes"], 16 << 20)


class WhileEventsArrive(harness.MillraceTest):
    """A running pipeline with compactions. Counts only grow, so an answer lies between the answers of an API that keeps nothing, before and
    after it."""

    def hits(self, url):
        return harness.request(url, "GET", "/stats?format=json").json()["series_cache_hits_total"]

    def test_between_the_answers_before_and_after(self):
        rng = seeded()
        data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(data, aggregator={"flush_interval": "50ms"}))
        pipeline = harness.Pipeline(self, config, data).wait_ready()
        kept = pipeline.daemon_url("api")
        plain = self.start("api", "--config", config, "--aggregator-url", pipeline.daemon_url("aggregator"),
                           "--sortdb-url", pipeline.daemon_url("sortdb")).url
        asked = ["/v1/series?" + query(from_=start, to=end, unit=unit, **about) for start, end in SPANS[:3] for unit in ("day", "month")
                 for about in ({"user": "user1"}, {"user": "user2", "timezone": "America/New_York"}, {"feed": ""})]
        stop, posted, wrong = threading.Event(), [0], []

        def post():
            while not stop.is_set():
                lines = [b'{"t":%d,"l":"user%d","c":"US"}' % (MARCH + rng.randrange(-90 * 24, 90 * 24) * HOUR, rng.randrange(3)) for _ in range(20)]
                reply = harness.request(pipeline.daemon_url("simplequeue"), "POST", "/mput", b"\n".join(lines))
                posted[0] += 20 * (reply.status == 200)
                stop.wait(0.01)

        def rows(url, target):
            reply = harness.request(url, "GET", target)
            self.assertEqual(reply.status, 200, reply)
            return {r["t"]: r["n"] for r in reply.json()["rows"]}

        def watch(seed):
            mine = random.Random(seed)
            while not stop.is_set():
                target = mine.choice(asked)
                low, got, high = rows(plain, target), rows(kept, target), rows(plain, target)
                if not all(low[t] <= n <= high[t] for t, n in got.items()):
                    wrong.append((target, low, got, high))
        threads = [threading.Thread(target=post)] + [threading.Thread(target=watch, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        try:
            for _ in range(harness.rounds(2)):
                seen = posted[0], self.hits(kept)
                wait_until(lambda: posted[0] >= seen[0] + 400 and self.hits(kept) >= seen[1] + 10, "events and answers")
                self.assertEqual(self.run_program("millrace", "compact", "--config", config).returncode, 0)
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--config", config).returncode, 0)
        whole = "/v1/series?feed=&unit=month&" + query(from_=START - 400 * DAY, to=START + 800 * DAY)
        for _ in range(3):
            self.assertEqual(sum(rows(kept, whole).values()), posted[0])


if __name__ == "__main__":
    harness.main()
