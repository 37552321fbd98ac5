"""A requester of nng's REQ/REP in a few lines: the wire format of Scalability Protocols over tcp:// and ipc://. It sends any bytes, also
many requests at a time and wrong requests. tests/support/nng_put.c uses the nng library instead."""
import json
import socket
import struct

from harness import PATIENCE

REQ, REP = 0x30, 0x31
LAST = 0x80000000  # marks the request's own number at the end of the header


class Requester:
    def __init__(self, url, timeout=PATIENCE):
        scheme, rest = url.split("://", 1)
        self.ipc = scheme == "ipc"
        if self.ipc:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(rest)
        else:
            host, port = rest.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)), timeout)
        self.number = 0
        self.socket.sendall(b"\0SP\0" + struct.pack(">HH", REQ, 0))
        hello = self.read(8)
        assert hello == b"\0SP\0" + struct.pack(">HH", REP, 0), hello

    def close(self):
        self.socket.close()

    def read(self, n):
        data = b""
        while len(data) < n:
            piece = self.socket.recv(n - len(data))
            if not piece:
                raise ConnectionResetError("the other side closed")
            data += piece
        return data

    def send_raw(self, message):
        self.socket.sendall((b"\x01" if self.ipc else b"") + struct.pack(">Q", len(message)) + message)

    def send(self, body):
        """Begins a request; its number."""
        self.number += 1
        self.send_raw(struct.pack(">I", LAST | self.number) + body)
        return self.number

    def receive(self):
        """(the request's number, the reply)."""
        if self.ipc:
            assert self.read(1) == b"\x01"
        message = self.read(struct.unpack(">Q", self.read(8))[0])
        return struct.unpack(">I", message[:4])[0] & ~LAST, json.loads(message[4:])

    def ask(self, body):
        number = self.send(body)
        answered, reply = self.receive()
        assert answered == number, (answered, number)
        return reply
