"""What the tests of queue_to_http share: a queue, and the reader."""
from harness import MillraceTest, wait_until


class ToHttp(MillraceTest):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")

    def sender(self, destination, *args):
        return self.start("queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + destination, *args)

    def put(self, messages):
        self.assertEqual(self.queue.post("/mput", b"\n".join(messages)).status, 200)

    def numbers(self):
        return self.queue.stats()["queues"]["default"]

    def wait_empty(self):
        wait_until(lambda: self.numbers()["depth"] == 0, lambda: "all to be acknowledged: %s" % self.numbers())

    def dead(self):
        return self.queue.get("/dead").json()["buried"]
