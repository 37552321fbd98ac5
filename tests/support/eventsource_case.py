"""What the tests of EventSource clients share: a page and its reports, a wire that can be cut, and the life that a client lives through:
lines, quiet hours, bytes that are not UTF-8, kills, cuts."""
import http.server
import json
import os
import signal
import socket
import subprocess
import threading

import harness
from harness import wait_until
from pubsub_case import PubsubTest

MEGABYTE = b"m" * (1 << 20)
SCRIPT = b"""
const source = new EventSource("http://127.0.0.1:%(pubsub)d/sub?stream=s&from=earliest");
let n = 0;
function report(what) { what.n = n++; fetch("%(reports)s", {method: "POST", body: JSON.stringify(what)}); }
source.onopen = () => report({open: true});
source.addEventListener("gap", e => report({gap: JSON.parse(e.data), id: e.lastEventId}));
source.onmessage = e => report({data: e.data.length > 1000 ? e.data.length : e.data, id: e.lastEventId});
"""


class Page(http.server.BaseHTTPRequestHandler):
    """Serves the page, and takes what its script reports."""
    protocol_version = "HTTP/1.1"

    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(self.server.page, "text/html; charset=utf-8")

    def do_POST(self):
        self.server.reports.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"", "text/plain")

    def log_message(self, *args):
        pass


class Wire:
    """A proxy between client and server. It counts heartbeats. cut_after() ends the connection once so many more bytes have passed."""

    def __init__(self, target):
        self.target, self.heartbeats, self.left, self.cuts = target, 0, None, 0
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(self.target)
            threading.Thread(target=self.pass_on, args=(client, upstream), daemon=True).start()
            self.pass_back(upstream, client)
        except OSError:
            pass
        for s in (client, upstream):
            try:
                s.shutdown(socket.SHUT_RDWR)  # which wakes who reads from it, too
            except OSError:
                pass
            s.close()

    @staticmethod
    def pass_on(client, upstream):
        try:
            while piece := client.recv(65536):
                upstream.sendall(piece)
            upstream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def pass_back(self, upstream, client):
        while piece := upstream.recv(65536):
            self.heartbeats += piece.count(b"\n:\n\n")
            if self.left is not None:
                piece, self.left = piece[:self.left], self.left - len(piece)
            client.sendall(piece)
            if self.left is not None and self.left <= 0:
                self.left, self.cuts = None, self.cuts + 1
                return

    def cut_after(self, n):
        self.left = n


class EventSourceTest(PubsubTest):
    def start_pubsub(self):
        return self.pubsub("--heartbeat=100ms")

    def begin(self):
        self.p = self.start_pubsub()
        self.identity = self.pub(b"one\n").json()["id"]
        self.wire = Wire(self.path("p.sock"))
        self.addCleanup(self.wire.server.close)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self.server.reports = []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def run_client(self, argv, log, **environment):
        with open(self.path(log), "wb") as out:
            client = subprocess.Popen(harness.dies_with_us(argv), stdout=out, stderr=out, start_new_session=True,
                                      env=dict(os.environ, HOME=self.dir, TMPDIR=self.dir, **environment))
        self.addCleanup(client.wait)
        self.addCleanup(os.killpg, client.pid, signal.SIGKILL)

    def reports(self):
        return sorted(self.server.reports, key=lambda r: r["n"])

    def data(self):
        return [r["data"] for r in self.reports() if "data" in r]

    def wait_data(self, expected, what, log):
        wait_until(lambda: len(self.data()) >= len(expected), lambda: "%s: %s\n%s" % (
            what, self.server.reports, harness.read_file(self.path(log))[-2000:]))
        self.assertEqual(self.data(), expected, what)

    def live_through(self, log):
        expected = ["one"]
        self.wait_data(expected, "the first line", log)
        quiet = self.wire.heartbeats
        wait_until(lambda: self.wire.heartbeats >= quiet + 5, "quiet hours, of five heartbeats")
        self.assertEqual(self.data(), expected)
        self.pub(b"a\rb\n\xff\n")
        self.wait_data(expected := expected + ["a\nb", "\ufffd"], "odd bytes", log)
        for n in range(2):
            self.p.kill9()
            self.p = self.start_pubsub()
            self.pub(b"after kill %d\n" % n + MEGABYTE + b"\n")
            self.wait_data(expected := expected + ["after kill %d" % n, 1 << 20], "the lines after a kill", log)
        for cut in (1, 300000):  # where a line begins, and inside it
            self.wire.cut_after(cut)
            self.pub(MEGABYTE + b"\nafter cut %d\n" % cut)
            self.wait_data(expected := expected + [1 << 20, "after cut %d" % cut], "the lines after a cut", log)
        self.assertEqual(self.wire.cuts, 2)
        last = [r["id"] for r in self.reports() if "data" in r][-1]
        self.assertEqual(last.split(".")[0], "%d:%s" % (len(self.sub(0).body), self.identity))
        # More where it came back while recovery went on, which opens and ends a stream without events.
        wait_until(lambda: self.opened() >= 5, "each opening to be reported")

    def opened(self):
        return sum("open" in r for r in self.server.reports)
