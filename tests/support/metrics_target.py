"""A program with pages of metrics: one thread that serves thousands of connections, and misbehaves on request."""
import selectors
import socket
import threading

TEXT = "text/plain; version=0.0.4"


def reply(body, kind=TEXT, status="200 OK"):
    body = body.encode() if isinstance(body, str) else body
    head = "HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), "Content-Type: %s\r\n" % kind if kind else "")
    return head.encode() + body


class Target:
    """pages: path -> text, bytes of a whole reply, or a function that returns one of both. Missing paths get no answer.
    `ends`: paths whose connection closes after the reply. `endless`: path -> bytes to send behind the reply."""

    def __init__(self, test, pages):
        self.pages, self.ends, self.endless, self.sent, self.hosts = pages, set(), {}, {}, set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.wake, self.woken = socket.socketpair()
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.out = {}  # connection -> [bytes to send, path]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        test.addCleanup(self.stop)

    def stop(self):
        self.wake.close()
        self.thread.join()
        for s in [self.listener, self.woken, *self.out]:
            s.close()
        self.selector.close()

    def run(self):
        while True:
            for key, events in self.selector.select():
                if key.fileobj is self.woken:
                    return
                if key.fileobj is self.listener:
                    self.accept()
                else:
                    try:
                        self.serve(key.fileobj, events)
                    except OSError:
                        self.close(key.fileobj)

    def accept(self):
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self.out[connection] = [b"", None]
        self.selector.register(connection, selectors.EVENT_READ)

    def close(self, connection):
        self.selector.unregister(connection)
        self.out.pop(connection)
        connection.close()

    def serve(self, connection, events):
        if events & selectors.EVENT_READ:
            request = connection.recv(65536)
            if not request:
                self.close(connection)
                return
            self.ask(connection, request)
        waiting, path = self.out[connection]
        if waiting:
            n = connection.send(waiting)
            self.sent[path] = self.sent.get(path, 0) + n
            waiting = waiting[n:]
        if not waiting and self.endless.get(path, 0) > self.sent.get(path, 0):
            waiting = b"a_rather_long_name 1\n" * 50000
        self.out[connection][0] = waiting
        if not waiting and path in self.ends:
            self.close(connection)
            return
        self.selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0))

    def ask(self, connection, request):
        path = request.split(b" ", 2)[1].decode()
        self.hosts.update(line[6:].decode() for line in request.split(b"\r\n") if line.startswith(b"Host: "))
        page = self.pages.get(path, b"")
        page = page() if callable(page) else page
        self.out[connection] = [reply(page) if isinstance(page, str) else page, path]
