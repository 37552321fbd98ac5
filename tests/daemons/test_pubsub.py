"""pubsub over real sockets: publishing with marks, reading from any cursor, bad input, kill -9."""
# full: MILLRACE_ROUNDS=200
import os
import re
import socket
import threading
import time
import unittest

import harness
from harness import UNREACHABLE, request, wait_until
from pubsub_case import PubsubTest


class Publish(PubsubTest):
    def test_lines_are_brought_to_one_form(self):
        self.pubsub()
        for body, text in ((b"a", b"a\n"), (b"a\nb\n", b"a\nb\n"), (b"a\r\nb\r", b"a\nb\n"), (b"a\rb\r\r\n", b"a\rb\r\n"),
                           (b"\x00\xff\xfe\n", b"\x00\xff\xfe\n")):
            start = int(self.pub(body).json()["start"])
            self.assertEqual(self.sub(start).body, text, body)

    def test_answer(self):
        self.pubsub()
        began = time.time()
        reply = self.pub(b"one\ntwo\n").json()
        self.assertEqual((reply["stream"], reply["start"], reply["end"], reply["lines"], reply["duplicate"]),
                         ("s", "0", "8", 2, False))
        self.assertEqual(len(reply["id"]), 32)
        listed, = request(self.url, "GET", "/streams").json()["streams"]
        self.assertEqual((listed["name"], listed["id"], listed["earliest"], listed["end"], listed["lines_published"]),
                         ("s", reply["id"], "0", "8", 2))
        self.assertTrue(began - 1 <= listed["last_time"] <= time.time() + 1, listed)

    def test_bad_input_stores_nothing(self):
        p = self.pubsub("--max-line=1000", "--max-body=64K")
        self.pub(b"kept\n")
        for body, status, code in ((b"a\n\nb", 400, "empty-line"), (b"\n", 400, "empty-line"),
                                   (b"a\n\r\nb", 400, "empty-line"), (b"", 400, "empty-body"),
                                   (b"ok\n" + b"x" * 1001, 413, "line-too-large")):
            self.assertProblem(self.pub(body), status, code)
        self.assertEqual(self.pub(b"x" * 1000).status, 200)
        self.assertEqual(self.pub(b"x\n" * 40000).status, 413)
        for name in ("a/b", ".", "..", "x" * 65, "a b"):
            problem = self.assertProblem(self.pub(b"a", stream=name), 400, "bad-parameter")
            self.assertEqual(problem["hint"], "a name is 1 to 64 of A-Z a-z 0-9 _ . -, and neither . nor ..")
        self.assertProblem(self.pub(b"", stream="never"), 400, "empty-body")
        self.assertEqual([s["name"] for s in request(self.url, "GET", "/streams").json()["streams"]], ["s"])
        self.assertEqual(self.sub().body, b"kept\n" + b"x" * 1000 + b"\n")
        p.stop()

    def test_a_body_of_several_megabytes(self):
        self.pubsub()
        body = b"".join(b"%08d %s\n" % (i, b"y" * 400) for i in range(20000))
        self.assertEqual(self.pub(body).json()["lines"], 20000)
        self.assertEqual(self.sub().body, body)

    def test_streams_are_made_or_not(self):
        self.pubsub("--streams=first, second", "--no-auto-create")
        self.assertEqual([s["name"] for s in request(self.url, "GET", "/streams").json()["streams"]],
                         ["first", "second"])
        self.assertEqual(self.pub(b"x", stream="first").status, 200)
        self.assertProblem(self.pub(b"x", stream="third"), 404, "unknown-stream")

    def test_max_streams(self):
        self.pubsub("--max-streams=1")
        self.assertEqual(self.pub(b"x").status, 200)
        self.assertProblem(self.pub(b"x", stream="other"), 409, "too-many-streams")


