"""The aggregator's named cursor: retention never passes what is not counted, and does pass what is."""
import os
import unittest

import harness
from gate import Gate
from harness import wait_until
from pubsub_case import PubsubTest

COUNTERS = "[input]\ntime = t\n[total all]\nkey = \"all\"\n"
BLOCK = b"".join(b'{"t":1331923249,"l":"%s"}\n' % (b"x" * 900) for _ in range(64))  # about a segment


class CountedCursor(PubsubTest):
    def pubsub(self, *args, **kw):
        return super().pubsub("--segment-bytes=64K", "--retain-bytes=128K", "--heartbeat=200ms", *args, **kw)

    def aggregator(self, *args, wait=True, **kw):
        config = self.write("a.conf", COUNTERS)
        start = self.start if wait else self.daemon
        return start("aggregator", "--config=" + config, "--data-dir=" + self.path("a"), "--streams=s",
                     "--pubsub-url=" + self.url, "--flush-interval=50ms", *args, **kw)

    def listed(self):
        return harness.request(self.url, "GET", "/streams").json()["streams"][0]

    def cursor(self):
        told = harness.request(self.url, "GET", "/cursors").json()["cursors"]
        return int(told[0]["offset"]) if told else -1

    def fill(self, blocks):
        for _ in range(blocks):
            self.assertEqual(self.pub(BLOCK).status, 200)

    def total(self, a):
        reply = a.get("/get?key=all%7Call")
        return sum(int(hour.split(":")[1]) for hour in reply.text.split()) if reply.status == 200 else 0

    def test_retention_waits_for_the_count(self):
        self.pubsub()
        a = self.aggregator()
        self.fill(2)
        wait_until(lambda: self.cursor() == 2 * len(BLOCK), lambda: "the cursor to follow: %d" % self.cursor())
        a.kill9()
        self.fill(20)
        self.assertLessEqual(int(self.listed()["earliest"]), 2 * len(BLOCK))
        a = self.aggregator()
        self.assertEqual(self.total(a), 22 * BLOCK.count(b"\n"), "all that came while nobody counted")
        wait_until(lambda: self.cursor() == 22 * len(BLOCK), "the cursor to follow")
        wait_until(lambda: int(self.listed()["earliest"]) > 10 * len(BLOCK), "what is counted to go")

    def test_a_pubsub_that_has_lost_its_cursors(self):
        """As after a restore of an older copy, or of one without the file."""
        pubsub = self.pubsub()
        a = self.aggregator()
        self.fill(2)
        wait_until(lambda: self.cursor() == 2 * len(BLOCK), lambda: "the cursor to follow: %d" % self.cursor())
        pubsub.stop()
        os.unlink(self.path("p/cursors"))
        self.pubsub()
        wait_until(lambda: self.cursor() == 2 * len(BLOCK), "the cursor to be made again, although nothing new is counted")
        a.kill9()
        self.fill(20)
        self.assertLessEqual(int(self.listed()["earliest"]), 2 * len(BLOCK))
        a = self.aggregator()
        self.assertEqual(self.total(a), 22 * BLOCK.count(b"\n"))

    def test_only_what_is_committed_moves_it(self):
        self.pubsub()
        a = self.aggregator("--flush-interval=1h")
        line = BLOCK[:BLOCK.index(b"\n") + 1]
        self.pub(line)
        wait_until(lambda: self.cursor() == len(line), "the first commit, which waits for nothing")
        self.fill(3)
        wait_until(lambda: self.total(a) == 1 + 3 * BLOCK.count(b"\n"), "the lines to be counted in memory")
        self.assertEqual(self.cursor(), len(line))
        a.stop()
        a = self.aggregator()
        wait_until(lambda: self.cursor() == len(line) + 3 * len(BLOCK), "the cursor of what the stop committed")

    def test_an_old_copy_takes_its_cursor_back(self):
        self.pubsub()
        a = self.aggregator()
        self.fill(1)
        wait_until(lambda: self.cursor() == len(BLOCK), "the cursor to follow")
        a.stop()
        harness.shutil.copytree(self.path("a"), self.path("copy"))
        a = self.aggregator()
        self.fill(1)
        wait_until(lambda: self.cursor() == 2 * len(BLOCK), "the cursor to follow")
        a.stop()
        harness.shutil.rmtree(self.path("a"))
        os.rename(self.path("copy"), self.path("a"))
        a = self.aggregator()
        wait_until(lambda: self.total(a) == 2 * BLOCK.count(b"\n"), "the rest to be counted again")
        wait_until(lambda: self.cursor() == 2 * len(BLOCK), "the cursor to follow again")
        self.assertNotIn("refused to move the cursor", a.log)

    def test_somebody_else_who_moves_it_is_named(self):
        self.pubsub("--retain-bytes=1G", "--allow-exit")
        gate = Gate(self.path("gate.sock"), self.path("p.sock"))
        self.addCleanup(gate.close)
        a = self.aggregator("--flush-interval=10ms", "--pubsub-url=unix:" + self.path("gate.sock"))
        self.fill(1)
        wait_until(lambda: self.cursor() == len(BLOCK), "the cursor to follow")
        gate.lets(0)
        self.fill(9)
        moved = harness.request(self.url, "POST", "/cursors?stream=s&name=aggregator&from=%d" % (10 * len(BLOCK)))
        self.assertEqual(moved.status, 200, moved.text)
        gate.lets(5 * len(BLOCK))
        wait_until(lambda: "cursor-ahead" in a.log, "it to be said")
        gate.lets(None)
        wait_until(lambda: self.total(a) == 10 * BLOCK.count(b"\n"), "everything to be counted all the same")
        self.assertEqual(a.log.count("refused to move the cursor"), 1, "it is said once")
        self.assertEqual(self.cursor(), 10 * len(BLOCK))

    def test_a_pubsub_that_asks_for_a_token(self):
        os.chmod(self.write("token", "secret"), 0o600)
        self.pubsub("--auth-token-file=" + self.path("token"))
        bearer = {"Authorization": "Bearer secret"}
        reply = harness.request(self.url, "POST", "/pub?stream=s", BLOCK, bearer)
        self.assertEqual(reply.status, 200, reply)
        a = self.aggregator(wait=False).wait_listening()
        wait_until(lambda: b"answered 401" in a.get("/health").body, lambda: a.get("/health").text)
        a.stop()
        a = self.aggregator("--pubsub-token-file=" + self.path("token"))
        self.assertEqual(self.total(a), BLOCK.count(b"\n"))
        wait_until(lambda: harness.request(self.url, "GET", "/cursors", headers=bearer).json()["cursors"], "the cursor to be told")
        a.stop()
        config = self.write("a.conf", COUNTERS)
        refused = self.run_program("aggregator", "--config=" + config, "--data-dir=" + self.path("a"),
                                   "--pubsub-token-file=" + self.path("none"))
        self.assertEqual(refused.returncode, 78, refused)

    def test_the_cursors_name(self):
        self.pubsub()
        a = self.aggregator("--cursor=second")
        self.fill(1)
        wait_until(lambda: self.cursor() == len(BLOCK), "the cursor to follow")
        self.assertEqual(harness.request(self.url, "GET", "/cursors").json()["cursors"][0]["name"], "second")
        a.stop()
        run = self.run_program("aggregator", "--cursor=a/b", "--data-dir=x", "--check-config",
                               "--config=" + self.path("a.conf"))
        self.assertEqual(run.returncode, 78)
        self.assertIn(b"not a name", run.stderr)


if __name__ == "__main__":
    unittest.main()
