"""Counts are never called complete too early: pubsub was away, restarts with times that it has stored, or reads a statement late."""
# seconds: 60
# parts: 3
import signal
import time

import harness
from clocks import Clocks
from harness import request, wait_until
from watermark_test import DAY, MADE_UP, STREAM, Host, WatermarkTest


class Silence(WatermarkTest):
    def setUp(self):
        super().setUp()
        self.clocks = Clocks(self)
        self.marks = {}

    def start_pubsub(self):
        super().start_pubsub(env=self.clocks.env)

    def state(self, producer, until, lines=0):
        """The producer publishes lines and states its time, and pubsub has stored the producer."""
        mark = self.marks.get(producer, 0)
        self.marks[producer] = mark + 1
        reply = request(self.pubsub_url, "POST", "/pub?stream=%s&producer=%s&mark=%d&next=%d&until=%f" % (
            STREAM, producer, mark, mark + 1, until), b'{"t":%s}\n' % MADE_UP.encode() * lines)
        self.assertEqual(reply.status, 200, reply)
        self.accepted += [time.time()] * lines
        wait_until(lambda: "until" in self.producers()[producer], "the producer to be known")

    def freeze(self, d):
        d.process.send_signal(signal.SIGSTOP)
        self.addCleanup(d.process.send_signal, signal.SIGCONT)

    def thaw(self, d):
        d.process.send_signal(signal.SIGCONT)

    def test_pubsub_was_down_for_long(self):
        """The producers could not state their times, which is no silence of theirs."""
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        host.put()
        self.wait_complete()
        self.freeze(host.relay)
        host.put()
        self.pubsub.kill9()
        self.clocks.set(boot=200, wall=200)
        self.start_pubsub()
        self.assertLess(self.hold_a_moment()[0], self.accepted[-1])
        self.thaw(host.relay)
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)

    def test_pubsub_was_suspended_for_long(self):
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h")
        host.put()
        self.wait_complete()
        self.freeze(host.relay)
        host.put()
        self.freeze(self.pubsub)
        self.clocks.set(boot=200, wall=200)
        self.thaw(self.pubsub)
        self.assertLess(self.hold_a_moment()[0], self.accepted[-1])
        self.thaw(host.relay)
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)

    def test_a_silent_producer_that_returns_after_a_restart(self):
        """Without its time the counts were complete later than its time, which counts again."""
        self.start_pubsub()
        self.start_aggregator()
        stated = time.time()
        self.state("silent", stated, lines=1)
        self.wait_complete(stated - 1)
        loud = stated + 2
        for seconds in (60, 101):
            self.state("loud", loud)
            self.pass_silence(self.clocks, "silent", seconds)
        self.wait_complete(int(loud))
        self.pubsub.kill9()
        self.start_pubsub()
        self.state("silent", stated)
        self.state("loud", time.time(), lines=1)
        wait_until(lambda: self.look()[0] <= stated, "the time of the producer to count again")
        self.accepted.append(stated + 1)  # by the silent one, which has not published it
        self.assertEqual(self.hold_a_moment()[1], 2)

    def test_the_clocks_were_ahead_when_the_time_was_stored(self):
        """A time that lies in the future after a restart tells nothing."""
        self.clocks.set(wall=3600)
        self.start_pubsub()
        self.state("web2", time.time() + 3600, lines=1)
        self.pubsub.kill9()
        self.clocks.set(wall=0)
        self.start_pubsub()
        self.start_aggregator()
        self.accepted.append(time.time())
        wait_until(lambda: self.aggregator.get("/mget?k=all%7Call").status == 200, "the aggregator")
        self.assertEqual(self.hold_a_moment()[1], 1)

    def test_the_clock_is_set_back_after_a_restart(self):
        self.clocks.set(wall=3600)
        self.start_pubsub()
        self.state("web2", time.time() + 3600, lines=1)
        self.pubsub.kill9()
        self.start_pubsub()
        self.clocks.set(wall=0)
        wait_until(lambda: "clock_jumps_total 1" in self.pubsub.get("/metrics").text, "the jump")
        self.start_aggregator()
        self.accepted.append(time.time())
        self.assertEqual(self.hold_a_moment()[1], 1)

    def test_pubsub_reads_a_statement_late(self):
        """The queue's clock is ahead, so only the age of the statement limits its time."""
        ahead = Clocks(self, "ahead")
        ahead.set(wall=DAY)
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h", ahead)
        host.put()
        self.wait_complete()
        self.freeze(self.pubsub)
        time.sleep(2)  # the relay states its time meanwhile
        self.freeze(host.relay)
        time.sleep(3)
        host.put()
        time.sleep(2)
        self.thaw(self.pubsub)
        self.assertEqual(self.hold_a_moment()[1], 1)
        self.thaw(host.relay)
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)

    def test_a_relay_reads_its_queue_late(self):
        ahead = Clocks(self, "ahead")
        ahead.set(wall=DAY)
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h", ahead)
        host.put()
        self.wait_complete()
        wait_until(lambda: host.queue.stats()["waiting"], "the relay to wait")
        self.freeze(host.relay)
        wait_until(lambda: not host.queue.stats()["waiting"], "the answer")
        time.sleep(2)  # the answer waits
        host.put()
        time.sleep(2)
        self.freeze(host.queue)
        self.thaw(host.relay)
        self.assertEqual(self.hold_a_moment()[1], 1)
        self.thaw(host.queue)
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)


if __name__ == "__main__":
    harness.main()
