"""millrace sql: random statements over an archive with rollups, against SQLite over a plain table of the same rows; random questions
to a live pipeline, half of whose counts are archived, against the API; what a statement must not do; interrupts and limits."""
# full: MILLRACE_ROUNDS=500
# seconds: 20
import collections
import datetime
import fcntl
import gzip
import json
import os
import pty
import select
import shutil
import signal
import sqlite3
import subprocess
import termios
import time
import unittest

import harness
from harness import rounds, seeded, wait_until
from record_text import Counts, DIGITS, hour

COUNTERS = harness.USERS_BY_COUNTRY + """
[total all]
key = "all"
[subtotal u.all]
key = l
label = user
"""
UTC = datetime.timezone.utc
ODD = ["http://www.facebook.com/", "a,b|c", "new\nline", "back\\slash,", "eleven_byte", "a", "a!x", "a+", "aa", "é", "1"]
FORMS = {"hour": "%Y-%m-%d %H:00:00", "day": "%Y-%m-%d", "month": "%Y-%m-01"}
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def instant(text):
    """The time of an hour's text of 2012."""
    month, day, h = (DIGITS.index(chr(c)) for c in text[1:4])
    return datetime.datetime(2012, month, day, h)


def load_extension(test, pipeline):
    db = sqlite3.connect(":memory:")
    test.addCleanup(db.close)
    db.enable_load_extension(True)
    db.load_extension(os.path.join(harness.BUILD, "lib", "millrace", "millrace"))
    if pipeline:
        db.execute("SELECT millrace_open(?)", (pipeline,))
    return db


class SqlCase(harness.MillraceTest):
    def sql(self, *args, expect=0, **kw):
        done = self.run_program("millrace", "sql", *self.where, *args, **kw)
        self.assertEqual(done.returncode, expect, (args, done))
        return done.stdout if expect == 0 else done.stderr.decode()

    def rows(self, *statements):
        """The rows of each statement."""
        text = self.sql("--format=json", "--", ";\n".join(statements)).decode()
        decoder, at, found = json.JSONDecoder(), 0, []
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found.append([tuple(row.values()) for row in value])
            at += 1
        self.assertEqual(len(found), len(statements))
        return found


