"""What the tests of nats_to_pubsub share: queues with relays, a nats-server, and cells, all on fixed addresses."""
import contextlib
import json
import signal
import threading
import time
import zlib

from harness import UNREACHABLE, query, request, wait_until
from nats_test import Client, NatsServer, NatsTest, gave_up


BATCH = 20
EVENT_TIME = 1332633600


class Putter(threading.Thread):
    """Puts numbered events with marks, each batch repeated until it is acknowledged: the queue holds every event once."""

    def __init__(self, host, until):
        super().__init__(daemon=True)
        self.host, self.n, self.until = host, 0, until
        self.acknowledged = []  # (time, n): n events were acknowledged before this time

    def event(self, i):
        return b'{"t":%d,"q":"%s","n":%d}' % (EVENT_TIME, self.host.name.encode(), i)

    @property
    def events(self):
        return [self.event(i) for i in range(self.until)]

    def run(self):
        while self.n < self.until:
            body = b"\n".join(self.event(i) for i in range(self.n, self.n + BATCH))
            try:
                reply = request(self.host.url, "POST", "/mput?" + query(producer="test", mark=self.n, next=self.n + BATCH),
                                body, timeout=10)
            except UNREACHABLE:
                continue
            self.n += BATCH if reply.status == 200 else 0
            self.acknowledged.append((time.time(), self.n))


class Host:
    """An app's host: a queue and its relay."""

    def __init__(self, test, name, *relay_args):
        self.test, self.name, self.relay_args, self.nats_url = test, name, relay_args, test.nats_url()
        self.url = "unix:" + test.path(name + ".sock")
        self.start_queue()
        self.start_relay()

    def start_queue(self):
        self.queue = self.test.start("simplequeue", "--data-dir=" + self.test.path(self.name), "--sync=never", listen=self.url)

    def start_relay(self):
        self.relay = self.test.daemon(
            "queue_to_nats", "--queue-url=" + self.url, "--nats-url=" + self.nats_url, "--backoff-max=200ms", "--create",
            "--replicas=1", "--nats-timeout=1s", "--name=" + self.name, *self.relay_args)

    @property
    def id(self):
        """The first put or the relay makes the queue. simplequeue may be killed now, and starts again."""
        def queue():
            with contextlib.suppress(*UNREACHABLE):
                return request(self.url, "GET", "/stats?format=json").json()["queues"].get("default")
        return wait_until(queue, "the queue of " + self.name)["queue_id"]

    @property
    def partition(self):
        return zlib.crc32(self.id.encode()) % 64

    def put(self, lines):
        reply = request(self.url, "POST", "/mput", b"\n".join(lines))
        self.test.assertEqual(reply.status, 200)

    def kill_queue(self):
        self.queue.kill9()
        self.start_queue()

    def kill_relay(self):
        self.relay.kill9()
        self.start_relay()

    def wait_published(self):
        wait_until(lambda: self.relay.wait_ready().stats()["backlog_messages"] == 0, "all of %s to be published" % self.name)


class Cell:
    """A cell's pubsub and nats_to_pubsub."""

    def __init__(self, test, name, partitions="0-63", *args):
        self.test, self.name, self.args, self.nats_url = test, name, ("--partitions=" + partitions, *args), test.nats_url()
        self.url = "unix:" + test.path(name + ".sock")
        self.start_pubsub()
        self.start_copier()

    def start_pubsub(self, *args):
        self.pubsub = self.test.start("pubsub", "--data-dir=" + self.test.path(self.name), "--sync=never", *args, listen=self.url)

    def start_copier(self, *args):
        self.copier = self.test.daemon("nats_to_pubsub", "--pubsub-url=" + self.url, "--nats-url=" + self.nats_url,
                                       "--nats-timeout=1s", *self.args, *args)

    def restart_copier(self, *args):
        self.copier.kill9()
        self.start_copier(*args)

    def kill_pubsub(self):
        self.pubsub.kill9()
        self.start_pubsub()

    def pause_copier(self):
        """Another process copies the same partitions, and the first one wakes up."""
        paused = self.copier
        paused.process.send_signal(signal.SIGSTOP)
        self.start_copier()
        self.copier.wait_ready()
        paused.process.send_signal(signal.SIGCONT)
        paused.wait_ready()
        paused.kill9()

    @property
    def lines(self):
        reply = request(self.url, "GET", "/sub?stream=clicks&from=earliest&follow=0")
        return reply.body.splitlines() if reply.status == 200 else []

    def wait_lines(self, expected):
        wait_until(lambda: len(self.lines) >= len(expected),
                   lambda: "%d lines in %s, there are %d\n%s" % (len(expected), self.name, len(self.lines), self.copier.log))
        self.test.assertEqual(self.lines, expected)

    def producer(self, host):
        return request(self.url, "GET", "/producer?" + query(stream="clicks", producer=host.id)).json()

    def set_mark(self, producer, from_, mark):
        """As /health proposes."""
        r = self.test.run_program("millrace", "producers", "--url=" + self.url, "--set=" + producer, "--from=%d" % from_,
                                  "--mark=%d" % mark)
        return r.returncode

    def health(self):
        return self.copier.wait_listening().get("/health")

    def wait_trouble(self, text):
        wait_until(lambda: text in self.health().text, lambda: "%s, /health is %s" % (text, self.health().text))
        self.test.assertEqual(self.health().status, 503)


