"""Settings of the counters that change: what was counted before is still answered, under the same key and with the same warnings."""
import json

import harness
from harness import query, wait_until

T = 1331923247
SPAN = {"from_": 1331920800, "to": 1331920800 + 3600}
COUNTERS = """
[input]
time = t
[counters]
max_text = %s
[total u]
key = l
label = user
[subtotal c.u]
key = c
label = by
"""
LONG = "http://example.com/" + "\u00e9" * 60 + "/tail"


class ChangedSettings(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pipeline, self.published = None, 0

    def configure(self, counters):
        """Restarts the pipeline with these counters."""
        if self.pipeline:
            self.pipeline.interrupt()
        self.config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), counters))
        self.pipeline = harness.Pipeline(self, self.config, self.path("data")).wait_ready()

    def count(self, *pairs):
        lines = [json.dumps({"t": T, "l": key, "c": sub}).encode() for key, sub in pairs]
        reply = self.pipeline.ask("pubsub", "POST", "/pub?stream=clicks", b"\n".join(lines))
        self.assertEqual(reply.status, 200, reply)
        end = int(reply.json()["end"])
        stats = lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        wait_until(lambda: int(stats()["streams"]["clicks"]["offset"]) == end, "all to be counted")

    def compact(self, *args):
        done = self.run_program("millrace", "compact", "--config", self.config, *args)
        self.assertEqual(done.returncode, 0, done)
        return done.stderr.decode()

    def ask(self, path, **params):
        def answered():
            """After a start or a compaction the archive may still be opened: that is no answer."""
            reply = self.pipeline.ask("api", "GET", "/v1/%s?%s" % (path, query(**params)))
            return None if reply.status == 503 and b"being opened" in reply.body else reply
        reply = wait_until(answered, "the archive to be open")
        self.assertEqual(reply.status, 200, (params, reply))
        return reply.json()

    def rows(self, path, **params):
        return [(r["key"], r["n"]) for r in self.ask(path, **params)["rows"]]

    def check_long(self, n):
        """The key and the sub key have n counts, under their whole text and under the text that answers show; each is one row."""
        self.assertEqual(self.ask("series", user=LONG, **SPAN)["total"], n)
        self.assertEqual(self.ask("series", user="a", by="by", sub=LONG, **SPAN)["total"], n)
        for asked in (LONG, "a"):
            (shown, counted), = self.rows("breakdown", user=asked, by="by", **SPAN)
            self.assertEqual(counted, n)
            self.assertEqual(self.ask("series", user=shown, **SPAN)["total"], n)
            self.assertEqual(self.ask("series", user="a", by="by", sub=shown, **SPAN)["total"], n)
        return shown

    def test_a_changed_max_text_changes_no_key(self):
        self.configure(COUNTERS % "64")
        self.count((LONG, LONG), ("a", LONG))
        shown = self.check_long(1)
        self.assertTrue(len(shown.encode()) <= 64 and shown.startswith(LONG[:10]), shown)
        for n, (max_text, compacts) in enumerate([("2K", False), ("100", True), ("64", False), ("1M", True)], 2):
            self.configure(COUNTERS % max_text)
            self.count((LONG, LONG), ("a", LONG))
            self.check_long(n)
            if compacts:
                self.assertNotIn("same hash", self.compact())
                self.check_long(n)
        self.assertEqual(self.rows("lookup", prefix="http", ns="u"), [(self.check_long(n), n)])
        self.assertEqual(self.run_program("compactor", "--archive=" + self.path("data", "archive"), "--verify").returncode, 0)
        self.compact("--forget=" + LONG)
        self.assertEqual(self.rows("lookup", prefix="http"), [])
        self.assertEqual(self.ask("series", user=LONG, **SPAN)["total"], 0)

    def test_a_removed_or_raised_limit_still_marks_the_past(self):
        counters = COUNTERS % "2K"
        limit = lambda n: counters.replace("label = user\n", "label = user\nmax_keys = %d\n" % n).replace(
            "label = by\n", "label = by\nmax_keys = %d\n" % n)
        events = [(key, sub) for key in ("a", "b", "c") for sub in ("x", "y", "z")]
        self.configure(limit(2))
        self.count(*events)
        totals = {"a": (3, 3), "c": (0, 3), "(other)": (3, 3)}  # of the series: the total, and what is over max_keys
        marks = lambda answer: (answer["total"], answer.get("over_max_keys"))
        for settings, compacts in ((limit(2), False), (counters, False), (counters, True), (limit(5), False)):
            self.configure(settings)
            if compacts:
                self.compact()
            for key, expected in totals.items():
                self.assertEqual(marks(self.ask("series", user=key, **SPAN)), expected, (key, settings))
            self.assertEqual(marks(self.ask("series", user="a", by="by", sub="x", **SPAN)), (1, 1))
            for kind, more in (("series", {"sub": "x"}), ("compare", {"sub": "x"}), ("series", {"top": 2}), ("breakdown", {})):
                for user, over in (("a", 3), ("c", 3), ("(other)", 0 if settings != counters else None)):
                    got = self.ask(kind, user=user, by="by", **more, **SPAN)
                    self.assertEqual(got.get("total_over_max_keys"), over, (kind, user, settings))
            several = "/v1/series?user=a&user=b&" + query(**SPAN)
            self.assertEqual(self.pipeline.ask("api", "GET", several).json()["over_max_keys"], 3)
            self.assertEqual(self.ask("series", user="a", by="by", top=2, **SPAN)["over_max_keys"], 1)
            self.assertEqual(marks(self.ask("breakdown", user="a", by="by", **SPAN)), (3, 1))
            later = self.ask("compare", user="a", from_=SPAN["to"], to=SPAN["to"] + 3600)
            self.assertEqual((later["total"], marks(later["before"])), (0, (3, 3)))
        self.configure(counters[:counters.index("[subtotal")])
        self.assertEqual(marks(self.ask("breakdown", ns="c.u", key="a", **SPAN)), (3, 1))
        self.assertEqual(self.ask("breakdown", ns="c.u", key="a", **SPAN)["total_over_max_keys"], 3)
        self.configure(counters)
        for name in ("over_max_keys", "total_over_max_keys"):
            self.assertNotIn(name, self.ask("series", user="a", by="by", sub="x", from_=SPAN["to"], to=SPAN["to"] + 3600))

    def test_a_table_says_what_is_limited_or_removed(self):
        table = lambda *args: self.run_program(
            "millrace", "query", *args, "--config", self.config, "--from=1331920800", "--to=1331924400").stdout.decode()
        self.configure((COUNTERS % "2K").replace("label = user\n", "label = user\nmax_keys = 1\n"))
        self.count(("a", "x"), ("b", "x"), ("c", "y"))
        self.assertIn("\nover max_keys: 2 events counted as (other)\n", table("series", "--user=a"))
        self.assertIn("\nover max_keys: 2 events of any key counted as (other)\n", table("breakdown", "--user=a", "--by=by"))
        self.configure(COUNTERS[:COUNTERS.index("[subtotal c.u]")] % "2K")
        self.assertRegex(table("breakdown", "--ns=c.u", "--key=a"), r"1\s+total\n(.*\n)*note: this counter is not configured")
        self.assertNotIn("note:", table("series", "--user=a"))
        self.configure(COUNTERS % "2K")
        self.count(("a", "y"))
        self.assertRegex(table("breakdown", "--user=a", "--by=by", "--limit=1"), r"\n +1 +50\.00 % .*  others\n")
        self.assertRegex(table("series", "--user=a", "--by=by", "--top=1"), r"\n +1  .*  others\n")

    def test_a_counter_that_only_the_api_has_is_not_complete(self):
        """The API was restarted with a newer configuration, and the aggregator was not."""
        counters = COUNTERS % "2K"
        self.configure(counters)
        self.count(("a", "x"))
        wait_until(lambda: self.ask("series", user="a", **SPAN)["rows"][0]["complete"], "the day to be complete")
        newer = counters + "[total v]\nkey = c\n[subtotal w.u]\nkey = c\n"
        config = self.write("newer.conf", harness.pipeline_config(self.path("none"), newer))
        urls = ["--%s-url=%s" % (name, self.pipeline.daemon_url(name)) for name in ("aggregator", "sortdb")]
        api = self.start("api", "--config=" + config, *urls)
        for ns, path in (("v", "series"), ("w.u", "breakdown"), ("w.u", "series")):
            params = dict(SPAN, **({"sub": "x"} if (ns, path) == ("w.u", "series") else {}))
            answer = api.get("/v1/%s?%s" % (path, query(ns=ns, key="a", **params))).json()
            self.assertIn("does not count this counter", answer["note"])
            self.assertEqual((answer["total"], answer["complete_until"], [r["complete"] for r in answer["rows"]].count(True)), (0, None, 0))
        answer = api.get("/v1/series?" + query(user="a", **SPAN)).json()
        self.assertEqual((answer["total"], answer["rows"][0]["complete"], answer.get("note")), (1, True, None))


if __name__ == "__main__":
    harness.main()
