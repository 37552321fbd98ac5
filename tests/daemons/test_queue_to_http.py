"""queue_to_http: what it sends, and what it buries."""
import harness
from harness import wait_until
from sink import Sink, destination
from to_http_case import ToHttp


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
        self.assertEqual([d["reason"] for d in self.dead()], ["contains a line feed"])

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
        wait_until(lambda: len(self.dead()) == 5, "the first five to be buried")
        sink.behave = lambda body: 200
        self.wait_empty()
        self.assertEqual(len(sink.messages()), 45)


if __name__ == "__main__":
    harness.main()
