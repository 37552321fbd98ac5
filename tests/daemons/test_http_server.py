"""The invariants of lib/http/server/http_server.h, seen from raw sockets, on tests/support/http_probe.c."""
# seconds: 25
import json
import os
import re
import resource
import signal
import socket
import struct
import time
import unittest

import harness
from harness import wait_until


class Client:
    """A socket and what it has received."""

    def __init__(self, port, buffer=None):
        self.sock = socket.socket()
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.settimeout(harness.PATIENCE)
        self.sock.connect(("127.0.0.1", port))
        self.data = b""

    def send(self, *parts):
        self.sock.sendall(b"".join(parts))
        return self

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)
        return self

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def more(self):
        try:
            piece = self.sock.recv(1 << 20)
        except ConnectionResetError:
            return b""
        self.data += piece
        return piece

    def until(self, text):
        while text not in self.data:
            if not self.more():
                raise AssertionError("closed before %r: %r" % (text, self.data[-500:]))
        return self

    def to_end(self):
        while self.more():
            pass
        self.close()
        return self.data

    def reply(self, head=False):
        """The next reply: (status, headers, body); a chunked body stays as it came, up to its end."""
        self.until(b"\r\n\r\n")
        top, self.data = self.data.split(b"\r\n\r\n", 1)
        lines = top.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
        status = int(lines[0].split()[1])
        length = 0 if head or status < 200 else int(headers.get("content-length", 0))
        if headers.get("transfer-encoding") == "chunked" and not head:
            self.until(b"0\r\n\r\n")
            length = self.data.index(b"0\r\n\r\n") + 5
        while len(self.data) < length:
            if not self.more():
                raise AssertionError("the body ended early")
        body, self.data = self.data[:length], self.data[length:]
        return status, headers, body


