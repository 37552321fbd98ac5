"""queue_to_pubsub between a real queue and a real pubsub; crash/test_kill_relay.py and test_two_relays.py do it harm."""
# seconds: 15
# full: MILLRACE_ROUNDS=60
import os
import shutil
import signal
import socket
import threading
import time
import unittest

import harness
from harness import request, wait_until
from relay_test import RelayTest
from sink import destination, most_tries


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

    def test_the_name_that_people_know(self):
        self.start_pubsub()
        for host, args, name in ((None, (), socket.gethostname() + ".default"), ("web1.shop", (), "web1.shop.default"),
                                 ("web1", ("--name=shop",), "shop")):
            queue = self.start("simplequeue", *(["--name=" + host] if host else []), listen=self.queue_url)
            queue.post("/put", b"x")
            relay = self.start_relay(*args)
            identity = self.queue_numbers()["queue_id"]
            listed = lambda: request(self.pubsub_url, "GET", "/producers?stream=clicks").json()["producers"]
            wait_until(lambda: [p.get("name") for p in listed() if p["producer"] == identity] == [name], name)
            relay.stop()
            queue.stop()

    def test_health_names_what_is_missing(self):
        relay = self.relay().wait_listening()
        wait_until(lambda: b"queue: " in relay.get("/health").body, "the queue to be missed")
        queue = self.start_queue()
        queue.post("/put", b"x")
        wait_until(lambda: b"destination: " in relay.get("/health").body, "pubsub to be missed")
        self.start_pubsub()
        wait_until(lambda: relay.get("/health").status == 200, "the relay to be ready")
        self.wait_stream(b"x\n")

    def test_ready_once_a_queue_that_was_away_is_there(self):
        self.start_pubsub()
        relay = self.relay().wait_listening()
        wait_until(lambda: b"queue: " in relay.get("/health").body, "the queue to be missed")
        self.start_queue()
        relay.wait_ready()

    def test_started_before_both(self):
        """In each order of queue and pubsub, with messages and without: the service manager hears of it as well."""
        for i, order in enumerate(("qp", "pq") * 2):
            path = self.path("notify%d" % i)
            manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.addCleanup(manager.close)
            manager.bind(path)
            manager.settimeout(harness.PATIENCE)
            relay = self.daemon("queue_to_pubsub", "--queue-url=" + self.queue_url, "--pubsub-url=" + self.pubsub_url,
                                "--backoff-max=200ms", env={"NOTIFY_SOCKET": path}).wait_listening()
            wait_until(lambda: b"queue: " in relay.get("/health").body, "the queue to be missed")
            others = {}
            for which in order:
                others[which] = self.start_queue("q%d" % i) if which == "q" else self.start_pubsub()
                if which == "q" and i < 2:
                    others[which].post("/put", b"x")
                faults = relay.stats()["queue_faults_total"] + relay.stats()["deliveries_failed_total"]
                if len(others) == 1 and (which == "p" or i < 2):
                    wait_until(lambda: sum(relay.stats()[n] for n in ("queue_faults_total", "deliveries_failed_total")) > faults,
                               "the other to be missed")
            relay.wait_ready()
            while b"READY=1" not in manager.recv(4096):
                pass
            for daemon in (relay, *others.values()):
                daemon.stop()

    def test_stop_ends_the_following(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        relay = self.start_relay()
        queue.post("/mput", b"\n".join(b"%d" % i for i in range(1000)))
        relay.stop()
        self.assertEqual(self.queue_numbers()["follower"], "")
        self.start_relay()
        self.wait_stream(b"".join(b"%d\n" % i for i in range(1000)))

    def test_unknown_setting_and_bad_name(self):
        for args in (["--nonsense=1"], ["--stream=a/b"], ["--name=a b"], ["--pubsub-url=http://"], ["--backoff-min=9s"]):
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
        self.assertLess(relay.stats()["deliveries_refused_total"], 30, "halving, not trying one by one")


class Following(RelayTest):
    """While a relay follows the queue, others get nothing of it."""

    def is_followed(self):
        reply = self.ask_queue("/get", "GET")
        self.assertIn(reply.status, (200, 409))
        if reply.status == 409:
            self.assertEqual((reply.json()["code"], reply.json()["reader"]), ("followed", "queue_to_pubsub"))
        return reply.status == 409

    def test_a_stop_lets_others_in_and_a_kill_does_not(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        self.assertFalse(self.is_followed())
        relay = self.start_relay()
        relay.stop()
        self.assertNotIn("stays followed", relay.log)
        self.assertFalse(self.is_followed())
        self.start_relay().kill9()
        self.assertTrue(self.is_followed())
        queue.kill9()
        self.start_queue()
        self.assertTrue(self.is_followed(), "the queue knows it after a restart")
        self.start_relay().stop()
        self.assertTrue(self.is_followed(), "a publish of the killed relay may still arrive")
        relay = self.start_relay()
        self.ask_queue("/put", body=b"x")
        self.wait_stream(b"x\n")
        relay.stop()
        self.assertFalse(self.is_followed(), "a publish was stored, so no earlier one can be")

    def test_a_stop_without_an_answer_keeps_others_out(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        front = Front(self, self.path("front.sock"), self.path("p.sock"))
        relay = self.start_relay("--pubsub-url=unix:" + self.path("front.sock"), "--publish-timeout=100ms")
        queue.post("/put", b"zero")
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1, "the relay to know the mark")
        front.swallow()
        queue.post("/put", b"one")
        wait_until(lambda: relay.stats()["messages_reserved_total"] == 2, "the relay to have it")
        wait_until(lambda: self.queue_numbers()["depth"] == 1, "the queue to forget the first")
        failed = relay.stats()["deliveries_failed_total"]
        wait_until(lambda: relay.stats()["deliveries_failed_total"] > failed + 1, "a statement at most, then the publish to fail")
        relay.stop()
        self.assertIn("the queue stays followed", relay.log)
        self.assertTrue(self.is_followed())
        self.assertEqual(self.ask_queue("/unfollow").status, 200)
        self.assertEqual(self.ask_queue("/get", "GET").body, b"one")

    def test_a_stop_after_a_restart_of_the_queue_says_that_it_stays_followed(self):
        """The number of the relay's follow is over, so the queue refuses its /unfollow."""
        queue, _ = self.start_queue(), self.start_pubsub()
        relay = self.start_relay()
        relay.process.send_signal(signal.SIGSTOP)
        queue.kill9()
        self.start_queue()
        relay.process.send_signal(signal.SIGTERM)
        relay.process.send_signal(signal.SIGCONT)
        self.assertEqual(relay.process.wait(harness.PATIENCE), 0, relay.log)
        self.assertIn("the queue stays followed", relay.log)
        self.assertTrue(self.is_followed())

    def test_a_hand_over_publishes_until_no_publish_may_still_arrive(self):
        self.start_queue(), self.start_pubsub()
        config = self.write("hand.conf", "[pubsub]\naddress = %s\n" % self.pubsub_url)
        for waiting in (b"", b"one\n"):
            self.start_relay().kill9()
            if waiting:
                self.ask_queue("/put", body=b"one")
            self.assertTrue(self.is_followed())
            ran = self.run_program("millrace", "queue", "--hand-over", "--url=" + self.queue_url, "--config=" + config)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertFalse(self.is_followed())
            self.assertEqual(self.stream(), waiting)
        self.assertEqual(self.ask_queue("/follow?reader=other").status, 200)
        ran = self.run_program("millrace", "queue", "--hand-over", "--url=" + self.queue_url)
        self.assertEqual(ran.returncode, 64)
        self.assertIn(b"followed by other", ran.stderr)

    def test_a_relay_of_another_name_is_refused_and_says_why(self):
        self.start_queue(), self.start_pubsub()
        self.start_relay()
        other = self.relay("--reader=other").wait_listening()
        wait_until(lambda: b"the reader queue_to_pubsub follows this queue" in other.get("/health").body, "the reason")

    def test_a_lost_answer_of_the_queue_loses_and_repeats_nothing(self):
        queue, _ = self.start_queue(), self.start_pubsub()
        front = Front(self, self.path("front.sock"), self.path("q.sock"))
        relay = self.start_relay("--queue-url=unix:" + self.path("front.sock"), "--items=3", "--queue-timeout=100ms")
        expected, put = b"", 0
        while put < 30 or self.queue_numbers()["gets"] == put:  # then a message was sent twice
            faults = relay.stats()["queue_faults_total"]
            front.swallow()
            lines = [b"%d" % n for n in range(put, put + 10)]
            put += len(lines)
            queue.post("/mput", b"\n".join(lines))
            wait_until(lambda: relay.stats()["queue_faults_total"] > faults, "an answer to be lost, or a request")
            front.wake()
            expected += b"".join(line + b"\n" for line in lines)
            self.wait_stream(expected)
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be settled")


class Front:
    """A proxy that can stop to answer: from swallow() until wake() it accepts and reads, but never answers. Connections of this time never
    work again."""

    def __init__(self, test, path, target):
        self.target, self.lost, self.connections = target, False, []
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()
        test.addCleanup(self.server.close)

    def _accept(self):
        while True:
            try:
                client = self.server.accept()[0]
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect(self.target)
            connection = {"dead": self.lost}
            self.connections.append(connection)
            for a, b in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._copy, args=(a, b, connection), daemon=True).start()

    @staticmethod
    def _copy(source, sink, connection):
        try:
            while True:
                piece = source.recv(1 << 20)
                if not piece:
                    return sink.close()
                if not connection["dead"]:
                    sink.sendall(piece)
        except OSError:
            sink.close()

    def swallow(self):
        self.lost = True
        for connection in self.connections:
            connection["dead"] = True

    def wake(self):
        self.lost = False


class Silent(RelayTest):
    FAULT = max(1.0, harness.rounds(0))  # seconds

    def test_a_pubsub_that_accepted_and_never_answered_is_at_full_speed_within_five_seconds(self):
        """With the settings as they are by default. Within five seconds, because it is never set aside for longer than the backoff."""
        queue, _ = self.start_queue(), self.start_pubsub()
        front = Front(self, self.path("front.sock"), self.path("p.sock"))
        relay = self.start_relay("--pubsub-url=unix:" + self.path("front.sock"), "--backoff-max=2s")
        lines = [b"%d" % i for i in range(300)]
        queue.post("/mput", b"\n".join(lines[:100]))
        self.wait_stream(b"".join(m + b"\n" for m in lines[:100]))
        front.swallow()
        began = time.monotonic()
        queue.post("/mput", b"\n".join(lines[100:200]))
        time.sleep(self.FAULT)  # the fault's length is what is tested
        faults = relay.stats()["deliveries_failed_total"]
        self.assertLessEqual(faults, 1 + (time.monotonic() - began) / 3, "one try at a time")
        self.assertLessEqual(destination(relay, "unix:" + self.path("front.sock"))["set_aside_seconds"], 2)
        front.wake()
        queue.post("/mput", b"\n".join(lines[200:]))
        self.wait_stream(b"".join(m + b"\n" for m in lines))
        wait_until(lambda: relay.get("/health").status == 200, "it to be well again")


class Gone(RelayTest):
    def test_metrics_show_a_pubsub_that_is_down_and_up_again_and_it_is_tried_at_the_stated_rate(self):
        queue, pubsub = self.start_queue(), self.start_pubsub()
        relay = self.start_relay("--backoff-min=100ms", "--backoff-max=800ms")
        queue.post("/put", b"one")
        self.wait_stream(b"one\n")
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1 and destination(relay, self.pubsub_url)["up"] == 1,
                   "the answer to be heard")
        before = destination(relay, self.pubsub_url)["faults_total"]
        began = time.monotonic()
        pubsub.kill9()
        queue.post("/put", b"two")
        wait_until(lambda: destination(relay, self.pubsub_url)["faults_total"] >= before + 4, "some tries")
        down = destination(relay, self.pubsub_url)
        self.assertLessEqual(down["faults_total"] - before, most_tries(time.monotonic() - began, 0.1, 0.8))
        self.assertEqual(down["up"], 0)
        self.assertLessEqual(down["set_aside_seconds"], 0.8)
        self.assertEqual(relay.get("/health").status, 503)
        self.start_pubsub()
        self.wait_stream(b"one\ntwo\n")
        wait_until(lambda: destination(relay, self.pubsub_url)["up"] == 1, "it to be up")
        wait_until(lambda: relay.get("/health").status == 200, "it to be well again")


