"""A pipeline whose aggregator is gone: the archive alone answers with partial=allow, and includes every event accepted before its complete_until."""
import signal
import sqlite3
import time

import harness
from harness import query, wait_until
from test_api import MARCH

COUNTERS = """
[input]
time = t
[total all]
key = "all"
label = feed
"""
USERS = COUNTERS + """
[total u]
key = l
label = user
"""
SPAN = {"from_": MARCH, "to": MARCH + 3600, "unit": "hour"}


class ArchiveAlone(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.url = self.path("archive"), "unix:" + self.path("a.sock")
        self.run_program("compactor", "--archive=" + self.archive, "--init")
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never")
        self.write("api.conf", USERS)
        self.start_api("--archive=" + self.archive)

    def start_api(self, archive):
        self.api = self.start("api", "--config=" + self.path("api.conf"), archive, "--aggregator-url=" + self.url, "--queue-url=" + self.url)
        wait_until(lambda: "sortdb" in archive or "reading the archive" in self.api.log, lambda: self.api.log)

    def begin(self, counters, *args):
        config = self.write("c.conf", counters)
        self.aggregator = self.daemon("aggregator", "--config=" + config, "--data-dir=" + self.path("a"), "--archive=" + self.archive,
                                      "--pubsub-url=" + self.pubsub.url, *args, listen=self.url)
        return self.aggregator

    def publish(self):
        reply = self.pubsub.post("/pub?stream=clicks", b'{"t":%d,"l":"k"}' % MARCH)
        self.assertEqual(reply.status, 200, reply)
        self.accepted = time.time()

    def ask(self, **params):
        reply = self.api.get("/v1/series?" + query(**{**SPAN, **params}))
        self.assertEqual(reply.status, 200, reply)
        return reply

    def wait_for(self, n, **params):
        """Counts that are called complete until now."""
        now = time.time()

        def complete():
            reply = self.ask(**params)
            return reply.json()["total"] == n and int(reply.header("X-Millrace-Complete-Until")) > now
        wait_until(complete, lambda: self.ask(**params))

    def compact(self, aggregator):
        done = self.run_program("compactor", "--archive=" + self.archive, "--slices=" + self.path("a", "slices"),
                                "--aggregator-url=" + aggregator, "--sortdb-url=" + self.api.url)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_alone(self, **params):
        """It has the first event, but not the last one. Returns the time until which it is complete."""
        got = self.ask(partial="allow", **params).json()
        self.assertEqual(got["total"], 1, got)
        return got["complete_until"] or 0

    def test_events_of_a_slice_that_it_includes(self):
        self.begin(USERS, "--flush-interval=20ms").wait_ready()
        self.publish()
        wait_until(lambda: int(self.aggregator.get("/mget?k=all%7Call").header("X-Millrace-Stored-Until")) > self.accepted, "the event to be stored")
        self.wait_for(1, feed="")
        self.compact(self.url)
        self.aggregator.kill9()
        until = self.check_alone(feed="")
        self.assertGreater(until, self.accepted)
        sortdb = self.start("sortdb", "--archive=" + self.archive)
        for archive in ("--archive=" + self.archive, "--sortdb-url=" + sortdb.url):
            self.api.stop()
            self.start_api(archive)
            self.assertEqual(self.check_alone(feed=""), until)

    def test_events_after_a_slice_that_keeps_its_log(self):
        self.begin(USERS, "--flush-interval=20ms").wait_ready()
        self.publish()
        self.wait_for(1, feed="")
        wait_until(lambda: self.aggregator.stats()["rows_flushed_total"] > 0, "a flush")
        holder = sqlite3.connect(self.path("a", "slices", "0000000001.db"), isolation_level=None)
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM meta").fetchall()
        self.assertEqual(self.aggregator.post("/seal?slice=1").status, 200)
        self.publish()
        self.wait_for(2, feed="")
        self.aggregator.kill9()
        self.compact("stopped")
        holder.close()
        self.assertLessEqual(self.check_alone(feed=""), self.accepted)

    def test_events_in_memory_that_a_killed_aggregator_counts_into_the_next_slice(self):
        """The restart has other counters, and seals the slice as it is."""
        self.begin(COUNTERS, "--flush-interval=10m").wait_ready()
        self.publish()
        wait_until(lambda: self.aggregator.stats()["rows_flushed_total"] > 0, "the first flush")
        self.publish()
        self.wait_for(2, feed="")
        self.aggregator.kill9()
        self.pubsub.process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.pubsub.process.send_signal, signal.SIGCONT)
        self.begin(USERS).wait_listening()
        wait_until(lambda: self.aggregator.get("/slices").status == 200, lambda: self.aggregator.log)
        self.compact(self.url)
        self.aggregator.kill9()
        self.assertLessEqual(self.check_alone(feed=""), self.accepted)

    def test_events_while_the_aggregator_did_not_have_the_counter(self):
        self.begin(USERS, "--flush-interval=20ms").wait_ready()
        self.publish()
        self.wait_for(1, user="k")
        self.aggregator.stop()
        self.begin(COUNTERS, "--flush-interval=20ms").wait_ready()
        self.publish()
        self.wait_for(2, feed="")
        wait_until(lambda: self.aggregator.stats()["rows_flushed_total"] > 0, "a flush")
        self.wait_for(2, feed="")
        self.compact(self.url)
        self.aggregator.kill9()
        self.assertLessEqual(self.check_alone(user="k"), self.accepted)


if __name__ == "__main__":
    harness.main()