class Model(SqlCase):
    """An archive of three shards, with and without dropped hours."""

    def make(self, dropped):
        rng = self.random = seeded()
        counts = Counts().random(rng, 600, users=30)
        for i, key in enumerate(ODD):
            for k in range(rng.randrange(1, 8)):
                counts.add(key.encode(), rng.choice(ODD).encode(), hour(1 + k, 1 + i, rng.randrange(24)), 1 + i)
        self.archive = self.path("archive")
        self.where = ["--archive=" + self.archive]
        lines = [line.replace(b"\\", b"\\\\").replace(b"\n", b"\\x0a") if line.startswith(b"lookup") else line for line in counts.lines()]
        path = self.write("counts.csv", b"".join(line + b"\n" for line in lines))
        self.compact("--shards=3", "--import", path)
        if dropped:
            self.compact("--drop-hours-before=2012-03-02")
        self.table = sqlite3.connect(":memory:")
        self.table.execute("CREATE TABLE counts(ns TEXT, key TEXT, sub TEXT, period TEXT, unit TEXT, n INTEGER)")
        self.finest = "(unit = 'hour' OR (unit = 'day' AND period < '2012-03-02' AND ns = 'c.u'))" if dropped else "unit = 'hour'"
        full = lambda stored: counts.lookups.get(stored, stored).decode()
        found = collections.Counter()
        for key, hours in counts.totals.items():
            for text, n in hours.items():
                for unit, form in FORMS.items():
                    found["u", full(key[2:]), None, instant(text).strftime(form), unit] += n
        for key, subs in counts.subs.items():
            own, text = key[4:].rsplit(b".", 1)
            for sub, n in subs.items():
                for unit, form in FORMS.items():
                    if unit != "hour" or not dropped or instant(text) >= datetime.datetime(2012, 3, 2):
                        found["c.u", full(own), full(sub), instant(text).strftime(form), unit] += n
        self.table.executemany("INSERT INTO counts VALUES(?, ?, ?, ?, ?, ?)", [(*row, n) for row, n in found.items()])

    def compact(self, *args):
        done = self.run_program("compactor", "--archive=" + self.archive, "--aggregator-url=none", "--sortdb-url=none", *args)
        self.assertEqual(done.returncode, 0, done)

    def text(self, column):
        """A literal that is often a value of the column."""
        pick = self.random.choice
        if column == "period" and self.random.random() < 0.5:
            t = datetime.datetime(2012, 1, 1) + datetime.timedelta(hours=self.random.randrange(-100, 24 * 150))
            value = t.strftime(pick(["%Y-%m-%d %H:00:00", "%Y-%m-%d", "%Y-%m-01", "%Y-%m", "%Y", "%Y-%m-%d %H:30", "%Y-%m-%dT%H:00", "%Y-%m-%d %H"]))
            value = pick([value] * 12 + ["", "abc", "2012-13", "2012-02-30", "9", "2500"])
        else:
            value = self.table.execute("SELECT %s FROM counts ORDER BY random() LIMIT 1" % column).fetchone()[0] or "JP"
            value = pick([value] * 9 + ["nothing", value.upper(), value[:3]])
        return "'%s'" % value.replace("'", "''")

    def term(self, is_in_or=False):
        pick = self.random.choice
        column = pick(["ns", "key", "sub", "period", "period", "period"])
        form = self.random.randrange(10)
        if form == 0:
            return "%s IN (%s)" % (column, ", ".join(self.text(column) for _ in range(self.random.randrange(1, 4))))
        if form == 1:
            return "%s BETWEEN %s AND %s" % (column, *sorted([self.text(column), self.text(column)]))
        if form == 2 and not is_in_or:  # SQLite makes an IN of an OR and forgets the collation, also with an index of its own
            return "%s = upper(%s) COLLATE NOCASE" % (column, self.text(column))
        if form == 3:
            return pick(["sub IS NULL", "sub IS NOT NULL", "n > 3", "key LIKE 'http%'", "key = 1", "period > 2012", "key = NULL"])
        if form == 4:
            return "(%s OR %s)" % (self.term(True), self.term(True))
        return "%s %s %s" % (column, pick(["=", "=", "=", "<", "<=", ">", ">="]), self.text(column))

    def statement(self):
        pick = self.random.choice
        terms = [self.term() for _ in range(self.random.randrange(4))]
        unit = pick([None, "hour", "day", "month"])
        select = pick(["ns, key, sub, period, unit, n", "ns, key, sum(n)", "count(*), sum(n)", "period, sub, n"])
        rest = {"ns, key, sum(n)": " GROUP BY ns, key ORDER BY 3 DESC, 1, 2", "count(*), sum(n)": ""}.get(select, " ORDER BY ns, key, sub, period, unit")
        form = "SELECT %s FROM counts%s%s" % (select, " WHERE " if terms else "", " AND ".join(terms))
        known = " AND " if terms else " WHERE "
        asked = form + (known + "unit = '%s'" % unit if unit else "") + rest
        return asked, form + known + (self.finest if unit is None else "unit = '%s'" % unit) + rest

    def check(self, n):
        statements = [self.statement() for _ in range(n)]
        for (asked, plain), found in zip(statements, self.rows(*(asked for asked, _ in statements))):
            self.assertEqual(found, self.table.execute(plain).fetchall(), asked)


