"""Statements between the lines of a stream: wherever a piece ends, however fast the client reads, the lines are the stream's own."""
import re
import socket
import threading
import time
import urllib.parse

import harness
from harness import query, wait_until

STATEMENT = re.compile(rb"(\d+\.\d{6}) (\d+) (\d+\.\d{6})( [\w.-]+( restored)?)?")


class Reader:
    """Reads over HTTP/1.0, so the body has no chunks."""

    def __init__(self, test, d, **params):
        self.test, self.received, self.goes_on = test, bytearray(), threading.Event()
        self.socket = socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(d.url).port))
        self.socket.sendall(b"GET /sub?%s HTTP/1.0\r\n\r\n" % query(statements=1, **params).encode())
        self.goes_on.set()
        test.addCleanup(self.socket.close)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            while piece := self.socket.recv(1 << 16):
                self.received += piece
                self.goes_on.wait()
        except OSError:
            pass

    def taken(self):
        """The bytes of the lines, and of each statement how many of them came before it, and its three numbers."""
        lines, statements, length = [], [], 0
        texts = iter(bytes(self.received).partition(b"\r\n\r\n")[2].split(b"\n")[:-1])
        for text in texts:
            if text:
                lines.append(text + b"\n")
                length += len(text) + 1
            elif (text := next(texts, None)) is not None:
                found = STATEMENT.fullmatch(text)
                self.test.assertTrue(found, text[:200])
                statements.append((length, float(found[1]), int(found[2]), float(found[3])))
        return b"".join(lines), statements


class Statements(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.rng, self.stream = harness.seeded(), b""
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never")
        self.publish(1)

    def publish(self, publishes):
        """Lines from a few bytes to several pieces, in publishes from one line to many."""
        for _ in range(publishes):
            lines = [self.rng.choice([b"x", b"y"]) * self.rng.choice([1, 5, 300, 40000, 400000]) for _ in range(self.rng.choice([1, 3, 20]))]
            body = b"".join(line + b"\n" for line in lines)
            self.assertEqual(self.pubsub.post("/pub?stream=s", body).status, 200)
            self.stream += body

    def check(self, reader):
        wait_until(lambda: len(reader.received) > len(self.stream), "the lines", timeout=harness.LONG)
        wait_until(lambda: len(reader.taken()[0]) >= len(self.stream), "the last lines")
        lines, statements = reader.taken()
        self.assertTrue(lines == self.stream)
        ends = {0, *(m.end() for m in re.finditer(b"\n", self.stream))}
        for at, until, end, now in statements:
            self.assertTrue(at in ends and end in ends and until == now, (at, until, end, now))
        return statements

    def wait_statements(self, reader, n):
        """Until n more ticks have come: an empty line begins each."""
        ticks = lambda: reader.received.count(b"\n\n")
        n += ticks()
        wait_until(lambda: ticks() >= n, "the next statement")

    def test_between_the_lines(self):
        readers = [Reader(self, self.pubsub, stream="s", **{"from": "earliest"}) for _ in range(3)]
        for i in range(4):
            readers[0].goes_on.set() if i % 2 else readers[0].goes_on.clear()
            self.publish(6)
            self.wait_statements(readers[1], 1)
        readers[0].goes_on.set()
        late = Reader(self, self.pubsub, stream="s", **{"from": "earliest"})
        for reader in readers:
            self.assertGreater(len(self.check(reader)), 2)
        self.assertGreater(len(self.check(late)), 0)

    def test_a_client_that_stops_reading_gets_no_more_than_fits(self):
        reader = Reader(self, self.pubsub, stream="s", **{"from": "earliest"})
        wait_until(lambda: reader.taken()[1], "the first statement")
        reader.goes_on.clear()
        self.publish(20)
        client = lambda: self.pubsub.get("/clients?format=json").json()["clients"][-1]
        wait_until(lambda: client()["state"] == "blocked", client)
        self.wait_statements(Reader(self, self.pubsub, stream="s", **{"from": "latest"}), 3)
        self.assertLess(client()["unsent_bytes"], 100000)
        reader.goes_on.set()
        statements = self.check(reader)
        wait_until(lambda: reader.taken()[1][-1][2] == len(self.stream), "a statement of the end")
        self.assertEqual([at for at, *_ in statements], sorted(at for at, *_ in statements))

    def test_where_there_are_none(self):
        for params in ({"multipart": 1}, {"statements": "x"}):
            reply = self.pubsub.get("/sub?" + query(**{"stream": "s", "statements": 1, **params}))
            self.assertEqual((reply.status, reply.json()["code"]), (400, "bad-parameter"))
        self.assertEqual(self.pubsub.get("/sub?" + query(statements=1)).status, 400)
        whole = self.pubsub.get("/sub?" + query(stream="s", statements=1, follow=0, **{"from": "earliest"}))
        self.assertEqual(whole.body, self.stream)
        before = time.time()
        absent = self.pubsub.get("/sub?" + query(stream="none", statements=1))
        self.assertEqual(absent.status, 404)
        self.assertTrue(before - 1 < float(absent.header("X-Millrace-Time")) <= time.time())


if __name__ == "__main__":
    harness.main()
