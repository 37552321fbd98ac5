"""What may be odd or wrong with a request to pubsub, and its one answer, which docs/guide/streams.md and docs/guide/protocol.md give."""
import gzip
import subprocess
import time
import unittest

import harness
from harness import query, request
from pubsub_case import PubsubTest


def zstd(text):
    return subprocess.run(["zstd", "-qc"], input=text, capture_output=True, check=True).stdout


NUL = b"\x00"
OK = 200, None

# body -> status, code, and what is then in the stream
BODIES = [
    ("one line without its LF", b"a", OK, b"a\n"),
    ("lines", b"a\nb\n", OK, b"a\nb\n"),
    ("CR before LF is dropped, one", b"a\r\nb\r\r\n", OK, b"a\nb\r\n"),
    ("CR before the LF that is added", b"a\r", OK, b"a\n"),
    ("CR elsewhere", b"a\rb\n", OK, b"a\rb\n"),
    ("NUL", b"a" + NUL + b"b\n" + NUL + b"\n", OK, b"a" + NUL + b"b\n" + NUL + b"\n"),
    ("no UTF-8", b"\xff\xc0\n", OK, b"\xff\xc0\n"),
    ("a line of max_line bytes", b"x" * 100, OK, b"x" * 100 + b"\n"),
    ("its CR does not count", b"x" * 100 + b"\r\n", OK, b"x" * 100 + b"\n"),
    ("a line of one more", b"ok\n" + b"x" * 101 + b"\n", (413, "line-too-large"), b""),
    ("nothing", b"", (400, "empty-body"), b""),
    ("one LF", b"\n", (400, "empty-line"), b""),
    ("CR LF", b"\r\n", (400, "empty-line"), b""),
    ("one CR", b"\r", (400, "empty-line"), b""),
    ("an empty line in the middle", b"a\n\nb\n", (400, "empty-line"), b""),
    ("an empty line at the end", b"a\n\n", (400, "empty-line"), b""),
    ("more than max_body", b"xx\n" * 30000, (413, "too-large"), b""),
]

# what follows /pub? -> status and code, for a good body
PUBLISHES = [
    ("stream=", (400, "bad-parameter")), ("stream=a/b", (400, "bad-parameter")), ("stream=.", (400, "bad-parameter")),
    ("stream=..", (400, "bad-parameter")),
    ("stream=a%00b", (400, "bad-parameter")), ("stream=" + "x" * 65, (400, "bad-parameter")), ("stream=%C3%BC", (400, "bad-parameter")),
    ("stream=t&producer=p", (400, "bad-parameter")), ("stream=t&mark=0&next=1", (400, "bad-parameter")),
    ("stream=t&producer=a/b&mark=0&next=1", (400, "bad-parameter")), ("stream=t&producer=p&mark=1&next=1", (400, "bad-parameter")),
    ("stream=t&producer=p&mark=1&next=1&opening=a", (400, "bad-parameter")),
    ("stream=t&producer=p&mark=-1&next=1", (400, "bad-parameter")), ("stream=t&producer=p&mark=x&next=1", (400, "bad-parameter")),
    ("stream=t&producer=p&mark=0&next=18446744073709551616", (400, "bad-parameter")),
    ("stream=t&producer=p&mark=5&next=6", (409, "mark-conflict")),
]

NOT_TOGETHER = "producer, mark and next must be given together"
NO_NUMBER = " must be a whole number from 0 to 18446744073709551615"

# what follows /pub?stream=t& -> what the refusal says
TEXTS = [
    ("producer=p", NOT_TOGETHER), ("mark=0&next=1", NOT_TOGETHER), ("producer=a%2fb&mark=0", NOT_TOGETHER),
    ("producer=a%2fb&mark=0&next=1", "producer is not a name"), ("producer=&mark=0&next=1", "producer is not a name"),
    ("producer=p&mark=x&next=1", "mark" + NO_NUMBER),
    ("producer=p&mark=0&next=18446744073709551616", "next" + NO_NUMBER),
    ("producer=p&mark=99999999999999999999999&next=1", "mark" + NO_NUMBER),
    ("producer=p&mark=0&next=18446744073709551616x", "next" + NO_NUMBER),
]

# The stream holds b"one\ntwo\nthree\n". from -> status and code, or the text.
CURSORS = [
    ("earliest", b"one\ntwo\nthree\n"), ("latest", b""), ("0", b"one\ntwo\nthree\n"), ("4", b"two\nthree\n"), ("8", b"three\n"),
    ("14", b""), ("00004", b"two\nthree\n"), ("1", (416, "cursor-inside-line")), ("3", (416, "cursor-inside-line")),
    ("13", (416, "cursor-inside-line")), ("15", (416, "cursor-beyond-end")), ("18446744073709551615", (416, "cursor-beyond-end")),
    ("18446744073709551616", (400, "bad-parameter")), ("", (400, "bad-parameter")), ("-1", b"three\n"),
    ("4x", (400, "bad-parameter")), ("Earliest", (400, "bad-parameter")), ("@0", b"one\ntwo\nthree\n"),
    ("@1", b"one\ntwo\nthree\n"), ("@4102444800", b""), ("@", (400, "bad-parameter")), ("@-1", (400, "bad-parameter")),
    ("@1.5", (400, "bad-parameter")), ("@99999999999999999999", (400, "bad-parameter")),
]

