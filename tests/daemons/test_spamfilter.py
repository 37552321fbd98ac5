"""spamfilter: marks, exceptions and lines beside a model, also through kills, and the answers to bad requests."""
# full: MILLRACE_ROUNDS=12
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import threading

from harness import UNREACHABLE, MillraceTest, main, query, rounds, seeded, wait_until
from small_disk import Ext4Disk, SmallDisk

LINES = "application/x-ndjson"


def parents(url):
    """The texts that a check of such a URL asks, the most specific first."""
    path, question, text = url.partition("?")
    host, _, path = path.partition("/")
    segments = [s for s in path.split("/") if s]
    labels = host.split(".")
    return [url] * bool(question) + [host + "".join("/" + s for s in segments[:n]) for n in range(len(segments), -1, -1)] + \
        [".".join(labels[n:]) for n in range(1, len(labels) - 1)]


def synced(directory):
    """The number of the last update that the files have."""
    with open(os.path.join(directory, "marks"), "rb") as f:
        return int.from_bytes(f.read(32)[24:], "little")


class SpamfilterTest(MillraceTest):
    def serve(self, *args, **kw):
        return self.start("spamfilter", "--data-dir=marks", *args, **kw)

    def lines(self, daemon, target, *lines):
        reply = daemon.post(target, "\n".join(lines))
        self.assertEqual((reply.status, reply.header("Content-Type")), (200, LINES), reply)
        return [json.loads(line) for line in reply.text.splitlines()]

    def check(self, daemon, url):
        reply = daemon.get("/check?" + query(url=url))
        self.assertEqual(reply.status, 200, reply)
        return reply.json()


