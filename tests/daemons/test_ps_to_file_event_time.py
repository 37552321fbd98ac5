"""ps_to_file names files by event time, and waits out a shortage of descriptors."""
import json
import os
import resource
import signal
import subprocess

import harness
from harness import wait_until
from file_case import DAY, FileCase, T0, event


class ByEventTime(FileCase):
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

    def test_units_and_text(self):
        """A time is what the aggregator's `time` and `time_unit` take it for."""
        w = self.writer("--time_field=t", "--time_unit=ns").wait_ready()
        lines = [b'{"t":%d000000001}\n' % T0, b'{"t":"2013-02-08T23:59:59.5Z"}\n', b'{"t":"2013-02-09T00:30:00+01:00"}\n',
                 b'{"t":%d999999999}\n' % (T0 + DAY)]
        self.publish(*lines)
        self.wait_committed()
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.staged() and not self.committed()["files"], "all to be finished")
        self.assertEqual(w.stats()["lines_without_time_total"], 0)
        w.stop()
        self.assertEqual([harness.read_file(self.path("out/s-201302%s.ndjson" % day)) for day in ("08", "09")],
                         [b"".join(lines[:3]), lines[3]])

    def test_a_file_that_nothing_comes_to_is_finished(self):
        w = self.writer("--time_field=t", "--close_after=300ms").wait_ready()
        self.publish(event(1, T0))
        wait_until(lambda: os.path.exists(self.path("out/s-20130208.ndjson")), "the file")
        self.publish(event(2, T0))
        wait_until(lambda: os.path.exists(self.path("out/s-20130208.ndjson.1")), "the late line's file")
        w.stop()


class Descriptors(FileCase):
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


if __name__ == "__main__":
    harness.main()
