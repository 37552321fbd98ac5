"""A queue and a put: what the tests of millrace file_to_queue share."""
import os
import re
import subprocess

import harness


class QueueTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.start_queue("0")

    def start_queue(self, port):
        self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never", "--address=127.0.0.1",
                                "--port", port, port=False)

    def argv(self, *args):
        return [harness.program("millrace"), "file_to_queue", "--queue-url", self.queue.url, *args]

    def put(self, *args, **kw):
        return self.run_program("millrace", "file_to_queue", "--queue-url", self.queue.url, *args, **kw)

    def begin(self, *args, stdin=subprocess.DEVNULL):
        p = subprocess.Popen(harness.dies_with_us(self.argv(*args)), stderr=subprocess.PIPE, stdin=stdin)
        self.addCleanup(p.stderr.close)
        self.addCleanup(lambda: p.poll() is None and (p.kill(), p.wait()))
        return p

    def stored(self):
        out = []
        reply = self.queue.get("/dump")
        while True:
            out += reply.body.splitlines()
            if not reply.header("X-Millrace-Next"):
                return out
            reply = self.queue.get("/dump?from=" + reply.header("X-Millrace-Next"))

    def depth(self):
        return self.queue.stats()["depth"]

    def mark(self):
        return int(self.queue.get("/producer?producer=p").json()["mark"])


def numbered(n, start=0):
    return b"".join(b'{"n":%d}\n' % i for i in range(start, start + n))


class LongLinesTest(QueueTest):
    """Lines that are too long to be read. They are holes of sparse files, so that nothing of that size is written."""
    LIMIT = 64 << 20

    def sparse(self, name, *pieces):
        """Of bytes, and of numbers of bytes: an x and NULs."""
        with open(self.path(name), "wb") as f:
            for piece in pieces:
                if isinstance(piece, bytes):
                    f.write(piece)
                else:
                    f.write(b"x")
                    f.truncate(f.seek(piece - 1, os.SEEK_CUR))
        return self.path(name)

    def passed(self, stderr):
        """(offset, length) of those that were told."""
        return [(int(at), int(n)) for at, n in re.findall(rb"the line at byte (\d+) of \S+ is too long to be read \((\d+) bytes", stderr)]

    def unended(self, stderr):
        """Offsets of those that were told before they ended."""
        return [int(at) for at in re.findall(rb"the line at byte (\d+) of .+ is too long to be read \(no line feed in 67108864 bytes\)", stderr)]
