"""sortdb: searches against a model, and the start."""
import socket

from harness import connect, main, query, rounds, seeded
from sortdb_case import ALPHABET, sorted_file, SortdbTest


class TestSearches(SortdbTest):
    def ask_all(self, daemon, records, keys, separator):
        order = sorted(records, key=lambda k: k + separator)
        line = {k: k + separator + records[k] + b"\n" for k in records}
        for key in keys:
            r = daemon.get("/get?" + query(key=key))
            self.assertEqual((r.status, r.body if r.status == 200 else None),
                             (200, records[key] + b"\n") if key in line else (404, None), key)
            matching = b"".join(line[k] for k in order if k.startswith(key))
            r = daemon.get("/fwmatch?" + query(key=key))
            self.assertEqual((r.status, r.body if r.status == 200 else b""),
                             (200 if matching else 404, matching), key)
        for start, end in zip(keys, reversed(keys)):
            expected = b"".join(line[k] for k in order if start + separator <= k + separator <= end + separator)
            r = daemon.get("/range?" + query(start=start, end=end))
            if start + separator > end + separator:
                self.assertEqual(r.status, 400)
            else:
                self.assertEqual((r.status, r.body), (200 if expected else 404, expected), (start, end))
        r = daemon.get("/mget?" + "&".join(query(**{"k" if i % 2 else "key": k}) for i, k in enumerate(keys[:200])))
        self.assertEqual(r.body, b"".join(line[k] for k in keys[:200] if k in line))

    def test_hostile_keys_equal_a_model(self):
        rng = seeded()
        for _ in range(rounds(4)):
            separator = rng.choice([b"\t", b",", b"|"])
            alphabet = [c for c in ALPHABET + [b",", b"\t", b"|"] if c != separator]
            def word(n):
                return b"".join(rng.choice(alphabet) for _ in range(rng.randrange(n)))
            records = {word(5): word(30) + separator * rng.randrange(2) for _ in range(rng.choice([0, 1, 3, 300]))}
            content = sorted_file(records.items(), separator)
            if rng.random() < 0.5:
                content = content[:-1]
            daemon = self.serve(content, "--field-separator=" + separator.decode())
            keys = [word(6) for _ in range(150)] + rng.sample(sorted(records), min(60, len(records)))
            rng.shuffle(keys)
            self.ask_all(daemon, records, keys, separator)
            daemon.stop()

    def test_pages_of_every_size_make_the_whole(self):
        records = [(b"k%d" % i + b"!" * (i % 3), b"v%d" % i) for i in range(60)]
        content = sorted_file(records)
        daemon = self.serve(content)
        for limit in (1, 2, 7, 59, 60, 61):
            self.check_pages(daemon, "/fwmatch?key=k", content, limit)
            self.check_pages(daemon, "/range?start=k&end=l", content, limit)

    def test_lines_of_one_key_are_never_parted(self):
        content = b"a\t1\na\t2\na\t3\nb\t1\nb\t2\n"
        daemon = self.serve(content)
        r = daemon.get("/fwmatch?key=&limit=1")
        self.assertEqual((r.body, r.header("X-Millrace-Next")), (b"a\t1\na\t2\na\t3\n", "b"))
        self.check_pages(daemon, "/fwmatch?key=", content, 1)
        self.assertEqual(daemon.get("/get?key=a").body, b"1\n")

    def test_a_page_without_a_last_newline(self):
        content = b"a\t1\n" + b"b\t" + b"x" * (4096 - 6)
        daemon = self.serve(content)
        self.assertEqual(daemon.get("/get?key=b").body, content[6:] + b"\n")
        self.assertEqual(daemon.get("/fwmatch?key=").body, content + b"\n")
        self.assertEqual(daemon.get("/get?key=c").status, 404)

    def test_one_huge_line(self):
        content = b"a\t1\nb\t" + b"x" * (3 << 20) + b"\nc\t3\n"
        daemon = self.serve(content)
        self.assertEqual(daemon.get("/get?key=b").body, content[6:-4])
        self.assertEqual(daemon.get("/mget?k=c&k=b&k=a").body, b"c\t3\n" + content[4:-4] + b"a\t1\n")
        self.assertEqual(daemon.get("/fwmatch?key=").body, content)
        self.assertEqual(daemon.get("/get?key=c").body, b"3\n")

    def test_long_answers_are_whole_or_cut_by_max_answer(self):
        content = sorted_file([(b"k%07d" % i, b"v" * (i % 90)) for i in range(60000)])
        daemon = self.serve(content)
        r = daemon.get("/fwmatch?key=k")
        self.assertEqual((r.body, r.header("X-Millrace-Next")), (content, None))
        half = connect(daemon.url)
        half.request("GET", "/fwmatch?key=k")
        half.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(half.getresponse().read(), content)
        half.close()
        self.assertEqual(daemon.post("/mget?k=k0000007").body, b"k0000007\t" + b"v" * 7 + b"\n")
        head = connect(daemon.url)
        head.request("HEAD", "/fwmatch?key=k")
        self.assertEqual((head.getresponse().status, head.sock is not None), (200, True))
        head.close()
        daemon.stop()
        daemon = self.serve(content, "--max-answer=100K")
        got, start = b"", ""
        while start is not None:
            r = daemon.get("/fwmatch?key=k&start=" + start)
            self.assertLess(len(r.body), 101 * 1024)
            got += r.body
            start = r.header("X-Millrace-Next")
        self.assertEqual(got, content)

    def test_a_client_that_stops_reading_costs_little(self):
        content = sorted_file([(b"k%07d" % i, b"v" * 900) for i in range(25000)])
        daemon = self.serve(content)
        slow = connect(daemon.url)
        slow.request("GET", "/fwmatch?key=k")
        reply = slow.getresponse()
        got = reply.read(1000)
        daemon.post("/reload")
        self.assertEqual(daemon.get("/get?key=k0000001").status, 200)
        got += reply.read()
        self.assertEqual(got, content)
        self.assertEqual(reply.headers["X-Millrace-Generation"], "1")
        slow.close()

    def test_parameters_are_asked_for(self):
        daemon = self.serve(b"a\t1\n")
        for target in ("/get", "/mget", "/mget?keys=a", "/fwmatch", "/range?start=a", "/range?end=a"):
            self.assertEqual(daemon.get(target).json()["code"], "missing-parameter")
        self.assertEqual(daemon.get("/fwmatch?key=a&limit=0").json()["code"], "bad-parameter")
        self.assertEqual(daemon.get("/range?start=b&end=a").json()["code"], "bad-parameter")

    def test_stats_have_bitlys_names(self):
        daemon = self.serve(b"a\t1\n")
        for target in ("/get?key=a", "/get?key=b", "/mget?k=a&k=b&k=c", "/fwmatch?key=a", "/fwmatch?key=z"):
            daemon.get(target)
        s = daemon.stats()
        self.assertEqual([s[n] for n in ("get_hits", "get_misses", "fwmatch_hits", "fwmatch_misses")], [2, 3, 1, 1])
        self.assertEqual([s[n] for n in ("generation", "through", "shards", "records", "bytes")], [1, 0, 1, 1, 4])
        self.assertIn("millrace_sortdb_served_records 1", daemon.get("/metrics").text)


