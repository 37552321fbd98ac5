"""The web page in a real browser, over a running pipeline: tests/page/check.mjs does what a person would do."""
# seconds: 60
# full: MILLRACE_ROUNDS=200
import collections
import datetime
import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import zoneinfo

import answers
import harness
from harness import wait_until

PAGE = os.path.join(harness.BUILD, "share", "millrace", "page")
DRIVER = os.path.join(harness.ROOT, "tests", "page")
USERS, COUNTRIES = ("bitly", "nasa", "nato", "o_1"), ("US", "JP", "DE", "BR")
DAYS = 6


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


# Checks of the page alone, which no sanitizer watches.
DRAWING = ("has no serious fault of accessibility", "draws quickly and does not shift", "draws 5,000 points in 50 ms",
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


class Page(harness.MillraceTest):
    counters = {"test_old_events": DEEP}
    driver = Driver()

    def setUp(self):
        super().setUp()
        if not (shutil.which("node") and harness.chromium() and os.path.isdir(os.path.join(DRIVER, "node_modules"))):
            harness.not_installed(self, "the page's tests need Node.js, npm and Chromium (scripts/setup --test)")
        if not os.path.isdir(PAGE):
            harness.not_installed(self, "the page is not built (make page)")
        self.start_pipeline(self.counters.get(self._testMethodName))

    @classmethod
    def tearDownClass(cls):
        cls.driver.stop()
        super().tearDownClass()

    def start_pipeline(self, counters=None):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), counters, compactor={"every": "1d"}))
        self.pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.base = self.pipeline.daemon_url("api")

    def put(self, lines):
        before = self.counted()
        for at in range(0, len(lines), 5000):
            reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines[at:at + 5000]))
            self.assertEqual(reply.status, 200, reply)
        wait_until(lambda: self.counted() == before + len(lines), "all events to be counted")

    def counted(self):
        stats = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        return stats["events"] + stats["skipped"] + stats["rejected"]

    def put_recent(self):
        """Events of the last days. Returns what must be shown for bitly."""
        rng = random.Random(5)
        now = int(time.time())
        lines, days, countries = [], collections.Counter(), collections.Counter()
        for _ in range(4000):
            t = now - rng.randrange(DAYS * 86400)
            user, country = rng.choice(USERS), rng.choice(COUNTRIES)
            lines.append(json.dumps({"t": t, "l": user, "c": country, "h": "h%d" % rng.randrange(50), "r": "direct", "u": "http://example.org/"}).encode())
            if user == "bitly":
                days[datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%d")] += 1
                countries[country] += 1
        self.put(lines)
        return {"ns": "u", "key": "bitly", "total": sum(days.values()),
                "days": [{"date": d, "n": n} for d, n in sorted(days.items())],
                "breakdowns": {"country": [{"key": k, "n": n} for k, n in sorted(countries.items(), key=lambda i: (-i[1], i[0]))]}}

    def check(self, *checks, **expected):
        """Each argument is a check, or a list of checks that run side by side."""
        checks = [[name for name in (c if isinstance(c, list) else [c]) if not (harness.SANITIZED and name in DRAWING)] for c in checks]
        failed, said = self.driver.run({"base": self.base, "checks": checks, "run_file": self.path("data", "run.json"), **expected})
        print(said, flush=True)
        self.assertEqual(failed, 0, said)

    def test_used_by_a_person(self):
        self.check("shows what was counted", "begins the week on any day", "draws quickly and does not shift", "draws 5,000 points in 50 ms", "shows a new event within two seconds",
                   ["follows links, back and forward", "finds a key by its beginning", "keeps the focus on a choice", "copies and saves everything",
                    "goes past midnight", "zooms by dragging and by keys",
                    "answers a wrong address", "names the lines of the chart", "fits from 320 pixels to 4K, light and dark"],
                   ["has no serious fault of accessibility", "keeps the focus while numbers change", "follows a stream, pauses and filters",
                    "shows hostile keys as text", "shows the pipeline and what is wrong"],
                   "survives a restart of the API", "shows events a second live", "stays level in memory",
                   is_full=harness.rounds(1) > 1, open_pages=2 if harness.rounds(1) == 1 else 10, open_seconds=3 * harness.rounds(1), **self.put_recent())

    def test_nothing_yet(self):
        self.check("shows old events that arrive")

    def test_started_by_hand(self):
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

    def test_real_clicks(self):
        oracle, files = harness.load_oracle(), harness.real_files()
        if not oracle:
            self.skipTest("the oracle is not here")
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

    def test_files(self):
        html = {"Accept": "text/html,*/*"}
        page = self.pipeline.ask("api", "GET", "/", headers=html)
        self.assertEqual(page.status, 200)
        self.assertIn("default-src 'none'", page.header("Content-Security-Policy"))
        self.assertIn("/v1/series", self.pipeline.ask("api", "GET", "/").text)
        size = 0
        for path in ("/", "/app.js", "/app.css", "/icon.svg"):
            plain = self.pipeline.ask("api", "GET", path, headers=html)
            packed = self.pipeline.ask("api", "GET", path, headers={"Accept-Encoding": "gzip", **html})
            self.assertEqual(gzip.decompress(packed.body), plain.body)
            size += len(packed.body)
            again = self.pipeline.ask("api", "GET", path, headers={"If-None-Match": plain.header("ETag"), **html})
            self.assertEqual((again.status, again.body), (304, b""))
        self.assertLess(size, 120 * 1000)
        self.assertEqual(self.pipeline.ask("api", "GET", "/app.css/../../etc/passwd").status, 404)
        link = self.pipeline.ask("api", "GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", **html})
        self.assertEqual(link.status, 200)
        other = self.pipeline.ask("api", "GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image", **html})
        self.assertEqual(other.status, 403)

    def test_a_rebuild_makes_the_same_files(self):
        done = self.run_program(os.path.join(harness.ROOT, "scripts", "page"), self.path("again"))
        self.assertEqual(done.returncode, 0, done.stderr)
        again = os.path.join(self.path("again"), "share", "millrace", "page")
        self.assertEqual(sorted(os.listdir(PAGE)), sorted(os.listdir(again)))
        for name in os.listdir(PAGE):
            self.assertEqual(harness.read_file(os.path.join(PAGE, name)), harness.read_file(os.path.join(again, name)), name)

    def test_the_pipeline(self):
        def states():
            reply = self.pipeline.ask("api", "GET", "/v1/pipeline").json()
            return {d["name"]: d["state"] for d in reply["daemons"]}
        everything = ("simplequeue", "queue_to_pubsub", "pubsub", "aggregator", "sortdb", "api")
        wait_until(lambda: states() == dict.fromkeys(everything, "ready"), states)
        reply = self.pipeline.ask("api", "GET", "/v1/pipeline").json()
        self.assertEqual(next(d for d in reply["daemons"] if d["name"] == "pubsub")["stats"]["streams"]["clicks"]["end"], "0")
        os.kill(self.pipeline.daemon_pid("sortdb"), 19)  # SIGSTOP
        wait_until(lambda: states() == {**dict.fromkeys(everything, "ready"), "sortdb": "unreachable"}, states)
        os.kill(self.pipeline.daemon_pid("sortdb"), 18)
        wait_until(lambda: states()["sortdb"] == "ready", states)

    def test_a_daemon_with_another_token(self):
        token, other = self.write("token", "secret"), self.write("other", "another")
        for path in (token, other):
            os.chmod(path, 0o600)
        config = self.write("closed.conf", harness.pipeline_config(self.path("closed"), pubsub={"auth_token_file": token}))
        closed = harness.Pipeline(self, config, self.path("closed")).wait_ready()
        peers = (("aggregator", "aggregator"), ("sortdb", "sortdb"), ("queue", "simplequeue"), ("pubsub", "pubsub"), ("queue_to_pubsub", "queue_to_pubsub"))
        api = self.start("api", "--config", config, "--pubsub_token_file=" + other, *("--%s_url=%s" % (option, closed.daemon_url(name)) for option, name in peers))
        reply = api.get("/v1/live?stream=clicks")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"))
        self.assertIn("pubsub_token_file", reply.text)

        def details():
            return {d["name"]: d["detail"] for d in api.get("/v1/pipeline").json()["daemons"]}
        wait_until(lambda: "token" in details()["pubsub"] and not details()["sortdb"], details)

    def test_a_stop_with_a_stalled_page(self):
        now = int(time.time())
        self.put([json.dumps({"t": now, "l": "bitly", "pad": "x" * 2000}).encode()] * 5000)
        url = urllib.parse.urlsplit(self.base)
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect((url.hostname, url.port))
            stalled.sendall(b"GET /v1/live?stream=clicks&from=earliest HTTP/1.1\r\nHost: %s\r\n\r\n" % url.netloc.encode())
            sent = [0]

            def has_stalled():
                sent.append(self.pipeline.ask("pubsub", "GET", "/stats?format=json").json()["sent_bytes_total"])
                return sent[-1] == sent[-2] > 10 << 20  # the aggregator has read all, and the page nothing more
            wait_until(has_stalled, lambda: "the page to stall: %s" % sent, interval=0.3)
            first = self.pipeline.daemon_pid("api")
            os.kill(first, signal.SIGTERM)
            wait_until(lambda: self.pipeline.daemon_pid("api") not in (None, 0, first), "the API to stop and start")
            wait_until(lambda: "api stopped" in self.pipeline.log, lambda: self.pipeline.log)
        self.assertNotIn("undelivered", self.pipeline.log)

    def test_live_refusals(self):
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live").status, 400)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live?stream=none").status, 404)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live?stream=../x").status, 400)


if __name__ == "__main__":
    harness.main()
