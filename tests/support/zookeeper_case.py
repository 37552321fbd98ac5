"""A ZooKeeper server of a test, from Debian's jar, and scrapers that share their targets through it. Each scraper has a stream of its own, so
that a test sees who published a sample."""
import collections
import functools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading

import harness
from harness import query, request, wait_until
from scraper_case import ScraperTest, samples_of

JAR = "/usr/share/java/zookeeper.jar"
TICK = 200  # milliseconds; ZooKeeper rounds a session's end up to a tick


class Server:
    """On one port, also after a kill. Few threads and no compiler of the second tier: a start takes about a second of processor."""

    def __init__(self, test):
        self.test, self.port = test, test.keep_port()
        self.address = "127.0.0.1:" + self.port
        self.config = test.write("zoo.cfg", "tickTime=%d\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
                                 "maxClientCnxns=0\n" % (TICK, test.path("zookeeper"), self.port))
        test.addCleanup(self.kill9)
        self.start()

    def start(self):
        argv = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dzookeeper.forceSync=no",
                "-Dzookeeper.preAllocSize=64", "-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR,
                "org.apache.zookeeper.server.ZooKeeperServerMain", self.config]
        with open(self.test.path("zookeeper.log"), "ab") as log:
            self.process = subprocess.Popen(harness.dies_with_us(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.process.poll() is not None or self.answers(), "ZooKeeper to listen")
        self.test.assertIsNone(self.process.poll(), "ZooKeeper has ended")

    def answers(self):
        try:
            Client(self, timeout=1).close()  # a server that has just begun to listen may forget a request
            return True
        except OSError:
            return False

    def kill9(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class Client:
    """One session. It knows the few requests that tests need."""

    def __init__(self, server, timeout=harness.PATIENCE):
        self.socket = socket.create_connection(("127.0.0.1", int(server.port)), timeout)
        server.test.addCleanup(self.close)
        self.send(struct.pack(">iqiqi16s", 0, 0, 5000, 0, 16, b""))
        self.receive()

    def send(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self):
        head = self.socket.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            raise ConnectionResetError
        return self.socket.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)

    def ask(self, kind, body):
        self.send(struct.pack(">ii", 1, kind) + body)
        return struct.unpack(">iqi", self.receive()[:16])[2]

    @staticmethod
    def text(data):
        return struct.pack(">i", len(data)) + data

    def set(self, path, data):
        return self.ask(5, self.text(path.encode()) + self.text(data) + struct.pack(">i", -1))

    def delete(self, path):
        return self.ask(2, self.text(path.encode()) + struct.pack(">i", -1))

    def close(self):
        self.socket.close()


class Network:
    """A proxy to the server. While it is `away`, connections stay open and bytes vanish."""

    def __init__(self, test, server):
        self.server, self.is_away = server, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()
        test.addCleanup(self.listener.close)

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(("127.0.0.1", int(self.server.port)))
            except OSError:
                client.close()
                continue
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    def copy(self, source, sink):
        try:
            while piece := source.recv(1 << 16):
                if self.is_away:
                    continue
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def repeated(test):
    """A test that a machine which stands still for a second can break, because a session then ends. It is repeated with longer timeouts."""
    @functools.wraps(test)
    def run(self):
        def attempt(unit):
            self.begin(unit)
            test(self)
        harness.slower_and_slower(1.0, attempt, tries=3)
    return run


class SharedTest(ScraperTest):
    """Targets have a label i. `names` are the scrapers' producers and streams, behind them the number of an attempt that is repeated."""
    timeout = 1.0  # of a session, seconds
    interval = 1  # of the targets, seconds
    stream = None  # of all scrapers; None: each has its own
    since = 0.0  # `times` begins here

    def setUp(self):
        super().setUp()
        if not shutil.which("java") or not os.path.exists(JAR):
            harness.not_installed(self, "ZooKeeper is not installed (scripts/setup --test)")
        self.server = Server(self)
        self.names, self.attempt = {}, 0

    def begin(self, unit):
        """Ends the scrapers of the attempt before."""
        for scraper in self.names.values():
            if scraper.alive():
                scraper.kill9()
        self.attempt += 1
        self.names, self.since, self.timeout, self.interval = {}, 0.0, unit, 1

    def id_of(self, name):
        return name + (str(self.attempt) if self.attempt > 1 else "")

    def put(self, *groups, name="web"):
        self.write_targets(*groups, name=name)
        return self.run_program("scraper", "--put-targets=" + self.path(name), "--zookeeper=" + self.server.address, "--zookeeper-timeout=20s")

    def member(self, name, *args, servers=None):
        """Starts a scraper without a file of targets."""
        self.names[name] = self.start("scraper", "--pubsub-url=" + self.url, "--interval=%ds" % self.interval, "--backoff-max=100ms",
                                      "--stream=" + (self.stream or self.id_of(name)), "--producer=" + self.id_of(name),
                                      "--zookeeper=" + (servers or self.server.address),
                                      "--zookeeper-timeout=%dms" % (self.timeout * 1000), *args)
        return self.names[name]

    def gauge(self, name, gauge):
        return self.names[name].stats()[gauge]

    def wait_members(self, *names):
        def agreed():
            return all(self.gauge(n, "members") == len(names) and self.gauge(n, "lease_certain") for n in names)
        wait_until(agreed, lambda: {n: self.names[n].get("/stats").text for n in names})

    def owned(self, name):
        return {t["labels"]["i"] for t in self.names[name].get("/targets").json() if t["listed"]}

    def wait_owned(self, n, *names):
        """Waits until the scrapers divide all n targets; returns {name: the i of its targets}."""
        self.wait_members(*names)

        def divided():
            shares = {name: self.owned(name) for name in names}
            return sum(map(len, shares.values())) == n == len(set().union(*shares.values())) and shares
        return wait_until(divided, lambda: {name: self.owned(name) for name in names})

    def published(self, name):
        """[(t, i, value)] of the series `a` in a scraper's stream."""
        reply = request(self.url, "GET", "/sub?" + query(stream=self.id_of(name), from_="earliest", follow=0))
        lines = [] if reply.status == 404 else map(json.loads, reply.body.splitlines())
        return [(s["t"], s["labels"]["i"], s["v"]) for line in lines for s in samples_of(line) if s["labels"]["__name__"] == "a"]

    def times(self):
        """{i: {t: the scrapers that published it}}, without stale markers."""
        found = collections.defaultdict(lambda: collections.defaultdict(list))
        for name in self.names:
            for t, i, value in self.published(name):
                if value != "stale" and t > self.since:
                    found[i][t].append(name)
        return found

    def wait_slots(self, n, i, after):
        """Waits until target i has n slots after a time."""
        wait_until(lambda: sum(t > after for t in self.times()[i]) >= n, "%d scrapes of target %s" % (n, i))

    def missing(self, times):
        """The slots without a sample between the first and the last."""
        times = sorted(times)
        return [t + k * self.interval for t, next_ in zip(times, times[1:]) for k in range(1, round((next_ - t) / self.interval))]

    def assert_no_markers(self):
        self.assertEqual([(name, t, i) for name in self.names for t, i, v in self.published(name) if v == "stale"], [])
