"""ETags of the API: 304 only for the bytes that the client has, and never for an answer that has changed."""
import harness
import test_api
from harness import query, request
from test_api import MARCH, hour_text

END = MARCH + 7200


class EtagTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = test_api.Source(self)
        self.source.records["u|k"] = "%s:5" % hour_text(MARCH)
        self.start_api()

    def start_api(self, *args):
        self.api = self.start("api", "--config", self.write("test.conf", harness.sample_counters()), "--queue-url",
                              self.source.url, "--aggregator-url", self.source.url, *args)

    def ask(self, path="series", etag=None, method="GET", **params):
        params = params or {"user": "k", "unit": "hour", "from_": MARCH, "to": END}
        return request(self.api.url, method, "/v1/%s?%s" % (path, query(**params)),
                       headers={"If-None-Match": etag} if etag else {})

    def test_a_complete_answer_is_not_sent_again(self):
        first = self.ask()
        etag = first.header("ETag")
        self.assertRegex(etag, '^"[0-9a-f]{32}"$')
        self.assertEqual(first.header("Cache-Control"), "private, max-age=60")
        for named in (etag, "W/" + etag, '"x", %s' % etag, "%s, W/\"y\"" % etag, "*"):
            again = self.ask(etag=named)
            self.assertEqual((again.status, again.body, again.header("ETag")), (304, b"", etag), named)
            self.assertEqual(again.header("Cache-Control"), "private, max-age=60")
            self.assertEqual(again.header("Content-Length"), None)
        for other in ('"x"', etag[1:-1], etag[:-2] + '"', '"' + etag, etag + "x"):
            again = self.ask(etag=other)
            want = 304 if other in (etag + "x",) else 200  # a list that ends badly still names the tag
            self.assertEqual(again.status, want, other)
        head = self.ask(method="HEAD")
        self.assertEqual((head.status, head.header("ETag")), (200, etag))
        self.assertEqual(self.ask(method="HEAD", etag=etag).status, 304)

    def test_a_late_event_changes_the_tag(self):
        for path, params, key in (("series", {"user": "k"}, "u|k"), ("compare", {"user": "k"}, "u|k"),
                                  ("breakdown", {"user": "k", "by": "country"}, "c.u|k." + hour_text(MARCH))):
            params = {**params, "from_": MARCH, "to": END}
            for fmt in ("json", "csv"):
                count = "%s:%d" if path != "breakdown" else "JP%.0s:%d"
                self.source.records[key] = count % (hour_text(MARCH), 5)
                etag = self.ask(path, **params, format=fmt).header("ETag")
                self.assertEqual(self.ask(path, etag, **params, format=fmt).status, 304)
                self.source.records[key] = count % (hour_text(MARCH), 6)
                changed = self.ask(path, etag, **params, format=fmt)
                self.assertEqual(changed.status, 200, (path, fmt))
                self.assertNotEqual(changed.header("ETag"), etag)

    def test_time_that_passes_does_not_change_a_complete_answer(self):
        self.source.complete_until = END
        first = self.ask()
        self.source.complete_until = END + 1000
        self.assertEqual(self.ask(etag=first.header("ETag")).status, 304)
        self.assertEqual(first.json()["complete_until"], END)
        self.assertEqual(self.ask().header("X-Millrace-Complete-Until"), str(END + 1000))

    def test_an_incomplete_answer_is_asked_for_again(self):
        self.source.complete_until = END - 1
        first = self.ask()
        self.assertEqual(first.header("Cache-Control"), "private, no-cache")
        self.assertEqual([r["complete"] for r in first.json()["rows"]], [True, False])
        self.assertEqual(self.ask(etag=first.header("ETag")).status, 304)
        self.source.complete_until = END
        now_complete = self.ask(etag=first.header("ETag"))
        self.assertEqual((now_complete.status, now_complete.header("Cache-Control")), (200, "private, max-age=60"))
        # `to` within a day: the day's row is incomplete, although all hours asked for are complete.
        part = self.ask(user="k", from_=MARCH, to=END)
        self.assertEqual(part.header("Cache-Control"), "private, no-cache")
        later = self.ask("compare", user="k", unit="hour", from_=MARCH, to=END, against="%d..%d" % (END, END + 3600))
        self.assertEqual(later.header("Cache-Control"), "private, no-cache")

    def test_an_answer_of_a_year_of_hours_has_a_tag(self):
        params = {"user": "k", "unit": "hour", "from_": MARCH, "to": MARCH + 8760 * 3600}
        first = self.ask(**params)
        self.assertGreater(len(first.body), 256 << 10)
        self.assertEqual(self.ask(etag=first.header("ETag"), **params).status, 304)
        longer = self.ask(**{**params, "to": MARCH + 8 * 8760 * 3600})
        self.assertEqual((longer.header("ETag"), longer.header("Cache-Control")), (None, "private, no-cache"))
        self.assertEqual(len(longer.json()["rows"]), 8 * 8760)

    def test_max_age_is_a_setting(self):
        self.start_api("--max-age=0")
        self.assertEqual(self.ask().header("Cache-Control"), "private, no-cache")

    def test_errors_have_no_tag(self):
        self.source.act = lambda h: h.answer(503, b"") or True
        reply = self.ask(etag="*")
        self.assertEqual((reply.status, reply.header("ETag")), (503, None))


if __name__ == "__main__":
    harness.main()
