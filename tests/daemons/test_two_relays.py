"""Two queue_to_pubsub under one reader's name, and one that takes over and moves messages: each exactly once, whatever is
paused, late or killed. readers/reader_plan.h says why."""
# full: MILLRACE_ROUNDS=60
import signal
import threading
import time

import harness
from harness import UNREACHABLE, query, wait_until
from late_proxy import LateProxy
from relay_test import FENCES, RelayTest


EVENTS = 100  # a round


class Mover(threading.Thread):
    """Somebody who takes the relays' messages over by the rules (release, fence, reserve with the epoch), and delays,
    buries or gives back what he gets; and who kicks buried ones at any time."""

    def __init__(self, test, random):
        super().__init__(daemon=True)
        self.test, self.random = test, random
        self.over = threading.Event()
        self.moved = {"delayed": 0, "buried": 0, "given back": 0, "kicked": 0}

    def run(self):
        while not self.over.wait(self.random.uniform(0, 0.3)):
            try:
                self.take_over()
                self.kick(self.random.randrange(1, 20))
            except UNREACHABLE:
                pass

    def take_over(self):
        released = self.test.ask_queue("/release?reader=queue_to_pubsub").json()
        done_with = self.test.fence(released["queue_id"])
        time.sleep(self.random.choice((0, 0.02)))  # a slow reader: the relays may take over meanwhile
        reply = self.test.ask_queue("/reserve?" + query(
            reader="queue_to_pubsub", items=self.random.randrange(1, 30), lease=300, epoch=released["epoch"]), "GET")
        if reply.status != 200 or not reply.body:
            return
        lease = reply.header("X-Millrace-Lease")
        for line in reply.body.splitlines()[::2]:
            ident = int(line.split()[0])
            if ident >= done_with:
                self.move(lease, ident)
        self.test.ask_queue("/release?reader=queue_to_pubsub")

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
            "--pubsub-url=unix:" + self.path("late-p%d" % i), "--items=20", "--lease=300ms", "--wait=200ms",
            "--publish-timeout=150ms", "--queue-timeout=200ms", "--backoff-min=5ms", "--backoff-max=100ms")

    def disturb(self, relays, random, first):
        """One round: puts the next EVENTS, and troubles one of the relays."""
        for n in range(first, first + EVENTS):
            self.assertEqual(self.ask_queue("/put", body=b"event %06d" % n).status, 200)
            if random.random() < 0.2:
                time.sleep(0.004)  # spreads the events over the troubles
        i = random.randrange(2)
        if random.random() < 0.3:
            relays[i].kill9()
            relays[i] = self.late_relay(i)
        else:
            relays[i].process.send_signal(signal.SIGSTOP)
            time.sleep(random.uniform(0.05, 0.6))  # past the leases' end, or not
            relays[i].process.send_signal(signal.SIGCONT)

    def settle(self, mover):
        def settled():
            mover.kick(1000)
            n = self.queue_numbers()
            return n["depth"] == 0 and n["buried"] == 0
        wait_until(settled, lambda: "everything to be relayed: %s" % self.queue_numbers(), interval=0.05)

    def exactly_once(self, moves):
        random, n_rounds, events = harness.seeded(), harness.rounds(5), 0
        self.start_queue(), self.start_pubsub()
        proxies, mover = self.start_proxies(random), Mover(self, random)
        relays = [self.late_relay(i) for i in range(2)]
        if moves:
            mover.start()
        # More rounds while the mover has come too late for a message of some kind: relays may be faster for a while.
        while events < EVENTS * n_rounds or moves and not all(mover.moved.values()) and events < EVENTS * (n_rounds + 60):
            self.disturb(relays, random, events)
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
    def test_a_publish_that_was_prepared_before_a_takeover_is_not_stored(self):
        """Else what is buried here could be in the stream as well, and be kicked into it once more."""
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/put", b"two\nlines")
        identity = self.ask_queue("/release?reader=queue_to_pubsub").json()["queue_id"]
        self.fence(identity)
        prepared = self.mark(identity)
        self.start_relay()
        wait_until(lambda: self.queue_numbers()["buried"] == 1, "the relay to bury it")
        self.assertEqual(self.publish(identity, prepared, 2 * FENCES, b"one line\n").status, 409)
        self.assertEqual(self.stream(), b"")

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
            seen |= {(d.get("/health").status, b"keeps taking over" in d.get("/health").body) for d in both}
        self.assertEqual(seen, {(503, True)}, "it says so, whoever's turn it is")


if __name__ == "__main__":
    harness.main()
