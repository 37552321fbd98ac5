"""Lines that cannot be counted are seen on /health, in the statistics and in the log of the aggregator."""
import json
import re

import harness
from harness import wait_until

COUNTERS = """
[input]
time = ts
max_ahead = 0
[total u]
key = user
label = user
[subtotal c.u]
key = country
label = country
"""


class LineWatchTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), COUNTERS))
        self.pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()

    def put(self, *events):
        lines = b"\n".join(e if isinstance(e, bytes) else json.dumps(e).encode() for e in events)
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", lines).status, 200)

    def health(self):
        return self.pipeline.ask("aggregator", "GET", "/health").text

    def last_minute(self):
        return self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["last_minute"]

    def test_all_rejected(self):
        self.assertEqual(self.health(), "ready\n")
        first = {"ts": "yesterday, 9:15", "user": "a"}
        self.put(first, *[{"ts": "noon", "user": "a"}] * 49)
        text = "0 events counted, 50 lines rejected in the last minute: field ts is not a time; first at offset 0 of clicks: `%s`"
        wait_until(lambda: self.health() == "ready\nwarning: " + text % json.dumps(first) +
                   "\nremedy: correct [input] or the sender; then millrace rejects --put-back\n", self.health)
        self.assertEqual(self.last_minute(), {"counted": 0, "skipped": 0, "rejected": 50, "reasons": [
            {"reason": "field ts is not a time", "lines": 50, "source": "clicks", "offset": "0", "line": json.dumps(first)}]})
        self.put(b"{", *[{"ts": 1332637200, "user": "a", "country": "JP"}] * 60)
        wait_until(lambda: self.health() == "ready\n", self.health)
        wait_until(lambda: self.last_minute()["counted"] == 60, self.last_minute)
        self.assertEqual([r["lines"] for r in self.last_minute()["reasons"]], [50, 1])
        wait_until(lambda: "lines are rejected" in self.pipeline.log, lambda: self.pipeline.log)
        self.assertEqual(self.pipeline.log.count("lines are rejected"), 1, "one line a minute")

    def test_every_look_is_one_sample(self):
        """While lines arrive, the reasons of each look add up to its rejected lines, and a warning is of lines that were rejected."""
        for n in range(1, 30):
            self.put(*[b"{"] * 3, *[{"ts": "noon"}] * 2, *[{"ts": 1332637200, "user": "a"}] * 5)

            def look():
                minute, health = self.last_minute(), self.health()
                self.assertEqual(sum(r["lines"] for r in minute["reasons"]), minute["rejected"], minute)
                shown = re.search(r"(\d+) events counted, (\d+) lines rejected in the last minute: (.*); ", health)
                self.assertTrue(not shown or int(shown[2]) > 0, health)
                if shown and shown[3].count(","):
                    self.assertEqual(sum(int(x) for x in re.findall(r"(\d+) [a-z]", shown[3])), int(shown[2]), health)
                return minute["rejected"] == 5 * n and minute["counted"] == 5 * n
            wait_until(look, self.last_minute, interval=0)

    def test_put_says_so_at_its_end(self):
        bad, good = self.write("bad", '{"ts":"noon"}\n' * 300), self.write("good", '{"ts":1332637200,"user":"a","country":null}\n' * 300)
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), bad)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"millrace put: warning: 300 of 300 lines cannot be counted: field ts is not a time; first at "
                      b"byte 0 of %s: `{\"ts\":\"noon\"}` (see millrace rejects)\n" % bad.encode(), done.stderr)
        for args in ((good,), ("--queue=other", bad), ("--queue-url", self.pipeline.daemon_url("simplequeue"), bad)):
            done = self.run_program("millrace", "put", "--data-dir", self.path("data"), *args)
            self.assertEqual((done.returncode, b"warning" in done.stderr), (0, False), done)

    def test_put_names_the_remedy_for_other_forms(self):
        for text, said in (('[\n{"ts":1332637200}\n]\n', b"`[`; of an array, `jq -c '.[]'` makes"), ('[{"ts":1332637200}]\n', b"jq -c '.[]'"),
                           ('{\n  "ts": 1332637200\n}\n', b"`{`; `jq -c .` makes"), ("ts,user\n1332637200,a\n", b"CSV file or an access log needs --format ("),
                           ('192.0.2.7 - - [24/Mar/2012:09:00:00 +0000] "-" 200 5\n', b"needs --format ("), ("17\n", b"needs --format ("),
                           ('{"ts":1332637200}\n'.encode("utf-16-le"), b"; the line has NUL bytes; UTF-16 needs --encoding=UTF-16LE")):
            done = self.run_program("millrace", "put", "--data-dir", self.path("data"), self.write("other", text))
            self.assertIn(said, done.stderr)
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), "--format=csv", "--time-field=when",
                                self.write("other.csv", "when,user\n2012-03-24 09:00:00,a\n"))
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the time column is when, but `time` of [input] is ts: in the first line of the file, change when to ts, and omit "
                      b"--time-field\n", done.stderr)

    def test_put_speaks_of_its_own_lines(self):
        """Not of another sender's, nor of an earlier put's."""
        self.put(*[{"ts": "bad of another sender"}] * 3)
        wait_until(lambda: self.last_minute()["rejected"] == 3, self.last_minute)
        good = self.write("good", '{"ts":1332637200,"user":"a","country":"JP"}\n')
        mine = self.write("mine", '{"ts":1332637200,"user":"a"}\n{"when":1332637200,"user":"b"}\n')
        for name, status, said in ((mine, 0, b"1 of 2 lines cannot be counted: field ts is missing: no time; first at byte 29 of %s: "
                                    b"`{\"when\":1332637200,\"user\":\"b\"}`" % mine.encode()), (good, 0, None)):
            done = self.run_program("millrace", "put", "--data-dir", self.path("data"), name)
            self.assertEqual((done.returncode, b"warning" in done.stderr), (status, said is not None), done)
            self.assertIn(said or b"", done.stderr)

    def test_put_names_a_field_that_no_event_has(self):
        events = self.write("events", '{"ts":1332637200,"user":"a","c":"JP"}\n' * 1500)
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), events)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"millrace put: warning: no event of 1000 has the configured field country (correct the field's name in the "
                      b"configuration, or the sender; or name the field in `optional` of [input])\n", done.stderr)

    def test_a_few_events_suffice_for_put(self):
        """It has all events of its input. A file in a wrong encoding has other names of fields. A few events without a field may be
        right, so that put does not call the name wrong."""
        note = b"note: counters use the field country, which "
        text = "ts,user,country\n" + "1332637200,a,JP\n" * 20
        for name, data, absent in (("good", text.encode(), None), ("wrong", text.replace("country", "countr\xff").encode("latin-1"), note + b"none of these events has"),
                                   ("one", b"ts,user\n1332637200,a\n", note + b"the event does not have"),
                                   ("late", b"ts,user\n" + b"1332637200,a\n" * 1000, b"warning: no event of 1000 has the configured field country")):
            with open(self.path(name), "wb") as f:
                f.write(data)
            done = self.run_program("millrace", "put", "--data-dir", self.path("data"), "--format=csv", self.path(name))
            said = re.findall(rb"put: (note: counters use the field country, which [^.]*|warning: no event of 1000 has the configured field country) ?", done.stderr)
            self.assertEqual((done.returncode, said), (0, [absent] if absent else []), done)
        late = self.write("late", '{"ts":1332637200,"user":"a"}\n' * 1400 + '{"ts":1332637200,"user":"a","country":"JP"}\n')
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), late)
        self.assertEqual((done.returncode, b"warning" in done.stderr), (0, False), done)

    def test_a_field_that_no_event_has(self):
        self.put(*[{"ts": 1332637200, "user": "a", "c": "JP"}] * 999)
        wait_until(lambda: self.last_minute()["counted"] == 999, self.last_minute)
        self.assertEqual(self.health(), "ready\n")
        self.put({"ts": 1332637200, "user": "a"})
        wait_until(lambda: "warning: no event of 1000 has the configured field country\n" in self.health(), self.health)
        wait_until(lambda: "no event has a configured field field=country" in self.pipeline.log, lambda: self.pipeline.log)
        notice, = self.pipeline.ask("aggregator", "GET", "/health?format=json").json()["notices"]
        self.assertIn("or name the field in `optional` of [input]", notice["remedy"])
        self.put(*[{"ts": 1332637200, "user": "a"}] * 999, {"ts": 1332637200, "user": "a", "country": None})
        wait_until(lambda: self.health() == "ready\n", self.health)


if __name__ == "__main__":
    harness.main()
