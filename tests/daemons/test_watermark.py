"""Counts are never called complete too early: events wait in queues, are delayed or leased, and producers state what they please."""
# seconds: 60
# parts: 3
import signal
import time

import harness
from harness import MillraceTest, query, request, wait_until
from watermark_test import DAY, MADE_UP, STREAM, Host, WatermarkTest


class Backlog(WatermarkTest):
    def test_events_that_wait_in_a_queue(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        host.put()
        self.wait_complete()
        host.relay.kill9()
        killed = time.time()
        host.put()
        complete, counted = self.hold_a_moment()
        self.assertLess(complete, killed + 1)
        self.assertEqual(counted, 1)
        host.start_relay()
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)

    def test_a_queue_that_was_never_empty(self):
        """The relay is new to the stream, and its queue has a backlog that another reader holds."""
        self.start_pubsub()
        self.start_aggregator()
        request(self.pubsub_url, "POST", "/pub?stream=" + STREAM, b'{"t":%s}' % MADE_UP.encode())
        wait_until(lambda: self.look()[1] == 1, "the first event")
        self.accepted.append(0)
        host = Host(self, "h")
        self.wait_complete()
        lease = None
        host.relay.stop()
        for _ in range(3):
            host.put()
        lease = host.queue.get("/reserve?reader=other&items=1&lease=60000").header("X-Millrace-Lease")
        host.start_relay()
        held = self.hold_a_moment()
        self.assertEqual(held[1], 1)
        self.assertLess(held[0], self.accepted[1] + 1)
        self.assertEqual(host.queue.post("/nack?lease=%s&id=1" % lease).status, 200)
        self.wait_complete()
        self.assertEqual(self.look()[1], 4)

    def test_delayed_messages(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        self.wait_complete()
        host.put("/put?delay=4000")
        host.put()
        wait_until(lambda: self.look()[1] >= 1, "the second event")  # on a slow machine with the first
        wait_until(lambda: self.look()[1] == 2, "the first event")
        self.wait_complete()

    def test_a_message_that_another_reader_delays(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        self.wait_complete()
        host.relay.stop()
        host.put()
        host.put()
        reply = host.queue.get("/reserve?items=1&lease=60000")
        self.assertEqual(host.queue.post("/nack?lease=%s&id=1&delay=4000" % reply.header("X-Millrace-Lease")).status, 200)
        host.start_relay()
        wait_until(lambda: self.look()[1] == 2, "both events")
        self.wait_complete()

    def test_a_restart_of_the_aggregator_while_pubsub_is_down(self):
        """The slice has the time beside its cursor: as of the last flush after a kill, and of the stop otherwise."""
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        for end in ("kill9", "stop"):
            host.put()
            since = time.time()
            self.wait_complete(since)
            if end == "kill9":
                host.put()
                stored = lambda: int(self.aggregator.get("/mget?k=all%7Call").header("X-Millrace-Stored-Until"))
                wait_until(lambda: self.look()[1] == 2 and stored() > self.accepted[-1], "the second event to be stored")
            getattr(self.aggregator, end)()
            self.pubsub.stop()
            self.start_aggregator(start=self.daemon)
            self.aggregator.wait_listening()
            wait_until(lambda: "complete_until" in self.aggregator.stats(), "the slice to be open")
            self.assertGreaterEqual(self.aggregator.stats()["complete_until"], since, end)
            self.assertLessEqual(self.aggregator.stats()["complete_until"], time.time())
            self.assertEqual(self.aggregator.get("/mget?k=all%7Call").status, 503)
            self.start_pubsub()
            self.aggregator.wait_ready()
            host.put()
            self.wait_complete()
        self.assertEqual(self.look()[1], 5)

    def test_buried_messages_do_not_hold(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        self.assertEqual(host.queue.post("/put", b"two\nlines").status, 200)
        wait_until(lambda: host.queue.stats()["queues"]["default"]["buried"] == 1, "the burial")
        host.put()
        self.wait_complete()
        self.assertEqual(self.look()[1], 1)

    def test_a_paused_queue(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        self.wait_complete()
        self.assertEqual(host.queue.post("/pause").status, 403)
        host.queue.stop()
        host.queue = self.start("simplequeue", "--data-dir=" + self.path("h"), "--allow-exit", listen=host.url)
        host.queue.post("/pause")
        host.put()
        self.assertEqual(self.hold_a_moment()[1], 0)
        host.queue.post("/pause?for=0")
        self.wait_complete()


class Reserve(MillraceTest):
    """What simplequeue states with each answer to a reserve."""

    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", "--allow-exit")

    def reserve(self, params="reader=r"):
        before = time.time()
        reply = self.queue.get("/reserve?" + params)
        accepted = reply.header("X-Millrace-Accepted-Before")
        self.lease = reply.header("X-Millrace-Lease")
        if accepted is None:
            self.assertIsNone(reply.header("X-Millrace-Accepted-Last"))
            return None
        self.assertTrue(before - 0.01 <= float(accepted) <= time.time() + 0.01, accepted)
        return int(reply.header("X-Millrace-Accepted-Last"))

    def act(self, target, body=b""):
        self.assertEqual(self.queue.post(target, body).status, 200, target)

    def test_which_ids_may_still_come(self):
        self.act("/pause?for=0")  # makes the queue
        self.assertEqual(self.reserve(), 0)
        self.act("/mput", b"a\nb\nc")
        self.assertEqual(self.reserve(), 3)  # a is leased
        lease = self.lease
        self.act("/pause")
        self.assertEqual(self.reserve(), 3)
        self.act("/pause?for=0")
        self.assertEqual(self.reserve("reader=r&items=9"), 3)
        self.act("/ack?lease=%s&id=2-3" % self.lease)
        self.assertEqual(self.reserve(), 3)  # a still is
        self.act("/bury?lease=%s&id=1&reason=x" % lease)
        self.assertEqual(self.reserve(), 0)
        began = time.monotonic()
        self.act("/put?delay=600", b"d")
        last = self.reserve()
        if time.monotonic() - began < 0.6:
            self.assertIsNone(last)
        self.assertEqual(last or self.reserve("reader=r&wait=%d" % (1000 * harness.PATIENCE)), 5)
        self.act("/nack?lease=%s&id=5&delay=60000" % self.lease)
        self.assertIsNone(self.reserve())
        self.queue.kill9()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        self.assertIsNone(self.reserve())
        self.act("/kick")
        self.assertIsNone(self.reserve())


class Statements(WatermarkTest):
    """until= at /pub."""

    def setUp(self):
        super().setUp()
        self.start_pubsub()

    def pub(self, body=b"", headers=None, **params):
        reply = request(self.pubsub_url, "POST", "/pub?" + query(stream=STREAM, **params), body, headers=headers)
        if reply.status == 200 and "until" in params:
            wait_until(lambda: "until" in self.producers()[params["producer"]], "the producer to be stored")
        return reply

    def until(self, producer="p"):
        return self.producers()[producer].get("until")

    def test_with_lines_marks_or_alone(self):
        self.assertEqual(self.pub(b"x\n", producer="p", mark=0, next=5).status, 200)
        self.assertNotIn("until", self.producers()["p"])
        self.assertEqual(self.pub(b"y\n", producer="p", mark=5, next=6, until="1000.25").status, 200)
        self.assertEqual(self.until(), 1000.25)
        self.assertEqual(self.pub(producer="p", mark=6, next=7, until=1001).status, 200)
        self.assertEqual(self.until(), 1001)
        self.assertEqual(self.pub(producer="p", mark=7, until=1002).status, 200)
        self.assertEqual(self.until(), 1002)
        self.assertEqual(self.pub(producer="p", mark=7, until=0).status, 200)  # not known: the last one counts
        self.assertEqual(self.until(), 1002)
        self.assertEqual(self.pub(b"y\n", producer="p", mark=5, next=6, until=1003).json()["duplicate"], True)
        self.assertEqual(self.until(), 1003)
        self.assertEqual(self.pub(producer="p", mark=7, until=900).status, 200)  # its clock fell
        self.assertEqual(self.until(), 900)
        self.assertEqual(list(self.producers()), ["p"])
        self.assertEqual(len(request(self.pubsub_url, "GET", "/producers?stream=%s&stating=1" % STREAM).json()["producers"]), 1)

    def test_unknown_until_known(self):
        self.assertEqual(self.pub(b"x\n", producer="p", mark=0, next=5, until=0).status, 200)
        self.assertIsNone(self.until())

    def test_refused(self):
        self.assertEqual(self.pub(b"x\n", producer="p", mark=0, next=5, until=10).status, 200)
        for status, params in (
                (400, {"until": "soon"}), (400, {"until": "-1"}), (400, {"until": "1."}), (400, {"until": "9" * 30}),
                (400, {"until": 20, "mark": 5, "name": "web 1"}), (400, {"until": 20}), (409, {"until": 20, "mark": 4}),
                (409, {"until": 20, "mark": 0, "producer": "unknown"}), (400, {"until": 20, "mark": 5, "opening": "o"}),
                (409, {"until": 20, "mark": 3, "next": 9}), (400, {"until": 20, "next": 9})):
            self.assertEqual(self.pub(**{"producer": "p", **params}).status, status, params)
        self.assertEqual(self.pub(b"x\n", producer="p", mark=5, until=20).status, 400)
        self.assertEqual(self.pub(b"x\n", until=20).status, 400)
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"))
        self.pubsub_url = self.pubsub.url
        self.assertEqual(self.pub(producer="p", mark=5, until=20, headers={"Origin": "http://evil.example"}).status, 403)
        self.assertAlmostEqual(self.until(), 10, 2)

    def test_a_future_time_says_nothing(self):
        began = time.time()
        reply = self.pub(b"x\n", producer="p", mark=0, next=5, until="%d" % (began + DAY))
        self.assertIsNone(self.until())
        named = reply.header("X-Millrace-Time")
        self.assertTrue(began - 1 <= float(named) <= time.time() + 1, named)
        self.assertEqual(self.pub(producer="p", mark=5, until=named).status, 200)  # what a relay does
        for until in (time.time() + DAY, 9e12 // 1):
            self.assertEqual(self.pub(producer="p", mark=5, until="%d" % until).status, 200)
        self.assertAlmostEqual(self.until(), float(named), 5)
        era = reply.header("X-Millrace-Era")
        for given, until in ((era, 1000), ("other", 1000), (era[:-1], 1000), (era, 1001)):
            self.assertEqual(self.pub(producer="p", mark=5, until=until + (given != era), era=given).status, 200)
            self.assertEqual(self.until(), until)
        self.pubsub.stop()
        self.start_pubsub()
        self.assertEqual(self.pub(producer="p", mark=5, until=1002, era=era).status, 200)  # asked before the restart
        self.assertEqual(self.until(), 1001)

    def test_a_name_that_people_know(self):
        self.assertEqual(self.pub(b"x\n", producer="p", mark=0, next=5, until=10, name="web1.clicks").status, 200)
        self.assertEqual(self.pub(producer="p", mark=5, until=11).status, 200)
        self.pubsub.kill9()
        self.start_pubsub()
        self.assertEqual(self.producers()["p"]["name"], "web1.clicks")
        self.assertEqual(self.pub(producer="p", mark=5, until=12, name="web2.clicks").status, 200)
        self.assertEqual(self.producers()["p"]["name"], "web2.clicks")

    def test_after_a_restart(self):
        self.pub(b"x\n", producer="p", mark=0, next=5, until=1000)
        self.pub(b"x\n", producer="q", mark=0, next=5, until=0)
        for end in ("kill9", "stop"):
            getattr(self.pubsub, end)()
            self.start_pubsub()
            p, q = (self.producers()[name] for name in "pq")
            self.assertAlmostEqual(p["until"], 1000, 2)
            self.assertTrue(p["until_restored"], end)
            self.assertIsNone(q["until"])
        self.pub(producer="p", mark=5, until=1000)
        self.assertFalse(self.producers()["p"]["until_restored"])

    def test_a_token(self):
        self.write("token", "secret-secret-secret")
        harness.os.chmod(self.path("token"), 0o600)
        self.pub(b"x\n", producer="p", mark=0, next=5, until=10)
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--auth-token-file=" + self.path("token"),
                                 listen=self.pubsub_url)
        self.assertEqual(self.pub(producer="p", mark=5, until=20).status, 401)


if __name__ == "__main__":
    harness.main()
