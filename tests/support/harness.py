"""What the tests of real daemons share: start, ask, wait by polling, kill, clean up.

Every test gets a directory of its own and daemons on port 0; nothing outlives a test. The build under test is
named by MILLRACE_BUILD (ctest sets it). MILLRACE_ROUNDS and MILLRACE_SEED steer the random ones; the seed is
printed. Real clicks and the oracle are used where MILLRACE_SHARED, or ../shared beside the checkout, has them.
"""
import contextlib
import ctypes
import glob
import gzip
import http.client
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # in programs that a test runs

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.realpath(os.environ.get("MILLRACE_BUILD", os.path.join(ROOT, "build", "release")))
SANITIZED = os.environ.get("MILLRACE_SANITIZED", "") not in ("", "0")
# On another file system than the test's files, if the machine has two.
OTHER_DIR = os.environ.get("MILLRACE_OTHER_DIR", "/dev/shm")
PATIENCE = float(os.environ.get("MILLRACE_PATIENCE", "40"))  # seconds, for one wait: only broken programs take so long
# Seconds for acts that must never wait: many, so that a program that takes longer is broken, and not only on a busy machine.
SOON = PATIENCE / (2 if SANITIZED else 6)
STOP_TIMEOUT = PATIENCE / 2  # from SIGTERM to a daemon's end
DRAIN_TIMEOUT = STOP_TIMEOUT * 3 / 4  # shorter, so that a daemon logs what it cannot finish before it counts as hung
LONG = PATIENCE * 5  # for a program, or a daemon, that goes through all there is, like all real clicks


def program(name):
    """The path of a program in the build: `millrace` in bin, others in libexec/millrace, bench or tests."""
    paths = [os.path.join(BUILD, place, name)
             for place in ("bin" if name == "millrace" else "libexec/millrace", "bench", "tests")]
    return next(filter(os.path.exists, paths), paths[-1])


def rounds(default):
    return int(os.environ.get("MILLRACE_ROUNDS", default))


def seeded():
    """A random generator whose seed is printed, or given by MILLRACE_SEED."""
    seed = int(os.environ.get("MILLRACE_SEED", 0)) or random.SystemRandom().randrange(1, 2**31)
    print("seed: MILLRACE_SEED=%d" % seed, file=sys.stderr, flush=True)
    return random.Random(seed)


def run_side_by_side(test, generator, total, each, part=1):
    """Runs the test method `test` with `total` programs in processes of at most `each` programs, each with a seed of its own.
    `part`: the method runs MILLRACE_ROUNDS / part programs."""
    processes = -(-total // each)
    runs = [subprocess.Popen([sys.executable, os.path.abspath(sys.modules["__main__"].__file__), "-v", test],
                             env={**os.environ, "MILLRACE_ROUNDS": str(part * len(range(i, total, processes))),
                                  "MILLRACE_SEED": str(generator.randrange(1, 2**31))}) for i in range(processes)]
    assert [run.wait() for run in runs] == [0] * processes


def wait_until(condition, what, timeout=PATIENCE, interval=None):
    """Polls until condition() is true and returns what it gave; fails by name when it never is. A LookupError, such as
    from the first cursor of an empty list, counts as not yet true. Without an interval it polls less and less often, so that a
    test that waits leaves the processors to others."""
    start = time.monotonic()
    while True:
        missing = None
        try:
            value = condition()
        except LookupError as error:
            value, missing = None, error
        if value:
            return value
        waited = time.monotonic() - start
        if waited > timeout:
            raise AssertionError("waited %g s in vain for: %s" % (timeout, what() if callable(what) else what)) from missing
        time.sleep(min(max(waited / 10, 0.005), 0.25) if interval is None else interval)


def slower_and_slower(unit, attempt, tries=4):
    """attempt(unit) tests a promise about time, in units of `unit` seconds. If it fails, perhaps because the machine stood still, it is
    repeated with a unit four times as long. A broken promise also fails with the longest unit."""
    for _ in range(tries - 1):
        try:
            return attempt(unit)
        except (AssertionError, *UNREACHABLE) as e:
            print("with a unit of %g: %s" % (unit, str(e)[:2000]), file=sys.stderr, flush=True)
            unit *= 4
    return attempt(unit)


def parse_headers(lines, _class=http.client.HTTPMessage):
    """Replaces the function of http.client, which parses headers as mail and so takes a third of a request's time. Here, each header is one
    line."""
    message = _class()
    while (line := lines.readline(1 << 16)) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        message.set_raw(name, value.lstrip(" \t").rstrip("\r\n"))
    return message


http.client.parse_headers = parse_headers


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return json.loads(self.body)

    def header(self, name):
        return self.headers.get(name)

    def __repr__(self):
        return "Reply(%d, %r)" % (self.status, self.body[:300])


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connect(url, timeout=PATIENCE):
    if url.startswith("unix:"):
        return UnixConnection(url[5:], timeout)
    parts = urllib.parse.urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)


