"""Damage to the last frame of a queue or a stream. What is known to be acknowledged is refused by name. The last commit before a
kill may never have been acknowledged: it is cut, and /health, /metrics and `millrace status` say so until the next start."""
import glob
import os
import re
import unittest

import harness
from harness import MillraceTest

MESSAGES = 1000


class LastFrame:
    """On a daemon whose journal ends in a commit of MESSAGES messages."""

    def segment(self):
        return sorted(glob.glob(self.path("data", "*", self.name, "*.seg")))[-1]

    def tool(self, command):
        done = self.run_program("millrace", "journal", command, os.path.dirname(self.segment()))
        return done.returncode, (done.stdout + done.stderr).decode()

    def last_frame(self):
        """The bytes of the file at which the frame with the messages begins and ends."""
        frames = re.findall(r"^ +(\d+) data offset=\d+ size=(\d+) ", self.tool("dump")[1], re.M)
        begins, size = map(int, frames[-1])
        self.assertGreater(size, 10 * MESSAGES)
        return begins, begins + 56 + size

    def filled(self):
        d = self.open()
        self.assertEqual(d.get("/health").text, "ready\n")
        self.put(d, b"earlier\n")
        self.put(d, b"".join(b"message %04d\n" % n for n in range(MESSAGES)))
        return d

    def assert_refused(self):
        d = self.daemon(self.program, *self.args())
        self.assertEqual(d.process.wait(harness.PATIENCE), 78, d.log)
        self.assertIn(self.segment(), d.log)
        self.assertRegex(d.log, r"damaged at byte \d+ \(offset \d+\)")
        self.assertIn("millrace journal check %s" % os.path.dirname(self.segment()), d.log)
        self.assertEqual(self.tool("check")[0], 65)

    def repaired(self):
        status, text = self.tool("repair")
        self.assertEqual(status, 0, text)
        d = self.open()
        self.assertEqual(self.kept(d), 1)
        self.put(d, b"later\n")
        self.assertEqual(self.kept(d), 2)

    def test_every_region_of_the_last_frame_of_a_stopped_daemon(self):
        self.filled().stop()
        begins, ends = self.last_frame()
        whole = harness.read_file(self.segment())
        for at in (begins, begins + 9, begins + 17, begins + 25, begins + 50, begins + 60, (begins + ends) // 2, ends - 1):
            harness.flip(self.segment(), at)
            self.assert_refused()
            harness.flip(self.segment(), at)
        for at in (begins, begins + 1, begins + 30, (begins + ends) // 2, ends - 1):
            os.truncate(self.segment(), at)
            self.assert_refused()
            os.truncate(self.segment(), len(whole))  # zeros, as a lost sector reads
            self.assert_refused()
            with open(self.segment(), "r+b") as f:
                f.write(whole)
        os.truncate(self.segment(), (begins + ends) // 2)
        self.repaired()

    def assert_said(self, pattern):
        d = self.open()
        health = d.get("/health")
        self.assertEqual(health.status, 200)
        self.assertRegex(health.text, r"^ready\nwarning: %s: %s: cut \d+ bytes at byte \d+ \(offset \d+\)%s: torn[^\n]*\nremedy: compare with the producers: [^\n]*\n$" %
                         (self.what, re.escape(self.segment()), pattern))
        self.assertIn("cut the tail of a journal", d.log)
        self.assertGreater(self.cut_bytes(d), 0)
        self.assertEqual(self.kept(d), 1)
        return d

    def test_the_last_commit_before_a_kill(self):
        self.filled().kill9()
        begins, ends = self.last_frame()
        harness.flip(self.segment(), (begins + ends) // 2)
        d = self.assert_said(", about %d %s" % (MESSAGES, self.unit))
        self.put(d, b"later\n")
        d.kill9()
        d = self.open()
        self.assertEqual(d.get("/health").text, "ready\n", "said until the next start")
        self.assertEqual(self.cut_bytes(d), 0)
        self.assertEqual(self.kept(d), 2)

    def test_a_last_commit_that_was_torn(self):
        self.filled().kill9()
        begins, ends = self.last_frame()
        os.truncate(self.segment(), (begins + ends) // 2)
        self.assert_said("")


class QueueLastFrameTest(LastFrame, MillraceTest):
    program, name, what, unit = "simplequeue", "default", "queue default", "messages"

    def args(self):
        return ["--data-dir=" + self.path("data")]

    def open(self):
        return self.start(self.program, *self.args())

    def put(self, d, lines):
        self.assertEqual(d.post("/mput", lines[:-1]).status, 200)

    def kept(self, d):
        return d.stats()["queues"]["default"]["depth"]

    def cut_bytes(self, d):
        return int(re.search(r'^millrace_simplequeue_queue_cut_bytes{queue="default"} (\d+)', d.get("/metrics").text, re.M)[1])


class ManyWarningsTest(MillraceTest):
    def test_a_bounded_number_of_warnings(self):
        """18 queues cut: /health names 16, the log all, and `millrace status` shows them."""
        data = self.path("data", "simplequeue")
        config = self.write("config", harness.pipeline_config(self.path("data")))
        q = self.start("simplequeue", "--data-dir=" + data)
        for n in range(18):
            self.assertEqual(q.post("/put?queue=q%d" % n, b"message").status, 200)
        q.kill9()
        for segment in glob.glob(os.path.join(data, "queues", "q*", "*.seg")):
            dump = self.run_program("millrace", "journal", "dump", os.path.dirname(segment)).stdout.decode()
            harness.flip(segment, int(re.findall(r"^ +(\d+) data ", dump, re.M)[-1]) + 60)
        p = harness.Pipeline(self, config, self.path("data")).wait_ready()
        lines = [line for line in p.ask("simplequeue", "GET", "/health").text.splitlines() if not line.startswith("remedy: ")]
        self.assertEqual((lines[0], lines[-1], len(lines)), ("ready", "warning: there are more, see the log", 18))
        harness.wait_until(lambda: p.log.count("cut the tail of a journal") == 18, lambda: p.log)
        shown = self.run_program("millrace", "status", "--config", config).stdout.decode()
        self.assertRegex(shown, r"simplequeue: warning: queue q\d+: ")


class StreamLastFrameTest(LastFrame, MillraceTest):
    program, name, what, unit = "pubsub", "clicks", "stream clicks", "lines"

    def args(self):
        return ["--data-dir=" + self.path("data"), "--streams=clicks"]

    def open(self):
        return self.start(self.program, *self.args())

    def put(self, d, lines):
        self.assertEqual(d.post("/pub?stream=clicks", lines).status, 200)

    def kept(self, d):
        return len(re.findall(r"^ +\d+ data ", self.tool("dump")[1], re.M))  # one publish, one line

    def cut_bytes(self, d):
        return int(re.search(r'^millrace_pubsub_stream_cut_bytes{stream="clicks"} (\d+)', d.get("/metrics").text, re.M)[1])


if __name__ == "__main__":
    harness.main()
