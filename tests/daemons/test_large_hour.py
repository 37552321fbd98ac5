"""One hour with very many keys, and one key with very many sub keys: counted from a stream, sealed, compacted and answered, with bounded
memory, while reads go on."""
# full: MILLRACE_KEYS=5000000 MILLRACE_SUBS=1000000
import os
import subprocess
import sys
import time

import harness
from harness import query, wait_until
from huge_case import START, Gets, peak_memory

KEYS, SUBS = int(os.environ.get("MILLRACE_KEYS", 100000)), int(os.environ.get("MILLRACE_SUBS", 30000))
LARGE = SUBS >= 1000000  # a breakdown takes so long that many gets fit in it
MEMORY = 256 << 20  # the setting of aggregator and compactor
WAIT = 600 if KEYS > 1000000 else harness.LONG
POST = 20000  # lines
PERIOD = "&from=%d&to=%d" % (START, START + 3600)


def events():
    """Batches of lines."""
    def lines():
        for i in range(KEYS):
            yield '{"t":%d,"l":"key%d","c":"JP"}' % (START + i % 3600, i)
            if i * SUBS // KEYS < (i + 1) * SUBS // KEYS:
                yield '{"t":%d,"l":"hot","c":"sub%d"}' % (START + i % 3600, i * SUBS // KEYS)
    batch = []
    for line in lines():
        batch.append(line)
        if len(batch) == POST:
            yield "\n".join(batch)
            batch = []
    if batch:
        yield "\n".join(batch)


class LargeHour(harness.MillraceTest):
    def prepare(self):
        self.config = self.write("hour.conf", "[aggregator]\ndata_dir = %s\narchive = %s\nstreams = s\n" % (
            self.path("counts"), self.path("archive")) + harness.USERS_BY_COUNTRY + '[total all]\nkey = "all"\nlabel = feed\n')
        self.assertEqual(self.run_program("compactor", "--archive=" + self.path("archive"), "--init").returncode, 0)
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("stream"), "--sync=never", "--streams=s")
        self.aggregator = self.start("aggregator", "--config", self.config, "--pubsub-url=" + self.pubsub.url)
        self.sortdb = self.start("sortdb", "--archive=" + self.path("archive"))
        self.api = self.start("api", "--config", self.config, "--aggregator-url=" + self.aggregator.url,
                              "--sortdb-url=" + self.sortdb.url)

    def total(self, **label):
        reply = self.api.get("/v1/series?" + query(**label) + PERIOD)
        self.assertEqual(reply.status, 200, reply)
        return reply.json()["total"]

    def check_answers(self):
        """The begin and the end of the breakdown, in monotonic seconds."""
        self.assertEqual((self.total(feed="all"), self.total(user="hot")), (KEYS + SUBS, SUBS))
        for i in [0, KEYS - 1, *(self.random.randrange(KEYS) for _ in range(50))]:
            self.assertEqual(self.total(user="key%d" % i), 1)
        self.assertEqual(self.total(user="key%d" % KEYS), 0)
        for i in [0, SUBS - 1, *(self.random.randrange(SUBS) for _ in range(5))]:
            self.assertEqual(self.total(user="hot", sub="sub%d" % i, by="country"), 1)
        began = time.monotonic()
        reply = self.api.get("/v1/breakdown?user=hot&by=country&limit=10" + PERIOD, timeout=WAIT)
        end = time.monotonic()
        self.assertEqual(reply.status, 200, reply)
        got = reply.json()
        self.assertEqual((got["total"], got["distinct"], len(got["rows"])), (SUBS, SUBS, 10))
        return began, end

    def compact(self):
        """Its peak of memory in bytes."""
        process = subprocess.Popen([harness.program("compactor"), "--archive=" + self.path("archive"), "--slices=" +
                                    self.path("counts", "slices"), "--aggregator-url=" + self.aggregator.url,
                                    "--sortdb-url=" + self.sortdb.url], stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss << 10

    def test_counted_sealed_and_answered(self):
        self.random = harness.seeded()
        self.prepare()
        batches = events()
        self.assertEqual(self.pubsub.post("/pub?stream=s", next(batches)).status, 200)
        wait_until(lambda: self.total(user="key0") == 1, "the first key to be counted")
        gets = Gets(self.api, "/v1/series?user=key0" + PERIOD)
        for batch in batches:
            self.assertEqual(self.pubsub.post("/pub?stream=s", batch).status, 200)
        wait_until(lambda: self.aggregator.stats()["events_total"] == KEYS + SUBS, "everything to be counted", WAIT)
        before = self.check_answers()
        merging = self.compact()
        self.assertEqual(self.aggregator.get("/slices").json()["slices"], [])
        counting = peak_memory(self.aggregator)
        after = self.check_answers()
        slow = gets.stop()
        print("memory: aggregator %d MB, compactor %d MB; breakdown of %d sub keys: %.2f s before the compaction, %.2f after; "
              "%d gets meanwhile: median %.1f ms, slowest %.0f ms" % (counting >> 20, merging >> 20, SUBS, before[1] - before[0],
                                                                     after[1] - after[0], len(slow), slow[len(slow) // 2], slow[-1]), file=sys.stderr)
        if not os.environ.get("MILLRACE_SANITIZED"):
            self.assertLess(counting, MEMORY * 5 // 4)
            self.assertLess(merging, MEMORY * 5 // 4)
        self.assertGreater(len(slow), 10)
        if LARGE:
            self.assertGreater(gets.within(*before), 0, "each get waited for the whole breakdown")


if __name__ == "__main__":
    harness.main()
