"""Batches over nng: what is stored when the reply comes, what is answered, and who waits when too much is under way."""
# full: MILLRACE_ROUNDS=200
import os
import re
import stat
import subprocess
import threading
import time

import harness
from harness import wait_until
from nng_client import Requester
from queue_test import InMemory, OnDisk, QueueTest


class NngTest(QueueTest):
    scheme = "tcp"
    socket = "socket"

    def listening(self, *args):
        """(the daemon, its URL)."""
        url = "tcp://127.0.0.1:0" if self.scheme == "tcp" else "ipc://" + self.path(self.socket)
        q = self.queue("--nng-listen=" + url, *args)
        return q, self.url_of(q)

    def url_of(self, q):
        if self.scheme == "ipc":
            return "ipc://" + self.path(self.socket)
        return "tcp://127.0.0.1:" + re.search(r"bound_port=(\d+)", q.log).group(1)

    def requester(self, url):
        r = Requester(url)
        self.addCleanup(r.close)
        return r

    def refused(self, reply, status, code):
        self.assertEqual((reply["status"], reply["code"]), (status, code), reply)
        self.assertTrue(reply["detail"])
        return reply


class Everywhere:
    def test_what_is_answered_is_there(self):
        q, url = self.listening()
        r = self.requester(url)
        reply = r.ask(b"\nfirst\nsecond")
        self.assertEqual((reply["status"], reply["ids"]), (200, "1-2"))
        self.assertEqual(reply["queue_id"], q.stats()["queues"]["default"]["queue_id"])
        self.assertEqual(q.get("/mget?items=5").body, b"first\nsecond\n")
        self.assertEqual(r.ask(b"queue=other\n\n\0\xff\n\r\n")["ids"], "1-2")
        self.assertEqual(q.get("/mget?queue=other&items=2").body, b"\0\xff\n\r")
        self.assertEqual(q.stats()["nng_batches_total"], 2)
        self.assertEqual(q.stats()["nng_messages_total"], 4)

    def test_the_librarys_own_client(self):
        q, url = self.listening()
        done = subprocess.run([harness.program("nng_put"), url], input=b"queue=a\nx\ny\n", capture_output=True,
                              timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b'"ids":"1-2"', done.stdout)
        self.assertEqual(q.get("/mget?queue=a&items=2").body, b"x\ny")

    def test_marks(self):
        q, url = self.listening()
        r = self.requester(url)
        first = b"producer=p&mark=0&next=5\na\nb"
        self.assertEqual(r.ask(first)["ids"], "1-2")
        again = r.ask(first)
        self.assertEqual((again["status"], again["duplicate"], "ids" in again), (200, True, False))
        self.assertEqual(self.refused(r.ask(b"queue=mk&producer=p&mark=6&next=7\nc"), 409, "mark-conflict")["mark"], "0")
        self.assertNotIn("mk", q.stats()["queues"], "a put that is refused makes no queue")
        self.assertEqual(self.refused(r.ask(b"producer=p&mark=6&next=7\nc"), 409, "mark-conflict")["mark"], "5")
        self.assertEqual(r.ask(b"producer=p&mark=5&next=6")["status"], 200)
        self.assertEqual(q.post("/put?producer=p&mark=6&next=7", b"c").status, 200, "the same marks as HTTP's")
        self.assertEqual(q.get("/mget?items=5").body, b"a\nb\nc\n")

    def test_a_delay(self):
        q, url = self.listening()
        r, began = self.requester(url), time.monotonic()
        self.assertEqual(r.ask(b"delay=200\nlate")["status"], 200)
        delayed = self.numbers(q)["delayed"]
        if time.monotonic() - began < 0.2:
            self.assertEqual(delayed, 1)
        self.assertEqual(self.reserve(q, "wait=30000")[1], [(2, 1, b"late")])

    def test_refusals(self):
        q, url = self.listening("--max-message=10", "--max-depth=3", "--max-queues=1")
        r = self.requester(url)
        for header in (b"message", b"queue=a%2Fb", b"queue=", b"queue=a&x=1", b"producer=p", b"producer=p&mark=2&next=2",
                       b"mark=1&next=2", b"delay=-1", b"delay=x", b"%zz", b"\xff", b"\0"):
            with self.subTest(header):
                self.refused(r.ask(header + b"\nx"), 400, "bad-parameter")
        for body in (b"", b"\n", b"queue=a", b"\n\n\n"):
            self.refused(r.ask(body), 400, "missing-data")
        self.refused(r.ask(b"\n" + b"x" * 11), 413, "too-large")
        self.assertEqual(r.ask(b"\n" + b"x" * 10)["status"], 200)
        self.refused(r.ask(b"\na\nb\nc"), 503, "queue-full")
        self.refused(r.ask(b"queue=second\na"), 503, "too-many-queues")
        numbers = q.stats()
        self.assertEqual((numbers["depth"], numbers["nng_refused_total"]), (1, 19))
        self.assertEqual(self.numbers(q)["rejected"], 1)

    def test_what_is_no_request_hurts_nobody(self):
        q, url = self.listening("--max-body=10000")
        good = self.requester(url)
        for message in (b"", b"\0\0\0\1", b"\0\0\0\1" * 30, b"x" * 20000):
            bad = self.requester(url)
            bad.send_raw(message)
            self.assertEqual(good.ask(b"\nx")["status"], 200)
        self.assertEqual(q.stats()["nng_batches_total"], 4)

    def test_a_batch_that_is_too_large_is_answered(self):
        """And the connection goes on. One of over twice the limit nng itself ends; new connections tell of that."""
        q, url = self.listening("--max-body=10000", "--max-message=20000")
        r = self.requester(url)
        self.assertEqual(r.ask(b"\n" + b"x" * 9999)["ids"], "1-1")
        for size in (10000, 15000, 19000):
            reply = self.refused(r.ask(b"\n" + b"x" * size), 413, "too-large")
            self.assertIn("%d bytes; the limit, --max-body, is 10000" % (size + 1), reply["detail"])
        self.assertEqual(r.ask(b"\ny")["ids"], "2-2")
        numbers = q.stats()
        self.assertEqual((numbers["nng_refused_total"], numbers["refused_total"], numbers["depth"]), (3, 3, 2))
        self.assertEqual(len(re.findall(r"nng batch is over max_body\b.* bytes=1\d{4}\b", q.log)), 3, q.log)
        self.assertEqual(numbers["nng_connections_total"], 1)
        for again in range(3):
            with self.assertRaises((ConnectionError, OSError)):
                r = self.requester(url)
                r.ask(b"\n" + b"x" * 40000)
        self.assertEqual(self.requester(url).ask(b"\nz")["ids"], "3-3")
        self.assertEqual(q.stats()["nng_connections_total"], 5)

    def test_a_full_queue_overflows(self):
        q, url = self.listening("--max-depth=2", "--overflow-log=" + self.path("log"))
        r = self.requester(url)
        numbers = [r.send(b"\n%d" % n) for n in range(10)]
        replies = [r.receive() for _ in numbers]
        self.assertEqual(sorted(n for n, _ in replies), numbers)
        self.assertEqual({reply["status"] for _, reply in replies}, {200})
        by_id = sorted(replies, key=lambda reply: int(reply[1]["ids"].split("-")[0]))  # nng may deliver requests in another order
        self.assertEqual(harness.read_file(self.path("log")).split() + q.get("/mget?items=5").body.split(),
                         [b"%d" % numbers.index(n) for n, _ in by_id])

    def test_connections_are_bounded(self):
        q, url = self.listening("--max-connections=3")
        held = [self.requester(url) for _ in range(3)]
        for r in held:
            self.assertEqual(r.ask(b"\nx")["status"], 200)
        with self.assertRaises((ConnectionError, OSError)):
            extra = self.requester(url)
            extra.send(b"\nx")
            extra.receive()
        self.assertEqual(q.stats()["nng_connections_refused_total"], 1)
        held.pop().close()
        wait_until(lambda: q.stats()["nng_connections"] == 2, "the connection to be gone")
        self.assertEqual(self.requester(url).ask(b"\nx")["status"], 200)

    def test_who_does_not_read_costs_nobody_his_reply(self):
        """Some clients send without pause and read no reply. Replies for which nng has no room wait, and a client that reads is
        answered."""
        q, url = self.listening()
        live = self.requester(url)
        deaf = [self.requester(url) for _ in range(8)]

        def send(r):
            for _ in range(1500):
                r.send(b"queue=deaf\nz")
        threads = [threading.Thread(target=send, args=(r,)) for r in deaf]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            self.assertEqual(live.ask(b"\nx")["status"], 200)
        wait_until(lambda: q.stats()["queues"]["deaf"]["depth"] == 8 * 1500, "all to be stored")
        self.assertEqual(q.stats()["nng_replies_dropped_total"], 0)
        self.assertNotIn("dropped", q.log)

    def test_settings_that_cannot_be(self):
        for url, hint in (("http://127.0.0.1:1", b"tcp://"), ("tcp://127.0.0.1:99999", b"tcp://127.0.0.1:99999"),
                          ("tcp://127.0.0.1", b"ADDRESS:PORT"), ("tcp://[::1]", b"ADDRESS:PORT"), ("tcp://a:0,tcp://b:", b"tcp://b:"),
                          ("ipc://" + self.path("no", "such"), b"no/such")):
            bad = self.run_program("simplequeue", "--port=0", "--nng-listen=" + url)
            self.assertEqual(bad.returncode, 78, bad.stderr)
            self.assertIn(hint, bad.stderr)
        for gap in ("ipc://a,,ipc://b", "ipc://a,", ",ipc://a", "ipc://a, ,ipc://b", " ", ","):
            bad = self.run_program("simplequeue", "--port=0", "--nng-listen=" + gap)
            self.assertEqual((bad.returncode, b"a URL is missing" in bad.stderr), (78, True), bad.stderr)
        bad = self.run_program("simplequeue", "--port=0", "--nng-listen=")
        self.assertEqual((bad.returncode, b"has 0 bytes" in bad.stderr), (64, True), bad.stderr)
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        bad = self.run_program("simplequeue", "--port=0", "--nng-listen=tcp://127.0.0.1:0", "--auth-token-file=" + token)
        self.assertEqual(bad.returncode, 78)
        self.assertIn(b"token", bad.stderr)

    def test_a_stop_answers_what_it_took(self):
        """nng is given a moment to write the replies, so some may be missing."""
        harness.slower_and_slower(1, self.a_stop)

    def a_stop(self, _):
        q, url = self.listening()
        r = self.requester(url)
        for n in range(20):
            r.send(b"\n%d" % n)
        stored = wait_until(lambda: q.stats()["nng_batches_total"], "one to be stored")
        q.process.terminate()
        replies = 0
        try:
            while True:
                r.receive()
                replies += 1
        except (ConnectionError, OSError):
            pass
        self.assertEqual(q.process.wait(harness.PATIENCE), 0)
        self.assertGreaterEqual(replies, stored)


