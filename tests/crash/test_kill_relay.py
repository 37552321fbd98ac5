"""Queue, relay and pubsub killed with -9 at random while numbered events flow: the stream holds each exactly once, in
order. 100,000 events in five rounds."""
# full: MILLRACE_ROUNDS=200

import harness
from harness import UNREACHABLE, request, wait_until
from putter import Putter
from relay_test import RelayTest

EVENTS_A_ROUND = 20000
BATCH = 50


class KillRelay(RelayTest):
    def restart(self, kind):
        return {"simplequeue": self.start_queue, "pubsub": self.start_pubsub,
                "queue_to_pubsub": self.relay}[kind]()

    def end(self):
        """Of the stream, in bytes."""
        try:
            streams = request(self.pubsub_url, "GET", "/streams").json()["streams"]
        except UNREACHABLE:
            return 0
        return int(streams[0]["end"]) if streams else 0

    def kill_each(self, running, random, putter, until):
        """Each once, in random order, at random places of the round's events."""
        victims = random.sample(sorted(running), len(running))
        for place in sorted(random.randrange(until - EVENTS_A_ROUND, until) for _ in victims):
            wait_until(lambda: putter.put >= place, lambda: "event %d to be put" % place, interval=0.001)
            victim = victims.pop()
            running[victim].kill9()
            running[victim] = self.restart(victim)

    def test_each_exactly_once_and_in_order(self):
        random, n_rounds = harness.seeded(), harness.rounds(3)
        running = {"simplequeue": self.start_queue(), "pubsub": self.start_pubsub()}
        running["queue_to_pubsub"] = self.start_relay()
        putter = Putter(self.queue_url, n_rounds * EVENTS_A_ROUND, BATCH)
        putter.start()
        for r in range(n_rounds):
            self.kill_each(running, random, putter, (r + 1) * EVENTS_A_ROUND)
        putter.join()
        size = len(b"event %08d\n" % 0) * n_rounds * EVENTS_A_ROUND
        wait_until(lambda: self.end() >= size, lambda: "%d of %d bytes" % (self.end(), size))
        for i, line in enumerate(self.stream().splitlines()):
            self.assertEqual(line, b"event %08d" % i)
        self.assertEqual(self.end(), size)
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")
        running["queue_to_pubsub"].stop()


if __name__ == "__main__":
    harness.main()
