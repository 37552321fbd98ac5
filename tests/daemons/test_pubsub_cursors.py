"""Named cursors and retention: what a cursor holds, what goes without one, and who is told of it."""
import glob
import re
import time
import socket
import unittest

import harness
from harness import query, request, wait_until
from pubsub_case import PubsubTest

BLOCK = b"".join(b"%06d %s\n" % (i, b"x" * 1000) for i in range(30))  # half a segment


class CursorTest(PubsubTest):
    def pubsub(self, *args, **kw):
        return super().pubsub("--segment-bytes=64K", "--heartbeat=200ms", *args, **kw)

    def cursor(self, method, **params):
        return request(self.url, method, "/cursors?" + query(**params))

    def move(self, from_, name="c", stream="s", **more):
        return self.cursor("POST", stream=stream, name=name, from_=from_, **more)

    def cursors(self, **params):
        return {c["name"]: c for c in self.cursor("GET", **params).json()["cursors"]}

    def listed(self, stream="s"):
        return next(s for s in request(self.url, "GET", "/streams").json()["streams"] if s["name"] == stream)

    def earliest(self, stream="s"):
        return int(self.listed(stream)["earliest"])

    def segments(self, stream="s"):
        return len(glob.glob(self.path("p", "streams", stream, "*.seg")))

    def fill(self, blocks, stream="s"):
        for _ in range(blocks):
            self.assertEqual(self.pub(BLOCK, stream=stream).status, 200)


