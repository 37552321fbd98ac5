"""A replacement that would lose or double a count is refused, and the error names what continues."""
import fcntl
import gzip
import json
import os
import re
import shutil
import time

import harness
from recount_case import UNIQUES, RecountTest


class Refused(RecountTest):
    def prepare(self):
        self.init()
        self.rest = self.lines(1500)
        self.post(self.rest[:600])
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.aggregator.stop()
        self.count(self.new)
        self.assertIn("slice 2 has other counters", self.millrace("recount", expect=78))  # though it is empty
        self.millrace("compact")

    def refuse(self, text):
        before = self.manifest(), self.files()
        self.assertIn(text, self.millrace("compact", "--replace=" + self.recounted, expect=78))
        self.assertEqual((self.manifest(), self.files()), before)

    def test_ends_that_differ(self):
        self.prepare()
        self.millrace("recount")
        end = self.posted
        self.post(self.rest[600:900])
        self.wait_counted()
        self.millrace("compact")
        self.refuse("%s ends at offset %d of stream clicks, the archive at %d; run `millrace recount` again" %
                    (self.recounted, end, self.posted))
        self.millrace("recount")  # it goes on from there
        self.millrace("compact", "--replace=" + self.recounted)
        self.check_exact()

    def test_the_recount_covers_more(self):
        """The archive is an older generation again."""
        self.prepare()
        older = os.readlink(os.path.join(self.archive, "current"))
        end = self.posted
        self.aggregator.stop()
        self.sortdb.stop()
        shutil.copytree(self.path("run", "aggregator"), self.path("aggregator.old"))
        self.count(self.new)
        self.sortdb = self.serve("sortdb", "--archive=" + self.archive)
        self.post(self.rest[600:900])
        self.wait_counted()
        self.millrace("compact")
        self.millrace("recount")
        self.aggregator.stop()
        os.unlink(os.path.join(self.archive, "current"))
        os.symlink(older, os.path.join(self.archive, "current"))
        shutil.rmtree(self.path("run", "aggregator"))
        os.rename(self.path("aggregator.old"), self.path("run", "aggregator"))
        self.count(self.new)
        self.refuse("%s ends at offset %d of stream clicks, the archive at %d; compact the pipeline" %
                    (self.recounted, self.posted, end))

    def test_the_aggregator_has_other_counters(self):
        self.prepare()
        self.aggregator.stop()
        self.count(self.old)
        self.assertIn("the aggregator has other counters; restart it with", self.millrace("recount", expect=78))
        self.aggregator.stop()
        self.count(self.new)
        self.millrace("compact")
        self.millrace("recount")
        self.aggregator.stop()
        self.count(self.old)
        self.refuse("the aggregator has other counters than the recount; restart the aggregator")
        self.post(self.rest[600:900])
        self.wait_counted()
        self.aggregator.stop()
        self.count(self.new)  # the slice of the old counters is sealed now
        self.refuse("which the archive does not include, has other counters than the recount")
        self.millrace("compact")
        self.millrace("recount")
        self.millrace("compact", "--replace=" + self.recounted)
        self.assertEqual(self.files(), self.undisturbed())

    def test_the_counters_of_an_unfinished_recount_change(self):
        self.prepare()
        self.millrace("recount")
        self.aggregator.stop()
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.assertIn("has counts of other counters; remove it to begin again",
                      self.millrace("recount", config=self.old, expect=78))

    def test_a_restored_copy_of_the_stream(self):
        """Its end is where the archive ends, but the lines before it are others."""
        self.prepare()
        self.pubsub.stop()
        shutil.copytree(self.path("pubsub"), self.path("copy"))
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.post(self.rest[600:750])
        self.wait_counted()
        self.millrace("compact")
        end = self.posted
        self.pubsub.stop()
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("copy"), "--sync=never")
        self.post([line.replace(b"1", b"2") for line in self.rest[600:750]])
        self.assertEqual(self.posted, end)
        self.assertIn("stream clicks: the line before offset %d is not the line that the archive includes: the stream "
                      "or the archive is a restored copy" % end, self.millrace("recount", expect=65))

    def test_a_former_recount_of_another_history(self):
        """The whole pipeline is a restored copy since. The former recount ends at the same offset, with other lines before."""
        self.prepare()
        for daemon in (self.aggregator, self.sortdb, self.pubsub):
            daemon.stop()
        places = [self.path(*p) for p in (("pubsub",), ("run", "aggregator"), ("run", "archive"))]
        for place in places:
            shutil.copytree(place, place + ".copy", symlinks=True)
        self.go_on(self.rest[600:750])
        end = self.posted
        self.millrace("recount")
        for daemon in (self.aggregator, self.sortdb, self.pubsub):
            daemon.stop()
        for place in places:
            shutil.rmtree(place)
            os.rename(place + ".copy", place)
        self.go_on([line.replace(b"1", b"2") for line in self.rest[600:750]])
        self.assertEqual(self.posted, end)
        self.refuse("has counts of another stream clicks than the archive, or of a restored copy")
        for _ in range(2):
            self.assertRegex(self.millrace("recount", expect=65), "the line before offset %d is not the line that the archive "
                             "includes: .* remove the directory of that recount to begin again" % end)
        shutil.rmtree(self.recounted)
        self.millrace("recount")
        self.millrace("compact", "--replace=" + self.recounted)
        self.assertEqual(self.files(), self.undisturbed())

    def go_on(self, lines):
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.sortdb = self.serve("sortdb", "--archive=" + self.archive)
        self.post(lines)
        self.count(self.new)
        self.millrace("compact")

    def test_not_a_recount(self):
        self.prepare()
        self.assertIn("--replace names the archive itself", self.millrace("compact", "--replace=" + self.archive, expect=78))
        self.assertIn("no such directory; run `millrace recount` first",
                      self.millrace("compact", "--replace=" + self.path("nowhere"), expect=66))
        os.mkdir(self.recounted)
        self.refuse("no recounted archive")
        for other in (self.archive, self.path("run", "aggregator"), self.path("pubsub")):
            before = sorted(os.listdir(other))
            self.assertIn("recount into another directory", self.millrace("recount", "--to-archive=" + other, expect=78))
            self.assertEqual(sorted(os.listdir(other)), before)
        self.assertIn("--from needs files", self.millrace("recount", "--from", expect=64))


