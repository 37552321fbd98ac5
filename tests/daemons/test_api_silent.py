"""Queries to a source that gives no sign of life: they end early, and no query fails that a slow source would have answered."""
# parts: 3
# seconds: 40
import os
import signal
import threading
import time

import harness
from harness import query, wait_until
from test_api import MARCH, Source, hour_text

SPAN = {"from_": MARCH, "to": MARCH + 7200, "unit": "hour"}
TARGET = "/v1/series?" + query(user="k", **SPAN)


class Silent(harness.MillraceTest):
    def begin(self, timeout):
        """An aggregator whose act() may answer late."""
        self.live = Source(self)
        self.live.records["u|k"] = hour_text(MARCH) + ":4"
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--aggregator-url", self.live.url, "--queue-url", self.live.url,
                              "--upstream-timeout=%dms" % (1000 * timeout))

    def answer_after(self, seconds):
        """One answer at a time, as of one loop."""
        turn = threading.Lock()

        def act(h):
            if not h.path.startswith(("/health", "/stats")):
                with turn:
                    time.sleep(seconds)
            return False
        self.live.act = act

    def status(self):
        return self.api.get(TARGET).status

    def test_a_stopped_aggregator_delays_only_the_first_queries(self):
        harness.slower_and_slower(4, self.stopped, tries=3)

    def stopped(self, timeout):
        data = self.path("data%d" % timeout)
        config = self.write("pipeline.conf", harness.pipeline_config(data, api={"upstream_timeout": "%ds" % timeout}))
        up = harness.Pipeline(self, config, data).wait_ready()
        up.ask("api", "POST", "/v1/events", b'{"t":%d,"l":"k"}' % MARCH)
        wait_until(lambda: up.ask("api", "GET", TARGET).json().get("total") == 1, "the count")
        pid = up.daemon_pid("aggregator")
        os.kill(pid, signal.SIGSTOP)
        try:
            first = up.ask("api", "GET", TARGET)
            self.assertEqual((first.status, "it is silent" in first.text), (503, False), first)
            for _ in range(3):
                begin = time.monotonic()
                later = up.ask("api", "GET", TARGET)
                self.assertEqual((later.status, "it is silent" in later.text), (503, True), later)
                self.assertLess(time.monotonic() - begin, timeout * 0.75)
            begin = time.monotonic()
            self.assertEqual([m["source"] for m in up.ask("api", "GET", "/v1/freshness").json()["missing"]], ["aggregator"])
            self.assertLess(time.monotonic() - begin, timeout * 0.75)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: up.ask("api", "GET", TARGET).json().get("total") == 1, "the count again")
        up.stop()

    def test_a_slow_aggregator_fails_no_query(self):
        harness.slower_and_slower(4, self.slow, tries=3)

    def slow(self, timeout):
        self.begin(timeout)
        self.answer_after(0.4 * timeout)
        for _ in range(3):
            self.assertEqual(self.status(), 200)
        self.answer_after(1.2 * timeout)
        self.assertEqual(self.status(), 503)
        self.answer_after(0.4 * timeout)
        wait_until(lambda: self.status() == 200, "an answer after the silence")
        for _ in range(3):
            self.assertEqual(self.status(), 200)

    def test_queries_that_wait_too_long_in_a_row_do_not_make_a_source_silent(self):
        harness.slower_and_slower(4, self.row, tries=3)

    def row(self, timeout):
        """Of seven questions, the source answers two within the timeout."""
        self.begin(timeout)
        self.answer_after(0.4 * timeout)
        late = [threading.Thread(target=self.api.get, args=("/v1/series?" + query(user="k%d" % i, **{**SPAN, "from_": MARCH - 3600 * i}),))
                for i in range(1, 8)]
        for t in late:
            t.start()
        for t in late:
            t.join()
        self.assertNotIn("it is silent", self.api.get(TARGET).text)


if __name__ == "__main__":
    harness.main()
