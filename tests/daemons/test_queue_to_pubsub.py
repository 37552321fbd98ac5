"""queue_to_pubsub between a real queue and a real pubsub: each message exactly once and in order, whatever is killed."""
# full: MILLRACE_ROUNDS=200
import http.server
import threading
import time
import unittest

import harness
from harness import UNREACHABLE, query, request, wait_until
from relay_test import FENCES, RelayTest


class Flow(RelayTest):
    def test_what_is_put_before_and_after_the_start(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"one\ntwo")
        relay = self.start_relay()
        self.wait_stream(b"one\ntwo\n")
        queue.post("/put", b"three \x00 \xff")
        self.wait_stream(b"one\ntwo\nthree \x00 \xff\n")
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")
        self.assertEqual(relay.get("/health").status, 200)
        relay.stop()

    def test_ready_before_the_queue_was_ever_put_to(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        self.start_relay()
        queue.post("/put", b"first")
        self.wait_stream(b"first\n")

    def test_health_names_what_is_missing(self):
        relay = self.relay().wait_listening()
        wait_until(lambda: b"queue: " in relay.get("/health").body, "the queue to be missed")
        queue = self.start_queue()
        queue.post("/put", b"x")
        wait_until(lambda: b"destination: " in relay.get("/health").body, "pubsub to be missed")
        self.start_pubsub()
        wait_until(lambda: relay.get("/health").status == 200, "the relay to be ready")
        self.wait_stream(b"x\n")

    def test_stop_leaves_nothing_leased(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        relay = self.start_relay()
        queue.post("/mput", b"\n".join(b"%d" % i for i in range(1000)))
        relay.stop()
        self.assertEqual(self.queue_numbers()["leased"], 0)
        self.start_relay()
        self.wait_stream(b"".join(b"%d\n" % i for i in range(1000)))

    def test_unknown_setting_and_bad_name(self):
        for args in (["--nonsense=1"], ["--stream=a/b"], ["--pubsub-url=http://"], ["--backoff-min=9s"]):
            run = self.run_program("queue_to_pubsub", *args)
            self.assertIn(run.returncode, (64, 78), args)
            self.assertTrue(run.stderr, args)


class Poison(RelayTest):
    def test_found_buried_and_the_rest_goes_on(self):
        queue, _ = self.start_queue(), self.start_pubsub("--max-line=100")
        good = [b"line %d" % i for i in range(200)]
        for i, message in enumerate(good):
            if i == 37:
                queue.post("/put", b"x" * 101)
            if i == 38:
                queue.post("/put", b"two\nlines")
            if i == 120:
                queue.post("/put", b"\r")
            queue.post("/put", message)
        relay = self.start_relay()
        self.wait_stream(b"".join(m + b"\n" for m in good))
        wait_until(lambda: self.queue_numbers()["buried"] == 3, lambda: "three to be buried: %s" % self.queue_numbers())
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all others to be acknowledged")
        self.assertLess(relay.stats()["deliveries_refused"], 30, "halving, not trying one by one")


class RefusesAcks(http.server.BaseHTTPRequestHandler):
    """The queue, but for a gateway that lets no acknowledgement through."""
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        refused = self.path.startswith("/ack") or "ack=" in self.path
        self.server.refused += refused
        reply = harness.Reply(403, {}, b"no") if refused else request(
            self.server.queue_url, self.command, self.path, body)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            if name.startswith("X-Millrace"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = pass_on

    def log_message(self, *args):
        pass


class NoAcks(RelayTest):
    def test_a_queue_that_takes_no_acknowledgement_does_not_hold_the_relay_up(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        gateway = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RefusesAcks)
        gateway.queue_url, gateway.refused, gateway.daemon_threads = self.queue_url, 0, True
        threading.Thread(target=gateway.serve_forever, daemon=True).start()
        self.addCleanup(gateway.server_close)
        self.addCleanup(gateway.shutdown)
        relay = self.relay("--queue-url=http://127.0.0.1:%d" % gateway.server_port, "--items=3", "--wait=200ms")
        for i in range(12):
            queue.post("/put", b"%d" % i)
        self.wait_stream(b"".join(b"%d\n" % i for i in range(12)))
        self.assertGreater(gateway.refused, 1)
        wait_until(lambda: relay.wait_listening().stats()["acks_refused"] > 0, "it to be counted")
        self.assertEqual(self.queue_numbers()["depth"], 12)


class Hopeless(RelayTest):
    """What would lose or repeat messages ends the relay with EX_DATAERR and a reason, and nothing is touched."""

    def refuses(self, published, mark, reason):
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"a\nb")
        identity = self.ask_queue("/release?reader=test").json()["queue_id"]
        self.assertEqual(self.publish(identity, 0, mark, published).status, 200)
        relay = self.relay()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
        self.assertIn(reason, relay.log)
        self.assertEqual(self.queue_numbers()["ready"], 2)
        self.assertEqual(self.stream(), published)

    def test_an_old_copy(self):
        self.refuses(b"from the other copy\n", 50 * FENCES, "old copy")

    def test_a_mark_of_something_else(self):
        self.refuses(b"somebody's\n", 50, "not made by a reader")

    def test_fences_at_their_end(self):
        self.refuses(b"", 3 * FENCES - 1, "no marks are left")


class Chaos(RelayTest):
    """Queue, relay and pubsub killed at random while numbered events flow."""

    def put_until(self, enough):
        """Puts with marks, each repeated until it is acknowledged: the queue holds every event once."""
        while not enough.is_set():
            i = self.puts
            body = b"\n".join(b"event %06d" % (i * 10 + k) for k in range(10))
            target = "/mput?" + query(producer="test", mark=i, next=i + 1)
            while True:
                try:
                    reply = request(self.queue_url, "POST", target, body)
                    if reply.status == 200:
                        break
                except UNREACHABLE:
                    pass
                time.sleep(0.002)  # between tries; nothing depends on its length
            self.puts += 1

    def restart(self, kind):
        return {"simplequeue": self.start_queue, "pubsub": self.start_pubsub,
                "queue_to_pubsub": self.relay}[kind]()

    def test_each_exactly_once_and_in_order(self):
        random = harness.seeded()
        running = {"simplequeue": self.start_queue(), "pubsub": self.start_pubsub()}
        running["queue_to_pubsub"] = self.start_relay()
        self.puts, enough = 0, threading.Event()
        putter = threading.Thread(target=self.put_until, args=(enough,))
        putter.start()
        for _ in range(harness.rounds(12)):
            kind = random.choice(sorted(running))
            time.sleep(random.uniform(0, 0.1))  # where the blow falls is the random part
            running[kind].kill9()
            running[kind] = self.restart(kind)
        enough.set()
        putter.join()
        self.wait_stream(b"".join(b"event %06d\n" % i for i in range(self.puts * 10)))
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")


if __name__ == "__main__":
    unittest.main()