class Tokens(RelayTest):
    def test_a_queue_and_a_pubsub_that_ask_for_tokens(self):
        for name in "qp":
            os.chmod(self.write(name + ".token", "secret-" + name), 0o600)
        self.start("simplequeue", "--auth-token-file=" + self.path("q.token"), listen=self.queue_url)
        self.start("pubsub", "--data-dir=" + self.path("p"), "--auth-token-file=" + self.path("p.token"),
                   listen=self.pubsub_url)
        relay = self.relay().wait_listening()
        wait_until(lambda: b"answered 401" in relay.get("/health").body, "it to be refused")
        relay.stop()
        self.start_relay("--queue-token-file=" + self.path("q.token"), "--pubsub-token-file=" + self.path("p.token"))
        request(self.queue_url, "POST", "/put", b"x", headers={"Authorization": "Bearer secret-q"})
        wait_until(lambda: request(self.pubsub_url, "GET", "/sub?from=earliest&follow=0&stream=clicks", headers={
            "Authorization": "Bearer secret-p"}).body == b"x\n", "it to be relayed")
        done = self.run_program("queue_to_pubsub", "--queue-token-file=" + self.path("none"))
        self.assertEqual(done.returncode, 78, done)


class OldCopy(RelayTest):
    def flow(self, messages):
        queue, relay = self.start_queue(), self.relay()
        before = len(self.stream())
        queue.post("/mput", b"\n".join(messages))
        wait_until(lambda: len(self.stream()) == before + sum(len(m) + 1 for m in messages), "all to be relayed")
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "all to be acknowledged")
        relay.stop()
        queue.stop()

    def test_a_directory_that_was_restored_from_a_copy_is_noticed_and_drops_nothing(self):
        self.start_pubsub()
        self.flow([b"%d" % i for i in range(10)])
        shutil.copytree(self.path("q"), self.path("copy"))
        self.flow([b"lost with the disk %d" % i for i in range(50)])
        shutil.rmtree(self.path("q"))
        os.rename(self.path("copy"), self.path("q"))
        queue, held = self.start_queue(), self.stream()
        queue.post("/mput", b"new 1\nnew 2")
        relay = self.relay()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
        self.assertEqual(self.queue_numbers()["ready"], 2, "nothing is dropped")
        queue.stop()
        renamed = self.run_program("simplequeue", "--restored", "--port=0", "--data-dir=" + self.path("q"))
        self.assertEqual(renamed.returncode, 0, renamed)
        self.start_queue()
        self.start_relay()
        self.wait_stream(held + b"new 1\nnew 2\n")


class Hopeless(RelayTest):
    """If the relay would lose or repeat messages, it ends with EX_DATAERR and a reason, and changes nothing."""

    def refuses(self, published, mark, reason):
        queue, _ = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"a\nb")
        identity = self.queue_numbers()["queue_id"]
        self.assertEqual(self.publish(identity, 0, mark, published).status, 200)
        relay = self.relay()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
        self.assertIn(reason, relay.log)
        self.assertEqual(self.queue_numbers()["ready"], 2)
        self.assertEqual(self.stream(), published)

    def test_a_mark_that_another_program_has_raised(self):
        self.refuses(b"another program's\n", 50, "Another program has raised the mark")


if __name__ == "__main__":
    unittest.main()
