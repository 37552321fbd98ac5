"""ps_to_file writes a stream into files, each line once."""
# seconds: 15
import calendar
import json
import os
import signal
import subprocess
import time

import harness
from harness import wait_until
from file_case import FileCase, event


class ByArrival(FileCase):
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
        wait_until(lambda: self.committed()["offset"] == "0", "the first state")
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
        """By the command in docs/guide/stream-tools.md."""
        with open(os.path.join(harness.ROOT, "docs", "guide", "stream-tools.md")) as f:
            command = next(line for line in f if line.startswith("    python3 -c") and "manifest" in line)
        states = {compress: compress + "/.ps_to_file-s.json" for compress in ("none", "gzip", "zstd")}
        writers = [self.writer("--compress", compress, name=compress + "/s.ndjson").wait_ready() for compress in states]
        for i in range(12):
            self.publish(event(i))
            for state in states.values():
                self.wait_committed(state)
            for w in writers:
                w.process.send_signal(signal.SIGHUP)
            for state in states.values():
                wait_until(lambda: not self.committed(state)["files"], "the file to be finished")
        for w in writers:
            w.stop()
        for compress in states:
            self.assertEqual(len(self.files(compress + "/s.ndjson*")), 12)
            done = subprocess.run(["sh", "-c", command], cwd=self.path(compress), capture_output=True, check=True)
            self.assertEqual(done.stdout, self.stream(), done)

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


if __name__ == "__main__":
    harness.main()
