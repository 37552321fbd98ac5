"""One hundred subscribers, one of them slow and one stopped: the others get everything meanwhile, memory stays small, and
the two lose nothing."""
# seconds: 15
# full: MILLRACE_ROUNDS=20
import json
import os
import resource
import selectors
import socket
import threading
import time
import unittest
import zlib

import harness
from harness import wait_until
from pubsub_case import PubsubTest

FAST = 98
BLOCK = b"".join(b"%04d %s\n" % (i, b"z" * 444) for i in range(220))  # about 100 KB
BLOCKS = 10 * harness.rounds(10)  # more than the buffers of the slow and the stopped one hold
SMALL_FRAMES = 8 << 20


class Reader:
    """A subscriber on HTTP/1.0: after the head nothing but the stream's bytes, in the form asked for."""
    VERSION = "1.0"

    def __init__(self, path, received=None, parameters="", headers="", from_="earliest"):
        self.socket = socket.socket(socket.AF_UNIX)
        if received:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
        self.socket.connect(path)
        target = "/sub?stream=s&from=%s%s" % (from_, parameters)
        self.socket.sendall(("GET %s HTTP/%s\r\nHost: h\r\n%s\r\n" % (target, self.VERSION, headers)).encode())
        self.head, self.n, self.sum = b"", 0, 0

    def take(self, data):
        if self.head is not None:
            self.head += data
            if b"\r\n\r\n" not in self.head:
                return
            data, self.head = self.head.split(b"\r\n\r\n", 1)[1], None
        self.take_body(data)

    def take_body(self, data):
        self.n += len(data)
        self.sum = zlib.crc32(data, self.sum)


class ChunkedReader(Reader):
    """The same on HTTP/1.1: what arrives is taken apart."""

    VERSION = "1.1"
    size, left = b"", 0  # of a chunk's line, and of its bytes with their CR LF

    def take_body(self, data):
        while data:
            if not self.left:
                line, lf, data = data.partition(b"\n")
                self.size += line
                if lf:
                    self.left, self.size = int(self.size, 16) + 2, b""
            super().take_body(data[:max(0, min(len(data), self.left - 2))])
            used = min(len(data), self.left)
            self.left -= used
            data = data[used:]


