"""Values. Random programs of posts, kills, seals, compactions, imports, removals and changes of shards: after each compaction the
archive's files equal a model with Python's decimal, and --verify finds nothing. Nasty values count, or are rejected, as in the model
and in the oracle. Sums near both ends of 64 bits are bounded in every layer."""
# full: MILLRACE_ROUNDS=1000
# seconds: 25
import collections
import contextlib
import decimal
import glob
import json
import os
import re
import sqlite3
import subprocess
import time
import zlib

import harness
import test_aggregator
from record_text import stored, text_of
from test_unique_counts import MIDNIGHT, hour_text

COUNTERS = """
[input]
time = t
max_ahead = 0

[total n]
key = p
[total revenue]
key = p
value = price
scale = 2
unit = EUR
[subtotal c.revenue]
key = c
[total cost]
key = c
value = cost
scale = 1
round = half_even
max_value = 1000000
[subtotal p.cost]
key = p
[total buys]
key = p
having = price
[subtotal c.buys]
key = c
"""
TOTALS = {"n": "p", "revenue": "p", "cost": "c", "buys": "p"}
SUBTOTALS = {"c.revenue": "c", "p.cost": "p", "c.buys": "c"}
VALUES = {"revenue": ("price", 2, False, None), "cost": ("cost", 1, True, decimal.Decimal(1000000))}
KEYS = ["hat", "a!x", "hat.", "twelve_bytes", "http://example.org/hat", "(other)"]
COUNTRIES = ["JP", "US", "a long country"]
STEPS = 6
PROGRAMS_EACH = 250  # more programs run in several processes beside each other
ENDS = [b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"18446744073709551615", b"92233720368547758.07",
        b'"92233720368547758.07"', b'"-92233720368547758.08"', b'"92233720368547758.08"', b'"92233720368547758.075"', b"9.2e16"]
NASTY = [b"null", b'""', b"true", b"false", b"[]", b"{}", b"[1]", b'"a"', b'"NaN"', b'"12,50"', b'"1e2"', b"1e2", b"1e400", b"-1e400", b"NaN",
         b'"1e400"', b"-0", b'"-0"', b"-0.0", b'"-0.00"', b"0", b"0.0", b'"0"', b'"00012.50"', b'"+1"', b'"-"', b'"."', b'"1."', b'".5"', b'" 1"',
         b'"1 "', b'"1.2.3"', b'"--1"', b'"0x10"', b"1", b"-1", b"1.5", b"1.05", b"1.005", b"-1.005", b"0.05", b"0.15", b"0.25", b"-0.25",
         b'"0.25"', b'"0.250000000000000000001"', b'"0.35"', b'"0.2' + b"0" * 50 + b'"', b'"' + b"9" * 40 + b'"', b'"0.' + b"9" * 40 + b'"', b"0.1",
         b"0.30000000000000004", b"1234567890123.45", b"123456789012345.6", b"1e-5", b"1e-400", b"5e-324", b"1.7976931348623157e308", b"1e15",
         b"1e22", b"1e23", b"1E3", b"-12.50", b'"\\u0031"', b'"\xd9\xa1"', b'"1\\u0000"', b"1000000", b"1000000.1", b"-1000000.04",
         b"-1000000.06", b"100000000000.0"] + ENDS


class Rejected(Exception):
    pass


class Number:
    def __init__(self, text):
        self.text = text


