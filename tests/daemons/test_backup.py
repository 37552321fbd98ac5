"""A pipeline is backed up while events, relays, counting, seals and compactions go on. The restored copy has a prefix of
every producer's events, counts each of them once, accepts the rest, and then has what the original has."""
# full: MILLRACE_ROUNDS=200
import fcntl
import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import types

import harness
from harness import wait_until
from small_disk import SmallDisk

COUNTERS = """
[input]
time = t
max_ahead = 0
[total all]
key = "all"
[total u]
key = l
[subtotal c.u]
key = c
[unique v.all]
member = c
"""
PRODUCERS, BATCH = 3, 7
PAUSE = 0.05  # seconds between two batches of a producer: events flow all the time, and leave the processors to what is tested
KEEPERS = ("simplequeue", "pubsub", "aggregator", "queue_to_pubsub")
HOUR = 1331920800


def event(producer, i):
    """Long enough that segments are begun, and deleted, every second."""
    return b'{"t":%d,"l":"p%d","c":"c%05d","x":"%s"}\n' % (HOUR + i % 7200, producer, i, b"x" * 400)


class Producer(threading.Thread):
    """Posts its numbered events in order, with marks, until it is stopped. `sent` counts what was acknowledged."""

    def __init__(self, pipeline, number, sent=0):
        super().__init__(daemon=True)
        self.pipeline, self.number, self.sent, self.over = pipeline, number, sent, threading.Event()

    def post(self, n=BATCH):
        body = b"".join(event(self.number, i) for i in range(self.sent, self.sent + n))
        target = "/mput?" + harness.query(producer="p%d" % self.number, mark=self.sent, next=self.sent + n)
        try:
            reply = self.pipeline.ask("simplequeue", "POST", target, body, timeout=20)
        except (*harness.UNREACHABLE, KeyError):
            return
        if reply.status == 200:
            self.sent += n

    def run(self):
        while not self.over.wait(PAUSE):
            self.post()

    def stop(self):
        self.over.set()
        self.join()
        return self


