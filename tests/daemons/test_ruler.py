"""The ruler: rules over a source of metrics, alerts on their ways through a queue to receivers, and recorded samples in a stream. unit_alerts has
the states of alerts by a clock of its own."""
# parts: 2
import collections
import email
import email.policy
import json
import os
import shlex
import signal
import subprocess
import time

import guide
import harness
from clocks import Clocks
from harness import query, request, wait_until
from metrics_target import Target
from ruler_case import RULE, RulerTest
from sink import Sink

DOWN = [({"job": "web"}, 1)]
TEXTS = """
    annotations:
      text: 'job {{ $labels.job }} has {{ $value }}{{ .Labels.none }} or {{ .Value }}'
      numbers: '{{ $value | humanize }} {{ $value | humanizeDuration }} {{ humanizePercentage $value }}'
      formats: '{{ printf "%.2f" $value }} {{ $value | printf "%.3e" }} {{ printf "%.3g%%" $value }} {{ printf "%s/%%" $labels.job }} {{ printf "%g" $value }}'
      all: '{{ $labels }}'
"""


class AsPrometheus(RulerTest):
    def test_alerts_and_texts_are_those_of_prometheus(self):
        """Both evaluate the same rules, and the ruler asks this Prometheus for the results."""
        numbers = [0, 1, -1234.5, 1e6, 123456789, 0.000012, 1536, 59.5, 86400, 0.0333333, "NaN", "+Inf"]
        page = ["".join("x{job=\"j%d\"} %s\n" % item for item in enumerate(numbers)) + "y{job=\"later\"} 1\n"]
        target = Target(self, {"/metrics": lambda: page[0]})
        self.write_rules("alert: Value\n    expr: x\n    labels: {severity: page, of: '{{ $labels.job }}'}" + TEXTS, "{alert: Scalar, expr: 5, for: 0s}",
                         "{alert: Waits, expr: y, for: 1h}", "{alert: Ends, expr: y == 1}", "{alert: Kept, expr: y == 1, keep_firing_for: 1h}",
                         "{alert: Bad, expr: 'x * on (none) x'}")
        port = self.keep_port()
        config = self.write("prometheus.yml", "global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [%s]\n"
                            "scrape_configs:\n- {job_name: scraped, honor_labels: true, static_configs: [{targets: ['%s']}]}\n"
                            % (self.path("rules.yml"), target.address))
        self.run_other("prometheus", "--config.file=" + config, "--storage.tsdb.path=" + self.path("tsdb"), "--web.listen-address=127.0.0.1:" + port,
                       log="prometheus.log")
        url = "http://127.0.0.1:" + port

        def alerts(ask):
            try:
                found = ask("/api/v1/alerts").json()["data"]["alerts"]
            except (OSError, ValueError, KeyError):
                return None
            return sorted((json.dumps([a["labels"], a["annotations"], a["state"]], sort_keys=True), float(a["value"])) for a in found
                          if a["labels"]["alertname"] != "RuleEvaluationFailed")

        def same(n):
            theirs, ours = alerts(lambda target: request(url, "GET", target)), alerts(ruler.get)
            return theirs and len(theirs) == n and repr(theirs) == repr(ours)
        ruler = self.ruler(source=url)
        wait_until(lambda: same(len(numbers) + 4), lambda: (alerts(lambda target: request(url, "GET", target)), alerts(ruler.get)))
        page[0] = "x{job=\"j1\"} 7\nx{job=\"j2\"} 7.25\ny{job=\"later\"} 2\n"
        wait_until(lambda: same(5), lambda: (alerts(lambda target: request(url, "GET", target)), alerts(ruler.get)))
        rules = {r["name"]: r for g in ruler.get("/api/v1/rules").json()["data"]["groups"] for r in g["rules"]}
        theirs = {r["name"]: r for g in request(url, "GET", "/api/v1/rules").json()["data"]["groups"] for r in g["rules"]}
        keys = ("query", "state", "type", "health", "duration", "labels", "annotations")
        for name, rule in theirs.items():
            self.assertEqual({key: rules[name][key] for key in keys}, {key: rule[key] for key in keys})
            self.assertLess(rule.keys() - {"keepFiringFor"}, rules[name].keys() | {"keepFiringFor", "lastError"})
        self.assertEqual(self.group(request(url, "GET", "/api/v1/rules")).keys() - self.group(ruler.get("/api/v1/rules")).keys(), set())
        self.assertIn("many-to-many", rules["Bad"]["lastError"])

    @staticmethod
    def group(reply):
        return reply.json()["data"]["groups"][0]

    def test_alertmanager(self):
        sink, port = Sink(self), self.keep_port()
        config = self.write("alertmanager.yml", "route: {receiver: hook, group_wait: 0s, group_interval: 100ms}\n"
                            "receivers: [{name: hook, webhook_configs: [{url: '%s/hook'}]}]\n" % sink.url)
        self.simplequeue()
        self.write_rules(RULE)
        self.source.answers["down"] = DOWN
        ruler = self.ruler("--alertmanager-queue=am", "--resend-delay=500ms")
        self.wait_state(ruler, "firing", job="web")
        self.run_other("prometheus-alertmanager", "--config.file=" + config, "--storage.path=" + self.path("am"), "--web.listen-address=127.0.0.1:" + port,
                       "--cluster.listen-address=", log="alertmanager.log")
        self.send("am", "http://127.0.0.1:%s/api/v2/alerts" % port)

        def found():
            try:
                return [(a["labels"], a["annotations"]) for a in request("http://127.0.0.1:" + port, "GET", "/api/v2/alerts").json()]
            except (OSError, ValueError):
                return None
        wait_until(lambda: found() == [({"alertname": "Down", "job": "web"}, {"summary": "job web is down"})], found)
        self.source.answers.clear()
        wait_until(lambda: found() == [], found)
        wait_until(lambda: [json.loads(body)["status"] for body in sink.taken()][-1:] == ["resolved"], sink.taken)
        self.assertEqual({json.loads(body)["alerts"][0]["labels"]["job"] for body in sink.taken()}, {"web"})


