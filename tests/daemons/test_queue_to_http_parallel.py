"""queue_to_http with several requests at once, in the order of a key, shared, killed, and at a server of which half fails."""
import collections
import json
import random
import sys
import threading
import time

import harness
from harness import Daemon, wait_until
from sink import Sink
from to_http_case import ToHttp


class Busy:
    """The behaviour of a slow sink. `most` is the largest number of requests at once. The first requests wait until `at_once` requests have
    come, however slow the machine is."""

    def __init__(self, sink, seconds, fails=lambda body: False, at_once=1):
        self.now = self.most = 0
        self.at_once = at_once
        self.changed = threading.Lock()
        self.seconds, self.fails = seconds, fails
        sink.lock = NoLock()
        sink.behave = self.behave

    def behave(self, body):
        with self.changed:
            self.now += 1
            self.most = max(self.most, self.now)
            answer = 500 if self.fails(body) else 200
        wait_until(lambda: self.most >= self.at_once, lambda: "%d requests at once, not %d" % (self.at_once, self.most))
        time.sleep(self.seconds)
        with self.changed:
            self.now -= 1
        return answer


class NoLock:
    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        return False


class Parallel(ToHttp):
    def test_several_at_once(self):
        sink = Sink(self)
        busy = Busy(sink, 0.05, at_once=6)
        messages = [b"%d" % i for i in range(60)]
        self.put(messages)
        self.sender(sink.url, "--parallel=6")
        self.wait_empty()
        self.assertEqual(sorted(sink.messages()), sorted(messages))
        self.assertEqual(busy.most, 6)

    def test_in_the_order_of_a_key(self):
        sink, rng = Sink(self), harness.seeded()
        busy = Busy(sink, 0.003, lambda body: rng.random() < 0.3, at_once=2)
        events = [{"user": {"id": rng.choice(["a", "b", 7, "d", None])}, "n": i} for i in range(200)]
        self.put([json.dumps(e).encode() for e in events])
        sender = self.sender(sink.url, "--parallel=4", "--order-by=user.id", "--backoff-min=1ms", "--backoff-max=5ms")
        self.wait_empty()
        got = collections.defaultdict(list)
        for body in sink.taken():
            e = json.loads(body)
            got[e["user"]["id"]].append(e["n"])
        self.assertEqual(dict(got), {user: [e["n"] for e in events if e["user"]["id"] == user] for user in got})
        self.assertEqual(sum(map(len, got.values())), len(events))
        self.assertTrue(2 <= busy.most <= 4, busy.most)
        self.assertEqual(sender.get("/health").status, 200)

    def test_a_message_that_fails_delays_no_other(self):
        sink = Sink(self)
        sink.lock = NoLock()

        def fails_after_others(body):
            """A failure before any delivery would mean that the server is away."""
            if body == b"1":
                wait_until(lambda: len(sink.taken()) >= 2, "others to be delivered")
            return 500 if body == b"1" else 200
        sink.behave = fails_after_others
        self.put([b"%d" % i for i in range(100)])
        sender = self.sender(sink.url, "--parallel=2", "--backoff-max=200ms")
        wait_until(lambda: len(sink.taken()) == 99, "the others")
        wait_until(lambda: self.numbers()["depth"] == 1, "them to be acknowledged")
        sink.behave = lambda body: 200
        self.wait_empty()
        self.assertIn("some deliveries fail", sender.log)

    def test_what_was_delivered_before_a_kill_is_not_repeated(self):
        """Only requests under way are repeated: with one request at once, this request and the one before."""
        for parallel, args in ((1, ()), (4, ("--parallel=4",))):
            sink = Sink(self)
            sink.behave = lambda body: "hang" if len(sink.taken_now()) >= 67 else 200
            sink.taken_now = lambda: [r for r in sink.requests if r[1] == 200]
            messages = [b"%d" % i for i in range(100)]
            self.put(messages)
            sender = self.sender(sink.url, *args)
            wait_until(lambda: len(sink.requests) >= 67 + parallel, "67 deliveries")
            sender.kill9()
            before = sink.messages()
            sink.behave = lambda body: 200
            sink.released.set()
            sender = self.sender(sink.url, *args)
            self.wait_empty()
            again = [m for m, n in collections.Counter(sink.messages()).items() if n > 1]
            self.assertLessEqual(len(again), 2 * parallel, again)
            self.assertEqual(set(sink.messages()), set(messages))
            self.assertEqual(len(before), 67)
            sender.stop()

    def test_all_go_on_when_the_server_is_back(self):
        """The request that finds this out ends the wait of the others."""
        harness.slower_and_slower(4, self.go_on_after, tries=3)

    def go_on_after(self, seconds):
        sink = Sink(self)
        sink.lock = NoLock()
        sink.behave = lambda body: 500
        self.put([b"%d" % i for i in range(20)])
        sender = Daemon(self, "queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + sink.url,
                        "--parallel=4", "--backoff-max=%ds" % seconds)
        try:
            wait_until(lambda: "answered 500" in sender.log, "the first failures")
            sink.behave = lambda body: time.sleep(0.1) or 200
            wait_until(lambda: len(sink.taken()) == 20, "all")
            self.wait_empty()
        finally:
            sender.kill9()
        first, second = sorted(r[0] for r in sink.requests if r[1] == 200)[:2]
        self.assertLess(second - first, seconds * 0.7)

    def test_ready_again_after_a_restart_of_an_empty_queue(self):
        port = self.keep_port()
        args = ["--data-dir=" + self.path("q2"), "--sync=never", "--address=127.0.0.1", "--port=" + port]
        queue = self.start("simplequeue", *args, port=False)
        sender = self.start("queue_to_http", "--queue-url=http://127.0.0.1:" + port, "--destination=http://127.0.0.1:1",
                            "--wait=10m")
        queue.kill9()
        wait_until(lambda: sender.get("/health").status == 503, "the fault to be noticed")
        self.start("simplequeue", *args, port=False)
        wait_until(lambda: sender.get("/health").status == 200, "the queue to be reached")

    def test_two_share_a_queue(self):
        sinks = [Sink(self), Sink(self)]

        def takes_its_share(own, other):
            """The sender that has begun first does not take everything: it waits until the other has begun."""
            def behave(body):
                if len(own.taken()) > 10:
                    wait_until(lambda: len(other.taken()) > 10, "the other to have its share")
                return 200
            own.lock, own.behave = NoLock(), behave
        takes_its_share(*sinks)
        takes_its_share(*reversed(sinks))
        messages = [b"%d" % i for i in range(200)]
        self.put(messages)
        senders = [self.sender(s.url, "--shared", "--items=10") for s in sinks]
        self.wait_empty()
        self.assertEqual(sorted(sinks[0].messages() + sinks[1].messages(), key=int), messages)
        for s in sinks:
            self.assertGreater(len(s.messages()), 10)
        for s in senders:
            self.assertEqual(s.get("/health").status, 200)

    def test_half_of_the_requests_fail(self):
        """Its successes allow half the speed; nine tenths of that are reached, and the log says it once."""
        def run(fails):
            sink = Sink(self)
            Busy(sink, 0.03, lambda body: len(sink.requests) > 16 and fails())
            self.put([b"%d" % i for i in range(600)])
            began = time.monotonic()
            sender = self.sender(sink.url, "--parallel=16")
            wait_until(lambda: len(sink.taken()) >= 400, "most", interval=0.005)
            seconds = time.monotonic() - began
            log, failed = sender.log, sender.stats()["deliveries_failed_total"]
            self.wait_empty()
            sender.stop()
            return seconds, log, failed

        def share():
            rng = random.Random(1)
            seconds, log, failed = run(lambda: rng.random() < 0.5)
            self.assertIn("some deliveries fail", log)
            self.assertGreater(failed, 300)
            if log.count(" warn ") > 1:
                return 0  # the machine stood still
            return 2 * run(lambda: False)[0] / seconds
        shares = []
        wait_until(lambda: shares.append(share()) or max(shares) >= 0.9, lambda: "0.9 of what is possible: %s" % shares)
        print("%.2f of what is possible" % max(shares), file=sys.stderr)

    def test_bad_settings(self):
        for args in (["--parallel=0"], ["--parallel=257"], ["--order-by=a..b"], ["--shared", "--reader=x"]):
            done = self.run_program("queue_to_http", "--destination=http://x/", *args)
            self.assertIn(done.returncode, (64, 78), (args, done))
            self.assertIn(args[0].split("=")[0].encode(), done.stderr)


if __name__ == "__main__":
    harness.main()
