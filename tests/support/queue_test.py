"""What the tests of simplequeue share. A test class that says what holds everywhere is run twice: by a class that adds
InMemory, and by one that adds OnDisk."""
from harness import MillraceTest


def reserved(reply):
    """[(id, tries, message)] of a reserve's body."""
    out, body = [], reply.body
    while body:
        head, body = body.split(b"\n", 1)
        number, tries, length = map(int, head.split())
        out.append((number, tries, body[:length]))
        assert body[length:length + 1] == b"\n"
        body = body[length + 1:]
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
        """(the lease's number, what is under it)."""
        reply = self.expect(q.get("/reserve?" + target), 200)
        return reply.header("X-Millrace-Lease"), reserved(reply)

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
