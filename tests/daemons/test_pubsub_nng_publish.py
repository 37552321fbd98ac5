"""The nng tap: nng's own SUB sees what is published, one topic a stream; who does not keep up can tell what is missing."""
import queue
import signal
import subprocess
import threading
import unittest

import harness
from harness import wait_until
from pubsub_case import PubsubTest


class Peer:
    """nng_sub, whose messages come as (topic, offset, lines)."""

    def __init__(self, test, url, topic, *args):
        self.process = subprocess.Popen(harness.dies_with_us([harness.program("nng_sub"), url, topic, *args]),
                                        stdout=subprocess.PIPE)
        test.addCleanup(self.process.stdout.close)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        test.assertEqual(self.process.stdout.readline(), b"connected\n")
        self.messages, self.n = queue.Queue(), 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while length := self.process.stdout.readline():
                head, lines = self.process.stdout.read(int(length)).split(b"\n", 1)
                topic, offset = head.split(b" ")
                self.n += 1
                self.messages.put((topic.decode(), int(offset), lines))
        except ValueError:
            pass  # killed in the middle, or closed

    def next(self):
        return self.messages.get(timeout=harness.PATIENCE)

    def take(self, length):
        """The text of the messages up to `length` bytes, which must follow each other."""
        topic, at, text = self.next()
        start = at
        while len(text) < length:
            _, offset, lines = self.next()
            assert offset == start + len(text), (offset, start, len(text))
            text += lines
        return topic, start, text


