"""Clients of simplequeue that want it to lose something, to hold memory for them, or to stand still."""
# seconds: 15
# full: MILLRACE_ROUNDS=4
import gzip
import json
import signal
import socket
import threading
import time

import harness
from harness import wait_until
from queue_test import Deep, InMemory, QueueTest, message, number


# What is written, and what is meant; nothing like it is there: None.
STRANGE = [
    ("/reserve?lesae=30", "lease"), ("/reserve?item=5", "items"), ("/reserve?lease=60000&producer=p", None), ("/reserve?wiat=9", "wait"),
    ("/ack?lease=LEASE&id=1&extend=no", None), ("/ack?lease=LEASE&ids=1", "id"), ("/nack?lease=LEASE&id=1&dealy=5", "delay"),
    ("/bury?lease=LEASE&id=1&raeson=x", "reason"), ("/touch?lease=LEASE&extnd=60000", "extend"), ("/touch?lease=LEASE&id=1", None),
    ("/release?raeder=r", "reader"), ("/release?queu=new", "queue"), ("/reserve?folow=1", "follow"), ("/reserve?epoch=1", None), ("/reserve?next=1", None),
    ("/ack?lease=LEASE&id=1&destination=d", None), ("/release?destination=d", None), ("/follow?raeder=r", "reader"),
    ("/unfollow?setle=1", "settle"), ("/unfollow?reader=r", None), ("/producer?producer=p&quue=other", "queue"), ("/dead?form=5", "from"),
    ("/kick?item=1", "items"), ("/pause?fro=0", "for"), ("/pause?quueue=other", "queue"), ("/empty?queu=other", "queue"),
    ("/put?delya=60000", "delay"), ("/put?nxt=2", "next"), ("/put?quue=new", "queue"), ("/mput?seperator=;", "separator"),
    ("/mput?producer=p&mark=0&nex=5", "next"), ("/get?queu=other", "queue"), ("/mget?item=5", "items"), ("/dump?form=2", "from"),
    ("/put?DELAY=60000", "delay"), ("/put?Queue=new", "queue"), ("/mput?SEPARATOR=;", "separator"), ("/mget?ITEMS=2", "items"),
    ("/dump?FROM=2", "from"), ("/get?QUEUE=other", "queue"), ("/reserve?Lease=60000", "lease"), ("/empty?QUEUE=other", "queue"),
]


def read_to_end(s):
    out = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            return out
        out += piece


