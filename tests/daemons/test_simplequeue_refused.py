"""A put that is refused changes nothing: no queue is made for it, which would stay and count against --max-queues."""
import os

import harness
from nng_client import Requester
from queue_test import InMemory, OnDisk, QueueTest
from small_disk import SmallDisk


class Refused:
    def says_all(self, reply):
        self.assertIn("all queues together", reply.json()["detail"])
        self.assertIn("--max-memory", reply.json()["hint"])

    def queues(self, q):
        return sorted(q.stats()["queues"])

    def test_over_the_bounds(self):
        q = self.queue("--max-bytes=100", "--max-depth=5", "--max-queues=5")
        for i in range(5):
            self.expect(q.post("/put?queue=t%d" % i, b"x" * 200), 413, "too-large")
            self.expect(q.post("/mput?queue=t%d" % i, b"a\nb\nc\nd\ne\nf"), 413, "too-large")
            self.expect(q.post("/mput?queue=t%d&producer=p&mark=0&next=6" % i, b"a\nb\nc\nd\ne\nf"), 413, "too-large")
        self.assertEqual(self.queues(q), [])
        self.expect(q.post("/put?queue=good", b"x"), 200)
        self.assertEqual(self.queues(q), ["good"])

    def test_over_nng(self):
        url = "ipc://" + self.path("nng")
        q = self.queue("--nng-listen=" + url, "--max-bytes=100", "--max-queues=1")
        r = Requester(url)
        self.addCleanup(r.close)
        reply = r.ask(b"queue=t\n" + b"x" * 101)
        self.assertEqual((reply["status"], reply["code"]), (413, "too-large"))
        self.assertEqual(self.queues(q), [])
        self.assertEqual(r.ask(b"queue=good\nx")["status"], 200)

    def test_one_queue_that_is_full_is_told_apart(self):
        q = self.queue("--max-depth=1")
        self.expect(q.post("/put", b"x"), 200)
        reply = self.expect(q.post("/put", b"x"), 503, "queue-full").json()
        self.assertEqual(reply["detail"], "the queue is full")
        self.assertNotIn("--max-memory", reply["hint"])
        self.expect(q.post("/mput?producer=p&mark=0&next=7"), 200)

    def test_what_puts_nothing_makes_its_queue(self):
        """A reader that follows first, and marks that move."""
        q = self.queue("--max-bytes=1")
        self.expect(q.post("/follow?queue=a&reader=r"), 200)
        self.expect(q.post("/mput?queue=b&producer=p&mark=0&next=7"), 200)
        self.expect(q.post("/mput?queue=b&producer=p&mark=7&next=8", b"x"), 200)
        self.assertEqual(self.queues(q), ["a", "b"])


class MemoryTest(Refused, InMemory, QueueTest):
    def test_memory_that_others_use_up(self):
        q = self.queue("--max-memory=1000")
        self.expect(q.post("/put", b"x" * 900), 200)
        self.says_all(self.expect(q.post("/put?queue=other", b"x" * 200), 503, "queue-full"))
        self.says_all(self.expect(q.post("/put", b"x" * 200), 503, "queue-full"))
        self.expect(q.post("/put?queue=never", b"x" * 1001), 413, "too-large")
        self.assertEqual(self.queues(q), ["default"])
        self.assertEqual(q.get("/get").body, b"x" * 900)
        self.expect(q.post("/put?queue=other", b"x" * 200), 200)


class DiskTest(Refused, OnDisk, QueueTest):
    def test_memory_that_others_use_up(self):
        q = self.queue("--max-memory=4000")
        while self.expect_any(q.post("/mput", b"\n".join([b"x"] * 100))):
            pass
        self.says_all(self.expect(q.post("/put?queue=other", b"x"), 503, "queue-full"))
        self.expect(q.post("/mput?producer=p&mark=0&next=7"), 200)
        self.assertEqual(self.queues(q), ["default"])

    def expect_any(self, reply):
        """Whether it was taken; else the queue is full."""
        return reply.status == 200 or not self.expect(reply, 503, "queue-full")

    def test_more_than_a_record_holds(self):
        q = self.queue("--max-body=128M", "--max-buffered=512M", "--max-queues=1")
        self.expect(q.post("/mput?queue=big", b"\n".join([b"x" * 1000000] * 68)), 413, "too-large")
        self.assertEqual((self.queues(q), os.listdir(self.path("data", "queues"))), ([], []))
        self.expect(q.post("/put?queue=good", b"x"), 200)

    def test_a_disk_with_room_for_the_queue_only(self):
        disk = SmallDisk(self, "4m")
        q = self.start("simplequeue", "--data-dir=" + disk.path("data"), "--max-queues=1")
        for i in range(3):
            self.expect(q.post("/mput?queue=t%d" % i, b"\n".join([b"x" * 1000000] * 5)), 503, "storage-full")
            self.expect(q.post("/mput?queue=t%d" % i, b"\n".join([b"x"] * 100000)), 503, "storage-full")
        self.assertEqual((self.queues(q), os.listdir(disk.path("data", "queues"))), ([], []))
        self.expect(q.post("/put?queue=good", b"x" * 1000000), 200)


if __name__ == "__main__":
    harness.main()
