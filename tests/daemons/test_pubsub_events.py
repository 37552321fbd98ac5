"""Server-Sent Events: what a client of the standard sees, and curl; real EventSources are in test_pubsub_eventsource.py."""
import json
import re
import shutil
import subprocess

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


class Curl(PubsubTest):
    def curl(self, *args):
        program = shutil.which("curl")
        if not program:
            harness.not_installed(self, "curl is not installed")
        return subprocess.run([program, "-s", "--unix-socket", self.path("p.sock"), *args],
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
    harness.main()
