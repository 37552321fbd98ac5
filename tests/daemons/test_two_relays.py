"""Two queue_to_pubsub under one reader's name, and a client that moves messages while neither follows the queue: each exactly once,
whatever is paused, late or killed. readers/reader_plan.h says why."""
# seconds: 15
# full: MILLRACE_ROUNDS=60
import signal
import threading
import time

import harness
from harness import UNREACHABLE, query, request, wait_until
from late_proxy import LateProxy
from relay_test import RelayTest


EVENTS = 100  # a round


class Mover(threading.Thread):
    """Reserves messages whenever no relay follows the queue, and delays, buries or gives back the reserved messages. Kicks buried messages
    at any time."""

    def __init__(self, test, random):
        super().__init__(daemon=True)
        self.test, self.random = test, random
        self.over = threading.Event()
        self.tries = 0
        self.moved = {"delayed": 0, "buried": 0, "given back": 0, "kicked": 0}

    def run(self):
        while not self.over.wait(self.random.uniform(0, 0.1)):
            try:
                self.take_over()
                self.tries += 1
                self.kick(self.random.randrange(1, 20))
            except UNREACHABLE:
                pass

    def take_over(self):
        reply = self.test.ask_queue("/reserve?" + query(reader="mover", items=self.random.randrange(1, 30), lease=300), "GET")
        if reply.status == 409:
            self.test.assertEqual(reply.json()["code"], "followed")
        if reply.status != 200 or not reply.body:
            return
        lease = reply.header("X-Millrace-Lease")
        for line in reply.body.splitlines()[::2]:
            self.move(lease, int(line.split()[0]))
        self.test.ask_queue("/release?reader=mover")

    def move(self, lease, ident):
        what, target = self.random.choice((
            ("delayed", "/nack?delay=%d&" % self.random.randrange(1, 100)), ("buried", "/bury?reason=moved&"),
            ("given back", "/nack?"), ("given back", None)))
        done = target is None or self.test.ask_queue(target + query(lease=lease, id=ident)).status == 200
        self.moved[what] += done

    def kick(self, items):
        self.moved["kicked"] += self.test.ask_queue("/kick?" + query(items=items)).json()["kicked"]


class TwoRelays(RelayTest):
    def start_proxies(self, random):
        proxies = [LateProxy(self.path("late-%s%d" % (kind, i)), self.path(kind + ".sock"), random)
                   for i in range(2) for kind in "qp"]
        for p in proxies:
            self.addCleanup(p.close)
        return proxies

    def late_relay(self, i):
        return self.daemon(
            "queue_to_pubsub", "--queue-url=unix:" + self.path("late-q%d" % i),
            "--pubsub-url=unix:" + self.path("late-p%d" % i), "--items=20", "--wait=200ms",
            "--publish-timeout=150ms", "--queue-timeout=200ms", "--backoff-min=5ms", "--backoff-max=100ms")

    def disturb(self, relays, random, first, mover):
        """One round: puts the next EVENTS, and troubles one of the relays."""
        for n in range(first, first + EVENTS):
            self.assertEqual(self.ask_queue("/put", body=b"event %06d" % n).status, 200)
            if random.random() < 0.2:
                time.sleep(0.004)  # spreads the events over the troubles
        i = random.randrange(2)
        if random.random() < 0.3:
            relays[i].kill9()
            relays[i] = self.late_relay(i)
        elif mover and random.random() < 0.6:
            for relay in relays:
                relay.process.send_signal(signal.SIGTERM)
            for relay in relays:
                relay.process.wait(harness.PATIENCE)
            tries = mover.tries  # succeeds if neither has left a publish without an answer
            wait_until(lambda: mover.tries > tries + 1, "the mover's turn")
            relays[:] = [self.late_relay(i) for i in range(2)]
        else:
            relays[i].process.send_signal(signal.SIGSTOP)
            time.sleep(random.uniform(0.05, 0.6))
            relays[i].process.send_signal(signal.SIGCONT)

    def settle(self, mover):
        def settled():
            mover.kick(1000)
            n = self.queue_numbers()
            return n["depth"] == 0 and n["buried"] == 0
        wait_until(settled, lambda: "everything to be relayed: %s" % self.queue_numbers(), interval=0.05)

    def exactly_once(self, moves):
        random, n_rounds, events = harness.seeded(), harness.rounds(3), 0
        self.start_queue(), self.start_pubsub()
        proxies, mover = self.start_proxies(random), Mover(self, random)
        relays = [self.late_relay(i) for i in range(2)]
        if moves:
            mover.start()
        # More rounds while the mover has come too late for a message of some kind: relays may be faster for a while.
        while events < EVENTS * n_rounds or moves and not all(mover.moved.values()) and events < EVENTS * (n_rounds + 60):
            self.disturb(relays, random, events, mover if moves else None)
            events += EVENTS
        for p in proxies:
            p.calm()
        mover.over.set()
        if moves:
            mover.join()
        self.settle(mover)
        self.assertGreater(sum(p.delayed for p in proxies), n_rounds)
        expected = [b"event %06d" % i for i in range(events)]
        lines = self.stream().splitlines()
        self.assertEqual(sorted(lines) if moves else lines, expected)
        return mover.moved

    def test_each_once_and_in_order(self):
        self.exactly_once(moves=False)

    def test_each_once_while_messages_are_moved(self):
        moved = self.exactly_once(moves=True)
        self.assertTrue(all(moved.values()), moved)