class Ways(RulerTest):
    def test_notices_reach_a_webhook_later_if_queue_or_receiver_are_down(self):
        sink = Sink(self)
        sink.behave = lambda body: 503
        self.write_rules(RULE)
        self.source.answers["down"] = DOWN
        ruler = self.ruler("--notice-queue=notices")
        self.wait_state(ruler, "firing", job="web")
        wait_until(lambda: b"alerts wait for the queue" in ruler.get("/stats?format=json").body, "the notice of the state")
        self.simplequeue()
        self.send("notices", sink.url)
        wait_until(lambda: sink.requests, "the notice to be sent in vain")
        sink.behave = lambda body: 200
        first = json.loads(wait_until(sink.taken, "the notice")[0])
        self.assertEqual((first["status"], first["title"], first["commonLabels"], first["commonAnnotations"]),
                         ("firing", "[FIRING:1] Down job=web", {"alertname": "Down", "job": "web"}, {"summary": "job web is down"}))
        self.source.answers["down"] = DOWN + [({"job": "db"}, 1)]
        wait_until(lambda: len(sink.taken()) == 2, "the notice of the second alert")
        self.source.answers.clear()
        wait_until(lambda: json.loads(sink.taken()[-1])["status"] == "resolved", sink.taken)
        last = json.loads(sink.taken()[-1])
        self.assertIn(first["alerts"][0]["id"], [a["id"] for body in sink.taken()[1:] for a in json.loads(body)["alerts"]])
        self.assertEqual({a["status"] for a in last["alerts"]}, {"resolved"})
        wait_until(lambda: b"alerts wait" not in ruler.get("/stats?format=json").body and ruler.get("/health").text.strip() == "ready", "no warning")

    def test_a_command_gets_notices(self):
        self.simplequeue()
        self.write_rules(RULE)
        self.source.answers["down"] = DOWN
        self.ruler("--notice-queue=notices")
        self.start("queue_exec", "--address=127.0.0.1", "--port=0", "--queue-url=" + self.queue_url, "--queue=notices",
                   "--command=cat >> " + self.path("out"), port=False)
        wait_until(lambda: os.path.exists(self.path("out")) and b"[FIRING:1] Down job=web" in harness.read_file(self.path("out")), "the command")

    def test_kills_lose_no_notice(self):
        """Each kind of alert fires once and ends once. The ruler is killed at any time; a message may come twice, with the same id."""
        random = harness.seeded()
        sink = Sink(self)
        self.simplequeue()
        self.write_rules(*("{alert: A%d, expr: a%d}" % (i, i) for i in range(5)), interval="100ms")
        ruler = self.ruler("--notice-queue=notices")
        self.send("notices", sink.url)
        for i in range(2 * harness.rounds(5)):
            name = "a%d" % (i // 2 % 5)
            self.source.answers.pop(name, None) if i % 2 else self.source.answers.update({name: DOWN})
            time.sleep(random.random() / 5)  # any moment of the evaluation, the state file and the put
            ruler.kill9()
            ruler = self.ruler("--notice-queue=notices")
            wanted = "resolved" if i % 2 else "firing"

            def states():
                return [a["status"] for body in sink.taken() for a in json.loads(body)["alerts"] if a["labels"]["alertname"] == name.upper()]
            if i % 2 == 0 or states():  # an alert that ended before any message is none
                wait_until(lambda: states()[-1:] == [wanted], lambda: (name, wanted, states()))
        ids = collections.defaultdict(set)
        for body in sink.taken():
            for alert in json.loads(body)["alerts"]:
                ids[alert["labels"]["alertname"], alert["startsAt"]].add(alert["id"])
        self.assertEqual({len(found) for found in ids.values()}, {1})

    def test_a_heartbeat(self):
        sink = Sink(self)
        self.simplequeue()
        self.write_rules(RULE)
        self.ruler("--notice-queue=notices", "--heartbeat=200ms")
        self.send("notices", sink.url)
        wait_until(lambda: len(sink.taken()) >= 3, "three heartbeats")
        self.assertEqual({json.loads(body)["title"] for body in sink.taken()}, {"[FIRING:1] Watchdog"})

    def test_a_rule_that_cannot_be_evaluated_is_an_alert(self):
        sink = Sink(self)
        self.simplequeue()
        self.write_rules(RULE, "{record: 'a:b', expr: other}")
        self.source.answers.update({"down": "no such function", "other": [({}, 1)]})
        ruler = self.ruler("--notice-queue=notices", "--failure-for=0")
        self.send("notices", sink.url)
        alert = json.loads(wait_until(sink.taken, "the notice")[0])["alerts"][0]
        self.assertEqual((alert["labels"], alert["annotations"]),
                         ({"alertname": "RuleEvaluationFailed", "rule": "Down", "rule_group": "g"}, {"error": "no such function"}))
        self.assertEqual(ruler.stats()["rules_failing"], 1)
        self.source.answers["down"] = []
        wait_until(lambda: json.loads(sink.taken()[-1])["status"] == "resolved", sink.taken)
        self.source.is_gone = True
        wait_until(lambda: len(self.alerts(ruler, alertname="RuleEvaluationFailed")) == 2, "the source to be gone")

    def test_a_source_that_is_not_ready_at_the_start(self):
        """The log has a rule only once it has failed for failure_for."""
        self.write_rules(RULE, interval="100ms")
        self.source.is_gone = True
        ruler = self.ruler("--failure-for=1s")
        self.wait_state(ruler, "pending", alertname="RuleEvaluationFailed")
        self.assertNotIn("rule cannot be evaluated", ruler.log)
        self.wait_state(ruler, "firing", alertname="RuleEvaluationFailed")
        wait_until(lambda: "rule cannot be evaluated" in ruler.log, "the log")
        self.source.is_gone = False
        self.wait_state(ruler, None, alertname="RuleEvaluationFailed")

    def test_silences(self):
        sink = Sink(self)
        self.simplequeue()
        self.write_rules(RULE)
        ruler = self.ruler("--notice-queue=notices")
        self.send("notices", sink.url)
        silence = {"matchers": [{"name": "job", "value": "web"}], "endsAt": "2100-01-01T00:00:00Z", "createdBy": "me", "comment": "why"}
        reply = ruler.post("/silences", json.dumps(silence).encode())
        self.assertEqual(reply.status, 200, reply)
        self.source.answers["down"] = DOWN + [({"job": "db"}, 1)]
        self.assertEqual(json.loads(wait_until(sink.taken, "the notice")[0])["title"], "[FIRING:1] Down job=db")
        ruler.kill9()
        ruler = self.ruler("--notice-queue=notices")
        listed = ruler.get("/silences").json()
        self.assertEqual([(s["id"], s["comment"], s["endsAt"]) for s in listed], [(reply.json()["silenceID"], "why", "2100-01-01T00:00:00.000Z")])
        self.assertEqual(request(ruler.url, "DELETE", "/silences?id=" + listed[0]["id"]).status, 200)
        wait_until(lambda: json.loads(sink.taken()[-1])["title"] == "[FIRING:2] Down", sink.taken)
        for method, target, body, status in (("POST", "/silences", b"{", 400), ("POST", "/silences", b"{}", 400), ("DELETE", "/silences?id=none", None, 404),
                                             ("DELETE", "/silences", None, 400)):
            self.assertEqual(request(ruler.url, method, target, body).status, status)


    def test_many_alerts_and_patterns(self):
        """The ruler answers while it matches alerts with silences, a part in each turn. An alert is matched when either changes."""
        self.simplequeue()
        self.write_rules("{alert: Down, expr: down, labels: {text: '%s'}}" % ("a" * 200))
        self.source.answers["down"] = [({"job": "j%d" % i}, 1) for i in range(2000)]
        ruler = self.ruler("--notice-queue=notices")
        for i in range(20):
            silence = {"matchers": [{"name": "text", "value": "(a|aa)*b%d" % i, "isRegex": True}], "endsAt": "2100-01-01T00:00:00Z"}
            self.assertEqual(ruler.post("/silences", json.dumps(silence).encode()).status, 200)
        wait_until(lambda: ruler.stats()["alerts_firing"] == 2000, "the alerts")

        wait_until(lambda: sum(ruler.stats()["messages_stored_total"].values()) > 0, "the notices, in the end")


class State(RulerTest):
    def test_a_restart_continues_for(self):
        """The time before the restart counts, so that the alert fires before a whole `for` has passed since the restart."""
        self.write_rules("{alert: Down, expr: down, for: 1h}")
        self.source.answers["down"] = DOWN
        ruler = self.ruler()
        self.wait_state(ruler, "pending", job="web")
        since = self.alerts(ruler)[0]["activeAt"]
        ruler.kill9()
        ruler = self.ruler()
        self.wait_state(ruler, "pending", job="web")
        self.assertLessEqual(since, self.alerts(ruler)[0]["activeAt"], "later by the time without evaluations")
        ruler.stop()
        with open(self.path("r", "state.json")) as f:
            state = json.load(f)
        alert = state["rules"][0]["alerts"][0]
        alert["active_at"] -= 3600 * 1000
        self.write("r/state.json", json.dumps(state))
        ruler = self.ruler()
        self.wait_state(ruler, "firing", job="web")

    def test_reload(self):
        self.write_rules("{alert: Down, expr: down, for: 1h}", RULE.replace("Down", "Other"))
        self.source.answers["down"] = DOWN
        ruler = self.ruler()
        self.wait_state(ruler, "pending", alertname="Down")
        self.write_rules("{alert: Down}")
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: b"rules.yml:5: the rule has no expr" in ruler.get("/stats?format=json").body, "the error")
        self.assertIn("rules.yml:5: the rule has no expr", ruler.log)
        self.wait_state(ruler, "firing", alertname="Other")
        self.write_rules("{alert: Down, expr: down, for: 1s}")
        ruler.process.send_signal(signal.SIGHUP)
        self.wait_state(ruler, "firing", alertname="Down")
        self.wait_state(ruler, None, alertname="Other")
        self.assertEqual(ruler.get("/health").text.strip(), "ready")

    def test_a_rule_that_returns_before_the_end_is_sent(self):
        """The alert continues, so that no receiver gets the end of the old one after the beginning of the new one."""
        self.simplequeue()
        self.write_rules(RULE)
        self.source.answers["down"] = DOWN
        ruler = self.ruler("--notice-queue=notices", "--group-interval=1h")
        wait_until(lambda: self.stored(ruler) == ["firing"], lambda: self.stored(ruler))
        self.write_rules("{alert: Other, expr: other}")
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.stored(ruler) == ["resolved"], lambda: self.stored(ruler))
        self.write_rules(RULE)
        ruler.process.send_signal(signal.SIGHUP)
        self.wait_state(ruler, "firing", job="web")
        wait_until(lambda: self.stored(ruler) == ["firing"], lambda: self.stored(ruler))

    def stored(self, ruler):
        """The states of all alerts in the file of the state."""
        if not os.path.exists(self.path("r", "state.json")):
            return []
        with open(self.path("r", "state.json")) as f:
            return [a["state"] for rule in json.load(f)["rules"] for a in rule["alerts"] if a["sent_1"] == "firing"]

    def test_a_pattern_without_files(self):
        ruler = self.ruler()
        self.assertIn("no file matches %s" % self.path("rules*.yml"), ruler.get("/health").text)
        self.assertIn("no file matches", ruler.log)
        self.write_rules("{alert: Down, expr: down, for: 1h}")
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: ruler.get("/health").text.strip() == "ready", lambda: ruler.get("/health").text)
        self.assertEqual(ruler.stats()["rules"], 1)

    def test_bad_files_and_settings(self):
        self.write_rules("{alert: Down, expr: down, fro: 1h}")
        files, data = "--files=" + self.path("rules.yml"), "--data-dir=" + self.path("r")
        for args, text in (([files, data], b"rules.yml:5: unknown key \"fro\" of a rule"), ([data], b"files: required"), ([files], b"data_dir is missing"),
                           ([files, data, "--stream=a/b"], b"stream"), (["--files=" + self.path("none.yml"), data], b"none.yml: No such file"),
                           ([files, data, "--metricdb-url=ftp://x"], b"metricdb_url")):
            run = self.run_program("ruler", "--check-config", *args)
            self.assertIn(run.returncode, (64, 78), (args, run.stderr))
            self.assertIn(text, run.stderr.replace(b"\\\"", b"\"").replace(b"metricdb-url", b"metricdb_url").replace(b"data-dir", b"data_dir"))
        self.write_rules(RULE)
        sample = os.path.join(harness.ROOT, "etc", "prometheus", "millrace.rules.yml")  # test_monitoring.py shows that promtool accepts it
        self.assertEqual(self.run_program("ruler", "--check-config", files, "--files=" + sample, data).returncode, 0)
        os.mkdir(self.path("r"))
        for text in ("", "{}", "{\"version\":1,\"groups\":[]}", "{\"version\":2,\"rules\":[{\"id\":\"x\",\"alerts\":[{}]}]}"):
            self.write("r/state.json", text)
            run = self.run_program("ruler", "--port=0", files, data)
            self.assertEqual(run.returncode, 78, text)
            self.assertIn(b"state.json: not a state of this version; delete it", run.stderr)


