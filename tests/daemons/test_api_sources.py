"""The API over an archive and an aggregator that this test plays: both are added, a swap between them starts the question
over, and what cannot be had whole is refused."""
import json
import os
import select
import socket
import urllib.parse

import harness
from harness import query, wait_until
from test_api import MARCH, Source, hour_text

SPAN = {"from_": MARCH, "to": MARCH + 3600}


class Archive(Source):
    """A sortdb: its answers name generation and slice instead of a time."""

    def __init__(self, test):
        self.generation, self.through, self.page, self.knows_rollups, self.until = 5, 3, 1000, True, 0
        super().__init__(test)
        self.act = self.reply

    def reply(self, h):
        parts = urllib.parse.urlsplit(h.path)
        if parts.path in ("/health", "/stats"):
            return False
        lines = self.lines(parts.path, urllib.parse.parse_qs(parts.query)).splitlines(keepends=True)
        headers = {"X-Millrace-Generation": self.generation, "X-Millrace-Through": self.through, "X-Millrace-Stored-Until": self.until,
                   **({"X-Millrace-Counted-Since": self.since} if self.since else {})}
        if self.knows_rollups:
            headers["X-Millrace-Rollups"] = "1"
        if len(lines) > self.page:
            headers["X-Millrace-Next"] = urllib.parse.quote(lines[self.page].partition(b",")[0], safe="")
        h.answer(200, b"".join(lines[:self.page]), headers)
        return True