class TestOneUrl(SpamfilterTest):
    def test_a_mark_applies_to_all_below_it(self):
        d = self.serve()
        added = d.post("/add?" + query(url="http://Bad.Example/")).json()
        self.assertEqual((added["result"], added["url"]), ("added", "bad.example"))
        d.post("/add?" + query(url="good.example/a/b/", id=7))
        d.post("/add?" + query(url="good.example/?q=1"))
        for url, match in (("https://bad.example:8443/x", "bad.example"), ("www.bad.example", "bad.example"),
                           ("good.example/a/b/c?d", "good.example/a/b"), ("GOOD.example/a/%62", "good.example/a/b"),
                           ("good.example?q=1", "good.example/?q=1")):
            answer = self.check(d, url)
            self.assertEqual((answer["marked"], answer["match"], answer["exact"]), (True, match, True), url)
        self.assertEqual(self.check(d, "good.example/a/b")["id"], 7)
        for url in ("notbad.example", "example", "good.example/a/bb", "good.example/a", "good.example/?q=2", "good.example"):
            self.assertEqual(self.check(d, url), {"marked": False}, url)

    def test_the_most_specific_of_marks_and_exceptions_decides(self):
        d = self.serve()
        self.lines(d, "/add", "bad.example", "ok.bad.example/x", "both.example")
        self.assertEqual(self.lines(d, "/allow", "ok.bad.example", "both.example"),
                         [{"result": "allowed", "url": "ok.bad.example"}, {"result": "allowed", "url": "both.example"}])
        self.assertEqual(self.check(d, "a.ok.bad.example/y"), {"marked": False, "allowed": "ok.bad.example"})
        self.assertEqual(self.check(d, "ok.bad.example/x/y")["match"], "ok.bad.example/x")
        self.assertEqual(self.check(d, "both.example"), {"marked": False, "allowed": "both.example"})
        self.assertEqual(self.check(d, "bad.example")["match"], "bad.example")
        self.assertEqual(d.get("/allowed").text, "ok.bad.example\nboth.example\n")
        self.assertEqual(d.post("/allow?url=both.example").json()["result"], "repeated")
        for status, code in ((200, None), (404, "absent")):
            reply = d.post("/disallow?url=both.example")
            self.assertEqual((reply.status, reply.json().get("code")), (status, code))
        self.assertEqual(self.check(d, "both.example")["match"], "both.example")

    def test_a_removal_needs_the_id_of_its_add(self):
        d = self.serve()
        d.post("/add?url=a.example&id=5")
        self.assertEqual(d.post("/add?url=a.example&id=5").json()["result"], "repeated")
        self.assertEqual(d.post("/remove?url=b.example&id=5").status, 404)
        self.assertEqual(d.post("/remove?url=b.example").json()["code"], "id-required")
        self.assertTrue(self.check(d, "a.example")["marked"])
        self.assertEqual(d.post("/remove?url=a.example").json(), {"result": "removed", "url": "a.example", "id": 5})
        self.assertEqual(self.check(d, "a.example"), {"marked": False})
        self.assertEqual(d.post("/remove?url=a.example&id=5").status, 404)
        self.assertEqual(d.stats()["elements"], 0)

    def test_ids_without_id_rise(self):
        d = self.serve()
        d.post("/add?url=future.example&id=4503599627370496")
        ids = [line["id"] for line in self.lines(d, "/add", *("a%d.example" % i for i in range(50)))]
        self.assertEqual(ids, sorted(set(ids)))
        self.assertGreater(ids[0], 4503599627370496)

    def test_an_add_with_the_id_of_a_full_layer_is_refused(self):
        d = self.serve("--capacity=10")
        answers = self.lines(d, "/add", *("a%d.example\t1" % i for i in range(30)))
        self.assertEqual([a.get("result", a.get("code")) for a in answers], ["added"] * 10 + ["layer-full"] * 20)
        self.assertEqual(d.post("/add?url=a20.example&id=2").json()["result"], "added")
        self.assertEqual(d.post("/add?url=a21.example&id=1").status, 409)
        self.assertEqual(d.stats()["elements"], 11)

    def test_bad_requests(self):
        d = self.serve()
        for target, status, code in (("/check?url=ftp://a", 400, "bad-url"), ("/check", 400, "missing-url"),
                                     ("/check?url=", 400, "bad-url"), ("/add?url=a.example&id=0", 400, "bad-parameter"),
                                     ("/add?url=a.example&id=4503599627370497", 400, "bad-parameter"),
                                     ("/add?url=http://%20", 400, "bad-url"), ("/add", 400, "missing-url")):
            reply = d.post(target)
            self.assertEqual((reply.status, reply.json()["code"]), (status, code), target)
        self.assertEqual(d.get("/add?url=a.example").status, 405)
        self.assertEqual(d.post("/check?url=a.example", b"b.example").json()["code"], "two-urls")
        for body in (b"a" * (1 << 20 | 1), b"a.example\n" * 10001):
            self.assertEqual(d.post("/add", body).status, 413)
        self.assertEqual(d.stats()["elements"], 0)

    def test_shadow_mode(self):
        d = self.serve("--shadow")
        self.lines(d, "/add", "bad.example\t9")
        self.assertEqual(self.check(d, "bad.example/x"), {"marked": False, "match": "bad.example", "exact": True, "id": 9, "shadow": True})
        self.assertEqual((d.stats()["shadow_total"], d.stats()["marked_total"]), (1, 0))
        self.assertRegex(d.log, "would be marked match=bad.example host=bad.example")

    def test_writes_need_a_token_of_their_own(self):
        self.write("tokens", "door read readtoken123\nstaff write writetoken12\n")
        os.chmod(self.path("tokens"), 0o600)
        d = self.serve("--tokens-file=tokens")
        read, write = ({"Authorization": "Bearer " + t} for t in ("readtoken123", "writetoken12"))
        self.assertEqual(d.post("/add?url=a.example").status, 401)
        self.assertEqual(d.post("/add?url=a.example", headers=read).status, 403)
        self.assertEqual(d.post("/add?url=a.example", headers=write).status, 200)
        self.assertTrue(d.get("/check?url=a.example", headers=read).json()["marked"])

    def test_settings(self):
        for option, said in (("--rate=1", "rate"), ("--rate=x", "rate"), ("--rate=", "rate"), ("--capacity=0", "capacity"),
                             ("--recent=1", "recent")):
            r = self.run_program("spamfilter", "--data-dir=marks", "--check-config", option)
            self.assertIn(r.returncode, (64, 78), r)
            self.assertIn(said.encode(), r.stderr)
        self.assertIn(b"data_dir is missing", self.run_program("spamfilter", "--check-config").stderr)
        path = self.write("c.conf", "[millrace]\ndata_dir = all\n[spamfilter]\nrate = 0.01\n")
        self.assertRegex(self.run_program("spamfilter", "--config", path, "--check-config").stdout.decode(),
                         r"data_dir = all/spamfilter *; \[millrace\]")


