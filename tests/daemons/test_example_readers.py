"""The readers that docs/readers.md and the headers show do what they say: their text is taken from there and run, that of
the headers with what `cmake --install` put down."""
import glob
import os
import re
import signal
import subprocess
import sys
from unittest import mock

import harness
from harness import MillraceTest, wait_until

INDENT = " *     "


def shown(beginning):
    """The indented block of docs/readers.md that begins with that line."""
    with open(os.path.join(harness.ROOT, "docs", "readers.md")) as f:
        lines = f.read().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    " + beginning))
    block = []
    for line in lines[start:]:
        if line and not line.startswith("    "):
            break
        block.append(line[4:])
    return "\n".join(block)


def printed(header):
    """The example in a header's first comment: the first run of lines that are indented there, or empty."""
    lines = header.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(INDENT))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith(INDENT) and lines[i] != " *")
    return "".join(line[len(INDENT):] + "\n" for line in lines[start:end])


class Examples(MillraceTest):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        for i in range(10):
            self.queue.post("/put", b"message %d" % i)
        self.expected = "".join("message %d\n" % i for i in range(10))

    def run_to_end(self, *argv):
        done = subprocess.run(argv, capture_output=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr).decode())
        return done.stdout.decode()

    def install(self):
        self.run_to_end("cmake", "--install", harness.BUILD, "--prefix", self.path("first"))
        os.rename(self.path("first"), self.path("moved"))
        return self.path("moved")

    def compile_example(self, header, url):
        """As a user does who has nothing but an installation: the program made of what its header shows."""
        prefix = self.install()
        text = harness.read_file(os.path.join(prefix, "include", "millrace", header)).decode()
        text, addresses = re.subn(r"http://127[\d.:]*", url, printed(text))
        self.assertEqual(addresses, 1)
        with mock.patch.dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig")):
            flags = self.run_to_end("pkg-config", "--cflags", "--libs", "millrace").split()
        sanitizers = ["-fsanitize=address,undefined"] if harness.SANITIZED else []
        self.run_to_end("cc", "-Wall", "-Wextra", "-Werror", *sanitizers, "-o", self.path("example"),
                        self.write("example.c", text), *flags)
        return self.path("example")

    def run_until_empty(self, argv, number=signal.SIGKILL):
        with open(self.path("out"), "wb") as out:
            process = subprocess.Popen(harness.dies_with_us(argv), stdout=out, cwd=self.dir, start_new_session=True)
        try:
            wait_until(lambda: self.queue.stats()["depth"] == 0, "all to be acknowledged")
        finally:
            os.killpg(process.pid, number)
            process.wait(harness.PATIENCE)
        with open(self.path("out")) as f:
            return f.read(), process.returncode

    def test_shell(self):
        script = shown("#!/bin/sh").replace("http://127.0.0.1:8080", self.queue.url).replace("your-command", "cat >&3")
        self.write("reader.sh", "exec 3>lines\n" + script.replace("wait=20000", "wait=1000"))
        self.run_until_empty(["/bin/sh", "reader.sh"])
        with open(self.path("lines")) as f:
            self.assertEqual(f.read(), self.expected)

    def test_python(self):
        script = shown("import time").replace("http://127.0.0.1:8080", self.queue.url)
        self.write("reader.py", script.replace("print(text)", "print(text.decode(), flush=True)").replace("20000", "1000"))
        self.assertEqual(self.run_until_empty([sys.executable, "reader.py"])[0], self.expected)

    def test_the_example_of_queuereader_h(self):
        program = self.compile_example("queuereader.h", self.queue.url)
        self.assertEqual(self.run_until_empty([program])[0], self.expected)

    def test_the_example_of_stream_client_h(self):
        pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never")
        lines = "".join("line %d\n" % i for i in range(20000))
        self.assertEqual(pubsub.post("/pub?stream=clicks", lines.encode()).status, 200)
        program = self.compile_example("stream_client.h", pubsub.url)
        process = subprocess.Popen(harness.dies_with_us([program]), stdout=subprocess.PIPE)
        seen = process.stdout.read(65536)
        process.kill()
        process.wait(harness.PATIENCE)
        process.stdout.close()
        self.assertEqual(seen, lines.encode()[:65536])

    def test_what_is_installed_has_no_names_but_those_of_its_headers(self):
        prefix = self.install()
        headers = "".join(harness.read_file(path).decode() for path in glob.glob(prefix + "/include/millrace/*.h"))
        symbols = self.run_to_end("nm", "-g", "--defined-only", prefix + "/lib/libmillrace.a").splitlines()
        names = {line.split()[-1] for line in symbols if re.match("[0-9a-f]", line)}
        self.assertIn("queuereader_new", names)
        self.assertEqual({name for name in names if not re.search(r"\b%s\(" % name, headers)}, set())

    def test_c(self):
        out, status = self.run_until_empty([harness.program("example_reader"), self.queue.url], signal.SIGINT)
        self.assertEqual((out, status), (self.expected, 0))
        self.assertEqual(self.queue.stats()["queues"]["default"]["leased"], 0)
        self.assertFalse(re.search("error", self.queue.log))


if __name__ == "__main__":
    harness.main()
