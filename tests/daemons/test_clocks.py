"""The wall clock of pubsub, the aggregator or simplequeue jumps while they run: 400 days ahead for 5 s, a day back, an hour ahead."""
# seconds: 50
# parts: 3
import json
import re
import time

import harness
from clocks import Clocks
from harness import MillraceTest, wait_until

DAY = 86400
AHEAD = 400 * DAY
COUNTERS = "[input]\ntime = t\n[total all]\nkey = \"all\"\n"


class ClocksTest(MillraceTest):
    def setUp(self):
        super().setUp()
        self.clocks = Clocks(self)

    def now(self):
        return time.time() + self.clocks.wall

    def jump(self, d, wall):
        """Sets the wall clock, and waits until the daemon has seen it."""
        before = self.jumps(d)
        self.clocks.set(wall=wall)
        wait_until(lambda: self.jumps(d) > before, "the jump to be counted")
        self.assertEqual(self.jumps(d), before + 1)
        self.assertEqual(len(re.findall("the wall clock jumped", d.log)), before + 1)

    def jumps(self, d):
        return int(self.metric(d, "clock_jumps_total"))

    def metric(self, d, name):
        return float(re.search(r"(?m)^millrace_%s_%s (\S+)$" % (d.name, name), d.get("/metrics").text).group(1))

    def next_second(self):
        """The beginning of a second of this machine, so that a line before it and a line after it have different seconds."""
        begin = int(time.time()) + 1
        wait_until(lambda: time.time() >= begin, "the next second")
        return begin


class Pubsub(ClocksTest):
    def pubsub(self, *args, data="p"):
        return self.start("pubsub", "--data-dir=" + self.path(data), "--sync=never", *args, env=self.clocks.env)

    def pub(self, d, text):
        reply = d.post("/pub?stream=s", text + b"\n")
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def sub(self, d, second):
        return d.get("/sub?stream=s&follow=0&from=@%d" % second).body.decode().split()

    def stream(self, d):
        return d.get("/streams").json()["streams"][0]

    def test_times_follow_the_clock_again(self):
        d = self.pubsub()
        for jump in (AHEAD, 3600, -DAY):
            self.clocks.set(wall=jump)
            self.pub(d, b"in the jump")
            self.assertLess(abs(self.stream(d)["last_time"] - self.now()), harness.PATIENCE)
            self.clocks.set(wall=0)
            self.pub(d, b"after")
            self.assertLess(abs(self.stream(d)["last_time"] - time.time()), harness.PATIENCE)

    def test_from_a_time(self):
        """In one segment, and in several."""
        start = lambda size: self.pubsub("--segment-bytes=" + size, data=size)
        daemons = {size: start(size) for size in ("1M", "64K")}
        seconds, expected = [], []
        for i, jump in enumerate((0, AHEAD, 0, 3600, 0, -DAY, 0, 0)):
            seconds.append(self.next_second())
            self.clocks.set(wall=jump)
            expected.append("line-%d" % i)
            for d in daemons.values():
                self.pub(d, expected[-1].encode())
                self.pub(d, b"x" * 70000)
        for restart in range(2):
            for size, d in daemons.items():
                for i in (0, 2, 4, 6, 7):
                    found = [line for line in self.sub(d, seconds[i]) if not line.startswith("x")]
                    first = i - 1 if i in (2, 4) else i  # when the line before was published, no clock says
                    self.assertEqual(found, expected[first:], (i, restart, size))
                d.stop()
                daemons[size] = start(size)

    def fill(self, d, segments):
        for _ in range(segments):
            end = self.pub(d, b"x" * 70000)["end"]
        return int(end)

    def tick(self, d):
        """Waits until retention has run: a later stream is past its limit of bytes."""
        n = self.ticks = getattr(self, "ticks", 0) + 1
        for _ in range(3):
            d.post("/pub?stream=tick%d" % n, b"x" * 70000)
        wait_until(lambda: next(s for s in d.get("/streams").json()["streams"] if s["name"] == "tick%d" % n)["earliest"] != "0",
                   "retention")

    def with_retention(self):
        with open(self.path("c.conf"), "w") as f:
            f.write("[pubsub]\nretain_bytes = 64K\n[stream s]\nretain_bytes = 0\nretain_age = 1h\n")
        return self.pubsub("--config=" + self.path("c.conf"), "--segment-bytes=64K")

    def test_retention_deletes_neither_early_nor_never(self):
        d = self.with_retention()
        self.fill(d, 4)
        for jump in (AHEAD, 0, 7200, 0, -DAY, 0):
            self.jump(d, jump)
            self.fill(d, 2)
            self.tick(d)
            self.assertEqual(self.stream(d)["earliest"], "0", jump)
        end = self.fill(d, 3)
        self.clocks.set(wall=14400, boot=14400)  # four hours pass
        self.tick(d)
        wait_until(lambda: int(self.stream(d)["earliest"]) > end - 220000, "the old segments to be deleted")

    def test_retention_follows_a_clock_that_stays_ahead(self):
        d = self.with_retention()
        self.fill(d, 4)
        self.jump(d, AHEAD)
        self.tick(d)
        self.assertEqual(self.stream(d)["earliest"], "0")
        self.clocks.set(wall=AHEAD + 3700, boot=3700)
        wait_until(lambda: int(self.stream(d)["earliest"]) > 0, "the old segments to be deleted")