class MemoryOverTcp(Everywhere, InMemory, NngTest):
    pass


class DiskOverIpc(Everywhere, OnDisk, NngTest):
    scheme = "ipc"

    def test_who_may_connect(self):
        """Not what the umask of whoever started the daemon says."""
        self.listening()
        self.assertEqual(stat.S_IMODE(os.stat(self.path("socket")).st_mode), 0o660)


class CommitTest(OnDisk, NngTest):
    """With a policy that makes commits slow enough to look at what is not committed; slower, if need be."""

    def syncing(self, seconds, *args):
        self.data, self.socket = self.path("data-%g" % seconds), "socket-%g" % seconds
        return self.listening("--sync=%d" % (seconds * 1000), *args)

    def queue(self, *args, **kw):
        return self.start("simplequeue", "--data-dir=" + self.data, *args, **kw)

    def test_the_reply_waits_for_the_commit(self):
        harness.slower_and_slower(0.4, self.reply_waits)

    def reply_waits(self, seconds):
        q, url = self.syncing(seconds)
        r = self.requester(url)
        r.ask(b"\na")  # from here on the next sync is a while away
        r.send(b"\nb")
        wait_until(lambda: q.stats()["nng_batches_waiting"] == 1, "the batch to be taken", timeout=harness.SOON)
        self.assertEqual(q.get("/mget?items=5").body, b"a\n")
        number, reply = r.receive()
        self.assertEqual((number, reply["ids"]), (2, "2-2"))
        self.assertEqual(q.get("/get").body, b"b")

    def test_replies_come_out_of_order(self):
        """A wrong request is refused at once, also after a request that waits for its commit."""
        harness.slower_and_slower(0.4, self.out_of_order)

    def out_of_order(self, seconds):
        q, url = self.syncing(seconds)
        r, other = self.requester(url), self.requester(url)
        r.ask(b"\na")
        r.send(b"\nb")
        r.send(b"nonsense\n")
        self.assertEqual(self.refused(other.ask(b"nonsense\n"), 400, "bad-parameter")["status"], 400)
        self.assertEqual([r.receive()[0] for _ in range(2)], [3, 2])

    def test_back_pressure_reaches_the_sender(self):
        """The daemon takes only as many bytes as may wait for a commit. The other requests stay with their senders, and are served
        later."""
        harness.slower_and_slower(0.25, self.back_pressure)

    def back_pressure(self, seconds):
        q, url = self.syncing(seconds, "--max-body=2M", "--max-message=2M")
        senders = [self.requester(url) for _ in range(8)]
        body = b"\n" + b"x" * 1000000
        answered, most = [], [0, 0]

        def send(r):
            numbers = [r.send(body) for _ in range(8)]
            answered.extend(r.receive()[1]["status"] for _ in numbers)
        threads = [threading.Thread(target=send, args=(r,)) for r in senders]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            stats = q.stats()
            most = [max(most[0], stats["nng_batches_waiting"]), max(most[1], stats["nng_waiting_bytes"])]
            time.sleep(seconds / 50)  # a commit takes `seconds`
        self.assertEqual(answered, [200] * 64)
        self.assertLessEqual(most[1], (16 << 20) + len(body))
        self.assertGreater(most[1], 8 << 20, "that the bound was come near to")
        self.assertEqual(q.stats()["depth"], 64)

    def test_many_small_ones_are_bounded_too(self):
        harness.slower_and_slower(0.25, self.many_small_ones)

    def many_small_ones(self, seconds):
        q, url = self.syncing(seconds)
        senders = [self.requester(url) for _ in range(5)]
        most = 0
        for r in senders:
            for _ in range(40):
                r.send(b"\nx")
        while (stats := q.stats())["nng_batches_total"] < 200:
            most = max(most, stats["nng_batches_waiting"])
            time.sleep(seconds / 50)
        self.assertLessEqual(most, 64)
        self.assertGreater(most, 32)
        for r in senders:
            self.assertEqual(sorted(r.receive()[0] for _ in range(40)), list(range(1, 41)))


