"""The aggregator against a pubsub of the test's own, which breaks streams wherever it likes: what is answered equals
what the oracle counts (or, without it, a small count made here), whatever is killed and whenever."""
# full: MILLRACE_ROUNDS=60
import base64
import collections
import glob
import hashlib
import http.server
import json
import random
import select
import threading
import time
import unittest
import urllib.parse

import harness
from huge_case import peak_memory

OPENING = "%024x" % 1
COUNTERS = """
[input]
time = t
max_ahead = 0
skip_if = _heartbeat_

[total all]
key = "all"
[total u]
key = l
label = user
[total d]
key = host(u)
label = domain
[subtotal c.all]
key = c
label = country
[subtotal c.u]
key = c
label = country
[subtotal r.u]
key = r
label = referrer
"""

USERS = ["a", "a!x", "a-", "a+", "a,b", "a.b", "a b", "ab", "abc", "None", "a|b", "a:b", "k\x01", "a" * 11, "a" * 12,
         "a" * 13, "\u00fc" * 5, "\u00fc" * 6, "\\", "x\\y" * 5]


def make_lines(n, rng):
    """Events of a few years, with heartbeats and lines that cannot be counted."""
    out = []
    for i in range(n):
        kind = rng.random()
        if kind < 0.02:
            out.append(b'{"_heartbeat_": %d}' % i)
        elif kind < 0.04:
            out.append(rng.choice([b'{"t": 1331923249, "l": [1]}', b'{"t": oops', b"[1]", b'{"l":"a"}',
                                   b'{"t": 1331923249, "l":"\xff"}', b'{"t": 99999999999}']))
        else:
            t = rng.choice([1331923249, 1925000000, 1960000000, 5995814399]) - 3600 * rng.randrange(50)
            out.append(json.dumps({"t": t, "l": rng.choice(USERS), "c": rng.choice(["US", "JP", None]),
                                   "r": rng.choice(["direct", "http://t.co/%d" % rng.randrange(20)]),
                                   "u": "http://Www.Example%d.org:80/x" % rng.randrange(9)}).encode())
    return out


class Pubsub:
    """/sub and /streams of one stream, as docs/guide/protocol.md says, in memory. A reply may be cut anywhere."""

    def __init__(self, test, name="clicks"):
        self.name, self.id, self.data, self.hole = name, "%032x" % random.getrandbits(128), b"", None
        self.exists, self.cut_after, self.status, self.asked = True, None, None, []
        self.changed, self.pieces = threading.Condition(), [1, 7, 1000, 60000]
        self.closing = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as in sink.py

            def log_message(self, *args):
                pass

            def do_GET(self):
                try:
                    outer.answer(self)
                except OSError:
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def close(self):
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def publish(self, lines):
        with self.changed:
            self.data += b"".join(line + b"\n" for line in lines)
            self.changed.notify_all()

    def reply(self, h, status, body):
        text = json.dumps(body).encode()
        h.send_response(status)
        h.send_header("Content-Length", str(len(text)))
        h.end_headers()
        h.wfile.write(text)

    def answer(self, h):
        url = urllib.parse.urlsplit(h.path)
        q = dict(urllib.parse.parse_qsl(url.query))
        self.asked.append(q)
        if not self.exists:
            return self.reply(h, 404, {"code": "unknown-stream"})
        if self.status:
            return self.reply(h, self.status, {"code": "made-up"})
        if q.get("id", "") not in ("", self.id, self.id + "." + OPENING):
            return self.reply(h, 409, {"code": "wrong-stream", "id": self.id})
        start = 0 if q["from"][0] in "e@" else int(q["from"])  # earliest, or a time
        if start > len(self.data):
            return self.reply(h, 416, {"code": "cursor-beyond-end", "end": str(len(self.data))})
        if self.hole and self.hole[0] <= start < self.hole[1]:
            return self.reply(h, 410, {"code": "cursor-gone", "before": str(self.hole[0]), "after": str(self.hole[1])})
        self.stream(h, start, q.get("statements") == "1")

    def state(self, h):
        text = b"\n%f %d %f\n" % (time.time(), len(self.data), time.time())
        for i in range(len(text)):
            h.wfile.write(b"1\r\n%s\r\n" % text[i:i + 1])

    def stream(self, h, at, states):
        h.send_response(200)
        for name, value in (("X-Millrace-Stream-Id", self.id), ("X-Millrace-Offset", at), ("X-Millrace-Opening", OPENING),
                            ("X-Millrace-End", len(self.data)), ("X-Millrace-Opening-Before", OPENING if at else ""),
                            ("Transfer-Encoding", "chunked")):
            h.send_header(name, str(value))
        h.end_headers()
        end = self.hole[0] if self.hole and at < self.hole[0] else None
        left = self.cut_after or 1 << 62
        while left > 0 and at != end:
            if states and (at == 0 or self.data[at - 1:at] == b"\n"):
                self.state(h)
            with self.changed:
                if len(self.data) <= at and not self.closing:
                    self.changed.wait(0.1)
                    continue
                if self.closing:
                    break
                piece = self.data[at:min(end or 1 << 62, at + min(left, random.choice(self.pieces)))]
            h.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            at, left = at + len(piece), left - len(piece)
        if left > 0:
            h.wfile.write(b"0\r\n\r\n")
        h.close_connection = True


