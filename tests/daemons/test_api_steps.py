"""Requests of several questions, over an archive and an aggregator that this test plays: each question may fail, in each way, or lose
its client. The request then ends with one reply that names the source, or is marked as partial, and the next request is answered."""
import json
import socket
import struct
import urllib.parse

import harness
from harness import query, wait_until
from test_api import MARCH, Source, hour_text
from test_api_sources import Archive

HOUR = 3600
COUNTERS = """
[input]
time = t
[total revenue]
key = product
value = price
[subtotal c.revenue]
key = country
label = country
[total paid]
key = product
having = price
[subtotal c.paid]
key = country
label = country
"""
HASH = "pAAAAAAAAAA="
SPAN = {"from_": MARCH + HOUR, "to": MARCH + 2 * HOUR}
# Requests, and the number of their questions.
REQUESTS = (("breakdown", {"by": "country", "mean": 1, "against": "before"}, 5),
            ("breakdown", {"by": "country", "mean": 1}, 4),
            ("series", {"by": "country", "top": 2, "unit": "hour"}, 4),
            ("series", {"mean": 1, "unit": "hour"}, 2),
            ("compare", {"unit": "hour"}, 1))


def refuse(h):
    h.answer(503, b'{"detail":"not today"}')
    return True


def reject(h):
    h.answer(400, b'{"detail":"not understood"}')
    return True


def cut(h):
    h.send_response(200)
    for name in ("X-Millrace-Complete-Until", "X-Millrace-Through", "X-Millrace-Rollups"):
        h.send_header(name, "3")
    h.send_header("Content-Length", "1000")
    h.end_headers()
    h.wfile.write(b"c.revenue|hat.")
    h.close_connection = True
    return True


def garbage(h):
    h.answer(200, b"neither key nor count\n", {"X-Millrace-Complete-Until": 3, "X-Millrace-Through": 3, "X-Millrace-Rollups": 1})
    return True


