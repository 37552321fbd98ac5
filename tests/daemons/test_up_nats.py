"""`millrace up` with [queue_to_nats] and with [nats_to_pubsub], and what status, doctor and the page show of them."""
import json
import os

import harness
from cell_test import CellTest
from harness import wait_until
from nats_test import NatsServer, NatsTest

CLICK = b'{"t":1332633600,"l":"nasa","c":"US"}'


class UpNats(NatsTest):
    def setUp(self):
        super().setUp()
        self.server = NatsServer(self, "n1").start()

    def up(self, **millrace):
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), harness.USERS_BY_COUNTRY, millrace=millrace, queue_to_nats={
            "port": 0, "nats_url": self.server.url, "nats_timeout": "1s", "backoff_max": "200ms", "create": "yes", "replicas": 1, "settle_after": "1h"}))
        return harness.Pipeline(self, config, self.path("data"))

    def put(self, lines):
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines)).status, 200)

    def look_until(self, holds):
        def look():
            done = self.run_program("millrace", "status", "--data-dir", self.path("data"), "--sample=0", "--json")
            self.shown = done.returncode, json.loads(done.stdout)
            return holds(*self.shown) and self.shown[1]
        return wait_until(look, lambda: str(self.shown))

    def test_unsettled_messages_are_no_backlog(self):
        self.pipeline = self.up(run="simplequeue queue_to_nats").wait_ready()
        self.put([b"line %d" % i for i in range(100)])
        self.assertEqual(self.run_program("millrace", "status", "--data-dir", self.path("data"), "--wait").returncode, 0)
        for published_it in (True, False):
            if not published_it:
                pid = self.pipeline.kill9_daemon("queue_to_nats")
                wait_until(lambda pid=pid: self.pipeline.daemon_pid("queue_to_nats") not in (0, None, pid), "it to run again")
            look = self.look_until(lambda status, look: look.get("unsettled") == 100 and look["daemons"]["queue_to_nats"]["state"] == "ready")
            queue = look["daemons"]["simplequeue"]
            self.assertEqual((queue["waiting"], queue["lag_seconds"], queue["detail"]), (0, 0, "depth 100; 100 published, not yet settled"))
            self.assertEqual(look["daemons"]["queue_to_pubsub"]["state"], "off")
        refused = self.run_program("millrace", "queue", "--hand-over", "--config=" + self.path("p.conf"))
        self.assertEqual((refused.returncode, b"`millrace up` runs queue_to_nats" in refused.stderr), (75, True), refused)
        self.server.kill9()
        self.put([b"behind"])
        look = self.look_until(lambda status, look: look["daemons"]["simplequeue"]["waiting"] == 1 and
                               any("cannot connect to a nats-server" in p["problem"] for p in look["problems"]))
        self.assertEqual((look["level"], look["unsettled"]), ("needs attention", 100))
        self.server.start()
        look = self.look_until(lambda status, look: look["unsettled"] == 101)
        doctor = self.run_program("millrace", "doctor", "--data-dir", self.path("data")).stdout.decode()
        self.assertIn("queue default: not compared: its messages go to JetStream", doctor)
        self.pipeline.interrupt()

    def test_a_pipeline_has_one_relay(self):
        self.pipeline = self.up().wait_ready()
        self.assertEqual(set(self.pipeline.run_file()["daemons"]), {"pubsub", "simplequeue", "sortdb", "aggregator", "queue_to_nats", "api"})
        self.put([b"a"])

        def published():
            daemons = {d["name"]: d for d in self.pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"]}
            self.assertNotIn("queue_to_pubsub", daemons)
            return (daemons["queue_to_nats"]["stats"] or {}).get("unsettled_messages") == 1
        wait_until(published, "the page to show the relay's numbers")
        self.pipeline.interrupt()
        both = self.up(run="simplequeue pubsub queue_to_pubsub queue_to_nats")
        self.assertEqual(both.process.wait(harness.PATIENCE), 78)
        self.assertIn("queue_to_pubsub also reads queue default, and a queue has one relay", both.log)

    def test_a_relay_that_does_not_run_hides_nothing(self):
        """A hand-over needs the sections of both relays, and `run` names the one that runs."""
        self.pipeline = self.up(run="simplequeue, pubsub, queue_to_pubsub, sortdb, aggregator").wait_ready()
        self.put([b'{"user":"a"}', b'{"user":"b"}'])
        self.assertEqual(self.run_program("millrace", "status", "--data-dir", self.path("data"), "--wait").returncode, 0)

        def compared():
            self.shown = self.run_program("millrace", "doctor", "--data-dir", self.path("data")).stdout.decode()
            return "queue default: ids 1 to 2: 2 accepted = 2 published" in self.shown
        wait_until(compared, lambda: self.shown)
        self.pipeline.interrupt()


class UpCell(CellTest):
    def test_a_cell(self):
        self.add_stream()
        config = self.write("p.conf", harness.pipeline_config(
            self.path("data"), harness.USERS_BY_COUNTRY, millrace={"run": "nats_to_pubsub pubsub aggregator compactor sortdb api"},
            nats_to_pubsub={"port": 0, "nats_url": self.server.url, "nats_timeout": "1s", "partitions": "0-63"}))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.publish("q1", 1, 3, [CLICK, CLICK])

        def status():
            done = self.run_program("millrace", "status", "--data-dir", self.path("data"), "--sample=0", "--json")
            return json.loads(done.stdout)

        def shown(events):
            daemon = {d["name"]: d for d in pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"]}["nats_to_pubsub"]
            return (daemon["stats"] or {}).get("lines_stored_total") == events
        wait_until(lambda: shown(2), "the page to show the lines")
        look = wait_until(lambda: (s := status())["level"] == "fine" and s, lambda: str(status()))
        self.assertEqual((look["daemons"]["nats_to_pubsub"]["state"], look["daemons"]["simplequeue"]["state"]), ("ready", "off"))
        doctor = self.run_program("millrace", "doctor", "--data-dir", self.path("data"))
        self.assertIn(doctor.returncode, (0, 1), doctor)
        self.assertNotIn(b"DOWN", doctor.stdout)
        self.publish("q1", 4, 5, [CLICK])
        wait_until(lambda: any("millrace producers --set=q1 --from=3 --mark=4 " in p["problem"] for p in status()["problems"]),
                   lambda: "status to name the hole: %s" % status())
        pipeline.interrupt()

    def test_the_sample_of_a_cell(self):
        sample = harness.read_file(os.path.join(harness.ROOT, "etc", "cluster", "cell.conf")).decode()
        r = self.run_program("nats_to_pubsub", "--check-config", "--config=" + self.write("s.conf", sample))
        self.assertEqual(r.returncode, 0, r)
        self.assertIn(b"0-20", r.stdout)


if __name__ == "__main__":
    harness.main()
