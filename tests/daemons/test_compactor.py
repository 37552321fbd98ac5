"""The compactor as a program: what it asks of the daemons and in which order, what it makes of their answers, what it
leaves on the disk. A model stands for the aggregator, so that it can be away, refuse, or be killed; sortdb is real."""
# seconds: 15
import glob
import json
import os
import pty
import subprocess
import threading
import time
import zlib

import harness
from aggregator_model import COUNTERS, Aggregator

class Compactor(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive = self.path("archive")
        self.aggregator = Aggregator(self)
        self.sortdb = None

    def args(self, *more):
        return ["--archive=" + self.archive, "--slices=" + self.aggregator.dir,
                "--aggregator-url=" + self.aggregator.url,
                "--sortdb-url=" + (self.sortdb.url if self.sortdb else "none"), *more]

    def compact(self, *more, expect=0):
        done = self.run_program("compactor", *self.args(*more))
        self.assertEqual(done.returncode, expect, done.stderr.decode())
        self.assertEqual(done.stdout, b"")
        return done.stderr.decode()

    def start_sortdb(self, shards=1):
        self.assertEqual(self.run_program("compactor", "--archive=" + self.archive, "--init",
                                          "--shards=%d" % shards).returncode, 0)
        self.sortdb = self.start("sortdb", "--archive=" + self.archive)

    def current(self):
        return os.path.join(self.archive, os.readlink(os.path.join(self.archive, "current")))

    def manifest(self):
        with open(os.path.join(self.current(), "manifest.json")) as f:
            return json.load(f)

    def lines(self):
        """Of every shard, each in the order of bytes, each record where its key belongs."""
        m, lines = self.manifest(), []
        for k, f in enumerate(m["files"]):
            data = harness.read_file(os.path.join(self.current(), f["name"]))
            self.assertEqual(data.splitlines(), sorted(data.splitlines()))
            self.assertEqual((len(data), data.count(b"\n")), (f["bytes"], f["records"]))
            for line in data.splitlines():
                ns, _, rest = line.partition(b",")[0].partition(b"|")
                key = rest.rpartition(b".")[0] if b"." in ns else rest
                text = ns.rpartition(b".")[2] + b"|" + key
                self.assertEqual(zlib.crc32(text) % m["shards"], k, line)
            lines += data.splitlines()
        return sorted(lines)

    def test_keys_that_disagree_live_and_archived_alike(self):
        self.start_sortdb(shards=2)
        keys = [b"a", b"a!x", b"a+", b"a-", b"a/b", b"ab", b"", "\u00e9".encode(), b"\xff\xfe", b"h0aMB8AuNw4="]
        hours = [b"c413", b"vcvn", b"w0110", b"zvcvn"]
        for n in range(1, 4):
            for k in keys:
                self.aggregator.counts.update({b"u|" + k + b"," + h: n for h in hours[:n + 1]})
                self.aggregator.counts[b"c.u|" + k + b"." + hours[n] + b",US"] = n
                self.aggregator.counts[b"c.u|" + k + b".c413,J%d" % n] = n
            self.aggregator.lookups[b"lookup|h0aMB8AuNw4=,"] = b"http://www.facebook.com/, \\ and \x01"
            self.compact("--shards=4" if n == 2 else "--keep=5")
        expected = [b"lookup|h0aMB8AuNw4=,http://www.facebook.com/, \\\\ and \\x01"]
        for k in keys:
            expected.append(b"u|" + k + b",c413:6 vcvn:6 w0110:5 zvcvn:3")
            expected.append(b"c.u|" + k + b".c413,J1:1 J2:2 J3:3")
            expected += [b"c.u|" + k + b"." + hours[n] + b",US:%d" % n for n in (1, 2, 3)]
        self.assertEqual(self.lines(), sorted(expected))
        self.assertEqual(self.manifest()["shards"], 4)
        for line in expected:
            got = self.sortdb.get("/get?" + harness.query(key=line.partition(b",")[0]))
            self.assertEqual((got.status, got.body.rstrip(b"\n")), (200, line.partition(b",")[2]))
        self.assertEqual(self.aggregator.sealed(), [])

    def test_order_of_a_run(self):
        self.start_sortdb()
        self.aggregator.counts[b"u|a,c413"] = 1
        self.compact()
        self.assertEqual(self.aggregator.asked, ["GET /slices", "GET /stats?format=json", "POST /seal?slice=1",
                                                 "POST /clear?through=1"])
        self.assertEqual(self.sortdb.stats()["generation"], 1)
        self.assertEqual(self.manifest()["streams"], {"clicks": {"id": "c0ffee", "end": "100"}})
        self.assertEqual(self.manifest()["counters"], COUNTERS)
        self.assertIn("nothing new", self.compact())
        self.assertEqual(self.manifest()["generation"], 1)
        for n in range(2, 6):
            self.aggregator.counts[b"u|a,c413"] = 1
            self.compact("--keep=3")
        self.assertEqual(sorted(os.listdir(self.archive)),
                         ["000000000003", "000000000004", "000000000005", "current", "lock", "newest"])
        self.assertEqual(self.lines(), [b"u|a,c413:5"])

    def test_a_seal_of_a_killed_run_that_ends_between_two_questions(self):
        self.start_sortdb()
        self.aggregator.counts[b"u|a,c413"] = 1
        self.aggregator.before_stats = lambda: self.aggregator.seal(1)
        self.compact()
        self.assertEqual(self.lines(), [b"u|a,c413:1"])

    def test_a_run_with_nothing_new_reads_no_records(self):
        """Files that have other bytes instead of records make it fail only once there is something new."""
        self.start_sortdb(2)
        self.aggregator.counts[b"u|a,c413"] = 1
        self.compact()
        for path in glob.glob(self.current() + "/shard-*.csv"):
            size = os.path.getsize(path)
            os.unlink(path)  # sortdb keeps the old bytes
            with open(path, "wb") as f:
                f.write(b"x" * size)
        self.assertIn("nothing new", self.compact())
        self.aggregator.counts[b"u|a,c413"] = 1
        self.compact(expect=1)

    def test_sortdb_away_or_of_another_archive(self):
        self.start_sortdb()
        self.aggregator.counts[b"u|a,c413"] = 1
        self.sortdb.kill9()
        self.assertIn("try again", self.compact(expect=75))
        self.assertEqual(self.aggregator.sealed(), [1])
        self.assertEqual(self.lines(), [b"u|a,c413:1"])
        other = self.path("other")
        self.run_program("compactor", "--archive=" + other, "--init")
        self.sortdb = self.start("sortdb", "--archive=" + other)
        self.assertIn("another archive", self.compact(expect=75))
        self.assertEqual(self.aggregator.sealed(), [1])
        aggregator, archive = self.aggregator, self.archive
        self.aggregator, self.archive = Aggregator(self, "others"), other
        self.aggregator.counts[b"u|b,c413"] = 1
        self.compact()  # generation 1 of that one too, through slice 1
        self.aggregator, self.archive = aggregator, archive
        self.assertIn("another archive", self.compact(expect=75))
        self.assertEqual(self.aggregator.sealed(), [1])
        self.sortdb = self.start("sortdb", "--archive=" + self.archive)
        self.compact()
        self.assertEqual(self.aggregator.sealed(), [])
        self.assertEqual(self.lines(), [b"u|a,c413:1"])

    def test_a_slow_daemon_is_waited_for_while_it_lives(self):
        """The seal takes longer than the time for a reply; the request is repeated, and the run ends as usual."""
        self.start_sortdb()
        seal, slow = self.aggregator.seal, []

        def slow_seal(n):
            if not slow:
                slow.append(n)
                time.sleep(7)
            return seal(n)
        self.aggregator.seal = slow_seal
        self.aggregator.answers["/ping"] = 200, "OK"
        self.aggregator.counts = {b"u|a,c413": 1}
        done = self.compact("--reply-timeout=3")
        self.assertIn("still waiting for a reply", done)
        self.assertEqual(self.aggregator.sealed(), [], "what was merged is cleared")

    def test_without_sortdb_nothing_is_cleared(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        self.assertIn("slices are kept", self.compact())
        self.assertEqual(self.aggregator.sealed(), [1])
        self.assertEqual(self.lines(), [b"u|a,c413:1"])

    def test_what_the_aggregator_says(self):
        self.aggregator.counts[b"u|a,c413"] = 1
        problem = {"status": 0, "code": "x", "detail": "because of the moon"}
        for status, expect in ((503, 75), (500, 75), (409, 78), (401, 78)):
            self.aggregator.answers = {"/seal": (status, problem)}
            self.assertIn("because of the moon", self.compact(expect=expect))
        for path, reply in (("/seal", {"sealed": 9}), ("/slices", {}), ("/stats", {"events": "x"}), ("/seal", [])):
            self.aggregator.answers = {path: (200, reply)}
            self.compact(expect=78)
        self.assertEqual(self.manifest()["generation"], 0)
        self.aggregator.answers = {}
        self.aggregator.open = 3  # 1 and 2 are nowhere
        self.assertIn("0000000001.db is missing", self.compact(expect=78))
        self.assertEqual(self.aggregator.sealed(), [3])

    def test_settings(self):
        for args, status, text in (
                (["--shards=0"], 64, "shards"), (["--sortdb-url=,"], 78, "sortdb_url"),
                (["--sortdb-url=ftp://x"], 78, "expected http"), (["--auth-token-file=/nowhere"], 78, "token"),
                (["--archive=/proc/archive"], 78, "archive"), (["x"], 64, "x")):
            self.assertIn(text, self.compact(*args, expect=status))
        done = self.run_program("compactor")
        self.assertEqual((done.returncode, b"archive is not set" in done.stderr), (78, True))
        token = self.write("token", "secret\n")
        os.chmod(token, 0o644)
        self.assertIn("open to all users", self.compact("--auth-token-file=" + token, expect=78))
        os.chmod(token, 0o600)
        self.compact("--auth-token-file=" + token)
        self.assertEqual(self.aggregator.headers[-1].get("Authorization"), "Bearer secret")
        done = self.run_program("compactor", *self.args("--check-config"))
        self.assertEqual((done.returncode, b"keep = 2" in done.stdout), (0, True))

    def test_one_run_at_a_time(self):
        self.compact()
        began, refused = threading.Event(), threading.Event()
        seal = self.aggregator.seal

        def slowly(n):
            began.set()
            refused.wait(harness.PATIENCE)
            return seal(n)
        self.aggregator.seal = slowly
        self.aggregator.counts[b"u|a,c413"] = 1
        first = subprocess.Popen([harness.program("compactor"), *self.args()], stderr=subprocess.PIPE)
        self.assertTrue(began.wait(harness.PATIENCE))
        self.assertIn(str(first.pid), self.compact(expect=75))
        refused.set()
        first.communicate()
        self.assertEqual(first.returncode, 0)

    def test_millrace_compact_finds_the_pipeline(self):
        """Addresses from run.json, directories where `millrace up` has them, and what [compactor] sets."""
        data = self.path("data")
        self.archive = os.path.join(data, "archive")
        os.makedirs(os.path.join(data, "aggregator"))
        os.symlink(self.aggregator.dir, os.path.join(data, "aggregator", "slices"))
        self.start_sortdb()
        urls = {"aggregator": self.aggregator.url, "sortdb": self.sortdb.url}
        with open(os.path.join(data, "run.json"), "w") as f:
            json.dump({"daemons": {name: {"url": url, "state": "ready"} for name, url in urls.items()}}, f)
        self.aggregator.counts[b"u|a,c413"] = 1
        done = self.run_program("millrace", "compact", "--data-dir=" + data, "--shards=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.lines(), self.manifest()["shards"]), ([b"u|a,c413:1"], 2))
        self.assertEqual((self.sortdb.stats()["generation"], self.aggregator.sealed()), (1, []))
        other = self.path("other")
        config = self.write("x.conf", "[millrace]\ndata_dir = %s\n[compactor]\narchive = %s\nsortdb_url = none\n"
                            "keep = 7\n[total u]\nkey = l\n" % (data, other))
        self.aggregator.open = 1
        self.aggregator.counts[b"u|a,c413"] = 5
        done = self.run_program("millrace", "compact", "--config=" + config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.archive = other
        self.assertEqual(self.lines(), [b"u|a,c413:5"])
        self.assertEqual(self.aggregator.sealed(), [1])

    def test_many_shards_need_many_files(self):
        self.aggregator.counts = {b"u|k%05d,c413" % i: 1 for i in range(300)}
        for shards in (90, 91, 1):
            done = subprocess.run(["sh", "-c", "ulimit -Sn 64 && exec \"$@\"", "-", harness.program("compactor"),
                                   *self.args("--shards=%d" % shards)], capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(self.lines()), 300)

    def test_progress_on_a_terminal(self):
        self.aggregator.counts = {b"u|k%05d,c413" % i: 1 for i in range(40000)}
        master, slave = pty.openpty()
        p = subprocess.Popen([harness.program("compactor"), *self.args()], stderr=slave)
        os.close(slave)
        shown = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
        os.close(master)
        self.assertEqual(p.wait(), 0)
        self.assertIn(b"\rmerge", shown.replace(b"\x1b[K", b""))
        self.assertIn(b"published a new generation", shown)


if __name__ == "__main__":
    harness.main()
