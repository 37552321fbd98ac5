"""Random programs of posts, kills, seals, compactions, removals and changes of shards and counters: after each step, the sets of sortdb
and of the aggregator (members=1, after=) unite to the sets of a model, the api's answers about random sets have the model's sizes, and
--verify finds nothing."""
# full: MILLRACE_ROUNDS=1000
# seconds: 25
# parts: 2
import base64
import collections
import os
import struct
import subprocess
import sys
import time
import urllib.parse

import harness
import test_aggregator
from test_unique_counts import COUNTERS, MIDNIGHT, Model, code, hour_text, random_line, read_chunk, short

STEPS = 6
PROGRAMS_EACH = 125  # more programs run in several processes beside each other
SOME = 0.25  # of the keys, whose members are asked after each step; the end of a program asks for all members
DAY = 86400
SPACES = {"v.u": "day", "w.u": "hour", "v.all": "day", "v.h": "hour"}
OPTIONAL = "[unique v.h]\nmember = v\nby = hour\n"
DATES = ["2031-12-31", "2032-01-01", "2032-01-02"]
MEMBERS = ["visitor-3", "0", "7", "4294967295", "t.co", "direct", "007", "None", "h1", "a"]


class SetsModel(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()

    def begin(self, name):
        self.name, self.shards = name, self.random.randrange(1, 5)
        self.pubsub, self.model, self.archived = test_aggregator.Pubsub(self), Model(), collections.defaultdict(set)
        self.hours_from, self.has_optional, self.log, self.port = "", True, [], self.keep_port()
        self.config = self.write(name + ".conf", COUNTERS)
        self.aggregator = self.launch()
        self.compactor("--init", "--shards=%d" % self.shards, daemons=False)
        self.sortdb = self.daemon("sortdb", "--archive", self.path(name, "archive")).wait_ready()
        self.reads_archive = self.random.random() < 0.5
        source = "--archive=" + self.path(name, "archive") if self.reads_archive else "--sortdb-url=" + self.sortdb.url
        self.api = self.daemon("api", "--config", self.config, "--aggregator-url", self.aggregator.url, source).wait_ready()

    def launch(self):
        return self.daemon("aggregator", "--config", self.config, "--data-dir", self.path(self.name, "data"), "--pubsub-url", self.pubsub.url,
                           "--archive", self.path(self.name, "archive"), "--flush-interval=20ms", "--port", self.port,
                           port=False).wait_ready(harness.LONG)

    def compactor_args(self, *args, daemons=True, sortdb=True):
        return ["--archive=" + self.path(self.name, "archive"), "--slices=" + self.path(self.name, "data", "slices"),
                "--aggregator-url=" + (self.aggregator.url if daemons else "none"),
                "--sortdb-url=" + (self.sortdb.url if daemons and sortdb else "none"), *args]

    def compactor(self, *args, expect=0, **kw):
        done = self.run_program("compactor", *self.compactor_args(*args, **kw))
        self.assertEqual(done.returncode, expect, (self.log, args, done.stderr.decode()))
        return done

    def wait_counted(self):
        harness.wait_until(lambda: int(self.aggregator.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data), "all to be counted",
                           timeout=harness.LONG)

    # Steps.

    def post(self):
        lines = [random_line(self.random, i) for i in range(self.random.choice([1, 20, 200]))]
        for line in lines:
            self.model.add(line, () if self.has_optional else ("v.h",))
        self.pubsub.publish(lines)

    def kill(self):
        self.aggregator.kill9()
        self.aggregator = self.launch()

    def seal(self):
        self.wait_counted()
        n = self.aggregator.get("/slices").json()["open"]
        self.assertEqual(self.aggregator.post("/seal?slice=%d" % n).status, 200)
        self.model.seal()

    def merged(self):
        """What a complete run does to the model."""
        self.model.seal()
        for sets in self.model.slices:
            for key, members in sets.items():
                self.archived[self.folded(key)] |= members
        self.model.slices = []
        self.make_days()

    def folded(self, key):
        """The key of the archive: before hours_from, the day of an hour."""
        return key[:-1] if self.is_hour(key) and key.rpartition(".")[2][:-1] < self.hours_from else key

    def by(self, key):
        return SPACES[key.partition("|")[0]]

    def make_days(self):
        """A day of a counter by hour has a set once two of its hours have sets, and keeps it."""
        hours = collections.defaultdict(list)
        for key in self.archived:
            if self.is_hour(key):
                hours[key[:-1]].append(key)
        for day, parts in hours.items():
            if len(parts) > 1 or day in self.archived:
                self.archived[day] = set(self.archived.get(day, ())).union(*(self.archived[p] for p in parts))

    def is_hour(self, key):
        period = key.rpartition(".")[2]
        return len(period) - (period[0] in "wxyz") == 4

    def compact(self):
        self.wait_counted()
        sortdb = self.random.random() < 0.5
        shards = []
        if self.random.random() < 0.3:
            self.shards = self.random.randrange(1, 5)
            shards = ["--shards=%d" % self.shards]
        self.compactor(*shards, sortdb=sortdb)
        self.merged()
        self.compactor("--verify", daemons=False)
        self.assertEqual(self.sortdb.post("/reload").status, 200)

    def kill_compactor(self):
        self.wait_counted()
        with subprocess.Popen([harness.program("compactor"), *self.compactor_args()], stderr=subprocess.DEVNULL) as run:
            time.sleep(self.random.choice([0, 0.005, 0.02, 0.05]))
            run.kill()
        self.compact()

    def forget_member(self):
        text = self.random.choice(MEMBERS)
        self.removal("--forget=" + text)
        self.archived = collections.defaultdict(set, {k: m - {code(text)} for k, m in self.archived.items()
                                                      if k.partition("|")[2].rpartition(".")[0] != text})
        self.drop_empty()

    def forget_of_counter(self):
        text, ns = self.random.choice(MEMBERS), self.random.choice(list(SPACES))
        if not any(k.startswith(ns + "|") for k in self.archived) and not self.model.sets and not self.model.slices:
            return
        self.removal("--forget-sub=%s|%s" % (ns, text))
        for key, members in self.archived.items():
            if key.startswith(ns + "|"):
                members.discard(code(text))
        self.drop_empty()

    def forget_key(self):
        self.removal("--forget=u|a")
        for key in [k for k in self.archived if k.startswith(("v.u|a.", "w.u|a."))]:
            del self.archived[key]

    def removal(self, option):
        self.wait_counted()
        self.compactor(option)
        self.merged()

    def import_sets(self):
        """Sets as text, of hours and days, which unite with those of the pipeline."""
        self.wait_counted()
        lines = []
        for _ in range(self.random.randrange(1, 20)):
            ns, key = self.random.choice(list(SPACES)), self.random.choice(["a", "a!x", "imported", "(other)"])
            period = hour_text(MIDNIGHT + self.random.randrange(-30, 30) * 3600)
            name = "%s|%s.%s" % (ns, key, period if SPACES[ns] == "hour" else period[:-1])
            members = {code(self.random.choice(MEMBERS)) for _ in range(self.random.randrange(1, 4))}
            lines.append("%s,%s\n" % (name, short(members)))
            self.archived[self.folded(name)] |= members
        self.compactor("--again", "--import", self.write("sets", "".join(lines)))
        self.merged()

    def drop_empty(self):
        for key in [k for k, members in self.archived.items() if not members]:
            del self.archived[key]

    def drop_hours(self):
        self.wait_counted()
        date = self.random.choice(DATES)
        self.compactor("--drop-hours-before=" + date)
        self.hours_from = max(self.hours_from, hour_text(MIDNIGHT + (int(date[-2:]) - (32 if date < "2032" else 1)) * 86400)[:-1])
        self.merged()
        old, self.archived = self.archived, collections.defaultdict(set)
        for key, members in old.items():
            self.archived[self.folded(key)] |= members

    def change_counters(self):
        self.wait_counted()
        self.aggregator.stop()
        self.has_optional = not self.has_optional
        self.write(self.name + ".conf", COUNTERS if self.has_optional else COUNTERS.replace(OPTIONAL, ""))
        self.model.seal()
        self.aggregator = self.launch()

    # The check.

    def lines(self, d, target, **params):
        lines, start = [], params.pop("start", None)
        while True:
            r = d.get(target + "?" + harness.query(start=start, **params))
            if r.status == 404:
                return lines, r
            self.assertEqual(r.status, 200, r)
            lines += r.text.splitlines()
            if r.header("X-Millrace-Next") is None:
                return lines, r
            start = urllib.parse.unquote_to_bytes(r.header("X-Millrace-Next"))

    def sets_of(self, lines):
        out = collections.defaultdict(set)
        for line in lines:
            key, value = line.split(",", 1)
            if value[0] == "=":
                out[key] |= {int(w[1:], 16) if w[0] == "~" else int(w) for w in value[1:].split(" ")}
                continue
            self.assertEqual(value[0], "@", line[:80])
            for word in value[1:].split(" "):
                out[key] |= set(read_chunk(word))
        return out

    def check(self, share=1):
        """Asks all keys of the archive for their sizes, `share` of them for their members, and SOME in each other way."""
        self.wait_counted()
        total, left_out = collections.defaultdict(set), set()
        for ns, by in SPACES.items():
            expected = self.expected_archive(ns)
            lines, reply = self.lines(self.sortdb, "/fwmatch", key=ns + "|")
            self.assertEqual(dict(line.split(",", 1) for line in lines), {k: short(m) for k, m in expected.items()}, self.log)
            self.assertEqual([line.split(",", 1)[0] for line in lines], sorted(expected, key=lambda k: k + ","))
            through = int(reply.header("X-Millrace-Through"))
            for key in sorted({k[:k.rindex(".")] for k in expected}):
                chosen = self.random.random()
                if chosen >= share:
                    left_out.add(key)
                    continue
                lines, _ = self.lines(self.sortdb, "/range", start=key + ".0110", end=key + ".zvcvn", rollups=by, members=1, max_bytes=self.random.choice([600, 9000]))
                for k, members in self.sets_of(lines).items():
                    self.assertEqual(members, expected[k], (k, self.log))
                    total[k] |= members
                if chosen < SOME:
                    self.check_short(key, expected, sorted({line.split(",")[0] for line in lines}), by)
            lines, _ = self.lines(self.aggregator, "/fwmatch", key=ns + "|", after=through, members=1)
            for k, members in self.sets_of(lines).items():
                total[self.folded(k)] |= members
        truth = collections.defaultdict(set)
        for sets in [self.archived, *self.model.slices, self.model.sets]:
            for key, members in sets.items():
                if self.is_leaf(key):
                    truth[self.folded(key)] |= members
        asked = lambda sets: {k: m for k, m in sets.items() if self.is_leaf(k) and k[:k.rindex(".")] not in left_out}
        self.assertEqual(asked(total), asked(truth), self.log)
        self.check_question()

    def members_of(self, ns, key, first, days):
        """The members of a set in some days, whether they are in the archive, in slices or in memory."""
        periods = {"%s|%s.%s" % (ns, key, hour_text(MIDNIGHT + (first + i) * DAY)[:-1]) for i in range(days)}
        return set().union(*(members for sets in [self.archived, *self.model.slices, self.model.sets] for k, members in sets.items()
                             if (k[:-1] if self.is_hour(k) else k) in periods))

    def check_question(self):
        """Asks the api for the members that are in all, in any and in none of random sets."""
        params, groups = [], {"all": [], "any": [], "not": []}
        counters = self.random.choice([["v.u", "v.all"], ["w.u"]])  # of the same members
        for role in ["any", *self.random.choices(list(groups), k=self.random.randrange(3))]:
            ns, first, days = self.random.choice(counters), self.random.randrange(-2, 2), self.random.randrange(1, 4)
            key = "all" if ns == "v.all" else self.random.choice(["a", "a!x", "a-", "imported"])
            from_ = MIDNIGHT + first * DAY
            params.append((role, "%d..%d@%s:%s" % (from_, from_ + days * DAY, ns, key)))
            groups[role].append(self.members_of(ns, key, first, days))
        expected = set.intersection(set().union(*groups["any"]), *groups["all"]) - set().union(*groups["not"])
        if self.reads_archive:
            self.assertEqual(self.api.post("/reload").status, 200)
        reply = self.api.get("/v1/cohort?" + urllib.parse.urlencode(params))
        self.assertEqual(reply.status, 200, (params, reply.body, self.log))
        self.assertEqual(reply.json()["n"], len(expected), (params, self.log))

    def check_short(self, key, expected, found, by):
        """Without members=1, the same sets have their short texts."""
        lines, _ = self.lines(self.sortdb, "/range", start=key + ".0110", end=key + ".zvcvn", rollups=by)
        self.assertEqual(sorted(lines), sorted("%s,%s" % (k, short(expected[k])) for k in found))
        one = self.random.choice([k for k in expected if k.startswith(key + ".")])
        self.assertEqual(self.sortdb.get("/get?" + harness.query(key=one)).text, short(expected[one]) + "\n")
        reply = self.sortdb.get("/mget?" + harness.query(k=one) + "&" + harness.query(k=found[0]))
        self.assertEqual(reply.text, "".join("%s,%s\n" % (k, short(expected[k])) for k in (one, found[0])))
        lines, _ = self.lines(self.sortdb, "/range", start=key + ".0110", end=key + ".zvcvn", rollups="month", members=1)
        self.assertEqual(set().union(*self.sets_of(lines).values()), set().union(*(expected[k] for k in expected if k.startswith(key + "."))))

    def is_leaf(self, key):
        """A day of a counter by hour is a leaf only before hours_from."""
        return self.by(key) == "day" or self.is_hour(key) or key.rpartition(".")[2] < self.hours_from

    def expected_archive(self, ns):
        out = {k: m for k, m in self.archived.items() if k.startswith(ns + "|")}
        months = collections.defaultdict(dict)
        for key in out:
            day = key[:-1] if self.is_hour(key) else key
            months[day[:-1]].setdefault(day, set()).update(out[key])
        out.update({month: set().union(*days.values()) for month, days in months.items() if len(days) > 1})
        return out

    def test_any_program(self):
        self.run_programs(harness.rounds(24) // 2)

    def test_any_program_too(self):
        """The other half of the programs, which is another part."""
        self.run_programs(harness.rounds(24) // 2)

    def run_programs(self, programs):
        if programs > PROGRAMS_EACH:
            harness.run_side_by_side("SetsModel.test_any_program", self.random, programs, PROGRAMS_EACH, part=2)
            return
        acts = [self.post] * 5 + [self.compact] * 4 + [self.kill, self.seal, self.kill_compactor, self.forget_member, self.forget_of_counter,
                                                      self.forget_key, self.drop_hours, self.change_counters, self.import_sets]
        for i in range(programs):
            self.begin("p%d" % i)
            self.post()
            for act in [self.random.choice(acts) for _ in range(STEPS)]:
                self.log.append(act.__name__)
                act()
                if act not in (self.post, self.kill):
                    self.check(SOME)
            self.compact()
            self.check()
            self.api.stop()
            self.aggregator.stop()
            self.sortdb.stop()
            self.pubsub.close()
            if i % 25 == 24:
                print("%d programs" % (i + 1), file=sys.stderr, flush=True)

    def test_a_record_of_another_kind_is_refused(self):
        self.begin("p")
        self.post()
        self.change_counters()
        self.post()
        self.compact()
        for line, why in (("c.u|a.w0111,=1", "a set, but the archive has a subtotal"), ("v.u|a.w0111,JP:1", "counts, but the archive has a unique"),
                          ("v.h|a.w0111,JP:1", "counts, but the archive has a unique"), ("v.u|a.w01,=1", "the set of a month")):
            path = self.write("wrong", "v.u|b.w011,=1\n" + line + "\n")
            log = self.compactor("--import", path, expect=78).stderr.decode()
            self.assertIn("%s:2: %s" % (path, why), log)
        for days in ("v.h|a.w011,=1\n", "v.h|a.w011,=1\nv.h|a.w0120,=1\n", "v.h|z.w011,=1\nv.h|zz.w0110,=1\n"):
            log = self.compactor("--import", self.write("days", days), expect=1).stderr.decode()
            self.assertRegex(log, r"v.h\|[az].w011: a day without its hours")
        self.check()
        self.archived["v.h|y.w0110"] |= {1, 2}
        self.archived["v.h|y.w011"] |= {1, 2, 3}
        self.compactor("--import", self.write("days", "v.h|y.w011,=1 2 3\nv.h|y.w0110,=1 2\n"))
        self.merged()
        self.check()


    def test_an_answer_ends_inside_a_set(self):
        """Chosen members: numbers of three chunks, and 20,000 hashes with one id, which are in chunks of 8,192."""
        self.begin("p")
        numbers = [struct.pack("<HH", 1, 2) for _ in range(3)]
        hashes = [0x1234 << 48 | 7 * i for i in range(20000)]
        words = ["%06x" % i + base64.b64encode(chunk).decode().rstrip("=") for i, chunk in enumerate(numbers)]
        for first in range(0, 20000, 5000):
            chunk = struct.pack("<5000Q", *hashes[first:first + 5000])
            words.append("011234" + base64.b64encode(chunk).decode().rstrip("="))
        expected = {i << 16 | low for i in range(3) for low in (1, 2)} | set(hashes)
        self.compactor("--import", self.write("sets", "v.u|aa.c41,@%s\nv.u|aa.c42,=1\n" % " ".join(words)))
        self.assertEqual(self.sortdb.post("/reload").status, 200)
        got, places, start, size = collections.defaultdict(set), [], "v.u|aa.0110", 0
        while start:
            reply = self.sortdb.get("/range?" + harness.query(start=start, end="v.u|aa.zvcvn", rollups="day", members=1, max_bytes=1))
            self.assertEqual(reply.status, 200, reply)
            for key, members in self.sets_of(reply.text.splitlines()).items():
                self.assertTrue(members.isdisjoint(got[key]))
                got[key] |= members
            start, size = reply.header("X-Millrace-Next"), max(size, len(reply.body))
            start = start and urllib.parse.unquote(start)
            places.append(start)
        self.assertEqual(got, {"v.u|aa.c41": expected, "v.u|aa.c42": {1}})
        inside = ["000001", "000002"] + ["01%016x" % hashes[i] for i in (0, 8192, 16384)]
        self.assertEqual(places, ["v.u|aa.c41," + place for place in inside] + ["v.u|aa.c42", None])
        self.assertLess(size, 8192 * 8 * 4 // 3 + 100)

    def members(self, key):
        return self.sortdb.get("/range?" + harness.query(start=key + ".0110", end=key + ".zvcvn", rollups="day", members=1))

    def test_a_damaged_or_truncated_set_is_named(self):
        """Other sets, and all sizes, are still served."""
        self.begin("p")
        lines = "".join("v.u|%s.c41,%s\n" % (key, "@000000AAABAAIAAwA") for key in ("aa", "bb"))
        self.shards = 1
        self.compactor("--shards=1", "--import", self.write("sets", lines), daemons=False)
        path = self.path("p", "archive", "current", "shard-0-of-1.sets")
        place = harness.read_file(path).index(b"v.u|aa.c41") + 32
        self.sortdb.stop()
        harness.flip(path, place)
        self.sortdb = self.daemon("sortdb", "--archive", self.path("p", "archive")).wait_ready()
        for _ in range(2):
            reply = self.members("v.u|aa")
            self.assertEqual(reply.status, 503)
            self.assertRegex(reply.text, r"shard-0-of-1.sets: damaged: set 1 of 2 .*v.u\|aa.c41")
            self.assertEqual(self.members("v.u|bb").status, 200)
            self.assertEqual(self.sortdb.get("/get?" + harness.query(key="v.u|aa.c41")).text, "#4\n")
        harness.wait_until(lambda: b"a set in the file beside this file is damaged" in self.sortdb.get("/health").body, "the damage to be told")
        self.sortdb.stop()
        harness.flip(path, place)
        self.sortdb = self.daemon("sortdb", "--archive", self.path("p", "archive")).wait_ready()
        self.assertEqual(self.members("v.u|aa").status, 200)
        os.truncate(path, os.path.getsize(path) - 8)
        self.assertEqual(self.members("v.u|aa").status, 503)
        self.assertTrue(self.sortdb.alive())


if __name__ == "__main__":
    harness.main()
