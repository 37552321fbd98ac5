"""aggregator --input is killed again and again and started with the same command: every line is counted once."""
# full: MILLRACE_ROUNDS=200
import gzip
import subprocess
import time

import harness
from input_case import InputTest


class Killed(InputTest):
    def test_kill_9(self):
        random = harness.seeded()
        blobs = [self.generate(60000, seed) for seed in (1, 2, 3)]
        files = [self.write("a.ndjson", blobs[0]), self.write("b.gz", gzip.compress(blobs[1], 1)), self.write("c", blobs[2])]
        killed = 0
        for _ in range(harness.rounds(10)):
            process = subprocess.Popen(self.command(*files, options=["--flush-interval=10ms"]), stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, 0.4))
            process.kill()
            killed += process.wait() != 0
        self.assertGreater(killed, 0)
        self.count(*files)
        self.check_counted(*blobs)
        self.assertIn("3 of 3 files were counted before", self.count(*files))


if __name__ == "__main__":
    harness.main()
