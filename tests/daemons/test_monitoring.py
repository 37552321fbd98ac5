"""The files for Prometheus and Grafana (etc/prometheus, etc/grafana): promtool accepts them, the alerts fire, and every metric and every
request that they name exists in a running pipeline."""
# label: surface
# seconds: 30
import glob
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import harness
from harness import wait_until

RULES = os.path.join(harness.ROOT, "etc", "prometheus", "millrace.rules.yml")
CONFIG = os.path.join(harness.ROOT, "etc", "prometheus", "prometheus.yml")
DASHBOARD = os.path.join(harness.ROOT, "etc", "grafana", "millrace.json")
DAEMONS = ("simplequeue", "queue_to_pubsub", "pubsub", "aggregator", "sortdb", "api")

# Each alert: series over minutes, the minute at which it fires, and one value that must not fire it.
FIRES = {
    "MillraceDown": ('up{job="millrace"}', "0x10", "1x10", 2),
    "MillraceUnhealthy": ("millrace_api_healthy", "0x10", "1x10", 3),
    "MillraceWarnings": ("millrace_sortdb_health_warnings", "1x40", "0x40", 32),
    "MillraceCountsLate": ("millrace_aggregator_complete_age_seconds", "400x20", "10x20", 8),
    "MillraceLagGrows": ("millrace_aggregator_lag_bytes", "2e8+1e6x40", "2e8-1e6x40", 25),
    "MillraceQueueGrows": ('millrace_simplequeue_queue_depth{queue="default"}', "20000+10x40", "20000-10x40", 25),
    "MillraceDiskFull": ('millrace_simplequeue_queue_disk_full{queue="default"}', "1x5", "0x5", 1),
    "MillraceDiskFillsUp": ("millrace_pubsub_disk_free_bytes", "1e9-1e6x600", "9e8x600", 480),
    "MillraceDamage": ("millrace_pubsub_scrub_damaged_total", "1x5", "0x5", 1),
    "MillraceRejects": ("millrace_aggregator_lines_rejected_total", "0+100x40", "0x40", 25),
    "MillraceBuried": ('millrace_simplequeue_queue_buried{queue="default"}', "3x5", "0x5", 1),
    "MillracePut": ("millrace_put_refused_total", "0+1x20", "5x20", 15),
    "MillraceNoCompaction": ("millrace_sortdb_served_generation", "7x310", "0+1x310", 3050),
    "MillraceErrors": ("millrace_api_logged_errors", "0+1x20", "5x20", 15),
}
SLOW = "MillraceNoCompaction"  # its values are 10 minutes apart
BESIDE = {
    "MillraceDiskFillsUp": [("millrace_pubsub_disk_size_bytes", "1e9x600")],
    "MillraceRejects": [("millrace_aggregator_events_counted_total", "0+1000x40")],
    "MillraceNoCompaction": [("millrace_sortdb_uptime_seconds", "0+600x310")],
}


# The documented model of a dashboard (Grafana's "Dashboard JSON model"): each member and its type.
MODEL = {"id": type(None), "uid": str, "title": str, "tags": list, "timezone": str, "editable": bool, "graphTooltip": int, "panels": list,
         "time": dict, "templating": dict, "annotations": dict, "refresh": str, "schemaVersion": int, "version": int, "links": list}
PANEL = {"id": int, "title": str, "type": str, "datasource": dict, "gridPos": dict, "fieldConfig": dict, "targets": list}
TARGETS = {"prometheus": {"refId", "datasource", "expr", "legendFormat"},
           "yesoreyeram-infinity-datasource": {"refId", "datasource", "type", "source", "parser", "format", "url", "root_selector",
                                               "url_options", "columns"}}


def text_of(path):
    with open(path) as f:
        return f.read()