class Clock(RulerTest):
    def test_a_clock_that_is_set_back_by_a_day(self):
        """Alerts, their repetitions and the heartbeat continue at once, also after a restart, and no alert ends before it starts."""
        clocks, notices, alertmanager = Clocks(self), Sink(self), Sink(self)
        clocks.set(wall=86400)
        self.simplequeue()
        self.write_rules(RULE, "{alert: Later, expr: later, for: 1s}", interval="200ms")
        self.source.answers.update(down=DOWN, later=[])
        args = ["--notice-queue=notices", "--alertmanager-queue=am", "--resend-delay=200ms", "--heartbeat=200ms"]
        ruler = self.ruler(*args, env=clocks.env)
        self.send("notices", notices.url)
        self.send("am", alertmanager.url)

        def wait_notice(part):
            wait_until(lambda: any(part in json.loads(body)["title"] for body in notices.taken()), lambda: (part, notices.taken()))
        wait_notice("[FIRING:1] Down job=web")
        self.source.answers["later"] = [({"job": "a"}, 1)]
        self.wait_state(ruler, "pending", alertname="Later")
        ruler.kill9()
        clocks.set(wall=0)
        ruler = self.ruler(*args, env=clocks.env)
        self.wait_state(ruler, "firing", alertname="Later")
        clocks.set(wall=-86400)
        wait_until(lambda: ruler.stats()["clock_jumps_total"] == 1, "the jump to be noticed")
        self.source.answers["down"] = DOWN + [({"job": "db"}, 1)]
        wait_notice("[FIRING:2] Down")
        n, beats = len(alertmanager.taken()), sum(b"Watchdog" in body for body in notices.taken())
        wait_until(lambda: len(alertmanager.taken()) > n + 5, "messages to Alertmanager")
        wait_until(lambda: sum(b"Watchdog" in body for body in notices.taken()) > beats + 2, "heartbeats")
        self.source.answers["down"] = []
        wait_notice("[RESOLVED] Down")
        for body in alertmanager.taken():
            alert = json.loads(body)[0]
            self.assertLessEqual(alert["startsAt"], alert["endsAt"])


