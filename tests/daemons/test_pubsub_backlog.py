"""Reading far behind a stream's end: the same bytes whatever way they take, nothing that was flipped, and nobody in the way
of others."""
import glob
import os
import random
import selectors
import socket
import unittest
import zlib

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest

MIB = 1 << 20


class Client:
    """Reads as many bytes as its test asks for. The body is everything after the head (HTTP/1.0)."""

    def __init__(self, test, url, received=None, follow=0):
        host, port = url.rsplit("/", 1)[1].split(":")
        self.socket = socket.socket()
        test.addCleanup(self.socket.close)
        if received:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        self.socket.settimeout(harness.PATIENCE)
        self.socket.connect((host, int(port)))
        self.socket.sendall(b"GET /sub?stream=s&from=earliest&follow=%d HTTP/1.0\r\n\r\n" % follow)
        self.head, self.body, self.over = b"", bytearray(), False

    def take(self, most):
        data = self.socket.recv(most)
        self.over = not data
        if self.head is not None:
            self.head += data
            if b"\r\n\r\n" not in self.head:
                return
            data, self.head = self.head.split(b"\r\n\r\n", 1)[1], None
        self.body += data


class Backlog(PubsubTest):
    def setUp(self):
        super().setUp()
        self.url = "127.0.0.1"
        self.random = harness.seeded()

    def pubsub(self, *args, **kw):
        p = super().pubsub("--segment-bytes=1M", *args, **kw)
        self.url, self.address = p.url, self.url
        return p

    def restart(self, p, *args):
        p.stop()
        self.url = "127.0.0.1"
        return self.pubsub(*args)

    def lines(self, size):
        """About that many bytes of lines, each of its own."""
        out = bytearray()
        while len(out) < size:
            out += b"%d %s\n" % (self.random.getrandbits(60), b"z" * self.random.randrange(900))
        return bytes(out)

    def fill(self, sizes):
        text = bytearray()
        for size in sizes:
            body = self.lines(size)
            self.assertEqual(self.pub(body).status, 200)
            text += body
        return bytes(text)

    def line_starts(self, text, n):
        starts = [0]
        while len(starts) < n:
            at = text.find(b"\n", self.random.randrange(len(text))) + 1
            if 0 < at < len(text):
                starts.append(at)
        return starts

    def mixed(self):
        return [self.random.choice([1, 300, 2000, 16000, 17000, 45000, 200000]) for _ in range(120)]

    def test_the_same_bytes_from_any_offset(self):
        p = self.pubsub()
        text = self.fill(self.mixed()) + self.fill([45000] * 60) + self.fill([400] * 300)
        for start in self.line_starts(text, 15):
            got = self.sub(start)
            self.assertEqual((got.status, zlib.crc32(got.body)), (200, zlib.crc32(text[start:])), start)
        before = p.stats()
        self.assertEqual(len(self.sub(0).body), len(text))
        after = p.stats()
        self.assertEqual(after["sent_bytes_total"] - before["sent_bytes_total"], len(text))
        self.assertEqual(after["sent_lines_total"] - before["sent_lines_total"], text.count(b"\n"))

    def test_many_at_many_paces(self):
        """Windows of 4 KB make every write a part of a frame; some stop for a while."""
        self.pubsub()
        text = self.fill([45000] * 50 + [300] * 150 + [150000] * 5)
        clients = [Client(self, self.url, received=r) for r in [4096] * 5 + [65536] * 5 + [None] * 10]
        with selectors.DefaultSelector() as s:
            for c in clients:
                s.register(c.socket, selectors.EVENT_READ, c)
            while s.get_map():
                for key, _ in s.select(harness.PATIENCE):
                    c = key.data
                    if self.random.random() < 0.2:
                        continue
                    c.take(self.random.choice([100, 5000, 300000]))
                    if c.over:
                        s.unregister(c.socket)
        self.assertEqual({zlib.crc32(c.body) for c in clients}, {zlib.crc32(text)})

    def segments(self):
        return sorted(glob.glob(self.path("p", "streams", "s", "*.seg")))

    def check_damage(self, sizes, victim, anew=False):
        p = self.pubsub()
        text = self.fill(sizes)
        self.assertEqual(zlib.crc32(self.sub(0).body), zlib.crc32(text))
        path = self.segments()[victim]
        harness.flip(path, 500000)
        if anew:
            p = self.restart(p)
        c = Client(self, self.url)
        try:
            while not c.over:
                c.take(MIB)
        except ConnectionError:
            pass
        self.assertTrue(text.startswith(c.body), "what was served is not the stream's")
        self.assertLess(len(c.body), len(text))
        wait_until(lambda: os.path.basename(path) in p.log, p.log)
        self.assertIn("damaged at byte", p.log)

    def test_a_bit_flipped_after_it_was_read_is_not_served(self):
        self.check_damage([45000] * 150, 1)

    def test_nor_in_small_frames(self):
        """After a restart, because lines that were read before the damage may be served from memory."""
        self.check_damage([450] * 1500, 0, anew=True)

    def deleted(self, p):
        """The number of deleted files that pubsub holds open."""
        names = []
        for f in glob.glob("/proc/%d/fd/*" % p.pid):
            try:
                names.append(os.readlink(f))
            except OSError:
                pass  # closed meanwhile
        return sum(name.endswith("(deleted)") for name in names)

    def test_retention_does_not_wait_for_who_stopped(self):
        """The answer of a stopped reader ends after correct bytes, and its next request gets cursor-gone. The files are deleted
        meanwhile."""
        p = self.pubsub("--retain-bytes=24M", "--heartbeat=200")
        text = self.fill([100000] * 200)
        c = Client(self, self.url, received=4096, follow=1)
        while len(c.body) < 2 * MIB:
            c.take(MIB)
        wait_until(lambda: p.get("/clients?format=json").json()["clients"][0]["state"] == "blocked", "him to be stopped")
        text += self.fill([100000] * 220)
        wait_until(lambda: p.stats()["subscribers_passed_total"] == 1, "him to be passed")
        wait_until(lambda: len(self.segments()) <= 26, "files to go")
        wait_until(lambda: self.deleted(p) <= 3, "what is held of them to be few")
        while not c.over:
            c.take(MIB)
        self.assertTrue(text.startswith(c.body))
        self.assertLess(len(c.body), len(text))
        self.assertProblem(self.sub(c.body.rindex(b"\n") + 1), 410, "cursor-gone")
        wait_until(lambda: self.deleted(p) == 0, "the removed files to be let go")

    def test_who_is_behind_does_not_delay_who_is_live(self):
        self.pubsub()
        self.fill([45000] * 200)
        stopped = [Client(self, self.url, received=4096) for _ in range(20)]
        for c in stopped:
            c.take(1)
        connection, response = self.follow("latest")
        for i in range(50):
            line = b"live %d\n" % i
            self.assertEqual(self.pub(line).status, 200)
            self.assertEqual(response.read(len(line)), line)
        connection.close()


if __name__ == "__main__":
    unittest.main()
