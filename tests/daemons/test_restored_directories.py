"""Each set of directories (queue, pubsub, aggregator, archive) restored to an older age beside the others: the pipeline goes
on exactly, or a daemon refuses and states the command that goes on. No set counts an event twice, and an event that is
missing in the end was named as missing."""
import glob
import itertools
import os
import re
import shutil

import harness
from harness import wait_until
from relay_test import RelayTest

COUNTERS = "[input]\ntime = t\n[total phase]\nkey = p\n"
FIRST, ARCHIVED, OPEN, NEW = 10, 20, 5, 40  # events before the copies, then two phases after them, then after the restore
ALL = {"first": FIRST, "archived": ARCHIVED, "open": OPEN, "new": NEW}
DIRECTORIES = {"queue": "q", "pubsub": "p", "aggregator": "a", "archive": "r"}

# What is missing in the end. Where nothing is named, every event is counted once.
GONE = {
    "pubsub aggregator": {"open"}, "queue pubsub aggregator": {"open"},
    "pubsub archive": {"archived", "open"}, "queue pubsub archive": {"archived", "open"},
    "pubsub aggregator archive": {"archived", "open"}, "queue pubsub aggregator archive": {"archived", "open"}}


class RestoredDirectories(RelayTest):
    def begin(self):
        self.queue = self.start_queue()
        self.streams = self.start_pubsub()

    def begin_aggregator(self, *args):
        self.counting = self.daemon(
            "aggregator", "--config=" + self.write("a.conf", COUNTERS), "--data-dir=" + self.path("a"), "--streams=clicks",
            "--archive=" + self.path("r"), "--pubsub-url=" + self.pubsub_url, "--flush-interval=50ms", *args)

    def put(self, phase, n):
        lines = b"".join(b'{"t":1331923249,"p":"%s"}\n' % phase.encode() for _ in range(n))
        self.assertEqual(self.queue.post("/mput", lines).status, 200)

    def publish_all(self):
        relay = self.start_relay()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, lambda: relay.log)
        relay.stop()

    def counted(self):
        """Of the archive and of the aggregator's slices, by phase."""
        counts = {}
        text = b"".join(harness.read_file(f) for f in glob.glob(self.path("r/current/shard-*.csv"))).decode()
        after = self.archived_through()
        text += self.counting.get("/fwmatch?key=phase%%7C&after=%d" % after).text
        for phase, n in re.findall(r"^phase\|(\w+),\w+:(\d+)$", text, re.M):
            counts[phase] = counts.get(phase, 0) + int(n)
        return counts

    def archived_through(self):
        try:
            return int(os.readlink(self.path("r/current")))
        except OSError:
            return 0

    def count_all(self):
        end = lambda: harness.request(self.pubsub_url, "GET", "/streams").json()["streams"][0]["end"]
        wait_until(lambda: self.counting.stats()["streams"]["clicks"]["offset"] == end(), lambda: self.counting.log)

    def compact(self):
        self.assertEqual(self.run_program("compactor", "--archive=" + self.path("r"), "--init").returncode, 0)
        done = self.run_program("compactor", "--archive=" + self.path("r"), "--slices=" + self.path("a/slices"),
                                "--sortdb-url=none", "--aggregator-url=" + self.counting.url)
        self.assertEqual(done.returncode, 0, done)
        cleared = self.counting.post("/clear?through=%d" % self.archived_through())
        self.assertEqual(cleared.status, 200, cleared)

    def stop(self):
        for daemon in self.counting, self.queue, self.streams:
            daemon.stop()

    def phase(self, name, n):
        self.put(name, n)
        self.publish_all()
        self.count_all()

    def go_on_relay(self):
        """Starts the relay, and runs the commands that it names, until it publishes."""
        named = []
        for _ in range(3):
            relay = self.relay()
            wait_until(lambda: relay.process.poll() is not None or self.queue_numbers()["depth"] == 0, lambda: relay.log)
            if relay.process.poll() is None:
                relay.stop()
                return named
            self.assertEqual(relay.process.wait(), 65, relay.log)
            command = re.search(r"millrace (producers --(stream|queue)=\S+ --set=\S+ --\S+=\d+)", relay.log)
            self.assertTrue(command, relay.log)
            named.append(command[2])
            url = self.pubsub_url if command[2] == "stream" else self.queue_url
            done = self.run_program("millrace", *command[1].split(), "--url=" + url)
            self.assertEqual(done.returncode, 0, done)
        self.fail(relay.log)

    def go_on_aggregator(self):
        """Starts the aggregator, and does what it asks for, until it is ready."""
        named, args = [], []
        for _ in range(3):
            self.begin_aggregator(*args)
            wait_until(lambda: self.counting.process.poll() is not None or re.search(" ready$|error=\"the stream is a restored copy", self.counting.log, re.M),
                       lambda: self.counting.log)
            if self.counting.process.poll() is not None:
                self.assertEqual(self.counting.process.wait(), 78, self.counting.log)
                command = re.search(r"(mkdir \S+ && mv \S+ \S+ \S+\.old)", self.counting.log)
                self.assertTrue(command, self.counting.log)
                named.append("archive")
                self.assertEqual(os.system(command[1]), 0)
            elif "error=\"the stream is a restored copy" in self.counting.log:
                named.append("stream")
                self.counting.stop()
                args = [re.search(r"start the program once with (--accept-loss\S*?)\"", self.counting.log)[1]]
            else:
                self.counting.wait_ready()
                self.assertNotIn("refused to move the cursor", self.counting.log)
                return named
        self.fail(self.counting.log)

    def test_each_set_of_older_directories(self):
        self.begin()
        self.go_on_aggregator()
        self.phase("first", FIRST)
        self.compact()
        self.stop()
        for d in DIRECTORIES.values():
            shutil.copytree(self.path(d), self.path("old", d), symlinks=True)
        self.begin()
        self.go_on_aggregator()
        self.phase("archived", ARCHIVED)
        self.compact()
        self.phase("open", OPEN)
        self.assertEqual(self.archived_through(), 2)
        self.stop()
        for d in DIRECTORIES.values():
            os.rename(self.path(d), self.path("newer-" + d))
        for n in range(len(DIRECTORIES) + 1):
            for older in itertools.combinations(DIRECTORIES, n):
                with self.subTest(older=" ".join(older)):
                    self.cell(older)
                for d in DIRECTORIES.values():
                    shutil.rmtree(self.path(d), ignore_errors=True)

    def cell(self, older):
        for name, d in DIRECTORIES.items():
            shutil.copytree(self.path("old", d) if name in older else self.path("newer-" + d), self.path(d), symlinks=True)
        is_old = {name: name in older for name in DIRECTORIES}
        self.begin()
        self.put("new", NEW)
        relay = self.go_on_relay()
        aggregator = self.go_on_aggregator()
        self.count_all()
        self.assertEqual(relay, [] if is_old["queue"] == is_old["pubsub"] else ["stream"] if is_old["queue"] else ["queue"])
        fits = is_old["aggregator"] == is_old["archive"]
        ahead = is_old["pubsub"] and not is_old["archive"]  # without slices of its age, counting goes on behind the archive
        self.assertEqual(aggregator, ([] if fits else ["archive"]) + (["stream"] if ahead else []))
        expected = {k: v for k, v in ALL.items() if k not in GONE.get(" ".join(older), set())}
        self.assertEqual(self.counted(), expected)
        self.compact()
        self.assertEqual(self.counted(), expected)
        self.stop()

    def test_an_original_that_was_started_often_since_the_copy(self):
        """Lines of each of the copy's starts are counted after --accept-loss, however often the original was started."""
        for starts in 1, 3, 10:
            with self.subTest(starts=starts):
                self.begin()
                self.go_on_aggregator()
                self.phase("first", FIRST)
                self.stop()
                for d in "q", "p":
                    shutil.copytree(self.path(d), self.path("old", d))
                for _ in range(starts):
                    self.begin()
                    self.phase_without_aggregator("kept", 5)
                self.begin()
                self.go_on_aggregator()
                self.count_all()
                self.stop()
                for d in "q", "p":
                    shutil.rmtree(self.path(d))
                    os.rename(self.path("old", d), self.path(d))
                for _ in range(2):
                    self.begin()
                    self.phase_without_aggregator("new", 50)
                self.begin()
                self.assertEqual(self.go_on_aggregator(), ["stream"])
                self.count_all()
                self.assertEqual(self.counted(), {"first": FIRST, "kept": 5 * starts, "new": 100})
                self.stop()
                for d in "q", "p", "a":
                    shutil.rmtree(self.path(d))

    def phase_without_aggregator(self, name, n):
        self.put(name, n)
        self.publish_all()
        self.queue.stop()
        self.streams.stop()


if __name__ == "__main__":
    harness.main()