def value_of(event, field, scale, rounds, limit):
    """The scaled integer, or None."""
    v = event.get(field)
    if v is None:
        return None
    if isinstance(v, Number):
        text = v.text
        if set(text) & set(".eE"):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                raise Rejected("out of range")
            text = repr(number)
            if len(decimal.Decimal(text).normalize().as_tuple().digits) > 15:
                raise Rejected("more than 15 digits")
        elif not -2**63 <= int(text) < 2**64:
            raise Rejected("beyond 64 bits")
    elif isinstance(v, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", v, re.ASCII):
        text = v
    else:
        raise Rejected("no decimal")
    with decimal.localcontext() as context:
        context.prec = 500
        exact = decimal.Decimal(text).scaleb(scale)
        n = exact.to_integral_value(rounding=decimal.ROUND_HALF_EVEN)
        if n != exact and not rounds:
            raise Rejected("digits")
    if not -2**63 < n < 2**63 or (limit is not None and abs(n) > limit.scaleb(scale)):
        raise Rejected("too large")
    return int(n)


class Model:
    """Counts by record's key and name; and for each total with a value, the sum of absolute values."""

    def __init__(self, rules=VALUES):
        self.rules = rules
        self.counts, self.sums, self.lookups = collections.defaultdict(collections.Counter), collections.Counter(), {}
        self.rejected = 0

    def component(self, text):
        s = stored(text.encode())
        if s != text.encode():
            self.lookups[s] = text.encode()
        return s

    def add(self, line):
        try:
            self.add_event(line)
        except (Rejected, ValueError):
            self.rejected += 1

    def add_event(self, line):
        def no_constant(_):
            raise Rejected("not JSON")
        event = json.loads(line, parse_int=Number, parse_float=Number, parse_constant=no_constant)
        period = hour_text(int(event["t"].text)).encode()
        amounts = {ns: value_of(event, *rule) for ns, rule in self.rules.items()}
        if any(n is not None and self.sums[ns] + abs(n) > 2**63 - 1 for ns, n in amounts.items()):
            raise Rejected("would exceed 64 bits")
        amounts.update({"n": 1, "buys": None if event.get("price") is None else 1})
        text = lambda field: "\\" + event[field] if event[field] == "(other)" else event[field]
        keys = {ns: self.component(text(field)) for ns, field in TOTALS.items()}
        for ns, n in amounts.items():
            if n is None:
                continue
            if ns in VALUES:
                self.sums[ns] += abs(n)
            self.counts[ns.encode() + b"|" + keys[ns]][period] += n
            for sub, field in SUBTOTALS.items():
                if sub.endswith("." + ns):
                    self.counts[b"%s|%s.%s" % (sub.encode(), keys[ns], period)][self.component(text(field))] += n

    def lines(self, rollups=True):
        records = dict(self.counts)
        parts = collections.defaultdict(set)
        for key, names in self.counts.items() if rollups else ():
            if b"." not in key.partition(b"|")[0]:
                continue
            for cut in (1, 2):
                parts[key[:-cut]].add(key[:len(key) + 1 - cut])
                sums = records.setdefault(key[:-cut], collections.Counter())
                for name, n in names.items():
                    sums[name] += n
        single = {key for key, found in parts.items() if len(found) < 2}
        lines = [key + b"," + b" ".join(b"%s:%d" % value for value in sorted(names.items()))
                 for key, names in records.items() if key not in single]
        return sorted(lines + [b"lookup|%s,%s" % item for item in self.lookups.items()])


def random_value(random):
    kind = random.randrange(10)
    if kind < 4:
        return b'"%s%d.%02d"' % (random.choice([b"", b"", b"-"]), random.randrange(2000), random.randrange(100))
    if kind < 6:
        return b"%d" % random.randrange(-50, 500)
    if kind < 8:
        return repr(random.randrange(-10000, 100000) / random.choice([1, 10, 100, 1000])).encode()
    return random.choice(NASTY[:-len(ENDS)])


def random_line(random):
    event = [b'"t":%d' % (MIDNIGHT + random.randrange(-40, 40) * 3600), b'"p":"%s"' % random.choice(KEYS).encode(),
             b'"c":"%s"' % random.choice(COUNTRIES).encode()]
    event += [b'"%s":%s' % (field, random_value(random)) for field in (b"price", b"cost") if random.random() < 0.8]
    return b"{" + b",".join(event) + b"}"


class ValuesTest(harness.MillraceTest):
    counters = COUNTERS

    def begin(self, name):
        self.name, self.pubsub, self.model, self.log = name, test_aggregator.Pubsub(self), Model(), []
        self.config = self.write(name + ".conf", self.counters)
        self.aggregator = self.launch()
        self.compactor("--init", "--shards=%d" % self.random.randrange(1, 5), daemons=False)

    def setUp(self):
        super().setUp()
        self.random = harness.seeded()

    def launch(self):
        return self.daemon("aggregator", "--config", self.config, "--data-dir", self.path(self.name, "data"), "--pubsub-url", self.pubsub.url,
                           "--archive", self.path(self.name, "archive"), "--flush-interval=20ms").wait_ready(harness.LONG)

    def compactor_args(self, *args, daemons=True):
        return ["--archive=" + self.path(self.name, "archive"), "--slices=" + self.path(self.name, "data", "slices"),
                "--aggregator-url=" + (self.aggregator.url if daemons else "none"), "--sortdb-url=none", *args]

    def compactor(self, *args, expect=0, **kw):
        done = self.run_program("compactor", *self.compactor_args(*args, **kw))
        self.assertEqual(done.returncode, expect, (self.log, args, done.stderr.decode()))
        return done

    def wait_counted(self):
        harness.wait_until(lambda: int(self.aggregator.stats()["streams"]["clicks"]["offset"]) == len(self.pubsub.data), "all to be counted",
                           timeout=harness.LONG)

    def archive(self):
        """The manifest, and the lines of all shards, each line on its own shard."""
        current = self.path(self.name, "archive", "current")
        manifest, lines = json.loads(harness.read_file(os.path.join(current, "manifest.json"))), []
        for k, file in enumerate(manifest["files"]):
            shard = harness.read_file(os.path.join(current, file["name"])).splitlines()
            self.assertEqual(shard, sorted(shard))
            for line in shard:
                key = line.partition(b",")[0]
                ns, _, rest = key.partition(b"|")
                owner = ns.rpartition(b".")[2] + b"|" + (rest.rpartition(b".")[0] if b"." in ns else rest)
                self.assertEqual(zlib.crc32(owner) % manifest["shards"], k, line)
            lines += shard
        return manifest, sorted(lines)

    def check_archive(self):
        manifest, lines = self.archive()
        self.assertEqual(lines, self.model.lines(), self.log)
        sums = {ns: int(n) for ns, n in manifest.get("sums", {}).items() if ns in VALUES}
        self.assertEqual(sums, {ns: self.model.sums[ns] for ns in sums}, self.log)
        self.assertTrue(not self.model.counts or set(sums) == set(VALUES))
        self.compactor("--verify", daemons=False)


class Programs(ValuesTest):
    """Random programs."""

    def post(self):
        lines = [random_line(self.random) for _ in range(self.random.choice([1, 20, 200]))]
        for line in lines:
            self.model.add(line)
        self.pubsub.publish(lines)

    def kill(self):
        self.aggregator.kill9()
        self.aggregator = self.launch()

    def restart(self):
        self.aggregator.stop()
        self.aggregator = self.launch()

    def seal(self):
        self.wait_counted()
        n = self.aggregator.get("/slices").json()["open"]
        self.assertEqual(self.aggregator.post("/seal?slice=%d" % n).status, 200)

    def compact(self):
        self.wait_counted()
        shards = ["--shards=%d" % self.random.randrange(1, 5)] if self.random.random() < 0.3 else []
        self.compactor(*shards)
        self.check_archive()

    def kill_compactor(self):
        self.wait_counted()
        with subprocess.Popen([harness.program("compactor"), *self.compactor_args()], stderr=subprocess.DEVNULL) as run:
            time.sleep(self.random.choice([0, 0.005, 0.02, 0.05]))
            run.kill()
        self.compact()

    def import_records(self):
        """Totals and subtotals need not add up."""
        self.wait_counted()
        lines, sums = [], collections.defaultdict(collections.Counter)
        for _ in range(self.random.randrange(1, 30)):
            ns, when = self.random.choice([*TOTALS, *SUBTOTALS]), hour_text(MIDNIGHT + self.random.randrange(-40, 40) * 3600).encode()
            total = ns.rpartition(".")[2]
            n = self.random.randrange(-500, 500) if total in VALUES else self.random.randrange(1, 9)
            key = ns.encode() + b"|" + self.random.choice([b"hat", b"a!x", b"imported", b"JP"])
            name = self.random.choice([b"JP", b"US", b"hat"])
            key, name = (key + b"." + when, name) if ns in SUBTOTALS else (key, when)
            lines.append(b"%s,%s:%d" % (key, name, n))
            self.model.counts[key][name] += n
            sums[total][ns] += abs(n)
        for total in VALUES:
            self.model.sums[total] += max(sums[total].values(), default=0)
        self.compactor("--again", "--config=" + self.config, "--import", self.write("records", text_of(lines)))
        self.check_archive()

    def forget_key(self):
        """The sums of absolute values stay. The lookups that only the key's records use go."""
        self.wait_counted()
        self.compactor("--forget=hat")
        for key in [k for k in self.model.counts if k.partition(b"|")[2] == b"hat" or re.fullmatch(rb"[^|]*\.[^|]*\|hat\.[^.]*", k)]:
            for name in self.model.counts.pop(key):
                if not any(name in names or re.search(rb"\|%s(\.|$)" % re.escape(name), k) for k, names in self.model.counts.items()):
                    self.model.lookups.pop(name, None)
        self.check_archive()

    def check_live(self):
        """Archive and aggregator together have the model's counts."""
        self.wait_counted()
        found = collections.defaultdict(collections.Counter)
        manifest, lines = self.archive()
        reply = self.aggregator.get("/fwmatch?key=&after=%d" % manifest["through"])
        live = reply.body.splitlines() if reply.status == 200 else []
        for line in lines + live:
            key, value = line.split(b",", 1)
            for pair in value.split(b" ") if not key.startswith(b"lookup|") else ():
                name, n = pair.rsplit(b":", 1)
                found[key][name] += int(n)
        self.assertEqual({k: v for k, v in found.items() if k in self.model.counts}, self.model.counts, self.log)

    def test_any_program(self):
        acts = [self.post] * 6 + [self.compact] * 3 + [self.kill, self.restart, self.seal, self.kill_compactor, self.import_records, self.forget_key]
        programs = harness.rounds(12)
        if programs > PROGRAMS_EACH:
            harness.run_side_by_side(self.id().removeprefix("__main__."), self.random, programs, PROGRAMS_EACH)
            return
        for i in range(programs):
            self.begin("p%d" % i)
            self.post()
            for act in [self.random.choice(acts) for _ in range(STEPS)] + [self.compact]:
                self.log.append(act.__name__)
                act()
                self.check_live()
            self.aggregator.stop()
            self.pubsub.close()


class Counting(ValuesTest):
    def count(self, lines):
        """The slice's text, and the rejected lines with their reasons."""
        data = self.path("counted-%d" % len(glob.glob(self.path("counted-*"))))
        path = self.write("lines", text_of(lines))
        done = self.run_program("aggregator", "--config", self.write("values.conf", self.counters), "--data-dir", data, "--input", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        slices = glob.glob(os.path.join(data, "slices", "*.db"))
        text = subprocess.run([harness.program("millrace"), "slice", slices[0]], check=True, capture_output=True).stdout
        rejects = b"".join(harness.read_file(f) for f in glob.glob(os.path.join(data, "rejects", "*.ndjson"))).splitlines()
        return text.splitlines(), [json.loads(line) for line in rejects]

    def check(self, lines):
        model = Model()
        for line in lines:
            model.add(line)
        text, rejects = self.count(lines)
        self.assertEqual(text, model.lines(rollups=False))
        self.assertEqual(len(rejects), model.rejected)
        return rejects

    def test_nasty_values(self):
        self.check([b'{"t":1331923247,"p":"hat","c":"JP","%s":%s}' % (field, value) for value in NASTY for field in (b"price", b"cost")])

    def test_random_values(self):
        r = self.random
        numbers = []
        for _ in range(3000):
            digits = b"%d" % r.randrange(10 ** r.randrange(1, 22))
            at = r.randrange(len(digits) + 1)
            text = (digits[:at] or b"0") + (b"." + digits[at:] if digits[at:] else b"")
            text = r.choice([b"", b"-"]) + (text.lstrip(b"0") if len(text.split(b".")[0].lstrip(b"0")) else b"0" + text[text.find(b"."):] if b"." in text else b"0")
            numbers += [text, b'"%s"' % text, b"%se%d" % (text, r.randrange(-20, 20)), repr(r.uniform(-100, 100)).encode(),
                        repr(round(r.uniform(-1000, 1000), r.randrange(4))).encode()]
        self.check([b'{"t":1331923247,"p":"hat","c":"JP","%s":%s}' % (r.choice([b"price", b"cost"]), n) for n in numbers if len(n) < 40])

    def test_reasons(self):
        rows = [(b'"price":"12,50"', "field price is not a decimal"), (b'"price":1.005', "field price has more digits after the point than the "
                                                                       "counter's scale"),
                (b'"price":0.30000000000000004', "field price has more than 15 digits; send it as text"),
                (b'"price":"92233720368547758.08"', "field price is beyond 64 bits"), (b'"cost":1000000.1', "field cost exceeds max_value")]
        rejects = self.check([b'{"t":1331923247,"p":"hat","c":"JP",%s}' % fields for fields, _ in rows])
        self.assertEqual([r["reason"] for r in rejects], [reason for _, reason in rows])

    def test_the_oracle(self):
        oracle = harness.load_oracle()
        if not oracle:
            self.skipTest("the oracle is not here")
        self.counters = COUNTERS.replace("max_value = 1000000\n", "")
        self.counters = self.counters[:self.counters.index("[total buys]")]  # the oracle does not know `having`
        lines = [random_line(self.random) for _ in range(3000)]
        lines += [b'{"t":1331923247,"p":"hat","c":"JP","%s":%s}' % (field, value) for value in NASTY[:-len(ENDS)]
                  for field in (b"price", b"cost")]
        counts = oracle.Counts(self.write("oracle.conf", self.counters))
        for line in lines:
            counts.add_line(line)
        text, rejects = self.count(lines)
        self.assertEqual(text, sorted(counts.archive(1, 0)))
        self.assertEqual(len(rejects), counts.rejected)

    def test_max_keys(self):
        """Values of keys over the limit are those of (other); a sub key that no event counts takes no place and has no lookup, and neither does
        a key."""
        self.counters = "[input]\ntime = t\n[total r]\nkey = p\nvalue = v\nmax_keys = 2\n[subtotal c.r]\nkey = c\nmax_keys = 1\n"
        rows = [("unused", "x", None), ("twelve_bytes", "x", None), ("a", "unused", None), ("a", "twelve_bytes", None), ("a", "x", 5), ("b", "y", -7), ("c", "x", 1), ("d", "z", -1), ("a", "x", -5)]
        text, _ = self.count([json.dumps({"t": 1331923247, "p": p, "c": c, "v": v}).encode() for p, c, v in rows])
        self.assertEqual(text, [b"c.r|(other).c3gi,(other):-1 x:1", b"c.r|a.c3gi,x:0", b"c.r|b.c3gi,(other):-7",
                                b"r|(other),c3gi:0", b"r|a,c3gi:0", b"r|b,c3gi:-7"])


BOUND = """
[input]
time = t
max_ahead = 0
[total r]
key = p
value = v
[subtotal c.r]
key = c
[total n]
key = "all"
"""


class Bound(ValuesTest):
    """The sum of absolute values is at most 2^63 - 1."""
    counters = BOUND

    def post(self, value, key="a", accepted=True):
        before = self.tally()
        self.pubsub.publish([b'{"t":1331923247,"p":"%s","c":"x","v":%d}' % (key.encode(), value)])
        self.wait_counted()
        after = self.tally()
        self.assertEqual((after[0] - before[0], after[1] - before[1]), (1, 0) if accepted else (0, 1), value)

    def tally(self):
        stats = self.aggregator.stats()
        return stats["events_total"], stats["rejected_total"]

    def record(self, key="r|a"):
        reply = self.aggregator.get("/get?" + harness.query(key=key, after=self.archive()[0]["through"]))
        return reply.text.strip() if reply.status == 200 else None

    def seal(self):
        self.assertEqual(self.aggregator.post("/seal?slice=%d" % self.aggregator.get("/slices").json()["open"]).status, 200)

    def check_layers(self, key, value):
        """Nothing more fits, wherever the value lies: in memory, in the open slice, in a sealed slice, or in the archive."""
        def full():
            for n in (1, -1):
                self.post(n, accepted=False)
            self.post(0)
        full()
        self.aggregator.kill9()
        self.aggregator = self.launch()
        full()
        self.seal()
        full()
        self.aggregator.stop()
        self.aggregator = self.launch()
        full()
        self.compactor()
        full()
        manifest, lines = self.archive()
        self.assertEqual(manifest["sums"], {"r": str(2**63 - 1)})
        self.assertIn(b"r|%s,c3gi:%d" % (key, value), lines)
        self.assertIn(b"c.r|%s.c3gi,x:%d" % (key, value), lines)
        for n, status in ((1, 78), (-1, 78), (0, 0)):
            log = self.compactor("--again", "--import", self.write("one", b"r|a,c3gi:%d\n" % n), expect=status).stderr
            self.assertIn(b"r would exceed 64 bits" if status else b"", log)
        self.compactor("--verify", daemons=False)
        self.compactor("--forget=b")
        self.aggregator.stop()
        self.aggregator = self.launch()
        full()

    def test_imports_beside_a_stopped_aggregator(self):
        """The open slice of a stopped aggregator counts towards the bound, and so do all lines of an import."""
        self.begin("p")
        self.post(0)
        self.compactor()
        self.post(2**62, key="b")
        self.aggregator.stop()
        for text, message, status in ((b"r|a,c3gi:%d\nr|b,c3gi:%d\n" % (2**62, -2**62), b"text:2: the absolute values of the counter would exceed 64 bits", 78),
                                      (b"r|a,c3gi:%d\n" % 2**62, b"r would exceed 64 bits", 78), (b"r|a,c3gi:%d\n" % (2**62 - 1), b"", 0)):
            args = [arg.replace("=none", "=stopped") if "aggregator-url" in arg else arg for arg in self.compactor_args(daemons=False)]
            done = self.run_program("compactor", *args, "--import", self.write("text", text))
            self.assertEqual((done.returncode, message in done.stderr), (status, True), done.stderr)
        self.aggregator = self.launch()
        for n in (1, -1):
            self.post(n, accepted=False)
        self.compactor()
        self.assertEqual(self.archive()[0]["sums"], {"r": str(2**63 - 1)})

    def test_the_highest(self):
        self.begin("p")
        self.post(2**62, key="b")
        self.post(2**62, accepted=False)
        self.post(2**62 - 1, key="b")
        self.check_layers(b"b", 2**63 - 1)

    def test_the_lowest(self):
        self.begin("p")
        self.post(-2**63, accepted=False)
        self.post(-2**63 + 1, key="b")
        self.check_layers(b"b", -2**63 + 1)

    def test_many_keys(self):
        """The sum of all keys is bounded, so no order of merging overflows."""
        self.begin("p")
        self.post(2**62, key="b")
        self.post(-2**62 + 1, key="d")
        self.check_layers(b"b", 2**62)

    def committed(self):
        """The end of the lines that the newest slice has. A slice that was just created has no tables yet."""
        newest = max(glob.glob(self.path(self.name, "data", "slices", "*.db")))
        with contextlib.closing(sqlite3.connect(newest)) as db, contextlib.suppress(sqlite3.OperationalError):
            return db.execute("SELECT offset FROM cursors WHERE stream = 'clicks'").fetchone()[0]

    def test_an_import_is_seen(self):
        self.begin("p")
        self.post(1)
        self.compactor("--config=" + self.config, "--import", self.write("most", b"r|b,c3gi:-%d\n" % (2**63 - 12)))
        for value in (3, 0):  # the commit before the last one has ended, and after a commit the archive is read
            self.post(value)
            harness.wait_until(lambda: self.committed() == len(self.pubsub.data), "the commit of %d" % value)
        self.post(8, accepted=False)
        self.post(7)
        self.post(1, accepted=False)


class Archive(ValuesTest):
    def fill(self, n=300):
        self.begin("p")
        self.lines = [random_line(self.random) for _ in range(n)]
        for line in self.lines:
            self.model.add(line)
        self.pubsub.publish(self.lines)
        self.wait_counted()
        self.compactor()
        self.check_archive()

    def test_a_recount_computes_new_sums(self):
        self.fill()
        self.compactor("--forget=hat")
        self.assertEqual(self.archive()[0]["sums"], {ns: str(self.model.sums[ns]) for ns in VALUES})
        self.aggregator.stop()
        self.write("p.conf", self.counters.replace("unit = EUR", "max_value = 10"))
        self.aggregator = self.launch()
        self.pubsub.publish(self.lines[:1])
        self.wait_counted()
        self.compactor()
        counting, made = self.path("counting"), self.path("made")
        for name, *args in (("compactor", "--archive=" + made, "--init"),
                            ("aggregator", "--config", self.config, "--recount=" + self.path("p", "archive"), "--archive=" + made,
                             "--data-dir=" + counting, "--pubsub-url=" + self.pubsub.url),
                            ("compactor", "--archive=" + made, "--slices=" + counting + "/slices", "--aggregator-url=stopped", "--sortdb-url=none")):
            done = self.run_program(name, *args)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.compactor("--replace=" + made)
        self.model = Model({**VALUES, "revenue": ("price", 2, False, decimal.Decimal(10))})
        for line in self.lines + self.lines[:1]:
            self.model.add(line)
        self.check_archive()

    def test_another_definition_is_refused(self):
        self.fill(20)
        self.aggregator.stop()
        for old, new in (("scale = 2", "scale = 3"), ("value = price", "value = cost"), ("value = price\nscale = 2\nunit = EUR\n", ""),
                         ("having = price", "having = cost")):
            self.write("p.conf", self.counters.replace(old, new))
            aggregator = self.daemon("aggregator", "--config", self.config, "--data-dir", self.path("p", "data"), "--archive",
                                     self.path("p", "archive"), "--pubsub-url", self.pubsub.url)
            self.assertEqual(aggregator.process.wait(harness.PATIENCE), 78)
            self.assertIn("is defined differently now", aggregator.log)
        self.write("p.conf", self.counters.replace("unit = EUR", "unit = USD").replace("max_value = 1000000", "max_value = 2"))
        self.launch()

    def test_verify_finds_wrong_values(self):
        """A count of 0 or less without a value, and sums of the manifest that do not bound the records."""
        self.begin("p")
        self.compactor("--shards=1", "--config=" + self.config, "--import", self.write("one", b"n|a,c3gi:7\nrevenue|a,c3gi:-5 c3gj:3\n"))
        self.compactor("--verify", daemons=False)
        current = self.path("p", "archive", "current")
        manifest = harness.read_file(os.path.join(current, "manifest.json"))
        self.assertIn(b'"revenue":"8"', manifest)
        for wrong, why in ((manifest.replace(b'"revenue":"8"', b'"revenue":"7"'), b"sum of the absolute values of revenue is less"),
                           (manifest.replace(b"scale = 2", b"scaly = 2"), b"a count is 0 or negative, but its counter has no value")):
            self.assertNotEqual(wrong, manifest)
            self.write("p/archive/current/manifest.json", wrong)
            self.assertIn(why, self.compactor("--verify", daemons=False, expect=1).stderr)
        self.write("p/archive/current/manifest.json", manifest)
        self.compactor("--verify", daemons=False)

    def test_csv_with_decimals(self):
        self.begin("p")
        options = ("--config=" + self.config, "--import", "--format=csv")
        rows = b"date,key,count\n2012-03-16T18:00Z,hat,12.50\n2012-03-16T18:00Z,hat,-2\n2012-03-16T19:00Z,a b,0.00\n"
        self.compactor(*options, "--counter=revenue", self.write("rows.csv", rows), daemons=False)
        self.compactor(*options, "--counter=c.revenue", self.write("subs.csv", b"date,key,sub,count\n2012-03-16T18:00Z,hat,JP,-0.05\n"),
                       daemons=False)
        self.compactor(*options, "--counter=cost", self.write("cost.csv", b"date,key,count\n2012-03-16T18:00Z,JP,0.25\n"), daemons=False)
        manifest, lines = self.archive()
        self.assertEqual([line for line in lines if not line.startswith(b"lookup")], [
            b"c.revenue|hat.c3gi,JP:-5", b"cost|JP,c3gi:2", b"revenue|" + stored(b"a b") + b",c3gj:0", b"revenue|hat,c3gi:1050"])
        self.assertEqual(manifest["sums"], {"cost": "2", "revenue": "1455"})
        for row, why in ((b"1.005", b"wrong.csv:2: the value has more digits"), (b'"1,5"', b"the value is not a decimal: 1,5"), (b"", b"it is empty")):
            path = self.write("wrong.csv", b"date,key,count\n2012-03-16T18:00Z,hat,%s\n" % row)
            self.assertIn(why, self.compactor(*options, "--counter=revenue", path, daemons=False, expect=78).stderr)
        log = self.compactor(*options, "--counter=revenue", "--count-rows", path, daemons=False, expect=78).stderr
        self.assertIn(b"its rows cannot be counted", log)
        log = self.compactor(*options, "--counter=cost", self.write("large.csv", b"date,key,count\n2012-03-16T18:00Z,JP,1000000.1\n"),
                             daemons=False, expect=78).stderr
        self.assertIn(b"the value exceeds max_value", log)
        self.compactor("--verify", daemons=False)

    def test_rejects_are_put_back(self):
        """Lines that are put back count their values once."""
        self.begin("p")
        self.pubsub.publish([b'{"t":1331923247,"p":"hat","c":"JP","price":1.005}', b'{"t":1331923247,"p":"hat","c":"JP","price":7}',
                             b'{"t":1331923247,"p":"hat","c":"JP"}'])
        self.wait_counted()
        self.aggregator.stop()
        self.write("p.conf", self.counters.replace("scale = 2", "scale = 2\nround = half_even"))
        self.aggregator = self.launch()
        done = self.run_program("millrace", "rejects", "--config", self.config, "--put-back", "--aggregator-url", self.aggregator.url)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.compactor()
        self.assertIn(b"revenue|hat,c3gi:800", self.archive()[1])
        self.assertEqual(self.archive()[0]["sums"]["revenue"], "800")


if __name__ == "__main__":
    harness.main()
