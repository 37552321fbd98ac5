"""Directories restored to an older age beside others that are not: each goes on exactly, or refuses and says how to go on."""
import os
import shutil

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest

COUNTERS = "[input]\ntime = t\n[total all]\nkey = \"all\"\n"
LINES = 500


def block(n):
    """Lines of one length, so that offsets of different histories meet."""
    return b"".join(b'{"t":1331923249,"n":"%08d"}\n' % (n * LINES + i) for i in range(LINES))


class OldCopies(PubsubTest):
    def pubsub(self, *args, **kw):
        self.stream = super().pubsub("--segment-bytes=64K", "--heartbeat=200ms", *args, **kw)
        return self.stream

    def aggregator(self, *args):
        self.counting = self.daemon(
            "aggregator", "--config=" + self.write("a.conf", COUNTERS), "--data-dir=" + self.path("a"), "--streams=s",
            "--pubsub-url=" + self.url, "--flush-interval=50ms", *args).wait_listening()
        return self.counting

    def fill(self, *blocks):
        for n in blocks:
            self.assertEqual(self.pub(block(n)).status, 200)

    def total(self):
        reply = self.counting.get("/get?key=all%7Call")
        return sum(int(hour.split(":")[1]) for hour in reply.text.split(",")[1].split()) if reply.status == 200 else 0

    def counted(self, blocks):
        wait_until(lambda: self.total() == blocks * LINES, lambda: "%d blocks: %d\n%s" % (blocks, self.total(), self.counting.log))

    def committed(self, blocks):
        self.counted(blocks)
        end = blocks * len(block(0))
        wait_until(lambda: self.counting.stats()["streams"]["s"]["offset"] == str(end), "the commit")
        wait_until(lambda: request(self.url, "GET", "/cursors").json()["cursors"][0]["offset"] == str(end), "the cursor")

    def backup(self, name):
        shutil.copytree(self.path(name), self.path(name + ".old"))

    def restore(self, name):
        shutil.rmtree(self.path(name))
        os.rename(self.path(name + ".old"), self.path(name))

    def stop_both(self):
        self.counting.stop()
        self.stream.stop()

    def refused(self, *words):
        def is_refused():
            reply = self.counting.get("/health")
            return reply.status == 503 and all(w in reply.text for w in words)
        wait_until(is_refused, lambda: "%s\n%s" % (self.counting.get("/health").text, self.counting.log))

    def test_pubsub_older_than_the_aggregator(self):
        """Refused also once the stream has grown past the cursor; --accept-loss counts what is new, and nothing twice."""
        for restarts in (0, 1):
            with self.subTest(restarts=restarts):
                self.pubsub()
                self.aggregator()
                self.fill(0)
                self.committed(1)
                self.counting.stop()
                self.stream.stop()
                self.backup("p")
                self.pubsub()
                if restarts:
                    self.fill(1)
                    self.stream.stop()
                    self.pubsub()
                self.fill(*range(1 + restarts, 4))
                self.aggregator()
                self.committed(4)
                self.stop_both()
                self.restore("p")
                self.pubsub()
                self.aggregator()
                self.fill(10)
                self.refused("restored copy", "--accept-loss")
                self.fill(11, 12, 13, 14)
                self.refused("restored copy")
                self.counting.stop()
                self.aggregator()
                self.refused("restored copy", str(len(block(0))))
                self.counting.stop()
                self.aggregator("--accept-loss")
                self.counted(4 + 5)
                self.stop_both()
                self.aggregator()
                self.pubsub()
                self.fill(15)
                self.counted(4 + 6)
                self.stop_both()
                for name in ("p", "a"):
                    shutil.rmtree(self.path(name))

    def test_pubsub_and_aggregator_of_one_age(self):
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.stop_both()
        self.backup("p")
        self.backup("a")
        self.pubsub()
        self.aggregator()
        self.fill(1)
        self.committed(2)
        self.stop_both()
        self.restore("p")
        self.restore("a")
        self.pubsub()
        self.aggregator()
        self.fill(2, 3)
        self.counted(3)

    def test_aggregator_older_than_pubsub(self):
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.backup("a")
        self.aggregator()
        self.fill(1, 2)
        self.committed(3)
        self.counting.stop()
        self.restore("a")
        self.aggregator()
        self.counted(3)

    def test_aggregator_older_than_what_is_retained(self):
        self.pubsub("--retain-bytes=64K")
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.backup("a")
        self.aggregator()
        self.fill(*range(1, 20))
        self.committed(20)
        wait_until(lambda: int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]) > 2 * len(block(0)),
                   "the retention")
        self.counting.stop()
        self.restore("a")
        self.aggregator()
        self.refused("have expired", "--accept-loss", "from offset %d" % len(block(0)))
        self.assertEqual(self.total(), 0, "nothing is answered meanwhile")
        self.counting.stop()
        earliest = int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"])
        self.aggregator("--accept-loss")
        left = 20 * LINES - earliest // (len(block(0)) // LINES)
        wait_until(lambda: self.total() == LINES + left, lambda: "%d: %d" % (LINES + left, self.total()))

    def test_a_stranger_cannot_move_or_delete_the_cursor(self):
        self.pubsub("--retain-bytes=64K")
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.fill(*range(1, 20))
        for headers in ({}, {"X-Millrace-Cursor-Key": "0" * 32}):
            for method, more in (("POST", "&from=latest"), ("DELETE", "")):
                reply = request(self.url, method, "/cursors?stream=s&name=aggregator" + more, headers=headers)
                self.assertProblem(reply, 403, "cursor-owned")
        self.aggregator()
        self.counted(20)

    def test_without_its_key_the_aggregator_says_so(self):
        """A new data directory is another owner: it counts, and names the cursor that it cannot move."""
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        shutil.rmtree(self.path("a"))
        self.aggregator()
        self.fill(1)
        self.counted(2)
        wait_until(lambda: "cursor-owned" in self.counting.log, lambda: self.counting.log)
        self.stream.stop()
        self.pubsub("--allow-exit")
        self.assertEqual(request(self.url, "DELETE", "/cursors?stream=s&name=aggregator").status, 200)
        self.fill(2)
        self.committed(3)


if __name__ == "__main__":
    harness.main()
