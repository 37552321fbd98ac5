"""A queue that is followed: its only reader reads in the order of ids and settles what its destination has."""
import threading

import harness
from harness import wait_until
from queue_test import Deep, InMemory, OnDisk, OnSmallDisk, QueueTest, message, number, reserved


class Following(QueueTest):
    def follow(self, q):
        """The number of the new follow."""
        self.answer = self.expect(q.post("/follow?reader=relay"), 200).json()
        return self.answer["follow"]

    def read(self, q, follow, start, more=""):
        reply = self.expect(q.get("/reserve?follow=%s&from=%d&%s" % (follow, start, more)), 200)
        self.assertIsNone(reply.header("X-Millrace-Lease"))
        self.assertEqual(len(reply.header("X-Millrace-Queue-Id")), 32)
        return reserved(reply)

    def ids(self, *args):
        return [m[0] for m in self.read(*args)]

    def ended(self, reply, reader, follow=None):
        problem = self.expect(reply, 409, "follow-ended").json()
        self.assertEqual((problem["reader"], problem.get("number")), (reader, follow))

    def refused(self, reply):
        problem = self.expect(reply, 409, "followed").json()
        self.assertEqual(problem["reader"], "relay")
        self.assertIn("/unfollow", problem["hint"])

    def waiting(self, q, target):
        """A request that waits; its reply later."""
        replies, before = [], q.stats()["waiting"]
        thread = threading.Thread(target=lambda: replies.append(q.get(target)))
        thread.start()
        wait_until(lambda: q.stats()["waiting"] == before + 1, "it to wait")

        def reply():
            thread.join()
            return replies[0]
        return reply