class Steps(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.live = Archive(self), Source(self)
        for records in (self.archive.records, self.live.records):
            for hour in range(3):
                text = hour_text(MARCH + hour * HOUR)
                records["c.revenue|hat." + text] = "JP:%d %s:%d US:1" % (hour + 5, HASH, hour + 2)
                records["c.paid|hat." + text] = "JP:2 %s:1 US:1" % HASH
            for ns, n in (("revenue", 10), ("paid", 4)):
                records[ns + "|hat"] = " ".join("%s:%d" % (hour_text(MARCH + hour * HOUR), n) for hour in range(3))
            records["lookup|" + HASH] = "a country with a long name"
        self.api = self.start("api", "--config", self.write("test.conf", COUNTERS), "--sortdb-url", self.archive.url, "--aggregator-url",
                              self.live.url, "--upstream-timeout", "10m")

    def ask(self, path, status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(revenue="hat", **SPAN, **params)))
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def answer_with(self, source, number, act):
        """The source answers this question from now on with `act`, and all others as usual."""
        usual, before = source.act, len(source.asked)
        source.act = lambda h: act(h) if len(source.asked) - before == number + 1 else usual and usual(h)
        return lambda: setattr(source, "act", usual)

    def test_each_question_of_a_request_may_fail(self):
        for path, params, questions in REQUESTS:
            before = len(self.archive.asked), len(self.live.asked)
            whole = self.ask(path, **params)
            self.assertEqual((len(self.archive.asked) - before[0], len(self.live.asked) - before[1]), (questions, questions), (path, params))
            for source, name in ((self.archive, "sortdb"), (self.live, "aggregator")):
                for number in range(questions):
                    for act, status in ((refuse, 503), (reject, 502), (cut, 503), (garbage, 503)):
                        restore = self.answer_with(source, number, act)
                        got = self.ask(path, status, **params)
                        restore()
                        self.assertEqual(got["code"], "upstream-refused" if act is reject else "upstream-unavailable")
                        self.assertTrue(got["detail"].startswith("%s at %s: " % (name, source.url)), got)
                    restore = self.answer_with(source, number, cut)
                    got = self.ask(path, partial="allow", **params)
                    restore()
                    self.assertEqual([m["source"] for m in got["missing"]], [name], (path, params, number))
                    for member in ("mean", "change"):  # both sources have equal counts, so the counts of one give the same
                        self.assertEqual(got.get(member), whole.get(member), (path, params, name, number))
                        self.assertEqual([r.get(member) for r in got.get("rows", ())], [r.get(member) for r in whole.get("rows", ())])
                    self.assertEqual(self.ask(path, **params), whole)

    def test_a_swap_during_each_question_counts_nothing_twice(self):
        def swap(h):
            self.archive.generation += 1
            self.archive.through += 1
            h.answer(410, b"")
            return True
        for path, params, questions in REQUESTS:
            whole = self.ask(path, **params)
            for number in range(questions):
                before = len(self.archive.asked), len(self.live.asked)
                restore = self.answer_with(self.live, number, swap)
                self.assertEqual(self.ask(path, **params), whole)
                restore()
                self.assertEqual((len(self.archive.asked) - before[0], len(self.live.asked) - before[1]), (questions + 1, questions + 1))
                self.assertIn("&after=%d" % self.archive.through, self.live.asked[before[1] + number + 1])

    def test_quarter_hours_from_a_question_on(self):
        """A recount has moved the counts of an hour to its last quarter hour. The answer asks for the same periods in all its questions."""
        hour, records = hour_text(MARCH + HOUR), dict(self.live.records)
        recounted = {k.replace("." + hour, "." + hour + "3"): v.replace(hour, hour + "3") for k, v in records.items()}

        def recount(h):
            self.live.records, self.live.quarters_since = recounted, MARCH
            return False
        for path, params, questions in REQUESTS:
            for number in range(questions):
                self.live.records, self.live.quarters_since = records, None
                self.ask(path, **params)
                restore = self.answer_with(self.live, number, recount)
                got, asked = self.ask(path, **params), self.live.asked[-questions:]
                restore()
                self.assertEqual((got, asked), (self.ask(path, **params), self.live.asked[-questions:]), (path, params, number))

    def test_each_source_fails_in_another_question(self):
        """A partial answer needs a source that has answered all questions."""
        path, params, _ = REQUESTS[0]
        usual = self.archive.act
        self.archive.act = lambda h: refuse(h) if "lookup" in h.path else usual(h)
        self.live.act = lambda h: refuse(h) if "c.revenue" in h.path else False
        got = self.ask(path, 503, partial="allow", **params)
        self.assertEqual(sorted(m["source"] for m in got["missing"]), ["aggregator", "sortdb"])

    def test_a_restart_between_the_questions_for_the_largest(self):
        """counted_since is that of the question whose counts are in the answer."""
        asked = []

        def act(h):
            if h.path.startswith("/range"):
                asked.append(h.path)
                self.live.since = MARCH + HOUR + 1800 if len(asked) > 1 else None
            return False
        self.live.act = act
        got = self.ask("series", by="country", top=2, unit="hour")
        self.assertEqual((len(asked), got.get("counted_since")), (2, MARCH + HOUR + 1800))
        self.assertIsNone(got["series"][0]["rows"][0]["n"])

    def test_the_client_leaves_during_each_question(self):
        path, params, questions = REQUESTS[0]
        whole, ended = self.ask(path, **params), []

        def hold(h):
            ended.append(h.connection.recv(1))  # nothing before the API closes the connection
            h.close_connection = True
            return True
        address = urllib.parse.urlsplit(self.api.url)
        for number in range(questions):
            before = len(self.live.asked)
            restore = self.answer_with(self.live, number, hold)
            with socket.create_connection((address.hostname, address.port)) as client:
                target = "/v1/%s?%s" % (path, query(revenue="hat", **SPAN, **params))
                client.sendall(b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % target.encode())
                wait_until(lambda: len(self.live.asked) == before + number + 1, "the question")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wait_until(lambda: ended == [b""] * (number + 1), lambda: ended)
            restore()
            self.assertEqual(self.ask(path, **params), whole)
        wait_until(lambda: json.loads(self.api.get("/stats?format=json").text)["http_connections"] == 1, "the end of their connections")


if __name__ == "__main__":
    harness.main()