class Slow(PubsubTest):
    def reader(self, kind=Reader, **kw):
        r = kind(self.path("p.sock"), **kw)
        self.addCleanup(r.socket.close)
        return r

    def resident(self, p):
        with open("/proc/%d/status" % p.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))

    def drain(self, readers, length):
        """Reads all of them until each has `length` bytes."""
        with selectors.DefaultSelector() as s:
            for r in readers:
                r.socket.setblocking(False)
                s.register(r.socket, selectors.EVENT_READ, r)
            left, end = len(readers), time.monotonic() + harness.PATIENCE * 3
            while left and time.monotonic() < end:
                for key, _ in s.select(1):
                    r = key.data
                    data = r.socket.recv(1 << 18)
                    if not data:
                        raise AssertionError("a response ended after %d bytes" % r.n)
                    r.take(data)
                    if r.n >= length:
                        s.unregister(r.socket)
                        left -= 1
            self.assertEqual(left, 0, "readers that did not get everything")

    def clients(self, p):
        return p.get("/clients?format=json").json()["clients"]

    def states(self, p):
        return {c["state"] for c in self.clients(p)}

    def used(self, p):
        return {int(fd) for fd in os.listdir("/proc/%d/fd" % p.pid)}

    def test_who_gave_up_waiting_for_a_descriptor_leaves_his_own(self):
        self.give_up_waiting("")

    def test_so_does_who_wanted_only_what_is_there(self):
        self.give_up_waiting("&follow=0")

    def give_up_waiting(self, parameters):
        """Connections hold all there are, so that their subscribers' files cannot be opened, and then they leave."""
        p = self.pubsub()
        self.pub(b"line\n" * 50)
        clients = [harness.connect(self.url) for _ in range(20)]
        for c in clients:
            self.addCleanup(c.close)
            c.request("GET", "/ping")
            self.assertEqual(c.getresponse().read(), b"OK")  # it has its descriptor
        limits = resource.prlimit(p.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        for c in clients:
            c.request("GET", "/sub?stream=s&from=earliest" + parameters)
        wait_until(lambda: "a read waits: out of descriptors or memory" in p.log, lambda: p.log)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (max(self.used(p)) + 1, limits[1]))
        for c in clients:
            c.close()
        self.assertEqual(self.pub(b"line\n").status, 200)
        self.assertEqual(self.sub().body, b"line\n" * 51)

    def test_what_clients_cannot_take_is_left_for_files(self):
        """Clients take all descriptors that are allowed for them. The next client gets 503, and the others are served."""
        p = self.pubsub()
        self.pub(b"line\n" * 50)
        limits = resource.prlimit(p.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (max(self.used(p)) + 80, limits[1]))
        clients = []
        while True:
            c = harness.connect(self.url)
            self.addCleanup(c.close)
            c.request("GET", "/ping")
            reply = c.getresponse()
            reply.read()
            if reply.status != 200:
                break
            clients.append(c)
            self.assertLess(len(clients), 80, "some are kept for files")
        self.assertEqual((reply.status, reply.headers["Retry-After"]), (503, "1"))
        clients[0].request("POST", "/pub?stream=new", b"line\n")
        self.assertEqual(clients[0].getresponse().status, 200)
        for c in clients[1:]:
            c.request("GET", "/sub?stream=s&from=earliest&follow=0")
        self.assertEqual({c.getresponse().read() for c in clients[1:]}, {b"line\n" * 50})

    def get_json(self, c, path):
        c.request("GET", path)
        return json.loads(c.getresponse().read())

    def parts(self, text):
        """As multipart has them."""
        part = b"content-type: */*\r\ncontent-length: %d\r\n\r\n%s\r\n--xXPubSubXx\r\n"
        return b"--xXPubSubXx\r\n" + b"".join(part % (len(line), line) for line in text.splitlines())

    def test_who_is_behind_needs_no_file_of_his_own(self):
        """Stopped readers of parts share the open files. Descriptors for other uses stay free, so the next reader gets 503."""
        p = self.pubsub("--segment-bytes=64K")
        for _ in range(8):
            self.pub(BLOCK)
        control = harness.connect(self.url)
        self.addCleanup(control.close)
        self.get_json(control, "/streams")
        limits = resource.prlimit(p.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (max(self.used(p)) + 100, limits[1]))
        readers, places, status = [], [], b""
        while b" 503 " not in status and len(readers) < 100:
            places.append(len(readers) % 4 * len(BLOCK))
            r = self.reader(received=4096, parameters="&multipart=1", from_=places[-1])
            r.socket.settimeout(harness.PATIENCE)
            status = r.socket.recv(1024)
            r.take(status)
            readers.append(r)
        self.assertIn(b"Retry-After: ", status)
        self.assertGreater(len(readers), 60)
        readers.pop()
        wait_until(lambda: [c["state"] for c in self.get_json(control, "/clients?format=json")["clients"]] ==
                   ["blocked"] * len(readers), "all to be blocked")
        control.request("POST", "/pub?stream=new", b"line\n")
        self.assertEqual(control.getresponse().read().count(b'"lines":1'), 1)
        self.assertIn(b" 503 ", self.reader().socket.recv(1024))
        self.assertNotIn("lacks", p.log)
        for k in range(4):
            text = self.parts(BLOCK * (8 - k))
            chosen = [r for r, place in zip(readers, places) if place == k * len(BLOCK)]
            self.drain(chosen, len(text))
            self.assertEqual({(r.n, r.sum) for r in chosen}, {(len(text), zlib.crc32(text))})

    def test_without_a_descriptor_a_new_stream_is_refused_by_that_name(self):
        """No other request is refused: existing streams take lines, and new streams are made once a descriptor is free again."""
        p = self.pubsub(sync="0")
        self.pub(b"one\n")
        control = harness.connect(self.url)
        self.addCleanup(control.close)
        self.get_json(control, "/streams")
        limits = resource.prlimit(p.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        control.request("POST", "/pub?stream=new", b"line\n")
        reply = control.getresponse()
        self.assertEqual((reply.status, reply.headers["Retry-After"]), (503, "1"))
        problem = json.loads(reply.read())
        self.assertEqual(problem["code"], "out-of-descriptors")
        self.assertIn("out of file descriptors", problem["detail"])
        control.request("POST", "/pub?stream=s", b"two\n")
        self.assertEqual(json.loads(control.getresponse().read())["lines"], 1)
        resource.prlimit(p.pid, resource.RLIMIT_NOFILE, limits)
        self.assertEqual(self.pub(b"line\n", stream="new").status, 200)
        self.assertEqual(p.get("/health").status, 200)
        self.assertEqual((self.sub().body, self.sub(stream="new").body), (b"one\ntwo\n", b"line\n"))

    def limited(self, files):
        script = self.write("limited", '#!/bin/sh\nulimit -n %d\nexec %s "$@"\n' % (files, harness.program("pubsub")))
        os.chmod(script, 0o700)
        return self.start(script, "--data-dir=" + self.path("p"), "--sync=never", listen=self.url)

    def test_streams_leave_descriptors_for_connections_and_for_the_next_start(self):
        """Any client can make streams until there is no room."""
        name = lambda: sorted(os.listdir(self.path("p", "streams")))
        p = self.limited(256)
        made = []
        for i in range(200):
            reply = self.pub(b"line\n", stream="s%d" % i)
            if reply.status != 200:
                break
            made.append("s%d" % i)
        self.assertEqual((reply.status, reply.json()["code"]), (503, "out-of-descriptors"))
        self.assertGreater(len(made), 40)
        for i in range(4):
            self.assertEqual(self.pub(b"line\n", stream="t%d" % i).status, 503)
        self.assertEqual(name(), sorted(made))
        held = [harness.connect(self.url) for _ in range(50)]
        for c in held:
            self.addCleanup(c.close)
            c.request("GET", "/ping")
            self.assertEqual(c.getresponse().read(), b"OK")
        self.assertEqual(self.pub(b"line\n", stream=made[0]).status, 200)
        p.kill9()
        os.mkdir(self.path("p", "streams", "refused"))  # an empty directory has no stream
        self.limited(256)
        self.assertEqual(name(), sorted(made))
        self.assertEqual(self.sub(stream=made[0]).body, b"line\nline\n")

    def creep(self, r, stop):
        """1 KB/s."""
        r.socket.settimeout(harness.PATIENCE)
        while not stop.wait(0.1):
            r.take(r.socket.recv(102))

    def test_a_hundred(self):
        p = self.pubsub("--write-timeout=1s")
        self.pub(b"start\n")
        before = self.resident(p)
        fast = [self.reader() for _ in range(FAST)]
        slow, stopped = self.reader(received=4096), self.reader(received=4096)
        wait_until(lambda: p.stats()["current_connections"] == FAST + 2, "all to be there")
        stop = threading.Event()
        creeper = threading.Thread(target=self.creep, args=(slow, stop))
        creeper.start()
        text = b"start\n" + BLOCK * BLOCKS

        def publish():
            for _ in range(BLOCKS):
                self.pub(BLOCK)
        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            self.drain(fast, len(text))
        finally:
            publisher.join()
            stop.set()
            creeper.join()
        expected = zlib.crc32(text)
        self.assertEqual({(r.n, r.sum) for r in fast}, {(len(text), expected)})
        wait_until(lambda: self.states(p) == {"waiting", "blocked"}, lambda: "nobody to be on the way: %s" % self.states(p))
        print("memory: %.1f KiB a subscriber" % ((self.resident(p) - before) / (FAST + 2)))
        self.assertLessEqual(max(c["unsent_bytes"] for c in self.clients(p)), 64 * 1024)
        self.assertLess(slow.n, len(text) // 2)
        self.drain([slow, stopped], len(text))
        self.assertEqual({(r.n, r.sum) for r in (slow, stopped)}, {(len(text), expected)})

    def test_all_stopped_cost_a_bounded_buffer(self):
        """All buffers of the sockets are full. The daemon holds a bounded number of bytes for each subscriber."""
        p = self.pubsub()
        for _ in range(20):
            self.pub(BLOCK)
        before = self.resident(p)
        readers = [self.reader(received=4096) for _ in range(40)]
        wait_until(lambda: sum(c["state"] == "blocked" for c in self.clients(p)) == 40, "all to be blocked")
        unsent = [c["unsent_bytes"] for c in self.clients(p)]
        self.assertLessEqual(max(unsent), 64 * 1024)
        print("memory: %.1f KiB a stopped subscriber" % ((self.resident(p) - before) / 40))
        self.drain(readers, 20 * len(BLOCK))
        self.assertEqual({r.sum for r in readers}, {zlib.crc32(BLOCK * 20)})

    def metric(self, p, name):
        start = "millrace_pubsub_%s " % name
        return int(next(m for m in p.get("/metrics").text.splitlines() if m.startswith(start))[len(start):])

    def stop_in_small_frames(self, p, readers):
        """Each reads as fast as it can, up to a place of its own, and stops there."""
        for i, r in enumerate(readers):
            self.drain([r], SMALL_FRAMES // 8 + i * SMALL_FRAMES // 2 // len(readers))
        wait_until(lambda: self.states(p) == {"blocked"}, lambda: "all to be blocked: %s" % self.states(p))

    def publish_small_frames(self):
        frame = b"".join(b"%04d %s\n" % (i, b"z" * 444) for i in range(22))
        n = SMALL_FRAMES // len(frame)
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        for _ in range(n):
            c.request("POST", "/pub?stream=s", frame)
            r = c.getresponse()
            self.assertEqual((r.status, r.read()[:9]), (200, b"{\"stream\""))
        return frame * n

    def test_who_stops_among_small_frames_gives_back_what_it_was_lent(self):
        """A reader that is far behind is sent large windows of the stream. Each stopped reader would otherwise keep a window."""
        p = self.pubsub()
        text = self.publish_small_frames()
        before = self.resident(p)
        readers = [self.reader(kind, parameters=what) for what in ("", "&follow=0") for kind in (Reader, ChunkedReader)
                   for _ in range(40)]
        self.stop_in_small_frames(p, readers)
        def grown(): return (self.resident(p) - before) / len(readers)
        if not harness.SANITIZED:
            wait_until(lambda: grown() < 64, lambda: "%.1f KiB a stopped subscriber" % grown())
            print("memory: %.1f KiB a stopped subscriber" % grown())
        some = readers[::8]
        self.drain(some, len(text))
        self.assertEqual({(r.n, r.sum) for r in some}, {(len(text), zlib.crc32(text))})

    def heartbeats(self):
        """An event stream on which nothing happens: each `next` is a heartbeat, before which the daemon's tick has passed."""
        self.assertEqual(self.pub(b"x\n", stream="quiet").status, 200)
        c = harness.connect(self.url)
        self.addCleanup(c.close)
        c.request("GET", "/sub?stream=quiet", headers={"Accept": "text/event-stream"})
        lines = iter(c.getresponse().readline, b"")
        return (line for line in lines if line == b":\n")

    def read_up_to(self, r, place):
        r.socket.settimeout(harness.PATIENCE)
        while r.n < place:
            data = r.socket.recv(1 << 17)
            self.assertTrue(data, "a response ended after %d bytes" % r.n)
            r.take(data)

    def test_stop_and_go(self):
        """Readers stop at any place, for longer than the daemon's tick, and go on: each has every byte once, in order."""
        chance = harness.seeded()
        p = self.pubsub("--heartbeat=100ms", "--segment-bytes=1M")
        text, sizes = bytearray(), [450] * 60 + [4500] * 80 + [30000] * 6 + [200000] * 2
        for n in range(1000 if harness.rounds(1) == 1 else 2500):
            frame = b"%08d %s\n" % (n, b"z" * chance.choice(sizes))
            self.assertEqual(self.pub(frame).status, 200)
            text += frame
        kinds = [Reader, ChunkedReader] * 6
        readers = [self.reader(kind, parameters=what) for kind, what in zip(kinds, [""] * 6 + ["&follow=0"] * 6)]
        ticks = self.heartbeats()
        while any(r.n < len(text) for r in readers):
            for r in readers:
                self.read_up_to(r, min(len(text), r.n + chance.choice([0, 1000, 100000, 700000, 3000000])))
            for _ in range(chance.choice([0, 1, 2])):
                next(ticks)
        self.assertEqual({(r.n, r.sum) for r in readers}, {(len(text), zlib.crc32(bytes(text)))})
        self.assertEqual((self.metric(p, "sent_bytes_total"), self.metric(p, "sent_lines_total")),
                         (len(readers) * len(text), len(readers) * text.count(b"\n")), "what is sent twice counts once")

    def test_short_lines_do_not_make_large_events(self):
        """Events and parts are up to sixty times as long as their lines, so they are only made when the reader takes them."""
        p = self.pubsub()
        n = 100000
        self.pub(b"x\n" * n)
        forms = [self.reader(received=4096, headers="Accept: text/event-stream\r\n") for _ in range(5)]
        forms += [self.reader(received=4096, parameters="&multipart=1") for _ in range(5)]
        wait_until(lambda: sum(c["state"] == "blocked" for c in p.get("/clients?format=json").json()["clients"]) == 10,
                   "all to be blocked")
        unsent = [c["unsent_bytes"] for c in p.get("/clients?format=json").json()["clients"]]
        self.assertLessEqual(max(unsent), 64 * 1024)
        part = b"content-type: */*\r\ncontent-length: 1\r\n\r\nx\r\n--xXPubSubXx\r\n"
        self.drain(forms[5:], 14 + n * len(part))
        self.assertEqual({r.sum for r in forms[5:]}, {zlib.crc32(b"--xXPubSubXx\r\n" + part * n)})
        identity = p.get("/streams").json()["streams"][0]["id"].encode()
        events = b"retry: 1000\nid: 0:%s\n\n" % identity
        opening = self.sub("latest").header("X-Millrace-Opening").encode()
        events += b"".join(b"data: x\nid: %d:%s.%s\n\n" % (2 * i + 2, identity, opening) for i in range(n))
        self.drain(forms[:5], len(events))
        self.assertEqual({r.sum for r in forms[:5]}, {zlib.crc32(events)})


if __name__ == "__main__":
    unittest.main()
