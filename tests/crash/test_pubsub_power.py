"""The power goes while pubsub publishes, sends and moves named cursors, under each policy: what a subscriber has seen is
there again under sync=0 and sync=MS; under `never` what is lost is a hole, which no offset ever falls into unsaid."""
# full: MILLRACE_ROUNDS=200
import os
import re
import shutil
import threading

import harness
import power_cut
from harness import MillraceTest

HOLE = 1 << 40
LINES = 150


class PubsubPower(MillraceTest):
    def work(self, sync):
        """What happened, each with the place that the log had reached: publishes answered, bytes seen, cursors moved."""
        log = self.path("log")
        d = self.daemon("pubsub_iolog", "--data-dir=" + self.path("data"), "--sync=" + sync, "--segment-bytes=64K",
                        "--streams=s", env={"MILLRACE_IO_LOG": log}).wait_ready()
        answered, seen, moved = [], [(0, 0)], [(0, 0)]
        text = b"".join(b"%d %s\n" % (n, b"y" * (n * 137 % 1900)) for n in range(LINES))
        d.post("/cursors?stream=s&name=c&from=0")
        moved[0] = (os.path.getsize(log), 0)

        def subscribe():
            c = harness.connect(d.url)
            c.request("GET", "/sub?stream=s&from=earliest")
            r, n = c.getresponse(), 0
            while n < len(text):
                n += len(r.read1(65536))
                seen.append((os.path.getsize(log), n))
            c.close()
        subscriber = threading.Thread(target=subscribe)
        subscriber.start()
        at = 0
        for n, line in enumerate(text.splitlines(keepends=True)):
            at += len(line)
            reply = d.post("/pub?stream=s&producer=w&mark=%d&next=%d" % (n, n + 1), line)
            self.assertEqual((reply.status, reply.json()["end"]), (200, str(at)))
            answered.append((os.path.getsize(log), at))
            if n % 10 == 0:
                self.assertEqual(d.post("/cursors?stream=s&name=c&from=%d" % at).status, 200)
                moved.append((os.path.getsize(log), at))
        subscriber.join()
        d.kill9()
        return harness.read_file(log), text, answered, seen, moved

    def cuts(self, log, answered):
        """The first cut is at the end of the log and takes all that a cut may take. The other cuts are random."""
        random = harness.seeded()
        for n in range(harness.rounds(3)):
            end = random.choice(answered)[0] if n % 3 else random.randrange(answered[0][0], len(log) + 1)
            if n == 0:
                end = len(log)
            root = self.path("cut")
            os.mkdir(root)
            power_cut.cut(log, end, random, self.path("data"), root, mood=None if n else "none")
            yield end, root
            shutil.rmtree(root)

    @staticmethod
    def until(events, end):
        return max(value for place, value in events if place <= end)

    def check_cursor(self, p, moved, end):
        told, = p.get("/cursors").json()["cursors"]
        self.assertIn(int(told["offset"]), [o for _, o in moved])
        self.assertGreaterEqual(int(told["offset"]), self.until(moved, end), "a move that was acknowledged is lost")

    def check_events(self, p, there, start):
        """An event stream continues after the hole, and names the edges of the hole."""
        body = harness.request(p.url, "GET", "/sub?stream=s&from=0&follow=0", headers={"Accept": "text/event-stream"}).body
        before, after = body.split(b'event: gap\ndata: {"before":"%d","after":"%d"}\n' % (len(there), start))
        self.assertEqual(b"".join(line + b"\n" for line in re.findall(rb"^data: (.*)$", before, re.M)), there)
        self.assertEqual(re.findall(rb"^(?:data: (.*)|id: (\d+):.*)$", after, re.M),
                         [(b"", b"%d" % start), (b"behind", b""), (b"", b"%d" % (start + 7))])

    def synced(self, sync):
        log, text, answered, seen, moved = self.work(sync)
        for end, root in self.cuts(log, answered):
            p = self.start("pubsub", "--data-dir=" + root, "--sync=" + sync, "--segment-bytes=64K")
            there = p.get("/sub?stream=s&from=earliest&follow=0").body
            self.assertTrue(text.startswith(there) and (not there or there.endswith(b"\n")))
            self.assertGreaterEqual(len(there), self.until(seen, end), "somebody had seen what is lost")
            self.assertGreaterEqual(len(there), self.until(answered, end), "what was answered is lost")
            self.assertEqual(int(p.post("/pub?stream=s", b"x").json()["start"]), len(there), "no hole")
            self.check_cursor(p, moved, end)
            p.stop()

    def test_sync_each_commit(self):
        self.synced("0")

    def test_sync_now_and_then(self):
        self.synced("5")

    def test_never(self):
        log, text, answered, seen, moved = self.work("never")
        lost = 0
        for end, root in self.cuts(log, answered):
            p = self.start("pubsub", "--data-dir=" + root, "--sync=never", "--segment-bytes=64K")
            nothing_is_left = harness.request(p.url, "HEAD", "/sub?stream=s&from=0").status == 410
            there = b"" if nothing_is_left else harness.broken_off(p.url, "/sub?stream=s&from=0&follow=0")
            self.assertTrue(text.startswith(there) and (not there or there.endswith(b"\n")))
            start = int(p.post("/pub?stream=s", b"behind").json()["start"])
            self.assertEqual(start % HOLE, 0)
            self.assertGreater(start, len(there))
            had_seen = self.until(seen, end)
            lost += had_seen > len(there)
            for cursor in {len(there), len(there) + 1, max(had_seen, len(there)), HOLE - 1, start - 1}:
                gone = p.get("/sub?stream=s&from=%d" % cursor)
                self.assertEqual((gone.status, gone.json()["code"]), (410, "cursor-gone"), cursor)
                self.assertEqual((gone.json()["before"], gone.json()["after"]), (str(len(there)), str(start)))
            if there:
                below = there[:-1].rfind(b"\n") + 1
                self.assertEqual(harness.broken_off(p.url, "/sub?stream=s&from=%d&follow=0" % below), there[below:])
                self.assertEqual(p.get("/sub?stream=s&from=%d" % below).body, there[below:], "it ends at the hole")
            self.assertEqual(p.get("/sub?stream=s&from=%d&follow=0" % start).body, b"behind\n")
            self.check_events(p, there, start)
            self.check_cursor(p, moved, end)
            marks = p.get("/producer?stream=s&producer=w").json()["mark"]
            self.assertEqual(int(marks), there.count(b"\n"), "the mark is that of the lines kept")
            p.stop()
        self.assertGreater(lost, 0, "no cut took what somebody had seen: the test shows nothing")


if __name__ == "__main__":
    harness.main()
