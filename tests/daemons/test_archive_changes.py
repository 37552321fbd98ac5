"""Imports, exports and removals: what the archive holds afterwards, what is refused, and that a refusal changes nothing."""
# full: MILLRACE_REAL=1
import functools
import gzip
import json
import os
import pty
import re
import shutil
import subprocess
import time
import unittest

import harness
import test_api
from aggregator_model import Aggregator
from harness import wait_until
from record_text import Counts, hour, stored, text_of
from small_disk import SmallDisk
from xxh3 import xxh3


class Changes(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random, self.archive = harness.seeded(), self.path("archive")
        self.counts = Counts().random(self.random, 2000)

    def compactor(self, *args, archive=None, expect=0, stdin=b""):
        done = self.run_program("compactor", "--archive=" + (archive or self.archive), "--aggregator-url=none",
                                "--sortdb-url=none", *args, input=stdin)
        self.assertEqual(done.returncode, expect, done.stderr.decode())
        return done

    def export(self, archive=None):
        return self.compactor("--export", archive=archive).stdout

    def files(self, archive=None):
        """The names and bytes of the current generation's data."""
        current = os.path.join(archive or self.archive, "current")
        return {name: harness.read_file(os.path.join(current, name)) for name in os.listdir(current)
                if name.endswith(".csv")}

    def manifest(self):
        with open(os.path.join(self.archive, "current", "manifest.json")) as f:
            return json.load(f)

    def generations(self):
        return sorted(name for name in os.listdir(self.archive) if name.isdigit())

    def imported(self, *args):
        path = self.write("sorted.csv", text_of(self.counts.lines()))
        self.compactor("--import", path, *args)


class Imports(Changes):
    def test_any_order_and_packing(self):
        lines = self.counts.pieces(self.random)
        third = len(lines) // 3
        self.write("plain", text_of(lines[:third])[:-1])  # no last LF
        with gzip.open(self.path("packed.gz"), "wb") as f:
            f.write(text_of(lines[third:2 * third]))
        packed = subprocess.run(["zstd", "-qc"], input=text_of(lines[2 * third:]), capture_output=True, check=True)
        self.compactor("--import", self.path("plain"), self.path("packed.gz"), "-", stdin=packed.stdout)
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        self.assertEqual([i["name"] for i in self.manifest()["imports"]], ["plain", "packed.gz", "-"])

    def test_an_export_makes_the_same_archive(self):
        for shards in (1, 4, 7):
            self.archive = self.path("a%d" % shards)
            self.imported("--shards=%d" % shards)
            text, other = self.path("e%d" % shards), self.path("b%d" % shards)
            self.compactor("--export", text)
            self.assertEqual(harness.read_file(text), text_of(self.counts.lines()))
            self.compactor("--import", text, "--shards=%d" % shards, "--threads=3", "--memory=192M", archive=other)
            self.assertEqual(self.files(other), self.files())

    def go_back(self, generation):
        os.unlink(os.path.join(self.archive, "current"))
        os.symlink(generation, os.path.join(self.archive, "current"))

    def import_one(self, name, n, *args, **kw):
        return self.compactor("--import", self.write(name, b"u|%s,c413:%d\n" % (name.encode(), n)), "--keep=9", *args, **kw)

    def test_a_return_to_an_older_generation_lists_what_goes_and_repeats_no_number(self):
        for n, name in enumerate(("first", "second", "third"), 1):
            self.import_one(name, n)
        all_of_it = self.export()
        self.go_back("000000000001")
        for args in ((), ("--drop-before=2000-01-01",)):
            said = self.compactor(*args, expect=78).stderr.decode()
            self.assertIn("generation 3 (import of second, third), generation 2 (import of second)", said)
            self.assertIn("millrace compact --discard-newer", said)
            self.assertEqual(self.generations(), ["00000000000%d" % i for i in range(4)])
        self.import_one("fourth", 4, expect=78)
        self.go_back("000000000003")
        self.compactor("--keep=9")
        self.assertEqual(self.export(), all_of_it)
        self.go_back("000000000001")
        self.compactor("--discard-newer", "--keep=9")
        self.assertEqual(self.generations(), ["000000000000", "000000000001"])
        self.import_one("fourth", 4)
        self.assertEqual(self.manifest()["generation"], 4)
        self.assertEqual([i["name"] for i in self.manifest()["imports"]], ["first", "fourth"])

    def test_a_return_in_a_copy_without_newest(self):
        for n, name in enumerate(("first", "second", "third"), 1):
            self.import_one(name, n)
        for args, status in (((), 78), (("--discard-newer", "--keep=9"), 0)):
            os.unlink(os.path.join(self.archive, "newest"))
            self.go_back("000000000001")
            said = self.compactor(*args, expect=status).stderr.decode()
            self.assertEqual(len(self.generations()), 4 if status else 2, said)
        self.import_one("fourth", 4)
        self.assertEqual(self.manifest()["generation"], 4)

    def test_a_return_asks_on_a_terminal(self):
        for answer, status, left in ((b"n\n", 78, 3), (b"y\n", 0, 2)):
            if answer == b"n\n":
                self.import_one("first", 1)
                self.import_one("second", 2)
                self.go_back("000000000001")
            outer, inner = pty.openpty()
            process = subprocess.Popen([harness.program("compactor"), "--archive=" + self.archive, "--aggregator-url=none",
                                        "--sortdb-url=none"], stdin=inner, stdout=inner, stderr=inner)
            os.close(inner)
            said = b""
            while b"[y/N] " not in said:
                said += os.read(outer, 4096)
            self.assertIn(b"generation 2 (import of second)", said)
            os.write(outer, answer)
            self.assertEqual(process.wait(harness.PATIENCE), status)
            os.close(outer)
            self.assertEqual(len(self.generations()), left)

    def test_more_than_memory(self):
        counts = Counts().random(self.random, 30000, users=10000)
        path = self.write("big", text_of(counts.pieces(self.random)))
        self.assertGreater(os.path.getsize(path), 3 << 19)
        self.compactor("--import", path, "--memory=1M")
        self.assertEqual(self.export(), text_of(counts.lines()))
        self.assertEqual(sorted(os.listdir(self.archive)), ["000000000000", "000000000001", "current", "lock", "newest"])

    def peak(self, *args):
        """The resident memory of a compactor, in bytes."""
        process = subprocess.Popen([harness.program("compactor"), "--archive=" + self.archive, "--aggregator-url=none",
                                    "--sortdb-url=none", *args], stderr=subprocess.PIPE)
        most = 0
        while process.poll() is None:
            with open("/proc/%d/status" % process.pid) as f:
                found = re.search(r"VmHWM:\s+(\d+) kB", f.read())
            most = max(most, int(found[1]) << 10 if found else 0)
            time.sleep(0.005)
        self.assertEqual(process.returncode, 0, process.stderr.read())
        process.stderr.close()
        return most

    @unittest.skipIf(harness.SANITIZED, "measures memory")
    def test_memory_is_bounded(self):
        """Of an import, of the merge after it, of another number of shards and of --verify, each of more than the bound."""
        bound, n = 12 << 20, 300000
        path = self.path("big")
        with open(path, "wb") as f:
            for i in (k * 7919 % n for k in range(n)):  # each once, in disorder
                f.write(b"u|user%06d,c413:%d\nc.u|user%06d.c413,JP:%d\n" % (i // 2, i % 7 + 1, i // 2, i % 7 + 1))
        self.assertGreater(os.path.getsize(path), bound)
        for args in (("--import", path), ("--import", self.write("more", b"u|zz,c413:1\n")), ("--shards=2",)):
            self.assertLess(self.peak("--memory=4M", *args), bound, args)
        self.assertLess(self.peak("--verify"), bound)

    def test_counts_add_to_the_archive(self):
        more = Counts().random(self.random, 500)
        self.imported()
        self.compactor("--import", self.write("more", text_of(more.pieces(self.random))))
        for key, hours in more.totals.items():
            self.counts.totals[key].update(hours)
        for key, subs in more.subs.items():
            self.counts.subs[key].update(subs)
        self.counts.lookups.update(more.lookups)
        self.assertEqual(self.export(), text_of(self.counts.lines()))

    def test_slices_are_merged_too(self):
        aggregator = Aggregator(self)
        aggregator.counts[b"u|new,c413"] = 7
        self.imported("--aggregator-url=" + aggregator.url, "--slices=" + aggregator.dir)
        self.counts.totals[b"u|new"][b"c413"] = 7
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        self.assertEqual(self.manifest()["through"], 1)

    def test_imported_counts_leave_room_for_events(self):
        """Over all imports, keys and subtotals. 2^62 events may follow, and no merge fails."""
        aggregator = Aggregator(self)
        aggregator.counts = {b"u|user1,c413": 2**62}
        self.compactor("--import", self.write("most", b"u|user1,c413:%d\n" % (2**62 - 1)))
        before = self.generations(), self.files()
        for text, why in ((b"u|user2,c413:2\n", "the imported counts of u would exceed 2^62"),
                          (b"c.u|user1.c413,US:2\n", "the imported counts of u would exceed 2^62"),
                          (b"".join(b"c.n|user1.%s,US:%d\n" % (hour(4, 13, h), 2**61 + h) for h in (0, 1)),
                           "more:2: the imported counts of the counter would exceed 2^62")):
            self.assertIn(why, self.compactor("--import", self.write("more", text), expect=78).stderr.decode())
            self.assertEqual((self.generations(), self.files()), before)
        self.compactor("--import", self.write("one", b"u|user2,c413:1\n"))
        self.compactor("--aggregator-url=" + aggregator.url, "--slices=" + aggregator.dir)
        self.compactor("--verify")
        self.assertEqual(self.export(), b"u|user1,c413:%d\nu|user2,c413:1\n" % (2**63 - 1))

    def test_wrong_lines_are_named_and_nothing_changes(self):
        self.imported()
        before = self.generations(), self.files()
        good = b"u|a,c413:1\n"
        for wrong, why in ((b"u|a c413:1", "no `,`"), (b"u|a,c413:00", "begins with 0"), (b"u|a,c413:0", "has no value"), (b"u|a,c413:-1", "has no value"), (b"", "no `,`"),
                           (b"u|a,c414:1 c413:1", "do not ascend"), (b"u|a,c413:1\r", "space")):
            path = self.write("wrong.csv", 3 * good + wrong + b"\n" + good)
            done = self.compactor("--import", self.write("good.csv", good), path, expect=78)
            self.assertIn("%s:4: " % path, done.stderr.decode())
            self.assertIn(why, done.stderr.decode())
        for day, text in ((b"c.u|a.c41,US:1\n", "without its hours"), (b"c.u|a.c4,US:1\n", "without its days")):
            done = self.compactor("--import", self.write("day.csv", day), expect=1)
            self.assertIn(text, done.stderr.decode())
        self.assertEqual((self.generations(), self.files()), before)

    def test_a_name_that_is_not_utf_8(self):
        """The manifest can hold it and can be read again."""
        name = os.fsencode(self.path()) + b"/" + 100 * b"\xe9" + b".csv"
        with open(name, "wb") as f:
            f.write(text_of(self.counts.lines()))
        self.compactor("--import", name)
        self.compactor()
        self.assertEqual(self.manifest()["imports"][0]["name"], 100 * "?" + ".csv")
        self.compactor("--import", name, expect=78)

    def test_unreadable_files(self):
        self.imported()
        before = self.generations(), self.files()
        cut = gzip.compress(text_of(self.counts.lines()))[:-20]
        for args, status, text in ((["/nowhere"], 66, "/nowhere"), ([self.write("cut.gz", cut)], 1, "truncated"),
                                   ([self.path()], 66, "directory"), ([], 64, "needs a file")):
            self.assertIn(text, self.compactor("--import", *args, expect=status).stderr.decode())
        self.assertEqual((self.generations(), self.files()), before)

    def test_the_same_text_twice(self):
        self.imported()
        text = text_of(self.counts.lines())
        packed = self.write("packed.gz", gzip.compress(text))
        done = self.compactor("--import", packed, expect=78)
        self.assertIn("imported before (sorted.csv)", done.stderr.decode())
        one = self.write("one", b"u|a,c413:1\n")
        self.assertIn("imported before", self.compactor("--import", one, one, expect=78).stderr.decode())
        self.assertEqual(self.export(), text)
        self.compactor("--import", "--again", packed)
        for record in [*self.counts.totals.values(), *self.counts.subs.values()]:
            for name in record:
                record[name] *= 2
        self.assertEqual(self.export(), text_of(self.counts.lines()))

    def test_rollups_in_the_text_are_derived(self):
        self.counts = Counts()
        self.counts.add(b"user1", b"US", hour(3, 1, 5))
        self.counts.add(b"user1", b"JP", hour(3, 1, 6))
        rollups = [b"c.u|user1.c3,US:999", b"c.u|user1.c31,JP:1 US:1"]
        self.compactor("--import", self.write("rollups", text_of(self.counts.lines() + rollups)))
        self.assertEqual(self.export(), text_of(self.counts.lines()))

    def test_a_day_that_is_not_the_sum_of_its_hours(self):
        """It has counts without hours, which another archive has dropped."""
        self.imported()
        before = self.generations(), self.files()
        hours = self.write("hours", b"c.u|a.c410,US:5\nc.u|a.c411,US:5\n")
        for day in (b"US:9", b"US:11", b"JP:10", b"JP:1 US:9"):
            path = self.write("day", b"c.u|a.c41,%s\n" % day)
            for args in ((), ("--drop-hours-before=2030-01-01",)):
                done = self.compactor("--import", path, hours, *args, expect=1)
                self.assertIn("not the sum of its hours", done.stderr.decode())
        self.assertEqual((self.generations(), self.files()), before)

    def test_a_full_disk(self):
        disk = SmallDisk(self, "24m")
        self.archive = disk.path("archive")
        self.imported()
        before = self.generations(), self.files()
        big = Counts().random(self.random, 25000, users=10000)
        path = self.write("big", text_of(big.pieces(self.random)))
        disk.take_the_rest()
        done = self.compactor("--import", path, "--memory=1M", expect=75)
        self.assertRegex(done.stderr.decode(), r"needs about [\d.]+ [kM]B of disk space, but only [\d.]+ k?B are available")
        disk.leave(1 << 20)
        done = self.compactor("--import", "-", "--memory=1M", expect=75, stdin=harness.read_file(path))  # of unknown size
        self.assertIn("No space left", done.stderr.decode())
        self.assertEqual((self.generations(), self.files()), before)
        self.assertFalse([name for name in os.listdir(self.archive) if "tmp" in name])
        disk.give_back()
        self.compactor("--import", path, "--memory=1M")
        self.assertEqual(len(self.manifest()["imports"]), 2)


class RealData(Changes):
    """The bytes are the oracle's, after any way into the archive."""

    def test_the_oracle_agrees(self):
        files = harness.real_files()[:None if os.environ.get("MILLRACE_REAL") else 1]
        if not files:
            self.skipTest("no shared data")
        oracle = harness.load_oracle()
        counts = oracle.Counts(os.path.join(harness.shared_dir(), "oracle", "clicks.conf"))
        counts.read(files)
        counts.rollups = functools.cache(counts.rollups)
        lines = sorted(counts.archive(1, 0))
        self.random.shuffle(lines)
        third = len(lines) // 3
        text = self.write("text", text_of(lines[third:]))
        self.compactor("--import", text, "--memory=1M", "--shards=4")
        self.compactor("--import", "-", stdin=text_of(lines[:third]))
        for k in range(4):
            self.assertEqual(self.files()["shard-%d-of-4.csv" % k], text_of(sorted(counts.archive(4, k, True))))
        self.compactor("--verify")
        exported = self.export()
        self.assertEqual(exported, text_of(sorted(lines)))
        for shards in (7, 1):
            self.compactor("--shards=%d" % shards)
            self.compactor("--verify")
        self.assertEqual(self.files()["shard-0-of-1.csv"], text_of(sorted(counts.archive(1, 0, True))))
        other = self.path("other")
        self.compactor("--import", "-", archive=other, stdin=exported)
        self.assertEqual(self.files(other), self.files())

    def test_days_stay_when_hours_go(self):
        self.imported("--shards=2")
        before = self.export().splitlines()
        self.compactor("--drop-hours-before=2012-04-03")
        self.compactor("--verify")
        kept, days = [], {}
        for line in before:
            key, _, value = line.partition(b",")
            if not key.startswith(b"c.u|") or key.rpartition(b".")[2] >= hour(4, 3, 0):
                kept.append(line)
                continue
            sums = days.setdefault(key[:-1], {})
            for sub, n in (pair.split(b":") for pair in value.split(b" ")):
                sums[sub] = sums.get(sub, 0) + int(n)
        kept += [day + b"," + b" ".join(b"%s:%d" % pair for pair in sorted(sums.items())) for day, sums in days.items()]
        self.assertEqual(self.export(), text_of(sorted(kept)))
        other = self.path("other")
        exported = self.write("days", self.export())
        self.assertIn("add --drop-hours-before",
                      self.compactor("--import", exported, archive=other, expect=1).stderr.decode())
        self.compactor("--import", exported, "--drop-hours-before=2012-04-03", "--shards=2", archive=other)
        self.assertEqual(self.files(other), self.files())
        self.compactor("--import", self.write("late", b"c.u|user1.c311,JP:7\n"))  # an hour that is folded into its day
        self.compactor("--verify")
        self.assertNotIn(b"c.u|user1.c311,", self.export())


class Removals(Changes):
    def test_drop_before(self):
        self.imported()
        self.compactor("--drop-before=2012-04-02", "--ns=c.u")
        kept = {key: subs for key, subs in self.counts.subs.items() if key.rpartition(b".")[2] >= hour(4, 2, 0)}
        self.counts.subs = kept
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        self.compactor("--drop-before=2012-04-02", "--ns=h", expect=64)
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        self.compactor("--drop-before=2012-05-02", "--ns=u")
        self.counts.subs = {k: v for k, v in kept.items() if k.rpartition(b".")[2] >= hour(5, 2, 0)}
        for key, hours in list(self.counts.totals.items()):
            self.counts.totals[key] = {h: n for h, n in hours.items() if h >= hour(5, 2, 0)}
            if not self.counts.totals[key]:
                del self.counts.totals[key]
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        for date in ("2012-02-30", "yesterday", "1999-01-01", "2012-1-1", "2012-01-01x"):
            self.assertIn("expected a day", self.compactor("--drop-before=" + date, expect=64).stderr.decode())

    def without(self, key, ns=None):
        """Removes the key's records, and the lookups that no other record uses."""
        key = key if key.endswith(b"=") else stored(key)
        if ns in (None, b"u"):
            self.counts.totals.pop(b"u|" + key, None)
        self.counts.subs = {k: v for k, v in self.counts.subs.items() if not k.startswith(b"c.u|" + key + b".")}
        used = {k.partition(b"|")[2] for k in self.counts.totals}
        used |= {k.partition(b"|")[2].rpartition(b".")[0] for k in self.counts.subs}
        used |= {name for subs in self.counts.subs.values() for name in subs}
        self.counts.lookups = {h: t for h, t in self.counts.lookups.items() if h in used}

    def test_forget(self):
        self.counts.add(b"http://example.org/secret", b"a secret country", hour(3, 1, 1))
        self.counts.add(b"http://example.org/secret", b"a long country", hour(3, 1, 1))
        self.counts.add(b"user2", b"user1", hour(3, 1, 1))
        self.imported("--shards=3")
        self.compactor("--import", self.write("more", b"u|user1,c413:1\n"))
        self.counts.add(b"user1", b"US", hour(3, 1, 1), 0)
        self.counts.totals[b"u|user1"][b"c413"] += 1
        self.counts.subs = {k: +v for k, v in self.counts.subs.items() if +v}
        self.counts.totals[b"u|user1"] = +self.counts.totals[b"u|user1"]
        self.assertEqual(self.export(), text_of(self.counts.lines()))
        for key, ns in ((b"http://example.org/secret", None), (b"user1", b"u"), (stored(b"http://example.org/user7"), None)):
            self.without(key, ns)
            done = self.compactor("--forget=%s%s" % ("u|" if ns else "", key.decode()))
            self.assertEqual(self.export(), text_of(self.counts.lines()))
            self.assertEqual(len(self.generations()), 1)
            self.assertEqual("as a sub key of other keys; --forget-sub" in done.stderr.decode(), key == b"user1")
        for name, data in self.files().items():
            self.assertNotIn(b"secret", data, name)

    def test_an_unknown_namespace(self):
        """Refused: nothing is removed, and the older generations stay."""
        self.imported()
        self.compactor("--import", self.write("more", b"u|user1,c413:1\n"))
        before = self.generations()
        self.assertEqual(len(before), 2)
        for args in (["--forget=users|user1"], ["--forget-sub=c.users|US"], ["--drop-before=2012-03-02", "--ns=users"],
                     ["--forget=d.u|user1"]):
            done = self.compactor(*args, expect=64)
            self.assertRegex(done.stderr.decode(), r"the archive has no (namespace|subtotal or unique counter) (c\.|d\.)?u")
            self.assertEqual(self.generations(), before)

    def test_an_unknown_key(self):
        """Nothing is removed, and the older generations stay, unless an interrupted removal has left the key in one of them."""
        self.counts.add(b"gone", b"a gone country", hour(3, 1, 1))
        self.imported()
        self.compactor("--import", self.write("more", b"u|user1,c413:1\n"))
        before = self.generations(), self.files()
        for args in (["--forget=nobody"], ["--forget=u|nobody"], ["--forget-sub=c.u|XX"], ["--forget-sub=c.u|a country of long ago"]):
            self.assertIn("no generation has the key; nothing was changed records=0", self.compactor(*args).stderr.decode())
            self.assertEqual((self.generations(), self.files()), before)
        for args in (["--forget=u|gone"], ["--forget-sub=c.u|US"]):
            older = self.path("older")
            shutil.copytree(os.path.join(self.archive, self.generations()[-1]), older)
            self.compactor(*args)
            os.rename(older, os.path.join(self.archive, "%012d" % (int(self.generations()[0]) - 1)))
            self.rename_in_manifest()
            self.assertEqual(len(self.generations()), 2)
            self.assertIn("records=0", self.compactor(*args).stderr.decode())
            self.assertEqual(len(self.generations()), 1)

    def rename_in_manifest(self):
        """The oldest generation has the number of its directory."""
        path = os.path.join(self.archive, self.generations()[0], "manifest.json")
        with open(path) as f:
            m = json.load(f)
        m["generation"] = int(self.generations()[0])
        with open(path, "w") as f:
            json.dump(m, f)

    def test_forget_in_slices(self):
        aggregator = Aggregator(self)
        args = "--aggregator-url=" + aggregator.url, "--slices=" + aggregator.dir
        self.imported(*args)
        aggregator.counts = {b"u|user1,c413": 7, b"u|user2,c413": 1}
        done = self.compactor("--forget=u|user1", *args)
        self.assertIn("through=1", done.stderr.decode())
        self.without(b"user1")
        self.counts.totals[b"u|user2"][b"c413"] += 1
        self.assertEqual(self.export(), text_of(self.counts.lines()))


    def move(self, sub):
        """Moves the counts of a country to (other). Returns the number of records."""
        sub = sub if sub.endswith(b"=") else stored(sub)
        records = [subs for subs in self.counts.subs.values() if sub in subs]
        for subs in records:
            subs[b"(other)"] += subs.pop(sub)
        users = {key.partition(b"|")[2] for key in self.counts.totals}
        if sub not in users:
            self.counts.lookups.pop(sub, None)
        return len(records)

    def breakdown(self, **params):
        """The countries of user1 on 1 March, as an API answers them from the archive."""
        config = self.write("api.conf", harness.sample_counters())
        api = self.start("api", "--config", config, "--aggregator-url", test_api.Source(self).url, "--archive", self.archive)
        wait_until(lambda: "reading the archive" in api.log, lambda: api.log)
        day = 1330560000
        reply = api.get("/v1/breakdown?" + harness.query(user="user1", by="country", from_=day, to=day + 86400)).json()
        api.stop()
        return {r["key"]: r["n"] for r in reply["rows"]}, reply["total"]

    def test_forget_sub(self):
        for h, country, n in ((1, b"US", 3), (1, b"JP", 2), (2, b"JP", 4), (3, b"a secret country", 7), (3, b"!a", 1)):
            self.counts.add(b"user1", country, hour(3, 1, h), n)
        self.counts.add(b"a long country", b"JP", hour(3, 1, 1))  # the text is a key, too
        self.imported("--shards=3")
        self.compactor("--verify")
        rows, total = self.breakdown()
        self.assertEqual(rows["a secret country"], 7)
        subs = (b"JP", b"a long country", stored(b"a secret country"), b"!a", b"JP", b"never counted")
        for n, sub in enumerate(subs):
            records = self.move(sub)
            log = self.compactor("--forget-sub=c.u|" + sub.decode()).stderr.decode()
            self.assertRegex(log, r"moved the counts of the sub key to \(other\).* records=%d lookups=%d |no generation has the key.* records=%d"
                             % (records, n == 2, records))
            self.assertEqual(self.export(), text_of(self.counts.lines()))
            self.assertEqual(len(self.generations()), 1)
            self.assertNotIn("do not add up", self.compactor("--verify").stderr.decode())
        for name, data in self.files().items():
            self.assertNotIn(b"secret", data, name)
        self.assertEqual(self.manifest()["change"], "forget")
        rows["(other)"] = sum(rows.pop(key, 0) for key in ("JP", "a long country", "a secret country", "!a"))
        self.assertEqual(self.breakdown(), (rows, total))

    def test_forget_sub_in_slices(self):
        aggregator = Aggregator(self)
        args = "--aggregator-url=" + aggregator.url, "--slices=" + aggregator.dir
        self.imported(*args)
        aggregator.counts = {b"u|user1,c413": 7, b"c.u|user1.c413,JP": 5, b"c.u|user1.c413,US": 2}
        self.assertIn("through=1", self.compactor("--forget-sub=c.u|JP", *args).stderr.decode())
        for country, n in ((b"JP", 5), (b"US", 2)):
            self.counts.add(b"user1", country, b"c413", n)
        self.move(b"JP")
        self.assertEqual(self.export(), text_of(self.counts.lines()))

    def test_forget_a_member(self):
        self.compactor("--import", self.write("sets", b"u|user1,c413:4\nv.u|user1.c41,=1 2\nv.u|user1.c42,=2\nv.u|user2.c41,=1\n"))
        log = self.compactor("--forget-sub=v.u|2").stderr.decode()
        self.assertRegex(log, r"removed the member from sets; .* sets=2 lookups=0 ")
        self.assertNotIn("(other)", log)

    def test_a_hash_does_not_name_a_member(self):
        """Sets have another code of the text, so the text would stay in them without a word."""
        text = b"a-member-with-a-long-name"
        name = stored(text)
        self.compactor("--import", self.write("sets", b"lookup|%s,%s\nu|%s,c413:4\nv.u|%s.c41,=1\nv.u|user2.c41,=~%s\n" % (
            name, text, name, name, xxh3(text).encode())))
        before = self.generations(), self.files()
        for option in ("--forget=", "--forget-sub=v.u|"):
            log = self.compactor(option + name.decode(), expect=64).stderr.decode()
            self.assertIn("prints it after lookup|" + name.decode(), log)
        self.assertEqual((self.generations(), self.files()), before)
        self.compactor("--forget=u|" + name.decode())
        self.assertNotIn(b"u|%s," % name, self.export())
        self.compactor("--forget=" + text.decode())
        self.assertNotIn(b"user2", self.export())

    def test_a_sub_key_that_cannot_be_forgotten(self):
        self.imported()
        before = self.generations(), self.files()
        for key, status, why in (("u|JP", 64, "expected the namespace of a subtotal"), ("JP", 64, "such as u.l|jehiah"),
                                 ("c.u|(other)", 64, "(other) cannot be removed"), ("c.x|JP", 64, "has no subtotal or unique counter c.x")):
            log = self.compactor("--forget-sub=" + key, expect=status).stderr.decode()
            self.assertIn(why, log)
            self.assertEqual("--forget-sub" in log, key != "c.x|JP")
        self.assertEqual((self.generations(), self.files()), before)


class Verified(Changes):
    def verify(self, *args, expect=0):
        return self.compactor("--verify", *args, expect=expect).stderr.decode()

    def rewrite(self, shard, lines):
        """Replaces a shard's records, and describes them in the manifest as they are."""
        m = self.manifest()
        name, text = m["files"][shard]["name"], text_of(lines)
        with open(os.path.join(self.archive, "current", name), "wb") as f:
            f.write(text)
        m["files"][shard].update(records=len(lines), bytes=len(text), xxh3=xxh3(text))
        with open(os.path.join(self.archive, "current", "manifest.json"), "w") as f:
            json.dump(m, f)

    def test_a_whole_archive(self):
        self.imported("--shards=3")
        self.assertRegex(self.verify(), r"verified.* generation=1 .*previous=\"?not compared")
        self.compactor("--import", self.write("more", b"u|user1,c413:1\nc.u|user2.c413,US:1\n"))
        self.assertRegex(self.verify(), r"do not add up.* periods=[12] first=\S+")

    def test_the_generation_before_and_its_slices(self):
        aggregator = Aggregator(self)
        aggregator.counts = {b"u|user1,c413": 2, b"c.u|user1.c413,US": 2}
        args = "--aggregator-url=" + aggregator.url, "--slices=" + aggregator.dir
        self.imported()
        self.compactor(*args)
        self.assertRegex(self.verify(*args), "equal with its slices")
        os.unlink(aggregator.file(1))
        self.assertRegex(self.verify(*args), "not compared")
        aggregator.seal(2)
        os.rename(aggregator.file(2), aggregator.file(1))
        self.assertIn("differs from the previous generation", self.verify(*args, expect=1))

    def test_wrong_records(self):
        self.imported("--shards=2")
        shards = [harness.read_file(os.path.join(self.archive, "current", "shard-%d-of-2.csv" % k)).splitlines()
                  for k in (0, 1)]
        good = shards[0]
        rollups = [i for i, line in enumerate(good) if line.startswith(b"c.u|") and
                   len(line.partition(b",")[0].rpartition(b".")[2]) == 3]
        hour_at = rollups[0] + 1
        more = good[hour_at].rpartition(b":")[0] + b":99999"
        for lines, why in ((good[:5] + good[6:4:-1] + good[7:], "out of order"), (sorted(good + shards[1][:1]), "another shard"),
                           (good[:3] + [good[3] + b" x"] + good[4:], "no `:`"), (good[1:] + [b"u|zzzz"], "separator"),
                           (good[:hour_at] + [more] + good[hour_at + 1:], "not the sum"),
                           (good[:rollups[3]] + good[rollups[3] + 1:], "rollup of this period is missing")):
            self.rewrite(0, lines)
            self.assertIn(why, self.verify(expect=1))
        self.rewrite(0, good)
        self.assertIn("verified", self.verify())
        path = os.path.join(self.archive, "current", "shard-1-of-2.csv")
        with open(path, "r+b") as f:
            f.seek(100)
            byte = f.read(1)
            f.seek(100)
            f.write(b"7" if byte != b"7" else b"8")
        self.verify(expect=1)


class Commands(Changes):
    def test_wrong_combinations(self):
        for args, text in ((["--import", "--export", "x"], "cannot be combined"), (["x"], "unexpected argument: x"),
                           (["--export", "x", "y"], "unexpected argument: y"),
                           (["--forget=a", "--drop-before=2012-01-01"], "cannot be combined"),
                           (["--forget=a", "--forget-sub=c.u|a"], "cannot be combined"),
                           (["--ns=u"], "--ns needs --drop-before"), (["--again"], "--again needs --import"),
                           (["--forget=u|a", "--ns=u"], "--ns needs --drop-before"),
                           (["--drop-hours-before=2012-01-01", "--ns=u"], "--ns needs --drop-before"),
                           (["--forget=a", "--keep=5"], "--keep has no effect with --forget"),
                           (["--export", "--shards=2"], "--shards has no effect with --export"),
                           (["--verify", "--memory=8M"], "--memory has no effect with --verify"),
                           (["--init", "--threads=2"], "--threads has no effect with --init"),
                           (["--drop-before=2012-01-01", "--every=1h"], "--every has no effect with --drop-before"),
                           (["--at=05:00"], "--at needs --every")):
            self.assertIn(text, self.compactor(*args, expect=64).stderr.decode())

    def test_an_export_without_a_place(self):
        self.imported()
        self.compactor("--export", "/nowhere/x", expect=66)
        with open("/dev/full", "wb") as full:
            done = subprocess.run([harness.program("compactor"), "--archive=" + self.archive, "--export"], stdout=full,
                                  stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, b"standard output" in done.stderr), (75, True), done)


if __name__ == "__main__":
    harness.main()
