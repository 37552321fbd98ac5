"""Server-Sent Events: what a client of the standard sees, a real browser (headless Chromium) and curl."""
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest

EVENTS = {"Accept": "text/event-stream"}


def parse(stream):
    """The events of a text, as the standard's section 9.2.6 has it: [(type, data, id)]; comments are counted."""
    events, kind, data, last = [], "", [], ""
    for line in re.split(b"\r\n|\r|\n", stream):
        if not line:
            if data:
                events.append((kind or "message", b"\n".join(data), last))
            kind, data = "", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            kind = value.decode()
        elif field == b"id" and b"\0" not in value:
            last = value.decode()
    return events


class Events(PubsubTest):
    def events(self, target, headers=None):
        return request(self.url, "GET", target, headers=dict(EVENTS, **(headers or {})))

    def test_lines_and_ids(self):
        self.pubsub()
        identity = self.pub(b"one\ntwo\n").json()["id"]
        reply = self.events("/sub?stream=s&from=earliest&follow=0")
        self.assertEqual(reply.header("Content-Type"), "text/event-stream")
        self.assertEqual(reply.header("Access-Control-Allow-Origin"), "*")
        self.assertEqual(parse(reply.body), [("message", b"one", "4:" + identity), ("message", b"two", "8:" + identity)])
        for accept in ("text/html, Text/Event-Stream;q=0.9", "text/event-stream"):
            self.assertIn(b"data: one", self.events("/sub?stream=s&from=0&follow=0", {"Accept": accept}).body)
        self.assertEqual(request(self.url, "GET", "/sub?stream=s&from=0&follow=0", headers={"Accept": "*/*"}).body, b"one\ntwo\n")
        self.assertEqual(request(self.url, "HEAD", "/sub?stream=s&from=0", headers=EVENTS).status, 200)

    def test_last_event_id_resumes(self):
        self.pubsub()
        identity = self.pub(b"one\ntwo\nthree\n").json()["id"]
        for last in ("4:" + identity, "4"):
            reply = self.events("/sub?stream=s&from=earliest&follow=0", {"Last-Event-ID": last})
            self.assertEqual([d for _, d, _ in parse(reply.body)], [b"two", b"three"])
        for last, status, code in (("5:" + identity, 416, "cursor-inside-line"), ("99", 416, "cursor-beyond-end"),
                                   ("4:" + "0" * 32, 409, "wrong-stream"), ("four", 400, "bad-parameter")):
            self.assertProblem(self.events("/sub?stream=s&from=0", {"Last-Event-ID": last}), status, code)

    def test_any_bytes(self):
        self.pubsub()
        megabyte = b"m" * (1 << 20)
        body = b"a\rb\n\xff\xfe\n" + megabyte + b"\n: no comment\nx\0y\n\r\r\n"
        self.assertEqual(self.pub(body).status, 200)
        got = parse(self.events("/sub?stream=s&from=0&follow=0").body)
        self.assertEqual([d for _, d, _ in got], [b"a\nb", b"\xff\xfe", megabyte, b": no comment", b"x\0y", b"\n"])
        self.assertEqual(b"".join(d.replace(b"\n", b"\r") + b"\n" for _, d, _ in got), self.sub(0).body, "LF stands for CR")

    def test_heartbeats_and_the_id_before_the_first_line(self):
        self.pubsub("--heartbeat=100ms")
        identity = self.pub(b"old\n").json()["id"]
        c = harness.connect(self.url)
        c.request("GET", "/sub?stream=s", headers=EVENTS)
        r = c.getresponse()
        start = b"retry: 1000\nid: 4:%s\n\n" % identity.encode()
        self.assertEqual(r.read(len(start)), start)
        self.assertEqual(r.read(9), b":\n\n" * 3)
        self.pub(b"new\n")
        got = b""
        while b"data: new\nid: 8:" not in got:
            got += r.read1(1000)
        c.close()

    def test_a_gap_instead_of_a_refusal(self):
        self.pubsub("--segment-bytes=64K", "--retain-bytes=64K", "--heartbeat=100ms")
        block = b"".join(b"%06d %s\n" % (i, b"x" * 1000) for i in range(30))
        for _ in range(30):
            self.pub(block)
        wait_until(lambda: request(self.url, "GET", "/streams").json()["streams"][0]["disk_bytes"] < 3 * 64 * 1024,
                   "all to go but the newest file and the one kept ready")
        got = parse(self.events("/sub?stream=s&from=earliest&follow=0", {"Last-Event-ID": "0"}).body)
        self.assertEqual(got[0][0], "gap")
        self.assertEqual(json.loads(got[0][1])["before"], "0")
        # Retention may pass this reader, too, while it reads: then a second gap says so.
        at, text = 0, block * 30
        for kind, data, identity in got:
            if kind == "gap":
                gap = json.loads(data)
                self.assertEqual(int(gap["before"]), at)
                self.assertGreater(int(gap["after"]), at)
                at = int(gap["after"])
            else:
                self.assertEqual(data + b"\n", text[at:at + len(data) + 1])
                at += len(data) + 1
            self.assertEqual(int(identity.split(":")[0]), at)
        self.assertEqual(at, len(text))


