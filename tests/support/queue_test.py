"""What the tests of simplequeue share. A test class for all queues runs twice: in a class that adds InMemory, and in a class that adds
OnDisk."""
import contextlib

import harness
from harness import MillraceTest, wait_until
from small_disk import SmallDisk


def reserved(reply):
    """[(id, tries, message)] of a reserve's body."""
    out, body, at = [], reply.body, 0
    while at < len(body):
        end = body.index(b"\n", at)
        number, tries, length = map(int, body[at:end].split())
        at = end + 1 + length + 1
        out.append((number, tries, body[end + 1:at - 1]))
        assert body[at - 1:at] == b"\n"
    return out


class QueueTest(MillraceTest):
    def expect(self, reply, status, code=None):
        self.assertEqual(reply.status, status, reply)
        if code:
            self.assertEqual(reply.json()["code"], code)
            self.assertEqual(reply.header("Content-Type"), "application/problem+json")
        if status in (429, 503):
            self.assertIsNotNone(reply.header("Retry-After"))
        return reply

    def reserve(self, q, target):
        """(the number of the lease, its messages)."""
        reply = self.expect(q.get("/reserve?" + target), 200)
        return reply.header("X-Millrace-Lease"), reserved(reply)

    def pipelined(self, q, targets, at_once=100):
        """The (status, body) of a POST to each target, one request each: sent on one connection, `at_once` before their replies
        are read."""
        with contextlib.closing(harness.connect(q.url)) as c:
            c.connect()
            replies = c.sock.makefile("rb")
            for start in range(0, len(targets), at_once):
                part = targets[start:start + at_once]
                c.sock.sendall(b"".join(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % t.encode()
                                        for t in part))
                for _ in part:
                    status, length = int(replies.readline().split()[1]), 0
                    while (line := replies.readline()) != b"\r\n":
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    yield status, replies.read(length)

    def numbers(self, q, name="default"):
        """A queue's numbers, as /stats has them."""
        return q.stats()["queues"][name]

    def metric(self, q, name, queue="default"):
        """The value of one metric of a queue."""
        line = 'millrace_simplequeue_%s{queue="%s"} ' % (name, queue)
        return float(next(m for m in q.get("/metrics").text.splitlines() if m.startswith(line))[len(line):])


class InMemory:
    def queue(self, *args, **kw):
        return self.start("simplequeue", *args, **kw)


class OnDisk:
    def queue(self, *args, **kw):
        return self.start("simplequeue", "--data-dir=" + self.path("data"), "--sync=never", *args, **kw)

    def again(self, q, *args):
        """The same queue after kill -9."""
        q.kill9()
        return self.queue(*args)


def message(i, size=450):
    return b"%d " % i + b"x" * (size - len(b"%d " % i))


def number(text):
    return int(text.split(b" ", 1)[0])


class Deep(OnDisk, QueueTest):
    """Queues of numbered messages, deeper than their memory."""

    def resident(self, q, field="VmRSS"):
        with open("/proc/%d/status" % q.pid) as status:
            return int(next(line for line in status if line.startswith(field)).split()[1]) * 1024

    def assert_small(self, q, bound):
        """Checks the most memory that the queue has ever held, except in builds with a sanitizer, which needs memory itself."""
        if not harness.SANITIZED:
            self.assertLess(self.resident(q, "VmHWM"), bound)

    def fill(self, q, first, end, each=1000, size=450):
        for start in range(first, end, each):
            body = b"\n".join(message(i, size) for i in range(start, min(start + each, end)))
            self.expect(q.post("/mput", body), 200)

    def drain(self, q, first, end, items=5000):
        """Takes all messages by mget, and checks their order."""
        at = first
        while at < end:
            got = self.expect(q.get("/mget?items=%d" % items), 200).body.split(b"\n")
            self.assertEqual([number(m) for m in got], list(range(at, at + len(got))))
            self.assertTrue(len(got) == items or at + len(got) == end, "%d messages at %d" % (len(got), at))
            at += len(got)
        self.assertEqual(q.get("/get").body, b"")


class OnSmallDisk(QueueTest):
    """A queue on a disk of 4 MiB that the test fills and empties."""

    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self, "4m")

    def fill_up(self, q, size):
        """Puts messages until a put is refused. Returns the number of stored messages."""
        c = harness.connect(q.url)
        self.addCleanup(c.close)
        for i in range(100000):
            c.request("POST", "/put", message(i, size))
            r = c.getresponse()
            reply = harness.Reply(r.status, r.headers, r.read())
            if reply.status != 200:
                self.expect(reply, 503, "storage-full")
                return i
        raise AssertionError("the disk is never full")

    def open(self, *args):
        return self.start("simplequeue", "--data-dir=" + self.disk.path("data"), *args)

    def ack_one_by_one(self, q, ids):
        targets = ["/ack?lease=%s&id=%d" % pair for pair in ids]
        for (_, i), (_, body) in zip(ids, self.pipelined(q, targets)):
            self.assertEqual(body, b'{"acked":1}\n', "message %d of %d" % (i, len(ids)))

    def take_all(self, q, n, rest=True):
        """Reserves and acknowledges n messages, while the test takes all room that becomes free."""
        seen, last = [], 0

        def more():
            nonlocal last
            lease, got = self.reserve(q, "items=100&wait=500")
            ids = [i for i, _, _ in got]
            if ids:
                self.assertGreater(ids[0], last)
                last = ids[-1]
                self.expect(q.post("/ack?lease=%s&id=%d-%d" % (lease, ids[0], last)), 200)
            seen.extend(number(text) for _, _, text in got)
            if rest:
                self.disk.take_the_rest()
            return len(seen) >= n
        wait_until(more, lambda: "%d of %d messages: %s" % (len(seen), n, self.numbers(q)))
        return seen
