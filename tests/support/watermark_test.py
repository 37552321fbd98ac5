"""What the tests of completeness share: hosts, and looks at the aggregator.

Each look compares the time up to which the aggregator is complete with the events accepted before that time: as many must be
counted. Times are those of this machine, whatever a daemon's clock says."""
import re
import time

from harness import MillraceTest, request, wait_until

DAY = 86400
STREAM = "clicks"
MADE_UP = "1332633600"  # the time of every event
LEAD = 0.05


class Host:
    """A queue with a relay that pubsub knows: one that it has not heard of yet holds nothing back."""

    def __init__(self, test, name, clocks=None):
        self.test, self.name = test, name
        self.env = clocks.env if clocks else None
        self.url = "unix:" + test.path(name + ".sock")
        self.start_queue()
        self.start_relay()
        wait_until(lambda: "default" in self.queue.stats()["queues"] and "until" in test.producers().get(self.id, {}),
                   "pubsub to know the producer of " + name)

    def start_queue(self):
        self.queue = self.test.start("simplequeue", "--data-dir=" + self.test.path(self.name), "--sync=never",
                                     listen=self.url, env=self.env)

    def relay_args(self):
        return ["--queue-url=" + self.url, "--pubsub-url=" + self.test.pubsub_url, "--stream=" + STREAM, "--name=" + self.name,
                "--backoff-max=200ms"]

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

    def start_pubsub(self, *args, **kw):
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", "--producer-timeout=100s", *args,
                                 listen=self.pubsub_url, **kw)

    def start_aggregator(self, *args, stream=STREAM, start=None, **kw):
        self.aggregator = (start or self.start)("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path("a"),
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

    def pass_silence(self, clocks, producer, seconds):
        """Moves the clocks of pubsub, in steps that do not look like a suspension, until the producer is silent for so long."""
        silence = lambda: self.producers()[producer]["silent_seconds"]
        while (before := silence()) < seconds:
            clocks.set(boot=clocks.boot + 9, wall=clocks.wall + 9)
            wait_until(lambda: silence() >= before + 9, "pubsub to see the time")

    def hold_a_moment(self, seconds=3):
        """Looks for longer than a time takes from a queue to the aggregator, and returns the last result."""
        return self.hold(self.look, seconds)

    @staticmethod
    def hold(look, seconds=3):
        """Looks so often that nothing that lasts is missed."""
        end = time.time() + seconds
        while time.time() < end:
            last = look()
            time.sleep(LEAD)
        return last
