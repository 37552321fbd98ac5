"""Series and breakdowns in zones and units equal the oracle's, before, between and after compactions; and the archive's
bytes are the oracle's for one shard and for four. Real clicks through every daemon; generated ones where there are none.
One zone, fewer keys and a sample of the clicks; all of them, and four shards, in the long round."""
# full: MILLRACE_ROUNDS=5
import collections
import datetime
import functools
import json
import os
import unittest
import zoneinfo

import answers
import harness
from harness import wait_until

ZONES = ({"timezone": "America/New_York"}, {"timezone": "UTC"}, {"timezone": "Asia/Tokyo"},
         {"timezone": "Australia/Sydney"}, {"hour_offset": -5})[:harness.rounds(1)]
FULL = harness.rounds(1) > 1
FAR = 5995814400
BATCH = 2000


def tzinfo(zone):
    if "hour_offset" in zone:
        return datetime.timezone(datetime.timedelta(hours=zone["hour_offset"]))
    return zoneinfo.ZoneInfo(zone["timezone"])


@unittest.skipUnless(harness.load_oracle(), "the oracle is not here: test_counted_exactly has stored answers in UTC")
class Zones(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(self.data, aggregator={"flush_interval": "500ms"}))
        self.pipeline = harness.Pipeline(self, config, self.data).wait_ready()
        self.oracle = harness.load_oracle()
        self.counts = self.oracle.Counts(answers.CONFIG)

    def put(self, lines):
        for i in range(0, len(lines), BATCH):
            body = b"\n".join(lines[i:i + BATCH])
            self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", body).status, 200)

        def counted():
            depth = self.pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            streams = self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"]
            here = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
            return depth == 0 and all(here[s["name"]]["offset"] == s["end"] for s in streams)
        wait_until(counted, "everything to be counted", timeout=harness.LONG)
        for line in lines:
            self.counts.add_line(line)

    def compact(self, *args):
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path, *args)
        self.assertEqual(done.returncode, 0, done)

    def ask(self, what, **params):
        """Over one connection for all that a check asks."""
        self.api.request("GET", "/v1/%s?%s" % (what, harness.query(**params)))
        reply = self.api.getresponse()
        body = reply.read()
        self.assertEqual(reply.status, 200, (params, body))
        return json.loads(body)

    def series(self, hours, unit, zone):
        rows = collections.Counter()
        for hour, n in hours.items():
            rows[self.oracle.unit_start(hour, unit, tzinfo(zone))] += n
        return [(t, n) for t, n in sorted(rows.items())]

    def check(self):
        """The busiest keys of every counter and `all`, in every unit and zone."""
        subs = answers.breakdowns(self.oracle, self.counts)
        self.api = harness.connect(self.pipeline.daemon_url("api"))
        self.addCleanup(self.api.close)
        for ns, few in (("all", 1), ("u", 7), ("h", 7), ("d", 6)) if FULL else (("all", 1), ("u", 2), ("h", 2), ("d", 2)):
            for key in answers.busiest(self.counts, ns)[:few]:
                stored = self.oracle.component(key.encode(), {})
                hours = self.counts.total[ns, stored]
                span = {"from_": min(hours), "to": max(hours) + 3600}
                for zone in ZONES:
                    for unit in answers.UNITS:
                        got = self.ask("series", ns=ns, key=key, unit=unit, **zone, **span)
                        self.assertEqual([(r["t"], r["n"]) for r in got["rows"] if r["n"]],
                                         self.series(hours, unit, zone), (key, unit, zone))
                for name, _ in self.counts.subs:
                    if name.split(".", 1)[1] == ns:
                        rows = answers.breakdown_rows(self.counts, subs[name, stored], answers.ROWS)
                        got = self.ask("breakdown", ns=name, key=key, from_=0, to=FAR, limit=len(rows))
                        self.assertEqual([{"key": r["key"], "n": r["n"]} for r in got["rows"]], rows, (name, key))

    def check_archive(self, shards):
        current = os.path.join(self.data, "archive", "current")
        self.counts.rollups = functools.cache(self.counts.rollups)
        for shard in range(shards):
            expected = b"".join(line + b"\n" for line in sorted(self.counts.archive(shards, shard, True)))
            got = harness.read_file(os.path.join(current, "shard-%d-of-%d.csv" % (shard, shards)))
            self.assertTrue(got == expected, "shard %d of %d differs" % (shard, shards))

    def lines(self):
        files = harness.real_files()[:None if FULL else 2]
        print("ran on: %s" % ("%d files of real clicks" % len(files) if files else "generated events"), flush=True)
        if not files:
            files = [answers.generate(self.path("events.ndjson"))]
        # As the oracle reads a file: a last line without LF is a line, an empty one is none.
        return [line for f in files for line in harness.read_file(f).split(b"\n") if line]

    def test_before_between_and_after_compactions(self):
        lines = self.lines()
        third = len(lines) // 3 + 1
        self.put(lines[:third])
        self.check()
        self.compact()
        self.put(lines[third:2 * third])
        self.check()
        self.compact()
        self.put(lines[2 * third:])
        self.compact()
        self.check()
        self.check_archive(1)
        if FULL:
            self.compact("--shards=4")
            self.check_archive(4)
        self.pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
