"""ps_to_file is killed, its pubsub is killed, its disk fills, the power goes: the archive holds every line once."""
# full: MILLRACE_ROUNDS=200
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import harness
import power_cut
from harness import wait_until

T0 = 1360281600


class ArchiveTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.published = 0
        self.start_pubsub()

    def start_pubsub(self, port="0"):
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s",
                                 "--address=127.0.0.1", "--port", port, port=False)

    def publish(self, n):
        """n numbered lines, retried blindly under marks."""
        lines = b"".join(b'{"n":%d,"t":%d,"x":"%s"}\n' % (
            i, T0 + i * 60 + self.random.randrange(-90000, 90000), b"x" * self.random.randrange(200))
            for i in range(self.published, self.published + n))
        target = "/pub?stream=s&producer=p&mark=%d&next=%d" % (self.published, self.published + n)

        def done():
            try:
                return self.pubsub.post(target, lines).status == 200
            except harness.UNREACHABLE:
                return False
        wait_until(done, "a publish")
        self.published += n

    def stream(self):
        return self.pubsub.get("/sub?stream=s&from=earliest&follow=0").body

    def writer(self, *args, program="ps_to_file", directory=None, **kw):
        directory = directory or self.path("out")
        return self.daemon(program, "--pubsub_url", self.pubsub.url, "--stream=s", "--commit_every=10ms",
                           "--filename_format", directory + "/s-%Y%m%d.ndjson", *args, **kw)

    def state(self, directory=None):
        with open(os.path.join(directory or self.path("out"), ".ps_to_file-s.json")) as f:
            return json.load(f)

    def finish(self, w, end, directory=None):
        """Everything up to `end` is in finished files."""
        w.wait_ready()

        def committed():
            try:
                return int(self.state(directory)["offset"]) == end
            except OSError:
                return False
        wait_until(committed, lambda: "all to be committed\n" + w.log)
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.state(directory)["files"], lambda: "all to be finished\n" + w.log)
        w.stop()

    def archived(self, directory=None):
        """The finished files' lines, in the order of the manifests, each manifest checked."""
        found = []
        for path in glob.glob((directory or self.path("out")) + "/*.manifest.json"):
            with open(path) as f:
                m = json.load(f)
            file = os.path.join(os.path.dirname(path), m["file"])
            text = subprocess.run(["zstd", "-dc", file], capture_output=True, check=True).stdout \
                if file.endswith(".zst") else harness.read_file(file)
            self.assertEqual((len(text), text.count(b"\n")), (int(m["bytes"]), int(m["lines"])), path)
            found.append((int(m["first"]), text))
        left = [p for p in glob.glob((directory or self.path("out")) + "/*") if p.endswith((".part", ".new"))]
        self.assertEqual(left, [])
        return [text for _, text in sorted(found)]


class Killed(ArchiveTest):
    def rounds(self, *args):
        busy = True

        def run():
            while busy:
                self.publish(self.random.randrange(1, 200))
        publisher = threading.Thread(target=run)
        publisher.start()
        try:
            for n in range(harness.rounds(5)):
                w = self.writer(*args)
                time.sleep(self.random.uniform(0.02, 0.3))
                if self.random.random() < 0.5:
                    w.process.send_signal(signal.SIGHUP)
                    time.sleep(self.random.uniform(0, 0.05))
                if n % 3 == 1:
                    self.pubsub.kill9()
                    self.start_pubsub(self.pubsub.url.rsplit(":", 1)[1])
                w.kill9()
        finally:
            busy = False
            publisher.join()
        self.finish(self.writer(*args), len(self.stream()))

    def test_by_arrival(self):
        self.rounds("--compress=gzip")
        self.assertEqual(b"".join(self.archived()), self.stream())

    def test_by_event_time(self):
        self.rounds("--time_field=t", "--max_open=4")
        lines = b"".join(self.archived()).splitlines(True)
        self.assertEqual(sorted(lines), sorted(self.stream().splitlines(True)))


class FullDisk(ArchiveTest):
    def test_it_waits_for_room(self):
        out = self.path("out")
        os.mkdir(out)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", out], capture_output=True).returncode:
            self.skipTest("no right to mount a tmpfs")
        try:
            w = self.writer("--port=0", port=False)
            w.wait_listening()
            for _ in range(30):
                self.publish(200)
            wait_until(lambda: b"No space" in w.get("/health").body, w.log)
            self.assertEqual(w.get("/health").status, 503)
            subprocess.run(["mount", "-o", "remount,size=64m", out], check=True)
            self.publish(10)
            self.finish(w, len(self.stream()))
            self.assertEqual(b"".join(self.archived()), self.stream())
        finally:
            for d in self.daemons:
                d.kill9()
            subprocess.run(["umount", "-l", out], check=True)


class PowerCut(ArchiveTest):
    def run_logged(self, *args):
        log = self.path("iolog")
        w = self.writer(*args, program="ps_to_file_iolog", env={"MILLRACE_IO_LOG": log}).wait_ready()
        for n in range(40):
            self.publish(self.random.randrange(1, 60))
            if n % 10 == 5:
                w.process.send_signal(signal.SIGHUP)
            time.sleep(0.005)
        self.finish(w, len(self.stream()))
        return harness.read_file(log)

    def move(self, root):
        """The state names files by their paths: the copy's are elsewhere."""
        path = os.path.join(root, ".ps_to_file-s.json")
        if os.path.exists(path):
            with open(path) as f:
                text = f.read()
            with open(path, "w") as f:
                f.write(re.sub(re.escape(self.path("out")) + "/", root + "/", text))

    def cuts(self, log, *args):
        for n in range(harness.rounds(8)):
            root = self.path("cut%d" % n)
            os.mkdir(root)
            power_cut.cut(log, self.random.randrange(len(log) + 1), self.random, self.path("out"), root)
            self.move(root)
            self.finish(self.writer(*args, directory=root), len(self.stream()), root)
            yield b"".join(self.archived(root))
            shutil.rmtree(root)

    def test_by_arrival(self):
        log = self.run_logged("--compress=zstd")
        for archived in self.cuts(log, "--compress=zstd"):
            self.assertEqual(archived, self.stream())

    def test_by_event_time(self):
        log = self.run_logged("--time_field=t", "--max_open=4")
        expected = sorted(self.stream().splitlines(True))
        for archived in self.cuts(log, "--time_field=t", "--max_open=4"):
            self.assertEqual(sorted(archived.splitlines(True)), expected)


if __name__ == "__main__":
    harness.main()
