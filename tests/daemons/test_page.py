"""The web page in a real browser, over a running pipeline: tests/page/check.mjs does what a person would do."""
# label: surface
# seconds: 240
# parts: 7
# processors: 2
# full: MILLRACE_ROUNDS=80
import collections
import datetime
import functools
import gzip
import http.server
import json
import os
import random
import shutil
import subprocess
import threading
import time
import zoneinfo

import answers
import harness
from page_case import PageCase

DRIVER = os.path.join(harness.ROOT, "tests", "page")
USERS, COUNTRIES = ("bitly", "nasa", "nato", "o_1"), ("US", "JP", "DE", "BR")
DAYS = 6
FULL = harness.rounds(1) > 1


DEEP = """[input]
time = meta.at
time_unit = ms
[total all]
key = "all"
label = feed
[subtotal u.all]
key = l
label = user
[total u]
key = l
label = user
"""


def website():
    text = harness.read_file(os.path.join(harness.ROOT, "etc", "website.conf")).decode()
    return text[text.index("[input]"):]
VISITORS = """[input]
time = t
[total all]
key = "all"
label = feed
[total u]
key = l
label = user
[subtotal c.u]
key = c
label = country
[unique v.all]
member = v
label = visitor
[unique v.u]
member = v
label = visitor
[unique h.u]
member = v
by = hour
label = hourly
[total sales]
key = "all"
value = price
scale = 2
unit = "€"
label = sales
"""


VALUES = """[input]
time = t
resolution = 15m
[total all]
key = "all"
label = feed
[subtotal page.all]
key = path
label = page
[total revenue]
key = product
value = price
scale = 2
unit = "€"
[subtotal country.revenue]
key = country
[total page]
key = path
label = page
[subtotal ms.page]
key = bucket(ms)
label = ms
"""


# Checks of the page alone, which no sanitizer watches.
DRAWING = ("has no serious fault of accessibility", "draws quickly", "does not shift in any order of answers", "draws 5,000 points in 50 ms",
           "shows a new event within two seconds", "fits from 320 pixels to 4K, light and dark", "stays level in memory")


class Driver:
    """check.mjs and its browser, which start with the first task and end with the last test."""

    def __init__(self):
        self.process = None

    def start(self):
        shots = os.path.join(harness.BUILD, "page-shots")
        os.makedirs(shots, exist_ok=True)
        settings = {"chromium": harness.chromium(), "patience": harness.PATIENCE, "shots": shots}
        self.process = subprocess.Popen(harness.dies_with_us(["node", os.path.join(DRIVER, "check.mjs"), json.dumps(settings)]),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, task):
        """Returns how many checks have failed, and what they say."""
        if not self.process or self.process.poll() is not None:
            self.stop()
            self.start()
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            if line.startswith("end "):
                return int(line.split()[1]), "".join(said)
            said.append(line)
        return sum(map(len, task["checks"])), "".join(said)

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(harness.PATIENCE)
            self.process = None


