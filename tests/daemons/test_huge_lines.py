"""An hour with very many sub keys: exact answers, in parts of bounded size, through the aggregator, sortdb and the API."""
# full: MILLRACE_HUGE=1000000,5000000
import json
import os
import subprocess
import sys
import time
import unittest
import urllib.parse

import harness
from huge_case import Gets, HugeCase, HOUR, START, count_of, peak_memory, reset_peak, text_of, timed
from record_text import hour, stored
from sortdb_case import point_at, write_generation

KEY = "c.u|huge." + HOUR.decode()
MB = 1 << 20
FULL = [int(n) for n in os.environ.get("MILLRACE_HUGE", "").split(",") if n]
# Runs a program, and prints its largest memory in KiB. A process of its own, because a child begins with the memory of its parent.
PEAK = """
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


class HugeLines(HugeCase):
    valued = None, b""

    def expected(self):
        """The value of the long record."""
        known = self.all_of()
        if known is not self.valued[0]:
            self.valued = known, b" ".join(b"%s:%d" % (sub, n) for sub, n, _ in sorted(known))
        return self.valued[1]

    def pages(self, daemon, target, **params):
        """The lines of all pages."""
        lines, start, n = [], params.pop("start", None), 0
        while True:
            reply = daemon.get(target + "?" + harness.query(**params, **({"start": start} if start else {})))
            self.assertEqual(reply.status, 200, (target, start, reply))
            self.assertTrue(reply.body.endswith(b"\n"))
            self.assertLess(len(reply.body), max(int(params["max_bytes"]), 4096) + 4200)
            lines += reply.body.splitlines()
            n += 1
            start = reply.header("X-Millrace-Next")
            if start is None:
                return lines, n
            start = urllib.parse.unquote_to_bytes(start)

    def joined(self, lines):
        """Records whose lines came in parts, as one."""
        out = {}
        for line in lines:
            key, value = line.split(b",", 1)
            out[key] = out[key] + b" " + value if key in out else value
        return out

    def check_same(self, got, expected, what):
        """Without a comparison of long texts, which takes minutes."""
        self.assertEqual(list(got), list(expected), what)
        self.assertEqual([k for k in got if got[k] != expected[k]], [], what)

    def check_parts(self, daemon):
        whole = self.expected()
        for size in (4096, 300001) if self.subs > 30000 else (1, 20000):
            lines, n = self.pages(daemon, "/range", start=KEY, end=KEY, max_bytes=size)
            self.check_same(self.joined(lines), {KEY.encode(): whole}, size)
            self.assertGreaterEqual(n, len(whole) // max(size, 4200))
        # Every record, with a limit that is met before and after parts. Lookups are never cut.
        lines, _ = self.pages(daemon, "/fwmatch", key="", max_bytes=100000, limit=50000)
        everything = self.joined(lines)
        self.assertTrue(everything[KEY.encode()] == whole)
        self.assertEqual(everything[b"u|huge"], HOUR + b":%d" % sum(map(count_of, range(self.subs))))
        self.assertEqual(sum(k.startswith(b"lookup|") for k in everything), self.subs - (self.subs + 9) // 10)
        lines, _ = self.pages(daemon, "/range", start="c.u|a", end="c.u|z", max_bytes=50000, rollups=None)
        self.assertEqual([k for k in self.joined(lines)], sorted(k for k in everything if k.startswith(b"c.u|")))
        lines, _ = self.pages(daemon, "/range", start="c.u|huge.c3", end=KEY, max_bytes=50000, rollups="month")
        self.check_same(self.joined(lines), {KEY.encode(): whole}, "rollups")

    def check_places(self, daemon):
        """A continuation at any name: of a sub key, between two, before the first and after the last."""
        values = self.expected().split(b" ")
        names = [v.split(b":")[0] for v in values]
        for more in ({}, {"rollups": "day"}):
            for name, at in ((names[0], 0), (names[777], 777), (names[777] + b"!", 778), (b"!", 0), (names[-1], len(names) - 1)):
                reply = daemon.get("/range?" + harness.query(start=KEY.encode() + b"," + name, end=KEY, max_bytes=4096, **more))
                got = reply.body.rstrip(b"\n").split(b",")[1].split(b" ")
                self.assertEqual((reply.status, got), (200, values[at:at + len(got)]), (name, more))
                self.assertGreater(len(got), min(200, len(names) - at - 1))
            after = daemon.get("/range?" + harness.query(start=KEY + ",~", end=KEY, **more))
            self.assertEqual(after.body, b"")
        for i in (0, 7, 12345 % self.subs, self.subs - 1):
            subs = [stored(text_of(k).encode()) for k in (i, 7)] + [b"~none"]
            reply = daemon.get("/range?" + harness.query(start=KEY, end=KEY, rollups="hour") + "".join("&sub=" + urllib.parse.quote(s, safe="") for s in subs))
            wanted = sorted({(stored(text_of(k).encode()), count_of(k)) for k in (i, 7)})
            self.assertEqual(reply.body, KEY.encode() + b"," + b" ".join(b"%s:%d" % w for w in wanted) + b"\n")

    def check_breakdowns(self):
        for limit in (1, 6000):
            self.check_breakdown(limit)
        i = self.subs // 3
        rows = self.api.get("/v1/series?" + harness.query(user="huge", by="country", sub=text_of(i), unit="hour", from_=START, to=START + 3600))
        self.assertEqual([r["n"] for r in rows.json()["rows"]], [count_of(i)])

    def test_parts_of_a_long_line(self):
        """From runs, from memory, from the archive, and from archive and memory together."""
        self.count(30000, "max_answer = 200K", pieces=3, live=9000)
        self.serve()
        self.check_parts(self.aggregator)
        self.check_places(self.aggregator)
        self.check_breakdowns()
        self.assertEqual(self.aggregator.get("/get?key=" + urllib.parse.quote(KEY)).json()["code"], "answer-too-large")

    def test_a_hundred_thousand(self):
        self.count(100000, "flush_interval = 1h", pieces=2, live=80000)
        self.serve()
        for limit in (1, 6000) if FULL else (1,):  # 6000: the aggregator is asked for each text; see test_parts_of_a_long_line
            self.check_breakdown(limit)
        self.assertTrue(self.aggregator.get("/get?key=" + urllib.parse.quote(KEY)).body == self.expected() + b"\n")
        self.compact()
        self.check_breakdowns()
        self.assertTrue(self.sortdb.get("/get?key=" + urllib.parse.quote(KEY)).body == self.expected() + b"\n")
        self.check_parts(self.sortdb)
        self.check_places(self.sortdb)
        self.publish(90000, 110000)
        reply = self.breakdown(6000).json()
        self.assertEqual(reply["distinct"], 110000)
        more = {text_of(i): 1 + (i < 100000 and i >= 90000) for i in range(110000)} | {text_of(i): 3 for i in (7, 77, 777, 7777, 77777)}
        rows = sorted(more.items(), key=lambda r: (-r[1], r[0]))[:6000]
        self.assertEqual([(r["key"], r["n"]) for r in reply["rows"]], rows)
        self.assertEqual(reply["total"], sum(more.values()))

    def test_a_breakdown_that_needs_more_memory_is_refused(self):
        self.count(60000)
        self.serve("--max_buffered=4M", "--max_body=256K")
        reply = self.breakdown()
        self.assertEqual((reply.status, reply.json()["code"]), (413, "answer-too-large"))
        self.assertIn("sub=", reply.json()["hint"])
        i = self.subs // 3
        rows = self.api.get("/v1/series?" + harness.query(user="huge", by="country", sub=text_of(i), unit="hour", from_=START, to=START + 3600))
        self.assertEqual([r["n"] for r in rows.json()["rows"]], [count_of(i)])

    def test_parts_of_many_long_records(self):
        """Of several shards, with rollups, with any limit: together the parts are the answer without limits."""
        rng, records = harness.seeded(), {}
        for user in ("a", "b", "c", "huge"):
            for period in ("c3", "c3g", "c3gi", "c3gj", "c3h", "c3h0", "c3h1", "c4a2"):
                names = sorted(rng.sample(range(100000), rng.choice([1, 30, 900, 5000])))
                records["c.u|%s.%s" % (user, period)] = " ".join("p%05d:%d" % (n, rng.randrange(1, 99)) for n in names)
            records["u|" + user] = " ".join("%s:1" % hour(m, d, h).decode() for m in range(1, 13) for d in range(1, 28) for h in range(4))
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, [(k.encode(), v.encode()) for k, v in records.items()], 3)
        point_at(self.path("archive"), 1)
        sortdb = self.start("sortdb", "--archive=" + self.path("archive"))
        targets = [("/fwmatch", {"key": ""}), ("/range", {"start": "c.u|b", "end": "u|b"})]
        targets += [("/range", {"start": "c.u|%s.c3" % u, "end": "c.u|%s.c4a2" % u, "rollups": r})
                    for u in ("a", "huge") for r in ("month", "day", "hour")]
        for target, params in targets:
            whole = sortdb.get(target + "?" + harness.query(**params)).body.splitlines()
            for _ in range(8):
                limits = {"max_bytes": rng.choice([1, 5000, 20000, 70000, 400000]), "limit": rng.choice([None, 1, 2, 7])}
                lines, _ = self.pages(sortdb, target, **params, **limits)
                self.check_same(self.joined(lines), dict(line.split(b",", 1) for line in whole), (target, params, limits))

    def test_an_empty_sub_key_is_imported_and_answered(self):
        self.count(1)
        self.serve()
        text = "c.u|empty.%s,:5 JP:1\nu|empty,%s:6\n" % (HOUR.decode(), HOUR.decode())
        self.compact("--import", self.write("empty", text))
        reply = self.api.get("/v1/breakdown?" + harness.query(user="empty", by="country", from_=START, to=START + 3600)).json()
        self.assertEqual([(r["key"], r["n"]) for r in reply["rows"]], [("", 5), ("JP", 1)])

    def merge_memory(self, values, memory):
        """Bytes that a merge of a record of that many values, and the removal of a sub key from it, need beyond a merge into an empty
        archive."""
        self.run_checked("compactor", "--archive=" + self.path("archive"), "--init", "--shards=1")
        options = ["--archive=" + self.path("archive"), "--sortdb-url=none", "--aggregator-url=none"]

        def peak(*args):
            done = subprocess.run([sys.executable, "-c", PEAK, harness.program("compactor"), *options, *args], capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return int(done.stdout) << 10

        def add(name, text, *more):
            return peak(*more, "--import", self.write(name, text))
        small = add("small", "c.u|k.%s,JP:1\nu|k,%s:1\n" % (2 * (HOUR.decode(),)), "--memory=" + memory)
        line = "%s," % KEY + " ".join("p%010d:1" % i for i in range(values))
        add("long", line + "\nu|huge,%s:%d\n" % (HOUR.decode(), values))
        merged = add("more", "%s,p%010d:1\nu|huge,%s:1\n" % (KEY, values // 2, HOUR.decode()), "--memory=" + memory)
        with open(os.path.join(self.path("archive"), "current", "shard-0-of-1.csv")) as f:
            shard = f.read()
        self.assertIn(" p%010d:2 " % (values // 2), shard)
        self.assertEqual(shard.count(":1 ") + shard.count(":1\n"), values - 1 + 2)
        moved = peak("--forget-sub=c.u|p%010d" % (values // 2), "--memory=" + memory)
        with open(os.path.join(self.path("archive"), "current", "shard-0-of-1.csv")) as f:
            shard = f.read()
        self.assertNotIn("p%010d" % (values // 2), shard)
        self.assertIn(",(other):2 p%010d:1 " % 0, shard)
        return max(merged, moved) - small

    @unittest.skipIf(harness.SANITIZED, "keeps what is freed")
    def test_a_merge_does_not_hold_a_line(self):
        self.assertLess(self.merge_memory(1_000_000, "1M"), 4 * MB)

    @unittest.skipUnless(FULL, "long")
    def test_a_merge_of_a_hundred_megabytes(self):
        self.assertLess(self.merge_memory(7_500_000, "16M"), 20 * MB)

    @unittest.skipUnless(FULL, "long")
    def test_millions(self):
        """Memory, before compaction and after it, while others get records."""
        for subs in FULL:
            with self.subTest(subs=subs):
                self.check_millions(subs)
                for d in reversed(self.daemons):
                    d.stop()
                self.doCleanups()
                self.setUp()

    def check_millions(self, subs):
        self.count(subs, pieces=3, live=subs // 10)
        self.serve()
        self.check_bounds(self.aggregator, 0)
        self.compact()
        self.check_bounds(self.sortdb, 1)

    def check_bounds(self, source, after):
        daemons = {self.aggregator: "/mget?k=u%%7Cuser7&after=%d" % after, self.sortdb: "/mget?k=all",
                   self.api: "/v1/series?user=user7&unit=hour&from=%d&to=%d" % (START, START + 3600)}
        self.check_breakdown(10)
        for d in daemons:
            reset_peak(d)
        gets = {d: Gets(d, target) for d, target in daemons.items()}
        began = time.monotonic()
        took = min(timed(lambda: self.breakdown(5))[0] for _ in range(3))  # without ties at the limit
        end = time.monotonic()
        sub = min(timed(lambda: self.sub_of(source, i))[0] for i in range(7, self.subs, self.subs // 20))
        waits = {d.name: g.stop() for d, g in gets.items()}
        p95 = {name: times[len(times) * 95 // 100] for name, times in waits.items()}
        files = sum(e.stat().st_size for e in os.scandir(os.path.join(self.path("archive"), "current")))
        peaks = {d.name: peak_memory(d) // MB for d in daemons}
        print("%d: %.0f ms, sub= %.2f ms, gets %s, MB %s, archive %d MB" % (self.subs, took, sub, p95, peaks, files // MB), flush=True)
        for d, g in gets.items():
            self.assertGreater(g.within(began, end), 10, "each get from %s waited for a whole breakdown" % d.name)
        if not harness.SANITIZED:
            self.assertLess(peaks["aggregator"], 256 + 64)
            self.assertLess(peaks["sortdb"], files // MB + 64)  # the files are mapped
            self.assertLess(peaks["api"], 256 + 32)

    def sub_of(self, source, i):
        sub = stored(text_of(i).encode())
        reply = source.get("/range?" + harness.query(start=KEY, end=KEY, rollups="hour", sub=sub))
        self.assertEqual(reply.body, KEY.encode() + b",%s:%d\n" % (sub, count_of(i)))


class LongKeys(harness.MillraceTest):
    def test_keys_that_differ_after_64_kib(self):
        """max_text is the only bound of a key: compactions, --verify, an export and its import."""
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), harness.USERS_BY_COUNTRY + "[counters]\nmax_text = 200K\n"))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        keys = ["x" * 70000 + end + "y" * 50000 for end in "ab"]

        def compact(*args):
            done = self.run_program("millrace", "compact", "--config", config, *args)
            self.assertEqual(done.returncode, 0, done.stderr[-600:])
        for generation in (1, 2):
            for key in keys:
                reply = pipeline.ask("simplequeue", "POST", "/put", json.dumps({"t": 1332637200, "l": key, "c": key}).encode())
                self.assertEqual(reply.status, 200, reply)
            self.assertEqual(self.run_program("millrace", "status", "--wait", "--config", config).returncode, 0)
            compact()
            compact("--verify")
            with open(self.path("data", "archive", "current", "manifest.json")) as f:
                self.assertEqual(json.load(f)["generation"], generation)
        rows = pipeline.ask("api", "GET", "/v1/lookup?" + harness.query(ns="u", prefix="xxx")).json()["rows"]
        self.assertEqual([row["key"] for row in rows], keys)
        compact("--export", self.path("export.csv"))
        done = self.run_program("compactor", "--archive", self.path("copy"), "--aggregator-url=none", "--sortdb-url=none", "--import",
                                self.path("export.csv"))
        self.assertEqual(done.returncode, 0, done.stderr[-600:])
        pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