class Marks(PubsubTest):
    def test_retries_are_recognised(self):
        p = self.pubsub()
        self.assertFalse(self.pub(b"a", producer="w", mark=0, next=5).json()["duplicate"])
        self.assertTrue(self.pub(b"a", producer="w", mark=0, next=5).json()["duplicate"])
        self.assertTrue(self.pub(b"a", producer="w", mark=0, next=3).json()["duplicate"])
        self.assertEqual(self.assertProblem(self.pub(b"a", producer="w", mark=4, next=9), 409, "mark-conflict")["mark"], "5")
        self.assertEqual(self.pub(b"b", producer="w", mark=5, next=6).status, 200)
        self.assertEqual(self.pub(b"", producer="w", mark=6, next=9).json()["lines"], 0)
        p.kill9()
        self.pubsub()
        told = request(self.url, "GET", "/producer?stream=s&producer=w").json()
        self.assertEqual((told["mark"], told["known"]), ("9", True))
        self.assertEqual(self.sub().body, b"a\nb\n")

    def test_unknown(self):
        self.pubsub()
        self.assertProblem(request(self.url, "GET", "/producer?stream=s&producer=w"), 404, "unknown-stream")
        self.pub(b"x")
        told = request(self.url, "GET", "/producer?stream=s&producer=w").json()
        self.assertEqual((told["mark"], told["known"]), ("0", False))

    def test_past_the_bound_new_producers_are_refused_and_old_ones_go_on(self):
        p = self.pubsub("--max-producers=2")
        for name in ("a", "b"):
            self.assertEqual(self.pub(b"one", producer=name, mark=0, next=1).status, 200)
        for n in (1, 2):
            self.assertProblem(self.pub(b"lost", producer="c", mark=0, next=1), 409, "too-many-producers")
            self.assertEqual(self.pub(b"more", producer="a", mark=n, next=n + 1).status, 200)
            self.assertEqual(self.pub(b"without", stream="s").status, 200)
            p.kill9()
            p = self.pubsub("--max-producers=2")
        self.assertEqual(self.sub().body, b"one\none\nmore\nwithout\nmore\nwithout\n")

    def test_all_three_or_none(self):
        self.pubsub()
        for marks in ({"producer": "w"}, {"mark": 1, "next": 2}, {"producer": "w", "mark": 1}, {"producer": "/", "mark": 0, "next": 1},
                      {"producer": "w", "mark": 2, "next": 2}, {"producer": "w", "mark": -1, "next": 2}):
            self.assertProblem(self.pub(b"x", **marks), 400, "bad-parameter")

    def test_blind_retries_over_kill9(self):
        """Each line is sent until the reply is 200, also after tries without a reply. Each line is stored once, in order."""
        random = harness.seeded()
        p = self.pubsub()
        for n in range(harness.rounds(3)):
            blow = threading.Timer(random.uniform(0, 0.03), p.kill9)
            blow.start()
            for i in range(n * 50, n * 50 + 50):
                while True:
                    try:
                        if self.pub(b"line %d" % i, producer="w", mark=i, next=i + 1).status == 200:
                            break
                    except UNREACHABLE:
                        blow.join()
                        p = self.pubsub()
            blow.join()
            if not p.alive():
                p = self.pubsub()
        self.assertEqual(self.sub().body, b"".join(b"line %d\n" % i for i in range(harness.rounds(3) * 50)))


