"""Three scrapers share targets through ZooKeeper, while scrapers are killed, frozen and cut off at random, and ZooKeeper and pubsub are
killed. A store that drops samples not later than the last of their series keeps each slot once, and slots are missing or twice only around a
failure."""
# seconds: 60
# full: MILLRACE_ROUNDS=40
import collections
import json
import signal
import time

import harness
from harness import wait_until
from zookeeper_case import Network, SharedTest

TARGETS = 30
NAMES = "abc"


class KillScrapers(SharedTest):
    stream = "metrics"

    def test_each_slot_once(self):
        random = harness.seeded()
        self.running = self.pubsub()
        address = self.target({"/metrics": "a 1\n"}).address
        self.assertEqual(self.put((address, {}, TARGETS)).returncode, 0)
        self.networks = {name: Network(self, self.server) for name in NAMES}
        for name in NAMES:
            self.member(name, servers=self.networks[name].address)
        self.shares = self.wait_owned(TARGETS, *NAMES)
        begin, failures, skipped = time.time(), [], 0
        acts = [self.kill, self.freeze, self.cut, self.kill_zookeeper, self.kill_pubsub]
        for i in range(harness.rounds(5)):
            act = acts[i] if i < len(acts) else random.choice(acts)
            stored = self.stored()
            wait_until(lambda: self.stored() > stored + random.randrange(TARGETS, 2 * TARGETS), "scrapes")
            since = time.time()
            skipped += act(random.choice(NAMES))
            self.assertEqual(self.wait_owned(TARGETS, *NAMES), self.shares)
            wait_until(lambda: all(self.gauge(n, "waiting_scrapes") == 0 for n in NAMES), "all scrapes to be published")
            failures.append((since, time.time(), act.__name__))
        stored = self.stored()
        wait_until(lambda: self.stored() > stored + 3 * TARGETS, "the last scrapes")
        skipped += sum(self.gauge(n, "scrapes_skipped_total") for n in NAMES)
        self.check(begin, failures, skipped)

    def stored(self):
        return sum(self.gauge(n, "scrapes_stored_total") for n in NAMES)

    def others(self, name):
        return [n for n in NAMES if n != name]

    def kill(self, name):
        skipped = self.gauge(name, "scrapes_skipped_total")
        self.names[name].kill9()
        self.member(name, servers=self.networks[name].address)
        return skipped

    def freeze(self, name):
        self.names[name].process.send_signal(signal.SIGSTOP)
        self.wait_members(*self.others(name))
        self.names[name].process.send_signal(signal.SIGCONT)
        return 0

    def cut(self, name):
        self.networks[name].is_away = True
        self.wait_members(*self.others(name))
        self.networks[name].is_away = False
        return 0

    def kill_zookeeper(self, _):
        self.server.kill9()
        wait_until(lambda: not any(self.gauge(n, "lease_certain") for n in NAMES), "the end of the leases")
        self.server.start()
        return 0

    def kill_pubsub(self, _):
        self.running.kill9()
        self.running = self.pubsub()
        return 0

    def check(self, begin, failures, skipped):
        def is_failure(t):
            return any(since - 1 - self.interval <= t <= until + 1 for since, until, _ in failures)
        kept, dropped = collections.defaultdict(list), []
        for line in self.lines():
            series = json.dumps(line["labels"])
            if kept[series] and line["t"] <= kept[series][-1]:
                dropped.append((line["t"], series))
            else:
                kept[series].append(line["t"])
        print("%d samples stored, %d dropped" % (sum(map(len, kept.values())), len(dropped)))
        self.assertEqual([d for d in dropped if d[0] > begin and not is_failure(d[0])], [], failures)
        self.assertEqual(len(kept), 4 * TARGETS)
        missing = [(t, series) for series, times in kept.items() for t in self.missing(times) if t > begin and not is_failure(t)]
        self.assertLessEqual(len(missing), 4 * skipped, (missing[:10], failures))
        self.assertEqual([line for line in self.lines() if line["v"] == "stale"], [])


if __name__ == "__main__":
    harness.main()
