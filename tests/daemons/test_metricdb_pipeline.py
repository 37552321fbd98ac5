"""`millrace up` with [metricdb] and [scraper]: the pipeline scrapes its own daemons, and the API answers Prometheus' questions."""
# seconds: 30
import collections
import glob
import json
import os
import socket
import subprocess

import harness
from harness import MillraceTest, Pipeline, pipeline_config, program, request, wait_until
from metricdb_case import ask

DAEMONS = {"pubsub", "simplequeue", "sortdb", "aggregator", "queue_to_pubsub", "metricdb", "scraper", "api"}


class OwnMetrics(MillraceTest):
    def pipeline(self, token=None, **sections):
        if token:
            sections["millrace"] = {"auth_token_file": token}
        text = pipeline_config(self.path("data"), **sections)
        return self.write("pipeline.conf", text + "[metricdb]\nport = 0\nblock = 1s\nresolution = 1s\n[scraper]\nport = 0\ninterval = 1s\n")

    def start_pipeline(self, config):
        pipeline = Pipeline(self, config, self.path("data"))
        pipeline.wait_ready()
        return pipeline

    def ask(self, pipeline, path, **params):
        return ask(pipeline.daemon_url("api"), path, **params)

    def jobs_up(self, pipeline, **params):
        status, document = self.ask(pipeline, "query", query="up == 1", **params)
        self.assertEqual(status, 200, document)
        return {s["metric"]["job"] for s in document["data"]["result"]}

    def instances(self, pipeline):
        """Those that were up within the last minutes."""
        data = self.ask(pipeline, "query", query="max_over_time(up[10m]) == 1")[1]["data"]["result"]
        return {s["metric"]["instance"] for s in data}

    def test_history_survives_a_restart(self):
        pipeline = self.start_pipeline(self.pipeline())
        wait_until(lambda: self.jobs_up(pipeline) >= DAEMONS, lambda: self.jobs_up(pipeline))
        wait_until(lambda: request(pipeline.daemon_url("metricdb"), "GET", "/stats?format=json").json()["blocks_written_total"] > 0, "a block")
        before = self.instances(pipeline)
        table = subprocess.run([program("millrace"), "status", "--config", self.path("pipeline.conf")], capture_output=True).stdout.decode()
        self.assertRegex(table, r"(?m)^metricdb +ready")
        self.assertRegex(table, r"(?m)^scraper +ready")
        self.assertEqual(pipeline.stop(), 0)
        pipeline = self.start_pipeline(self.path("pipeline.conf"))
        wait_until(lambda: self.instances(pipeline) > before, lambda: (before, self.instances(pipeline)))  # the ports are new

    def test_the_api_forwards(self):
        pipeline = self.start_pipeline(self.pipeline())
        wait_until(lambda: "pubsub" in self.jobs_up(pipeline), "a scrape")
        db = pipeline.daemon_url("metricdb")
        for path, params in (("query", {"query": "up{job=\"pubsub\"} * 0 + 1", "time": 5}), ("query", {"query": "1 +"}), ("labels", {}), ("label/job/values", {"match": ["up", "{job=~\"a.*|b\"}"]}),
                             ("label/a b/values", {}), ("query_range", {"query": "vector(1)", "start": 1, "end": 10001, "step": 1}), ("series", {"match": "up", "start": 1, "end": 2}),
                             ("status/buildinfo", {})):
            path = path.replace(" ", "%20")

            def answers():  # a scrape may come between the requests
                return [ask(url, path, _post=post, **params) for url, post in ((db, False), (pipeline.daemon_url("api"), False), (pipeline.daemon_url("api"), True))]
            wait_until(lambda: len(set(map(json.dumps, answers()))) == 1, answers)
        pipeline.kill9_daemon("metricdb")
        # A request while metricdb starts again is answered or gets 503 as JSON.
        status, document = self.ask(pipeline, "query", query="1")
        self.assertIn(status, (200, 503), document)
        wait_until(lambda: self.ask(pipeline, "query", query="1")[0] == 200, "metricdb to start again")

    def test_grafana(self):
        """The requests of Grafana's data source for Prometheus, as GET and with a form."""
        pipeline = self.start_pipeline(self.pipeline())
        wait_until(lambda: "pubsub" in self.jobs_up(pipeline), "a scrape")
        now = int(float(self.ask(pipeline, "query", query="time()")[1]["data"]["result"][1]))
        span = {"start": now - 3600, "end": now + 3600}
        calls = {
            "query": {"query": "1+1", "time": now},
            "query_range": {"query": "sum by (job) (rate(millrace_pubsub_requests_total[1m0s]))", "step": 15, **span},
            "query_exemplars": {"query": "up", **span},
            "labels": {"match[]": "up", **span},
            "series": {"match[]": "up{job=\"pubsub\"}", **span},
            "label/__name__/values": {"match[]": "{job=\"pubsub\"}", **span},
            "metadata": {}, "rules": {}, "alerts": {}, "status/buildinfo": {},
        }

        def answers():
            return [{path: ask(pipeline.daemon_url("api"), path, _post=post, **params) for path, params in calls.items()} for post in (False, True)]
        by_get, by_post = answers()
        self.assertEqual({path: (status, document["status"]) for path, (status, document) in by_get.items()}, {path: (200, "success") for path in calls})
        wait_until(lambda: (lambda got: got[0] == got[1])(answers()), "equal answers")
        data = {path: document["data"] for path, (_, document) in by_get.items()}
        self.assertEqual((data["query"]["result"][1], data["query_range"]["resultType"], data["labels"]), ("2", "matrix", ["__name__", "instance", "job"]))
        self.assertEqual((data["query_exemplars"], data["rules"], data["alerts"]), ([], {"groups": []}, {"alerts": []}))
        self.assertEqual([s["job"] for s in data["series"]], ["pubsub"])
        self.assertIn("up", data["label/__name__/values"])
        name = "millrace_pubsub_resident_memory_bytes"
        one = {name: [{"type": "gauge", "help": "Resident memory of the process", "unit": ""}]}
        self.assertEqual(data["metadata"][name], one[name])
        self.assertEqual(self.ask(pipeline, "metadata", metric=name)[1]["data"], one)
        self.assertEqual(len(self.ask(pipeline, "metadata", limit=2)[1]["data"]), 2)
        self.assertEqual(ask(pipeline.daemon_url("metricdb"), "metadata")[1]["data"], {})

    def test_without_settings(self):
        """`up` scrapes its daemons without a section; their stream keeps a day, also in the configuration."""
        config = self.write("pipeline.conf", pipeline_config(self.path("data"), millrace={"metrics": None}))
        pipeline = Pipeline(self, config, self.path("data"), "--free-ports").wait_ready()
        self.assertLessEqual(DAEMONS, set(pipeline.run_file()["daemons"]))
        with open("/proc/%d/cmdline" % pipeline.run_file()["daemons"]["pubsub"]["pid"]) as f:
            self.assertIn("--metrics_stream=metrics", f.read().split("\0"))
        jobs = {t["labels"]["job"] for t in request(pipeline.daemon_url("scraper"), "GET", "/targets").json()}
        self.assertEqual(jobs, DAEMONS)
        self.assertEqual(self.ask(pipeline, "labels")[0], 200)

    def test_ports_in_use(self):
        """Metrics by default use free ports then. A daemon with a section keeps to its port."""
        self.enter_own_network()
        taken = [socket.create_server(("127.0.0.1", port)) for port in (8091, 8092)]
        for s in taken:
            self.addCleanup(s.close)
        config = self.write("pipeline.conf", pipeline_config(self.path("data"), millrace={"metrics": None}))
        pipeline = Pipeline(self, config, self.path("data")).wait_ready()
        for name, port in (("scraper", 8091), ("metricdb", 8092)):
            self.assertRegex(pipeline.log, "the port is in use: a free port is used until the next start daemon=%s error=.*port %d: Address already in use; process %d " % (name, port, os.getpid()))
            self.assertNotIn(pipeline.daemon_url(name).rsplit(":", 1)[1], ("8091", "8092"))
        self.assertEqual([self.ask(pipeline, path)[0] for path in ("labels", "metadata")], [200, 200])
        table = self.run_program("millrace", "status", "--config", config).stdout.decode()
        self.assertIn(pipeline.daemon_url("metricdb")[len("http://"):], table)
        taken[1].close()
        self.assertEqual(pipeline.stop(), 0)
        pipeline = Pipeline(self, config, self.path("data")).wait_ready()
        self.assertEqual(pipeline.daemon_url("metricdb"), "http://127.0.0.1:8092")
        self.assertEqual(pipeline.stop(), 0)
        self.write("pipeline.conf", harness.read_file(config).decode() + "[scraper]\n")
        self.assertEqual(self.run_program("millrace", "up", "--config", config).returncode, 78)

    def test_a_day_of_the_stream(self):
        """At a scrape a minute."""
        pipeline = self.start_pipeline(self.pipeline())
        wait_until(lambda: self.jobs_up(pipeline) >= DAEMONS, lambda: self.jobs_up(pipeline))
        reply = request(pipeline.daemon_url("pubsub"), "GET", "/sub?stream=metrics&from=earliest&follow=0")
        size = collections.Counter()
        for line in reply.body.splitlines(keepends=True):
            sample = json.loads(line)
            size[sample["labels"]["job"], sample["t"]] += len(line)
        last = {job: n for (job, _), n in sorted(size.items())}
        self.assertEqual(set(last), DAEMONS)
        self.assertLess(sum(last.values()) * 1440, 100e6, last)

    def test_tokens(self):
        token = self.write("token", "secret-of-the-pipeline")
        os.chmod(token, 0o600)
        pipeline = self.start_pipeline(self.pipeline(token))
        url = pipeline.daemon_url("api")
        self.assertEqual(request(url, "GET", "/api/v1/labels").status, 401)
        self.assertEqual(request(pipeline.daemon_url("metricdb"), "GET", "/api/v1/labels").status, 401)

        def jobs():
            return {s["metric"]["job"] for s in ask(url, "query", token="secret-of-the-pipeline", query="up == 1")[1]["data"]["result"]}
        wait_until(lambda: jobs() >= DAEMONS, jobs)

    def test_without_metricdb(self):
        config = self.write("pipeline.conf", pipeline_config(self.path("data")))
        pipeline = self.start_pipeline(config)
        reply = request(pipeline.daemon_url("api"), "GET", "/api/v1/labels")
        self.assertEqual((reply.status, reply.json()["code"]), (404, "metrics-off"))

    def test_backup(self):
        """A backup while samples arrive, and its restored copy: the copy has what the blocks had, and reads the rest from its stream."""
        pipeline = self.start_pipeline(self.pipeline())
        wait_until(lambda: self.jobs_up(pipeline) >= DAEMONS, lambda: self.jobs_up(pipeline))
        db = pipeline.daemon_url("metricdb")
        wait_until(lambda: request(db, "GET", "/stats?format=json").json()["blocks_written_total"] > 0, "a block")
        at = float(self.ask(pipeline, "query", query="time()")[1]["data"]["result"][1])
        # By now no scrape of a slot before `at` is in progress.
        wait_until(lambda: float(self.ask(pipeline, "query", query="min(max by (job) (timestamp(up)))")[1]["data"]["result"][0]["value"][1]) > at, "later scrapes")
        before = self.ask(pipeline, "query", query="count_over_time(up[1m])", time=at)[1]["data"]
        made = self.run_program("millrace", "backup", "--config=" + self.path("pipeline.conf"), self.path("copy"))
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertTrue(glob.glob(self.path("copy", "metricdb", "blocks", "*.block")), "blocks in the copy")
        self.assertEqual(pipeline.stop(), 0)
        os.rename(self.path("data"), self.path("old"))
        restored = self.run_program("millrace", "restore", "--to=" + self.path("data"), self.path("copy"))
        self.assertEqual(restored.returncode, 0, restored.stderr)
        pipeline = self.start_pipeline(self.path("pipeline.conf"))
        wait_until(lambda: self.jobs_up(pipeline, time=at) >= DAEMONS, lambda: self.jobs_up(pipeline, time=at))
        self.assertEqual(self.ask(pipeline, "query", query="count_over_time(up[1m])", time=at)[1]["data"], before)


if __name__ == "__main__":
    harness.main()