class Subscribe(PubsubTest):
    def test_cursors(self):
        self.pubsub()
        identity = self.pub(b"one\ntwo\n").json()["id"]
        self.pub(b"three\n")
        text = b"one\ntwo\nthree\n"
        for cursor in (0, 4, 8, 14):
            reply = self.sub(cursor, id=identity)
            self.assertEqual((reply.status, reply.body), (200, text[cursor:]))
            self.assertEqual((reply.header("X-Millrace-Stream-Id"), reply.header("X-Millrace-Offset"),
                              reply.header("X-Millrace-End")), (identity, str(cursor), "14"))
        for cursor in (1, 3, 5, 13):
            self.assertProblem(self.sub(cursor), 416, "cursor-inside-line")
        for cursor in (15, 16, 10**6, 2**64 - 1):
            self.assertEqual(self.assertProblem(self.sub(cursor), 416, "cursor-beyond-end")["end"], "14")
        self.assertEqual(self.assertProblem(self.sub(0, id="0" * 32), 409, "wrong-stream")["id"], identity)
        for cursor in ("", "x", "-", "-0", "-1000001", "@", "@x", "1.5", "@99999999999999999999", "18446744073709551616"):
            self.assertProblem(self.sub(cursor), 400, "bad-parameter")
        self.assertProblem(self.sub(stream="other"), 404, "unknown-stream")
        self.assertEqual(self.sub("latest").body, b"")
        self.assertEqual(self.sub("@0").body, text)
        self.assertEqual(self.sub("@%d" % (time.time() + 1000)).body, b"")

    def test_last_lines(self):
        self.pubsub()
        self.pub(b"one\ntwo\n")
        self.pub(b"three\n")
        text = b"one\ntwo\nthree\n"
        for n, offset in ((0, 14), (1, 8), (2, 4), (3, 0), (4, 0), (1000000, 0)):
            for reply in (self.sub(None, last=n), self.sub(-n if n else "latest")):
                self.assertEqual((reply.status, reply.body, reply.header("X-Millrace-Offset")), (200, text[offset:], str(offset)))
        for n in ("x", "-1", "1000001", ""):
            self.assertProblem(self.sub(None, last=n), 400, "bad-parameter")
        self.assertProblem(self.sub("latest", last=1), 400, "bad-parameter")
        c = harness.connect(self.url)
        c.request("GET", "/sub?stream=s&last=1")
        r = c.getresponse()
        self.assertEqual(r.read(6), b"three\n")
        self.pub(b"four\n")
        self.assertEqual(r.read(5), b"four\n")
        c.close()
        events = request(self.url, "GET", "/sub?stream=s&last=2&follow=0", headers={"Accept": "text/event-stream"}).body
        self.assertEqual(re.findall(rb"(?m)^data: ?(.*)$", events), [b"three", b"four"])

    def test_head_and_http10(self):
        self.pubsub()
        self.pub(b"one\n")
        reply = request(self.url, "HEAD", "/sub?stream=s&from=earliest")
        self.assertEqual((reply.status, reply.header("X-Millrace-End"), reply.body), (200, "4", b""))
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.PATIENCE)
        s.connect(self.path("p.sock"))
        s.sendall(b"GET /sub?stream=s&from=earliest&follow=0 HTTP/1.0\r\n\r\n")
        got = b"".join(iter(lambda: s.recv(4096), b""))
        s.close()
        head, body = got.split(b"\r\n\r\n", 1)
        self.assertNotIn(b"chunked", head)
        self.assertEqual(body, b"one\n")

    def half_closed(self, url, target, headers=None, late=None):
        """The reply to a client that shuts down its sending side after the request, as nc does. The client calls `late` before it reads."""
        c = harness.connect(url)
        self.addCleanup(c.close)
        c.request("GET", target, headers=headers or {})
        c.sock.shutdown(socket.SHUT_WR)
        if late:
            late()
        return c.getresponse().read()

    def test_half_closed_clients_get_all_there_is(self):
        on_tcp = self.start("pubsub", "--data-dir=" + self.path("tcp"), "--sync=never")
        on_unix = self.pubsub()
        small = b"".join(b"%06d %s\n" % (i, b"s" * 440) for i in range(100))
        large = b"".join(b"%06d %s\n" % (i, b"l" * 9990) for i in range(100))
        for p in (on_tcp, on_unix):
            for block in [small] * 30 + [large] * 5 + [small] * 5:
                self.assertEqual(p.post("/pub?stream=s", block).status, 200)

            def is_blocked():
                return "blocked" in [c["state"] for c in p.get("/clients?format=json").json()["clients"]]
            for parameters, headers in (("from=earliest", {}), ("from=@0", {}), ("from=%d" % (30 * len(small)), {}),
                                        ("from=earliest&multipart=1", {}), ("from=earliest", {"Accept": "text/event-stream"})):
                target = "/sub?stream=s&follow=0&" + parameters
                whole = harness.request(p.url, "GET", target, headers=headers).body
                self.assertGreater(len(whole), 5 * len(large))
                self.assertEqual(self.half_closed(p.url, target, headers), whole)
                self.assertEqual(self.half_closed(p.url, target, headers, lambda: wait_until(is_blocked, "it to wait")), whole)
            wait_until(lambda: p.get("/clients?format=json").json()["clients"] == [], "nobody to be left")

    def test_a_half_closed_client_that_follows_is_gone(self):
        p = self.pubsub()
        self.pub(b"one\n")
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        c.request("GET", "/sub?stream=s&from=earliest")
        c.sock.shutdown(socket.SHUT_WR)
        c.sock.settimeout(harness.PATIENCE)
        while c.sock.recv(65536):
            pass  # to the end of the connection
        wait_until(lambda: p.get("/clients?format=json").json()["clients"] == [], "it to be gone")

    def test_follows_and_ends_cleanly(self):
        p = self.pubsub()
        self.pub(b"old\n")
        c, response = self.follow("latest")
        self.pub(b"new\n")
        self.assertEqual(response.read(4), b"new\n")
        p.process.terminate()
        self.assertEqual(response.read(), b"")  # IncompleteRead would say that the last chunk is missing
        c.close()
        p.stop()

    def test_every_line_once_over_disconnects_and_kill9(self):
        random = harness.seeded()
        total = harness.rounds(4) * 200
        text = b"".join(b"line %06d\n" % i for i in range(total))
        p = self.pubsub()
        self.pub(b"line %06d\n" % 0, producer="w", mark=0, next=1)
        done = threading.Event()

        def publish():
            i = 1
            while i < total:
                try:
                    if self.pub(b"line %06d" % i, producer="w", mark=i, next=i + 1).status == 200:
                        i += 1
                except UNREACHABLE:
                    time.sleep(0.005)
            done.set()
        publisher = threading.Thread(target=publish)
        publisher.start()
        got, deadline = b"", time.monotonic() + harness.PATIENCE * 5
        while len(got) < len(text) and time.monotonic() < deadline:
            if random.random() < 0.2 and not done.is_set():
                p.kill9()
                p = self.pubsub()
            try:
                # A line cut in two is dropped: its cursor is where it began.
                got = got[:got.rfind(b"\n") + 1]
                c, response = self.follow(len(got))
                self.assertEqual(response.status, 200, got[-40:])
                wanted = min(len(got) + random.randrange(1, 6000), len(text))
                while len(got) < wanted:
                    piece = response.read1(wanted - len(got))
                    if not piece:
                        break
                    got += piece
                c.close()
            except UNREACHABLE:
                pass
        publisher.join()
        self.assertEqual(got, text)

    def stopped_subscriber(self):
        stopped = socket.socket(socket.AF_UNIX)
        stopped.settimeout(harness.PATIENCE)
        stopped.connect(self.path("p.sock"))
        stopped.sendall(b"GET /sub?stream=s&from=earliest HTTP/1.0\r\n\r\n")
        self.addCleanup(stopped.close)
        return stopped

    def test_a_stopped_subscriber_holds_up_nobody_and_loses_nothing(self):
        write_timeout = 0.5
        p = self.pubsub("--write-timeout=%dms" % (write_timeout * 1000))
        self.pub(b"start\n")
        stopped = self.stopped_subscriber()
        c, response = self.follow("latest")
        self.addCleanup(c.close)
        block = b"".join(b"%d %s\n" % (i, b"z" * 500) for i in range(2000))
        published = []
        end = time.monotonic() + 3 * write_timeout
        while len(published) < 20 or time.monotonic() < end:
            published.append(block if len(published) < 20 else b"small\n")
            self.assertEqual(self.pub(published[-1]).status, 200)
            self.assertEqual(response.read(len(published[-1])), published[-1])
            time.sleep(0.005)
        if not harness.SANITIZED:
            with open("/proc/%d/status" % p.pid) as f:
                resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
            self.assertLess(resident, 64 * 1024, "KiB resident, 20 MB past a stopped subscriber")
        expected = b"start\n" + b"".join(published)
        response_of_stopped = stopped.makefile("rb")
        while response_of_stopped.readline().strip():
            pass
        self.assertEqual(response_of_stopped.read(len(expected)), expected)
        response_of_stopped.close()

    def test_a_stopped_subscriber_does_not_hold_up_a_stop(self):
        p = self.pubsub()
        self.pub(b"".join(b"%d %s\n" % (i, b"z" * 500) for i in range(20000)))
        stopped = self.stopped_subscriber()
        self.assertTrue(stopped.recv(1))
        p.stop()


