"""Counts are never called complete too early: hosts fall silent, clocks jump, streams are republished, and all is killed."""
# seconds: 90
# parts: 8
# full: MILLRACE_ROUNDS=40
import json
import re
import shutil
import signal
import time
import urllib.parse

import harness
import http_stub
from clocks import Clocks
from gate import Gate
from harness import query, request, seeded, wait_until
from watermark_test import DAY, MADE_UP, STREAM, Host, WatermarkTest


class Destination:
    """A pubsub that has no more than the mark of one producer, which can fall as in an older copy."""

    def __init__(self, test):
        self.mark, self.statements = 0, []  # (mark, until) of each request that it has stored
        destination = self

        class Handler(http_stub.Handler):
            def answer(self, status, **members):
                body = json.dumps(members, separators=(",", ":")).encode()
                self.reply(status, body, X_Millrace_Time="%f" % time.time(), X_Millrace_Era="1")

            def do_GET(self):
                self.answer(200, known=True, mark=str(destination.mark), opening="")

            def do_POST(self):
                self.body()
                asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
                if int(asked["mark"]) != destination.mark:
                    self.answer(409, code="mark-conflict", detail="", mark=str(destination.mark))
                    return
                if "next" in asked:
                    destination.mark = int(asked["next"])
                destination.statements.append((destination.mark, float(asked["until"])))
                self.answer(200, duplicate=False)
        self.url = http_stub.serve(test, Handler).url


class Republished(WatermarkTest):
    """The counted stream is one that a program makes of another."""

    def check(self, *program):
        def start():
            return self.start(*program, "--pubsub-url=" + self.pubsub_url, "--stream=" + STREAM, "--to-stream=out")
        self.start_pubsub()
        host = Host(self, "h")
        d = start()
        host.put()
        wait_until(lambda: self.producers("out"), "the copy")
        wait_until(lambda: [p.get("name") for p in self.producers("out").values()] == [program[0] + "." + STREAM], "its name")
        self.start_aggregator(stream="out")
        self.wait_complete()
        for what, again in ((host.relay, host.start_relay), (d, start)):
            what.kill9()
            killed = time.time()
            host.put()
            self.assertLess(self.hold_a_moment()[0], killed + 1)
            again()
            self.wait_complete()
        self.assertEqual(self.look()[1], 3)

    def test_a_destination_that_is_restored(self):
        """Until it has all lines again, it is not complete up to the time that its former process had reached."""
        self.start_pubsub()
        end = 0
        for _ in range(20):  # several runs
            body = b'{"t":%s,"x":"%s"}\n' % (MADE_UP.encode(), b"x" * 500000)
            end += len(body)
            self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=" + STREAM, body).status, 200)
        published, to = time.time(), Destination(self)
        self.start("pubsub_filtered", "--pubsub-url=" + self.pubsub_url, "--stream=" + STREAM, "--to-stream=out",
                   "--to-pubsub-url=" + to.url)
        wait_until(lambda: to.statements[-1][0] == end and to.statements[-1][1] > published, "the time of all lines")
        before = len(to.statements)
        to.mark = 0
        wait_until(lambda: to.statements[-1][0] == end and len(to.statements) > before + 1, "the lines again")
        again = [s for s in to.statements[before:] if s[0] < end]
        self.assertGreater(len(again), 0)
        self.assertEqual({until for _, until in again}, {0})

    def test_a_source_that_is_restored(self):
        """Lines that the copy accepts are not republished, so the destination is not complete, although its mark is past them."""
        def publish(n):
            body = b'{"t":%s}\n' % MADE_UP.encode() * n
            self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=" + STREAM, body).status, 200)
        self.start_pubsub()
        publish(1)
        self.pubsub.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        self.start_pubsub()
        publish(8)
        published, to = time.time(), Destination(self)
        d = self.start("pubsub_filtered", "--pubsub-url=" + self.pubsub_url, "--stream=" + STREAM, "--to-stream=out",
                       "--to-pubsub-url=" + to.url)
        wait_until(lambda: to.statements[-1][1] > published, "the time of all lines")
        self.pubsub.kill9()
        shutil.rmtree(self.path("p"))
        shutil.move(self.path("old"), self.path("p"))
        self.start_pubsub()
        publish(2)
        accepted = time.time()
        wait_until(lambda: "restored copy" in d.get("/health").text, lambda: d.get("/health").text)
        stated = len(to.statements)
        wait_until(lambda: len(to.statements) > stated + 3, "some statements")
        self.assertLess(max(until for _, until in to.statements), accepted)

    def test_filtered(self):
        self.check("pubsub_filtered")

    def test_forwarded(self):
        self.check("ps_to_http", "--to-url=" + self.pubsub_url)


