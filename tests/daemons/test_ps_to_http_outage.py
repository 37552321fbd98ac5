"""ps_to_http after an outage of its destination."""
# full: MILLRACE_ROUNDS=200
import time

import harness
from forward_case import ForwardCase
from harness import wait_until
from sink import Sink, destination, most_tries


class Outage(ForwardCase):
    FAULT = 60 if harness.rounds(0) >= 60 else 1  # seconds

    def test_a_destination_that_was_gone_is_at_full_speed_within_five_seconds(self):
        """With the backoff as it is by default. One request at a time: in order, and only what was in doubt may come twice."""
        sink = Sink(self)
        p = self.to_http("--destination", sink.url, "--state", self.path("state"), "--batch=10", "--port=0", port=False)
        p.wait_ready()
        self.publish(50)
        wait_until(lambda: p.stats()["lines_delivered_total"] == self.n, "the first to arrive")
        sink.close()
        sink.behave = lambda body: "reset"  # of the connection that is kept
        began, before = time.monotonic(), p.stats()["tries_failed_total"]
        self.publish(200)
        time.sleep(self.FAULT)  # the fault's length is what is tested
        wait_until(lambda: p.stats()["tries_failed_total"] > before, "a try")
        down = destination(p, sink.url)
        self.assertLessEqual(p.stats()["tries_failed_total"] - before, most_tries(time.monotonic() - began))
        self.assertEqual(down["up"], 0)
        self.assertLessEqual(down["set_aside_seconds"], 2, "what it is at full speed again after")
        back = Sink(self, sink.port)
        self.publish(50)
        wait_until(lambda: p.stats()["lines_delivered_total"] == self.n, "everything to arrive")
        self.assertEqual(list(dict.fromkeys(sink.messages() + back.messages())), self.sent())
        p.stop()


if __name__ == "__main__":
    harness.main()
