"""`millrace up` with [metricdb], [scraper] and [ruler]: rules over the pipeline's own metrics, whose results come back through the stream."""
import json
import os
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
        table = subprocess.run([program("millrace"), "status", "--config", config], capture_output=True).stdout.decode()
        self.assertRegex(table, r"(?m)^ruler +ready")
        self.assertEqual(pipeline.stop(), 0)
        self.assertTrue(os.path.exists(self.path("data", "ruler", "state.json")))


if __name__ == "__main__":
    harness.main()
