"""`millrace put --format=csv`: each file's first line names the fields, also for a put that continues."""
import gzip
import json
import time

import harness
from put_case import QueueTest


class Csv(QueueTest):
    def csv(self, *args, **kw):
        return self.put("--format=csv", *args, **kw)

    def events(self):
        return [json.loads(line) for line in self.stored()]

    def test_files(self):
        a = self.write("a.csv", '\ufefftime,user,"a note"\r\n1332547200,ann,"x, ""y""\r\nz"\r\n\r\n7,007,\r\n')
        with gzip.open(self.path("b.csv.gz"), "wb") as f:
            f.write(b"user,n\nbob,-1.5")
        done = self.csv(a, self.path("b.csv.gz"))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.events(), [{"time": 1332547200, "user": "ann", "a note": 'x, "y"\r\nz'}, {"time": 7, "user": "007"},
                                         {"user": "bob", "n": -1.5}])

    def test_a_put_that_continues(self):
        """It is killed at any place; the records, some over several lines, are stored once, in order."""
        want, text = [], ["n,text\n"]
        for n in range(3000):
            want.append({"n": n, "text": "x\n%d" % n} if n % 3 == 0 else {"n": n})
            text.append('%d,"x\n%d"\n' % (n, n) if n % 3 == 0 else "%d,\n" % n)
        self.write("a.csv", "".join(text[:1500]))
        self.write("b.csv", "text,n\n" + "".join('"x\n%d",%d\n' % (n, n) if n % 3 == 0 else ",%d\n" % n for n in range(1499, 3000)))
        argv = ("--format=csv", "--producer=p", "--batch=7", self.path("a.csv"), self.path("b.csv"))
        for rounds in range(5):
            begun, before = self.begin("--rate=3000", *argv), self.mark()
            harness.wait_until(lambda: self.mark() > before or begun.poll() is not None, "a batch")
            time.sleep(0.02 * rounds)
            begun.kill()
            begun.wait()
        done = self.put(*argv)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.events(), want)

    def test_wrong_records(self):
        a = self.write("a.csv", 'a,b\n1,2\n"x\ny"\n3,4\n5,"\n')
        done = self.csv(a)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the line at byte 8 of ", done.stderr)
        self.assertIn(b"the record has 1 field, and the first line has 2", done.stderr)
        self.assertIn(b"the first 1 record of ", done.stderr)
        self.assertEqual(self.events(), [{"a": 1, "b": 2}])
        done = self.csv("--rejects=" + self.path("rejects"), self.write("a.csv", 'a,b\n1,2\n"x\ny"\n3,4\n5,\'\n6\n'))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(harness.read_file(self.path("rejects")), b'"x\ny"\n6\n')
        self.assertEqual(self.events()[1:], [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": "'"}])
        done = self.csv("--rejects=" + self.path("rejects"), self.write("b.csv", ",\n1,2\n"))
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"b.csv: the first line must name the fields, but names none", done.stderr)
        done = self.csv("--rejects=" + self.path("rejects"), self.write("c.csv", "a,b\n1\n2\n"))
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"c.csv: each of its 2 lines was refused", done.stderr)
        self.assertIn(b"omit --follow", self.csv("--follow", "--producer=p", a).stderr)

    def test_a_quote_that_is_never_closed(self):
        """It is named, whatever follows it. The records before it are posted, the text behind it is not taken for a record."""
        text = 'a,b\n1,2\n"x\ny",3\n4,"5\n'
        for rest in ("", "6,7\n" * 1000, "6,7\n" * (5 << 20)):
            for args in ([], ["--rejects=" + self.path("rejects")]):
                before = len(self.stored())
                done = self.csv(*args, self.write("a.csv", text + rest))
                self.assertEqual(done.returncode, 65, done)
                self.assertRegex(done.stderr, rb"a.csv: .*quote is? ?missing|a.csv: the closing quote of a value is missing")
                self.assertIn(b"(the line at byte %d)" % text.index('4,"'), done.stderr)
                self.assertEqual(self.events()[before:], [{"a": 1, "b": 2}, {"a": "x\ny", "b": 3}])
        self.assertEqual(harness.read_file(self.path("rejects")), b"")

    def test_files_without_a_record(self):
        """However often they are posted, also with a producer. An empty file of lines has nothing to post, as an empty log."""
        header = self.write("h.csv", "a,b\n")
        for text in ("", "a,b\n", "a,b", "\n\n", b"\0" * 5000, "a,b\n\n", b"\xef\xbb\xbf", "sep=;\n"):
            for args in ([], ["--producer=p"], ["--producer=p"]):
                done = self.csv(*args, self.write("a.csv", text))
                self.assertEqual(done.returncode, 65, (text, done))
                self.assertIn(b"a.csv: the file has no record", done.stderr)
            self.assertEqual(self.csv(input=text if isinstance(text, bytes) else text.encode()).returncode, 65)
        self.assertEqual(self.csv("--producer=q", "--rejects=" + self.path("r"), self.write("a.csv", "a,b\n1\n")).returncode, 65)
        self.assertEqual(self.csv("--producer=q", "--rejects=" + self.path("r"), self.path("a.csv")).returncode, 65)
        self.assertEqual(self.stored(), [])
        self.assertEqual(self.csv("--producer=p", self.write("h.csv", "a,b\n1,2\n")).returncode, 0)
        self.assertEqual(self.csv("--producer=p", header).returncode, 0)
        self.assertEqual(self.events(), [{"a": 1, "b": 2}])
        for text in (b"", b"\0" * 5000):
            self.assertEqual(self.put(self.write("log", text)).returncode, 0)
            self.assertEqual(self.put(input=text).returncode, 0)
            self.assertEqual(self.put("--format=combined", self.path("log")).returncode, 0)

    def check(self, content, events, *args, said=b""):
        before = len(self.stored())
        done = self.csv(*args, self.write("a.csv", content))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.events()[before:], events)
        self.assertIn(said, done.stderr)
        return done

    def test_columns_without_a_name(self):
        done = self.check(",t,l\n0,1795876708,ann\n1,1795876709,bob\n", [{"t": 1795876708, "l": "ann"}, {"t": 1795876709, "l": "bob"}],
                          said=b"warning: %s: ignored: columns without a name, or with the name of an earlier column: 1\n" % self.path("a.csv").encode())
        self.assertEqual(done.stderr.count(b"ignored: "), 1)
        self.check("t,l,\n1795876708,ann,\n", [{"t": 1795876708, "l": "ann"}])

    def test_delimiters(self):
        for d in ";\t|,":
            self.check("t%sl\n1795876708%sann\n" % (d, d), [{"t": 1795876708, "l": "ann"}])
        self.check("a,b#c\n1#2\n", [{"a,b": 1, "c": 2}], "--delimiter=#")
        self.check("a,b\tc\n1\t2\n", [{"a,b": 1, "c": 2}], "--delimiter=tab")
        self.assertEqual(self.csv("--delimiter=ab", self.path("a.csv")).returncode, 64)

    def test_line_ends(self):
        self.check("t,l\r1,ann\r2,\"x\ry\"\r", [{"t": 1, "l": "ann"}, {"t": 2, "l": "x\ny"}])
        self.check("t,l\r\n1,ann\r\n", [{"t": 1, "l": "ann"}])
        self.check("n\r" + "".join("%d\r" % n for n in range(100000)), [{"n": n} for n in range(100000)])

    def test_encodings(self):
        text, want = "t,l\n1,J\u00f6rg \u20ac\n2,b\n", [{"t": 1, "l": "J\u00f6rg \u20ac"}, {"t": 2, "l": "b"}]
        self.check(text.encode("cp1252"), want, "--encoding=windows-1252")
        self.check(text.encode("utf-16"), want)
        self.check(text.encode("utf-16-be"), want, "--encoding=UTF-16BE")
        self.check(gzip.compress(text.encode("utf-16")), want)
        self.check((text * 1).encode("cp1252"), [{"t": 1, "l": "J\ufffdrg \ufffd"}, {"t": 2, "l": "b"}],
                   said=b"warning: the line at byte 4 of %s has invalid text, which U+FFFD replaces; --encoding names another encoding" % self.path("a.csv").encode())
        self.assertIn(b" 1 with invalid text", self.csv(self.path("a.csv")).stderr)
        for encoding, surrogate in (("utf-16le", b"\0\xd8"), ("utf-16be", b"\xd8\0"), ("utf-32le", b"\0\xd8\0\0"), ("utf-16le", b"\0\xdc")):
            broken = "t,l\n1,J".encode(encoding) + surrogate + "rg \u20ac\n2,b\n".encode(encoding)
            self.check(broken, [{"t": 1, "l": "J\ufffdrg \u20ac"}, {"t": 2, "l": "b"}], "--encoding=" + encoding, said=b"has invalid text")
        self.check(b"\xff\xfe" + "t,l\n1,J".encode("utf-16-le") + b"\0\xdcx\0\n\0", [{"t": 1, "l": "J\ufffdx"}], said=b"has invalid text")
        long = "l\n" + "".join("%d\u20ac\n" % n for n in range(100000))
        self.check(long.encode("utf-16"), [{"l": "%d\u20ac" % n} for n in range(100000)])
        done = self.csv("--encoding=none-such", self.path("a.csv"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"unknown encoding none-such", done.stderr)

    def test_utf_16_without_its_mark(self):
        log = '192.0.2.7 - - [24/Mar/2012:09:00:00 +0900] "-" 200 1\n'
        for form, text in (("csv", "time,l\n1,ann\n"), ("combined", log)):
            for encoding in ("utf-16le", "utf-16be"):
                before = self.stored()
                done = self.put("--format=" + form, self.write("a", text.encode(encoding)))
                self.assertEqual((done.returncode, self.stored()), (65, before), done)
                self.assertIn(b"the line has NUL bytes; UTF-16 needs --encoding=UTF-16LE or UTF-16BE", done.stderr)
                self.assertEqual(self.put("--format=" + form, "--encoding=" + encoding, self.path("a")).returncode, 0)

    def test_an_encoded_file_that_grows(self):
        text = ["l\n", *("%d\u00e9\n" % n for n in range(10))]
        for n, want in ((6, 5), (6, 0), (11, 5)):
            before = self.depth()
            self.assertEqual(self.csv("--producer=p", "--encoding=latin1", self.write("a.csv", "".join(text[:n]).encode("latin1"))).returncode, 0)
            self.assertEqual(self.depth() - before, want)

    def test_a_file_that_grows_after_nuls(self):
        rows = ["%d\n" % n for n in range(10)]
        for n, want in ((5, 5), (5, 0), (10, 5)):
            before = self.depth()
            done = self.csv("--producer=p", self.write("a.csv", "\0" * 300 + "n\n" + "\0" * 5 + "".join(rows[:n])))
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.depth() - before, want)
        self.assertEqual(self.events(), [{"n": n} for n in range(10)])

    def test_times(self):
        noon = "2026-11-28T12:00:00Z"
        naive = b"times without a zone are read in the zone of --time-zone"
        done = self.check("t,l\n2026-11-28 12:00:00,a\n2026-11-28T12:00:00,b\n2026-11-28 12:00:00+00,c\n",
                          [{"t": noon, "l": l} for l in "abc"], "--time-field=t", said=naive)
        self.assertEqual(done.stderr.count(naive), 1)
        done = self.check("t\n2026-11-28 13:00:00\n", [{"t": noon}], "--time-field=t", "--time-zone=Europe/Berlin")
        self.assertNotIn(naive, done.stderr)
        self.check("t\n28.11.2026 13:00\n", [{"t": noon}], "--time-field=t", "--time-zone=Europe/Berlin", "--time-format=%d.%m.%Y %H:%M")
        self.assertEqual(self.csv("--time-zone=Mars/Base", self.path("a.csv")).returncode, 64)
        before = self.stored()
        for args, said in ([], b"24.03.2026 13:00 is not a time; name its form, such as --time-format='%d.%m.%Y %H:%M'"), \
                (["--time-format=%d/%m/%Y"], b"24.03.2026 13:00 is not a time of the form of --time-format"):
            done = self.csv("--time-field=t", *args, self.write("a.csv", "t\n24.03.2026 13:00\n"))
            self.assertEqual((done.returncode, self.stored()), (65, before), done)
            self.assertIn(said, done.stderr)

    def test_a_change_of_the_clocks(self):
        """A skipped time is refused. Of a time that clocks show twice, the first counts, with a warning."""
        zone, twice = ("--time-field=t", "--time-zone=Europe/Berlin"), b"the first occurrence counts"
        done = self.check("t\n2026-10-25 02:30:00\n2026-10-25 02:40:00\n2026-10-25 03:00:00\n2026-10-25 01:59:59\n",
                          [{"t": t} for t in ("2026-10-25T00:30:00Z", "2026-10-25T00:40:00Z", "2026-10-25T02:00:00Z", "2026-10-24T23:59:59Z")],
                          *zone, said=twice)
        self.assertEqual(done.stderr.count(twice), 1)
        for form, text in ([], "2026-03-29 02:30:00"), (["--time-format=%d.%m.%Y %H:%M"], "29.03.2026 02:30"):
            done = self.csv(*zone, *form, self.write("a.csv", "t\n%s\n" % text))
            self.assertEqual(done.returncode, 65, done)
            self.assertIn(b"the clocks of --time-zone skip the time " + text.encode(), done.stderr)
        self.check("t\n2026-03-29 01:59:59\n2026-03-29 03:00:00\n", [{"t": "2026-03-29T00:59:59Z"}, {"t": "2026-03-29T01:00:00Z"}], *zone)

    def test_times_without_a_column_for_them(self):
        """Their zone is unknown, so no event is posted with them, unless the user says so."""
        text = "n,ts\n5,2026-11-28 12:00:00\n6,2026-11-28 12:00:01\n"
        for args in ([], ["--time-field=t"]):
            done = self.csv(*args, self.write("a.csv", text))
            self.assertEqual((done.returncode, self.events()), (65, []), done)
            self.assertIn(b'"ts" has a time, but is not the time column; use --time-field=COLUMN', done.stderr)
        self.check(text, [{"n": n, "ts": "2026-11-28 12:00:0%d" % (n - 5)} for n in (5, 6)], "--time-field=")
        self.check(text, [{"n": n, "ts": "2026-11-28T12:00:0%dZ" % (n - 5)} for n in (5, 6)], "--time-field=ts")
        self.check("n,ts\n5,2026-11-28T12:00:00Z\n6,x\n", [{"n": 5, "ts": "2026-11-28T12:00:00Z"}, {"n": 6, "ts": "x"}])

    def test_options_that_only_csv_has(self):
        for option in ("--time-field=t", "--time-format=%Y", "--delimiter=;"):
            for form in ("--format=lines", "--format=combined", "--log-format=%h %t"):
                done = self.put(form, option, self.write("a", '{"t":"2026-11-28 12:00:00"}\n'))
                self.assertEqual((done.returncode, self.stored()), (64, []), done)
                self.assertIn(option.split("=")[0].encode() + b" is for --format=csv. JSON lines are posted unchanged", done.stderr)


if __name__ == "__main__":
    harness.main()
