"""The real aggregator behind the real pubsub: slices end and begin while events flow, and whoever reads sees numbers that
never fall and are never doubled."""
# full: MILLRACE_ROUNDS=60
import json
import os
import sqlite3
import threading

import aggregator_model
import harness
from harness import wait_until

COUNTERS = """
[input]
time = t
[total all]
key = "all"
[total u]
key = l
label = user
"""
LINE = b'{"t":1331923249,"l":"%s"}'
BAD = b'{"t":1331923249,"l":[]}'
KEY = "/get?key=all%7Call"


class Seal(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.archive = self.path("archive")
        self.run_program("compactor", "--archive=" + self.archive, "--init")
        self.published = 0
        self.restart(COUNTERS)

    def begin(self, counters, *more):
        config = self.write("counters.conf", counters)
        return self.daemon("aggregator", "--config=" + config, "--data-dir=" + self.path("data"), "--flush-interval=50ms",
                           "--pubsub-url=" + self.pubsub.url, "--archive=" + self.archive, *more)

    def restart(self, counters):
        self.aggregator = self.begin(counters).wait_ready()

    def publish(self, *lines):
        reply = self.pubsub.post("/pub?stream=clicks", b"\n".join(lines))
        self.assertEqual(reply.status, 200, reply)
        self.published += sum(line != BAD for line in lines)
        return int(reply.json()["end"])

    def count(self, *lines):
        end = self.publish(*lines)
        wait_until(lambda: int(self.aggregator.stats()["streams"]["clicks"]["offset"]) == end, "all to be counted")

    def wait_for_events(self):
        """An empty slice is not sealed."""
        wait_until(lambda: self.aggregator.stats()["events"] > 0, "an event in the open slice")

    def total(self, after=0):
        reply = self.aggregator.get(KEY + "&after=%d" % after)
        if reply.status == 404:
            return 0
        self.assertEqual(reply.status, 200, reply)
        return int(reply.body.rpartition(b":")[2])

    def post(self, target, status, code=None):
        reply = self.aggregator.post(target)
        self.assertEqual((reply.status, reply.json().get("code")), (status, code), reply)
        return reply.json()

    def put_in_force(self, through):
        """A generation that claims to hold the slices."""
        sealed = self.aggregator.get("/slices").json()["slices"]
        streams = {s["slice"]: s["streams"] for s in sealed}[through]
        name = "%012d" % through
        os.mkdir(os.path.join(self.archive, name))
        manifest = {"format": 5, "generation": through, "through": through, "until": 0, "made": 0, "shards": 1, "streams": streams,
                    "counters": "", "retired": "", "imports": [],
                    **{member: [{"name": name + "-0-of-1.csv", "records": 0, "bytes": 0, "xxh3": "0" * 16}]
                       for member, name in (("files", "shard"), ("texts", "texts"))}}
        self.write(os.path.join(self.archive, name, "manifest.json"), json.dumps(manifest))
        os.symlink(name, os.path.join(self.archive, "next"))
        os.rename(os.path.join(self.archive, "next"), os.path.join(self.archive, "current"))

    def test_answers_of_seal_clear_and_slices(self):
        self.count(LINE % b"a", LINE % b"b", BAD)
        self.post("/seal", 400, "missing-parameter")
        self.post("/seal?slice=0", 400, "bad-parameter")
        self.post("/seal?slice=2", 409, "slice-ahead")
        sealed = self.post("/seal?slice=1", 200)
        self.assertEqual((sealed["sealed"], sealed["open"]), (1, 2))
        self.assertEqual(self.post("/seal?slice=1", 200), sealed)
        self.count(LINE % b"a")
        self.assertEqual(self.post("/seal?slice=1", 200), sealed)
        self.assertEqual([self.total(), self.total(after=1)], [3, 1])
        slices = self.aggregator.get("/slices").json()
        self.assertEqual((slices["open"], [s["slice"] for s in slices["slices"]]), (2, [1]))
        self.assertEqual(slices["slices"][0]["streams"], sealed["streams"])
        rows = aggregator_model.read_slice(slices["slices"][0]["file"])
        self.assertEqual([n for row, n in rows.items() if row.startswith(b"all|")], [2])
        self.post("/clear", 400, "missing-parameter")
        self.post("/clear?through=2", 409, "slice-open")
        self.post("/clear?through=1", 409, "not-archived")
        self.assertEqual(self.total(), 3)
        self.put_in_force(1)
        for _ in range(2):
            self.assertEqual(self.post("/clear?through=1", 200), {"cleared": 1})
        self.post("/seal?slice=1", 410, "slice-cleared")
        self.assertEqual(self.aggregator.get(KEY).json()["code"], "slice-cleared")
        self.assertEqual(self.total(after=1), 1)
        self.assertEqual(os.listdir(self.path("data", "slices")).count("0000000001.db"), 0)
        self.assertIn(b"\"offset\"", harness.read_file(self.path("data", "rejects", "0000000001.ndjson")))
        self.assertEqual(self.aggregator.get("/slices").json()["slices"], [])
        self.assertEqual(self.aggregator.stats()["events_total"], 3)

    def test_sealing_an_empty_slice_does_nothing(self):
        self.assertEqual(self.post("/seal?slice=1", 200), {"sealed": 0, "open": 1, "streams": {}})
        self.count(LINE % b"a")
        self.post("/seal?slice=1", 200)
        self.assertEqual(self.post("/seal?slice=2", 200), {"sealed": 1, "open": 2, "streams": {}})
        self.assertEqual(self.aggregator.get("/slices").json()["open"], 2)
        self.assertNotIn("0000000003.db", os.listdir(self.path("data", "slices")))

    def test_sealing_and_clearing_need_the_token(self):
        self.aggregator.stop()
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        config = self.write("counters.conf", COUNTERS)
        self.aggregator = self.start("aggregator", "--config=" + config, "--data-dir=" + self.path("data"), "--auth-token-file=" + token,
                                     "--pubsub-url=" + self.pubsub.url, "--archive=" + self.archive)
        for target in ("/seal?slice=1", "/clear?through=1"):
            self.assertEqual(self.aggregator.post(target).status, 401)
        reply = self.aggregator.post("/seal?slice=1", headers={"Authorization": "Bearer secret"})
        self.assertEqual(reply.status, 200, reply)

    def test_many_ask_for_the_same_seal(self):
        self.publish(*[LINE % b"u%d" % i for i in range(5000)])
        self.wait_for_events()
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(self.post("/seal?slice=1", 200))) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(replies), 8)
        self.assertTrue(all(r == replies[0] for r in replies), replies)
        self.assertEqual(self.aggregator.get("/slices").json()["open"], 2)

    def test_counts_never_fall_nor_double_while_slices_end(self):
        rng, over, wrong = harness.seeded(), threading.Event(), []
        seen = [0]

        def watch():
            while not over.is_set():
                reply = self.aggregator.get(KEY)
                n = int(reply.body.rpartition(b":")[2]) if reply.status == 200 else 0
                most = self.published + 200  # what may be under way
                if reply.status not in (200, 404) or not seen[0] <= n <= most:
                    wrong.append((seen[0], n, most, reply))
                seen[0] = n
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for n in range(1, 1 + harness.rounds(6)):
            self.publish(*[LINE % b"u%d" % rng.randrange(1000) for _ in range(rng.randrange(1, 200))])
            self.wait_for_events()
            self.post("/seal?slice=%d" % n, 200)
        wait_until(lambda: seen[0] == self.published, lambda: "%d, not %d" % (self.published, seen[0]))
        over.set()
        watcher.join()
        self.assertEqual(wrong, [])

    def test_killed_while_slices_end(self):
        rng = harness.seeded()
        for _ in range(harness.rounds(3)):
            n = self.aggregator.get("/slices").json()["open"]
            self.publish(*[LINE % b"u%d" % rng.randrange(1000) for _ in range(rng.randrange(1, 300))])
            killer = threading.Timer(rng.random() * 0.06, self.aggregator.kill9)
            killer.start()
            sealed = 0
            try:
                while (reply := self.aggregator.post("/seal?slice=%d" % (n + sealed))).status == 200:
                    sealed += reply.json()["sealed"] == n + sealed
                    self.publish(LINE % b"more")
            except harness.UNREACHABLE:
                pass
            killer.join()
            self.restart(COUNTERS)
            wait_until(lambda: self.total() >= self.published, "all to be counted")
            self.assertEqual(self.total(), self.published)
            self.assertIn(self.aggregator.get("/slices").json()["open"], (n + sealed, n + sealed + 1))

    def test_other_counters_seal_what_the_old_ones_counted(self):
        self.count(LINE % b"a", LINE % b"b")
        self.aggregator.stop()
        self.restart(COUNTERS + "[subtotal l.all]\nkey = l\n")
        slices = self.aggregator.get("/slices").json()
        self.assertEqual((slices["open"], [s["slice"] for s in slices["slices"]]), (2, [1]))
        self.count(LINE % b"a")
        self.assertEqual([self.total(), self.total(after=1)], [3, 1])
        self.assertEqual(self.aggregator.get("/get?key=l.all%7Call.c3gi").body, b"a:1\n")
        self.aggregator.stop()
        d = self.begin(COUNTERS.replace("key = l", "key = c"))
        self.assertEqual(d.process.wait(harness.PATIENCE), 78)
        self.assertIn("total u key = l", d.log)

    def test_every_setting_of_the_input_is_compared(self):
        """Counts under another [input] or [counters] go into another slice; labels may change."""
        self.count(LINE % b"a")
        changes = ("[input]\nskip_if = x", "[input]\nskip_if = x > 1", "[input]\nkeep_if = not x", "[input]\ntime_unit = us", "[input]\nmax_ahead = 1h", "[counters]\nmax_text = 64\n[input]")
        for i, text in enumerate(changes):
            counters = COUNTERS.replace("[input]", text)
            for label in ("user", "member"):
                self.aggregator.stop()
                self.restart(counters.replace("label = user", "label = " + label))
                self.assertEqual(self.aggregator.get("/slices").json()["open"], i + 2, text)

    def test_a_removed_counter_keeps_its_counts(self):
        self.count(LINE % b"a")
        self.aggregator.stop()
        self.restart(COUNTERS[:COUNTERS.index("[total u]")])
        self.count(LINE % b"a")
        self.assertEqual(self.total(), 2)
        self.assertEqual(self.aggregator.get("/get?key=u%7Ca").body, b"c3gi:1\n")
        self.aggregator.stop()
        self.restart(COUNTERS)
        self.count(LINE % b"a")
        self.assertEqual(self.aggregator.get("/get?key=u%7Ca").body, b"c3gi:2\n")

    def counted(self):
        text = self.aggregator.get("/metrics").text
        return [int(float(line.split()[1])) for name in ("events_counted_total", "lines_rejected_total")
                for line in text.splitlines() if line.startswith("millrace_%s " % name) or
                line.startswith("millrace_aggregator_%s " % name)]

    def test_totals_of_the_process_never_fall(self):
        """A restart inside a slice, then a seal: the slice's own numbers begin again, those on /metrics do not."""
        self.count(LINE % b"a", LINE % b"b", BAD)
        wait_until(lambda: self.counted() == [2, 1], lambda: "the metrics: %s" % self.counted())
        self.aggregator.stop()
        self.restart(COUNTERS)
        self.count(LINE % b"c")
        wait_until(lambda: self.counted() == [1, 0], lambda: "the metrics: %s" % self.counted())
        self.post("/seal?slice=1", 200)
        self.count(LINE % b"d", BAD)
        wait_until(lambda: self.counted() == [2, 1], lambda: "the metrics: %s" % self.counted())

    def hold(self, name):
        """Locks a slice, so that its opening by the aggregator waits until the test unlocks it, or until SQLite's busy timeout."""
        db = sqlite3.connect(self.path("data", "slices", name), isolation_level=None)
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        return db

    def test_it_says_so_while_it_opens(self):
        self.count(LINE % b"a", LINE % b"b")
        self.post("/seal?slice=1", 200)
        self.aggregator.stop()
        held = self.hold("0000000001.db")
        d = self.begin(COUNTERS).wait_listening()
        for method, target in (("GET", KEY), ("GET", "/mget?k=a"), ("GET", "/fwmatch?key="), ("GET", "/range?start=a&end=b"),
                               ("POST", "/seal?slice=2"), ("POST", "/clear?through=1"), ("GET", "/slices")):
            reply = harness.request(d.url, method, target)
            self.assertEqual((reply.status, reply.json()["code"]), (503, "not-ready"), target)
        self.assertIn("opening the slices", d.get("/health").text)
        self.assertEqual([d.get(t).status for t in ("/ping", "/stats?format=json", "/metrics")], [200, 200, 200])
        held.close()
        self.aggregator = d.wait_ready()
        self.assertEqual(self.total(), 2)
        d.stop()
        held = self.hold("0000000001.db")
        d = self.begin(COUNTERS).wait_listening()
        d.process.terminate()
        held.close()
        self.assertEqual(d.process.wait(harness.PATIENCE), 0)

    def read(self, number):
        """Begins a read of the first two events of a slice. The read keeps the slice's log in use."""
        path = self.path("data", "slices", "%010d.db" % number)
        wait_until(lambda: os.path.exists(path), "the slice")  # connect() would make it
        db = sqlite3.connect(path, isolation_level=None)
        self.addCleanup(db.close)
        wait_until(lambda: self.events_in(db) == 2, "the commit of two events")
        db.execute("BEGIN")
        self.assertEqual(self.events_in(db), 2)
        return db

    def events_in(self, db):
        """Events of the commits so far. A slice without a commit has no tables."""
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchall():
            return 0
        return db.execute("SELECT value FROM meta WHERE key = 'events'").fetchone()[0]

    def files(self):
        return sorted(os.listdir(self.path("data", "slices")))

    def test_other_processes_read_slices_during_their_seals(self):
        readers = []
        for n in (1, 2, 3):
            self.count(LINE % b"a", LINE % b"b")
            readers.append(self.read(n))
            self.count(LINE % b"c")
            self.assertEqual(self.post("/seal?slice=%d" % n, 200)["open"], n + 1)
            self.assertEqual([self.total(after=after) for after in range(n + 1)], [3 * (n - after) for after in range(n + 1)])
        readers[1].close()
        for end in ("kill9", "stop"):
            getattr(self.aggregator, end)()
            self.restart(COUNTERS)
            self.assertEqual([s["slice"] for s in self.aggregator.get("/slices").json()["slices"]], [1, 2, 3])
            self.assertEqual([self.total(after=after) for after in range(4)], [9, 6, 3, 0])
        self.assertEqual([name for name in self.files() if name.endswith("-wal")], ["000000000%d.db-wal" % n for n in (1, 3, 4)])
        self.put_in_force(3)
        self.post("/clear?through=3", 200)
        self.assertEqual({name.split("-")[0] for name in self.files()}, {"0000000004.db"})
        self.assertEqual([self.events_in(readers[i]) for i in (0, 2)], [2, 2])

    def test_killed_between_the_file_and_the_log_of_a_cleared_slice(self):
        self.count(LINE % b"a", LINE % b"b")
        self.post("/seal?slice=1", 200)
        self.put_in_force(1)
        self.post("/clear?through=1", 200)
        self.aggregator.kill9()
        for suffix in ("-wal", "-shm"):
            self.write(self.path("data", "slices", "0000000001.db" + suffix), "left")
        self.restart(COUNTERS)
        self.assertEqual({name.split("-")[0] for name in self.files()}, {"0000000002.db"})

    def test_a_fresh_directory_goes_on_behind_the_archive(self):
        self.count(LINE % b"a", LINE % b"b")
        self.post("/seal?slice=1", 200)
        self.put_in_force(1)
        self.aggregator.stop()
        os.rename(self.path("data"), self.path("old"))
        self.restart(COUNTERS)
        self.assertEqual(self.aggregator.get("/slices").json()["open"], 2)
        self.count(LINE % b"a")
        self.assertEqual(self.total(after=1), 1)
        self.aggregator.stop()
        os.unlink(os.path.join(self.archive, "current"))
        os.symlink("000000000000", os.path.join(self.archive, "current"))
        d = self.begin(COUNTERS)
        self.assertEqual(d.process.wait(harness.PATIENCE), 78)
        self.assertIn("includes slices up to 0", d.log)


if __name__ == "__main__":
    harness.main()