class Statements(Model):
    def test_random_statements(self):
        self.make(dropped=False)
        self.check(rounds(100))

    def test_random_statements_without_hours(self):
        self.make(dropped=True)
        self.check(rounds(100))

    def test_joins(self):
        """A join over both tables of rows, where the second knows the unit only from the first."""
        self.make(dropped=False)
        join = "SELECT a.key, a.period, a.n, sum(b.n) FROM counts a JOIN counts b ON a.key = b.key AND a.period = b.period AND a.unit = b.unit " \
               "AND b.ns = 'c.u' WHERE a.ns = 'u'%s GROUP BY 1, 2 ORDER BY 1, 2"
        for unit in FORMS:
            found, = self.rows(join % (" AND a.unit = '%s'" % unit))
            self.assertEqual(found, self.table.execute(join % (" AND a.unit = '%s'" % unit)).fetchall())
            self.assertTrue(found and all(n == subs for _, _, n, subs in found))
        found, = self.rows(join % "")
        self.assertEqual(found, self.table.execute(join % " AND a.unit = 'hour'").fetchall())

    def test_plans(self):
        """Comparisons reach the search, and an order by period needs no sort."""
        self.make(dropped=False)
        plan = lambda where: " / ".join(row[3] for row in self.rows("EXPLAIN QUERY PLAN SELECT * FROM counts " + where)[0])
        self.assertIn("ns= key= period>=", plan("WHERE ns = 'u' AND key = 'user1' AND period >= '2012' ORDER BY period"))
        self.assertNotIn("TEMP B-TREE", plan("WHERE ns = 'u' AND key = 'user1' ORDER BY period"))
        self.assertIn("TEMP B-TREE", plan("WHERE ns = 'u' ORDER BY period"))
        self.assertIn("period> period<=", plan("WHERE period > '2012' AND period <= '2013'"))
        self.assertIn("key=", plan("WHERE key IN ('a', 'b')"))
        self.assertIn("sub=", plan("WHERE sub = 'JP'"))
        self.assertNotIn("key=", plan("WHERE key = 'A' COLLATE NOCASE"))

    def test_formats(self):
        self.make(dropped=False)
        statement = "SELECT 'a,b' AS x, 1.5 AS y, NULL AS z, x'00ff' AS b UNION ALL SELECT '=1', -2, char(27), 'é'"
        self.assertEqual(self.sql("--format=csv", statement), b'x,y,z,b\n"a,b",1.5,,\x00\xff\n"\'=1",-2,\x1b,\xc3\xa9\n')
        self.assertEqual(self.sql("--format=csv", "--header=no", "SELECT 1"), b"1\n")
        self.assertEqual(json.loads(self.sql("--format=json", statement)),
                         [{"x": "a,b", "y": 1.5, "z": None, "b": "00ff"}, {"x": "=1", "y": -2, "z": "\x1b", "b": "é"}])
        self.assertEqual(self.sql("SELECT 'ab' AS x, 12 AS number, 'l' AS y UNION ALL SELECT char(27), 3, NULL"),
                         b"x     number  y\n----  ------  ----\nab        12  l\n\\x1b       3  NULL\n")
        self.assertEqual(self.rows("SELECT key, value FROM json_each('[3,4]')", "SELECT count(*) FROM (SELECT '{}' AS line), json_tree(line)"), [[(0, 3), (1, 4)], [(1,)]])
        self.assertEqual(self.sql(input=b"SELECT 1 AS a;\nSELECT 2 AS b;"), b"a\n-\n1\nb\n-\n2\n")

    def test_examples_of_the_guide(self):
        self.make(dropped=False)
        guide = harness.read_file(os.path.join(harness.ROOT, "docs", "guide", "sql-examples.md")).decode()
        statements = guide.partition("```sql\n")[2].partition("```")[0].strip().rstrip(";").split(";\n")
        self.assertEqual(len(statements), 10)
        self.rows(*statements)

    def test_only_reads(self):
        self.make(dropped=False)
        before = sorted(os.walk(self.dir))
        for statement in ("CREATE TABLE t(a)", "CREATE TEMP TABLE t(a)", "CREATE VIEW v AS SELECT 1", "INSERT INTO counts VALUES('u', 'a', NULL, '', '', 1)",
                          "DELETE FROM counts", "DROP TABLE counts", "ATTACH '%s' AS x" % self.path("x.db"), "PRAGMA user_version = 1", "PRAGMA writable_schema = 1",
                          "VACUUM INTO '%s'" % self.path("y.db"), "SELECT load_extension('x')", "BEGIN", "CREATE VIRTUAL TABLE t USING counts", "ANALYZE",
                          "SELECT writefile('%s', 'x')" % self.path("z"), "SELECT * FROM pragma_database_list"):
            self.assertTrue(self.sql(statement, expect=64).startswith("millrace sql: "), statement)
        self.assertEqual(sorted(os.walk(self.dir)), before)

    def test_limits(self):
        self.make(dropped=False)
        endless = lambda limit, select: "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c%s) %s" % (limit, select)
        self.assertIn("--max-time", self.sql("--max-time=50ms", ENDLESS, expect=75))
        # SQLite looks for the end of the time only between two calls of a function.
        self.assertIn("--max-time", self.sql("--max-time=50ms", "SELECT length(printf('%.*c', 900000000, 'x'))", expect=75))
        self.assertIn("--max-rows=2", self.sql("--max-rows=2", "SELECT 1 UNION SELECT 2 UNION SELECT 3", expect=75))
        self.assertEqual(self.sql("--max-rows=2", "--format=csv", "SELECT 1 AS a UNION SELECT 2"), b"a\n1\n2\n")
        for statement in ("SELECT length(randomblob(900000000))", "SELECT length(printf('%.*c', 20000000, 'x'))", "SELECT hex(zeroblob(500000000))",
                          endless(" LIMIT 500000", "SELECT length(group_concat(x)) FROM c"), endless("", "SELECT count(DISTINCT x) FROM c"),
                          endless("", "SELECT x FROM c ORDER BY random()"), endless(" LIMIT 500000", "SELECT json_group_array(x) FROM c")):
            self.assertIn("--max-memory", self.sql("--max-memory=4M", statement, expect=75))

    def test_interrupted(self):
        self.make(dropped=False)
        p = subprocess.Popen([harness.program("millrace"), "sql", *self.where, "SELECT 1; " + ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir)
        self.addCleanup(p.kill)
        for line in (b"1\n", b"-\n", b"1\n"):
            self.assertEqual(p.stdout.readline(), line)
        p.send_signal(signal.SIGINT)
        self.assertIn(b"interrupted", p.communicate(timeout=harness.PATIENCE)[1])
        self.assertEqual(p.returncode, 130)

    def test_shell_at_a_terminal(self):
        self.make(dropped=False)
        ours, theirs = pty.openpty()
        p = subprocess.Popen([harness.program("millrace"), "sql", *self.where], stdin=theirs, stdout=theirs, stderr=theirs, cwd=self.dir,
                             env={**os.environ, "TERM": "dumb"}, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(p.kill)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        shown = b""

        def until(text, again=b""):
            """Types `again` now and then: a key that comes before the shell reads is lost."""
            nonlocal shown
            end = time.monotonic() + harness.PATIENCE
            while text not in shown:
                if select.select([ours], [], [], 2)[0]:
                    shown += os.read(ours, 65536)
                    continue
                self.assertLess(time.monotonic(), end, (text, shown))
                os.write(ours, again)
            shown = shown.partition(text)[2]
        until(b"millrace> ")
        for typed, expected in ((b".tables\n", b"counts\r\nevents\r\n"), (b".schema\n", b"period TEXT"), (b".nothing\n", b"no command .nothing"),
                                (b"select count(*) * 0 + 41\n", b"...> "), (b"+ 1 from counts;\n", b"42\r\n"),
                                (b"selec;\n", b"syntax error"), (b"dropped \x03", b"\r\n"), (b"select 'th' || 'is';\n", b"this\r\n")):
            os.write(ours, typed)
            until(expected, typed[-1:] if typed.endswith(b"\x03") else b"")
            if expected != b"...> ":
                until(b"millrace> ")
        os.write(ours, ENDLESS.encode() + b";\n")
        until(b"running")  # the progress, after a second
        os.write(ours, b"\x03")
        until(b"interrupted")
        until(b"millrace> ")
        os.write(ours, b".quit\n")
        self.assertEqual(p.wait(harness.PATIENCE), 0)

    def test_errors(self):
        self.where = ["--archive=" + self.path("none")]
        self.assertIn("no archive", self.sql("SELECT * FROM counts", expect=66))
        self.assertIn("syntax error (at byte 8", self.sql("SELECT FROM", expect=64))
        self.assertIn("no such table", self.sql("SELECT * FROM none", expect=64))
        self.make(dropped=False)
        path = os.path.join(self.archive, "current", "shard-0-of-3.csv")
        harness.flip(path, 10)
        self.assertIn("shard-0-of-3.csv", self.sql("SELECT * FROM counts", expect=65))


@unittest.skipIf(os.environ.get("MILLRACE_SANITIZED"), "Python and sqlite3 have no sanitizer")
class Extension(Model):
    """millrace.so in Debian's sqlite3 and in Python."""

    def setUp(self):
        super().setUp()
        self.make(dropped=False)
        self.library = os.path.join(harness.BUILD, "lib", "millrace", "millrace")
        self.statements = [self.statement() for _ in range(rounds(40))]

    def test_python(self):
        db = load_extension(self, None)
        self.assertRaisesRegex(sqlite3.OperationalError, "millrace_open", db.execute, "SELECT * FROM counts")
        self.assertRaisesRegex(sqlite3.OperationalError, "No such file", db.execute, "SELECT millrace_open('none')")
        self.assertEqual(db.execute("SELECT millrace_open(?)", (self.archive,)).fetchall(), [(self.archive,)])
        for asked, plain in self.statements:
            self.assertEqual(db.execute(asked).fetchall(), self.table.execute(plain).fetchall(), asked)
        rows = db.execute("SELECT * FROM counts")
        next(rows)
        self.assertRaisesRegex(sqlite3.OperationalError, "while a statement reads", db.execute, "SELECT millrace_open(?)", (self.archive,))
        rows.close()
        db.execute("CREATE VIEW users AS SELECT key, sum(n) AS n FROM counts WHERE ns = 'u' GROUP BY key")
        self.assertEqual(db.execute("SELECT sum(n) FROM users").fetchall(), self.table.execute("SELECT sum(n) FROM counts WHERE ns = 'u' AND unit = 'day'").fetchall())
        db.execute("CREATE TABLE names(key, name)")
        db.execute("INSERT INTO names VALUES('a', 'A')")
        self.assertEqual(db.execute("SELECT name, sum(n) FROM names JOIN counts USING(key) WHERE ns = 'u'").fetchall(),
                         self.table.execute("SELECT 'A', sum(n) FROM counts WHERE ns = 'u' AND unit = 'day' AND key = 'a'").fetchall())

    @unittest.skipUnless(shutil.which("sqlite3"), "no sqlite3")
    def test_shell(self):
        config = self.write("pipeline.conf", "[sortdb]\narchive = %s\n[millrace]\ndata_dir = %s\n" % (self.archive, self.path("none")))
        script = ".mode json\n.load %s\n" % self.library + "".join(asked + ";\nSELECT 'end';\n" for asked, _ in self.statements)
        done = subprocess.run(["sqlite3"], input=script.encode(), env={**os.environ, "MILLRACE_CONFIG": config}, capture_output=True, cwd=self.dir,
                              timeout=harness.LONG)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        found = done.stdout.decode().split("""[{"'end'":"end"}]\n""")[:-1]
        for (asked, plain), rows in zip(self.statements, found, strict=True):
            self.assertEqual([tuple(row.values()) for row in json.loads(rows or "[]")], self.table.execute(plain).fetchall(), asked)


VALUES = """
[total r]
key = l
label = amount
value = p
scale = 2
[subtotal c.r]
key = c
label = country
[total sum]
key = "all"
value = p
scale = 2
[subtotal r.sum]
key = l
label = amount
"""


class Live(SqlCase):
    """A pipeline in which some counts are archived, some in a sealed slice, and some in the open slice."""
    finest, minutes = "hour", 60

    def setUp(self):
        super().setUp()
        self.random = seeded()
        self.data = self.path("data")
        counters = COUNTERS.replace("[input]", "[input]\nresolution = " + {"hour": "1h", "quarter": "15m"}[self.finest]) + VALUES
        config = self.write("pipeline.conf", harness.pipeline_config(self.data, counters, aggregator={"flush_interval": "50ms"}))
        self.pipeline = harness.Pipeline(self, config, self.data).wait_ready()
        self.where = ["--config=" + config]
        self.sent = 0
        self.finest_rows = collections.Counter()

    def put(self, n):
        pick = self.random.choice
        lines = []
        for _ in range(n):
            t = datetime.datetime(2012, 3, 1, tzinfo=UTC) + datetime.timedelta(minutes=15 * self.random.randrange(4 * 24 * 70) + self.random.randrange(15))
            event = {"t": int(t.timestamp()), "l": pick(ODD), "c": pick(ODD), "p": pick([None, 0, 12, -3.25, -0.5, 7.25])}
            lines.append(json.dumps(event).encode())
            period = t.replace(minute=t.minute // self.minutes * self.minutes).strftime("%Y-%m-%d %H:%M:00")
            added = {"u": 1} if event["p"] is None else {"u": 1, "r": round(float(event["p"]) * 100)}
            for ns, amount in added.items():
                for row in ((ns, event["l"], None), ("c." + ns, event["l"], event["c"])):
                    self.finest_rows[(*row, period, self.finest)] += amount
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)
        self.sent += n

    def total(self):
        return self.rows("SELECT sum(n) FROM counts WHERE ns = 'u'")[0][0][0] or 0

    def compact(self):
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)

    def ask(self, what, **params):
        reply = self.pipeline.ask("api", "GET", "/v1/%s?%s" % (what, harness.query(**params)))
        self.assertEqual(reply.status, 200, (what, params, reply))
        return reply.json()

    def question(self):
        """A question to the API, and the same one as a statement."""
        pick = self.random.choice
        key, (label, ns, scale) = pick(ODD), pick([("user", "u", 1), ("amount", "r", 100)])
        number = lambda row: round(row["n"] * scale)
        first = datetime.datetime(2012, 2, 20, tzinfo=UTC) + datetime.timedelta(hours=self.random.randrange(24 * 60))
        last = first + datetime.timedelta(hours=self.random.randrange(1, 24 * 40))
        unit = pick(["hour", "day", "month"])
        kind = self.random.randrange(5)
        if kind == 4:
            unit = pick(["day", "month"])
        if unit != "hour":
            first, last = (t.replace(hour=0) for t in (first, last + datetime.timedelta(days=1)))
        if unit == "month":
            first, last = first.replace(day=1), (last.replace(day=1) + datetime.timedelta(days=31)).replace(day=1)
        if kind == 4:
            last = first + datetime.timedelta(days=1) if unit == "day" else (first + datetime.timedelta(days=31)).replace(day=1)
        span = {"from": int(first.timestamp()), "to": int(last.timestamp())}
        form = FORMS[unit]
        where = "key = '%s' AND period >= '%s' AND period < '%s'" % (key, first.strftime(form), last.strftime(form))
        if kind == 0:
            asked = [(datetime.datetime.fromtimestamp(r["t"], UTC).strftime(form), number(r)) for r in self.ask("series", **{label: key}, unit=unit, **span)["rows"] if r["n"]]
            return asked, "SELECT period, n FROM counts WHERE ns = '%s' AND unit = '%s' AND %s AND n <> 0 ORDER BY period" % (ns, unit, where)
        if kind == 1:
            sub = pick(ODD)
            asked = [(datetime.datetime.fromtimestamp(r["t"], UTC).strftime(form), number(r))
                     for r in self.ask("series", **{label: key}, by="country", sub=sub, unit=unit, **span)["rows"] if r["n"]]
            return asked, "SELECT period, n FROM counts WHERE ns = 'c.%s' AND sub = '%s' AND unit = '%s' AND %s AND n <> 0 ORDER BY period" % (ns, sub, unit, where)
        if kind == 4:  # one day or month, of hours of archive and slices: a row for each sub key
            asked = [(r["key"], number(r)) for r in self.ask("breakdown", **{label: key}, by="country", limit=100, **span)["rows"]]
            return asked, "SELECT sub, n FROM counts WHERE ns = 'c.%s' AND unit = '%s' AND %s ORDER BY 2 DESC, 1" % (ns, unit, where)
        if kind == 2:
            asked = [(r["key"], number(r)) for r in self.ask("breakdown", **{label: key}, by="country", limit=100, **span)["rows"]]
            return asked, "SELECT sub, sum(n) FROM counts WHERE ns = 'c.%s' AND unit = '%s' AND %s GROUP BY sub ORDER BY 2 DESC, 1" % (ns, unit, where)
        asked = [(r["key"], number(r)) for r in self.ask("top", counter=label, limit=100, **span)["rows"]]
        return asked, "SELECT key, sum(n) FROM counts WHERE ns = '%s' AND unit = '%s' AND %s GROUP BY key ORDER BY 2 DESC, 1" % (ns, unit, where.split(" AND ", 1)[1])

    def archive_seal_and_put(self):
        """Events of which some are archived, some in a sealed slice, and some in the open slice."""
        self.put(2000)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")
        self.compact()
        self.put(1000)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")
        self.assertEqual(self.pipeline.ask("aggregator", "POST", "/seal?slice=2").status, 200)
        self.put(1000)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")

    def test_equals_the_events(self):
        self.archive_seal_and_put()
        select = "SELECT ns, key, sub, period, unit, n FROM counts WHERE ns IN ('u', 'c.u', 'r', 'c.r')"
        found = self.rows(select, *(select + " AND unit = '%s'" % unit for unit in FORMS))
        expected = [self.finest_rows]
        for unit, form in FORMS.items():
            sums = collections.Counter()
            for (*row, period, _), n in self.finest_rows.items():
                sums[(*row, datetime.datetime.fromisoformat(period).strftime(form), unit)] += n
            expected.append(sums)
        for rows, sums in zip(found, expected, strict=True):
            self.assertEqual(sorted(rows, key=str), sorted(((*row, n) for row, n in sums.items()), key=str))

    def test_equals_the_api(self):
        self.archive_seal_and_put()
        questions = [self.question() for _ in range(rounds(60))]
        for (asked, statement), found in zip(questions, self.rows(*(statement for _, statement in questions))):
            self.assertEqual(found, asked, statement)
        self.pipeline.interrupt()
        self.assertEqual(self.total(), self.sent)

    def events(self, lines, offset=0):
        """The rows of `events`, without the stream."""
        for line in lines:
            event = json.loads(line)
            yield offset, datetime.datetime.fromtimestamp(event["t"], UTC).strftime("%Y-%m-%d %H:%M:%S"), event["l"], line.decode()
            offset += len(line) + 1

    def test_events(self):
        self.put(500)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")
        lines = self.pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body.splitlines()
        expected = list(self.events(lines))
        self.assertEqual(len(expected), self.sent)
        select = "SELECT offset, time, line ->> '$.l', line FROM events WHERE "
        found, late, by_country, none, ored = self.rows(
            select + "stream = 'clicks'", select + "stream = 'clicks' AND time >= '2012-04-01' AND time < '2012-04-03 12'",
            "SELECT line ->> '$.c' AS sub, count(*) FROM events WHERE stream = 'clicks' GROUP BY 1 EXCEPT SELECT sub, sum(n) FROM counts WHERE ns = 'c.u' GROUP BY 1",
            select + "stream = 'clicks' AND time > '2013'", "SELECT count(*) FROM events WHERE (stream = 'clicks' AND time < '2013') OR stream = 'clicks'")
        self.assertEqual(found, expected)
        self.assertEqual(late, [row for row in expected if "2012-04-01" <= row[1] < "2012-04-03 12"])
        self.assertEqual((by_country, none, ored), ([], [], [(self.sent,)]))
        self.assertIn("stream='NAME'", self.sql("SELECT * FROM events", expect=64).replace(" ", ""))
        self.pipeline.interrupt()
        self.sql("SELECT * FROM events WHERE stream = 'clicks'", expect=75)
        half = len(lines) // 2
        with open(self.path("a.gz"), "wb") as f:
            f.write(gzip.compress(b"\n".join(lines[:half]) + b"\n"))
        self.write("b.ndjson", b"\n".join(lines[half:]))
        pattern = self.path("[ab].*")
        rows, = self.rows("SELECT file, stream, offset, time, line ->> '$.l', line FROM events WHERE file = '%s'" % pattern)
        self.assertEqual(rows, [(self.path(name), None, *row) for name, part in (("a.gz", lines[:half]), ("b.ndjson", lines[half:])) for row in self.events(part)])
        for source in ("events WHERE file = '%s'", "events('%s')", "(SELECT '%s' AS file) JOIN events USING (file)", "events JOIN (SELECT '%s' AS f) ON file IN (f, '')"):
            self.assertIn("prohibited", self.sql("--no-files", "SELECT line FROM " + source % pattern, expect=64))

    def test_lines_that_are_not_counted(self):
        """No line ends a statement, and the rejects name the lines that the aggregator has not counted."""
        self.put(10)
        lines = [b'{"t":1330560000,"l":"a","c":"broken', b"[1]", b"\xff", b'{"l":"no time","c":"JP"}', b'{"t":1330560000,"l":["array"],"c":"JP"}']
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)
        rejects = "SELECT CAST(line ->> '$.offset' AS INTEGER) FROM events WHERE file = '%s' AND line ->> '$.stream' = 'clicks'" % os.path.join(self.data, "aggregator/rejects/*.ndjson")
        counted = "SELECT count(*) FROM events WHERE stream = 'clicks' AND offset NOT IN (%s)" % rejects
        wait_until(lambda: self.rows(rejects) != [[]] and self.rows(counted, "SELECT count(*) FROM events WHERE stream = 'clicks'") == [[(self.sent,)], [(self.sent + len(lines),)]],
                   lambda: self.rows(rejects, counted))
        broken, texts, elements = self.rows(
            "SELECT line ->> '$.l', line ->> '$.c' FROM events WHERE stream = 'clicks' ORDER BY offset DESC LIMIT 5",
            "SELECT hex(text), line, time FROM events WHERE stream = 'clicks' AND line IS NULL ORDER BY offset",
            "SELECT value FROM events, json_each(line, '$.l') WHERE stream = 'clicks' AND offset NOT IN (SELECT offset FROM events WHERE stream = 'clicks' AND time IS NOT NULL)")
        self.assertEqual(broken, [('["array"]', "JP"), ("no time", "JP"), (None, None), (None, None), (None, None)])
        self.assertEqual(texts, [(line.hex().upper(), None, None) for line in lines[:3]])
        self.assertEqual(elements, [("no time",)])

    def test_a_search_by_time(self):
        """With max_ahead, a search begins at the first line that was published so long before the time, or later."""
        self.put(10)
        config = self.write("ahead.conf", harness.read_file(self.pipeline.config_path).decode().replace("max_ahead = 0", "max_ahead = 1h"))
        now = int(datetime.datetime.now(UTC).timestamp())
        lines = [json.dumps({"t": now + i, "l": "a", "c": "b"}).encode() for i in range(-5, 5)]
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)
        self.sent += len(lines)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")
        self.where = ["--config=" + config, "--data-dir=" + self.data]
        found, plan, future = self.rows("SELECT count(*) FROM events WHERE stream = 'clicks' AND time >= datetime(%d, 'unixepoch')" % now,
                                        "EXPLAIN QUERY PLAN SELECT * FROM events WHERE stream = 'clicks' AND time >= '2026'",
                                        "SELECT count(*) FROM events WHERE stream = 'clicks' AND time >= datetime('now', '+1 day')")
        self.assertEqual((found, future), ([(5,)], [(0,)]))
        self.assertIn("stream= time>=", plan[0][3])

    def test_each_count_once_during_compactions(self):
        """While events are counted and slices sealed, merged and cleared, no statement shows fewer counts than an earlier one, or more than sent."""
        self.put(100)
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")
        before = self.sent
        both = "SELECT (SELECT sum(n) FROM counts WHERE ns = 'u'), (SELECT sum(n) FROM counts WHERE ns = 'c.u')"
        kept = None if os.environ.get("MILLRACE_SANITIZED") else load_extension(self, self.data)  # keeps files from statement to statement
        for _ in range(5):
            self.put(200)
            p = subprocess.Popen([harness.program("millrace"), "compact", "--config", self.pipeline.config_path], stderr=subprocess.DEVNULL, cwd=self.dir)
            self.addCleanup(p.kill)
            while p.poll() is None:
                totals, subs = kept.execute(both).fetchone() if kept and self.random.random() < 0.5 else self.rows(both)[0][0]
                self.assertEqual(totals, subs)
                self.assertTrue(before <= totals <= self.sent, (before, totals, self.sent))
                before = totals
            self.assertEqual(p.returncode, 0)
            if kept:
                wait_until(lambda: kept.execute(both).fetchone() == (self.sent, self.sent), "the counts to be committed")
        wait_until(lambda: self.total() == self.sent, "the counts to be committed")

    @unittest.skipIf(os.environ.get("MILLRACE_SANITIZED"), "Python has no sanitizer")
    def test_statements_stay_open_over_compactions(self):
        """Each statement keeps the counts of its begin, and later counts are sealed, archived and committed meanwhile."""
        statements = []
        for n in (1, 2, 3):
            self.put(300)
            wait_until(lambda: self.total() == self.sent, "the counts to be committed")
            rows = load_extension(self, self.data).execute("SELECT n FROM counts WHERE ns = 'c.u'")
            statements.append((rows, self.sent, next(rows)[0]))
            self.put(50)
            self.compact()
            self.assertEqual(self.pipeline.ask("aggregator", "GET", "/slices").json()["open"], n + 1)
        for rows, total, first in statements:
            self.assertEqual(first + sum(n for n, in rows), total)
        self.assertEqual({name.split("-")[0] for name in os.listdir(os.path.join(self.data, "aggregator", "slices"))}, {"0000000004.db"})


