"""The real chain through compactions: archive and aggregator together say at every instant what was counted, and in the
end the archive holds what the oracle, or an undisturbed count, says."""
# full: MILLRACE_ROUNDS=30
import os
import subprocess
import threading

import answers
import harness
from harness import wait_until
from test_kill_pipeline import PAUSE, USER_TARGET as TOTAL


class Watcher(threading.Thread):
    """Asks for a total again and again: it must never fall, and 503 is the only other answer. A patient one lets a
    connection fail, where daemons are killed."""

    def __init__(self, pipeline, patient=False):
        super().__init__(daemon=True)
        self.patient = patient
        self.pipeline, self.wrong, self.last, self.answers, self.over = pipeline, [], 0, 0, threading.Event()

    def run(self):
        while not self.over.wait(PAUSE):
            try:
                reply = self.pipeline.ask("api", "GET", TOTAL)
            except harness.UNREACHABLE as e:
                if not self.patient:
                    self.wrong.append(repr(e))
                continue
            if reply.status == 200:
                total = reply.json()["total"]
                if total < self.last:
                    self.wrong.append("%d after %d" % (total, self.last))
                self.last = total
                self.answers += 1
            elif reply.status != 503:
                self.wrong.append(repr(reply))


class Swap(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(self.data, aggregator={"flush_interval": "100ms"}))
        self.pipeline = harness.Pipeline(self, config, self.data).wait_ready()

    def compact(self, *args):
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path, *args)
        self.assertEqual(done.returncode, 0, done)

    def put(self, lines):
        for i in range(0, len(lines), 500):
            reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"".join(lines[i:i + 500]))
            self.assertEqual(reply.status, 200, reply)

    def is_counted(self):
        try:
            depth = self.pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            streams = self.pipeline.ask("pubsub", "GET", "/streams").json()["streams"]
            here = self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
        except (*harness.UNREACHABLE, KeyError, ValueError):
            return False
        return depth == 0 and all(here[s["name"]]["offset"] == s["end"] for s in streams)

    def wait_counted(self):
        wait_until(self.is_counted, "everything to be counted")

    def archive(self):
        current = os.path.join(self.data, "archive", "current")
        names = sorted(n for n in os.listdir(current) if n.startswith("shard-") and n.endswith(".csv"))
        return [harness.read_file(os.path.join(current, n)) for n in names]

    def generated(self):
        events = answers.generate(self.path("events.ndjson"))
        return harness.read_file(events).splitlines(keepends=True)

    def test_totals_never_fall_through_compactions(self):
        lines, n = self.generated(), harness.rounds(3)
        watcher = Watcher(self.pipeline)
        watcher.start()
        poster = threading.Thread(target=self.put, args=(lines,), daemon=True)
        poster.start()
        for _ in range(n):
            self.compact()
        poster.join()
        self.wait_counted()
        self.compact()
        expected = answers.stored()
        wait_until(lambda: watcher.last == expected["summary"]["events"], lambda: "the truth, not %d" % watcher.last)
        wait_until(lambda: watcher.answers > n, "some answers")
        watcher.over.set()
        watcher.join()
        self.assertEqual(watcher.wrong, [])
        archived = b"".join(self.archive()).splitlines()
        self.assertEqual(answers.archive_digest(archived), expected["rollups"])
        slices = self.pipeline.ask("aggregator", "GET", "/slices").json()
        self.assertEqual(slices["slices"], [], "what is archived is cleared")
        self.pipeline.interrupt()

    def kill_a_compaction(self, random):
        """Somewhere in its run, which takes some tens of milliseconds; sometimes a daemon that it talks to dies too."""
        run = subprocess.Popen([harness.program("millrace"), "compact", "--config", self.pipeline.config_path],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            run.wait(random.uniform(0, 0.06))
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        victim = random.choice((None, None, "aggregator", "sortdb"))
        if victim:
            self.pipeline.kill9_daemon(victim)

    def compact_until_done(self):
        def done():
            run = self.run_program("millrace", "compact", "--config", self.pipeline.config_path)
            self.assertIn(run.returncode, (0, 75), run)
            return run.returncode == 0
        wait_until(done, "a compaction to come to its end", interval=0.05)

    def test_killed_compactions(self):
        random, lines = harness.seeded(), self.generated()
        watcher = Watcher(self.pipeline, patient=True)
        watcher.start()
        poster = threading.Thread(target=self.put, args=(lines,), daemon=True)
        poster.start()
        for _ in range(harness.rounds(3)):
            for _ in range(4):
                self.kill_a_compaction(random)
            self.compact_until_done()
        poster.join()
        wait_until(self.is_counted, "everything to be counted")
        self.compact_until_done()
        expected = answers.stored()
        wait_until(lambda: watcher.last == expected["summary"]["events"], lambda: "the truth, not %d" % watcher.last)
        watcher.over.set()
        watcher.join()
        self.assertEqual(watcher.wrong, [])
        archived = b"".join(self.archive()).splitlines()
        self.assertEqual(answers.archive_digest(archived), expected["rollups"])
        self.pipeline.interrupt()

    def test_thirds_and_shards(self):
        lines = self.generated()
        third = len(lines) // 3 + 1
        for i in range(0, len(lines), third):
            self.put(lines[i:i + third])
            self.wait_counted()
            self.compact()
        expected = answers.stored()["rollups"]
        self.assertEqual(answers.archive_digest(b"".join(self.archive()).splitlines()), expected)
        self.compact("--shards=4")
        shards = self.archive()
        self.assertEqual(len(shards), 4)
        self.assertEqual(answers.archive_digest(sorted(b"".join(shards).splitlines())), expected)
        for path in (os.path.join(self.data, "archive", "current", "shard-%d-of-4.csv" % k) for k in range(4)):
            subprocess.run(["sort", "-c", path], check=True, env={"LC_ALL": "C"})
        for q in answers.stored()["queries"][:20]:
            if q["what"] == "breakdown":
                got = self.pipeline.ask("api", "GET", "/v1/breakdown?" + harness.query(
                    ns=q["ns"], key=q["key"], from_=0, to=5995814400, limit=len(q["rows"]))).json()
                self.assertEqual([{"key": r["key"], "n": r["n"]} for r in got["rows"]], q["rows"])
        self.pipeline.interrupt()

    def test_a_restart_goes_on_behind_the_archive(self):
        lines = self.generated()[:3000]
        self.put(lines)
        self.wait_counted()
        self.compact()
        before = self.pipeline.ask("api", "GET", TOTAL).json()["total"]
        self.pipeline.interrupt()
        self.pipeline = harness.Pipeline(self, self.pipeline.config_path, self.data).wait_ready()
        self.assertEqual(self.pipeline.ask("api", "GET", TOTAL).json()["total"], before)
        self.put(lines)
        self.wait_counted()
        self.assertEqual(self.pipeline.ask("api", "GET", TOTAL).json()["total"], 2 * before)
        self.compact()
        self.assertEqual(self.pipeline.ask("api", "GET", TOTAL).json()["total"], 2 * before)
        self.pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
