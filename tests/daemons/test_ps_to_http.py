"""ps_to_http: to servers that are not ours at least once, into our own streams and queues exactly once."""
# full: MILLRACE_ROUNDS=200
import http.server
import os
import shutil
import signal
import socket
import threading
import time
import urllib.parse

import harness
from harness import wait_until
from sink import Sink, destination, least_waits, most_tries


class Server:
    """A destination: what it was sent, and how it answers next (a status, or "hang", or "reset")."""

    def __init__(self, test):
        self.bodies, self.targets, self.tokens, self.mood = [], [], [], 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # as in sink.py

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                mood = outer.mood(body) if callable(outer.mood) else outer.mood
                if mood == "hang":
                    time.sleep(0.5)
                    return self.connection.shutdown(socket.SHUT_RDWR)
                if mood == "reset":
                    return self.connection.shutdown(socket.SHUT_RDWR)
                if mood == 200:
                    outer.bodies.append(body)
                    outer.targets.append(self.path)
                    outer.tokens.append(self.headers.get("Authorization"))
                self.send_response(mood)
                why = b"no thanks" if mood >= 400 else b""
                self.send_header("Content-Length", str(len(why)))
                self.end_headers()
                return self.wfile.write(why)

            do_GET = do_POST = answer

            def log_message(self, *args):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)

    def lines(self):
        return b"".join(self.bodies).splitlines()


class Deaf:
    """A destination that takes whatever it is sent, and never answers."""

    def __init__(self, test):
        self.port = int(test.keep_port())
        self.url = "http://127.0.0.1:%d" % self.port
        self.asked, self.connections = [], []  # first lines of requests
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        test.addCleanup(self.close)

    def accept(self):
        while True:
            try:
                c = self.listener.accept()[0]
            except OSError:
                return
            self.connections.append(c)
            with c.makefile("rb") as f:
                self.asked.append(f.readline().decode().strip())

    def close(self):
        if self.thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        while self.connections:
            self.connections.pop().close()


class Base(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.port = self.keep_port()
        self.start_pubsub()
        self.n = 0

    def start_pubsub(self):
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s",
                                 "--address=127.0.0.1", "--port", self.port, port=False)

    def publish(self, n=1):
        """Numbered lines under marks, retried blindly."""
        body = b"".join(b'{"n":%d}\n' % i for i in range(self.n, self.n + n))

        def done():
            try:
                return self.pubsub.post("/pub?stream=s&producer=p&mark=%d&next=%d" % (self.n, self.n + n),
                                        body).status == 200
            except harness.UNREACHABLE:
                return False
        wait_until(done, "a publish")
        self.n += n

    def sent(self):
        return [b'{"n":%d}' % i for i in range(self.n)]

    def to_http(self, *args, **kw):
        return self.daemon("ps_to_http", "--pubsub_url", self.pubsub.url, "--stream=s", *args, **kw)


