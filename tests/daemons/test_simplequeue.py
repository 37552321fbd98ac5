"""simplequeue as a client sees it: bitly's endpoints, leases, marks, what survives kill -9, and every error."""
# full: MILLRACE_ROUNDS=200
import gzip
import socket
import threading
import time

import harness
from harness import wait_until
from queue_test import InMemory, OnDisk, QueueTest, reserved


class Everywhere:
    """What holds with and without a data directory."""

    def test_bitly_put_and_get_in_order(self):
        q = self.queue()
        self.expect(q.get("/put?data=12345"), 200)
        self.assertEqual(self.expect(q.post("/put", b"23456"), 200).body, b"")
        stats = q.stats()
        self.assertEqual((stats["depth"], stats["bytes"], stats["puts"]), (2, 10, 2))
        self.assertEqual([q.get("/get").body for _ in range(3)], [b"12345", b"23456", b""])
        self.assertEqual(q.stats()["depth"], 0)
        self.assertIn("depth:0\n", q.get("/stats").text)
        self.assertIn("depth_high_water:2\n", q.get("/stats").text)

    def test_bitly_mget_and_mput(self):
        q = self.queue()
        for text in ("12345", "23456", "34567", "45678"):
            q.get("/put?data=" + text)
        self.assertEqual(q.get("/mget?items=5").body, b"12345\n23456\n34567\n45678\n")
        q.get("/mput?data=test1%0Atest2%0Atest3")
        self.assertEqual([q.get("/get").body for _ in range(4)], [b"test1", b"test2", b"test3", b""])
        self.expect(q.post("/mput", b"a\n\nb\n"), 200)
        self.assertEqual(q.get("/mget?items=2").body, b"a\nb")
        self.expect(q.post("/mput?separator=%7C%7C", b"one|two||th\nree"), 200)
        self.assertEqual(q.get("/mget?items=2&separator=;").body, b"one|two;th\nree")

    def test_any_bytes(self):
        q = self.queue()
        message = bytes(range(256)) * 3
        self.expect(q.post("/put", message), 200)
        self.expect(q.get("/put?data=%00%FF%0A"), 200)
        self.assertEqual(q.get("/get").body, message)
        _, got = self.reserve(q, "items=1")
        self.assertEqual(got, [(2, 1, b"\0\xff\n")])

    def test_limits(self):
        q = self.queue("--max-message=100")
        self.expect(q.post("/put", b"x" * 100), 200)
        self.expect(q.post("/put", b"x" * 101), 413, "too-large")
        self.expect(q.post("/mput", b"a\n" + b"x" * 101), 413, "too-large")
        self.assertEqual(q.stats()["depth"], 1)

    def test_full(self):
        q = self.queue("--max-depth=3")
        self.expect(q.post("/mput", b"1\n2"), 200)
        self.expect(q.post("/mput", b"3\n4"), 503, "queue-full")
        lease, _ = self.reserve(q, "items=2")
        self.expect(q.post("/put", b"3"), 200)
        self.expect(q.post("/put", b"4"), 503, "queue-full")
        self.expect(q.post("/ack?lease=%s&id=1-2" % lease), 200)
        self.expect(q.post("/put", b"4"), 200)

    def test_ids_headers(self):
        q = self.queue()
        one = q.post("/put", b"x")
        self.assertEqual(one.header("X-Millrace-Id"), "1")
        many = q.post("/mput", b"a\nb\nc")
        self.assertEqual(many.header("X-Millrace-Ids"), "2-4")
        self.assertEqual(one.header("X-Millrace-Queue-Id"), many.header("X-Millrace-Queue-Id"))
        self.assertRegex(one.header("X-Millrace-Queue-Id"), "^[0-9a-f]{32}$")
        self.assertEqual(q.stats()["queues"]["default"]["next_id"], "5")

    def test_encoded_bodies_are_decompressed(self):
        q = self.queue()
        for path in ("/put", "/mput"):
            refused = self.expect(q.post(path, b"a\nb", headers={"Content-Encoding": "br"}), 415, "unsupported-encoding")
            self.assertIn("uncompressed", refused.json()["hint"])
            self.expect(q.post(path, b"a\nb", headers={"Content-Encoding": "gzip"}), 400, "bad-encoding")
        self.expect(q.post("/mput", gzip.compress(b"a\nb"), headers={"Content-Encoding": "gzip"}), 200)
        self.expect(q.post("/put", gzip.compress(b"c\nd"), headers={"Content-Encoding": "gzip"}), 200)
        self.assertEqual([m for _, _, m in self.reserve(q, "items=9")[1]], [b"a", b"b", b"c\nd"])

    def test_named_queues_are_apart(self):
        q = self.queue("--max-queues=2")
        q.post("/put?queue=a", b"in a")
        q.post("/put?queue=b", b"in b")
        self.expect(q.post("/put?queue=c", b"x"), 503, "too-many-queues")
        self.assertEqual(q.get("/get?queue=b").body, b"in b")
        self.assertEqual(q.get("/get?queue=c").body, b"")
        self.assertEqual(q.get("/get").body, b"")
        self.assertEqual(sorted(q.stats()["queues"]), ["a", "b"])

    def test_lease_life(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc\nd")
        lease, got = self.reserve(q, "items=3&reader=r")
        self.assertEqual(got, [(1, 1, b"a"), (2, 1, b"b"), (3, 1, b"c")])
        held = self.expect(q.get("/reserve?reader=other"), 409, "queue-held")
        self.assertEqual(held.json()["reader"], "r")
        self.expect(q.get("/reserve"), 409, "queue-held")
        self.assertEqual(q.post("/ack?lease=%s&id=1,7-9" % lease).json(), {"acked": 1})
        self.assertEqual(q.post("/nack?lease=%s&id=2" % lease).json(), {"nacked": 1})
        self.expect(q.post("/ack?lease=%s&id=1-2" % lease), 409, "lease-lost")
        second, got = self.reserve(q, "items=9&reader=r")
        self.assertEqual(got, [(2, 2, b"b"), (4, 1, b"d")])
        self.assertGreater(int(second), int(lease))
        self.assertEqual(q.post("/release?reader=nobody").json()["released"], 0)
        answer = q.post("/release?reader=r").json()
        self.assertEqual(answer, {"released": 3})
        self.expect(q.post("/ack?lease=%s&id=2-4" % second), 409, "lease-lost")
        _, got = self.reserve(q, "items=9&reader=other")
        self.assertEqual([m[0] for m in got], [2, 3, 4])

    def test_lease_expires_and_touch_keeps_it(self):
        q = self.queue()
        q.post("/mput", b"a\nb")
        first, _ = self.reserve(q, "lease=60000")
        kept, _ = self.reserve(q, "lease=300")
        while q.post("/touch?lease=%s&extend=60000" % kept).status != 200:
            kept, _ = self.reserve(q, "lease=300")  # a machine so busy that it had ended
        self.expect(q.post("/touch?lease=%s&extend=400" % first), 200)
        _, got = self.reserve(q, "wait=20000&items=5")
        self.assertEqual(got, [(1, 2, b"a")])
        self.expect(q.post("/ack?lease=%s&id=1" % first), 409, "lease-lost")
        self.assertEqual(q.post("/ack?lease=%s&id=2" % kept).json(), {"acked": 1})
        late = self.expect(q.post("/touch?lease=%s" % kept), 409, "lease-lost")
        self.assertEqual(late.header("X-Millrace-Queue-Id"), self.numbers(q)["queue_id"])

    def test_ack_rides_a_reserve(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc")
        lease, _ = self.reserve(q, "items=2")
        reply = self.expect(q.get("/reserve?ack=%s:1-2" % lease), 200)
        self.assertEqual((reply.header("X-Millrace-Acked"), reserved(reply)), ("2", [(3, 1, b"c")]))
        self.expect(q.get("/reserve?ack=%s:1-2" % lease), 409, "lease-lost")
        reply = self.expect(q.get("/reserve?ack=%s:3" % reply.header("X-Millrace-Lease")), 200)
        self.assertEqual((reply.header("X-Millrace-Acked"), reply.body), ("1", b""))
        self.assertIsNone(reply.header("X-Millrace-Lease"))

    def test_long_poll_is_first_come_first_served(self):
        q = self.queue()
        replies = []

        def wait_for_one():
            replies.append(reserved(q.get("/reserve?wait=30000&lease=60000&queue=new")))
        threads = [threading.Thread(target=wait_for_one) for _ in range(3)]
        for n, t in enumerate(threads):
            t.start()
            wait_until(lambda n=n: q.stats()["waiting"] == n + 1, "it to wait")
        gone = socket.create_connection(("127.0.0.1", int(q.url.rsplit(":", 1)[1])))
        gone.sendall(b"GET /reserve?wait=30000&queue=new HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: q.stats()["waiting"] == 4, "it to wait")
        gone.close()
        wait_until(lambda: q.stats()["waiting"] == 3, "the lost client to be forgotten")
        q.post("/mput?queue=new", b"a\nb\nc\nd")
        for t in threads:
            t.join()
        self.assertEqual(sorted(r[0][0] for r in replies), [1, 2, 3])
        self.assertEqual(q.stats()["queues"]["new"]["ready"], 1)
        self.assertEqual(q.get("/reserve?wait=50&queue=none").body, b"")

    def test_nack_with_delay_takes_a_new_id(self):
        q = self.queue()
        q.post("/mput", b"a\nb")
        lease, _ = self.reserve(q, "items=2")
        began = time.monotonic()
        self.assertEqual(q.post("/nack?lease=%s&id=1-2&delay=200" % lease).json(), {"nacked": 2})
        stats = q.stats()["queues"]["default"]
        if time.monotonic() - began < 0.2:
            self.assertEqual((stats["delayed"], stats["depth"], stats["next_id"]), (2, 2, "3"))
        wait_until(lambda: q.stats()["queues"]["default"]["ready"] == 2, "the delay to end")
        _, got = self.reserve(q, "items=5")
        self.assertEqual(got, [(3, 2, b"a"), (4, 2, b"b")])

    def test_bury_dead_kick(self):
        q = self.queue()
        q.post("/mput", b"a\nb")
        lease, _ = self.reserve(q, "items=2")
        self.assertEqual(q.post("/bury?lease=%s&id=1&reason=no%%20good" % lease).json(), {"buried": 1})
        dead = q.get("/dead").json()["buried"]
        self.assertEqual([(d["id"], d["reason"], d["message"], d["tries"]) for d in dead], [("1", "no good", "a", 1)])
        self.assertEqual(q.stats()["depth"], 1)
        self.assertEqual(q.post("/kick?items=5").json(), {"kicked": 1})
        self.assertEqual(q.post("/kick?items=5").json(), {"kicked": 0})
        _, got = self.reserve(q, "items=5")
        self.assertEqual(got, [(3, 2, b"a")])
        self.assertEqual(q.get("/dead").json(), {"buried": []})

    def test_discard(self):
        q = self.queue()
        q.post("/put", b"a")
        lease, _ = self.reserve(q, "items=1")
        q.post("/bury?id=1&lease=" + lease)
        for deleted in (1, 0):
            self.assertEqual(harness.request(q.url, "DELETE", "/dead?id=1").json(), {"deleted": deleted})
        self.assertEqual(q.stats()["depth"], 0)

    def test_marks(self):
        q = self.queue()
        self.expect(q.post("/mput?producer=p&mark=0&next=10", b"a\nb"), 200)
        again = self.expect(q.post("/mput?producer=p&mark=0&next=10", b"a\nb"), 200)
        self.assertEqual(again.header("X-Millrace-Duplicate"), "1")
        self.assertIsNone(again.header("X-Millrace-Ids"))
        unmade = self.expect(q.post("/put?queue=mk&producer=p&mark=5&next=6", b"x"), 409, "mark-conflict")
        self.assertEqual(unmade.json()["mark"], "0")
        self.assertNotIn("mk", q.stats()["queues"], "a put that is refused makes no queue")
        conflict = self.expect(q.post("/put?producer=p&mark=11&next=12", b"x"), 409, "mark-conflict")
        got = q.get("/producer?producer=p").json()
        self.assertEqual((got["mark"], got["known"]), ("10", True))
        self.assertEqual(q.get("/producer?producer=new").json()["known"], False)
        self.assertEqual(q.get("/producer?queue=none&producer=p").json()["mark"], "0")
        self.assertEqual(conflict.json()["mark"], "10")
        self.expect(q.post("/mput?producer=p&mark=10&next=11", b""), 200)
        self.expect(q.post("/put?producer=p&mark=11&next=12", b"c"), 200)
        self.assertEqual(q.get("/mget?items=9").body, b"a\nb\nc\n")
        for bad in ("producer=p", "mark=1&next=2", "producer=p&mark=2&next=2", "producer=p&mark=x&next=2",
                    "producer=p/p&mark=1&next=2"):
            self.expect(q.post("/put?" + bad, b"x"), 400, "bad-parameter")
        for bad, fault in (("mark=5&next=5", "producer, mark and next must be given together"),
                           ("producer=p&mark=5&next=5", "mark is not below next"),
                           ("producer=p/p&mark=5&next=6", "producer is not a name"),
                           ("producer=p&mark=x&next=6", "mark is not a number"),
                           ("producer=p&mark=5&next=", "next is not a number")):
            self.assertEqual(q.post("/put?" + bad, b"x").json()["detail"], fault)

    def test_only_puts_are_counted_as_puts(self):
        q = self.queue()
        self.expect(q.post("/mput", b"a\nb\nc"), 200)
        self.expect(q.post("/put?delay=1", b"d"), 200)
        wait_until(lambda: self.numbers(q)["ready"] == 4, "the delay to end")
        lease, held = self.reserve(q, "items=2&lease=600000")
        self.expect(q.post("/nack?lease=%s&id=%d&delay=1" % (lease, held[0][0])), 200)
        self.expect(q.post("/bury?lease=%s&id=%d" % (lease, held[1][0])), 200)
        self.expect(q.post("/kick?items=1"), 200)
        wait_until(lambda: self.numbers(q)["ready"] == 4, "all to be ready")
        self.assertEqual((self.numbers(q)["puts"], q.stats()["puts"]), (4, 4))
        self.assertEqual(self.metric(q, "messages_put_total"), 4)

    def test_bad_requests(self):
        q = self.queue()
        q.post("/put", b"x")
        for target, status, code in (
                ("/put", 400, "missing-data"), ("/put?data=", 400, "missing-data"), ("/mput", 400, "missing-data"),
                ("/put?queue=a/b&data=x", 400, "bad-parameter"), ("/get?queue=", 400, "bad-parameter"),
                ("/mget?items=0", 400, "bad-parameter"), ("/mget?items=-1", 400, "bad-parameter"),
                ("/mput?separator=", 400, "bad-parameter"), ("/reserve?lease=0", 400, "bad-parameter"),
                ("/reserve?wait=x", 400, "bad-parameter"), ("/reserve?ack=5", 400, "bad-parameter"),
                ("/reserve?ack=5:", 400, "bad-parameter"), ("/reserve?ack=5:1", 409, "lease-lost"),
                ("/reserve?reader=a%20b", 400, "bad-parameter"),
                ("/ack?id=1", 400, "missing-parameter"), ("/ack?lease=1", 400, "missing-parameter"),
                ("/ack?lease=1&id=2-1", 400, "bad-parameter"), ("/ack?lease=1&id=1,,2", 400, "bad-parameter"),
                ("/ack?lease=1&id=1", 409, "lease-lost"), ("/ack?lease=1&id=1&queue=none", 409, "lease-lost"),
                ("/nack?lease=1&id=1&delay=-1", 400, "bad-parameter"), ("/nack?lease=1&id=1", 409, "lease-lost"),
                ("/nack?lease=1&id=1&delay=5", 409, "lease-lost"), ("/bury?lease=1&id=1", 409, "lease-lost"),
                ("/touch?lease=1", 409, "lease-lost"), ("/put?data=%zz", 400, "bad-parameter"),
                ("/nowhere", 404, "not-found")):
            with self.subTest(target):
                reply = self.expect(q.post(target), status)
                if target != "/put?data=%zz":
                    self.assertEqual(reply.json()["code"], code)
        self.expect(harness.request(q.url, "DELETE", "/get"), 405)
        self.assertEqual(self.expect(harness.request(q.url, "HEAD", "/get"), 405).header("Allow"), "GET, POST")
        stats = q.stats()["queues"]["default"]
        self.assertEqual((stats["ready"], stats["puts"]), (1, 1))

    def test_stop_answers_those_who_wait(self):
        q = self.queue()
        replies = []
        t = threading.Thread(target=lambda: replies.append(q.get("/reserve?wait=60000")))
        t.start()
        wait_until(lambda: q.stats()["waiting"] == 1, "it to wait")
        q.stop()
        t.join()
        self.assertEqual((replies[0].status, replies[0].body), (200, b""))


class MemoryTest(Everywhere, InMemory, QueueTest):
    def test_a_new_id_each_start(self):
        first, second = self.queue(), self.queue()
        ids = [q.post("/put", b"x").header("X-Millrace-Queue-Id") for q in (first, second)]
        self.assertNotEqual(*ids)


class DiskTest(Everywhere, OnDisk, QueueTest):
    def syncs(self, q):
        name = "millrace_simplequeue_journal_syncs_total "
        return int(next(m for m in q.get("/metrics").text.splitlines() if m.startswith(name))[len(name):])

    def test_syncs_are_counted(self):
        q = self.queue("--sync=0")
        q.post("/put", b"x")
        before = self.syncs(q)
        for _ in range(5):
            q.post("/put", b"x")
        self.assertEqual(self.syncs(q) - before, 5)
        q.stop()
        q = self.queue("--sync=never")
        q.post("/put", b"x")
        before = self.syncs(q)
        for _ in range(5):
            q.post("/put", b"x")
        self.assertEqual(self.syncs(q), before)

    def test_what_a_restart_keeps(self):
        q = self.queue()
        q.post("/mput", b"a\nb\nc\nd\ne")
        queue_id = q.post("/put?producer=p&mark=0&next=5", b"f").header("X-Millrace-Queue-Id")
        lease, _ = self.reserve(q, "items=4&reader=r")
        q.post("/ack?lease=%s&id=1" % lease)
        q.post("/bury?lease=%s&id=2&reason=why" % lease)
        q.post("/nack?lease=%s&id=3&delay=1500" % lease)
        q = self.again(q)
        self.expect(q.post("/ack?lease=%s&id=4" % lease), 409, "lease-lost")
        stats = q.stats()["queues"]["default"]
        self.assertEqual(stats["queue_id"], queue_id)
        self.assertEqual((stats["ready"] + stats["delayed"], stats["buried"]), (4, 1))
        duplicate = q.post("/put?producer=p&mark=0&next=5", b"f")
        self.assertEqual(duplicate.header("X-Millrace-Duplicate"), "1")
        self.assertEqual(q.get("/dead").json()["buried"][0]["reason"], "why")
        wait_until(lambda: q.stats()["queues"]["default"]["delayed"] == 0, "the delay to end")
        self.assertEqual(q.post("/kick").json(), {"kicked": 1})
        q = self.again(q)
        later, got = self.reserve(q, "items=9")
        self.assertEqual([(m[0], m[2]) for m in got], [(4, b"d"), (5, b"e"), (6, b"f"), (7, b"c"), (8, b"b")])
        self.assertEqual([m[1] for m in got[3:]], [2, 2])
        self.assertGreater(int(later), int(lease))

    def test_ids_go_on_after_everything_is_trimmed(self):
        q = self.queue("--segment-bytes=64K")
        body = b"\n".join(b"%01000d" % n for n in range(100))
        for n in range(20):
            self.expect(q.post("/mput", body), 200)
            self.assertEqual(len(q.get("/mget?items=100").body.split(b"\n")), 100)
        wait_until(lambda: q.stats()["queues"]["default"]["disk_bytes"] < 1000000, "old segments to go")
        q = self.again(q, "--segment-bytes=64K")
        q = self.again(q, "--segment-bytes=64K")
        self.assertEqual(q.post("/put", b"x").header("X-Millrace-Id"), "2001")

    def test_one_owner(self):
        self.queue()
        second = self.run_program("simplequeue", "--data-dir=" + self.path("data"), "--port=0")
        self.assertEqual(second.returncode, 78)
        self.assertIn(self.path("data").encode(), second.stderr)

    def test_kill9_under_load(self):
        random = harness.seeded()
        q = self.queue()
        model = Load(self, random)
        for round_ in range(harness.rounds(3)):
            model.run(q)
            time.sleep(random.uniform(0, 0.3))
            q.kill9()
            model.stop()
            q = self.queue()
        model.check(q)


class Load:
    """Producers that retry with marks, and one reader that acknowledges, while the daemon is killed. `mark` and `acked` have the
    acknowledged acts; acts in `unsure` got no reply, so they may or may not have happened."""
    PRODUCERS = 3

    def __init__(self, test, random):
        self.test, self.random = test, random
        self.mark = [0] * self.PRODUCERS  # messages of producer p that were acknowledged
        self.acked, self.unsure = {}, {}  # id -> message
        self.seen = {}                    # id -> message, of everything ever delivered
        self.threads, self.failures = [], []

    def run(self, q):
        """Until something was put and acknowledged in this round, and they go on."""
        before = sum(self.mark), len(self.acked)
        self.over = False
        self.threads = [threading.Thread(target=self.until_killed, args=(self.produce, q, p))
                        for p in range(self.PRODUCERS)]
        self.threads.append(threading.Thread(target=self.until_killed, args=(self.read, q)))
        for t in self.threads:
            t.start()
        wait_until(lambda: self.failures or (sum(self.mark) > before[0] and len(self.acked) > before[1]), "both to have worked")

    def until_killed(self, work, q, *args):
        connection = harness.connect(q.url)
        try:
            work(q, connection, *args)
        except harness.UNREACHABLE:
            pass
        except Exception as e:
            self.failures.append(repr(e))
        finally:
            connection.close()

    def stop(self):
        self.over = True
        for t in self.threads:
            t.join()
        self.test.assertEqual(self.failures, [])

    def produce(self, q, connection, p):
        while not self.over:
            first, n = self.mark[p], 1 + (self.mark[p] * 7 + p) % 5
            body = b"\n".join(b"%d %d" % (p, first + i) for i in range(n))
            connection.request("POST", "/mput?producer=p%d&mark=%d&next=%d" % (p, first, first + n), body)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200, reply.status
            self.mark[p] = first + n

    def read(self, q, _):
        q.post("/release?reader=r")
        while not self.over:
            self.read_once(q)

    def read_once(self, q):
        reply = q.get("/reserve?items=20&wait=100&reader=r")
        got = reserved(reply)
        for number, _, text in got:
            assert number not in self.acked, "%d was acknowledged" % number
            assert self.seen.setdefault(number, text) == text, "%d has two texts" % number
        if got:
            self.unsure.update((n, text) for n, _, text in got)
            answer = q.post("/ack?lease=%s&id=%d-%d" % (reply.header("X-Millrace-Lease"), got[0][0], got[-1][0]))
            assert answer.json()["acked"] == len(got), answer
            for n, _, text in got:
                self.acked[n] = self.unsure.pop(n)

    def check(self, q):
        """The remaining and the acknowledged messages together are all messages, each once, in order."""
        q.post("/release?reader=r")
        rest = []
        while got := reserved(q.get("/reserve?items=1000000&reader=r")):  # a reply holds only so many bytes
            rest += got
        everything = dict(self.acked)
        for number, _, text in rest:
            self.test.assertNotIn(number, self.acked)
            everything[number] = text
        for number, text in self.unsure.items():
            everything.setdefault(number, text)
        for p in range(self.PRODUCERS):
            mine = [int(text.split()[1]) for _, text in sorted(everything.items()) if text.split()[0] == b"%d" % p]
            self.test.assertEqual(mine, list(range(len(mine))), "stored once, in order")
            self.test.assertGreaterEqual(len(mine), self.mark[p], "nothing acknowledged is lost")
        self.test.assertEqual(sorted(everything), list(range(1, len(everything) + 1)))
        self.test.assertGreater(len(self.acked), 0)


if __name__ == "__main__":
    harness.main()
