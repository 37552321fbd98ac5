"""How readers without marks stop: what is done is acknowledged, whatever the queue does meanwhile."""
# seconds: 15
import os
import signal

import harness
from gateway import Gateway
from harness import MillraceTest, wait_until
from sink import Sink


class Stop(MillraceTest):
    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        """A queue of its own, and no run yet."""
        for name in ("begun", "enough", "out"):
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))
        self.data = self.path("q%d" % len(self.daemons))
        self.queue = self.start("simplequeue", "--data-dir=" + self.data, "--sync=never")
        self.queue.post("/mput", b"\n".join(b"%d" % i for i in range(10)))
        self.gateway = Gateway(self, self.queue.url)

    def numbers(self):
        return self.queue.stats()["queues"]["default"]

    def read(self, name="out"):
        return harness.read_file(self.path(name)) if os.path.exists(self.path(name)) else b""

    def reader(self, *args, runs=1, queue_url=None):
        """A reader with two messages a run. Run number `runs` waits for finish(). The reader then holds so many messages that it asks for
        no more, because a long poll that a stop cancels could still get returned messages."""
        script = self.write("script", "#!/bin/sh\necho >> %s\n[ $(wc -l < %s) -lt %d ] || until [ -e %s ]; do sleep 0.02; done\ncat >> %s" % (
            self.path("begun"), self.path("begun"), runs, self.path("enough"), self.path("out")))
        os.chmod(script, 0o755)
        reader = self.daemon("queue_exec", "--queue-url=" + (queue_url or self.gateway.url), "--backoff-min=10ms",
                             "--backoff-max=100ms", "--batch=2", "--items=%d" % (10 if runs == 1 else 6), *args, "--", script, port=False)
        wait_until(lambda: self.read("begun").count(b"\n") == runs, "the run to begin")
        return reader

    def begin_stop(self, reader):
        reader.process.send_signal(signal.SIGTERM)
        wait_until(lambda: " stopping" in reader.log, "it to be told")

    def finish(self):
        self.write("enough", "")

    def ended(self, reader, status, within=harness.PATIENCE):
        self.assertEqual(reader.process.wait(within), status, reader.log)

    def stop_refused(self, answer, times, *args):
        """The run is done, and the queue does not take the acknowledgement, so often."""
        reader = self.reader(*args)
        self.gateway.refuse("/ack", answer)
        self.begin_stop(reader)
        self.finish()
        wait_until(lambda: len(self.gateway.refused) >= times, "acknowledgements")
        return reader

    def assert_done_again(self, reader, ids):
        self.assertRegex(reader.log, "delivered messages may be delivered again .*queue=default ids=%s\n" % ids)

    def assert_nothing_again(self, reader):
        self.assertNotIn("may be delivered again", reader.log)
        self.assertEqual((self.numbers()["depth"], self.numbers()["ready"]), (8, 8))


class WhatIsDone(Stop):
    def test_is_acknowledged_while_another_run_is_under_way(self):
        """All of one lease."""
        reader = self.reader("--drain-timeout=1h", runs=3)
        self.begin_stop(reader)
        wait_until(lambda: (self.numbers()["depth"], self.numbers()["ready"]) == (6, 4), self.numbers)
        self.assertTrue(reader.alive())
        reader.kill9()

    def test_is_acknowledged_though_giving_back_failed(self):
        reader = self.reader()
        self.gateway.refuse("/nack", 503)
        self.begin_stop(reader)
        wait_until(lambda: self.gateway.refused, "messages to be given back")
        self.finish()
        self.ended(reader, 0)
        self.assert_nothing_again(reader)

    def test_is_acknowledged_when_the_queue_takes_it_again(self):
        reader = self.stop_refused(503, 3)
        self.assertTrue(reader.alive())
        self.gateway.open()
        self.ended(reader, 0)
        self.assert_nothing_again(reader)

    def time_is_over(self, answer):
        """The run must be done within the drain timeout, which a machine that stood still may miss."""
        def attempt(seconds):
            self.begin()
            reader = self.stop_refused(answer, 1, "--drain-timeout=%dms" % (1000 * seconds))
            self.ended(reader, 75)
            self.assert_done_again(reader, "1-2")
        harness.slower_and_slower(0.5, attempt)

    def test_is_told_when_the_queue_never_takes_it(self):
        self.time_is_over(503)
        self.assertEqual(self.numbers()["ready"], 8)

    def test_is_told_when_the_queue_refuses_it(self):
        """As after a change of the queue's directory: the name of the queue is then unknown."""
        reader = self.stop_refused(404, 1)
        self.ended(reader, 75)
        self.assert_done_again(reader, "1-2")
        self.assertEqual((self.numbers()["depth"], self.numbers()["ready"]), (10, 10))

    def test_is_told_when_the_lease_was_lost_before_the_stop(self):
        """The log has named the loss, but the messages come again only after the stop."""
        reader = self.reader("--lease=2s")
        self.gateway.behave = lambda target: 409 if target.startswith("/touch?") else None
        wait_until(lambda: "may be delivered again" in reader.log, "it to find its lease gone")
        self.begin_stop(reader)
        self.finish()
        self.ended(reader, 75)
        self.assert_done_again(reader, "1-2")

    def test_a_loss_that_is_over_is_not_told_at_the_stop(self):
        """The messages came again, to the same reader, and are acknowledged."""
        reader = self.reader("--lease=2s")
        self.gateway.behave = lambda target: 409 if target.startswith("/touch?") else None
        wait_until(lambda: "may be delivered again" in reader.log, "it to find its lease gone")
        self.gateway.open()
        self.finish()
        wait_until(lambda: self.numbers()["depth"] == 0, "all to be acknowledged")
        self.begin_stop(reader)
        self.ended(reader, 0)

    def test_is_told_when_the_queue_never_answers(self):
        self.time_is_over("hang")

    def test_is_waited_for_while_the_queue_is_away(self):
        """A killed queue has lost its leases after its restart, so the messages come again, and the reader says so, also if the connection
        broke during the acknowledgement, or if the run continues."""
        for goes_on in (False, True):
            with self.subTest(goes_on=goes_on):
                self.begin()
                self.wait_while_the_queue_is_away(goes_on)

    def wait_while_the_queue_is_away(self, goes_on):
        self.queue.stop()
        port = self.keep_port()
        args = ["--data-dir=" + self.data, "--sync=never", "--address=127.0.0.1", "--port=" + port]
        queue = self.start("simplequeue", *args, port=False)
        reader = self.reader(queue_url=queue.url)
        self.begin_stop(reader)
        queue.kill9()
        if not goes_on:
            self.finish()
        wait_until(lambda: "queue: no connection" in reader.log, "it to look for the queue")
        self.queue = self.start("simplequeue", *args, port=False)
        if goes_on:
            wait_until(lambda: "may be delivered again" in reader.log, "it to find its lease gone")
            self.assertTrue(reader.alive())
            self.finish()
        self.ended(reader, 75)
        self.assert_done_again(reader, "1-2")
        self.assertEqual(self.numbers()["ready"], 10)


