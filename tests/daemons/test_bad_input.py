"""Bad input to a running pipeline: each a clear error with the right status, and nothing else disturbed. And keys of
every kind of byte are counted and found again."""
import datetime
import hashlib
import json

import harness
from harness import USERS_BY_COUNTRY, wait_until

HOUR = 1332637200  # 2012-03-25T01
# Every reserved byte, the bytes around them, both sides of the length where hashing begins, text that is not ASCII,
# and keys that are the beginnings of others.
ODD_KEYS = [chr(b) + "k" for b in list(range(1, 0x30)) + [0x3A, 0x7C, 0x7F]] + [
    "\0", "a\0b", "a", "a!x", "a+", "a,b", "a-", "a.b", "a b", "a:b", "a|b", "ab", "%41", "a%2Cb", "\u00e9", "\u65e5\u672c",
    "\U0001f600", "eleven byte", "elevenbytes", "twelve bytes", "h0aMB8AuNw4=", "x" * 2048, "None", "\\", "\\x41"]


def event(user, country="US", t=HOUR):
    return json.dumps({"t": t, "l": user, "c": country}).encode()


class BadInput(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        config = self.write("pipeline.conf", harness.pipeline_config(
            self.path("data"), USERS_BY_COUNTRY, simplequeue={"max_body": "64K"}, pubsub={"max_line": 20000,
                                                                                 "max_body": "64K"}))
        self.pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.addCleanup(self.still_undisturbed)

    def still_undisturbed(self):
        """Whatever the test did, an event posted afterwards is counted, and no daemon died of it."""
        try:
            before = self.total("witness")
            self.put(event("witness"))
            wait_until(lambda: self.total("witness") == before + 1, "the witness to be counted")
            for name, daemon in self.pipeline.run_file()["daemons"].items():
                self.assertEqual((name, daemon["state"], daemon["restarts"]), (name, "ready", 0))
        finally:
            self.pipeline.interrupt()

    def ask(self, daemon, method, target, body=None, **kw):
        return self.pipeline.ask(daemon, method, target, body, **kw)

    def put(self, body):
        reply = self.ask("simplequeue", "POST", "/put", body)
        self.assertEqual(reply.status, 200, reply)

    def total(self, user):
        reply = self.ask("api", "GET", "/v1/series?" + harness.query(user=user, unit="hour", from_=HOUR, to=HOUR + 3600))
        self.assertEqual(reply.status, 200, reply)
        return reply.json()["total"]

    def refused(self, status, code, daemon, method, target, body=None):
        reply = self.ask(daemon, method, target, body)
        self.assertEqual(reply.status, status, (target, reply))
        self.assertEqual(reply.header("Content-Type"), "application/problem+json", target)
        problem = reply.json()
        self.assertEqual(problem["code"], code, (target, problem))
        self.assertEqual(problem["status"], status)
        self.assertTrue(problem["detail"])
        return problem

    def test_bodies(self):
        self.refused(413, "too-large", "simplequeue", "POST", "/put", b"x" * 65537)
        self.refused(413, "too-large", "pubsub", "POST", "/pub?stream=clicks", b"x\n" * 40000)
        self.refused(413, "line-too-large", "pubsub", "POST", "/pub?stream=clicks", b"x" * 20001 + b"\n")
        self.refused(400, "empty-line", "pubsub", "POST", "/pub?stream=clicks", b"a\n\nb\n")
        self.refused(400, "empty-body", "pubsub", "POST", "/pub?stream=clicks", b"")

    def test_names_and_parameters(self):
        self.refused(404, "unknown-stream", "pubsub", "GET", "/sub?stream=clickz&from=earliest")
        self.refused(404, "unknown-stream", "pubsub", "GET", "/producer?stream=clickz&producer=a")
        self.refused(400, "bad-parameter", "pubsub", "GET", "/sub?stream=../etc&from=earliest")
        self.refused(400, "bad-parameter", "pubsub", "GET", "/sub?stream=clicks&from=yesterday")
        self.refused(400, "bad-parameter", "simplequeue", "POST", "/put?queue=a%2Fb", b"x")
        self.refused(400, "bad-parameter", "simplequeue", "POST", "/put?producer=p&mark=1", b"x")
        self.refused(400, "bad-parameter", "simplequeue", "POST", "/put?producer=p&mark=-1&next=2", b"x")
        self.refused(409, "mark-conflict", "simplequeue", "POST", "/put?producer=p&mark=5&next=6", b"x")
        self.refused(404, "not-found", "simplequeue", "GET", "/nowhere")
        for path, meant in (("/pu", "did you mean /put? "), ("/sub", "")):  # two of the three letters of /sub would have to change
            problem = self.refused(404, "not-found", "simplequeue", "GET", path)
            self.assertEqual(problem["hint"], meant + "GET / lists the endpoints", path)
        self.refused(405, "method-not-allowed", "pubsub", "GET", "/pub?stream=clicks")
        self.refused(404, "unknown-counter", "api", "GET", "/v1/series?ns=zz&key=a")
        self.refused(400, "bad-parameter", "api", "GET", "/v1/series?user=a&unit=fortnight")
        self.refused(400, "bad-parameter", "api", "GET", "/v1/series?user=a&timezone=Mars/Olympus")
        self.refused(400, "bad-parameter", "api", "GET", "/v1/series?user=a&timezone=../../etc/passwd")
        self.refused(400, "bad-parameter", "api", "GET", "/v1/series?user=a&from=x&to=9")

    def test_cursors_that_do_not_fit(self):
        self.put(event("bitly"))
        wait_until(lambda: self.total("bitly") == 1, "the event")
        stream = self.ask("pubsub", "GET", "/streams").json()["streams"][0]
        end = int(stream["end"])
        problem = self.refused(416, "cursor-beyond-end", "pubsub", "GET", "/sub?stream=clicks&from=%d" % (end + 1))
        self.assertEqual(problem["end"], str(end))
        self.refused(416, "cursor-inside-line", "pubsub", "GET", "/sub?stream=clicks&from=%d" % (end - 3))
        self.refused(409, "wrong-stream", "pubsub", "GET", "/sub?stream=clicks&from=0&id=" + "0" * 32)
        self.refused(400, "bad-parameter", "pubsub", "GET", "/sub?stream=clicks&from=18446744073709551616")
        whole = self.ask("pubsub", "GET", "/sub?stream=clicks&follow=0&from=earliest&id=" + stream["id"])
        self.assertEqual((whole.status, len(whole.body)), (200, end))

    def test_events_that_cannot_be_counted(self):
        bad = [b"{", b"[]", b'{"l":"x"}', b'{"t":"1332637200","l":"x"}', b'{"t":1332637200,"l":["x"]}',
               b'{"t":1332637200,"l":1.5}', b'{"t":1332637200,"l":"\xff"}', b'{"t":1332637200,"l":"\\ud800"}',
               b'{"t":99999999999999,"l":"x"}', b'{"t":1332637200,"l":"x"}trailing']
        for line in bad:
            self.put(line)
        self.put(event("x"))
        wait_until(lambda: self.total("x") == 1, "the good one")
        stats = self.ask("aggregator", "GET", "/stats?format=json").json()
        self.assertEqual(stats["rejected"], len(bad))

    def test_messages_that_are_no_lines_are_refused_or_buried(self):
        self.refused(400, "not-a-line", "simplequeue", "POST", "/put", b"two\nlines")
        self.put(b"x" * 20001)  # longer than pubsub's max_line
        self.put(event("after"))
        wait_until(lambda: self.total("after") == 1, "the event behind the poison")
        wait_until(lambda: self.ask("simplequeue", "GET", "/stats?format=json").json()["queues"]["default"]["buried"]
                   == 1, "the long message to be buried")

    def test_long_keys_are_bounded_and_found(self):
        """Two texts that differ only behind the bound stay two keys, and both are asked for by their full text."""
        keys = ["\u00e9" * 1500 + end for end in ("", "a", "b")]
        for key in keys:
            self.put(event(key, country=key))
        wait_until(lambda: self.total(keys[-1]) == 1, "the last to be counted")
        for key in keys:
            self.assertEqual(self.total(key), 1)
            rows = self.ask("api", "GET", "/v1/breakdown?" + harness.query(
                user=key, by="country", from_=HOUR, to=HOUR + 3600)).json()["rows"]
            text = key.encode()
            marked = text[:2014] + b"~" + hashlib.md5(text).hexdigest()[:16].encode()
            self.assertEqual([r["key"] for r in rows], [(marked + hashlib.md5(marked).hexdigest()[:16].encode()).decode()])
            sub = self.ask("api", "GET", "/v1/series?" + harness.query(
                user=key, by="country", sub=key, unit="hour", from_=HOUR, to=HOUR + 3600))
            self.assertEqual(sub.json()["total"], 1)

    def test_odd_keys_are_counted_and_found(self):
        for key in ODD_KEYS:
            self.put(event(key, country=key))
        wait_until(lambda: self.total(ODD_KEYS[-1]) == 1, "the last to be counted")
        for key in ODD_KEYS:
            self.assertEqual(self.total(key), 1, repr(key))
            reply = self.ask("api", "GET", "/v1/breakdown?" + harness.query(
                user=key, by="country", from_=HOUR, to=HOUR + 3600))
            self.assertEqual([(r["key"], r["n"]) for r in reply.json()["rows"]], [(key, 1)], repr(key))
            sub = self.ask("api", "GET", "/v1/series?" + harness.query(
                user=key, by="country", sub=key, unit="hour", from_=HOUR, to=HOUR + 3600))
            self.assertEqual(sub.json()["total"], 1, repr(key))

    def test_years_to_2159(self):

        for year in (2000, 2031, 2032, 2063, 2064, 2159):
            t = int(datetime.datetime(year, 12, 31, 23, tzinfo=datetime.timezone.utc).timestamp())
            self.put(event("late", t=t))
            wait_until(lambda: self.ask("api", "GET", "/v1/series?" + harness.query(
                user="late", unit="hour", from_=t, to=t + 3600)).json()["total"] == 1, "the year %d" % year)


if __name__ == "__main__":
    harness.main()
