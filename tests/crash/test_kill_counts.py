"""Everything at once, until the archive: every daemon and the compactor killed with -9 in random order, flushes, merges,
seals and compactions at random moments, and a full disk in some rounds. In the end the archive's bytes are the oracle's, and
a reader never sees a total fall."""
# full: MILLRACE_ROUNDS=300
import os
import signal
import subprocess

import answers
import harness
from harness import wait_until
from small_disk import SmallDisk
from test_kill_pipeline import DAEMONS, Poster, Watcher

REAL_ROUNDS = 300  # from so many on the real clicks are counted, if they are here


class KillCounts(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.disk = SmallDisk(self, "512m")
        config = self.write("pipeline.conf", harness.pipeline_config(
            self.disk.path("data"), aggregator={"flush_interval": "20ms"}, simplequeue={"sync": "0"}, pubsub={"sync": "0"}))
        self.pipeline = harness.Pipeline(self, config, self.disk.path("data")).wait_ready()

    def events(self, n_rounds):
        """Lines, and what their archive must be."""
        if n_rounds >= REAL_ROUNDS and harness.real_files():
            files, oracle = harness.real_files(), harness.load_oracle()
            lines = [line + b"\n" for f in files for line in harness.read_file(f).split(b"\n") if line]
            return lines, answers.archive_digest(sorted(answers.count(oracle, files).archive(1, 0, True)))
        data = harness.read_file(answers.generate(self.path("events.ndjson")))
        return data.splitlines(keepends=True), answers.stored()["rollups"]

    def kill_daemon(self, name):
        """run.json may be older than the daemon, where the disk was full: only a child of `millrace up` is killed."""
        pid = self.pipeline.daemon_pid(name)
        try:
            with open("/proc/%d/stat" % pid) as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == self.pipeline.pid:
                    os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass

    def compact(self, kill):
        run = subprocess.Popen([harness.program("millrace"), "compact", "--config", self.pipeline.config_path],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, said = run.communicate(timeout=self.random.uniform(0, 0.1) if kill else harness.LONG)
            self.assertIn(run.returncode, (0, 74, 75), said)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
        return run.returncode == 0

    def fill_disk(self):
        """For a moment in which lines are posted, and refused."""
        self.disk.take_the_rest()
        self.kill_daemon(self.random.choice(DAEMONS))
        self.compact(kill=True)
        self.disk.give_back()

    def trouble(self, is_full):
        """What happens in a round, in random order."""
        acts = [lambda name=name: self.kill_daemon(name) for name in DAEMONS]
        acts += [lambda: self.compact(kill=True), lambda: self.compact(kill=False)]
        if is_full:
            acts.append(self.fill_disk)
        self.random.shuffle(acts)
        return acts

    def is_counted(self):
        try:
            depth = self.pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            ends = {s["name"]: s["end"] for s in self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"]}
            here = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
        except (*harness.UNREACHABLE, KeyError, ValueError):
            return False
        return depth == 0 and int(ends["clicks"]) > 0 and here["clicks"]["offset"] == ends["clicks"]

    def archive(self):
        current = self.disk.path("data", "archive", "current")
        return [line for name in sorted(os.listdir(current)) if name.startswith("shard-") and name.endswith(".csv")
                for line in harness.read_file(os.path.join(current, name)).splitlines()]

    def test_kill_everything_until_the_archive(self):
        n_rounds = harness.rounds(3)
        full = self.random.sample(range(n_rounds), (n_rounds + 2) // 3)
        lines, expected = self.events(n_rounds)
        poster = Poster(self.pipeline, lines, batch=100)
        poster.attempted = 0
        watcher = Watcher(self.pipeline, poster)
        watcher.start()
        for r in range(n_rounds):
            until, acts = len(lines) * (r + 1) // n_rounds, self.trouble(r in full)
            places = sorted(self.random.randrange(poster.sent, until) for _ in acts)
            for act, place in zip(acts, places):
                poster.post(place)
                act()
            poster.post(until)
            self.assertEqual(watcher.wrong, [])
        wait_until(self.is_counted, "everything to be counted", timeout=harness.LONG)
        # A compaction takes a slice whose seal an earlier one began, and leaves what was counted since to the next.
        wait_until(lambda: self.compact(kill=False) and answers.archive_digest(self.archive()) == expected,
                   "the archive to be the oracle's", interval=0.05, timeout=harness.LONG)
        counted = sum(int(hour.rpartition(b":")[2]) for line in self.archive() if line.startswith(b"all|")
                      for hour in line.partition(b",")[2].split())
        wait_until(lambda: watcher.last == counted, lambda: "%d to be answered, not %d" % (counted, watcher.last))
        watcher.over.set()
        watcher.join()
        self.assertEqual(watcher.wrong, [])
        self.pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
