"""Requests to bitly's sortdb and its Go port, with their answers: what bitly's test.sh asks in its order, the cases of the Go
port's search_test.go over HTTP, and what both servers answer beside hits. docs/guide/sortdb.md lists the differences."""
import string
import time

from harness import main, query, request
from sortdb_case import SortdbTest

Z = "z" * 24
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
RECORDS = [("a", "first record"), ("aa", "another first"), ("b", "third")] + \
          [(c, chr(ord(c) + 1)) for c in string.ascii_lowercase[2:25:2]] + \
          [("prefix.1", "how"), ("prefix.2", "are"), ("prefix.3", "you")] + \
          [("q", "r"), (Z, "almost-sleepy"), (Z + "z", "very-sleepy"), (Z + "zz", "already-asleep")]
LINES = sorted("%s\t%s\n" % r for r in {k: v for k, v in RECORDS}.items())


def lines_of(*keys):
    return "".join(line for line in LINES if line.split("\t")[0] in keys)


class TestOriginals(SortdbTest):
    def serve_records(self, *args):
        return self.serve("".join(LINES).encode(), *args)

    def check(self, daemon, target, status, body):
        r = daemon.get(target)
        self.assertEqual((r.status, r.text), (status, body), target)

    def test_bitlys_test(self):
        daemon = self.serve_records("--allow-exit")
        for key, value in (("a", "first record"), ("b", "third"), ("c", "d"), ("m", "n"), ("o", "p"),
                           (Z, "almost-sleepy"), (Z + "z", "very-sleepy"), (Z + "zz", "already-asleep")):
            self.check(daemon, "/get/?key=" + key, 200, value + "\n")
        self.check(daemon, "/mget?k=a&k=c&k=o", 200, "a\tfirst record\nc\td\no\tp\n")
        self.check(daemon, "/fwmatch?key=prefix.", 200, lines_of("prefix.1", "prefix.2", "prefix.3"))
        self.replace("db", b"a\tnew db\n")
        self.check(daemon, "/reload", 200, "db reloaded\n")
        self.check(daemon, "/get/?key=a", 200, "new db\n")
        self.check(daemon, "/get/?key=b", 404, "")
        daemon.get("/exit")
        self.assertEqual(daemon.process.wait(10), 0)

    def test_the_go_ports_searches(self):
        daemon = self.serve_records()
        for key, value in (("a", "first record"), ("aa", "another first"), ("q", "r"), ("not found", None),
                           (Z + "z", "very-sleepy"), (Z + "zz", "already-asleep")):
            self.check(daemon, "/get?" + query(key=key), *((200, value + "\n") if value else (404, "")))
        sleepy = lines_of(Z, Z + "z", Z + "zz")
        prefixes = lines_of("prefix.1", "prefix.2", "prefix.3")
        for key, body in (("pre", prefixes), ("y", "y\tz\n"), ("zzzzzz", sleepy), (Z + "zzzzzzz", "")):
            self.check(daemon, "/fwmatch?key=" + key, 200 if body else 404, body)
        for start, end, body in (("0", "9", ""), ("0", "c1", lines_of("a", "aa", "b", "c")), ("b", "c1", lines_of("b", "c")),
                                 ("p", "prefix.3", prefixes), ("prefix.11", "prefix.3", lines_of("prefix.2", "prefix.3")),
                                 ("y", Z + "zzzzzzzz", "y\tz\n" + sleepy), ("y", "z", "y\tz\n"), ("y1", Z, lines_of(Z)),
                                 (Z + "zzzzzzz", Z + "zzzzzzzzz", "")):
            self.check(daemon, "/range?start=%s&end=%s" % (start, end), 200 if body else 404, body)
        self.assertEqual(daemon.get("/range?start=c&end=b").status, 400)

    def test_the_go_ports_keys_of_every_byte(self):
        bytes_ = [bytes([i]) for i in range(256) if i not in b"\t\n"]
        daemon = self.serve(b"".join(b + b"\t" + b + b"\n" for b in bytes_))
        for b in bytes_:
            r = daemon.get("/get?" + query(key=b))
            self.assertEqual((r.status, r.body), (200, b + b"\n"), b)

    def test_a_value_may_be_empty(self):
        daemon = self.serve(b"a\t\nb\t")
        self.check(daemon, "/get?key=a", 200, "\n")
        self.check(daemon, "/get?key=b", 200, "\n")

    def test_a_miss_is_empty_unless_a_problem_is_asked_for(self):
        daemon = self.serve_records()
        for target in ("/get?key=none", "/fwmatch?key=none", "/range?start=0&end=1"):
            self.check(daemon, target, 404, "")
            r = request(daemon.url, "GET", target, headers={"Accept": "text/html, Application/Problem+JSON;q=0.5"})
            self.assertEqual((r.status, r.json()["code"]), (404, "not-found"))

    def test_a_form_may_carry_the_parameters(self):
        daemon = self.serve_records()
        for target, form, status, body in (
                ("/get", b"key=a", 200, "first record\n"), ("/get/", b"key=none", 404, ""),
                ("/get?key=b", b"key=a", 200, "first record\n"), ("/mget?k=b", b"key=c&k=a", 200, lines_of("c") + lines_of("a", "b")),
                ("/fwmatch", b"key=prefix.2", 200, lines_of("prefix.2")), ("/fwmatch?limit=1", b"key=prefix", 200, lines_of("prefix.1")),
                ("/range/", b"start=b&end=c", 200, lines_of("b", "c"))):
            r = request(daemon.url, "POST", target, form, headers=FORM)
            self.assertEqual((r.status, r.text), (status, body), (target, form))
        self.assertEqual(request(daemon.url, "POST", "/get", b"key=%", headers=FORM).json()["code"], "bad-parameter")
        self.assertEqual(request(daemon.url, "POST", "/get", b"key=a").json()["code"], "missing-parameter")

    def test_exit_needs_permission(self):
        daemon = self.serve_records()
        self.assertEqual(daemon.get("/exit").status, 403)
        self.assertTrue(daemon.alive())

    def test_stats(self):
        before = int(time.time()) - 1
        daemon = self.serve_records()
        for target in ("/get?key=a", "/get?key=none", "/mget?k=a&k=b&k=none", "/fwmatch?key=a", "/fwmatch?key=none", "/range?start=a&end=b"):
            daemon.get(target)
        s = daemon.stats()
        self.assertEqual([s[n] for n in ("get_requests", "mget_requests", "fwmatch_requests", "range_requests", "total_requests")],
                         [2, 1, 2, 1, 6])
        self.assertEqual([s[n] for n in ("get_hits", "get_misses", "fwmatch_hits", "fwmatch_misses")], [3, 2, 1, 1])
        self.assertEqual(s["db_size"], len("".join(LINES)))
        self.assertTrue(before <= s["db_mtime"] <= time.time(), s["db_mtime"])
        for endpoint in ("get", "mget", "fwmatch", "range"):
            for name in ("95", "99", "average_request"):
                self.assertLess(s["%s_%s" % (endpoint, name)], 10 ** 7)
        text = daemon.get("/stats").text
        for line in ("/get requests: 2", "/get hits: 3", "/get misses: 2", "total requests: 6"):
            self.assertIn("\n" + line + "\n", "\n" + text)
        self.assertTrue(any(line.startswith("/get 95%: ") for line in text.splitlines()))


if __name__ == "__main__":
    main()