class Monitoring(harness.MillraceTest):
    def promtool(self, *args):
        program = shutil.which("promtool")
        if not program:
            harness.not_installed(self, "promtool is not installed (apt-get install prometheus)")
        done = subprocess.run([program, *args], capture_output=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())

    def test_promtool(self):
        self.promtool("check", "rules", "--lint-fatal", RULES)
        self.promtool("check", "config", CONFIG)

    def test_the_alerts_fire(self):
        names = re.findall(r"- alert: (\w+)", text_of(RULES))
        self.assertEqual(sorted(names), sorted(FIRES))
        tests = {"1m": [], "10m": []}
        for name, (series, bad, good, minute) in FIRES.items():
            interval = "10m" if name == SLOW else "1m"
            for values, fires in ((bad, True), (good, False)):
                inputs = [(series, values)] + BESIDE.get(name, [])
                text = "".join("      - series: '%s'\n        values: '%s'\n" % pair for pair in inputs)
                query = 'ALERTS{alertname="%s",alertstate="firing"}' % name
                tests[interval].append("  - interval: %s\n    input_series:\n%s    promql_expr_test:\n      - expr: 'count(%s) or vector(0)'\n"
                                       "        eval_time: %dm\n        exp_samples:\n          - labels: '{}'\n            value: %d\n"
                                       % (interval, text, query, minute, fires))
        paths = [self.write(interval + ".yml", "rule_files:\n  - %s\nevaluation_interval: %s\ntests:\n%s" % (RULES, interval, "".join(some)))
                 for interval, some in tests.items()]
        self.promtool("test", "rules", *paths)

    def test_the_dashboard_has_the_documented_model(self):
        def has(thing, model):
            self.assertEqual({k: type(v) for k, v in thing.items() if k in model}, model)

        dashboard = json.loads(text_of(DASHBOARD))
        has(dashboard, MODEL)
        self.assertEqual(set(dashboard) - set(MODEL), set())
        sources = {}
        for variable in dashboard["templating"]["list"]:
            self.assertEqual(set(variable), {"name", "label", "type", "query"})
            self.assertEqual(variable["type"], "datasource")
            sources["${%s}" % variable["name"]] = variable["query"]
        panels, taken = dashboard["panels"], set()
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        for p in panels:
            has(p, PANEL)
            self.assertEqual(set(p) - set(PANEL), set() if "description" not in p else {"description"})
            self.assertIn(p["type"], ("stat", "timeseries", "table"))
            self.assertEqual(set(p["fieldConfig"]), {"defaults", "overrides"})
            at = p["gridPos"]
            self.assertTrue(set(at) == set("xywh") and at["x"] >= 0 and at["x"] + at["w"] <= 24 and at["h"] > 0, p["title"])
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, p["title"])
            taken |= cells
            self.assertEqual(len({t["refId"] for t in p["targets"]}), len(p["targets"]))
            for t in p["targets"] + [{"datasource": p["datasource"], **p["targets"][0]}]:
                self.assertEqual(t["datasource"], p["datasource"])
                self.assertEqual(sources[t["datasource"]["uid"]], t["datasource"]["type"])
                self.assertEqual(set(t), TARGETS[t["datasource"]["type"]], p["title"])

    def serve_reports(self):
        """A server in the place of node_exporter, whose textfile collector reads the reports of `millrace put`."""
        reports = self.path("data", "put", "*.prom")

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                body = "".join(text_of(path) for path in glob.glob(reports)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def prometheus(self, pipeline, rules=RULES):
        """A Prometheus that scrapes the pipeline twice a second, with the alert rules. Returns ask(path, **parameters)."""
        program = shutil.which("prometheus")
        if not program:
            harness.not_installed(self, "Prometheus is not installed (apt-get install prometheus)")
        targets = ["        - %s\n" % pipeline.daemon_url(name).split("//")[1] for name in DAEMONS]
        targets.append("        - 127.0.0.1:%d\n" % self.serve_reports().server_address[1])
        config = self.write("prometheus.yml", "global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [%s]\n"
                            "scrape_configs:\n- job_name: millrace\n  static_configs:\n    - targets:\n%s" % (rules, "".join(targets)))
        port = self.keep_port()
        with open(self.path("prometheus.log"), "wb") as log:
            process = subprocess.Popen(harness.dies_with_us([program, "--config.file=" + config, "--storage.tsdb.path=" + self.path("tsdb"),
                                                             "--web.listen-address=127.0.0.1:" + port]), stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def ask(path, **parameters):
            try:
                return harness.request("http://127.0.0.1:" + port, "GET", path + "?" + harness.query(**parameters)).json()["data"]
            except (OSError, ValueError, KeyError):
                return None
        return ask

    def check_by_prometheus(self, pipeline, targets):
        """Every expression of the dashboard has a result, and every rule can be evaluated."""
        ask = self.prometheus(pipeline)
        for t in targets:
            found = lambda: (ask("/api/v1/query", query=t["expr"]) or {}).get("result")
            for sample in wait_until(found, "a result of " + t["expr"], interval=0.1):
                for label in re.findall(r"{{(\w+)}}", t["legendFormat"]):
                    self.assertIn(label, sample["metric"])

        def health():
            return {r["name"]: r["health"] for g in (ask("/api/v1/rules") or {"groups": []})["groups"] for r in g["rules"]}
        wait_until(lambda: health() == dict.fromkeys(FIRES, "ok"), health)

    def test_what_they_name_exists(self):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data")))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        now = int(time.time())
        lines = [json.dumps({"t": now - i * 7200, "l": "bitly", "c": "US"}).encode() for i in range(20)]
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)
        wait_until(lambda: pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events"] == 20, "20 events")
        metrics = "".join(pipeline.ask(name, "GET", "/metrics").text for name in DAEMONS)
        done = self.run_program("millrace", "put", "--config", config, "--rejects", self.path("rejects"), "--producer=web1", "--follow", "/dev/null/none")
        self.assertNotEqual(done.returncode, 0)
        followers = "".join(text_of(path) for path in glob.glob(self.path("data", "put", "*.prom")))
        known = set(re.findall(r"(?m)^(millrace_\w+)", metrics + followers))
        known |= {name + suffix for name in re.findall(r"(?m)^# TYPE (\w+) histogram$", metrics) for suffix in ("_bucket", "_sum", "_count")}
        dashboard = json.loads(text_of(DASHBOARD))
        targets = [t for p in dashboard["panels"] for t in p["targets"]]
        rules = "\n".join(line for line in text_of(RULES).splitlines() if "expr:" in line or line.strip().startswith(("millrace_", "or ", "predict_linear")))
        expressions = "\n".join([rules] + [t.get("expr", "") for t in targets])
        named = set(re.findall(r"\bmillrace_\w+\b", expressions))
        self.assertEqual(named - known - {"millrace_"}, set())
        self.assertGreater(len(named), 15)
        for pattern in re.findall(r'__name__=~"([^"]+)"', expressions):
            self.assertEqual(len({n for n in known if re.fullmatch(pattern, n)}), len(DAEMONS), pattern)
        self.check_by_prometheus(pipeline, [t for t in targets if "expr" in t])
        asked = [t for t in targets if "url" in t]
        self.assertEqual(len(asked), 2)
        for t in asked:
            url = t["url"].replace("${__from:date:seconds}", str(now - 86400 * 3)).replace("${__to:date:seconds}", str(now + 60))
            rows = pipeline.ask("api", "GET", url).json()[t["root_selector"]]
            self.assertGreater(len(rows), 0)
            for column in t["columns"]:
                self.assertIn(column["selector"], rows[0], url)

    def test_what_breaks_fires_its_alert(self):
        """In a Prometheus whose rules wait a second instead of minutes. An alert that fires names the daemon that was broken."""
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), harness.USERS_BY_COUNTRY))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        quick = re.sub(r"for: \w+", "for: 1s", text_of(RULES)).replace("> 176400", "> 1").replace("> 10000 and", "> 0 and").replace("> 300", "> 2")
        ask = self.prometheus(pipeline, self.write("quick.rules.yml", quick))

        def firing(name, daemon):
            found = (ask("/api/v1/query", query='ALERTS{alertname="%s",alertstate="firing"}' % name) or {}).get("result", [])
            return pipeline.daemon_url(daemon).split("//")[1] in {f["metric"].get("instance") for f in found}

        def wait_firing(name, daemon):
            wait_until(lambda: firing(name, daemon), lambda: "%s: %s" % (name, ask("/api/v1/alerts")), interval=0.1)

        def scraped(name):
            return (ask("/api/v1/query", query=name) or {}).get("result")

        def put(target, body):
            self.assertEqual(pipeline.ask("simplequeue", "POST", target, body).status, 200)
        put("/mput", json.dumps({"t": 1332637200, "l": "bitly"}).encode())
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--config", config).returncode, 0)
        self.assertEqual(self.run_program("millrace", "compact", "--config", config).returncode, 0)
        wait_until(lambda: (ask("/api/v1/query", query="millrace_api_healthy") or {}).get("result"), "a scrape", interval=0.1)
        self.assertFalse(firing("MillraceUnhealthy", "api") or firing("MillraceUnhealthy", "sortdb"))
        # An archive whose file was written to: nothing answers from it, and both say so until it is restored and reloaded.
        shard, = glob.glob(self.path("data", "archive", "current", "shard-*.csv"))
        harness.flip(shard, 3)
        for daemon in ("api", "sortdb"):
            wait_firing("MillraceUnhealthy", daemon)
            health = pipeline.ask(daemon, "GET", "/health")
            self.assertEqual((health.status, health.json()["code"]), (503, "not-well"), health)
        wait_firing("MillraceErrors", "sortdb")
        series = "/v1/series?user=bitly&unit=day"
        self.assertEqual(pipeline.ask("api", "GET", series).status, 503)
        done = self.run_program("millrace", "status", "--sample=0", "--config", config)
        self.assertNotIn(b"recovering", done.stdout)
        self.assertIn(b" -> restore the file that the reason names from a backup, then reload", done.stdout)
        harness.flip(shard, 3)
        os.kill(pipeline.pid, signal.SIGHUP)
        wait_until(lambda: pipeline.ask("sortdb", "GET", "/health").status == pipeline.ask("api", "GET", "/health").status == 200,
                   lambda: pipeline.log)
        self.assertEqual(pipeline.ask("api", "GET", series).status, 200)
        # A new generation that cannot be opened: the former one answers, and the API warns.
        os.unlink(self.path("data", "archive", "current"))
        wait_firing("MillraceWarnings", "api")
        wait_firing("MillraceNoCompaction", "sortdb")
        # A queue without a reader, and a buried message.
        put("/mput?queue=side", b"a\nb")
        lease = pipeline.ask("simplequeue", "POST", "/reserve?queue=side").header("X-Millrace-Lease")
        put("/bury?queue=side&id=1&lease=" + lease, b"")
        wait_until(lambda: put("/mput?queue=side", b"a") or firing("MillraceQueueGrows", "simplequeue"), "a queue that grows", interval=0.1)
        wait_firing("MillraceBuried", "simplequeue")
        put("/mput", b"not JSON\n{}")
        wait_firing("MillraceRejects", "aggregator")
        # A follower that refuses a line, whose report a node_exporter serves.
        follower = subprocess.Popen([harness.program("millrace"), "put", "--config", config, "--follow", "--format=combined", "--producer=web1",
                                     self.write("access.log", "")], stderr=subprocess.DEVNULL)
        self.addCleanup(follower.wait)
        self.addCleanup(follower.kill)
        wait_until(lambda: scraped("millrace_put_refused_total"), "the follower's report", interval=0.1)
        with open(self.path("access.log"), "a") as f:
            f.write("not a line of an access log\n")
        wait_until(lambda: (ask("/api/v1/query", query='ALERTS{alertname="MillracePut",alertstate="firing"}') or {}).get("result"),
                   lambda: ask("/api/v1/alerts"), interval=0.1)
        # A relay that stands still holds the counts back; a daemon that stands still does not answer.
        os.kill(pipeline.daemon_pid("queue_to_pubsub"), signal.SIGSTOP)
        put("/mput", json.dumps({"t": 1332637200, "l": "bitly"}).encode())
        wait_firing("MillraceDown", "queue_to_pubsub")
        wait_firing("MillraceCountsLate", "aggregator")
        os.kill(pipeline.daemon_pid("queue_to_pubsub"), signal.SIGCONT)
        pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