class Everywhere:
    OTHERS = ("/get", "/mget?items=5", "/reserve?reader=other", "/reserve?reader=relay", "/reserve", "/reserve?wait=60000",
              "/nack?lease=1&id=1", "/nack?lease=1&id=1&delay=9", "/bury?lease=1&id=1", "/empty")

    def test_it_reads_in_order_and_settles(self):
        q = self.queue()
        f = self.follow(q)
        self.assertEqual(set(self.answer), {"queue_id", "host", "follow", "takeover", "next_id", "opening"})
        self.assertEqual(self.answer["next_id"], "1")
        self.assertEqual(self.answer["queue_id"], self.numbers(q)["queue_id"])
        self.assertEqual(q.log.count("the queue is followed queue=default reader=relay"), 1)
        q.post("/mput", b"a\nb\nc\nd")
        self.assertEqual(self.read(q, f, 1, "items=2"), [(1, 1, b"a"), (2, 1, b"b")])
        numbers = self.numbers(q)
        self.assertEqual((numbers["leased"], numbers["ready"], numbers["leases"]), (0, 4, 0))
        self.assertEqual((numbers["follower"], numbers["reader"]), ("relay", ""))
        self.assertEqual(self.read(q, f, 2, "items=2"), [(2, 2, b"b"), (3, 1, b"c")])  # the reply with b was lost
        reply = self.expect(q.get("/reserve?follow=%s&from=4&settle=3&destination=dest" % f), 200)
        self.assertEqual(reserved(reply), [(4, 1, b"d")])
        self.assertEqual(reply.header("X-Millrace-Accepted-Last"), "4")
        self.assertEqual(self.numbers(q)["depth"], 2)
        self.assertEqual(q.get("/producer?producer=dest").json()["mark"], "3")
        behind = self.expect(q.get("/reserve?follow=%s&from=5&settle=2&destination=dest" % f), 409, "destination-behind")
        self.assertEqual(behind.json()["acked_below"], "3")
        self.assertEqual(self.read(q, f, 5, "settle=5&destination=dest"), [])
        self.assertEqual(self.numbers(q)["depth"], 0)
        self.assertEqual(q.get("/producer?producer=dest").json()["mark"], "5")

    def test_each_follow_ends_the_one_before(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        one = self.follow(q)
        self.assertFalse(self.answer["takeover"])
        self.assertEqual(self.ids(q, one, 1, "items=2"), [1, 2])
        two = self.follow(q)
        self.assertTrue(self.answer["takeover"])
        self.assertGreater(int(two), int(one))
        self.assertEqual(self.numbers(q)["ready"], 3)
        for target in ("/reserve?follow=%s&from=1&settle=3", "/bury?follow=%s&id=1", "/unfollow?follow=%s&settle=3"):
            self.ended(q.post(target % one), "relay", two)
        self.assertEqual(self.ids(q, two, 1, "items=9&settle=3"), [3], "what was sent to the one before is settled")
        self.assertEqual(q.log.count("the queue is followed"), 1)
        self.expect(q.post("/follow?reader=other"), 409, "followed")
        self.ended(q.get("/reserve?follow=7&from=1&queue=none"), "")

    def test_others_are_refused(self):
        q = self.queue("--allow-exit")
        q.post("/put", b"a")
        lease, _ = self.reserve(q, "reader=other")
        self.assertEqual(self.expect(q.post("/follow?reader=relay"), 409, "queue-held").json()["reader"], "other")
        self.assertEqual(q.post("/release?reader=other").json(), {"released": 1})
        f = self.follow(q)
        for target in self.OTHERS:
            with self.subTest(target):
                self.refused(q.post(target))
        for target in ("/ack?lease=%s&id=1", "/touch?lease=%s"):
            self.expect(q.post(target % lease), 409, "lease-lost")
        for target in ("/put?data=b", "/put?data=late&delay=60000", "/kick", "/dump", "/dead", "/stats", "/release?reader=relay"):
            self.expect(q.get(target), 200)
        self.assertEqual(self.read(q, f, 1, "items=9"), [(1, 2, b"a"), (2, 1, b"b")])
        self.expect(q.post("/pause"), 200)
        q.post("/put", b"c")
        self.assertEqual(self.ids(q, f, 3), [])
        self.expect(q.post("/pause?for=0"), 200)
        self.assertEqual(self.ids(q, f, 3), [4], "3 was delayed")

    def test_who_waits_is_told_at_once(self):
        q = self.queue()
        q.post("/put", b"a")
        q.get("/get")
        other = self.waiting(q, "/reserve?reader=other&wait=60000")
        one = self.follow(q)
        self.refused(other())
        follower = self.waiting(q, "/reserve?wait=60000&from=1&follow=" + one)
        two = self.follow(q)
        self.ended(follower(), "relay", two)
        follower = self.waiting(q, "/reserve?wait=60000&from=1&follow=" + two)
        self.assertEqual(q.post("/unfollow").json(), {"unfollowed": True, "reader": "relay"})
        self.ended(follower(), "")

    def test_it_waits_and_only_once(self):
        q = self.queue()
        f = self.follow(q)
        first = self.waiting(q, "/reserve?wait=60000&from=1&follow=" + f)
        replies = []
        second = threading.Thread(target=lambda: replies.append(q.get("/reserve?wait=60000&items=5&from=1&follow=" + f)))
        second.start()
        self.assertEqual(self.expect(first(), 200).body, b"", "its reply would be lost")
        wait_until(lambda: q.stats()["waiting"] == 1, "the second to wait")
        q.post("/mput", b"a\nb")
        second.join()
        self.assertEqual(reserved(replies[0]), [(1, 1, b"a"), (2, 1, b"b")])
        self.assertEqual(self.ids(q, f, 3, "wait=20"), [])

    def test_it_buries(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        f = self.follow(q)
        self.expect(q.post("/bury?id=1&follow=" + f), 409, "lease-lost")
        self.assertEqual(self.ids(q, f, 1, "items=2"), [1, 2])
        self.assertEqual(q.post("/bury?id=2&reason=bad&follow=" + f).json(), {"buried": 1})
        self.expect(q.post("/bury?id=2&follow=" + f), 409, "lease-lost")
        self.expect(q.post("/bury?id=3&follow=" + f), 409, "lease-lost")
        self.assertEqual(q.get("/dead").json()["buried"][0]["reason"], "bad")
        self.assertEqual(self.ids(q, f, 3, "settle=3"), [3])
        self.assertEqual(q.post("/kick").json(), {"kicked": 1})
        self.assertEqual(self.read(q, f, 4, "settle=4"), [(4, 2, b"b")])

    def test_what_the_destination_may_still_lose_stays(self):
        q = self.queue("--max-depth=4", "--overflow-log=" + self.path("overflow"))
        q.post("/mput", b"a\nb\nc\nd")
        f = self.follow(q)
        self.assertEqual(self.ids(q, f, 3, "items=9&settle=0&mark=3"), [3, 4])  # 1 and 2 are of an earlier follow
        self.assertEqual(self.numbers(q)["depth"], 4)
        self.expect(q.post("/mput", b"e"), 503, "queue-full")  # 1 and 2 are not evicted
        self.assertEqual(self.ids(q, f, 5, "settle=2&mark=4&destination=dest"), [])
        self.assertEqual(self.numbers(q)["depth"], 3)
        self.assertEqual(q.get("/producer?producer=dest").json()["mark"], "2")
        problem = self.expect(q.get("/reserve?follow=%s&from=5&settle=0&mark=1&destination=dest" % f), 409, "destination-behind")
        self.assertEqual(problem.json()["acked_below"], "2")
        self.expect(q.get("/reserve?follow=%s&from=5&settle=2&mark=6" % f), 409, "other-history")
        f = self.follow(q)
        self.assertEqual(self.ids(q, f, 1, "items=9&settle=2&mark=2"), [2, 3, 4])

    def test_a_settle_is_bounded(self):
        """An unfollow settles everything, piece by piece."""
        q = self.queue()
        self.expect(q.post("/mput", b"\n".join([b"m"] * 250000)), 200)
        f = self.follow(q)
        self.assertEqual(self.ids(q, f, 250001, "settle=250001&mark=250001"), [])
        self.assertEqual(self.numbers(q)["depth"], 150000)
        self.expect(q.post("/unfollow?follow=%s&settle=250001" % f), 200)
        self.assertEqual(self.numbers(q)["depth"], 0)

    def test_unfollow(self):
        q = self.queue()
        nobody = {"unfollowed": False, "reader": ""}
        self.assertEqual(q.post("/unfollow?queue=none").json(), nobody)
        q.post("/mput", b"a\nb\nc")
        self.assertEqual(q.post("/unfollow").json(), nobody)
        f = self.follow(q)
        self.assertEqual(self.ids(q, f, 1, "items=9"), [1, 2, 3])
        reply = self.expect(q.post("/unfollow?settle=3&destination=dest&follow=" + f), 200)
        self.assertEqual(reply.json(), {"unfollowed": True, "reader": "relay"})
        self.assertEqual(q.log.count("the queue is no longer followed queue=default reader=relay"), 1)
        self.ended(q.post("/unfollow?follow=" + f), "")
        self.assertEqual(q.get("/producer?producer=dest").json()["mark"], "3")
        self.assertEqual(self.numbers(q)["follower"], "")
        self.assertEqual(self.reserve(q, "items=9&reader=other")[1], [(3, 2, b"c")])

    def test_bad_parameters(self):
        q = self.queue()
        f = self.follow(q)
        for target, code in (
                ("/follow", "missing-parameter"), ("/follow?reader=a%20b", "bad-parameter"),
                ("/follow?reader=", "bad-parameter"), ("/follow?reader=r&destination=d", "unknown-parameter"),
                ("/reserve?from=1&destination=longer-than&follow=" + f, "bad-parameter"),
                ("/reserve?follow=" + f, "missing-parameter"), ("/reserve?follow=0&from=1", "bad-parameter"),
                ("/reserve?from=1", "bad-parameter"), ("/reserve?settle=1", "bad-parameter"),
                ("/reserve?destination=d", "bad-parameter"), ("/reserve?from=1&lease=9&follow=" + f, "bad-parameter"),
                ("/reserve?from=1&reader=r&follow=" + f, "bad-parameter"), ("/reserve?from=1&ack=1:1&follow=" + f, "bad-parameter"),
                ("/reserve?from=1&next=9&follow=" + f, "unknown-parameter"), ("/reserve?mark=9", "bad-parameter"),
                ("/reserve?from=1&settle=9&mark=8&follow=" + f, "bad-parameter"), ("/reserve?from=x&follow=" + f, "bad-parameter"),
                ("/reserve?from=1&settle=-1&follow=" + f, "bad-parameter"),
                ("/bury?follow=" + f, "missing-parameter"), ("/bury?id=1-2&follow=" + f, "bad-parameter"),
                ("/bury?id=1&lease=1&follow=" + f, "bad-parameter"), ("/bury?follow=x&id=1", "bad-parameter"),
                ("/unfollow?settle=1", "missing-parameter"), ("/unfollow?destination=d", "missing-parameter"),
                ("/unfollow?follow=x", "bad-parameter")):
            with self.subTest(target):
                self.expect(q.post(target), 400, code)
        self.assertEqual(self.numbers(q)["follower"], "relay")

    def test_nothing_that_was_sent_is_evicted(self):
        q = self.queue("--max-depth=4", "--overflow-log=" + self.path("overflow"))
        q.post("/mput", b"a\nb\nc\nd")
        f = self.follow(q)
        self.assertEqual(self.ids(q, f, 1, "items=2"), [1, 2])
        self.expect(q.post("/mput", b"e\nf"), 200)
        with open(self.path("overflow"), "rb") as log:
            self.assertEqual(log.read(), b"c\nd\n")
        self.expect(q.post("/mput", b"g\nh\ni"), 503, "queue-full")
        self.assertEqual(self.ids(q, f, 3, "items=9"), [5, 6])
        self.assertEqual(self.ids(q, f, 1, "items=9"), [1, 2, 5, 6])


class MemoryTest(Everywhere, InMemory, Following):
    def test_a_stop_writes_what_was_sent_to_the_overflow_log(self):
        q = self.queue("--overflow-log=" + self.path("overflow"))
        q.post("/mput", b"a\nb\nc")
        self.assertEqual(self.ids(q, self.follow(q), 1, "items=2"), [1, 2])
        self.assertEqual(q.stop(), 0)
        with open(self.path("overflow"), "rb") as log:
            self.assertEqual(log.read(), b"a\nb\nc\n")


class DiskTest(Everywhere, OnDisk, Following):
    def test_the_name_survives_a_restart(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        one = self.follow(q)
        self.assertEqual(self.ids(q, one, 1, "items=3"), [1, 2, 3])
        self.assertEqual(self.read(q, one, 4, "settle=2"), [])
        q = self.again(q)
        self.refused(q.get("/reserve?reader=other"))
        self.refused(q.get("/get"))
        self.ended(q.get("/reserve?from=1&follow=" + one), "relay")
        self.assertEqual(self.numbers(q)["follower"], "relay")
        two = self.follow(q)
        self.assertGreater(int(two), int(one))
        self.assertNotIn("is followed", q.log)
        self.assertEqual(self.ids(q, two, 1, "items=3"), [2, 3])
        q = self.again(q)
        self.assertEqual(q.post("/unfollow").json(), {"unfollowed": True, "reader": "relay"})
        q = self.again(q)
        self.assertEqual([m[0] for m in self.reserve(q, "items=3&reader=other")[1]], [2, 3])

    def test_each_reply_is_of_one_opening(self):
        """A mark names the opening of the message before it. The queue refuses a mark that is not of its past."""
        def read(start, more=""):
            reply = self.expect(q.get("/reserve?items=9&follow=%s&from=%d%s" % (f, start, more)), 200)
            return [m[0] for m in reserved(reply)], reply.header("X-Millrace-Opening")

        def differs(settle, opening):
            target = "/reserve?items=9&from=9&destination=dest&follow=%s&settle=%d&opening=%s" % (f, settle, opening)
            problem = self.expect(q.get(target), 409, "other-history").json()
            self.assertEqual([(o["first"], o["opening"]) for o in problem["openings"]], [("1", one), ("3", two)])
            began = [o["began"] for o in problem["openings"] if int(o["first"]) <= int(problem["differs_from"])][-1]
            self.assertIn(began, problem["detail"])
            self.assertRegex(began, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(self.numbers(q)["depth"], 3)
            return problem["differs_from"], problem["is_certain"], problem["acked_below"]

        q = self.queue()
        q.post("/mput", b"a\nb")
        one = self.numbers(q)["opening"]
        q = self.again(self.again(q))
        q.post("/mput", b"c\nd")
        two = self.numbers(q)["opening"]
        f = self.follow(q)
        self.assertEqual(self.answer["opening"], two)
        self.assertEqual(read(1), ([1, 2], one))
        self.assertEqual(read(3), ([3, 4], two))
        self.assertEqual(read(5), ([], None))
        self.assertEqual(read(1, "&destination=dest&settle=2&opening=" + one), ([2], one))
        self.assertEqual(differs(4, one), ("3", True, "2"))
        self.assertEqual(differs(6, two), ("5", True, "2"))
        self.assertEqual(differs(9, ""), ("5", True, "2"))
        self.assertEqual(differs(4, "unknown"), ("4", False, "2"))
        self.assertEqual(differs(4, "000000000000" + 12 * "a"), ("1", False, "2"))
        self.assertEqual(read(3, "&settle=3&opening=" + one), ([3, 4], two))
        self.assertEqual(read(5, "&settle=5"), ([], None))


class DeepTest(Deep, Following):
    def test_a_queue_deeper_than_its_memory(self):
        n, at, settled, lost = 40000, 1, 1, 0
        q = self.queue("--max-memory=2M")
        self.fill(q, 0, n)
        f = self.follow(q)
        while at <= n:
            got = self.read(q, f, at, "items=3000&settle=%d&wait=%d" % (settled, 1000 * harness.LONG))
            self.assertEqual([m[0] for m in got], list(range(at, at + len(got))))
            self.assertEqual([number(m[2]) for m in got], list(range(at - 1, at - 1 + len(got))))
            lost += 1
            if lost % 4:  # else asks for the same again, when they may be on disk again
                at += len(got)
                settled = at - 1000
            if lost == 8:
                f = self.follow(q)
                at = settled
        self.assertEqual(self.read(q, f, at, "settle=%d" % at), [])
        self.assertEqual(self.numbers(q)["depth"], 0)
        self.assert_small(q, 100 << 20)


class DeepOverflowTest(Deep, Following):
    def test_room_is_made_while_a_new_follow_has_not_read(self):
        """As after a restart of a relay whose pubsub is away. What was sent is not evicted, and what is evicted must be read from disk."""
        q = self.queue("--max-memory=2M", "--max-depth=6000", "--overflow-log=" + self.path("overflow"))
        for i in range(6):
            q.post("/mput", b"\n".join(b"%07d" % (1000 * i + k) + b"x" * 1000 for k in range(1000)))
        at, f = 1, self.follow(q)
        while at <= 3000:
            at = self.ids(q, f, at, "items=%d&wait=5000" % (3001 - at))[-1] + 1
        self.follow(q)
        for i in range(600):
            self.expect(q.post("/put", b"y" * 1000), 200)
        with open(self.path("overflow"), "rb") as log:
            self.assertEqual([int(line[:7]) for line in log], list(range(3000, 3600)))


class FullDiskTest(OnSmallDisk, Following):
    def test_a_full_disk_is_drained_by_a_follower(self):
        q = self.open()
        n = self.fill_up(q, 4000)
        self.disk.take_the_rest()
        f, at, seen = self.follow(q), 1, []
        while len(seen) < n:
            got = self.read(q, f, at, "items=100&wait=500&settle=%d" % at)
            seen.extend(number(m[2]) for m in got)
            at = got[-1][0] + 1
            self.disk.take_the_rest()
        self.assertEqual(seen, list(range(n)))
        self.assertEqual(self.read(q, f, at, "settle=%d" % at), [])
        self.assertEqual(self.numbers(q)["depth"], 0)
        self.refused(q.get("/get"))
        self.disk.give_back()
        wait_until(lambda: q.post("/put", message(n)).status == 200, "puts to be accepted")
        self.assertEqual(self.read(q, self.follow(q), at)[0][2], message(n))
        q.kill9()
        q = self.open()
        self.refused(q.get("/get"))  # the next follow has recorded the name


if __name__ == "__main__":
    harness.main()
