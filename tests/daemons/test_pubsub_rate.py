"""/rate: the number of new lines each second, whatever the rate. Its ends while pubsub is not up are in test_pubsub_events.py."""
import time

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest
from rate_client import RateClient


class Rate(PubsubTest):
    def rate(self, target="/rate?stream=s"):
        return RateClient(self, self.url, target)

    def test_events_add_up_to_the_lines_committed(self):
        self.pubsub()
        self.pub(b"before\n" * 1000)
        one, every = self.rate(), self.rate("/rate")
        for _ in range(3):
            self.assertEqual(self.pub(b"line\n" * 100).status, 200)
        self.assertEqual(self.pub(b"line\n" * 50, stream="another").status, 200)
        late = self.rate()
        self.assertEqual(self.pub(b"last\n").status, 200)
        self.assertEqual((one.reach(301), every.reach(351), late.reach(1)), (301, 351, 1))

    def test_every_second(self):
        self.pubsub()
        self.pub(b"line\n")
        began, client = time.monotonic(), self.rate()
        events = [client.next() for _ in range(3)]
        self.assertEqual([sorted(event) for event in events], [["lines", "seconds", "time"]] * 3)
        self.assertTrue(1 < client.seconds <= time.monotonic() - began + 0.1, client.seconds)
        self.assertEqual(client.sum, 0)

    def test_what_is_no_new_line(self):
        """A repeated publish and an erased line do not count as new lines."""
        self.pubsub()
        client = self.rate("/rate")
        line = b"a line to erase\n"
        for is_repeat in (False, True):
            reply = self.pub(line * 7, producer="p", mark=0, next=7).json()
            self.assertEqual(reply["duplicate"], is_repeat)
        erased = request(self.url, "POST", "/erase?stream=s&id=" + reply["id"], b"0 %d\n" % len(line))
        self.assertEqual(erased.status, 202, erased)
        wait_until(lambda: request(self.url, "GET", "/erase?stream=s").json()["state"] == "done", "the erasure")
        self.assertEqual(self.pub(b"last\n").status, 200)
        self.assertEqual(client.reach(8), 8)

    def test_a_restart_ends_it_and_counts_begin_again(self):
        daemon = self.pubsub()
        for stop in ("stop", "kill9"):
            self.pub(b"line\n")
            client = self.rate()
            self.assertEqual(client.next()["lines"], 0)
            getattr(daemon, stop)()
            while client.next():
                pass
            self.assertEqual(client.sum, 0)
            daemon = self.pubsub()
            again = self.rate()
            self.pub(b"line\n" * 20)
            self.assertEqual(again.reach(20), 20)

    def test_clients_that_leave(self):
        daemon = self.pubsub()
        self.pub(b"line\n")
        clients = [self.rate() for _ in range(5)]
        for i in (2, 0, 4, 1):
            clients[i].close()
        wait_until(lambda: daemon.stats()["http_connections"] <= 2, daemon.stats)  # this request's, and one
        self.pub(b"line\n" * 3)
        self.assertEqual(clients[3].reach(3), 3)

    def test_refusals(self):
        self.pubsub()
        self.assertProblem(request(self.url, "GET", "/rate?stream=none"), 404, "unknown-stream")
        self.assertProblem(request(self.url, "GET", "/rate?stream=../x"), 400, "bad-parameter")
        self.assertProblem(request(self.url, "GET", "/rate?streams=s"), 400, "unknown-parameter")
        self.assertEqual(request(self.url, "HEAD", "/rate").status, 405)


if __name__ == "__main__":
    harness.main()
