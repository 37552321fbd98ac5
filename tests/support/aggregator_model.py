"""A model of the aggregator's side of a compaction, over slices as docs/formats/slices.md describes them: for tests that want an
aggregator to be away, refuse, or hold what they say."""
import http.server
import json
import os
import sqlite3
import threading

COUNTERS = "total u key = l\n"


def make_slice(path, number, counts, lookups=None, counters=COUNTERS):
    """A sealed slice, as docs/formats/slices.md describes it."""
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE counts(k BLOB PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE lookups(k BLOB PRIMARY KEY, text BLOB NOT NULL) WITHOUT ROWID;
        CREATE TABLE cursors(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE begins(stream TEXT PRIMARY KEY, id TEXT NOT NULL, offset INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
        PRAGMA application_id = 1297239123; PRAGMA user_version = 1;""")
    db.executemany("INSERT INTO counts VALUES(?, ?)", counts.items())
    db.executemany("INSERT INTO lookups VALUES(?, ?)", (lookups or {}).items())
    db.execute("INSERT INTO cursors VALUES('clicks', 'c0ffee', ?)", (number * 100,))
    db.execute("INSERT INTO begins VALUES('clicks', 'c0ffee', ?)", (number * 100 - 100,))
    db.executemany("INSERT INTO meta VALUES(?, ?)", [("number", number), ("counters", counters), ("sealed", 1)])
    db.commit()
    db.close()


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

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as in sink.py

            def answer(self):
                status, reply = outer.reply(self.command, self.path, self.headers)
                body = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            do_GET = do_POST = answer

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)

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
        if path == "/stats":
            return 200, {"events": len(self.counts), "skipped": 0, "rejected": 0}
        if path == "/slices":
            return 200, {"open": self.open, "slices": [{"slice": n, "state": "sealed"} for n in self.sealed()]}
        n = int(query.partition("=")[2])
        with self.lock:
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
        db = sqlite3.connect(self.file(n))
        found = db.execute("SELECT n FROM counts WHERE k = ?", (row,)).fetchone()
        db.close()
        return found[0] if found else 0
