"""Thousands of random reads equal a model: get, mget, fwmatch and range with keys around the separator, keys that begin other keys, the first and
the last; of files with and without a last newline, of one line and empty; of an archive."""
# full: MILLRACE_ROUNDS=4
import bisect

import harness
from harness import connect, query
from record_text import Counts, text_of
from sortdb_case import ALPHABET, sorted_file, SortdbTest

OF_A_FILE = 300 * harness.rounds(1)       # reads; five files
OF_AN_ARCHIVE = 1500 * harness.rounds(1)  # reads


class Model:
    """The answers of a sorted file: `lines` without LF."""

    def __init__(self, lines, separator):
        self.separator = separator
        self.records = sorted(line.partition(separator)[::2] for line in lines)
        self.records.sort(key=lambda r: r[0] + separator)
        self.order = [key + separator for key, _ in self.records]
        self.values = dict(self.records)

    def line(self, i):
        return self.order[i] + self.records[i][1] + b"\n"

    def get(self, key):
        return (200, self.values[key] + b"\n") if key in self.values else (404, b"")

    def mget(self, *keys):
        return 200, b"".join(k + self.separator + self.values[k] + b"\n" for k in keys if k in self.values)

    def fwmatch(self, prefix, limit):
        at = [i for i, (key, _) in enumerate(self.records) if key.startswith(prefix)]
        found = b"".join(map(self.line, at[:limit]))
        return (200, found) if found else (404, b"")

    def range(self, start, end, limit):
        if start + self.separator > end + self.separator:
            return 400, None
        at = bisect.bisect_left(self.order, start + self.separator)
        behind = bisect.bisect_right(self.order, end + self.separator)
        found = b"".join(map(self.line, range(at, min(behind, at + limit))))
        return (200, found) if found else (404, b"")


class RandomReads(SortdbTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()

    def key(self, model):
        """A key, one near a key, or any."""
        if not model.records or self.random.random() < 0.1:
            return self.random.choice([b"", b"\x01", b"\xff\xff", b"zzz"])
        key = self.random.choice(model.records)[0] if self.random.random() < 0.8 else \
            self.random.choice([model.records[0][0], model.records[-1][0]])
        near = self.random.randrange(5)
        if near == 1:
            key = key[:self.random.randrange(len(key) + 1)]
        elif near == 2:  # bytes on both sides of the separators
            key += self.random.choice([b"!", b"\x08", b"-", b"\n", b"\x0b", b"+", b"~", b".", b"0"])
        elif near == 3:
            key += model.separator
        return key

    def reads(self, daemon, model, n):
        """n keys, each looked up."""
        c = connect(daemon.url)
        while n > 0:
            a, b = self.key(model), self.key(model)
            limit = self.random.choice([1, 2, 50, 10**6])
            kind = self.random.randrange(4)
            n -= 1
            if kind == 0:
                target, expected = "/get?" + query(key=a), model.get(a)
            elif kind == 1:
                keys = [a, b] + [self.key(model) for _ in range(3)]
                target, expected = "/mget?" + "&".join(query(k=k) for k in keys), model.mget(*keys)
            elif kind == 2:
                target, expected = "/fwmatch?" + query(key=a, limit=limit), model.fwmatch(a, limit)
            else:
                target, expected = "/range?" + query(start=a, end=b, limit=limit), model.range(a, b, limit)
            c.request("GET", target)
            reply = c.getresponse()
            body = reply.read()
            self.assertEqual((reply.status, body if expected[1] is not None else None), expected, target)
        c.close()

    def test_files(self):
        for lines, has_lf in ((800, True), (800, False), (1, True), (1, False), (0, True)):
            separator = self.random.choice([b"\t", b",", b"|"])
            alphabet = [c for c in ALPHABET + [b",", b"\t", b"|"] if c != separator]
            def word(n):
                return b"".join(self.random.choice(alphabet) for _ in range(self.random.randrange(n)))
            content = sorted_file({word(5): word(30) + separator * self.random.randrange(2) for _ in range(lines)}.items(),
                                  separator)
            model = Model(content.split(b"\n")[:-1], separator)
            daemon = self.serve(content if has_lf else content[:-1], "--field-separator=" + separator.decode())
            self.reads(daemon, model, OF_A_FILE)
            daemon.stop()

    def import_records(self, counts):
        done = self.run_program("compactor", "--archive=" + self.path("archive"), "--aggregator-url=none", "--sortdb-url=none",
                                "--shards=2", "--import", self.write("records", text_of(counts.lines())))
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_an_archive(self):
        self.import_records(Counts().random(self.random, 1500))
        self.import_records(Counts().random(self.random, 1500))
        lines = []
        for k in (0, 1):
            lines += harness.read_file(self.path("archive", "current", "shard-%d-of-2.csv" % k)).splitlines()
        daemon = self.start("sortdb", "--archive", self.path("archive"))
        self.reads(daemon, Model(lines, b","), OF_AN_ARCHIVE)
        daemon.stop()


if __name__ == "__main__":
    harness.main()
