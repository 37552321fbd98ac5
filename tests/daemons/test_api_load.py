"""The API under clients that ask for much and read nothing: its memory stays within --max-buffered and it goes on answering."""
import re
import socket
import subprocess
import sys
import urllib.parse

import harness
from harness import PATIENCE, query, wait_until
from test_api import MARCH, Source, hour_text

MB = 1 << 20
CLIENTS = 300
ROWS = 100000
BUSY_MAX = 2  # seconds of the processor; all answers would take 6


# Asks for /ping again and again until its input ends. A line each: seconds, and the processor time that the API took meanwhile, without
# the time for which the pinger waited for a processor, so that it does not depend on what else the machine does.
PINGER = """
import http.client, select, sys, time
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=600)
def busy():
    with open("/proc/%s/schedstat" % sys.argv[2]) as f, open("/proc/self/schedstat") as own:
        return int(f.read().split()[0]) / 1e9 - int(own.read().split()[1]) / 1e9
while not select.select([sys.stdin], [], [], 0.005)[0]:
    began, before = time.monotonic(), busy()
    c.request("GET", "/ping")
    c.getresponse().read()
    print(time.monotonic() - began, busy() - before, flush=True)
"""


class Pinger:
    def __init__(self, api):
        self.process = subprocess.Popen([sys.executable, "-c", PINGER, str(urllib.parse.urlsplit(api.url).port), str(api.pid)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.process.stdout.readline()  # it has begun

    def stop(self):
        """The 99th percentile and the maximum of both times."""
        lines = [self.first] + self.process.communicate()[0].splitlines()
        columns = [sorted(column) for column in zip(*(map(float, line.split()) for line in lines))]
        return [(column[len(column) * 99 // 100], column[-1]) for column in columns]


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
        """n clients that ask and do not read. /ping is answered meanwhile; behind all that came while the API itself was not run, so a busy
        machine may need several tries."""
        harness.slower_and_slower(1, lambda _: self.answered_meanwhile(path, n, **params))

    def answered_meanwhile(self, path, n, **params):
        pinger = Pinger(self.api)
        before = sum(self.replies(path).values())
        clients = [self.ask_without_reading(path + "?" + query(**params)) for _ in range(n)]
        wait_until(lambda: sum(self.replies(path).values()) >= before + n, "every request to have a reply", PATIENCE)
        latency, busy = pinger.stop()
        print("%d x %s: replies %s; ping ms p99, max: %s, processor %s; peak %d MB" % (
            n, path, self.replies(path), *(["%.1f" % (t * 1000) for t in times] for times in (latency, busy)),
            self.peak_memory() // MB), flush=True)
        for s in clients:
            s.close()
        if not harness.SANITIZED:  # which takes several times as long, on a slow machine even more
            self.assertLess(busy[0], BUSY_MAX)

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
