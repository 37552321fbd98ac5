"""Many waiting messages in little memory: a million in full rounds."""
# full: MILLRACE_ROUNDS=10
import harness
from queue_test import Deep


class MillionTest(Deep):
    def test_many_in_little_memory(self):
        n = 1000000 if harness.rounds(1) >= 10 else 300000
        q = self.queue("--max-memory=64M")
        self.fill(q, 0, n)
        self.assertEqual(self.numbers(q)["depth"], n)
        self.assert_small(q, 128 << 20)
        q.kill9()
        q = self.queue("--max-memory=64M")
        self.assertEqual(self.numbers(q)["depth"], n)
        self.assertEqual(self.numbers(q)["bytes"], n * 450)
        self.drain(q, 0, n)
        self.assert_small(q, 128 << 20)
        self.assertEqual(self.numbers(q)["bytes"], 0)


if __name__ == "__main__":
    harness.main()