class BackupTest(harness.MillraceTest):
    def config(self, data, **sections):
        sections.setdefault("simplequeue", {}).setdefault("segment_bytes", "64K")
        sections.setdefault("pubsub", {}).update(segment_bytes="64K", retain_bytes="128K", streams="clicks")
        sections.setdefault("aggregator", {}).setdefault("flush_interval", "20ms")
        return self.write(os.path.basename(data) + ".conf", harness.pipeline_config(data, COUNTERS, **sections))

    def pipeline(self, data, **sections):
        return harness.Pipeline(self, self.config(data, **sections), data).wait_ready()

    def small_pipeline(self):
        pipeline = self.pipeline(self.path("data"))
        producer = Producer(pipeline, 0)
        for _ in range(5):
            producer.post(70)
        self.settled(pipeline)
        return pipeline

    def backup(self, to, pipeline, *args, status=0):
        done = self.run_program("millrace", "backup", "--config", pipeline.config_path, to, *args)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode() + done.stderr.decode()

    def restore(self, backup, to, status=0):
        done = self.run_program("millrace", "restore", backup, "--to", to)
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode() + done.stderr.decode()

    def settled(self, pipeline):
        done = self.run_program("millrace", "status", "--wait", "--timeout=%ds" % harness.PATIENCE, "--data-dir", pipeline.data_dir)
        self.assertEqual(done.returncode, 0, "%s\n%s" % (done, pipeline.log))

    def records(self, pipeline):
        """What archive and slices have together, by key: {name: count}."""
        found = {}
        manifest = os.path.join(pipeline.data_dir, "archive", "current")
        for path in glob.glob(manifest + "/shard-*.csv"):
            self.add(found, harness.read_file(path))
        for path in sorted(glob.glob(os.path.join(pipeline.data_dir, "aggregator", "slices", "*.db"))):
            if int(os.path.basename(path)[:10]) > self.through(pipeline):
                self.add(found, self.run_program("millrace", "slice", path).stdout)
        return found

    def through(self, pipeline):
        text = harness.read_file(os.path.join(pipeline.data_dir, "archive", "current", "manifest.json"))
        return int(re.search(rb'"through":(\d+)', text)[1])

    def add(self, found, text):
        for line in text.splitlines():
            key, _, counts = line.partition(b",")
            if not re.match(rb"all\|all$|u\|p\d$|c\.u\|p\d\.\w{4}$", key):
                continue  # days and months
            for pair in counts.split(b" "):
                name, _, n = pair.rpartition(b":")
                at = found.setdefault(key, {})
                at[name] = at.get(name, 0) + int(n)

    def events(self, records):
        """{producer: set of the numbers of its counted events}; each must be counted once."""
        seen = {p: set() for p in range(PRODUCERS)}
        for key, counts in records.items():
            if not key.startswith(b"c.u|"):
                continue
            for name, n in counts.items():
                number = int(name[1:])
                producer = int(re.match(rb"c\.u\|p(\d)", key)[1])
                self.assertEqual(n, 1, "event %d of producer %d" % (number, producer))
                seen[producer].add(number)
        total = sum(records.get(b"all|all", {}).values())
        self.assertEqual(total, sum(map(len, seen.values())), "totals and subtotals")
        return seen

    def check_prefix(self, pipeline, at_least):
        """The copy has a prefix of each producer's events. Returns the lengths."""
        self.settled(pipeline)
        pipeline.interrupt()
        seen = self.events(self.records(pipeline))
        for p, numbers in seen.items():
            self.assertEqual(numbers, set(range(len(numbers))), "producer %d" % p)
            self.assertGreaterEqual(len(numbers), at_least[p], "acknowledged before the backup, producer %d" % p)
        return {p: len(numbers) for p, numbers in seen.items()}

    def goes_on(self, data, at_least):
        """Starts a restored copy; continues every producer from the copy's own mark."""
        pipeline = self.pipeline(data)
        marks = {}
        for p in range(PRODUCERS):
            reply = pipeline.ask("simplequeue", "GET", "/producer?producer=p%d" % p)
            marks[p] = int(reply.json()["mark"]) if reply.status == 200 else 0
        self.assertEqual(self.check_prefix(pipeline, at_least), marks, "the copy has what its producers' marks say")
        pipeline = self.pipeline(data)
        for p in range(PRODUCERS):
            producer = Producer(pipeline, p, marks[p])
            for _ in range(5):
                producer.post()
            marks[p] = producer.sent
        self.assertEqual(self.check_prefix(pipeline, marks), marks)
        self.assertNotIn("refus", pipeline.log)

    def hashes(self, root):
        return {path: harness.read_file(path) for path in glob.glob(root + "/**/*.*", recursive=True) if os.path.isfile(path)}


class RunningPipeline(BackupTest):
    def test_backups_under_load(self):
        random, n_rounds = harness.seeded(), harness.rounds(3)
        for begin in range(0, n_rounds, 10):
            self.back_up_often(random, self.path("data%d" % begin), range(begin, min(begin + 10, n_rounds)))

    def back_up_often(self, random, data, rounds):
        pipeline = self.pipeline(data)
        producers = [Producer(pipeline, p) for p in range(PRODUCERS)]
        for p in producers:
            p.start()
        over = threading.Event()

        def compact():
            while not over.is_set():
                subprocess.run([harness.program("millrace"), "compact", "--config", pipeline.config_path], capture_output=True)
                over.wait(random.random())
        compactor = threading.Thread(target=compact, daemon=True)
        compactor.start()
        for r in rounds:
            sent = [p.sent for p in producers]
            wait_until(lambda: all(p.sent > n + random.randrange(50) for p, n in zip(producers, sent)), "some events")
            self.back_up_once(random, pipeline, [p.sent for p in producers], r)
        over.set()
        compactor.join()
        sent = {p.number: p.stop().sent for p in producers}
        self.assertEqual(self.check_prefix(pipeline, sent), sent, "the original is not disturbed")

    def back_up_once(self, random, pipeline, sent, r):
        to, new = self.path("backup"), self.path("restored")
        if r % 3 == 2:
            to = os.path.join(harness.OTHER_DIR, "millrace-backup-%d" % os.getpid())
            self.addCleanup(shutil.rmtree, to, True)
        killer = threading.Timer(random.random() * 0.1, pipeline.kill9_daemon, [random.choice(KEEPERS)])
        if r % 2:
            killer.start()
        self.backup(to, pipeline)
        if r % 2:
            killer.join()
        before = self.hashes(to)
        self.restore(to, new)
        self.goes_on(new, sent)
        after = self.hashes(to)
        self.assertEqual([path for path in after if before[path] != after[path]], [], "a backup never changes")
        self.assertIn("intact", self.run_program("millrace", "backup", "--verify", to).stdout.decode())
        shutil.rmtree(to)
        shutil.rmtree(new)
        self.assertEqual(glob.glob(os.path.join(pipeline.data_dir, "*", ".backup")), [])


