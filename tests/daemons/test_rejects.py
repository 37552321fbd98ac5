"""millrace rejects: what could not be counted is shown, kept within its bounds, and counted once after the configuration is corrected."""
import json
import os
import re

import harness
from rejects_case import RejectsTest
from xxh3 import xxh3

GOOD = b'{"t":1331923247,"l":"a"}\n'


class Rejects(RejectsTest):
    def test_show_and_count(self):
        self.write("log", GOOD + b'{"t":oops\n' + b'{"t":"x"}\n' + b'{"t":1331923247,"l":"\xff"}\n' + b"[]\n" * 3)
        self.count("log")
        shown = self.tool().splitlines()
        self.assertEqual(len(shown), 6)
        self.assertRegex(shown[0], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ log 25 not JSON: .*: \{"t":oops$')
        entries = self.entries()
        self.assertEqual([e["line"] for e in entries][-3:], ["[]"] * 3)
        self.assertEqual(bytes.fromhex(entries[2]["hex"]), b'{"t":1331923247,"l":"\xff"}')
        counts = json.loads(self.tool("--count", "--json"))
        self.assertEqual((counts["total"], counts["reasons"][0]["n"]), (6, 3))
        self.assertRegex(self.tool("--count"), r"(?s)^ +3  not an object\n.* 6  total\n$")

    def test_filters(self):
        self.write("one", b"[]\n" + b"oops\n")
        self.write("two", GOOD + b"[]\n")
        self.count("one", "two")
        self.assertEqual(len(self.entries("--stream=one")), 2)
        self.assertEqual(len(self.entries("--stream=two")), 1)
        self.assertEqual(len(self.entries("--reason=not an object")), 2)
        self.assertEqual(len(self.entries("--reason=not an object", "--stream=one")), 1)
        self.assertEqual(len(self.entries("--since=1d")), 3)
        path = self.path("data", "rejects", "0000000001.ndjson")
        members = re.findall(rb'(?m)^(.*),"xxh3":"\w{16}"}$', re.sub(rb'"time":\d+', b'"time":1331923247', harness.read_file(path)))
        with open(path, "wb") as f:
            f.write(b"".join(b'%s,"xxh3":"%s"}\n' % (m, xxh3(m).encode()) for m in members))
        self.assertEqual(self.entries("--since=1d"), [])

    def test_usage(self):
        self.assertIn("--dry-run needs --put-back", self.tool("--dry-run", expect=64))
        self.assertIn("No such file", self.tool(self.path("absent"), expect=66))
        self.assertIn("does not answer", self.run_program(
            "millrace", "rejects", "--put-back", "--aggregator-url=unix:" + self.path("none")).stderr.decode())

    def test_put_back_counts_each_line_once(self):
        data = self.generate(6000)
        self.reject(data)
        events, skipped, rejected = self.expected(data)[1]
        self.assertEqual(len(self.entries()), events + rejected)
        planned = json.loads(self.tool("--put-back", "--dry-run", "--json"))
        self.assertEqual({r["reason"]: r["n"] for r in planned["reasons"]}["counted"], events)
        a = self.aggregator()
        self.assertEqual(self.put_back(a), {"counted": events, "skipped": 0, "rejected": rejected, "kept": 0})
        self.assertEqual(a.stats()["events"], events)
        self.check_all_counted(data)
        self.assertNotIn("field wrong", self.tool("--count"))
        self.assertEqual(self.put_back(a), {"counted": 0, "skipped": 0, "rejected": rejected, "kept": 0})
        said = self.run_program("millrace", "rejects", "--config", self.good, "--put-back", "--aggregator-url", a.url).stderr.decode()
        self.assertIn("if the configuration was corrected, restart the aggregator (SIGHUP to millrace up), then repeat", said)
        a.stop()
        self.check_all_counted(data)
        self.assertLess(self.rejects_bytes(), len(data) / 10)  # what was put back is deleted

    def test_put_back_by_filter(self):
        one, two = self.generate(2000, 1), self.generate(2000, 2)
        self.reject(one, "one")
        self.reject(two, "two")
        a = self.aggregator()
        first = self.put_back(a, "--stream=one")
        self.assertEqual((first["counted"], first["kept"]), (self.expected(one)[1][0], sum(self.expected(two)[1][::2])))
        self.assertEqual(len(self.entries("--stream=two")), first["kept"])
        a.stop()
        self.assertEqual(self.counted(), self.expected(one)[0])
        a = self.aggregator()
        self.assertEqual(self.put_back(a, "--reason=wrong", "--since=1h")["counted"], self.expected(two)[1][0])
        a.stop()
        self.check_all_counted(one + two)

    def test_unreadable_rejects_stay(self):
        data = self.generate(2000)
        self.reject(data)
        a = self.aggregator()
        harness.wait_until(lambda: a.get("/slices").status == 200, a.log)
        entries, directory = len(self.entries()), self.path("data", "rejects")
        os.rename(directory, directory + ".away")
        self.write(os.path.join("data", "rejects"), "not a directory")
        answer = a.post("/putback")
        self.assertEqual((answer.status, answer.json().get("code")), (503, "storage-failed"))
        os.unlink(directory)
        os.rename(directory + ".away", directory)
        self.assertEqual(len(self.entries()), entries)
        self.put_back(a)
        a.stop()
        self.check_all_counted(data)

    def test_a_truncated_line_is_kept(self):
        self.write("log", b'{"t":1331923247,"l":"' + b"x" * 200 + b'"}\n' + GOOD)
        self.count("log", options=["--max-line=100"])
        a = self.aggregator()
        self.assertEqual(self.put_back(a), {"counted": 0, "skipped": 0, "rejected": 0, "kept": 1})
        self.assertEqual(len(self.entries()), 1)

    def test_put_back_across_a_seal(self):
        data = self.generate(5000)
        self.reject(data)
        a = self.aggregator()
        harness.wait_until(lambda: a.get("/slices").status == 200, a.log)
        self.put_back(a, "--stream=absent")
        a.stop()
        self.config = self.bad  # seals the open slice
        self.write("empty", b"")
        self.count("empty", options=["--rejects-max-bytes=%d" % (1 << 30)])
        self.config = self.good
        a = self.aggregator()
        self.put_back(a)
        a.stop()
        self.check_all_counted(data)

    def test_only_an_operator(self):
        self.reject(GOOD)
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        a = self.aggregator("--auth-token-file=" + token)
        harness.wait_until(lambda: a.get("/slices", headers={"Authorization": "Bearer secret"}).status == 200, a.log)
        self.assertEqual(a.post("/putback").status, 401)
        done = self.tool("--put-back", "--aggregator-url", a.url, "--aggregator-token-file", token)
        self.assertIn("counted 1,", done)

    def test_a_damaged_entry_is_named_and_not_counted(self):
        """A byte of a line flips, so that it would be counted as another: only that line is skipped."""
        self.reject(b"".join(b'{"t":1331923247,"l":"user%d"}\n' % i for i in range(10)))
        path = self.path("data", "rejects", "0000000001.ndjson")
        text = harness.read_file(path)
        begin = text.index(b"user3") - text[:text.index(b"user3")][::-1].index(b"\n")
        harness.flip(path, text.index(b"user3"))
        named = "%s: the entry at byte %d is damaged" % (path, begin)
        for options in ([], ["--json"], ["--count"], ["--put-back", "--dry-run"]):
            done = self.run_program("millrace", "rejects", "--config", self.good, *options)
            self.assertEqual((done.returncode, done.stderr.decode().count("damaged")), (65, 1))
            self.assertIn(named, done.stderr.decode())
            self.assertNotIn("qser3", done.stdout.decode())
        a = self.aggregator()
        self.assertEqual(self.put_back(a, expect=65), {"counted": 9, "skipped": 0, "rejected": 0, "kept": 1})
        self.assertIn("a rejected line is damaged and not counted path=%s offset=%d" % (path, begin), a.log)
        self.assertEqual(self.put_back(a, expect=65)["kept"], 1)
        a.stop()
        self.assertEqual(sorted(re.findall(rb"u\|(\w+),", self.counted())), [b"user%d" % i for i in range(10) if i != 3])

    def test_a_size_below_the_minimum_is_refused(self):
        self.write("log", GOOD)
        for size in ("1", "1048575"):
            said = self.count("log", options=["--rejects-max-bytes=" + size], expect=78)
            self.assertIn("less than 1M", said)
        for size in ("0", "1M"):
            self.count("log", options=["--rejects-max-bytes=" + size])

    def test_size_and_age_bound_the_files(self):
        self.write("log", b"oops\n" * 30000)
        self.count("log", options=["--rejects-max-bytes=1M", "--flush-interval=10ms", "--max-memory=32M"])
        self.assertGreater(len(os.listdir(self.path("data", "rejects"))), 1)
        entries = self.entries()
        self.assertEqual(int(entries[-1]["offset"]), 5 * 29999)  # the newest are kept
        self.assertLess(len(entries), 30000)
        for name in os.listdir(self.path("data", "rejects")):
            os.utime(self.path("data", "rejects", name), (1, 1))
        self.write("more", b"more\n")
        said = self.count("more")
        self.assertIn("deleted expired rejects", said)
        self.assertEqual(len(os.listdir(self.path("data", "rejects"))), 1)  # the one that is written


if __name__ == "__main__":
    harness.main()