class ApiSources(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.live = Archive(self), Source(self)
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--sortdb-url", self.archive.url, "--aggregator-url",
                              self.live.url, "--upstream-timeout", "10m")

    def ask(self, path, status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(**params)))
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def total(self):
        return self.ask("series", user="k", **SPAN)["total"]

    def test_a_sortdb_that_would_count_rollups_twice_is_refused(self):
        self.archive.knows_rollups = False
        for t in (MARCH, MARCH + 3600):
            self.archive.records["c.u|k." + hour_text(t)] = "JP:1"
        self.archive.records["c.u|k." + hour_text(MARCH)[:3]] = "JP:2"
        problem = self.ask("breakdown", 503, user="k", by="country", **SPAN)
        self.assertIn("it does not know rollups; update it", problem["detail"])
        self.archive.records["u|k"] = hour_text(MARCH) + ":3"
        self.assertEqual(self.total(), 3)  # totals have no rollups

    def test_an_address_of_the_wrong_daemon_counts_nothing_twice(self):
        self.archive.records["u|k"] = self.live.records["u|k"] = hour_text(MARCH) + ":3"
        for urls in ((self.archive.url, self.archive.url), (self.live.url, self.live.url), (self.live.url, self.archive.url)):
            self.api.stop()
            self.api = self.start("api", "--config", self.path("test.conf"), "--sortdb-url", urls[0], "--aggregator-url", urls[1])
            self.assertIn("does not follow the read protocol", self.ask("series", 503, user="k", **SPAN)["detail"], urls)

    def test_both_are_added_and_the_aggregator_says_until_when(self):
        self.archive.records["u|k"] = hour_text(MARCH) + ":3"
        self.live.records["u|k"] = hour_text(MARCH) + ":4"
        self.live.complete_until = MARCH + 60
        got = self.ask("series", user="k", **SPAN)
        self.assertEqual((got["total"], got["complete_until"]), (7, MARCH + 60))
        self.assertNotIn("after=", self.archive.asked[-1])
        self.assertIn("&after=3", self.live.asked[-1])

    def test_each_gets_the_token_it_asks_for(self):
        queue, seen = Source(self), {}
        for name in ("sortdb", "aggregator", "queue"):
            os.chmod(self.write(name + ".token", "of-" + name), 0o600)

        def note(name, answer=lambda h: False):
            def act(h):
                seen[name] = h.headers["Authorization"]
                return answer(h)
            return act
        self.archive.act, self.live.act = note("sortdb", self.archive.act), note("aggregator")
        queue.act = note("queue")
        urls = ["--sortdb-url", self.archive.url, "--aggregator-url", self.live.url, "--queue-url", queue.url]
        tokens = ["--%s-token-file=%s" % (name, self.path(name + ".token")) for name in ("sortdb", "aggregator", "queue")]
        self.api.stop()
        self.api = self.start("api", "--config", self.path("test.conf"), *urls, *tokens)
        self.total()
        self.assertEqual(self.api.post("/v1/events", b"{}").status, 200)
        self.assertEqual(seen, {name: "Bearer of-" + name for name in ("sortdb", "aggregator", "queue")})
        for missing in range(3):
            refused = self.run_program("api", "--config", self.path("test.conf"), "--port=0", *urls, tokens[missing] + "-no")
            self.assertEqual(refused.returncode, 78, refused)
            self.assertIn(b"cannot read the token file", refused.stderr)

    def test_an_empty_archive_is_asked_first_all_the_same(self):
        self.archive.generation = self.archive.through = 0
        self.live.records["u|k"] = hour_text(MARCH) + ":4"
        self.assertEqual(self.total(), 4)
        self.assertIn("&after=0", self.live.asked[-1])

    def test_a_swap_between_the_two_starts_over_with_nothing_doubled(self):
        self.archive.records["u|k"] = hour_text(MARCH) + ":3"
        self.live.records["u|k"] = hour_text(MARCH) + ":1"

        def cleared(h):
            if "after=3" not in h.path:
                return False
            self.archive.records["u|k"] = hour_text(MARCH) + ":10"
            self.archive.generation, self.archive.through = 6, 4
            h.answer(410, b"")
            return True
        self.live.act = cleared
        self.assertEqual(self.total(), 11)
        self.assertEqual([len(self.archive.asked), len(self.live.asked)], [2, 2])

    def test_a_swap_without_end_is_given_up(self):
        def cleared(h):
            h.answer(410, b"")
            return True
        self.live.act = cleared
        got = self.ask("series", 503, user="k", **SPAN)
        self.assertEqual(got["code"], "upstream-unavailable")
        self.assertIn(len(self.live.asked), range(2, 50))

    def put_pages(self, n):
        for i in range(4):
            self.archive.records["c.u|k." + hour_text(MARCH + 3600 * i)] = "US:%d" % n

    def breakdown(self, status=200):
        return self.ask("breakdown", status, user="k", by="country", from_=MARCH, to=MARCH + 4 * 3600)

    def test_a_long_answer_comes_in_pages(self):
        self.archive.page = 1
        self.put_pages(5)
        self.live.records["c.u|k." + hour_text(MARCH)] = "JP:1"
        self.assertEqual([(r["key"], r["n"]) for r in self.breakdown()["rows"]], [("US", 20), ("JP", 1)])
        self.assertEqual([len(self.archive.asked), len(self.live.asked)], [5, 2])

    def test_pages_of_two_generations_start_over(self):
        self.archive.page = 1
        self.put_pages(5)

        def swapped(h):
            if len(self.archive.asked) == 3:
                self.put_pages(7)
                self.archive.generation, self.archive.through = 6, 4
            return self.archive.reply(h)
        self.archive.act = swapped
        self.assertEqual([(r["key"], r["n"]) for r in self.breakdown()["rows"]], [("US", 28)])
        self.assertEqual(len(self.archive.asked), 3 + 4 + 1)
        self.assertIn("after=4", self.live.asked[-1])

    def test_generations_that_change_without_end_are_given_up(self):
        self.archive.page = 1
        self.put_pages(5)

        def swapped(h):
            self.archive.generation += 1
            return self.archive.reply(h)
        self.archive.act = swapped
        self.assertEqual(self.breakdown(503)["code"], "upstream-unavailable")

    def test_either_side_away_is_no_answer(self):
        def refuse(h):
            h.answer(503, b"")
            return True

        def neither(h):
            h.answer(200, b"u|k,c3p1:5\n")
            return True

        def foreign(h):
            h.answer(409, b"")
            return True
        def damaged(h):
            h.answer(503, b'{"code":"storage-failed","detail":"archive/a.csv: the checksum is wrong"}')
            return True
        usual, self.archive.act = self.archive.act, damaged
        reply = self.ask("series", 503, user="k", **SPAN)
        self.assertIn("archive/a.csv: the checksum is wrong", reply["detail"])
        self.assertTrue(reply["hint"].startswith("restore the file that the reason names"), reply)
        self.archive.act = usual
        for source in (self.archive, self.live):
            usual = source.act
            for act in (refuse, neither, foreign):
                source.act = act
                self.assertEqual(self.ask("series", 503, user="k", **SPAN)["code"], "upstream-unavailable")
            source.act = usual
        self.assertEqual(self.total(), 0)

    def test_the_problem_of_a_refused_request_is_passed_on(self):
        problem = b'{"code":"bad-parameter","detail":"after is new to me"}'
        for source, name in ((self.archive, "sortdb"), (self.live, "aggregator")):
            usual = source.act

            def refuse(h, status=400):
                h.answer(status, problem)
                return True
            source.act = refuse
            for partial in (None, "allow"):
                for path, more in (("series", {}), ("breakdown", {"by": "country"}), ("compare", {})):
                    got = self.ask(path, 502, user="k", partial=partial, **SPAN, **more)
                    self.assertEqual(got["code"], "upstream-refused")
                    self.assertEqual(got["detail"], "%s at %s: answered with status 400: after is new to me" % (name, source.url))
                    self.assertNotIn("missing", got)
            source.act = lambda h: refuse(h, 503)
            self.assertIn("answered with status 503: after is new to me, since", self.ask("series", 503, user="k", **SPAN)["detail"])
            source.act = usual
        self.assertEqual(self.total(), 0)

    def test_a_question_ends_when_its_client_has_gone(self):
        ended = []

        def send_without_end(h):
            if "u%7Ck" not in h.path:
                return False
            h.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\nX-Millrace-Complete-Until: 9\r\n\r\nu|k,")
            while not select.select([h.connection], [], [], 0.01)[0]:
                h.connection.sendall(hour_text(MARCH).encode() + b":1 ")
            ended.append(h.connection.recv(1))
            h.close_connection = True
            return True
        self.live.act = send_without_end
        address = urllib.parse.urlsplit(self.api.url)
        with socket.create_connection((address.hostname, address.port)) as client:
            client.sendall(b"GET /v1/series?%s HTTP/1.1\r\nHost: h\r\n\r\n" % query(user="k", **SPAN).encode())
            wait_until(lambda: any("u%7Ck" in path for path in self.live.asked), "the question")
        wait_until(lambda: ended == [b""], lambda: ended)
        self.live.act = None
        self.assertEqual(self.total(), 0)

    def test_health_is_200_while_every_source_answers(self):
        def health():
            reply = self.api.get("/health")
            return reply.status, reply.text
        self.live.check = 410  # of an aggregator that has cleared slices
        for source, name in ((self.archive, "sortdb"), (self.live, "aggregator")):
            wait_until(lambda: health() == (200, "ready\n"), health)
            for status, why in ((503, "answered with status 503"), (0, "no reply in time")):
                source.check = status
                told = "%s at %s does not answer queries (%s); events are stored" % (name, source.url, why)
                wait_until(lambda: health()[0] == 503 and told in health()[1], health)
                self.assertIn("not-well", health()[1])
                self.assertEqual(json.loads(self.api.get("/stats?format=json").text)["healthy"], 0)
            source.check = 200
            source.released.set()
            # without further requests for /health, because an alert watches only the metric
            wait_until(lambda: json.loads(self.api.get("/stats?format=json").text)["healthy"] == 1, "checks that go on")

    def test_lookups_of_either_side(self):
        texts = {"pAAAAAAAAAA=": "archived", "qAAAAAAAAAA=": "live", "rAAAAAAAAAA=": "both"}
        hour = "r.u|k." + hour_text(MARCH)
        self.archive.records.update({hour: "pAAAAAAAAAA=:3 rAAAAAAAAAA=:2", "lookup|pAAAAAAAAAA=": "archived",
                                     "lookup|rAAAAAAAAAA=": "both"})
        self.live.records.update({hour: "qAAAAAAAAAA=:1 rAAAAAAAAAA=:2", "lookup|qAAAAAAAAAA=": "live",
                                  "lookup|rAAAAAAAAAA=": "both"})
        got = self.ask("breakdown", user="k", by="referrer", **SPAN)
        self.assertEqual([(r["key"], r["n"]) for r in got["rows"]],
                         [(texts["rAAAAAAAAAA="], 4), (texts["pAAAAAAAAAA="], 3), (texts["qAAAAAAAAAA="], 1)])

    def test_texts_that_are_too_long_for_one_answer_are_asked_for_in_parts(self):
        names = ["%011d=" % i for i in range(300)]
        self.archive.records.update({"lookup|" + name: "archived " + name for name in names})
        self.live.records.update({"lookup|" + name: "also " + name for name in names})
        self.live.records["r.u|k." + hour_text(MARCH)] = " ".join(name + ":1" for name in names)
        refused = []

        def act(h):
            if h.path.count("k=") <= 40:
                return False
            refused.append(h.path)
            h.answer(413, b"")
            return True
        self.live.act = act
        got = self.ask("breakdown", user="k", by="referrer", limit=300, **SPAN)
        self.assertEqual([r["key"] for r in got["rows"]], ["also " + name for name in names])
        self.assertTrue(refused)

    def test_a_span_in_which_no_hour_begins_counts_nothing(self):
        for hour in (MARCH, MARCH + 3600):
            self.archive.records["c.u|k." + hour_text(hour)] = "US:5"
        self.live.records["c.u|k.0110"] = self.live.records["c.u|k.zvcvn"] = "US:7"
        end = 5995814400  # what begins with it has no text
        for first, last in ((MARCH + 1, MARCH + 2), (MARCH + 1, MARCH + 3600), (0, 946684800), (end - 1, end),
                            (end - 3599, end)):
            got = self.ask("breakdown", user="k", by="country", from_=first, to=last, timezone="Asia/Kolkata", round="hour")
            self.assertEqual((got["total"], got["rows"]), (0, []), (first, last))
        for first, last, n in ((MARCH + 1, MARCH + 3601, 5), (0, 946684801, 7), (end - 3600, end, 7)):
            got = self.ask("breakdown", user="k", by="country", from_=first, to=last, timezone="Asia/Kolkata", round="hour")
            self.assertEqual(got["total"], n, (first, last))

    def test_of_two_texts_under_one_hash_the_smaller_is_shown(self):
        hour = "r.u|k." + hour_text(MARCH)
        self.archive.records.update({hour: "pAAAAAAAAAA=:3", "lookup|pAAAAAAAAAA=": "an older one"})
        self.live.records.update({hour: "pAAAAAAAAAA=:1", "lookup|pAAAAAAAAAA=": "one more"})
        for _ in range(2):
            got = self.ask("breakdown", user="k", by="referrer", **SPAN)
            self.assertEqual([(r["key"], r["n"]) for r in got["rows"]], [("an older one", 4)])
            both = self.archive.records, self.live.records
            self.live.records, self.archive.records = both

    def test_the_section_of_a_configuration_names_sortdb(self):
        port = self.archive.url.rpartition(":")[2]
        config = self.write("section.conf", "[sortdb]\nport = %s\n" % port + harness.sample_counters())
        self.api = self.start("api", "--config", config, "--aggregator-url", self.live.url)
        self.archive.records["u|k"] = hour_text(MARCH) + ":3"
        self.assertEqual(self.total(), 3)
        self.assertIn("&after=3", self.live.asked[-1])


if __name__ == "__main__":
    harness.main()