class Mail(harness.MillraceTest):
    def test_hostile_labels_add_no_header(self):
        """The program and the command of the guide, with texts that a shell, a header and sendmail could take as more than text."""
        blocks = guide.blocks("docs/guide", "alerts.md")
        self.write("mail.py", "\n".join(next(b.lines for b in blocks if b.lines[0].startswith("import json"))))
        line = next(line for b in blocks for line in b.lines if "--command=" in line)
        command = shlex.split(line)[3].partition("=")[2].replace("/usr/sbin/sendmail", "./sendmail")
        self.write("sendmail", "#!/bin/sh\necho \"$@\" > args; cat > mail\n")
        os.chmod(self.path("sendmail"), 0o755)
        title, summary = "[FIRING:1] Down job=\\nBcc: b\\c $(date) `date` \u00e9" + " word" * 50, "one\n.\nBcc: \u00e9 end"
        notice = {"title": title, "alerts": [{"status": "firing", "startsAt": "2026-12-01T00:00:00.000Z", "annotations": {"summary": summary}, "labels": {"a": "\n"}}]}
        subprocess.run(["/bin/sh", "-c", command], input=json.dumps(notice).encode(), cwd=self.path(), check=True)
        mail = email.message_from_bytes(harness.read_file(self.path("mail")), policy=email.policy.default)
        self.assertEqual((mail["To"], mail["Subject"], mail["Bcc"]), ("ops@example.org", title, None))
        self.assertIn(summary, mail.get_content())
        self.assertIn(b"-i", harness.read_file(self.path("args")), "otherwise a line with a period ends the mail")


