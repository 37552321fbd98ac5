"""Erased lines: in no file and no answer, with every offset as before, while publishers and subscribers go on."""
import contextlib
import http.client
import os
import threading
import unittest

import harness
from harness import query, request, wait_until
from pubsub_case import PubsubTest


class Erase(PubsubTest):
    def pubsub(self, *args, **kw):
        return super().pubsub("--segment-bytes=64K", *args, **kw)

    def erase(self, ranges, stream="s", **more):
        body = b"".join(b"%d %d\n" % r for r in ranges)
        more.setdefault("id", next((s["id"] for s in request(self.url, "GET", "/streams").json()["streams"] if s["name"] == stream), "none"))
        return request(self.url, "POST", "/erase?" + query(stream=stream, **more), body)

    def state(self, stream="s"):
        return request(self.url, "GET", "/erase?" + query(stream=stream)).json()

    def erased(self, ranges, **more):
        reply = self.erase(ranges, **more)
        self.assertEqual(reply.status, 202, reply)
        wait_until(lambda: self.state()["state"] != "running", "the end of the erasure")
        return self.state()

    def is_on_disk(self, text):
        for directory, _, names in os.walk(self.path("p")):
            for name in names:
                try:
                    with open(os.path.join(directory, name), "rb") as f:
                        if text in f.read():
                            return True
                except FileNotFoundError:
                    pass
        return False

    @staticmethod
    def blank(line):
        return b"{}" + b" " * (len(line) - 3) + b"\n"

    def test_lines_are_gone(self):
        """In several segments, as single publishes and within one, before and after a kill."""
        for sync in ("0", "never"):
            with self.subTest(sync=sync):
                daemon = self.pubsub(sync=sync)
                lines = [b'{"user":"%s","n":%d,"pad":"%s"}\n' % (b"secret" if i % 7 == 0 else b"other", i, b"x" * (i % 900))
                         for i in range(600)]
                stream = "s" + sync
                for i in range(0, 300):
                    self.assertEqual(self.pub(lines[i], stream=stream).status, 200)
                self.assertEqual(self.pub(b"".join(lines[300:]), stream=stream).status, 200)
                ranges, expected, at = [], b"", 0
                for line in lines:
                    if b"secret" in line:
                        ranges.append((at, len(line)))
                    expected += self.blank(line) if b"secret" in line else line
                    at += len(line)
                before = self.sub(stream=stream)
                self.assertEqual(before.body, b"".join(lines))
                reply = self.erase(ranges, stream=stream)
                self.assertEqual((reply.status, reply.json()["lines"]), (202, len(ranges)), reply)
                wait_until(lambda: self.state(stream)["state"] == "done", "the end of the erasure")
                for _ in range(2):
                    after = self.sub(stream=stream)
                    self.assertEqual(after.body, expected)
                    self.assertEqual(self.sub(at - len(lines[-1]), stream=stream).body, lines[-1])
                    self.assertFalse(self.is_on_disk(b"secret"))
                    self.assertEqual(self.pub(b"more\n", stream=stream).json()["start"], str(at))
                    expected += b"more\n"
                    at += 5
                    lines.append(b"more\n")
                    daemon.kill9()
                    daemon = self.pubsub(sync=sync)
                daemon.stop()

    def test_what_is_refused(self):
        self.pubsub()
        self.pub(b"one\ntwo\nthree\nok\n")
        for body in (b"0", b"0 4", b"x 4\n", b"0 0\n", b"4 4\n0 4\n", b"0 8\n4 4\n", b"0 -4\n", b"18446744073709551615 4\n"):
            reply = request(self.url, "POST", "/erase?stream=s", body)
            self.assertProblem(reply, 400, "bad-request")
        self.assertEqual(self.erase([(0, 4)] * 2200000).status, 413)
        self.assertProblem(self.erase([(0, 18)]), 416, "cursor-beyond-end")
        self.assertProblem(self.erase([(0, 4)], stream="t"), 404, "unknown-stream")
        self.assertProblem(self.erase([(0, 4)], id="0" * 32), 409, "wrong-stream")
        self.assertProblem(request(self.url, "POST", "/erase?stream=s", b"0 4\n"), 400, "missing-parameter")
        identity = self.sub().header("X-Millrace-Stream-Id") or request(self.url, "GET", "/streams").json()["streams"][0]["id"]
        self.assertProblem(self.erase([(0, 4)], id=identity + "." + 24 * "0"), 409, "other-history")
        self.assertEqual(self.state()["state"], "none")
        for ranges in ([(0, 8)], [(1, 3)], [(0, 3)], [(14, 3)]):
            state = self.erased(ranges)
            self.assertEqual((state["state"], "whole line" in state["error"]), ("failed", True), ranges)
            self.assertEqual(self.sub().body, b"one\ntwo\nthree\nok\n")
        self.pub(b"five\n")
        self.assertEqual(self.erased([(14, 8)])["state"], "failed", "two lines of two publishes")
        self.assertEqual(self.erased([(4, 4), (8, 6)])["state"], "done")
        self.assertEqual(self.sub().body, b"one\n{} \n{}   \nok\nfive\n")

    def test_only_for_operators(self):
        os.chmod(self.write("token", "secret\n"), 0o600)
        self.pubsub("--auth-token-file=" + self.path("token"))
        for method in ("GET", "POST"):
            self.assertEqual(request(self.url, method, "/erase?stream=s", b"0 4\n").status, 401)
        headers = {"Authorization": "Bearer secret"}
        self.assertProblem(request(self.url, "GET", "/erase?stream=s", headers=headers), 404, "unknown-stream")

    def test_subscribers_and_publishers_go_on(self):
        """Every byte comes once and in its place, old or erased; what is read afterwards is erased."""
        self.pubsub(sync="0")
        rand, all_lines, stop = harness.seeded(), [], threading.Event()

        def line(i):
            return b'{"user":"%s","n":%d,"pad":"%s"}\n' % (b"secret" if i % 5 == 0 else b"other", i, b"y" * rand.randrange(300))

        def publish():
            for i in range(3000):
                if stop.is_set():
                    break
                all_lines.append(line(i))
                if self.pub(all_lines[-1]).status != 200:
                    break

        first = line(0)
        all_lines.append(first)
        self.pub(first)
        c, response = self.follow()
        got = []
        publisher = threading.Thread(target=publish)
        publisher.start()

        def read():
            with contextlib.suppress(http.client.IncompleteRead):  # the test ends it, within a reply that has no end
                got.extend(iter(lambda: response.read1(70000), b""))
        reader = threading.Thread(target=read)
        reader.start()
        try:
            for _ in range(5):
                known, ranges, at = self.sub().body, [], 0
                for text in known.splitlines(keepends=True):
                    if b"secret" in text:
                        ranges.append((at, len(text)))
                    at += len(text)
                if ranges:
                    self.assertEqual(self.erased(ranges)["state"], "done")
                self.assertNotIn(b"secret", self.sub().body[:len(known)])
        finally:
            stop.set()
            publisher.join()
        expected = b"".join(all_lines)
        wait_until(lambda: len(b"".join(got)) >= len(expected), "the subscriber")
        c.sock.shutdown(2)
        reader.join()
        c.close()
        seen = b"".join(got)
        self.assertEqual(len(seen), len(expected))
        at = 0
        for text in all_lines:
            self.assertIn(seen[at:at + len(text)], (text, self.blank(text) if b"secret" in text else text))
            at += len(text)

    def test_nothing_of_deleted_segments_is_left(self):
        """A reused file has bytes of the deleted segment behind its own; an erasure without lines removes them."""
        self.pubsub("--retain-bytes=95K", sync="0")
        secret = b'{"user":"secret","pad":"%s"}\n' % (b"x" * 900)
        other = b'{"user":"other","pad":"%s"}\n' % (b"x" * 900)
        spare = self.path("p", "streams", "s", "spare")
        end = int(self.pub(secret * 100).json()["end"])  # a segment
        self.pub(other * 100)  # another one
        # A deleted segment is reused if no file is prepared: a new segment takes the prepared one, and needs the next only
        # from an eighth of --segment-bytes on.
        wait_until(lambda: os.path.exists(spare), "a file to be prepared")
        self.pub(other)
        self.assertFalse(os.path.exists(spare))
        self.pub(other * 6)  # enough for --retain-bytes
        wait_until(lambda: int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]) >= end, "the deletion")
        self.assertTrue(self.is_on_disk(b"secret"))
        self.assertEqual(self.erased([])["state"], "done")
        self.assertFalse(self.is_on_disk(b"secret"))
        self.assertEqual(self.pub(other).status, 200)
        self.assertEqual(self.sub(end).body, other * 108)

    def test_killed_in_the_middle(self):
        daemon = self.pubsub(sync="0")
        lines = [b'{"user":"%s","n":%d,"pad":"%s"}\n' % (b"secret" if i % 2 else b"other", i, b"z" * 2000) for i in range(2000)]
        for i in range(0, len(lines), 20):
            self.assertEqual(self.pub(b"".join(lines[i:i + 20])).status, 200)
        ranges, at = [], 0
        for text in lines:
            if b"secret" in text:
                ranges.append((at, len(text)))
            at += len(text)
        for n in range(harness.rounds(4)):
            self.assertEqual(self.erase(ranges).status, 202)
            wait_until(lambda: self.state()["state"] == "done" or self.state()["examined_bytes"] > n * 400000, "a part")
            daemon.kill9()
            daemon = self.pubsub(sync="0")
            self.assertFalse([name for name in os.listdir(self.path("p", "streams", "s")) if name.endswith(".new")])
            seen, at = self.sub().body, 0
            for text in lines:
                self.assertIn(seen[at:at + len(text)], (text, self.blank(text) if b"secret" in text else text))
                at += len(text)
        self.assertEqual(self.erased(ranges)["state"], "done")
        self.assertFalse(self.is_on_disk(b"secret"))


if __name__ == "__main__":
    harness.main()
