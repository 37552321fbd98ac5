"""One aggregator follows several streams and is killed again and again, with more or fewer streams each time: every line is counted once."""
# full: MILLRACE_ROUNDS=200
import time

import harness
from input_case import InputTest

STREAMS = ("one", "two", "three")


class Killed(InputTest):
    def test_kill_9(self):
        random = harness.seeded()
        pubsub = self.start("pubsub", "--data-dir", self.path("pubsub"), "--streams=" + ",".join(STREAMS))
        blobs = []

        def aggregator(streams):
            return self.daemon("aggregator", "--config", self.config, "--pubsub-url", pubsub.url, "--flush-interval=10ms",
                               "--streams=" + ",".join(streams))
        for n in range(harness.rounds(3)):
            # A stream that is left out keeps its cursor, and its lines are counted once it is back.
            a = aggregator(random.sample(STREAMS, random.randint(1, len(STREAMS))))
            for stream in STREAMS:
                blobs.append(self.generate(random.randint(1, 3000), seed=n + 1))
                self.assertEqual(pubsub.post("/pub?stream=" + stream, blobs[-1]).status, 200)
            time.sleep(random.uniform(0, 0.2))
            a.kill9()
        a = aggregator(STREAMS).wait_ready()
        lines = sum(sum(self.expected(blob)[1]) for blob in blobs)

        def counted():
            n = a.stats()
            return n["events_total"] + n["skipped_total"] + n["rejected_total"] >= lines
        harness.wait_until(counted, a.log)
        a.stop()
        self.check_counted(*blobs)


if __name__ == "__main__":
    harness.main()
