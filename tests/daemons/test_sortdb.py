#!/usr/bin/env python3
"""sortdb over one file and over an archive: searches against a model, reloads under load, files that go bad."""
import http.client
import json
import os
import signal
import socket
import threading
import urllib.parse
import zlib

from harness import MillraceTest, PATIENCE, UNREACHABLE, connect, main, query, rounds, seeded, wait_until
from xxh3 import xxh3

ALPHABET = [b"a", b"b", b"!", b"+", b"-", b".", b"\0", b"\x80", b"\xff", b" ", b"%", b"&"]


def sorted_file(records, separator=b"\t"):
    return b"".join(sorted(k + separator + v + b"\n" for k, v in records))


def shard_of(key, shards):
    """`key` is u|K, c.u|K.HOUR or lookup|HASH."""
    ns, rest = key.split(b"|", 1)
    if b"." in ns:
        ns, rest = ns.split(b".", 1)[1], rest.rsplit(b".", 1)[0]
    return zlib.crc32(ns + b"|" + rest) % shards


def write_generation(archive, number, through, records, shards=1):
    """A whole generation; `current` is not touched."""
    directory = os.path.join(archive, "%012d" % number)
    os.makedirs(directory)
    files = []
    for k in range(shards):
        lines = sorted_file([r for r in records if shards == 1 or shard_of(r[0], shards) == k], b",")
        name = "shard-%d-of-%d.csv" % (k, shards)
        with open(os.path.join(directory, name), "wb") as f:
            f.write(lines)
        files.append({"name": name, "records": lines.count(b"\n"), "bytes": len(lines), "xxh3": xxh3(lines)})
    with open(os.path.join(directory, "manifest.json"), "w") as f:
        json.dump({"format": 1, "generation": number, "through": through, "made": 1353283200, "shards": shards,
                   "streams": {"clicks": {"id": "x", "end": "10"}}, "counters": "", "files": files, "imports": []}, f)
    return directory


def point_at(archive, number):
    link = os.path.join(archive, "current.new")
    os.symlink("%012d" % number, link)
    os.rename(link, os.path.join(archive, "current"))


class SortdbTest(MillraceTest):
    def replace(self, name, content):
        path = self.write(name + ".new", content)
        os.rename(path, self.path(name))
        return self.path(name)

    def serve(self, content, *args):
        return self.start("sortdb", "--db-file", self.replace("db", content), *args)

    def check_pages(self, daemon, target, expected, limit):
        """Follows X-Millrace-Next; the pages together must be the whole."""
        got, start = [], None
        while True:
            part = "" if start is None else "&start=" + start
            if start is not None and "start=" in target:
                part, target = "", "/range?" + query(start=urllib.parse.unquote_to_bytes(start)) + \
                    target[target.index("&end="):]
            r = daemon.get("%s%s&limit=%d" % (target, part, limit))
            self.assertEqual(r.status, 200, r)
            got += r.body.splitlines(True) if b"\r" not in r.body else [x + b"\n" for x in r.body.split(b"\n")[:-1]]
            start = r.header("X-Millrace-Next")
            if start is None:
                break
        self.assertEqual(b"".join(got), expected)

    def wait_unhealthy(self, daemon, text):
        def told():
            r = daemon.get("/health")
            return r.status == 503 and text in r.text
        wait_until(told, lambda: "%r on /health: %s" % (text, daemon.get("/health").text))


