"""millrace slice: a slice as text, and slices of the former format converted, whatever is killed when."""
import sqlite3
import subprocess
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

    def former(self, name="0000000001.db"):
        """A slice of the former format, in a directory of its own."""
        path = self.path(name)
        aggregator_model.make_former_slice(path, 1, COUNTS, LOOKUPS)
        return path

    def test_prints_a_slice(self):
        path = self.path("0000000001.db")
        aggregator_model.make_slice(path, 1, COUNTS, LOOKUPS)
        self.assertEqual(self.slice(path), TEXT)
        harness.flip(path, harness.read_file(path).index(b"facebook"))
        self.assertIn(path.encode(), self.slice(path, expect=65))
        self.assertIn(b"No such file", self.slice(self.path("none.db"), expect=78))

    def test_the_former_format_is_refused_with_the_command(self):
        path = self.former()
        said = self.slice(path, expect=78)
        self.assertIn(b"millrace slice convert " + path.encode(), said)
        self.assertIn(b"converted", self.slice("convert", path))
        self.assertEqual(self.slice(path), TEXT)
        self.assertIn(b"already", self.slice("convert", path))
        db = sqlite3.connect("file:%s?immutable=1" % path, uri=True)
        self.assertEqual(db.execute("SELECT stream, id, offset FROM cursors").fetchall(), [("clicks", "c0ffee", 100)])
        self.assertEqual(db.execute("SELECT stream, id, offset FROM begins").fetchall(), [("clicks", "c0ffee", 0)])
        db.close()

    def test_a_slice_in_use_is_left_alone(self):
        path = self.former()
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO counts VALUES(?, 1)", (b"u|z,c413",))
        self.slice("convert", path, expect=75)
        self.assertEqual(db.execute("PRAGMA user_version").fetchone(), (1,))
        db.close()
        self.slice("convert", path)
        self.assertEqual(self.slice(path), TEXT + b"u|z,c413:1\n")

    def test_killed_anywhere_it_is_the_old_or_the_new_one(self):
        rng = harness.seeded()
        for i in range(10):
            path = self.former("%010d.db" % (i + 1))
            child = subprocess.Popen([harness.program("millrace"), "slice", "convert", path], stdout=subprocess.DEVNULL)
            try:
                child.wait(rng.random() * 0.02)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            self.slice("convert", path)
            self.assertEqual(self.slice(path), TEXT)


if __name__ == "__main__":
    unittest.main()
