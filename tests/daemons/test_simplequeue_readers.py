"""Readers of simplequeue that die, come late, or ask for much: leases and lists of ids."""
import harness
from harness import wait_until
from queue_test import InMemory, OnDisk, QueueTest, reserved


class ManyIds:
    """Lists of ids that no request's target holds."""
    ODD = ",".join(str(n) for n in range(1, 20001, 2)).encode()

    def leased(self, q, items=20000):
        q.post("/mput", b"\n".join(b"%d" % n for n in range(items)))
        lease, got = self.reserve(q, "items=%d" % items)
        self.assertEqual(len(got), items)
        return lease

    def test_acks_by_body(self):
        q = self.queue("--max-mget=20000")
        lease = self.leased(q)
        self.expect(q.post("/ack?lease=%s&id=%s" % (lease, self.ODD.decode())), 414)
        self.assertEqual(q.post("/ack?lease=" + lease, self.ODD + b"\n").json(), {"acked": 10000})
        self.assertEqual(q.post("/nack?lease=" + lease, b"19000-19999,2,19001\r\n").json(), {"nacked": 501})
        self.assertEqual(q.post("/bury?lease=" + lease, b"4").json(), {"buried": 1})
        rest = ",".join(str(n) for n in range(20000, 4, -2)).encode()
        reply = self.expect(q.post("/reserve?items=3&ack=" + lease, rest), 200)
        self.assertEqual(reply.header("X-Millrace-Acked"), "9498")
        self.assertEqual([m[0] for m in reserved(reply)], [2, 19000, 19002])
        numbers = self.numbers(q)
        self.assertEqual((numbers["leased"], numbers["ready"], numbers["buried"]), (3, 498, 1))

    def test_what_is_no_list_does_nothing(self):
        q = self.queue()
        lease = self.leased(q, 5)
        for act in ("/ack", "/nack", "/nack?delay=9", "/bury"):
            target = act + ("&" if "?" in act else "?") + "lease=" + lease
            for body in (b"\n", b",", b"1,", b"1-", b"-1", b"3-1", b"1 2", b"1\n2", b"1\0", b"1\n\n",
                         b"18446744073709551616"):
                with self.subTest(act + repr(body)):
                    self.expect(q.post(target, body), 400, "bad-parameter")
            self.expect(q.post(target + "&id=1", b"2"), 400, "bad-parameter")
            self.expect(q.post(target), 400, "missing-parameter")
        self.expect(q.post("/reserve?ack=" + lease), 400, "bad-parameter")
        self.expect(q.post("/reserve?ack=%s:1" % lease, b"1"), 400, "bad-parameter")
        self.assertEqual(self.numbers(q)["leased"], 5)

    def test_a_list_that_says_everything_over_and_over_is_no_work(self):
        q = self.queue("--max-mget=20000")
        lease = self.leased(q)
        body = b",".join([b"1-20000", b"0-18446744073709551615"] * 250000)
        self.assertEqual(q.post("/ack?lease=" + lease, body).json(), {"acked": 20000})


