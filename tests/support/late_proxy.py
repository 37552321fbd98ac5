"""A proxy between two Unix sockets that delays some requests, also after their client has given up and tried again, so that a request
arrives after its retry. Some replies are delayed, and some are never sent."""
import os
import socket
import threading
import time


class LateProxy:
    """`random` draws what happens to each piece; at most `longest` seconds. calm() ends the trouble."""

    def __init__(self, path, target, random, share=0.2, longest=0.4):
        self.target, self.random, self.share, self.longest = target, random, share, longest
        self.lock = threading.Lock()
        self.delayed = self.dropped = 0
        self.server = socket.socket(socket.AF_UNIX)
        if os.path.exists(path):
            os.unlink(path)
        self.server.bind(path)
        self.server.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def calm(self):
        self.share = 0

    def close(self):
        self.server.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _draw(self):
        with self.lock:
            late = self.random.random() < self.share
            self.delayed += late
            return self.random.uniform(0, self.longest) if late else 0

    def _serve(self, client):
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(self.target)
        except OSError:
            client.close()
            return
        back = threading.Thread(target=self._copy, args=(upstream, client, True), daemon=True)
        back.start()
        self._copy(client, upstream, False)
        back.join()
        for s in (client, upstream):
            s.close()

    def _copy(self, source, sink, replies):
        try:
            while True:
                piece = source.recv(1 << 20)
                if not piece:
                    break
                wait = self._draw()
                if wait:
                    time.sleep(wait)
                if wait and replies and self.random.random() < 0.3:
                    self.dropped += 1
                    break
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            if replies or end is sink:  # a client that has gone leaves what it sent under way
                try:
                    end.shutdown(socket.SHUT_RDWR if replies else socket.SHUT_WR)
                except OSError:
                    pass
