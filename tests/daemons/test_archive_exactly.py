"""Clicks counted by the real aggregator and merged by the compactor give the oracle's archive with rollups, byte for byte: in
one shard and in four, in one run and in five, and from four shards to seven to one. (Each fifth is counted by an aggregator that is
stopped then: its slice is sealed.)"""
# full: MILLRACE_ROUNDS=2
import functools
import hashlib
import os
import shutil
import unittest

import answers
import harness
from aggregator_model import Aggregator, change_slice
from harness import wait_until

PARTS = 5


class ArchiveExactly(harness.MillraceTest):
    def count_slice(self, lines, number):
        """The slice that holds the lines' counts."""
        data = self.path("aggregator-%d" % number)
        pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub-%d" % number), "--sync=never")
        config = self.write("counters.conf", harness.sample_counters())
        size = 0
        for i in range(0, len(lines), 2000):
            body = b"\n".join(lines[i:i + 2000])
            reply = pubsub.post("/pub?stream=clicks", body)
            self.assertEqual(reply.status, 200, reply)
            size = int(reply.json()["end"])
        aggregator = self.start("aggregator", "--config=" + config, "--data-dir=" + data, "--pubsub-url=" + pubsub.url)
        wait_until(lambda: int(aggregator.stats()["streams"]["clicks"]["offset"]) == size, "all to be counted",
                   timeout=harness.LONG)
        aggregator.stop()
        pubsub.stop()
        return os.path.join(data, "slices", "0000000001.db")

    def take_slices(self, paths):
        """They are given to the model as its sealed slices, each beginning where the one before ended."""
        model = Aggregator(self)
        for n, path in enumerate(paths, 1):
            shutil.copy(path, model.file(n))
            change_slice(model.file(n), ("UPDATE meta SET value = ? WHERE key = 'number'", n),
                         ("INSERT OR REPLACE INTO meta VALUES('sealed', 1)",), ("DELETE FROM begins",),
                         ("INSERT INTO begins VALUES('clicks', 'c0ffee', ?, 0)", n * 100 - 100),
                         ("UPDATE cursors SET id = 'c0ffee', offset = ?", n * 100))
        return model

    def compact(self, model, archive, through, *more):
        model.open = through + 1
        self.assertEqual(self.run_program("compactor", "--archive=" + archive, "--init").returncode, 0)
        done = self.run_program("compactor", "--archive=" + archive, "--slices=" + model.dir, "--sortdb-url=none",
                                "--aggregator-url=" + model.url, *more)
        self.assertEqual(done.returncode, 0, done.stderr)

    def files(self, archive, kind="shard"):
        current = os.path.join(archive, os.readlink(os.path.join(archive, "current")))
        names = sorted(n for n in os.listdir(current) if n.startswith(kind) and n.endswith(".csv"))
        return [harness.read_file(os.path.join(current, n)) for n in names]

    def check_files(self, archive, expected):
        """As many shards as expected, which together have the expected text; each shard has the texts of its lookups."""
        shards, texts = self.files(archive), self.files(archive, "texts")
        self.assertEqual((len(shards), len(texts)), (expected["shards"], expected["shards"]))
        whole = b"".join(sorted(b"".join(shards).splitlines(True)))
        self.assertEqual({"lines": whole.count(b"\n"), "sha256": hashlib.sha256(whole).hexdigest()}, expected["digest"])
        for shard, got in zip(shards, texts):
            self.assertEqual(shard, b"".join(sorted(shard.splitlines(True))))
            lookups = (line[len("lookup|"):].partition(b",") for line in shard.splitlines() if line.startswith(b"lookup|"))
            self.assertEqual(got, b"".join(sorted(text.replace(b",", b"\\x2c") + b"," + name + b"\n"
                                                  for name, _, text in lookups)))
        if expected["text"]:
            self.assertEqual(shards, [expected["text"](len(shards), k) for k in range(len(shards))])

    def check(self, lines, digest, text):
        parts = [lines[i * len(lines) // PARTS:(i + 1) * len(lines) // PARTS] for i in range(PARTS)]
        model = self.take_slices([self.count_slice(part, n) for n, part in enumerate(parts, 1)])
        expected = {"digest": digest, "text": text}
        for shards in (1, 4):
            at_once, by_parts = self.path("at-once-%d" % shards), self.path("by-parts-%d" % shards)
            self.compact(model, at_once, PARTS, "--shards=%d" % shards)
            self.check_files(at_once, dict(expected, shards=shards))
            for n in range(1, PARTS + 1):
                self.compact(model, by_parts, n, "--shards=%d" % shards, "--memory=1M" if n % 2 else "--threads=1")
            self.check_files(by_parts, dict(expected, shards=shards))
        for shards in (7, 1):
            self.compact(model, by_parts, PARTS, "--shards=%d" % shards)
            self.check_files(by_parts, dict(expected, shards=shards))

    @unittest.skipIf(harness.real_files(), "see test_real_clicks")
    def test_generated_events(self):
        data = harness.read_file(answers.generate(self.path("events.ndjson")))
        self.check([line for line in data.split(b"\n") if line], answers.stored()["rollups"], None)

    @unittest.skipUnless(harness.real_files(), "no real clicks here: see test_generated_events")
    def test_real_clicks(self):
        files, oracle = harness.real_sample(), harness.load_oracle()
        lines = [line for f in files for line in harness.read_file(f).split(b"\n") if line]
        counts = answers.count(oracle, files)
        counts.rollups = functools.cache(counts.rollups)

        @functools.cache
        def text(shards, k):
            return b"".join(line + b"\n" for line in sorted(counts.archive(shards, k, True)))
        self.check(lines, answers.archive_digest(sorted(counts.archive(1, 0, True))), text)


if __name__ == "__main__":
    harness.main()
