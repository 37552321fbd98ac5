"""The API over a source that this test plays: exact sums, the right refusals, and never a part of an answer."""
import collections
import csv
import datetime
import gzip
import http.server
import io
import json
import re
import sqlite3
import subprocess
import threading
import time
import urllib.parse
import zoneinfo

import harness
from harness import query, wait_until

B32 = "0123456789abcdefghijklmnopqrstuv"
CHECK = "/mget?k=lookup%7CAAAAAAAAAAA%3D"  # of /health
MARCH = 1332637200  # 25 March 2012, 01:00 UTC


def hour_text(t):
    d = datetime.datetime.fromtimestamp(t, datetime.timezone.utc)
    return "".join(B32[n] for n in (d.year - 2000, d.month, d.day, d.hour))


class Source(http.server.ThreadingHTTPServer):
    """Speaks the read protocol over a dictionary; `act` may answer a request in another way."""
    daemon_threads = True

    def __init__(self, test):
        self.records, self.asked, self.posted, self.act = {}, [], [], None
        self.complete_until, self.slice, self.since, self.quarters_since = 4000000000, 0, None, None
        self.cleared = 0  # last cleared slice, in the answer to a check
        self.check = 200  # status of the answer to a check; 0: none before `released`
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        test.addCleanup(self.server_close)
        test.addCleanup(self.shutdown)
        self.url = "http://127.0.0.1:%d" % self.server_address[1]

    def lines(self, path, params):
        if path == "/mget":
            keys = [k for k in params.get("k", []) if k in self.records]
        else:
            start, end = params["start"][0] + ",", params["end"][0] + ","
            keys = sorted(k for k in self.records if start <= k + "," <= end)
        return "".join("%s,%s\n" % (k, self.records[k]) for k in keys).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as in sink.py
    earlier = -1  # requests on this connection before this one

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        s = self.server
        self.earlier += 1
        parts = urllib.parse.urlsplit(self.path)
        if self.path.startswith(CHECK):
            if not s.check:
                s.released.wait(harness.PATIENCE)
            self.answer(s.check or 200, b"", {"X-Millrace-Through": s.slice, "X-Millrace-Cleared": s.cleared, "X-Millrace-Generation": getattr(s, "generation", 1), "X-Millrace-Complete-Until": 0})
            return
        is_poll = parts.path in ("/health", "/stats")  # of /v1/pipeline, or of /v1/freshness
        if not is_poll:
            s.asked.append(self.path)
        if s.act and s.act(self):
            return
        if is_poll:
            self.answer(200, b"{}")
            return
        self.answer(200, s.lines(parts.path, urllib.parse.parse_qs(parts.query)),
                    {"X-Millrace-Slice": s.slice, "X-Millrace-Complete-Until": s.complete_until, "X-Millrace-Stored-Until": s.complete_until,
                     **({"X-Millrace-Quarters-Since": s.quarters_since} if s.quarters_since else {}),
                     **({"X-Millrace-Counted-Since": s.since} if s.since else {})})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posted.append((self.path, body))
        if not (self.server.act and self.server.act(self)):
            self.answer(200, b"")


class ApiTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = Source(self)
        self.config = self.write("test.conf", harness.sample_counters())
        self.start_api()

    def start_api(self, *args):
        self.api = self.start("api", "--config", self.config, "--aggregator-url", self.source.url, "--queue-url",
                              self.source.url, "--upstream-timeout", "10m", *args)

    def ask(self, path, status=200, **params):
        reply = self.api.get("/v1/%s?%s" % (path, query(**params)))
        self.assertEqual(reply.status, status, reply)
        return reply

    def test_series_sums_hours_into_local_units_and_fills_with_zeros(self):
        hours = {MARCH - 7200: 5, MARCH - 3600: 7, MARCH: 11, MARCH + 86400 * 2: 13}
        self.source.records["u|bitly"] = " ".join("%s:%d" % (hour_text(h), n) for h, n in sorted(hours.items()))
        span = {"from_": MARCH - 7200, "to": MARCH + 86400 * 2 + 3600}
        answer = self.ask("series", user="bitly", **span).json()
        self.assertEqual([(r["date"], r["n"]) for r in answer["rows"]],
                         [("2012-03-24", 5), ("2012-03-25", 18), ("2012-03-26", 0), ("2012-03-27", 13)])
        self.assertEqual((answer["total"], answer["ns"], answer["label"], answer["unit"], answer["timezone"]),
                         (36, "u", "user", "day", "UTC"))
        rows = self.ask("series", user="bitly", timezone="America/New_York", **span).json()["rows"]
        self.assertEqual([(r["date"], r["n"]) for r in rows],
                         [("2012-03-24", 23), ("2012-03-25", 0), ("2012-03-26", 13)])
        rows = self.ask("series", user="bitly", unit="hour", from_=MARCH, to=MARCH + 7200).json()["rows"]
        self.assertEqual(rows, [{"t": MARCH, "date": "2012-03-25T01:00:00+00:00", "n": 11, "complete": True},
                                {"t": MARCH + 3600, "date": "2012-03-25T02:00:00+00:00", "n": 0, "complete": True}])

    def test_an_hour_before_from_is_not_counted_though_its_day_is_shown(self):
        self.source.records["u|k"] = "%s:5 %s:7" % (hour_text(MARCH - 3600), hour_text(MARCH))
        answer = self.ask("series", user="k", from_=MARCH, to=MARCH + 3600).json()
        self.assertEqual(answer["rows"], [{"t": MARCH - 3600, "date": "2012-03-25", "n": 7, "complete": True}])

    def test_rows_are_complete_when_their_unit_is(self):
        self.source.complete_until = MARCH + 3600
        answer = self.ask("series", user="k", unit="hour", from_=MARCH, to=MARCH + 7200).json()
        self.assertEqual([r["complete"] for r in answer["rows"]], [True, False])
        self.assertEqual(answer["complete_until"], MARCH + 3600)

    def test_rows_are_complete_when_the_hour_ends_that_begins_in_them(self):
        """The client asks for a span that ends at half past."""
        half = MARCH + 1800
        self.source.records["c.u|k." + hour_text(MARCH)] = "US:1"
        for until, complete in ((half, False), (half + 1799, False), (half + 1800, True)):
            self.source.complete_until = until
            reply = self.ask("breakdown", user="k", by="country", from_=MARCH, to=half, bounds="outward")
            got = reply.json()
            self.assertEqual([r["complete"] for r in got["rows"]], [complete], (until, got))
            self.assertEqual("max-age" in reply.header("Cache-Control"), complete)
            self.assertEqual((got["complete_until"], got["to"], got["bounds"]), (until, half + 1800, "outward"))

    def test_bounds_that_cut_an_hour_are_refused_or_moved_outward(self):
        """The times of a client may be any seconds; the counts are by hour. In a zone of half hours, the bounds cut hours by rule."""
        self.source.records.update({"u|k": "%s:3 %s:4" % (hour_text(MARCH), hour_text(MARCH - 3600)), "c.u|k." + hour_text(MARCH): "US:3",
                                    "u.all|all." + hour_text(MARCH): "k:3"})
        asks = (("series", {"user": "k"}), ("series", {"user": "k", "unit": "hour"}), ("compare", {"user": "k", "unit": "hour"}),
                ("breakdown", {"user": "k", "by": "country"}), ("top", {"counter": "user"}), ("series", {"user": ["k", "j"]}))
        for path, params in asks:
            for from_, to, inward in ((MARCH + 60, MARCH + 3540, "no whole hour"), (MARCH + 1, MARCH + 3600, "no whole hour"),
                                      (MARCH, MARCH + 3599, "no whole hour"),
                                      (MARCH - 3599, MARCH + 3599, "from=2012-03-25T00:00:01Z")):
                span = {"from_": from_, "to": to}
                start, end = from_ - from_ % 3600, to + -to % 3600
                got = self.ask(path, 400, **span, **params).json()
                words = [datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
                         for t in (start, end, from_ + -from_ % 3600, to - to % 3600)]
                self.assertIn("from=%s&to=%s" % tuple(words[:2]), got["hint"])
                self.assertIn("inward: " + ("from=%s&to=%s" % tuple(words[2:]) if words[2] < words[3] else "no whole hour"), got["hint"])
                outward = self.ask(path, bounds="outward", **span, **params)
                exact = self.ask(path, from_=start, to=end, **params)
                self.assertEqual(outward.json().pop("bounds"), "outward")
                self.assertEqual(outward.text.replace('"bounds":"outward",', ""), exact.text)
                self.assertEqual(self.ask(path, from_=start, to=end, bounds="outward", **params).text, exact.text)
                self.assertEqual(self.ask(path, format="csv", bounds="outward", **span, **params).text,
                                 self.ask(path, format="csv", from_=start, to=end, **params).text)
                self.ask(path, timezone="Asia/Kolkata", round="hour", **span, **params)
        span = {"user": "k", "from_": MARCH, "to": MARCH + 3600, "unit": "hour"}
        got = self.ask("compare", 400, against="%d..%d" % (MARCH - 1800, MARCH), **span).json()
        self.assertEqual((got["detail"], got["hint"].split(": ")[1]), ("against: 2012-03-25T00:30:00Z is within a counted hour",
                                                                      "2012-03-25T00:00:00Z..2012-03-25T01:00:00Z; inward"))
        got = self.ask("compare", against="%d..%d" % (MARCH - 1800, MARCH), bounds="outward", **span).json()
        self.assertEqual((got["before"], got["bounds"]), ({"from": MARCH - 3600, "to": MARCH, "total": 4}, "outward"))
        got = self.ask("compare", 400, against="soon..later", bounds="inward", **span).json()
        got = self.ask("series", 400, bounds="inward", **span).json()
        self.assertEqual(got["detail"], "bounds must be outward")

    def test_a_target_that_is_too_long_names_what_works(self):
        """Not a body, which the queries refuse."""
        for path in ("/v1/series?user=", "/v1/lookup?prefix=", "/v1/incr?ns=u&key="):
            reply = self.api.get(path + "x" * 50000)
            self.assertEqual((reply.status, reply.json()["hint"]), (414, "send fewer or shorter values in each request"))

    def test_no_row_of_an_approximate_answer_is_complete(self):
        """Days of a zone with half hours from counts by UTC hour. A zone of whole hours is exact, also with round=hour."""
        self.source.records.update({"u|k": hour_text(MARCH) + ":3", "c.u|k." + hour_text(MARCH): "US:2 JP:1",
                                    "u.all|all." + hour_text(MARCH): "k:3"})
        self.source.complete_until = MARCH + 10 * 86400
        span = {"from_": "2012-03-25", "to": "2012-03-27"}
        asks = (("series", {"user": "k"}), ("series", {"user": "k", "unit": "hour"}), ("compare", {"user": "k"}),
                ("breakdown", {"user": "k", "by": "country"}), ("top", {"counter": "user"}),
                ("series", {"user": "k", "by": "country", "sub": "US"}), ("series", {"user": "k", "by": "country", "top": 1}))
        for zone, is_exact in (("Asia/Kolkata", False), ("Asia/Kathmandu", False), ("Europe/Berlin", True), ("UTC", True)):
            for path, params in asks:
                reply = self.ask(path, timezone=zone, round="hour", **span, **params)
                got = reply.json()
                rows = [r for one in got.get("series", [got]) for r in one["rows"]]
                self.assertEqual({(r["complete"], r.get("approximate")) for r in rows},
                                 {(True, None) if is_exact else (False, True)}, (zone, path, got))
                self.assertEqual((got.get("approximate"), got.get("round")), (None, None) if is_exact else (True, "hour"))
                self.assertEqual("max-age" in reply.header("Cache-Control"), is_exact)
                lines = list(csv.DictReader(io.StringIO(self.ask(path, timezone=zone, round="hour", format="csv", **span, **params).text)))
                self.assertEqual({(r["complete"], r.get("approximate")) for r in lines},
                                 {("true", None) if is_exact else ("false", "true")}, (zone, path, lines))
                self.assertEqual(len(lines), len(rows))

    def test_the_first_hour_of_a_zone_with_half_hours_begins_at_from(self):
        """Hours from 18:30 UTC. The UTC hour that begins at 18:00 is in the day before."""
        before = MARCH - 7 * 3600  # 24 March, 18:00 UTC
        self.source.records["u|k"] = "%s:2 %s:1" % (hour_text(before), hour_text(before + 3600))
        for day, at, first, last in (("2012-03-24", before - 23.5 * 3600, 0, 2), ("2012-03-25", before + 1800, 1, 0)):
            rows = self.ask("series", user="k", unit="hour", timezone="Asia/Kolkata", round="hour", period=day).json()["rows"]
            self.assertEqual((len(rows), rows[0]["t"], rows[0]["date"]), (24, at, day + "T00:00:00+05:30"))
            self.assertEqual((rows[0]["n"], rows[-1]["n"]), (first, last))

    def test_rows_of_a_zone_with_half_hours_have_an_hour_of_the_span(self):
        """No row is of the day before or after, whatever the bounds: the first and the last row contain an hour that starts in the span."""
        before = MARCH - 7 * 3600  # 24 March, 18:00 UTC; the local day begins at 18:30
        self.source.records["u|k"] = " ".join("%s:1" % hour_text(before + 3600 * i) for i in range(-30, 60))
        for start, end, unit, dates in ((before, before + 86400, "hour", 24), (before + 600, before + 1800 + 86400, "hour", 24),
                                        (before + 4200, before + 4200 + 86400, "hour", 24), (before + 600, before + 90000, "day", 1),
                                        (before + 60, before + 1800, "hour", 1), (before + 60, before + 1800, "day", 1)):
            for path, params in (("series", {}), ("compare", {"against": "%d..%d" % (start, end)})):
                for zone, half in (("Asia/Kolkata", 1800), ("Asia/Kathmandu", 900)):
                    got = self.ask(path, user="k", unit=unit, timezone=zone, round="hour", from_=start, to=end, **params).json()
                    self.assertEqual((got["from"], got["to"], got["approximate"]), (start, end, True))
                    self.assertEqual((len(got["rows"]), {(r["complete"], r["approximate"]) for r in got["rows"]}), (dates, {(False, True)}), (start, zone, got))
                    hours = len([t for t in range(before - 86400, end, 3600) if t >= start])
                    self.assertEqual((got["total"], sum(r["n"] for r in got["rows"])), (hours, hours))
                    if unit == "hour":
                        self.assertEqual({r["n"] for r in got["rows"]}, {1 if hours else 0})

    def test_breakdown_shows_ties_in_the_order_of_their_texts(self):
        texts = {"pAAAAAAAAAA=": "zzz://long text", "qAAAAAAAAAA=": "a, comma"}
        for stored, text in texts.items():
            self.source.records["lookup|" + stored] = text
        self.source.records["r.u|bitly." + hour_text(MARCH)] = "b:2 m:9 pAAAAAAAAAA=:2 qAAAAAAAAAA=:1"
        self.source.records["r.u|bitly." + hour_text(MARCH + 3600)] = "qAAAAAAAAAA=:1"
        self.source.records["r.u|bitly." + hour_text(MARCH + 7200)] = "outside:99"
        span = {"from_": MARCH, "to": MARCH + 7200}
        answer = self.ask("breakdown", user="bitly", by="referrer", limit=3, **span).json()
        self.assertEqual([(r["key"], r["n"]) for r in answer["rows"]], [("m", 9), ("a, comma", 2), ("b", 2)])
        self.assertEqual((answer["total"], answer["distinct"], answer["other"]), (15, 4, 2))
        self.assertAlmostEqual(answer["rows"][0]["share"], 0.6)
        text = self.ask("breakdown", user="bitly", by="referrer", format="csv", **span).text
        self.assertEqual([row[:2] for row in csv.reader(io.StringIO(text))],
                         [["key", "n"], ["m", "9"], ["a, comma", "2"], ["b", "2"], ["zzz://long text", "2"]])
        rows = self.ask("series", user="bitly", by="referrer", sub="a, comma", unit="hour", **span)
        self.assertEqual([r["n"] for r in rows.json()["rows"]], [0, 0])  # the text's own hash is another

    def test_a_breakdown_under_conditions_names_two_ways(self):
        """The hint's sections make a configuration that answers, and the hint's statement counts the lines, whatever the texts."""
        hard = ["JP", "None", "true", "42", "-7", "it's", '"q"', "$HOME $(x) `x` $.a", "\\n\\", "a:b", "\u00e9", "%s", "x, y"]
        events = [{"t": MARCH + 600 * i, "l": hard[i % len(hard)], "c": hard[i // 3 % len(hard)], "page": "/%d" % (i % 3), "a b": {"x.y": [i % 2]}} for i in range(300)]
        for event in events[::5]:
            event["c"] = {"None": None, "true": True, "42": 42, "-7": -7}.get(event["c"], event["c"])
        db = sqlite3.connect(":memory:")
        db.execute("CREATE TABLE events(stream, offset, time, line)")
        for i, event in enumerate(events):
            time_text = datetime.datetime.fromtimestamp(event["t"], datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
            db.execute("INSERT INTO events VALUES ('clicks', ?, ?, ?)", (i, time_text, json.dumps(event)))
        span = {"from_": MARCH + 3600, "to": MARCH + 7200 * 10}

        def text_of(value):
            return {None: "None", True: "true"}.get(value, str(value))

        def run(hint):
            """The rows of the statement, as a shell passes it."""
            command = hint[hint.index("\nmillrace sql ") + 1:]
            words = subprocess.run(["sh", "-c", "millrace() { printf '%s\\0' \"$@\"; }; " + command], stdout=subprocess.PIPE, check=True, env={}).stdout.decode().split("\0")
            self.assertEqual((words[0], len(words)), ("sql", 3), command)
            return {str(key): n for key, n in db.execute(words[1])}

        for i, value in enumerate(hard):
            other = hard[(i // 3 + i) % len(hard)]
            for key, wheres in (({"user": value}, ["country:" + other]), ({"feed": ""}, ["user:" + value, "c:" + other]), ({"feed": ""}, ["country:" + value])):
                hint = self.ask("breakdown", 422, by="page", where=wheres, limit=100, **key, **span).json()["hint"]
                wanted = [("l", value)] * ("user" in key) + [({"user": "l", "country": "c", "c": "c"}[w.partition(":")[0]], w.partition(":")[2]) for w in wheres]
                expected = collections.Counter(e["page"] for e in events if span["from_"] <= e["t"] < span["to"] and
                                               all(text_of(e[field]) == text for field, text in wanted))
                self.assertEqual(run(hint), expected, (wanted, hint))
        hint = self.ask("breakdown", 422, feed="", by="country", where='["a b"]["x.y"][0]:1', limit=100, **span).json()["hint"]
        expected = collections.Counter(text_of(e["c"]) for e in events if span["from_"] <= e["t"] < span["to"] and e["a b"]["x.y"][0] == 1)
        self.assertEqual(sum(run(hint).values()), sum(expected.values()))
        hint = self.ask("breakdown", 422, feed="", by="domain", where="page:/1").json()["hint"]
        self.assertNotIn("millrace sql", hint)  # SQL has no function host(u)
        counters = harness.sample_counters()
        for key, by, where, ns in (("", "page", "country:JP", "page.c"), ("", "page", "user:k", "page.u"), ("", "domain", "page:/1", "d.page"), ("", "x.y", "page:/1", "x_y.page")):
            hint = self.ask("breakdown", 422, feed=key, by=by, where=where, **span).json()["hint"]
            sections = re.search(r"(?s):\n(\[.*?)(or count|SQL)", hint)[1]
            counters += "\n" + sections
            self.config = self.write("more.conf", counters)
            self.start_api()
            self.source.records["%s|%s.%s" % (ns, where.partition(":")[2], hour_text(MARCH))] = "a:4"
            got = self.ask("breakdown", feed=key, by=by, where=where, from_=MARCH, to=MARCH + 3600).json()
            self.assertEqual((got["ns"], got["key"], got["rows"][0]["n"]), (ns, where.partition(":")[2], 4), sections)

    def test_breakdown_continues_after_a_row(self):
        """The answers of all requests together have each row once, in the order of one large answer. A key that has risen past the place is in none."""
        texts = {"p%010d=" % i: "long text %02d, %s" % (i * 7 % 30, "\u00e9\n" * (i % 2)) for i in range(30)}
        for stored, text in texts.items():
            self.source.records["lookup|" + stored] = text.replace("\n", "\\x0a")
        counts = {**{stored: 1 + i % 2 for i, stored in enumerate(texts)}, **{"k%02d" % i: 1 + i % 4 for i in range(30)}}

        def put():
            for ns in ("r.u|k", "u.all|all"):
                self.source.records["%s.%s" % (ns, hour_text(MARCH))] = " ".join("%s:%d" % pair for pair in sorted(counts.items()))

        put()
        span = {"from_": MARCH, "to": MARCH + 3600}
        for path, key in (("breakdown", {"user": "k", "by": "referrer"}), ("top", {"counter": "user"})):
            whole = self.ask(path, limit=1000, **key, **span).json()
            expected = sorted(((-n, texts.get(stored, stored)) for stored, n in counts.items()), key=lambda row: (row[0], row[1].encode()))
            self.assertEqual([(-r["n"], r["key"]) for r in whole["rows"]], expected)
            self.assertNotIn("next", whole)
            for limit in (1, 7, 20, 59, 60):
                rows, more = [], {}
                while True:
                    got = self.ask(path, limit=limit, **key, **span, **more).json()
                    reply = self.ask(path, limit=limit, format="csv", **key, **span, **more)
                    lines = list(csv.reader(io.StringIO(reply.text)))[1:]
                    self.assertEqual([(line[0], int(line[1])) for line in lines], [(r["key"], r["n"]) for r in got["rows"]])
                    rows += got["rows"]
                    self.assertEqual((got["total"], got["distinct"]), (whole["total"], 60))
                    self.assertEqual(got["other"], whole["total"] - sum(r["n"] for r in rows))
                    self.assertEqual(reply.headers.get("X-Millrace-Next"), got.get("next"))
                    if "next" not in got:
                        break
                    more = {"after": got["next"]}
                self.assertEqual(rows, whole["rows"])
        first = self.ask("breakdown", user="k", by="referrer", limit=12, **span).json()
        counts["k00"] += 100
        put()
        rest = self.ask("breakdown", user="k", by="referrer", limit=1000, after=first["next"], **span).json()
        self.assertEqual([r["key"] for r in first["rows"] + rest["rows"]], [key for _, key in expected if key != "k00"])
        self.assertEqual((rest["other"], rest["distinct"]), (0, 60))
        self.assertEqual(self.ask("breakdown", user="k", by="referrer", after="1-" + b"zzz".hex(), **span).json()["rows"], [])
        for wrong in ("", "5", "5-4", "-4a", "x-4a", "5-zz", "9223372036854775808-4a"):
            self.assertEqual(self.ask("breakdown", 400, user="k", by="referrer", after=wrong, **span).json()["code"], "bad-parameter", wrong)
        self.assertEqual(self.ask("series", 400, user="k", after="5-4a").json()["code"], "bad-parameter")

    def test_only_the_rows_and_their_ties_are_looked_up(self):
        names = ["%011d=" % i for i in range(2500)]
        for i, name in enumerate(names):
            self.source.records["lookup|" + name] = "text %05d" % (2499 - i)
        self.source.records["r.u|k." + hour_text(MARCH)] = " ".join(n + (":2" if n == names[0] else ":1") for n in names)
        keys = ["text 02499"] + ["text %05d" % i for i in range(2499)]
        for limit, requests in ((1, 3), (2, 5), (2000, 5), (2500, 5)):  # two without texts; a thousand texts in one
            del self.source.asked[:]
            answer = self.ask("breakdown", user="k", by="referrer", limit=limit, from_=MARCH, to=MARCH + 3600).json()
            self.assertEqual([r["key"] for r in answer["rows"]], keys[:limit])
            self.assertEqual(answer["other"], 2500 - limit)
            self.assertEqual(len(self.source.asked), requests)

    def test_a_key_never_counted_is_zero_and_keys_are_asked_for_as_stored(self):
        answer = self.ask("series", user="http://www.facebook.com/", units=2).json()
        self.assertEqual(([r["n"] for r in answer["rows"]], answer["total"]), ([0, 0], 0))
        self.assertIn("u%7Ch0aMB8AuNw4%3D", self.source.asked[-1])
        answer = self.ask("breakdown", ns="c.all").json()
        self.assertEqual((answer["rows"], answer["distinct"], answer["key"]), ([], 0, "all"))

    def test_never_a_part_of_an_answer(self):
        def refuse(h):
            h.answer(503, b"not yet")
            return True

        def not_the_protocol(h):
            h.answer(200, b"u|k,c3p1:5\n")
            return True

        def short(h):
            h.send_response(200)
            h.send_header("Content-Length", "1000")
            h.send_header("X-Millrace-Complete-Until", "9")
            h.end_headers()
            h.wfile.write(b"u|k,c3p1:5\n")
            h.close_connection = True
            return True

        def other_key(h):
            h.answer(200, b"v|k,c3p1:5\n", {"X-Millrace-Complete-Until": 9})
            return True

        def cut(h):
            h.answer(200, b"u|k,c3p1:5\n", {"X-Millrace-Complete-Until": 9, "X-Millrace-Next": "u%7Cl"})
            return True
        for act in (refuse, not_the_protocol, short, other_key, cut):
            self.source.act = act
            reply = self.ask("series", 503, user="k")
            self.assertEqual(reply.json()["code"], "upstream-unavailable", act.__name__)
            self.assertTrue(reply.header("Retry-After"))
        self.source.act = None
        self.ask("series", user="k")
        self.source.records["r.u|k." + hour_text(MARCH)] = "pAAAAAAAAAA=:1"  # and no lookup record
        self.ask("breakdown", 503, user="k", by="referrer", from_=MARCH, to=MARCH + 3600)

    def test_a_silent_source_is_given_up(self):
        self.start_api("--upstream-timeout", "1s")
        release = threading.Event()
        self.addCleanup(release.set)
        self.source.act = lambda h: not release.wait()  # then the usual answer
        self.assertEqual(self.ask("series", 503, user="k").json()["code"], "upstream-unavailable")

    def test_a_cleared_slice_starts_over(self):
        self.source.records["u|k"] = hour_text(MARCH) + ":3"
        gone = [1, 1]

        def act(h):
            if gone:
                gone.pop()
                h.answer(410, b"")
                return True
        self.source.act = act
        self.assertEqual(self.ask("series", user="k", from_=MARCH, to=MARCH + 3600).json()["total"], 3)

    def test_questions_that_make_no_sense(self):
        self.assertEqual(self.ask("series", 404, usr="bitly").json()["code"], "unknown-counter")
        self.assertEqual(self.ask("series", 400, user="k", timezone="../../etc/passwd").json()["code"], "bad-parameter")
        self.ask("series", 400, user="k", unit="hour", from_=0, to=4000000000)
        self.ask("series", 404, ns="nope")
        self.ask("series", 404, ns="No", key="k")
        self.assertEqual(self.source.asked, [])
        self.assertIn("user", self.ask("series", 404, ns="nope", key="k").json()["hint"])

    def test_a_removed_counter_answers_for_its_past(self):
        span = {"from_": MARCH, "to": MARCH + 3600}
        hour = hour_text(MARCH)
        self.source.records = {"old|k": hour + ":3", "s.old|k." + hour: "x:2 y:1", "s.u|k." + hour: "x:5"}
        for params, total in (({"path": "series", "ns": "old"}, 3), ({"path": "breakdown", "ns": "s.old"}, 3),
                              ({"path": "series", "ns": "s.old", "sub": "x"}, 2), ({"path": "breakdown", "ns": "s.u"}, 5)):
            got = self.ask(key="k", **params, **span).json()
            self.assertEqual((got["ns"], got["total"]), (params["ns"], total))
            self.assertIn("not configured", got["note"])
        self.assertNotIn("note", self.ask("series", ns="u", key="k").json())
        for params in ({"ns": "old", "key": "other"}, {"ns": "gone", "key": "k"}, {"ns": "old", "key": "k", "by": "s"}):
            self.assertEqual(self.ask("series", 404, **params).json()["code"], "unknown-counter")
        self.assertIn("a removed counter: its ns and key", self.ask("series", 404, old="k").json()["hint"])

    def test_the_hint_lists_the_subtotals_or_says_there_are_none(self):
        config = self.write("plain.conf", '[input]\ntime = t\n[total a]\nkey = "a"\n[total u]\nkey = u\nlabel = user\n[subtotal c.a]\nkey = c\nlabel = country\n')
        self.config = config
        self.start_api()
        hint = lambda **params: self.ask("breakdown", 404, **params).json()["hint"]
        self.assertEqual(hint(ns="a", by="none"), "a is counted by (ns, label): c.a country")
        self.assertEqual(hint(user="k", by="none"), "user is counted by (ns, label): nothing; add [subtotal S.u] to the configuration")

    def test_all_time_is_from_the_first_count_to_now(self):
        hours = [MARCH, MARCH + 40 * 86400, int(time.time()) // 3600 * 3600]
        self.source.records = {"u|bitly": " ".join("%s:%d" % (hour_text(h), i + 1) for i, h in enumerate(hours)),
                               "c.u|bitly." + hour_text(hours[0]): "US:1", "c.u|bitly." + hour_text(hours[2]): "US:3"}
        got = self.ask("series", user="bitly", period="all", unit="month").json()
        self.assertEqual((got["total"], got["rows"][0]["date"], got["rows"][0]["n"]), (6, "2012-03-01", 1))
        self.assertEqual(got["rows"][-1]["n"], 3)
        self.assertEqual((got["from"], got["to"]), (got["rows"][0]["t"], got["rows"][-1]["t"] + (got["to"] - got["rows"][-1]["t"])))
        for zone in ("Asia/Tokyo", "UTC"):
            days = self.ask("series", user="bitly", period="all", timezone=zone).json()
            got = self.ask("breakdown", user="bitly", by="country", period="all", timezone=zone).json()
            self.assertEqual([got[name] for name in ("total", "from", "to")], [4, days["from"], days["to"]])
        self.source.records["c.u|imported." + hour_text(MARCH)[:2]] = "US:5"  # the month, without a total
        got = self.ask("breakdown", user="imported", by="country", period="all").json()
        self.assertEqual((got["total"], got["from"], got["to"]), (5, MARCH - MARCH % 86400 - 24 * 86400, days["to"]))
        got = self.ask("series", user="none", period="all").json()
        self.assertEqual((got["total"], [r["n"] for r in got["rows"]]), (0, [0]))
        self.assertEqual(self.ask("series", 400, user="bitly", period="all", unit="hour").json()["code"], "bad-parameter")

    def test_compare(self):
        day = MARCH - 3600
        hours = {day - 86400: 2, day - 90000: 100, day: 5, day + 3600: 1, day - 366 * 86400: 4}
        self.source.records = {"u|a": " ".join("%s:%d" % (hour_text(h), n) for h, n in sorted(hours.items())),
                               **{"c.u|a." + hour_text(h): "JP:%d US:1" % n for h, n in hours.items()}}
        got = self.ask("compare", user="a", period="2012-03-25", unit="hour").json()
        self.assertEqual((got["total"], got["before"], got["change"]), (6, {"from": day - 86400, "to": day, "total": 2}, 200.0))
        self.assertEqual(len(got["rows"]), 24)
        self.assertEqual((got["rows"][0]["n"], got["rows"][0]["before"]["n"], got["rows"][0]["change"]), (5, 2, 150.0))
        self.assertEqual((got["rows"][1]["before"]["n"], got["rows"][1]["change"]), (0, None))
        got = self.ask("compare", user="a", period="2012-03-25", against="year").json()
        self.assertEqual((got["before"]["total"], got["change"]), (4, 50.0))
        got = self.ask("compare", user="a", from_=day, to=day + 7200, against="2012-03-23..2012-03-25").json()
        self.assertEqual((got["total"], got["before"]["total"], got["rows"][0]["before"]["n"]), (6, 102, 100))
        got = self.ask("compare", user="a", by="country", sub="JP", period="2012-03-25", against="year").json()
        self.assertEqual((got["total"], got["before"]["total"]), (6, 4))
        got = self.ask("compare", user="a", period="2012-03", unit="day").json()
        self.assertEqual((len(got["rows"]), got["rows"][28]["before"]["date"], got["rows"][29]["before"]), (31, "2012-02-29", None))
        text = self.ask("compare", user="a", period="2012-03-25", unit="hour", format="csv").text.splitlines()
        self.assertEqual(text[0], "t,date,n,complete,before_t,before_date,before_n,change")
        self.assertTrue(text[1].endswith(",5,true,%d,2012-03-24T00:00:00+00:00,2,150.00" % (day - 86400)), text[1])
        self.source.complete_until = day + 7200
        got = self.ask("compare", user="a", from_=day - 7200, to=day, unit="hour", against="%d..%d" % (day + 3600, day + 10800)).json()
        self.assertEqual([r["complete"] for r in got["rows"]], [True, False])
        for wrong in ({"period": "all"}, {"against": "soon"}, {"against": "5..3"}, {"counter": "user"}):
            self.assertEqual(self.ask("compare", 400, user="a", **wrong).json()["code"], "bad-parameter", wrong)
        self.assertEqual(self.ask("series", 400, user="a", against="year").json()["code"], "bad-parameter")

    def test_compare_sets_a_unit_in_progress_against_its_part(self):
        """Of a unit in progress, only the whole hours that have passed are compared, with the same part of the unit before by local clocks."""
        now = int(time.time())
        this_hour = now - now % 3600
        hours = {t: 1 + t // 3600 % 7 for first, last in ((-100, 2), (-380, -360)) for t in range(this_hour + first * 86400, this_hour + last * 86400, 3600)}
        self.source.records = {"u|k": " ".join("%s:%d" % (hour_text(t), n) for t, n in hours.items()),
                               **{"c.u|k." + hour_text(t): "JP:9 US:%d" % n for t, n in hours.items()}}

        def count(start, end):
            return sum(n for t, n in hours.items() if start <= t < end)

        def percent(n, old):
            return None if not old else round(100 * (n - old) / old, 2)

        def same_part(unit, passed, other, end, tz):
            """The time of `passed` in the unit `other`, by local clocks."""
            unit, passed, other = (datetime.datetime.fromtimestamp(t, tz).replace(tzinfo=None) for t in (unit, passed, other))
            return min((other + (passed - unit)).replace(tzinfo=tz).timestamp(), end)

        for zone in ("UTC", "America/New_York", "Asia/Tokyo", "Asia/Kolkata"):
            tz = zoneinfo.ZoneInfo(zone)
            for params in ({"period": "today"}, {"period": "7d"}, {"period": "this-week", "unit": "mweek"}, {"period": "this-month"}, {"period": "3w", "unit": "week"},
                           {"period": "this-month", "unit": "month"}, {"period": "24h", "unit": "hour"}, {"period": "today", "against": "year"},
                           {"period": "30d"}, {"period": "today", "unit": "hour"}):
                for sub in ({}, {"by": "country", "sub": "US"}):
                    target = {"user": "k", "timezone": zone, "round": "hour", **params, **sub}
                    got = self.ask("compare", **target).json()
                    lines = list(csv.DictReader(io.StringIO(self.ask("compare", format="csv", **target).text)))
                    if int(time.time()) >= this_hour + 3600:
                        return  # the answers may be of two hours
                    part, rows = got["so_far"], got["rows"]
                    ends = [r["t"] for r in rows[1:]] + [got["to"]]
                    current = next(i for i, end in enumerate(ends) if end > part["to"] and (end > now or i == len(rows) - 1))
                    self.assertEqual(part["to"], max(rows[current]["t"], this_hour), (target, got))
                    for i, (row, end) in enumerate(zip(rows, ends)):
                        old, n = row["before"], row["n"]
                        self.assertEqual(n, count(row["t"], end))
                        self.assertEqual("so_far" in row, i == current and old is not None, (target, row))
                        if i == current and old:
                            old_end = rows[i + 1]["before"]["t"] if i + 1 < len(rows) and rows[i + 1]["before"] else got["before"]["to"]
                            old_part = same_part(row["t"], part["to"], old["t"], old_end, tz)
                            expected = {"to": part["to"], "before_to": old_part, "n": count(row["t"], part["to"]), "before": count(old["t"], old_part)}
                            self.assertEqual((row["so_far"], row["change"]), (expected, percent(expected["n"], expected["before"])), (target, row))
                            self.assertEqual(part["before_to"], old_part)
                        else:
                            self.assertEqual(row["change"], percent(n, old["n"]) if i < current and old else None, (target, row))
                    expected = count(got["from"], part["to"]), count(got["before"]["from"], part["before_to"])
                    self.assertEqual((part["total"], part["before"], got["change"]), (*expected, percent(*expected)), target)
                    self.assertEqual(got["before"]["total"], count(got["before"]["from"], got["before"]["to"]), target)
                    told = [(str(r["so_far"]["n"]), str(r["so_far"]["before"])) if "so_far" in r else ("", "") for r in rows]
                    self.assertEqual([(r["so_far_n"], r["so_far_before"]) for r in lines], told)
        noon = {"hour_offset": 12 - now // 3600 % 24, "from_": this_hour - 7200, "to": this_hour + 7200}  # within one local day
        for against, start, same in (("before", this_hour - 6 * 3600, this_hour - 4 * 3600), ("year", None, None),
                                     ("%d..%d" % (this_hour - 50 * 3600, this_hour - 49 * 3600), this_hour - 50 * 3600, this_hour - 49 * 3600)):
            for sub in ({}, {"by": "country", "sub": "US"}):
                got = self.ask("compare", user="k", against=against, **noon, **sub).json()
                if int(time.time()) >= this_hour + 3600:
                    return
                start = start or got["before"]["from"]
                expected = {"to": this_hour, "before_to": same or start + 7200, "total": count(this_hour - 7200, this_hour), "before": count(start, same or start + 7200)}
                self.assertEqual((got["before"]["from"], got["so_far"]), (start, expected))
                self.assertEqual(got["rows"][0]["so_far"]["before"], expected["before"])
        # Weeks do not line up if a span begins within a week: the whole spans are compared by their own equal parts.
        cut = {"from_": this_hour - 9 * 86400, "to": this_hour + 3 * 3600, "unit": "week"}
        for sub in ({}, {"by": "country", "sub": "US"}):
            got = self.ask("compare", user="k", **cut, **sub).json()
            if int(time.time()) >= this_hour + 3600:
                return
            start = this_hour - 18 * 86400 - 3 * 3600
            expected = {"to": this_hour, "before_to": start + 9 * 86400, "total": count(cut["from_"], this_hour), "before": count(start, start + 9 * 86400)}
            self.assertEqual((got["so_far"], got["change"]), (expected, percent(expected["total"], expected["before"])))
            old = next(r for r in got["rows"] if r["t"] <= now < r["t"] + 7 * 86400)
            part = old.get("so_far")
            if part:
                self.assertEqual((part["n"], part["before"]), (count(old["t"], this_hour), count(max(old["before"]["t"], start), part["before_to"])))
        day = now - now % 86400
        self.source.records = {"c.u|d." + hour_text(t): "US:1" for t in range(day - 3 * 86400, this_hour, 3600) if t // 86400 != day // 86400 - 2}
        self.source.records["c.u|d." + hour_text(day - 2 * 86400)[:-1]] = "US:24"  # its hours were dropped
        got = self.ask("compare", user="d", by="country", sub="US", period="2d").json()
        if int(time.time()) >= this_hour + 3600:
            return
        known = 0 if this_hour == day else None
        self.assertEqual((got["rows"][1]["so_far"]["n"], got["rows"][1]["so_far"]["before"], got["so_far"]["before"]), (known, known, 24 if known == 0 else None))
        self.assertEqual((got["rows"][0]["change"], got["rows"][1]["change"], got["rows"][1]["before"]["n"], got["change"]),
                         (0.0, None, 24, 0.0 if known == 0 else None))
        got = self.ask("compare", user="k", period="yesterday").json()
        self.assertNotIn("so_far", json.dumps(got))
        self.assertNotIn("so_far", self.ask("compare", user="k", period="yesterday", format="csv").text)

    def test_top(self):
        self.source.records = {"u.all|all." + hour_text(MARCH): "a:1 b:5 c:2"}
        got = self.ask("top", counter="user", from_=MARCH, to=MARCH + 3600, limit=2).json()
        self.assertEqual(([(r["key"], r["n"]) for r in got["rows"]], got["other"], got["by"]), ([("b", 5), ("c", 2)], 1, "user"))
        for status, code, wrong in ((400, "missing-parameter", {}), (404, "unknown-counter", {"counter": "nope"}),
                                    (400, "bad-parameter", {"counter": "user", "key": "a"}), (400, "bad-parameter", {"counter": "user", "user": "a"}),
                                    (400, "unknown-parameter", {"counter": "user", "limt": 3}),
                                    (400, "bad-parameter", {"counter": "user", "period": "7d", "unit": "hour"})):
            self.assertEqual(self.ask("top", status, **wrong).json()["code"], code, wrong)
        reply = self.ask("top", 404, counter="domain").json()
        self.assertEqual((reply["code"], reply["hint"]), ("not-counted", "add to the configuration:\n[subtotal d.all]\nkey = host(u)"))

    def test_top_against_the_time_before(self):
        """Each row has its count in the earlier time. A time in progress is compared up to its last whole hour, by local clocks."""
        now = int(time.time())
        this_hour = now - now % 3600
        names = ["a", "b", "long text of a key"]
        stored = dict(zip(names, ["a", "b", "BBBBBBBBBBA="]))
        hours = {t: {name: (t // 3600 * (i + 2) + i) % (5 + i) for i, name in enumerate(names)}
                 for first, last in ((-70, 2), (-380, -360)) for t in range(this_hour + first * 86400, this_hour + last * 86400, 3600)}
        for t in range(this_hour - 70 * 86400, this_hour - 35 * 86400, 3600):
            hours[t]["gone"] = 50
        self.source.records = {"lookup|BBBBBBBBBBA=": "long text of a key"}
        for ns in ("u.all|all", "c.u|k"):
            for t, counts in hours.items():
                values = sorted((stored.get(name, name), n) for name, n in counts.items() if n > 0)
                if values:
                    self.source.records["%s.%s" % (ns, hour_text(t))] = " ".join("%s:%d" % pair for pair in values)

        def count(name, start, end):
            return sum(counts.get(name, 0) for t, counts in hours.items() if start <= t < end)

        def percent(n, old):
            return None if not old else round(100 * (n - old) / old, 2)

        for zone in ("UTC", "America/New_York", "Asia/Tokyo", "Asia/Kolkata"):
            tz = zoneinfo.ZoneInfo(zone)
            for params in ({"period": "today"}, {"period": "7d"}, {"period": "this-week"}, {"period": "this-month"}, {"period": "24h"}, {"period": "yesterday"},
                           {"period": "last-week"}, {"from_": this_hour - 7200, "to": this_hour + 7200}, {"from_": this_hour, "to": this_hour + 7200}, {"period": "30d", "against": "year"},
                           {"period": "2d", "against": "%d..%d" % (this_hour - 40 * 86400, this_hour - 36 * 86400)}):
                for path, key in (("top", {"counter": "user"}), ("breakdown", {"user": "k", "by": "country"})):
                    target = {"timezone": zone, "round": "hour", "against": "before", "limit": 3, **params, **key}
                    got = self.ask(path, **target).json()
                    lines = list(csv.DictReader(io.StringIO(self.ask(path, format="csv", **target).text)))
                    if int(time.time()) >= this_hour + 3600:
                        return  # the answers may be of two hours
                    before, (start, end) = got["before"], (got["from"], got["to"])
                    is_part = params.get("period") not in ("yesterday", "last-week")
                    self.assertEqual("so_far" in got, is_part, target)
                    if is_part:
                        self.assertEqual(end, max(start, this_hour))
                        first, passed, other = (datetime.datetime.fromtimestamp(t, tz).replace(tzinfo=None) for t in (start, end, before["from"]))
                        same = (other + (passed - first)).replace(tzinfo=tz).timestamp()
                        self.assertTrue(before["to"] == same or before["to"] < same and "this-month" in str(params), (target, before, same))
                        self.assertEqual(got["so_far"], {"to": end, "before_to": before["to"], "total": got["total"], "before": before["total"]})
                    expected = sorted(((-count(name, start, end), name) for name in [*names, "gone"] if count(name, start, end)))[:3]
                    self.assertEqual([(r["key"], r["n"]) for r in got["rows"]], [(name, -n) for n, name in expected], target)
                    for row, line in zip(got["rows"], lines, strict=True):
                        old = count(row["key"], before["from"], before["to"])
                        self.assertEqual((row["before"], row["change"]), (old, percent(row["n"], old)), (target, row))
                        change = "" if row["change"] is None else "%.2f" % row["change"]
                        self.assertEqual((line["before"], line["change"]), (str(old), change), (target, row))
                    totals = [sum(count(name, *span) for name in [*names, "gone"]) for span in ((start, end), (before["from"], before["to"]))]
                    self.assertEqual((got["total"], before["total"], got["change"]), (*totals, percent(*totals)), target)
        plain = self.ask("top", counter="user", period="yesterday").json()
        self.assertFalse({"before", "change", "so_far"} & ({*plain} | {*plain["rows"][0]}))
        self.assertEqual(self.ask("top", 400, counter="user", period="all", against="before").json()["code"], "bad-parameter")
        self.source.since = this_hour - 86400  # the counter was added
        late = self.ask("top", counter="user", period="24h", against="before").json()
        self.assertEqual([(r["before"], r["change"]) for r in late["rows"]], [(None, None)] * len(late["rows"]))
        self.assertEqual((late["before"]["total"], late["change"]), (None, None))

    def test_unknown_paths(self):
        for path, meant in (("/v1/serie", "/v1/series"), ("/v1/Top", "/v1/top"), ("/series", "/v1/series"), ("/v1/live/rat", "/v1/live/rate"), ("/v1", None),
                            ("/app.jss", None)):
            problem = self.api.get(path + "?user=a").json()
            self.assertEqual(problem["hint"], "did you mean %s? GET / lists the endpoints" % meant if meant else "GET / lists the endpoints", path)

    def test_counters(self):
        answer = self.ask("counters").json()
        self.assertEqual(answer["time"], "t")
        user = [t for t in answer["totals"] if t["ns"] == "u"][0]
        self.assertEqual((user["label"], user["key"]), ("user", "l"))
        self.assertIn({"ns": "c.u", "label": "country", "key": "c"}, user["subtotals"])

    def test_a_limited_counter_names_its_limit(self):
        text = harness.sample_counters().replace("[total u]\n", "[total u]\nmax_keys = 5\n")
        self.config = self.write("limited.conf", text.replace("[subtotal c.u]\n", "[subtotal c.u]\nmax_keys = 2\n"))
        self.start_api()
        hour, later = hour_text(MARCH), hour_text(MARCH + 3600)
        self.source.records = {"u|bitly": "%s:3 %s:9" % (hour, later), "u|(other)": "%s:4 %s:5" % (hour, later),
                               "c.u|bitly." + hour: "(other):2 US:1"}
        span = {"from_": MARCH, "to": MARCH + 3600}
        got = self.ask("series", user="bitly", **span).json()
        self.assertEqual([got[k] for k in ("total", "max_keys", "over_max_keys")], [3, 5, 4])
        got = self.ask("series", user="(other)", **span).json()
        self.assertEqual([got[k] for k in ("total", "max_keys", "over_max_keys")], [4, 5, 4])
        for sub, total in (("US", 1), ("(other)", 2)):
            got = self.ask("series", user="bitly", by="country", sub=sub, **span).json()
            self.assertEqual([got[k] for k in ("total", "max_keys", "over_max_keys")], [total, 2, 2])
        got = self.ask("breakdown", user="bitly", by="country", **span).json()
        self.assertEqual([got[k] for k in ("total", "max_keys", "over_max_keys", "distinct")], [3, 2, 2, 2])
        self.assertEqual(got["total_over_max_keys"], 4, "events that may have lost the key")
        self.assertNotIn("max_keys", self.ask("series", feed="", **span).json())
        user = [t for t in self.ask("counters").json()["totals"] if t["ns"] == "u"][0]
        self.assertEqual((user["max_keys"], user["subtotals"][0]["max_keys"]), (5, 2))

    def test_a_sum_over_64_bits_is_refused(self):
        first, second = hour_text(MARCH), hour_text(MARCH + 3600)
        most = 2 ** 63 - 1
        self.source.records = {"u|a": "%s:%d %s:1" % (first, most, second), "c.u|a." + first: "JP:%d" % (most - 1),
                               "c.u|a." + second: "JP:1 US:1"}
        one, two = {"from_": MARCH, "to": MARCH + 3600}, {"from_": MARCH, "to": MARCH + 7200}
        self.assertEqual(self.ask("series", user="a", **one).json()["total"], most)
        self.assertEqual(self.ask("series", user="a", by="country", sub="JP", **two).json()["total"], most)
        self.assertEqual(self.ask("breakdown", user="a", by="country", **one).json()["total"], most - 1)
        for target in ({"path": "series"}, {"path": "breakdown", "by": "country"}):
            self.assertEqual(self.ask(status=422, user="a", **target, **two).json()["code"], "sum-too-large")

    def test_events_go_to_the_queue_a_line_each(self):
        reply = self.api.post("/v1/events?queue=q&producer=p&mark=0&next=3", b'{"a":1}\r\n\n{"b":2}\n\r\n{"c":3}')
        self.assertEqual((reply.status, reply.json()), (200, {"accepted": 3}))
        target, body = self.source.posted[-1]
        self.assertEqual(body, b'{"a":1}\n{"b":2}\n{"c":3}\n')
        self.assertEqual(urllib.parse.parse_qs(urllib.parse.urlsplit(target).query),
                         {"separator": ["\n"], "queue": ["q"], "producer": ["p"], "mark": ["0"], "next": ["3"]})
        for body, stored in ((b"{}", b"{}\n"), (b"\n{}\r\n\r", b"{}\n"), (b"\n\n{}\n{ }", b"{}\n{ }\n"),
                             (b"\xef\xbb\xbf{}\n{ }", b"{}\n{ }\n"), (b"\xef\xbb\xbf[{}]", b"{}\n"), (b"\xef\xbb{}", None),
                             (b' [{"a":"]"},\n {"b":\n[1,2]} ]\n', b'{"a":"]"}\n{"b": [1,2]}\n'), (b"[]\n{}", None), (b"[{}", None),
                             (b"1\n", None), (b'{"a":1}}', None), (b"[1,]", None), (b'[{"a":"\n"}]', None), (b"[{}]]", None),
                             (b'[{"a":1},{"b":"x},{}]', None), (b"[{}},{}", None)):
            before = len(self.source.posted)
            reply = self.api.post("/v1/events", body)
            if stored is None:
                self.assertEqual((reply.status, reply.json()["code"], len(self.source.posted)), (400, "invalid-event", before), body)
                continue
            self.assertEqual(reply.status, 200, body)
            self.assertEqual(self.source.posted[-1][1], stored)
        self.assertEqual(self.api.post("/v1/events", b"\n\r\n").json()["code"], "empty-body")
        self.assertEqual(self.api.post("/v1/events", b"[ ]").json()["code"], "empty-body")
        preflight = harness.request(self.api.url, "OPTIONS", "/v1/events")
        self.assertIn("POST", preflight.header("Access-Control-Allow-Methods"))

    def test_a_bad_event_refuses_itself_alone(self):
        good = [b'{"t":1332637200,"l":"batch"}'] * 99
        for bad, reason in ((b'{"t":1332637200,"l":"\\ud83d"}', "string"), (b'{"t":1332637200,"l":"\\ude00\\ud83d"}', "string"),
                            (b'{"t":1332637200,"x":NaN}', "JSON"), (b'{"t":1332637200,"x":-Infinity}', "JSON"),
                            (b'{"t":1332637200,"x":18446744073709551616}', "number"), (b'{"t":1332637200,"x":1e999}', "number"),
                            (b'{"t":1332637200,"l":"\xff"}', "UTF-8"), (b'{"t":1332637200,"l":"a\tb"}', "JSON"),
                            (b"null", "not an object"), (b'"text, [with] marks"', "not an object"), (b"[{}]", "not an object"),
                            (b"{", "JSON"), (b'{"a":1} {"b":2}', "JSON"), (b"{'a':1}", "JSON"), (b"undefined", "JSON")):
            for place in (0, 40, 99):
                events = good[:place] + [bad] + good[place:]
                for body, unit in ((b"\n".join(events), "line"), (b"[" + b",\n ".join(events) + b"]", "event")):
                    if (unit, bad) == ("event", b"{") or (unit, place, bad) == ("line", 0, b"[{}]"):
                        continue  # this array has no end; this body is an array
                    reply = self.api.post("/v1/events", body)
                    self.assertEqual(reply.status, 200, (bad, reply))
                    answer = reply.json()
                    said = answer["errors"][0].pop("reason")
                    self.assertIn(reason.lower(), said.lower(), bad)
                    self.assertEqual(answer, {"accepted": 99, "partial": True, "refused": 1, "errors": [{unit: place + 1}]})
                    self.assertEqual(self.source.posted[-1][1], b"\n".join(good) + b"\n")
                    before = len(self.source.posted)
                    reply = self.api.post("/v1/events?all_or_none=1", body)
                    self.assertEqual((reply.status, reply.json()["code"]), (400, "invalid-event"))
                    self.assertIn("%s %d" % (unit, place + 1), reply.json()["detail"])
                    self.assertEqual(len(self.source.posted), before)
        many = self.api.post("/v1/events", b"{}\n" + b"x\n" * 5000).json()
        self.assertEqual((many["accepted"], many["refused"], len(many["errors"]), many["errors"][-1]["line"]), (1, 5000, 1000, 1001))
        self.assertEqual(self.api.post("/v1/events", b"{}", headers={"Content-Type": "text/plain"}).json(), {"accepted": 1})

    def test_many_events_and_long_ones(self):
        blank = self.api.post("/v1/events", gzip.compress(b"\r\n" * (4 << 20) + b"\r{}\nx"), headers={"Content-Encoding": "gzip"}).json()
        self.assertEqual((blank["accepted"], blank["errors"][0]["line"]), (1, (4 << 20) + 2))
        self.assertEqual(self.api.post("/v1/events", b"{}\n" * 262144).json(), {"accepted": 262144})
        self.assertEqual(self.api.post("/v1/events", b"[" + b"{}," * 262143 + b"{}]").json(), {"accepted": 262144})
        before = len(self.source.posted)
        for body in (b"{}\n" * 262145, b"[" + b"{}," * 262144 + b"{}]", b"x\n" * 262145):
            reply = self.api.post("/v1/events", body)
            self.assertEqual((reply.status, reply.json()["code"]), (413, "too-large"))
        self.assertEqual(len(self.source.posted), before)
        long = b'{"a":"' + b"\\\\" * (2 << 20) + b'"}'
        for body in (b"{}\n" + long, b"[{}," + long + b"]"):
            self.assertIn("4 MiB", self.api.post("/v1/events", body).json()["errors"][0]["reason"])

    def test_a_retry_of_a_partial_batch_is_a_duplicate(self):
        self.source.act = lambda h: h.answer(200, b"", {"X-Millrace-Duplicate": 1}) or True
        reply = self.api.post("/v1/events?producer=p&mark=0&next=2", b"{}\n1\n").json()
        self.assertEqual((reply["accepted"], reply["duplicate"], reply["partial"]), (1, True, True))

    def test_encoded_events(self):
        before = len(self.source.posted)
        for encoding, status, code in (("br", 415, "unsupported-encoding"), ("gzip", 400, "bad-encoding")):
            reply = self.api.post("/v1/events", b"\x1f\x8b\n\n", headers={"Content-Encoding": encoding})
            self.assertEqual((reply.status, reply.json()["code"]), (status, code))
        self.assertEqual(len(self.source.posted), before)
        packed = gzip.compress(b'{"a":1}\n{"a":2}\n')
        self.assertEqual(self.api.post("/v1/events", packed, headers={"Content-Encoding": "gzip"}).json(), {"accepted": 2})
        self.assertEqual(self.source.posted[-1][1], b'{"a":1}\n{"a":2}\n')
        self.assertEqual(self.api.post("/v1/events", b"{}", headers={"Content-Encoding": "identity"}).status, 200)

    def test_an_event_without_time_gets_the_servers(self):
        self.config = self.write("now.conf", harness.sample_counters().replace("[input]\n", "[input]\ntime_default = now\ntime_unit = ms\n"))
        self.start_api()
        begin = int(time.time() * 1000)
        self.assertEqual(self.api.post("/v1/events", b'{}\n{ "c":"US"}\n{"t":5}\n{"t":null}').json(), {"accepted": 4})
        lines = self.source.posted[-1][1].splitlines()
        self.assertRegex(lines[0], rb'^{"t":\d{13}}$')
        self.assertRegex(lines[1], rb'^{"t":\d{13},"c":"US"}$')
        self.assertEqual(lines[2:], [b'{"t":5}', b'{"t":null}'])
        self.assertTrue(begin <= json.loads(lines[0])["t"] <= time.time() * 1000)

    def test_pixel(self):
        began = int(time.time())
        reply = self.api.get("/v1/pixel.gif?l=bitly&u=" + urllib.parse.quote('http://x/"'))
        self.assertEqual((reply.status, reply.header("Content-Type"), len(reply.body)), (200, "image/gif", 43))
        self.assertEqual((reply.body[:6], reply.header("Cache-Control")), (b"GIF89a", "no-store"))
        event = json.loads(self.source.posted[-1][1])
        self.assertTrue(began <= event.pop("t") <= time.time())
        self.assertEqual(event, {"l": "bitly", "u": 'http://x/"'})
        self.api.get("/v1/pixel.gif?t=1332637200&queue=q")
        self.assertEqual(json.loads(self.source.posted[-1][1]), {"t": 1332637200, "queue": "q"})
        self.assertEqual(harness.request(self.api.url, "HEAD", "/v1/pixel.gif").status, 405)

    def test_incr(self):
        self.assertEqual(self.api.post("/v1/incr?ns=u&key=bitly&n=3").json(), {"accepted": 3})
        lines = self.source.posted[-1][1].splitlines()
        self.assertEqual((len(lines), json.loads(lines[0])["l"], len(set(lines))), (3, "bitly", 1))
        self.api.get("/v1/incr?ns=c.u&key=bitly&sub=US")
        event = json.loads(self.source.posted[-1][1])
        self.assertEqual((event["l"], event["c"], sorted(event)), ("bitly", "US", ["c", "l", "t"]))
        self.assertEqual(self.api.post("/v1/incr?ns=c.all&sub=US").status, 200, "the total has a constant key")
        event = json.loads(self.source.posted[-1][1])
        self.assertEqual((event["c"], sorted(event)), ("US", ["c", "t"]))
        for target, status, code in (("key=a", 400, "missing-parameter"), ("ns=nope&key=a", 404, "unknown-counter"),
                                     ("ns=u", 400, "missing-parameter"), ("ns=u&key=a&n=0", 400, "bad-parameter"),
                                     ("ns=u&key=a&n=1001", 400, "bad-parameter"), ("ns=d&key=a", 422, "not-a-field"),
                                     ("ns=c.u&key=a", 400, "missing-parameter"), ("ns=c.u&sub=US", 400, "missing-parameter"),
                                     ("ns=c.u&key=a&sub=", 400, "missing-parameter"),
                                     ("ns=u&key=a&sub=US", 400, "bad-parameter"), ("ns=u&ky=a", 400, "unknown-parameter")):
            reply = self.api.post("/v1/incr?" + target)
            self.assertEqual((reply.status, reply.json()["code"]), (status, code), target)
        page = {"Origin": "http://elsewhere.example"}
        self.assertEqual(self.api.post("/v1/incr?ns=u&key=a", headers=page).status, 403)

    def test_what_the_queue_refuses_is_passed_on(self):
        def full(h):
            h.answer(503, b'{"code":"queue-full"}', {"Content-Type": "application/problem+json", "Retry-After": 7})
            return True
        self.source.act = full
        reply = self.api.post("/v1/events", b"{}")
        self.assertEqual((reply.status, reply.json()["code"], reply.header("Retry-After")), (503, "queue-full", "7"))

    def test_a_client_that_leaves_disturbs_nobody(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.source.act = lambda h: not release.wait()  # then the usual answer
        c = harness.connect(self.api.url)
        c.request("GET", "/v1/series?user=k")
        wait_until(lambda: self.source.asked, "the source to be asked")
        c.close()
        release.set()
        self.source.act = None
        self.ask("series", user="k")


if __name__ == "__main__":
    harness.main()
