"""The scraper and pubsub killed with -9 at random, with a proxy between them that delays requests until after their retries, drops replies,
and lets requests of a killed scraper arrive late: no sample twice, each scrape whole, and no slot is missing but around a kill."""
# full: MILLRACE_ROUNDS=60
import collections
import json
import time

import harness
from harness import wait_until
from late_proxy import LateProxy
from scraper_case import OWN, ScraperTest

TARGETS = 40
NAMES = {"a", "b", "c", *OWN}


class KillScraper(ScraperTest):
    def test_no_sample_twice_and_short_gaps(self):
        random = harness.seeded()
        target = self.target({"/metrics": "a 1\nb 2\nc 3\n"})
        self.write_targets((target.address, {}, TARGETS))
        running = {"pubsub": self.pubsub()}
        proxy = LateProxy(self.path("late.sock"), self.path("p.sock"), random)
        self.addCleanup(proxy.close)
        late = "unix:" + self.path("late.sock")
        scraper = self.scraper(pubsub=late)
        outages, skipped = [], 0
        for _ in range(harness.rounds(6)):
            n = scraper.stats()["scrapes_stored_total"]
            wait_until(lambda: scraper.stats()["scrapes_stored_total"] > n + random.randrange(TARGETS, 3 * TARGETS), "scrapes")
            begin = time.time()
            if random.random() < 0.3:
                running["pubsub"].kill9()
                running["pubsub"] = self.pubsub()
            if random.random() < 0.7:
                stats = scraper.stats()
                skipped += stats["scrapes_skipped_total"]
                oldest = begin - 1 - stats["waiting_scrapes"] / TARGETS  # scrapes that wait are lost with the process
                scraper.kill9()
                scraper = self.scraper(pubsub=late)
                outages.append((oldest - 1, time.time() + 1))
        proxy.calm()
        n = scraper.stats()["scrapes_stored_total"]
        wait_until(lambda: scraper.stats()["scrapes_stored_total"] > n + 2 * TARGETS, "the last scrapes")
        skipped += scraper.stats()["scrapes_skipped_total"]
        scraper.stop()
        self.check(outages, skipped)

    def check(self, outages, skipped):
        found = collections.defaultdict(collections.Counter)
        for line in self.lines():
            found[line["labels"]["i"], round(line["t"] * 1000)][line["labels"]["__name__"]] += 1
        for place, names in found.items():
            self.assertEqual(max(names.values()), 1, (place, names))
            self.assertIn(set(names), (NAMES, OWN), place)
        missing = []
        for i in range(TARGETS):
            times = sorted(t for of, t in found if of == str(i))
            for before, after in zip(times, times[1:]):
                missing += [t for t in range(before + 1000, after, 1000) if not any(b * 1000 <= t <= e * 1000 for b, e in outages)]
        self.assertLessEqual(len(missing), skipped, (missing[:10], outages))


if __name__ == "__main__":
    harness.main()
