"""The aggregator under clients that ask for much at once and read nothing: it goes on answering others."""
import re
import socket
import urllib.parse

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest

KEYS = 20000
CLIENTS = 200


class AggregatorLoad(PubsubTest):
    def start_aggregator(self):
        config = self.write("a.conf", "[input]\ntime = t\n[total u]\nkey = n\n")
        self.aggregator = self.daemon("aggregator", "--config=" + config, "--data-dir=" + self.path("a"), "--streams=s",
                                      "--pubsub-url=" + self.url, "--max-connections=2000").wait_ready()

    def count(self):
        for first in range(0, KEYS, 5000):
            lines = b"".join(b'{"t":1331923249,"n":"%08d"}\n' % k for k in range(first, first + 5000))
            self.assertEqual(self.pub(lines).status, 200)
        end = request(self.url, "GET", "/streams").json()["streams"][0]["end"]
        wait_until(lambda: self.aggregator.stats()["streams"]["s"]["offset"] == end, lambda: self.aggregator.log)

    def ask_without_reading(self, target):
        where = urllib.parse.urlsplit(self.aggregator.url)
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((where.hostname, where.port))
        s.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
        return s

    def replies(self):
        found = re.findall(r'requests_total\{endpoint="/(?:fwmatch|mget)",status="\d+"\} (\d+)', self.aggregator.get("/metrics").text)
        return sum(map(int, found))

    def test_many_reads_at_once(self):
        self.pubsub()
        self.start_aggregator()
        self.count()
        for target in b"/fwmatch?key=u%7C", b"/mget?" + b"&".join(b"key=u%%7C%08d" % k for k in range(100)):
            harness.slower_and_slower(1, lambda _, target=target: self.answered_meanwhile(target))

    def answered_meanwhile(self, target):
        """A request for the metrics does not wait for all reads."""
        before, seen = self.replies(), set()
        clients = [self.ask_without_reading(target) for _ in range(CLIENTS)]

        def all_have_replies():
            seen.add(self.replies() - before)
            return max(seen) == CLIENTS
        wait_until(all_have_replies, lambda: "replies: %s" % seen)
        for s in clients:
            s.close()
        self.assertTrue(any(0 < replies < CLIENTS for replies in seen), "all replies before any other")


if __name__ == "__main__":
    harness.main()
