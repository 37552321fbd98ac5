"""bitly's clients of pubsub: publishing and reading in its words, and its readers, which take chunks for messages."""
import re
import socket
import unittest

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest


class Bitly(PubsubTest):
    def test_publish_and_multipart(self):
        self.pubsub()
        c = harness.connect(self.url)
        c.request("GET", "/sub")
        r = c.getresponse()
        self.assertEqual(r.getheader("Content-Type"), "multipart/x-mixed-replace; boundary=xXPubSubXx")
        self.assertEqual(request(self.url, "POST", "/pub", b"first\nsecond\n").body, b"Published 2 messages to 1 clients.\n")
        long = b"z" * 300000  # cut over windows
        request(self.url, "POST", "/pub", long)
        expected = b"--xXPubSubXx\r\n" + b"".join(b"content-type: */*\r\ncontent-length: %d\r\n\r\n%s\r\n--xXPubSubXx\r\n" % (len(m), m)
                                                  for m in (b"first", b"second", long))
        self.assertEqual(r.read(len(expected)), expected)
        c.close()

    def test_multipart_zero_and_on_demand(self):
        self.pubsub()
        c = harness.connect(self.url)
        c.request("GET", "/sub?multipart=0")
        r = c.getresponse()
        request(self.url, "POST", "/pub", b"m")
        self.assertEqual(r.read(2), b"m\n")
        c.close()
        self.assertEqual(request(self.url, "GET", "/sub?stream=default&from=0&follow=0&multipart=1").body,
                         b"--xXPubSubXx\r\ncontent-type: */*\r\ncontent-length: 1\r\n\r\nm\r\n--xXPubSubXx\r\n")
        self.assertProblem(request(self.url, "GET", "/sub?multipart=2"), 400, "bad-parameter")

    def test_without_auto_create_there_is_no_default(self):
        self.pubsub("--no-auto-create")
        self.assertProblem(request(self.url, "GET", "/sub"), 404, "unknown-stream")

    def test_stats_and_clients(self):
        self.pubsub("--allow-exit")
        self.assertEqual(request(self.url, "GET", "/clients").body, b"no /sub connections\n")
        self.assertEqual(request(self.url, "GET", "/clients?format=json").json(), {"clients": []})
        followers = [self.follow(stream="default") for _ in range(2) if self.pub(b"x", stream="default")]
        for _, r in followers:
            r.read(2)
        wait_until(lambda: [(c["offset"], c["state"]) for c in request(self.url, "GET", "/clients?format=json").json()["clients"]]
                   == [("4", "waiting")] * 2, "both to have all")
        stats = request(self.url, "GET", "/stats?format=json")
        expected = {"current_connections": 2, "total_connections": 2, "messages_received": 2, "kicked_clients": 0}
        self.assertEqual({k: stats.json()[k] for k in expected}, expected)
        self.assertGreaterEqual(stats.json()["messages_sent"], 2)
        self.assertEqual({h: stats.header("X-PUBSUB-" + h) for h in ("ACTIVE-CONNECTIONS", "TOTAL-CONNECTIONS",
                                                                    "MESSAGES-RECEIVED", "KICKED-CLIENTS")},
                         {"ACTIVE-CONNECTIONS": "2", "TOTAL-CONNECTIONS": "2", "MESSAGES-RECEIVED": "2", "KICKED-CLIENTS": "0"})
        self.assertIn("Messages received: 2\n", request(self.url, "GET", "/stats").text)
        self.assertIn("Messages received: 0\n", request(self.url, "GET", "/stats?reset=1").text)
        self.assertIn("Messages sent: 0\n", request(self.url, "GET", "/stats").text)
        lines = request(self.url, "GET", "/clients").text.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertRegex(line, r"^unix connected at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. output buffer size:\d+ state:waiting "
                                   r"stream:default offset:4$")
        clients = request(self.url, "GET", "/clients?format=json").json()["clients"]
        self.assertEqual([(c["stream"], c["offset"], c["lag_bytes"], c["form"]) for c in clients], [("default", "4", 0, "raw")] * 2)
        for c, _ in followers:
            c.close()
        wait_until(lambda: request(self.url, "GET", "/clients").body == b"no /sub connections\n", "them to be gone")


class Chunked:
    """A response of HTTP/1.1 as evhttp and libcurl hand it on: chunk by chunk."""

    def __init__(self, path, target, method="GET"):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(harness.PATIENCE)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % (method.encode(), target.encode()))
        self.headers = b"".join(iter(self.file.readline, b"\r\n")).lower()

    def __iter__(self):
        while size := int(self.file.readline(), 16):
            yield self.file.read(size)
            self.file.readline()

    def close(self):
        self.file.close()
        self.socket.close()


def by_part(chunks):
    """The first C client: it loses all bytes of a chunk after the chunk's first part."""
    for chunk in chunks:
        head, _, rest = chunk.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if length:
            yield rest[:int(length[1])]


def by_chunk_of_lines(chunks):
    """The last C client, of ps_to_file and ps_to_http: lines, of which a chunk holds whole ones; an empty one ends it."""
    for chunk in chunks:
        for line in chunk.split(b"\n")[:-1]:
            if not line:
                break
            yield line


def by_pattern(chunks):
    """The client on pycurl: gathers chunks until a message and its boundary match; of several the last one counts."""
    text = b""
    for chunk in chunks:
        text += chunk
        found = re.match(rb"^(.*)(?:\n|\r\n?){2}(.*)(?:\n|\r\n?)--xXPubSubXx.*", text, re.DOTALL)
        if found:
            yield found[2].rstrip(b"\r")
            text = b""


class Readers(PubsubTest):
    """Each publish has many messages, and some messages are longer than any buffer."""

    def messages(self):
        sizes = [5] * 100 + [450] * 1000 + [3, 100000, 1, 40000, 16384, 16383, 300000] + [700] * 200
        return [b"%d %s" % (i, b"m" * size) for i, size in enumerate(sizes)]

    def publish(self, messages):
        for i in range(0, len(messages), 100):
            self.assertEqual(request(self.url, "POST", "/pub", b"\n".join(messages[i:i + 100])).status, 200)

    def read(self, target, reader):
        messages, got = self.messages(), []
        response = Chunked(self.path("p.sock"), target)
        self.addCleanup(response.close)
        self.publish(messages)
        for message in reader(response):
            got.append(message)
            if message == messages[-1]:
                break
        self.assertEqual(len(got), len(messages))
        self.assertTrue(got == messages)

    def test_a_part_is_a_chunk(self):
        self.pubsub()
        self.read("/sub", by_part)

    def test_a_part_and_its_boundary_match(self):
        self.pubsub()
        self.read("/sub?multipart=1", by_pattern)

    def test_chunks_hold_whole_lines(self):
        self.pubsub()
        head = Chunked(self.path("p.sock"), "/sub?multipart=0", "HEAD")  # by which it chooses how to read
        head.close()
        self.assertIn(b"transfer-encoding: chunked", head.headers)
        self.read("/sub?multipart=0", by_chunk_of_lines)

    def test_lines_over_http10(self):
        self.pubsub()
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.PATIENCE)
        self.addCleanup(s.close)
        s.connect(self.path("p.sock"))
        s.sendall(b"GET /sub?multipart=0 HTTP/1.0\r\n\r\n")
        f = s.makefile("rb")
        self.addCleanup(f.close)
        while f.readline() != b"\r\n":
            pass
        messages = self.messages()
        self.publish(messages)
        self.assertTrue([f.readline()[:-1] for _ in messages] == messages)


if __name__ == "__main__":
    unittest.main()