class TestSearches(SortdbTest):
    def ask_all(self, daemon, records, keys, separator):
        order = sorted(records, key=lambda k: k + separator)
        line = {k: k + separator + records[k] + b"\n" for k in records}
        for key in keys:
            r = daemon.get("/get?" + query(key=key))
            self.assertEqual((r.status, r.body if r.status == 200 else None),
                             (200, line[key]) if key in line else (404, None), key)
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
                self.assertEqual((r.status, r.body), (200, expected), (start, end))
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
        self.assertEqual(daemon.get("/get?key=a").body, b"a\t1\n")

    def test_a_page_without_a_last_newline(self):
        content = b"a\t1\n" + b"b\t" + b"x" * (4096 - 6)
        daemon = self.serve(content)
        self.assertEqual(daemon.get("/get?key=b").body, content[4:] + b"\n")
        self.assertEqual(daemon.get("/fwmatch?key=").body, content + b"\n")
        self.assertEqual(daemon.get("/get?key=c").status, 404)

    def test_one_huge_line(self):
        content = b"a\t1\nb\t" + b"x" * (3 << 20) + b"\nc\t3\n"
        daemon = self.serve(content)
        self.assertEqual(daemon.get("/get?key=b").body, content[4:-4])
        self.assertEqual(daemon.get("/mget?k=c&k=b&k=a").body, b"c\t3\n" + content[4:-4] + b"a\t1\n")
        self.assertEqual(daemon.get("/fwmatch?key=").body, content)
        self.assertEqual(daemon.get("/get?key=c").body, b"c\t3\n")

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
            self.assertEqual(daemon.get("/get?key=a").body, b"a\t1\n")
            daemon.kill9()

    def test_memory_lock(self):
        daemon = self.daemon("sortdb", "--memory-lock", "--db-file", self.write("db", b"a\t1\n")).wait_ready()
        self.assertEqual(daemon.get("/get?key=a").body, b"a\t1\n")
        daemon.stop()


