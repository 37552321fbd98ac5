"""ps_to_dynamodb with a fake table: each line of a stream is an item, whatever fails."""
# full: MILLRACE_ROUNDS=60
import json
import os
import random
import re

import harness
from dynamo_case import StreamCase
from fake_dynamo import THROTTLED
from harness import read_file, wait_until


class PsToDynamo(StreamCase):
    def stored(self, sink):
        return sink.stats()["offset_bytes"]

    def end(self):
        return int(self.pubsub.get("/streams").json()["streams"][0]["end"])

    def wait_stored(self, sink):
        sink.wait_listening()
        wait_until(lambda: self.stored(sink) == self.end(), lambda: "all lines to be stored: %s\n%s" % (self.stored(sink), sink.log))

    def test_lines_become_items(self):
        self.publish([{"id": "u%d" % i, "t": 5} for i in range(60)])
        sink = self.sink("--fields=t:at:TIME .:event:JSON")
        self.wait_stored(sink)
        self.assertEqual(self.fake.items[("u7",)], {"id": {"S": "u7"}, "at": {"N": "5"}, "event": {"S": '{"id":"u7","t":5}'}})
        self.assertEqual(len(self.fake.items), 60)
        sink.stop()
        self.assertEqual(int(json.loads(read_file(self.path("state")))["offset"]), self.end())
        self.publish([{"id": "more"}])
        before = len(self.fake.requests)
        self.wait_stored(self.sink())
        self.assertEqual(len(self.fake.requests), before + 1)  # it continued at the stored position

    def test_the_later_line_of_a_key_wins(self):
        rng = random.Random(4)
        self.fake.leave = lambda items: [i for i in items if rng.random() < 0.3]
        moods = [None] * 6 + [(503, "ServiceUnavailable"), (400, THROTTLED), "reset", "late"]
        self.fake.behave = lambda *_: "hang" if len(self.fake.requests) == 9 else rng.choice(moods)
        keys = [rng.randrange(60) for n in range(400)]
        for at in range(0, 400, 10):
            self.publish([{"id": "k%d" % keys[n], "n": n} for n in range(at, at + 10)])
        self.wait_stored(self.sink("--timeout=5s"))
        self.assertEqual({key: item["n"] for key, item in self.fake.plain().items()}, {"k%d" % keys[n]: str(n) for n in range(400)})
        for versions in self.fake.versions.values():
            numbers = [int(v["n"]["N"]) for v in versions]
            self.assertEqual(numbers, sorted(numbers), "an older line was stored after a newer one")

    def test_lines_of_one_key_wait_in_the_stream(self):
        """Lines that replace each other need no item in a batch, but memory."""
        self.fake.behave = lambda *_: (500, "InternalServerError")
        for n in range(20):
            self.publish([{"id": "one", "n": n, "x": "y" * (150 << 10)} for _ in range(10)])
        sink = self.sink("--parallel=2").wait_listening()
        wait_until(lambda: len(self.fake.requests) > 20, "some attempts")
        self.fake.behave = lambda *_: None
        self.wait_stored(sink)
        self.assertEqual(self.fake.plain()["one"]["n"], "19")
        peak = int(re.search(rb"VmHWM:\s*(\d+) kB", read_file("/proc/%d/status" % sink.pid)).group(1))
        if not os.environ.get("MILLRACE_SANITIZED"):
            self.assertLess(peak, 25 << 10)

    def test_lines_that_cannot_be_items_are_skipped(self):
        def behave(operation, body):
            entries = body["RequestItems"]["clicks"]
            return (400, "ValidationException") if any(e["PutRequest"]["Item"]["id"]["S"] == "bad" for e in entries) else None
        self.fake.behave = behave
        events = [{"id": "bad" if i == 17 else "u%d" % i} for i in range(50)]
        self.publish([b"no json", *events[:20], {"x": 1}, {"id": "huge", "x": "y" * (410 << 10)}, *events[20:]])
        sink = self.sink("--rejects", self.path("rejects"))
        self.wait_stored(sink)
        self.assertEqual(len(self.fake.items), 49)
        rejects = read_file(self.path("rejects")).splitlines()
        self.assertEqual(sorted(line[:12] for line in rejects), [b'no json', b'{"id": "bad"', b'{"id": "huge', b'{"x": 1}'])
        self.assertEqual(sink.stats()["lines_refused_total"], 4)
        for words in ("ValidationException", "id is missing", "400 KB", "not a JSON object"):
            self.assertIn(words, sink.log)

    def test_a_wrong_setting_skips_at_most_poison_limit_lines(self):
        self.publish([{"uid": i} for i in range(50)])
        sink = self.sink("--poison-limit=10").wait_listening()
        wait_until(lambda: "poison_limit" in sink.get("/health").text, lambda: sink.log)
        self.assertEqual(sink.stats()["lines_refused_total"], 10)
        sink.stop()
        self.settings[1] = "--key=uid:id:S"
        self.wait_stored(self.sink())
        self.assertEqual(set(self.fake.plain()), {str(i) for i in range(10, 50)})

    def test_refused_lines_are_sent_again_after_poison_limit(self):
        """So a table whose keys are corrected gets them without a restart."""
        self.fake.behave = lambda *_: (400, "ValidationException")
        self.publish([{"id": "u%d" % i} for i in range(20)])
        sink = self.sink("--poison-limit=3").wait_listening()
        wait_until(lambda: "poison_limit" in sink.get("/health").text, lambda: sink.log)
        self.fake.behave = lambda *_: None
        self.wait_stored(sink)
        self.assertEqual((len(self.fake.items), sink.stats()["lines_refused_total"]), (17, 3))

    def test_faults_that_an_operator_must_end(self):
        self.fake.behave = lambda *_: (400, "AccessDeniedException")
        self.publish([{"id": "a"}])
        sink = self.sink().wait_listening()
        wait_until(lambda: "AccessDenied" in sink.get("/health").text, lambda: sink.log)
        self.assertEqual(self.stored(sink), 0)
        self.fake.behave = lambda *_: None
        self.wait_stored(sink)
        sink.wait_ready()

    def test_killed_at_random_it_leaves_nothing_out(self):
        rng, sent = harness.seeded(), 0
        for _ in range(harness.rounds(4)):
            n = rng.randrange(1, 200)
            self.publish([{"id": "u%d" % (sent + i)} for i in range(n)])
            sent += n
            sink = self.sink()
            enough = len(self.fake.items) + rng.randrange(n + 1)
            wait_until(lambda: len(self.fake.items) >= enough, "some items")
            sink.kill9()
        self.wait_stored(self.sink())
        self.assertEqual(set(self.fake.plain()), {"u%d" % i for i in range(sent)})

    def test_newer_survives_a_repeated_stream(self):
        """An old state sends old lines again: they do not replace newer items."""
        self.publish([{"id": "k%d" % (n % 10), "v": n} for n in range(100)])
        sink = self.sink("--newer=v")
        self.wait_stored(sink)
        sink.stop()
        (self.fake.items, before) = ({k: dict(v) for k, v in self.fake.items.items()}, self.fake.plain())
        versions = {k: list(v) for k, v in self.fake.versions.items()}
        os.unlink(self.path("state"))
        sink = self.sink("--newer=v")
        self.wait_stored(sink)
        self.assertEqual((self.fake.plain(), self.fake.versions), (before, versions))
        self.assertEqual(sink.stats()["items_not_newer_total"], 100)

    def test_settings(self):
        run = self.run_program("ps_to_dynamodb", "--check-config", "--stream=s", *self.to_table())
        self.assertIn(b"state: required", run.stderr.replace(b"--", b""))
        run = self.run_program("ps_to_dynamodb", "--check-config", "--stream=s", "--state=x", "--rejects=x", *self.to_table())
        self.assertIn(b"is the state file", run.stderr)


if __name__ == "__main__":
    harness.main()
