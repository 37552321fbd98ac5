"""millrace put, query and status against real daemons."""
import glob
import json
import os
import re
import subprocess
import threading

import harness


class PutTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir", self.path("queue"))

    def put(self, *args, **kw):
        return self.run_program("millrace", "put", "--queue-url", self.queue.url, *args, **kw)

    def stored(self):
        return self.queue.get("/mget?items=100").body

    def test_lines_are_posted_as_they_are(self):
        name = self.write("in", b'a\r\n\n\r\nb "\x00\xff\nlast')
        done = self.put(name, "--batch", "1")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored().rstrip(b"\n"), b'a\nb "\x00\xff\nlast')
        self.assertIn(b"3 events posted", done.stderr)

    def test_a_byte_order_mark_is_no_part_of_a_line(self):
        names = [self.write(name, b'\xef\xbb\xbf{"a":"%s"}\n{}\n' % name.encode()) for name in ("a", "b")]
        names += [self.write("empty", b"\xef\xbb\xbf"), self.write("short", b"\xef\xbb")]
        for n in range(2):
            done = self.put("--producer=p", *names)
            self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored().rstrip(b"\n"), b'{"a":"a"}\n{}\n{"a":"b"}\n{}\n\xef\xbb')
        done = self.put("--format=combined", self.write("log", b'\xef\xbb\xbf::1 - - [24/Mar/2012:09:00:00 +0000] "-" 200 1\n'))
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b'"host":"::1"', self.stored())

    def test_one_event_is_no_plural(self):
        self.assertRegex(self.put(input=b"x\n").stderr, rb"^millrace put: 1 event posted, ")
        self.assertRegex(self.put(input=b"").stderr, rb"^millrace put: 0 events posted, ")

    def test_standard_input(self):
        self.assertEqual(self.put(input=b"x\ny\n").returncode, 0)
        self.assertEqual(self.stored().rstrip(b"\n"), b"x\ny")

    def test_with_a_producer_a_put_can_be_repeated_in_other_batches(self):
        lines = b"".join(b"line %d\r\n\n" % i for i in range(20))
        first = self.write("first", lines[:130])  # in the middle of a line
        cut = lines[:130].rfind(b"\n") + 1
        self.write("first", lines[:cut])
        whole = self.write("whole", lines)
        self.assertEqual(self.put("--producer", "p", "--batch", "3", first).returncode, 0)
        for batch in ("100", "7", "1"):
            done = self.put("--producer", "p", "--batch", batch, whole)
            self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored().rstrip(b"\n").split(b"\n"), [b"line %d" % i for i in range(20)])

    def test_it_waits_for_a_queue_that_comes_back(self):
        self.queue.stop()
        port = self.keep_port()
        url = "http://127.0.0.1:" + port
        p = subprocess.Popen([harness.program("millrace"), "put", "--queue-url", url, "--timeout", "1h", "-"],
                             stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        threading.Thread(target=p.communicate, args=(b"late\n",), daemon=True).start()
        again = self.daemon("simplequeue", "--data-dir", self.path("queue"), "--address=127.0.0.1",
                            "--port=" + port, port=False)
        self.assertEqual(p.wait(harness.PATIENCE), 0)
        again.url = url
        self.assertEqual(again.get("/get").body, b"late")

    def test_it_gives_up_and_says_where(self):
        self.queue.stop()
        name = self.write("in", "x\n")
        done = self.put("--timeout", "200ms", name)
        self.assertEqual(done.returncode, 75, done)
        self.assertIn(b"0 events of this run are stored", done.stderr)
        self.assertEqual(self.put(self.path("nowhere")).returncode, 66)

    def test_what_the_queue_refuses_is_no_success(self):
        name = self.write("in", "x\n")
        done = self.put("--queue", "no/name", name)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"400", done.stderr)