class ToStrangers(Base):
    def setUp(self):
        super().setUp()
        self.server = Server(self)

    def post(self, *args, servers=None, **kw):
        urls = ",".join(s.url + "/in?x=1" for s in servers or [self.server])
        return self.to_http("--destination", urls, "--state", self.path("state"), "--commit_every=20ms", *args, **kw)

    def test_batches_in_order(self):
        p = self.post("--batch=10").wait_ready()
        self.publish(95)
        wait_until(lambda: self.server.lines() == self.sent(), "all to arrive")
        self.assertTrue(all(len(b.splitlines()) <= 10 for b in self.server.bodies))
        self.assertEqual(set(self.server.targets), {"/in?x=1"})
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
        """Every kind of trouble, in any order, but not for so long that its backoff is what the test waits for."""
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
        """It, the stream's pubsub, and the destination: what that had taken it keeps, what it had not answered is lost with it."""
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
        for _ in range(harness.rounds(5)):
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

    def test_several_destinations_take_turns_and_one_that_fails_is_left_aside(self):
        other = Server(self)
        p = self.post("--batch=1", servers=[self.server, other]).wait_ready()
        self.publish(40)
        wait_until(lambda: len(self.server.bodies) + len(other.bodies) == 40, "all to arrive")
        self.assertEqual(len(other.bodies), 20)
        tries, url, began = [], other.url + "/in?x=1", time.monotonic()
        other.mood = lambda body: tries.append(time.monotonic()) or 500
        self.publish(40)
        wait_until(lambda: len(self.server.bodies) + len(other.bodies) == 80, "all to arrive")
        self.assertEqual(sorted(self.server.lines() + other.lines()), sorted(self.sent()))
        self.assertEqual(destination(p, url)["up"], 0)

        def tried_again():
            self.publish(1)
            return len(tries) >= 4
        wait_until(tried_again, "it to be tried again")
        self.assert_apart(tries, 0.05, 2.0)
        self.assertLessEqual(len(tries), most_tries(time.monotonic() - began))
        other.mood = 200

        def up():
            self.publish(2)
            return destination(p, url)["up"] == 1
        wait_until(up, "it to be up again")
        p.stop()

    def test_one_that_takes_long_to_fail_is_spared_while_another_answers(self):
        slow, tries = Server(self), []

        def mood(body):
            tries.append(time.monotonic())
            threading.Event().wait(0.5)  # how long a failure takes is what is tested
            return 503
        slow.mood = mood
        p = self.post("--batch=1", "--timeout=10m", servers=[slow, self.server]).wait_listening()
        self.publish(300)
        wait_until(lambda: len(self.server.bodies) == 300, "all to arrive")
        self.assertGreaterEqual(len(tries), 1)
        self.assertEqual([b - a for a, b in zip(tries, tries[1:]) if b - a < 20 * 0.5], [])
        p.stop()

    def test_one_that_never_answers_holds_up_one_request(self):
        """Then it is asked beside the others whether it answers, and has its share when it does."""
        deaf = Deaf(self)
        url = deaf.url + "/in?x=1"
        p = self.post("--batch=1", "--timeout=300ms", servers=[deaf, self.server]).wait_listening()

        def probed():
            self.publish(1)
            return len(deaf.asked) >= 4
        wait_until(probed, lambda: deaf.asked)
        self.assertEqual((deaf.asked[0], set(deaf.asked[1:])), ("POST /in?x=1 HTTP/1.1", {"OPTIONS * HTTP/1.1"}))
        wait_until(lambda: set(self.server.lines()) == set(self.sent()), "all to arrive, what it was sent too")
        row = destination(p, url)
        self.assertEqual((row["up"], row["requests_total"]), (0, 1))
        self.assertGreaterEqual(row["probes_total"], 3)
        deaf.close()
        back = Sink(self, deaf.port)

        def has_its_share():
            self.publish(2)
            return back.taken()
        wait_until(has_its_share, lambda: p.log)
        self.assertEqual(destination(p, url)["up"], 1)
        wait_until(lambda: set(self.server.lines() + back.messages()) == set(self.sent()), "all to arrive")
        p.stop()

    def test_what_is_refused_is_trouble_or_left_out(self):
        self.server.mood = lambda body: 400 if b'{"n":3}' in body else 200
        p = self.post("--batch=1", "--port=0", port=False).wait_listening()
        self.publish(6)
        which = self.server.url.encode() + b"/in?x=1 answered 400 no thanks"
        wait_until(lambda: which in p.get("/health").body, lambda: p.get("/health").text)
        self.assertEqual(self.server.lines(), self.sent()[:3])
        p.stop()
        p = self.post("--batch=1", "--skip_refused", "--port=0", port=False).wait_ready()
        wait_until(lambda: self.server.lines() == self.sent()[:3] + self.sent()[4:], "the others")
        self.assertEqual(p.stats()["lines_refused_total"], 1)
        self.assertIn("left out", p.log)
        p.stop()

    def test_what_only_grows_is_a_counter(self):
        p = self.post("--port=0", port=False).wait_ready()
        self.assertGreater(p.counters(), {"lines_delivered_total", "batches_delivered_total", "tries_failed_total",
                                          "lines_refused_total"})

    def test_only_what_blames_the_line_leaves_it_out(self):
        """A mistyped address or token does not: that would lose the stream."""
        self.server.mood = 404
        self.publish(5)
        p = self.post("--skip_refused", "--timeout=10m", "--port=0", port=False).wait_listening()
        for status in (404, 401, 403, 405):
            self.server.mood = status
            said = b"/in?x=1 answered %d" % status
            wait_until(lambda: said in p.get("/health").body, lambda: p.get("/health").text)
        self.server.mood = 200
        wait_until(lambda: self.server.lines() == self.sent(), "all to arrive")
        wait_until(lambda: p.stats()["lines_delivered_total"] == 5, "it to be known")
        self.assertEqual(p.stats()["lines_refused_total"], 0)
        p.stop()

    def test_a_line_that_one_destination_takes_is_not_left_out(self):
        other = Server(self)
        self.server.mood = lambda body: 413 if b"6}" in body or b"7}" in body else 200  # the turns of both
        self.publish(40)
        p = self.post("--skip_refused", "--batch=1", "--port=0", servers=[self.server, other], port=False).wait_ready()
        wait_until(lambda: sorted(self.server.lines() + other.lines()) == sorted(self.sent()), lambda: p.log)
        wait_until(lambda: p.stats()["lines_delivered_total"] == 40, "it to be known")
        self.assertEqual(p.stats()["lines_refused_total"], 0)
        other.mood = self.server.mood
        self.publish(10)
        wait_until(lambda: p.stats()["lines_refused_total"] == 2, "the lines that both refuse")
        p.stop()

    def test_a_line_that_all_refuse_which_are_up_is_left_out(self):
        sink, gone = Sink(self), Server(self)
        gone.server.shutdown()
        gone.server.server_close()
        sink.behave = lambda body: 422 if b"1}" in body else 200
        self.publish(3)
        p = self.post("--skip_refused", "--batch=1", "--port=0", servers=[sink, gone], port=False).wait_listening()
        wait_until(lambda: sink.messages() == [b'{"n":0}', b'{"n":2}'], lambda: p.log)
        self.assertEqual(p.stats()["lines_refused_total"], 1)
        p.stop()

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

    def test_the_line_that_is_refused_is_found_in_its_batch(self):
        sink, wrong, tries = Sink(self), (0, 57, 58, 299), []

        def behave(body):
            lines = body.splitlines()
            if not any(b'{"n":%d}' % n in lines for n in wrong):
                return 200
            tries.append(lines)
            return (400, 413, 422)[len(tries) % 3]
        sink.behave = behave
        self.publish(300)
        p = self.to_http("--destination", sink.url, "--state", self.path("state"), "--batch=100", "--skip_refused",
                         "--timeout=10m", "--port=0", port=False).wait_ready()
        rest = [line for n, line in enumerate(self.sent()) if n not in wrong]
        wait_until(lambda: sink.messages() == rest and p.stats()["lines_refused_total"] == 4, lambda: p.log)
        self.assertLessEqual(len(tries), 4 * 8, "halving, not one by one")
        self.assertEqual(p.stats()["tries_failed_total"], len(tries))
        end = sum(len(line) + 1 for line in self.sent())
        self.assertEqual(p.stats()["offset_bytes"], end)

        def left_out():
            return [line for line in p.log.splitlines() if "left out" in line]
        wait_until(lambda: len(left_out()) == 4, lambda: p.log)
        for n, line in zip(wrong, left_out()):
            begin = sum(len(x) + 1 for x in self.sent()[:n])
            self.assertIn("from=%d to=%d" % (begin, begin + len(self.sent()[n]) + 1), line)
            self.assertIn('no {\\"n\\":%d}/' % n, line)
        p.stop()

    def test_lines_that_are_refused_are_kept(self):
        """And not left out while they cannot be."""
        self.server.mood = lambda body: 422 if b'{"n":3}' in body or b'{"n":7}' in body else 200
        self.publish(10)
        p = self.post("--skip_refused", "--rejects", self.path("later/rejects"), "--timeout=10m", "--port=0",
                      port=False).wait_listening()
        wait_until(lambda: b"cannot store the state" in p.get("/health").body, lambda: p.log)
        os.mkdir(self.path("later"))
        rest = [line for n, line in enumerate(self.sent()) if n not in (3, 7)]
        wait_until(lambda: self.server.lines() == rest and p.stats()["lines_refused_total"] == 2, lambda: p.log)
        self.assertEqual(harness.read_file(self.path("later/rejects")), b'{"n":3}\n{"n":7}\n')
        p.stop()

    def test_one_that_refuses_everything_does_not_have_all_left_out(self):
        tries = []
        self.server.mood = lambda body: tries.append(time.monotonic()) or 400
        self.publish(50)
        p = self.post("--batch=20", "--skip_refused", "--poison-limit=5", "--rejects", self.path("rejects"), "--timeout=10m",
                      "--port=0", port=False).wait_listening()
        wait_until(lambda: b"refuses every line" in p.get("/health").body, lambda: p.get("/health").text)
        noticed = time.monotonic()
        self.assertEqual((p.stats()["lines_refused_total"], p.stats()["refuses_all"]), (5, 1))
        wait_until(lambda: tries[-1] > noticed + 1, "another try or two")
        self.assert_spaced([t for t in tries if t > noticed])
        self.assertEqual(p.stats()["lines_refused_total"], 5)
        self.assertEqual(len([t for t in p.log.splitlines() if "cannot deliver" in t and "refuses every line" in t]), 1)
        self.server.mood = 200
        wait_until(lambda: self.server.lines() == self.sent()[5:], "the others, in order")
        wait_until(lambda: p.get("/health").status == 200, lambda: p.get("/health").text)
        self.assertEqual(p.stats()["refuses_all"], 0)
        self.assertEqual(harness.read_file(self.path("rejects")).splitlines(), self.sent()[:5])
        p.stop()

    def test_lines_refused_in_a_row_are_counted_since_the_last_that_was_taken(self):
        """And without a bound as many as there are."""
        def mood(body):
            return 400 if any(int(line[5:-1]) % 7 < 5 for line in body.splitlines()) else 200
        self.server.mood = mood
        self.publish(70)
        p = self.post("--batch=10", "--skip_refused", "--poison-limit=5", "--timeout=10m").wait_ready()
        wait_until(lambda: p.stats()["lines_refused_total"] == 50 and p.stats()["lines_delivered_total"] == 20, lambda: p.log)
        p.stop()
        self.server.mood = 400
        self.publish(150)
        p = self.post("--skip_refused", "--poison-limit=0", "--timeout=10m").wait_ready()
        wait_until(lambda: p.stats()["lines_refused_total"] == 150, lambda: p.log)

    def test_killed_at_random_every_line_is_delivered_or_kept(self):
        random, rejects = harness.seeded(), self.path("rejects")

        def is_wrong(line):
            return int(line[5:-1]) % 7 == 3
        self.server.mood = lambda body: 422 if any(map(is_wrong, body.splitlines())) else 200
        args = ("--skip_refused", "--rejects", rejects, "--batch=20", "--parallel=3", "--timeout=10m")

        def kept():
            return set(harness.read_file(rejects).splitlines() if os.path.exists(rejects) else [])

        def is_through():
            return set(self.server.lines()) | kept() >= set(self.sent())
        for _ in range(harness.rounds(5)):
            seen = len(self.server.bodies) + random.randrange(12)
            p = self.post(*args)
            self.publish(random.randrange(2, 200))  # of two one is right
            wait_until(lambda: len(self.server.bodies) > seen or is_through(), lambda: p.log, interval=0.001)
            p.kill9()
        p = self.post(*args).wait_ready()
        wrong = set(filter(is_wrong, self.sent()))
        wait_until(lambda: is_through() and wrong <= kept(), lambda: p.log)
        self.assertEqual(set(self.server.lines()) | wrong, set(self.sent()))
        self.assertFalse(wrong & set(self.server.lines()))
        p.stop()

    def test_urls_are_separated_as_help_says(self):
        for name, others in (("ps_to_http", ["--state=x"]), ("queue_to_http", [])):
            told = b" ".join(self.run_program(name, "--help").stdout.split())
            self.assertIn(b"several separated by spaces or commas", told, name)
            for urls in ("http://a/,http://b/", "http://a/ http://b/"):
                done = self.run_program(name, "--destination=" + urls, "--check-config", *others)
                self.assertEqual(done.returncode, 0, (name, urls, done))

    def test_what_is_no_answer_is_asked_again_after_a_while(self):
        asked, servers = {302: [], 408: []}, {302: self.server, 408: Server(self)}
        running = []
        self.publish(1)
        for status, server in servers.items():
            server.mood = lambda body, status=status: asked[status].append(time.monotonic()) or status
            running.append(self.to_http("--destination", server.url, "--state", self.path("state-%d" % status)))
        for status, server in servers.items():
            wait_until(lambda: len(asked[status]) >= 2, "another try")
            server.mood = 200
            self.assert_spaced(asked[status])
        for server in servers.values():
            wait_until(lambda: server.lines() == self.sent(), "all to arrive")
        for p in running:
            p.stop()

    def test_what_is_refused_is_left_alone_while_others_go_on(self):
        tries = []

        def mood(body):
            if b'{"n":0}' not in body:
                return 200
            tries.append(time.monotonic())
            return 400
        self.server.mood = mood
        p = self.post("--batch=1", "--parallel=2").wait_listening()
        self.publish(300)
        wait_until(lambda: len(self.server.bodies) == 299 and len(tries) >= 2, "the others, and another try")
        self.assert_spaced(tries)
        p.stop()

    def assert_apart(self, tries, backoff_min, backoff_max):
        """Each was answered after it came, and the next was sent before it came: no machine brings them closer."""
        waits = [b - a for a, b in zip(tries, tries[1:])]
        self.assertEqual([w for w, least in zip(waits, least_waits(backoff_min, backoff_max)) if w < least - 0.001], [], waits)

    def assert_spaced(self, tries):
        self.assertEqual([b - a for a, b in zip(tries, tries[1:]) if b - a < 0.9], [], "a second lies between two tries")

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

    def test_rejects_are_no_state(self):
        """A line that is left out would be in the state file until that is replaced."""
        os.mkdir(self.path("d"))
        os.symlink(self.path("d"), self.path("other"))
        self.write("there", "")
        os.link(self.path("there"), self.path("linked"))
        for state, rejects in (("x", "x"), ("d/x", "d//x"), ("d/x", "other/x"), ("there", "linked")):
            p = self.to_http("--destination", self.server.url, "--skip_refused", "--state", self.path(state),
                             "--rejects", self.path(rejects))
            self.assertEqual(p.process.wait(harness.PATIENCE), 78, (state, rejects))
            self.assertIn("is the state file", p.log)
        self.to_http("--destination", self.server.url, "--skip_refused", "--state", self.path("d/x"),
                     "--rejects", self.path("x")).wait_ready().stop()

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
        self.assertIn("say which file", refused("--destination", self.server.url))
        for urls in (self.server.url, self.server.url + "/?e=%s " + self.server.url + "/in"):
            self.assertIn("requires %s in each URL", refused("--destination", urls, "--state=x", "--method=GET"),
                          "a GET without the line would take it for delivered")
        self.assertIn("not a valid header", refused("--destination", self.server.url, "--state=x", "--content-type=a\nb: c"))
        self.assertIn("no address", refused("--destination", self.server.url + "/a b", "--state=x"))
        self.assertIn("without skip_refused", refused("--destination", self.server.url, "--state=x", "--rejects=y"))
        self.assertIn("is never sent", refused("--destination", self.server.url + "/in#part", "--state=x"))
        self.assertIn("takes one line", refused("--destination", self.server.url + "/%s", "--state=x", "--batch=10"))
        self.assertIn("poison_limit: requires skip_refused", refused("--destination", self.server.url, "--state=x",
                                                                   "--poison_limit=5"))
        for setting in ("--producer=p", "--to_token_file=f", "--to_url=http://127.0.0.1:1"):
            self.assertIn("only allowed with to_stream or to_queue", refused("--destination", self.server.url, "--state=x", setting))
        for setting in ("--state=x", "--batch=10", "--skip_refused", "--destination_token_file=f"):
            self.assertIn("for destination", refused("--to_queue=q", "--to_url=http://127.0.0.1:1", setting))
        self.assertIn("required:", refused("--to_queue=q"))
        self.assertIn("neither earliest", refused("--to_queue=q", "--from=yesterday"))
        self.assertIn("destination", refused("--destination", "ftp://x/", "--state=x"))