class TestStart(SortdbTest):
    def test_exactly_one_source(self):
        for args in ([], ["--db-file=x", "--archive=y"], ["--db-file=x", "--field-separator=ab"],
                     ["--archive=x", "--field-separator=tab"]):
            self.assertEqual(self.run_program("sortdb", "--port=0", *args).returncode, 78, args)

    def test_a_bad_file_ends_the_start_with_its_reason(self):
        for name, content, reason in (("unsorted", b"b\t1\na\t1\n", b"line 2 is out of order"),
                                      ("bare", b"a\t1\nb\n", b"line 2 has no field separator"),
                                      ("missing", None, b"No such file")):
            if content is not None:
                self.write(name, content)
            done = self.run_program("sortdb", "--port=0", "--db-file", self.path(name))
            self.assertEqual(done.returncode, 78)
            self.assertIn(reason, done.stderr)
            self.assertIn(name.encode(), done.stderr)
        done = self.run_program("sortdb", "--port=0", "--archive", self.path("none"))
        self.assertEqual(done.returncode, 78)

    def test_kill_9_and_again(self):
        path = self.write("db", b"a\t1\n")
        for _ in range(2):
            daemon = self.start("sortdb", "--db-file", path)
            self.assertEqual(daemon.get("/get?key=a").body, b"1\n")
            daemon.kill9()

    def test_memory_lock(self):
        daemon = self.daemon("sortdb", "--memory-lock", "--db-file", self.write("db", b"a\t1\n")).wait_ready()
        self.assertEqual(daemon.get("/get?key=a").body, b"1\n")
        daemon.stop()


if __name__ == "__main__":
    main()