SUBSCRIPTIONS = [
    ("stream=s&follow=2", (400, "bad-parameter")), ("stream=a/b", (400, "bad-parameter")), ("stream=none", (404, "unknown-stream")),
    ("stream=s&id=x", (409, "wrong-stream")), ("stream=s&multipart=x", (400, "bad-parameter")),
]

# parameters that are unknown, misspelt by a letter, or given twice; each request is refused
UNKNOWN = [
    ("POST", "/pub?strem=t", "unknown-parameter", "stream"), ("POST", "/pub?stream=t&producr=p&mark=0&next=1", "unknown-parameter", "producer"),
    ("POST", "/pub?stream=t&from=0", "unknown-parameter", None), ("POST", "/pub?stream=t&stream=u", "bad-parameter", None),
    ("POST", "/pub?stream=t&producer=p&mark=0&mark=1&next=2", "bad-parameter", None), ("POST", "/pub?=t", "unknown-parameter", None),
    ("GET", "/sub?stream=s&form=earliest", "unknown-parameter", "from"), ("GET", "/sub?stream=s&limit=10", "unknown-parameter", None),
    ("GET", "/sub?stream=s&from=0&from=5", "bad-parameter", None), ("GET", "/sub?stream=s&filter_subject=x", "unknown-parameter", None),
    ("GET", "/sub?" + "x" * 5000 + "=1", "unknown-parameter", None), ("GET", "/sub?stream=s&follow%00=0", "unknown-parameter", "follow"),
    ("POST", "/cursors?stream=s&nam=c&from=0", "unknown-parameter", "name"), ("DELETE", "/cursors?stream=s&name=c&x", "unknown-parameter", None),
    ("GET", "/producer?stream=s&producer=p&producers=q", "unknown-parameter", "producer"), ("GET", "/clients?fromat=json", "unknown-parameter", "format"),
    ("GET", "/streams?stream=s", "unknown-parameter", None),
]

METHODS = [("GET", "/pub", 405), ("PUT", "/pub", 405), ("POST", "/sub", 405), ("DELETE", "/streams", 405), ("PUT", "/cursors", 405),
           ("POST", "/clients", 405), ("GET", "/nothing", 404)]