class Outage(Base):
    FAULT = 60 if harness.rounds(0) >= 60 else 1  # seconds
    AGAIN = 5 if FAULT >= 10 else harness.SOON  # as in test_queue_to_http.py

    def test_a_destination_that_was_gone_is_at_full_speed_within_five_seconds(self):
        """With the backoff as it is by default. One request at a time: in order, and only what was in doubt may come twice."""
        sink = Sink(self)
        p = self.to_http("--destination", sink.url, "--state", self.path("state"), "--batch=10", "--port=0", port=False)
        p.wait_ready()
        self.publish(50)
        wait_until(lambda: p.stats()["lines_delivered_total"] == self.n, "the first to arrive")
        sink.close()
        sink.behave = lambda body: "reset"  # of the connection that is kept
        began, before = time.monotonic(), p.stats()["tries_failed_total"]
        self.publish(200)
        time.sleep(self.FAULT)  # the fault's length is what is tested
        wait_until(lambda: p.stats()["tries_failed_total"] > before, "a try")
        down = destination(p, sink.url)
        self.assertLessEqual(p.stats()["tries_failed_total"] - before, most_tries(time.monotonic() - began))
        self.assertEqual(down["up"], 0)
        self.assertLessEqual(down["set_aside_seconds"], 2, "what it is at full speed again after")
        ended = time.monotonic()
        back = Sink(self, sink.port)
        self.publish(50)
        first = wait_until(lambda: back.tries(), "the first to arrive")[0]
        self.assertLess(first - ended, self.AGAIN)
        wait_until(lambda: p.stats()["lines_delivered_total"] == self.n, "everything to arrive")
        self.assertEqual(list(dict.fromkeys(sink.messages() + back.messages())), self.sent())
        p.stop()


