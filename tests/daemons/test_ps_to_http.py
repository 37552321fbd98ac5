"""ps_to_http delivers each line to an HTTP server at least once."""
# full: MILLRACE_ROUNDS=200
import os
import signal
import threading
import time
import urllib.parse

import harness
from forward_case import ForwardTest
from harness import wait_until
from sink import Sink, destination


class Delivery(ForwardTest):
    def test_batches_in_order(self):
        p = self.post("--batch=10").wait_ready()
        self.publish(95)
        wait_until(lambda: self.server.lines() == self.sent(), "all to arrive")
        self.assertTrue(all(len(b.splitlines()) <= 10 for b in self.server.bodies))
        self.assertEqual(set(self.server.targets), {"/in?x=1"})
        p.stop()

    def test_a_request_has_at_most_batch_bytes(self):
        """A request with one line may be longer. A batch that is closed before it is full does not wait for more lines."""
        lines = [b"%d" % n + b"x" * 598 for n in range(9)] + [b"y" * 2000, b"z"]
        self.pubsub.post("/pub?stream=s", b"".join(line + b"\n" for line in lines))
        p = self.post("--batch_bytes=1300", "--gather=60s").wait_ready()
        wait_until(lambda: self.server.lines() == lines[:10], lambda: p.log)
        self.assertEqual([len(b) for b in self.server.bodies], [1200] * 4 + [600, 2001])
        p.stop()

    def test_a_line_a_request(self):
        p = self.to_http("--destination", self.server.url + "/hit?e=%s&v=%s", "--method=GET", "--state",
                         self.path("state"))
        self.publish(5)
        wait_until(lambda: len(self.server.targets) == 5, "all to arrive")
        escaped = [urllib.parse.quote(line.decode(), safe="") for line in self.sent()]
        self.assertEqual(self.server.targets, ["/hit?e=%s&v=%s" % (e, e) for e in escaped])
        p.stop()

    def test_whatever_the_destination_does(self):
        """All kinds of trouble, in random order, each so short that the backoff stays short."""
        random, moods = harness.seeded(), []

        def mood(body):
            if not moods:
                moods.extend(random.sample([200, 200, 200, 500, 503, 429, "hang", "reset"], 8))
            return moods.pop()
        self.server.mood = mood
        p = self.post("--batch=5", "--timeout=300ms").wait_listening()
        self.publish(30)
        wait_until(lambda: self.server.lines() and self.server.lines()[-1] == self.sent()[-1], "all to arrive")
        self.assertEqual(sorted(set(self.server.lines())), sorted(self.sent()))
        p.stop()

    def test_killed_at_random_it_leaves_nothing_out(self):
        """Kills the client, pubsub and the destination. A killed destination keeps the lines that it has stored, and loses requests without
        an answer."""
        random, sinks = harness.seeded(), [Sink(self)]
        args = ("--destination", sinks[0].url, "--state", self.path("state"), "--commit_every=20ms", "--batch=7", "--parallel=3")

        def kill_destination():
            with sinks[-1].lock:
                sinks[-1].behave = lambda body: "reset"  # of connections that are kept
            sinks[-1].close()
            sinks.append(Sink(self, sinks[-1].port))

        def kill_pubsub():
            self.pubsub.kill9()
            self.start_pubsub()

        def arrived():
            return [line for sink in sinks for line in sink.messages()]
        for _ in range(harness.rounds(3)):
            p = self.to_http(*args)
            for _ in range(5):
                self.publish(random.randrange(1, 60))
                time.sleep(random.uniform(0, 0.03))
                if random.randrange(4) == 0:
                    random.choice([kill_destination, kill_pubsub])()
            p.kill9()
        p = self.to_http(*args).wait_ready()
        wait_until(lambda: set(arrived()) == set(self.sent()), "all to arrive")
        end = str(len(self.pubsub.get("/sub?stream=s&from=earliest&follow=0").body))
        wait_until(lambda: os.path.exists(self.path("state")) and end in harness.read_file(self.path("state")).decode(),
                   "the state")
        n = len(arrived())
        p.stop()
        self.to_http(*args).wait_ready().stop()
        self.assertEqual(len(arrived()), n, "what was committed is not delivered again")

    def test_what_only_grows_is_a_counter(self):
        p = self.post("--port=0", port=False).wait_ready()
        self.assertGreater(p.counters(), {"lines_delivered_total", "batches_delivered_total", "tries_failed_total",
                                          "lines_refused_total"})

    def test_a_long_answer_is_an_answer(self):
        """65 MiB: more than the client would gather."""
        sink = Sink(self)
        sink.filler = 65 << 20
        sink.behave = lambda body: 422 if b'"bad"' in body else 200
        self.pubsub.post("/pub?stream=s", b'{"n":1}\n{"n":"bad"}\n{"n":2}\n')
        p = self.to_http("--destination", sink.url, "--state", self.path("state"), "--batch=1", "--skip_refused",
                         "--port=0", port=False).wait_listening()
        wait_until(lambda: len(sink.messages()) == 2, lambda: "all to be delivered:\n" + p.log)
        self.assertEqual(destination(p, sink.url)["faults_total"], 0)
        self.assertIn("answered 422 no", p.log)
        p.stop()

    def test_urls_are_separated_as_help_says(self):
        for name, others in (("ps_to_http", ["--state=x"]), ("queue_to_http", [])):
            told = b" ".join(self.run_program(name, "--help").stdout.split())
            self.assertIn(b"several, separated by spaces or commas", told, name)
            for urls in ("http://a/,http://b/", "http://a/ http://b/"):
                done = self.run_program(name, "--destination=" + urls, "--check-config", *others)
                self.assertEqual(done.returncode, 0, (name, urls, done))

    def test_a_stop_waits_for_the_answer(self):
        """What was delivered is committed: the next life does not deliver it again."""
        asked, may_answer = threading.Event(), threading.Event()

        def mood(body):
            asked.set()
            may_answer.wait(harness.PATIENCE)
            return 200
        self.server.mood = mood
        p = self.post("--batch=10").wait_ready()
        self.publish(10)
        self.assertTrue(asked.wait(harness.PATIENCE))
        p.process.send_signal(signal.SIGTERM)
        wait_until(lambda: " stopping" in p.log, "it to be told")
        may_answer.set()
        self.assertEqual(p.process.wait(harness.PATIENCE), 0, p.log)
        wait_until(lambda: self.server.lines() == self.sent(), "them to be taken, answer or no answer")
        self.server.mood = 200
        p = self.post().wait_ready()
        self.publish(5)
        wait_until(lambda: self.server.lines()[-5:] == self.sent()[-5:], "the others")
        self.assertEqual(self.server.lines(), self.sent())
        p.stop()

    def test_tokens(self):
        for name in ("p", "d"):
            os.chmod(self.write(name + ".token", "secret-" + name), 0o600)
        token, bearer = self.path("p.token"), {"Authorization": "Bearer secret-p"}
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("guarded"), "--auth-token-file", token)
        self.assertEqual(self.pubsub.post("/pub?stream=s", b"x\n", headers=bearer).status, 200)
        p = self.post().wait_listening()
        wait_until(lambda: b"pubsub answered 401" in p.get("/health").body, "it to be refused")
        p.stop()
        p = self.post("--pubsub-token-file", token, "--destination-token-file", self.path("d.token"))
        wait_until(lambda: self.server.lines() == [b"x"], "the line")
        self.assertEqual(self.server.tokens, ["Bearer secret-d"])
        p.wait_ready().stop()
        p = self.to_http("--to-stream=copy", "--to-url", self.pubsub.url, "--pubsub-token-file", token,
                         "--to-token-file", token)
        wait_until(lambda: self.pubsub.get("/sub?stream=copy&from=earliest&follow=0", headers=bearer).body == b"x\n",
                   "the copy")
        p.wait_ready().stop()

    def test_from_the_end_of_a_stream_that_is_made_while_it_is_dead(self):
        """The first life saw that there was none: all of it is new."""
        args = ("--stream=later", "--from=latest", "--destination", self.server.url, "--state", self.path("state"))
        p = self.to_http(*args)
        wait_until(lambda: os.path.exists(self.path("state")), "the state")
        p.kill9()
        self.assertEqual(self.pubsub.post("/pub?stream=later", b"one\ntwo\n").status, 200)
        p = self.to_http(*args)
        wait_until(lambda: self.server.lines() == [b"one", b"two"], "both lines")
        p.wait_ready().stop()

    def test_one_process_has_a_state(self):
        first = self.post().wait_ready()
        second = self.post()
        self.assertEqual(second.process.wait(harness.PATIENCE), 78)
        self.assertIn("another process holds this state", second.log)
        first.kill9()
        self.post().wait_ready().stop()

    def test_settings(self):
        def refused(*args):
            p = self.to_http(*args)
            self.assertEqual(p.process.wait(harness.PATIENCE), 78)
            return p.log
        self.assertIn("set exactly one of", refused())
        for urls in (self.server.url, self.server.url + "/?e=%s " + self.server.url + "/in"):
            self.assertIn("requires %s in each URL", refused("--destination", urls, "--state=x", "--method=GET"),
                          "a GET without the line would take it for delivered")
        self.assertIn("not a valid header", refused("--destination", self.server.url, "--state=x", "--content-type=a\nb: c"))
        self.assertIn("not an address", refused("--destination", self.server.url + "/a b", "--state=x"))
        self.assertIn("requires skip_refused", refused("--destination", self.server.url, "--state=x", "--rejects=y"))
        self.assertIn("does not send the part", refused("--destination", self.server.url + "/in#part", "--state=x"))
        self.assertIn("has one line", refused("--destination", self.server.url + "/%s", "--state=x", "--batch=10"))
        self.assertIn("poison_limit: requires skip_refused", refused("--destination", self.server.url, "--state=x",
                                                                   "--poison_limit=5"))
        for setting in ("--producer=p", "--to_token_file=f", "--to_url=http://127.0.0.1:1"):
            self.assertIn("only allowed with to_stream or to_queue", refused("--destination", self.server.url, "--state=x", setting))
        for setting in ("--state=x", "--batch=10", "--skip_refused", "--destination_token_file=f"):
            self.assertIn("only allowed with destination", refused("--to_queue=q", "--to_url=http://127.0.0.1:1", setting))
        self.assertIn("required:", refused("--to_queue=q"))
        self.assertIn("must be earliest", refused("--to_queue=q", "--from=yesterday"))
        self.assertIn("destination", refused("--destination", "ftp://x/", "--state=x"))


if __name__ == "__main__":
    harness.main()