class CellTest(NatsTest):
    def setUp(self):
        super().setUp()
        self.server = NatsServer(self, "n1").start()

    def kill_server(self):
        self.server.kill9()
        self.server.start()

    def pause_server(self):
        """Until a publish has failed."""
        relay = self.hosts[0].relay
        failed = relay.wait_ready().stats()["deliveries_failed_total"]
        self.server.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: gave_up(relay, failed), "a publish to fail")
        self.server.process.send_signal(signal.SIGCONT)
        self.start_ended()

    def start_ended(self):
        """A program ends if a request to a server does not end."""
        for host in self.hosts:
            if not host.relay.alive():
                host.start_relay()
        for cell in self.cells:
            if not cell.copier.alive():
                cell.start_copier()

    def totals(self, cells):
        """What the aggregators of all cells have counted, by queue."""
        self.write("c.conf", "[input]\ntime = t\n[total q]\nkey = q\n")
        totals = {}
        for cell in cells:
            aggregator = self.start("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path(cell.name + ".a"),
                                    "--pubsub-url=" + cell.url, "--streams=clicks")
            end = request(cell.url, "GET", "/streams").json()["streams"]
            if not end:
                continue
            wait_until(lambda a=aggregator, e=end: a.stats()["streams"]["clicks"]["offset"] == e[0]["end"], "all to be counted")
            for line in aggregator.get("/range?start=&end=%ff").body.decode().splitlines():
                name = line.split(",")[0].split("|")[1]
                totals[name] = totals.get(name, 0) + int(line.rsplit(":", 1)[1])
        return totals

    def api(self, verb, **request_):
        reply = Client(self.server).api(verb, **request_)
        self.assertNotIn("error", reply)
        return reply

    def add_stream(self, **config):
        self.api("STREAM.CREATE.clicks", **{
            "name": "clicks", "subjects": ["clicks.*.*"], "retention": "limits", "storage": "file", "discard": "new",
            "num_replicas": 1, "allow_direct": True, "max_age": 3600 * 10**9, "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, **config})

    def publish(self, queue_id, mark, next_, lines, opening="0" * 24, partition=None, other=b"", **headers):
        """A batch as of a relay."""
        partition = zlib.crc32(queue_id.encode()) % 64 if partition is None else partition
        head = b"NATS/1.0\r\n" + b"".join(b"Millrace-%s: %s\r\n" % (k.replace("_", "-").encode(), str(v).encode()) for k, v in {
            "Queue_Id": queue_id, "Mark": mark, "Next": next_, "Opening": opening, **headers}.items()) + other + b"\r\n"
        body = b"".join(line + b"\n" for line in lines)
        client = Client(self.server)
        client.n += 1
        client.send(b"HPUB clicks.%d.%s %s.%d %d %d\r\n%s%s\r\n" % (
            partition, queue_id.encode(), client.inbox.encode(), client.n, len(head), len(head) + len(body), head, body))
        reply = json.loads(client.receive())
        self.assertNotIn("error", reply)
        return reply["seq"]

    def delete_message(self, seq):
        self.api("STREAM.MSG.DELETE.clicks", seq=seq)