class Sets(BackupTest):
    def export(self, data):
        done = self.run_program("compactor", "--archive=" + os.path.join(data, "archive"), "--export")
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    def test_files_of_sets_are_copied_verified_and_restored(self):
        pipeline = self.small_pipeline()
        done = self.run_program("millrace", "compact", "--config", pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)
        self.backup(self.path("b"), pipeline)
        self.restore(self.path("b"), self.path("new"))
        self.assertIn(b"\nv.all|all.", self.export(self.path("new")))
        self.assertEqual(self.export(self.path("new")), self.export(pipeline.data_dir))
        done = self.run_program("compactor", "--archive=" + self.path("new", "archive"), "--verify")
        self.assertEqual(done.returncode, 0, done)
        shutil.copytree(self.path("b"), self.path("copy"), symlinks=True)  # without its hard links
        for name in ("shard-0-of-1.sets", "sets-0-of-1.csv"):
            path, = glob.glob(self.path("copy", "archive", "0*", name))
            harness.flip(path, 9)
            done = self.run_program("millrace", "backup", "--verify", self.path("copy"))
            self.assertEqual((done.returncode, name.encode() in done.stderr), (65, True), done)
            harness.flip(path, 9)


class PsToFile(BackupTest):
    """Its files are copied before the backup, while it is stopped, as operations.md says."""

    def writer(self, pipeline):
        return self.start("ps_to_file", "--config", pipeline.config_path, "--pubsub-url", pipeline.daemon_url("pubsub"))

    def lines(self):
        files = glob.glob(self.path("files", "*.ndjson"))
        files += glob.glob(self.path("files", ".ps_to_file*.staging", "*"))
        return sorted(line for f in files for line in harness.read_file(f).splitlines(True))

    def wait_lines(self, n):
        wait_until(lambda: len(self.lines()) >= n, "%d lines in the files" % n)

    def test_files_copied_before_the_backup(self):
        section = {"stream": "clicks", "filename_format": self.path("files", "%Y.ndjson")}
        pipeline = self.pipeline(self.path("data"), ps_to_file=section)
        producer = Producer(pipeline, 0)
        writer = self.writer(pipeline)
        for _ in range(5):
            producer.post()
        self.wait_lines(producer.sent)
        writer.stop()
        shutil.copytree(self.path("files"), self.path("copied"))
        for _ in range(3):
            producer.post()
        self.assertIn("not in the backup: files and state of [ps_to_file]", self.backup(self.path("b"), pipeline))
        writer = self.writer(pipeline)
        for _ in range(4):
            producer.post()
        self.wait_lines(producer.sent)
        writer.stop()
        self.settled(pipeline)
        pipeline.interrupt()

        shutil.rmtree(self.path("files"))
        os.rename(self.path("copied"), self.path("files"))
        self.restore(self.path("b"), self.path("new"))
        pipeline = self.pipeline(self.path("new"), ps_to_file=section)
        producer = Producer(pipeline, 0, int(pipeline.ask("simplequeue", "GET", "/producer?producer=p0").json()["mark"]))
        self.assertGreaterEqual(producer.sent, 8 * BATCH)
        writer = self.writer(pipeline)
        for _ in range(4):
            producer.post()
        self.wait_lines(producer.sent)
        writer.stop()
        self.assertEqual(self.lines(), sorted(event(0, i) for i in range(producer.sent)))
        pipeline.interrupt()