if harness.rounds(1) >= 200:  # the commits are the same

    class CommitOverIpc(CommitTest):
        scheme = "ipc"


class KillTest(OnDisk, NngTest):
    def test_kill9_under_load(self):
        """Producers repeat with marks what was not answered: each message is there once, in order."""
        random = harness.seeded()
        producers = [0, 0, 0]

        def produce(p, url):
            try:
                r = self.requester(url)
                while True:
                    n = producers[p]
                    lines = b"\n".join(b"%d %d" % (p, n + i) for i in range(5))
                    reply = r.ask(b"producer=p%d&mark=%d&next=%d\n%s" % (p, n, n + 5, lines))
                    assert reply["status"] == 200, reply
                    producers[p] = n + 5
            except OSError:
                pass
        for _ in range(harness.rounds(2)):
            q, url = self.listening()
            threads = [threading.Thread(target=produce, args=(p, url)) for p in range(3)]
            before = sum(producers)
            for t in threads:
                t.start()
            wait_until(lambda: sum(producers) > before, "something to be stored")
            time.sleep(random.uniform(0, 0.25))
            q.kill9()
            for t in threads:
                t.join()
        q, _ = self.listening()
        everything = []
        while got := q.get("/mget?items=10000").body.split():
            everything += got
        for p in range(3):
            mine = [int(n) for producer, n in zip(everything[::2], everything[1::2]) if int(producer) == p]
            self.assertEqual(mine, list(range(len(mine))))
            self.assertGreaterEqual(len(mine), producers[p])
            self.assertLessEqual(len(mine), producers[p] + 5)


if harness.rounds(1) >= 200:

    class KillOverIpc(KillTest):
        scheme = "ipc"


if __name__ == "__main__":
    harness.main()
