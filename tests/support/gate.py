"""A proxy between a consumer and its pubsub that holds back what streams send."""
import socket
import threading

from harness import wait_until


class Gate:
    """Between an aggregator and its pubsub: lets a set number of bytes of streams pass, and everything else."""

    def __init__(self, path, target):
        self.target, self.left, self.changed = target, None, threading.Condition()
        self.drops = False  # ends the streams instead
        self.dropped = 0  # streams that it has ended
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def lets(self, n):
        """None: all."""
        with self.changed:
            self.left = n
            self.changed.notify_all()

    def accept(self):
        while True:
            try:
                client = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        upstream = socket.socket(socket.AF_UNIX)
        is_stream = threading.Event()
        try:
            upstream.connect(self.target)
            threading.Thread(target=self.copy, args=(upstream, client, is_stream), daemon=True).start()
            while piece := client.recv(1 << 16):
                # A kept connection may carry a stream after something else, and the other way round.
                is_stream.set() if piece.startswith(b"GET /sub") else is_stream.clear()
                upstream.sendall(piece)
        except OSError:
            pass
        self.end(client, upstream)

    @staticmethod
    def end(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)  # or a thread that reads from it would keep it open
            except OSError:
                pass
            s.close()

    def may_pass(self, piece):
        """How much of it, at least a byte."""
        with self.changed:
            self.changed.wait_for(lambda: self.left != 0)
            if self.drops:
                self.dropped += 1
                raise OSError
            n = len(piece) if self.left is None else min(self.left, len(piece))
            if self.left is not None:
                self.left -= n
            return n

    def copy(self, upstream, client, is_stream):
        try:
            while piece := upstream.recv(1 << 16):
                while piece:
                    n = self.may_pass(piece) if is_stream.is_set() else len(piece)
                    client.sendall(piece[:n])
                    piece = piece[n:]
        except OSError:
            pass
        self.end(client, upstream)

    def close(self):
        self.server.close()
        self.lets(None)
