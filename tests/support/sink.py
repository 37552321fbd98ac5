"""An HTTP server that keeps its requests and fails as a test tells it to, and the number of tries that a failing server may get."""
import http.server
import re
import threading
import time
import urllib.parse


def least_waits(backoff_min, backoff_max):
    """The minimum waits after the first failure, after the second in a row, ...: half of the backoff, which doubles."""
    while True:
        yield backoff_min / 2
        backoff_min = min(2 * backoff_min, backoff_max)


def most_tries(seconds, backoff_min=0.05, backoff_max=2.0):
    """The maximum number of failing tries in that time: the first, and one after each wait. A slow machine does not raise it."""
    tries = 0
    for wait in least_waits(backoff_min, backoff_max):
        if seconds < 0:
            return tries
        seconds -= wait
        tries += 1


def destination(daemon, url):
    """The metrics of a destination: {"up": 1.0, "requests_total": 7.0, ...}"""
    rows = re.findall(r'_destination_(\w+)\{destination="%s"\} (\S+)' % re.escape(url), daemon.get("/metrics").text)
    return {name: float(value) for name, value in rows}


class Sink:
    """`behave` is called with each body and gives a status, or one of "hang", "reset", "late". With a port it listens
    there again."""

    def __init__(self, test, port=0):
        self.behave = lambda body: 200
        self.filler = 0  # bytes more that each answer's body has
        self.requests = []  # (time, status or word, method, target, body, headers)
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.port = port or int(test.keep_port())
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # or what follows a head waits for the other side to acknowledge that, 40 ms

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with sink.lock:
                    answer = sink.behave(body)
                    sink.requests.append((time.monotonic(), answer, self.command, self.path, body, dict(self.headers)))
                if answer == "hang":
                    sink.released.wait()
                    answer = "reset"
                if answer == "reset":
                    self.close_connection = True
                    return
                reason = b"no %s" % body[:20].replace(b"\n", b"/") if answer >= 400 else b""
                self.send_response(answer)
                self.send_header("Content-Length", str(len(reason) + sink.filler))
                self.end_headers()
                self.wfile.write(reason + b"x" * sink.filler)

            do_GET = do_POST = handle_one

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 100

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.url = "http://127.0.0.1:%d" % self.port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def close(self):
        self.released.set()
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()

    def taken(self):
        """The bodies that were answered 200, in order."""
        with self.lock:
            return [r[4] for r in self.requests if r[1] == 200]

    def messages(self):
        return [m for body in self.taken() for m in body.splitlines()]

    def values(self):
        """The values of v= in the targets that were answered 200."""
        with self.lock:
            return [urllib.parse.parse_qs(urllib.parse.urlsplit(r[3]).query, encoding="latin-1")["v"][0].encode("latin-1")
                    for r in self.requests if r[1] == 200]

    def tries(self, since=0.0):
        with self.lock:
            return [r[0] for r in self.requests if r[0] >= since]