class MemoryTest(InMemory, Deep):
    def test_small_messages_are_counted_as_what_they_take(self):
        """A byte a message costs 25 in memory: the bound is of memory, not of bytes."""
        q = self.queue("--max-memory=8M")
        for _ in range(100):
            reply = q.post("/mput", b"x\n" * 20000)
            if reply.status != 200:
                break
        self.expect(reply, 503, "queue-full")
        self.assertGreater(self.numbers(q)["depth"], 200000)
        self.assert_small(q, 40 << 20)
        q.get("/mget?items=10000")
        q.get("/mget?items=10000")
        self.expect(q.post("/mput", b"x\n" * 20000), 200)

    def test_delays_are_counted_too(self):
        q = self.queue("--max-memory=8M")
        for _ in range(100):
            reply = q.post("/mput?delay=3600000", b"x\n" * 10000)
            if reply.status != 200:
                break
        self.expect(reply, 503, "queue-full")
        self.assertGreater(self.numbers(q)["delayed"], 50000)
        self.assert_small(q, 24 << 20)

    def test_leases_are_counted_too(self):
        """One of each message costs several times what its byte does: 1 MiB is full after some 6,000 instead of 40,000."""
        q = self.queue("--max-memory=1M")
        c, leased = harness.connect(q.url), 0
        self.addCleanup(c.close)
        while q.post("/mput", b"x\n" * 500).status == 200 and leased < 12000:
            for _ in range(500):
                c.request("GET", "/reserve?lease=600000")
                self.assertTrue(c.getresponse().read())
            leased += 500
        self.expect(q.post("/mput", b"x\n" * 500), 503, "queue-full")
        self.assertIn(leased, range(4000, 9000))

    def test_few_that_stay_do_not_keep_the_memory_of_the_many_that_go(self):
        """One in a hundred is buried, in every order of acknowledging; those bytes are still what they were."""
        q = self.queue("--max-memory=4M")
        n, stay = 30000 * harness.rounds(3), []  # several times the memory that is allowed
        for start in range(0, n, 2000):
            self.fill(q, start, start + 2000)
            lease, got = self.reserve(q, "items=2000")
            stay += [number(m) for _, _, m in got[::100]]
            self.expect(q.post("/bury?reason=no&lease=%s" % lease, b",".join(b"%d" % i for i, _, _ in got[::100])), 200)
            ids = [i for i, _, _ in got]
            halves = ((ids[1000], ids[-1]), (ids[0], ids[999])) if start % 4000 else ((ids[0], ids[-1]),)
            for first, last in halves:
                self.expect(q.post("/ack?lease=%s&id=%d-%d" % (lease, first, last)), 200)
        self.assertEqual(len(stay), n // 100)
        self.assert_small(q, 24 << 20)
        for start in range(0, len(stay), 300):
            self.assertEqual(q.post("/kick?items=300").json(), {"kicked": 300})
            got = q.get("/mget?items=300").body.split(b"\n")
            self.assertEqual(got, [message(i) for i in stay[start:start + 300]])
        self.assertEqual(self.numbers(q)["bytes"], 0)

    def test_a_long_separator_makes_no_long_reply(self):
        q = self.queue()
        q.post("/mput", b"\n".join(b"%d" % i for i in range(3000)))
        separator, out = "s" * 20000, []
        while len(out) < 3000:
            reply = self.expect(q.get("/mget?items=10000&separator=" + separator), 200)
            self.assertLess(len(reply.body), 17 << 20)
            self.assertTrue(reply.body.endswith(b"s"), "as always when fewer came than were asked for")
            out += reply.body.split(separator.encode())[:-1]
        self.assertEqual(out, [b"%d" % i for i in range(3000)])
        q.post("/mput", b"a\nb")
        self.assertEqual(q.get("/mget?items=2&separator=" + separator).body, b"a" + separator.encode() + b"b")

    def test_a_reserve_without_a_bound_has_one(self):
        q = self.queue("--max-mget=0")
        for _ in range(3):
            self.expect(q.post("/mput", b"x\n" * 200000), 200)
        lease, got = self.reserve(q, "items=600000&lease=600000")
        self.assertEqual(len(got), (16 << 20) // 64)
        self.assertEqual(q.post("/ack?lease=%s&id=1-600000" % lease).json(), {"acked": len(got)})
        self.assertEqual(self.numbers(q)["depth"], 600000 - len(got))


class Everywhere:
    """What holds in memory and on disk."""

    def talk(self, q, text, end=False):
        """All that comes back on one connection, whose sending side is shut first when `end`."""
        with socket.create_connection(("127.0.0.1", int(q.url.rsplit(":", 1)[1])), harness.PATIENCE) as s:
            s.sendall(text)
            if end:
                s.shutdown(socket.SHUT_WR)
            return read_to_end(s)

    def test_many_delays_due_at_once(self):
        """They become ready in the order of their puts, and nobody else waits for that, over a kill too."""
        n, late = 30000, 1500
        q = self.queue("--max-memory=64M")
        began = time.monotonic()
        self.expect(q.post("/mput?delay=%d" % late, b"\n".join(b"%d" % i for i in range(n))), 200)
        q = self.survivor(q)
        worst = 0
        while self.numbers(q)["delayed"]:
            since = time.monotonic()
            self.expect(q.get("/ping"), 200)
            worst = max(worst, time.monotonic() - since)
            time.sleep(0.01)
        self.assertLess(worst, harness.SOON)
        self.assertGreater(time.monotonic() - began, late / 1000 - 0.5)
        out = []
        while len(out) < n:
            lease, got = self.reserve(q, "items=10000")
            self.assertEqual([i for i, _, _ in got], list(range(n + 1 + len(out), n + 1 + len(out) + len(got))))
            out += [int(m) for _, _, m in got]
            self.expect(q.post("/ack?lease=%s&id=1-%d" % (lease, 2 * n)), 200)
        self.assertEqual(out, list(range(n)))

    def test_requests_behind_each_other(self):
        """Each sees what those before it did, in one packet and with the sending side shut."""
        q = self.queue()
        post = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        get = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
        text = b"".join((post % (b"/put", 5, b"GET /"), post % (b"/mput", 3, b"b\nc"), get % b"/get",
                         get % b"/reserve?items=2&lease=60000", get % b"/get", post % (b"/release", 0, b""), get % b"/get"))
        out = self.talk(q, text, end=True)
        bodies = [part.split(b"\r\n\r\n", 1)[1] for part in out.split(b"HTTP/1.1 200 OK\r\n")[1:]]
        self.assertEqual((len(bodies), bodies[2:5], bodies[6]), (7, [b"GET /", b"2 1 1\nb\n3 1 1\nc\n", b""], b"b"))
        self.assertIn(b'"released":2', bodies[5])
        self.assertEqual(self.numbers(q)["depth"], 1)

    def test_half_closed_clients_get_large_messages_whole(self):
        """Also those that begin to read late."""
        q = self.queue("--max-message=16M")
        text = bytes(range(256)) * 20000
        for target, n in (("/get", 1), ("/mget?items=2&separator=%0A", 2)):
            for _ in range(n):
                self.expect(q.post("/put", text), 200)
            c = harness.connect(q.url)
            self.addCleanup(c.close)
            c.request("GET", target)
            c.sock.shutdown(socket.SHUT_WR)
            wait_until(lambda: self.numbers(q)["depth"] == 0, "it to be taken")
            self.assertEqual(c.getresponse().read(), b"\n".join([text] * n))

    def test_smuggled_requests_are_not_done(self):
        q = self.queue()
        q.post("/put", b"stays")
        hidden = b"GET /get HTTP/1.1\r\nHost: x\r\n\r\n"
        for head, body in ((b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
                           (b"Content-Length: 1\r\nContent-Length: 2", b"xx"),
                           (b"Transfer-Encoding: chunked, identity", b"1\r\nx\r\n0\r\n\r\n"),
                           (b"Transfer-Encoding : chunked", b"1\r\nx\r\n0\r\n\r\n"),
                           (b"Content-Length: +1", b"x"), (b"Content-Length: 99999999999999999999", b"x"),
                           (b"Transfer-Encoding: chunked", b"1;\r\nx\n0\r\n\r\n"), (b"X: y\r\n Content-Length: 1", b"x")):
            out = self.talk(q, b"POST /put HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + body + hidden)
            self.assertTrue(out.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b"HTTP/1.1 501 ")), (head, out))
            self.assertEqual(out.count(b"\r\nServer: "), 1, (head, out))
        self.assertEqual((self.numbers(q)["depth"], self.numbers(q)["gets"]), (1, 0))

    def test_head_takes_nothing(self):
        q = self.queue()
        q.post("/put", b"x")
        lease, _ = self.reserve(q, "reader=r")
        leased = "lease=%s&id=1" % lease
        for target in ("/get", "/mget?items=5", "/reserve", "/put?data=y", "/mput?data=y", "/ack?" + leased, "/nack?" + leased,
                       "/bury?" + leased, "/touch?lease=%s&extend=1" % lease, "/release?reader=r", "/follow?reader=r", "/unfollow", "/kick"):
            refused = harness.request(q.url, "HEAD", target)
            self.assertEqual((refused.status, refused.header("Allow")), (405, "GET, POST"), target)
        for target in ("/stats", "/dump", "/dead", "/producer?producer=p", "/ping"):
            self.assertEqual(harness.request(q.url, "HEAD", target).status, 200, target)
        numbers = self.numbers(q)
        self.assertEqual((numbers["puts"], numbers["leased"], numbers["leases"]), (1, 1, 1))

    def test_a_body_that_never_ends_stores_nothing(self):
        q = self.queue("--body-timeout=300ms")
        for text in (b"POST /put HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf",
                     b"POST /mput HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na\nb\nc\r\n"):
            self.talk(q, text, end=True)
            self.talk(q, text)
        self.assertEqual(q.stats()["puts"], 0)

    def test_a_parameter_that_an_endpoint_does_not_have_does_nothing_else(self):
        """An unknown or repeated parameter is refused by its name, before the request does anything. bitly's endpoints refuse only misspelt
        parameters of theirs."""
        q = self.queue("--allow-exit")
        q.post("/mput", b"a\nb")
        q.post("/put?queue=other", b"stays")
        lease, _ = self.reserve(q, "items=1&lease=600000")
        before = self.numbers(q)
        for target, meant in STRANGE:
            with self.subTest(target):
                problem = self.expect(q.post(target.replace("LEASE", lease), b"x"), 400, "unknown-parameter").json()
                self.assertEqual("did you mean %s?" % meant in problem["hint"], meant is not None, problem)
        for target in ("/reserve?items=1&items=5", "/ack?lease=%s&id=1&id=2" % lease, "/pause?for=0&for=9"):
            self.assertIn("more than once", self.expect(q.post(target), 400, "bad-parameter").json()["detail"])
        self.assertEqual(self.numbers(q), before)
        self.assertEqual(q.get("/get?queue=other").body, b"stays")
        self.assertEqual(sorted(q.stats()["queues"]), ["default", "other"])

    def test_few_bytes_that_stand_for_many(self):
        """16 MB of line ends in 16 KB, alone and pipelined, and from a client that shuts down its sending side."""
        q = self.queue()
        encoded = {"Content-Encoding": "gzip"}
        many = gzip.compress(b"\n" * (16 << 20))
        self.expect(q.post("/mput", many, headers=encoded), 200)
        self.expect(q.post("/mput", gzip.compress(b"\n" * (8 << 20) + b"a\n" + b"\n" * (8 << 20) + b"b"), headers=encoded), 413, "too-large")
        self.expect(q.post("/mput", gzip.compress(b"\n" * (8 << 20) + b"a\n" + b"\n" * (7 << 20) + b"b"), headers=encoded), 200)
        self.expect(q.post("/mput?separator=ab", gzip.compress(b"ab" * (4 << 20) + b"c" + b"ab" * 99), headers=encoded), 200)
        head = b"POST /mput HTTP/1.1\r\nHost: q\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(many)
        c = harness.connect(q.url)
        self.addCleanup(c.close)
        c.connect()
        c.sock.sendall((head + many) * 3 + b"GET /get HTTP/1.1\r\nHost: q\r\n\r\n")
        c.sock.shutdown(socket.SHUT_WR)
        replies = read_to_end(c.sock)
        self.assertEqual(replies.count(b"HTTP/1.1 200"), 4, replies)
        self.assertTrue(replies.endswith(b"\r\n\r\na"), replies)
        self.assertEqual(q.get("/mget?items=9").body, b"b\nc\n")
        most = gzip.compress(b"x\n\n" * 262144)
        self.expect(q.post("/mput?queue=most", most, headers=encoded), 200)
        self.expect(q.post("/mput?queue=most", gzip.compress(b"x\n" * 262145), headers=encoded), 413, "too-large")
        self.assertEqual(self.numbers(q, "most")["depth"], 262144)

    def test_every_endpoint_with_get_takes_post(self):
        """As the protocol says, unless it says what POST does."""
        q = self.queue("--allow-exit")
        for target in ("/put?data=a", "/mput?data=a", "/get", "/mget", "/dump", "/reserve", "/dead", "/producer?producer=p", "/stats?format=json",
                       "/stats?reset=1"):
            self.expect(q.post(target), 200)
        self.assertEqual(q.post("/stats?format=json").json().keys(), q.stats().keys())

    def test_what_bitlys_clients_add_is_passed_over(self):
        q = self.queue()
        self.expect(q.post("/put?lease=x&items=y&_=1", b"1"), 200)
        self.expect(q.get("/put?data=2&data=3&user=me&ts=17&callback=f"), 200)
        self.expect(q.post("/mput?_=2&wait=no", b"4\n5"), 200)
        self.assertEqual(q.get("/dump?_=3&format=json").body, b"1\n2\n4\n5\n")
        self.assertEqual(q.get("/mget?items=3&_=4&lease=none").body, b"1\n2\n4")
        self.assertEqual(q.get("/get?items=0&_=5").body, b"5")


class EverywhereInMemory(Everywhere, InMemory, QueueTest):
    def survivor(self, q):
        return q


class EverywhereOnDisk(Everywhere, Deep):
    def survivor(self, q):
        return self.again(q, "--max-memory=64M")


class DeepTest(Deep):
    def test_dumps_of_what_is_on_disk_share_their_memory(self):
        q = self.queue("--max-memory=1M", "--max-body=4M", "--max-buffered=16M")
        self.fill(q, 0, 40000)
        threads, replies = [], []

        def take(c):
            try:
                replies.append(c.getresponse().read())
            except harness.UNREACHABLE:
                pass  # it held the most and took nothing while the others were sent theirs
        q.process.send_signal(signal.SIGSTOP)
        for _ in range(40):
            c = harness.connect(q.url, 3 * harness.PATIENCE)
            self.addCleanup(c.close)
            c.request("GET", "/dump")
            threads.append(threading.Thread(target=take, args=(c,)))
        q.process.send_signal(signal.SIGCONT)  # so all are under way before the first is done
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assert_small(q, 120 << 20)
        for dumped in replies:
            if dumped[:1] != b"{":
                got = [number(m) for m in dumped.split(b"\n")[:-1]]
                self.assertEqual(got, list(range(len(got))))
        out, start = [], "1"
        while start:
            reply = self.expect(q.get("/dump?from=" + start), 200)
            out += [number(m) for m in reply.body.split(b"\n")[:-1]]
            start = reply.header("X-Millrace-Next")
        self.assertEqual(out, list(range(40000)))

    PUT = b"POST /put?queue=q%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
    STATS = b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    def ask_for_queues(self, q, n, more=b""):
        """A put to each of many new queues, all sent before any is answered: the connections."""
        port = int(q.url.rsplit(":", 1)[1])
        connections = [socket.create_connection(("127.0.0.1", port), harness.PATIENCE) for _ in range(n)]
        for number, c in enumerate(connections):
            self.addCleanup(c.close)
            c.sendall(self.PUT % number + more)
        return connections

    def test_many_new_queues_keep_nobody_waiting(self):
        """A new queue costs several syncs, so other clients are served in between: a client that asks for the queues right after its put
        sees few at first."""
        n = 60
        q = self.queue("--max-queues=%d" % n)
        made, refused = [], []
        for i, c in enumerate(self.ask_for_queues(q, n + 5, self.STATS)):
            replies = read_to_end(c)
            made.append(len(json.loads(replies.rsplit(b"\r\n\r\n", 1)[1])["queues"]))
            if replies.startswith(b"HTTP/1.1 503 "):
                self.assertIn(b"too-many-queues", replies)
                refused.append(i)
        self.assertEqual(len(refused), 5)
        self.assertGreater(len(set(made)), n / 4)
        q = self.again(q)
        for i in range(n + 5):
            self.assertEqual(q.get("/get?queue=q%d" % i).body, b"" if i in refused else b"x")

    def test_a_stop_while_queues_are_made(self):
        """The stop answers all waiting clients first."""
        q = self.queue("--sync=0")
        connections = self.ask_for_queues(q, 30)
        harness.wait_until(lambda: q.stats()["queues"], "the first to be made")
        q.process.terminate()
        for c in connections:
            self.assertTrue(c.recv(4096).startswith(b"HTTP/1.1 200 "))
        self.assertEqual(q.process.wait(harness.PATIENCE), 0)
        self.assertEqual(len(self.queue().stats()["queues"]), 30)

    def test_empty_of_a_deep_queue_keeps_nobody_waiting(self):
        q = self.queue("--max-memory=1M", "--allow-exit")
        n = 60000
        self.fill(q, 0, n)
        lease, got = self.reserve(q, "items=5&lease=600000")

        def answered_meanwhile():
            """A request sees a queue from which a part is deleted."""
            depths, over = set(), threading.Event()

            def look():
                while not over.is_set():
                    depths.add(self.numbers(q)["depth"])
            t = threading.Thread(target=look)
            t.start()
            self.assertEqual(q.post("/empty").json(), {"dropped": n - 5})
            over.set()
            t.join()
            if any(5 < depth < n for depth in depths):
                return True
            self.fill(q, 5, n)
        wait_until(answered_meanwhile, "a request to be answered before /empty")
        self.fill(q, n, n + 10)
        q = self.again(q, "--max-memory=1M")
        got = q.get("/mget?items=100").body.split(b"\n")[:-1]
        self.assertEqual([number(m) for m in got], list(range(5)) + list(range(n, n + 10)))


if __name__ == "__main__":
    harness.main()
