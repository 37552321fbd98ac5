"""Real nats-servers with JetStream, and a client that reads what a stream has."""
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading

import harness
from harness import UNREACHABLE, wait_until


def gave_up(relay, failed):
    """More publishes than `failed` have failed, or the relay has exited because a request to a stopped server did not end."""
    try:
        return relay.stats()["deliveries_failed_total"] > failed
    except UNREACHABLE:
        return not relay.alive()


class NatsServer:
    """One server with its directory, always under the same port."""

    def __init__(self, test, name, more=""):
        self.test, self.name, self.port = test, name, int(test.keep_port())
        self.directory = test.path(name)
        self.log_path = test.path(name + ".log")
        self.config = test.write(name + ".conf", 'server_name: "%s"\nlisten: "127.0.0.1:%d"\njetstream { store_dir: "%s" }\n%s' % (
            name, self.port, self.directory, more))
        self.process = None
        test.addCleanup(self.kill9)

    @property
    def url(self):
        return "nats://127.0.0.1:%d" % self.port

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(harness.dies_with_us(["nats-server", "-c", self.config]), stdout=log, stderr=log)
        wait_until(self.listens, "nats-server %s to listen" % self.name)
        return self

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError("nats-server: " + harness.read_file(self.log_path).decode()[-2000:])
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def kill9(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def copy(self, to):
        """Of the directory, while the server runs: what a power cut may leave."""
        shutil.rmtree(self.test.path(to), ignore_errors=True)
        shutil.copytree(self.directory, self.test.path(to))

    def restore(self, copy):
        shutil.rmtree(self.directory)
        shutil.copytree(self.test.path(copy), self.directory)


class Link:
    """The way to a port, which a test cuts: nothing passes, and nothing shows it, until mend() ends the connections."""

    def __init__(self, test, port):
        self.port, self.is_whole, self.sockets = port, threading.Event(), []
        self.made = self.lost = 0  # connections; pieces that a cut has held
        self.is_whole.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "nats://127.0.0.1:%d" % self.listener.getsockname()[1]
        test.addCleanup(self.close)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                self.made += 1
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        self.sockets.append(client)
        self.is_whole.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.port))
        except OSError:  # it is down
            client.close()
            return
        self.sockets.append(server)
        back = threading.Thread(target=self.copy, args=(server, client), daemon=True)
        back.start()
        self.copy(client, server)
        back.join()
        client.close()
        server.close()

    def copy(self, source, sink):
        with contextlib.suppress(OSError):
            while (piece := source.recv(1 << 16)) and self.is_whole.is_set():
                sink.sendall(piece)
            self.lost += piece != b""
            self.is_whole.wait()
        self.end(source, sink)

    @staticmethod
    def end(*sockets):
        for s in sockets:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.is_whole.clear()

    def mend(self):
        self.end(*self.sockets)
        self.sockets = []
        self.is_whole.set()

    def close(self):
        self.end(self.listener)
        self.listener.close()
        self.mend()


class Client:
    """One connection, closed with the test. It knows the few words of the protocol that the tests need."""

    def __init__(self, server, **connect):
        server.test.addCleanup(self.close)
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=harness.PATIENCE)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.inbox, self.n = "_INBOX." + os.urandom(8).hex(), 0
        self.send(b"CONNECT %s\r\nSUB %s.* 1\r\n" % (json.dumps({"verbose": False, "headers": True, **connect}).encode(),
                                                   self.inbox.encode()))

    def send(self, data):
        self.socket.sendall(data)

    def close(self):
        self.file.close()
        self.socket.close()

    def receive(self):
        while True:
            words = self.file.readline().split()
            if not words:
                raise ConnectionResetError
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                data = self.file.read(size + 2)[:-2]
                return data[head:]

    def ask(self, subject, body=b""):
        self.n += 1
        self.send(b"PUB %s %s.%d %d\r\n%s\r\n" % (subject.encode(), self.inbox.encode(), self.n, len(body), body))
        return self.receive()

    def api(self, verb, **request):
        return json.loads(self.ask("$JS.API." + verb, json.dumps(request).encode() if request else b""))

    def message(self, stream, seq):
        """(headers, body) of a message, or None."""
        reply = self.api("STREAM.MSG.GET." + stream, seq=seq)
        if "message" not in reply:
            return None
        m = reply["message"]
        head = base64.b64decode(m.get("hdrs", "")).decode().split("\r\n")[1:]
        return dict(line.split(": ", 1) for line in head if ": " in line), base64.b64decode(m.get("data", ""))

    def batches(self, stream):
        """All messages of a stream, in order."""
        state = self.api("STREAM.INFO." + stream)["state"]
        found = (self.message(stream, seq) for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1))
        return [b for b in found if b]


def ids_of(head):
    """The ids of a batch's lines. Without ranges they begin with the mark."""
    if "Millrace-Ids" in head:
        return [i for r in head["Millrace-Ids"].split(",") for i in range(int(r.split("-")[0]), int(r.split("-")[1]) + 1)]
    return range(int(head["Millrace-Mark"]), int(head["Millrace-Next"]))


class Cell:
    """What a cell does with the batches of one queue: each line once, by its id. It reads on behind a hole, which a relay may fill."""

    def __init__(self, test, mark=0):
        self.test, self.mark, self.lines, self.holes = test, mark, [], []

    def take(self, batches):
        for head, body in batches:
            mark, next_ = int(head["Millrace-Mark"]), int(head["Millrace-Next"])
            if mark > max(self.mark, 1):
                self.holes.append((self.mark, mark))
                continue
            lines = body.split(b"\n")[:-1]
            ids = list(ids_of(head))
            if lines:
                self.test.assertEqual(len(ids), len(lines))
                self.lines += [line for i, line in zip(ids, lines) if i >= self.mark]
            self.mark = max(self.mark, next_)


class NatsTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("nats-server"):
            harness.not_installed(self, "nats-server is not installed (scripts/setup --cluster)")
        self.queue_url = "unix:" + self.path("q.sock")

    def nats_url(self):
        """For a program that is started: the address of the server, or of a way to it."""
        return self.server.url

    def start_queue(self, *args):
        return self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", *args, listen=self.queue_url)

    def relay(self, server, *args, urls=None):
        return self.daemon("queue_to_nats", "--queue-url=" + self.queue_url, "--nats-url=" + (urls or server.url),
                           "--backoff-max=200ms", "--create", "--replicas=1", "--nats-timeout=1s", *args)

    def depth(self):
        reply = harness.request(self.queue_url, "GET", "/stats?format=json")
        return reply.json()["queues"]["default"]["depth"]

    def put(self, lines):
        reply = harness.request(self.queue_url, "POST", "/mput", b"\n".join(lines))
        self.assertEqual(reply.status, 200)

    def stored(self, server, stream="clicks", **connect):
        """The lines that a cell that begins now would have."""
        client = Client(server, **connect)
        client.socket.settimeout(10)  # a request is lost while the stream has no leader; wait_stored repeats it
        try:
            cell = Cell(self)
            cell.take(client.batches(stream))
            return cell
        except (*harness.UNREACHABLE, KeyError):
            return Cell(self)
        finally:
            client.close()

    def wait_stored(self, server, expected, **kw):
        def lines():
            self.found = self.stored(server, **kw).lines
            return len(self.found) >= len(expected)
        wait_until(lines, lambda: "%d lines, there are %d" % (len(expected), len(self.found)), timeout=harness.LONG)
        self.assertEqual(self.found, expected)
