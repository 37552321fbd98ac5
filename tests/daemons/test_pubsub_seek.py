"""Who looks for a place far inside a large segment keeps nobody waiting: neither the loop nor other subscribers."""
# full: MILLRACE_ROUNDS=1024
import http.client
import threading
import time
import urllib.parse

import harness
from pubsub_case import PubsubTest

MIB = 1 << 20
SIZE = harness.rounds(128) * MIB
LINE = 1024


def lines(first, n):
    return b"".join(b"%-1023d\n" % i for i in range(first, first + n))


class Pinger(threading.Thread):
    """Repeats a request on its own connection, and keeps the time of each answer."""

    def __init__(self, url, target):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=harness.PATIENCE)
        self.target, self.times, self.over = target, [time.monotonic()], False
        self.start()

    def run(self):
        while not self.over:
            self.connection.request("GET", self.target)
            self.connection.getresponse().read()
            self.times.append(time.monotonic())
        self.connection.close()

    def stop(self):
        self.over = True
        self.join()

    def longest(self):
        return max(b - a for a, b in zip(self.times, self.times[1:]))


class Seek(PubsubTest):
    def begin(self):
        return self.daemon("pubsub", "--data-dir=" + self.path("data"), "--sync=never", "--scrub-rate=0",
                           "--segment-bytes=%d" % (2 * SIZE)).wait_ready()

    def fill(self, d):
        per = min(8 * MIB, SIZE) // LINE
        block = lines(0, per)
        for _ in range(SIZE // len(block)):
            self.assertEqual(d.post("/pub?stream=s", block).status, 200)
        return per

    def mark(self, d):
        """Publishes the first line of a second. Returns the second, and the offset of the line."""
        begin = int(time.time()) + 1
        harness.wait_until(lambda: time.time() >= begin, "the next second")
        return begin, d.post("/pub?stream=s", b"a second begins\n").json()["start"]

    def test_by_time_and_by_offset(self):
        d = self.begin()
        per = self.fill(d)
        second, start = self.mark(d)
        by_time = "/sub?stream=s&follow=0&from=@%d" % second
        inside = SIZE - 5 * LINE
        by_offset = "/sub?stream=s&follow=0&from=%d" % inside
        for target, expected in ((by_time, b"a second begins\n"),
                                 (by_offset, lines(per - 5, 5) + b"a second begins\n")):
            d.stop()
            d = self.begin()  # so that nothing is known of where lines begin
            pingers = [Pinger(d.url, "/ping"), Pinger(d.url, "/cursors?stream=s")]
            self.assertEqual(d.get(target).body, expected)
            self.several_at_once(d, target, expected)
            for p in pingers:
                p.stop()
            longest = max(p.longest() for p in pingers)
            print("%s in %d MiB: others waited %.1f ms at most" % (target, SIZE // MIB, longest * 1000))

    def several_at_once(self, d, target, expected):
        bodies = []
        threads = [threading.Thread(target=lambda: bodies.append(d.get(target).body)) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(bodies, [expected] * 16)


if __name__ == "__main__":
    harness.main()
