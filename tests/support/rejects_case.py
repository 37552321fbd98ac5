"""Rejects of a wrong configuration, and an aggregator with the corrected one. No pubsub: the lines come from files."""
import json
import os
import re

import harness
from input_case import InputTest


class RejectsTest(InputTest):
    def setUp(self):
        super().setUp()
        self.good = self.config
        with open(self.good) as f:
            self.bad = self.write("bad.conf", re.sub(r"(?m)^time = t\b", "time = wrong", f.read()))

    def reject(self, data, name="log"):
        """Counts the lines under the wrong configuration, which rejects all but the heartbeats."""
        self.config = self.bad
        self.write(name, data)
        self.count(name, options=["--rejects-max-bytes=%d" % (1 << 30)])
        self.config = self.good

    def aggregator(self, *options):
        options = options or ["--rejects-max-bytes=%d" % (1 << 30)]
        return self.daemon("aggregator", "--config", self.good, "--pubsub-url=unix:" + self.path("none"), *options).wait_listening()

    def tool(self, *options, expect=0):
        done = self.run_program("millrace", "rejects", "--config", self.good, *options)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done.stdout.decode() or done.stderr.decode()

    def put_back(self, aggregator, *options, expect=0):
        harness.wait_until(lambda: aggregator.get("/slices").status == 200, aggregator.log)
        text = self.tool("--put-back", "--json", "--aggregator-url", aggregator.url, *options, expect=expect)
        return json.loads(text)

    def entries(self, *options):
        """Each entry is of another line."""
        found = [json.loads(line) for line in self.tool("--json", *options).splitlines()]
        self.assertEqual(len({(e["file"], e["offset"]) for e in found}), len(found))
        return found

    def rejects_bytes(self):
        directory = self.path("data", "rejects")
        return sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory))

    def check_all_counted(self, data):
        """The newest slice has every event once, and the rejects have every other line once."""
        text, (_, _, rejected) = self.expected(data)
        self.assertEqual(self.counted(), text)
        self.assertEqual(len(self.entries()), rejected)
