"""What the tests of ps_to_file's archive share: a pubsub with numbered lines, a writer, and the archive read back."""
import glob
import json
import os
import signal
import subprocess

import harness
from harness import wait_until
from xxh3 import xxh3

T0 = 1360281600


class ArchiveTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.published = 0
        self.port = self.keep_port()
        self.start_pubsub()

    def start_pubsub(self):
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s",
                                 "--address=127.0.0.1", "--port", self.port, port=False)

    def publish(self, n, padding=None):
        """n numbered lines, retried blindly under marks."""
        lines = b"".join(b'{"n":%d,"t":%d,"x":"%s"}\n' % (
            i, T0 + i * 60 + self.random.randrange(-90000, 90000), b"x" * (padding or self.random.randrange(200)))
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

    def writer(self, *args, program="ps_to_file", directory=None, name="s-%Y%m%d.ndjson", **kw):
        directory = directory or self.path("out")
        return self.daemon(program, "--pubsub_url", self.pubsub.url, "--stream=s", "--commit_every=10ms",
                           "--filename_format", os.path.join(directory, name), *args, **kw)

    def state(self, directory=None):
        with open(os.path.join(directory or self.path("out"), ".ps_to_file-s.json")) as f:
            return json.load(f)

    def wait_committed(self, w, end, directory=None):
        def committed():
            try:
                return int(self.state(directory)["offset"]) == end
            except OSError:
                return False
        wait_until(committed, lambda: "all to be committed\n" + w.log)

    def finish(self, w, end, directory=None):
        """Everything up to `end` is in finished files."""
        w.wait_ready()
        self.wait_committed(w, end, directory)
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
            self.assertEqual((len(text), text.count(b"\n"), xxh3(text)), (int(m["bytes"]), int(m["lines"]), m["xxh3"]), path)
            self.assertEqual(os.path.getsize(file), int(m["stored_bytes"]), path)
            found.append((int(m["first"]), text))
        left = [p for p in glob.glob((directory or self.path("out")) + "/.ps_to_file-names-*.staging/*")
                if not p.endswith("/has-state")]
        self.assertEqual(left, [])
        return [text for _, text in sorted(found)]
