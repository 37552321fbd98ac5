"""A queue deeper than its memory, killed with -9 at random under load: no acknowledged put is lost, no acknowledged ack
undone, messages keep their order, ids never repeat, and puts retried with marks are stored once."""
# full: MILLRACE_ROUNDS=200
import random
import threading
import time

import harness
from harness import UNREACHABLE, query, wait_until
from queue_test import OnDisk, QueueTest, message, number, reserved

BATCH = 100
A_ROUND = 6000  # messages put in a round, at most and one batch


class Load(threading.Thread):
    """A client that goes on through every restart; what went wrong is kept."""

    def __init__(self, test):
        super().__init__(daemon=True)
        self.test, self.wrong, self.over = test, None, False
        self.start()

    def run(self):
        try:
            while not self.over:
                self.step()
        except Exception as e:  # pylint: disable=broad-except
            self.wrong = e

    def ask(self, target, body=b""):
        """None when the daemon was away, or went before it answered."""
        try:
            return self.test.q.post(target, body)
        except UNREACHABLE:
            time.sleep(0.005)
            return None

    def end(self):
        self.over = True
        self.join(harness.PATIENCE)
        if self.wrong:
            raise self.wrong
        self.test.assertFalse(self.is_alive(), "it has ended")


class Producer(Load):
    sent = 0  # all below are acknowledged

    def step(self):
        body = b"\n".join(message(i) for i in range(self.sent, self.sent + BATCH))
        reply = self.ask("/mput?" + query(producer="p", mark=self.sent, next=self.sent + BATCH), body)
        if reply and reply.status == 200:
            self.sent += BATCH
        elif reply and reply.status != 503:
            raise AssertionError(reply)


LATE = 10**9  # numbers from here on are put with a delay


class LateProducer(Load):
    """Puts one message for every ten of the other producer, with various delays."""
    sent = 0

    def __init__(self, test, other):
        self.other = other
        super().__init__(test)

    def step(self):
        if self.sent * 10 > self.other.sent:
            time.sleep(0.005)
            return
        body = b"\n".join(message(LATE + i) for i in range(self.sent, self.sent + 10))
        marks = query(producer="late", mark=self.sent, next=self.sent + 10)
        reply = self.ask("/mput?delay=%d&%s" % (self.sent % 400, marks), body)
        if reply and reply.status == 200:
            self.sent += 10
        elif reply and reply.status != 503:
            raise AssertionError(reply)


class Consumer(Load):
    newest = -1  # of the numbers seen: each is seen for the first time in the order of the puts

    def __init__(self, test, rng):
        self.rng, self.numbers, self.last_id, self.acked, self.perhaps = rng, {}, {}, set(), set()
        self.fate = ["ack"] * 6 + ["some", "nack", "bury", "delay", "keep"]
        super().__init__(test)

    def see(self, got):
        ids = [i for i, _, _ in got]
        assert ids == sorted(set(ids)), "ids %s" % ids
        for i, _, text in got:
            n = number(text)
            assert text == message(n), text
            assert self.numbers.setdefault(i, n) == n, "id %d is %d and %d" % (i, self.numbers[i], n)
            if n not in self.last_id:
                assert n >= LATE or n > self.newest, "%d comes after %d" % (n, self.newest)
                self.newest = max(n, self.newest) if n < LATE else self.newest
            assert self.last_id.setdefault(n, i) <= i, "%d has id %d after %d" % (n, i, self.last_id[n])
            self.last_id[n] = i
            assert n not in self.acked, "%d is back, id %d" % (n, i)

    def step(self):
        reply = self.ask("/reserve?items=%d&wait=50&reader=r&lease=60000" % self.rng.randint(1, 400))
        if not reply:
            self.ask("/release?reader=r")
            return
        got, lease = reserved(reply), reply.header("X-Millrace-Lease")
        self.see(got)
        if got:
            self.settle(lease, got, self.rng.choice(self.fate))

    def settle(self, lease, got, fate):
        first, last = got[0][0], got[-1][0]
        if fate in ("ack", "some"):
            got = got if fate == "ack" else [m for m in got if self.rng.random() < 0.5] or got
            self.ack(lease, got)
        elif fate != "keep":
            target = "/%s?lease=%s&id=%d-%d" % ("nack" if fate == "delay" else fate, lease, first, last)
            self.ask(target + {"delay": "&delay=100", "bury": "&reason=test"}.get(fate, ""))
        if fate in ("some", "keep"):
            self.ask("/release?reader=r")
        if self.rng.random() < 0.1:
            self.ask("/kick?items=1000")

    def ack(self, lease, got):
        target = "/ack?lease=%s&id=%s" % (lease, ",".join(str(i) for i, _, _ in got))
        numbers = {number(text) for _, _, text in got}
        self.perhaps |= numbers
        reply = self.ask(target)
        if reply and reply.status == 200:
            assert reply.json()["acked"] == len(got), reply
            self.acked |= numbers


class KillQueue(OnDisk, QueueTest):
    """Each life has a policy of its own: none forgets at kill -9."""
    ARGS = ("--max-memory=512K", "--segment-bytes=512K")

    def queue(self, *args, **kw):
        sync = self.rng.choice(("never", "never", "0", "3"))
        return self.start("simplequeue", "--data-dir=" + self.path("data"), "--sync=" + sync, *args, **kw)

    def live(self, rng, producer):
        """A life of the daemon: some work, then its end."""
        enough = producer.sent + rng.randint(0, A_ROUND)
        wait_until(lambda: producer.sent >= enough or producer.wrong, "puts")
        time.sleep(rng.random() * 0.05)
        self.q = self.again(self.q, *self.ARGS)

    def finish(self, consumer):
        """What is left comes out."""
        consumer.fate = ["ack"]
        def empty():
            consumer.ask("/kick?items=1000")
            return consumer.wrong or self.numbers(self.q)["depth"] + self.numbers(self.q)["buried"] == 0
        wait_until(empty, "the queue to be empty", timeout=2 * harness.PATIENCE)

    def test_killed_under_load(self):
        rng = self.rng = harness.seeded()
        self.q = self.queue(*self.ARGS)
        queue_id = self.q.post("/follow?reader=r").json()["queue_id"]
        self.q.post("/unfollow")
        producer, consumer = Producer(self), Consumer(self, rng)
        late = LateProducer(self, producer)
        next_id = 0
        for _ in range(harness.rounds(3)):
            self.live(rng, producer)
            stats = self.numbers(self.q)
            self.assertEqual(stats["queue_id"], queue_id)
            self.assertGreaterEqual(int(stats["next_id"]), next_id)
            next_id = int(stats["next_id"])
            self.assertIsNone(consumer.wrong or producer.wrong or late.wrong)
        producer.end()
        wait_until(lambda: late.sent or late.wrong, "one of the late ones")
        late.end()
        self.finish(consumer)
        consumer.end()
        put = set(range(producer.sent)) | set(range(LATE, LATE + late.sent))
        self.assertEqual(put - consumer.perhaps, set())
        wait_until(lambda: self.numbers(self.q)["disk_bytes"] < 4 << 20, "old segments to go")


if __name__ == "__main__":
    harness.main()
