"""Clicks counted by the real aggregator and merged by the compactor give the oracle's archive, byte for byte: in one shard
and in four, in one run and in three. (Each third is counted by an aggregator that is stopped then: its slice is sealed.)"""
import hashlib
import os
import shutil
import unittest

import answers
import harness
from aggregator_model import Aggregator, change_slice
from harness import wait_until


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
                         ("INSERT INTO begins VALUES('clicks', 'c0ffee', ?)", n * 100 - 100),
                         ("UPDATE cursors SET id = 'c0ffee', offset = ?", n * 100))
        return model

    def compact(self, model, archive, through, *more):
        model.open = through + 1
        done = self.run_program("compactor", "--archive=" + archive, "--slices=" + model.dir, "--sortdb-url=none",
                                "--aggregator-url=" + model.url, *more)
        self.assertEqual(done.returncode, 0, done.stderr)

    def shards(self, archive):
        current = os.path.join(archive, os.readlink(os.path.join(archive, "current")))
        names = sorted(n for n in os.listdir(current) if n.endswith(".csv"))
        return [harness.read_file(os.path.join(current, n)) for n in names]

    def check(self, lines, digest, shard_texts):
        thirds = [lines[i * len(lines) // 3:(i + 1) * len(lines) // 3] for i in range(3)]
        model = self.take_slices([self.count_slice(part, n) for n, part in enumerate(thirds, 1)])
        at_once, by_thirds = self.path("at-once"), self.path("by-thirds")
        self.compact(model, at_once, 3)
        for n in range(1, 4):
            self.compact(model, by_thirds, n)
        for archive in (at_once, by_thirds):
            text, = self.shards(archive)
            self.assertEqual({"lines": text.count(b"\n"), "sha256": hashlib.sha256(text).hexdigest()}, digest)
            self.compact(model, archive, 3, "--shards=4")
            four = self.shards(archive)
            self.assertEqual(len(four), 4)
            self.assertEqual(b"".join(sorted(b"".join(four).splitlines(True))), text)
            if shard_texts:
                self.assertEqual(four, shard_texts)

    def test_generated_events(self):
        data = harness.read_file(answers.generate(self.path("events.ndjson")))
        self.check([line for line in data.split(b"\n") if line], answers.stored()["archive"], None)

    @unittest.skipUnless(harness.real_files(), "no real clicks here: see test_generated_events")
    def test_real_clicks(self):
        files, oracle = harness.real_files(), harness.load_oracle()
        lines = [line for f in files for line in harness.read_file(f).split(b"\n") if line]
        counts = answers.count(oracle, files)

        def text(shards, k):
            return b"".join(line + b"\n" for line in sorted(counts.archive(shards, k)))
        self.check(lines, answers.archive_digest(sorted(counts.archive(1, 0))), [text(4, k) for k in range(4)])


if __name__ == "__main__":
    harness.main()
