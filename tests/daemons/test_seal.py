"""Sealing and clearing slices: every answer of /seal, /clear and /slices, reads after a slice, and what a start refuses."""
import json
import os

import harness
from harness import wait_until

COUNTERS = """
[input]
time = t
[total u]
key = l
label = user
"""
HOUR = 1332637200


class Seal(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        self.config = self.write("pipeline.conf", harness.pipeline_config(self.data, COUNTERS))
        self.pipeline = harness.Pipeline(self, self.config, self.data).wait_ready()
        self.n = 0

    def put(self, n):
        lines = b"\n".join(json.dumps({"t": HOUR, "l": "bitly"}).encode() for _ in range(n))
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", lines).status, 200)
        self.n += n
        wait_until(lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events_total"] == self.n,
                   "all to be counted")

    def ask(self, method, target, status, code=None):
        reply = self.pipeline.ask("aggregator", method, target)
        self.assertEqual(reply.status, status, (target, reply))
        if code:
            self.assertEqual(reply.json()["code"], code, target)
        return reply

    def count(self, after):
        line = self.ask("GET", "/get?key=u|bitly&after=%d" % after, 200).text
        return int(line.rsplit(":", 1)[1])

    def compact(self):
        done = self.run_program("millrace", "compact", "--config", self.config)
        self.assertEqual(done.returncode, 0, done)

    def test_seal_and_clear(self):
        self.put(3)
        first = self.ask("POST", "/seal?slice=1", 200).json()
        self.assertEqual((first["sealed"], first["open"]), (1, 2))
        end = self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"][0]["end"]
        self.assertEqual(first["streams"]["clicks"]["end"], end)
        self.put(2)
        self.assertEqual(self.ask("POST", "/seal?slice=1", 200).json(), first, "the same answer again")
        self.assertEqual((self.count(0), self.count(1)), (5, 2))
        self.ask("GET", "/get?key=u|bitly&after=2", 409, "slice-ahead")
        slices = self.ask("GET", "/slices", 200).json()
        self.assertEqual((slices["open"], [s["slice"] for s in slices["slices"]]), (2, [1]))
        self.ask("POST", "/seal?slice=3", 409, "slice-ahead")
        self.ask("POST", "/seal?slice=0", 400, "bad-parameter")
        self.ask("POST", "/seal", 400, "missing-parameter")
        self.ask("GET", "/seal?slice=2", 405, "method-not-allowed")
        self.ask("POST", "/clear?through=2", 409, "slice-open")
        self.ask("POST", "/clear?through=1", 409, "not-archived")
        self.assertEqual(self.count(0), 5, "nothing was cleared")
        self.compact()
        self.ask("GET", "/get?key=u|bitly&after=0", 410, "slice-cleared")
        self.ask("POST", "/seal?slice=1", 410, "slice-cleared")
        self.ask("POST", "/clear?through=1", 200)
        self.assertEqual(self.ask("GET", "/slices", 200).json(), {"open": 3, "slices": []})
        self.pipeline.interrupt()

    def test_sealed_slices_survive_kills(self):
        self.put(3)
        for slice in (1, 2, 3):
            self.ask("POST", "/seal?slice=%d" % slice, 200)
            self.pipeline.kill9_daemon("aggregator")

            def back():
                try:
                    return self.count(0) == self.n
                except harness.UNREACHABLE + (AssertionError,):
                    return False
            wait_until(back, "the aggregator to answer again")
            self.put(1)
        self.assertEqual([self.count(n) for n in range(4)], [6, 3, 2, 1])
        self.pipeline.interrupt()

    def refused(self, *words):
        done = self.run_program("aggregator", "--config", self.config, "--data-dir", os.path.join(self.data, "aggregator"),
                                "--archive", os.path.join(self.data, "archive"))
        self.assertEqual(done.returncode, 78, done)
        for word in words:
            self.assertIn(word, done.stderr.decode())

    def test_what_a_start_refuses(self):
        self.put(1)
        slices = os.path.join(self.data, "aggregator", "slices")
        for slice in (1, 2):
            self.ask("POST", "/seal?slice=%d" % slice, 200)
        self.pipeline.interrupt()
        copy = harness.read_file(os.path.join(slices, "0000000001.db"))
        os.rename(os.path.join(slices, "0000000002.db"), self.path("aside"))
        self.refused("slice 2 is missing")
        os.rename(self.path("aside"), os.path.join(slices, "0000000002.db"))
        os.unlink(os.path.join(slices, "0000000001.db"))
        self.refused("oldest slice", "is 2")
        self.write("old", copy)
        os.rename(self.path("old"), os.path.join(slices, "0000000001.db"))
        self.pipeline = harness.Pipeline(self, self.config, self.data).wait_ready()
        self.compact()
        self.pipeline.interrupt()
        for name in os.listdir(slices):
            os.unlink(os.path.join(slices, name))
        self.write("old", copy)
        os.rename(self.path("old"), os.path.join(slices, "0000000001.db"))
        self.refused("is open, but the archive")


if __name__ == "__main__":
    harness.main()
