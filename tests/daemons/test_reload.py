"""SIGHUP at `millrace up`: new counters take effect while events flow; what needs a restart is named; a wrong file changes nothing. And the
whole configuration is judged before anything starts."""
import json
import os
import re
import shutil
import signal
import subprocess
import threading

import harness
from harness import USERS_BY_COUNTRY, wait_until

HOUR = 1332637200
BY_COUNTRY = "\n[total x]\nkey = c\nlabel = country\n"


def event(user="bitly", country="JP"):
    return json.dumps({"t": HOUR, "l": user, "c": country}).encode()


class Reload(harness.MillraceTest):
    def config(self, counters=USERS_BY_COUNTRY, **sections):
        return self.write("pipeline.conf", harness.pipeline_config(self.path("data"), counters, **sections))

    def up(self):
        return harness.Pipeline(self, self.config(), self.path("data"))

    def reload(self, pipeline, message):
        before = pipeline.log.count(message)
        pipeline.process.send_signal(signal.SIGHUP)
        wait_until(lambda: pipeline.log.count(message) > before, lambda: message + "\n" + pipeline.log)
        return pipeline.log

    def total(self, pipeline, **labels):
        target = "/v1/series?" + harness.query(unit="hour", from_=HOUR, to=HOUR + 3600, **labels)
        try:
            reply = pipeline.ask("api", "GET", target)
        except harness.UNREACHABLE:
            return None
        return reply.json()["total"] if reply.status == 200 else None

    def pids(self, pipeline):
        return {name: d["pid"] for name, d in pipeline.run_file()["daemons"].items()}

    def test_added_counters_take_effect_while_events_flow(self):
        pipeline = self.up().wait_ready()
        posted, refused, stop = [0], [], threading.Event()

        def post():
            while not stop.is_set():
                try:
                    reply = pipeline.ask("simplequeue", "POST", "/put", event())
                    if reply.status != 200:
                        refused.append(reply)
                    posted[0] += 1
                except harness.UNREACHABLE as e:
                    refused.append(e)
        thread = threading.Thread(target=post)
        thread.start()
        wait_until(lambda: (self.total(pipeline, user="bitly") or 0) > 0, "the first count")
        before, counted = self.pids(pipeline), posted[0]
        self.config(USERS_BY_COUNTRY + BY_COUNTRY)
        self.reload(pipeline, "configuration read counters=changed")
        wait_until(lambda: (self.total(pipeline, country="JP") or 0) > 0, lambda: pipeline.log)
        stop.set()
        thread.join()
        self.assertEqual(refused, [])
        self.assertGreater(posted[0], counted)
        wait_until(lambda: self.total(pipeline, user="bitly") == posted[0], lambda: "%s of %d" % (self.total(pipeline, user="bitly"), posted[0]))
        self.assertLess(self.total(pipeline, country="JP"), posted[0], "the past has no such counter")

        def replaced():
            after = self.pids(pipeline)
            return {name for name in before if before[name] != after[name]}
        wait_until(lambda: replaced() == {"aggregator", "api"}, replaced)  # run.json is written after the process has begun
        self.assertEqual({d["restarts"] for d in pipeline.run_file()["daemons"].values()}, {0})
        self.assertEqual(pipeline.ask("aggregator", "GET", "/stats?format=json").json()["sealed_slices"], 1)
        self.assertNotIn("after a restart", pipeline.log)
        pipeline.interrupt()

    def test_a_changed_door_restarts_the_api_alone(self):
        pipeline = self.up().wait_ready()
        before = self.pids(pipeline)
        for door, members in (("add = ip", {"ip": "127.0.0.1"}), ("add = ip bot", {"ip": "127.0.0.1", "bot": True}), ("", {})):
            self.config(USERS_BY_COUNTRY + ("\n[door]\n%s\n" % door if door else ""))
            self.reload(pipeline, "configuration read counters=unchanged door=changed")

            def stored():
                try:
                    pipeline.ask("api", "POST", "/v1/events", event())
                except harness.UNREACHABLE:
                    return None
                lines = pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body.splitlines()
                return lines and json.loads(lines[-1])
            wait_until(lambda: stored() == {**json.loads(event()), **members}, stored)
        self.assertNotIn("after a restart", pipeline.log)
        self.reload(pipeline, "configuration read counters=unchanged door=unchanged")
        after = self.pids(pipeline)
        self.assertEqual({name for name in before if before[name] != after[name]}, {"api"})
        pipeline.interrupt()

    def test_settings_that_need_a_restart_are_named(self):
        pipeline = self.up().wait_ready()
        before = self.pids(pipeline)
        self.config(pubsub={"retain_age": "30d"}, simplequeue={"max_depth": 5}, api={"port": None})
        log = self.reload(pipeline, "configuration read counters=unchanged")
        self.assertIn('these settings take effect after a restart settings="[pubsub] retain_age, [simplequeue] max_depth, [api] port"', log)
        self.assertEqual(self.pids(pipeline), before)
        pipeline.interrupt()

    def test_a_wrong_file_changes_nothing_and_says_why(self):
        pipeline = self.up().wait_ready()
        before = self.pids(pipeline)
        for name, counters, sections in (("a counter", USERS_BY_COUNTRY + "\n[total z]\nkeyy = c\n", {}),
                                         ("a daemon", USERS_BY_COUNTRY + BY_COUNTRY, {"pubsub": {"retain_agee": "1d"}}),
                                         ("the pipeline", USERS_BY_COUNTRY + BY_COUNTRY, {"millrace": {"restart_dela": "1s"}}),
                                         ("streams", USERS_BY_COUNTRY + BY_COUNTRY, {"aggregator": {"streams": "other"}})):
            with self.subTest(name):
                self.config(counters, **sections)
                former = len(pipeline.log)
                log = self.reload(pipeline, "the configuration is wrong and changes nothing")
                said = log[former:log.rindex("the configuration is wrong and changes nothing")]
                self.assertRegex(said, r"pipeline\.conf:\d+: ")
                self.assertNotIn("cannot start", said)
                self.assertEqual(self.pids(pipeline), before)
                problem = re.compile(r"the configuration %s is wrong, so the reload of \d+ (seconds?|minutes) ago changed nothing; a daemon that restarts "
                                     r"cannot start" % re.escape(pipeline.config_path))
                wait_until(lambda: [bool(problem.fullmatch(p)) for p in self.problems(pipeline)] == [True], lambda: self.problems(pipeline))
        self.config(USERS_BY_COUNTRY + BY_COUNTRY)
        self.reload(pipeline, "configuration read counters=changed")
        wait_until(lambda: self.problems(pipeline) == [], lambda: self.problems(pipeline))
        pipeline.ask("simplequeue", "POST", "/put", event())
        wait_until(lambda: self.total(pipeline, country="JP") == 1, lambda: pipeline.log)
        pipeline.interrupt()

    def problems(self, pipeline):
        done = self.run_program("millrace", "status", "--sample=0", "--json", "--config", pipeline.config_path)
        return [problem["problem"] for problem in json.loads(done.stdout)["problems"]]

    def status(self, pipeline):
        return json.loads(self.run_program("millrace", "status", "--json", "--config", pipeline.config_path).stdout)

    def aggregator_of_status(self, pipeline):
        return self.status(pipeline)["daemons"]["aggregator"]

    def test_status_names_the_reason_of_refused_counters_until_they_are_corrected(self):
        pipeline = self.up().wait_ready()
        self.config(USERS_BY_COUNTRY.replace("key = l", "key = h", 1))
        self.reload(pipeline, "configuration read counters=changed")
        wait_until(lambda: pipeline.run_file()["daemons"]["aggregator"]["restarts"] >= 2, lambda: pipeline.log)
        aggregator = wait_until(lambda: (lambda d: d["state"] == "restarting" and d)(self.aggregator_of_status(pipeline)), lambda: pipeline.log)
        self.assertIn("is defined differently now", aggregator["detail"])
        wait_until(lambda: "correct the configuration as the reason says" in [p["remedy"] for p in self.status(pipeline)["problems"]], lambda: self.status(pipeline))
        self.config()
        self.reload(pipeline, "configuration read counters=changed")
        wait_until(lambda: self.aggregator_of_status(pipeline)["state"] == "ready", lambda: pipeline.log)
        pipeline.interrupt()

    def test_a_daemon_that_failed_at_the_start_is_named(self):
        self.up().wait_ready().interrupt()
        self.config(USERS_BY_COUNTRY.replace("key = l", "key = h", 1))
        pipeline = harness.Pipeline(self, self.path("pipeline.conf"), self.path("data"))
        wait_until(lambda: pipeline.run_file()["daemons"]["aggregator"]["state"] == "failed", lambda: pipeline.log)
        self.config()
        self.reload(pipeline, "restart the pipeline daemon=aggregator")
        pipeline.interrupt()

    def test_everything_is_judged_before_anything_starts(self):
        config = self.config(USERS_BY_COUNTRY + "\n[total z]\nkeyy = c\n")
        done = self.run_program("millrace", "up", "--config", config)
        self.assertEqual(done.returncode, 78, done)
        self.assertRegex(done.stderr.decode(), r"pipeline\.conf:\d+: .*keyy")
        self.assertIn(b"nothing was started", done.stderr)
        self.assertEqual(sorted(os.listdir(self.path("data"))), ["daemons.lock", "lock", "start-error"])

    def test_a_daemon_that_is_not_installed_is_named(self):
        config = self.config()
        os.mkdir(self.path("elsewhere"))
        copy = shutil.copy(harness.program("millrace"), self.path("elsewhere"))
        done = subprocess.run([copy, "up", "--config", config], capture_output=True, timeout=harness.PATIENCE)
        self.assertEqual(done.returncode, 71, done)
        self.assertRegex(done.stderr.decode(), r'cannot run a program that checks the configuration path=\S*/libexec/millrace/\w+ error="No such file')
        self.assertIn(b"the configuration could not be checked, see the line above: nothing was started", done.stderr)


if __name__ == "__main__":
    harness.main()
