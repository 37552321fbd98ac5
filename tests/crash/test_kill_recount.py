"""millrace recount and compact --replace, killed with -9 at random moments while events are posted and compacted: no total ever
falls, and the archive ends with the bytes of an undisturbed run under the new counters."""
# full: MILLRACE_ROUNDS=100
import os
import shutil
import signal
import subprocess
import threading

import harness
from recount_case import RecountTest

TOTAL = "/v1/series?feed=all&unit=month&from=1325376000&to=1420070400"


class Reader(threading.Thread):
    """Asks for a total that old and new counters have."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.over, self.totals, self.fallen = api, threading.Event(), [0], []

    def run(self):
        while not self.over.is_set():
            try:
                reply = self.api.get(TOTAL)
            except harness.UNREACHABLE:
                continue
            if reply.status != 200:
                continue
            total = reply.json()["total"]
            if total < self.totals[-1]:
                self.fallen.append((self.totals[-1], total))
            self.totals.append(total)


class KillRecount(RecountTest):
    def configuration(self, name, counters):
        path = super().configuration(name, counters)
        with open(path, "a") as f:
            f.write("\n[api]\naddress = unix:%s\n" % self.path("api.socket"))
        return path

    def begin(self, *args):
        return subprocess.Popen([harness.program("millrace"), args[0], "--config", self.new, *args[1:]],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def kill_after(self, process, seconds, expect):
        """-9 after that time, or its end before."""
        try:
            text = process.communicate(timeout=seconds)[0].decode()
            self.assertIn(process.returncode, expect, text)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()

    def finish(self, *args):
        """Its children, if it was killed before, may take a moment to end."""
        def done():
            process = self.begin(*args)
            text = process.communicate(timeout=harness.LONG)[0].decode()
            self.assertIn(process.returncode, (0, 75, 78), text)
            if process.returncode == 78:  # a compaction came between: the error says how to go on
                self.assertIn("run `millrace recount` again", text)
                self.finish("recount")
            return process.returncode == 0
        harness.wait_until(done, " ".join(args), interval=0.05)

    def one_round(self, lines):
        """Each round recounts from the start."""
        shutil.rmtree(self.recounted, ignore_errors=True)
        for _ in range(self.random.randrange(1, 4)):
            self.kill_after(self.begin("recount"), self.random.uniform(0, 0.4), (0, 75))
            self.post(lines[:200])
            if self.random.random() < 0.3:
                self.finish("compact")
        self.finish("recount")
        for _ in range(self.random.randrange(1, 3)):
            self.kill_after(self.begin("compact", "--replace=" + self.recounted), self.random.uniform(0, 0.3), (0, 75))
        self.post(lines[200:400])
        self.finish("compact", "--replace=" + self.recounted)
        self.assertEqual(self.reader.fallen, [])

    def test_kill_anywhere(self):
        self.random = harness.seeded()
        rounds = harness.rounds(3)
        lines = self.lines(8000 + 400 * rounds)
        self.init()
        self.post(lines[:4000])
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.post(lines[4000:6000])
        self.wait_counted()
        self.aggregator.stop()
        self.count(self.new)
        self.post(lines[6000:8000])
        self.wait_counted()
        self.millrace("compact")
        self.api = self.serve("api", "--config=" + self.new)
        self.reader = Reader(self.api)
        self.reader.start()
        for n in range(rounds):
            self.one_round(lines[8000 + 400 * n:8400 + 400 * n])
        self.assertEqual(self.manifest()["recounted"]["streams"].keys(), {"clicks"})
        asked = len(self.reader.totals)
        harness.wait_until(lambda: len(self.reader.totals) > asked + 2, "another answer")
        self.reader.over.set()
        self.reader.join()
        self.assertEqual(self.reader.fallen, [])
        self.assertGreater(self.reader.totals[-1], self.reader.totals[1])
        self.check_exact()


if __name__ == "__main__":
    harness.main()
