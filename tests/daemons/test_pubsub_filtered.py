"""pubsub_filtered: re-publishing what passes, each line once; /sub with filters; --dry-run."""
# full: MILLRACE_ROUNDS=200
import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import harness
from harness import wait_until
from sink import destination, most_tries


class FilteredTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.port = self.keep_port()
        self.start_pubsub()
        key = self.write("key", "0123456789abcdef0123456789abcdef\n")
        os.chmod(key, 0o600)
        self.key = key

    def start_pubsub(self, *args):
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", "--streams=s",
                                 "--address=127.0.0.1", "--port", self.port, *args, port=False)

    def publish(self, *objects, stream="s"):
        lines = b"".join(json.dumps(o).encode() + b"\n" if isinstance(o, dict) else o for o in objects)
        self.assertEqual(self.pubsub.post("/pub?stream=" + stream, lines).status, 200)

    def lines(self, stream):
        reply = self.pubsub.get("/sub?stream=%s&from=earliest&follow=0" % stream)
        return reply.body.splitlines() if reply.status == 200 else []

    def filtered(self, *args, **kw):
        return self.daemon("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=s", *args, **kw)

    def publish_costly(self, n):
        """Lines that ^(a+)+$ is given up with."""
        self.publish(*[b'{"c":"%s!"}\n' % (b"a" * 28)] * n)

    def mark(self, stream="out"):
        stream_id = next(s["id"] for s in self.pubsub.get("/streams").json()["streams"] if s["name"] == "s")
        return int(self.pubsub.get("/producer?stream=%s&producer=%s" % (stream, stream_id)).json().get("mark", -1))

    def end(self):
        return len(self.pubsub.get("/sub?stream=s&from=earliest&follow=0").body)

    def wait_filtered(self):
        wait_until(lambda: self.mark() == self.end(), lambda: "all to be filtered: %d of %d" % (self.mark(), self.end()))