class WholeTest(harness.MillraceTest):
    def test_put_wait_and_ask(self):
        os.environ["LC_ALL"] = "C"
        self.addCleanup(os.environ.pop, "LC_ALL")
        config = self.write("test.conf", harness.pipeline_config(self.path("data")))
        harness.Pipeline(self, config, self.path("data")).wait_ready()
        events = "".join('{"t":%d,"l":"%s","c":"US"}\n' % (1332637200 + i, "bitly" if i % 4 else "a, b")
                         for i in range(400))
        put = self.run_program("millrace", "put", "--config", config, self.write("in", events))
        self.assertEqual(put.returncode, 0, put)
        done = self.run_program("millrace", "status", "--config", config, "--wait", "--json")
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(json.loads(done.stdout)["settled"])
        span = ("--from", "1332633600", "--to", "1332720000", "--config", config)
        def series():
            return self.run_program("millrace", "query", "series", "--user", "bitly", "--show-curl", *span).stdout.decode()
        harness.wait_until(lambda: "so far" not in series(), "the day to be complete")
        table = series()
        self.assertRegex(table, r"(?m)^curl 'http://.*user=bitly.*'$")
        self.assertRegex(table, r"(?m)^2012-03-25 +300  #{24}$")
        indian = self.run_program("millrace", "query", "series", "--user=bitly", "--timezone=Asia/Kolkata", "--round=hour", *span)
        self.assertRegex(indian.stdout.decode(), r"(?m)^2012-03-25 +300  #{24}  approximate\n(?s:.*)^approximate: the time zone has part hours")
        answer = self.run_program("millrace", "query", "breakdown", "--feed=all", "--by=user", "--format=json", *span)
        self.assertEqual([(r["key"], r["n"]) for r in json.loads(answer.stdout)["rows"]],
                         [("bitly", 300), ("a, b", 100)])
        table = self.run_program("millrace", "query", "compare", "--user", "bitly", *span).stdout.decode()
        self.assertRegex(table, r"(?m)^total +\d+ +0$")
        table = self.run_program("millrace", "query", "compare", "--user=bitly", "--period=2d", "--config", config).stdout.decode()
        self.assertRegex(table, r"^[-0-9]{10} +0 +0\n[-0-9]{10} +0 +0  so far\ntotal +0 +0  so far\n")
        table = self.run_program("millrace", "query", "top", "--counter=user", *span).stdout.decode()
        self.assertRegex(table, r"(?m)^ +\d+ +[\d.]+ %  #+ +bitly$")
        table = self.run_program("millrace", "query", "top", "--counter=user", "--compare", "--limit=1", *span).stdout.decode()
        self.assertRegex(table, r"^ +300 +75.00 %  +0 +-  bitly\n +100 +25.00 % +others\n +400 +0 +-  total\nmore rows follow: --after 300-6269746c79\n$")
        table = self.run_program("millrace", "query", "top", "--compare", "--counter=user", "--after=300-6269746c79", "--period=24h", "--config", config).stdout.decode()
        self.assertRegex(table, r"^ +0 +0 +-  total  so far\n$")
        lines = self.run_program("millrace", "query", "counters", "--config", config).stdout.decode()
        self.assertIn("user (u) by country, referrer, link", lines)
        rows = self.run_program("millrace", "query", "counters", "--format=csv", "--config", config).stdout.decode().splitlines()
        self.assertEqual(rows[0], "ns,counter,by")
        self.assertIn("u,user,", rows)
        self.assertIn("c.u,user,country", rows)
        fresh = self.run_program("millrace", "query", "freshness", "--config", config).stdout.decode()
        self.assertRegex(fresh, r"(?s)^newest event +\d+ s ago\ncomplete until +\d+ s ago\n.*\nstream clicks\nnewest event .*not counted yet +0 bytes\n")
        largest = self.run_program("millrace", "query", "series", "--feed=all", "--by=user", "--top=1", "--partial=allow", *span).stdout.decode()
        self.assertRegex(largest, r"(?m)^ +300 .*  bitly\n +100 .*  others\n +400  total$")
        os.environ["LC_ALL"] = "C.UTF-8"
        several = self.run_program("millrace", "query", "series", "--user=bitly", "--user=a, b", "--unit=hour", *span).stdout.decode()
        os.environ["LC_ALL"] = "C"
        self.assertRegex(several, r"(?m)^ +300  +█ +  bitly$")
        self.assertRegex(several, r"(?m)^ +100  +█ +  a, b$")
        self.assertRegex(several, r"(?m)^ +400  total$")
        mistyped = self.run_program("millrace", "query", "seris", *span)
        self.assertEqual((mistyped.returncode, mistyped.stderr),
                         (64, b'millrace query: no question "seris"; did you mean "millrace query series"?\n'))
        self.check_many_rows(config)
        wrong = self.run_program("millrace", "query", "series", "--usr", "bitly", *span)
        self.assertEqual(wrong.returncode, 64)
        self.assertIn(b"did you mean user", wrong.stderr)
        uncounted = self.run_program("millrace", "query", "top", "--counter", "domain", *span)
        self.assertIn(b"\nadd to the configuration:\n[subtotal d.all]\nkey = host(u)\n", uncounted.stderr)
        bare = self.run_program("millrace", "query", "series", "--user")
        self.assertEqual((bare.returncode, b"every option is --NAME VALUE" in bare.stderr), (64, True))
        cut = ("query", "series", "--user=bitly", "--unit=hour", "--from=2012-03-25T01:00:00Z", "--to=2012-03-25T01:20:00Z", "--config", config)
        refused = self.run_program("millrace", *cut)
        self.assertEqual((refused.returncode, refused.stdout), (64, b""))
        self.assertEqual(refused.stderr, b"millrace query: 400: to: 2012-03-25T01:20:00Z is within a counted hour (whole hours outward, as with "
                         b"bounds=outward: from=2012-03-25T01:00:00Z&to=2012-03-25T02:00:00Z; inward: no whole hour); add --bounds outward\n")
        outward = self.run_program("millrace", *cut, "--bounds", "outward").stdout.decode()
        self.assertRegex(outward, r"(?m)^total +300\nbounds: moved outward to 2012-03-25T01:00:00Z and 2012-03-25T02:00:00Z$")
        self.check_unknown_keys(span, config)
        self.check_usage(config)

    def check_unknown_keys(self, span, config):
        """Standard error names a key that was never counted, and one that is written nearly alike. The answer is the same."""
        for args, said in ((("breakdown", "--user=bitlyy", "--by=country"), b"no event has the user bitlyy (did you mean bitly?)"),
                           (("series", "--user=Bitl"), b"no event has the user Bitl (did you mean bitly?)"),
                           (("compare", "--user=zz\x1b[2J"), b"no event has the user zz\\x1b[2J")):
            done = self.run_program("millrace", "query", *args, *span)
            self.assertEqual((done.returncode, done.stderr), (0, b"millrace query: " + said + b"\n"), done)
            as_json = self.run_program("millrace", "query", *args, *span, "--format=json")
            self.assertEqual((as_json.returncode, as_json.stderr, json.loads(as_json.stdout)["total"]), (0, b"", 0))
        for args in (("--user=bitly", "--period=24h", "--config", config), ("--user=a, b", *span), ("--user=" + 100 * "x", *span)):
            self.assertEqual(self.run_program("millrace", "query", "series", *args).stderr, b"")

    def check_usage(self, config):
        """Options may stand before the question, as with every other subcommand; an error names the word."""
        after = self.run_program("millrace", "query", "counters", "--format", "json", "--config", config)
        before = self.run_program("millrace", "query", "--config=" + config, "--format", "json", "counters")
        self.assertEqual((before.returncode, before.stdout), (0, after.stdout), before)
        for args in ("-c", config, "counters"), ("counters", "-c", config):
            self.assertEqual(self.run_program("millrace", "query", *args, "--format", "json").stdout, after.stdout)
        curl = self.run_program("millrace", "query", "--show-curl", "--config", config, "counters").stdout
        self.assertTrue(curl.startswith(b"curl 'http://"), curl)
        for args, error in ((("--config", config, "seris"), b'no question "seris"; did you mean "millrace query series"?'),
                            (("nonsense", "--user=x"), b'no question "nonsense"; see millrace query --help'),
                            (("--user", "bitly"), b"no question; see millrace query --help"),
                            (("counters", "--format=yaml"), b"--format yaml: it must be table, json or csv"),
                            (("series", "--user=bitly", "extra"), b'"extra": every option is --NAME VALUE; see millrace query --help')):
            done = self.run_program("millrace", "query", *args)
            self.assertEqual((done.returncode, done.stderr), (64, b"millrace query: " + error + b"\n"))

    def check_many_rows(self, config):
        done = self.run_program("millrace", "query", "series", "--user=bitly", "--unit=hour", "--from=2010-01-01",
                                "--to=2021-05-01", "--config", config)
        self.assertEqual(done.stdout.count(b"\n"), 99312 + 1)

    def test_nothing_runs(self):
        config = self.write("test.conf", "".join("[%s]\nport = %s\n" % (d, self.keep_port()) for d in
                                                 ("simplequeue", "pubsub", "aggregator", "api")))
        done = self.run_program("millrace", "status", "--config", config)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"unreachable", done.stdout)
        done = self.run_program("millrace", "query", "counters", "--config", config)
        self.assertEqual(done.returncode, 75, done)

    def test_a_directory_that_is_no_pipelines(self):
        """A mistyped directory must not fall back on the default ports, where another pipeline may listen."""
        for tool in ("status", "put", "compact"):
            done = self.run_program("millrace", tool, "--data-dir", self.path("typo"), stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 78, done)
            self.assertIn(self.path("typo").encode(), done.stderr)

    def test_checking_does_nothing(self):
        done = self.run_program("millrace", "put", "--check-config", "--queue-url=http://127.0.0.1:1", input=b"{}\n")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"queue_url = http://127.0.0.1:1", done.stdout)


