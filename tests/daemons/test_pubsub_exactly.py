"""Exactly once, both ways: publishers that retry blindly after every kind of failure, and curl, cut off two hundred times."""
# full: MILLRACE_ROUNDS=200
import os
import shutil
import socket
import struct
import subprocess
import threading
import time

import harness
from pubsub_case import PubsubTest


class Publishers(PubsubTest):
    BATCH = 20

    def body(self, n):
        return b"".join(b"line %d\n" % i for i in range(n * self.BATCH, (n + 1) * self.BATCH))

    def raw(self, n):
        body = self.body(n)
        return b"POST /pub?stream=s&producer=w&mark=%d&next=%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
            n, n + 1, len(body), body)

    def start_pubsub(self):
        return self.pubsub("--body-timeout=1h")  # what arrives late may be very late

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.PATIENCE)
        s.connect(self.path("p.sock"))
        return s

    @staticmethod
    def reset(s):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()

    # What goes wrong with a try. Each leaves it open whether the lines are there.
    def cut_in_the_middle(self, n, random):
        s = self.connect()
        s.sendall(self.raw(n)[:random.randrange(1, len(self.raw(n)))])
        self.reset(s)

    def reset_before_the_reply(self, n, random):
        s = self.connect()
        s.sendall(self.raw(n))
        self.reset(s)

    def reset_within_the_reply(self, n, random):
        s = self.connect()
        s.sendall(self.raw(n))
        s.recv(random.randrange(1, 100))
        self.reset(s)

    def time_out(self, n, random):
        s = self.connect()
        s.sendall(self.raw(n))
        s.settimeout(random.uniform(0.00001, 0.002))
        try:
            s.recv(10)
        except OSError:
            pass
        s.close()

    def arrive_late(self, n, random):
        """Sends a request except for its last byte, which follows long after the retry was answered."""
        s = self.connect()
        s.sendall(self.raw(n)[:-1])
        self.late.append((n, s))

    def kill(self, n, random):
        s = self.connect()
        s.sendall(self.raw(n))
        time.sleep(random.uniform(0, 0.003))
        self.p.kill9()
        self.p = self.start_pubsub()
        s.close()
        for _, late in self.late:
            late.close()
        self.late = []

    def send_late(self, all_of_them=False):
        while self.late and (all_of_them or len(self.late) > 3):
            n, s = self.late.pop(0)
            s.sendall(self.raw(n)[-1:])
            reply = s.recv(4096)
            self.assertIn(b'"duplicate":true', reply, n)
            s.close()

    def test_blind_retries_after_every_kind_of_failure(self):
        random = harness.seeded()
        self.p, self.late = self.start_pubsub(), []
        failures = [self.cut_in_the_middle, self.reset_before_the_reply, self.reset_within_the_reply, self.time_out,
                    self.arrive_late]
        rounds, batches = harness.rounds(3), 40
        for n in range(rounds * batches):
            if n % batches == batches // 2:
                self.kill(n, random)
            for failure in random.sample(failures, random.randrange(4)):
                failure(n, random)
            while self.pub(self.body(n), producer="w", mark=n, next=n + 1).status != 200:
                pass
            self.send_late()
        self.send_late(all_of_them=True)
        self.assertEqual(self.sub().body, b"".join(map(self.body, range(rounds * batches))))

    def test_two_at_once_under_one_name(self):
        """Two clients publish the same batches at the same time. Each batch is stored once."""
        self.pubsub()
        stored = []

        def publish():
            for n in range(200):
                reply = self.pub(self.body(n), producer="w", mark=n, next=n + 1)
                self.assertEqual(reply.status, 200, reply)
                if not reply.json()["duplicate"]:
                    stored.append(n)
        threads = [threading.Thread(target=publish) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(stored), list(range(200)))
        self.assertEqual(self.sub().body, b"".join(map(self.body, range(200))))


class Curl(PubsubTest):
    """The loop of docs/guide/streams.md: goes back to its last LF, and asks from there."""

    DISCONNECTS = harness.rounds(60)
    TAIL = 8192  # holds an LF

    @staticmethod
    def line(i):
        return b"%d %s\n" % (i, b"x" * (i * 37 % 3000))

    def resume(self, path):
        at = os.path.getsize(path)
        with open(path, "rb+") as f:
            f.seek(max(0, at - self.TAIL))
            tail = f.read()
            at -= len(tail) - (tail.rfind(b"\n") + 1)
            f.truncate(at)
        out = open(path, "ab")
        curl = subprocess.Popen(harness.dies_with_us(
            ["curl", "-sfN", "--unix-socket", self.path("p.sock"), "http://localhost/sub?stream=s&from=%d" % at]),
            stdout=out, stderr=subprocess.DEVNULL)
        out.close()
        return curl

    def test_disconnects_while_publishing_goes_on(self):
        if not shutil.which("curl"):
            harness.not_installed(self, "curl is not installed")
        random = harness.seeded()
        self.pubsub()
        self.pub(self.line(0))
        over, path, cut = threading.Event(), self.write("clicks.log", b""), 0
        published = [1]

        def publish():
            while not over.wait(0.002):
                lines = range(published[0], published[0] + random.randrange(1, 20))
                if self.pub(b"".join(map(self.line, lines))).status == 200:
                    published[0] = lines.stop
        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            for _ in range(self.DISCONNECTS):
                curl = self.resume(path)
                time.sleep(random.uniform(0, 0.04))
                curl.kill()
                curl.wait()
                with open(path, "rb") as f:
                    f.seek(max(0, os.path.getsize(path) - 1))
                    cut += f.read() not in (b"", b"\n")
        finally:
            over.set()
            publisher.join()
        text = b"".join(map(self.line, range(published[0])))
        curl = self.resume(path)
        harness.wait_until(lambda: os.path.getsize(path) >= len(text), "the rest")
        curl.kill()
        curl.wait()
        self.assertEqual(harness.read_file(path), text, "every line once, in order")
        print("%d of %d cuts were inside a line" % (cut, self.DISCONNECTS))


if __name__ == "__main__":
    harness.main()
