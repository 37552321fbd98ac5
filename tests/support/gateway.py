"""A gateway between a reader and its queue, which fails as a test tells it to. The test itself asks the queue directly."""
import http.server
import select
import threading

from harness import UNREACHABLE, Reply, connect


class Gateway:
    """`behave` is called with each target and gives None (the queue answers), a status, or "hang" (until open())."""

    def __init__(self, test, queue_url):
        self.behave = lambda target: None
        self.refused = []  # the targets that were not passed on
        self.opened = threading.Event()
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as in sink.py

            def pass_on(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = gateway.behave(self.path)
                if answer is not None:
                    gateway.refused.append(self.path)
                if answer == "hang":
                    gateway.opened.wait()
                try:
                    self.answer(Reply(answer, {}, b"no") if isinstance(answer, int) else self.ask_queue(body))
                except UNREACHABLE:
                    self.close_connection = True

            def ask_queue(self, body):
                """When a client leaves, its request to the queue ends, too: the queue must not give messages to a poll whose client has
                gone."""
                c = connect(queue_url)
                try:
                    c.request(self.command, self.path, body)
                    if self.connection in select.select([c.sock, self.connection], [], [])[0]:
                        raise ConnectionAbortedError
                    r = c.getresponse()
                    return Reply(r.status, r.headers, r.read())
                finally:
                    c.close()

            def answer(self, reply):
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    if name.startswith("X-Millrace"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = pass_on

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        test.addCleanup(self.close)

    def refuse(self, endpoint, answer):
        """From now on, `answer` is the answer to requests whose path is `endpoint`."""
        self.behave = lambda target: answer if target.startswith(endpoint + "?") else None

    def open(self):
        self.behave = lambda target: None
        self.opened.set()

    def close(self):
        self.opened.set()
        self.server.shutdown()
        self.server.server_close()
