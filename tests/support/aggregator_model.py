"""A model of the aggregator's side of a compaction, over slices as docs/formats/slices.md describes them: for tests that want an
aggregator to be away, refuse, or hold what they say."""
import collections
import json
import os
import sqlite3
import struct
import subprocess
import threading

import harness
import http_stub
import xxh3

COUNTERS = "total u key = l\n"


def signed(value):
    """A number of 64 bits as SQLite stores it."""
    return value - (1 << 64) if value >> 63 else value


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def counted(data):
    return varint(len(data)) + data


def make_run(counts, lookups):
    """The only block of a run, the run's number being 1, and its index, as docs/formats/slices.md describes them."""
    values = {key: b"\0" + text for key, text in lookups.items()}
    for row in sorted(counts):
        key, name = row.split(b",", 1)
        values.setdefault(key + b",", b"")
        values[key + b","] += bytes([len(name)]) + name + varint(counts[row])
    block = b"".join(varint(0) + counted(key) + counted(values[key]) for key in sorted(values))
    seeds = [1 << 32 ^ number for number in (0, (1 << 32) - 1)]
    index = varint(len(counts) + len(lookups)) + varint(1) + counted(min(values)) + varint(len(block))
    index += struct.pack("<Q", xxh3.seeded(block, seeds[0]))
    return block, index + struct.pack("<Q", xxh3.seeded(index, seeds[1]))


def make_slice(path, number, counts, lookups=None, counters=COUNTERS):
    """A sealed slice of stream `clicks`. Each counter of the events has all of them."""
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE runs(id INTEGER PRIMARY KEY, level INTEGER NOT NULL, counts INTEGER NOT NULL, bytes INTEGER NOT NULL,
                          checksum INTEGER NOT NULL, blocks BLOB NOT NULL);
        CREATE TABLE blocks(id INTEGER PRIMARY KEY, data BLOB NOT NULL);
        CREATE TABLE cursors(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE begins(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
        PRAGMA application_id = 1297239123; PRAGMA user_version = 5; PRAGMA journal_mode = WAL;""")
    if counts or lookups:
        block, index = make_run(counts, lookups or {})
        db.execute("INSERT INTO blocks VALUES(?, ?)", (1 << 32, block))
        db.execute("INSERT INTO runs VALUES(1, 0, ?, ?, ?, ?)", (len(counts) + len(lookups or {}), len(block),
                                                               signed(struct.unpack("<Q", index[-8:])[0]), index))
    db.execute("INSERT INTO cursors VALUES('clicks', 'c0ffee', ?, 0)", (number * 100,))
    db.execute("INSERT INTO begins VALUES('clicks', 'c0ffee', ?, 0)", (number * 100 - 100,))
    events = sum(n for row, n in counts.items() if row.startswith(counters.split()[1].encode() + b"|"))
    db.executemany("INSERT INTO meta VALUES(?, ?)", [("number", number), ("counters", counters), ("sealed", 1), ("events", events)])
    db.execute("INSERT INTO meta VALUES('checksum', ?)", (checksum(db),))
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def checksum(db):
    """That of a slice's state, as docs/formats/slices.md describes it."""
    meta = collections.defaultdict(int, db.execute("SELECT key, value FROM meta"))
    text = "%d %d %d %d %d %d\n" % tuple(
        meta[name] for name in ("number", "started", "rejects_length", "sealed", "quarters_since", "newest_hour"))
    for suffix in ("", "_before"):
        text += "%d %d %d\n" % tuple(meta[name + suffix] for name in ("events", "skipped", "rejected"))
    for word, table in (("begin", "begins"), ("cursor", "cursors")):
        for row in db.execute("SELECT stream, id, offset, until FROM %s ORDER BY stream" % table):
            text += word + " %s %s %d %d\n" % row
    for run in db.execute("SELECT id, level, counts, bytes, checksum FROM runs ORDER BY id"):
        text += "run %d %d %d %d %016x\n" % (*run[:4], run[4] & (1 << 64) - 1)
    text += "".join("%s %d\n" % sum_ for sum_ in sorted(meta.items()) if sum_[0].startswith("sum "))
    return signed(int(xxh3.xxh3((text + meta["counters"]).encode()), 16))


def change_slice(path, *changes):
    """Runs statements with their values on a slice, and mends its checksum."""
    db = sqlite3.connect(path)
    for sql, *values in changes:
        db.execute(sql, values)
    db.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (checksum(db),))
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def read_slice(path):
    """{row: count} of a slice, where a row is a record's key, a comma and the count's name."""
    text = subprocess.run([harness.program("millrace"), "slice", path], check=True, capture_output=True).stdout
    found = {}
    for line in text.splitlines():
        key, value = line.split(b",", 1)
        if not key.startswith(b"lookup|"):
            found.update({key + b"," + name: int(n) for name, n in (p.rsplit(b":", 1) for p in value.split(b" "))})
    return found


class Aggregator:
    """What the compactor asks of an aggregator. `asked` has every request; `answers` replaces some: target's path ->
    (status, object)."""

    def __init__(self, test, name="slices"):
        self.dir = test.path(name)
        os.mkdir(self.dir)
        self.lock = threading.RLock()
        self.open, self.counts, self.lookups = 1, {}, {}
        self.asked, self.answers, self.headers = [], {}, []
        outer = self

        class Handler(http_stub.Handler):
            def answer(self):
                status, reply = outer.reply(self.command, self.path, self.headers)
                self.reply(status, json.dumps(reply).encode())
            do_GET = do_POST = answer
        self.server = http_stub.serve(test, Handler)
        self.url = self.server.url

    before_stats = None  # called before /stats is answered

    def file(self, n):
        return os.path.join(self.dir, "%010d.db" % n)

    def sealed(self):
        return sorted(int(f[:10]) for f in os.listdir(self.dir))

    def reply(self, method, target, headers):
        self.asked.append(method + " " + target)
        self.headers.append(dict(headers))
        path, _, query = target.partition("?")
        if path in self.answers:
            return self.answers[path]
        if path == "/stats" and self.before_stats:
            self.before_stats()
        with self.lock:  # a slice that is being sealed is not in /slices yet
            if path == "/stats":
                return 200, {"slice": self.open, "events": len(self.counts), "skipped": 0, "rejected": 0}
            if path == "/slices":
                return 200, {"open": self.open, "quarters_since": 0, "slices": [{"slice": n, "state": "sealed"} for n in self.sealed()]}
            n = int(query.partition("=")[2])
            return self.seal(n) if path == "/seal" else self.clear(n)

    def seal(self, n):
        if n == self.open:
            make_slice(self.file(n), n, self.counts, self.lookups)
            self.open, self.counts, self.lookups = n + 1, {}, {}
        return 200, {"sealed": n, "open": self.open, "streams": {}}

    def clear(self, through):
        for n in self.sealed():
            if n <= through:
                os.unlink(self.file(n))
        return 200, {"cleared": through}

    def count(self, row, after):
        """What the slices past `after` hold of one row; None when one of them is cleared."""
        with self.lock:
            wanted = range(after + 1, self.open)
            if any(n not in self.sealed() for n in wanted):
                return None
            return self.counts.get(row, 0) + sum(self.row(n, row) for n in wanted)

    def row(self, n, row):
        return read_slice(self.file(n)).get(row, 0)
