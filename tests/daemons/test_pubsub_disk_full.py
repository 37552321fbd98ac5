"""A full disk under pubsub, and a stream at its disk_limit: publishers are told, nothing of a refused publish is kept, readers and
cursors go on, and all heals without a restart. Log and metrics say which stream it is, and why."""
import harness
from harness import query, request, wait_until
from pubsub_case import PubsubTest
from small_disk import SmallDisk

BLOCK = b"".join(b"%06d %s\n" % (i, b"x" * 1000) for i in range(30))


class DiskFullTest(PubsubTest):
    def metric(self, name, stream="s"):
        for line in request(self.url, "GET", "/metrics").text.splitlines():
            if line.startswith('millrace_pubsub_%s{stream="%s"}' % (name, stream)):
                return float(line.split()[-1])
        return None

    def publish(self, n, stream="s"):
        return self.pub(BLOCK, stream=stream, producer="w", mark=n, next=n + 1)

    def fill_up(self):
        for n in range(10000):
            reply = self.publish(n)
            if reply.status != 200:
                self.assertProblem(reply, 503, "storage-full")
                self.assertEqual(reply.header("Retry-After"), "1")
                return n
        raise AssertionError("the disk is never full")

    def move(self, from_, method="POST"):
        return request(self.url, method, "/cursors?" + query(stream="s", name="c", from_=from_ if method == "POST" else None)).status


class Disk(DiskFullTest):
    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self, "4m")

    def open(self, *args, sync="0"):
        return self.start("pubsub", "--data-dir=" + self.disk.path("data"), "--segment-bytes=1M", "--sync=" + sync, *args,
                          listen=self.url)

    def check(self, sync):
        self.disk.take(1500000)
        p = self.open(sync=sync)
        n = self.fill_up()
        self.assertGreater(n, 20)
        self.disk.take_the_rest()
        for _ in range(3):
            self.assertProblem(self.publish(n), 503, "storage-full")
        self.assertEqual(self.sub().body, BLOCK * n)
        self.assertTrue(self.publish(n - 1).json()["duplicate"], "what is there is answered as ever")
        self.assertEqual((self.metric("stream_full"), p.log.count("publishes are refused")), (1, 1), p.log)
        self.assertEqual([self.move("earliest"), self.move(len(BLOCK)), self.move(None, "DELETE")], [200] * 3)
        health = request(self.url, "GET", "/health")
        self.assertEqual((health.status, health.json()["code"]), (503, "not-well"))
        self.assertRegex(health.json()["detail"], r"^refusing publishes since \d{4}-\S+Z: the disk is full")
        p.kill9()
        p = self.open(sync=sync)
        self.assertEqual(self.sub().body, BLOCK * n)
        self.assertProblem(self.publish(n), 503, "storage-full")
        self.disk.give_back()
        wait_until(lambda: self.publish(n).status == 200, "publishes to be taken again")
        self.assertEqual(self.sub().body, BLOCK * (n + 1))
        self.assertEqual((self.metric("stream_full"), p.log.count("publishes are accepted again")), (0, 1), p.log)

    def test_it_is_said_which_cursor_keeps_what_would_go(self):
        """Also in the reply to a publish to another stream. A cursor that keeps nothing is not named."""
        p = self.open("--retain-bytes=1M", "--streams=s,other")
        query_ = query(stream="other", name="idle", from_="latest")
        self.assertEqual(request(self.url, "POST", "/cursors?" + query_).status, 200)
        self.assertEqual(self.move("earliest"), 200)
        n = self.fill_up()
        self.disk.take_the_rest()
        problem = self.assertProblem(self.publish(n), 503, "storage-full")
        self.assertRegex(problem["detail"], "cursor c of stream s keeps retention from deleting [0-9]+ bytes")
        self.assertIn("move or delete the cursor", problem["hint"])
        problem = self.assertProblem(self.pub(BLOCK * 50, stream="other"), 503, "storage-full")
        self.assertRegex(problem["detail"], "cursor c of stream s keeps retention from deleting [0-9]+ bytes")
        self.assertRegex(p.log, "publishes are refused.* stream=s .*cursor c of stream s")
        self.move(None, "DELETE")
        wait_until(lambda: self.publish(n).status == 200, "publishes to be taken again")

    def test_sync_each(self):
        self.check("0")

    def test_sync_now_and_then(self):
        self.check("5")


class Limit(DiskFullTest):
    def test_it_is_said_which_stream_and_which_cursor(self):
        p = self.pubsub("--segment-bytes=64K", "--disk-limit=512K", "--retain-bytes=128K", "--streams=s,other")
        self.move("earliest")
        n = self.fill_up()
        self.assertProblem(self.publish(n), 503, "storage-full")
        self.assertEqual(p.log.count("publishes are refused"), 1)
        self.assertRegex(p.log, r"publishes are refused.* stream=s .*cursor c ")
        self.assertEqual((self.metric("stream_full"), self.metric("stream_full", "other")), (1, 0))
        self.assertEqual(self.metric("stream_disk_limit_bytes"), 512 * 1024)
        self.assertGreaterEqual(self.metric("stream_disk_bytes"), 512 * 1024)
        c, response = self.follow()
        self.addCleanup(c.close)
        self.assertEqual(self.metric("stream_subscribers"), 1)
        self.move("latest")
        self.assertEqual(self.publish(n).status, 200)
        self.assertEqual(self.metric("stream_full"), 0)
        self.assertEqual(self.pub(b"x", stream="made").status, 200)
        self.assertEqual(self.metric("stream_full", "made"), 0)


if __name__ == "__main__":
    harness.main()
