"""What the tests of ps_to_http share: destinations, a pubsub with numbered lines, and the program."""
import socket
import threading
import time

import harness
import http_stub
from harness import wait_until
from sink import least_waits


class Server:
    """A destination: keeps its requests. `mood` is its next answer (a status, or "hang", or "reset")."""

    def __init__(self, test):
        self.bodies, self.targets, self.tokens, self.mood = [], [], [], 200
        outer = self

        class Handler(http_stub.Handler):
            def answer(self):
                body = self.body()
                mood = outer.mood(body) if callable(outer.mood) else outer.mood
                if mood == "hang":
                    time.sleep(0.5)
                    return self.connection.shutdown(socket.SHUT_RDWR)
                if mood == "reset":
                    return self.connection.shutdown(socket.SHUT_RDWR)
                if mood == 200:
                    outer.bodies.append(body)
                    outer.targets.append(self.path)
                    outer.tokens.append(self.headers.get("Authorization"))
                return self.reply(mood, b"no thanks" if mood >= 400 else b"")

            do_GET = do_POST = answer
        self.server = http_stub.serve(test, Handler)
        self.url = self.server.url

    def lines(self):
        return b"".join(self.bodies).splitlines()


class Deaf:
    """A destination that reads all requests, and never answers."""

    def __init__(self, test):
        self.port = int(test.keep_port())
        self.url = "http://127.0.0.1:%d" % self.port
        self.asked, self.connections = [], []  # first lines of requests
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def accept(self):
        while True:
            try:
                c = self.listener.accept()[0]
            except OSError:
                return
            self.connections.append(c)
            with c.makefile("rb") as f:
                self.asked.append(f.readline().decode().strip())

    def close(self):
        if self.thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        while self.connections:
            self.connections.pop().close()


class ForwardCase(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.port = self.keep_port()
        self.start_pubsub()
        self.n = 0

    def start_pubsub(self):
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s",
                                 "--address=127.0.0.1", "--port", self.port, port=False)

    def publish(self, n=1):
        """Publishes numbered lines with marks, and repeats the publish until it is acknowledged."""
        body = b"".join(b'{"n":%d}\n' % i for i in range(self.n, self.n + n))

        def done():
            try:
                return self.pubsub.post("/pub?stream=s&producer=p&mark=%d&next=%d" % (self.n, self.n + n),
                                        body).status == 200
            except harness.UNREACHABLE:
                return False
        wait_until(done, "a publish")
        self.n += n

    def sent(self):
        return [b'{"n":%d}' % i for i in range(self.n)]

    def to_http(self, *args, **kw):
        return self.daemon("ps_to_http", "--pubsub_url", self.pubsub.url, "--stream=s", *args, **kw)


class ForwardTest(ForwardCase):
    """With one server as its destination."""

    def setUp(self):
        super().setUp()
        self.server = Server(self)

    def post(self, *args, servers=None, **kw):
        urls = ",".join(s.url + "/in?x=1" for s in servers or [self.server])
        return self.to_http("--destination", urls, "--state", self.path("state"), "--commit_every=20ms", *args, **kw)

    def assert_apart(self, tries, backoff_min, backoff_max):
        """No wait is shorter than its minimum. `tries` has times at which requests arrived, so a slow machine cannot shorten a wait."""
        waits = [b - a for a, b in zip(tries, tries[1:])]
        self.assertEqual([w for w, least in zip(waits, least_waits(backoff_min, backoff_max)) if w < least - 0.001], [], waits)

    def assert_spaced(self, tries):
        self.assertEqual([b - a for a, b in zip(tries, tries[1:]) if b - a < 0.9], [], "a second lies between two tries")