class Republish(FilteredTest):
    def test_what_passes_and_what_is_left_of_it(self):
        f = self.filtered("--to_stream=out", "--drop=a,ll", "--hash=ip", "--hash_key_file", self.key,
                          "--keep_if=c in (US, JP)")
        self.publish({"a": "agent", "c": "US", "ip": "10.1.2.3"}, {"c": "DE", "ip": "1"}, b"no json\n",
                     {"_heartbeat_": 5}, {"c": "JP", "ip": "10.1.2.3", "ll": [1, 2]})
        self.wait_filtered()
        us, beat, jp = [json.loads(line) for line in self.lines("out")]
        self.assertEqual(beat, {"_heartbeat_": 5})
        self.assertRegex(us["ip"], r"^h:[0-9a-f]{8}:[A-Za-z0-9_-]{22}$")
        self.assertEqual((us, jp), ({"c": "US", "ip": us["ip"]}, {"c": "JP", "ip": us["ip"]}))
        f.stop()

    def test_hup_reads_the_hash_key_again(self):
        def token():
            self.publish({"ip": "10.1.2.3"})
            self.wait_filtered()
            return json.loads(self.lines("out")[-1])["ip"]

        def hang_up(said):
            f.process.send_signal(signal.SIGHUP)
            wait_until(lambda: f.log.count(said) == 1, lambda: "%s:\n%s" % (said, f.log))
        f = self.filtered("--to_stream=out", "--hash=ip", "--hash_key_file", self.key).wait_ready()
        first = token()
        self.write("key", "another key for another time\n")
        self.assertEqual(token(), first)
        hang_up("hash key reloaded")
        second = token()
        self.assertNotEqual(second.split(":")[1], first.split(":")[1], "each names its key")
        self.write("key", "short\n")
        hang_up("keeping the old one")
        self.assertEqual(token(), second)
        self.write("key", "0123456789abcdef0123456789abcdef\n")
        f.process.send_signal(signal.SIGHUP)
        wait_until(lambda: f.log.count("hash key reloaded") == 2, "the first key to be back")
        self.assertEqual(token(), first)
        f.stop()

    def test_the_mark_moves_where_nothing_passes(self):
        f = self.filtered("--to_stream=out", "--keep_if=c ~ ^never")
        self.publish({"c": "US"}, {"c": "DE"})
        self.wait_filtered()
        self.assertEqual(self.lines("out"), [])
        f.stop()

    def test_each_line_once_whatever_is_killed(self):
        random = harness.seeded()
        n, busy, lock = 0, True, threading.Lock()

        def publish():
            nonlocal n
            while busy:
                count = random.randrange(1, 100)
                body = b"".join(b'{"n":%d,"x":"secret","k":%d}\n' % (i, i % 3) for i in range(n, n + count))

                def done():
                    try:
                        return self.pubsub.post("/pub?stream=s&producer=p&mark=%d&next=%d" % (n, n + count),
                                                body).status == 200
                    except harness.UNREACHABLE:
                        return False
                wait_until(done, "a publish")
                n += count
        publisher = threading.Thread(target=publish)
        publisher.start()
        args = ("--to_stream=out", "--drop=x", "--drop_if=k > 1")
        try:
            for r in range(harness.rounds(3)):
                f = self.filtered(*args)
                time.sleep(random.uniform(0.02, 0.3))
                if r % 3 == 2:
                    self.pubsub.kill9()
                    self.start_pubsub()
                    time.sleep(random.uniform(0, 0.1))
                f.kill9()
        finally:
            busy = False
            publisher.join()
        f = self.filtered(*args).wait_ready()
        self.wait_filtered()
        self.assertEqual(self.lines("out"), [b'{"n":%d,"k":%d}' % (i, i % 3) for i in range(n) if i % 3 < 2])
        f.stop()

    def test_two_of_them_publish_each_line_once(self):
        """A second filter was started by mistake, or while the first one seemed dead. The marks let each line through once."""
        both = [self.filtered("--to_stream=out", "--drop=x") for _ in range(2)]
        for i in range(60):
            self.publish(*[{"n": i * 10 + j, "x": 1} for j in range(10)])
        self.wait_filtered()
        self.assertEqual(self.lines("out"), [b'{"n": %d}' % i for i in range(600)])
        for f in both:
            f.wait_listening().stop()

    def test_a_stream_is_not_put_into_itself_by_another_of_its_addresses(self):
        self.publish({"n": 1})
        f = self.filtered("--to_stream=s", "--to_pubsub_url=http://0.0.0.0:" + self.port, "--drop=x")
        self.assertEqual(f.process.wait(harness.PATIENCE), 78, f.log)
        self.assertIn("into itself", f.log)
        self.assertEqual(self.lines("s"), [b'{"n": 1}'])

    def test_a_destination_that_refuses_lines_is_trouble(self):
        self.start("pubsub", "--data_dir", self.path("small"), "--sync=never", "--streams=out", "--max_line=20")
        small = self.daemons[-1]
        f = self.filtered("--to_stream=out", "--to_pubsub_url", small.url, "--port=0", port=False).wait_listening()
        self.publish({"n": "x" * 100})
        wait_until(lambda: b"line-too-large" in f.get("/health").body, lambda: f.get("/health").text)
        f.stop()

    def test_a_destination_that_does_not_answer_is_asked_again(self):
        self.publish({"n": 1})
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            f = self.filtered("--to_stream=out", "--to_pubsub_url=http://127.0.0.1:%d" % silent.getsockname()[1],
                              "--publish-timeout=100ms").wait_listening()
            silent.settimeout(harness.PATIENCE)
            asked = [silent.accept()[0] for _ in range(2)]
            wait_until(lambda: b"no reply in time" in f.get("/health").body, lambda: f.get("/health").text)
            for connection in asked:
                connection.close()
            f.stop()

    def test_metrics_show_a_destination_that_is_down_and_up_again(self):
        port, began = self.keep_port(), time.monotonic()
        url = "http://127.0.0.1:" + port
        self.publish({"n": 1})
        f = self.filtered("--to_stream=out", "--to_pubsub_url", url).wait_listening()
        wait_until(lambda: destination(f, url)["faults_total"] >= 4, "some tries")
        down = destination(f, url)
        self.assertLessEqual(down["faults_total"], most_tries(time.monotonic() - began))
        self.assertEqual(down["up"], 0)
        other = self.start("pubsub", "--data_dir", self.path("other"), "--sync=never", "--address=127.0.0.1", "--port", port,
                           port=False)
        wait_until(lambda: destination(f, url)["up"] == 1, "it to be up")
        wait_until(lambda: other.get("/sub?stream=out&from=earliest&follow=0").body == b'{"n": 1}\n', "the line")
        f.wait_ready().stop()

    def test_a_costly_pattern_leaves_the_loop_to_others(self):
        self.publish_costly(20000)
        f = self.filtered("--to_stream=out", "--keep_if=c ~ ^(a+)+$", "--port=0", port=False)
        f.wait_listening()
        wait_until(lambda: f.stats()["lines_undecided_total"], "a line to be given up", interval=0)
        self.assertLess(f.stats()["lines_undecided_total"], 20000, "they are judged in turns, between which it answers")
        f.stop()
        self.assertRegex(f.log, r"lines skipped: the filter cannot decide whether they pass to=out .*pattern_too_costly=\d")

    def test_killed_in_the_middle_of_what_came_at_once(self):
        """The mark stands at a line that was judged, wherever the next waits."""
        random = harness.seeded()
        args = ("--to_stream=out", "--keep_if=c ~ ^(a+)+$", "--max_line=100")
        costly, n = b'{"c":"%s!"}\n' % (b"a" * 28), 500 if harness.rounds(5) >= 100 else 80
        for i in range(n):
            self.publish({"c": "a", "n": i}, *[costly] * random.randrange(3), *[b"x" * 101 + b"\n"] * random.randrange(2))
        f = self.filtered(*args)
        end, seen = self.end(), self.mark()
        while seen < end:
            wait_until(lambda: self.mark() > seen, "more to be published", interval=0.001)
            f.kill9()
            f = self.filtered(*args)
            seen = self.mark()
        self.assertEqual([json.loads(line)["n"] for line in self.lines("out")], list(range(n)))
        f.wait_ready().stop()

    def test_a_first_start_may_begin_at_the_end(self):
        self.publish({"n": 1})
        f = self.filtered("--to_stream=out", "--from=latest").wait_ready()
        self.publish({"n": 2})
        self.wait_filtered()
        self.assertEqual(self.lines("out"), [b'{"n": 2}'])
        f.stop()

    def test_the_end_of_a_stream_that_is_not_made_yet_is_its_beginning(self):
        f = self.daemon("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=later", "--to_stream=out",
                        "--from=latest").wait_listening()
        asked = 'requests_total{endpoint="/sub",status="404"}'
        wait_until(lambda: asked in self.pubsub.get("/metrics").text, "it to ask for the stream")
        self.publish({"n": 1}, stream="later")
        self.publish({"n": 2}, stream="later")
        wait_until(lambda: len(self.lines("out")) >= 2, "the lines")
        self.assertEqual(self.lines("out"), [b'{"n": 1}', b'{"n": 2}'])
        f.stop()


    def test_tokens(self):
        os.chmod(self.write("token", "secret"), 0o600)
        self.pubsub.stop()
        self.start_pubsub("--auth-token-file", self.path("token"))
        bearer = {"Authorization": "Bearer secret"}
        self.assertEqual(self.pubsub.post("/pub?stream=s", b'{"n":1}\n', headers=bearer).status, 200)
        f = self.filtered("--to_stream=out", "--pubsub-token-file", self.path("token")).wait_ready()
        wait_until(lambda: self.pubsub.get("/sub?stream=out&from=earliest&follow=0", headers=bearer).body == b'{"n":1}\n',
                   "the line")
        self.assertEqual(f.get("/sub?from=earliest&follow=0").body, b'{"n":1}\n')
        f.stop()
        f = self.filtered("--to_stream=out", "--to_pubsub_url", self.pubsub.url, "--producer=other", "--pubsub-token-file",
                          self.path("token")).wait_listening()
        wait_until(lambda: b"answered 401" in f.get("/health").body, "the token to be kept from another pubsub")
        f.stop()


    def test_what_only_grows_is_a_counter(self):
        f = self.filtered("--to_stream=out", "--drop=a", "--port=0", port=False).wait_ready()
        self.assertGreater(f.counters(), {"runs_stored_total", "gaps_total"} | {"lines_%s_total" % what for what in (
            "read", "passed", "filtered", "undecided", "refused", "overlong")})


