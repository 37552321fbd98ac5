"""Compactor and sortdb killed with -9 at random moments of compactions, and run again: no answer is ever wrong meanwhile, and
the archive ends with the bytes that the counts say. (unit_compactor_run stops it at every single operation.)"""
# full: MILLRACE_ROUNDS=150
import collections
import os
import signal
import subprocess
import threading
import time

import harness
from aggregator_model import Aggregator

KEYS = 12000
WATCHED = b"u|watched"


class Watcher(threading.Thread):
    """Asks for the watched total as the API does, all the time. A right answer is at least the count that was certain before the question,
    and at most the number of events posted before the answer."""

    def __init__(self, test):
        super().__init__(daemon=True)
        self.test, self.over, self.answers, self.wrong = test, threading.Event(), 0, []

    def ask(self):
        """sortdb's count and, from the first slice that it lacks on, the aggregator's; None: start over."""
        try:
            reply = self.test.sortdb.get("/get?" + harness.query(key=WATCHED))
        except harness.UNREACHABLE:
            return None
        if reply.status not in (200, 404):
            return None
        archived = int(reply.body.rpartition(b":")[2]) if reply.status == 200 else 0
        live = self.test.aggregator.count(WATCHED + b",c413", int(reply.header("X-Millrace-Through")))
        return None if live is None else archived + live

    def run(self):
        while not self.over.is_set():
            least = self.test.sure
            got = self.ask()
            most = self.test.truth[WATCHED + b",c413"]
            if got is None:
                continue
            self.answers += 1
            if not least <= got <= most:
                self.wrong.append((least, got, most))


class KillCompactor(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.aggregator, self.truth = Aggregator(self), collections.Counter()
        self.sure = 0
        self.archive = self.path("archive")
        self.assertEqual(self.run_program("compactor", "--archive=" + self.archive, "--init").returncode, 0)
        self.start_sortdb()

    def start_sortdb(self):
        self.sortdb = self.start("sortdb", "--archive=" + self.archive)

    def post(self):
        rows = [b"u|k%d,c41%d" % (self.random.randrange(KEYS), self.random.randrange(10)) for _ in range(KEYS)]
        rows += [WATCHED + b",c413"] * self.random.randrange(1, 9)
        self.truth.update(rows)
        with self.aggregator.lock:
            for row in rows:
                self.aggregator.counts[row] = self.aggregator.counts.get(row, 0) + 1
        self.sure = self.truth[WATCHED + b",c413"]

    def begin(self, *more):
        return subprocess.Popen([harness.program("compactor"), "--archive=" + self.archive, *more,
                                 "--slices=" + self.aggregator.dir, "--aggregator-url=" + self.aggregator.url,
                                 "--sortdb-url=" + self.sortdb.url], stderr=subprocess.PIPE)

    def finish(self, process, expect=0):
        text = process.communicate(timeout=harness.PATIENCE)[1]
        self.assertEqual(process.returncode, expect, text)

    def finish_all(self):
        """Runs until every slice is archived: the request of a killed run may seal a slice behind the back of the next."""
        for _ in range(5):
            self.finish(self.begin())
            if not self.aggregator.sealed() and not self.aggregator.counts:
                return
        self.fail("slices remain: %s" % self.aggregator.sealed())

    def kill_after(self, process, seconds):
        """-9 after that time, or when it ends before."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertIn(process.returncode, (0, -signal.SIGKILL))

    def archived(self):
        """The bytes of all shards, as one text."""
        current = os.path.join(self.archive, os.readlink(os.path.join(self.archive, "current")))
        lines = []
        for name in os.listdir(current):
            if not name.endswith(".csv"):
                continue
            subprocess.run(["sort", "-c", os.path.join(current, name)], check=True, env=dict(os.environ, LC_ALL="C"))
            if name.startswith("shard-"):
                lines += harness.read_file(os.path.join(current, name)).splitlines()
        return sorted(lines)

    def expected(self):
        records = collections.defaultdict(list)
        for row, n in sorted(self.truth.items()):
            key, _, hour = row.partition(b",")
            records[key].append(hour + b":%d" % n)
        return sorted(key + b"," + b" ".join(counts) for key, counts in records.items())

    def one_round(self, usual):
        self.post()
        for _ in range(self.random.randrange(1, 4)):
            process = self.begin("--shards=%d" % self.random.choice((1, 1, 3)))
            self.kill_after(process, self.random.uniform(0, 1.3 * usual))
        if self.random.randrange(3) == 0:
            self.sortdb.kill9()
            self.finish(self.begin(), expect=75)
            self.start_sortdb()

    def test_kill_anywhere(self):
        self.post()
        began = time.monotonic()
        self.finish(self.begin())
        usual = time.monotonic() - began
        watcher = Watcher(self)
        watcher.start()
        for _ in range(harness.rounds(3)):
            self.one_round(usual)
            self.assertEqual(watcher.wrong, [])
        self.finish_all()
        self.assertEqual(self.archived(), self.expected())
        answers = watcher.answers
        harness.wait_until(lambda: watcher.answers > answers, "one more answer")
        watcher.over.set()
        watcher.join()
        self.assertEqual(watcher.wrong, [])


if __name__ == "__main__":
    harness.main()
