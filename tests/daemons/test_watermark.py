"""Counts are never called complete too early: events wait in queues, hosts fall silent, clocks jump, and all is killed.

Each look at the aggregator compares the time up to which it is complete with the events accepted before that time: as many
must be counted. Times are those of this machine, whatever a daemon's clock says."""
# full: MILLRACE_ROUNDS=40
import json
import re
import time

import harness
from clocks import Clocks
from harness import MillraceTest, query, request, seeded, wait_until

DAY = 86400
STREAM = "clicks"
MADE_UP = "1332633600"  # the time of every event
LEAD = 0.05


class Host:
    """A queue with a relay."""

    def __init__(self, test, name, clocks=None):
        self.test, self.name = test, name
        self.env = clocks.env if clocks else None
        self.url = "unix:" + test.path(name + ".sock")
        self.start_queue()
        self.start_relay()

    def start_queue(self):
        self.queue = self.test.start("simplequeue", "--data-dir=" + self.test.path(self.name), "--sync=never",
                                     listen=self.url, env=self.env)

    def relay_args(self):
        return ["--queue-url=" + self.url, "--pubsub-url=" + self.test.pubsub_url, "--stream=" + STREAM,
                "--backoff-max=200ms", "--lease=2s"]

    def start_relay(self):
        self.relay = self.test.daemon("queue_to_pubsub", *self.relay_args())

    @property
    def id(self):
        return self.queue.stats()["queues"]["default"]["queue_id"]

    def put(self, target="/put"):
        self.test.put_on(self.queue, target)


class WatermarkTest(MillraceTest):
    def setUp(self):
        super().setUp()
        self.accepted = []  # for each event, when the queue had accepted it
        self.pubsub_url = "unix:" + self.path("p.sock")
        self.write("c.conf", "[input]\ntime = t\n[total all]\nkey = \"all\"\n")

    def start_pubsub(self, **kw):
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", listen=self.pubsub_url, **kw)

    def start_aggregator(self, *args, stream=STREAM, **kw):
        self.aggregator = self.start("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path("a"),
                                     "--pubsub-url=" + self.pubsub_url, "--streams=" + stream, "--flush-interval=20ms",
                                     *args, **kw)

    def put_on(self, queue, target):
        reply = queue.post(target, b'{"t":%s}' % MADE_UP.encode())
        self.assertEqual(reply.status, 200, reply)
        self.accepted.append(time.time())

    def look(self):
        """The time up to which counts are complete, checked, and the number of events counted."""
        known = list(self.accepted)
        reply = self.aggregator.get("/mget?k=all%7Call")
        self.assertEqual(reply.status, 200, reply)
        complete = int(reply.header("X-Millrace-Complete-Until"))
        counted = sum(int(n) for n in re.findall(rb":(\d+)", reply.body))
        due = sum(t <= complete for t in known)
        self.assertGreaterEqual(counted, due, "complete until %d, at %f" % (complete, time.time()))
        self.held_by = reply.header("X-Millrace-Held-By") or ""
        return complete, counted

    def complete(self):
        return self.look()[0]

    def wait_complete(self, since=None):
        since = time.time() if since is None else since
        wait_until(lambda: self.complete() >= since, lambda: "complete until %f, it is %d; %s" % (
            since, self.complete(), self.producers()))

    def producers(self, stream=STREAM):
        reply = request(self.pubsub_url, "GET", "/producers?stream=" + stream)
        return {p["producer"]: p for p in reply.json()["producers"]} if reply.status == 200 else {}

    def hold_a_moment(self, seconds=3):
        """Looks for longer than a time takes from a queue to the aggregator, and returns the last result."""
        end = time.time() + seconds
        while time.time() < end:
            last = self.look()
            time.sleep(LEAD)
        return last


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
        wait_until(lambda: self.look()[1] == 1, "the second event")
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