class Life(PubsubTest):
    def test_settings(self):
        run = self.run_program("pubsub", "--config", self.write("empty.conf", ""))
        self.assertEqual(run.returncode, 78)
        self.assertIn(b"data_dir", run.stderr)
        run = self.run_program("pubsub", "--data-dir=" + self.path("p"), "--streams=ok,not/ok")
        self.assertEqual(run.returncode, 78)
        self.assertIn(b"not/ok", run.stderr)

    def test_one_owner(self):
        self.pubsub()
        run = self.run_program("pubsub", "--data-dir=" + self.path("p"), "--port=0")
        self.assertEqual(run.returncode, 78)

    def test_what_stands_beside_the_streams(self):
        """An empty directory with the name of a stream is an interrupted start of the stream, and is removed. Names that a stream cannot
        have are ignored. Other files are refused."""
        for name in ("half", "lost+found"):
            os.makedirs(self.path("p", "streams", name))
        p = self.pubsub()
        self.assertEqual(request(self.url, "GET", "/streams").json()["streams"], [])
        self.assertEqual(self.pub(b"a\n", stream="half").json()["start"], "0")
        self.assertEqual(self.sub(stream="half").body, b"a\n")
        p.stop()
        self.assertEqual(os.listdir(self.path("p", "streams", "lost+found")), [])
        self.write(os.path.join("p", "streams", "file"), b"")
        run = self.run_program("pubsub", "--data-dir=" + self.path("p"), "--port=0")
        self.assertEqual(run.returncode, 78)
        self.assertIn(self.path("p", "streams", "file").encode(), run.stderr)

    def test_stats(self):
        p = self.pubsub()
        self.pub(b"a\nb\n")
        stats = p.stats()
        self.assertEqual((stats["published_lines_total"], stats["streams"]["s"]["end"]), (2, "4"))
        self.assertIn(b"millrace_pubsub_published_lines_total 2", p.get("/metrics").body)
        self.assertIn(b"stream s:", p.get("/stats").body)

    def test_clean_stop_and_start_keep_everything(self):
        p = self.pubsub(sync="0")
        identity = self.pub(b"a\n", producer="w", mark=0, next=1).json()["id"]
        p.stop()
        self.pubsub(sync="0")
        self.assertEqual(self.pub(b"b\n").json()["start"], "2")
        reply = self.sub()
        self.assertEqual((reply.body, reply.header("X-Millrace-Stream-Id")), (b"a\nb\n", identity))


if __name__ == "__main__":
    unittest.main()
