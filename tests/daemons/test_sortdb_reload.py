"""sortdb: reloads under load, files that go bad, and archives."""
# seconds: 15
# full: MILLRACE_ROUNDS=30
import http.client
import json
import os
import signal
import socket
import threading

from harness import PATIENCE, UNREACHABLE, connect, flip, main, query, read_file, rounds, wait_until
from record_text import stored
from sortdb_case import sorted_file, shard_of, write_generation, point_at, SortdbTest


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
            self.assertEqual((r.status, r.body), (200, b"old\n"))
            self.assertEqual(r.header("X-Millrace-Generation"), str(generation))
            self.replace("db", b"a\told\nb\told\n")
            self.assertEqual(daemon.get("/reload?format=json").json(),
                             {"generation": generation + 1, "through": 0, "content": "0"})
            self.assertEqual(daemon.get("/health").status, 200)

    def test_hup_takes_the_new_file(self):
        daemon = self.serve(b"a\told\n")
        self.replace("db", b"a\tnew\n")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: daemon.get("/get?key=a").body == b"new\n", "the new file")
        self.replace("db", b"b\t1\na\t1\n")
        daemon.process.send_signal(signal.SIGHUP)
        self.wait_unhealthy(daemon, "line 2")
        self.assertEqual(daemon.get("/get?key=a").body, b"new\n")

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

    def test_a_file_has_no_keys_by_text(self):
        r = self.serve(b"u|a\tc413:1\n").get("/keys?prefix=a&ns=u")
        self.assertEqual((r.status, r.json()["code"]), (422, "no-texts"))

    def test_a_truncated_shard_fails_only_what_reads_it(self):
        records = [(b"u|k%05d" % i, b"c413:1") for i in range(3000)]
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, records, 2)
        point_at(self.path("archive"), 1)
        daemon = self.start("sortdb", "--archive", self.path("archive"))
        os.truncate(os.path.join(self.path("archive"), "%012d" % 1, "shard-1-of-2.csv"), 4096)
        for key, _ in records[::50]:
            self.assertEqual(daemon.get("/get?" + query(key=key)).status, 503 if shard_of(key, 2) else 200)
        self.assertEqual(daemon.get("/fwmatch?key=u%7C").status, 503)
        self.assertEqual(daemon.get("/keys?prefix=k&ns=u").status, 503)
        self.wait_unhealthy(daemon, "shard-1-of-2.csv was truncated")

    def test_a_shard_that_is_written_to_in_place(self):
        """No answer has the new bytes. Reads of the other shard go on."""
        records = [(b"u|k%05d" % i, b"c413:1") for i in range(3000)]
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, records, 2)
        point_at(self.path("archive"), 1)
        daemon = self.start("sortdb", "--archive", self.path("archive"))
        path = os.path.join(self.path("archive"), "%012d" % 1, "shard-1-of-2.csv")
        whole = read_file(path)
        flip(path, 5000)
        for key, _ in records[::50]:
            self.assertEqual(daemon.get("/get?" + query(key=key)).status, 503 if shard_of(key, 2) else 200)
        self.assertEqual(daemon.get("/fwmatch?key=u%7C").status, 503)
        self.wait_unhealthy(daemon, "shard-1-of-2.csv was written to")
        with open(path, "r+b") as f:
            f.write(whole)
        self.assertEqual(daemon.post("/reload").status, 200)
        self.assertEqual(daemon.get("/fwmatch?key=u%7C").status, 200)

    def test_a_bit_that_changes_on_the_disk(self):
        """No time of the file shows it: the scrub does. Reads of the other shard go on, and a restored file is served after a reload."""
        records = [(b"u|k%05d" % i, b"c413:1") for i in range(3000)]
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, records, 2)
        point_at(self.path("archive"), 1)
        daemon = self.start("sortdb", "--archive", self.path("archive"))
        path = os.path.join(self.path("archive"), "%012d" % 1, "shard-1-of-2.csv")
        times, whole = os.stat(path), read_file(path)
        flip(path, 5000)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        self.wait_unhealthy(daemon, "shard-1-of-2.csv is damaged")
        for key, _ in records[::50]:
            self.assertEqual(daemon.get("/get?" + query(key=key)).status, 503 if shard_of(key, 2) else 200)
        with open(path, "r+b") as f:
            f.write(whole)
        self.assertEqual(daemon.post("/reload").status, 200)
        self.assertEqual(daemon.get("/health").status, 200)
        self.assertEqual(daemon.get("/fwmatch?key=u%7C").status, 200)

    def test_truncated_texts(self):
        hashed = [stored(b"twelve-bytes-%d" % i) for i in range(3000)]
        text = b"".join(sorted([b"u|%s,c413:1\n" % h for h in hashed] +
                               [b"lookup|%s,twelve-bytes-%d\n" % (h, i) for i, h in enumerate(hashed)]))
        done = self.run_program("compactor", "--archive=" + self.path("archive"), "--aggregator-url=none", "--sortdb-url=none",
                                "--import", self.write("records", text))
        self.assertEqual(done.returncode, 0, done.stderr)
        daemon = self.start("sortdb", "--archive", self.path("archive"))
        self.assertEqual(daemon.get("/keys?prefix=twelve-bytes-29&ns=u&limit=1").body, b"twelve-bytes-29,u:1\n")
        os.truncate(os.path.join(self.path("archive"), "current", "texts-0-of-1.csv"), 9000)
        self.assertEqual(daemon.get("/keys?prefix=twelve-bytes-29&ns=u").status, 503)
        self.assertEqual(daemon.get("/get?" + query(key=b"u|" + hashed[7])).body, b"c413:1\n")
        self.wait_unhealthy(daemon, "texts-0-of-1.csv was truncated")

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
                values = {line.split(b"\t")[-1] for line in r.read().splitlines()}
                answers[0] += 1
                if r.status != 200 or values != {r.headers["X-Millrace-Generation"].encode()}:
                    wrong.append((target, r.status, values, r.headers["X-Millrace-Generation"]))
                    break
            c.close()
        threads = [threading.Thread(target=read, args=(t,))
                   for t in ("/fwmatch?key=k", "/get?key=k00777", "/range?start=k00100&end=k19000")]
        for t in threads:
            t.start()
        for g in range(2, 2 + rounds(6)):
            self.replace("db", content(g))
            self.assertEqual(daemon.post("/reload?format=json").json()["generation"], g)
            self.assertEqual(daemon.get("/get?key=k00001").body, b"%d\n" % g)
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
            c.request("POST", "/reload?format=json")
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
        for g in range(1, 1 + 2 * rounds(2), 2):
            self.replace("db", content(g))
            earlier = threading.Thread(target=daemon.post, args=("/reload",))
            earlier.start()
            self.replace("db", content(g + 1))
            self.assertEqual(daemon.post("/reload").status, 200)
            self.assertEqual(daemon.get("/get?key=k0000001").body, b"%d\n" % (g + 1))
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
                self.assertEqual((r.status, r.body), (200, value + b"\n"))
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
            for limit in (1, 3, 100) if shards == 4 or rounds(1) > 1 else (3,):
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
        self.assertEqual((r.status, r.body, r.header("X-Millrace-Through")), (404, b"", "0"))
        write_generation(self.path("archive"), 1, 3, self.RECORDS)
        point_at(self.path("archive"), 1)
        reply = daemon.post("/reload?format=json").json()
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
        reply = daemon.post("/reload?format=json").json()
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
        self.assertEqual(daemon.post("/reload?format=json").json()["generation"], 2)


if __name__ == "__main__":
    main()
