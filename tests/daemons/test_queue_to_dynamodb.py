"""queue_to_dynamodb with a fake table: each acknowledged message is an item, whatever fails."""
# full: MILLRACE_ROUNDS=60
import decimal
import random
import re
import time

import harness
from aws_keys import signature
from dynamo_case import QueueCase
from fake_dynamo import THROTTLED, Bucket
from harness import wait_until


class QueueToDynamo(QueueCase):
    def test_messages_become_items(self):
        self.put([{"id": "u%d" % i, "n": i, "deep": {"a": [True, None, "x"]}} for i in range(60)])
        self.sink()
        self.wait_empty()
        self.assertEqual(self.fake.items[("u7",)],
                         {"id": {"S": "u7"}, "n": {"N": "7"}, "deep": {"M": {"a": {"L": [{"BOOL": True}, {"NULL": True}, {"S": "x"}]}}}})
        self.assertEqual(len(self.fake.items), 60)
        self.assertLessEqual(len(self.fake.requests), 8)  # batches of 25

    def test_requests_are_signed(self):
        for args, host in (([], self.fake.url[7:]), (["--endpoint-host=dynamodb.eu-west-1.amazonaws.com"], "dynamodb.eu-west-1.amazonaws.com")):
            self.put([{"id": "\u00fc\""}])
            sink = self.sink(*args)
            self.wait_empty()
            self.assertEqual(self.fake.requests[-1][3]["Host"], host)
            self.check_signature(*self.fake.requests[-1])
            sink.stop()

    def check_signature(self, operation, body, _, headers):
        headers = {name.lower(): value for name, value in headers.items()}
        self.assertEqual(operation, "DynamoDB_20120810.BatchWriteItem")
        names, expected = signature("SECRET", "eu-west-1", headers, body, service="dynamodb")
        self.assertEqual(names, "content-type;host;x-amz-date;x-amz-target")
        self.assertEqual(re.search("Signature=(.*)", headers["authorization"]).group(1), expected)

    def test_the_later_event_of_a_key_wins(self):
        """In the end, also if an earlier one is left unprocessed, throttled or cut off, and repeated after the later one."""
        rng = random.Random(3)
        self.fake.leave = lambda items: [i for i in items if rng.random() < 0.3]
        self.fake.behave = lambda *_: rng.choice([None] * 6 + [(500, "InternalServerError"), (400, THROTTLED), "reset", "late"])
        self.put([{"id": "k%d" % rng.randrange(20), "n": n} for n in range(1000)])
        last = {}
        rng2 = random.Random(3)
        for n in range(1000):
            last["k%d" % rng2.randrange(20)] = str(n)
        self.sink()
        self.wait_empty()
        self.assertEqual({key: item["n"] for key, item in self.fake.plain().items()}, last)

    def test_only_unprocessed_items_are_sent_again(self):
        first = []

        def leave(items):
            first.append(len(items))
            return items[10:] if len(first) == 1 else []
        self.fake.leave = leave
        self.put([{"id": "u%d" % i} for i in range(25)])
        self.sink()
        self.wait_empty()
        self.assertEqual(first, [25, 15])
        self.assertTrue(all(len(v) == 1 for v in self.fake.versions.values()))

    def test_messages_that_cannot_be_items_are_buried(self):
        huge = {"id": "huge", "x": "y" * (410 << 10)}
        self.put([{"id": "a"}, {"x": 1}, b"no json", huge, {"id": ""}, {"id": "far", "n": 1e200}, {"id": "b", "": 1}, {"id": "c"},
                  {"id": "large", "x": "y" * (390 << 10)}])
        self.sink()
        self.wait_empty()
        self.assertEqual(set(self.fake.plain()), {"a", "c", "large"})
        reasons = " ".join(sorted(b["reason"] for b in self.dead()))
        for words in ("id is missing", "not a JSON object", "400 KB", "id is empty", "range", "empty name"):
            self.assertIn(words, reasons)

    def test_a_refused_item_does_not_stop_the_others(self):
        def behave(operation, body):
            entries = body["RequestItems"]["clicks"]
            return (400, "ValidationException") if any(e["PutRequest"]["Item"]["id"]["S"] == "bad" for e in entries) else None
        self.fake.behave = behave
        self.put([{"id": "bad" if i == 17 else "u%d" % i} for i in range(50)])
        self.sink()
        self.wait_empty()
        self.assertEqual(len(self.fake.items), 49)
        buried, = self.dead()
        self.assertIn("ValidationException", buried["reason"])

    def test_faults_that_an_operator_must_end(self):
        for name in ("ResourceNotFoundException", "AccessDeniedException", "ExpiredTokenException", "RequestTimeTooSkewed"):
            self.fake.behave = lambda *_: (400, name)
            self.put([{"id": name}])
            sink = self.sink()
            wait_until(lambda: name in sink.log, lambda: sink.log)
            self.assertIn(name, sink.wait_listening().get("/health").text)
            self.assertEqual(self.numbers()["depth"], 1)
            self.fake.behave = lambda *_: None
            self.wait_empty()
            sink.wait_ready()
            sink.stop()
        self.assertEqual(self.dead(), [])

    def test_a_server_that_is_not_dynamodb(self):
        self.fake.answer = lambda *_: (200, [])
        self.put([{"id": "a"}])
        sink = self.sink()
        wait_until(lambda: "not in the form of DynamoDB" in sink.log, lambda: sink.log)
        self.assertEqual(self.numbers()["depth"], 1)

    def test_answers_that_do_not_account_for_the_items(self):
        """An item counts as stored only if the answer lists what is left unprocessed, and only items of the request."""
        put = [{"PutRequest": {"Item": {"id": {"S": name}}}} for name in ("a", "b", "c")]
        honest = self.fake.answer
        self.put([{"id": "a"}, {"id": "b"}])
        sink = self.sink().wait_listening()
        wait_until(lambda: self.numbers()["depth"] == 0, "the first")
        for answer in ({}, {"UnprocessedItems": None}, {"UnprocessedItems": {"clicks": put}}, {"UnprocessedItems": {"other": put[:1]}},
                       {"UnprocessedItems": {"clicks": [{"DeleteRequest": {"Key": {"id": {"S": "a"}}}}]}}):
            self.fake.answer = lambda *_: (200, answer)
            self.put([{"id": "a"}, {"id": "b"}])
            seen = len(self.fake.requests)
            wait_until(lambda: len(self.fake.requests) > seen + 1, "two tries")
            self.assertEqual(self.numbers()["depth"], 2, answer)
            wait_until(lambda: "UnprocessedItems" in sink.get("/health").text, lambda: sink.log)
            self.fake.answer = honest
            self.wait_empty()
        self.assertEqual(self.dead(), [])

    def test_numbers_in_another_form(self):
        """DynamoDB may return the number of a key in another form than it got."""
        seen = []

        def leave(items):
            seen.append([i["id"]["N"] for i in items])
            return items[1:]
        self.fake.leave = leave
        self.fake.echo = lambda item: {"id": {"N": format(decimal.Decimal(item["id"]["N"]), "f")}}
        self.put([{"id": n} for n in (1e-9, 2.5e-7, -3e-8)])
        self.sink()
        self.wait_empty()
        self.assertEqual(sorted(map(len, seen)), [1, 2, 3], seen)
        self.put([b'{"id":1e19}', b'{"id":10000000000000000000}', b'{"id":1.5e20}'])
        self.wait_empty()
        self.assertIn("64 bits", self.dead()[0]["reason"])
        self.assertIn(("10000000000000000000",), self.fake.items)

    def test_items_that_are_too_large_together(self):
        """`fields` may store an event several times, so 25 small messages may be too large for a request."""
        self.put([{"id": "u%d" % i, "x": '"' * 30000} for i in range(25)])
        self.sink("--fields=" + " ".join(".:c%d:JSON" % i for i in range(6)))
        self.wait_empty()
        self.assertEqual((len(self.fake.items), self.dead()), (25, []))

    def test_keys_from_the_environment(self):
        self.settings = [s for s in self.settings if "credentials" not in s]
        self.put([{"id": "a"}])
        sink = self.sink(env={"AWS_ACCESS_KEY_ID": None})
        wait_until(lambda: "AWS_ACCESS_KEY_ID" in sink.log, lambda: sink.log)
        sink.stop(expect=None)
        self.sink(env={"AWS_ACCESS_KEY_ID": "FROMENV", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "token"})
        self.wait_empty()
        headers = self.fake.requests[-1][3]
        self.assertIn("Credential=FROMENV/", headers["Authorization"])
        self.assertEqual(headers["X-Amz-Security-Token"], "token")

    def test_newer(self):
        """Events of a key in any order: the newest stays, and each event has an answer."""
        rng = random.Random(5)
        self.fake.behave = lambda *_: rng.choice([None] * 8 + [(500, "InternalServerError"), "late"])
        events = [{"id": "k%d" % (n % 10), "v": n} for n in range(300)]
        rng.shuffle(events)
        self.put(events)
        sink = self.sink("--newer=v").wait_listening()
        self.wait_empty()
        self.assertEqual({key: item["v"] for key, item in self.fake.plain().items()}, {"k%d" % i: str(290 + i) for i in range(10)})
        for versions in self.fake.versions.values():
            numbers = [int(v["v"]["N"]) for v in versions]
            self.assertEqual(numbers, sorted(set(numbers)))
        stats = sink.stats()
        self.assertGreater(stats["items_not_newer_total"], 0)
        self.assertGreaterEqual(stats["items_stored_total"], 300)

    def test_killed_at_random_it_leaves_nothing_out(self):
        rng, sent = harness.seeded(), 0
        for _ in range(harness.rounds(4)):
            n = rng.randrange(1, 200)
            self.put([{"id": "u%d" % (sent + i)} for i in range(n)])
            sent += n
            sink = self.sink("--lease=1s")
            enough = len(self.fake.items) + rng.randrange(n + 1)
            wait_until(lambda: len(self.fake.items) >= enough, "some items")
            sink.kill9()
        self.sink()
        self.wait_empty()
        self.assertEqual(set(self.fake.plain()), {"u%d" % i for i in range(sent)})

    def test_a_table_that_throttles(self):
        """The sink uses nine tenths of what a table allows that would throttle half of the requests of an eager client."""
        self.fake.bucket = bucket = Bucket(rate=400, most=800)
        n = 2000
        self.put([{"id": "u%d" % i} for i in range(n)])
        bucket.at = time.monotonic()
        self.sink("--backoff-max=200ms")
        self.wait_empty()
        self.assertEqual(len(self.fake.items), n)
        self.assertGreaterEqual(self.fake.accepted / (self.fake.accepted + bucket.lost), 0.9)
        self.assertLess(self.fake.throttled, self.fake.accepted)

    def test_settings(self):
        good = self.to_table()
        for args, text in ((["--endpoint=https://x"], b"TLS forwarder"), (["--endpoint="], b"required"), (["--table=a"], b"3 to 255"), (["--key="], b"required"),
                           (["--key=a..b"], b"is not FIELD"), (["--fields=a:b:X"], b"the type is not"), (["--fields=a:x b:x"], b"two fields"),
                           (["--batch=26"], b"at most 25"), (["--region=a b"], b"region"), (["--shared"], b"requires newer")):
            run = self.run_program("queue_to_dynamodb", "--check-config", *good, *args)
            self.assertIn(run.returncode, (64, 78), (args, run.stderr))
            self.assertIn(text, run.stderr)
        run = self.run_program("queue_to_dynamodb", "--check-config", *good, "--fields=user.id:uid:S .:event:JSON")
        self.assertEqual(run.returncode, 0, run.stderr)


if __name__ == "__main__":
    harness.main()