class Sub(FilteredTest):
    def test_heartbeats_pass_a_request_s_filter_under_the_configured_name(self):
        self.publish({"beat": 1}, {"_heartbeat_": 1}, {"n": 1}, {"n": 2})
        f = self.filtered("--heartbeat=beat").wait_ready()
        self.assertEqual(f.get("/sub?from=earliest&follow=0&if=n=2").body.splitlines(),
                         [b'{"beat": 1}', b'{"n": 2}'])
        f.stop()

    def test_an_answer_ends_with_its_stream(self):
        """Another stream now has the name. Its lines do not belong to this answer, so the answer ends."""
        self.publish({"n": 1})
        f = self.filtered().wait_ready()
        c = harness.connect(f.url)
        c.request("GET", "/sub?from=earliest")
        reply = c.getresponse()
        self.assertEqual(reply.readline(), b'{"n": 1}\n')
        self.pubsub.kill9()
        shutil.rmtree(self.path("pubsub"))
        self.start_pubsub()
        self.publish({"n": 2}, {"n": 3})
        self.assertEqual(reply.read(), b"")
        c.close()
        f.stop()

    def test_filters_of_the_request(self):
        f = self.filtered("--drop=x").wait_ready()
        self.publish(*[{"n": i, "x": 1} for i in range(30)])
        reply = f.get("/sub?from=earliest&follow=0&if=n%20~%20%5E2%5B0-4%5D%24")
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.body.splitlines(), [b'{"n": %d}' % i for i in range(20, 25)])
        self.assertEqual(len(f.get("/sub?from=earliest&follow=0").body.splitlines()), 30)
        hidden = f.get("/sub?from=earliest&follow=0&if=x")
        self.assertEqual(hidden.body, b"", "a request sees nothing of what is dropped")
        f.stop()

    def test_a_costly_pattern_of_one_leaves_the_loop_to_others(self):
        """Each line costs up to a millisecond, and one read brings thousands."""
        self.publish_costly(20000)
        f = self.filtered().wait_ready()
        costly = harness.connect(f.url)
        costly.request("GET", "/sub?from=earliest&follow=0&if=c%20~%20%5E(a%2B)%2B%24")
        wait_until(lambda: f.stats()["sub_lines_undecided_total"], "a line to be given up", interval=0)
        cheap = f.get("/sub?from=earliest&follow=0&if=c%20~%20!")
        self.assertEqual(len(cheap.body.splitlines()), 20000)
        self.assertLess(f.stats()["sub_lines_undecided_total"], 20000, "who asks for little does not wait for who asks for much")
        costly.close()
        f.stop()

    def test_lines_that_are_left_out_are_counted_and_logged(self):
        f = self.filtered("--max_line=100").wait_ready()
        self.publish_costly(2)
        self.publish({"c": "aaa"}, {"c": "b"}, b"no json\n", {"c": "a" * 100})
        for _ in range(2):
            reply = f.get("/sub?from=earliest&follow=0&if=c%20~%20%5E(a%2B)%2B%24")
            self.assertEqual(reply.body, b'{"c": "aaa"}\n')
        counts = {"read": 12, "passed": 2, "filtered": 2, "undecided": 4, "refused": 2, "overlong": 2}
        self.assertEqual({k: f.stats()["sub_lines_%s_total" % k] for k in counts}, counts)
        self.assertGreaterEqual(f.counters(), {"sub_lines_%s_total" % k for k in counts})
        f.stop()
        told = re.findall(r"whether they pass to=/sub not_json_object=(\d+) over_max_line=(\d+) pattern_too_costly=(\d+)", f.log)
        self.assertEqual([sum(map(int, column)) for column in zip(*told)], [2, 2, 4])
        self.assertLessEqual(len(told), 3, "not more often than every ten seconds, and at the end")

    def test_an_answer_ends_with_all_that_came(self):
        """Also where it is caught up long before its lines are judged."""
        self.publish_costly(500)
        self.publish({"c": "aaa"})
        f = self.filtered().wait_ready()
        reply = f.get("/sub?from=earliest&follow=0&if=c%20~%20%5E(a%2B)%2B%24")
        self.assertEqual(reply.body, b'{"c": "aaa"}\n')
        f.stop()

    def test_it_follows(self):
        f = self.filtered().wait_ready()
        c = harness.connect(f.url)
        c.request("GET", "/sub?from=earliest&if=c=US")
        self.publish({"c": "DE"}, {"c": "US", "n": 1})
        reply = c.getresponse()
        self.assertEqual(reply.readline(), b'{"c": "US", "n": 1}\n')
        self.publish({"c": "US", "n": 2})
        self.assertEqual(reply.readline(), b'{"c": "US", "n": 2}\n')
        c.close()
        wait_until(lambda: f.stats()["subscribers"] == 0, "the subscriber to be forgotten")
        f.stop()

    def test_no_stream_but_its_own(self):
        """The filter is for one stream. pubsub's token would open other streams, for which a request has no token."""
        os.chmod(self.write("token", "secret"), 0o600)
        self.pubsub.stop()
        self.start_pubsub("--auth-token-file", self.path("token"))
        bearer = {"Authorization": "Bearer secret"}
        for stream in ("s", "private"):
            self.assertEqual(self.pubsub.post("/pub?stream=" + stream, b'{"ip":"10.1.2.3","n":1}\n', headers=bearer).status, 200)
        f = self.filtered("--drop=ip", "--pubsub-token-file", self.path("token")).wait_ready()
        for stream in ("private", "none", "S"):  # an existing stream gets the same reply as an unknown one
            for ask in (f.get, lambda target: f.post(target, b"")):
                reply = ask("/sub?from=earliest&follow=0&stream=" + stream)
                self.assertEqual((reply.status, reply.json().get("code")), (404, "unknown-stream"), reply)
                self.assertIn("only the stream s is", reply.json()["detail"])
        for own in ("", "&stream=s"):
            self.assertEqual(f.get("/sub?from=earliest&follow=0" + own).body, b'{"n":1}\n')
        f.stop()

    def test_its_own_stream_may_not_be_there_yet(self):
        f = self.daemon("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=later").wait_ready()
        reply = f.get("/sub?from=earliest&follow=0")
        self.assertEqual((reply.status, reply.json()["code"]), (404, "unknown-stream"))
        f.stop()

    def test_bad_requests(self):
        f = self.filtered().wait_ready()
        for target, status, code in (("if=", 400, "bad-parameter"),
                                     ("if=c%20==%20US", 400, "bad-parameter"),
                                     ("from=nowhere", 400, "bad-parameter"), ("stream=a/b", 400, "bad-parameter"),
                                     ("stream=none", 404, "unknown-stream")):
            reply = f.get("/sub?" + target)
            self.assertEqual((reply.status, reply.json()["code"]), (status, code), target)
        self.pubsub.stop()
        self.assertEqual(f.get("/sub").json()["code"], "upstream-unavailable")
        f.stop()

    def test_parameters_that_it_does_not_have(self):
        """A mistyped parameter would otherwise return all lines, or wrong ones."""
        self.publish({"n": 1})
        f = self.filtered().wait_ready()
        for target, code, words in (("form=earliest", "unknown-parameter", "did you mean from?"),
                                    ("iff=n", "unknown-parameter", "if"),
                                    ("from=0&from=9", "bad-parameter", "more than once"),
                                    ("multipart=1", "bad-parameter", "multipart=0")):
            reply = f.get("/sub?follow=0&" + target)
            self.assertEqual((reply.status, reply.json()["code"]), (400, code), target)
            self.assertIn(words, reply.text)
        self.assertEqual(f.get("/sub?stream=s&from=earliest&follow=0&multipart=0").body, b'{"n": 1}\n')
        f.stop()

    def test_offsets_that_do_not_fit_are_answered_as_pubsub_does(self):
        self.pubsub.stop()
        self.start_pubsub("--segment_bytes=64K", "--retain_bytes=64K")
        for i in range(200):
            self.publish(*[{"n": i, "x": "x" * 400}] * 5)
        f = self.filtered().wait_ready()
        wait_until(lambda: self.pubsub.get("/streams").json()["streams"][0]["disk_bytes"] < 3 * 64 * 1024,
                   "all to go but the newest file and the one kept ready")
        end = int(self.pubsub.get("/streams").json()["streams"][0]["end"])
        for offset, status, code in ((0, 410, "cursor-gone"), (end - 1, 416, "cursor-inside-line"),
                                     (end + 1, 416, "cursor-beyond-end")):
            theirs, ours = (d.get("/sub?stream=s&from=%d&follow=0" % offset) for d in (self.pubsub, f))
            self.assertEqual((theirs.status, theirs.json()["code"]), (status, code))
            self.assertEqual((ours.status, ours.header("Content-Type"), ours.json()),
                             (status, "application/problem+json", theirs.json()))
        f.stop()

    def test_an_answer_ends_where_retention_took_what_follows(self):
        self.pubsub.stop()
        self.start_pubsub("--segment_bytes=64K", "--retain_bytes=64K")
        f = self.filtered().wait_ready()
        c = harness.connect(f.url)
        c.request("GET", "/sub?from=earliest")
        self.publish({"n": 0})
        reply = c.getresponse()
        self.assertEqual(reply.readline(), b'{"n": 0}\n')
        f.process.send_signal(signal.SIGSTOP)
        n = 1
        while int(self.pubsub.get("/streams").json()["streams"][0]["earliest"]) < 16 << 20:  # over any socket's buffers
            self.publish(*[{"n": n + j, "x": "x" * 1000} for j in range(200)])
            n += 200
        f.process.send_signal(signal.SIGCONT)
        numbers = [json.loads(line)["n"] for line in reply.read().splitlines()]
        self.assertLess(len(numbers), n - 1)
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)), "what was missed is not passed over unsaid")
        c.close()
        f.stop()

    def test_many_clients_come_and_go(self):
        f = self.filtered().wait_ready()
        self.publish(*[{"n": i} for i in range(2000)])
        for _ in range(30):
            c = harness.connect(f.url)
            c.request("GET", "/sub?from=earliest")
            c.sock.close()
        self.assertEqual(len(f.get("/sub?from=earliest&follow=0").body.splitlines()), 2000)
        wait_until(lambda: f.stats()["subscribers"] == 0, "all to be forgotten")
        f.stop()