class Inputs(RecountTest):
    def test_files_that_the_pipeline_counted(self):
        """The files of `aggregator --input`, and imports, must be in the recount too."""
        self.init()
        lines = self.lines(3000)
        self.post(lines[:1000])
        one, two = (self.write(name, b"".join(line + b"\n" for line in part))
                    for name, part in (("one", lines[1000:2000]), ("two", lines[2000:])))
        data = "--data-dir=" + self.path("run", "aggregator")
        done = self.run_program("aggregator", "--config=" + self.old, data, "--archive=" + self.archive, "--input", one, two)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.count(self.new)
        self.millrace("compact")
        text = self.write("imported", b"u|imported,c413:7\n")
        self.millrace("compact", "--import", text)
        before = self.files()
        self.millrace("recount", "--from", one)
        refused = self.millrace("compact", "--replace=" + self.recounted, expect=78)
        self.assertIn("lacks 1 file that the archive counted with `aggregator --input`, the last with %d bytes" %
                      os.path.getsize(two), refused)
        packed = self.path("packed.gz")
        with gzip.open(packed, "wb") as f:
            f.write(harness.read_file(two))
        self.millrace("recount", "--from", packed)
        refused = self.millrace("compact", "--replace=" + self.recounted, expect=78)
        self.assertIn("has fewer imports of imported than the archive; to import it: millrace compactor", refused)
        self.assertEqual(self.files(), before)
        self.millrace("compactor", "--archive=" + self.recounted, "--aggregator-url=none", "--sortdb-url=none", "--import", text)
        self.millrace("compact", "--replace=" + self.recounted)
        after = self.files()
        self.assertEqual([n for n in after if after[n] == before[n]], [])
        self.check_counts(lines, b"u|imported,c413:7")

    def test_each_import_as_often_as_in_the_archive(self):
        self.init()
        self.post(self.lines(200))
        self.count(self.new)
        self.millrace("compact")
        self.millrace("recount")
        one, two = (self.write(name, b"u|%s,c413:7\n" % name.encode()) for name in ("one", "two"))
        own = ["compactor", "--archive=" + self.recounted, "--aggregator-url=none", "--sortdb-url=none", "--import"]
        for imports, command in ([one, one, two], ["compact", "--import"]), ([one, two, two], own):
            for i, file in enumerate(imports):
                self.millrace(*command, file, *["--again"] * (file in imports[:i]))
        before = self.files()
        refused = self.millrace("compact", "--replace=" + self.recounted, expect=78)
        self.assertRegex(refused, "has fewer imports of one than the archive; to import it: .*--import FILE --again")
        self.assertEqual(self.files(), before)
        self.millrace(*own, one, "--again")
        refused = self.millrace("compact", "--replace=" + self.recounted, expect=78)
        self.assertIn("has more imports of two than the archive", refused)
        self.millrace("compact", "--import", two, "--again")
        before = self.files()
        self.millrace("compact", "--replace=" + self.recounted)
        self.assertEqual(self.files(), before)

    def check_counts(self, lines, *more):
        """The archive has what an aggregator under the new counters makes of these lines."""
        config = self.write("plain.conf", "[aggregator]\ndata_dir = %s\n" % self.path("plain") + harness.sample_counters() + UNIQUES)
        whole = self.write("whole", b"".join(line + b"\n" for line in lines))
        done = self.run_program("aggregator", "--config=" + config, "--input", whole)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_program("millrace", "slice", "--members", self.path("plain", "slices", "0000000001.db"))
        exported = [line for line in self.export(self.archive).splitlines() if not re.match(rb"w\.u\|[^,]*\....,", line)]
        self.assertTrue(exported == sorted([*done.stdout.splitlines(), *more]))


