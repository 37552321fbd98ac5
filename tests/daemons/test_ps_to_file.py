"""ps_to_file: a stream into files, each line once."""
import calendar
import glob
import gzip
import json
import os
import resource
import signal
import subprocess
import time

import harness
from harness import wait_until

DAY = 86400
T0 = 1360281600  # 2013-02-08 00:00:00 UTC


def event(i, t=None):
    return b'{"n":%d%s}\n' % (i, b"" if t is None else b',"t":%d' % t)


class Base(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s")
        self.n = 0

    def publish(self, *lines):
        reply = self.pubsub.post("/pub?stream=s", b"".join(lines))
        self.assertEqual(reply.status, 200, reply)

    def stream(self):
        return self.pubsub.get("/sub?stream=s&from=earliest&follow=0").body

    def writer(self, *args, name="out/s-%Y%m%d.ndjson", **kw):
        return self.daemon("ps_to_file", "--pubsub_url", self.pubsub.url, "--stream=s", "--commit_every=20ms",
                           "--filename_format", self.path(name), *args, **kw)

    def committed(self, stem="out/.ps_to_file-s.json"):
        try:
            with open(self.path(stem)) as f:
                return json.load(f)
        except OSError:
            return {"offset": "-1", "files": []}

    def wait_committed(self, stem="out/.ps_to_file-s.json"):
        end = len(self.stream())
        wait_until(lambda: int(self.committed(stem)["offset"]) == end,
                   lambda: "%d bytes to be committed: %s" % (end, self.committed(stem)))

    def files(self, pattern="out/*"):
        return sorted(p for p in glob.glob(self.path(pattern)) if ".manifest.json" not in p)

    def staged(self):
        return sorted(glob.glob(self.path("*", ".ps_to_file-names-*.staging", "*.part")))

    def content(self, pattern="out/*"):
        """The published files, and what is below the committed lengths of the others."""
        whole = {path: harness.read_file(path) for path in self.files(pattern)}
        for f in self.committed()["files"]:
            whole[f["name"]] = harness.read_file(f["staged"])[:int(f["length"])]
        return b"".join(whole[name] for name in sorted(whole))


class ByArrival(Base):
    def test_lines_come_into_a_file(self):
        w = self.writer().wait_ready()
        self.publish(event(1), event(2))
        self.wait_committed()
        self.publish(event(3))
        self.wait_committed()
        self.assertEqual(self.content(), self.stream())
        self.assertEqual((len(self.staged()), self.files()), (1, []))
        w.stop()

    def test_what_came_is_in_the_file_though_it_is_not_committed(self):
        w = self.writer("--commit_every=1h").wait_ready()
        self.publish(event(1), event(2))
        wait_until(lambda: [harness.read_file(p) for p in self.staged()] == [self.stream()], lambda: "the lines\n" + w.log)
        self.assertEqual(self.committed()["offset"], "0")
        self.publish(event(3))
        wait_until(lambda: [harness.read_file(p) for p in self.staged()] == [self.stream()], lambda: "the third\n" + w.log)
        w.stop()
        self.wait_committed()

    def test_a_roll_finishes_the_file(self):
        for compress, suffix in (("none", ""), ("gzip", ".gz"), ("zstd", ".zst")):
            w = self.writer("--compress", compress, "--from=latest", name=compress + "/s.ndjson").wait_ready()
            start = len(self.stream())
            self.publish(event(1), event(2))
            state = compress + "/.ps_to_file-s.json"
            self.wait_committed(state)
            w.process.send_signal(signal.SIGHUP)
            path = self.path(compress, "s.ndjson" + suffix)
            wait_until(lambda: os.path.exists(path), path)
            wait_until(lambda: not self.committed(state)["files"], "the state to forget it")
            with open(self.path(compress, "s.ndjson.manifest.json")) as f:
                manifest = json.load(f)
            lines = event(1) + event(2)
            text = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout \
                if compress == "zstd" else harness.read_file(path)
            self.assertEqual(text, lines)
            self.assertEqual(manifest["lines"], "2")
            self.assertEqual(manifest["bytes"], str(len(lines)))
            self.assertEqual((manifest["first"], manifest["end"]), (str(start), str(start + len(lines))))
            self.assertEqual(manifest["stored_bytes"], str(os.path.getsize(path)))
            self.assertEqual(manifest["id"], self.pubsub.get("/streams").json()["streams"][0]["id"])
            self.assertEqual(self.staged(), [])
            self.publish(event(3))
            wait_until(self.staged, "the next file")
            w.process.send_signal(signal.SIGHUP)
            wait_until(lambda: os.path.exists(self.path(compress, "s.ndjson.1" + suffix)), "it to be published")
            w.stop()

    def test_the_order_of_names_is_not_the_stream_s_but_the_manifests_tell_it(self):
        """As docs/guide/stream-tools.md has it written."""
        with open(os.path.join(harness.ROOT, "docs", "guide", "stream-tools.md")) as f:
            command = next(line for line in f if line.startswith("    python3 -c") and "manifest" in line)
        for compress in ("none", "gzip", "zstd"):
            w = self.writer("--compress", compress, "--from=latest", name=compress + "/s.ndjson").wait_ready()
            state, start = compress + "/.ps_to_file-s.json", len(self.stream())
            for i in range(12):
                self.publish(event(i))
                self.wait_committed(state)
                w.process.send_signal(signal.SIGHUP)
                wait_until(lambda: not self.committed(state)["files"], "the file to be finished")
            w.stop()
            self.assertEqual(len(self.files(compress + "/s.ndjson*")), 12)
            done = subprocess.run(["sh", "-c", command], cwd=self.path(compress), capture_output=True, check=True)
            self.assertEqual(done.stdout, self.stream()[start:], done)

    def test_names_follow_the_clock(self):
        w = self.writer(name="out/%Y/s-%Y%m%d-%H%M%S.ndjson").wait_ready()
        arrived = []
        for i in range(3):
            began = int(time.time())
            self.publish(event(i))
            self.wait_committed()
            arrived.append((began, time.time()))
            wait_until(lambda: not self.staged(), "the second to end, and with it the file")
        w.stop()
        paths = sorted(self.files("out/*/*.ndjson"), key=lambda p: self.manifest(p)["first"].zfill(20))
        self.assertEqual(list(map(harness.read_file, paths)), [event(i) for i in range(3)])
        for path, (began, ended) in zip(paths, arrived):
            named = calendar.timegm(time.strptime(os.path.basename(path), "s-%Y%m%d-%H%M%S.ndjson"))
            self.assertTrue(began <= named <= ended, (path, began, ended))
            self.assertEqual(os.path.basename(os.path.dirname(path)), time.strftime("%Y", time.gmtime(named)))

    def manifest(self, path):
        with open(path + ".manifest.json") as f:
            return json.load(f)

    def test_from_the_end_of_a_stream_that_is_made_while_it_is_dead(self):
        """The first life saw that there was none: all of it is new."""
        args = ("--stream=later", "--from=latest")
        w = self.writer(*args)
        state = self.path("out/.ps_to_file-later.json")
        wait_until(lambda: os.path.exists(state), "the state")
        w.kill9()
        self.assertEqual(self.pubsub.post("/pub?stream=later", event(1) + event(2)).status, 200)
        w = self.writer(*args).wait_ready()
        wait_until(lambda: b"".join(harness.read_file(f) for f in self.staged()) == event(1) + event(2), "both lines")
        w.stop()

    def test_a_token(self):
        os.chmod(self.write("token", "secret"), 0o600)
        self.pubsub = self.start("pubsub", "--data_dir", self.path("guarded"), "--auth-token-file", self.path("token"))
        bearer = {"Authorization": "Bearer secret"}
        self.assertEqual(self.pubsub.post("/pub?stream=s", event(1), headers=bearer).status, 200)
        w = self.writer("--pubsub-token-file", self.path("token")).wait_ready()
        wait_until(lambda: b"".join(harness.read_file(f) for f in self.staged()) == event(1), "the line")
        w.stop()

    def test_it_resumes_where_it_was(self):
        for i in range(3):
            w = self.writer().wait_ready()
            self.publish(event(i))
            self.wait_committed()
            w.stop()
            self.publish(event(100 + i))
        w = self.writer().wait_ready()
        self.wait_committed()
        self.assertEqual(self.content(), self.stream())
        w.stop()

    def test_what_was_not_committed_is_cut_off(self):
        w = self.writer().wait_ready()
        self.publish(event(1))
        self.wait_committed()
        w.kill9()
        with open(self.staged()[0], "ab") as f:
            f.write(b"torn")
        self.publish(event(2))
        w = self.writer().wait_ready()
        self.wait_committed()
        self.assertEqual(harness.read_file(self.staged()[0]), self.stream())
        w.stop()

    def test_bytes_are_carried(self):
        w = self.writer().wait_ready()
        self.publish(b"\xff\x00\r x\n", b"y" * 100000 + b"\n")
        self.wait_committed()
        self.assertEqual(self.content(), self.stream())
        w.stop()


    def test_what_only_grows_is_a_counter(self):
        w = self.writer("--port=0", port=False).wait_ready()
        self.assertGreater(w.counters(), {"written_bytes_total", "commits_total", "files_finished_total", "wants_total",
                                          "gaps_total", "lines_without_time_total"})


class ByEventTime(Base):
    def test_each_line_in_the_file_of_its_time(self):
        rng = harness.seeded()
        w = self.writer("--time_field=t", "--max_open=3").wait_ready()
        days = [[] for _ in range(6)]
        for i in range(60):
            lines = []
            for j in range(20):
                day = min(5, max(0, i // 10 + rng.choice((-1, 0, 0, 0, 1))))
                line = event(i * 100 + j, T0 + day * DAY + rng.randrange(DAY))
                days[day].append(line)
                lines.append(line)
            self.publish(*lines)
        self.wait_committed()
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.staged() and not self.committed()["files"], "all to be finished")
        w.stop()
        for day, lines in enumerate(days):
            found = b"".join(map(harness.read_file, self.files("out/s-201302%02d.ndjson*" % (8 + day))))
            self.assertEqual(sorted(found.splitlines(True)), sorted(lines))

    def test_a_line_without_a_time_is_filed_by_arrival(self):
        w = self.writer("--time_field=t", "--port=0", port=False).wait_ready()
        self.publish(b"no json\n", b'{"t":"x"}\n', event(1, T0))
        self.wait_committed()
        files = {f["name"]: f["staged"] for f in self.committed()["files"]}
        self.assertEqual((len(files), len(self.staged())), (2, 2))
        self.assertEqual(harness.read_file(files[self.path("out/s-20130208.ndjson")]), event(1, T0))
        self.assertEqual(w.stats()["lines_without_time_total"], 2)
        w.stop()

    def test_a_file_that_nothing_comes_to_is_finished(self):
        w = self.writer("--time_field=t", "--close_after=300ms").wait_ready()
        self.publish(event(1, T0))
        wait_until(lambda: os.path.exists(self.path("out/s-20130208.ndjson")), "the file")
        self.publish(event(2, T0))
        wait_until(lambda: os.path.exists(self.path("out/s-20130208.ndjson.1")), "the late line's file")
        w.stop()


class Descriptors(Base):
    def allow(self, w, n):
        """From now on; what is open stays open."""
        resource.prlimit(w.pid, resource.RLIMIT_NOFILE, (n, resource.prlimit(w.pid, resource.RLIMIT_NOFILE)[1]))

    def ask(self, connection, target):
        connection.request("GET", target)
        reply = connection.getresponse()
        return reply.status, reply.read()

    def finish(self, w, *lines):
        self.wait_committed()
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.staged() and not self.committed()["files"], "all to be finished")
        self.assertEqual(sorted(b"".join(map(harness.read_file, self.files())).splitlines(True)), sorted(lines))
        self.assertNotIn("storage failed", w.log)

    def test_want_of_descriptors_is_waited_out(self):
        w = self.writer("--time_field=t").wait_ready()
        lines = [event(i, T0 + i * DAY) for i in range(3)]
        self.publish(lines[0])
        self.wait_committed()
        connection = harness.connect(w.url)  # before there are none for one
        self.assertEqual(self.ask(connection, "/health")[0], 200)
        usual = resource.prlimit(w.pid, resource.RLIMIT_NOFILE)[0]
        self.allow(w, 3)
        self.publish(*lines[1:])
        wait_until(lambda: b"Too many open files" in self.ask(connection, "/health")[1], lambda: w.log)
        numbers = json.loads(self.ask(connection, "/stats?format=json")[1])
        self.assertEqual((numbers["wanting"], numbers["wants_total"]), (1, 1))
        connection.close()
        self.allow(w, usual)
        self.finish(w, *lines)
        wait_until(lambda: w.stats()["wanting"] == 0 and w.get("/health").status == 200, lambda: w.log)
        w.stop()

    def test_one_read_may_begin_more_files_than_there_are_descriptors(self):
        w = self.writer("--time_field=t", "--max_open=3").wait_ready()
        self.allow(w, 60)
        lines = [event(i, T0 + i * DAY) for i in range(300)]
        self.publish(*lines)
        self.finish(w, *lines)
        w.stop()

    def test_too_few_for_max_open_are_refused(self):
        def start(limit, *args):
            return subprocess.Popen(["sh", "-c", limit + ' && exec "$@"', "sh", *self.argv(*args)], stderr=subprocess.PIPE)
        done = start("ulimit -n 100", "--time_field=t")
        self.assertIn(b"max_open: 256 files need ", done.communicate(timeout=harness.LONG)[1])
        self.assertEqual(done.returncode, 78)
        for limit, args in (("ulimit -S -n 100", ["--time_field=t"]), ("ulimit -n 100", ["--time_field=t", "--max_open=20"]),
                            ("ulimit -n 100", [])):
            process = start(limit, *args)
            self.addCleanup(process.kill)
            wait_until(lambda: os.path.exists(self.path("out/.ps_to_file-s.json")), "it to begin")
            os.unlink(self.path("out/.ps_to_file-s.json"))
            process.terminate()
            self.assertEqual((process.communicate(timeout=harness.LONG) and process.returncode), 0)

    def argv(self, *args):
        return [harness.program("ps_to_file"), "--pubsub_url", self.pubsub.url, "--stream=s", "--filename_format",
                self.path("out/s-%Y%m%d.ndjson"), *args]


class Refused(Base):
    def refused(self, status, *args, **kw):
        w = self.writer(*args, **kw)
        self.assertEqual(w.process.wait(harness.PATIENCE), status, w.log)
        return w.log

    def test_settings(self):
        self.assertIn("filename_format", self.refused(78, name=""))
        for conversion in ("%Q", "%_5EQ", "%"):
            self.assertIn("unknown strftime conversion %s;" % conversion, self.refused(78, name="s-%Y-%%" + conversion))
        for state in ("out/x.zst", "out/x.manifest.json", "out/x.gz", "out/s-20300101.ndjson", "out/s-20300101.ndjson.12"):
            self.assertIn("may be the name of an archived file", self.refused(78, "--state", self.path(state)))
        for option in ("--time_unit=ms", "--max_open=10", "--close_after=1m"):
            self.assertIn("only allowed with time_field", self.refused(78, option))
        self.assertIn("makes a name of 242 bytes; the maximum is 241", self.refused(78, name="out/%Y" + "x" * 238))
        self.assertIn("makes a name of 256 bytes; the maximum is 255", self.refused(78, name="%Y" + "x" * 252 + "/%d"))
        self.assertIn("path too long", self.refused(78, name="x/" * 2048 + "%d"))
        self.writer(name="out/%Y" + "x" * 237).wait_ready().stop()
        self.assertIn("must be earliest", self.refused(78, "--from=yesterday"))
        self.assertIn("no address", self.refused(78, "--pubsub_url=nowhere:x"))

    def test_a_name_that_no_time_changes_is_told(self):
        for name in ("one.ndjson", "one-%%d.ndjson"):
            w = self.writer(name=name).wait_ready()
            self.assertIn("no conversion", w.log)
            w.stop()
        w = self.writer(name="%Y/%_m-%-d-%EY-%Oy.ndjson").wait_ready()
        self.assertNotIn("no conversion", w.log)
        w.stop()

    def test_a_second_writer(self):
        w = self.writer().wait_ready()
        self.assertIn("another process", self.refused(78))
        w.stop()

    def test_two_archives_of_the_same_names(self):
        """They would be after the same files; of other names in one directory there may be any number."""
        other = ("--stream=other", "--state", self.path("other/state"))
        w = self.writer("--port=0", port=False).wait_ready()
        self.publish(event(1))
        self.wait_committed()
        self.assertIn("writes files of these names", self.refused(78, *other))
        self.assertIn("writes files of these names", self.refused(78, "--state", self.path("elsewhere")))
        beside = self.writer("--stream=other", name="out/other-%Y%m%d.ndjson").wait_listening()
        w.stop()
        self.assertIn("has unfinished files", self.refused(78, *other, name="out//s-%Y%m%d.ndjson"))
        os.rename(self.path("out/.ps_to_file-s.json"), self.path("moved"))
        w = self.writer("--state", self.path("moved")).wait_ready()
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.committed("moved")["files"], "it to be finished")
        w.stop()
        self.writer(*other).wait_listening().stop()
        beside.stop()

    def test_another_stream(self):
        self.writer("--state", self.path("state")).wait_ready().stop()
        self.assertIn("of the stream s", self.refused(78, "--state", self.path("state"), "--stream=other"))

    def test_a_file_that_is_gone(self):
        w = self.writer().wait_ready()
        self.publish(event(1))
        self.wait_committed()
        w.stop()
        os.unlink(self.staged()[0])
        self.assertIn("No such file", self.refused(78))

    def test_a_state_of_another_version(self):
        os.mkdir(self.path("out"))
        self.write("out/.ps_to_file-s.json", '{"format":3}')
        self.assertIn("another version", self.refused(78))

    def test_another_stream_under_the_name(self):
        w = self.writer().wait_ready()
        self.publish(event(1))
        self.wait_committed()
        w.stop()
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("fresh"), "--sync=never", "--streams=s")
        w = self.writer("--port=0", port=False).wait_listening()
        wait_until(lambda: w.get("/health").status == 503 and b"another stream" in w.get("/health").body, w.log)
        w.stop()
        self.assertEqual(harness.read_file(self.staged()[0]), event(1))


if __name__ == "__main__":
    harness.main()