class Aggregator(ClocksTest):
    def launch(self, pubsub=None):
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), env=pubsub)
        with open(self.path("c.conf"), "w") as f:
            f.write(COUNTERS)
        return self.start("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path("a"), "--pubsub-url=" + self.pubsub.url,
                          "--streams=clicks", "--flush-interval=20ms", env=None if pubsub else self.clocks.env)

    def publish(self):
        self.assertEqual(self.pubsub.post("/pub?stream=clicks", json.dumps({"t": int(time.time())}).encode()).status, 200)

    def complete(self, d):
        return int(d.get("/range?start=a&end=b").header("X-Millrace-Complete-Until"))

    def wait_complete(self, d, since):
        wait_until(lambda: self.complete(d) > since, "complete until %s" % since)

    def test_complete_is_never_ahead_and_falls_back(self):
        """Of pubsub's clock."""
        d = self.launch(pubsub=self.clocks.env)
        self.publish()
        self.wait_complete(d, time.time())
        for jump in (AHEAD, 3600):
            before = self.complete(d)
            self.jump(self.pubsub, jump)
            self.publish()
            self.wait_complete(d, before + 2)  # it moves on
            self.assertLessEqual(self.complete(d), time.time())
            self.jump(self.pubsub, 0)
            self.assertLessEqual(self.complete(d), time.time())
            self.wait_complete(d, time.time())
        self.jump(self.pubsub, -DAY)
        wait_until(lambda: self.complete(d) <= self.now(), "the next statement")
        self.publish()
        self.wait_complete(d, self.now())
        self.assertLessEqual(self.complete(d), self.now())
        self.jump(self.pubsub, 0)
        self.wait_complete(d, time.time())
        self.assertLessEqual(self.metric(d, "complete_until_seconds"), time.time())

    def test_complete_follows_a_clock_that_stays_ahead(self):
        d = self.launch(pubsub=self.clocks.env)
        self.publish()
        self.wait_complete(d, time.time())
        self.jump(self.pubsub, 3600)
        self.clocks.set(wall=3600 + 3700, boot=3700)
        self.wait_complete(d, self.now())
        self.assertLessEqual(self.complete(d), self.now())

    def event(self, d, time_of_event, counted):
        """Publishes an event, and returns how many were counted and rejected since the start."""
        self.assertEqual(self.pubsub.post("/pub?stream=clicks", json.dumps({"t": int(time_of_event)}).encode()).status, 200)
        wait_until(lambda: sum(self.numbers(d)) == sum(counted) + 1, "the event")
        return self.numbers(d)

    def check_newest(self, d, at):
        """The age of the newest event is that of an event of this time, which the daemon may have cut to a second."""
        least = time.time() - at
        age = self.metric(d, "newest_event_age_seconds")
        self.assertTrue(least - 2 < age < time.time() - at + 2, age)

    def numbers(self, d):
        return [int(self.metric(d, name)) for name in ("events_counted_total", "lines_rejected_total")]

    def test_events_far_ahead_are_rejected_after_a_jump(self):
        d = self.launch()
        at = time.time() - 500
        counted = self.event(d, at, [0, 0])
        self.assertEqual(counted, [1, 0])
        self.check_newest(d, at)
        self.jump(d, AHEAD)  # if that is right, so are the events
        counted = self.event(d, self.now(), counted)
        self.assertEqual(counted, [2, 0])
        self.jump(d, 0)
        counted = self.event(d, time.time() + 3 * DAY, counted)
        self.assertEqual(counted, [2, 1])
        self.jump(d, -3 * DAY)
        at = time.time() - 10
        counted = self.event(d, at, counted)  # not later than the daemon's last look at its clock
        self.assertEqual(counted, [3, 1])
        self.jump(d, 0)
        self.check_newest(d, at)
        wait_until(lambda: self.metric(d, "complete_age_seconds") < 60, "complete again")

    def test_the_newest_event_after_a_start_with_the_clock_ahead(self):
        self.clocks.set(wall=AHEAD)
        d = self.launch()
        counted = self.event(d, self.now(), [0, 0])
        self.assertEqual(counted, [1, 0])
        self.jump(d, 0)
        at = time.time() - 500
        counted = self.event(d, at, counted)
        self.assertEqual(counted, [2, 0])
        self.check_newest(d, at)

    def test_a_silent_pubsub_holds_it_back(self):
        d = self.launch()
        self.publish()
        self.wait_complete(d, time.time())
        self.pubsub.kill9()
        stopped = time.time()
        for jump in (AHEAD, 0, -DAY, 0, 3600, 0):
            self.jump(d, jump)
            self.assertLessEqual(self.complete(d), stopped + 1, jump)


