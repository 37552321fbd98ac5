"""queue_to_http while its destination fails: nothing lost or out of order, and at most the stated rate."""
# full: MILLRACE_ROUNDS=60
import time

import harness
from harness import wait_until
from sink import Sink, destination, least_waits, most_tries
from to_http_case import ToHttp


class Faults(ToHttp):
    """Whatever the fault: it slows down within one try and makes no more of them than its backoff lets it; it loses and reorders
    nothing, and is at full speed again within 5 s: it is never set aside for longer than the backoff, and no try behind the first
    that succeeds fails. A machine that is slow makes tries fewer and further apart."""
    FAULT = max(0.6, harness.rounds(0))  # seconds

    def ride_out(self, begin, end, backoff=0.4, timeout="30s"):
        sink = Sink(self)
        sender = self.sender(sink.url + "/in", "--timeout=" + timeout, "--backoff-max=%dms" % (1000 * backoff))
        put = [0]

        def requests():
            return destination(sender, sink.url + "/in")["requests_total"]

        def put_more(n):
            self.put([b"%06d" % i for i in range(put[0], put[0] + n)])
            put[0] += n
        put_more(50)
        wait_until(lambda: len(set(sink.messages())) == 50, "the first to arrive")
        self.wait_empty()  # and nothing is under way
        before, began = requests(), time.monotonic()
        sink = begin(sink) or sink
        put_more(200)
        time.sleep(self.FAULT)  # the fault's length is what is tested
        wait_until(lambda: requests() >= before + 3, "it to try again and again")
        tries, failed = requests() - before, sink.tries(began)
        self.assertLessEqual(tries, most_tries(time.monotonic() - began, 0.05, backoff))
        self.assertLessEqual(destination(sender, sink.url + "/in")["set_aside_seconds"], backoff)
        sink = end(sink) or sink
        ended = time.monotonic()
        put_more(50)
        wait_until(lambda: any(r[0] >= ended and r[1] == 200 for r in sink.requests), "the first to arrive")
        faults = self.faults(sender)
        wait_until(lambda: len(self.first_arrivals(sink)) >= put[0], "everything to arrive")
        self.assertEqual(self.first_arrivals(sink), [b"%06d" % i for i in range(put[0])])
        self.wait_empty()
        self.failed = failed
        return self.faults(sender) - faults

    def assert_apart(self, backoff):
        """Each was answered after it came, and the next was sent before it came: no machine brings them closer."""
        waits = [b - a for a, b in zip(self.failed, self.failed[1:])]
        self.assertGreaterEqual(len(waits), 1)
        self.assertEqual([w for w, least in zip(waits, least_waits(0.05, backoff)) if w < least - 0.001], [], waits)

    def faults(self, sender):
        return sender.stats()["deliveries_failed_total"]

    def all_messages(self, sink):
        return getattr(sink, "before", []) + sink.messages()

    def first_arrivals(self, sink):
        """What was in doubt (no answer) may come twice; nothing comes out of order."""
        return list(dict.fromkeys(self.all_messages(sink)))

    def switch(self, answer):
        def set_it(sink):
            sink.released.set()
            sink.behave = lambda body: answer
        return set_it

    def test_500(self):
        self.assertEqual(self.ride_out(self.switch(500), self.switch(200), backoff=2), 0)
        self.assert_apart(2)

    def test_429(self):
        self.assertEqual(self.ride_out(self.switch(429), self.switch(200)), 0)
        self.assert_apart(0.4)

    def test_no_answer(self):
        def hang(sink):
            sink.behave = lambda body: "hang"
        self.ride_out(hang, self.switch(200), timeout="300ms")  # in which a slow machine may not answer either

    def test_reset(self):
        self.assertEqual(self.ride_out(self.switch("reset"), self.switch(200)), 0)
        self.assert_apart(0.4)

    def test_gone(self):
        def leave(sink):
            sink.behave = lambda body: "reset"
            sink.close()

        def come_back(sink):
            back = Sink(self, sink.port)
            back.before = sink.messages()
            return back
        self.assertEqual(self.ride_out(leave, come_back, backoff=2), 0)  # as it is by default

    def test_401_is_waited_out_and_buries_nothing(self):
        self.assertEqual(self.ride_out(self.switch(401), self.switch(200)), 0)
        self.assert_apart(0.4)
        self.assertEqual(self.dead(), [])

    def assert_rate(self, times, rate, since):
        """Whenever they are looked at: no more than that rate, and what a reader may make up for. A sink that notes them late
        makes it no more."""
        for i, at in enumerate(sorted(times)):
            self.assertLessEqual(i + 1, rate * (at - since) + rate / 10 + 1, "tries until %.3f s" % (at - since))

    def test_the_stated_rate(self):
        sink = Sink(self)
        sink.behave = lambda body: 500 if len(sink.requests) % 3 == 1 else 200
        self.put([b"%d" % i for i in range(400)])
        since = time.monotonic()
        self.sender(sink.url, "--rate=100", "--backoff-min=1ms", "--backoff-max=1ms")
        wait_until(lambda: len(sink.requests) > 300, "three seconds' worth")
        self.assert_rate(sink.tries(), 100, since)

    def test_the_stated_rate_is_that_of_all_destinations_together(self):
        """Also when each run is tried at one that fails first."""
        sinks = [Sink(self) for _ in range(2)]
        sinks[1].behave = lambda body: 500
        self.put([b"%d" % i for i in range(400)])
        since = time.monotonic()
        self.sender(" ".join(s.url for s in sinks), "--rate=20", "--backoff-min=1ms", "--backoff-max=1ms")
        wait_until(lambda: len(sinks[0].requests) > 25, "more than a second's worth")
        self.assert_rate(sinks[0].tries() + sinks[1].tries(), 20, since)
        self.assertEqual(sinks[0].messages(), [b"%d" % i for i in range(len(sinks[0].messages()))])


if __name__ == "__main__":
    harness.main()
