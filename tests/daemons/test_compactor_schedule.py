"""The compactor as a daemon, alone and under `millrace up`: due runs, missed runs, failed runs, and how it stops."""
import configparser
import json
import os
import re
import time

import harness
from aggregator_model import Aggregator
from clocks import Clocks
from harness import USERS_BY_COUNTRY, wait_until

DAY = 86400
HOUR = 1332637200


def to_noon():
    """The seconds until the next noon: clocks that are ahead by these, and by whole days, are far from the default time of a run."""
    return int(DAY / 2 - time.time()) % DAY


class Schedule(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.clocks = self.path("archive"), Clocks(self)
        self.aggregator = Aggregator(self)
        self.assertEqual(self.run_program("compactor", "--archive=" + self.archive, "--init").returncode, 0)

    def compactor(self, *args):
        """It has no port, so it is no harness.Daemon that answers /health."""
        return self.daemon("compactor", "--archive=" + self.archive, "--slices=" + self.aggregator.dir,
                           "--aggregator-url=" + self.aggregator.url, "--sortdb-url=none", "--every=1d", *args,
                           env=self.clocks.env, port=False)

    def generation(self):
        return int(os.readlink(os.path.join(self.archive, "current")))

    def next_run(self, d, after="next run"):
        wait_until(lambda: "next run" in d.log[max(d.log.find(after), 0):], lambda: d.log)
        return re.findall(r"at=(\S+)", d.log)[-1]

    def test_runs_when_due(self):
        at = time.strftime("%H:%M", time.gmtime(time.time() + DAY / 2))  # no run is due while the test runs
        d = self.compactor("--at=" + at)
        self.assertRegex(self.next_run(d), r"T%s:00Z$" % at)
        self.assertEqual(self.generation(), 0)
        for day in (1, 2):
            self.aggregator.counts[b"u|a,c413"] = day
            self.clocks.set(wall=day * DAY)
            wait_until(lambda: self.generation() == day, lambda: d.log)
        d.stop()

    def test_a_missed_run_is_made_up_at_the_start(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        self.clocks.set(wall=to_noon() + 3 * DAY)
        d = self.compactor()
        wait_until(lambda: self.generation() == 1, lambda: d.log)
        self.assertRegex(self.next_run(d, after="published"), r"T04:00:00Z$")
        d.stop()

    def test_a_failed_run_is_repeated(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        self.aggregator.answers["/slices"] = (503, {"detail": "still starting"})
        ahead = to_noon() + DAY
        self.clocks.set(wall=ahead)
        d = self.compactor()
        wait_until(lambda: "still starting" in d.log and "next run" in d.log, lambda: d.log)
        self.assertEqual(self.generation(), 0)
        self.aggregator.answers = {}
        self.clocks.set(wall=ahead + 70)
        wait_until(lambda: self.generation() == 1, lambda: d.log)
        d.stop()

    def test_a_run_waits_for_an_aggregator_that_recovers(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        self.aggregator.answers["/slices"] = (503, {"code": "not-ready", "detail": "opening the slices"})
        self.aggregator.answers["/health"] = (503, {"state": "recovering"})
        self.clocks.set(wall=to_noon() + DAY)
        d = self.compactor()
        wait_until(lambda: "waiting for a daemon to recover" in d.log, lambda: d.log)
        del self.aggregator.answers["/slices"]
        wait_until(lambda: self.generation() == 1, lambda: d.log)
        self.assertNotIn("opening the slices", d.log)
        d.stop()

    def test_a_stop_ends_the_run(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        began = []

        def slowly(n):
            began.append(n)
            time.sleep(harness.PATIENCE)
        self.aggregator.seal = slowly
        self.clocks.set(wall=to_noon() + DAY)
        d = self.compactor()
        wait_until(lambda: began, lambda: d.log)
        d.stop()
        self.assertEqual(self.generation(), 0)

    def test_wrong_settings(self):
        for args, text in ((["--every=30s"], "one minute"), (["--every=1d", "--at=25:00"], "time of day")):
            done = self.run_program("compactor", "--archive=" + self.archive, *args)
            self.assertEqual((done.returncode, text in done.stderr.decode()), (78, True), done)


class UnderUp(harness.MillraceTest):
    def pipeline(self, env, **sections):
        text = harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY, compactor=sections)
        config = self.write("pipeline.conf", text.replace("every = -\n", ""))
        return harness.Pipeline(self, config, self.path("data"), env=env).wait_ready()

    def total(self, pipeline):
        reply = pipeline.ask("api", "GET", "/v1/series?" + harness.query(user="bitly", from_=HOUR, to=HOUR + 3600))
        return reply.json()["total"] if reply.status == 200 else None

    def test_daily_by_default(self):
        clocks, ahead = Clocks(self), to_noon()
        clocks.set(wall=ahead)
        pipeline = self.pipeline(clocks.env, every="-")
        wait_until(lambda: re.search(r"compactor +\| .*next run.*T04:00:00Z", pipeline.log), lambda: pipeline.log)
        event = json.dumps({"t": HOUR, "l": "bitly", "c": "US"}).encode()
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", event).status, 200)
        wait_until(lambda: self.total(pipeline) == 1, lambda: pipeline.log)
        clocks.set(wall=ahead + DAY)
        wait_until(lambda: pipeline.ask("sortdb", "GET", "/stats?format=json").json()["generation"] == 1,
                   lambda: pipeline.log)
        wait_until(lambda: self.total(pipeline) == 1, lambda: pipeline.log)
        pipeline.interrupt()

    def test_not_at_all(self):
        pipeline = self.pipeline(None, every="0s")
        self.assertNotIn("compactor", pipeline.run_file()["daemons"])
        pipeline.interrupt()

    def test_the_systemd_timer(self):
        """At the default time, and at the next boot if the machine was off then."""
        def unit(name):
            parsed = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
            parsed.optionxform = str
            parsed.read(os.path.join(harness.ROOT, "etc", "systemd", name))
            return parsed
        timer, service = unit("millrace-compact.timer"), unit("millrace-compact.service.in")
        self.assertEqual((timer["Timer"]["OnCalendar"], timer["Timer"]["Persistent"]), ("*-*-* 04:00:00 UTC", "true"))
        said = self.run_program("compactor", "--help").stdout.decode()
        self.assertRegex(said, r"--at=[^\n]*\(default 04:00\)")
        command = service["Service"]["ExecStart"].split()
        self.assertEqual([os.path.basename(command[0]), command[1]], ["millrace", "compact"])


if __name__ == "__main__":
    harness.main()
