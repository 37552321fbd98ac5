"""Server-Sent Events: what a client of the standard sees, and curl; real EventSources are in test_pubsub_eventsource.py."""
import glob
import json
import os
import re
import resource
import shutil
import socket
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
        past = "%s.%s" % (identity, reply.header("X-Millrace-Opening"))
        self.assertEqual(parse(reply.body), [("message", b"one", "4:" + past), ("message", b"two", "8:" + past)])
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
        opening = r.getheader("X-Millrace-Opening-Before")
        start = b"retry: 1000\nid: 4:%s.%s\n\n" % (identity.encode(), opening.encode())
        self.assertEqual(r.read(len(start)), start)
        self.assertEqual(r.read(9), b":\n\n" * 3)
        self.pub(b"new\n")
        got = b""
        while b"data: new\nid: 8:" not in got:
            got += r.read1(1000)
        c.close()

    def test_a_restored_copy_refuses_the_id_of_a_lost_line(self):
        p = self.pubsub()
        self.pub(b"one\n")
        p.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        p = self.pubsub()
        self.pub(b"two\n")
        kept = parse(self.events("/sub?stream=s&from=0&follow=0").body)[0][2]
        lost = parse(self.events("/sub?stream=s&follow=0", {"Last-Event-ID": kept}).body)[0][2]
        p.stop()
        shutil.rmtree(self.path("p"))
        os.rename(self.path("old"), self.path("p"))
        self.pubsub()
        self.pub(b"own\n")
        reply = self.assertProblem(self.events("/sub?stream=s", {"Last-Event-ID": lost}), 409, "other-history")
        self.assertEqual((reply["differs_from"], reply["is_certain"], reply["opening_before"]), ("4", False, kept.split(".")[1]))
        first, own = reply["openings"]
        self.assertEqual((first["first"], first["opening"], own["first"]), ("0", kept.split(".")[1], "4"))
        self.assertRegex(own["began"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("from offset 4 on it differs from the lines read, which end at 8; the copy was opened there at "
                      + own["began"] + " (found by the clocks", reply["detail"])
        got = parse(self.events("/sub?stream=s&follow=0", {"Last-Event-ID": kept}).body)
        self.assertEqual([d for _, d, _ in got], [b"own"])

    def test_a_response_ends_where_another_opening_begins(self):
        """Unless the request has no id: then it goes on through all openings."""
        starts, openings = 18, []
        for n in range(starts):
            p = self.pubsub()
            self.pub(b"line %02d\n" % n)
            openings.append(self.sub(8 * n).header("X-Millrace-Opening"))
            if n + 1 < starts:
                p.stop()
        self.assertEqual((len(set(openings)), sorted(openings)), (starts, openings))
        text = b"".join(b"line %02d\n" % n for n in range(starts))
        self.assertEqual(self.sub().body, text)
        got, cursor = b"", ""
        for n in range(starts):
            reply = self.sub(8 * n, id=cursor)
            got += reply.body
            self.assertEqual((reply.header("X-Millrace-Opening"), reply.header("X-Millrace-Opening-Before")),
                             (openings[n], openings[n - 1] if n else None))
            self.assertEqual(reply.header("X-Millrace-End"), str(len(text)))
            cursor = "%s.%s" % (reply.header("X-Millrace-Stream-Id"), openings[n])
        self.assertEqual(got, text)
        stream = cursor.split(".")[0]
        events = [("message", b"line %02d" % n, "%d:%s.%s" % (8 * n + 8, stream, openings[n])) for n in range(starts)]
        for n in range(starts):
            after = {"Last-Event-ID": events[n - 1][2]} if n else {}
            self.assertEqual(parse(self.events("/sub?stream=s&from=earliest&follow=0", after).body), events[n:])
        followed = request(self.url, "GET", "/sub?stream=s&from=earliest&id=")
        self.assertEqual(followed.body, b"line 00\n", "the response ends though it follows the stream")
        self.assertEqual(self.sub(-2, id="").body, b"line %02d\n" % (starts - 2), "the opening of the line that is found")
        reply = self.assertProblem(self.sub(16, id="%s.%s" % (stream, openings[0])), 409, "other-history")
        self.assertEqual((reply["differs_from"], reply["is_certain"]), ("8", True))
        self.assertEqual([(o["first"], o["opening"]) for o in reply["openings"]],
                         [(str(8 * n), openings[n]) for n in range(starts - 16, starts)])

    def test_a_gap_instead_of_a_refusal(self):
        self.pubsub("--segment-bytes=64K", "--retain-bytes=64K", "--heartbeat=100ms")
        block = b"".join(b"%06d %s\n" % (i, b"x" * 1000) for i in range(30))
        for _ in range(30):
            self.pub(block)
        wait_until(lambda: request(self.url, "GET", "/streams").json()["streams"][0]["disk_bytes"] < 3 * 64 * 1024,
                   "all to go but the newest file and the one kept ready")
        reply = self.events("/sub?stream=s&from=earliest&follow=0", {"Last-Event-ID": "0"})
        first = re.match(rb"retry: 1000\nid: (\S+)\n\nevent: gap\n", reply.body).group(1).decode()
        self.assertEqual(first.split(":")[0], "0", "who is cut off behind it is told again")
        self.assertGreater(int(reply.header("X-Millrace-Offset")), 0)
        again = self.events("/sub?stream=s&from=earliest&follow=0", {"Last-Event-ID": first})
        self.assertEqual(parse(again.body)[0][0], "gap")
        got = parse(reply.body)
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


class ComeBack(PubsubTest):
    def ask(self, target, accept):
        """By a plain socket, up to the end of the connection: (status line, headers, body)."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(harness.PATIENCE)
            s.connect(self.path("p.sock"))
            s.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: %s\r\n\r\n" % (target, accept))
            head, body = b"".join(iter(lambda: s.recv(65536), b"")).split(b"\r\n\r\n", 1)
        status, *headers = head.decode().lower().split("\r\n")
        return status, headers, body

    def test_while_recovery_goes_on_an_event_stream_ends_so_that_its_client_comes_back(self):
        d = self.pubsub()
        identity = self.pub(b"one\ntwo\n").json()["id"]
        d.stop()
        segment, = glob.glob(self.path("p", "streams", "s", "*.seg"))
        os.rename(segment, self.path("kept"))
        os.mkfifo(segment)  # who opens it to read waits for a writer that does not come
        d = self.daemon("pubsub", "--data-dir=" + self.path("p"), "--sync=never", listen=self.url).wait_listening()
        for target in (b"/sub?stream=s", b"/sub?stream=s&from=earliest&multipart=0", b"/sub", b"/rate", b"/rate?stream=s"):
            status, headers, body = self.ask(target, b"text/event-stream")
            self.assertEqual((status, body), ("http/1.1 200 ok", b"retry: 1000\n\n"))
            for header in ("content-type: text/event-stream", "cache-control: no-store", "access-control-allow-origin: *"):
                self.assertIn(header, headers)
        for target, accept in ((b"/sub?stream=s", b"*/*"), (b"/sub", b"*/*"), (b"/sub?stream=s&multipart=1", b"text/event-stream"),
                               (b"/streams", b"text/event-stream"), (b"/rate", b"*/*"), (b"/rate?stream=s", b"*/*")):
            status, _, body = self.ask(target, accept)
            self.assertEqual((status, json.loads(body)["code"]), ("http/1.1 503 service unavailable", "not-ready"))
        d.kill9()
        os.rename(self.path("kept"), segment)
        self.pubsub()
        reply = request(self.url, "GET", "/sub?stream=s&from=earliest&follow=0", headers=dict(EVENTS, **{"Last-Event-ID": "4:" + identity}))
        past = "%s.%s" % (identity, reply.header("X-Millrace-Opening"))
        self.assertEqual(parse(reply.body), [("message", b"two", "8:" + past)])

    def raw(self, text):
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.settimeout(harness.PATIENCE)
        s.connect(self.path("p.sock"))
        s.sendall(text)
        return s

    def told(self, s):
        """What comes up to the end of the connection: (status line, Content-Type, body)."""
        head, body = b"".join(iter(lambda: s.recv(65536), b"")).split(b"\r\n\r\n", 1)
        status, *headers = head.decode().lower().split("\r\n")
        return status, next(h[14:] for h in headers if h.startswith("content-type: ")), body

    COMES_BACK = ("http/1.1 200 ok", "text/event-stream", b"retry: 1000\n\n")

    def assertNotUp(self, told):
        status, kind, body = told
        problem = json.loads(body)
        self.assertEqual((status, kind, problem["code"], problem["detail"]),
                         ("http/1.1 503 service unavailable", "application/problem+json", "not-ready", "stopping"))

    def test_so_does_one_while_pubsub_stops(self):
        d = self.pubsub("--header-timeout=10m")
        self.pub(b"one\n")
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        c.request("GET", "/sub?stream=s&from=earliest", headers=EVENTS)
        r = c.getresponse()
        got = b""
        while b"data: one\n" not in got:
            got += r.read1(1000)
        rate = harness.connect(self.url)
        self.addCleanup(rate.close)
        rate.request("GET", "/rate?stream=s", headers=EVENTS)
        rate = rate.getresponse()
        late = [self.raw(b"GET /sub?stream=s HTTP/1.1\r\nHost: x\r\n") for _ in range(3)]
        wait_until(lambda: d.stats()["http_connections"] >= 2 + len(late), "their connections to be there")
        d.process.terminate()
        wait_until(lambda: " stopping" in d.log, lambda: "the stop: " + d.log)
        late[0].sendall(b"Accept: text/event-stream\r\n\r\n")
        self.assertEqual(self.told(late[0]), self.COMES_BACK)
        late[1].sendall(b"Accept: */*\r\n\r\n")
        self.assertNotUp(self.told(late[1]))
        r.read()  # whole: an end that is none would be an IncompleteRead
        rate.read()
        late[2].close()
        self.assertEqual(d.process.wait(harness.PATIENCE), 0)

    def test_so_does_one_that_pubsub_has_not_begun_to_answer_when_it_stops(self):
        """Its first read waits for a descriptor. A request that does not end keeps the daemon until it has some again."""
        d = self.pubsub("--header-timeout=10m")
        self.pub(b"one\n")
        control = harness.connect(self.url)
        self.addCleanup(control.close)
        asked = b"GET /sub?stream=s&from=earliest HTTP/1.1\r\nHost: x\r\nAccept: %s\r\n"
        events, plain, keeps = (self.raw(asked % accept) for accept in (b"text/event-stream", b"*/*", b"*/*"))

        def ask(target):
            control.request("GET", target)
            return json.loads(control.getresponse().read())
        wait_until(lambda: ask("/stats?format=json")["http_connections"] >= 4, "their connections to be there")
        limits = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        for s in (events, plain):
            s.sendall(b"\r\n")
        wait_until(lambda: [c["state"] for c in ask("/clients?format=json")["clients"]] == ["beginning"] * 2, "both to wait")
        wait_until(lambda: "a read waits: out of descriptors or memory" in d.log, lambda: d.log)
        d.process.terminate()
        self.assertEqual(self.told(events), self.COMES_BACK)
        self.assertNotUp(self.told(plain))
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, limits)
        keeps.close()
        self.assertEqual(d.process.wait(harness.PATIENCE), 0)

    def test_so_does_one_past_the_limit_of_connections(self):
        d = self.pubsub("--max-connections=2")
        self.pub(b"one\n")
        held = [self.raw(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
        for s in held:
            self.assertIn(b"OK", s.recv(65536))
        asked = b"GET /sub?stream=s&from=earliest&follow=0 HTTP/1.1\r\nHost: x\r\nAccept: %s\r\n\r\n"
        self.assertEqual(self.told(self.raw(asked % b"text/event-stream")), self.COMES_BACK)
        status, _, body = self.told(self.raw(asked % b"*/*"))
        self.assertEqual((status, json.loads(body)["code"]), ("http/1.1 503 service unavailable", "overloaded"))
        for s in held:
            s.close()
        wait_until(lambda: b"data: one\n" in self.told(self.raw(asked.replace(b"%s\r\n", b"text/event-stream\r\nConnection: close\r\n")))[2],
                   "room again")
        self.assertEqual(d.get("/health").status, 200)

    def test_so_does_one_whose_stream_cannot_be_made_for_want_of_a_descriptor(self):
        """bitly's /sub makes its stream."""
        d = self.pubsub()
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        c.request("GET", "/ping")
        self.assertEqual(c.getresponse().read(), b"OK")
        limits = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        c.request("GET", "/sub", headers=EVENTS)
        r = c.getresponse()
        self.assertEqual((r.status, r.headers["Content-Type"], r.read()), (200, "text/event-stream", b"retry: 1000\n\n"))
        c.request("GET", "/sub")
        r = c.getresponse()
        self.assertEqual((r.status, json.loads(r.read())["code"]), (503, "out-of-descriptors"))
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, limits)
        c.request("GET", "/sub?follow=0", headers=EVENTS)
        r = c.getresponse()
        self.assertIn(b"id: 0:", r.read())


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
