"""A full disk: puts are refused, the messages can be taken and acknowledged, and all heals without a restart."""
import os
import time

import harness
from harness import wait_until
from queue_test import OnSmallDisk, message, number


class DiskFullTest(OnSmallDisk):
    def drain(self, q, n):
        """Everything comes out and is acknowledged, one by one, while puts go on being tried."""
        seen = []
        while len(seen) < n:
            lease, got = self.reserve(q, "items=10")
            self.assertTrue(got)
            seen += [number(text) for _, _, text in got]
            self.ack_one_by_one(q, [(lease, i) for i, _, _ in got])
            if len(seen) < n // 20:
                self.expect(q.post("/put", b"x" * 5000), 503, "storage-full")
        self.assertEqual(seen[:n], list(range(n)))

    def check(self, *args):
        q = self.open("--segment-bytes=1M", *args)
        n = self.fill_up(q, 4000)
        self.disk.take_the_rest()
        self.assertEqual(q.log.count(" error simplequeue the disk is full: puts are refused queue=default"), 1)
        self.assertEqual(self.metric(q, "queue_disk_full"), 1)
        self.assertRegex(self.expect(q.get("/health"), 503, "not-well").json()["detail"],
                         r"^refusing puts since \d{4}-\S+Z: the disk is full$")
        self.drain(q, n)
        self.disk.give_back()
        wait_until(lambda: q.post("/put", b"again").status == 200, "puts to be taken again")
        self.assertEqual(q.log.count(" info simplequeue the disk has room: puts are accepted again queue=default"), 1)
        self.assertEqual(self.metric(q, "queue_disk_full"), 0)
        self.expect(q.get("/health"), 200)

    def test_synced(self):
        self.check("--sync=0")

    def test_not_synced(self):
        self.check("--sync=never")

    def test_what_keeps_old_segments_does_not_stop_acks(self):
        """A buried message is written again so that its old segment can be deleted. On a full disk it uses a small part of the reserve. If
        it waited for room, no later segment could be deleted either, and acknowledgements would use up the reserve and stop."""
        args = ("--segment-bytes=256K", "--max-memory=256K", "--sync=never")
        q = self.open(*args)
        self.expect(q.post("/put", message(10**6, 4000)), 200)
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?lease=%s&id=1&reason=kept" % lease), 200)
        n = self.fill_up(q, 4000)
        self.disk.take_the_rest()
        self.drain(q, n)
        self.assertEqual(self.numbers(q)["depth"], 0)
        q.kill9()
        self.disk.give_back()
        q = self.open(*args)
        wait_until(lambda: q.post("/put", message(0, 4000)).status == 200, "puts to be taken again")
        for i in range(300):
            self.expect(q.post("/put", message(i, 4000)), 200)
            self.assertTrue(q.get("/get").body)
        wait_until(lambda: self.numbers(q)["disk_bytes"] < 1300 << 10, lambda: "old segments to go: %s" % self.numbers(q))
        q.kill9()
        q = self.open(*args)
        dead = q.get("/dead").json()["buried"]
        self.assertEqual([(b["id"], b["reason"], b["message"].encode()) for b in dead],
                         [("1", "kept", message(10**6, 4000))])

    def test_a_queue_that_filled_the_disk_itself_heals_itself(self):
        """Also after a kill on the full disk, and while a buried message holds the oldest segment: the next start finds the reserve, and
        writes the message again there."""
        args = ("--segment-bytes=256K", "--sync=never")
        q = self.open(*args)
        self.expect(q.post("/put", message(10**6, 4000)), 200)
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?lease=%s&id=1&reason=kept" % lease), 200)
        n = self.fill_up(q, 4000)
        q.kill9()
        q = self.open(*args)
        self.assertEqual(self.take_all(q, n, rest=False), list(range(n)))
        wait_until(lambda: q.post("/put", message(0, 200000)).status == 200, "puts to be taken again")
        self.assertEqual(q.get("/dead").json()["buried"][0]["message"].encode(), message(10**6, 4000))

    def test_short_messages_are_acknowledged_one_by_one(self):
        """The acknowledgements take as much room as the messages. This room was reserved, also after a kill."""
        args = ("--segment-bytes=64K", "--sync=never")
        q = self.open(*args)
        n = 0
        while (reply := q.post("/mput", b"\n".join(message(i, 100) for i in range(n, n + 50)))).status == 200:
            n += 50
        self.expect(reply, 503, "storage-full")
        self.disk.take_the_rest()
        q.kill9()
        self.disk.take_the_rest()
        q = self.open(*args)
        self.disk.take_the_rest()
        seen = []
        while len(seen) < n:
            lease, got = self.reserve(q, "items=500")
            seen += [number(text) for _, _, text in got]
            ids = [i for i, _, _ in got]
            if len(seen) <= 1500:
                self.ack_one_by_one(q, [(lease, i) for i in ids[:-1]])
            self.expect(q.post("/ack?lease=%s&id=%d-%d" % (lease, ids[0], ids[-1])), 200)
        self.assertEqual(seen, list(range(n)))

    def fill_with_short(self, q, size):
        """Puts short messages many at once until they are refused; how many were not."""
        n = 0
        while (reply := q.post("/mput", b"\n".join(message(i, size) for i in range(n, n + 100)))).status == 200:
            n += 100
        self.expect(reply, 503, "storage-full")
        return n

    def check_any_order(self, *args):
        """Removals of short messages take many times the room of the messages, and the order of the removals frees no room until the end.
        The test takes all freed room. Each message has reserved the bytes of its removal, also after a kill."""
        args = ("--segment-bytes=64K", "--max-mget=100000", *args)
        self.disk.take((4 << 20) - (320 << 10))
        q = self.open(*args)
        n = self.fill_with_short(q, 8)
        self.disk.take_the_rest()
        lease, got = self.reserve(q, "items=%d&lease=600000" % n)
        self.assertEqual([number(text) for _, _, text in got], list(range(n)))
        ids = [(lease, i) for i, _, _ in got]
        self.ack_one_by_one(q, ids[:n // 2:-1])
        self.disk.take_the_rest()
        q.kill9()
        self.disk.take_the_rest()
        q = self.open(*args)
        lease, got = self.reserve(q, "items=%d&lease=600000" % n)
        self.assertEqual([number(text) for _, _, text in got], list(range(n // 2 + 1)))
        self.ack_one_by_one(q, [(lease, i) for i, _, _ in got])
        self.assertEqual(self.numbers(q)["depth"], 0)
        wait_until(lambda: q.post("/put", b"behind").status == 200, "puts to be taken again")
        q.kill9()
        q = self.open(*args)
        self.assertEqual([text for _, _, text in self.reserve(q, "items=10")[1]], [b"behind"])
        self.assertGreater(self.numbers(q)["next_id"], str(n))

    def test_short_messages_in_any_order(self):
        self.check_any_order("--sync=never")

    def test_short_messages_in_any_order_synced(self):
        self.check_any_order("--sync=0")

    def test_a_segment_that_is_used_again_has_room_for_puts(self):
        """The room of the segment's file stays with the queue, also on a full disk."""
        q = self.open("--segment-bytes=256K", "--sync=0")
        n = self.fill_up(q, 4000)
        self.disk.take_the_rest()
        self.assertEqual(sorted(self.take_all(q, n)), list(range(n)))

        def put():
            self.disk.take_the_rest()
            return q.post("/put", message(0, 150000)).status == 200
        wait_until(put, "a put to be taken")

    def test_a_delayed_put_that_is_refused_makes_no_queue(self):
        """It needs twice the room."""
        q = self.open()
        self.expect(q.post("/put", b"x"), 200)
        self.disk.take_the_rest()
        self.disk.leave(1500 << 10)
        self.expect(q.post("/put?queue=a&delay=60000", message(0, 1000000)), 503, "storage-full")
        self.assertEqual(os.listdir(self.disk.path("data", "queues")), ["default"])

    def test_who_kicks_in_vain_keeps_nobody_from_putting(self):
        """A put may need less room than a kick, so the queue tries a put also after a kick that found no room."""
        q = self.open("--segment-bytes=256K", "--sync=never")
        for i in range(5):
            self.expect(q.post("/put", message(i, 300000)), 200)
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?lease=%s&id=1" % lease), 200)
        self.disk.take_the_rest()
        self.disk.leave(150 << 10)

        def put_after_a_kick():
            self.expect(q.post("/kick?items=1"), 503, "storage-full")
            return q.post("/put", b"x").status == 200
        for _ in range(5):
            wait_until(put_after_a_kick, "a put to be taken")

    def test_a_disk_that_has_room_in_turns_is_told_now_and_then(self):
        q = self.open("--segment-bytes=64K", "--sync=never")
        self.expect(q.post("/put", b"x"), 200)
        began = time.monotonic()
        for _ in range(2):
            self.disk.take_the_rest()
            wait_until(lambda: q.post("/put", b"x" * 300000).status == 503, "a put to be refused")
            self.disk.give_back()
            wait_until(lambda: q.post("/put", b"x").status == 200, "puts to be taken again")
        told = q.log.count("the disk is full: puts are refused")
        self.assertGreaterEqual(told, 1)
        self.assertLessEqual(told, 1 + (time.monotonic() - began) // 10, q.log)
        self.assertEqual(q.log.count("the disk has room: puts are accepted again"), told)

    def test_a_queue_that_found_no_room_leaves_nothing(self):
        """The queue does not exist after a restart, and the other queue is served."""
        q = self.open("--max-queues=2")
        self.expect(q.post("/put", b"kept"), 200)
        self.disk.take_the_rest()
        queues = self.disk.path("data", "queues")
        for target in ("/put?queue=a", "/put?queue=b", "/follow?queue=c&reader=r"):
            self.expect(q.post(target, b"x"), 503, "storage-full")
        self.assertEqual(os.listdir(queues), ["default"])
        q.kill9()
        os.mkdir(os.path.join(queues, "d"))  # as a kill in between leaves it
        q = self.open("--max-queues=2")
        self.assertEqual(list(q.stats()["queues"]), ["default"])
        self.assertEqual(self.reserve(q, "items=5")[1], [(1, 1, b"kept")])
        self.disk.give_back()
        self.expect(q.post("/put?queue=a", b"x"), 200)
        self.expect(q.post("/put?queue=b", b"x"), 503, "too-many-queues")

    def test_the_marks_of_producers_do_not_use_up_the_reserve(self):
        """Each segment begins with the marks of all producers. Acknowledged in reverse, nothing can be trimmed meanwhile."""
        q = self.open("--segment-bytes=128K", "--sync=never")
        producers, n = 1000, 12000
        names = ["p" * 60 + "%04d" % i for i in range(producers)]
        for name in names:
            self.expect(q.post("/put?producer=%s&mark=0&next=1" % name, b"x"), 200)
        self.expect(q.post("/mput", b"\n".join([b"x"] * (n - producers))), 200)
        self.disk.take_the_rest()
        ids = []
        while len(ids) < n:
            lease, got = self.reserve(q, "items=6000&lease=3600000")
            ids = [(lease, i) for i, _, _ in reversed(got)] + ids
        for at in range(0, n, 100):
            self.ack_one_by_one(q, ids[at:at + 100])
            self.disk.take_the_rest()
        q.kill9()
        self.disk.give_back()
        q = self.open("--segment-bytes=128K", "--sync=never")
        self.assertEqual(q.stats()["depth"], 0)
        reply = q.post("/put?producer=%s&mark=0&next=1" % names[0], b"x")
        self.assertEqual(self.expect(reply, 200).header("X-Millrace-Duplicate"), "1")

    def test_a_new_directory_that_finds_no_room_may_be_tried_again(self):
        self.disk.take_the_rest()
        for program in ("simplequeue", "pubsub"):
            refused = self.run_program(program, "--port=0", "--data-dir=" + self.disk.path("new"))
            self.assertEqual(refused.returncode, 75, refused.stderr)
        self.disk.give_back()
        q = self.start("simplequeue", "--data-dir=" + self.disk.path("new"))
        self.expect(q.post("/put", b"x"), 200)

    def test_a_start_that_finds_no_room_may_be_tried_again(self):
        q = self.open("--max-queues=2")
        self.expect(q.post("/put", b"kept"), 200)
        q.stop()
        other = self.disk.path("data", "queues", "d")
        os.mkdir(other)
        open(os.path.join(other, "gone"), "w").close()  # what was begun, but no segment yet
        self.disk.take_the_rest()
        args = ("--port=0", "--data-dir=" + self.disk.path("data"))
        refused = self.run_program("simplequeue", *args)
        self.assertEqual(refused.returncode, 75, refused.stderr)
        self.assertIn(b"cannot create a segment", refused.stderr)
        self.disk.give_back()
        q = self.open()
        self.assertEqual(self.reserve(q, "items=5")[1], [(1, 1, b"kept")])


if __name__ == "__main__":
    harness.main()