class Api(ClocksTest):
    def test_the_history_of_the_pipeline_goes_on(self):
        none = "http://127.0.0.1:1"
        d = self.start("api", "--config", self.write("api.conf", COUNTERS), *("--%s_url=%s" % (name, none) for name in (
            "aggregator", "queue", "pubsub", "queue_to_pubsub")), env=self.clocks.env)
        history = lambda: d.get("/v1/pipeline").json()["history"]
        first = wait_until(history, "a sample")[0]
        self.jump(d, -DAY)
        later = wait_until(lambda: history()[1:], "another sample")[0]
        self.assertTrue(later["t"] < first["t"] - DAY / 2, (first, later))


class Simplequeue(ClocksTest):
    def launch(self):
        return self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", env=self.clocks.env)

    def numbers(self, q):
        return q.stats()["queues"]["default"]

    def test_leases_and_delays_do_not_follow_the_clock(self):
        q = self.launch()
        q.post("/put", b"leased")
        self.assertEqual(q.get("/reserve?lease=3600000").status, 200)
        q.post("/put?delay=3600000", b"delayed")
        before = self.numbers(q)
        for jump in (AHEAD, 0, 3600, 0, -DAY, 0):
            self.jump(q, jump)
            self.assertEqual({k: self.numbers(q)[k] for k in ("depth", "leased", "delayed") if k in before},
                             {k: before[k] for k in ("depth", "leased", "delayed") if k in before})
            self.assertEqual(q.get("/reserve").body, b"")

    def test_a_delay_does_not_get_longer(self):
        """A message that was put during a jump waits for its delay, and not until the clock is there again."""
        for jump in (AHEAD, -DAY):
            q = self.launch()
            self.clocks.set(wall=max(jump, 0))
            text = b"put at %d" % jump
            self.assertEqual(q.post("/put?delay=500", text).status, 200)
            q.kill9()
            self.clocks.set(wall=min(jump, 0))
            q = self.launch()
            wait_until(lambda: q.get("/get").body == text, "the message", timeout=harness.SOON)
            q.stop()
            self.clocks.set(wall=0)


if __name__ == "__main__":
    harness.main()