class BadInput(PubsubTest):
    def problem(self, reply):
        if reply.status == 200:
            return OK
        body = reply.json()
        self.assertEqual(body["status"], reply.status)
        self.assertTrue(body["detail"])
        return reply.status, body["code"]

    def test_bodies(self):
        self.pubsub("--max-line=100", "--max-body=64K")
        for n, (name, body, answer, text) in enumerate(BODIES):
            with self.subTest(name):
                stream = "s%d" % n
                reply = self.pub(body, stream=stream)
                self.assertEqual(self.problem(reply), answer)
                self.assertEqual(self.sub(stream=stream).body if answer == OK else b"", text)
                if answer != OK:
                    self.assertProblem(self.sub(stream=stream), 404, "unknown-stream")

    def test_publishes(self):
        self.pubsub()
        for target, answer in PUBLISHES:
            with self.subTest(target):
                self.assertEqual(self.problem(request(self.url, "POST", "/pub?" + target, b"line\n")), answer)

    def test_texts_of_refusals(self):
        self.pubsub()
        for target, detail in TEXTS:
            with self.subTest(target):
                problem = self.assertProblem(request(self.url, "POST", "/pub?stream=t&" + target, b"line\n"), 400, "bad-parameter")
                self.assertEqual(problem["detail"], detail)

    def test_encoded_bodies(self):
        """An unknown encoding is refused before the body is read, and stores nothing; identity is no encoding."""
        self.pubsub()
        for encoding in ("deflate", "br", "gzip, zstd", "identity, gzip", "x"):
            with self.subTest(encoding):
                c = harness.connect(self.url)
                self.addCleanup(c.close)
                c.putrequest("POST", "/pub?stream=t")
                c.putheader("Content-Encoding", encoding)
                c.putheader("Content-Length", "1000")
                c.endheaders()
                r = c.getresponse()
                reply = harness.Reply(r.status, r.headers, r.read())
                self.assertIn("uncompressed", self.assertProblem(reply, 415, "unsupported-encoding")["hint"])
                self.assertEqual(reply.header("Accept-Encoding"), "gzip, zstd, identity")
        self.assertProblem(self.sub(stream="t"), 404, "unknown-stream")
        for n, encoding in enumerate(("identity", "Identity", "")):
            with self.subTest(encoding):
                body = b"line %d\n" % n
                reply = request(self.url, "POST", "/pub?stream=t", body, {"Content-Encoding": encoding})
                self.assertEqual(reply.status, 200, reply)
        self.assertEqual(self.sub(stream="t").body, b"line 0\nline 1\nline 2\n")

    def test_compressed_bodies(self):
        """Lines of a compressed body are published as if sent plainly; a damaged or endless body stores nothing."""
        self.pubsub("--max-body=100000")
        lines = b"".join(b"line %d\n" % i for i in range(5000))
        packed = {"gzip": gzip.compress(lines), "X-GZIP": gzip.compress(lines[:7]) + gzip.compress(lines[7:]), "zstd": zstd(lines)}
        for encoding, body in packed.items():
            with self.subTest(encoding):
                reply = request(self.url, "POST", "/pub?stream=t", body, {"Content-Encoding": encoding})
                self.assertEqual((reply.status, reply.json().get("lines")), (200, 5000), reply)
        bomb = b"a" * 10_000_000
        for encoding, body, status, code in (
            ("gzip", packed["gzip"][:-1], 400, "bad-encoding"),
            ("zstd", packed["zstd"][:-1], 400, "bad-encoding"),
            ("gzip", packed["zstd"], 400, "bad-encoding"),
            ("zstd", packed["gzip"], 400, "bad-encoding"),
            ("gzip", packed["gzip"] + b"x", 400, "bad-encoding"),
            ("gzip", gzip.compress(bomb), 413, "too-large"),
            ("zstd", zstd(bomb), 413, "too-large"),
        ):
            with self.subTest(encoding=encoding, code=code):
                self.assertProblem(request(self.url, "POST", "/pub?stream=t", body, {"Content-Encoding": encoding}), status, code)
        self.assertEqual(self.sub(stream="t").body, lines * 3)

    def test_encoding_on_a_connection_that_stays(self):
        """A head that begins as the one before did is read only where it differs."""
        self.pubsub()
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        for encoding, status in (({}, 200), ({"Content-Encoding": "br"}, 415), ({}, 200), ({"Content-Encoding": "br"}, 415)):
            c.request("POST", "/pub?stream=t", b"line\n", encoding)
            r = c.getresponse()
            self.assertEqual(r.status, status)
            r.read()
        self.assertEqual(self.sub(stream="t").body, b"line\n" * 2)

    def test_cursors(self):
        self.pubsub()
        self.pub(b"one\ntwo\nthree\n")
        for from_, answer in CURSORS:
            with self.subTest(from_):
                reply = self.sub(from_)
                self.assertEqual(reply.body if reply.status == 200 else self.problem(reply), answer)
                if isinstance(answer, bytes):
                    self.assertEqual(int(reply.header("X-Millrace-Offset")), 14 - len(answer))
        self.assertEqual(self.sub("@%d" % (time.time() + 3600)).body, b"")

    def test_subscriptions_and_methods(self):
        self.pubsub()
        self.pub(b"line\n")
        for target, answer in SUBSCRIPTIONS:
            with self.subTest(target):
                self.assertEqual(self.problem(request(self.url, "GET", "/sub?" + target)), answer)
        for method, path, status in METHODS:
            with self.subTest(method + path):
                self.assertEqual(request(self.url, method, path, b"" if method == "PUT" else None).status, status)
        self.assertProblem(request(self.url, "GET", "/producer?" + query(stream="s")), 400, "missing-parameter")
        self.assertProblem(request(self.url, "GET", "/producer?" + query(stream="s", producer="a/b")), 400, "bad-parameter")
        self.assertEqual(harness.request(self.url, "GET", "/streams").json()["streams"][0]["lines_published"], 1)

    def test_parameters_that_an_endpoint_does_not_have_and_doubled_ones(self):
        self.pubsub()
        self.pub(b"line\n")
        for method, target, code, meant in UNKNOWN:
            with self.subTest(target):
                problem = self.assertProblem(request(self.url, method, target, b"lost\n" if method == "POST" else None), 400, code)
                self.assertEqual("did you mean %s?" % meant in problem.get("hint", ""), meant is not None, problem)
                self.assertLess(len(problem["detail"]), 300)
        listed = request(self.url, "GET", "/streams").json()["streams"]
        self.assertEqual([(s["name"], s["lines_published"]) for s in listed], [("s", 1)])

    def test_host_and_uri_of_any_length(self):
        p = self.pubsub()
        for size in (10, 247, 248, 249, 1000, 40000, 70000, 1000000):
            for target, headers in (("/sub?x=" + "u" * size, {}), ("/sub?stream=" + "u" * size, {}), ("/" + "u" * size, {}),
                                    ("/sub", {"Host": "h" * size, "Upgrade": "WebSocket", "Origin": "o" * size})):
                try:
                    c = harness.connect(self.url)
                    c.request("GET", target, headers=dict({"Host": "x"}, **headers))
                    self.assertIn(c.getresponse().status, (200, 400, 404, 414, 431))
                except harness.UNREACHABLE:
                    pass  # pubsub closes the connection of a client that sends more than pubsub reads
                finally:
                    c.close()
        self.assertTrue(p.alive())
        self.assertEqual(p.get("/ping").body, b"OK")


if __name__ == "__main__":
    unittest.main()
