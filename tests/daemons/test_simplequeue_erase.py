"""/erase: no file of a queue has a message that was deleted before, and the live ones are delivered once."""
# seconds: 30
# parts: 2
# full: MILLRACE_ROUNDS=30
import os
import re
import struct

import harness
from harness import request, wait_until
from queue_test import OnSmallDisk, QueueTest, reserved

SEGMENT = 64 << 10
RECYCLED = 2  # the flag in a segment's header


def text(n, size=400):
    return b"<msg-%08d>" % n + b"x" * (size - 14)


def number(message):
    return int(re.match(rb"<msg-(\d{8})>", message)[1])


class EraseCase(QueueTest):
    data = None
    args = ("--segment-bytes=%d" % SEGMENT, "--max-memory=256K")

    def files(self):
        found = {}
        for folder, _, names in os.walk(self.data):
            for name in names:
                try:
                    found[os.path.join(folder, name)] = harness.read_file(os.path.join(folder, name))
                except FileNotFoundError:
                    pass
        return found

    def in_files(self):
        """The numbers of all messages of which a file has the beginning."""
        return {int(n) for data in self.files().values() for n in re.findall(rb"<msg-(\d{8})>", data)}

    def put(self, q, first, end):
        for start in range(first, end, 100):
            self.expect(q.post("/mput", b"\n".join(text(i) for i in range(start, min(start + 100, end)))), 200)

    def erase(self, q):
        return self.expect(q.post("/erase"), 202).json()

    def state(self, q):
        return self.expect(q.get("/erase"), 200).json()

    def ended(self, q):
        wait_until(lambda: self.state(q)["state"] != "running", lambda: "the erasure to end: %s" % self.state(q))
        return self.state(q)

    def expect_done(self, q):
        state = self.ended(q)
        self.assertEqual((state["state"], state["remaining_bytes"]), ("done", 0), state)