class DispatchTest(harness.MillraceTest):
    def test_names(self):
        self.assertEqual(self.run_program("millrace").returncode, 64)
        self.assertEqual(self.run_program("millrace", "no-such-thing").returncode, 64)
        mistyped = self.run_program("millrace", "statsu")
        self.assertEqual(mistyped.returncode, 64)
        self.assertIn(b'did you mean "millrace status"?', mistyped.stderr)
        self.assertIn(b'"millrace pubsub"?', self.run_program("millrace", "pubsbu").stderr)
        self.assertEqual(self.run_program("millrace", "../../bin/sh").returncode, 64)
        self.assertIn(b"status", self.run_program("millrace", "help").stdout)
        self.assertRegex(self.run_program("millrace", "--version").stdout, rb"^millrace \d")
        self.assertIn(b"--batch", self.run_program("millrace", "help", "put").stdout)
        self.assertEqual(self.run_program("millrace", "gen", "--events=5").stdout, self.run_program("clickgen", "--events=5").stdout)
        for name in ("simplequeue", "query", "up"):
            self.assertEqual(self.run_program("millrace", name, "--version").returncode, 0)
            self.assertIn(b"usage: millrace " + name.encode(), self.run_program("millrace", name, "--help").stdout)

    def test_topics(self):
        listed = self.run_program("millrace", "help").stdout.decode()
        topics = re.findall(r"(?m)^  ([\w-]+) ", listed[listed.index("Topics"):])
        guides, printed = glob.glob(os.path.join(harness.ROOT, "docs", "guide", "*.md")), set()
        for topic in topics:
            done = self.run_program("millrace", "help", topic)
            printed.add(done.stdout)
            self.assertEqual((done.returncode, done.stdout[:2]), (0, b"# "), done)
            self.assertEqual(listed.count("\n  %s " % topic), 1, "no subcommand has this name")
        self.assertEqual([guide for guide in guides if harness.read_file(guide) not in printed], [], "each guide has a topic")
        for name, meant in (("streems", b'"millrace help streams"'), ("querys", b'"millrace help query" or "millrace help queries"'),
                            ("querie", b'"millrace help queries" or "millrace help query"'), ("pubsup", b'"millrace help pubsub"')):
            mistyped = self.run_program("millrace", "help", name)
            self.assertEqual((mistyped.returncode, mistyped.stderr),
                             (64, b'millrace: no subcommand, program or topic "%s"; did you mean %s?\n' % (name.encode(), meant)))

    def test_bench(self):
        done = self.run_program("millrace", "bench", "--events=3000", "--requests=100", "--dir=" + self.dir)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"^put +\d+ events/s  \(3000 in .*\ncounted +\d+ events/s  .*\ncompacted +\d+ events/s  "
                         r".*\nqueries +\d+ requests/s  \(100 in .*\n$")
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("millrace-bench")], [])
        self.assertEqual(self.run_program("millrace", "bench", "--event=5").returncode, 64)


if __name__ == "__main__":
    harness.main()
