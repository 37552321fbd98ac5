"""millrace doctor: each thing broken is found, with a command; and the conservation law holds on a running pipeline."""
import glob
import json
import os
import re
import pwd
import resource
import shutil
import subprocess
import threading
import unittest

import aggregator_model
import harness
import http_stub
from harness import USERS_BY_COUNTRY, wait_until
from small_disk import SmallDisk

EVENT = '{"t":%d,"l":"%s","c":"%s"}'
HOUR = 1332637200


def events(n, first=0):
    return "\n".join(EVENT % (HOUR + i, "user%d" % (i % 7), "US" if i % 3 else "JP") for i in range(first, first + n)).encode()


class DoctorTest(harness.MillraceTest):
    def up(self, *args, counters=USERS_BY_COUNTRY, data=None, **kw):
        kw.setdefault("aggregator", {"flush_interval": "50ms"})
        data = data or self.path("data")
        self.config = self.write("p.conf", harness.pipeline_config(data, counters, **kw))
        return harness.Pipeline(self, self.config, data, *args).wait_ready()

    def put(self, pipeline, lines):
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/mput", lines).status, 200)

    def settle(self):
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--data-dir", self.path("data")).returncode, 0)

    def findings(self, *args):
        """(result, finding, remedy) of each check."""
        done = self.run_program("millrace", "doctor", "--config", self.config, "--json", *args)
        answer = json.loads(done.stdout)
        worst = max(["ok", "warn", "fail"].index(f["result"]) for f in answer["findings"])
        self.assertEqual((done.returncode, answer["status"]), (worst, worst), done)
        found = {}
        for f in answer["findings"]:
            found.setdefault(f["check"], []).append((f["result"], f["finding"], f["remedy"]))
            if f["result"] != "ok":
                self.assertTrue(f["remedy"], f)
        return found

    def bad(self, check, *args):
        """The findings of a check that are not ok."""
        return self.not_ok(self.findings(*args), check)

    @staticmethod
    def not_ok(found, *checks):
        return [f for check in checks for f in found.get(check, []) if f[0] != "ok"]

    def slices_have(self, n):
        """The law compares what is committed."""
        return sum(int(m[1]) for f in self.findings()["conservation"]
                   if (m := re.match(r"slice \d+: (\d+) lines? published = ", f[1]))) == n

    def test_all_is_well(self):
        pipeline = self.up(counters=USERS_BY_COUNTRY + "[total the_longest_name]\nkey = c\nlabel = place\n"
                           "[total cost]\nkey = c\nvalue = t\n[total having]\nkey = c\nhaving = none\n")
        self.put(pipeline, events(500) + b"\nno JSON\n" + b'{"t":1,"l":"too early"}')
        self.settle()
        wait_until(lambda: self.slices_have(502), lambda: self.findings()["conservation"])
        found = self.findings()
        self.assertEqual({check: f for check, f in found.items() if f[0][0] != "ok" and check != "clock"}, {})
        for _, finding, _ in found["journals"]:
            self.assertRegex(finding, r": (1 frame|(?!1 )\d+ frames) in (1 segment|(?!1 )\d+ segments), intact$")
        law = [f[1] for f in found["conservation"]]
        self.assertIn("queue default: ids 1 to 502: 502 accepted = 502 published + 0 buried; 0 waiting for 0 ids after these", law)
        self.assertTrue(any(re.match(r"slice 1: 502 lines published = 500 counted \+ 0 skipped \+ 2 rejected \(offsets of clicks 0 to \d+\)", f)
                            for f in law), law)
        self.assertIn("slice 1: 500 events counted = the sum of each of 2 totals; every block is intact", law)
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.put(pipeline, events(50))
        self.settle()
        wait_until(lambda: self.slices_have(50), lambda: self.findings()["conservation"])
        self.assertIn("archive through slice 1: 500 events counted = the sum of each of 2 totals",
                      [f[1] for f in self.findings()["conservation"]])
        fast = self.findings("--fast")
        self.assertEqual({"journals", "slices", "archive", "conservation"} & set(fast), set())

    def test_while_events_flow(self):
        """No look finds anything, with seals, compactions and kills of the relay between."""
        pipeline = self.up()
        stop = threading.Event()

        def post():
            n = 0
            while not stop.wait(0.005):
                pipeline.ask("simplequeue", "POST", "/mput", events(20, n))
                n += 20
        poster = threading.Thread(target=post)
        poster.start()
        try:
            for i in range(8):
                if i in (2, 5):
                    self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
                if i in (3, 6):
                    pipeline.kill9_daemon("queue_to_pubsub")
                self.assertEqual(self.not_ok(self.findings(), "conservation", "slices", "journals", "archive"), [])
        finally:
            stop.set()
            poster.join()

    def test_a_message_that_another_reader_took(self):
        pipeline = self.up("--run=simplequeue,pubsub,aggregator,sortdb,api")
        self.put(pipeline, events(10))
        self.assertEqual(self.bad("conservation"), [])
        self.assertTrue(pipeline.ask("simplequeue", "GET", "/get").body)
        (result, finding, remedy), = self.bad("conservation")
        self.assertEqual(result, "warn")
        self.assertIn("usual after millrace queue kick, edit or delete", remedy)
        self.assertRegex(finding, r"queue default: ids 1 to 10 .* 9 waiting; 1 were moved to other ids or taken elsewhere$")

    def stopped(self, n=300):
        """A pipeline that has counted n events in slice 1 and was stopped."""
        pipeline = self.up()
        self.put(pipeline, events(n))
        self.settle()
        wait_until(lambda: self.slices_have(n), lambda: self.findings()["conservation"])
        pipeline.interrupt()
        found = self.findings()
        self.assertEqual(self.not_ok(found, "conservation", "slices", "journals"), [])
        self.assertEqual(found["status"][0][0], "fail")
        self.assertRegex(found["limits"][0][1], r"^somaxconn \d+$")

    def test_a_stopped_pipeline(self):
        """Each kind of damage, one after the other; the last one stays."""
        self.stopped()
        self.damaged_files()
        self.counts_that_do_not_add_up()
        self.lines_that_are_gone()

    def lines_that_are_gone(self):
        """The last frame of the stream is cut, as if it had never been published."""
        stream = self.path("data", "pubsub", "streams", "clicks")
        dump = self.run_program("millrace", "journal", "dump", stream).stdout.decode()
        last = int(re.findall(r"(?m)^ +(\d+) data .* size=[1-9]", dump)[-1])
        segment, = glob.glob(os.path.join(stream, "*1.seg"))
        with open(segment, "r+b") as f:
            f.truncate(last)
        bad = self.bad("conservation")
        self.assertEqual([f[0] for f in bad], ["fail"], bad)
        self.assertRegex(bad[0][1], r"^slice 1: \d+ lines published, but 300 counted \+ 0 skipped \+ 0 rejected")

    def change_slice(self, end=None, **meta):
        """Changes the slice's state and its checksum with it, as a fault in the program would."""
        changes = [("UPDATE meta SET value = ? WHERE key = ?", value, key) for key, value in meta.items()]
        if end:
            changes.append(("UPDATE cursors SET offset = ? WHERE stream = 'clicks'", end))
        aggregator_model.change_slice(self.path("data", "aggregator", "slices", "0000000001.db"), *changes)

    def counts_that_do_not_add_up(self):
        slice_file = self.path("data", "aggregator", "slices", "0000000001.db")
        original = harness.read_file(slice_file)
        self.change_slice()
        self.assertEqual(self.bad("conservation"), [], "the test computes the checksum")
        self.change_slice(events=299, rejected=1)
        bad = self.bad("conservation")
        self.assertEqual([f[:2] for f in bad], [("fail", "slice 1: counter u adds up to 300, but 299 events were counted")])
        # A slice that ends within a frame: one line less.
        lines = events(300) + b"\n"
        self.change_slice(end=len(lines) - len(lines.splitlines(keepends=True)[-1]), events=299, rejected=0)
        found = self.findings()["conservation"]
        self.assertEqual([f[1] for f in found if f[0] != "ok"], ["slice 1: counter u adds up to 300, but 299 events were counted"])
        self.assertTrue(any(f[1].startswith("slice 1: 299 lines published = 299 counted") for f in found))
        with open(slice_file, "wb") as f:
            f.write(original)

    def damaged_files(self):
        slice_file = self.path("data", "aggregator", "slices", "0000000001.db")
        at = harness.read_file(slice_file).rindex(b"u|user")
        harness.flip(slice_file, at)
        (result, finding, _), = self.bad("slices")
        self.assertEqual(result, "fail")
        self.assertIn("0000000001.db", finding)
        harness.flip(slice_file, at)
        segment, = glob.glob(self.path("data", "simplequeue", "queues", "default", "*1.seg"))
        harness.flip(segment, 200)
        (result, finding, remedy), = self.bad("journals")
        self.assertEqual((result, remedy), ("fail", "stop the daemon, then: millrace journal repair " + os.path.dirname(segment)))
        self.assertIn(segment, finding)
        harness.flip(segment, 200)
        self.assertEqual(self.not_ok(self.findings(), "conservation", "slices", "journals"), [])
        segment, = glob.glob(self.path("data", "pubsub", "streams", "clicks", "*1.seg"))
        harness.flip(segment, 200)
        self.assertEqual([f[2].partition(".")[0] for f in self.bad("conservation")], ["repair the damaged journal first"])
        harness.flip(segment, 200)
        segment, = glob.glob(self.path("data", "simplequeue", "queues", "default", "*1.seg"))
        aside = os.path.dirname(segment) + "~damaged-20260101T000000Z"
        os.mkdir(aside)
        with open(os.path.join(aside, os.path.basename(segment)), "wb") as f:
            f.write(b"damaged")
        (result, finding, remedy), = self.bad("journals")
        self.assertEqual((result, finding), ("warn", aside + ": damaged segments that `millrace journal repair` has set aside"))
        self.assertIn("delete the directory, because `millrace forget` does not search it", remedy)
        shutil.rmtree(aside)

    def test_a_directory_that_is_missing(self):
        self.config = self.write("p.conf", harness.pipeline_config(self.path("nowhere"), USERS_BY_COUNTRY))
        found = self.findings("--fast")
        self.assertEqual([f[:2] for f in found["disk"]], [("fail", self.path("nowhere") + ": No such file or directory")])
        self.assertNotIn("permissions", found)

    def test_a_repaired_stream(self):
        self.stopped()
        segment, = glob.glob(self.path("data", "pubsub", "streams", "clicks", "*1.seg"))
        harness.flip(segment, 5)
        done = self.run_program("millrace", "journal", "repair", os.path.dirname(segment))
        self.assertIn(b"lost: everything", done.stdout)
        harness.Pipeline(self, self.config, self.path("data"))
        said = "expected after `millrace journal repair` of a stream: published lines are in pubsub/streams/*~damaged-*. Do not recount"
        wait_until(lambda: any(f[2].startswith(said) for f in self.bad("conservation")), lambda: self.findings()["conservation"])

    def test_a_damaged_archive(self):
        pipeline = self.up()
        self.put(pipeline, events(300))
        self.settle()
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.assertEqual(self.bad("archive"), [])
        shard, = glob.glob(self.path("data", "archive", "current", "shard-*.csv"))
        lines = harness.read_file(shard).splitlines(keepends=True)
        with open(shard, "wb") as f:
            f.write(b"".join(lines[1:2] + lines[:1] + lines[2:]))
        (result, finding, remedy), = self.bad("archive")
        self.assertEqual(result, "fail")
        self.assertTrue(remedy.startswith("restore the file from a backup or another host, then reload"), remedy)
        self.assertIn(os.path.basename(shard), finding)
        with open(shard, "wb") as f:
            f.write(b"".join(lines))
        self.assertEqual(self.bad("archive"), [])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config, "--forget=user1").returncode, 0)
        (result, finding, _), = self.bad("conservation")
        self.assertEqual(result, "warn")
        self.assertRegex(finding, r"archive through slice 1: 300 events counted, but the totals add up to u 257$")

    def deep_permissions(self):
        """Each file is checked, at any depth; many files are a few findings."""
        deep = self.path("data", "archive", "000000000000", "manifest.json")
        mode = os.stat(deep).st_mode
        os.chmod(deep, 0o646)
        self.assertEqual(self.bad("permissions", "--fast"), [("warn", "everyone may write to " + deep, "chmod o-w " + deep)])
        os.chmod(deep, mode)
        if os.geteuid() == 0:
            os.chown(deep, pwd.getpwnam("nobody").pw_uid, -1)
            (result, finding, remedy), = self.bad("permissions", "--fast")
            self.assertEqual((result, remedy), ("fail", "chown -R --reference=%s %s" % (self.path("data"), deep)))
            self.assertRegex(finding, "^%s belongs to user nobody, and %s to user " % (deep, self.path("data")))
            os.chown(deep, 0, -1)
        for i in range(13):
            os.chmod(self.write("data/archive/%d" % i, ""), 0o666)
        self.assertEqual([f[1] for f in self.bad("permissions", "--fast")][9:],
                         ["everyone may write to " + self.path("data/archive/6"), "3 more files have a wrong owner or mode"])
        for i in range(13):
            os.unlink(self.path("data/archive/%d" % i))
        self.assertEqual(self.bad("permissions", "--fast"), [])

    def test_permissions_limits_versions_and_clock(self):
        pipeline = self.up()
        self.assertEqual(self.not_ok(self.findings(), "permissions", "limits", "versions"), [])
        slices = self.path("data", "aggregator", "slices")
        os.chmod(slices, 0o757)
        self.assertEqual(self.bad("permissions", "--fast"),
                         [("warn", "everyone may write to " + slices, "chmod o-w " + slices)])
        os.chmod(slices, 0o500)
        self.assertEqual(self.bad("permissions", "--fast"),
                         [("fail", "the owner cannot use " + slices, "chmod u+rwX " + slices)])
        os.chmod(slices, 0o750)
        self.deep_permissions()
        limits = resource.prlimit(pipeline.daemon_pid("api"), resource.RLIMIT_NOFILE)
        resource.prlimit(pipeline.daemon_pid("api"), resource.RLIMIT_NOFILE, (1000, limits[1]))
        self.assertEqual([f[:2] for f in self.bad("limits", "--fast")], [("warn", "api may open 1000 files")])
        manifest = self.path("data", "archive", "current", "manifest.json")
        text = harness.read_file(manifest).decode()
        with open(manifest, "w") as f:
            f.write(re.sub(r'"made": ?\d+', '"made":4000000000', text))
        (result, finding, remedy), = self.bad("clock", "--fast")
        self.assertEqual((result, remedy), ("fail", "set the clock: timedatectl set-ntp true"))
        self.assertRegex(finding, r"^this host's clock says \S+Z; the archive was made at \S+Z$")

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_another_user(self):
        """Unreadable files are no damage: no remedy may change or restore anything."""
        self.up()
        os.chmod(self.dir, 0o755)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for path in (self.dir, harness.program("millrace")):
            if subprocess.run([*nobody, "test", "-r", path]).returncode:
                self.skipTest("what is above %s is closed to others" % path)
        done = subprocess.run([*nobody, harness.program("millrace"), "doctor", "--data-dir", self.path("data")], capture_output=True)
        said = done.stdout.decode()
        self.assertIn("-> sudo -u %s millrace doctor, with the same options" % pwd.getpwuid(os.geteuid()).pw_name, said)
        self.assertNotRegex(said, "(?m)^fail|restore|repair|chown")

    def test_a_disk_that_fills(self):
        disk = SmallDisk(self, "256m")
        self.up(data=disk.path("data"))
        self.assertEqual(self.bad("disk", "--fast"), [])
        disk.take_the_rest()
        (result, finding, remedy), = self.bad("disk", "--fast")
        self.assertEqual((result, remedy), ("warn", "free disk space; to need less, set retain_bytes or retain_age of the streams"))
        self.assertRegex(finding, r"^[\d.]+ k?B of 268 MB free$")
        disk.give_back()
        self.assertEqual(self.bad("disk", "--fast"), [])

    def test_another_version(self):
        class Handler(http_stub.Handler):
            def do_GET(self):
                self.reply(200, b'{"state":"ready"}' if self.path.startswith("/health") else b'{"version":"0.0.1"}')
        os.mkdir(self.path("data"))
        self.config = self.write("p.conf", harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY))
        self.write("data/run.json", json.dumps({"pid": os.getpid(), "ended": False, "daemons": {
            "sortdb": {"pid": os.getpid(), "state": "ready", "url": http_stub.serve(self, Handler).url}}}))
        (result, finding, remedy), = self.bad("versions", "--fast")
        self.assertEqual((result, remedy), ("warn", "restart the pipeline: systemctl restart millrace"))
        self.assertRegex(finding, r"^sortdb runs version 0\.0\.1, this command is \d")


if __name__ == "__main__":
    harness.main()