class Rejects(RecountTest):
    def setUp(self):
        super().setUp()
        self.old = self.configuration("old.conf", harness.sample_counters().replace("time = t ", "time = t\ntime_unit = ns ; ", 1))

    def put_back(self):
        return json.loads(self.millrace("rejects", "--put-back", "--json").splitlines()[0])

    def reject(self, lines):
        """The old configuration rejects every event; the new one counts events and rejects damaged lines."""
        self.init()
        self.post(lines[:1000])
        self.count(self.old)
        self.post(lines[1000:2000])
        self.wait_counted()
        self.aggregator.stop()
        self.count(self.new)
        self.millrace("compact")

    def test_a_put_back_counts_nothing_that_the_recount_has_counted(self):
        lines = self.lines(3000)
        self.reject(lines)
        self.millrace("recount")
        self.post(lines[2000:] + [b"{"])
        self.wait_counted()
        self.millrace("compact", "--replace=" + self.recounted)
        expected = self.undisturbed()
        self.assertEqual(self.files(), expected)
        counts = self.put_back()
        self.assertEqual((counts["counted"], counts["rejected"] > 0, counts["kept"] > 1900), (0, True, True), counts)
        self.millrace("compact")
        self.assertEqual(self.files(), expected)
        self.put_back()
        self.millrace("compact")
        self.assertEqual(self.files(), expected)

    def test_lines_that_were_put_back_before_are_counted_once(self):
        lines = self.lines(2000)
        self.reject(lines)
        self.millrace("recount")
        self.assertGreater(self.put_back()["counted"], 1800)
        said = self.millrace("compact", "--replace=" + self.recounted, expect=78)
        self.assertIn("rejected lines were put back into", said)
        self.millrace("compact")
        self.millrace("recount")
        self.millrace("compact", "--replace=" + self.recounted)
        self.assertEqual(self.files(), self.undisturbed())

    def input(self, *files):
        """With the old configuration, which rejects every event."""
        done = self.run_program("aggregator", "--config=" + self.old, "--data-dir=" + self.path("run", "aggregator"),
                                "--archive=" + self.archive, "--input", *files)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_rejected_lines_of_files_by_their_content(self):
        """What a recount has judged is neither what came before its end nor what has that name, but those bytes of that file."""
        self.init()
        self.post(self.lines(100))
        one, two = (b"".join(b'{"t":1331923247,"l":"%s-%d"}\n' % (name, i) for i in range(100)) for name in (b"one", b"two"))
        imported = self.write("imported", b"u|imported,c413:7\n")
        file = self.write("file", one[:len(one) // 2])
        self.input(file)
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.millrace("compact", "--import", imported, config=self.old)
        self.millrace("recount", "--from", file, config=self.old)
        judged = one[:len(one) // 2].count(b"\n")
        self.aggregator.stop()
        self.write("renamed", one)
        self.write("file", two)
        self.input(self.path("renamed"), file)
        self.count(self.old)
        time.sleep(1)  # the recounted archive is of a later second than the rejects
        self.millrace("compactor", "--archive=" + self.recounted, "--aggregator-url=none", "--sortdb-url=none", "--import", imported)
        self.millrace("compact", "--replace=" + self.recounted, config=self.old)
        self.aggregator.stop()
        self.count(self.new)
        counts = self.aggregator.post("/putback").json()
        self.assertEqual((counts["counted"], counts["damaged"], counts["done"]), (200 - judged, 0, True))
        self.millrace("compact")
        exported = self.run_program("compactor", "--archive=" + self.archive, "--export").stdout
        counted = [b"u|%s-%d,c3gi:1\n" % (name, i) in exported for name in (b"one", b"two") for i in range(100)]
        self.assertTrue(counted == [False] * judged + [True] * (200 - judged))

    def test_no_put_back_during_a_compaction(self):
        self.reject(self.lines(2000))
        with open(os.path.join(self.archive, "lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            reply = self.aggregator.post("/putback")
            self.assertEqual((reply.status, reply.json()["code"]), (503, "busy"))
        self.assertEqual(self.aggregator.post("/putback").status, 200)


if __name__ == "__main__":
    harness.main()
