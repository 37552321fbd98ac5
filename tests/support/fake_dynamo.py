"""A server of DynamoDB's API for tests: one table in memory, which refuses what DynamoDB refuses, and fails as a test tells it to."""
import json
import socket
import threading
import time

import http_stub

PREFIX = "com.amazonaws.dynamodb.v20120810#"
THROTTLED = "ProvisionedThroughputExceededException"


class Bucket:
    """What a table allows: `rate` items a second, and at most `most` saved. Its clock is that of the machine, so `lost` has the items that
    were allowed and that no request used."""

    def __init__(self, rate, most):
        self.rate, self.most, self.tokens, self.lost, self.at = rate, most, 0.0, 0.0, time.monotonic()

    def take(self, n):
        now = time.monotonic()
        self.tokens += (now - self.at) * self.rate
        self.at = now
        self.lost += max(0.0, self.tokens - self.most)
        self.tokens = min(self.tokens, self.most)
        taken = min(n, int(self.tokens))
        self.tokens -= taken
        return taken


class FakeDynamo:
    """`behave(operation, body)` returns None, (status, name of an error), "reset" (no answer), "late" (done, but no answer), or "hang" (no
    answer until the client closes the connection)."""

    def __init__(self, test, table="clicks", keys=("id",), bucket=None):
        self.table, self.keys, self.bucket = table, keys, bucket
        self.items = {}  # {values of the keys: item}
        self.versions = {}  # {values of the keys: [items in the order of their writes]}
        self.behave = lambda operation, body: None
        self.leave = lambda items: []  # of a BatchWriteItem: the items that are left unprocessed
        self.echo = lambda item: item  # the form in which an unprocessed item is returned
        self.requests = []  # (operation, body, answer, headers)
        self.accepted = self.throttled = 0
        self.lock = threading.Lock()
        fake = self

        class Handler(http_stub.Handler):
            def do_POST(self):
                body = self.body()
                with fake.lock:
                    answer = fake.answer(self.headers, body)
                    fake.requests.append((self.headers.get("X-Amz-Target"), body, answer, dict(self.headers)))
                if answer == "hang":
                    self.connection.settimeout(30)
                    try:
                        self.connection.recv(1)
                    except OSError:
                        pass
                    answer = "reset"
                if answer == "reset":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                status, document = answer
                self.reply(status, json.dumps(document).encode(), Content_Type="application/x-amz-json-1.0")

        self.server = http_stub.serve(test, Handler)
        self.server.handle_error = lambda *_: None  # a killed client
        self.url = self.server.url

    @staticmethod
    def error(status, name, message="no"):
        return status, {"__type": PREFIX + name, "message": message}

    def answer(self, headers, text):
        operation = headers.get("X-Amz-Target", "").split(".")[-1]
        body = json.loads(text)
        mood = self.behave(operation, body)
        if mood in ("reset", "hang"):
            return mood
        if mood not in (None, "late"):
            return self.error(mood[0], mood[1], "chosen by the test")
        done = {"BatchWriteItem": self.batch, "PutItem": self.put}[operation](body, len(text))
        return "reset" if mood == "late" else done

    def key(self, item):
        return tuple(next(iter(item[name].values())) for name in self.keys)

    def store(self, item):
        self.items[self.key(item)] = item
        self.versions.setdefault(self.key(item), []).append(item)
        self.accepted += 1

    def batch(self, body, size):
        (table, entries), = body["RequestItems"].items()
        items = [e["PutRequest"]["Item"] for e in entries]
        if table != self.table:
            return self.error(400, "ResourceNotFoundException")
        if not 1 <= len(items) <= 25 or size > 16 << 20:
            return self.error(400, "ValidationException", "too many items")
        if any(name not in item or list(item[name]) not in (["S"], ["N"]) for item in items for name in self.keys):
            return self.error(400, "ValidationException", "a key is missing")
        if len({self.key(i) for i in items}) != len(items):
            return self.error(400, "ValidationException", "Provided list of item keys contains duplicates")
        if any(sum(len(str(next(iter(v.values())))) for v in i.values()) > 500 << 10 for i in items):
            return self.error(400, "ValidationException", "Item size has exceeded the maximum allowed size")
        taken = len(items) if self.bucket is None else self.bucket.take(len(items))
        self.throttled += len(items) - taken
        if taken == 0:
            return self.error(400, THROTTLED)
        left = items[taken:] + [i for i in self.leave(items[:taken])]
        for item in items[:taken]:
            if item not in left:
                self.store(item)
        return 200, {"UnprocessedItems": {table: [{"PutRequest": {"Item": self.echo(i)}} for i in left]} if left else {}}

    def put(self, body, size):
        item = body["Item"]
        name = body["ExpressionAttributeNames"]["#n"]
        assert body["ConditionExpression"] == "attribute_not_exists(#n) OR #n < :n" and size < 1 << 20
        if self.bucket is not None and self.bucket.take(1) == 0:
            self.throttled += 1
            return self.error(400, THROTTLED)
        old = self.items.get(self.key(item), {}).get(name)
        if old is not None and float(old["N"]) >= float(body["ExpressionAttributeValues"][":n"]["N"]):
            return self.error(400, "ConditionalCheckFailedException")
        self.store(item)
        return 200, {}

    def plain(self):
        """{key: {attribute: value without its type}}, where one attribute is the key."""
        return {key[0]: {name: next(iter(v.values())) for name, v in item.items()} for key, item in self.items.items()}

    def operations(self, status=200):
        return [r[0].split(".")[-1] for r in self.requests if r[2][0] == status]
