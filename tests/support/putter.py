"""A thread that puts numbered events into a queue while a test kills daemons."""
import threading

import harness
from harness import UNREACHABLE, query


class Putter(threading.Thread):
    """Puts with marks, each batch repeated until it is acknowledged: the queue holds every event once."""

    def __init__(self, url, until, batch=20):
        super().__init__(daemon=True)
        self.url, self.put, self.until, self.batch = url, 0, until, batch

    def run(self):
        connection = None
        while self.put < self.until:
            connection = connection or harness.connect(self.url, 10)
            body = b"\n".join(b"event %08d" % i for i in range(self.put, self.put + self.batch))
            try:
                connection.request("POST", "/mput?" + query(producer="test", mark=self.put, next=self.put + self.batch), body)
                reply = connection.getresponse()
                reply.read()
                self.put += self.batch if reply.status == 200 else 0
            except UNREACHABLE:
                connection.close()
                connection = None
        connection.close()