class CommandLine(FilteredTest):
    def run_filtered(self, *args):
        return self.run_program("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=s", *args)

    def test_dry_run(self):
        self.publish({"n": 1, "x": "secret"}, b"no json\n", {"n": 2, "x": 2})
        done = self.run_filtered("--dry_run=2", "--drop=x")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(done.stdout, b'- {"n": 1, "x": "secret"}\n+ {"n": 1}\n- no json\n'
                                      b'  (not a JSON object: does not pass)\n')
        done = self.run_filtered("--dry_run=100", "--keep_if=n = 2")
        self.assertEqual(done.stdout.count(b"does not pass"), 2)
        self.assertEqual(self.run_filtered("--dry-run").stdout.count(b"- "), 3, "alone it shows the first ten")
        self.assertEqual(self.lines("out"), [])

    def test_a_dry_run_waits_for_nothing(self):
        done = self.run_filtered("--dry-run", "--stream=none")
        self.assertEqual(done.returncode, 66, done)
        self.assertIn(b"no such stream", done.stderr)
        self.publish({"n": "x" * 500}, {"n": 2})
        done = self.run_filtered("--dry-run", "--max-line=100")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"(509 bytes: over max_line, does not pass)\n- {\"n\": 2}\n+ {\"n\": 2}\n", done.stdout)
        self.pubsub.stop()
        done = self.run_filtered("--dry-run")
        self.assertEqual(done.returncode, 75, done)
        self.assertIn(b"no connection", done.stderr)

    def test_wrong_settings(self):
        """They are refused before anything is asked for, and so also by --check-config."""
        short = self.write("short", "15 bytes, and a\n")
        os.chmod(short, 0o600)
        for args, words in ((("--to_stream=s",), b"into itself"), ((), b"nothing to do"),
                            (("--to_stream=s", "--to_pubsub_url", self.pubsub.url), b"into itself"),
                            (("--to_stream=s", "--to_pubsub_url=LOCALHOST:" + self.port), b"into itself"),
                            (("--to_stream=s", "--to_pubsub_url=127.9.9.9:" + self.port), b"into itself"),
                            (("--to_stream=s", "--to_pubsub_url=[::1]:" + self.port), b"into itself"),
                            (("--to_stream=out", "--to_pubsub_url=ftp://x/"), b"invalid address"),
                            (("--to_stream=out", "--producer=a b"), b"not a name"),
                            (("--port=0", "--producer=a"), b"producer: requires to_stream"),
                            (("--port=0", "--to_pubsub_url=localhost:1"), b"to_pubsub_url: requires to_stream"),
                            (("--to_stream=out", "--keep_if=x = 1 y"), b"keep_if: column 7: expected and, or or the end, not y"),
                            (("--to_stream=out", "--hash=x", "--hash_key_file=none"), b"No such file"),
                            (("--to_stream=out", "--hash=x", "--hash_key_file", short), b"at least 16 bytes"),
                            (("--to_stream=out", "--hash=x"), b"hash requires a key"),
                            (("--to_stream=out", "--hash_key_file", self.key), b"hash_key_file: set hash too"),
                            (("--to_stream=out", "--hash=", "--hash_key_file", self.key), b"without hash no field is hashed"),
                            (("--to_stream=out", "--drop=a, x", "--hash=x,b", "--hash_key_file", self.key),
                             b"x: is both dropped and hashed"),
                            (("--to_stream=out", "--drop=a,,b"), b"drop: empty name between commas"),
                            (("--to_stream=out", "--hash=a,", "--hash_key_file", self.key), b"hash: empty name between commas"),
                            (("--to_stream=out", "--drop_if="), b"drop_if: column 1: expected a field"),
                            (("--to_stream=out", "--drop_if=x ~ ["), b"drop_if: column 5: invalid pattern at character"),
                            (("--to_stream=a b",), b"not a name"),
                            (("--to_stream=out", "--from=yesterday"), b"must be earliest")):
            for check in ("--check-config",), ():
                done = self.run_filtered(*args, *check)
                self.assertEqual(done.returncode, 78, done)
                self.assertTrue(re.search(words, done.stderr), done)
        os.chmod(self.key, 0o644)
        done = self.run_filtered("--to_stream=out", "--hash=x", "--hash_key_file", self.key)
        self.assertIn(b"chmod o=", done.stderr)
        key = self.write("16", "16 bytes, and an\n")
        os.chmod(key, 0o600)
        for args in (("--to_stream=out", "--hash=x", "--hash_key_file", key), ("--to_stream=s", "--to_pubsub_url=localhost:1"),
                     ("--to_stream=s", "--to_pubsub_url=elsewhere:" + self.port)):
            done = self.run_filtered(*args, "--check-config")
            self.assertEqual(done.returncode, 0, done)


if __name__ == "__main__":
    harness.main()