class Named(CursorTest):
    def test_made_moved_deleted(self):
        self.pubsub()
        identity = self.pub(b"one\ntwo\nthree\n").json()["id"]
        self.assertEqual(self.move("earliest").json(), {"stream": "s", "id": identity, "name": "c", "offset": "0"})
        self.assertEqual(self.move(4, id=identity).json()["offset"], "4")
        self.assertEqual(self.move(4).status, 200)
        self.assertEqual(self.assertProblem(self.move(0), 409, "cursor-ahead")["offset"], "4")
        self.assertEqual(self.move(0, backwards=1).json()["offset"], "0")
        self.assertEqual(self.move("latest").json()["offset"], "14")
        self.assertEqual(self.cursors()["c"]["offset"], "14")
        self.assertEqual(self.cursor("DELETE", stream="s", name="c").json()["deleted"], True)
        self.assertEqual(self.cursors(), {})
        self.assertProblem(self.cursor("DELETE", stream="s", name="c"), 404, "unknown-cursor")

    def test_an_owner(self):
        """The first key that a request names becomes the key of the cursor. An operator needs no key."""
        p = self.pubsub()
        self.pub(b"one\ntwo\nthree\n")
        key, other = {"X-Millrace-Cursor-Key": "0123456789abcdef" * 2}, {"X-Millrace-Cursor-Key": "f" * 32}

        def move(from_, headers, method="POST"):
            return request(self.url, method, "/cursors?" + query(stream="s", name="c", from_=from_), headers=headers)

        self.assertEqual(move(4, {}).status, 200)
        self.assertEqual(move(4, key).status, 200)
        for headers in ({}, other):
            self.assertProblem(move(8, headers), 403, "cursor-owned")
            self.assertProblem(move("", headers, "DELETE"), 403, "cursor-owned")
        for text in ("0", "X" * 32, "0" * 33):
            self.assertProblem(move(8, {"X-Millrace-Cursor-Key": text}), 400, "bad-key")
        self.assertEqual(move(8, key).status, 200)
        p.kill9()
        p = self.pubsub()
        self.assertProblem(move(8, {}), 403, "cursor-owned")
        self.assertEqual(self.cursors()["c"]["offset"], "8")
        p.stop()
        self.pubsub("--allow-exit")
        self.assertEqual(move(14, {}).status, 200)
        self.assertProblem(move(14, other), 403, "cursor-owned")
        self.assertEqual(move(14, key).status, 200)
        self.assertEqual(move("", {}, "DELETE").status, 200)

    def test_refusals(self):
        self.pubsub("--max-cursors=2")
        self.pub(b"one\ntwo\n")
        for from_, status, code in ((1, 416, "cursor-inside-line"), (9, 416, "cursor-beyond-end"), ("x", 400, "bad-parameter"),
                                    ("", 400, "bad-parameter")):
            self.assertProblem(self.move(from_), status, code)
        self.assertProblem(self.cursor("POST", stream="s", name="c"), 400, "missing-parameter")
        self.assertProblem(self.cursor("POST", stream="s", from_=0), 400, "missing-parameter")
        self.assertProblem(self.move(0, name="a/b"), 400, "bad-parameter")
        self.assertProblem(self.move(0, stream="other"), 404, "unknown-stream")
        self.assertProblem(self.move(0, id="0" * 32), 409, "wrong-stream")
        self.assertProblem(self.cursor("GET", stream="other"), 404, "unknown-stream")
        self.assertEqual(self.cursors(), {})
        for name in ("a", "b"):
            self.assertEqual(self.move(0, name=name).status, 200)
        self.assertProblem(self.move(0, name="c"), 409, "too-many-cursors")
        self.cursor("DELETE", stream="s", name="a")
        self.assertEqual(self.move(0, name="c").status, 200)

    def test_they_outlive_a_kill(self):
        p = self.pubsub(sync="never")
        self.pub(b"one\ntwo\n")
        for name, from_ in (("a", 0), ("b", 4), ("c", 8)):
            self.move(from_, name=name)
        self.cursor("DELETE", stream="s", name="c")
        self.move(8, name="a")
        p.kill9()
        self.pubsub(sync="never")
        self.assertEqual({n: c["offset"] for n, c in self.cursors().items()}, {"a": "8", "b": "4"})

    def test_a_stream_that_is_another_now_takes_no_cursor_over(self):
        p = self.pubsub()
        self.pub(b"one\n")
        self.move(4)
        p.stop()
        harness.shutil.rmtree(self.path("p", "streams", "s"))
        p = self.pubsub()
        self.assertIn("dropped", p.log)
        self.pub(b"new\n")
        self.assertEqual(self.cursors(), {})

    def lag(self, name="c"):
        text = request(self.url, "GET", "/metrics").text
        return tuple(float(re.search(r'millrace_pubsub_cursor_lag_%s\{stream="s",cursor="%s"\} (\S+)' % (what, name), text)[1])
                     for what in ("bytes", "lines", "seconds"))

    def test_lag(self):
        p, began = self.pubsub(), time.monotonic()
        self.pub(b"one\ntwo\n")
        self.pub(b"three\nfour\nfive\n")
        self.move(0)
        wait_until(lambda: self.lag()[:2] == (24, 5), lambda: "5 lines: %s" % (self.lag(),))
        self.move(14)
        wait_until(lambda: self.lag()[:2] == (10, 2), lambda: "2 lines: %s" % (self.lag(),))
        lag = self.lag()[2]
        self.assertTrue(0 <= lag <= time.monotonic() - began + 2, lag)
        self.pub(b"six\n")
        self.assertEqual(self.lag()[:2], (14, 3))
        self.assertEqual(self.cursors()["c"]["lag_lines"], 3)
        self.move("latest")
        self.assertEqual(self.lag(), (0, 0, 0))
        self.move(8, backwards=1)
        self.fill(20)
        p.kill9()
        self.pubsub()  # what was published before the start is counted from the files
        lines = 4 + 20 * BLOCK.count(b"\n")
        wait_until(lambda: self.lag()[1] == lines, lambda: "%d lines: %s" % (lines, self.lag()))
        self.fill(1)
        self.assertEqual(self.lag()[1], lines + BLOCK.count(b"\n"))
        self.cursor("DELETE", stream="s", name="c")
        self.assertNotIn("cursor_lag", request(self.url, "GET", "/metrics").text)


