"""A client of millrace, with the standard library only.

    Producer   puts messages on a queue, and repeats a put until it is stored
    Queue      leases messages: reserve, ack, nack, bury, touch; consume() is the usual loop
    follow     the lines of a stream, each with the cursor after it
    Api        series, breakdowns and other counts

A failed request raises Error. Connections are kept open; an object belongs to one thread.
"""
from __future__ import annotations

import http.client
import json
import select
import socket
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

__all__ = ["Api", "Error", "Lease", "Line", "Message", "Producer", "Queue", "follow"]

Data = Union[bytes, str, Dict[str, Any]]


class Error(Exception):
    """A request failed. status: of the reply; 0 if there was none. code: as in the table of errors of the protocol."""

    def __init__(self, status: int, code: str, detail: str, hint: str = "", members: Optional[Dict[str, Any]] = None):
        super().__init__(": ".join(text for text in (code, detail) if text) + (" (%s)" % hint if hint else ""))
        self.status, self.code, self.detail, self.hint, self.members = status, code, detail, hint, members or {}

    @property
    def is_temporary(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in (0, 429, 503)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class _Server:
    """A daemon at http://HOST:PORT or unix:PATH."""

    def __init__(self, url: str, token: Optional[str], timeout: float):
        parts = urllib.parse.urlsplit(url)
        if not (parts.scheme == "http" and parts.hostname or url.startswith("unix:")):
            raise ValueError("expected http://HOST:PORT or unix:PATH, not %r" % url)
        self.url, self.host, self.port = url, parts.hostname or "", parts.port
        self.prefix = parts.path.rstrip("/") if parts.scheme == "http" else ""
        self.headers = {"Authorization": "Bearer " + token} if token else {}
        self.timeout = timeout
        self.connection: Optional[http.client.HTTPConnection] = None

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        if self.url.startswith("unix:"):
            return _UnixConnection(self.url[5:], timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def open(self, connection: http.client.HTTPConnection, method: str, path: str, params: Dict[str, Any], body: Optional[bytes] = None,
             headers: Optional[Dict[str, str]] = None) -> http.client.HTTPResponse:
        """Sends a request. The reply has status 200, and its body is not read yet."""
        pairs = [(name, v) for name, value in params.items() if value is not None
                 for v in (value if isinstance(value, (list, tuple)) else [value])]
        target = self.prefix + path + ("?" + urllib.parse.urlencode(pairs) if pairs else "")
        connection.request(method, target, body, {**self.headers, **(headers or {})})
        reply = connection.getresponse()
        if reply.status != 200:
            raise _error(reply.status, reply.read())
        return reply

    def ask(self, method: str, path: str, params: Dict[str, Any], body: Optional[bytes] = None, more_time: float = 0) -> "_Reply":
        """The whole reply. Error with status 0 and the code "not-sent" if the daemon cannot have received the request."""
        if self.connection is not None and (self.connection.sock is None or select.select([self.connection.sock], [], [], 0)[0]):
            self.close()  # the daemon has closed it
        if self.connection is None:
            self.connection = self.connect(self.timeout)
            try:
                self.connection.connect()
            except OSError as error:
                self.close()
                raise Error(0, "not-sent", "%s: %s" % (self.url, error)) from error
        self.connection.sock.settimeout(self.timeout + more_time)
        try:
            reply = self.open(self.connection, method, path, params, body)
            return _Reply(reply.read(), reply.headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Error(0, "no-reply", "%s: %s" % (self.url, error or type(error).__name__)) from error

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@dataclass
class _Reply:
    body: bytes
    headers: Any

    def json(self) -> Any:
        return json.loads(self.body)


def _error(status: int, body: bytes) -> Error:
    try:
        problem = json.loads(body)
        return Error(status, problem["code"], problem.get("detail", ""), problem.get("hint", ""), problem)
    except (ValueError, KeyError, TypeError):
        return Error(status, "", "HTTP status %d" % status)


def _bytes(data: Data) -> bytes:
    if isinstance(data, bytes):
        return data
    return (data if isinstance(data, str) else json.dumps(data, separators=(",", ":"), allow_nan=False)).encode()


class _Backoff:
    """Waits before each attempt but the first, from 0.1 to 2 s, until `patience` seconds have passed."""

    def __init__(self, patience: float):
        self.end, self.delay = time.monotonic() + patience, 0.1

    def wait(self, error: Error) -> None:
        if time.monotonic() + self.delay > self.end:
            raise error
        time.sleep(self.delay)
        self.delay = min(2 * self.delay, 2.0)


class Producer:
    """Puts messages on a queue. put() returns once they are stored.

    With a name, put() repeats a request until it has a reply, and the queue stores the messages once: it remembers the
    producer's mark. Give each process a name of its own, and the same name at each start. Without a name, a request is
    repeated only if the queue cannot have stored it; otherwise Error has the code "no-reply".
    """

    def __init__(self, name: Optional[str] = None, queue: str = "default", url: str = "http://127.0.0.1:8080", *,
                 token: Optional[str] = None, timeout: float = 30, patience: float = 60):
        self.name, self.queue, self.patience = name, queue, patience
        self.server = _Server(url, token, timeout)
        self._mark: Optional[int] = None

    @property
    def mark(self) -> int:
        """Up to where the queue has stored this producer's messages: their number, or the latest `next`."""
        if self.name is None:
            raise ValueError("a producer without a name has no mark")
        if self._mark is None:
            reply = self._repeat(lambda: self.server.ask("GET", "/producer", {"queue": self.queue, "producer": self.name}))
            self._mark = int(reply.json()["mark"])
        return self._mark

    def put(self, *messages: Data, next: Optional[int] = None) -> None:
        """Stores all messages or none: bytes, text, or a dict as JSON; not empty, and without a line feed if several. A dict with
        NaN or Infinity, which JSON does not have, raises ValueError.

        next: the mark after these messages, such as an offset in their source (default: mark + their number). At the
        next start, continue in the source at `mark`.
        """
        lines = [_bytes(m) for m in messages]
        if not lines or not all(lines) or (len(lines) > 1 and any(b"\n" in line for line in lines)):
            raise ValueError("a message is empty, or one of several has a line feed")
        params: Dict[str, Any] = {"queue": self.queue}
        if self.name is not None:
            after = self.mark + len(lines) if next is None else next
            params.update(producer=self.name, mark=self.mark, next=after)
        path = "/put" if len(lines) == 1 else "/mput"
        self._repeat(lambda: self.server.ask("POST", path, params, b"\n".join(lines)))
        if self.name is not None:
            self._mark = after

    def _repeat(self, ask: Callable[[], _Reply]) -> _Reply:
        backoff = _Backoff(self.patience)
        while True:
            try:
                return ask()
            except Error as error:
                is_safe = self.name is not None or error.code not in ("no-reply", "storage-failed")
                if not (error.is_temporary and is_safe):
                    raise
                backoff.wait(error)

    def close(self) -> None:
        self.server.close()


@dataclass
class Message:
    id: int
    tries: int  # deliveries, this one included
    data: bytes

    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Lease:
    number: str  # empty: no messages
    messages: List[Message]


class Queue:
    """Leases messages of a queue. With `reader`, only this name may lease messages; without, all readers share the queue."""

    def __init__(self, queue: str = "default", url: str = "http://127.0.0.1:8080", *, reader: Optional[str] = None,
                 token: Optional[str] = None, timeout: float = 30):
        self.queue, self.reader = queue, reader
        self.server = _Server(url, token, timeout)

    def reserve(self, items: int = 1, lease: float = 30, wait: float = 0) -> Lease:
        """Up to `items` messages, leased for `lease` seconds. Waits up to `wait` seconds for the first one."""
        params = {"queue": self.queue, "reader": self.reader, "items": items, "lease": int(1000 * lease), "wait": int(1000 * wait)}
        reply = self.server.ask("GET", "/reserve", params, more_time=wait)
        messages, body = [], reply.body
        at = 0
        while at < len(body):
            end = body.index(b"\n", at)
            id, tries, length = map(int, body[at:end].split())
            messages.append(Message(id, tries, body[end + 1:end + 1 + length]))
            at = end + length + 2
        return Lease(reply.headers.get("X-Millrace-Lease", ""), messages)

    def _change(self, act: str, lease: Lease, ids: Iterable[int], **more: Any) -> None:
        body = ",".join(map(str, ids)).encode()
        if body:
            self.server.ask("POST", "/" + act, {"queue": self.queue, "lease": lease.number, **more}, body)

    def ack(self, lease: Lease, ids: Iterable[int]) -> None:
        """Deletes messages."""
        self._change("ack", lease, ids)

    def nack(self, lease: Lease, ids: Iterable[int], delay: float = 0) -> None:
        """Returns messages to the queue; with `delay` (seconds), at its end and later."""
        self._change("nack", lease, ids, delay=int(1000 * delay) or None)

    def bury(self, lease: Lease, ids: Iterable[int], reason: str = "") -> None:
        """Sets messages aside, until somebody kicks them."""
        self._change("bury", lease, ids, reason=reason[:1024] or None)

    def touch(self, lease: Lease, seconds: float) -> None:
        """Lets the lease end `seconds` from now."""
        self.server.ask("POST", "/touch", {"queue": self.queue, "lease": lease.number, "extend": int(1000 * seconds)})

    def release(self) -> None:
        """Ends the leases of this reader's former runs."""
        self.server.ask("POST", "/release", {"queue": self.queue, "reader": self.reader})

    def consume(self, work: Callable[[Message], Any], *, items: int = 100, lease: float = 30, wait: float = 20, tries: int = 5,
                delay: float = 60, stop: Callable[[], bool] = lambda: False, on_error: Optional[Callable[[Exception], Any]] = None) -> None:
        """Calls work(message) for each message until stop() is true. Each message is delivered at least once.

        If work returns, the message is acknowledged. If it raises, the message is delivered again after `delay` seconds,
        and buried after `tries` deliveries. The lease is extended between messages; one call of work must take less than
        `lease` seconds. on_error gets the exceptions of work, and the temporary ones of the queue, and consume() goes on.
        Without on_error, consume() returns the message to the queue as above and raises the exception of work.
        """
        released = not self.reader
        while not stop():
            failure = None
            try:
                if not released:
                    self.release()
                    released = True
                held = self.reserve(items, lease, wait)
                failure = self._work_through(held, work, lease, tries, delay, stop, on_error)
            except Error as error:
                if not error.is_temporary and error.code not in ("lease-lost", "queue-held", "followed"):
                    raise
                if on_error:
                    on_error(error)
                released = not self.reader
                time.sleep(0 if error.code == "lease-lost" else 1)
            if failure:
                raise failure  # not within the try: work may raise an Error of its own

    def _work_through(self, held: Lease, work: Callable[[Message], Any], lease: float, tries: int, delay: float, stop: Callable[[], bool],
                      on_error: Optional[Callable[[Exception], Any]]) -> Optional[Exception]:
        """Returns the exception of work that ends the loop."""
        done: List[int] = []
        left = [m.id for m in held.messages]
        extend_at = time.monotonic() + lease / 3
        try:
            for message in held.messages:
                if stop():
                    break
                if time.monotonic() > extend_at:
                    self.ack(held, done)
                    done.clear()
                    self.touch(held, lease)
                    extend_at = time.monotonic() + lease / 3
                try:
                    work(message)
                    done.append(message.id)
                except Exception as error:
                    if on_error:
                        on_error(error)
                    if message.tries >= tries:
                        self.bury(held, [message.id], "%s: %s" % (type(error).__name__, error))
                    else:
                        self.nack(held, [message.id], delay)
                    if not on_error:
                        left.remove(message.id)
                        return error
                left.remove(message.id)
        finally:
            self.ack(held, done)
            self.nack(held, left)
        return None

    def close(self) -> None:
        self.server.close()


@dataclass
class Line:
    data: bytes
    cursor: str  # after this line; "" if bytes before this line are missing
    gap: Optional[Dict[str, str]] = None  # the edges of the missing bytes, "before" and "after"; then `data` is empty

    def json(self) -> Any:
        return json.loads(self.data)


def follow(stream: str, url: str = "http://127.0.0.1:8081", *, cursor: Optional[str] = None, start: str = "latest", token: Optional[str] = None,
           timeout: float = 60, on_error: Callable[[Error], Any] = lambda error: None) -> Iterator[Line]:
    """The lines of a stream, forever. After a failure it continues behind the last line, without loss or repetition.

    cursor: of the last line that was used; store it together with the effect of the line. Without a cursor the lines
    begin at `start`: "earliest", "latest", an offset or "@UNIXTIME". If the stream has lost bytes, an item with `gap`
    says so. Error with the code "other-history" or "wrong-stream": the stream is not the one of the cursor.
    """
    server, delay = _Server(url, token, timeout), 0.1
    while True:
        connection = server.connect(timeout)
        try:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": cursor} if cursor else {})}
            reply = server.open(connection, "GET", "/sub", {"stream": stream, "from": start}, headers=headers)
            if cursor is None and start == "latest":  # a failure before the first line must not move the start
                start = reply.headers.get("X-Millrace-Offset", start)
            for line in _events(reply):
                cursor, delay = line.cursor or cursor, 0.1
                yield line
        except Error as error:
            if not error.is_temporary:
                raise
            on_error(error)
        except (OSError, http.client.HTTPException) as error:
            on_error(Error(0, "no-reply", "%s: %s" % (url, error or type(error).__name__)))
        finally:
            connection.close()
        time.sleep(delay)
        delay = min(2 * delay, 2.0)


def _is_erased(line: bytes) -> bool:
    """True for what `millrace forget` leaves of a line: an empty object and spaces."""
    return line.startswith(b"{} ") and not line[2:].strip(b" ")


def _events(reply: http.client.HTTPResponse) -> Iterator[Line]:
    """Events that are complete. One that was cut off comes again."""
    event: Dict[bytes, bytes] = {}
    for raw in reply:
        field, _, value = raw.rstrip(b"\n").partition(b": ")
        if raw == b"\n" and b"data" in event:
            is_gap = event.get(b"event") == b"gap"
            cursor = event.get(b"id", b"").decode()
            if is_gap:
                yield Line(b"", cursor, json.loads(event[b"data"]))
            elif not _is_erased(event[b"data"]):
                yield Line(event[b"data"], cursor)
        if raw == b"\n":
            event = {}
        elif raw.endswith(b"\n"):
            event[field] = value


class Api:
    """Counts. Parameters are those of the API's guide, with from_ for `from`; a list repeats a parameter.

        Api().series(user="bitly", unit="day", period="7d")["rows"]
    """

    def __init__(self, url: str = "http://127.0.0.1:8088", *, token: Optional[str] = None, timeout: float = 30):
        self.server = _Server(url, token, timeout)

    def get(self, what: str, **params: Any) -> Dict[str, Any]:
        return self.server.ask("GET", "/v1/" + what, {name.rstrip("_"): value for name, value in params.items()}).json()

    def series(self, **params: Any) -> Dict[str, Any]:
        return self.get("series", **params)

    def breakdown(self, **params: Any) -> Dict[str, Any]:
        return self.get("breakdown", **params)

    def compare(self, **params: Any) -> Dict[str, Any]:
        return self.get("compare", **params)

    def top(self, counter: str, **params: Any) -> Dict[str, Any]:
        return self.get("top", counter=counter, **params)

    def quantile(self, **params: Any) -> Dict[str, Any]:
        return self.get("quantile", **params)

    def freshness(self) -> Dict[str, Any]:
        return self.get("freshness")

    def lookup(self, prefix: str = "", **params: Any) -> Iterator[Dict[str, Any]]:
        """All keys that begin with `prefix`: {"key", "ns", "label", "n"}."""
        continuation: Optional[str] = None
        while True:
            page = self.get("lookup", prefix=prefix, continuation=continuation, **params)
            yield from page["rows"]
            continuation = page.get("continuation")
            if not continuation:
                return

    def close(self) -> None:
        self.server.close()
