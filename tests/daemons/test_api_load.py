"""The API under clients that ask for much and read nothing: its memory stays within --max-buffered and it goes on answering."""
import re
import socket
import urllib.parse

import harness
from harness import PATIENCE, query, wait_until
from test_api import MARCH, Source, hour_text

MB = 1 << 20
CLIENTS = 300
ROWS = 100000


class QuietSource(Source):
    """The API ends questions of which it cannot hold the answers."""

    def handle_error(self, *_):
        pass


class ApiLoad(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = QuietSource(self)

    def start_api(self, *args):
        config = self.write("test.conf", harness.sample_counters())
        self.api = self.start("api", "--config", config, "--aggregator-url", self.source.url, "--queue-url", self.source.url,
                              "--max-body=1M", "--max-connections=2000", "--upstream-timeout=10m", *args)

    def peak_memory(self):
        with open("/proc/%d/status" % self.api.pid) as f:
            return int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) << 10

    def check_memory(self):
        if not harness.SANITIZED:  # which keeps what is freed
            self.assertLess(self.peak_memory(), 64 * MB + 64 * MB)

    def replies(self, endpoint):
        found = re.findall(r'requests_total\{endpoint="%s",status="(\d+)"\} (\d+)' % endpoint, self.api.get("/metrics").text)
        return {int(status): int(n) for status, n in found}

    def ask_without_reading(self, target):
        parts = urllib.parse.urlsplit(self.api.url)
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((parts.hostname, parts.port))
        s.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target).encode())
        return s

    def load(self, path, n, **params):
        """n clients that ask and do not read. A request for the metrics does not wait for all of them. A machine that runs the API but
        not this test can answer all first; so the next try has more clients, and a question that the API has not answered before."""
        def attempt(unit):
            if path == "/v1/series":
                params["from_"] += 3600
            self.answered_meanwhile(path, min(n * unit, CLIENTS), **params)
        harness.slower_and_slower(1, attempt)

    def answered_meanwhile(self, path, n, **params):
        before, seen = sum(self.replies(path).values()), set()
        clients = [self.ask_without_reading(path + "?" + query(**params)) for _ in range(n)]

        def all_have_replies():
            seen.add(sum(self.replies(path).values()) - before)
            return max(seen) >= n
        wait_until(all_have_replies, "every request to have a reply", PATIENCE)
        for s in clients:
            s.close()
        self.assertTrue(any(0 < replies < n for replies in seen), "%d x %s: all replies before any other" % (n, path))

    def test_unread_series(self):
        self.start_api("--max-buffered=64M")
        hours = range(MARCH, MARCH + ROWS * 3600, 3600)
        self.source.records["u|k"] = " ".join("%s:1" % hour_text(h) for h in hours)
        span = {"user": "k", "from_": MARCH, "to": MARCH + ROWS * 3600}
        for unit, clients in (("hour", CLIENTS), ("day", 30)):
            self.load("/v1/series", clients, unit=unit, timezone="America/New_York", **span)
        self.check_memory()
        reply = wait_until(lambda: (r := self.api.get("/v1/series?" + query(**span, unit="hour"))).status == 200 and r, "an answer")
        self.assertEqual((reply.json()["total"], len(reply.json()["rows"])), (ROWS, ROWS))

    def test_huge_breakdowns(self):
        self.start_api("--max-buffered=64M")
        names = ["%x" % (n * 2654435761 % 2**32) for n in range(300000)]
        self.source.records["c.u|k." + hour_text(MARCH)] = " ".join(n + ":1" for n in names)
        span = {"user": "k", "by": "country", "from_": MARCH, "to": MARCH + 3600}
        self.load("/v1/breakdown", 6, **span)
        self.assertEqual(set(self.replies("/v1/breakdown")), {200})
        self.check_memory()
        gone = [self.ask_without_reading("/v1/breakdown?" + query(**span)) for _ in range(2)]
        for s in gone:
            s.close()
        reply = self.api.get("/v1/breakdown?" + query(limit=10000, **span))
        self.assertEqual(reply.status, 200)
        got = reply.json()
        self.assertEqual((got["distinct"], got["total"], got["other"]), (300000, 300000, 290000))
        self.assertEqual([r["key"] for r in got["rows"]], sorted(names)[:10000])


if __name__ == "__main__":
    harness.main()
