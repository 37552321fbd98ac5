"""Imports of CSV files of counts: the forms that other counters export, what is refused, and how answers mark counts of whole days."""
import csv
import datetime
import gzip
import io
import json
import zoneinfo

import harness
import test_api
from harness import query
from record_text import stored
from test_api import hour_text

CONFIG = """[input]
time = t
[total all]
key = "all"
[subtotal site.all]
key = host(url)
label = site
[total site]
key = host(url)
label = site
[total page]
key = path(url)
label = page
[total tag]
key = query(url,tag)
label = tag
[subtotal p.site]
key = path(url)
label = page
"""
HITS = """2Path,Title,Event,UserAgent,Browser,System,Session,Bot,Referrer,Referrer scheme,Screen size,Location,FirstVisit,Date
/,"Home, sweet",false,,Firefox 121,Linux,1a-b,0,,,"1920,1080,1",DE,true,2024-01-31T01:05:07Z
/about?x=1,About,false,,Firefox 121,Linux,1a-b,0,example.net,h,"1920,1080,1",DE,false,2024-01-31T01:59:59Z
/,Home,false,,Chrome 120,,9f-e,0,,,,US,true,2024-01-31T23:00:00+02:00
"""
PAGES = """"date","hostname","page","visits","visitors","pageviews"
"2024-01-30","Shop.example","/",8,8,9
"2024-01-30","shop.example","/a-rather-long-path",1,1,2
"2024-01-31","shop.example:8080","/",3,3,4
"2024-01-31","other.example","",1,1,0
"""
VISITORS = """date,visitors,pageviews,visits,views_per_visit,bounce_rate,visit_duration
2024-01-30,9,11,9,1.2,50,61
2024-01-31,4,4,4,1.0,75,12
"""
LABELS = """date,label,nb_visits,nb_hits,sum_time_spent,url
2024-01-30,/caf\u00e9,8,9,12,https://shop.example/caf%C3%A9
2024-01-31," /a,b",2,3,0,
"""
FREE_FORM = """# ----------------------------------------
# Shop
# Free form-Free form 1
# 20240130-20240131
# ----------------------------------------

Date,Page path and screen class,Active users,Event count,Views
,,12,70,16,Grand total
20240130,/,8,40,9
20240131,/cart,4,30,7
"""


def seconds(text, zone="UTC"):
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp())


def at(text, zone="UTC"):
    return hour_text(seconds(text, zone)).encode()