def request(url, method, target, body=None, headers=None, timeout=PATIENCE):
    """One request on a connection of its own. Connection trouble raises OSError or HTTPException."""
    c = connect(url, timeout)
    try:
        c.request(method, target, body, headers or {})
        r = c.getresponse()
        return Reply(r.status, r.headers, r.read())
    finally:
        c.close()


def broken_off(url, target):
    """The body of a reply whose end was not sent."""
    try:
        reply = request(url, "GET", target)
    except http.client.IncompleteRead as e:
        return e.partial
    raise AssertionError("the reply ended well: %s" % (reply,))


UNREACHABLE = (OSError, http.client.HTTPException)


def query(**params):
    """k=v&... with bytes or text values percent-encoded; a list repeats the name; `from_` stands for `from`."""
    return "&".join("%s=%s" % (k.rstrip("_"), urllib.parse.quote(v if isinstance(v, bytes) else str(v), safe=""))
                    for k, values in params.items() for v in (values if isinstance(values, list) else [values]) if v is not None)


def dies_with_us(argv):
    """The command line with which a program is killed when the test ends, in whatever way. The kernel watches the thread that started it,
    so only the main thread's programs can be tied to it. run_test, which sets MILLRACE_OTHER_DIR, kills what a test leaves behind, without
    one more process for each program."""
    tied = "MILLRACE_OTHER_DIR" not in os.environ and threading.current_thread() is threading.main_thread() and shutil.which("setpriv")
    return ["setpriv", "--pdeathsig", "KILL", *argv] if tied else argv


# A test fails if a stop leaves work unfinished, but not if a stop takes long.
PATIENT = {"MILLRACE_%s_DRAIN_TIMEOUT" % name: "%ds" % DRAIN_TIMEOUT for name in (
    "SIMPLEQUEUE", "PUBSUB", "PUBSUB_FILTERED", "AGGREGATOR", "SORTDB", "SPAMFILTER", "LISTS", "SCRAPER", "RULER", "API", "QUEUE_TO_PUBSUB", "QUEUE_TO_NATS", "QUEUE_TO_HTTP",
    "QUEUE_EXEC", "PS_TO_FILE", "PS_TO_HTTP")}
# Daemons of tests keep no bytes of the disk free: the machine's disk may be nearly full, and a test's disk has only a few MB.
PATIENT.update({"MILLRACE_%s_MIN_FREE" % name: "0" for name in ("SIMPLEQUEUE", "PUBSUB", "SPAMFILTER", "LISTS")})


def catches(pid, number):
    """True once a process has a handler for the signal. Without the handler, the signal would kill the process."""
    with open("/proc/%d/status" % pid) as f:
        caught = next(line for line in f if line.startswith("SigCgt:")).split()[1]
    return int(caught, 16) >> (number - 1) & 1


