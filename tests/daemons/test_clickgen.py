"""clickgen: the same bytes everywhere, the fields of the real feed, and the shares that were asked for."""
import collections
import hashlib
import json
import os
import subprocess
import unittest

import harness

FIELDS = {"a", "c", "nk", "tz", "gr", "g", "h", "l", "al", "hh", "r", "u", "t", "hc", "kw", "cy", "ll"}
CONFIG = os.path.join(harness.ROOT, "etc", "clicks.conf")
START, SPAN = 1360281600, 7 * 86400
KNOWN = ["--events=2000", "--seed=7", "--heartbeats=0.03", "--damaged=0.05", "--hostile=0.1"]
# sha256sum of `clickgen` with those arguments. It must not change with machine, compiler or build type; whoever
# changes what clickgen makes prints it anew, and the answers under tests/expected with it.
KNOWN_SHA256 = "8b145691ed166096603b85fdc4e3f42c73a08b948586a6a86041743305a86114"


class Clickgen(harness.MillraceTest):
    def lines(self, *args):
        done = self.run_program("clickgen", *args)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertTrue(done.stdout.endswith(b"\n") or not done.stdout)
        return done.stdout.split(b"\n")[:-1]

    def events(self, *args):
        return [json.loads(line) for line in self.lines("--heartbeats=0", *args)]

    def refused(self, word, *args):
        done = self.run_program("clickgen", *args)
        self.assertEqual((done.returncode, done.stdout), (64, b""), args)
        self.assertIn(word, done.stderr)

    def test_bytes_are_the_known_ones(self):
        digest = hashlib.sha256(self.run_program("clickgen", *KNOWN).stdout).hexdigest()
        self.assertEqual(digest, KNOWN_SHA256)

    def test_seed_decides(self):
        one = self.lines("--events=500", "--seed=1", "--hostile=0.1")
        self.assertEqual(one, self.lines("--events=500", "--seed=1", "--hostile=0.1"))
        self.assertNotEqual(one, self.lines("--events=500", "--seed=2", "--hostile=0.1"))

    def test_number_of_lines(self):
        for n in (0, 1, 777):
            self.assertEqual(len(self.lines("--events=%d" % n, "--damaged=0.2")), n)

    def test_lines_look_like_the_feed(self):
        raw = self.lines("--events=5000", "--heartbeats=0")
        self.assertTrue(350 < sorted(map(len, raw))[2500] < 550)
        self.assertIn(b"http:\\/\\/", raw[0])
        seen = set()
        for line in raw:
            event = json.loads(line)
            seen |= event.keys()
            self.assertLessEqual(event.keys(), FIELDS)
            self.assertTrue({"a", "c", "nk", "tz", "g", "h", "l", "hh", "r", "u", "t", "hc"} <= event.keys())
            self.assertTrue(event["u"].startswith("http://"))
            self.assertEqual(event["c"] is None, "ll" not in event)
            self.assertLess(event["hc"], event["t"])
        self.assertEqual(seen, FIELDS)

    def test_times_stay_within_the_span(self):
        times = [e["t"] for e in self.events("--events=3000", "--start=%d" % START, "--span=7d")]
        self.assertTrue(START <= min(times) and max(times) < START + SPAN)
        self.assertGreater(max(times) - min(times), SPAN * 0.99)
        self.assertLess(max(b - a for a, b in zip(times, times[1:])), 3600)
        self.assertGreaterEqual(min(b - a for a, b in zip(times, times[1:])), -5)
        times = [e["t"] for e in self.events("--events=100", "--start=%d" % START, "--end=%d" % (START + 1))]
        self.assertEqual(set(times), {START})

    def test_day_has_a_rhythm(self):
        hours = collections.Counter(e["t"] // 3600 % 24 for e in self.events("--events=20000"))
        self.assertGreater(hours[14], 3 * hours[3])

    def test_distributions_are_zipf(self):
        events = self.events("--events=20000", "--links=1000", "--zipf=1", "--users=100", "--countries=40", "--referrers=50")
        links = collections.Counter(e["h"] for e in events).most_common()
        self.assertTrue(1.6 < links[0][1] / links[1][1] < 2.5, links[:3])
        self.assertTrue(7 < links[0][1] / links[9][1] < 14, links[:10])
        self.assertTrue(900 < len(links) <= 1000)
        for field, most in (("l", 100), ("r", 50), ("c", 41)):
            self.assertTrue(most * 0.4 < len({e[field] for e in events}) <= most, field)
        owners = collections.defaultdict(set)
        for e in events:
            owners[e["h"]].add((e["l"], e["u"], e["hc"]))
        self.assertEqual({len(o) for o in owners.values()}, {1})
        flat = collections.Counter(e["h"] for e in self.events("--events=15000", "--links=10", "--zipf=0"))
        self.assertLess(max(flat.values()) / min(flat.values()), 1.2)

    def test_heartbeats(self):
        beats = [line for line in self.lines("--events=20000", "--heartbeats=0.1") if b'"_heartbeat_"' in line]
        self.assertTrue(1800 < len(beats) < 2200)
        self.assertEqual(json.loads(beats[0]).keys(), {"_heartbeat_"})
        self.assertEqual(len([1 for line in self.lines("--events=50", "--heartbeats=1") if b"_heartbeat_" in line]), 50)

    def test_every_damaged_line_is_rejected(self):
        with open(self.path("damaged"), "wb") as f:
            f.write(self.run_program("clickgen", "--events=20000", "--damaged=1", "--heartbeats=0").stdout)
        with open(self.path("damaged"), "rb") as f:
            done = self.run_program("count_lines", CONFIG, stdin=f)
        self.assertEqual(done.stderr, b"events 0 skipped 0 rejected 20000\n")

    def test_every_hostile_line_is_counted(self):
        with open(self.path("hostile"), "wb") as f:
            f.write(self.run_program("clickgen", "--events=20000", "--hostile=1", "--heartbeats=0").stdout)
        with open(self.path("hostile"), "rb") as f:
            done = self.run_program("count_lines", CONFIG, stdin=f)
        self.assertEqual(done.stderr, b"events 20000 skipped 0 rejected 0\n")

    def test_wrong_settings_are_refused(self):
        self.refused(b"share", "--damaged=1.5")
        self.refused(b"share", "--heartbeats=-1")
        self.refused(b"share", "--hostile=0.0000001")
        self.refused(b"more than 1", "--damaged=0.6", "--hostile=0.6")
        self.refused(b"zipf", "--zipf=3.5")
        self.refused(b"end", "--start=1360281600", "--end=1360281600")
        self.refused(b"users", "--users=0")
        self.refused(b"rate", "--rate=5")

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.program("clickgen"), "--events=10"], stdout=full,
                                  stderr=subprocess.PIPE, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 74)
        self.assertIn(b"cannot write", done.stderr)


if __name__ == "__main__":
    unittest.main()