class ImportCase(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.config, self.archive = self.write("views.conf", CONFIG), self.path("archive")

    def compactor(self, *args, expect=0):
        done = self.run_program("compactor", "--config=" + self.config, "--archive=" + self.archive, "--aggregator-url=none",
                                "--sortdb-url=none", *args)
        self.assertEqual(done.returncode, expect, done.stderr.decode())
        return done

    def add(self, text, *args, name="counts.csv", **kw):
        return self.compactor("--import", "--format=csv", self.write(name, text), *args, **kw).stderr.decode()

    def manifest(self):
        return harness.read_file(self.archive + "/current/manifest.json")

    def records(self):
        """The archive's records without lookups, of which self.texts has the texts."""
        lines = self.compactor("--export").stdout.splitlines()
        lookups = [line[len(b"lookup|"):].split(b",", 1) for line in lines if line.startswith(b"lookup|")]
        self.assertEqual([stored(text) for _, text in lookups], [name for name, _ in lookups])
        self.texts = {text for _, text in lookups}
        self.compactor("--verify")
        return sorted(line for line in lines if not line.startswith(b"lookup|"))


class Forms(ImportCase):
    def test_goatcounter(self):
        with gzip.open(self.path("hits.csv.gz"), "wb") as f:
            f.write(HITS.encode())
        self.compactor("--import", "--format=csv", "--counter=page", "--date=Date", "--key=2Path", "--count-rows", self.path("hits.csv.gz"))
        self.assertEqual(self.records(), [b"page|/,%s:1 %s:1" % (at("2024-01-31T01:00"), at("2024-01-31T21:00")),
                                          b"page|/about,%s:1" % at("2024-01-31T01:00")])
        self.assertNotIn(b"coarse", self.manifest())

    def test_plausible(self):
        """The host is normalized as that of a URL; the same file is imported once to each counter."""
        site, path, zone = stored(b"shop.example"), stored(b"/a-rather-long-path"), "--time-zone=Europe/Berlin"
        self.add(PAGES, "--counter=site", "--key=hostname", "--count=pageviews", zone)
        self.assertEqual((len(self.records()), self.texts), (1, {b"shop.example"}))
        self.add(PAGES, "--counter=site/page", "--key=hostname", "--sub=page", "--count=pageviews", zone)
        self.add(PAGES, "--counter=site.all", "--sub=hostname", "--count=visits", zone)
        self.add(VISITORS, "--counter=all", "--count=pageviews", zone, name="visitors.csv")
        day, next_day = at("2024-01-30", "Europe/Berlin"), at("2024-01-31", "Europe/Berlin")
        self.assertEqual(next_day, at("2024-01-30T23:00"))
        self.assertEqual(self.records(), sorted([
            b"all|all,%s:11 %s:4" % (day, next_day), b"site|%s,%s:11 %s:4" % (site, day, next_day),
            b"p.site|%s.%s,%s" % (site, day, b" ".join(sorted([b"/:9", path + b":2"]))), b"p.site|%s.%s,/:4" % (site, next_day),
            b"site.all|all.%s,%s:9" % (day, site),
            b"site.all|all.%s,%s" % (next_day, b" ".join(sorted([site + b":3", stored(b"other.example") + b":1"])))]))
        self.assertEqual(self.texts, {b"shop.example", b"other.example", b"/a-rather-long-path"})

    def test_matomo(self):
        """Its text is UTF-16 with a byte order mark."""
        self.add(b"\xff\xfe" + LABELS.encode("utf-16-le"), "--counter=page", "--key=label", "--count=nb_hits")
        self.assertEqual(self.records(), sorted([b"page|/caf\xc3\xa9,%s:9" % at("2024-01-30"),
                                                 b"page|%s,%s:3" % (stored(b" /a,b"), at("2024-01-31"))]))

    def test_google_analytics(self):
        args = "--counter=page", "--date=Date", "--key=Page path and screen class", "--count=Views"
        self.assertIn("counts.csv:8: the record has 6 fields", self.add(FREE_FORM, *args, expect=78))
        self.assertIn('rows=1 first="', self.add(FREE_FORM, *args, "--skip-bad"))
        self.assertEqual(self.records(), [b"page|/,%s:9" % at("2024-01-30"), b"page|/cart,%s:7" % at("2024-01-31")])

    def test_own_rows(self):
        """Columns in any order, units by form, counters by row, and a file without dates."""
        self.add("count;key;counter;hour\n5;a;site;2024-01-31T13\n6;;page;2024-01-31 14\n7;x;tag;2024013115\n8;http://A/?tag=x;tag;2024013115\n"
                 "9;A:80;site;2024-01-31T13:59:59+00:30\n0;zero;site;2024-01\n")
        self.assertNotIn(b"coarse", self.manifest())
        self.add("key,count\nb,3\n", "--counter=site", "--period=2024-02", name="month.csv")
        self.assertEqual(self.records(), sorted([b"site|a,%s:14" % at("2024-01-31T13:00"), b"page|None,%s:6" % at("2024-01-31T14:00"),
                                                 b"tag|x,%s:15" % at("2024-01-31T15:00"), b"site|b,%s:3" % at("2024-02-01")]))

    def test_a_zone_of_half_hours(self):
        """The first UTC hour that starts within the day: the API adds this hour to the day."""
        self.add("date,key,count\n2024-01-31,a,3\n", "--counter=site", "--time-zone=Asia/Kolkata")
        self.assertEqual(self.records(), [b"site|a,%s:3" % at("2024-01-30T19:00")])


class SameKeys(ImportCase):
    def test_as_events_are_counted(self):
        """Rows with the values of random events become the records of these events."""
        rng = harness.seeded()
        self.config = self.write("random.conf", "[input]\ntime = t\n[counters]\nmax_text = 64\n[total u]\nkey = l\n[total h]\nkey = host(l)\n"
                                 "[total p]\nkey = path(l)\n[total q]\nkey = query(l,tag)\n[total o]\nkey = lower(l)\n[subtotal c.u]\nkey = c\n"
                                 "[total all]\nkey = \"all\"\n[subtotal o.all]\nkey = status_class(c)\n")
        words = ["", "a", "Long-Name.example", "caf\u00e9", "x" * 70, "y, \"z\"", "~", "a.b|c:d", "line\nend", "404", "\u65e5\u672c" * 15]
        events = [{"t": "2024-01-%02dT%02d:05:00Z" % (rng.randrange(1, 4), rng.randrange(24)),
                   "l": rng.choice(("", "http://%s:80/%s?tag=%s" % tuple(rng.choice(words) for _ in range(3)))), "c": rng.choice(words)}
                  for _ in range(500)]
        text = io.StringIO()
        table = csv.DictWriter(text, ["c", "t", "l"])
        table.writeheader()
        table.writerows(events)
        for counter in ("u", "h", "p", "q", "o", "c.u", "all", "o.all"):
            self.add(text.getvalue().encode(), "--counter=" + counter, "--date=t", "--key=l", "--sub=c", "--count-rows")
        lines = "".join(json.dumps(event) + "\n" for event in events).encode()
        counted = self.run_program("count_lines", self.config, input=lines)
        self.assertEqual(counted.stderr, b"events 500 skipped 0 rejected 0\n")
        self.assertEqual(sorted(self.compactor("--export").stdout.splitlines()), sorted(counted.stdout.splitlines()))


class Refusals(ImportCase):
    def test_wrong_rows(self):
        good, args = "date,key,count\n2024-01-31,a,1\n", ("--counter=site",)
        for row, why in (("2024-02-30,b,1", "3: there is no such date"), ("31.01.2024,b,1", "3: the date is not a month"),
                         ("2024-01-31,b,1.5", "3: the count is not a whole number: 1.5;"), ("2024-01-31,b,", "3: the count is not a whole number: it is empty"),
                         ("2024-01-31,b,-1", "3: the count is not"), ("1999-12-31,b,1", "3: the date is not in 2000 to 2159"),
                         ("2024-01-31,b", "3: the record has 2 fields"), (b"2024-01-31,\xff,1", "3: the key is not UTF-8"),
                         ("2024-01-31,b,1,234", "3: the record has 4 fields, and the first line has 3; quotes must enclose"),
                         *(('2024-01-31,b,"%s"' % n, "3: the count is not a whole number: %s; if it has separators of thousands, write %s;" % (n, digits))
                           for n, digits in (("1,234", "1234"), ("1.234", "1234"), ("1 234", "1234"), ("12'345'678", "12345678"),
                                             ("1\u00a0234", "1234"), ("1\u202f234", "1234"))),
                         ('2024-01-31,b,"1,23"', "3: the count is not a whole number: 1,23;"),
                         ('2024-01-31,b,"1234,567"', "3: the count is not a whole number: 1234,567;"),
                         ('2024-01-31,"b,1', "3: the closing quote")):
            row = row if isinstance(row, bytes) else row.encode()
            self.assertIn("counts.csv:" + why, self.add(good.encode() + row + b"\n", *args, expect=78))
        self.assertEqual(self.records(), [])
        self.assertIn("counts.csv:3: ", self.add(good + "2024-01-31,b,x\n", *args, "--skip-bad"))
        self.assertEqual(self.records(), [b"site|a,%s:1" % at("2024-01-31")])

    def test_stray_quotes(self):
        """A quote that opens a value takes the lines up to the next quote with it. Without another one, no row after it is known."""
        rows = ['2024-01-31,k%d,1' % n for n in range(300)]
        args, head = ("--counter=site", "--skip-bad"), "date,key,count\n"
        rows[9] = '2024-01-31,"k9,1'
        self.assertIn("counts.csv:11: the closing quote of a value is missing", self.add(head + "\n".join(rows) + "\n", *args, expect=78))
        later = rows[:8] + ['2024-01-31,"k\n8","1'] + rows[10:]
        self.assertIn("counts.csv:11: the closing quote", self.add(head + "\n".join(later), *args, expect=78))
        long = rows[:10] + (1 << 17) * ["2024-01-31," + 120 * "k" + ",1"]
        self.assertIn("counts.csv:11: the record is too long, or a quote", self.add(head + "\n".join(long), *args, expect=78))
        self.assertEqual(self.records(), [])
        rows[99] = '2024-01-31,"k99,1'
        said = self.add(head + "\n".join(rows) + "\n", *args)
        self.assertRegex(said, r'rows=1 first="[^"]*counts.csv:11: text after a closing quote" lines=91\n')
        self.assertEqual(len(self.records()), 300 - 91)

    def test_wrong_files(self):
        for text, args, why in (
                ("date,key,n\n2024-01-31,a,1\n", ["--counter=site"], "counts.csv:1: there is no column count; name it with --count=COLUMN"),
                ("date,key,count\n", ["--counter=site", "--key=Key"], "there is no column Key"),
                ("date,sub,count\n", ["--counter=site/page"], "there is no column key; name it with --key=COLUMN"),
                ("date,key,count\n", ["--counter=site/page"], "there is no column sub; name it with --sub=COLUMN"),
                ("date,key,count\n", [], "there is no column counter; name it with --counter=COUNTER"),
                ("date,key,count\n", ["--counter=site"], "no row to import"), ("# only\n", ["--counter=site"], "no line names the columns"),
                ("date,key,count\nx,a,1\n", ["--counter=site", "--skip-bad"], "no row to import"),
                ("date,key,count\n", ["--counter=sites"], "there is no counter sites"),
                ("date,counter,count\n2024-01-31,site,1\n", [], "no column of keys")):
            self.assertIn(why, self.add(text, *args, expect=64 if "--counter=sites" in args else 78))
        for args, status in ((["--counter=site"], 64), (["--import", "--format=csv", "--time-zone=Mars", "x"], 64),
                             (["--export", "--skip-bad"], 64), (["--import", "--format=csv", "--period=2024", "--date=d", "x"], 64)):
            self.compactor(*args, expect=status)
        name = self.write("counts.csv", "date,key,count\n2024-01-31,a,1\n")
        self.assertIn(b"counts.csv:1: not a record; to import a CSV file whose first row names the columns, add --format=csv",
                      self.compactor("--import", name, expect=78).stderr)
        self.assertEqual(self.records(), [])

    def test_the_same_file(self):
        text = "date,key,count\n2024-01-31,a,1\n"
        self.add(text, "--counter=site")
        for args in ([], ["--time-zone=Asia/Tokyo"], ["--counter=site"]):
            self.assertIn("imported before", self.add(text, "--counter=site", *args, expect=78, name="renamed.csv"))
        self.add(text, "--counter=site", "--again")
        self.assertEqual(self.records(), [b"site|a,%s:2" % at("2024-01-31")])


class Answers(ImportCase):
    def setUp(self):
        super().setUp()
        self.live = test_api.Source(self)
        self.live.records["site|a"] = "%s:5" % at("2024-01-31T01:00").decode()
        self.add("date,key,count\n2024-01-30,a,7\n2024-01-31,a,9\n", "--counter=site", "--time-zone=Europe/Berlin")
        self.add("date,key,sub,count\n2024-01,a,/,7\n", "--counter=site/page", name="months.csv")
        sortdb = self.start("sortdb", "--archive", self.archive)
        self.apis = [self.start("api", "--config", self.config, "--aggregator-url", self.live.url, *args)
                     for args in (("--archive", self.archive), ("--sortdb-url", sortdb.url))]
        harness.wait_until(lambda: "reading the archive" in self.apis[0].log, lambda: self.apis[0].log)

    def ask(self, path, **params):
        """The same answer from both, also when the API has kept the series."""
        target = "/v1/%s?%s" % (path, query(**params))
        replies = [api.get(target) for api in self.apis + self.apis[:1]]
        for reply in replies:
            self.assertEqual((reply.status, reply.body), (200, replies[0].body), target)
        return replies[0]

    def test_hours_are_marked_and_days_are_not(self):
        zone = "Europe/Berlin"
        span = {"from_": seconds("2024-01-29T22:00", zone), "to": seconds("2024-02-01T02:00", zone), "timezone": zone}
        rows = self.ask("series", site="a", unit="hour", **span).json()["rows"]
        midnight = seconds("2024-01-30", zone)
        self.assertEqual([(r["t"], r["n"]) for r in rows if r["n"]],
                         [(midnight, 7), (midnight + 86400, 9), (seconds("2024-01-31T01:00"), 5)])
        self.assertEqual([r["t"] for r in rows if r.get("of") == "day"], [midnight + 3600 * h for h in range(48)])
        days = self.ask("series", site="a", unit="day", **span).json()["rows"]
        self.assertEqual([(r["n"], r.get("of")) for r in days], [(0, None), (7, None), (14, None), (0, None)])
        days = self.ask("series", site="a", unit="day", **{**span, "timezone": "UTC"}).json()["rows"]
        self.assertEqual([(r["n"], r.get("of")) for r in days], [(7, "day"), (9, "day"), (5, "day"), (0, None)])
        compared = self.ask("compare", site="a", unit="hour", from_=midnight + 86400, to=midnight + 86400 + 7200, timezone=zone, against="before").json()
        self.assertEqual([(r.get("of"), r["before"].get("of")) for r in compared["rows"]], [("day", "day")] * 2)

    def test_csv(self):
        span = {"from_": seconds("2024-01-30T22:00"), "to": seconds("2024-01-31T00:00"), "unit": "hour", "format": "csv"}
        lines = self.ask("series", site="a", **span).text.splitlines()
        self.assertEqual((lines[0], [line.split(",")[-1] for line in lines[1:]]), ("t,date,n,complete,of", ["day", "day"]))
        lines = self.ask("compare", site="a", **{**span, "against": "before"}).text.splitlines()
        self.assertEqual((lines[0].split(",")[-2:], lines[1].split(",")[-2:]), (["of", "before_of"], ["day", "day"]))
        lines = self.ask("series", site="a", by="page", sub="/", **{**span, "from_": seconds("2023-12-31T23:00"),
                                                                    "to": seconds("2024-01-01T01:00")}).text.splitlines()
        self.assertEqual([line.split(",")[-1] for line in lines], ["of", "", "month"])
        self.assertEqual(self.ask("series", page="/", **span).text.splitlines()[0], "t,date,n,complete")

    def test_breakdowns(self):
        for begin, end, of in (("2024-01-01", "2024-02-01", None), ("2024-01-01", "2024-01-02", "month"), ("2024-02-02", "2024-02-03", None)):
            got = self.ask("breakdown", site="a", by="page", from_=seconds(begin), to=seconds(end)).json()
            self.assertEqual(got.get("of"), of, begin)
            self.assertEqual([r["n"] for r in got["rows"]], [7] if begin == "2024-01-01" else [])

    def test_query_says_so(self):
        def printed(unit):
            return self.run_program("millrace", "query", "series", "--api-url=" + self.apis[0].url, "--site=a", "--unit=" + unit, "--timezone=Europe/Berlin",
                                    "--from=2024-01-30", "--to=2024-02-01").stdout.decode()
        self.assertIn("some counts are of a whole day", printed("hour"))
        self.assertNotIn("whole day", printed("day"))

    def test_kept_rows_change_with_an_import(self):
        """The import adds no count to the rows that are kept, but the rows are marked now."""
        span = {"from_": seconds("2024-02-05"), "to": seconds("2024-02-06"), "unit": "hour", "timezone": "Europe/Berlin"}
        for _ in range(2):
            self.assertNotIn(b'"of"', self.ask("series", site="a", **span).body)
        self.add("date,key,count\n2024-02-10,a,1\n", "--counter=site", "--time-zone=Europe/Berlin", name="more.csv")
        for api in self.apis[:1]:
            self.assertEqual(api.post("/reload").status, 200)
            self.assertEqual(api.get("/v1/series?" + query(site="a", **span)).body.count(b'"of":"day"'), 24)
        self.assertEqual(self.compactor("--drop-before=2023-01-01").returncode, 0)
        self.assertIn(b'"coarse":{"site":"day ', self.manifest())

    def test_days_of_several_zones(self):
        """Days of UTC beside days of Berlin: no zone has only whole days any more, so the rows within are marked in both."""
        def marks(zone):
            span = {"from_": seconds("2024-01-30", zone), "to": seconds("2024-02-02", zone), "unit": "day", "timezone": zone}
            return [(r["n"], r.get("of")) for r in self.apis[0].get("/v1/series?" + query(site="a", **span)).json()["rows"]]
        self.assertEqual(marks("Europe/Berlin"), [(7, None), (14, None), (0, None)])
        self.add("date,key,count\n2024-02-01,a,3\n", "--counter=site", name="utc.csv")
        self.assertEqual(self.apis[0].post("/reload").status, 200)
        self.assertEqual(marks("Europe/Berlin"), [(7, "day"), (14, "day"), (3, "day")])
        self.assertEqual(marks("UTC"), [(9, "day"), (5, "day"), (3, "day")])


class Removals(ImportCase):
    def setUp(self):
        super().setUp()
        self.add("date,key,count\n2024-01-01,a,1\n2024-01-31,b,2\n", "--counter=site")
        self.add("date,key,sub,count\n2024-01-15,a,/,7\n", "--counter=site/page", name="pages.csv")

    def coarse(self):
        return json.loads(self.manifest()).get("coarse")

    def test_a_drop_cuts_the_times_of_whole_days(self):
        first, second, end = (seconds(text) for text in ("2024-01-01", "2024-01-15", "2024-02-01"))
        pages = "day %d %d UTC" % (second, second + 86400)
        self.assertEqual(self.coarse(), {"site": "day %d %d UTC" % (first, end), "p.site": pages})
        self.compactor("--drop-before=2024-01-31", "--ns=p.site")
        self.assertEqual(self.coarse(), {"site": "day %d %d UTC" % (first, end)})
        self.compactor("--drop-before=2024-01-15")
        self.assertEqual(self.coarse(), {"site": "day %d %d UTC" % (second, end)})
        self.compactor("--drop-before=2024-02-01")
        self.assertIsNone(self.coarse())

    def test_the_last_key_takes_the_times_with_it(self):
        self.compactor("--forget=site|a")
        self.assertEqual(list(self.coarse()), ["site"])
        self.compactor("--forget=b")
        self.assertIsNone(self.coarse())


if __name__ == "__main__":
    harness.main()
