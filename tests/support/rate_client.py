"""Clients of Server-Sent Events: of any, and of pubsub's /rate and the API's /v1/live/rate, which send the number of new lines each second."""
import http.client
import json
import time

import harness


class EventClient:
    """A client of events whose data is JSON."""

    def __init__(self, test, url, target, headers=None):
        self.connection = harness.connect(url)
        test.addCleanup(self.close)
        self.connection.request("GET", target, headers=headers or {})
        self.reply = self.connection.getresponse()
        test.assertEqual((self.reply.status, self.reply.getheader("Content-Type")), (200, "text/event-stream"), target)

    def close(self):
        self.reply.close()
        self.connection.close()

    def next(self):
        """The next event, or None at the end of the reply, however it ends."""
        try:
            for line in self.reply:
                if line.startswith(b"data: "):
                    return json.loads(line[6:])
        except (http.client.IncompleteRead, ConnectionError):
            pass
        return None


class RateClient(EventClient):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.sum, self.seconds = 0, 0.0

    def next(self):
        event = super().next()
        if event:
            self.sum += event["lines"]
            self.seconds += event["seconds"]
        return event

    def reach(self, lines):
        """The sum of all events up to the one after it is no less than `lines`."""
        end = time.monotonic() + harness.PATIENCE
        while self.sum < lines and time.monotonic() < end and self.next():
            pass
        self.next()
        return self.sum