class TestReload(SortdbTest):
    def test_a_bad_new_file_leaves_the_old_serving(self):
        daemon = self.serve(b"a\told\nb\told\n")
        bad = (("is out of order", b"b\t1\na\t1\n"), ("line 1 has no field separator", b"a\n"),
               ("is empty", b""), ("may be truncated", b"a\tnew\nb\tne"), ("No such file", None))
        for generation, (reason, content) in enumerate(bad, 1):
            if content is None:
                os.unlink(self.path("db"))
            else:
                self.replace("db", content)
            r = daemon.post("/reload")
            self.assertEqual((r.status, r.json()["code"]), (503, "reload-failed"))
            self.assertIn(reason, r.json()["detail"])
            self.wait_unhealthy(daemon, reason)
            r = daemon.get("/get?key=a")
            self.assertEqual((r.status, r.body), (200, b"a\told\n"))
            self.assertEqual(r.header("X-Millrace-Generation"), str(generation))
            self.replace("db", b"a\told\nb\told\n")
            self.assertEqual(daemon.get("/reload").json(),
                             {"generation": generation + 1, "through": 0, "content": "0"})
            self.assertEqual(daemon.get("/health").status, 200)

    def test_hup_takes_the_new_file(self):
        daemon = self.serve(b"a\told\n")
        self.replace("db", b"a\tnew\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.get("/get?key=a").body == b"a\tnew\n", "the new file")
        self.replace("db", b"b\t1\na\t1\n")
        daemon.process.send_signal(signal.SIGHUP)
        self.wait_unhealthy(daemon, "line 2")
        self.assertEqual(daemon.get("/get?key=a").body, b"a\tnew\n")

    def test_truncated_under_us_is_an_error_and_no_crash(self):
        content = sorted_file([(b"k%07d" % i, b"v" * 50) for i in range(50000)])
        daemon = self.serve(content)
        for length in (len(content) - 1, 1 << 20, 4096, 3, 0):
            os.truncate(self.path("db"), length)
            for target in ("/get?key=k0000001", "/get?key=k0049999", "/get?key=none", "/mget?k=k0020000",
                           "/fwmatch?key=k00499", "/range?start=k0049990&end=k0049999"):
                r = daemon.get(target)
                self.assertEqual((r.status, r.json()["code"]), (503, "storage-failed"), (length, target, r))
            try:
                self.assertEqual(daemon.get("/fwmatch?key=k").status, 503)
            except UNREACHABLE:
                pass  # broken off: seen to be incomplete
            self.wait_unhealthy(daemon, "truncated")
            self.replace("db", content)
            self.assertEqual(daemon.post("/reload").status, 200)
            self.assertEqual(daemon.get("/health").status, 200)
            self.assertEqual(daemon.get("/get?key=k0049999").status, 200)

    def test_truncated_in_the_middle_of_a_long_answer_is_never_taken_for_whole(self):
        content = sorted_file([(b"k%07d" % i, b"v" * 900) for i in range(30000)])
        daemon = self.serve(content)
        slow = connect(daemon.url)
        slow.request("GET", "/fwmatch?key=k")
        reply = slow.getresponse()
        reply.read(1000)
        os.truncate(self.path("db"), 20 << 20)
        with self.assertRaises(UNREACHABLE):
            reply.read()
        slow.close()
        self.assertTrue(daemon.alive())
        self.assertEqual(daemon.get("/get?key=k0000001").status, 503)

    def test_an_answer_that_ended_well_is_what_the_file_was(self):
        """Its last bytes go while they wait for the socket: answers of growing length, so that some wait just then."""
        daemon = self.serve(b"a\t1\n")
        broken = 0
        for size in range(256, 256 * 30, 256):
            content = sorted_file([(b"k%07d" % i, b"v" * 1013) for i in range(size)])
            self.replace("db", content)
            self.assertEqual(daemon.post("/reload").status, 200)
            slow = socket.create_connection(("127.0.0.1", int(daemon.url.rsplit(":", 1)[1])))
            slow.settimeout(PATIENCE)
            slow.sendall(b"GET /fwmatch?key=k HTTP/1.1\r\nHost: x\r\n\r\n")
            reply = http.client.HTTPResponse(slow)
            reply.begin()
            os.truncate(self.path("db"), len(content) - 10)
            try:
                self.assertTrue(reply.read() == content, "an answer that ended well, with other bytes")
            except UNREACHABLE:
                broken += 1
            reply.close()
            slow.close()
        self.assertGreater(broken, 0)

    def test_written_in_place_is_noticed(self):
        daemon = self.serve(b"a\told\n")
        with open(self.path("db"), "r+b") as f:
            f.write(b"a\tnew\n")
        self.wait_unhealthy(daemon, "written to")
        self.assertEqual(daemon.get("/reload").status, 200)
        self.assertEqual(daemon.get("/health").status, 200)

    def test_reloads_under_load_never_mix(self):
        """Every value of generation g is g: an answer is of one, and says of which."""
        def content(g):
            return sorted_file([(b"k%05d" % i, b"%d" % g) for i in range(20000)])
        daemon = self.serve(content(1))
        done, wrong, answers = threading.Event(), [], [0]

        def read(target):
            c = connect(daemon.url)
            while not done.is_set():
                c.request("GET", target)
                r = c.getresponse()
                values = {line.split(b"\t")[1] for line in r.read().splitlines()}
                answers[0] += 1
                if r.status != 200 or values != {r.headers["X-Millrace-Generation"].encode()}:
                    wrong.append((target, r.status, values, r.headers["X-Millrace-Generation"]))
                    break
            c.close()
        threads = [threading.Thread(target=read, args=(t,))
                   for t in ("/fwmatch?key=k", "/get?key=k00777", "/range?start=k00100&end=k19000")]
        for t in threads:
            t.start()
        for g in range(2, 2 + rounds(15)):
            self.replace("db", content(g))
            self.assertEqual(daemon.post("/reload").json()["generation"], g)
            self.assertEqual(daemon.get("/get?key=k00001").body, b"k00001\t%d\n" % g)
        wait_until(lambda: answers[0] > 20 or wrong, "some answers")
        done.set()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_calls_that_arrive_meanwhile_are_one(self):
        daemon = self.serve(sorted_file([(b"k%07d" % i, b"v" * 100) for i in range(200000)]))
        calls = [connect(daemon.url) for _ in range(12)]
        daemon.process.send_signal(signal.SIGSTOP)  # until all are sent
        for c in calls:
            c.request("POST", "/reload")
        daemon.process.send_signal(signal.SIGCONT)
        got = [json.loads(c.getresponse().read())["generation"] for c in calls]
        for c in calls:
            c.close()
        self.assertEqual(max(got), daemon.stats()["generation"])
        self.assertLess(daemon.stats()["reloads_total"], 10)


    def test_a_call_during_an_opening_sees_what_was_there_when_it_came(self):
        def content(g):
            return sorted_file([(b"k%07d" % i, b"%d" % g) for i in range(100000)])
        daemon = self.serve(content(0))
        for g in range(1, 1 + 2 * rounds(5), 2):
            self.replace("db", content(g))
            earlier = threading.Thread(target=daemon.post, args=("/reload",))
            earlier.start()
            self.replace("db", content(g + 1))
            self.assertEqual(daemon.post("/reload").status, 200)
            self.assertEqual(daemon.get("/get?key=k0000001").body, b"k0000001\t%d\n" % (g + 1))
            earlier.join()


class TestArchive(SortdbTest):
    RECORDS = [(b"u|a", b"c413:2"), (b"u|a!x", b"c413:1"), (b"u|a+", b"vcvn:1 w0110:3 zvcvn:4"), (b"u|a-", b"c413:5"),
               (b"u|ab", b"c413:6"), (b"u|h0aMB8AuNw4=", b"c413:7"), (b"c.u|a.c413", b"JP:1 US:1"),
               (b"c.u|a.vcvn", b"US:1"), (b"c.u|a.w0110", b"US:3"), (b"c.u|a.zvcvn", b"US:4"),
               (b"c.u|a!x.c413", b"JP:1"), (b"c.u|ab.c413", b"JP:6"),
               (b"lookup|h0aMB8AuNw4=", b"http://www.facebook.com/, and more")] + \
              [(b"u|key%d" % i, b"c413:%d" % i) for i in range(300)]

    def archive(self, **kw):
        os.makedirs(self.path("archive"), exist_ok=True)
        return self.path("archive")

    def start_archive(self, *args):
        return self.start("sortdb", "--archive", self.path("archive"), *args)

    def test_shards_answer_as_one_file(self):
        archive = self.archive()
        whole = sorted_file(self.RECORDS, b",")
        for number, shards in enumerate((1, 2, 4, 7)):
            write_generation(archive, number, 10 + number, self.RECORDS, shards)
            point_at(archive, number)
            daemon = self.start_archive()
            for key, value in self.RECORDS[:20]:
                r = daemon.get("/get?" + query(key=key))
                self.assertEqual((r.status, r.body), (200, key + b"," + value + b"\n"))
                self.assertEqual(r.header("X-Millrace-Shard"), str(0 if shards == 1 else shard_of(key, shards)))
                self.assertEqual((r.header("X-Millrace-Generation"), r.header("X-Millrace-Through")),
                                 (str(number), str(10 + number)))
            self.assertEqual(daemon.get("/fwmatch?key=").body, whole)
            self.assertEqual(daemon.get("/fwmatch?key=u%7Ca").body,
                             b"".join(x for x in whole.splitlines(True) if x.startswith(b"u|a")))
            r = daemon.get("/range?" + query(start="c.u|a.c413", end="c.u|a.zvcvn"))
            self.assertEqual([x.split(b",")[0] for x in r.body.splitlines()],
                             [b"c.u|a.c413", b"c.u|a.vcvn", b"c.u|a.w0110", b"c.u|a.zvcvn"])
            self.assertIsNotNone(r.header("X-Millrace-Shard"))
            for limit in (1, 3, 100):
                self.check_pages(daemon, "/fwmatch?key=", whole, limit)
                self.check_pages(daemon, "/range?start=c&end=v", whole, limit)
            self.assertEqual(daemon.get("/get?key=nonsense").status, 404)
            self.assertEqual(daemon.stats()["records"], len(self.RECORDS))
            daemon.stop()

    def test_long_answers_over_shards(self):
        records = [(b"u|key%d" % i, b"c413:%d" % i + b" c414:1" * (i % 50)) for i in range(8000)]
        write_generation(self.archive(), 1, 1, records, 4)
        point_at(self.path("archive"), 1)
        whole = sorted_file(records, b",")
        daemon = self.start_archive()
        self.assertEqual(daemon.get("/fwmatch?key=u").body, whole)
        daemon.stop()
        daemon = self.start_archive("--max-answer=64K")
        self.check_pages(daemon, "/fwmatch?key=u", whole, 100000)

    def test_an_empty_generation(self):
        write_generation(self.archive(), 0, 0, [])
        point_at(self.path("archive"), 0)
        daemon = self.start_archive()
        self.assertEqual(daemon.get("/get?key=u%7Ca").status, 404)
        r = daemon.get("/range?start=a&end=z")
        self.assertEqual((r.status, r.body, r.header("X-Millrace-Through")), (200, b"", "0"))
        write_generation(self.path("archive"), 1, 3, self.RECORDS)
        point_at(self.path("archive"), 1)
        reply = daemon.post("/reload").json()
        self.assertEqual((reply["generation"], reply["through"]), (1, 3))
        self.assertEqual(daemon.get("/get?key=u%7Ca").status, 200)

    def spoil(self, directory, how):
        path = os.path.join(directory, "shard-0-of-1.csv")
        with open(path, "rb") as f:
            content = f.read()
        lines = content.splitlines(True)
        spoilt = {"missing": None, "truncated": content[:-3], "empty": b"",
                  "unsorted": b"".join(lines[::-1]), "changed": content.replace(b"c413:2", b"c413:3", 1)}[how]
        os.unlink(path)
        if spoilt is not None:
            with open(path, "wb") as f:
                f.write(spoilt)

    def test_a_bad_generation_leaves_the_old_serving(self):
        archive = self.archive()
        write_generation(archive, 1, 1, self.RECORDS)
        point_at(archive, 1)
        daemon = self.start_archive()
        bad = (("missing", "No such file"), ("truncated", "bytes"), ("empty", "0 bytes"),
               ("unsorted", "line 2 is out of order"), ("changed", "checksum"))
        for number, (how, reason) in enumerate(bad, 2):
            self.spoil(write_generation(archive, number, number, self.RECORDS), how)
            point_at(archive, number)
            r = daemon.post("/reload")
            self.assertEqual((r.status, r.json()["code"]), (503, "reload-failed"), how)
            self.assertIn(reason, r.json()["detail"])
            self.wait_unhealthy(daemon, reason)
            r = daemon.get("/get?key=u%7Ca")
            self.assertEqual((r.status, r.header("X-Millrace-Generation")), (200, "1"))
        os.unlink(os.path.join(archive, "current"))
        self.assertEqual(daemon.post("/reload").status, 503)
        write_generation(archive, 9, 9, self.RECORDS, 2)
        point_at(archive, 9)
        reply = daemon.post("/reload").json()
        self.assertEqual((reply["generation"], reply["through"]), (9, 9))
        self.assertEqual(daemon.get("/health").status, 200)

    def test_an_old_generation_may_be_removed_while_it_is_served(self):
        import shutil
        archive = self.archive()
        directory = write_generation(archive, 1, 1, self.RECORDS)
        point_at(archive, 1)
        daemon = self.start_archive()
        write_generation(archive, 2, 2, self.RECORDS)
        point_at(archive, 2)
        shutil.rmtree(directory)
        self.assertEqual(daemon.get("/fwmatch?key=").body, sorted_file(self.RECORDS, b","))
        self.assertEqual(daemon.get("/health").status, 200)
        self.assertEqual(daemon.post("/reload").json()["generation"], 2)


if __name__ == "__main__":
    main()