class Daemon:
    """One process of the build. Its standard error goes to a file that failures print."""

    def __init__(self, test, name, *args, env=None, listen="127.0.0.1", port=True):
        self.name, self.test = name, test
        self.argv = [program(name), *args] + (["--address=" + listen, "--port=0"] if port else [])
        self.log_path = os.path.join(test.dir, "%s.%d.log" % (name, len(test.daemons)))
        self.url = None
        given = PATIENT if name != "echo_daemon" else {k: v for k, v in PATIENT.items() if "MIN_FREE" not in k}
        environment = {k: v for k, v in {**os.environ, **given, **(env or {})}.items() if v is not None}
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(dies_with_us(self.argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=environment, cwd=test.dir, start_new_session=True)
        test.daemons.append(self)

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def alive(self):
        return self.process.poll() is None

    def wait_listening(self):
        def found():
            if not self.alive():
                raise AssertionError("%s ended with %s:\n%s" % (self.name, self.process.returncode, self.log))
            return re.search(r'\blistening\b.*?(?:\bport"?[=:](\d+)|\bunix"?[=:]"?([^\s",}]+))', self.log)
        m = wait_until(found, lambda: "%s to listen:\n%s" % (self.name, self.log))
        self.url = "http://127.0.0.1:" + m.group(1) if m.group(1) else "unix:" + m.group(2)
        return self

    def wait_ready(self, timeout=PATIENCE):
        self.wait_listening()

        def ready():
            if not self.alive():
                raise AssertionError("%s ended with %s:\n%s" % (self.name, self.process.returncode, self.log))
            try:
                health = self.get("/health")
                return health.status == 200 or b"refusing" in health.body  # refuses only requests that need room
            except UNREACHABLE:
                return False
        wait_until(ready, lambda: "%s to be ready:\n%s" % (self.name, self.log), timeout)
        return self

    def get(self, target, **kw):
        return request(self.url, "GET", target, **kw)

    def post(self, target, body=b"", **kw):
        return request(self.url, "POST", target, body, **kw)

    def stats(self):
        return self.get("/stats?format=json").json()

    def counters(self):
        """The names of the counters in /metrics, without those that every daemon has."""
        return set(re.findall(r"(?m)^# TYPE millrace_%s_(\w+) counter$" % self.name, self.get("/metrics").text))

    def kill9(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self, expect=0):
        """SIGTERM; the exit status must be `expect`."""
        if self.alive():
            self.process.terminate()
        status = self.process.wait(PATIENCE)
        if expect is not None and status != expect:
            raise AssertionError("%s ended with %s, not %s:\n%s" % (self.name, status, expect, self.log))
        return status


class MillraceTest(unittest.TestCase):
    """A test with its own directory (self.dir). The daemons that it starts are killed at its end."""
    maxDiff = 4000

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="millrace-test-", dir=os.environ.get("MILLRACE_TEST_DIR"))
        os.environ["XDG_STATE_HOME"] = self.path("state-home")
        self.daemons = []
        self.addCleanup(self._clean_up)

    def _clean_up(self):
        hung = []
        for d in reversed(self.daemons):
            if d.alive():
                d.process.terminate()
                try:
                    d.process.wait(STOP_TIMEOUT)
                except subprocess.TimeoutExpired:
                    hung.append(d.name)
                    d.kill9()
        outcome = getattr(self, "_outcome", None)
        failed = outcome is not None and not getattr(outcome, "success", True)
        broken = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)
        complaint = r"runtime error:|(Address|Leak|Thread)Sanitizer|Assertion .* failed"
        sanitizer = [d for d in self.daemons if d.process.returncode in broken or re.search(complaint, d.log)]
        if failed or sanitizer or hung:
            for d in self.daemons:
                print("---- %s (%s)\n%s" % (d.name, " ".join(d.argv), d.log[-6000:]), file=sys.stderr)
        shutil.rmtree(self.dir, ignore_errors=True)
        self.assertFalse([d.name for d in sanitizer], "a sanitizer complained, or a daemon broke down")
        self.assertFalse(hung, "still running %g s after SIGTERM" % STOP_TIMEOUT)

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def keep_port(self):
        """A free TCP port, on which a daemon can be started again and again. The kernel gives the port to no other program, and refuses
        connections while no daemon listens."""
        s = socket.socket()
        self.addCleanup(s.close)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])

    def enter_own_network(self):
        """The test and its daemons are alone on their loopback, so that fixed ports are free."""
        libc, new_network = ctypes.CDLL(None, use_errno=True), 0x40000000
        network = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.addCleanup(os.close, network)
        if libc.unshare(new_network):
            self.skipTest("no right to make a network")
        self.addCleanup(libc.setns, network, new_network)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

    def write(self, name, text):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def daemon(self, name, *args, **kw):
        """Starts it without waiting."""
        return Daemon(self, name, *args, **kw)

    def start(self, name, *args, **kw):
        """Starts it and waits until it is ready."""
        return Daemon(self, name, *args, **kw).wait_ready()

    def run_program(self, name, *args, timeout=LONG, **kw):
        """Runs it to its end: CompletedProcess with bytes."""
        return subprocess.run([program(name), *args], capture_output=True, timeout=timeout, cwd=self.dir, **kw)


USERS_BY_COUNTRY = """
[input]
time = t
max_ahead = 0
[total u]
key = l
label = user
[subtotal c.u]
key = c
label = country
"""


def sample_counters():
    """The counters of etc/clicks.conf, without its settings of daemons."""
    with open(os.path.join(ROOT, "etc", "clicks.conf")) as f:
        text = f.read()
    return text[text.index("[input]"):]


def pipeline_config(directory, counters=None, **sections):
    """A configuration with every port 0 and its data below `directory`. sections: simplequeue={"max_depth": 5}; None leaves a default out."""
    text = ""
    for name in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api"):
        sections.setdefault(name, {}).setdefault("port", 0)
    sections.setdefault("millrace", {}).setdefault("data_dir", directory)
    sections["millrace"].setdefault("metrics", "no")  # two daemons fewer
    sections["millrace"].setdefault("restart_delay", "50ms")
    sections["millrace"].setdefault("restart_delay_max", "200ms")
    sections["millrace"].setdefault("stop_timeout", "%ds" % (STOP_TIMEOUT * 7 / 8))
    sections["pubsub"].setdefault("streams", "clicks")
    sections.setdefault("compactor", {}).setdefault("every", 0)  # no test depends on the time of day
    for name, settings in sections.items():
        text += "[%s]\n" % name + "".join("%s = %s\n" % kv for kv in settings.items() if kv[1] is not None) + "\n"
    return text + (sample_counters() if counters is None else counters)