class Page(http.server.BaseHTTPRequestHandler):
    """Serves the page, and takes what its script reports."""
    protocol_version = "HTTP/1.1"

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(self.server.page, "text/html; charset=utf-8")

    def do_POST(self):
        self.server.reports.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"", "text/plain")

    def log_message(self, *args):
        pass


SCRIPT = """<!doctype html><title>millrace</title><script>
const source = new EventSource("%s/sub?stream=s&from=earliest");
let n = 0;
function report(what) { what.n = n++; fetch("/report", {method: "POST", body: JSON.stringify(what)}); }
source.onopen = () => report({open: true});
source.addEventListener("gap", e => report({gap: JSON.parse(e.data), id: e.lastEventId}));
source.onmessage = e => report({data: e.data.length > 1000 ? e.data.length : e.data, id: e.lastEventId});
</script>"""


class Browser(PubsubTest):
    """A real EventSource: receives, loses its server twice, comes back by itself, and resumes."""

    def chromium(self, page_url):
        program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
        if not program:
            self.skipTest("chromium is not installed (apt-get install chromium): no browser to test with")
        argv = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--user-data-dir=" + self.path("profile"), page_url]
        log = open(self.path("chromium.log"), "wb")
        self.addCleanup(log.close)
        browser = subprocess.Popen(harness.dies_with_us(argv), stdout=log, stderr=log, start_new_session=True,
                                   env=dict(os.environ, HOME=self.dir))
        self.addCleanup(browser.wait)
        self.addCleanup(os.killpg, browser.pid, signal.SIGKILL)

    def serve(self, page):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        server.page, server.reports = page.encode(), []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def test_eventsource(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = "http://127.0.0.1:%d" % port

        def pubsub():
            return self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", "--heartbeat=100ms",
                              "--address=127.0.0.1", "--port=%d" % port, port=False)
        p = pubsub()
        identity = self.pub(b"one\n").json()["id"]
        server = self.serve(SCRIPT % self.url)

        def reports():
            return sorted(server.reports, key=lambda r: r["n"])

        def data():
            return [r["data"] for r in reports() if "data" in r]
        self.chromium("http://127.0.0.1:%d/" % server.server_port)
        wait_until(lambda: data() == ["one"], lambda: "the first line: %s\n%s" % (
            server.reports, harness.read_file(self.path("chromium.log"))[-2000:]))
        time.sleep(0.5)  # quiet hours, of five heartbeats
        self.pub(b"a\rb\n\xff\n")
        wait_until(lambda: len(data()) == 3, lambda: "odd bytes: %s" % server.reports)
        for n in range(2):
            p.kill9()
            p = pubsub()
            self.pub(b"after kill %d\n" % n + b"m" * (1 << 20) + b"\n")
            wait_until(lambda: len(data()) == 5 + 2 * n, lambda: "the lines after a kill: %s" % server.reports)
        self.assertEqual(data(), ["one", "a\nb", "\ufffd", "after kill 0", 1 << 20, "after kill 1", 1 << 20])
        last = [r["id"] for r in reports() if "data" in r][-1]
        self.assertEqual(last, "%d:%s" % (len(self.sub(0).body), identity))
        self.assertEqual(sum("open" in r for r in server.reports), 3)


class Curl(PubsubTest):
    def curl(self, *args):
        program = shutil.which("curl")
        if not program:
            self.skipTest("curl is not installed")
        return subprocess.run([program, "-s", "--max-time", "30", "--unix-socket", self.path("p.sock"), *args],
                              capture_output=True, timeout=harness.PATIENCE).stdout

    def test_raw_and_events(self):
        self.pubsub()
        body = b"one\n\x00\xff\r\r\n" + b"m" * (1 << 20) + b"\n"
        self.curl("--data-binary", "@" + self.write("body", body), "http://localhost/pub?stream=s")
        text = body.replace(b"\r\r\n", b"\r\n")
        self.assertEqual(self.curl("-N", "http://localhost/sub?stream=s&from=0&follow=0"), text)
        events = parse(self.curl("-N", "-H", "Accept: text/event-stream", "http://localhost/sub?stream=s&from=0&follow=0"))
        self.assertEqual(len(events), 3)
        cursor = events[0][2]
        resumed = parse(self.curl("-N", "-H", "Accept: text/event-stream", "-H", "Last-Event-ID: " + cursor,
                                  "http://localhost/sub?stream=s&from=0&follow=0"))
        self.assertEqual(resumed, events[1:])


if __name__ == "__main__":
    unittest.main()
