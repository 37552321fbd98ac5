"""A sync that fails: publishers and /health are told, once and for good; subscribers go on with what was durable; and what was
acknowledged, or seen by anybody, is there after a restart and after a power cut, whatever the disk made of the rest."""
import os
import shutil
import threading

import harness
import power_cut
from harness import request, wait_until
from pubsub_case import PubsubTest

PUBLISHERS = 4


class Publisher(threading.Thread):
    """Publishes line after line under a name of its own until it is refused."""

    def __init__(self, test, n):
        super().__init__()
        self.test, self.name, self.acknowledged, self.refusal = test, "w%d" % n, 0, None

    def line(self, i):
        return b"%s %d %s\n" % (self.name.encode(), i, b"x" * (i * 37 % 700))

    def publish(self, i):
        return self.test.pub(self.line(i), producer=self.name, mark=i, next=i + 1)

    def run(self):
        while not self.refusal:
            reply = self.publish(self.acknowledged)
            if reply.status == 200:
                self.acknowledged += 1
            else:
                self.refusal = reply


class FailedSync(PubsubTest):
    def begin(self, sync):
        self.log, self.fault = self.path("iolog"), self.path("fault")
        return self.daemon("pubsub_iolog", "--data-dir=" + self.path("p"), "--sync=" + sync, "--segment-bytes=64K",
                           "--streams=s,other", listen=self.url,
                           env={"MILLRACE_IO_LOG": self.log, "MILLRACE_IO_FAIL": self.fault}).wait_ready()

    def fail_syncs(self, paths):
        """From now on no sync of such a path succeeds."""
        self.write("fault.new", paths)
        os.rename(self.path("fault.new"), self.fault)

    def publish_until_it_fails(self):
        publishers = [Publisher(self, n) for n in range(PUBLISHERS)]
        for p in publishers:
            p.start()
        wait_until(lambda: min(p.acknowledged for p in publishers) > 20 or not all(p.is_alive() for p in publishers),
                   "lines to be acknowledged")
        self.fail_syncs("/streams/s/")
        for p in publishers:
            p.join()
            self.assertProblem(p.refusal, 503, "storage-failed")
            self.assertGreater(p.acknowledged, 20)
        return publishers

    def health(self):
        reply = request(self.url, "GET", "/health")
        return reply.status, reply.text

    def check_told(self, d, publishers):
        """For good: also when syncs would succeed again."""
        for _ in range(2):
            for p in publishers:
                hint = self.assertProblem(p.publish(p.acknowledged), 503, "storage-failed")["hint"]
                self.assertIn("the lines may be stored or not, and a retry with marks stores them only once", hint)
            status, text = self.health()
            self.assertEqual(status, 503)
            self.assertIn("storage failed", text)
            if os.path.exists(self.fault):
                os.unlink(self.fault)
        self.assertEqual(d.log.count(" error pubsub storage failed"), 1, d.log)

    def check_what_is_served(self, follower, publishers):
        """Earlier and new subscribers get the acknowledged lines, and no refused line."""
        served = self.sub().body
        self.assertEqual(sorted(served.splitlines(True)), sorted(p.line(i) for p in publishers for i in range(p.acknowledged)))
        self.assertEqual(follower.read(len(served)), served)
        self.assertEqual(self.sub(len(served)).body, b"")
        return served

    def check_the_rest_goes_on(self):
        self.assertEqual(self.pub(b"line\n", stream="other").status, 200)
        self.assertEqual(self.sub(stream="other").body, b"line\n")
        moved = request(self.url, "POST", "/cursors?stream=s&name=c&from=latest")
        self.assertEqual(moved.status, 200)

    def check_after_a_restart(self, served, publishers):
        """Refused lines may be in the stream. After a retry, each line is in the stream once."""
        self.assertEqual(self.health()[0], 200)
        there = self.sub().body
        self.assertEqual(there[:len(served)], served)
        for p in publishers:
            self.assertEqual(p.publish(p.acknowledged).status, 200)
        lines = self.sub().body.splitlines(True)
        for p in publishers:
            self.assertEqual([line for line in lines if line.startswith(p.name.encode() + b" ")],
                             [p.line(i) for i in range(p.acknowledged + 1)])

    def after_power_cuts(self, sync):
        log, random = harness.read_file(self.log), harness.seeded()
        for n in range(harness.rounds(4)):
            root = self.path("cut")
            os.mkdir(root)
            power_cut.cut(log, len(log), random, self.path("p"), root)
            p = self.start("pubsub", "--data-dir=" + root, "--sync=" + sync, "--segment-bytes=64K", listen=self.url)
            yield n
            p.kill9()
            shutil.rmtree(root)

    def check(self, sync):
        d = self.begin(sync)
        c, follower = self.follow()
        self.addCleanup(c.close)
        publishers = self.publish_until_it_fails()
        self.check_told(d, publishers)
        served = self.check_what_is_served(follower, publishers)
        self.check_the_rest_goes_on()
        d.process.terminate()
        self.assertEqual(follower.read(), b"", "nothing that was refused")
        d.stop()
        for _ in self.after_power_cuts(sync):
            self.check_after_a_restart(served, publishers)
        self.pubsub("--segment-bytes=64K", sync=sync)
        self.check_after_a_restart(served, publishers)

    def test_sync_each_commit(self):
        self.check("0")

    def test_sync_now_and_then(self):
        self.check("5")

    def test_of_a_stream_that_is_being_made(self):
        """It is not made, and the answer tells why; the next publish tries again, and is as safe as any."""
        d = self.begin("0")
        self.fail_syncs("/streams/new")
        for _ in range(2):
            reply = self.pub(b"refused\n", stream="new")
            self.assertEqual(reply.status, 503)
            self.assertIn("Input/output error", reply.json()["detail"])
            self.assertProblem(self.sub(stream="new"), 404, "unknown-stream")
        os.unlink(self.fault)
        self.assertEqual(self.pub(b"kept\n", stream="new").json()["start"], "0")
        d.kill9()
        for _ in self.after_power_cuts("0"):
            self.assertEqual(self.sub(stream="new").body, b"kept\n")

    def test_of_a_producer_that_is_left_out(self):
        """The producer is excluded only once this is durable."""
        d = self.begin("0")
        self.assertEqual(self.pub(b"line\n", producer="p", mark=0, next=1, until=1).status, 200)
        self.fail_syncs("/streams/s/")
        leave_out = lambda: request(self.url, "POST", "/producers?stream=s&producer=p&left_out=1")
        self.assertProblem(leave_out(), 503, "storage-failed")
        self.assertFalse(request(self.url, "GET", "/producer?stream=s&producer=p").json()["left_out"])
        os.unlink(self.fault)
        d.kill9()
        self.pubsub(sync="0")
        self.assertTrue(leave_out().json()["left_out"])

    def test_of_the_cursors(self):
        """Cursors keep their places and hold the same segments. Publishes continue."""
        d = self.begin("0")
        self.pub(b"one\ntwo\n")
        move = lambda from_: request(self.url, "POST", "/cursors?stream=s&name=c&from=%d" % from_)
        self.assertEqual(move(4).status, 200)
        self.fail_syncs("/cursors")
        for _ in range(2):
            self.assertProblem(move(8), 503, "storage-failed")
            self.assertEqual(self.health()[0], 503)
            self.assertEqual(request(self.url, "GET", "/cursors").json()["cursors"][0]["offset"], "4")
            if os.path.exists(self.fault):
                os.unlink(self.fault)
        self.assertEqual(d.log.count(" error pubsub storage failed"), 1, d.log)
        self.assertEqual(self.pub(b"three\n").status, 200)
        self.assertEqual(self.sub().body, b"one\ntwo\nthree\n")
        d.kill9()
        self.pubsub(sync="0")
        self.assertEqual(self.health()[0], 200)
        self.assertIn(request(self.url, "GET", "/cursors").json()["cursors"][0]["offset"], ("4", "8"))
        self.assertEqual(move(8).status, 200)


if __name__ == "__main__":
    harness.main()