class Hosts(WatermarkTest):
    def check_freshness(self, producer, stopped):
        """The API says the same, and how old the newest event is."""
        api = self.start("api", "--config=" + self.path("c.conf"), "--aggregator-url=" + self.aggregator.url)
        got = api.get("/v1/freshness").json()
        self.assertEqual((got["held_by"], got["archive"], got["missing"]), (STREAM + "/" + producer, None, []))
        self.assertEqual((got["newest_event"], got["newest_age"]), (int(MADE_UP), got["time"] - int(MADE_UP)))
        self.assertLess(got["complete_until"], stopped + 1)
        self.assertEqual(got["complete_age"], got["time"] - got["complete_until"])
        stream, = got["streams"]
        self.assertEqual((stream["stream"], stream["held_by"], stream["newest_event"], stream["lag_bytes"]),
                         (STREAM, producer, int(MADE_UP), 0))
        self.assertLess(stream["complete_until"], stopped + 1)
        api.stop()

    def test_a_silent_host_is_named_and_holds(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator()
        loud, silent = Host(self, "loud"), Host(self, "silent")
        loud.put()
        silent.put()
        self.wait_complete()
        name = silent.id
        silent.queue.kill9()
        stopped = time.time()
        loud.put()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.pubsub.kill9()  # pubsub knows the host from its log
        self.start_pubsub(env=clocks.env)
        self.aggregator.kill9()
        self.start_aggregator()
        loud.put()
        wait_until(lambda: self.look()[1] == 4, "all events")
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.assertTrue(self.producers()[name]["until_restored"])
        wait_until(lambda: (self.look(), self.held_by == STREAM + "/silent")[1], "the silent host to be named")
        self.assertEqual(self.aggregator.stats()["held_by"], self.held_by)
        self.check_freshness("silent", stopped)
        wait_until(lambda: "a producer holds completeness back producer=" + self.held_by in self.aggregator.log, "the log")
        age = r'(?m)^millrace_pubsub_producer_until_age_seconds\{stream="clicks",producer="%s"\} (\S+)$'
        found = {h.name: float(re.search(age % p, self.pubsub.get("/metrics").text).group(1))
                 for h, p in ((loud, loud.id), (silent, name))}
        self.assertLess(found["loud"], found["silent"])
        silent.start_queue()
        self.wait_complete()
        wait_until(lambda: (self.look(), self.held_by == "")[1], "no holder")
        wait_until(lambda: "no producer holds completeness back" in self.aggregator.log, "the log")

    def test_a_start_is_not_named(self):
        """A relay that has just started has not stated its time."""
        self.start_pubsub()
        self.start_aggregator()
        for until, next in ((0, 1), (int(time.time()), 2)):
            reply = request(self.pubsub_url, "POST", "/pub?stream=%s&producer=web2&mark=%d&next=%d&until=%d" % (
                STREAM, next - 1, next, until), b'{"t":%s}' % MADE_UP.encode())
            self.assertEqual(reply.status, 200, reply)
            self.hold(lambda: (self.look(), self.assertEqual(self.held_by, "")))
        self.assertNotIn("completeness", self.aggregator.log)

    def test_a_host_that_is_gone_for_good(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator()
        loud, silent = Host(self, "loud"), Host(self, "silent")
        self.wait_complete()
        name, stopped = silent.id, time.time()
        silent.queue.stop()
        silent.relay.kill9()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.pass_silence(clocks, name, 101)
        self.wait_complete(stopped + 2)
        self.assertTrue(self.producers()[name]["left_out"])
        self.assertIn("a silent producer no longer holds completeness back stream=clicks producer=%s name=silent" % name, self.pubsub.log)
        loud.put()
        self.wait_complete()

    def test_a_host_that_is_left_out(self):
        """Also after pubsub was killed, until it states its time again; its mark stays, so it returns without an operator."""
        self.start_pubsub()
        self.start_aggregator()
        loud, away = Host(self, "loud"), Host(self, "away")
        away.put()
        self.wait_complete()
        away.relay.kill9()
        stopped = time.time()
        away.put()
        accepted = self.accepted.pop()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        done = self.run_program("millrace", "producers", "--stream=" + STREAM, "--leave-out=away", "--url=" + self.pubsub_url)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"^%s mark .* name away until \d{4}-\S+Z silent \d+ s left out" % away.id)
        self.wait_complete()
        self.pubsub.kill9()
        self.start_pubsub()
        self.assertTrue(self.producers()[away.id]["left_out"])
        self.wait_complete()
        away.start_relay()
        wait_until(lambda: self.look()[1] == 2, "the event of the host")
        self.accepted.append(accepted)
        self.wait_complete()
        self.assertFalse(self.producers()[away.id]["left_out"])
        leave_out = lambda **p: request(self.pubsub_url, "POST", "/producers?" + query(stream=STREAM, left_out=1, **p)).status
        self.assertEqual((leave_out(producer="nobody"), leave_out()), (404, 400))
        request(self.pubsub_url, "POST", "/pub?stream=%s&producer=p&mark=0&next=1" % STREAM, b'{"t":1}')
        self.assertEqual(leave_out(producer="p"), 409)

    def test_a_removed_producer_holds_nothing(self):
        self.start_pubsub()
        self.start_aggregator()
        loud, gone = Host(self, "loud"), Host(self, "gone")
        self.wait_complete()
        name, stopped = gone.id, time.time()
        gone.queue.stop()
        gone.relay.kill9()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        self.assertEqual(self.producers()[name]["name"], "gone")
        remove = lambda who: request(self.pubsub_url, "DELETE", "/producers?" + query(stream=STREAM, producer=who))
        self.assertEqual(remove("nobody").status, 404)
        self.assertEqual(remove("gone").json()["producer"], name)
        self.assertEqual(remove("gone").status, 404)
        self.assertNotIn(name, self.producers())
        loud.put()
        self.wait_complete()
        self.assertEqual(self.look()[1], 1)

    def test_a_removed_host_that_returns_is_asked_once(self):
        """The removal took the mark, so its relay cannot know what is stored, until the operator says so by the command it names."""
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "gone")
        host.put()
        self.wait_complete()
        name = host.id
        host.relay.kill9()
        self.assertEqual(request(self.pubsub_url, "DELETE", "/producers?" + query(stream=STREAM, producer=name)).status, 200)
        host.put()
        host.start_relay()
        wait_until(lambda: not host.relay.alive(), "the relay to stop")
        self.assertEqual(host.relay.process.returncode, 65)
        command = re.search(r"run: millrace (producers --queue=default --set=\w+ --mark=\d+)", host.relay.log)[1]
        done = self.run_program("millrace", *command.split(), "--url=" + host.url)
        self.assertEqual(done.returncode, 0, done)
        host.start_relay()
        self.wait_complete()
        self.assertEqual(self.look()[1], 2)

    def test_a_producer_that_states_its_first_time_before_pubsub_is_killed(self):
        """The aggregator hears of it only after the restart, when its time may be older than its last statement."""
        def publish(accepted, params=""):
            reply = request(self.pubsub_url, "POST", "/pub?stream=" + STREAM + params, b'{"t":%s}' % MADE_UP.encode())
            self.assertEqual(reply.status, 200, reply)
            self.accepted.append(accepted)
        self.start_pubsub()
        publish(0)
        self.start_aggregator()
        self.wait_complete()
        self.aggregator.process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.aggregator.process.send_signal, signal.SIGCONT)
        stated = time.time()
        # Not due before: until the aggregator reads this line, its answers are complete up to its last look at pubsub.
        publish(stated, "&producer=web2&mark=0&next=1&until=%f" % stated)
        wait_until(lambda: "until" in self.producers()["web2"], "the time to be stored")
        self.pubsub.kill9()
        self.start_pubsub()
        self.assertTrue(self.producers()["web2"]["until_restored"])
        self.accepted.append(time.time())  # by the producer, which cannot publish it now
        self.aggregator.process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.look()[1] == 2, "the second event")
        self.assertLess(self.hold_a_moment()[0], stated + 1)

    def test_a_copy_that_the_aggregator_has_not_read(self):
        """pubsub is restored to an older age, and its answers about producers come before its answer that the cursor is of another
        history."""
        def publish(n):
            body = b'{"t":%s}\n' % MADE_UP.encode() * n
            self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=" + STREAM, body).status, 200)
            self.accepted += [time.time()] * n
        self.start_pubsub()
        publish(1)
        self.pubsub.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        self.start_pubsub()
        gate = Gate(self.path("gate"), self.path("p.sock"))
        self.addCleanup(gate.close)
        self.start_aggregator("--pubsub-url=unix:" + self.path("gate"))
        publish(8)
        self.wait_complete()
        gate.lets(0)
        self.pubsub.kill9()
        shutil.rmtree(self.path("p"))
        shutil.move(self.path("old"), self.path("p"))
        self.start_pubsub()
        publish(2)
        self.hold_a_moment()

    def test_another_stream_beside_one_that_is_restored(self):
        """The aggregator waits for the operator because of one stream; its numbers of the other go on."""
        def publish(stream, n):
            body = b'{"t":%s}\n' % MADE_UP.encode() * n
            self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=" + stream, body).status, 200)
        self.start_pubsub()
        publish(STREAM, 1)
        publish("other", 1)
        self.pubsub.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        self.start_pubsub()
        self.start_aggregator(stream=STREAM + ",other")
        publish(STREAM, 8)
        wait_until(lambda: self.look()[1] == 10, "the events")
        self.pubsub.kill9()
        shutil.rmtree(self.path("p"))
        shutil.move(self.path("old"), self.path("p"))
        self.start_pubsub()
        publish(STREAM, 2)
        wait_until(lambda: "restored copy" in self.aggregator.get("/health").text, "the refusal")
        refused = time.time()
        wait_until(lambda: self.aggregator.stats()["streams"]["other"]["complete_until"] > refused, "the other stream")

    def test_a_copy_that_is_older_than_the_last_answers(self):
        """Lines that the aggregator has not read are lost with the former process, whose ends and times it knows."""
        self.start_pubsub()
        host = Host(self, "h")
        host.put()
        gate = Gate(self.path("gate"), self.path("p.sock"))
        self.addCleanup(gate.close)
        self.start_aggregator("--pubsub-url=unix:" + self.path("gate"))
        self.wait_complete()
        self.pubsub.stop()
        shutil.copytree(self.path("p"), self.path("old"))
        self.start_pubsub()
        self.wait_complete()
        gate.lets(0)
        for _ in range(3):
            host.put()
        lost = time.time()
        wait_until(lambda: (self.producers()[host.id]["until"] or 0) > lost + 3, "the time of the lines")
        host.relay.kill9()
        self.pubsub.kill9()
        shutil.rmtree(self.path("p"))
        shutil.move(self.path("old"), self.path("p"))
        gate.drops = True
        gate.lets(None)
        wait_until(lambda: gate.dropped, "the end of the stream")
        gate.drops = False
        self.start_pubsub()
        body = b'{"t":%s}\n' % MADE_UP.encode() * 5
        self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=" + STREAM, body).status, 200)
        counted = lambda: int(self.aggregator.stats()["streams"][STREAM]["offset"])
        wait_until(lambda: counted() >= 6 * len(body) // 5, "the lines of the copy")
        self.hold(lambda: self.assertLess(self.aggregator.stats()["streams"][STREAM]["complete_until"], self.accepted[1]))

    def test_several_queues_while_all_is_killed(self):
        random = seeded()
        self.start_pubsub()
        self.start_aggregator()
        hosts = [Host(self, "h%d" % i) for i in range(3)]
        for _ in range(harness.rounds(2)):
            for _ in range(30):
                random.choice(hosts).put(random.choice(["/put"] * 9 + ["/put?delay=%d" % random.randrange(300)]))
                self.look()
            host = random.choice(hosts)
            for victim in random.sample(("queue", "relay", "pubsub", "aggregator"), random.randrange(1, 4)):
                if victim in ("queue", "relay"):
                    getattr(host, victim).kill9()
                    getattr(host, "start_" + victim)()
                else:
                    getattr(self, victim).kill9()
                    getattr(self, "start_" + victim)()
                self.look()
        self.wait_complete()
        self.assertEqual(self.look()[1], len(self.accepted))


class Jumps(WatermarkTest):
    def jump(self, clocks, d, **how):
        """Sets the clocks, and waits until the daemon has seen it."""
        jumps = lambda: int(re.search(r"clock_jumps_total (\d+)", d.get("/metrics").text).group(1))
        before = jumps()
        clocks.set(**how)
        wait_until(lambda: jumps() > before, "the jump")

    def test_the_clock_of_a_host(self):
        clocks = Clocks(self)
        self.start_pubsub()
        self.start_aggregator()
        host, other = Host(self, "h", clocks), Host(self, "other")
        self.wait_complete()
        for jump in (400 * DAY, -DAY)[:harness.rounds(1)]:
            self.jump(clocks, host.queue, wall=jump)
            host.put()
            host.relay.kill9()
            host.put()
            self.hold_a_moment()
            host.start_relay()
            self.hold_a_moment()
            self.jump(clocks, host.queue, wall=0)
        self.wait_complete()

    def test_a_host_that_starts_ahead(self):
        """Its until is far ahead, also after pubsub was away for a while."""
        clocks = Clocks(self)
        clocks.set(wall=DAY)
        self.start_pubsub()
        self.start_aggregator()
        host = Host(self, "h", clocks)
        host.put()
        self.wait_complete()
        host.relay.kill9()
        stopped = time.time()
        self.assertLess(self.hold_a_moment()[0], stopped + 1)
        host.put()
        self.pubsub.kill9()
        host.start_relay()
        self.hold_a_moment()
        host.put()
        self.start_pubsub()
        self.wait_complete()
        self.jump(clocks, host.queue, wall=0)
        host.put()
        self.wait_complete()

    def test_the_clock_of_pubsub(self):
        clocks = Clocks(self)
        self.start_pubsub(env=clocks.env)
        self.start_aggregator()
        host = Host(self, "h")
        for jump in (400 * DAY, 0, -DAY, 0)[:2 * harness.rounds(1)]:
            self.jump(clocks, self.pubsub, wall=jump)
            host.put()
            host.relay.kill9()
            host.put()
            self.hold_a_moment()
            host.start_relay()
        self.wait_complete()


if __name__ == "__main__":
    harness.main()
