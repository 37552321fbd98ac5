"""aggregator --input is killed again and again and started with the same command: every line is counted once."""
# full: MILLRACE_ROUNDS=200
import gzip
import subprocess
import time

import harness
from input_case import InputTest
from small_disk import SmallDisk


class Killed(InputTest):
    def test_kill_9(self):
        random, n_rounds = harness.seeded(), harness.rounds(3)
        blobs = [self.generate(60000 if n_rounds >= 100 else 10000, seed) for seed in (1, 2, 3)]
        files = [self.write("a.ndjson", blobs[0]), self.write("b.gz", gzip.compress(blobs[1], 1)), self.write("c", blobs[2])]
        killed = 0
        for _ in range(n_rounds):
            process = subprocess.Popen(self.command(*files, options=["--flush-interval=10ms"]), stderr=subprocess.DEVNULL)
            if killed:  # until one has not ended before, kill at once
                time.sleep(random.uniform(0, 0.4 if n_rounds >= 100 else 0.08))
            process.kill()
            killed += process.wait() != 0
        self.assertGreater(killed, 0)
        self.count(*files)
        self.check_counted(*blobs)
        self.assertIn("3 of 3 files were counted before", self.count(*files))

    def test_full_disk(self):
        blobs = [self.generate(10000, seed) for seed in (1, 2)]
        files = [self.write("a", blobs[0]), self.write("b", blobs[1])]
        disk = SmallDisk(self, "512k", "data")
        options = ["--flush-interval=10ms", "--max-memory=32M"]
        self.assertRegex(self.count(*files, expect=75, options=options), "storage full|no space|No space|disk is full")
        disk.grow("256m")
        self.count(*files, options=options)
        self.check_counted(*blobs)


if __name__ == "__main__":
    harness.main()