class Refusals(BackupTest):
    def setUp(self):
        super().setUp()
        self.running = self.small_pipeline()

    def test_what_is_refused(self):
        there = self.path("there")
        os.mkdir(there)
        self.assertIn("there exists", self.backup(there, self.running, status=73))
        self.backup(self.path("b"), self.running)
        self.assertIn("b exists", self.backup(self.path("b"), self.running, status=73))
        self.write("there/file", "")
        self.assertIn("not empty", self.restore(self.path("b"), there, status=73))
        self.assertIn("not a complete backup", self.restore(there, self.path("new"), status=66))
        done = self.run_program("millrace", "backup", "--data-dir", there, self.path("c"))
        self.assertEqual((done.returncode, b"no data" in done.stderr), (66, True), done)
        for args in ((), (self.path("c"), "x")):
            self.assertEqual(self.run_program("millrace", "backup", *args).returncode, 64)
            self.assertEqual(self.run_program("millrace", "restore", *args).returncode, 64)
        self.assertEqual(sorted(os.listdir(there)), ["file"])
        self.assertEqual(sorted(n for n in os.listdir(self.dir) if os.path.isdir(self.path(n))), ["b", "data", "there"])
        os.unlink(self.path("there/file"))
        self.restore(self.path("b"), there)  # into an empty directory
        self.assertEqual(os.stat(self.path("b")).st_mode & 0o777, 0o700)

    def test_a_directory_of_another_user(self):
        """The error names both users, for the directory of the pipeline and for that of the backup."""
        other, me = ({"user": "nobody"} if os.geteuid() == 0 else {}), pwd.getpwuid(os.geteuid()).pw_name
        os.chmod(self.dir, 0o755)
        closed = 0o700 if other else 0
        for place, to, status in (("data", "/tmp/never-made", 66), ("mine", self.path("mine/b"), 74)):
            os.makedirs(self.path(place), exist_ok=True)
            os.chmod(self.path(place), closed)
            self.addCleanup(os.chmod, self.path(place), 0o700)
            done = self.run_program("millrace", "backup", "--data-dir", self.path("data"), to, **other)
            os.chmod(self.path(place), 0o755)
            self.assertEqual(done.returncode, status, done)
            self.assertIn("Permission denied; %s belongs to user %s" % (self.path(place), me), done.stderr.decode())

    def test_a_full_disk(self):
        """At every step: fewer or more files find room."""
        disk = SmallDisk(self, "2m")
        self.backup(self.path("b"), self.running)
        for room in (0, 4 << 10, 64 << 10, 300 << 10):
            disk.take_the_rest()
            disk.leave(room)
            self.assertIn("free space", self.backup(disk.path("b"), self.running, status=75))
            self.assertIn("free space", self.restore(self.path("b"), disk.path("new"), status=75))
            self.assertEqual(os.listdir(disk.directory), ["other"])
            self.assertEqual(glob.glob(self.path("data", "*", ".backup")), [])
        disk.give_back()
        self.backup(disk.path("b"), self.running)