class Page(PageCase):
    counters = {"test_old_events": DEEP, "test_a_website": website(), "test_unique_members": VISITORS, "test_values": VALUES}
    api = {"test_a_website": {"public_path": "/p"}}
    sections = {"test_metrics": {"metricdb": {"port": 0, "block": "1s", "resolution": "1s"}, "scraper": {"port": 0, "interval": "1s"}},
                "test_queues_and_sharing": {"simplequeue": {"allow_exit": "yes"}}}
    driver = Driver()

    def setUp(self):
        super().setUp()
        if not (shutil.which("node") and harness.chromium() and os.path.isdir(os.path.join(DRIVER, "node_modules"))):
            harness.not_installed(self, "the page's tests need Node.js, npm and Chromium (scripts/setup --test)")
        self.start_pipeline(self.counters.get(self._testMethodName), self.sections.get(self._testMethodName), **self.api.get(self._testMethodName, {}))

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        super().tearDownClass()

    def put_recent(self):
        """Events of the last days. Returns what must be shown for bitly."""
        rng = random.Random(5)
        now = int(time.time())
        lines, days, countries = [], collections.Counter(), collections.Counter()
        for i in range(4000):
            t = now - rng.randrange(DAYS * 86400) if i >= len(USERS) else now  # today has every user, also after midnight
            user, country = rng.choice(USERS) if i >= len(USERS) else USERS[i], rng.choice(COUNTRIES)
            lines.append(json.dumps({"t": t, "l": user, "c": country, "h": "h%d" % rng.randrange(50), "r": "direct", "u": "http://example.org/"}).encode())
            if user == "bitly":
                days[datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%d")] += 1
                countries[country] += 1
        self.put(lines)
        return {"ns": "u", "key": "bitly", "total": sum(days.values()), "all": len(lines), "from": (now - DAYS * 86400) // 3600 * 3600, "to": now // 3600 * 3600 + 3600,
                "days": [{"date": d, "n": n} for d, n in sorted(days.items())],
                "breakdowns": {"country": [{"key": k, "n": n} for k, n in sorted(countries.items(), key=lambda i: (-i[1], i[0]))]}}

    def check(self, *checks, **expected):
        """Each argument is a check, or a list of checks that run side by side."""
        checks = [[name for name in (c if isinstance(c, list) else [c]) if not (harness.SANITIZED and name in DRAWING)] for c in checks]
        failed, said = self.driver.run({"base": self.base, "checks": checks, "run_file": self.path("data", "run.json"), **expected})
        print(said, flush=True)
        self.assertEqual(failed, 0, said)

    def test_used_by_a_person(self):
        self.check(["follows links, back and forward", "says that a key is unknown", "finds a key by a part", "offers the units that are counted", "keeps the focus on a choice",
                    "goes past midnight", "zooms by dragging and by keys", "answers a wrong address", "names the lines of the chart", "chooses periods, weeks and dates",
                    "is used by the keyboard alone", "shows values at the pointer", "filters cards, or says which counter is missing", "shows the change of each row"],
                   is_full=FULL, **self.put_recent())

    def test_drawing(self):
        self.check("makes sense in any zone", "begins the week on any day", "draws quickly", "does not shift in any order of answers", *["draws 5,000 points in 50 ms"] * FULL,
                   "fits from 320 pixels to 4K, light and dark", is_full=FULL, **self.put_recent())

    def test_sharing(self):
        self.check("copies and saves everything", is_full=FULL, **self.put_recent())

    def test_new_events(self):
        self.check(*["shows a new event within two seconds"] * FULL,
                   ["has no serious fault of accessibility", "keeps the focus while numbers change", "follows a stream, pauses and filters",
                    "follows the lines of a condition", "shows hostile keys as text", "shows the pipeline and what is wrong"],
                   "moves with the last 30 minutes", "shows the countries on a map", "says what is loading",
                   is_full=FULL, **self.put_recent())

    def test_requests(self):
        self.check("asks only for what has changed", **self.put_recent())

    def test_a_restart_of_the_api(self):
        self.check("survives a restart of the API", ["shows one problem of a full disk", "shows each of several queues", "shows the cells",
                   "says what is not known without the archive"], ["stays level in memory"],
                   is_full=FULL, open_seconds=min(7.5 * harness.rounds(1), 360), **self.put_recent())

    def test_events_a_second(self):
        self.check("shows events a second live", **self.put_recent())

    def test_first_event(self):
        self.check(["shows old events that arrive", "says that the pipeline has no metricdb"])

    def test_a_website(self):
        self.check("shows how to add a site, and its views first", *["does not shift in any order of answers"] * FULL, addresses=["/"])

    def test_metrics(self):
        address = "/?view=metrics&metric=up"
        self.check(["finds, filters and draws metrics", "shows many lines and hostile labels"], "zooms a metric and goes back", "begins with a counted stream", "has no serious fault of accessibility",
                   "fits from 320 pixels to 4K, light and dark", "does not shift in any order of answers", "says that metricdb does not answer",
                   addresses=[address], views={"metrics": address}, is_full=FULL)

    def test_a_stopped_pipeline(self):
        self.check("shows old numbers as old", up=self.pipeline.pid, **self.put_recent())

    def test_a_token(self):
        self.put_recent()
        os.chmod(self.write("token", "right\n"), 0o600)
        self.base = self.start("api", "--config", self.path("pipeline.conf"), "--archive=" + self.path("data", "archive"),
                               "--auth-token-file=" + self.path("token"),
                               *("--%s-url=%s" % (name, self.pipeline.daemon_url(name)) for name in ("aggregator", "pubsub"))).url
        self.check("asks for a token until it is right", token="right")

    def test_queues_and_sharing(self):
        expected = self.put_recent()
        views = {"queues": "/?view=queues", "live": "/?view=live&columns=l,c&count=c"}
        self.check("has no serious fault of accessibility", "fits from 320 pixels to 4K, light and dark", addresses=list(views.values()), views=views)
        parent, tokens = self.serve_frame(), self.write("tokens", "viewer read VIEWER\noperator read,admin OPERATOR\nwriter write WRITER\n"
                                                           "shared read SHARED keys=u|bitly views=key\n")
        os.chmod(tokens, 0o600)
        api = self.start("api", "--config", self.path("pipeline.conf"), "--archive=" + self.path("data", "archive"), "--tokens-file=" + tokens,
                         "--embed-origins=" + parent, "--queue-url=" + self.pipeline.daemon_url("simplequeue"),
                         *("--%s-url=%s" % (name, self.pipeline.daemon_url(name)) for name in ("aggregator", "pubsub")))
        self.base = api.url
        self.check("shows and changes queues", "chooses columns and counts a field", "opens a shared view and a frame", "says that pubsub hangs",
                   viewer="VIEWER", operator="OPERATOR", writer="WRITER", shared="SHARED", tokens=tokens, api_pid=api.pid, parent=parent, frame=self.path("frame.html"), **expected)

    def serve_frame(self):
        """A server of pages that have the page in a frame; a loopback address, because browsers protect these from other pages."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=self.path("")))
        server.RequestHandlerClass.func.log_message = lambda *args: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return "http://localhost:%d" % server.server_port

    def test_by_hand(self):
        self.put_recent()
        done = self.run_program("millrace", "compact", "--config", self.path("pipeline.conf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        api = self.start("api", "--config", self.path("pipeline.conf"), "--archive=" + self.path("data", "archive"),
                         *("--%s-url=%s" % (name, self.pipeline.daemon_url(name)) for name in ("aggregator", "pubsub")))
        self.base = api.url
        self.check("shows a pipeline that was started by hand")

    def test_old_events(self):
        """Events of the past, whose time is in milliseconds and deep in the event; some in the archive, some not yet."""
        begin, day = 1360281600, 86400
        events = [{"meta": {"at": (begin + i * day + k) * 1000}, "l": "bitly"} for i in range(40) for k in range(i + 1)]
        self.put([json.dumps(e).encode() for e in events[:-10]])
        done = self.run_program("millrace", "compact", "--config", self.path("pipeline.conf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.put([json.dumps(e).encode() for e in events[-10:]])
        changes = []
        for zone, changed, hours in (("America/New_York", "2013-03-10", 23), ("America/Sao_Paulo", "2013-02-16", 25)):
            local = lambda t: datetime.datetime.fromtimestamp(t, zoneinfo.ZoneInfo(zone)).strftime("%Y-%m-%d")
            days = collections.Counter(local(e["meta"]["at"] // 1000) for e in events)
            beside = lambda n: (datetime.date.fromisoformat(changed) + datetime.timedelta(n)).isoformat()
            changes.append({"zone": zone, "hours": hours, "changed": {"yesterday": beside(-1), "to": beside(1)},
                            "days": [{"date": d, "n": n} for d, n in sorted(days.items())]})
        self.check("counts days of 23 and 25 hours", "shows what the archive has while the aggregator hangs", "begins with the newest events",
                   changes=changes, newest_day=40,
                   newest_days=sum(range(11, 41)), total=len(events), archived=len(events) - 10)

    def test_unique_members(self):
        """Some sets are in the archive, some are not yet."""
        rng, now, weeks = random.Random(6), int(time.time()), 9
        monday = now // 86400 * 86400 - datetime.datetime.fromtimestamp(now, datetime.timezone.utc).weekday() * 86400
        events = [(now - rng.randrange(weeks * 7 * 86400), rng.choice(("bitly", "nasa")), "v%d" % rng.randrange(60)) for _ in range(400)]
        lines = [json.dumps({"t": t, "l": user, "c": "US", "v": v, "price": "1.25"}).encode() for t, user, v in events]
        self.put(lines[:200])
        done = self.run_program("millrace", "compact", "--config", self.path("pipeline.conf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.put(lines[200:])
        own, days = [(t, v) for t, user, v in events if user == "bitly"], collections.defaultdict(set)
        date = lambda t: datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%d")
        for t, v in own:
            days[date(t)].add(v)
        starts = [monday - 7 * 86400 * n for n in range(weeks - 1, -1, -1)]
        seen, before = [{v for t, v in own if s <= t < s + 7 * 86400} for s in starts], {v for t, v in own if t < starts[0]}
        retention = []
        for i, s in enumerate(starts):
            new = seen[i].difference(before, *seen[:i])
            if new:  # the page leaves out the others
                retention.append([date(s), len(new), *(len(new & later) for later in seen[i + 1:])])
        self.check("shows unique members and how many come back", "does not shift in any order of answers",
                   addresses=["/"], unique=len({v for _, _, v in events}), unique_of_key=len({v for _, v in own}),
                   unique_days=[{"date": d, "n": len(m)} for d, m in sorted(days.items())], retention=retention)

    def test_values(self):
        today = int(time.time()) // 86400 * 86400
        date = lambda t: datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%d")
        prices = ((today - 86400, "1234.5", "JP"), (today - 86400, "0.05", "US"), (today, "-2.00", "DE"))
        events = [{"t": t, "product": "hat", "price": price, "country": country} for t, price, country in prices]
        events += [{"t": today, "path": "/cart", "ms": ms} for ms in [0.5] * 2 + [9] * 3 + [125] * 90 + [2000] * 5]
        events.append({"t": today, "path": "/cart"})
        events += [{"t": today, "path": path, **more} for path, more in (("/slow", {"ms": 2000}), ("/slow", {"ms": 9}), ("/plain", {}))]
        self.put([json.dumps(e).encode() for e in events])
        self.check("offers the units that are counted", ns="page", key="/cart", has_quarters=True)
        self.check("shows values with their unit, and quantiles", total="1,232.55 €",
                   days=[[date(today - 86400), "1,234.55 €"], [date(today), "-2.00 €"]],
                   bars=[["JP", "1,234.50 €", "–"], ["US", "0.05 €", "–"], ["DE", "-2.00 €", "–"]],
                   quantiles=[[date(today), "125", "125", "2,050", "100"]], buckets=["0.5", "9", "120", "2000", "None"],
                   slowest=[["/slow", "2,050", "2"], ["/cart", "125", "100"]])

    def test_real_clicks(self):
        """Without the oracle, generated events are the sample."""
        oracle, files = harness.load_oracle(), harness.real_files()
        if not oracle:
            return self.check("shows what was counted", **self.put_recent())
        path = min(files, key=os.path.getsize)
        self.put(gzip.decompress(harness.read_file(path)).splitlines() if path.endswith(".gz") and harness.read_file(path)[:2] == b"\x1f\x8b"
                 else harness.read_file(path).splitlines())
        queries = answers.answers(oracle, [path], 15)["queries"]
        day = next(q for q in queries if q["what"] == "series" and q["unit"] == "day" and q["ns"] == "u")
        own = [q for q in queries if q["what"] == "breakdown" and q["ns"].endswith(".u") and q["key"] == day["key"]]
        labels = {"c.u": "country", "r.u": "referrer", "h.u": "link"}
        date = lambda t: datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%d")
        self.check("shows what was counted", ns="u", key=day["key"], total=sum(r["n"] for r in day["rows"]),
                   days=[{"date": date(r["t"]), "n": r["n"]} for r in day["rows"]],
                   breakdowns={labels[q["ns"]]: q["rows"] for q in own})


if __name__ == "__main__":
    harness.main()
