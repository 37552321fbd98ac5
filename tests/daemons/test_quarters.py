"""Random programs of posts, kills, seals, compactions, changes of shards and one switch to resolution = 15m: after each, the archive
equals a model, values and rollups included, and --verify finds nothing."""
# full: MILLRACE_ROUNDS=300
import collections
import datetime
import json
import os
import time
from decimal import Decimal

import harness
import test_aggregator
from record_text import DIGITS, stored

COUNTERS = """
[input]
time = t
max_ahead = 0
%s
[total u]
key = l
[subtotal c.u]
key = c
[total r]
key = l
value = p
scale = 2
[subtotal c.r]
key = c
[unique v.u]
member = v
by = hour
%s"""
QUARTERS = ("resolution = 15m\n", "[unique q.u]\nmember = v\nby = quarter\n")
MIDNIGHT = 1956528000  # 2032-01-01, from where periods have one more character
STEPS = 7
PART, HOUR, DAY = 900, 3600, 86400


def period(t, quarter):
    d = datetime.datetime.fromtimestamp(t, datetime.timezone.utc)
    year = d.year - 2000
    text = ("w" if year >= 32 else "") + "".join(DIGITS[n] for n in (year % 32, d.month, d.day, d.hour))
    return text + (DIGITS[t % HOUR // PART] if quarter else "")


class Model:
    """Each count or sum by (total, key, period, sub key); the archive's lines follow from them."""

    def __init__(self):
        self.counts, self.sets, self.since = collections.Counter(), collections.defaultdict(set), None
        self.hours_from = 0  # without hours and quarter hours before
        self.running = None  # a later time from which the running aggregator counts by quarter hour

    def add(self, event):
        quarter = self.since is not None and event["t"] >= (self.running or self.since)
        is_first = not quarter and self.since is not None and event["t"] >= self.since
        user, country = (stored(event[k].encode()).decode() if isinstance(event[k], str) else "None" for k in "lc")
        for ns, n in (("u", 1), ("r", cents(event))):
            if n is not None:
                self.counts[ns, user, period(event["t"], quarter) + ("0" if is_first else ""), country] += n
        self.sets["v.u", user, period(event["t"], False)].add(event["v"])
        if self.since is not None:
            self.sets["q.u", user, period(event["t"], quarter) + ("0" if is_first else "")].add(event["v"])

    def forget(self, user):
        self.counts = collections.Counter({k: n for k, n in self.counts.items() if k[1] != user})
        self.sets = collections.defaultdict(set, {k: members for k, members in self.sets.items() if k[1] != user})

    def kept(self, p):
        """The period of a subtotal's or a set's record."""
        day = 3 + (p[0] == "w")
        return p[:day] if p[:day] < period(self.hours_from, False)[:-1] else p

    def newest_hour(self, events):
        return max((e["t"] - e["t"] % HOUR for e in events), default=None)

    def lines(self):
        totals, subs, parts = (collections.defaultdict(collections.Counter) for _ in range(3))
        for (ns, user, p, country), n in self.counts.items():
            totals["%s|%s" % (ns, user)][p] += n
            subs["c.%s|%s" % (ns, user), self.kept(p)][country] += n
        sums = collections.defaultdict(collections.Counter)
        for (key, p), names in subs.items():
            while True:
                sums[key, p].update(names)
                if len(p) - (p[0] == "w") == 2:
                    break
                parts[key, p[:-1]][p] += 1
                p = p[:-1]
        out = ["%s,%s" % (key, " ".join("%s:%d" % c for c in sorted(hours.items()))) for key, hours in totals.items()]
        for (key, p), names in sums.items():
            if (key, p) in subs or len(parts[key, p]) > 1:
                out.append("%s.%s,%s" % (key, p, " ".join("%s:%d" % c for c in sorted(names.items()))))
        return sorted(out)

    def set_lines(self):
        sums, parts, whole = (collections.defaultdict(set) for _ in range(3))
        for (ns, user, p), members in self.sets.items():
            whole[ns, user, self.kept(p)] |= members
        for (ns, user, p), members in whole.items():
            while True:
                sums[ns, user, p] |= members
                if len(p) - (p[0] == "w") == 2:
                    break
                parts[ns, user, p[:-1]].add(p)
                p = p[:-1]
        return sorted("%s|%s.%s,%s" % (*k, short(m)) for k, m in sums.items() if k in whole or len(parts[k]) > 1)


def cents(event):
    """The value of an event times 100, or None."""
    return event.get("p") and int(Decimal(event["p"]) * 100)


def short(members):
    return "#%d" % len(members) if len(members) > 3 else "=" + " ".join(str(m) for m in sorted(members))


class Programs(harness.MillraceTest):
    """A pipeline of which a test takes random steps, with its model."""

    times = (MIDNIGHT,)

    def setUp(self):
        super().setUp()
        self.random = harness.seeded()

    def begin(self, name, quarters=None):
        self.name, self.log, self.shards, self.events = name, [], self.random.randrange(1, 5), []
        self.model, self.pubsub = Model(), test_aggregator.Pubsub(self)
        self.configure(self.random.random() < 0.3 if quarters is None else quarters)
        self.aggregator = self.launch()
        self.compactor("--init", "--shards=%d" % self.shards)

    def configure(self, quarters):
        if quarters:
            newest = self.model.newest_hour(self.events)
            self.model.since = 0 if newest is None else newest + HOUR
        self.config = self.write(self.name + ".conf", COUNTERS % (QUARTERS if quarters else ("", "")))

    def launch(self):
        return self.daemon("aggregator", "--config", self.config, "--data-dir", self.path(self.name, "data"), "--pubsub-url", self.pubsub.url,
                           "--archive", self.path(self.name, "archive"), "--flush-interval=20ms").wait_ready(harness.LONG)

    def compactor(self, *args, expect=0):
        url = self.aggregator.url if not args or args[0].startswith("--shards") else "none"
        done = self.run_program("compactor", "--archive=" + self.path(self.name, "archive"), "--slices=" + self.path(self.name, "data", "slices"),
                                "--aggregator-url=" + url, "--sortdb-url=none", *args)
        self.assertEqual(done.returncode, expect, (self.log, args, done.stderr.decode()))
        return done

    def wait_counted(self):
        harness.wait_until(lambda: int(self.aggregator.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data), "all to be counted",
                           timeout=harness.LONG)

    # Steps.

    def post(self):
        around = self.random.choice(self.times) + self.random.choice([-1, 0, 0, 1, 2]) * DAY // 2
        events = [{"t": around + self.random.choice([self.random.randrange(DAY), self.random.randrange(3 * HOUR)]),
                   "l": self.random.choice(["a", "a!x", "a-", "twelve_bytes"]), "c": self.random.choice(["JP", "US", None]),
                   "v": self.random.randrange(6), "p": self.random.choice([None, "0.00", "7.25", "-7.25", "%d.%02d" % (around % 1000, around % 97)])}
                  for _ in range(self.random.choice([1, 5, 60]))]
        self.publish(events)

    def publish(self, events):
        for event in events:
            self.model.add(event)
        self.events += events
        self.pubsub.publish([json.dumps(e).encode() for e in events])

    def kill(self):
        self.aggregator.kill9()
        self.aggregator = self.launch()

    def seal(self):
        self.wait_counted()
        self.assertEqual(self.aggregator.post("/seal?slice=%d" % self.aggregator.get("/slices").json()["open"]).status, 200)

    def switch(self):
        self.wait_counted()
        self.aggregator.stop()
        if self.model.since is None:
            self.configure(True)
        self.aggregator = self.launch()

    def compact(self):
        self.wait_counted()
        shards = []
        if self.random.random() < 0.3:
            self.shards = self.random.randrange(1, 5)
            shards = ["--shards=%d" % self.shards]
        self.compactor(*shards)
        self.check()

    def drop_hours(self):
        day = MIDNIGHT + self.random.choice([-1, 0, 1]) * DAY
        self.compact()
        self.model.hours_from = max(self.model.hours_from, day)
        self.compactor("--drop-hours-before=" + time.strftime("%Y-%m-%d", time.gmtime(day)))
        self.check()

    def forget(self):
        user = self.random.choice(["a", "a!x", "twelve_bytes"])
        self.wait_counted()
        self.compactor()
        self.compactor("--forget=" + user)
        self.model.forget(stored(user.encode()).decode())
        self.check()

    def check(self):
        current = self.path(self.name, "archive", "current")
        for kind, expected in (("shard", self.model.lines()), ("sets", self.model.set_lines())):
            lines = []
            for name in os.listdir(current):
                if name.startswith(kind + "-") and name.endswith(".csv"):
                    lines += harness.read_file(os.path.join(current, name)).decode().splitlines()
            self.assertEqual(sorted(line for line in lines if not line.startswith("lookup|")), expected, self.log)
        self.compactor("--verify")
        exported = self.compactor("--export").stdout
        if self.random.random() < 0.3 and not self.model.hours_from:
            self.import_export(exported)

    def import_export(self, exported):
        """An export, imported elsewhere, makes the same archive."""
        other, args = self.path(self.name, "other%d" % len(self.log)), ["--aggregator-url=none", "--sortdb-url=none", "--again", "--config=" + self.config]
        if self.model.hours_from:
            args.append("--drop-hours-before=" + time.strftime("%Y-%m-%d", time.gmtime(self.model.hours_from)))
        path = self.write(self.name + ".export", exported)
        done = self.run_program("compactor", "--archive=" + other, "--shards=1", "--import", path, *args)
        self.assertEqual(done.returncode, 0, (self.log, done.stderr.decode()))
        again = self.run_program("compactor", "--archive=" + other, "--export", *args[:2]).stdout
        self.assertEqual(again, exported, self.log)


class Quarters(Programs):
    def test_any_program(self):
        acts = [self.post] * 5 + [self.compact] * 3 + [self.kill, self.seal, self.switch, self.drop_hours, self.forget]
        for i in range(harness.rounds(20)):
            self.begin("p%d" % i)
            self.post()
            for act in [self.random.choice(acts) for _ in range(STEPS)] + [self.compact]:
                self.log.append(act.__name__)
                act()
            self.aggregator.stop()
            self.pubsub.close()

    def test_back_to_hours_is_refused(self):
        self.begin("p")
        self.post()
        self.switch()
        self.post()
        self.compact()
        self.aggregator.stop()
        self.configure(False)
        failed = self.daemon("aggregator", "--config", self.config, "--data-dir", self.path("p", "data"), "--pubsub-url", self.pubsub.url,
                             "--archive", self.path("p", "archive"))
        self.assertEqual(failed.process.wait(harness.PATIENCE), 78)
        self.assertIn("set [input] resolution = 15m", failed.log)

    def test_imports_keep_to_quarters_since(self):
        self.begin("p")
        self.model.since = None
        for line, why in (("u|b,w0111:1\nu|b,w01112:1\n", "quarter hours before"), ("u|b,w01112:1 w0112:1\n", "quarter hours before")):
            path = self.write("wrong", line)
            done = self.run_program("compactor", "--archive=" + self.path("new"), "--import", path, "--aggregator-url=none", "--sortdb-url=none")
            self.assertEqual(done.returncode, 78, done)
            self.assertIn(why, done.stderr.decode())
        path = self.write("right", "u|b,w0111:1 w01122:1\nc.u|b.w0112,JP:3\nc.u|b.w01121,JP:2\nc.u|b.w01122,JP:1\n")
        args = ["--archive=" + self.path("new"), "--aggregator-url=none", "--sortdb-url=none"]
        self.assertEqual(self.run_program("compactor", *args, "--import", path).returncode, 0)
        done = self.run_program("compactor", *args, "--import", self.write("late", "u|b,w0112:1\n"))
        self.assertIn("the import has counts of whole hours from w0112 on", done.stderr.decode())
        broken = self.write("broken", "c.u|b.w0113,JP:9\nc.u|b.w01131,JP:2\n")
        self.assertIn("the hour is not the sum of its quarter hours", self.run_program("compactor", *args, "--import", broken).stderr.decode())
        alone = self.write("alone", "u|b,w01130:1\nc.u|b.w0112,JP:9\n")
        self.assertIn("an hour without its quarter hours", self.run_program("compactor", *args, "--import", alone).stderr.decode())

    def test_an_hour_of_a_subtotal_alone_is_before_quarters_since(self):
        args = ["--archive=" + self.path("new"), "--aggregator-url=none", "--sortdb-url=none"]
        hour, quarter = self.write("hour", "c.u|b.w0112,JP:3\n"), self.write("quarter", "u|b,w01122:1\nc.u|b.w01122,JP:1\n")
        self.assertEqual(self.run_program("compactor", *args, "--import", hour).returncode, 0)
        self.assertIn("quarter hours before w0113", self.run_program("compactor", *args, "--import", quarter).stderr.decode())
        later = self.write("later", "u|b,w01131:1\nc.u|b.w01131,JP:1\n")
        self.assertEqual(self.run_program("compactor", *args, "--import", later).returncode, 0)
        self.assertEqual(self.run_program("compactor", *args, "--verify").returncode, 0)
        self.assertEqual(self.run_program("compactor", args[0], "--export").stdout.decode(),
                         "c.u|b.w0112,JP:3\nc.u|b.w01131,JP:1\nu|b,w01131:1\n")

    def test_a_recount_counts_all_by_quarter(self):
        """After a recount by quarter hour, late events of the time before count in the first quarter of their hour until the next start."""
        for i in range(3):
            self.begin("p%d" % i, False)
            for act in (self.post, self.compact, self.switch, self.post, self.compact):
                self.log.append(act.__name__)
                act()
            self.recount()
            self.log.append("recount")
            self.check()
            self.model.running = self.late
            for act in (self.post, self.post, self.compact, self.kill):
                self.log.append(act.__name__)
                act()
            self.model.running = None
            for act in (self.post, self.compact):
                self.log.append(act.__name__)
                act()
            self.aggregator.stop()
            self.pubsub.close()

    def recount(self):
        archive, data = self.path(self.name, "recounted"), self.path(self.name, "recount")
        other = self.daemon("aggregator", "--config", self.config, "--data-dir", data, "--pubsub-url", self.pubsub.url, "--archive", archive,
                            "--flush-interval=20ms").wait_ready(harness.LONG)
        harness.wait_until(lambda: int(other.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data), "all to be counted",
                           timeout=harness.LONG)
        for args in (["--init", "--shards=%d" % self.shards], []):
            done = self.run_program("compactor", "--archive=" + archive, "--slices=" + os.path.join(data, "slices"),
                                    "--aggregator-url=" + other.url, "--sortdb-url=none", *args)
            self.assertEqual(done.returncode, 0, done)
        other.stop()
        self.late, self.model = self.model.since, Model()
        self.model.since = 0
        for event in self.events:
            self.model.add(event)
        done = self.run_program("compactor", "--archive=" + self.path(self.name, "archive"), "--slices=" + self.path(self.name, "data", "slices"),
                                "--aggregator-url=" + self.aggregator.url, "--sortdb-url=none", "--replace=" + archive)
        self.assertEqual(done.returncode, 0, done)

    def test_imports_keep_to_the_open_slice(self):
        """The open slice decides where quarter hours begin, also while it has no events or its aggregator is stopped."""
        hours = self.write("hours", "u|b,c413:5\nc.u|b.c413,JP:5\n")
        quarters = self.write("quarters", "u|b,c4132:5\nc.u|b.c4132,JP:5\n")
        rows = self.write("rows.csv", "date,counter,key,sub,count\n2012-04-01T03:00:00Z,u,b,,5\n2012-04-01T03:00:00Z,c.u,b,JP,5\n")
        for by_quarter in (False, True):
            for is_running in (False, True):
                self.begin("p%d%d" % (by_quarter, is_running), False)
                if by_quarter:
                    self.switch()
                url = self.aggregator.url
                if not is_running:
                    self.aggregator.stop()
                    url = "stopped"
                refused = self.imported(url, hours if by_quarter else quarters)
                self.assertEqual(refused.returncode, 78, refused)
                self.assertIn("whole hours from 0110 on" if by_quarter else "set [input] resolution = 15m first", refused.stderr.decode())
                done = self.imported(url, rows, "--format=csv", "--config", self.config)
                self.assertEqual(done.returncode, 0, done)
                self.model.counts["u", "b", period(1333249200, by_quarter), "JP"] += 5
                if not is_running:
                    self.aggregator = self.launch()
                self.post()
                self.compact()
                self.aggregator.stop()
                self.pubsub.close()

    def imported(self, url, path, *args):
        return self.run_program("compactor", "--archive=" + self.path(self.name, "archive"), "--slices=" + self.path(self.name, "data", "slices"),
                                "--aggregator-url=" + url, "--sortdb-url=none", *args, "--import", path)


if __name__ == "__main__":
    harness.main()
