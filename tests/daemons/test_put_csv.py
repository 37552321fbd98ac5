"""`millrace put --format=csv`: each file's first line names the fields, also for a put that continues."""
import gzip
import json
import time

import harness
from put_case import QueueTest


class Csv(QueueTest):
    def csv(self, *args, **kw):
        return self.put("--format=csv", *args, **kw)

    def events(self):
        return [json.loads(line) for line in self.stored()]

    def test_files(self):
        a = self.write("a.csv", '\ufefftime,user,"a note"\r\n1332547200,ann,"x, ""y""\r\nz"\r\n\r\n7,007,\r\n')
        with gzip.open(self.path("b.csv.gz"), "wb") as f:
            f.write(b"user,n\nbob,-1.5")
        done = self.csv(a, self.path("b.csv.gz"))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.events(), [{"time": 1332547200, "user": "ann", "a note": 'x, "y"\r\nz'}, {"time": 7, "user": "007"},
                                         {"user": "bob", "n": -1.5}])

    def test_a_put_that_continues(self):
        """It is killed at any place; the records, some over several lines, are stored once, in order."""
        want, text = [], ["n,text\n"]
        for n in range(3000):
            want.append({"n": n, "text": "x\n%d" % n} if n % 3 == 0 else {"n": n})
            text.append('%d,"x\n%d"\n' % (n, n) if n % 3 == 0 else "%d,\n" % n)
        self.write("a.csv", "".join(text[:1500]))
        self.write("b.csv", "text,n\n" + "".join('"x\n%d",%d\n' % (n, n) if n % 3 == 0 else ",%d\n" % n for n in range(1499, 3000)))
        argv = ("--format=csv", "--producer=p", "--batch=7", self.path("a.csv"), self.path("b.csv"))
        for rounds in range(5):
            begun, before = self.begin("--rate=3000", *argv), self.mark()
            harness.wait_until(lambda: self.mark() > before or begun.poll() is not None, "a batch")
            time.sleep(0.02 * rounds)
            begun.kill()
            begun.wait()
        done = self.put(*argv)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.events(), want)

    def test_wrong_records(self):
        a = self.write("a.csv", 'a,b\n1,2\n"x\ny"\n3,4\n5,"\n')
        done = self.csv(a)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the line at byte 8 of ", done.stderr)
        self.assertIn(b"the record has 1 fields, and the first line has 2", done.stderr)
        self.assertIn(b"the first 1 record of ", done.stderr)
        self.assertEqual(self.events(), [{"a": 1, "b": 2}])
        done = self.csv("--rejects=" + self.path("rejects"), a)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(harness.read_file(self.path("rejects")), b'"x\ny"\n5,"\n')
        self.assertEqual(self.events()[1:], [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
        done = self.csv("--rejects=" + self.path("rejects"), self.write("b.csv", "a,a\n1,2\n"))
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"b.csv: the first line names the fields, and has a name twice", done.stderr)
        self.assertIn(b"omit --follow", self.csv("--follow", "--producer=p", a).stderr)


if __name__ == "__main__":
    harness.main()
