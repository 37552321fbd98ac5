"""What the tests of queue_to_pubsub share: a queue, a stream and relays on Unix sockets, so that a daemon that was
killed comes back under the same address."""
from harness import MillraceTest, query, request, wait_until


class RelayTest(MillraceTest):
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

    def stream(self):
        reply = request(self.pubsub_url, "GET", "/sub?stream=clicks&from=earliest&follow=0")
        return reply.body if reply.status == 200 else b""

    def wait_stream(self, expected):
        wait_until(lambda: len(self.stream()) >= len(expected),
                   lambda: "%d bytes in the stream, there are %d" % (len(expected), len(self.stream())))
        self.assertEqual(self.stream(), expected)

    def ask_queue(self, target, method="POST", body=None):
        return request(self.queue_url, method, target, body)

    def queue_numbers(self):
        return self.ask_queue("/stats?format=json", "GET").json()["queues"]["default"]

    def queue_identity(self):
        """What a relay learns when it begins to follow: "queue_id", "opening". No relay may follow the queue."""
        reply = self.ask_queue("/follow?reader=queue_to_pubsub")
        self.assertEqual(self.ask_queue("/unfollow").status, 200)
        return reply.json()

    def mark(self, producer):
        reply = request(self.pubsub_url, "GET", "/producer?" + query(stream="clicks", producer=producer))
        return int(reply.json()["mark"]) if reply.status == 200 else 0

    def publish(self, producer, mark, next_, body=b""):
        return request(self.pubsub_url, "POST", "/pub?" + query(
            stream="clicks", producer=producer, mark=mark, next=next_), body)
