"""sortdb uses the index files of the compactor, and refuses any other index file; answers stay the same."""
import os
import shutil

import harness
from harness import query, wait_until
from record_text import Counts, text_of

BUILDS = "builds an index in memory"
READS = 25  # at keys, in keys and around them


class IndexTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random, self.archive = harness.seeded(), self.path("archive")
        self.lines = Counts().random(self.random, 3000).lines()
        done = self.run_program("compactor", "--archive=" + self.archive, "--aggregator-url=none", "--sortdb-url=none",
                                "--shards=2", "--import", self.write("records", text_of(self.lines)))
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.current = os.path.join(self.archive, "current")
        self.indexes = sorted(os.path.join(self.current, n) for n in os.listdir(self.current)
                              if n.startswith("shard-") and n.endswith(".idx"))

        self.targets = []
        for _ in range(READS):
            key = self.random.choice(self.lines).partition(b",")[0]
            part = key[:self.random.randrange(1, len(key) + 1)]
            self.targets += ["/get?" + query(key=key), "/get?" + query(key=part), "/fwmatch?" + query(key=part, limit=20),
                             "/range?" + query(start=part, end=key + b"~", limit=20)]

    def answers(self, daemon):
        return [(r.status, r.body) for r in map(daemon.get, self.targets)]

    def test_other_indexes_are_refused(self):
        self.assertEqual(len(self.indexes), 2)
        for name in (n for n in os.listdir(self.current) if n.endswith(".idx")):
            index = os.path.join(self.current, name)
            text = index[:-len(".idx")] + ".csv"
            self.assertLessEqual(os.path.getsize(index), os.path.getsize(text) // 20 + 256)
        daemon = self.start("sortdb", "--archive", self.archive)
        self.assertNotIn(BUILDS, daemon.log)
        expected = self.answers(daemon)
        self.assertIn(200, [status for status, _ in expected])
        daemon.stop()
        first, second = self.indexes
        whole = harness.read_file(first)
        for name, change in (
                ("absent", lambda: os.unlink(first)),
                ("truncated", lambda: os.truncate(first, len(whole) // 2)),
                ("damaged", lambda: self.overwrite(first, whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])),
                ("of the other shard", lambda: shutil.copyfile(second, first))):
            self.overwrite(first, whole)
            change()
            with self.subTest(name):
                daemon = self.start("sortdb", "--archive", self.archive)
                wait_until(lambda d=daemon: BUILDS in d.log, "a line about %s" % first)
                self.assertEqual(self.answers(daemon), expected)
                daemon.stop()

    def overwrite(self, path, content):
        with open(path, "wb") as f:
            f.write(content)


if __name__ == "__main__":
    harness.main()