class Retention(CursorTest):
    def test_by_bytes_and_never_past_a_cursor(self):
        self.pubsub("--retain-bytes=256K")
        self.fill(6)
        held = 4 * len(BLOCK)
        self.move(held)
        self.fill(40)
        wait_until(lambda: self.earliest() > 0, "segments to go")
        self.assertLessEqual(self.earliest(), held)
        self.assertEqual(self.sub(held).body, BLOCK * 42)
        gone = self.assertProblem(self.sub(0), 410, "cursor-gone")
        self.assertEqual(gone["opening_before"], self.sub(gone["after"]).header("X-Millrace-Opening-Before"))
        self.assertEqual(gone["before"], "0")
        self.assertEqual(self.sub(gone["after"]).body, (BLOCK * 46)[int(gone["after"]):])
        self.assertProblem(self.move(0, name="late"), 410, "cursor-gone")
        self.move("latest")
        wait_until(lambda: self.listed()["disk_bytes"] <= 512 * 1024, "the rest to go")
        self.assertGreater(self.earliest(), held)

    def test_at_least_what_the_setting_says_in_small_files(self):
        """Also after a restart; and nobody set segment_bytes."""
        keep = 1 << 20
        p = super(CursorTest, self).pubsub("--retain-bytes=1M")
        for blocks in range(1, 101):
            self.fill(1)
            latest = blocks * len(BLOCK)
            self.assertGreaterEqual(latest - self.earliest(), min(latest, keep), "after %d blocks" % blocks)
            if blocks == 50:
                p.stop()
                p = super(CursorTest, self).pubsub("--retain-bytes=1M")
        wait_until(lambda: latest - self.earliest() <= keep + keep // 4, "no more than another file to stay")
        self.assertGreater(self.segments(), 6)

    def test_by_age(self):
        self.pubsub("--retain-age=1s")
        self.fill(10)
        wait_until(lambda: self.segments() == 1, "all to go but the newest, so that nothing passes who reads")
        self.assertGreater(self.earliest(), 4 * len(BLOCK))
        reply = self.sub("earliest")
        self.assertEqual(reply.body, (BLOCK * 10)[int(reply.header("X-Millrace-Offset")):])

    def test_per_stream(self):
        config = self.write("p.conf", "[pubsub]\nretain_bytes = 320K\n[stream keep]\nretain_bytes = 0\n"
                                      "[stream k*]\nretain_bytes = 64K\n")
        self.pubsub("--config=" + config)
        for stream in ("keep", "kept", "other"):
            self.fill(20, stream)
        wait_until(lambda: self.earliest("kept") > self.earliest("other") > 0, "both to go")
        self.assertEqual(self.earliest("keep"), 0)

    def test_settings_are_judged(self):
        for text, complaint in (("[pubsub]\n[stream s]\nretain = 5\n", b"p.conf:3"), ("[stream]\n", b"invalid stream name"),
                                ("[stream a/b]\n", b"invalid stream name"), ("[stream s]\nretain_age = soon\n", b"is not a duration"),
                                ("[stream s]\ndisk_limit = 1M\n", b"three times segment_bytes"),
                                ("[pubsub]\nretain_bytes = 2G\ndisk_limit = 1G\n", b"retain_bytes must not")):
            run = self.run_program("pubsub", "--data-dir=x", "--check-config", "--config=" + self.write("p.conf", text))
            self.assertEqual(run.returncode, 78, text)
            self.assertIn(complaint, run.stderr)

    def test_check_config_prints_what_streams_have_of_their_own(self):
        config = self.write("p.conf", "[pubsub]\nretain_bytes = 2G\n[stream s]\nretain_bytes = 1G\nretain_age = 3d\n"
                                      "[total u]\nkey = u\n[stream raw*]\ndisk_limit = 4G\n")
        run = self.run_program("pubsub", "--data-dir=x", "--check-config", "--config=" + config)
        self.assertEqual(run.returncode, 0, run.stderr)
        printed = [line.split() for line in run.stdout.decode().splitlines()]
        at = printed.index(["[stream", "s]"])
        source = lambda line: [";", "%s:%d" % (config, line)]
        self.assertEqual(printed[at:], [["[stream", "s]"], ["retain_bytes", "=", "1G"] + source(4), ["retain_age", "=", "3d"] + source(5),
                                        ["[stream", "raw*]"], ["disk_limit", "=", "4G"] + source(9)])
        self.assertIn(["retain_bytes", "=", "2G"] + source(2), printed[:at])

    def test_at_the_disk_limit_publishers_wait_for_the_cursor(self):
        self.pubsub("--retain-bytes=128K", "--disk-limit=512K", sync="0")
        self.assertEqual(self.pub(b"first\n", producer="w", mark=0, next=1).status, 200)
        self.move("earliest")
        n = 0
        while (reply := self.pub(BLOCK)).status == 200:
            n += 1
            self.assertLess(n, 100)
        problem = self.assertProblem(reply, 503, "storage-full")
        self.assertIn("cursor c", problem["detail"])
        self.assertEqual(reply.header("Retry-After"), "1")
        self.assertGreater(n, 4)
        self.assertTrue(self.pub(b"first\n", producer="w", mark=0, next=1).json()["duplicate"])
        self.assertEqual(self.sub("earliest").body, b"first\n" + BLOCK * n)
        self.assertEqual(self.pub(BLOCK, stream="other").status, 200)
        self.move("latest")
        self.assertEqual(self.pub(BLOCK).status, 200)
        self.cursor("DELETE", stream="s", name="c")
        self.fill(30)

    def test_without_a_cursor_retention_makes_room(self):
        self.pubsub("--retain-bytes=128K", "--disk-limit=512K")
        self.fill(100)
        wait_until(lambda: self.listed()["disk_bytes"] <= 512 * 1024, "what a read under way had kept to go")

    def stopped(self, headers=b"", target=b"/sub?stream=s&from=earliest"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.PATIENCE)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(self.path("p.sock"))
        s.sendall(b"GET %s HTTP/1.0\r\n%s\r\n" % (target, headers))
        self.addCleanup(s.close)
        return s

    def passed(self):
        return self.stat("subscribers_passed_total")

    def fill_until_passed(self, stream="s"):
        for _ in range(1000):
            self.fill(10, stream)
            if self.passed():
                break

    def logged(self, log, stream="s"):
        """(before, after) of each subscriber that retention has passed."""
        told = r"subscriber .*stream=%s client=unix before=(\d+) after=(\d+)" % stream
        return [tuple(map(int, e)) for e in re.findall(told, log)]

    def stat(self, name):
        return request(self.url, "GET", "/stats?format=json").json()[name]

    def test_a_stopped_subscriber_that_is_passed_is_told_and_counted(self):
        p = self.pubsub("--retain-bytes=1M")
        self.fill(1)
        s = self.stopped()
        s.recv(16, socket.MSG_PEEK)
        self.fill_until_passed()
        self.assertEqual(self.passed(), 1)
        got = b"".join(iter(lambda: s.recv(65536), b""))
        body = got.split(b"\r\n\r\n", 1)[1]
        text = BLOCK * (len(body) // len(BLOCK) + 1)
        self.assertEqual(body, text[:len(body)], "all that was sent is the stream's")
        cursor = body.rfind(b"\n") + 1
        gone = self.assertProblem(self.sub(cursor), 410, "cursor-gone")
        self.assertGreater(int(gone["after"]), cursor)
        self.assertEqual(self.stat("cursors_gone_total"), 1)
        self.assertEqual(self.stat("kicked_clients"), 1)
        self.assertEqual(p.log.count("retention passed a subscriber stream=s client=unix before="), 1)

    def all_below_what_is_logged(self, stream, target, line):
        p = self.pubsub("--retain-bytes=1M")
        self.fill(1, stream)
        s = self.stopped(target=target)
        s.recv(16, socket.MSG_PEEK)
        self.fill_until_passed(stream)
        lines = re.findall(line, b"".join(iter(lambda: s.recv(65536), b"")))
        self.assertEqual([before for before, _ in self.logged(p.log, stream)], [len(lines) * len(BLOCK) // 30])

    def test_a_multipart_reader_has_all_lines_below_what_is_logged(self):
        """The reader gets only whole lines."""
        self.all_below_what_is_logged("s", b"/sub?stream=s&from=earliest&multipart=1", rb"\d{6} x+\r\n--")

    def test_a_reader_of_bitlys_lines_has_all_below_what_is_logged(self):
        self.all_below_what_is_logged("default", b"/sub?from=earliest&multipart=0", rb"\d{6} x+\n")

    def test_an_event_stream_is_told_within(self):
        p = self.pubsub("--retain-bytes=1M")
        self.fill(1)
        s = self.stopped(b"Accept: text/event-stream\r\n")
        s.recv(16, socket.MSG_PEEK)
        self.fill_until_passed()

        def logged():
            return self.logged(p.log)
        wait_until(lambda: len(logged()) == 1, "it to be logged")
        self.fill(40)
        wait_until(lambda: self.earliest() > logged()[0][1], "retention to go on")
        self.pub(b"the last\n")
        self.assertEqual(self.move("earliest").status, 200, "it holds the rest: who has begun to take is not passed once more")
        got = b""
        while b"data: the last\n" not in got:
            piece = s.recv(1 << 20)
            self.assertTrue(piece, got[-200:])
            got += piece
        gaps = re.findall(rb'event: gap\ndata: \{"before":"(\d+)","after":"(\d+)"\}\nid: (\d+):', got)
        self.assertEqual(len(gaps), 1, "a client that takes nothing has one gap")
        before, after, id_ = map(int, gaps[0])
        self.assertEqual(after, id_)
        wait_until(lambda: logged()[-1] == (before, after), lambda: "the log to say the same: %s" % p.log)
        self.assertEqual([e[0] for e in logged()], [before, before])
        sent, then = got.split(b"event: gap", 1)
        cursors = [int(c) for c in re.findall(rb"^id: (\d+):", sent, re.M)]
        self.assertEqual(cursors[-1], before)
        self.assertGreater(after, before)
        lines = [int(line) for line in re.findall(rb"^data: (\d{6}) ", then, re.M)]
        self.assertEqual(lines[0], after // len(BLOCK.splitlines()[0] + b"\n") % 30, "it goes on right behind the gap")
        self.assertEqual(lines, [(lines[0] + i) % 30 for i in range(len(lines))])


if __name__ == "__main__":
    unittest.main()