class EraseTest(EraseCase):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        self.acked, self.live = set(), set()

    def open(self, sync):
        return self.start("simplequeue", "--data-dir=" + self.data, "--sync=" + sync, *self.args)

    def lease(self, q, items):
        reply = self.expect(q.get("/reserve?lease=3600000&items=%d" % items), 200)
        return reply.header("X-Millrace-Lease"), reserved(reply)

    def ack(self, q, lease, got):
        if got:
            self.expect(q.post("/ack?lease=%s" % lease, ",".join(str(i) for i, _, _ in got).encode()), 200)
            self.acked |= {number(m) for _, _, m in got}
            self.live -= self.acked

    def come_and_go(self, q, first, end):
        """Messages that are deleted at once, so that their segments are trimmed, or recycled."""
        for start in range(first, end, 100):
            self.put(q, start, start + 100)
            lease, got = self.lease(q, 100)
            self.ack(q, lease, got)

    def work(self, q, first, end):
        """Messages in every state: of ten, seven are deleted, and one each is buried, delayed and ready."""
        self.put(q, first, end)
        self.live |= set(range(first, end))
        lease, got = self.lease(q, 10000)
        self.assertTrue(set(range(first, end)) <= {number(m) for _, _, m in got})
        self.ack(q, lease, [m for m in got if number(m[2]) % 10 < 7])
        for i, _, m in got:
            if number(m) % 10 == 7:
                self.expect(q.post("/bury?lease=%s&id=%d&reason=why" % (lease, i)), 200)
            elif number(m) % 10 == 8:
                self.expect(q.post("/nack?lease=%s&id=%d&delay=%d" % (lease, i, 2000 + i % 100)), 200)
        self.expect(q.post("/release"), 200)

    def expect_each_once(self, q):
        """All live messages come, each once and with its bytes."""
        seen = []

        def more():
            q.post("/kick?items=1000")
            lease, got = self.lease(q, 500)
            for _, _, m in got:
                self.assertEqual(m, text(number(m)))
            seen.extend(number(m) for _, _, m in got)
            self.ack(q, lease, got)
            numbers = self.numbers(q)
            return numbers["depth"] + numbers["buried"] == 0
        expected = sorted(self.live)
        wait_until(more, lambda: "the queue to be empty: %s" % self.numbers(q))
        self.assertEqual(sorted(seen), expected)

    def expect_erased(self, gone):
        found = self.in_files()
        self.assertEqual(sorted(gone & found), [])
        self.assertEqual(sorted(self.live - found), [])

    def is_recycled(self):
        return any(name.endswith(".seg") and struct.unpack_from("<I", data, 12)[0] & RECYCLED
                   for name, data in self.files().items())

    def check(self, sync):
        q = self.open(sync)
        first = 0
        while first < 2000 or (sync == "0" and not self.is_recycled()):
            self.come_and_go(q, first, first + 500)
            first += 500
            self.assertLess(first, 100000, "no file was recycled")
        self.work(q, first, first + 2000)
        self.assertTrue(self.acked & self.in_files())
        self.assertEqual(self.state(q)["state"], "none")
        self.assertIn(self.erase(q)["state"], ("running", "done"))
        self.expect_done(q)
        self.expect_erased(set(self.acked))
        q.kill9()
        q = self.open(sync)
        self.assertEqual(self.state(q)["state"], "none")
        self.expect_each_once(q)
        self.erase(q)
        self.expect_done(q)
        self.assertEqual(self.in_files(), set())

    def test_synced(self):
        self.check("0")

    def test_not_synced(self):
        self.check("never")

    def check_killed(self, sync):
        rng = harness.seeded()
        q = self.open(sync)
        self.come_and_go(q, 0, 1000)
        for i in range(harness.rounds(2)):
            first = 1000 + i * 1000
            self.work(q, first, first + 1000)
            before = set(self.acked)
            remaining = self.erase(q)["remaining_bytes"]
            kill_at = rng.randrange(remaining + 1)
            wait_until(lambda: (now := self.state(q))["remaining_bytes"] <= kill_at or now["state"] != "running",
                       "some of it to be erased", interval=0.001)
            q.kill9()
            q = self.open(sync)
            self.assertEqual(self.state(q)["state"], "none")
            self.erase(q)
            self.expect_done(q)
            self.expect_erased(before)
            if i % 3 == 2:
                self.expect_each_once(q)
        self.expect_each_once(q)

    def test_killed_in_the_middle(self):
        self.check_killed("0")

    def test_killed_in_the_middle_not_synced(self):
        self.check_killed("never")

    def check_beside_work(self, sync):
        """Puts and acknowledgements go on. They are of another queue's worth of numbers."""
        q = self.open(sync)
        self.work(q, 0, 5000)
        for i in range(harness.rounds(2)):
            before, n = set(self.acked), (i + 1) * 1000000
            self.erase(q)
            while self.state(q)["state"] == "running":
                self.live |= set(range(n, n + 20))
                self.put(q, n, n + 20)
                lease, got = self.lease(q, 30)
                self.ack(q, lease, got[:15])
                if got[20:]:
                    self.expect(q.post("/bury?lease=%s&id=%d" % (lease, got[-1][0])), 200)
                self.expect(q.post("/release"), 200)
                n += 20
            self.expect_done(q)
            self.expect_erased(before)
        self.expect_each_once(q)

    def test_beside_work(self):
        self.check_beside_work("0")

    def test_beside_work_not_synced(self):
        self.check_beside_work("never")

    def test_one_at_a_time(self):
        """A second one is refused. A stop does not wait for it."""
        q = self.open("0")
        self.put(q, 0, 20000)
        self.live = set(range(20000))
        replies = list(self.pipelined(q, ["/erase", "/erase"]))
        self.assertEqual([status for status, _ in replies], [202, 409])
        self.assertIn(b"erasure-running", replies[1][1])
        q.stop()
        q = self.open("0")
        self.erase(q)
        self.expect_done(q)
        self.expect_erased(self.acked)
        self.expect_each_once(q)

    def test_other_queues(self):
        q = self.open("0")
        self.assertEqual(self.expect(q.get("/erase?queue=a"), 404).json()["code"], "unknown-queue")
        self.assertEqual(self.expect(q.post("/erase?queue=a"), 404).json()["code"], "unknown-queue")
        self.put(q, 0, 1)
        self.expect(q.post("/put?queue=a", text(1)), 200)
        self.assertEqual(q.get("/get?queue=a").body, text(1))
        self.assertEqual(q.get("/get").body, text(0))
        reply = self.expect(q.post("/erase?queue=a"), 202)
        self.assertEqual((reply.json()["queue"], reply.json()["queue_id"]), ("a", reply.header("X-Millrace-Queue-Id")))
        wait_until(lambda: q.get("/erase?queue=a").json()["state"] == "done", "the erasure")
        self.assertEqual(self.in_files(), {0})

    def test_in_memory(self):
        q = self.start("simplequeue")
        self.expect(q.post("/put", b"x"), 200)
        self.assertEqual(self.erase(q)["state"], "done")
        self.assertEqual(self.state(q)["state"], "done")

    def test_access(self):
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        q = self.start("simplequeue", "--data-dir=" + self.data, "--auth-token-file=" + token)
        headers = {"Authorization": "Bearer secret"}
        self.expect(request(q.url, "POST", "/put", text(0), headers=headers), 200)
        for method in ("GET", "POST"):
            self.assertEqual(request(q.url, method, "/erase", b"").status, 401)
        self.assertEqual(request(q.url, "POST", "/erase", b"", headers=headers).status, 202)
        wait_until(lambda: request(q.url, "GET", "/erase", headers=headers).json()["state"] == "done", "the erasure")


class EraseOnSmallDisk(EraseCase, OnSmallDisk):
    def test_a_full_disk(self):
        """The messages of a long segment have no room for a copy. The erasure fails, and takes nothing of what acknowledgements
        need. It succeeds once there is space."""
        self.data = self.disk.path("data")
        q = self.open("--sync=0", *self.args)
        self.expect(q.post("/mput", b"\n".join(text(i) for i in range(2000))), 200)  # one long segment
        lease, got = self.reserve(q, "items=2000&lease=3600000")
        gone, kept = got[::50], [m for m in got if m not in got[::50]]
        self.ack_one_by_one(q, [(lease, i) for i, _, _ in gone])
        self.disk.take_the_rest()
        self.erase(q)
        state = self.ended(q)
        self.assertEqual((state["state"], state.get("error")), ("failed", "no space left on the device"))
        self.assertGreater(state["remaining_bytes"], 0)
        self.disk.take_the_rest()
        last, kept = kept[0::2], kept[1::2]
        self.ack_one_by_one(q, [(lease, i) for i, _, _ in last])
        self.disk.give_back()
        self.erase(q)
        self.expect_done(q)
        self.assertEqual(self.in_files(), {number(m) for _, _, m in kept})
        q.kill9()
        q = self.open("--sync=0", *self.args)
        self.assertEqual([m for _, _, m in self.reserve(q, "items=5000")[1]], [m for _, _, m in kept])


if __name__ == "__main__":
    harness.main()
