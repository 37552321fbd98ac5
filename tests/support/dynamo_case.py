"""What the tests of the sinks to DynamoDB share: a fake table, keys, and the two programs."""
import json
import os

from fake_dynamo import FakeDynamo
from harness import MillraceTest, wait_until


class DynamoCase(MillraceTest):
    keys = ("id",)

    def setUp(self):
        super().setUp()
        self.fake = FakeDynamo(self, keys=self.keys)
        path = self.write("keys", "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = SECRET\n")
        os.chmod(path, 0o600)
        self.settings = ["--table=clicks", "--key=id", "--region=eu-west-1", "--aws-credentials-file=" + path]

    def to_table(self, *args):
        return ["--endpoint=" + self.fake.url, "--backoff-min=5ms", "--backoff-max=50ms", *self.settings, *args]


class QueueCase(DynamoCase):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")

    def sink(self, *args, **kw):
        return self.daemon("queue_to_dynamodb", "--queue-url=" + self.queue.url, *self.to_table(*args), **kw)

    def put(self, events):
        lines = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
        self.assertEqual(self.queue.post("/mput", b"\n".join(lines)).status, 200)

    def numbers(self):
        return self.queue.stats()["queues"]["default"]

    def wait_empty(self):
        wait_until(lambda: self.numbers()["depth"] == 0, lambda: "all to be acknowledged: %s" % self.numbers())

    def dead(self):
        return self.queue.get("/dead").json()["buried"]


class StreamCase(DynamoCase):
    def setUp(self):
        super().setUp()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s")

    def sink(self, *args, **kw):
        return self.daemon("ps_to_dynamodb", "--pubsub_url", self.pubsub.url, "--stream=s", "--state", self.path("state"), "--commit_every=20ms",
                           *self.to_table(*args), **kw)

    def publish(self, events):
        lines = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
        self.assertEqual(self.pubsub.post("/pub?stream=s", b"".join(line + b"\n" for line in lines)).status, 200)