class TestLines(SpamfilterTest):
    def test_a_bad_line_has_its_own_error(self):
        d = self.serve()
        answers = self.lines(d, "/add", "a.example\t3", "", "no url", "b.example\tx", "c.example\t0", "d.example\r", "ftp://e", "url=e")
        self.assertEqual([a.get("url", a.get("code")) for a in answers],
                         ["a.example", "bad-url", "bad-url", "bad-id", "bad-id", "d.example", "bad-url", "bad-url"])
        self.assertEqual([a["marked"] if "marked" in a else a["code"] for a in
                          self.lines(d, "/check", "x", "a.example", "", "d.example/x", "b.example")],
                         [False, True, "bad-url", True, False])
        self.assertEqual([a.get("result", a.get("code")) for a in self.lines(d, "/remove", "x.example\t9", "a.example\t3", "d.example", "y.example")],
                         ["absent", "removed", "removed", "id-required"])
        self.assertEqual([a["code"] for a in self.lines(d, "/add", "", "a b")], ["bad-url", "bad-url"])
        self.assertEqual(d.stats()["elements"], 0)


    def test_id_is_the_id_of_lines_without_one(self):
        d = self.serve()
        answers = self.lines(d, "/add?id=5", "a.example", "b.example\t6")
        self.assertEqual([a["id"] for a in answers], [5, 6])

    def test_an_add_without_an_id_is_not_added_twice(self):
        d = self.serve()
        first, again = self.lines(d, "/add", "a.example", "b.example"), self.lines(d, "/add", "a.example", "b.example")
        self.assertEqual([(a["result"], a["id"]) for a in again], [("repeated", a["id"]) for a in first])
        self.assertEqual(d.stats()["elements"], 2)


