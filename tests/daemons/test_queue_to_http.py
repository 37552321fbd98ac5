"""queue_to_http between a real queue and servers that fail in every way."""
# full: MILLRACE_ROUNDS=60
import time

import harness
from harness import MillraceTest, query, request, wait_until
from sink import Sink, destination, least_waits, most_tries


class ToHttp(MillraceTest):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")

    def sender(self, destination, *args):
        return self.start("queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + destination, *args)

    def put(self, messages):
        self.assertEqual(self.queue.post("/mput", b"\n".join(messages)).status, 200)

    def numbers(self):
        return self.queue.stats()["queues"]["default"]

    def wait_empty(self):
        wait_until(lambda: self.numbers()["depth"] == 0, lambda: "all to be acknowledged: %s" % self.numbers())

    def dead(self):
        return self.queue.get("/dead").json()["buried"]


class Flow(ToHttp):
    def test_each_message_alone_as_it_is(self):
        sink = Sink(self)
        self.queue.post("/put", b"one\nwith \x00 and \xff")
        self.queue.post("/put", b"two")
        self.sender(sink.url + "/in?k=1", "--content-type=text/plain")
        self.wait_empty()
        self.assertEqual(sink.taken(), [b"one\nwith \x00 and \xff", b"two"])
        _, _, method, target, _, headers = sink.requests[1]
        self.assertEqual((method, target), ("POST", "/in?k=1"))
        self.assertEqual(headers["Content-Type"], "text/plain")
        self.assertEqual(headers["X-Millrace-Ids"], "2-2")
        self.assertEqual(headers["X-Millrace-Queue-Id"], self.numbers()["queue_id"])

    def test_get_with_the_message_escaped(self):
        sink = Sink(self)
        messages = [b"a b&c=d%", b"\xff\x00/?#", b"plain"]
        for m in messages:
            self.queue.post("/put", m)
        self.sender(sink.url + "/get?v=%s", "--method=GET")
        self.wait_empty()
        self.assertEqual(sink.values(), messages)

    def test_batches(self):
        sink = Sink(self)
        messages = [b"%d" % i for i in range(1000)]
        self.put(messages)
        self.queue.post("/put", b"two\nlines")
        self.sender(sink.url, "--batch=100")
        self.wait_empty()
        self.assertEqual(sink.messages(), messages)
        self.assertEqual(len(sink.taken()), 10)
        self.assertEqual([d["reason"] for d in self.dead()], ["holds a line feed"])

    def test_a_batch_over_a_lease_s_usual_items(self):
        sink = Sink(self)
        self.put([b"%d" % i for i in range(1500)])
        self.sender(sink.url, "--batch=750")
        self.wait_empty()
        self.assertEqual([len(body.split()) for body in sink.taken()], [750, 750])

    def test_a_request_that_outlasts_the_stop_is_given_back(self):
        sink = Sink(self)
        sink.behave = lambda body: "hang"
        messages = [b"%d" % i for i in range(10)]
        self.put(messages)
        sender = self.daemon("queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + sink.url,
                             "--drain-timeout=100ms", "--timeout=10m", port=False)
        wait_until(lambda: sink.requests, "the first request")
        sender.stop(expect=75)
        self.assertEqual((self.numbers()["ready"], self.numbers()["leased"]), (10, 0))
        self.assertEqual(self.queue.get("/mget?items=10").body.split(), messages)

    def test_several_take_turns_and_one_that_fails_is_left_out(self):
        sinks = [Sink(self) for _ in range(3)]
        sinks[1].behave = lambda body: 500
        messages = [b"%03d" % i for i in range(300)]
        self.put(messages)
        sender = self.sender(" ".join(s.url for s in sinks))
        self.wait_empty()
        self.assertEqual(sorted(sinks[0].messages() + sinks[2].messages()), messages)
        self.assertEqual(sender.get("/health").status, 200)
        self.assertIn('destination_up{destination="%s"} 0' % sinks[1].url, sender.get("/metrics").text)
        sinks[1].behave = lambda body: 200

        def takes_its_share():
            self.put([b"more"] * 3)
            return len(sinks[1].taken()) >= 10
        wait_until(takes_its_share, "the third to be back in turn", interval=0.05)
        self.assertIn('destination_up{destination="%s"} 1' % sinks[1].url, sender.get("/metrics").text)

    def test_bad_settings(self):
        for args in ([], ["--destination=ftp://x"], ["--destination=http://x/", "--method=GET"],
                     ["--destination=http://x/%s", "--batch=2"], ["--destination=http://x/", "--content-type=a\r\nb: c"],
                     ["--destination=http://x/", "--queue=a/b"],
                     ["--destination=http://x/a b"], ["--destination=http://x/#a"],
                     ["--destination=http://x/", "--batch=10", "--items=9"]):
            done = self.run_program("queue_to_http", *args)
            self.assertEqual(done.returncode, 78, (args, done))
            self.assertTrue(done.stderr)


class Faults(ToHttp):
    """Whatever the fault: it slows down within one try and makes no more of them than its backoff lets it; it loses and reorders
    nothing, and is at full speed again within 5 s: the first message has come, no try behind it fails or is waited for, and those
    that waited take no longer than such did before. A machine that is slow makes tries fewer and further apart."""
    FAULT = max(0.6, harness.rounds(0))  # seconds
    AGAIN = 5 if FAULT >= 10 else harness.SOON  # what waits for ever longer shows in long faults

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
        speed = sink.tries()[-1] - sink.tries()[0]
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
        first = wait_until(lambda: next((r[0] for r in sink.requests if r[0] >= ended and r[1] == 200), None), "the first to arrive")
        self.assertLess(first - ended, self.AGAIN)
        faults = self.faults(sender)
        wait_until(lambda: len(self.first_arrivals(sink)) >= put[0], "everything to arrive")
        self.assertEqual(self.first_arrivals(sink), [b"%06d" % i for i in range(put[0])])
        self.assertLess(sink.tries()[-1] - first, self.AGAIN + 10 * 250 / 50 * speed)
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


class Poison(ToHttp):
    def test_found_buried_shown_and_kicked(self):
        for status in (400, 413, 422):
            sink = Sink(self)
            sink.behave = lambda body: status if b"bad" in body else 200
            good = [b"%03d" % i for i in range(100)]
            self.put(good[:37] + [b"bad 1"] + good[37:80] + [b"bad 2"] + good[80:])
            sender = self.sender(sink.url, "--batch=102")
            self.wait_empty()
            self.assertEqual(sink.messages(), good)
            dead = self.dead()
            self.assertEqual([d["message"] for d in dead], ["bad 1", "bad 2"])
            self.assertEqual(dead[0]["reason"], "answered %d no bad 1/" % status)
            self.assertLess(len(sink.requests), 30, "halving, not one by one")
            sink.behave = lambda body: 200
            self.queue.post("/kick?items=10")
            wait_until(lambda: sink.messages()[100:] == [b"bad 1", b"bad 2"], "the kicked ones to be tried again")
            self.assertEqual(self.dead(), [])
            self.wait_empty()
            sender.stop()

    def test_a_long_answer_is_an_answer(self):
        sink = Sink(self)
        sink.filler = 17 << 20
        sink.behave = lambda body: 422 if b"bad" in body else 200
        self.put([b"1", b"bad", b"2"])
        sender = self.sender(sink.url)
        self.wait_empty()
        self.assertEqual(sink.messages(), [b"1", b"2"])
        self.assertEqual([d["reason"][:20] for d in self.dead()], ["answered 422 no badx"])
        self.assertEqual(destination(sender, sink.url)["faults_total"], 0)

    def test_a_message_that_one_destination_takes_is_not_buried(self):
        strict, lax = Sink(self), Sink(self)
        strict.behave = lambda body: 413 if b"6" in body or b"7" in body else 200  # the turns of both
        messages = [b"%d" % i for i in range(40)]
        self.put(messages)
        self.sender("%s %s" % (strict.url, lax.url))
        self.wait_empty()
        self.assertEqual(sorted(strict.messages() + lax.messages()), sorted(messages))
        self.assertEqual(self.dead(), [])
        lax.behave = strict.behave
        self.put([b"47", b"48"])
        self.wait_empty()
        self.assertEqual([d["message"] for d in self.dead()], ["47"])

    def test_who_refused_a_batch_is_asked_for_its_messages_alone(self):
        sinks = large, small = Sink(self), Sink(self)
        large.behave = lambda body: 413 if len(body) > 10 else 200
        small.behave = lambda body: 413 if len(body) > 5 else 200
        for i, urls in enumerate((sinks, sinks[::-1])):  # either has the first turn
            messages = [b"%d-of-it" % (10 * i + k) for k in range(10)]
            self.put(messages)
            sender = self.daemon("queue_to_http", "--queue-url=" + self.queue.url, "--batch=2",
                                 "--destination=%s %s" % tuple(s.url for s in urls)).wait_listening()
            self.wait_empty()
            self.assertEqual(self.dead(), [])
            self.assertEqual(large.messages()[-10:], messages)
            sender.stop()

    def test_one_that_refuses_everything_does_not_empty_the_queue(self):
        sink = Sink(self)
        sink.behave = lambda body: 400
        self.put([b"%d" % i for i in range(50)])
        sender = self.daemon("queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + sink.url,
                             "--poison-limit=5").wait_listening()
        wait_until(lambda: b"refuses every message" in sender.get("/health").body, "it to be noticed")
        self.assertEqual(len(self.dead()), 5)
        sink.behave = lambda body: 200
        self.wait_empty()
        self.assertEqual(len(sink.messages()), 45)


if __name__ == "__main__":
    harness.main()