class Recorded(RulerTest):
    def test_a_clock_that_is_set_back(self):
        """Rules are evaluated at once; their samples are published once the times are over, so that no time comes again."""
        clocks = Clocks(self)
        self.pubsub_url = "unix:" + self.path("p.sock")
        self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", listen=self.pubsub_url)
        self.write_rules("{record: 'a:b', expr: total}", RULE, interval="200ms")
        self.source.answers["total"] = [({}, 1)]
        ruler = self.ruler("--pubsub-url=" + self.pubsub_url, "--stream=metrics", env=clocks.env)
        wait_until(lambda: len(self.lines()) > 5, "samples")
        clocks.set(wall=-4)
        wait_until(lambda: ruler.stats()["clock_jumps_total"] == 1, "the jump to be noticed")
        self.source.answers["down"] = DOWN
        self.wait_state(ruler, "firing", job="web")
        ruler.process.send_signal(signal.SIGHUP)  # the new evaluator knows which samples are published
        n = len(self.lines())
        wait_until(lambda: len(self.lines()) > n + 5, "samples once the times are over")
        times = [line["t"] for line in self.lines() if line["labels"]["__name__"] == "a:b"]
        self.assertEqual(times, sorted(set(times)))

    def lines(self):
        reply = request(self.pubsub_url, "GET", "/sub?" + query(stream="metrics", from_="earliest", follow=0))
        return [] if reply.status == 404 else [json.loads(line) for line in reply.body.splitlines()]

    def test_series_of_a_rule_that_is_gone(self):
        self.pubsub_url = "unix:" + self.path("p.sock")
        self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", listen=self.pubsub_url)
        rules = ["{record: 'kept', expr: total}", "{record: 'gone', expr: total}"]
        self.source.answers["total"] = [({"job": "web"}, 1)]
        self.write_rules(*rules, interval="200ms")
        ruler = self.ruler("--pubsub-url=" + self.pubsub_url, "--stream=metrics")
        def values(name):
            return [line["v"] for line in self.lines() if line["labels"] == {"__name__": name, "job": "web"}]
        wait_until(lambda: values("gone"), "a sample")
        self.write_rules(rules[0], interval="200ms")
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "stale" in values("gone"), lambda: values("gone"))
        self.write_rules(*rules, interval="200ms")
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: values("gone")[-1] == 1, lambda: values("gone"))
        self.source.answers["total"] = []  # the earlier evaluations are known after a reload
        ruler.process.send_signal(signal.SIGHUP)
        wait_until(lambda: values("gone")[-1] == values("kept")[-1] == "stale", lambda: (values("gone"), values("kept")))
        self.assertEqual((values("kept").count("stale"), values("gone").count("stale")), (1, 2))
        times = [line["t"] for line in self.lines() if line["labels"]["__name__"] == "gone"]
        self.assertEqual(times, sorted(set(times)))

    def test_samples_are_stored_once(self):
        random = harness.seeded()
        self.pubsub_url = "unix:" + self.path("p.sock")
        self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never", listen=self.pubsub_url)
        self.write_rules("{record: 'job:down:sum', expr: total, labels: {by: ruler}}", RULE, interval="200ms")
        self.source.answers.update({"total": [({"__name__": "x", "job": "web"}, 0.1), ({"job": "db"}, "NaN")], "down": DOWN})
        args = ["--pubsub-url=" + self.pubsub_url, "--stream=metrics"]
        for _ in range(harness.rounds(4)):
            n = len(self.lines())
            ruler = self.ruler(*args)
            wait_until(lambda: len(self.lines()) > n + random.randrange(15), "lines")
            ruler.kill9()
        n = len(self.lines())
        ruler = self.ruler(*args)
        wait_until(lambda: len(self.lines()) > n, "an evaluation")
        self.source.answers.update(total=[({"job": "web"}, 2)], down=[])
        stale = {"__name__": "job:down:sum", "by": "ruler", "job": "db"}
        wait_until(lambda: any(line["labels"] == stale and line["v"] == "stale" for line in self.lines()[n:]), "the stale marker")
        ruler.stop()
        counts = collections.Counter((line["t"], json.dumps(line["labels"])) for line in self.lines())
        self.assertEqual([sample for sample, times in counts.items() if times > 1], [])
        self.assertEqual(len({round(line["t"] * 1000) % 200 for line in self.lines()}), 1, "slots")
        self.assertEqual({json.dumps(line["labels"], sort_keys=True) for line in self.lines()}, {json.dumps(labels, sort_keys=True) for labels in (
            stale, {**stale, "job": "web"}, {"__name__": "ALERTS", "alertname": "Down", "alertstate": "firing", "job": "web"})})
        self.assertEqual({str(line["v"]) for line in self.lines() if line["labels"]["__name__"] == "job:down:sum"}, {"0.1", "NaN", "2", "stale"})


if __name__ == "__main__":
    harness.main()
