"""queue_to_pubsub between a real queue and a real pubsub: each message exactly once and in order, whatever is killed."""
# full: MILLRACE_ROUNDS=200
import threading
import time
import unittest

import harness
from harness import MillraceTest, UNREACHABLE, query, request, wait_until


class QueueToPubsub(MillraceTest):
    """Unix sockets, so that a daemon that was killed comes back under the same address."""

    def setUp(self):
        super().setUp()
        self.queue_url = "unix:" + self.path("q.sock")
        self.pubsub_url = "unix:" + self.path("p.sock")

    def start_queue(self, data="q"):
        return self.start("simplequeue", "--data-dir=" + self.path(data), "--sync=never", listen=self.queue_url)

    def start_pubsub(self, *args):
        return self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", *args, listen=self.pubsub_url)

    def relay(self, *args):
        return self.daemon("queue_to_pubsub", "--queue-url=" + self.queue_url, "--pubsub-url=" + self.pubsub_url,
                           "--backoff-max=200ms", *args)

    def start_relay(self, *args):
        return self.relay(*args).wait_ready()

    def restart(self, kind):
        return {"simplequeue": self.start_queue, "pubsub": self.start_pubsub,
                "queue_to_pubsub": self.relay}[kind]()

    def stream(self):
        reply = request(self.pubsub_url, "GET", "/sub?stream=clicks&from=earliest&follow=0")
        return reply.body if reply.status == 200 else b""

    def wait_stream(self, expected):
        wait_until(lambda: len(self.stream()) >= len(expected),
                   lambda: "%d bytes in the stream, there are %d" % (len(expected), len(self.stream())))
        self.assertEqual(self.stream(), expected)

    def queue_numbers(self):
        return request(self.queue_url, "GET", "/stats?format=json").json()["queues"]["default"]


class Flow(QueueToPubsub):
    def test_what_is_put_before_and_after_the_start(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"one\ntwo")
        relay = self.start_relay()
        self.wait_stream(b"one\ntwo\n")
        queue.post("/put", b"three \x00 \xff")
        self.wait_stream(b"one\ntwo\nthree \x00 \xff\n")
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")
        self.assertEqual(relay.get("/health").status, 200)
        relay.stop()

    def test_ready_before_the_queue_was_ever_put_to(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        self.start_relay()
        queue.post("/put", b"first")
        self.wait_stream(b"first\n")

    def test_health_names_what_is_missing(self):
        relay = self.relay().wait_listening()
        wait_until(lambda: b"queue: " in relay.get("/health").body, "the queue to be missed")
        queue = self.start_queue()
        queue.post("/put", b"x")
        wait_until(lambda: b"destination: " in relay.get("/health").body, "pubsub to be missed")
        self.start_pubsub()
        wait_until(lambda: relay.get("/health").status == 200, "the relay to be ready")
        self.wait_stream(b"x\n")

    def test_stop_leaves_nothing_leased(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        relay = self.start_relay()
        queue.post("/mput", b"\n".join(b"%d" % i for i in range(1000)))
        relay.stop()
        self.assertEqual(self.queue_numbers()["leased"], 0)
        self.start_relay()
        self.wait_stream(b"".join(b"%d\n" % i for i in range(1000)))

    def test_unknown_setting_and_bad_name(self):
        for args in (["--nonsense=1"], ["--stream=a/b"], ["--pubsub-url=http://"], ["--backoff-min=9s"]):
            run = self.run_program("queue_to_pubsub", *args)
            self.assertIn(run.returncode, (64, 78), args)
            self.assertTrue(run.stderr, args)


class Poison(QueueToPubsub):
    def test_found_buried_and_the_rest_goes_on(self):
        queue, _ = self.start_queue(), self.start_pubsub("--max-line=100")
        good = [b"line %d" % i for i in range(200)]
        for i, message in enumerate(good):
            if i == 37:
                queue.post("/put", b"x" * 101)
            if i == 38:
                queue.post("/put", b"two\nlines")
            if i == 120:
                queue.post("/put", b"\r")
            queue.post("/put", message)
        relay = self.start_relay()
        self.wait_stream(b"".join(m + b"\n" for m in good))
        wait_until(lambda: self.queue_numbers()["buried"] == 3, lambda: "three to be buried: %s" % self.queue_numbers())
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all others to be acknowledged")
        self.assertLess(relay.stats()["publishes_refused"], 30, "halving, not trying one by one")


class OldCopy(QueueToPubsub):
    def test_is_noticed_and_nothing_is_touched(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"a\nb")
        identity = request(self.queue_url, "POST", "/release?reader=test").json()["queue_id"]
        published = request(self.pubsub_url, "POST", "/pub?" + query(
            stream="clicks", producer=identity, mark=0, next=50), b"from the other copy\n")
        self.assertEqual(published.status, 200)
        relay = self.relay()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
        self.assertIn("old copy", relay.log)
        self.assertEqual(self.queue_numbers()["ready"], 2)
        self.assertEqual(self.stream(), b"from the other copy\n")


class Chaos(QueueToPubsub):
    """Queue, relay and pubsub killed at random while numbered events flow."""

    def put_until(self, enough):
        """Puts with marks, each repeated until it is acknowledged: the queue holds every event once."""
        while not enough.is_set():
            i = self.puts
            body = b"\n".join(b"event %06d" % (i * 10 + k) for k in range(10))
            target = "/mput?" + query(producer="test", mark=i, next=i + 1)
            while True:
                try:
                    reply = request(self.queue_url, "POST", target, body)
                    if reply.status == 200:
                        break
                except UNREACHABLE:
                    pass
                time.sleep(0.002)  # between tries; nothing depends on its length
            self.puts += 1

    def test_each_exactly_once_and_in_order(self):
        random = harness.seeded()
        running = {"simplequeue": self.start_queue(), "pubsub": self.start_pubsub()}
        running["queue_to_pubsub"] = self.start_relay()
        self.puts, enough = 0, threading.Event()
        putter = threading.Thread(target=self.put_until, args=(enough,))
        putter.start()
        for _ in range(harness.rounds(12)):
            kind = random.choice(sorted(running))
            time.sleep(random.uniform(0, 0.1))  # where the blow falls is the random part
            running[kind].kill9()
            running[kind] = self.restart(kind)
        enough.set()
        putter.join()
        self.wait_stream(b"".join(b"event %06d\n" % i for i in range(self.puts * 10)))
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")


if __name__ == "__main__":
    unittest.main()