class Republished(WatermarkTest):
    """The counted stream is one that a program makes of another."""

    def check(self, *program):
        def start():
            return self.start(*program, "--pubsub-url=" + self.pubsub_url, "--stream=" + STREAM, "--to-stream=out")
        self.start_pubsub()
        host = Host(self, "h")
        d = start()
        host.put()
        wait_until(lambda: self.producers("out"), "the copy")
        self.start_aggregator(stream="out")
        self.wait_complete()
        for what, again in ((host.relay, host.start_relay), (d, start)):
            what.kill9()
            killed = time.time()
            host.put()
            self.assertLess(self.hold_a_moment()[0], killed + 1)
            again()
            self.wait_complete()
        self.assertEqual(self.look()[1], 3)

    def test_filtered(self):
        self.check("pubsub_filtered")

    def test_forwarded(self):
        self.check("ps_to_http", "--to-url=" + self.pubsub_url)


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
        self.act("/release?reader=r")
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
        self.act("/put?delay=600", b"d")
        self.assertIsNone(self.reserve())
        self.assertEqual(self.reserve("reader=r&wait=%d" % (1000 * harness.PATIENCE)), 5)
        self.act("/nack?lease=%s&id=5&delay=60000" % self.lease)
        self.assertIsNone(self.reserve())
        self.queue.kill9()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        self.assertIsNone(self.reserve())
        self.act("/kick")
        self.assertIsNone(self.reserve())