class Probe(harness.MillraceTest):
    def probe(self, **settings):
        p = self.daemon("http_probe", *["%s=%s" % kv for kv in settings.items()], port=False)
        m = wait_until(lambda: re.search(r"port (\d+)", p.log), lambda: "a port: " + p.log)
        p.port = int(m.group(1))
        p.url = "http://127.0.0.1:%d" % p.port
        self.p = p
        return p

    def client(self, **kw):
        c = Client(self.p.port, **kw)
        self.addCleanup(c.close)
        return c

    def said(self, text, times=1):
        wait_until(lambda: self.p.log.count(text) >= times, lambda: "%s: %s" % (text, self.p.log))

    def one(self, *parts):
        """Sends it on a connection of its own; the reply, and whether the connection was closed after it."""
        c = self.client().send(*parts)
        reply = c.reply()
        c.send(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n") if reply[1].get("connection") != "close" else None
        closed = reply[1].get("connection") == "close" and c.to_end() == b""
        if not closed:
            self.assertEqual(c.reply()[2], b"OK")
        c.close()
        return reply[0], reply[1], reply[2], closed

    def answer_later(self):
        self.p.process.send_signal(signal.SIGUSR2)

    def metric(self, name):
        return int(re.search(r"^millrace_probe_%s (\d+)" % name, self.p.get("/metrics").text, re.M).group(1))

    def memory(self):
        with open("/proc/%d/statm" % self.p.pid) as f:
            return int(f.read().split()[1]) * resource.getpagesize()


def get(target, *headers, version="1.1"):
    headers = ("Host: h",) + headers
    return ("GET %s HTTP/%s\r\n%s\r\n" % (target, version, "".join(h + "\r\n" for h in headers))).encode()


def post(target, body, *headers):
    lines = "".join(h + "\r\n" for h in headers + ("Host: h", "Content-Length: %d" % len(body)))
    return ("POST %s HTTP/1.1\r\n%s\r\n" % (target, lines)).encode() + body


class Order(Probe):
    def test_replies_in_order_behind_a_deferred_one(self):
        self.probe()
        c = self.client().send(get("/later"), get("/echo?data=second"), get("/later"), get("/echo?data=last"))
        self.said("held", 1)
        self.assertEqual(self.p.get("/ping").text, "OK")
        self.assertEqual(self.p.log.count("held"), 1, "the second /later waits unparsed")
        self.answer_later()
        self.assertEqual([c.reply()[2], c.reply()[2]], [b"later", b"second"])
        self.said("held", 2)
        self.answer_later()
        self.assertEqual([c.reply()[2], c.reply()[2]], [b"later", b"last"])

    def test_ten_thousand_pipelined_requests(self):
        self.probe()
        c = self.client()
        for start in range(0, 10000, 500):  # the replies are read on the way: neither side's buffers must fill
            c.send(*[get("/echo?data=%d" % n) for n in range(start, start + 500)])
            for n in range(start, start + 500):
                self.assertEqual(c.reply()[2], b"%d" % n)

    def test_pipelined_replies_leave_in_one_write(self):
        self.probe()
        c = self.client().send(get("/ping") * 20)
        first = c.more()
        self.assertEqual(first.count(b"HTTP/1.1 200"), 20)

    def test_pipelined_requests_whose_replies_nobody_reads_are_not_handled(self):
        self.probe()
        c = self.client(buffer=4096)
        c.sock.setblocking(False)
        sent = 0
        request = get("/large?n=1000000") * 100
        try:
            while sent < 64 << 20:
                sent += c.sock.send(request)
        except BlockingIOError:
            pass
        self.assertEqual(self.p.get("/ping").text, "OK")
        if not harness.SANITIZED:
            self.assertLess(self.memory(), 64 << 20)

    def test_split_at_every_byte(self):
        self.probe()
        whole = post("/echo", b"abc") + get("/echo?data=d") + \
            b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nxyz\r\n0\r\nX-Trailer: t\r\n\r\n"
        for at in range(1, len(whole)):
            c = self.client()
            c.send(whole[:at])
            c.send(whole[at:])
            self.assertEqual([c.reply()[2] for _ in range(3)], [b"abc", b"d", b"xyz"], at)
            c.close()


class Versions(Probe):
    def test_head_has_the_headers_of_get_and_no_body(self):
        self.probe()
        c = self.client().send(b"HEAD /echo?data=12345 HTTP/1.1\r\nHost: h\r\n\r\n", b"HEAD /pieces HTTP/1.1\r\nHost: h\r\n\r\n",
                               b"HEAD /large?n=70000 HTTP/1.1\r\nHost: h\r\n\r\n", get("/ping"))
        self.assertEqual(c.reply(head=True)[1]["content-length"], "5")
        self.assertEqual(c.reply(head=True)[1]["transfer-encoding"], "chunked")
        self.assertEqual(c.reply(head=True)[1]["content-length"], "70000")
        self.assertEqual(c.reply()[2], b"OK")

    def test_http_1_0(self):
        self.probe()
        data = self.client().send(get("/ping", version="1.0")).to_end()
        self.assertIn(b"Connection: close", data)
        self.assertTrue(data.endswith(b"\r\n\r\nOK"))
        c = self.client().send(get("/ping", "Connection: keep-alive", version="1.0"))
        self.assertEqual(c.reply()[1]["connection"], "keep-alive")
        self.assertTrue(c.send(get("/ping", version="1.0")).to_end().endswith(b"OK"))

    def test_streams(self):
        self.probe()
        c = self.client().send(get("/pieces"), get("/ping"))
        self.assertEqual(c.reply()[2], b"4\r\none,\r\n3\r\ntwo\r\n0\r\n\r\n")
        self.assertEqual(c.reply()[2], b"OK")
        data = self.client().send(get("/pieces", "Connection: keep-alive", version="1.0")).to_end()
        self.assertTrue(data.endswith(b"\r\n\r\none,two"))
        self.assertNotIn(b"chunked", data)

    def test_a_stream_that_is_broken_off_is_seen_to_lack_its_end(self):
        self.probe()
        c = self.client().send(get("/break"), get("/ping"))
        received = b""
        while piece := c.sock.recv(1 << 16):  # to its end: a reset may take along what was not read yet
            received += piece
        top, body = received.split(b"\r\n\r\n", 1)
        self.assertIn(b"Transfer-Encoding: chunked", top)
        self.assertEqual(body, b"4\r\none,\r\n3\r\ntwo\r\n")  # all that was written, no last chunk, nothing behind it
        c = self.client().send(get("/break", version="1.0"))
        with self.assertRaises(ConnectionResetError):  # its mere end would be the body's
            while c.sock.recv(1 << 16):
                pass

    def test_connection_close(self):
        self.probe()
        c = self.client().send(get("/ping", "Connection: close"), get("/ping"))
        self.assertEqual(c.reply()[1]["connection"], "close")
        self.assertEqual(c.to_end(), b"")

    def test_header_values_cannot_be_split(self):
        self.probe()
        self.assertEqual(self.one(get("/echo"))[1]["x-echo"], "ab")


class Refused(Probe):
    def refused(self, status, *parts):
        got, headers, body, closed = self.one(*parts)
        self.assertEqual(got, status, (parts, body))
        self.assertEqual(headers["content-type"], "application/problem+json")
        self.assertEqual(json.loads(body)["status"], status)
        return headers, json.loads(body), closed

    def closes(self, status, *parts):
        self.assertTrue(self.refused(status, *parts)[2], parts)

    def test_framing_in_doubt(self):
        self.probe()
        chunked = b"Transfer-Encoding: chunked\r\n"
        for head in (chunked + b"Content-Length: 3\r\n", b"Content-Length: 3\r\n" + chunked,
                     b"Content-Length: 3\r\nContent-Length: 4\r\n", b"Content-Length: -1\r\n",
                     b"Content-Length: 3, 4\r\n", b"Transfer-Encoding: gzip, chunked\r\n", chunked + chunked,
                     b"Transfer-Encoding: identity\r\n", b"Content-Length: 99999999999999999999999\r\n",
                     b"X: a\r\n folded\r\n", b"X:\r\n\tfolded\r\n", b"X: nu\0l\r\n", b"X : y\r\n", b" X: y\r\n"):
            with self.subTest(head=head):
                self.closes(400, b"POST /echo HTTP/1.1\r\nHost: h\r\n", head, b"\r\n", get("/echo?data=smuggled"))
        self.closes(400, b"POST /echo HTTP/1.0\r\n", chunked, b"\r\n0\r\n\r\n")
        self.closes(400, b"POST /echo HTTP/1.1\r\nHost: h\r\n", chunked, b"\r\nzz\r\n")
        for body in (b"3\r\nabcXX0\r\n\r\n", b"3\rXabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\rX", b"3\r\nabc\nX0\r\n\r\n",
                     b"3;x\rYabc\r\n0\r\n\r\n"):
            with self.subTest(body=body):
                self.closes(400, b"POST /echo HTTP/1.1\r\nHost: h\r\n", chunked, b"\r\n", body)
        self.closes(400, b"GET /ping HTTP/1.1\r\nHost: h\r\n\rX")
        self.closes(400, b"nonsense\r\n\r\n")
        self.assertEqual(self.p.get("/ping").text, "OK")

    def test_a_kept_connection_that_goes_wrong(self):
        self.probe()
        for bad in (b"nonsense\r\n\r\n", b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", b"\0", b"GET /ping HTTP/9.9\r\n\r\n"):
            for n in range(3):
                c = self.client().send(get("/ping") * n, bad)
                for _ in range(n):
                    self.assertEqual(c.reply()[2], b"OK")
                self.assertEqual(c.reply()[0], 400)

    def test_hosts(self):
        self.probe()
        for version, hosts, status in (("1.1", b"", 400), ("1.1", b"Host: a\r\nhost: b\r\n", 400), ("1.0", b"", 200),
                                       ("1.1", b"Host:\r\n", 200), ("1.2", b"Host: a\r\n", 200), ("1.2", b"", 400)):
            with self.subTest(version=version, hosts=hosts):
                c = self.client().send(b"GET /ping HTTP/%s\r\n%s\r\n" % (version.encode(), hosts))
                self.assertEqual(c.reply()[0], status)

    def test_lines_of_a_head(self):
        self.probe()
        for head in (b"GET  /ping HTTP/1.1\r\nHost: h", b"GET /ping  HTTP/1.1\r\nHost: h", b"GET /ping\r\nHost: h",
                     b"GET /pi\tng HTTP/1.1\r\nHost: h", b" GET /ping HTTP/1.1\r\nHost: h", b"GET /ping HTTP/1.1 \r\nHost: h",
                     b"GET /ping http/1.1\r\nHost: h", b"GET /ping HTTP/2.0\r\nHost: h", b"G(T /ping HTTP/1.1\r\nHost: h",
                     b"GET /ping HTTP/1.1\r\nHost: h\r\n: y", b"GET /ping HTTP/1.1\r\nHost: h\r\nno colon",
                     b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\x01b", b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\x7fb",
                     b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\rb", b"GET /ping HTTP/1.1\r\n Host: h",
                     b"GET /ping HTTP/1.1\r\nHost: h\r\nX(: a"):
            with self.subTest(head=head):
                self.closes(400, head, b"\r\n\r\n")
        for head in (b"GET /ping HTTP/1.1\nHost: h\n\n", b"GET /ping HTTP/1.1\r\nHost: h\r\nX:\r\nX: a \t\xff\r\n\r\n",
                     b"GET http://h/ping HTTP/1.1\r\nHOST:h\r\n\r\n", b"GET /ping?\xc3\xa9=1 HTTP/1.1\r\nHost: h\r\n\r\n"):
            with self.subTest(head=head):
                self.assertEqual(self.one(head)[2], b"OK")
        self.assertEqual(self.refused(405, b"PATCH /ping HTTP/1.1\r\nHost: h\r\n\r\n")[1]["code"], "method-not-allowed")
        for words in (b"close", b"Keep-Alive, CLOSE", b"x , close ,"):
            self.assertTrue(self.one(b"GET /ping HTTP/1.1\r\nHost: h\r\nConnection: ", words, b"\r\n\r\n")[3], words)

    def test_a_head_is_bounded_before_it_is_whole(self):
        self.probe()
        for status, part in ((414, b"GET /" + b"x" * 49300), (431, b"GET / HTTP/1.1\r\nX: " + b"x" * 65700),
                             (431, b"GET / HTTP/1.1\r\n" + b"X: " + b" " * 65700),
                             (431, b"GET / HTTP/1.1\r\n" + (b"X:" + b" " * 4096 + b"\r\n") * 40)):
            c = self.client().send(part)
            self.assertEqual(c.reply()[0], status)

    def test_chunks(self):
        self.probe()
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
        for chunks in (b"3\r\nabc\r\n0\r\n\r\n", b"003;a=b\r\nabc\r\n00\r\nX: y\r\nZ: \r\n\r\n",
                       b"1\r\na\r\n2 ;x\r\nbc\r\n0\r\n\r\n"):
            self.assertEqual(self.one(head, chunks)[2], b"abc")
        big = b"fFf\r\n" + b"x" * 4095 + b"\r\n"
        self.assertEqual(self.one(head, big * 20, b"0\r\n\r\n")[2], b"x" * 4095 * 20)
        for bad in (b"\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"g\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n", b"f" * 17 + b"\r\n",
                    b"3;\x01\r\n", b"0\r\n folded\r\n\r\n", b"0\r\nX: \x00\r\n\r\n", b"0\r\nX\n\r\n"):
            with self.subTest(bad=bad):
                self.closes(400, head, bad)
        self.closes(400, head, b"1;" + b"x" * 65536 + b"\r\n")
        self.closes(400, head, b"0\r\n" + b"X: y\r\n" * 17000)

    def test_folding_is_seen_across_reads(self):
        self.probe()
        c = self.client().send(b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\r\n")
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(0.02)  # so that it most likely comes in two reads; the answer must be the same in any case
        self.assertEqual(c.send(b" b\r\n\r\n").reply()[0], 400)

    def test_bodies_may_hold_what_headers_may_not(self):
        self.probe()
        for body in (b"\n folded\r\n\r\n\0", b" \n\t\n"):
            self.assertEqual(self.one(post("/echo", body))[2], body)

    def test_sizes(self):
        self.probe(max_body=1000)
        self.assertEqual(self.one(post("/echo", b"x" * 1000))[0], 200)
        self.closes(413, post("/echo", b"x" * 1001))
        self.closes(413, b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", b"1f4\r\n" + b"x" * 500 + b"\r\n",
                    b"1f5\r\n" + b"x" * 501 + b"\r\n0\r\n\r\n")
        for target, chunks in (("/echo", b"3e9\r\n"), ("/echo", b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n"),
                               ("/echo", b"ffffffffffffffff\r\n"), ("/sum", b"100001\r\n")):  # by the chunk's size alone
            self.closes(413, b"POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % target.encode(), chunks)
        self.assertEqual(self.one(b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", b"1f4\r\n" + b"x" * 500 + b"\r\n",
                                  b"1f4\r\n" + b"x" * 500 + b"\r\n0\r\n\r\n")[0], 200)
        self.closes(414, get("/echo?data=" + "x" * 48 * 1024))
        self.assertEqual(self.one(get("/echo?data=" + "x" * 47 * 1024))[0], 200)
        self.closes(431, get("/ping", "X: " + "x" * 64 * 1024))
        self.closes(431, get("/ping", *["X: y"] * 128))
        self.assertEqual(self.one(get("/ping", *["X: y"] * 127))[0], 200)

    def test_the_refusal_reaches_a_client_that_goes_on_sending(self):
        self.probe(max_body=1000)
        c = self.client().send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(30):
            c.send(b"x" * 100000)
        self.assertEqual(c.reply()[0], 413)

    def test_a_claimed_length_takes_no_memory(self):
        self.probe(max_body=1 << 40)
        before = self.memory()
        clients = [self.client().send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\nx") for _ in range(50)]
        self.assertEqual(self.p.get("/ping").text, "OK")
        self.assertLess(self.memory() - before, 16 << 20)
        self.assertEqual(len(clients), 50)

    def test_methods_and_paths(self):
        self.probe()
        for path, hint in (("/nowhere", "GET / lists the endpoints"), ("/" + "n" * 1000, "GET / lists the endpoints"),
                           ("/pign", "did you mean /ping? GET / lists the endpoints"), ("/Health/", "did you mean /health? GET / lists the endpoints")):
            problem = self.refused(404, get(path))[1]
            self.assertEqual((problem["code"], problem["detail"], problem["hint"]), ("not-found", "no such endpoint", hint), path)
        headers, problem, closed = self.refused(405, b"DELETE /echo HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual((headers["allow"], problem["code"], problem["hint"], closed),
                         ("GET, HEAD, POST", "method-not-allowed", "its methods: GET, HEAD, POST", False))
        self.assertEqual(self.refused(405, post("/two", b""))[0]["allow"], "GET, HEAD, DELETE")
        self.assertEqual(self.one(b"DELETE /two HTTP/1.1\r\nHost: h\r\n\r\n")[0], 200)
        self.assertEqual(self.one(get("/files/a%20b"))[2], b"a b")
        self.assertEqual(self.one(get("http://host/files/x"))[2], b"x")

    def test_options_of_the_server_itself(self):
        self.probe()
        c = self.client().send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n" * 2, get("/ping"))
        for _ in range(2):
            status, headers, body = c.reply()
            self.assertEqual((status, headers["allow"], body), (204, "GET, HEAD, POST, DELETE, OPTIONS", b""))
        self.assertEqual(c.reply()[2], b"OK")
        self.assertEqual(self.refused(405, get("*"))[0]["allow"], "OPTIONS")

    def test_blank_lines_between_requests(self):
        self.probe()
        c = self.client().send(get("/nowhere"), b"\r\n\n\r\n", get("/ping"))
        self.assertEqual([c.reply()[0], c.reply()[0]], [404, 200])

    def test_targets(self):
        self.probe()
        for target in ("/echo?data=%", "/echo?data=%4", "/echo?data=%zz", "/%zz", "/%00", "/echo?" + "a&" * 1025):
            self.assertEqual(self.refused(400, get(target))[1]["code"], "bad-parameter", target)
        self.assertEqual(self.one(get("/echo?a&&b=&data=x+y%2B%00"))[2], b"x y+\0")
        self.assertEqual(self.refused(400, get("/large?n=-1"))[1]["code"], "bad-parameter")

    def test_expect(self):
        self.probe(max_body=1000)
        c = self.client().send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        self.assertEqual(c.reply()[0], 100)
        self.assertEqual(c.send(b"abc").reply()[2], b"abc")
        for status, target, length, expect in ((413, "/echo", 1001, "100-continue"), (404, "/no", 3, "100-continue"),
                                               (417, "/echo", 3, "miracles")):
            c = self.client().send(("POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nExpect: %s\r\n\r\n" %
                                    (target, length, expect)).encode())
            self.assertEqual(c.reply()[0], status)

    def test_long_bodies(self):
        self.probe()
        self.assertEqual(self.one(post("/sum", b"x" * 300000))[2], b"300000")
        self.assertEqual(self.one(post("/sum", b""))[2], b"0")
        self.closes(413, b"POST /sum HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                    (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 17)

    def test_ready(self):
        self.probe()
        self.assertEqual(self.p.get("/health").text, "ready\n")
        self.assertEqual(self.p.get("/ready").status, 200)
        self.p.process.send_signal(signal.SIGUSR1)
        self.said("not ready")
        for target in ("/health", "/ready"):
            r = self.p.get(target)
            self.assertEqual((r.status, r.json()["code"], r.json()["detail"], r.header("Retry-After")),
                             (503, "not-ready", "told so", "1"))
        self.assertEqual(self.p.get("/ping").text, "OK")


class Access(Probe):
    def test_token(self):
        self.probe(token="secret")
        for given in (None, "Bearer wrong!", "Bearer secre", "Bearer secrets", "Bearer ", "Basic secret"):
            r = self.p.get("/echo", headers={"Authorization": given} if given else {})
            self.assertEqual((r.status, r.header("WWW-Authenticate")), (401, "Bearer"), given)
        self.assertEqual(self.p.get("/stats").status, 401)
        self.assertEqual(self.p.get("/ping").status, 200)
        self.assertEqual(self.p.get("/health").status, 200)
        right = {"Authorization": "Bearer secret"}
        for given in (right, {"Authorization": "bearer secret"}, {"authorization": "BEARER secret"}):
            self.assertEqual(self.p.get("/echo", headers=given).status, 200, given)
        self.assertEqual(self.p.post("/act", headers=right).status, 200)

    def test_acts(self):
        self.probe()
        r = self.p.post("/act")
        self.assertEqual((r.status, r.json()["code"]), (403, "forbidden"))
        self.assertIn("--allow-exit", r.json()["hint"])
        self.probe(allow_admin=1)
        self.assertEqual(self.p.post("/act").status, 200)


class Limits(Probe):
    def closed_after(self, open_client, least):
        start = time.monotonic()
        self.assertEqual(open_client().to_end(), b"")
        self.assertGreater(time.monotonic() - start, least * 0.7)

    def test_header_timeout(self):
        self.probe(header_timeout=200)
        self.closed_after(self.client, 0.2)
        c = self.client().send(b"GET /ping HTTP/1.1\r\nHost: h\r\nX: ")

        def is_closed():
            """A byte now and then does not help, nor is it ever too much."""
            try:
                c.send(b"y")
            except OSError:
                return True
        wait_until(is_closed, "the connection to be closed", interval=0.02)

    def test_body_timeout(self):
        harness.slower_and_slower(1.0, self.body_timeout)

    def body_timeout(self, limit):
        self.probe(body_timeout=int(limit * 1000))
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"
        c = self.client().send(head)
        for _ in range(9):
            time.sleep(0.15 * limit)  # all of it takes longer than the timeout, no silence does
            c.send(b"x")
        self.assertEqual(c.send(b"x").reply()[2], b"x" * 10)
        self.closed_after(lambda: self.client().send(head), limit)

    def test_idle_timeout(self):
        self.probe(idle_timeout=200)
        def idle():
            c = self.client().send(get("/ping"))
            c.reply()
            return c
        self.closed_after(idle, 0.2)

    def test_write_timeout(self):
        self.probe(write_timeout=300)
        c = self.client(buffer=4096).send(get("/pump?n=1000000000"))
        self.said("gone /pump")
        c.close()

    def test_time_limits_leave_quiet_streams_and_deferred_replies_alone(self):
        harness.slower_and_slower(0.1, self.quiet_streams)

    def quiet_streams(self, limit):
        names = ("write_timeout", "header_timeout", "body_timeout", "idle_timeout")
        probe = self.probe(**{name: int(limit * 1000) for name in names})
        try:
            stream, later = self.client().send(get("/open")), self.client().send(get("/later"))
            wait_until(lambda: probe.log.count("held") == 2, "both to be asked in time", timeout=harness.SOON)
            for _ in range(3):  # each waits for its own time limit, begun later than those of the two
                self.assertEqual(self.client().to_end(), b"", "what says nothing is closed")
            self.assertNotIn("gone", probe.log)
            self.answer_later()
            self.assertEqual(later.reply()[2], b"later")
            self.assertEqual(stream.reply(head=True)[0], 200)
        except BaseException:
            probe.kill9()  # a stop would wait for what it holds, and fail the test whose next attempt is to pass
            raise

    def test_max_connections(self):
        self.probe(max_connections=2)
        held = [self.client().send(get("/ping")) for _ in range(2)]
        for c in held:
            self.assertEqual(c.reply()[2], b"OK")
        c = self.client().send(get("/ping"))
        status, headers, body = c.reply()
        self.assertEqual((status, headers["retry-after"], json.loads(body)["code"]), (503, "1", "overloaded"))
        self.assertEqual(c.to_end(), b"")
        silent, half = self.client(), self.client().send(b"GET /events HTT")
        for c in (silent, half):
            self.assertEqual(c.reply()[0], 503, "who asks nothing in time is told and closed")
            self.assertEqual(c.to_end(), b"")
        held[0].close()
        wait_until(lambda: self.p.get("/ping").status == 200, "room again")

    def come_back(self, reply):
        head, body = reply.split(b"\r\n\r\n", 1)
        self.assertTrue(head.startswith(b"HTTP/1.1 200 OK\r\n"), head)
        for header in (b"Content-Type: text/event-stream", b"Cache-Control: no-store", b"Access-Control-Allow-Origin: *",
                       b"Connection: close"):
            self.assertIn(header, head.split(b"\r\n"))
        self.assertEqual(body, b"retry: 1000\n\n")

    def test_event_streams_past_the_limit_are_to_come_back(self):
        self.probe(max_connections=2)
        held = [self.client().send(get("/ping")) for _ in range(2)]
        for c in held:
            self.assertEqual(c.reply()[2], b"OK")
        self.come_back(self.client().send(get("/events", "Accept: text/html, Text/Event-Stream;q=0.5")).to_end())
        for other in (get("/events", "Accept: */*"), get("/echo", "Accept: text/event-stream"),
                      post("/echo", b"x" * 100, "Accept: text/event-stream")):
            status, headers, body = self.client().send(other).reply()
            self.assertEqual((status, headers["retry-after"], json.loads(body)["code"]), (503, "1", "overloaded"))

    def test_so_are_those_who_are_too_many_to_be_read(self):
        """All at once, so that most are past the 64 that are; what they sent has come."""
        self.probe(max_connections=2)
        held = [self.client().send(get("/ping")) for _ in range(2)]
        for c in held:
            self.assertEqual(c.reply()[2], b"OK")
        before = self.held_metric(held[0])
        self.p.process.send_signal(signal.SIGSTOP)
        spelt = ("text/event-stream", "Text/Event-Stream")
        clients = [self.client().send(get("/events?x=1", "Accept: " + spelt[i % 2])) for i in range(300)]
        others = [self.client().send(get("/ping", "Accept: text/event-stream")) for _ in range(10)]
        self.p.process.send_signal(signal.SIGCONT)
        for c in clients:
            self.come_back(c.to_end())
        for c in others:
            self.assertEqual(c.reply()[0], 503)
        self.assertEqual(self.held_metric(held[0]) - before, 310)

    def test_who_is_silent_past_the_limit_takes_no_place_from_others(self):
        self.probe(max_connections=2)
        held = [self.client().send(get("/ping")) for _ in range(2)]
        for c in held:
            self.assertEqual(c.reply()[2], b"OK")
        for _ in range(10):
            before = self.held_metric(held[0])
            silent = [self.client() for _ in range(64)]
            wait_until(lambda: self.held_metric(held[0]) == before + 64, "all to be there")
            began, c = time.monotonic(), self.client()
            wait_until(lambda: self.held_metric(held[0]) == before + 65, "one more")
            told = c.send(get("/events", "Accept: text/event-stream")).to_end()
            took = time.monotonic() - began
            for s in silent:
                self.assertEqual(s.reply()[0], 503)
                s.close()
            if took < 1:  # else its own two seconds may have passed
                break
        self.come_back(told)

    def test_a_server_without_routes_tells_those_too(self):
        """As most readers are. Past its descriptors at once: more come together than may be read."""
        self.probe(descriptors=64, no_routes=1)
        self.p.process.send_signal(signal.SIGSTOP)
        clients = [self.client().send(get("/ping", "Accept: text/event-stream")) for _ in range(100)]
        self.p.process.send_signal(signal.SIGCONT)
        statuses = [c.reply()[0] for c in clients]
        served = statuses.index(503)
        self.assertEqual(statuses, [200] * served + [503] * (100 - served))
        self.assertGreater(served, 0)

    def held_metric(self, client):
        text = client.send(get("/metrics")).reply()[2].decode()
        return int(re.search(r"^millrace_probe_http_connections_refused_total (\d+)", text, re.M).group(1))

    def test_past_its_descriptors_connections_are_told_so(self):
        """64 of them: 16 are not for connections, and those who are told may have half of these for a moment."""
        self.probe(descriptors=64)
        clients, statuses = [self.client() for _ in range(100)], []
        for c in clients:
            status, headers, body = c.send(get("/ping")).reply()
            statuses.append(status)
            if status == 503:
                self.assertEqual((headers["retry-after"], json.loads(body)["code"]), ("1", "overloaded"))
        served = statuses.index(503)
        self.assertEqual(statuses, [200] * served + [503] * (100 - served))
        self.assertGreater(served, 0)
        self.assertNotIn("cannot accept", self.p.log)
        for c in clients:
            c.close()
        wait_until(self.answers, "room again")
        self.assertGreaterEqual(self.metric("http_connections_refused_total"), 100 - served)

    def test_without_any_descriptor_accepting_pauses(self):
        """The daemon's own files may have taken all."""
        self.probe()
        limits = resource.prlimit(self.p.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.p.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        clients = [self.client() for _ in range(60)]
        wait_until(lambda: "cannot accept" in self.p.log, "the error")
        for _ in range(10):
            wait_until(self.sleeps, "the loop to sleep though connections wait", interval=0.01)
        self.assertEqual(self.p.log.count("cannot accept"), 1)
        for c in clients:
            c.close()
        resource.prlimit(self.p.pid, resource.RLIMIT_NOFILE, limits)
        wait_until(self.answers, "accepting again")

    def answers(self):
        try:
            return self.p.get("/ping").text == "OK"
        except harness.UNREACHABLE:
            return False

    def sleeps(self):
        with open("/proc/%d/stat" % self.p.pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "S"

    def test_flow_control(self):
        self.probe()
        c = self.client(buffer=65536).send(get("/pump?n=8000000"))
        status, headers, body = c.reply()
        self.assertEqual((status, body.count(b"\0")), (200, 8000000))
        self.said("pumped")
        most = int(re.search(r"pumped (\d+)", self.p.log).group(1))
        self.assertLess(most, 256 * 1024)
        self.assertEqual(c.send(get("/ping")).reply()[2], b"OK")

class Budget(Probe):
    """The bytes that the server holds for all clients together, and the clients whose connections are closed if these are too many."""

    def use_up(self):
        """Uses up the budget by clients that read nothing. Returns these clients, and the reply to a client that connects then; or None if
        the server has already closed some of them, as on a slow machine."""
        self.probe(max_buffered=20 << 20)
        idlers = [self.client(buffer=4096).send(get("/large?n=16000000")) for _ in range(8)]
        wait_until(lambda: self.metric("http_buffered_bytes") >= 20 << 20 or self.metric("http_evicted_total"), "the budget's end")
        told = self.client().send(get("/events", "Accept: text/event-stream")).reply()
        return (idlers, told) if self.metric("http_evicted_total") == 0 else None

    def test_clients_that_take_nothing_go_and_the_others_are_served(self):
        idlers, (status, headers, body) = wait_until(self.use_up, "a budget that is used up by who has not stood still yet")
        self.assertEqual((status, headers["content-type"], body), (200, "text/event-stream", b"retry: 1000\n\n"))
        quick, refused = self.client(), 0
        for _ in range(3):
            while True:
                status, headers, body = quick.send(get("/large?n=4000000")).reply()
                if status == 200:
                    break
                refused += 1
                self.assertEqual((status, headers["retry-after"], json.loads(body)["code"]), (503, "1", "overloaded"))
            self.assertEqual(len(body), 4000000)
        self.assertGreater(self.metric("http_evicted_total"), 0)
        if not harness.SANITIZED:
            self.assertLess(self.memory(), 100 << 20)
        for c in idlers:
            c.close()
        wait_until(lambda: self.metric("http_buffered_bytes") < 1 << 20, "nothing to be held")

    def test_bodies_that_do_not_end(self):
        self.probe(max_buffered=20 << 20, max_body=1 << 24)
        head = b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n"
        slow = [self.client().send(head, b"x" * 4000000) for _ in range(3)]
        wait_until(lambda: self.metric("http_buffered_bytes") >= 12000000, "the bodies")
        body = b"y" * 12000000
        replies = []

        def put():
            try:
                replies.append(self.p.post("/echo", body))
            except harness.UNREACHABLE:  # it stood still itself, and held the most
                return False
            return replies[-1].status == 200
        wait_until(put, lambda: str(replies[-1:]))
        self.assertEqual(replies[-1].body, body)
        self.assertGreater(self.metric("http_evicted_total"), 0)
        self.assertLess(self.metric("http_buffered_bytes"), 20 << 20)
        for c in slow:
            c.close()

    def test_requests_that_wait_for_their_handler_stay(self):
        self.probe(max_buffered=7 << 20)
        waiting = [self.client().send(post("/later", b"x" * 2000000)) for _ in range(3)]
        self.said("held", 3)
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            status, headers, body, closed = self.one(post("/echo", b"x" * 2000000))
            self.assertEqual((status, headers["retry-after"], json.loads(body)["code"]), (503, "1", "overloaded"))
            self.assertTrue(closed)
            self.assertEqual(self.one(get("/echo?data=1"))[2], b"1")
            time.sleep(0.05)
        self.assertEqual(self.metric("http_evicted_total"), 0)
        self.assertNotIn("gone", self.p.log)
        self.answer_later()
        self.assertEqual([c.reply()[2] for c in waiting], [b"later"] * 3)
        self.assertEqual(self.one(post("/echo", b"x" * 2000000))[2], b"x" * 2000000)

    def test_subscribers_lag_by_design(self):
        self.probe(max_buffered=1 << 20)
        lagging = [self.client(buffer=4096).send(get("/patient")) for _ in range(20)]
        for c in lagging:
            c.until(b"\r\n\r\n")
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            self.assertEqual(self.one(get("/echo?data=1"))[2], b"1")
            time.sleep(0.02)
        self.assertEqual(self.metric("http_evicted_total"), 0)


class Crowd(Probe):
    @unittest.skipIf(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 11000, "too few descriptors allowed")
    def test_ten_thousand_idle_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (11000, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.probe(header_timeout=600000)
        before = self.memory()
        crowd = [socket.create_connection(("127.0.0.1", self.p.port)) for _ in range(10000)]
        for c in crowd:
            self.addCleanup(c.close)
        for c in crowd[:200]:
            c.sendall(get("/poll"))
        for c in crowd[200:400]:
            c.sendall(b"GET /echo HTTP/1.1\r\nHost: h\r\nX-Slow: a")
        for c in crowd[400:450]:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(get("/large?n=1000000"))
        for n in range(300):
            self.assertEqual(self.one(post("/echo", b"%d" % n))[2], b"%d" % n)
        for c in crowd[200:400]:
            c.sendall(b"b")
        for c in crowd[5000:5020]:
            c.sendall(get("/ping"))
        for c in crowd[5000:5020]:
            self.assertIn(b"OK", c.recv(4096))
        text = self.p.get("/metrics").text
        self.assertGreaterEqual(int(re.search(r"http_connections (\d+)", text).group(1)), 10000)
        if not harness.SANITIZED:
            self.assertLess(self.memory() - before, 10000 * 10000 + 50 * 1200000)


class Gone(Probe):
    def test_half_closed_clients_get_their_replies(self):
        self.probe()
        c = self.client().send(get("/later"), get("/ping")).half_close()
        self.said("held")
        self.assertEqual(self.p.get("/ping").text, "OK")
        self.answer_later()
        self.assertEqual([c.reply()[2], c.reply()[2]], [b"later", b"OK"])
        self.assertEqual(c.to_end(), b"")
        self.assertNotIn("gone", self.p.log)
        data = self.client().send(get("/large?n=3000000")).half_close().to_end()
        self.assertEqual(len(data.split(b"\r\n\r\n", 1)[1]), 3000000)
        c = self.client(buffer=4096).send(get("/pump?n=1000000")).half_close()
        self.assertEqual(c.reply()[2].count(b"\0"), 1000000)
        self.assertEqual(c.to_end(), b"")

    def test_polls_and_streams_of_closed_clients_are_gone(self):
        self.probe()
        self.client().send(get("/poll")).half_close()
        self.said("gone /poll")
        c = self.client().send(get("/open"))
        c.reply(head=True)
        c.close()
        self.said("gone /open")

    def test_reset(self):
        self.probe()
        c = self.client().send(get("/later"))
        self.said("held")
        c.reset()
        self.said("gone /later")
        self.answer_later()
        self.assertEqual(self.p.get("/ping").text, "OK")

    def test_a_body_cut_short(self):
        self.probe()
        c = self.client().send(b"POST /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        c.close()
        wait_until(lambda: self.connections() == 1, "the end of the connection")
        c = self.client().send(get("/ping"), b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc").half_close()
        self.assertTrue(c.to_end().endswith(b"OK"))

    def test_server_freed_with_open_requests(self):
        self.probe()
        clients = [self.client().send(get(t)) for t in ("/later", "/poll", "/open")]
        clients.append(self.client().send(b"POST /sum HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc"))
        clients.append(self.client().send(get("/pump?n=1000000000")))
        self.said("held", 3)
        wait_until(lambda: self.connections() >= 6, "all of them")
        self.p.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.p.process.wait(harness.PATIENCE), 0)
        for target in ("/later", "/poll", "/open", "/pump"):
            self.assertIn("gone " + target, self.p.log)

    def connections(self):
        m = re.search(r"^millrace_probe_http_connections (\d+)", self.p.get("/metrics").text, re.M)
        return int(m.group(1))

    def test_drain(self):
        self.probe()
        idle = self.client().send(get("/ping"))
        idle.reply()
        fresh, busy = self.client(), self.client().send(get("/later"), get("/ping"))
        part = self.client().send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
        self.said("held")
        wait_until(lambda: self.connections() >= 5, "all of them")
        self.p.process.terminate()
        self.said("draining")
        self.assertEqual((idle.to_end(), fresh.to_end()), (b"", b""))
        status, headers, body = part.send(b"bc").reply()
        self.assertEqual((status, headers["connection"], body), (200, "close", b"abc"))
        self.answer_later()
        status, headers, body = busy.reply()
        self.assertEqual((status, headers["connection"], body), (200, "close", b"later"))
        self.assertEqual(busy.to_end(), b"")
        self.assertEqual(self.p.process.wait(harness.PATIENCE), 0)


class Shown(Probe):
    def test_replies_are_counted_by_endpoint(self):
        self.probe()
        for target in ("/echo?data=1", "/echo?data=2", "/files/x", "/nowhere/1", "/nowhere/2"):
            self.p.get(target)
        text = self.p.get("/metrics").text
        for line in ('requests_total{endpoint="/echo",status="200"} 2', 'requests_total{endpoint="/files/x",status="200"} 1',
                     'requests_total{endpoint="other",status="404"} 2', 'request_seconds_count{endpoint="/echo"} 2'):
            self.assertIn("millrace_probe_" + line + "\n", text)
        self.assertNotIn("nowhere", text)

    def test_stats_and_list(self):
        self.probe()
        self.assertIsInstance(self.p.stats(), dict)
        self.assertIn("http_connections", self.p.get("/stats").text)
        self.assertEqual(self.p.get("/stats?format=xml").status, 400)
        self.assertRegex(self.p.get("/").text, r"(?m)^/echo +gives back$")


if __name__ == "__main__":
    harness.main()
