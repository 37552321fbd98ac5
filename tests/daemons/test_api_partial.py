"""Answers without a source: refused by name and time, or marked with partial=allow; never short without saying so."""
import json
import threading
import time

import harness
from harness import query
from test_api import MARCH, Source, hour_text
from test_api_sources import Archive

SPAN = {"from_": MARCH, "to": MARCH + 7200, "unit": "hour"}


def refuse(h):
    h.answer(503, b"not yet")
    return True


def short(h):
    h.send_response(200)
    h.send_header("Content-Length", "1000")
    h.send_header("X-Millrace-Through", "3")
    h.end_headers()
    h.wfile.write(("u|k,%s:500\n" % hour_text(MARCH)).encode())
    h.close_connection = True
    return True


class Partial(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.live = Archive(self), Source(self)
        self.archive.records["u|k"] = hour_text(MARCH) + ":3"
        self.live.records["u|k"] = "%s:4 %s:5" % (hour_text(MARCH), hour_text(MARCH + 3600))
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--sortdb-url", self.archive.url, "--aggregator-url", self.live.url,
                              "--queue-url", self.live.url, "--upstream-timeout=10m")

    def ask(self, path="series", status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(**{"user": "k", **SPAN, **params})))
        self.assertEqual(reply.status, status, reply)
        return reply

    def check_missing(self, got, name, url, begin):
        self.assertEqual([(m["source"], m["url"]) for m in got["missing"]], [(name, url)])
        self.assertTrue(begin <= got["missing"][0]["since"] <= time.time(), got)
        self.assertTrue(got["missing"][0]["error"])

    def test_a_source_that_is_down_is_named_with_the_time(self):
        begin = int(time.time())
        self.archive.act = refuse
        got = self.ask(status=503).json()
        self.assertEqual(got["code"], "upstream-unavailable")
        self.assertIn("partial=allow", got["hint"])
        self.assertRegex(got["detail"], r"sortdb at \S+: answered with status 503, since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
        self.check_missing(got, "sortdb", self.archive.url, begin)
        harness.wait_until(lambda: time.time() > got["missing"][0]["since"] + 1.1, "a later second")
        self.assertEqual(self.ask(status=503).json()["missing"], got["missing"])
        self.archive.act = self.archive.reply
        self.assertNotIn("missing", self.ask().json())
        self.archive.act = refuse
        self.assertGreater(self.ask(status=503).json()["missing"][0]["since"], got["missing"][0]["since"])

    def test_an_archive_without_the_quarter_hours_of_the_configuration_answers_alone(self):
        config = self.write("quarters.conf", harness.sample_counters().replace("[input]", "[input]\nresolution = 15m"))
        self.api = self.start("api", "--config", config, "--sortdb-url", self.archive.url, "--aggregator-url", self.live.url)
        self.live.act = refuse
        for path, more in (("series", {}), ("breakdown", {"unit": None}), ("compare", {})):
            got = self.ask(path, partial="allow", by="country" if path == "breakdown" else None, **more).json()
            self.assertEqual([m["source"] for m in got["missing"]], ["aggregator"])

    def test_without_the_archive_the_slices_that_are_left_are_counted_and_no_row_is_complete(self):
        def cleared(h):
            if "after=2" in h.path:
                return False
            h.answer(410, b"", {"X-Millrace-Cleared": 2})
            return True
        begin = int(time.time())
        self.live.act = cleared
        for act in (refuse, short):
            self.archive.act = act
            reply = self.ask(partial="allow")
            got = reply.json()
            self.assertEqual((got["partial"], got["total"], got["complete_until"]), (True, 9, None))
            self.assertEqual([(r["n"], r["complete"]) for r in got["rows"]], [(4, False), (5, False)])
            self.check_missing(got, "sortdb", self.archive.url, begin)
            self.assertRegex(reply.header("X-Millrace-Missing"), r"^sortdb since \d+$")
        self.assertIn("&after=2", self.live.asked[-1])
        self.assertEqual(self.ask(partial="allow", format="csv").text.splitlines()[1].split(",")[2:], ["4", "false"])

    def test_without_the_aggregator_rows_are_complete_up_to_the_time_of_the_archive(self):
        self.live.act = refuse
        reply = self.ask(partial="allow")
        self.assertEqual((reply.json()["total"], reply.json()["complete_until"]), (3, None))
        self.assertEqual(reply.header("X-Millrace-Complete-Until"), "0")
        self.archive.until = MARCH + 3600
        got = self.ask(partial="allow").json()
        self.assertEqual((got["partial"], got["total"], got["complete_until"]), (True, 3, MARCH + 3600))
        self.assertEqual([r["complete"] for r in got["rows"]], [True, False])

    def test_without_the_aggregator_rows_before_a_counter_was_added_stay_null(self):
        self.live.complete_until, self.live.since = MARCH + 7200, MARCH + 3600
        self.archive.until, self.archive.since = MARCH + 7200, MARCH + 3600
        rows = [(None, False), (0, True)]
        for _ in range(2):
            got = self.ask(partial="allow", user="other").json()
            self.assertEqual(([(r["n"], r["complete"]) for r in got["rows"]], got["counted_since"]), (rows, MARCH + 3600))
            self.live.act = refuse
        self.live.act, self.archive.records["c.u|k." + hour_text(MARCH + 3600)] = None, "US:1"
        for span, complete in (({"from_": MARCH}, False), ({"from_": MARCH + 3600}, True)):
            got = self.ask("breakdown", unit=None, by="country", **span).json()
            self.assertEqual([r["complete"] for r in got["rows"]], [complete])

    def test_breakdowns_and_comparisons(self):
        for source, n in ((self.archive, 3), (self.live, 4)):
            source.records["c.u|k." + hour_text(MARCH)] = "US:%d" % n
        got = self.ask("breakdown", unit=None, by="country").json()
        self.assertEqual([(r["n"], r["complete"]) for r in got["rows"]], [(7, True)])
        self.archive.act = refuse
        got = self.ask("breakdown", unit=None, by="country", partial="allow").json()
        self.assertEqual(([(r["n"], r["complete"]) for r in got["rows"]], got["missing"][0]["source"]), ([(4, False)], "sortdb"))
        text = self.ask("breakdown", unit=None, by="country", partial="allow", format="csv").text
        self.assertEqual(text, "key,n,share,complete\nUS,4,1.000000,false\n")
        self.assertTrue(self.ask("compare", partial="allow").json()["partial"])
        self.ask("breakdown", 503, unit=None, by="country")

    def test_a_source_that_fails_between_the_two_questions_for_the_largest(self):
        for source, n in ((self.archive, 3), (self.live, 4)):
            source.records["c.u|k." + hour_text(MARCH)] = "US:%d JP:1" % n
        for first_fails in (False, True):
            asked = len(self.archive.asked)
            self.archive.act = lambda h, begin=asked: (refuse if (len(self.archive.asked) == begin + 1) == first_fails else self.archive.reply)(h)
            got = self.ask(by="country", top=1, partial="allow").json()
            self.assertEqual(([s["total"] for s in got["series"]], got["missing"][0]["source"]), ([4, 1], "sortdb"))
            self.assertFalse(any(r["complete"] for s in got["series"] for r in s["rows"]))
        asked = len(self.archive.asked)
        self.archive.act = lambda h: (self.archive.reply if len(self.archive.asked) == asked + 1 else refuse)(h)
        self.ask(status=503, by="country", top=1)

    def test_a_source_that_hangs_is_left_out_after_the_seconds_of_the_request(self):
        harness.slower_and_slower(1, self.left_out_after, tries=3)
        for text in ("0", "601", "1s", "yes"):
            self.assertIn("partial must be", self.ask(status=400, partial=text).json()["detail"])

    def left_out_after(self, seconds):
        """On a machine that stood still, the source that does not hang may be late, too."""
        end = threading.Event()
        self.addCleanup(end.set)

        def hang(h):
            if not h.path.startswith(("/health", "/stats")):
                end.wait(harness.PATIENCE)
            return False
        self.live.act = hang
        begin = time.monotonic()
        got = self.ask(partial=seconds).json()
        self.assertEqual((got["partial"], got["total"], got["missing"][0]["source"]), (True, 3, "aggregator"))
        self.assertIn("timeout", got["missing"][0]["error"])
        self.assertGreater(time.monotonic() - begin, 0.9 * seconds)
        end.set()
        self.assertNotIn("partial", self.ask(partial=seconds).json())

    def test_nothing_can_be_reached(self):
        self.archive.act = self.live.act = refuse
        got = self.ask(status=503, partial="allow").json()
        self.assertEqual([m["source"] for m in got["missing"]], ["sortdb", "aggregator"])
        self.assertEqual(self.ask(status=400, partial="yes").json()["code"], "bad-parameter")

    def test_freshness(self):
        now = int(time.time())
        states = {self.archive: {"generation": 5, "through": 3, "db_mtime": now - 500},
                  self.live: {"newest_event": now - 9, "complete_until": now - 20, "held_by": "b/host", "streams": {
                      "a": {"offset": "7", "end": "9", "newest_event": 0, "complete_until": 0, "held_by": ""},
                      "b": {"offset": "5", "end": "5", "newest_event": now - 9, "complete_until": now - 20, "held_by": "host"}}}}
        for source, state in states.items():
            source.act = lambda h, s=state: h.path == "/stats?format=json" and (h.answer(200, json.dumps(s).encode()), True)[1]
        got = self.api.get("/v1/freshness").json()
        late = got["time"] - now
        self.assertTrue(0 <= late <= time.time() - now)
        self.assertEqual(got["archive"], {"generation": 5, "through": 3, "made": now - 500, "age": 500 + late})
        newest = {"newest_event": now - 9, "newest_age": 9 + late, "complete_until": now - 20, "complete_age": 20 + late}
        unknown = dict.fromkeys(newest)
        self.assertEqual(got["streams"], [{"stream": "a", **unknown, "held_by": None, "lag_bytes": 2},
                                          {"stream": "b", **newest, "held_by": "host", "lag_bytes": 0}])
        self.assertEqual({k: got[k] for k in newest}, newest)
        self.assertEqual((got["held_by"], got["missing"]), ("b/host", []))
        for source in states:
            source.act = refuse
        got = self.api.get("/v1/freshness").json()
        self.assertEqual(({k: got[k] for k in newest}, got["streams"], got["archive"]), (unknown, [], None))
        self.assertEqual([m["source"] for m in got["missing"]], ["sortdb", "aggregator"])
        later = got["missing"][0]["since"] + 1.1
        harness.wait_until(lambda: time.time() > later, "a later second")
        self.assertEqual(self.api.get("/v1/freshness").json()["missing"], got["missing"])
        self.archive.act = lambda h: h.path == "/stats?format=json" and (h.answer(200, b"{}"), True)[1]
        self.assertEqual([m["source"] for m in self.api.get("/v1/freshness").json()["missing"]], ["aggregator"])
        self.archive.act = refuse
        self.assertGreater(self.api.get("/v1/freshness").json()["missing"][0]["since"], got["missing"][0]["since"])
        self.assertEqual(self.api.get("/v1/freshness?strem=a").status, 400)


if __name__ == "__main__":
    harness.main()