class SecondSignal(Stop):
    """A second signal ends the wait, but acts that need no wait are still done."""

    def test_a_queue_that_says_no_is_asked_once_more(self):
        reader = self.stop_refused(503, 1, "--drain-timeout=1h")
        reader.process.send_signal(signal.SIGTERM)
        self.ended(reader, 75, harness.SOON)
        self.assert_done_again(reader, "1-2")

    def test_a_queue_that_answers_late_has_its_time(self):
        reader = self.stop_refused("hang", 1, "--drain-timeout=1h")
        reader.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "cut short" in reader.log, "it to be told")
        self.gateway.open()
        self.ended(reader, 0, harness.SOON)
        self.assert_nothing_again(reader)

    def test_a_queue_that_never_answers_is_left(self):
        reader = self.stop_refused("hang", 1, "--drain-timeout=1h")
        reader.process.send_signal(signal.SIGTERM)
        self.ended(reader, 75, harness.SOON)
        self.assert_done_again(reader, "1-2")

    def test_the_run_that_is_cut_takes_nothing_with_it_that_is_done(self):
        reader = self.reader("--drain-timeout=1h", runs=3)
        self.begin_stop(reader)
        reader.process.send_signal(signal.SIGTERM)
        self.ended(reader, 75, harness.SOON)
        self.assertNotIn("may be delivered again", reader.log)
        self.assertEqual((self.numbers()["depth"], self.numbers()["ready"]), (6, 6))


class ToHttp(Stop):
    def test_what_is_answered_is_acknowledged_when_the_queue_takes_it_again(self):
        sink = Sink(self)
        self.gateway.behave = lambda target: 503 if "/ack" in target or "ack=" in target else None
        sender = self.daemon("queue_to_http", "--queue-url=" + self.gateway.url, "--destination=" + sink.url,
                             "--backoff-max=100ms", port=False)
        wait_until(lambda: len(self.gateway.refused) > 3, "acknowledgements")
        self.assertEqual(len(sink.taken()), 1, "no more is sent while what was sent is not acknowledged")
        sender.process.send_signal(signal.SIGTERM)
        wait_until(lambda: " stopping" in sender.log, "it to be told")
        tries = len(self.gateway.refused) + 3
        wait_until(lambda: len(self.gateway.refused) >= tries, "it to try on")
        self.gateway.open()
        self.ended(sender, 0)
        self.assertEqual(self.numbers()["depth"], 9)

    def test_is_told_when_the_queue_never_takes_it(self):
        sink = Sink(self)
        self.gateway.refuse("/ack", 503)
        sender = self.daemon("queue_to_http", "--queue-url=" + self.gateway.url, "--destination=" + sink.url,
                             "--backoff-max=100ms", "--drain-timeout=300ms", port=False)
        wait_until(lambda: self.gateway.refused, "an acknowledgement")
        sender.process.send_signal(signal.SIGTERM)
        self.ended(sender, 75)
        self.assert_done_again(sender, "1")


if __name__ == "__main__":
    harness.main()