class TestFiles(SpamfilterTest):
    def test_a_start_decides_as_before(self):
        """Updates that the daemon makes again after a kill have the results of the first time."""
        d = self.serve("--capacity=10", "--sync-every=1h")
        self.lines(d, "/add", *("f%d.example\t%d" % (i, i + 1) for i in range(10)))
        self.lines(d, "/add", "x.example\t20", "x.example\t21", "y.example\t22")
        self.lines(d, "/remove", "x.example\t21", "z.example\t1")
        d.stop()  # syncs
        d = self.serve("--capacity=10", "--sync-every=1h")
        answers = [self.lines(d, target, line)[0] for target, line in (
            ("/remove", "x.example\t21"), ("/add", "y.example\t22"), ("/remove", "z.example\t1"), ("/add", "z.example\t30"),
            ("/add", "z.example\t30"), ("/remove", "y.example\t22"), ("/remove", "y.example\t22"), ("/add", "late.example\t1"))]
        self.assertEqual([a.get("result", a.get("code")) for a in answers],
                         ["absent", "repeated", "absent", "added", "repeated", "removed", "absent", "layer-full"])
        checks = [self.check(d, name + ".example") for name in ("x", "y", "z", "late")]
        self.assertEqual([c["marked"] for c in checks], [True, False, True, False])
        before = d.stats()["elements"]
        d.kill9()
        d = self.serve("--capacity=10", "--sync-every=1h")
        self.assertEqual(([self.check(d, name + ".example") for name in ("x", "y", "z", "late")], d.stats()["elements"]), (checks, before))

    def test_a_removal_without_an_effect_decides_as_before(self):
        d = self.serve("--capacity=10", "--sync-every=2s")
        updates = [("add", "f%d.example" % i, i + 1) for i in range(10)] + \
            [("add", "x.example", 20), ("add", "x.example", 21), ("remove", "x.example", 20), ("remove", "x.example", 1), ("add", "y.example", 30)]
        results = [self.lines(d, "/" + action, "%s\t%d" % (url, number))[0] for action, url, number in updates]
        self.assertEqual([r.get("code") for r in results], [None] * 13 + ["absent", None])
        end = sum(len("%s %d %s\n" % (action, number, url)) for action, url, number in updates)

        wait_until(lambda: synced(self.path("marks")) == end, lambda: d.log)
        self.lines(d, "/remove", "x.example\t20")
        before = self.check(d, "x.example"), d.stats()["elements"]
        d.kill9()
        d = self.serve("--capacity=10")
        self.assertEqual((self.check(d, "x.example"), d.stats()["elements"]), before)

    def test_exceptions_move_the_window_of_the_exact_table(self):
        """An entry that the journal does not have any more decides nothing."""
        options = ("--recent=64K", "--sync-every=20ms")
        d = self.serve(*options)
        self.lines(d, "/add", "x.example\t5")
        for n in range(10):
            self.lines(d, "/allow", *("e%d-%d.example" % (n, i) for i in range(1000)))
        self.assertEqual(d.post("/add?url=x.example&id=5").json()["result"], "added")
        d.kill9()
        self.assertEqual(self.serve(*options).stats()["elements"], 2)

    def refused(self, *text):
        r = self.run_program("spamfilter", "--data-dir=copy", "--port=0")
        self.assertEqual(r.returncode, 78, r)
        for each in text:
            self.assertIn(each.encode(), r.stderr)
        shutil.rmtree(self.path("copy"))

    def test_files_that_do_not_belong_together_are_refused(self):
        d = self.serve("--recent=64K", "--sync-every=10ms")
        os.mkdir(self.path("empty"))  # no copytree: the journal renames its files
        for name in ("marks", "marks.log"):
            shutil.copy(self.path("marks", name), self.path("empty", name))
        journal = self.path("marks", "journals", "marks")
        numbers = itertools.count()
        wait_until(lambda: self.lines(d, "/add", *("m%d-%d.example" % (next(numbers), i) for i in range(500))) and
                   "0000000000000001.seg" not in os.listdir(journal), lambda: os.listdir(journal))
        d.stop()
        for name in ("marks", "journals"):
            shutil.copytree(self.path("marks"), self.path("copy"))
            path = self.path("copy", name)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            self.refused({"marks": "begins after", "journals": "ends before"}[name] + " the last sync", "restore the directory")
        shutil.copytree(self.path("marks"), self.path("copy"))
        for name in ("marks", "marks.log"):  # of an older copy
            shutil.copy(self.path("empty", name), self.path("copy", name))
        self.refused("begins after the last sync")

    def test_no_sync_begins_during_a_backup(self):
        """A backup holds the lock of the files. Updates go on, the files stay as they are, and nothing is lost."""
        d = self.serve("--sync-every=10ms")
        self.lines(d, "/add", "first.example\t1")
        wait_until(lambda: synced(self.path("marks")) > 0, "a sync")
        with open(self.path("marks", "sync.lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            files = self.bytes_of_files()
            for i in range(500):
                self.lines(d, "/add", "m%d.example\t%d" % (i, i + 2))
            d.stop()
            self.assertEqual(self.bytes_of_files(), files)
        d = self.serve("--sync-every=10ms")
        self.assertTrue(all(self.check(d, "m%d.example" % i)["marked"] for i in range(0, 500, 50)))
        self.lines(d, "/add", "last.example\t900")
        wait_until(lambda: self.bytes_of_files() != files, "a sync")

    def bytes_of_files(self):
        content = {}
        for name in ("marks", "marks.log", "exceptions"):
            if os.path.exists(self.path("marks", name)):
                with open(self.path("marks", name), "rb") as f:
                    content[name] = f.read()
        return content

    def test_a_full_disk(self):
        """Updates are refused or wait, checks go on, and all heals with space."""
        disk = SmallDisk(self, "24m")
        d = self.start("spamfilter", "--data-dir=" + disk.path("marks"), "--sync-every=50ms", "--min-free=0", "--capacity=100000")
        self.lines(d, "/add", "a.example\t1")
        disk.take_the_rest()
        refused = wait_until(lambda: next((r for r in [d.post("/add?id=2", "\n".join("b%d.example" % i for i in range(5000)))]
                                           if r.status != 200), None), lambda: d.log)
        self.assertEqual((refused.status, refused.json()["code"]), (503, "storage-full"))
        self.assertTrue(self.check(d, "a.example")["marked"])
        disk.give_back()
        wait_until(lambda: d.post("/add?url=c.example&id=3").status == 200, lambda: d.log)
        d.kill9()
        d = self.start("spamfilter", "--data-dir=" + disk.path("marks"))
        self.assertTrue(self.check(d, "a.example")["marked"] and self.check(d, "c.example")["marked"])

    def test_a_refused_update_takes_no_space(self):
        """Neither the space of a sync nor of a layer is taken in part, so that smaller updates are accepted beside it."""
        disk = Ext4Disk(self, 24 << 20)
        options = "--sync-every=1h", "--min-free=0", "--recent=64K"

        def refuse(d):
            free = disk.free
            reply = d.post("/add", "\n".join("b%d.example\t2" % i for i in range(5000)))
            self.assertEqual((reply.status, reply.json()["code"]), (503, "storage-full"))
            self.assertGreater(disk.free, free // 2)

        refuse(self.start("spamfilter", "--data-dir=" + disk.path("layer"), "--capacity=10000000", *options))
        d = self.start("spamfilter", "--data-dir=" + disk.path("sync"), "--capacity=100000", *options)
        self.lines(d, "/add", "a.example\t1")
        disk.take_the_rest()
        disk.leave(d.stats()["layer_list"][0]["bytes"] // 2)
        refuse(d)
        self.lines(d, "/add", "c.example\t3")

    def test_journal_and_sync_never_fill_the_disk_together(self):
        """Without free space from outside, spamfilter syncs the accepted updates and accepts further ones, also after a kill."""
        disk = SmallDisk(self, "24m")
        options = ("--data-dir=" + disk.path("marks"), "--sync-every=50ms", "--min-free=0", "--capacity=100000", "--recent=64K")
        d = self.start("spamfilter", *options)
        self.lines(d, "/add", *("a%d.example\t1" % i for i in range(1000)))
        self.lines(d, "/allow", "ok.a1.example")
        wait_until(lambda: synced(disk.path("marks")) > 0, lambda: d.log)
        disk.take_the_rest()
        disk.leave(1 << 20)
        numbers = itertools.count()

        def add(lines):
            number = next(numbers)
            return d.post("/add", "\n".join("b%d-%d.example\t2" % (number, i) for i in range(lines))).status
        wait_until(lambda: add(2000) == 503, lambda: d.log)
        for n in range(300):  # 3 MB of updates
            wait_until(lambda: add(100) == 200, lambda: d.log)
            if n == 100:
                d.kill9()
                d = self.start("spamfilter", *options)
        allowed = wait_until(lambda: next((r for r in [d.post("/allow?url=ok.a2.example")] if r.status == 200), None), lambda: d.log)
        self.assertEqual(allowed.json()["result"], "allowed")
        self.assertTrue(self.check(d, "a1.example")["marked"])

    def test_a_full_disk_at_the_border_of_a_layer(self):
        """An add is refused, not lost, if the disk has no room for the next layer. A start then answers checks."""
        disk = SmallDisk(self, "24m")
        options = ("--data-dir=" + disk.path("marks"), "--sync-every=50ms", "--min-free=0", "--capacity=100000", "--recent=64K")
        d = self.start("spamfilter", *options)
        texts = []

        def add(n):
            lines = ["b%d-%d.example" % (n, i) for i in range(5000)]
            reply = d.post("/add", "\n".join(lines))
            texts.extend(lines if reply.status == 200 else [])
            return reply

        for n in range(20):
            wait_until(lambda: add(n).status == 200, lambda: d.log)  # refused while a sync has found no space
            wait_until(lambda: os.path.getsize(disk.path("marks", "reserve")) == 0, lambda: d.log)  # after the sync
            if n == 0:
                disk.take_the_rest()
                disk.leave(d.stats()["layer_list"][0]["bytes"] * 8 // 5 + (256 << 10))  # the second layer takes twice the first
        refused = add(20)
        self.assertEqual((refused.status, refused.json()["code"]), (503, "storage-full"))
        for kills in range(2):
            self.assertTrue(all(a["marked"] for n in range(0, 100000, 5000) for a in self.lines(d, "/check", *texts[n:n + 5000])))
            self.assertEqual(d.stats()["elements"], 100000)
            self.assertEqual(add(20).status, 503)
            d.kill9()
            d = self.start("spamfilter", *options)
        disk.give_back()
        wait_until(lambda: add(20).status == 200, lambda: d.log)
        self.assertEqual(d.stats()["elements"], 105000)


class TestLoad(SpamfilterTest):
    def file(self, name, *lines):
        return self.write(os.path.join("marks", "load", name), "".join(line + "\n" for line in lines))

    def load(self, daemon, name):
        reply = daemon.post("/load?file=" + name)
        self.assertEqual((reply.status, reply.json()), (200, {"result": "started", "file": name}))

    def ended(self, daemon):
        return wait_until(lambda: next((s for s in [daemon.stats()["load"]] if s["state"] != "running"), None), lambda: daemon.log)

    def marked(self, daemon, *urls):
        return [answer["marked"] for answer in self.lines(daemon, "/check", *urls)]

    def test_the_lines_of_a_file_replace_the_marks(self):
        d = self.serve("--sync-every=1h")
        self.assertEqual(d.stats()["load"]["state"], "none")
        self.lines(d, "/add", "old.example\t1", "both.example\t2")
        self.lines(d, "/allow", "ok.new.example")
        self.file("list", "new.example\t5", "both.example", "no url", "", "HTTP://Path.Example/a/../b\t6", "x.example\t0")
        self.load(d, "list")
        load = self.ended(d)
        self.assertEqual((load["state"], load["lines"], load["bad_lines"], load["bytes"]), ("done", 3, 3, load["file_bytes"]), load)
        urls = ("old.example", "both.example", "a.new.example", "ok.new.example", "path.example/b/c")
        for _ in range(2):  # the second time after a kill
            self.assertEqual(self.marked(d, *urls), [False, True, True, False, True])
            self.assertEqual(d.stats()["elements"], 3)
            self.assertEqual(d.post("/remove?url=old.example").json()["code"], "id-required")
            d.kill9()
            d = self.serve("--sync-every=1h")
        self.lines(d, "/remove", "new.example\t5")
        self.lines(d, "/add", "later.example\t9")
        d.kill9()
        d = self.serve()
        self.assertEqual(self.marked(d, "new.example", "later.example", "both.example"), [False, True, True])
        self.assertEqual(d.stats()["elements"], 3)

    def test_a_load_that_is_killed_keeps_the_old_marks(self):
        d = self.serve()
        self.lines(d, "/add", "old.example\t1")
        os.mkfifo(self.path("marks", "load", "pipe"))
        self.load(d, "pipe")
        with open(self.path("marks", "load", "pipe"), "w") as pipe:
            pipe.write("new.example\t5\n" * 100000)
            pipe.flush()
            wait_until(lambda: d.stats()["load"]["lines"] > 1000, d.stats)
            self.assertEqual(d.stats()["load"]["state"], "running")
            second = d.post("/load?file=pipe")
            self.assertEqual((second.status, second.json()["code"]), (409, "loading"))
            self.assertEqual(d.post("/add?url=late.example&id=7").status, 503)
            self.assertEqual(self.marked(d, "old.example", "new.example"), [True, False])
            d.kill9()
        os.unlink(self.path("marks", "load", "pipe"))
        self.file("pipe", "newer.example")
        d = self.serve()
        self.assertEqual(self.marked(d, "old.example", "new.example"), [True, False])
        self.load(d, "pipe")
        self.assertEqual(self.ended(d)["state"], "done")
        self.assertEqual(self.marked(d, "old.example", "new.example", "newer.example"), [False, False, True])

    def test_a_file_without_marks_replaces_nothing(self):
        d = self.serve()
        self.lines(d, "/add", "old.example\t1")
        self.file("empty", "no url")
        self.load(d, "empty")
        load = self.ended(d)
        self.assertEqual((load["state"], load["error"]), ("failed", "the file has no URL"))
        self.assertEqual(self.marked(d, "old.example"), [True])
        self.lines(d, "/add", "more.example\t2")
        for target, status in (("/load?file=none", 404), ("/load?file=..%2Fmarks", 400), ("/load", 400)):
            self.assertEqual(d.post(target).status, status, target)


class Model:
    """Marks as {text: live ids} and exceptions, updated by the lines of a batch whose answer is known."""

    def __init__(self):
        self.marks, self.exceptions, self.last_id = {}, set(), 0

    def batch(self, rng, url):
        """A target and its lines; each text is in it once, so that a repetition of the batch changes nothing."""
        target = rng.choice(["/add", "/add", "/add", "/remove", "/allow", "/disallow"])
        texts = {parents(url())[0] for _ in range(rng.randrange(1, 60))}
        if target == "/remove":
            texts = rng.sample(sorted(self.marks), min(len(self.marks), rng.randrange(1, 40)))
            return target, [(t, rng.choice(sorted(self.marks[t]))) for t in texts]
        if target == "/disallow":
            return target, [(t, 0) for t in rng.sample(sorted(self.exceptions), min(len(self.exceptions), 10))]
        if target == "/allow":
            return target, [(t, 0) for t in sorted(texts)[:3]]
        self.last_id += 100
        return target, [(t, self.last_id + i) for i, t in enumerate(sorted(texts))]

    def update(self, target, lines):
        for text, number in lines:
            if target == "/add":
                self.marks.setdefault(text, set()).add(number)
            elif target == "/remove":
                self.marks[text].discard(number)
                self.marks = {k: v for k, v in self.marks.items() if v} if not self.marks[text] else self.marks
            else:
                (self.exceptions.add if target == "/allow" else self.exceptions.discard)(text)

    def expect(self, url):
        """The member and the text that decide, or None."""
        for text in parents(url):
            if text in self.exceptions:
                return "allowed", text
            if text in self.marks:
                return "match", text
        return None


class TestModel(SpamfilterTest):
    def post(self, daemon, target, lines):
        body = "\n".join("%s\t%d" % line if line[1] else line[0] for line in lines)
        return daemon.post(target, body)

    def compare(self, daemon, model, urls):
        """Every mark and exception decides as in the model. Returns the number of false positives."""
        wrong = 0
        for url, answer in zip(urls, self.lines(daemon, "/check", *urls)):
            expected = model.expect(url)
            got = next(((k, answer[k]) for k in ("match", "allowed") if k in answer), None)
            if got != expected:
                texts = parents(url)
                self.assertEqual((got or [None])[0], "match", (url, expected, answer))
                self.assertFalse(answer["exact"], (url, expected, answer))
                self.assertTrue(expected is None or texts.index(got[1]) < texts.index(expected[1]), (url, expected, answer))
                wrong += 1
        return wrong

    def kill_during(self, daemon, rng, target, lines):
        """Kills the daemon during a request. Returns the reply, or None if there was none."""
        replies = []

        def ask():
            try:
                replies.append(self.post(daemon, target, lines))
            except UNREACHABLE:
                pass
        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(rng.randrange(3)):
            try:
                daemon.get("/ping")
            except UNREACHABLE:
                break
        daemon.kill9()
        thread.join()
        return replies[0] if replies else None

    def test_random_updates_and_kills_equal_a_model(self):
        rng = seeded()
        def url():
            host = "".join(rng.choice(["", "a.", "b.", "c."]) for _ in range(2)) + "h%d.example" % rng.randrange(300)
            path = "".join("/" + rng.choice("pqr") for _ in range(rng.randrange(4)))
            return host + (path or "/") + "?x=%d" % rng.randrange(9) if rng.random() < 0.3 else host + path

        options = ("--capacity=100", "--rate=0.001", "--recent=64K", "--sync-every=50ms")
        daemon, model, wrong, asked = self.serve(*options), Model(), 0, 0
        for _ in range(rounds(1)):
            for _ in range(50):
                target, lines = model.batch(rng, url)
                if not lines:
                    continue
                reply = None
                if rng.random() < 0.12:
                    reply = self.kill_during(daemon, rng, target, lines)
                    daemon = self.serve(*options)
                if not reply or rng.random() < 0.5:  # the second time, no line changes anything
                    reply = self.post(daemon, target, lines)
                self.assertEqual(reply.status, 200, reply)
                model.update(target, lines)
            urls = [url() for _ in range(800)] + sorted(model.marks) + sorted(model.exceptions)
            wrong += self.compare(daemon, model, urls)
            asked += sum(len(parents(u)) for u in urls)
            self.assertEqual(daemon.stats()["elements"], sum(map(len, model.marks.values())))
            self.assertEqual(sorted(daemon.get("/allowed").text.split()), sorted(model.exceptions))
        self.assertGreater(len(daemon.stats()["layer_list"]), 1)
        self.assertLess(wrong, 5 + asked * 0.004)
        self.post(daemon, "/remove", [(text, number) for text, ids in sorted(model.marks.items()) for number in ids])
        self.assertEqual(daemon.stats()["elements"], 0)


if __name__ == "__main__":
    main()
