"""Damage in what nobody reads is found in the background and told; nothing else stops."""
import glob
import os

import harness
from harness import wait_until

ROOM = 64 << 10


class ScrubTest(harness.MillraceTest):
    def begin(self, name, *args):
        return self.daemon(
            name, "--data-dir=" + self.path("data"), "--segment-bytes=64K", "--sync=never", *args
        ).wait_listening()

    def number(self, d, what):
        line = "millrace_%s_scrub_%s_total " % (d.name, what)
        found = [l for l in d.get("/metrics").text.splitlines() if l.startswith(line)]
        return float(found[0].split()[-1]) if found else None

    def segments(self):
        return sorted(glob.glob(self.path("data") + "/**/*.seg", recursive=True))

    def check(self, name, post):
        d = self.begin(name)
        for _ in range(12):
            wait_until(lambda: post(d, b"x" * (ROOM // 2)).status == 200, "room")
        d.stop()
        old = self.segments()[:-1]
        self.assertGreater(len(old), 2)
        d = self.begin(name)
        wait_until(lambda: self.number(d, "passes") == 1, d.log)
        self.assertEqual(self.number(d, "segments"), len(self.segments()) - 1)
        self.assertEqual(self.number(d, "damaged"), 0)
        self.assertGreater(self.number(d, "bytes"), sum(map(os.path.getsize, old)) - 300 * len(old))
        self.assertEqual(d.get("/health").status, 200)
        d.stop()
        d, victim = self.damaged_before_it_is_read(name)
        self.assertEqual(d.get("/health").status, 503)
        self.assertIn("at byte", d.get("/health").text)
        wait_until(lambda: self.number(d, "passes") == 1, d.log)
        self.assertEqual(self.number(d, "damaged"), 1)
        self.assertEqual(post(d, b"goes on").status, 200)
        harness.flip(victim, 20000)
        d.stop()
        d = self.begin(name, "--scrub-rate=0")
        wait_until(lambda: d.get("/health").status == 200, d.log)
        self.assertIsNone(self.number(d, "passes"))

    def damaged_before_it_is_read(self, name):
        """A pass that takes some seconds, so that what it comes to last can be damaged before; longer on a machine that
        does not come to that. The daemon that found it, and which file it is."""
        for rate in ("128K", "32K", "8K"):
            d = self.begin(name, "--scrub-rate=" + rate)
            wait_until(lambda: d.get("/health").status == 200, d.log)
            victim = self.segments()[-2]
            harness.flip(victim, 20000)
            wait_until(lambda: os.path.basename(victim) in d.get("/health").text or self.number(d, "passes"), d.log,
                       timeout=3 * harness.PATIENCE)
            if os.path.basename(victim) in d.get("/health").text:
                return d, victim
            harness.flip(victim, 20000)
            d.stop()
        raise AssertionError("what is damaged is not found")

    def test_pubsub(self):
        self.check("pubsub", lambda d, body: d.post("/pub?stream=s", body))

    def test_simplequeue(self):
        self.check("simplequeue", lambda d, body: d.post("/put", body))


if __name__ == "__main__":
    harness.main()
