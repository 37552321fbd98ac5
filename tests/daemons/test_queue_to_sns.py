"""queue_to_http with sns_topic: Publish requests, whose signature the test computes in its own way. unit_aws_signature has AWS's numbers."""
import os
import re
import urllib.parse

import harness
from aws_keys import signature
from harness import wait_until
from sink import Sink
from to_http_case import ToHttp

ID, SECRET, TOPIC = "AKIDEXAMPLE", "wJalr/XUtn+FEMI", "arn:aws:sns:eu-west-1:123456789012:alerts"


class Sns(ToHttp):
    def keys(self, secret=SECRET, more=""):
        path = self.write("keys", "[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n%s" % (ID, secret, more))
        os.chmod(path, 0o600)
        return path

    def check(self, sent, secret=SECRET):
        """Checks the signature of a request, and returns its form and its signed headers."""
        headers = {name.lower(): value for name, value in sent[5].items()}
        names, expected = signature(secret, "eu-west-1", headers, sent[4])
        self.assertEqual(re.search("Signature=(.*)", headers["authorization"]).group(1), expected)
        return dict(urllib.parse.parse_qsl(sent[4].decode(), keep_blank_values=True)), names

    def test_messages_are_published_with_a_signature(self):
        sink = Sink(self)
        self.sender(sink.url, "--sns-topic=" + TOPIC, "--aws-credentials-file=" + self.keys())
        message = "{\"a\": \"1+1=2 & more\"} \u00fc".encode()
        self.put([message])
        form, names = self.check(wait_until(lambda: sink.requests, "a request")[0])
        self.assertEqual(form, {"Action": "Publish", "Version": "2010-03-31", "TopicArn": TOPIC, "Message": message.decode()})
        self.assertEqual(names, "content-type;host;x-amz-date")
        self.wait_empty()

    def test_fifo_topics_and_changed_keys(self):
        """A repeated message has the same MessageDeduplicationId."""
        sink = Sink(self)
        answers = [500, 403, 200]
        sink.behave = lambda body: answers.pop(0) if len(answers) > 1 else answers[0]
        self.sender(sink.url, "--sns-topic=%s.fifo" % TOPIC, "--aws-credentials-file=" + self.keys(), "--backoff-max=100ms")
        self.put([b"one"])
        self.wait_empty()
        first, second, third = (self.check(sent)[0] for sent in sink.requests)
        self.assertEqual((first, first), (second, third))
        self.assertEqual((first["MessageGroupId"], len(first["MessageDeduplicationId"]) <= 128), ("millrace", True))
        self.keys("another", "aws_session_token = token==\n")
        self.put([b"two"])
        self.wait_empty()
        form, names = self.check(sink.requests[-1], "another")
        self.assertNotEqual(form["MessageDeduplicationId"], first["MessageDeduplicationId"])
        self.assertEqual(names, "content-type;host;x-amz-date;x-amz-security-token")

    def test_without_keys_messages_wait(self):
        sink = Sink(self)
        path = self.keys()
        os.chmod(path, 0o644)
        reader = self.daemon("queue_to_http", "--queue-url=" + self.queue.url, "--destination=" + sink.url, "--sns-topic=" + TOPIC,
                             "--aws-credentials-file=" + path, "--backoff-max=100ms")
        self.put([b"one"])
        wait_until(lambda: "keys" in reader.log, "the reason in the log")
        os.chmod(path, 0o600)
        self.wait_empty()
        self.assertEqual(len(sink.requests), 1)

    def test_settings(self):
        keys = "--aws-credentials-file=" + self.keys()
        for args, text in ((["--sns-topic=alerts", keys], b"is not arn:aws:sns:REGION:ACCOUNT:NAME"), (["--sns-topic=" + TOPIC + ":x", keys], b"is not arn"),
                           (["--sns-topic=" + TOPIC], b"required with sns_topic"), (["--sns-topic=" + TOPIC, keys, "--batch=2"], b"requires batch 1"),
                           (["--sns-topic=" + TOPIC, keys, "--destination-token-file=x"], b"excludes %s"), ([keys], b"needs --sns-topic"),
                           (["--sns-topic=" + TOPIC, keys, "--destination=http://127.0.0.1:9/a%20b"], b"neither a path nor a query"),
                           (["--sns-topic=" + TOPIC, keys, "--destination=http://127.0.0.1:9/?a=b"], b"neither a path nor a query")):
            run = self.run_program("queue_to_http", "--check-config", "--destination=http://127.0.0.1:9", *args)
            self.assertIn(run.returncode, (64, 78), (args, run.stderr))
            self.assertIn(text, run.stderr)


if __name__ == "__main__":
    harness.main()
