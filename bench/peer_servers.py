"""The servers that others would count with, started for a benchmark: what they count, and their answers."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import urllib.parse

import harness
import measuring

# counter: key, sub key or "" (clicks.conf)
COUNTERS = {"all": ("all", ""), "u": ("l", ""), "h": ("h", ""), "d": ("host(u)", ""), "c.all": ("all", "c"),
            "r.all": ("all", "host(r)"), "u.all": ("all", "l"), "h.all": ("all", "h"), "c.u": ("l", "c"), "r.u": ("l", "r"),
            "h.u": ("l", "h"), "c.h": ("h", "c"), "r.h": ("h", "r"), "c.d": ("host(u)", "c")}
FIELDS = ("c", "r", "u", "l", "h")
CLICKHOUSE = """<yandex><logger><level>none</level><console>0</console></logger><listen_host>127.0.0.1</listen_host>
<http_port>{port}</http_port><path>{dir}/</path><tmp_path>{dir}/tmp/</tmp_path><users_config>{dir}/users.xml</users_config>
<mark_cache_size>67108864</mark_cache_size><default_profile>default</default_profile>
<default_database>default</default_database></yandex>"""
USERS = """<yandex><profiles><default><input_format_skip_unknown_fields>1</input_format_skip_unknown_fields>
<max_threads>{threads}</max_threads></default></profiles>
<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default>
</users><quotas><default></default></quotas></yandex>"""


def is_object(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def lines_of(path):
    """The events of a file as ClickHouse 18 takes them: it has no default for null, and refuses a batch with a damaged line."""
    with open(path, "rb") as f:
        return [x.replace(b": null", b': ""') for x in f.read().splitlines(keepends=True) if is_object(x)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Clickhouse:
    """A table for each counter. Events are inserted into a Null table; a materialized view for each counter groups a batch by key, sub
    key and hour."""

    def __init__(self, bench, processors="0", threads=1):
        port, place = free_port(), bench.path("clickhouse")
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place + "/tmp")
        for name, text in (("config.xml", CLICKHOUSE), ("users.xml", USERS)):
            with open(os.path.join(place, name), "w") as f:
                f.write(text.format(port=port, dir=place, threads=threads))
        self.port = port
        self.process = bench.spawn("clickhouse", ["clickhouse-server", "--config-file=" + place + "/config.xml"], processors)
        self.connection = None
        harness.wait_until(self.answers, "clickhouse to answer")
        self.ask("CREATE TABLE events (t UInt32, _heartbeat_ UInt32, %s) ENGINE = Null" % ", ".join(f + " String" for f in FIELDS))
        for i, (key, sub) in enumerate(COUNTERS.values()):
            as_sql = {"all": "'all'", "": "''", "host(u)": "domain(u)", "host(r)": "domain(r)"}
            self.ask("CREATE TABLE counts%d (key String, sub String, hour UInt32, n UInt64) ENGINE = SummingMergeTree "
                     "ORDER BY (key, sub, hour)" % i)
            self.ask("CREATE MATERIALIZED VIEW view%d TO counts%d AS SELECT %s AS key, %s AS sub, intDiv(t, 3600) AS hour, "
                     "count() AS n FROM events WHERE _heartbeat_ = 0 GROUP BY key, sub, hour" %
                     (i, i, as_sql.get(key, key), as_sql.get(sub, sub)))

    def connect(self):
        """Begins a connection of one's own, for another thread or process."""
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)

    def answers(self):
        try:
            self.connect()
            return self.ask("SELECT 1") == b"1\n"
        except OSError:
            return False

    def ask(self, statement, body=b"", connection=None):
        c = connection or self.connection
        c.request("POST", "/?query=" + urllib.parse.quote(statement), body)
        reply = c.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise AssertionError(text)
        return text

    def insert(self, lines, connection=None):
        self.ask("INSERT INTO events FORMAT JSONEachRow", lines, connection)


class Redis:
    """One connection to a redis-server that appends each write to a file."""

    def __init__(self, bench, appendfsync="everysec", processors="0"):
        self.port = free_port()
        shutil.rmtree(bench.path("redis"), ignore_errors=True)
        os.mkdir(bench.path("redis"))
        self.process = bench.spawn("redis", ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir",
                                             bench.path("redis"), "--appendonly", "yes", "--appendfsync", appendfsync,
                                             "--auto-aof-rewrite-percentage", "0"], processors)
        self.socket = harness.wait_until(self.connected, "redis to listen")

    def connected(self):
        try:
            return socket.create_connection(("127.0.0.1", self.port))
        except OSError:
            return None

    def connect(self):
        """A connection of one's own, for another thread or process."""
        self.socket = self.connected()

    @staticmethod
    def pipeline(s, commands, ends):
        """Sends them, and waits for their answers, which have so many ends of lines."""
        s.sendall(commands)
        while ends > 0:
            text = s.recv(1 << 20)
            if not text or text[:1] == b"-" or b"\n-" in text:
                raise AssertionError("redis answers %r" % text)
            ends -= text.count(b"\n")


def answer(f):
    """The next answer: a number, a text or a list."""
    head = f.readline()
    kind, rest = head[:1], head[1:-2]
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return f.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return [answer(f) for _ in range(int(rest))]
    raise AssertionError("redis answers %r" % head)


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Peers(measuring.Bench):
    def spawn(self, name, argv, processors):
        log = open(self.path(name + ".log"), "ab")
        self.addCleanup(log.close)
        p = subprocess.Popen(["taskset", "-c", processors, *harness.dies_with_us(argv)], stdout=log, stderr=log, cwd=self.dir)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p