class IntoOurOwn(Base):
    def test_a_stream_is_not_put_into_itself(self):
        """It would read again what it has written, without end."""
        self.publish()
        for url in (self.pubsub.url, self.pubsub.url.replace("127.0.0.1", "localhost")):
            p = self.to_http("--to_stream=s", "--to_url", url)
            self.assertEqual(p.process.wait(harness.PATIENCE), 78, url)
            self.assertIn("into itself", p.log)
        other = self.start("pubsub", "--data-dir", self.path("other"), "--sync=never", "--streams=s",
                           "--address=127.0.0.1")
        self.finish("--to_stream=s", "--to_url", other.url,
                    there=lambda: other.get("/sub?stream=s&from=earliest&follow=0").body.splitlines())

    def elsewhere(self):
        """This pubsub by an address that no comparison of texts knows for its own."""
        return "http://0.0.0.0:" + self.port

    def stored(self, daemon=None):
        return (daemon or self.pubsub).get("/sub?stream=s&from=earliest&follow=0").body.splitlines()

    def assert_ends_into_itself(self, p):
        self.assertEqual(p.process.wait(harness.PATIENCE), 78, p.log)
        self.assertIn("into itself", p.log)

    def test_a_stream_is_not_put_into_itself_by_another_of_its_addresses(self):
        """Nothing of it is sent, also when its pubsub comes up only later."""
        self.publish(5)
        args = ("--to_stream=s", "--to_url", self.elsewhere())
        self.assert_ends_into_itself(self.to_http(*args))
        self.pubsub.stop()
        p = self.to_http(*args).wait_listening()
        wait_until(lambda: "no connection" in p.get("/health").text, lambda: p.get("/health").text)
        self.start_pubsub()
        self.assert_ends_into_itself(p)
        self.assertEqual(self.stored(), self.sent())

    def answered_late(self):
        """An address of the pubsub at which the first connection gets through only when it is told to: (url, begun, may go on)."""
        listener = socket.create_server(("127.0.0.1", 0))
        begun, may_go_on = threading.Event(), threading.Event()

        def pump(source, sink):
            try:
                while piece := source.recv(1 << 16):
                    sink.sendall(piece)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def serve():
            with listener, listener.accept()[0] as client:
                begun.set()
                may_go_on.wait(harness.PATIENCE)
                with socket.create_connection(("127.0.0.1", int(self.port))) as server:
                    back = threading.Thread(target=pump, args=(server, client), daemon=True)
                    back.start()
                    pump(client, server)
                    back.join()
        threading.Thread(target=serve, daemon=True).start()
        self.addCleanup(may_go_on.set)
        return "http://127.0.0.1:%d" % listener.getsockname()[1], begun, may_go_on

    def test_a_restart_between_the_answers_lets_nothing_in(self):
        """What was sent before it still comes down the old connection; its place is that of a life that is over."""
        self.publish(100000)
        url, begun, may_go_on = self.answered_late()
        p = self.to_http("--to_stream=s", "--to_url", url)
        self.assertTrue(begun.wait(harness.PATIENCE))
        self.pubsub.kill9()
        self.start_pubsub()
        may_go_on.set()
        self.assert_ends_into_itself(p)
        self.assertEqual(len(self.stored()), self.n)

    def test_a_destination_that_becomes_the_stream_itself(self):
        """Its address was another pubsub's at first. The next answer tells, before anything is stored."""
        there, own = self.path("there.sock"), "unix:" + self.path("own.sock")
        other = self.start("pubsub", "--data-dir", self.path("other"), "--sync=never", listen="unix:" + there)
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", listen=own)
        p = self.to_http("--to_stream=s", "--to_url", other.url).wait_ready()
        self.publish(5)
        wait_until(lambda: self.stored(other) == self.sent(), "the copy")
        os.unlink(there)
        os.symlink(self.path("own.sock"), there)
        other.kill9()
        self.publish(5)
        self.assert_ends_into_itself(p)
        self.assertEqual(self.stored(), self.sent())

    def test_a_destination_that_turns_out_to_be_the_stream_itself(self):
        """It knows no marks: its first answer tells, one batch too late."""
        self.publish(10)
        self.assert_ends_into_itself(self.to_http("--destination", self.elsewhere() + "/pub?stream=s", "--batch=4",
                                                  "--state", self.path("state")))
        self.assertEqual(self.stored(), self.sent() + self.sent()[:4])

    def test_a_copy_of_the_stream_is_another(self):
        """Restored beside it, with the id that it was copied with; another stream of one pubsub is another, too."""
        self.publish(3)
        self.pubsub.stop()
        shutil.copytree(self.path("pubsub"), self.path("copy"))
        self.start_pubsub()
        other = self.start("pubsub", "--data-dir", self.path("copy"), "--sync=never", "--address=127.0.0.1")
        ids = [d.get("/streams").json()["streams"][0]["id"] for d in (self.pubsub, other)]
        self.assertEqual(ids[0], ids[1])
        p = self.to_http("--to_stream=s", "--to_url", other.url, "--from=latest").wait_ready()
        strange = self.to_http("--destination", self.elsewhere() + "/pub?stream=t", "--state", self.path("state"))
        self.publish(4)
        wait_until(lambda: self.stored(other) == self.sent(), lambda: "%s\n%s" % (self.stored(other), p.log))
        wait_until(lambda: self.pubsub.get("/sub?stream=t&from=earliest&follow=0").body.splitlines() == self.sent(),
                   lambda: strange.log)
        p.stop()
        strange.wait_ready().stop()

    def finish(self, *args, there):
        p = self.to_http(*args).wait_listening()
        wait_until(lambda: len(there()) >= self.n, lambda: "%d lines, %d are there\n%s" % (self.n, len(there()), p.log))
        self.assertEqual(there(), self.sent())
        p.stop()

    def rounds(self, *args, there, restarts):
        """Each time it is killed, and a random other: before it, after it or while it runs on."""
        random = harness.seeded()
        for _ in range(harness.rounds(5)):
            p = self.to_http(*args)
            for _ in range(5):
                self.publish(random.randrange(1, 80))
                time.sleep(random.uniform(0, 0.03))
                if random.randrange(5) == 0:
                    random.choice(restarts)()
            p.kill9()
        self.finish(*args, there=there)

    def restart_pubsub(self):
        self.pubsub.kill9()
        self.start_pubsub()

    def test_metrics_show_one_that_is_down_and_up_again(self):
        port = self.keep_port()
        url = "http://127.0.0.1:" + port
        start = ("pubsub", "--data-dir", self.path("other"), "--sync=never", "--address=127.0.0.1", "--port", port)
        other = self.start(*start, port=False)
        p = self.to_http("--to_stream=copy", "--to_url", url).wait_ready()
        self.publish(5)
        wait_until(lambda: other.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines() == self.sent(), "the copy")
        wait_until(lambda: destination(p, url)["up"] == 1, "it to be up")
        before = destination(p, url)["faults_total"]
        began = time.monotonic()
        other.kill9()
        self.publish(5)
        wait_until(lambda: destination(p, url)["faults_total"] >= before + 4, "some tries")
        down = destination(p, url)
        self.assertLessEqual(down["faults_total"] - before, most_tries(time.monotonic() - began))
        self.assertEqual(down["up"], 0)
        self.assertEqual(p.get("/health").status, 503)
        other = self.start(*start, port=False)
        wait_until(lambda: destination(p, url)["up"] == 1, "it to be up")
        wait_until(lambda: other.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines() == self.sent(), "the copy")
        wait_until(lambda: p.get("/health").status == 200, "it to be well again")
        p.stop()

    def test_a_stream_each_line_once(self):
        self.rounds("--to_stream=copy", "--to_url", self.pubsub.url, restarts=[self.restart_pubsub],
                    there=lambda: self.pubsub.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines())

    def test_a_queue_each_line_once(self):
        port = self.keep_port()

        def start():
            self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never",
                                    "--address=127.0.0.1", "--port", port, port=False)

        def restart():
            self.queue.kill9()
            start()
        start()
        self.rounds("--to_queue=in", "--to_url", self.queue.url, restarts=[restart, self.restart_pubsub],
                    there=lambda: self.queue.get("/dump?queue=in").body.splitlines())


if __name__ == "__main__":
    harness.main()