class Deaths:
    """A reader that dies holding a lease."""
    LATE = ("/ack?id=1-9", "/nack?id=1-9", "/nack?id=1-9&delay=5", "/bury?id=1-9", "/touch?extend=60000")

    def late(self, q, lease):
        """Every late request of the dead reader is refused, and changes nothing."""
        before = self.numbers(q)
        for act in self.LATE:
            with self.subTest(act):
                self.expect(q.post("%s&lease=%s" % (act, lease)), 409, "lease-lost")
        self.expect(q.get("/reserve?items=9&ack=%s:1-9" % lease), 409, "lease-lost")
        self.assertEqual(self.numbers(q), before)

    def test_its_messages_return_in_place_and_tries_count_up(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc\nd")
        first = int(q.post("/reserve?items=1&lease=60000&reader=dies").header("X-Millrace-Lease"))
        self.assertEqual(q.post("/ack?lease=%d&id=1" % first).json(), {"acked": 1})
        for tries in (1, 2, 3):
            lease, got = self.reserve(q, "items=2&lease=30&wait=30000&reader=dies")
            self.assertEqual(got, [(2, tries, b"b"), (3, tries, b"c")])
            self.assertGreater(int(lease), first)
            wait_until(lambda: self.numbers(q)["expired"] == tries, "the lease to end")
        self.late(q, lease)
        later, got = self.reserve(q, "items=9&reader=next")
        self.assertEqual(got, [(2, 4, b"b"), (3, 4, b"c"), (4, 1, b"d")])
        self.late(q, lease)
        self.expect(q.get("/reserve?reader=dies"), 409, "queue-held")
        self.assertEqual(q.post("/ack?lease=%s&id=2-4" % later).json(), {"acked": 3})

    def test_another_reader_waits_until_its_lease_has_ended(self):
        q = self.queue()
        q.post("/mput", b"a\nb")
        self.reserve(q, "lease=60000&reader=dies")
        held = self.expect(q.get("/reserve?wait=60000&reader=next"), 409, "queue-held")
        self.assertEqual(held.json()["reader"], "dies")
        self.assertEqual(q.post("/release?reader=dies").json()["released"], 1)
        self.assertEqual(self.reserve(q, "items=2&reader=next")[1], [(1, 2, b"a"), (2, 1, b"b")])

    def test_touch_keeps_its_messages_as_long_as_it_lives(self):
        q = self.queue()
        q.post("/put", b"a")
        lease, [(_, tries, _)] = self.reserve(q, "lease=1000")
        while q.post("/touch?lease=%s&extend=60000" % lease).status != 200:
            lease, [(_, tries, _)] = self.reserve(q, "lease=1000")  # a machine so busy that it had ended
        self.assertEqual(q.get("/reserve?wait=1200").body, b"")
        self.assertEqual(q.post("/touch?lease=%s&extend=50" % lease).json(), {"extended": 50})
        self.assertEqual(self.reserve(q, "wait=30000")[1], [(1, tries + 1, b"a")])
        self.assertEqual(self.numbers(q)["expired"], tries)

    def test_a_client_that_leaves_while_it_waits_takes_nothing(self):
        q = self.queue()
        gone = harness.connect(q.url)
        gone.request("GET", "/reserve?wait=60000&reader=dies")
        wait_until(lambda: q.stats()["waiting"] == 1, "it to wait")
        gone.close()
        wait_until(lambda: q.stats()["waiting"] == 0, "it to be forgotten")
        q.post("/put", b"a")
        self.assertEqual(self.reserve(q, "reader=next")[1], [(1, 1, b"a")])


class MemoryTest(ManyIds, Deaths, InMemory, QueueTest):
    pass


class DiskTest(ManyIds, Deaths, OnDisk, QueueTest):
    def test_late_acts_after_a_restart_hurt_nobody(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        dead, _ = self.reserve(q, "items=3&lease=60000&reader=r")
        q = self.again(q)
        self.late(q, dead)
        lease, got = self.reserve(q, "items=2&reader=next")
        self.assertEqual([m[0] for m in got], [1, 2])
        self.assertGreater(int(lease), int(dead))
        self.late(q, dead)
        self.assertEqual(q.post("/ack?lease=%s&id=1-2" % lease).json(), {"acked": 2})
        q = self.again(q)
        self.assertEqual([m[0] for m in self.reserve(q, "items=9")[1]], [3])

    def test_bury_kick_and_delay_over_restarts(self):
        """A kicked or delayed message comes last, with a new id and its tries, whenever the daemon was killed."""
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        lease, _ = self.reserve(q, "items=3")
        q.post("/bury?lease=%s&id=1&reason=bad" % lease)
        q.post("/nack?lease=%s&id=2&delay=300" % lease)
        q = self.again(q)
        wait_until(lambda: self.numbers(q)["delayed"] == 0, "the delay to end")
        q = self.again(q)
        self.assertEqual(q.get("/dead").json()["buried"][0]["tries"], 1)
        self.assertEqual(q.post("/kick").json(), {"kicked": 1})
        q = self.again(q)
        self.assertEqual(q.get("/dead").json(), {"buried": []})
        self.assertEqual(self.reserve(q, "items=9")[1], [(3, 1, b"c"), (4, 2, b"b"), (5, 2, b"a")])
        self.assertEqual(self.numbers(q)["next_id"], "6")


if __name__ == "__main__":
    harness.main()
