"""millrace grep: the records of keys that contain a text, with texts in place of hashes, against a model over the archive's lines."""
import os
import re

import harness
from harness import seeded
from record_text import Counts, hour
from sortdb_case import point_at, write_generation

TEXTS = [b"user", b"user1", b"user12", b"USER1", b"http://example.org/user7", b"example", b"org/user1", b"r", b"", b"nothing", b"a long country", b"h0aMB8AuNw4=",
         b"a,b|c", b"new\nline", b"\\", b"\xff"]
ODD = [b"http://www.facebook.com/", b"a,b|c", b"new\nline of text", b"back\\slash,", b"\xff\xfe not UTF-8 at all", b"eleven_byte"]


def escaped(text):
    text = text.replace(b"\\", b"\\\\")
    return re.sub(rb"[\x00-\x1f\x7f]", lambda m: b"\\x%02x" % m.group()[0], text)


class Grep(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        rng = seeded()
        self.counts = Counts().random(rng, 400)
        for i, odd in enumerate(ODD):
            self.counts.add(odd, b"JP", hour(3, 1, i))
            self.counts.add(b"user1", odd, hour(3, 2, i), 3)
        self.archive = self.path("data", "archive")
        write_generation(self.archive, 1, 1, [tuple(line.split(b",", 1)) for line in self.lines()], shards=3)
        point_at(self.archive, 1)

    def lines(self):
        return [re.sub(rb"^(lookup\|[^,]*,)(.*)$", lambda m: m.group(1) + escaped(m.group(2)), line, flags=re.S) for line in self.counts.lines()]

    def grep(self, *args, expect=0):
        done = self.run_program("millrace", "grep", "--archive=" + self.archive, *args)
        self.assertEqual(done.returncode, expect, (args, done))
        return done.stdout

    def expected(self, fits, ns=None):
        """The lines with texts, in the order of the archive."""
        full = lambda stored: self.counts.lookups.get(stored, stored)
        out = []
        for line in self.lines():
            key, value = line.split(b",", 1)
            space, rest = key.split(b"|", 1)
            if space == b"lookup" or (ns and space != ns):
                continue
            stored, dot, period = rest.partition(b".")
            if not fits(full(stored)):
                continue
            if dot:
                value = b" ".join(escaped(full(name)) + b":" + n for name, n in (pair.split(b":") for pair in value.split(b" ")))
            out.append(space + b"|" + escaped(full(stored)) + dot + period + b"," + value + b"\n")
        return b"".join(out)

    def test_equals_a_model(self):
        for text in TEXTS:
            folded = text.lower()
            for args, fits in (((), lambda key: text in key), (("--begins",), lambda key: key.startswith(text)), (("-x",), lambda key: key == text),
                               (("-i",), lambda key: folded in key.lower()), (("-i", "-b"), lambda key: key.lower().startswith(folded))):
                for ns in (None, b"u", b"c.u"):
                    more = ("--ns=" + ns.decode(),) if ns else ()
                    wanted = self.expected(fits, ns)
                    got = self.grep(*args, *more, "--", text, expect=0 if wanted else 1)
                    self.assertEqual(got, wanted, (text, args, ns))
                    if not ns:
                        self.assertEqual(self.grep(*args, "--count", "--", text, expect=0 if wanted else 1), b"%d\n" % wanted.count(b"\n"))
        self.assertEqual(self.grep("-q", "user"), b"")
        self.assertEqual(self.grep("-q", "nothing", expect=1), b"")

    def test_sets(self):
        """A set has its short text. The texts of its members are not known."""
        lines = b"v.u|user1.c31,=7 ~a1b2c3d4e5f60718\nv.u|h0aMB8AuNw4=.c31,@000000AAABAAIAAwA\nlookup|h0aMB8AuNw4=,http://www.facebook.com/\n"
        self.archive = self.path("sets")
        done = self.run_program("compactor", "--archive=" + self.archive, "--aggregator-url=none", "--sortdb-url=none", "--import",
                                self.write("sets.csv", lines))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.grep("facebook"), b"v.u|http://www.facebook.com/.c31,#4\n")
        self.assertEqual(self.grep("--ns=v.u", "r1"), b"v.u|user1.c31,=7 ~a1b2c3d4e5f60718\n")
        self.assertEqual(self.grep("--count", "--ns=v.u", "o"), b"1\n")

    def test_what_it_cannot_read(self):
        self.grep(expect=64)
        self.grep("a", "b", expect=64)
        done = self.run_program("millrace", "grep", "--data-dir=" + self.path("none"), "user")
        self.assertEqual(done.returncode, 66, done)
        self.assertIn(self.path("none", "archive").encode() + b": No such file", done.stderr)
        os.mkdir(self.path("empty"))
        done = self.run_program("millrace", "grep", "--archive=" + self.path("empty"), "user")
        self.assertEqual((done.returncode, b"`millrace compact` creates" in done.stderr), (66, True), done)
        shard = self.path("data", "archive", "current", "shard-1-of-3.csv")
        harness.flip(shard, 10)
        self.grep("user", expect=65)


if __name__ == "__main__":
    harness.main()