class Hosts(WatermarkTest):
    def test_a_silent_host_is_named_and_holds(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator()
        loud, silent = Host(self, "loud"), Host(self, "silent")
        loud.put()
        silent.put()
        self.wait_complete()
        name = silent.id
        silent.queue.kill9()
        stopped = time.time()
        loud.put()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.pubsub.kill9()  # pubsub knows the host from its file
        self.start_pubsub(env=clocks.env)
        self.aggregator.kill9()
        self.start_aggregator()
        loud.put()
        wait_until(lambda: self.look()[1] == 4, "all events")
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.assertTrue(self.producers()[name]["until_restored"])
        wait_until(lambda: (self.look(), self.held_by == STREAM + "/" + name)[1], "the silent host to be named")
        self.assertEqual(self.aggregator.stats()["held_by"], self.held_by)
        self.assertIn("a producer holds completeness back producer=" + self.held_by, self.aggregator.log)
        age = r'(?m)^millrace_pubsub_producer_until_age_seconds\{stream="clicks",producer="%s"\} (\S+)$'
        found = {h.name: float(re.search(age % p, self.pubsub.get("/metrics").text).group(1))
                 for h, p in ((loud, loud.id), (silent, name))}
        self.assertLess(found["loud"], found["silent"])
        silent.start_queue()
        self.wait_complete()
        wait_until(lambda: (self.look(), self.held_by == "")[1], "no holder")

    def test_a_host_that_is_gone_for_good(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator("--producer-timeout=100s")
        loud, silent = Host(self, "loud"), Host(self, "silent")
        self.wait_complete()
        silent.queue.stop()
        silent.relay.kill9()
        stopped = time.time()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        clocks.set(boot=101, wall=101)
        self.wait_complete(stopped + 2)
        loud.put()
        self.wait_complete()

    def test_a_removed_producer_holds_nothing(self):
        self.start_pubsub()
        self.start_aggregator()
        loud, gone = Host(self, "loud"), Host(self, "gone")
        self.wait_complete()
        name, stopped = gone.id, time.time()
        gone.queue.stop()
        gone.relay.kill9()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.assertEqual(request(self.pubsub_url, "DELETE", "/producers?" + query(stream=STREAM, producer=name)).status, 200)
        self.assertNotIn(name, self.producers())
        loud.put()
        self.wait_complete()
        self.assertEqual(self.look()[1], 1)

    def test_several_queues_while_all_is_killed(self):
        random = seeded()
        self.start_pubsub()
        self.start_aggregator()
        hosts = [Host(self, "h%d" % i) for i in range(3)]
        for _ in range(harness.rounds(2)):
            for _ in range(30):
                random.choice(hosts).put(random.choice(["/put"] * 9 + ["/put?delay=%d" % random.randrange(300)]))
                self.look()
            host = random.choice(hosts)
            for victim in random.sample(("queue", "relay", "pubsub", "aggregator"), random.randrange(1, 4)):
                if victim in ("queue", "relay"):
                    getattr(host, victim).kill9()
                    getattr(host, "start_" + victim)()
                else:
                    getattr(self, victim).kill9()
                    getattr(self, "start_" + victim)()
                self.look()
        self.wait_complete()
        self.assertEqual(self.look()[1], len(self.accepted))


class Jumps(WatermarkTest):
    def jump(self, clocks, d, **how):
        """Sets the clocks, and waits until the daemon has seen it."""
        jumps = lambda: int(re.search(r"clock_jumps_total (\d+)", d.get("/metrics").text).group(1))
        before = jumps()
        clocks.set(**how)
        wait_until(lambda: jumps() > before, "the jump")

    def test_the_clock_of_a_host(self):
        clocks = Clocks(self)
        self.start_pubsub()
        self.start_aggregator()
        host, other = Host(self, "h", clocks), Host(self, "other")
        self.wait_complete()
        for jump in (400 * DAY, -DAY)[:harness.rounds(1)]:
            self.jump(clocks, host.queue, wall=jump)
            host.put()
            host.relay.kill9()
            host.put()
            self.hold_a_moment()
            host.start_relay()
            self.hold_a_moment()
            self.jump(clocks, host.queue, wall=0)
        self.wait_complete()

    def test_a_host_that_starts_ahead(self):
        """Its until is far ahead, also after pubsub was away for a while."""
        clocks = Clocks(self)
        clocks.set(wall=DAY)
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h", clocks)
        host.put()
        self.wait_complete()
        host.relay.kill9()
        stopped = time.time()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        host.put()
        self.pubsub.kill9()
        host.start_relay()
        self.hold_a_moment()
        host.put()
        self.start_pubsub()
        self.wait_complete()
        self.jump(clocks, host.queue, wall=0)
        host.put()
        self.wait_complete()

    def test_the_clock_of_pubsub(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator()
        host = Host(self, "h")
        for jump in (400 * DAY, 0, -DAY, 0)[:2 * harness.rounds(1)]:
            self.jump(clocks, self.pubsub, wall=jump)
            host.put()
            host.relay.kill9()
            host.put()
            self.hold_a_moment()
            host.start_relay()
        self.wait_complete()


class Statements(WatermarkTest):
    """until= at /pub."""

    def setUp(self):
        super().setUp()
        self.start_pubsub()

    def pub(self, body=b"", headers=None, **params):
        return request(self.pubsub_url, "POST", "/pub?" + query(stream=STREAM, **params), body, headers=headers)

    def stored(self):
        with open(self.path("p", "untils"), "rb") as f:
            return f.read()

    def until(self, producer="p"):
        return self.producers()[producer].get("until")

    def test_with_lines_marks_or_alone(self):
        self.assertEqual(self.pub(b"x\n", producer="p", mark=0, next=5).status, 200)
        self.assertNotIn("until", self.producers()["p"])
        self.assertEqual(self.pub(b"y\n", producer="p", mark=5, next=6, until="1000.25").status, 200)
        self.assertEqual((self.until(), self.producers()["p"]["until_offset"]), (1000.25, "4"))
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
                (400, {"until": 20, "mark": 5, "until_age": -1}), (400, {"until": 20}), (409, {"until": 20, "mark": 4}),
                (409, {"until": 20, "mark": 0, "producer": "unknown"}), (400, {"until": 20, "mark": 5, "opening": "o"}),
                (409, {"until": 20, "mark": 3, "next": 9}), (400, {"until": 20, "next": 9})):
            self.assertEqual(self.pub(**{"producer": "p", **params}).status, status, params)
        self.assertEqual(self.pub(b"x\n", producer="p", mark=5, until=20).status, 400)
        self.assertEqual(self.pub(b"x\n", until=20).status, 400)
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"))
        self.pubsub_url = self.pubsub.url
        self.assertEqual(self.pub(producer="p", mark=5, until=20, headers={"Origin": "http://evil.example"}).status, 403)
        self.assertEqual(self.until(), 10)

    def test_a_future_time_is_the_present(self):
        for until in (time.time() + DAY, 9e12 // 1):
            self.pub(b"x\n", producer="p", mark=0, next=5, until="%d" % until)
            self.assertLess(abs(self.until() - time.time()), 30)
        now = time.time()
        self.assertEqual(self.pub(producer="p", mark=5, until="%d" % (now + DAY), until_age=100000).status, 200)
        self.assertLess(abs(self.until() - (now - 100)), 30)

    def test_after_a_restart(self):
        self.pub(b"x\n", producer="p", mark=0, next=5, until=1000)
        self.pub(b"x\n", producer="q", mark=0, next=5, until=0)
        wait_until(lambda: self.stored().count(STREAM.encode()) >= 2, "both to be stored")
        for end in ("kill9", "stop"):
            getattr(self.pubsub, end)()
            self.start_pubsub()
            p, q = (self.producers()[name] for name in "pq")
            self.assertEqual((p["until"], p["until_restored"], p["until_offset"]), (1000, True, "2"), end)
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