class Stopped(BackupTest):
    """Each test has a copy of the data that the first one made."""
    @classmethod
    def setUpClass(cls):
        cls.made = tempfile.mkdtemp(dir=os.environ.get("MILLRACE_TEST_DIR"))
        cls.addClassCleanup(shutil.rmtree, cls.made)

    def setUp(self):
        super().setUp()
        data, slices = (os.path.join(self.made, name) for name in ("data", "slices"))
        if not os.path.exists(data):
            pipeline = self.small_pipeline()
            shutil.copytree(self.path("data", "aggregator", "slices"), slices)
            pipeline.interrupt()
            os.rename(self.path("data"), data)
        shutil.copytree(data, self.path("data"), symlinks=True)
        self.stopped = types.SimpleNamespace(config_path=self.config(self.path("data")))
        self.slices_of_a_killed = slices

    def flip(self, path, at=None):
        os.chmod(path, 0o644)
        with open(path, "r+b") as f:
            at = os.path.getsize(path) // 2 if at is None else at
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 1]))

    def test_each_damaged_file_is_named(self):
        self.backup(self.path("b"), self.stopped)
        shutil.copytree(self.path("b"), self.path("copy"), symlinks=True)  # without its hard links
        for root, _, names in os.walk(self.path("copy")):
            for name in names:
                path = os.path.join(root, name)
                if os.path.islink(path) or os.path.getsize(path) == 0:
                    continue
                self.flip(path)
                done = self.run_program("millrace", "backup", "--verify", self.path("copy"))
                self.assertEqual((done.returncode, name.encode() in done.stderr), (65, True), done)
                self.assertIn(name, self.restore(self.path("copy"), self.path("new"), status=65))
                self.flip(path)
        self.assertFalse([n for n in os.listdir(self.dir) if n.startswith("new")])
        os.unlink(self.path("copy", "pubsub", "cursors"))
        self.assertIn("cursors", self.restore(self.path("copy"), self.path("new"), status=65))

    def test_a_damaged_pipeline_is_named(self):
        newest = sorted(glob.glob(self.path("data", "pubsub", "streams", "clicks", "*.seg")))[0]
        self.flip(newest, 400)
        said = self.backup(self.path("b"), self.stopped, status=65)
        self.assertIn(newest + " is damaged at byte", said)
        self.assertIn("millrace journal check", said)
        self.flip(newest, 400)
        slice_path = glob.glob(self.path("data", "aggregator", "slices", "*.db"))[0]
        for place in re.finditer(b"c00001", harness.read_file(slice_path)):  # the first ones may be of runs that were merged
            self.flip(slice_path, place.start())
            done = self.run_program("millrace", "backup", "--config", self.stopped.config_path, self.path("b"))
            self.flip(slice_path, place.start())
            if done.returncode:
                break
            shutil.rmtree(self.path("b"))
        self.assertEqual(done.returncode, 65, done)
        self.assertRegex(done.stderr, re.escape(slice_path).encode() + rb": run \d+, block \d+: ")
        self.backup(self.path("b"), self.stopped)

    def test_a_damaged_archive_is_named(self):
        path, = glob.glob(self.path("data", "archive", "0*", "shard-0-of-1.csv"))
        text = harness.read_file(path)
        with open(path, "ab") as f:
            f.write(b"x")
        self.assertIn(path, self.backup(self.path("b"), self.stopped, status=65))
        os.unlink(path)
        self.assertIn(path, self.backup(self.path("b"), self.stopped, status=65))
        self.write(path, text)
        self.backup(self.path("b"), self.stopped)

    def test_the_log_of_a_killed_aggregator_stays(self):
        """The backup has the slice's only connection; closing it must not write the log into the slice."""
        slices = self.path("data", "aggregator", "slices")
        shutil.rmtree(slices)
        shutil.copytree(self.slices_of_a_killed, slices)
        before = {name: harness.read_file(os.path.join(slices, name)) for name in os.listdir(slices) if not name.endswith("-shm")}
        self.assertTrue(any(name.endswith("-wal") and text for name, text in before.items()), before.keys())
        self.backup(self.path("b"), self.stopped)
        after = {name: harness.read_file(os.path.join(slices, name)) for name in os.listdir(slices) if not name.endswith("-shm")}
        self.assertEqual({n: len(t) for n, t in before.items()}, {n: len(t) for n, t in after.items()})
        self.assertEqual(before, after)

    def test_a_slice_that_is_being_created(self):
        fresh = self.write("data/aggregator/slices/0000000002.db", "")
        program = subprocess.Popen([harness.program("millrace"), "backup", "--config", self.stopped.config_path, self.path("b")],
                                   stdout=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(self.path("b.tmp", "aggregator", "slices", "0000000002.db")), "the first attempt")
        os.unlink(fresh)
        self.assertEqual(program.wait(harness.PATIENCE), 0)

    def test_one_backup_at_a_time(self):
        held = os.open(self.path("data", "pubsub"), os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        self.assertIn("another backup", self.backup(self.path("b"), self.stopped, status=75))
        os.close(held)
        self.backup(self.path("b"), self.stopped)


if __name__ == "__main__":
    harness.main()
