"""What the tests of the scraper share: pubsub on a socket, a file of targets, and the samples in the stream."""
import collections
import json
import os

import harness
from harness import query, request, wait_until
from metrics_target import Target

OWN = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}


def samples_of(line):
    if "by" not in line:
        return [line]
    return [{"t": line["t"], "labels": dict(sorted({**line["labels"], line["by"]: value}.items())), "v": v} for value, v in line["v"].items()]


class ScraperTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.url = "unix:" + self.path("p.sock")

    def pubsub(self, *args, data="p", ready=True):
        start = self.start if ready else self.daemon
        return start("pubsub", "--data-dir=" + self.path(data), "--sync=never", *args, listen=self.url)

    def write_targets(self, *groups, name="targets.json"):
        """Each group is (address, labels) or (address, labels, n) for n targets with a label i."""
        listed = []
        for address, labels, *n in groups:
            for i in range(*n) if n else [None]:
                listed.append({"targets": [address], "labels": {**labels, **({} if i is None else {"i": str(i)})}})
        self.write(name + ".new", json.dumps(listed))
        os.rename(self.path(name + ".new"), self.path(name))

    def scraper(self, *args, pubsub=None, ready=True, **kw):
        start = self.start if ready else self.daemon
        return start("scraper", "--pubsub-url=" + (pubsub or self.url), "--files=" + self.path("targets*.json"), "--interval=1s",
                     "--backoff-max=100ms", *args, **kw)

    def target(self, pages):
        return Target(self, pages)

    def lines(self):
        """The samples in the stream, each in the form of a line with one sample."""
        reply = request(self.url, "GET", "/sub?" + query(stream="metrics", from_="earliest", follow=0))
        return [] if reply.status == 404 else [sample for line in reply.body.splitlines() for sample in samples_of(json.loads(line))]

    def samples(self, **labels):
        """The samples of series with these labels: [(t, name, v)], in the stream's order."""
        return [(line["t"], line["labels"]["__name__"], line["v"]) for line in self.lines()
                if all(line["labels"].get(name) == value for name, value in labels.items())]

    def scrapes(self, **labels):
        """The samples as {t: {name: v}} for targets whose series have names of their own."""
        found = collections.defaultdict(dict)
        for t, name, v in self.samples(**labels):
            self.assertNotIn(name, found[t], "twice")
            found[t][name] = v
        return dict(found)

    def wait_scrape(self, condition, what, **labels):
        """Waits for a scrape for which condition(values) holds; returns (t, values)."""
        def find():
            return [(t, values) for t, values in sorted(self.scrapes(**labels).items()) if condition(values)]
        return wait_until(find, lambda: "%s: %s" % (what, self.scrapes(**labels)))[0]

    def look(self, scraper, path="/metrics"):
        """The entry of /targets."""
        return next(t for t in scraper.get("/targets").json() if t["url"].endswith(path))

    def assert_once(self):
        """No series has two samples of one time."""
        counts = collections.Counter((line["t"], json.dumps(line["labels"])) for line in self.lines())
        self.assertEqual([sample for sample, n in counts.items() if n > 1][:5], [])
