"""`millrace up` with [metricdb], [scraper] and [ruler]: rules over the pipeline's own metrics, whose results come back through the stream."""
import json
import os
import re
import signal
import subprocess

import harness
from harness import MillraceTest, Pipeline, pipeline_config, program, request, wait_until
from metricdb_case import ask


class OwnRules(MillraceTest):
    def test_recorded_samples_and_alerts(self):
        rules = self.write("rules.yml", "groups:\n- name: own\n  interval: 1s\n  rules:\n  - {record: 'jobs:up:count', expr: count(up == 1)}\n"
                           "  - {alert: AllRun, expr: 'jobs:up:count >= 8', annotations: {summary: '{{ $value }} run'}}\n")
        config = self.write("pipeline.conf", pipeline_config(self.path("data")) + "[metricdb]\nport = 0\nresolution = 1s\n[scraper]\nport = 0\ninterval = 1s\n"
                            "[ruler]\nport = 0\nfiles = %s\nstream = metrics\nnotice_queue = notices\ngroup_wait = 0\n" % rules)
        pipeline = Pipeline(self, config, self.path("data"))
        pipeline.wait_ready()

        def series(name):
            status, document = ask(pipeline.daemon_url("api"), "query", query=name)
            self.assertEqual(status, 200, document)
            return [(s["metric"], s["value"][1]) for s in document["data"]["result"]]
        wait_until(lambda: series("ALERTS") == [({"__name__": "ALERTS", "alertname": "AllRun", "alertstate": "firing"}, "1")], lambda: series("ALERTS"))
        self.assertEqual([labels for labels, _ in series("jobs:up:count")], [{"__name__": "jobs:up:count"}])
        message = wait_until(lambda: request(pipeline.daemon_url("simplequeue"), "GET", "/get?queue=notices").body, "the notice")
        self.assertEqual(json.loads(message)["title"], "[FIRING:1] AllRun")
        api, ruler = pipeline.daemon_url("api"), pipeline.daemon_url("ruler")
        for method in ("GET", "POST"):  # Grafana asks the address of the API
            for path, key in (("/api/v1/rules", "groups"), ("/api/v1/alerts", "alerts")):
                found = [request(url, method, path + "?type=alert").json()["data"][key] for url in (ruler, api)]
                self.assertEqual([len(f) for f in found], [1, 1], path)
        self.assertIn("ruler", [d["name"] for d in request(api, "GET", "/v1/pipeline").json()["daemons"]])
        table = subprocess.run([program("millrace"), "status", "--config", config], capture_output=True).stdout.decode()
        self.assertRegex(table, r"(?m)^ruler +ready")
        self.assertEqual(pipeline.stop(), 0)
        self.assertTrue(os.path.exists(self.path("data", "ruler", "state.json")))

    def test_backup(self):
        """The restored pipeline has the silence and the alert, which began before. The doctor checks the file."""
        rules = self.write("rules.yml", "groups:\n- name: own\n  interval: 1s\n  rules:\n  - {alert: Always, expr: vector(1), for: 1h}\n")
        config = self.write("pipeline.conf", pipeline_config(self.path("data")) + "[metricdb]\nport = 0\n[ruler]\nport = 0\nfiles = %s\n" % rules)
        pipeline = Pipeline(self, config, self.path("data"))
        pipeline.wait_ready()

        def alerts():
            found = request(pipeline.daemon_url("ruler"), "GET", "/api/v1/alerts").json()["data"]["alerts"]
            return [(a["labels"], a["state"]) for a in found]
        wait_until(lambda: alerts() == [({"alertname": "Always"}, "pending")], alerts)
        silence = {"matchers": [{"name": "job", "value": "db"}], "endsAt": "2100-01-01T00:00:00Z"}
        self.assertEqual(request(pipeline.daemon_url("ruler"), "POST", "/silences", json.dumps(silence).encode()).status, 200)
        kept = request(pipeline.daemon_url("ruler"), "GET", "/silences").json()
        made = self.run_program("millrace", "backup", "--config=" + config, self.path("copy"))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(pipeline.stop(), 0)
        found = self.run_program("millrace", "doctor", "--config=" + config)
        self.assertRegex(found.stdout.decode(), r"alerts .*state.json: 1 alert, 1 silence\n")
        os.rename(self.path("data"), self.path("old"))
        restored = self.run_program("millrace", "restore", "--to=" + self.path("data"), self.path("copy"))
        self.assertEqual(restored.returncode, 0, restored.stderr)
        with open(self.path("data", "ruler", "state.json")) as f:
            state = json.load(f)
        self.assertEqual(sum(len(rule["alerts"]) for rule in state["rules"]), 1)
        pipeline = Pipeline(self, config, self.path("data"))
        pipeline.wait_ready()
        self.assertEqual(request(pipeline.daemon_url("ruler"), "GET", "/silences").json(), kept)
        self.assertIn(({"alertname": "Always"}, "pending"), alerts())
        self.assertEqual(pipeline.stop(), 0)
        self.write("data/ruler/state.json", "[]")
        found = self.run_program("millrace", "doctor", "--config=" + config)
        self.assertIn(b"state.json: not the state of a ruler", found.stdout)
        self.assertEqual(found.returncode, 2)

    def test_the_sample_rules_see_a_daemon_that_is_down(self):
        """The jobs of the scraper's own list differ from the job of prometheus.yml."""
        with open(os.path.join(harness.ROOT, "etc", "prometheus", "millrace.rules.yml")) as f:
            rules = self.write("rules.yml", re.sub(r"for: \w+", "for: 0s", f.read()))
        config = self.write("pipeline.conf", pipeline_config(self.path("data")) + "[metricdb]\nport = 0\nresolution = 1s\n[scraper]\nport = 0\ninterval = 1s\n"
                            "[ruler]\nport = 0\nfiles = %s\ninterval = 1s\nnotice_queue = notices\n" % rules)
        pipeline = Pipeline(self, config, self.path("data"))
        pipeline.wait_ready()
        pid = pipeline.daemon_pid("sortdb")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)

        def down():
            alerts = request(pipeline.daemon_url("ruler"), "GET", "/api/v1/alerts").json()["data"]["alerts"]
            return [a["labels"]["job"] for a in alerts if a["labels"]["alertname"] == "MillraceDown" and a["state"] == "firing"]
        wait_until(lambda: down() == ["sortdb"], down)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: down() == [], down)


if __name__ == "__main__":
    harness.main()