class Quarters(Live):
    """Counts by quarter hour."""
    finest, minutes = "quarter", 15
    test_equals_the_api = test_events = test_a_search_by_time = test_statements_stay_open_over_compactions = None


class Http(harness.MillraceTest):
    """/v1/sql answers only admins, within limits, and other requests meanwhile."""

    def begin(self, **settings):
        data = self.path("data")
        tokens = self.write("tokens", "boss admin,read %s\nreader read %s\n" % ("b" * 32, "r" * 32))
        os.chmod(tokens, 0o600)
        config = self.write("pipeline.conf", harness.pipeline_config(data, COUNTERS, aggregator={"flush_interval": "50ms"},
                                                                     api={"tokens_file": tokens, **settings}))
        self.pipeline = harness.Pipeline(self, config, data).wait_ready()

    def ask(self, statement, token="b", what="sql"):
        headers = {"Authorization": "Bearer " + token * 32} if token else {}
        return self.pipeline.ask("api", "GET", "/v1/%s?%s" % (what, harness.query(q=statement) if statement else ""), headers=headers)

    def test_rows(self):
        self.begin(sql="yes", sql_max_rows=10, sql_max_time="1s", sql_max_memory="4M")
        lines = [json.dumps({"t": 1330560000 + 3600 * i, "l": key, "c": "JP"}).encode() for i, key in enumerate(ODD)]
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)
        statement = "SELECT key, n FROM counts WHERE ns = 'u' ORDER BY period LIMIT 10"
        expected = [{"key": key, "n": 1} for key in ODD[:10]]
        wait_until(lambda: self.ask(statement).json() == expected, "the counts to be committed")
        self.assertEqual(self.ask("SELECT 1 AS a WHERE 0").json(), [])
        self.assertEqual([self.ask(statement, token).status for token in ("r", "x", None)], [403, 401, 401])
        for wrong in ("SELEC", "SELECT * FROM events WHERE file = '/etc/passwd'", "SELECT line FROM events('/etc/passwd')", "CREATE TABLE t(a)", "ATTACH 'x' AS y", "PRAGMA user_version", "SELECT load_extension('x')", "SELECT 1; SELECT 2", "-- none", "SELECT [--max-rows]"):
            reply = self.ask(wrong)
            self.assertEqual((reply.status, reply.json()["code"]), (400, "wrong-statement"), wrong)
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
        for large in ("SELECT key FROM counts", endless + "SELECT count(*) FROM c", endless + "SELECT count(DISTINCT x) FROM c", "SELECT hex(zeroblob(300000000))",
                      "SELECT length(printf('%.*c', 900000000, 'x'))", endless + "SELECT length(group_concat(x)) FROM c"):
            reply = self.ask(large)
            self.assertEqual((reply.status, reply.json()["code"]), (422, "statement-limit"), large)
        self.assertEqual(self.ask("").json()["code"], "missing-parameter")

    def test_at_most_two(self):
        """While two statements run the API answers other requests. The children of clients that disconnect are killed."""
        self.begin(sql="yes", sql_max_time="1h")
        url, target = self.pipeline.daemon_url("api"), "/v1/sql?" + harness.query(q=ENDLESS)
        clients = [harness.connect(url) for _ in range(2)]
        for client in clients:
            self.addCleanup(client.close)
            client.request("GET", target, headers={"Authorization": "Bearer " + "b" * 32})
        children = lambda: subprocess.run(["pgrep", "-P", str(self.pipeline.daemon_pid("api"))], capture_output=True, check=False).stdout.split()
        wait_until(lambda: len(children()) == 2, "two children")
        self.assertEqual(self.ask("SELECT 1").json()["code"], "overloaded")
        self.assertEqual(self.ask("", what="counters").status, 200)
        for client in clients:
            client.close()
        wait_until(lambda: not children(), "the children to end")
        self.assertEqual(self.ask("SELECT 1 AS a").json(), [{"a": 1}])

    def test_off(self):
        self.begin()
        self.assertEqual((self.ask("SELECT 1").status, self.ask("SELECT 1").json()["code"]), (404, "sql-off"))

    def test_needs_a_token(self):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), COUNTERS, api={"sql": "yes"}))
        done = self.run_program("api", "--config", config, "--check-config")
        self.assertEqual(done.returncode, 78)
        self.assertIn(b"auth_token_file", done.stderr)


if __name__ == "__main__":
    harness.main()
