"""The readers that docs/write-a-reader.md and the headers show do what they say: their text is taken from there and run, that of
the headers with what `cmake --install` put down."""
import contextlib
import glob
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
from unittest import mock

import harness
from harness import MillraceTest, wait_until

INDENT = " *     "


def shown(beginning):
    """The indented block of docs/write-a-reader.md that begins with that line."""
    with open(os.path.join(harness.ROOT, "docs", "write-a-reader.md")) as f:
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


def sanitizers():
    """What a program must be compiled with that is linked with this build's archive."""
    cache = harness.read_file(os.path.join(harness.BUILD, "CMakeCache.txt")).decode()
    named = re.search(r"(?m)^MILLRACE_SANITIZE:\w+=(.+)$", cache)
    return ["-fsanitize=" + named[1]] if named else []


class CutOff:
    """A proxy of a queue. It cuts the first answer to /reserve in the middle, as the kill of a queue does."""

    def __init__(self, url):
        outer, self.cut = self, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def pass_on(self):
                reply = harness.request(url, self.command, self.path)
                self.send_response(reply.status)
                for name in ("Content-Length", "X-Millrace-Lease"):
                    if reply.header(name):
                        self.send_header(name, reply.header(name))
                self.end_headers()
                cut = outer.cut == 0 and self.path.startswith("/reserve")
                outer.cut += cut
                with contextlib.suppress(BrokenPipeError):
                    self.wfile.write(reply.body[:len(reply.body) // 2] if cut else reply.body)

            do_GET = do_POST = pass_on

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_port

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


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

    def compile_example(self, header, url=None):
        """Compiles the example of a header against an installation alone. Returns the program."""
        prefix = self.install()
        text = harness.read_file(os.path.join(prefix, "include", "millrace", header)).decode()
        text, addresses = re.subn(r"http://127[\d.:]*", url or "", printed(text))
        self.assertEqual(addresses, 1 if url else 0)
        with mock.patch.dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig")):
            flags = self.run_to_end("pkg-config", "--cflags", "--libs", "millrace").split()
        self.run_to_end("cc", "-Wall", "-Wextra", "-Werror", *sanitizers(), "-o", self.path("example"),
                        self.write("example.c", text), *flags)
        return self.path("example")

    @contextlib.contextmanager
    def running(self, argv, number=signal.SIGKILL):
        with open(self.path("out"), "wb") as out:
            process = subprocess.Popen(harness.dies_with_us(argv), stdout=out, cwd=self.dir, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, number)
            process.wait(harness.PATIENCE)

    def wait_until_empty(self):
        wait_until(lambda: self.queue.stats()["depth"] == 0, "all to be acknowledged")

    def run_until_empty(self, argv, number=signal.SIGKILL):
        with self.running(argv, number) as process:
            self.wait_until_empty()
        with open(self.path("out")) as f:
            return f.read(), process.returncode

    def shell_example(self):
        script = shown("#!/bin/sh").replace("http://127.0.0.1:8080", self.queue.url).replace("your-command", "cat >&3")
        self.write("reader.sh", "exec 3>lines\n" + script.replace("wait=20000", "wait=1000"))
        return ["/bin/sh", "reader.sh"]

    def python_example(self, url, prelude=""):
        script = shown("import sys").replace("http://127.0.0.1:8080", url).replace("20000", "1000")
        self.write("reader.py", prelude + script.replace("print(text)", "print(text.decode(), flush=True)"))
        return [sys.executable, "reader.py"]

    def lines_of_shell(self):
        with open(self.path("lines")) as f:
            return f.read()

    def test_shell(self):
        self.run_until_empty(self.shell_example())
        self.assertEqual(self.lines_of_shell(), self.expected)

    def test_shell_waits_when_the_queue_refuses(self):
        """`sleep` is one that tells how often it was called."""
        os.mkdir(self.path("bin"))
        os.chmod(self.write("bin/sleep", "#!/bin/sh\necho $1 >>slept\n"), 0o755)
        self.write("slept", "")
        self.assertEqual(self.queue.get("/reserve?reader=other&items=1&lease=600000").status, 200)
        with mock.patch.dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"]), \
                self.running(self.shell_example()):
            wait_until(lambda: harness.read_file(self.path("slept")).startswith(b"1\n1\n1\n"), "it to wait three times")
            self.assertEqual(self.queue.post("/release?reader=other").status, 200)
            self.wait_until_empty()
        self.assertEqual(self.lines_of_shell(), self.expected)

    def test_python(self):
        self.assertEqual(self.run_until_empty(self.python_example(self.queue.url))[0], self.expected)

    def test_python_begins_with_what_a_former_life_held(self):
        self.assertEqual(self.queue.get("/reserve?reader=hello&items=10&lease=600000").status, 200)
        self.assertEqual(self.run_until_empty(self.python_example(self.queue.url))[0], self.expected)

    def test_python_acknowledges_what_succeeded(self):
        """A message that fails is tried five times and then buried. The other messages of its batch are done once."""
        prelude = """def fail(text):
    if text == b"message 3":
        raise ValueError(text)
"""
        self.python_example(self.queue.url, prelude)
        script = harness.read_file(self.path("reader.py")).decode().replace("print(text.", "fail(text) or print(text.")
        self.assertIn("delay=60000", script)
        self.write("reader.py", script.replace("delay=60000", "delay=50"))
        with self.running([sys.executable, "reader.py"]):
            wait_until(lambda: self.queue.stats()["queues"]["default"]["buried"] == 1, "the message to be buried")
            wait_until(lambda: self.queue.stats()["queues"]["default"]["depth"] == 0, "the others to be done")
        out = harness.read_file(self.path("out")).decode()
        self.assertEqual(sorted(out.splitlines()), sorted(line for line in self.expected.splitlines() if line != "message 3"))
        dead = self.queue.get("/dead").json()["buried"]
        self.assertEqual([(d["message"], d["tries"], d["reason"]) for d in dead], [("message 3", 5, "failed")])

    def test_python_outlives_a_reply_that_is_cut_off(self):
        with CutOff(self.queue.url) as proxy:
            self.assertEqual(self.run_until_empty(self.python_example(proxy.url))[0], self.expected)
            self.assertEqual(proxy.cut, 1)

    def test_the_example_of_dispatcher_h(self):
        program = self.compile_example("dispatcher.h", self.queue.url)
        self.assertEqual(self.run_until_empty([program])[0], self.expected)

    def test_the_example_of_stream_client_h(self):
        pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=never")
        self.assertEqual(pubsub.post("/pub?stream=clicks", self.expected.encode()).status, 200)
        with self.running([self.compile_example("stream_client.h", pubsub.url)]):
            wait_until(lambda: harness.read_file(self.path("out")) == self.expected.encode(), "what is in the stream")
            self.assertEqual(pubsub.post("/pub?stream=clicks", b"one more\n").status, 200)
            wait_until(lambda: harness.read_file(self.path("out")).endswith(b"\none more\n"), "what comes later")

    def test_the_example_of_filter_h(self):
        program = self.compile_example("filter.h")
        self.assertEqual(self.run_to_end("env", "-C", self.dir, program), "1\n")
        self.assertEqual(self.run_to_end("env", "-C", self.dir, program), "1\n")
        self.assertEqual(os.path.getsize(self.path("spam.filter.log")), 0)

    def test_the_example_of_url_form_h(self):
        """A program asks the marks of spamfilter in process."""
        program = self.compile_example("url_form.h")
        marks = self.start("spamfilter", "--data-dir=" + self.path("marks"))
        self.assertEqual(marks.post("/add", "bad.example\nb\u00fccher.example/x".encode()).status, 200)
        marks.stop()
        for url, mark in (("https://www.BAD.example:8443/a?b", "bad.example"), ("good.example", ""),
                          ("http://B\u00dcCHER.example/a/../x/y", "xn--bcher-kva.example/x")):
            self.assertEqual(self.run_to_end(program, self.path("marks", "marks"), url).strip(), mark)
        self.assertEqual(subprocess.run([program, self.path("marks", "marks"), "ftp://a"], timeout=harness.LONG).returncode, 2)

    def test_installed_headers_name_none_that_is_not_installed(self):
        headers = {os.path.basename(path): harness.read_file(path).decode()
                   for path in glob.glob(self.install() + "/include/millrace/*.h")}
        self.assertIn("queuereader.h", headers)
        for name, text in headers.items():
            system = set(re.findall(r"#include <(?!millrace/)(?:.*/)?(\w+\.h)>", text))
            self.assertEqual(set(re.findall(r"\b\w+\.h\b", text)) - system - headers.keys(), set(), name)

    def test_what_is_installed_has_no_names_but_those_of_its_headers(self):
        prefix = self.install()
        headers = "".join(harness.read_file(path).decode() for path in glob.glob(prefix + "/include/millrace/*.h"))
        symbols = self.run_to_end("nm", "-g", "--defined-only", prefix + "/lib/libmillrace.a").splitlines()
        names = {line.split()[-1] for line in symbols if re.match("[0-9a-f]", line)}
        self.assertLessEqual({"dispatcher_new", "queuereader_new"}, names)
        self.assertEqual({name for name in names if not re.search(r"\b%s\(" % name, headers)}, set())

    def test_c(self):
        out, status = self.run_until_empty([harness.program("example_reader"), self.queue.url], signal.SIGINT)
        self.assertEqual((out, status), (self.expected, 0))
        self.assertEqual(self.queue.stats()["queues"]["default"]["leased"], 0)
        self.assertFalse(re.search("error", self.queue.log))


if __name__ == "__main__":
    harness.main()