class Tap(PubsubTest):
    def tapped(self, *args):
        self.tap = "ipc://" + self.path("tap")
        p = self.pubsub("--nng-publish=" + self.tap, "--heartbeat=200ms", *args)
        self.stat = lambda name: p.stats()[name]
        return p

    def peer(self, topic, *args):
        before = self.stat("tap_peers")
        p = Peer(self, self.tap, topic, *args)
        wait_until(lambda: self.stat("tap_peers") == before + 1, "the peer to be there")
        return p

    def test_topics_and_lines(self):
        p = self.tapped("--streams=s,s2")
        self.assertIn("lossy", p.log)
        self.pub(b"before anybody listens\n")
        one, all_of_them = self.peer("s "), self.peer("")
        self.pub(b"a\nb\n")
        self.assertEqual(one.next(), ("s", 23, b"a\nb\n"))
        self.assertEqual(all_of_them.next(), ("s", 23, b"a\nb\n"))
        self.pub(b"c\n", stream="s2")
        self.assertEqual(all_of_them.next(), ("s2", 0, b"c\n"))
        self.pub(b"d\n", stream="made-later")
        self.assertEqual(all_of_them.next(), ("made-later", 0, b"d\n"))
        self.pub(b"e\n")
        self.assertEqual(one.next(), ("s", 27, b"e\n"))

    def test_lines_longer_than_a_window_come_whole(self):
        self.tapped("--streams=s")
        peer = self.peer("s ")
        text = b"".join(b"%d%s\n" % (i, b"x" * 100000) for i in range(5))
        self.pub(text)
        got = b""
        while len(got) < len(text):
            _, offset, lines = peer.next()
            self.assertEqual(offset, len(got))
            self.assertTrue(lines.endswith(b"\n"))
            got += lines
        self.assertEqual(got, text)

    def test_a_peer_that_stops_loses_and_can_tell_and_it_is_counted(self):
        self.tapped("--streams=s")
        peer, good = self.peer("s ", "1"), self.peer("s ", "8192")
        peer.process.send_signal(signal.SIGSTOP)
        block = b"".join(b"%d %s\n" % (i, b"y" * 1000) for i in range(30))
        for i in range(1000):
            self.assertEqual(self.pub(block).status, 200)
            self.assertEqual(good.take(len(block)), ("s", i * len(block), block))
        wait_until(lambda: self.stat("tap_dropped_total") > 0, "drops to be counted")
        peer.process.send_signal(signal.SIGCONT)
        self.pub(b"the last\n")
        at, missed, lines = 0, 0, b""
        good.take(9)
        while lines != b"the last\n":
            _, offset, lines = peer.next()
            missed += offset - at
            at = offset + len(lines)
        self.assertEqual(at, 1000 * len(block) + 9)
        self.assertGreater(missed, 0)
        self.assertLessEqual(self.stat("tap_dropped_total"), good.n - peer.n, "it counts no more than were lost")

    def test_what_retention_takes_before_it_was_read_is_counted(self):
        """The tap finds a new stream at its next tick. Retention may have deleted lines of the stream before."""
        p = self.tapped("--segment-bytes=64K", "--retain-bytes=64K")
        peer = self.peer("")
        block = b"".join(b"%d %s\n" % (i, b"y" * 1000) for i in range(50))
        names = []

        def one_has_a_gap():
            names.append("new%d" % len(names))
            for _ in range(20):
                self.assertEqual(self.pub(block, stream=names[-1]).status, 200)
            wait_until(lambda: next(s for s in p.get("/streams").json()["streams"] if s["name"] == names[-1])["earliest"] != "0",
                       "retention to have been there")
            return self.stat("tap_gaps_total") > 0
        wait_until(one_has_a_gap, "a gap")
        for name in names:
            self.pub(b"the last\n", stream=name)
        ends, gaps, waiting = {}, 0, set(names)
        while waiting:
            topic, offset, lines = peer.next()
            gaps += offset != ends.get(topic, 0)  # at the beginning, or behind what the tap had read before
            ends[topic] = offset + len(lines)
            if lines.endswith(b"the last\n"):
                waiting.discard(topic)
        self.assertGreater(gaps, 0, "the peer sees by the offset that something is missing")

    def test_no_gap_is_counted_while_nobody_listens(self):
        """Each publish is more than a segment, so retention is at work whenever the tap begins with a stream."""
        p = self.tapped("--segment-bytes=64K", "--retain-bytes=64K", "--max-body=4M")
        block = b"".join(b"%d %s\n" % (i, b"y" * 1000) for i in range(500))
        for name in ("new%d" % i for i in range(30)):
            for _ in range(4):
                self.assertEqual(self.pub(block, stream=name).status, 200)
            wait_until(lambda: next(s for s in p.get("/streams").json()["streams"] if s["name"] == name)["earliest"] != "0",
                       "retention to have been there")
            self.assertEqual(self.stat("tap_gaps_total"), 0, name)

    def counted(self, p):
        """The numbers of subscribers in all replies that have one."""
        published = harness.request(self.url, "POST", "/pub", b"x\n").text
        streams = p.get("/streams").json()["streams"]
        gauge = 'millrace_pubsub_stream_subscribers{stream="default"} '
        line = next(m for m in p.get("/metrics").text.splitlines() if m.startswith(gauge))
        return (published, next(s["subscribers"] for s in streams if s["name"] == "default"),
                len(p.get("/clients?format=json").json()["clients"]), float(line[len(gauge):]))

    def test_the_tap_is_no_client(self):
        p = self.tapped("--streams=default")
        peer = self.peer("default ")
        self.assertEqual(self.counted(p), ("Published 1 messages to 0 clients.\n", 0, 0, 0))
        c, _ = self.follow("latest", stream="default")
        self.assertEqual(self.counted(p), ("Published 1 messages to 1 clients.\n", 1, 1, 1))
        self.assertEqual(peer.next(), ("default", 0, b"x\n"))
        c.close()
        wait_until(lambda: self.counted(p) == ("Published 1 messages to 0 clients.\n", 0, 0, 0), "it to have left")

    def test_settings(self):
        for url, why in (("http://x", b"tcp://ADDRESS:PORT or ipc://PATH"), ("ipc://a,,ipc://b", b"a URL is missing"), ("tcp://nowhere.invalid:1", b"nng_publish")):
            run = self.run_program("pubsub", "--data-dir=" + self.path("d"), "--port=0", "--nng-publish=" + url)
            self.assertEqual(run.returncode, 78, run.stderr)
            self.assertIn(why, run.stderr)


if __name__ == "__main__":
    unittest.main()
