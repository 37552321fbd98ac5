"""Real clicks through the queues of several hosts, a nats-server and two cells: the API's series and breakdowns in zones and units, and the
sum of the cells' archives, equal the oracle's, before, between and after compactions and during a move. Generated clicks where there are
no real ones. One zone and a sample of the clicks; five zones and all clicks in the long round."""
# full: MILLRACE_ROUNDS=5
# seconds: 40
import collections
import os
import subprocess
import unittest

import answers
import harness
import test_zones
from cell_test import Host
from harness import wait_until
from test_cell_tools import NAMES, Cells

BATCH = 2000


def parts(line):
    """(key, {name: n}) of a record."""
    key, _, value = line.partition(b",")
    return key, {name: int(n) for name, _, n in (part.rpartition(b":") for part in value.split(b" "))}


@unittest.skipUnless(harness.load_oracle(), "the oracle is not here")
class ClusterExactly(Cells):
    ask, series, check, lines = test_zones.Zones.ask, test_zones.Zones.series, test_zones.Zones.check, test_zones.Zones.lines

    def setUp(self):
        super().setUp()
        self.oracle = harness.load_oracle()
        self.counts, self.n_put = self.oracle.Counts(answers.CONFIG), 0
        self.add_stream(max_age=7 * 86400 * 10**9)
        for name in NAMES:
            self.up_cell(name, harness.sample_counters())
        self.config = self.write("api.conf", harness.pipeline_config(
            self.path("api"), self.sections() + harness.sample_counters(), millrace={"run": "api"},
            aggregator={"port": self.ports["east"]["aggregator"]}))  # does not run here
        self.pipeline = harness.Pipeline(self, self.config, self.path("api"))
        for pipeline in (*self.cells.values(), self.pipeline):
            pipeline.wait_ready()
        self.hosts = []
        while len(self.hosts) < 3 or {host.partition // 32 for host in self.hosts} != {0, 1}:
            self.hosts.append(Host(self, "app%d" % len(self.hosts), "--settle-after=1h"))

    def put(self, lines):
        for i in range(0, len(lines), BATCH):
            self.hosts[i // BATCH % len(self.hosts)].put(lines[i:i + BATCH])
        self.n_put += len(lines)
        wait_until(lambda: self.n_counted() == self.n_put, lambda: "%d lines, there are %d" % (self.n_put, self.n_counted()), timeout=harness.LONG)
        for line in lines:
            self.counts.add_line(line)

    def n_counted(self):
        found = [cell.ask("aggregator", "GET", "/stats?format=json").json() for cell in self.cells.values()]
        return sum(int(stats[name]) for stats in found for name in ("events_total", "skipped_total", "rejected_total"))

    def compact(self, name):
        done = self.run_program("millrace", "compact", "--config", self.path(name + ".conf"))
        self.assertEqual(done.returncode, 0, done)

    def move(self, host, to, free_after):
        return subprocess.Popen([harness.program("millrace"), "cell", "--config=" + self.config, "move", str(host.partition), "--to=" + to,
                                 "--free-after=" + free_after])

    def begin_move(self):
        """A move that has not ended: the old cell still holds complete_until back."""
        self.moved = self.hosts[0]
        self.goal = NAMES[1 - self.moved.partition // 32]
        self.command = self.move(self.moved, self.goal, "1h")
        self.addCleanup(self.command.kill)
        shown = "%2d %s move 1" % (self.moved.partition, self.goal)
        wait_until(lambda: shown in self.tool("cell", "list").stdout.decode(), "the partition to arrive")

    def end_move(self):
        self.assertIsNone(self.command.poll())
        self.command.kill()
        self.command.wait()
        self.assertEqual(self.move(self.moved, self.goal, "0").wait(), 0)

    def records(self, name):
        """The cell's records of hours. The archive also has the sums of days and months."""
        current = os.path.join(self.path(name), "archive", "current")
        hour = len(self.counts.period(1332633600))
        for line in harness.read_file(os.path.join(current, "shard-0-of-1.csv")).splitlines():
            key = line.partition(b",")[0]
            if b"." not in key.partition(b"|")[0] or len(key.rpartition(b".")[2]) == hour:
                yield line

    def check_archives(self):
        """For every key."""
        sums, texts = collections.defaultdict(collections.Counter), set()
        for name in NAMES:
            for line in self.records(name):
                if line.startswith(b"lookup|"):
                    texts.add(line)
                else:
                    key, counts = parts(line)
                    sums[key].update(counts)
        expected = list(self.counts.archive(1, 0))
        self.assertEqual(texts, {line for line in expected if line.startswith(b"lookup|")})
        self.assertEqual(sums, dict(parts(line) for line in expected if not line.startswith(b"lookup|")))

    def test_sums_of_the_cells(self):
        lines = self.lines()
        third = len(lines) // 3 + 1
        self.put(lines[:third])
        self.check()
        self.compact("east")
        self.put(lines[third:2 * third])
        self.check()
        self.begin_move()
        self.put(lines[2 * third:])
        self.check()
        self.end_move()
        for name in NAMES:
            self.compact(name)
        self.check()
        self.check_archives()


if __name__ == "__main__":
    harness.main()
