"""A backlog deeper than --max-memory: it lies on disk, comes out in order, whole and once, and costs little memory."""
import glob

import harness
from harness import wait_until
from queue_test import Deep, message, number


class DeepTest(Deep):
    def dump(self, q):
        """Everything that is ready, and in how many parts it came."""
        start, out, parts = "1", [], 0
        while start:
            reply = self.expect(q.get("/dump?from=" + start), 200)
            out += [number(m) for m in reply.body.split(b"\n")[:-1]]
            start = reply.header("X-Millrace-Next")
            parts += 1
        return out, parts

    def test_every_way_out_across_the_boundary(self):
        n = 60000
        q = self.queue("--max-memory=2M")
        self.fill(q, 0, n)
        lease, got = self.reserve(q, "items=10000&lease=600000")
        self.assertEqual([number(m) for _, _, m in got], list(range(10000)))
        self.expect(q.post("/ack?lease=%s&id=1-4000" % lease), 200)
        self.expect(q.post("/bury?lease=%s&id=4001-4050,8001-8050&reason=bad" % lease), 200)
        self.assertEqual(q.post("/nack?lease=%s&id=1-8000" % lease).json(), {"nacked": 3950})
        out, parts = self.dump(q)
        self.assertEqual(out, list(range(4050, 8000)) + list(range(10000, n)))
        self.assertGreater(parts, 1)
        self.assertEqual(q.get("/get").body, message(4050))
        _, got = self.reserve(q, "items=5000&lease=600000")
        self.assertEqual([number(m) for _, _, m in got], list(range(4051, 8000)) + list(range(10000, 11051)))
        self.assertEqual({tries for _, tries, m in got if number(m) < 10000}, {2})
        dead = q.get("/dead?items=1000").json()["buried"]
        self.assertEqual([number(b["message"].encode()) for b in dead],
                         list(range(4000, 4050)) + list(range(8000, 8050)))
        self.assertEqual(q.post("/kick?items=60").json(), {"kicked": 60})
        numbers = self.numbers(q)
        self.assertEqual((numbers["buried"], numbers["next_id"]), (40, str(n + 61)))
        q.post("/release")
        self.assertEqual(self.dump(q)[0], list(range(4051, 8000)) + list(range(8050, n)) + list(range(4000, 4050)) +
                         list(range(8000, 8010)))
        self.assert_small(q, 100 << 20)

    def test_delays_come_due_from_disk(self):
        q = self.queue("--max-memory=2M")
        self.fill(q, 0, 20000)
        lease, got = self.reserve(q, "items=3000&lease=600000")
        self.expect(q.post("/nack?lease=%s&id=1-3000&delay=300" % lease), 200)
        self.fill(q, 20000, 40000)
        wait_until(lambda: self.numbers(q)["delayed"] == 0, "the delays to pass")
        out = []
        while got:
            lease, got = self.reserve(q, "items=10000")
            out += got
            if got:
                self.expect(q.post("/ack?lease=%s&id=1-99999999" % lease), 200)
        late = [m for m in out if number(m[2]) < 3000]
        self.assertEqual([number(m) for _, _, m in late], list(range(3000)))
        self.assertEqual({tries for _, tries, _ in late}, {2})
        self.assertEqual([number(m) for _, _, m in out if number(m) >= 3000], list(range(3000, 40000)))
        self.assertEqual([i for i, _, _ in out], sorted(i for i, _, _ in out))

    def test_one_at_a_time_and_waiting(self):
        q = self.queue("--max-memory=1M")
        self.fill(q, 0, 20000, size=2000)
        for i, (_, body) in enumerate(self.pipelined(q, ["/get"] * 3000)):
            self.assertEqual(number(body), i)
        for i in range(3000, 6000, 3):
            lease, got = self.reserve(q, "items=3&wait=1000")
            self.assertEqual([number(m) for _, _, m in got], [i, i + 1, i + 2])
            self.expect(q.post("/ack?lease=%s&id=%d-%d" % (lease, i + 1, i + 3)), 200)

    def test_what_is_kept_of_messages_on_disk_is_bounded(self):
        q = self.queue("--max-memory=64K")
        reply = None
        for start in range(0, 100000, 5000):
            reply = q.post("/mput", b"\n".join(message(i, 8) for i in range(start, start + 5000)))
            if reply.status != 200:
                break
        self.expect(reply, 503, "queue-full")
        n = self.numbers(q)["depth"]
        self.drain(q, 0, n)
        self.expect(q.post("/put", b"x"), 200)

    def test_what_cannot_be_read_any_more(self):
        """A segment is damaged while the daemon runs. No damaged message is given out. The daemon is then not ready, because it does not
        know what else is damaged, or whether an acknowledgement could be kept. Log and health name the reason."""
        q = self.queue("--max-memory=1M", "--segment-bytes=1M")
        n = 10000
        self.fill(q, 0, n)
        segment = sorted(glob.glob(self.path("data", "queues", "default", "*.seg")))[1]
        with open(segment, "r+b") as f:
            f.seek(500000)
            f.write(b"Z" * 1000)
        out, reply = [], q.get("/mget?items=100")
        while reply.status == 200:
            out += [number(m) for m in reply.body.split(b"\n")]
            reply = q.get("/mget?items=100")
        self.expect(reply, 503)
        self.assertEqual(out, list(range(len(out))))
        self.assertLess(len(out), n / 2)
        for refused in (q.get("/health"), q.post("/put?queue=other", b"x"), q.get("/reserve")):
            detail = self.expect(refused, 503, "not-ready").json()["detail"]
            self.assertTrue(detail.startswith("storage failed: " + segment), detail)
        self.assertEqual(q.log.count("storage failed: the daemon writes nothing more"), 1)
        self.expect(q.get("/stats"), 200)


if __name__ == "__main__":
    harness.main()
