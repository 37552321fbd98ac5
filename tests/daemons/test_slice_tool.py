"""millrace slice: a slice as text."""
import sqlite3
import unittest

import aggregator_model
import harness

COUNTS = {b"all|all,c413": 3, b"c.u|a.c413,JP": 1, b"c.u|a.c413,US": 2, b"u|a!x,c413": 1, b"u|a,c413": 2, b"u|a,c41l": 5}
LOOKUPS = {b"lookup|h0aMB8AuNw4=,": b"http://www.facebook.com/\\"}
TEXT = (b"all|all,c413:3\nc.u|a.c413,JP:1 US:2\nlookup|h0aMB8AuNw4=,http://www.facebook.com/\\\\\nu|a!x,c413:1\n"
        b"u|a,c413:2 c41l:5\n")


class SliceTool(harness.MillraceTest):
    def slice(self, *args, expect=0):
        done = self.run_program("millrace", "slice", *args)
        self.assertEqual(done.returncode, expect, done)
        return done.stdout + done.stderr

    def test_prints_a_slice(self):
        path = self.path("0000000001.db")
        aggregator_model.make_slice(path, 1, COUNTS, LOOKUPS)
        self.assertEqual(self.slice(path), TEXT)
        harness.flip(path, harness.read_file(path).index(b"facebook"))
        self.assertIn(path.encode(), self.slice(path, expect=65))
        self.assertIn(b"No such file", self.slice(self.path("none.db"), expect=66))

    def test_an_unknown_format_version_is_refused_by_name(self):
        path = self.path("0000000001.db")
        aggregator_model.make_slice(path, 1, COUNTS, LOOKUPS)
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 2")
        db.close()
        self.assertIn(path.encode() + b": unknown format version 2", self.slice(path, expect=78))


if __name__ == "__main__":
    unittest.main()
