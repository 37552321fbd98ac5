"""The aggregator and millrace rejects --put-back are killed again and again: each rejected line is counted once or stays in the rejects."""
# full: MILLRACE_ROUNDS=200
import subprocess
import time

import harness
from rejects_case import RejectsTest


class Killed(RejectsTest):
    def test_kill_9(self):
        random, many = harness.seeded(), harness.rounds(5) >= 100
        data = self.generate(60000 if many else 20000)
        self.reject(data)
        moved = 0
        for n in range(harness.rounds(3)):
            a = self.aggregator("--rejects-max-bytes=%d" % (1 << 30), "--flush-interval=10ms")
            harness.wait_until(lambda: a.get("/slices").status == 200, a.log)
            # Some rounds select only some of the lines, which moves the others to the end.
            some = ["--reason=absent"] if n % 3 == 1 else ["--reason=wrong"] if n % 3 == 2 else []
            tool = subprocess.Popen([harness.program("millrace"), "rejects", "--put-back", "--aggregator-url", a.url, *some],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, 0.25 if many else 0.1))
            if random.random() < 0.5:
                tool.kill()
            moved += a.alive()
            a.kill9()
            tool.kill()
            tool.wait()
        self.assertGreater(moved, 0)
        a = self.aggregator()
        self.put_back(a)
        a.stop()
        self.check_all_counted(data)


if __name__ == "__main__":
    harness.main()