def component(text):
    if len(text) < 12 and not any(chr(b) in " :,.|" or b < 0x20 or b == 0x7F for b in text):
        return text
    return base64.b64encode(hashlib.md5(text).digest()[:8])


def oracle_escape(text):
    """The value of a lookup record."""
    return "".join("\\\\" if c == "\\" else "\\x%02x" % ord(c) if ord(c) < 0x20 or ord(c) == 0x7f else c for c in text)


class AggregatorTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub, self.known = Pubsub(self), None
        self.config = self.write("counters.conf", COUNTERS)

    def launch(self, *args, ready=True):
        d = self.daemon("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--pubsub-url",
                        self.pubsub.url, "--flush-interval=50ms", *args)
        return d.wait_ready(harness.LONG) if ready else d.wait_listening()

    def wait_counted(self, d, end=None):
        end = len(self.pubsub.data) if end is None else end
        harness.wait_until(lambda: int(d.stats()["streams"]["clicks"]["offset"]) >= end, lambda: "all to be counted: %s"
                           % d.stats()["streams"], timeout=harness.LONG)

    def everything(self, d, limit=None):
        """The whole archive text, by as many requests as it takes."""
        out, start = b"", b""
        while start is not None:
            r = d.get("/range?" + harness.query(start=start, end=b"\xff", limit=limit))
            self.assertEqual(r.status, 200, r)
            out += r.body
            start = r.header("X-Millrace-Next")
            start = start and urllib.parse.unquote_to_bytes(start)
        return out

    def expected(self):
        """The archive's text by the oracle, or None without it; and its summary."""
        oracle = harness.load_oracle()
        if not oracle:
            return None
        if self.known is None or self.known[0] != self.pubsub.data:
            counts = oracle.Counts(self.config)
            for line in self.pubsub.data.split(b"\n")[:-1]:
                counts.add_line(line)
            self.known = self.pubsub.data, (b"".join(line + b"\n" for line in sorted(counts.archive(1, 0))), counts)
        return self.known[1]

    def check_exact(self, d):
        text = self.everything(d)
        lines = text.splitlines()
        self.assertEqual(lines, sorted(lines))
        self.check_sums(lines)
        truth = self.expected()
        if truth:
            self.assertEqual(text, truth[0])
            stats = d.stats()
            self.assertEqual((stats["events"], stats["skipped"], stats["rejected"]),
                             (truth[1].events, truth[1].skipped, truth[1].rejected))
        return text

    def check_sums(self, lines):
        """Sub-counts of every hour add up to its total; `all` is the number of events told by /stats."""
        totals, subs = {}, collections.Counter()
        for line in lines:
            key, value = line.split(b",", 1)
            if key.startswith(b"lookup|"):
                continue
            pairs = [(p.rsplit(b":", 1)[0], int(p.rsplit(b":", 1)[1])) for p in value.split(b" ")]
            if b"." in key.split(b"|", 1)[0]:
                subs[key] += sum(n for _, n in pairs)
            else:
                totals.update({(key, hour): n for hour, n in pairs})
        for key, n in subs.items():
            total, hour = key.rsplit(b".", 1)
            self.assertEqual(n, totals[(total.split(b".", 1)[1], hour)], key)

    def test_counts_exactly(self):
        rng = harness.seeded()
        self.pubsub.publish(make_lines(1500, rng))
        d = self.launch()
        text = self.check_exact(d)
        self.assertEqual(text, self.everything(d, limit=7))
        for line in rng.sample(text.splitlines(), 30):
            key = line.split(b",", 1)[0]
            self.assertEqual(d.get("/get?" + harness.query(key=key)).body, line.partition(b",")[2] + b"\n")
            self.assertIn(line + b"\n", d.get("/fwmatch?" + harness.query(key=key[:-1])).body)
        for user in USERS:
            r = d.get("/get?" + harness.query(key=b"u|" + component(user.encode())))
            self.assertEqual(r.status, 200, user)
        both = d.get("/mget?k=u%7Ca&k=nothing&key=all%7Call").body.splitlines()
        self.assertEqual([b[:4] for b in both], [b"u|a,", b"all|"])

    def test_a_large_read_delays_no_other_request(self):
        """A record of many sub keys is composed while other requests are answered, and reads that wait for it are too."""
        self.pubsub.pieces = [1 << 20]
        # In so many blocks, also once they are merged, that the loop leaves them to another thread.
        self.pubsub.publish([b'{"t":1331923249,"l":"a","c":"c%010d"}' % i for i in range(110000)])
        d = self.launch()
        self.wait_counted(d)
        large = "/get?key=c.u%7Ca.c3gi"

        def overtakes():
            both = [harness.connect(d.url) for _ in range(2)]
            for connection in both:
                connection.request("GET", large)
            self.assertEqual(d.get("/ping").status, 200)
            overtaken = not select.select([both[0].sock], [], [], 0)[0]
            self.pubsub.publish([b'{"t":1331923249,"l":"b"}'])
            for connection in both:
                reply = connection.getresponse()
                self.assertEqual((reply.status, reply.read().count(b":1")), (200, 110000))
                for name in ("X-Millrace-Slice", "X-Millrace-Complete-Until"):
                    self.assertEqual(len(reply.headers.get_all(name)), 1, "once, also after a wait: " + name)
                connection.close()
            return overtaken

        harness.wait_until(overtakes, "a request to be answered before the large read", harness.LONG)
        gone = harness.connect(d.url)
        gone.request("GET", large)
        gone.close()
        self.wait_counted(d)
        self.assertEqual(d.get(large).body.count(b":1"), 110000)

    def test_an_answer_for_too_many_keys_is_refused(self):
        self.pubsub.publish(make_lines(300, harness.seeded()))
        d = self.launch("--max-answer=4K")
        some, many = ["/mget?" + "&".join(["k=all%7Call"] * n) for n in (1, 1000)]
        self.assertEqual(d.get(some).status, 200)
        reply = d.get(many)
        self.assertEqual((reply.status, reply.json()["code"]), (413, "answer-too-large"), reply)

    @unittest.skipUnless(harness.real_files(), "there are no real clicks beside the checkout")
    def test_real_clicks(self):
        self.pubsub.pieces = [60000, 250000]
        self.pubsub.data = b"".join(harness.read_file(f).replace(b"\r\n", b"\n") for f in harness.real_files()[:3])
        d = self.launch(ready=False).wait_ready(harness.LONG)
        self.check_exact(d)
        d.stop()
        self.check_rejects()

    def test_a_line_is_counted_as_it_comes(self):
        """Not with what comes after it, nor with the next flush."""
        d = self.launch("--flush-interval=1h")
        before = time.time()
        self.pubsub.publish([b'{"t":1331923249,"l":"a"}'])
        harness.wait_until(lambda: d.get("/get?key=u%7Ca").body == b"c3gi:1\n", "the line")
        complete = lambda: int(d.get("/get?key=u%7Ca").header("X-Millrace-Complete-Until")) > before
        harness.wait_until(complete, "the answer to be complete")

    def test_stream_cut_anywhere(self):
        self.pubsub.cut_after = 3001
        self.pubsub.publish(make_lines(300, harness.seeded()))
        d = self.launch()
        self.wait_counted(d)
        self.check_exact(d)

    def test_killed_at_random_and_never_less(self):
        rng = harness.seeded()
        d, last = self.launch(), 0
        for _ in range(harness.rounds(3)):
            self.pubsub.publish(make_lines(400, rng))
            until = time.monotonic() + rng.random() * 0.3
            while time.monotonic() < until:
                last = self.check_not_less(d, last)
            d.kill9()
            d = self.launch(ready=False)
            harness.wait_until(lambda: d.get("/get?key=all%7Call").status != 503, "answers")
            last = self.check_not_less(d, last)
        self.wait_counted(d)
        self.check_exact(d)
        whole = harness.read_file(glob.glob(self.path("data", "rejects", "*"))[0]).split(b"\n")[:-1]  # it is being written
        rejects = [json.loads(line) for line in whole]
        self.assertLessEqual(len(rejects), d.stats()["rejected"])
        d.stop()
        self.check_rejects()
        self.check_exact(self.launch())

    def check_not_less(self, d, last):
        r = d.get("/get?key=all%7Call")
        if r.status != 200:
            return last
        n = sum(int(p.rsplit(b":", 1)[1]) for p in r.body.split())
        self.assertGreaterEqual(n, last)
        return n

    def check_rejects(self):
        """Every line that was rejected is there once, at its offset, after a clean stop."""
        with open(self.path("data", "rejects", "0000000001.ndjson"), encoding="utf-8") as f:
            entries = [json.loads(line) for line in f]
        offsets = [int(e["offset"]) for e in entries]
        self.assertEqual(offsets, sorted(set(offsets)))
        for e in entries:
            line = self.pubsub.data[int(e["offset"]):].split(b"\n", 1)[0]
            self.assertEqual(len(line), e["bytes"])
            self.assertEqual(bytes.fromhex(e["hex"]) if "hex" in e else e["line"].encode(), line)
            self.assertTrue(e["reason"])
        truth = self.expected()
        if truth:
            self.assertEqual(len(entries), truth[1].rejected)

    def test_limited_keys_survive_kills(self):
        """A model counts the lines in order: the first keys of a slice are counted, the others are (other)."""
        rng = harness.seeded()
        self.write("counters.conf", """[input]
time = t
[total all]
key = "all"
[total u]
key = l
max_keys = 12
[subtotal c.u]
key = c
[subtotal r.all]
key = r
max_keys = 7
""")
        lines = [json.dumps({"t": 1331923249, "l": rng.choice(USERS + ["u%d" % rng.randrange(i + 1)]), "c": "US",
                             "r": "http://%d" % rng.randrange(i // 20 + 1)}).encode() for i in range(1500)]
        d, ends = self.launch(), []
        for i in range(0, len(lines), 100):
            self.pubsub.publish(lines[i:i + 100])
            act = rng.randrange(3)
            if act == 0:
                harness.wait_until(lambda: int(d.stats()["streams"]["clicks"]["offset"]) > 0, "something to be counted")
                d.kill9()
                d = self.launch()
            elif act == 1:
                self.wait_counted(d)
                n = d.get("/slices").json()["open"]
                ends.append(int(d.post("/seal?slice=%d" % n).json()["streams"]["clicks"]["end"]))
        self.wait_counted(d)
        self.assertEqual(self.everything(d).decode(), self.limited_counts(lines, ends))

    def test_a_reached_limit_is_named_and_one_over_the_memory_refused(self):
        limit = lambda n: COUNTERS.replace("label = user\n", "label = user\nmax_keys = %d\n" % n)
        self.write("counters.conf", limit(2))
        self.pubsub.publish([b'{"t":1331923249,"l":"%s"}' % user for user in (b"a", b"b", b"c", b"d", b"a")])
        d = self.launch()
        self.wait_counted(d)
        self.assertEqual(d.get("/fwmatch?key=u%7C").body, b"u|(other),c3gi:2\nu|a,c3gi:2\nu|b,c3gi:1\n")
        harness.wait_until(lambda: 'millrace_aggregator_over_max_keys_total{counter="u"} 2\n' in d.get("/metrics").text,
                           "the metric")
        d.stop()
        self.write("counters.conf", limit(200000))
        r = self.run_program("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--max-memory=32M")
        self.assertEqual(r.returncode, 78)
        self.assertIn(b"max_keys: this max_memory allows at most 155344", r.stderr)

    def limited_counts(self, lines, ends):
        counts, lookups, at, limits = collections.Counter(), {}, 0, {}

        def stored(text, counter=None, most=0):
            keys = limits.setdefault(counter, set())
            if counter and text not in keys | {"(other)"}:
                if len(keys) < most:
                    keys.add(text)
                else:
                    text = "(other)"
            form = component(text.encode()).decode()
            if len(form) == 12:
                lookups[form] = text
            return form

        for line in lines:
            if at in ends:
                limits.clear()
            at, e = at + len(line) + 1, json.loads(line)
            user = stored(e["l"], "u", 12)
            for key, name in (("all|all", "c3gi"), ("u|" + user, "c3gi"), ("c.u|%s.c3gi" % user, stored(e["c"])),
                              ("r.all|all.c3gi", stored(e["r"], "r", 7))):
                counts[key, name] += 1
        records = collections.defaultdict(list)
        for (key, name), n in sorted(counts.items(), key=lambda item: item[0][1].encode()):
            records[key].append("%s:%d" % (name, n))
        text = [key + "," + " ".join(values) for key, values in records.items()]
        text += ["lookup|%s,%s" % (form, oracle_escape(full)) for form, full in lookups.items()]
        return "".join(line + "\n" for line in sorted(text, key=str.encode))

    def test_unknown_stream_is_empty(self):
        self.pubsub.exists = False
        d = self.launch()
        self.assertEqual(d.get("/range?start=&end=z").body, b"")
        self.pubsub.exists = True
        self.pubsub.publish([b'{"t":1331923249,"l":"a"}'])
        harness.wait_until(lambda: d.get("/get?key=u%7Ca").status == 200, "the first line")

    def test_hole_is_crossed(self):
        lines = make_lines(100, harness.seeded())
        self.pubsub.publish(lines[:50])
        before = len(self.pubsub.data)
        self.pubsub.publish([b"x" * 99])
        self.pubsub.hole = (before, before + 100)
        self.pubsub.publish(lines[50:])
        d = self.launch()
        self.wait_counted(d)
        harness.wait_until(lambda: "millrace_aggregator_holes_crossed_total 1" in d.get("/metrics").text,
                           "the metrics, which follow in a moment")
        self.pubsub.data = self.pubsub.data[:before] + self.pubsub.data[before + 100:]
        self.check_exact(d)

    def test_other_stream_is_refused(self):
        self.pubsub.publish(make_lines(20, harness.seeded()))
        d = self.launch()
        self.wait_counted(d)
        d.stop()
        data, own = self.pubsub.data, self.pubsub.id
        for change, reason in (({"id": "f" * 32}, "another stream"), ({"data": data[:30]}, "old copy"),
                               ({"exists": False}, "no longer has")):
            vars(self.pubsub).update(dict({"id": own, "data": data, "exists": True}, **change))
            d = self.launch(ready=False)
            harness.wait_until(lambda: reason in d.get("/health").text, lambda: d.get("/health").text)
            self.assertEqual(d.get("/get?key=all%7Call").status, 503)
            d.stop()

    def test_waits_while_pubsub_is_away(self):
        self.pubsub.status = 500
        d = self.launch(ready=False)
        harness.wait_until(lambda: "500" in d.get("/health").text, "the reason on /health")
        self.pubsub.status = None
        d.wait_ready()

    def test_bad_requests(self):
        self.pubsub.publish(make_lines(10, harness.seeded()))
        d = self.launch()
        for target, status in (("/get", 400), ("/range?start=b&end=a", 400), ("/range?start=b", 400),
                               ("/fwmatch?key=u&limit=0", 400), ("/get?key=no", 404), ("/fwmatch?key=no", 404),
                               ("/get?key=no&after=1", 409), ("/get?key=no&after=x", 400)):
            self.assertEqual(d.get(target).status, status, target)

    def test_long_line_is_rejected(self):
        self.pubsub.publish([b'{"t":1331923249,"l":"a"}', b"y" * 5000, b'{"t":1331923249,"l":"a"}'])
        d = self.launch("--max-line=100")
        self.wait_counted(d)
        self.assertEqual(d.get("/get?key=u%7Ca").body, b"c3gi:2\n")
        self.assertEqual(d.stats()["rejected"], 1)

    def test_events_far_ahead_are_rejected_and_lateness_is_measured(self):
        self.write("counters.conf", COUNTERS.replace("max_ahead = 0\n", ""))
        now = int(time.time())
        self.pubsub.publish([json.dumps({"t": t, "l": "a"}).encode() for t in (now - 7200, now, now + 86400, now + 3 * 86400)])
        d = self.launch()
        self.wait_counted(d)
        self.assertEqual([d.stats()[name] for name in ("events", "rejected")], [3, 1])
        for bound, n in (("3600", 2), ("21600", 3), ("+Inf", 3)):
            line = 'millrace_aggregator_event_lateness_seconds_bucket{le="%s"} %d\n' % (bound, n)
            harness.wait_until(lambda: line in d.get("/metrics").text, "the metrics, which follow in a moment: " + line)
        d.stop()  # writes the rejects
        with open(glob.glob(self.path("data", "rejects", "*"))[0]) as f:
            self.assertEqual(json.loads(f.read())["reason"], "field t is a time more than max_ahead in the future")

    def test_memory_stays_within_the_setting_and_a_quarter(self):
        """At the smallest setting, with new keys in every event."""
        rng = harness.seeded()
        key = lambda: rng.randbytes(50).hex()
        self.pubsub.publish(make_lines(200, rng))
        d = self.launch("--max-memory=32M")
        for _ in range(10):
            self.pubsub.publish([b'{"t":1331923249,"l":"%s","u":"%s","c":"%s","r":"%s"}' % tuple(key().encode() for _ in range(4))
                                 for _ in range(4000)])
        self.wait_counted(d)
        peak = peak_memory(d)
        self.check_sums(self.everything(d).splitlines())
        d.stop()
        if not harness.SANITIZED:
            self.assertLess(peak, 40 << 20)
        r = self.run_program("aggregator", "--config", self.config, "--data-dir", self.path("data"), "--max-memory=31M")
        self.assertEqual(r.returncode, 64)
        self.assertIn(b"--max-memory=31M is out of bounds: 32M..", r.stderr)

    def test_other_counters_are_refused(self):
        self.launch().stop()
        self.write("counters.conf", COUNTERS.replace("key = host(u)", "key = u"))
        d = self.daemon("aggregator", "--config", self.config, "--data-dir", self.path("data"))
        self.assertEqual(d.process.wait(harness.PATIENCE), 78)
        self.assertIn("other counters", d.log)
        self.assertIn("host(u)", d.log)

    def test_no_counters_no_start(self):
        r = self.run_program("aggregator", "--data-dir", self.path("data"))
        self.assertEqual(r.returncode, 78)
        self.assertIn(b"--config", r.stderr)


if __name__ == "__main__":
    harness.main()
