"""A client of pubsub's /rate and of the API's /v1/live/rate, which tells the number of new lines each second."""
import http.client
import json
import time

import harness


class RateClient:
    def __init__(self, test, url, target, headers=None):
        self.connection = harness.connect(url)
        test.addCleanup(self.close)
        self.connection.request("GET", target, headers=headers or {})
        self.reply = self.connection.getresponse()
        test.assertEqual((self.reply.status, self.reply.getheader("Content-Type")), (200, "text/event-stream"), target)
        self.sum, self.seconds = 0, 0.0

    def close(self):
        self.reply.close()
        self.connection.close()

    def next(self):
        """The next event, or None at the end of the reply, however it ends."""
        try:
            for line in self.reply:
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    self.sum += event["lines"]
                    self.seconds += event["seconds"]
                    return event
        except (http.client.IncompleteRead, ConnectionError):
            pass
        return None

    def reach(self, lines):
        """The sum of all events up to the one after it is no less than `lines`."""
        end = time.monotonic() + harness.PATIENCE
        while self.sum < lines and time.monotonic() < end and self.next():
            pass
        self.next()
        return self.sum