class Takeover(RelayTest):
    def killed_before_its_publish(self):
        """A relay has followed the queue, and was killed before it published message `one`. Returns the id of the queue."""
        queue, _ = self.start_queue(), self.start_pubsub()
        relay = self.start_relay()
        identity = self.queue_numbers()["queue_id"]
        wait_until(lambda: self.mark(identity) == 1, "the relay to be known")
        relay.kill9()
        queue.post("/put", b"one")
        return identity

    def test_a_publish_of_a_killed_relay_that_arrives_before_the_next_one(self):
        identity = self.killed_before_its_publish()
        self.assertEqual(self.publish(identity, 1, 2, b"one\n").status, 200)
        self.start_relay()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "it to be settled")
        self.assertEqual(self.stream(), b"one\n")

    def test_a_publish_of_a_killed_relay_that_arrives_after_the_next_one(self):
        identity = self.killed_before_its_publish()
        self.start_relay()
        self.wait_stream(b"one\n")
        self.assertTrue(self.publish(identity, 1, 2, b"one\n").json()["duplicate"])
        self.ask_queue("/put", body=b"two")
        self.wait_stream(b"one\ntwo\n")
        self.assertEqual(self.publish(identity, 1, 4, b"one\ntwo\nthree\n").status, 409)
        self.assertEqual(self.stream(), b"one\ntwo\n")

    def test_the_relay_that_was_replaced_stands_by_and_takes_over_when_the_other_dies(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        first = self.start_relay("--backoff-max=100ms", "--wait=100ms")
        second = self.relay("--backoff-max=100ms", "--wait=100ms").wait_listening()  # it may be replaced before it is seen ready
        wait_until(lambda: first.stats()["superseded_total"] + second.stats()["superseded_total"] > 0, "one to be replaced")
        queue.post("/put", b"one")
        self.wait_stream(b"one\n")
        second.kill9()
        queue.post("/put", b"two")
        self.wait_stream(b"one\ntwo\n")
        wait_until(lambda: first.get("/health").status == 200, "the first to be at work")

    def test_two_that_take_turns_for_good_are_told_all_the_time(self):
        """A turn that is far longer than backoff_max, of a machine that stood still, may be the last."""
        self.start_queue()
        self.start_pubsub()
        harness.slower_and_slower(1, self.take_turns, tries=2)

    def take_turns(self, seconds):
        args = ("--backoff-min=5ms", "--backoff-max=%ds" % seconds, "--wait=100ms")
        both = [self.relay(*args).wait_listening() for _ in range(2)]
        try:
            self.are_told(both)
            both[1].kill9()
            wait_until(lambda: both[0].get("/health").status == 200, "the one that is left to be well")
            both[0].stop()
        finally:
            for d in both:
                d.kill9()

    def are_told(self, both):
        def taken_turns(n):
            return all(d.stats()["superseded_total"] >= n for d in both)
        wait_until(lambda: taken_turns(3), "turns")
        seen, end = set(), time.monotonic() + harness.SOON
        while not seen or not taken_turns(8) and time.monotonic() < end:
            seen |= {(d.get("/health").status, b"repeatedly takes over" in d.get("/health").body) for d in both}
        self.assertEqual(seen, {(503, True)}, "it says so, whoever's turn it is")


if __name__ == "__main__":
    harness.main()