class Pipeline(Daemon):
    """`millrace up` with the daemons of a configuration; addresses and pids come from run.json."""

    def __init__(self, test, config_path, data_dir, *args, env=None):
        self.config_path, self.data_dir = config_path, data_dir
        super().__init__(test, "millrace", "up", "--config", config_path, *args, env=env, port=False)

    def run_file(self):
        try:
            with open(os.path.join(self.data_dir, "run.json")) as f:
                return json.load(f)
        except (OSError, ValueError):
            return {"daemons": {}}

    def wait_ready(self):
        def ready():
            if not self.alive():
                raise AssertionError("millrace up ended with %s:\n%s" % (self.process.returncode, self.log))
            run = self.run_file()
            return run.get("pid") == self.pid and run["daemons"] and \
                all(d["state"] == "ready" for d in run["daemons"].values()) and self.has_opened_archive(run["daemons"].get("api"))
        wait_until(ready, lambda: "the pipeline to be ready: %s\n%s" % (self.run_file(), self.log))
        return self

    def has_opened_archive(self, api):
        """An API that maps the archive takes events, so it is ready, while it opens it; but its answers are 503 until then."""
        try:
            reads = api and b"--archive=" in read_file("/proc/%d/cmdline" % api["pid"])
        except OSError:
            return False  # it has just ended
        return not reads or re.search("reading the archive|cannot open the archive", self.log) is not None

    def daemon_url(self, name):
        return self.run_file()["daemons"][name]["url"]

    def daemon_pid(self, name):
        return self.run_file()["daemons"][name]["pid"]

    def ask(self, name, method, target, body=None, **kw):
        return request(self.daemon_url(name), method, target, body, **kw)

    def kill9_daemon(self, name):
        """Kills one daemon of it: the process that run.json names, a child of `millrace up`, once there is one."""
        pid = wait_until(lambda: self.daemon_pid(name), name + " to run")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return pid

    def interrupt(self):
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(PATIENCE)
        if status != 0:
            raise AssertionError("millrace up ended with %s after Ctrl-C:\n%s" % (status, self.log))


def shared_dir():
    for path in (os.environ.get("MILLRACE_SHARED"), os.path.join(ROOT, "..", "shared")):
        if path and os.path.isdir(os.path.join(path, "oracle")):
            return os.path.realpath(path)
    return None


def real_files():
    shared = shared_dir()
    return sorted(glob.glob(os.path.join(shared, "data", "usagov", "*.gz"))) if shared else []


def real_sample():
    """All files of the real feed in long rounds, otherwise a few files of different years. The second file, whose last line is incomplete,
    is always one of them."""
    files = real_files()
    return files if rounds(1) > 1 and not SANITIZED else files[:2] + files[6::6]


def read_file(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as f:
        return f.read()


def flip(path, at):
    """Flips a bit of the byte. A second call restores the byte."""
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 4]))


def load_oracle():
    """The oracle as a module, or None."""
    shared = shared_dir()
    if not shared:
        return None
    spec = importlib.util.spec_from_file_location("oracle", os.path.join(shared, "oracle", "oracle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    key_of = module.key_of

    def escaped_key(event, spec):
        """The oracle has no max_keys, so it does not know that `(other)` is not the key of an event."""
        key = key_of(event, spec)
        return "\\" + key if key.lstrip("\\") == "(other)" else key

    module.key_of = escaped_key
    return module


NOT_INSTALLED = []
SKIPPED = 77  # the exit status that tests/daemons.cmake tells ctest


def not_installed(test, what):
    """A program that CI installs (scripts/setup --test) is missing. In CI the test fails; elsewhere ctest shows the file as skipped."""
    if os.environ.get("CI") == "true":
        test.fail(what)
    NOT_INSTALLED.append(what)
    test.skipTest(what)


def chromium():
    """The path of a browser without windows, or None. The shell costs the processor half of what the whole browser does."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class PartLoader(unittest.TestLoader):
    """Of a file with `# parts: N` ctest runs N parts beside each other: MILLRACE_PART=2/3 is each third test from the second on."""

    def loadTestsFromModule(self, *args, **kw):
        def cases(suite):
            for test in suite:
                yield from cases(test) if isinstance(test, unittest.TestSuite) else [test]
        number, parts = map(int, os.environ.get("MILLRACE_PART", "1/1").split("/"))
        return self.suiteClass(list(cases(super().loadTestsFromModule(*args, **kw)))[number - 1::parts])


def main():
    result = unittest.main(verbosity=2, exit=False, testLoader=PartLoader()).result
    sys.exit(not result.wasSuccessful() or (SKIPPED if NOT_INSTALLED else 0))
