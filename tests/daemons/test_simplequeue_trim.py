"""What keeps a queue's journal long, and what does not: its segments go as their messages do."""
import harness
from harness import wait_until
from queue_test import Deep, message, number


class TrimTest(Deep):
    ARGS = ("--segment-bytes=1M", "--max-memory=1M")

    def cycle(self, q, first, end, each=1000):
        """Messages that come and go."""
        for start in range(first, end, each):
            self.fill(q, start, start + each)
            got = q.get("/mget?items=%d" % each).body.split(b"\n")
            self.assertEqual([number(m) for m in got], list(range(start, start + each)))

    def disk(self, q):
        return self.numbers(q)["disk_bytes"]

    def test_old_messages_do_not_keep_old_segments(self):
        q = self.queue(*self.ARGS)
        self.fill(q, 0, 3)
        lease, _ = self.reserve(q, "items=1&lease=3600000")
        self.expect(q.post("/bury?lease=%s&id=1&reason=why" % lease), 200)
        lease, _ = self.reserve(q, "items=1&lease=3600000")
        self.expect(q.post("/nack?lease=%s&id=2&delay=3600000" % lease), 200)
        lease, got = self.reserve(q, "items=1&lease=3600000")
        self.assertEqual(got, [(3, 1, message(2))])
        self.cycle(q, 3, 20003)
        wait_until(lambda: self.disk(q) < 6 << 20, "old segments to go")
        q.kill9()
        q = self.queue(*self.ARGS)
        numbers = self.numbers(q)
        self.assertEqual((numbers["buried"], numbers["delayed"], numbers["ready"]), (1, 1, 1))
        dead = q.get("/dead").json()["buried"]
        self.assertEqual([(b["id"], b["tries"], b["reason"], b["message"].encode()) for b in dead],
                         [("1", 1, "why", message(0))])
        lease, got = self.reserve(q, "items=5")
        self.assertEqual([(i, m) for i, _, m in got], [(3, message(2))])
        self.expect(q.post("/ack?lease=%s&id=3" % lease), 200)
        self.cycle(q, 20003, 40003)
        wait_until(lambda: self.disk(q) < 6 << 20, "they go again, said again for the second time")
        self.assertEqual(q.post("/kick?items=1").json(), {"kicked": 1})
        self.assertEqual(q.get("/get").body, message(0))

    def test_lease_numbers_rise_although_the_clock_steps_back(self):
        """What the first opening said of its numbers is trimmed; what they were is not forgotten."""
        q = self.queue(*self.ARGS)
        self.fill(q, 0, 1)
        first, _ = self.reserve(q, "items=1")
        self.expect(q.post("/ack?lease=%s&id=1" % first), 200)
        self.cycle(q, 1, 10001)
        wait_until(lambda: self.disk(q) < 6 << 20, "old segments to go")
        q = self.again(q, *self.ARGS)
        self.fill(q, 0, 1)
        second, _ = self.reserve(q, "items=1")
        self.assertGreaterEqual(int(second), int(first) + (1 << 36))


if __name__ == "__main__":
    harness.main()
