"""queue_to_dynamodb, ps_to_dynamodb and `millrace dynamo` with dynalite, another implementation of DynamoDB's API. It checks requests as
DynamoDB does, but accepts false signatures."""
import json
import os
import shutil
import subprocess

import harness
import http_stub
from harness import ROOT, wait_until

PLACE = os.path.join(ROOT, "tests", "dynamodb")
HEADERS = {"Content-Type": "application/x-amz-json-1.0", "Authorization": "AWS4-HMAC-SHA256 Credential=A/20260101/eu-west-1/dynamodb/aws4_request, "
           "SignedHeaders=host;x-amz-date, Signature=00", "X-Amz-Date": "20260101T000000Z"}


class Dynalite(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("node") or not os.path.isdir(os.path.join(PLACE, "node_modules")):
            harness.not_installed(self, "no node, or no packages in tests/dynamodb: run scripts/setup --test")
        port = self.keep_port()
        self.url = "http://127.0.0.1:" + port
        with open(self.path("dynalite.log"), "wb") as log:
            server = subprocess.Popen(["node", os.path.join(PLACE, "serve.mjs"), port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stdin.close)
        self.assertEqual(server.stdout.readline(), b"listening\n", harness.read_file(self.path("dynalite.log")))
        self.settings = ["--endpoint=" + self.url, "--region=eu-west-1"]
        self.env = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET"}

    def call(self, operation, **body):
        reply = harness.request(self.url, "POST", "/", json.dumps(body).encode(), {**HEADERS, "X-Amz-Target": "DynamoDB_20120810." + operation})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def make_table(self, name, **keys):
        kinds = ("HASH", "RANGE")
        self.call("CreateTable", TableName=name, BillingMode="PAY_PER_REQUEST",
                  KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, kinds)],
                  AttributeDefinitions=[{"AttributeName": key, "AttributeType": t} for key, t in keys.items()])
        wait_until(lambda: self.call("DescribeTable", TableName=name)["Table"]["TableStatus"] == "ACTIVE", "the table")

    def dynamo(self, *args, expect=0):
        done = self.run_program("millrace", "dynamo", *self.settings, *args, env={**os.environ, **self.env})
        self.assertEqual(done.returncode, expect, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()] if expect == 0 else done.stderr

    def scan(self, table):
        return self.call("Scan", TableName=table)["Items"]

    def test_a_queue(self):
        self.make_table("clicks", id="S", at="N")
        queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        events = [{"id": "u%d" % (i % 7), "t": 1000 + i, "x": {"a": [1.5, "\u00fc", None, True], "": None} if i == 3 else {"a": -1e-5, "b": ""}} for i in range(100)]
        events.append({"id": "hostile", "t": 1, "#n:\"\\ .[0]": 1, "x" * 300: "y", "S": {"S": "S"}})
        self.assertEqual(queue.post("/mput", b"\n".join(json.dumps(e).encode() for e in events)).status, 200)
        self.start("queue_to_dynamodb", "--queue-url=" + queue.url, *self.settings, "--table=clicks", "--key=id", "--sort=t:at:N", env=self.env)
        wait_until(lambda: queue.stats()["queues"]["default"]["depth"] == 0, lambda: queue.stats()["queues"])
        buried = queue.get("/dead").json()["buried"]
        self.assertEqual([b["reason"] for b in buried], ["a member has an empty name, which DynamoDB does not store"])
        self.assertEqual(len(self.scan("clicks")), 100)
        item, = self.dynamo("get", "clicks", "id=u2", "at=1002")
        self.assertEqual(item, {"id": "u2", "at": 1002, "t": 1002, "x": {"a": -1e-5, "b": ""}})
        self.assertEqual(self.dynamo("get", "clicks", "id=hostile", "at=1"), [{**events[-1], "at": 1}])
        typed, = self.dynamo("get", "clicks", "id=u2", "at=1002", "--typed")
        self.assertEqual(typed["x"], {"M": {"a": {"N": "-0.00001"}, "b": {"S": ""}}})
        self.assertEqual([i["at"] for i in self.dynamo("query", "clicks", "id=u2")], list(range(1002, 1100, 7)))
        self.assertEqual([i["at"] for i in self.dynamo("query", "clicks", "id=u2", "--limit=3")], [1002, 1009, 1016])
        self.assertEqual(self.dynamo("query", "clicks", "id=none"), [])
        self.assertIn(b"no such item", self.dynamo("get", "clicks", "id=u2", "at=5", expect=66))
        self.assertIn(b"its keys: id, at", self.dynamo("get", "clicks", "uid=u2", expect=64))
        self.assertIn(b"ResourceNotFoundException", self.dynamo("get", "other", "id=u2", expect=75))
        self.assertIn(b"KEY=VALUE", self.dynamo("get", "clicks", "id", expect=64))

    def test_a_stream_with_newer(self):
        self.make_table("users", uid="S")
        pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s")
        lines = [{"user": {"id": "u%d" % (n % 5)}, "v": (n * 37) % 200} for n in range(200)]
        self.assertEqual(pubsub.post("/pub?stream=s", b"".join(json.dumps(e).encode() + b"\n" for e in lines)).status, 200)
        sink = self.start("ps_to_dynamodb", "--pubsub_url", pubsub.url, "--stream=s", "--state", self.path("state"), *self.settings, "--table=users",
                          "--key=user.id:uid", "--newer=v", "--fields=.:event:JSON", env=self.env)
        wait_until(lambda: sink.stats()["lines_delivered_total"] == 200, lambda: sink.stats())
        newest = {}
        for e in lines:
            newest[e["user"]["id"]] = max(newest.get(e["user"]["id"], -1), e["v"])
        self.assertEqual({i["uid"]["S"]: int(i["v"]["N"]) for i in self.scan("users")}, newest)
        stats = sink.stats()
        self.assertEqual(stats["items_stored_total"], 200)
        self.assertGreater(stats["items_not_newer_total"], 0)

    def test_a_key_of_another_type(self):
        """The table refuses each item; the queue is not emptied."""
        self.make_table("numbers", id="N")
        queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        self.assertEqual(queue.post("/mput", b"\n".join(b'{"id":"u%d"}' % i for i in range(30))).status, 200)
        sink = self.daemon("queue_to_dynamodb", "--queue-url=" + queue.url, *self.settings, "--table=numbers", "--key=id", "--poison-limit=5",
                           env=self.env).wait_listening()
        wait_until(lambda: "refuses every message" in sink.get("/health").text, lambda: sink.log)
        self.assertEqual(len(queue.get("/dead").json()["buried"]), 5)
        self.assertIn("ValidationException", sink.log)

    def test_keys_of_an_instance(self):
        """The metadata service is asked only by IMDSv2, and only if this is set."""
        self.make_table("clicks", id="S")
        asked = []

        class Metadata(http_stub.Handler):
            def do_PUT(self):
                asked.append(self.path)
                self.reply(200 if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else 400, b"TOKEN")

            def do_GET(self):
                asked.append(self.path)
                if self.headers.get("X-aws-ec2-metadata-token") != "TOKEN":
                    self.reply(401)
                elif self.path.endswith("/security-credentials/"):
                    self.reply(200, b"my-role")
                else:
                    self.reply(200, json.dumps({"AccessKeyId": "FROMROLE", "SecretAccessKey": "S", "Token": "T", "Expiration": "2999-01-01T00:00:00Z"}).encode())

        self.env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": http_stub.serve(self, Metadata).url + "/"}
        self.assertIn(b"AWS_ACCESS_KEY_ID", self.dynamo("query", "clicks", "id=a", expect=75))
        self.assertEqual(asked, [])
        self.assertEqual(self.dynamo("query", "clicks", "id=a", "--aws-instance-keys"), [])
        self.assertEqual(asked, ["/latest/api/token", "/latest/meta-data/iam/security-credentials/", "/latest/meta-data/iam/security-credentials/my-role"])
        queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        self.assertEqual(queue.post("/put", b'{"id":"a"}').status, 200)
        self.start("queue_to_dynamodb", "--queue-url=" + queue.url, *self.settings, "--aws-instance-keys", "--table=clicks", "--key=id", env=self.env)
        wait_until(lambda: queue.stats()["queues"]["default"]["depth"] == 0, "the message to be stored")
        self.assertEqual(len(self.scan("clicks")), 1)


if __name__ == "__main__":
    harness.main()
