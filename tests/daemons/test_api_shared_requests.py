"""Questions at the same time share a request to the aggregator, which is sent after all of them were asked: no answer is older than its
question, and each is as it would be alone. Equal questions are asked once, and keys of one namespace together."""
# full: MILLRACE_ROUNDS=10
import http.client
import json
import os
import signal
import socket
import struct
import threading
import urllib.parse

import harness
from harness import query, seeded, wait_until
from test_api import MARCH, hour_text
from test_api_archive import ArchiveCase
from test_api_rollups import DAY, HOUR, START

CONNECTIONS = 8  # of the API to the aggregator
UNITED = 8  # keys in a request, beside the one that all questions ask for
SPANS = [{"from_": MARCH - 3 * DAY, "to": MARCH + 3 * DAY}, {"from_": MARCH, "to": MARCH + 7200}]
SHAPES = [{"unit": unit, "format": form, **zone} for unit in ("hour", "day", "month") for form in ("json", "csv")
          for zone in ({}, {"timezone": "America/New_York"})]


def shared(url):
    return harness.request(url, "GET", "/stats?format=json").json()["source_requests_shared_total"]


def reset(connection):
    """Closes the connection so that the peer's read fails."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class HeldAggregator(ArchiveCase):
    """The aggregator, played by the test, answers once the test lets it."""

    def setUp(self):
        super().setUp()
        self.released, self.held = threading.Event(), []
        self.addCleanup(self.released.set)
        self.live.act = self.hold
        self.begin([(b"u|k", (hour_text(MARCH) + ":1000").encode())])
        self.mapped("--upstream-timeout", "10m")
        self.threads = []

    def hold(self, h):
        if h.path.startswith("/mget"):
            self.held.append(h.path)
            self.released.wait()
        return False

    def later(self, target, answers):
        self.threads.append(threading.Thread(target=lambda: answers.append((target, self.api.get(target)))))
        self.threads[-1].start()

    def fill_connections(self):
        """From now on requests wait for a connection."""
        for i in range(CONNECTIONS):
            self.later("/v1/series?" + query(user="held%d" % i, **SPANS[0]), [])
            wait_until(lambda: len(self.held) == i + 1, lambda: self.held)

    def release(self):
        self.released.set()
        for t in self.threads:
            t.join()

    def asked_for(self, key):
        return sum("k=u%%7C%s&" % key in path for path in self.live.asked)

    def test_all_questions_about_a_key_share_a_request(self):
        self.live.records["u|k"] = hour_text(MARCH) + ":1"
        self.fill_connections()
        targets = ["/v1/series?" + query(user="k", **span, **shape) for span in SPANS for shape in SHAPES]
        answers = []
        for target in targets:
            self.later(target, answers)
        self.later("/v1/series?" + query(user="other", **SPANS[0]), answers)
        wait_until(lambda: shared(self.api.url) == len(targets), lambda: shared(self.api.url))
        self.live.records["u|k"] = hour_text(MARCH) + ":2"
        self.release()
        self.assertEqual((self.asked_for("k"), self.asked_for("other"), len(answers)), (1, 1, len(targets) + 1))
        alone = [self.api.get(target) for target in targets]
        self.assertGreater(self.asked_for("k"), len(targets))
        for target, expected in zip(targets, alone):
            got = dict(answers)[target]
            self.assertEqual((got.status, got.body, got.header("ETag")), (200, expected.body, expected.header("ETag")), target)
        total = self.api.get("/v1/series?" + query(user="k", **SPANS[0])).json()["total"]
        self.assertEqual(total, 1002)

    def test_a_question_after_the_request_has_one_of_its_own(self):
        target, old, new = "/v1/series?" + query(user="k", **SPANS[0]), [], []
        self.live.records["u|k"] = hour_text(MARCH) + ":1"
        self.later(target, old)
        wait_until(lambda: len(self.held) == 1, "the first request")
        self.live.act = None
        self.live.records["u|k"] = hour_text(MARCH) + ":5"
        self.later(target, new)
        wait_until(lambda: new, "the second answer")
        self.assertEqual((new[0][1].json()["total"], old, shared(self.api.url)), (1005, [], 0))
        self.release()
        self.assertEqual(len(old), 1)

    def test_a_client_that_disconnects_takes_no_answer_from_the_others(self):
        self.fill_connections()
        target, answers = "/v1/series?" + query(user="k", **SPANS[0]), []
        address = urllib.parse.urlsplit(self.api.url)
        gone = socket.create_connection((address.hostname, address.port))
        gone.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % target.encode())

        def connections():
            return self.api.get("/stats?format=json").json()["http_connections"]
        self.later(target, answers)
        self.later(target.replace("user=k", "user=other"), answers)
        wait_until(lambda: shared(self.api.url) == 2, lambda: shared(self.api.url))
        reset(gone)
        wait_until(lambda: connections() == CONNECTIONS + 2 + 1, connections)
        self.release()
        self.assertEqual({t: a.json()["total"] for t, a in answers}, {target: 1000, target.replace("user=k", "user=other"): 0})

    def ask_users(self, n):
        """Questions of several kinds about each of n users, while no connection is free. Returns the targets, and the answers to come."""
        self.fill_connections()
        users = ["user-%d" % i for i in range(n)]
        targets = ["/v1/series?" + query(user=user, **SPANS[0], **SHAPES[i % len(SHAPES)]) for i, user in enumerate(users)]
        targets += ["/v1/compare?" + query(user=user, **SPANS[1], unit="hour") for user in users]
        answers = []
        for target in targets:
            self.later(target, answers)
        requests = -(-n // UNITED)
        wait_until(lambda: shared(self.api.url) == len(targets) - requests, lambda: shared(self.api.url))
        return targets, answers, requests

    def check_alone(self, targets, answers):
        """Each answer is that of the question alone."""
        answers = dict(answers)
        self.assertEqual(sorted(answers), sorted(targets))
        for target in targets:
            alone, got = self.api.get(target), answers[target]
            self.assertEqual((got.status, got.body, got.header("ETag")), (200, alone.body, alone.header("ETag")), target)

    def count_users(self, n):
        """Every third user has no counts."""
        for i in range(n):
            if i % 3:
                self.live.records["u|user-%d" % i] = " ".join("%s:%d" % (hour_text(MARCH + h * HOUR), 100 * i + h) for h in range(0, 48, 1 + i % 2))
        return [sum(100 * i + h for h in range(0, 48, 1 + i % 2)) * (i % 3 > 0) for i in range(n)]

    def test_questions_about_different_keys_share_a_request(self):
        totals, before = self.count_users(20), len(self.live.asked)
        targets, answers, requests = self.ask_users(20)
        self.release()
        self.assertEqual(len(self.live.asked) - before, CONNECTIONS + requests, self.live.asked)
        got = [dict(answers)[t] for t in targets[:20]]
        self.assertEqual([a.json()["total"] for a in got if b"total" in a.body],
                         [n for a, n in zip(got, totals) if b"total" in a.body])
        self.check_alone(targets, answers)

    def test_a_shared_reply_that_is_not_whole_is_asked_for_again(self):
        self.count_users(20)
        targets, answers, requests = self.ask_users(20)
        refused = []

        def act(h):
            if h.path.count("k=u%7Cuser-") < 2:
                return False
            refused.append(h.path)
            if len(refused) % 2:
                h.answer(413, b"")
            else:
                h.answer(200, b"u|user-1,%s:1\n" % hour_text(MARCH).encode(), {"X-Millrace-Complete-Until": 4000000000, "X-Millrace-Next": "a"})
            return True
        self.live.act = act
        self.release()
        self.assertEqual(len(refused), requests)
        self.check_alone(targets, answers)

    def test_a_shared_reply_with_a_line_of_another_key_answers_nobody(self):
        _, answers, _ = self.ask_users(3)

        def act(h):
            h.answer(200, b"u|user-4,%s:1\n" % hour_text(MARCH).encode(), {"X-Millrace-Complete-Until": 4000000000})
            return True
        self.live.act = act
        self.release()
        self.assertEqual({a.status for _, a in answers}, {503}, answers)

    def check_lost(self, lose):
        """The aggregator loses the connections of the first requests about several users, on which it has answered before."""
        self.count_users(20)
        targets, answers, requests = self.ask_users(20)
        lost = []

        def act(h):
            if h.path.count("k=u%7Cuser-") < 2 or h.path in lost or not h.earlier:
                return False  # a request that is lost on a new connection is not sent again
            lost.append(h.path)
            lose(h.connection)
            h.close_connection = True
            return True
        self.live.act = act
        self.release()
        self.assertIn(len(lost), range(1, requests + 1))
        self.check_alone(targets, answers)

    def test_a_request_is_sent_again_if_its_kept_connection_was_closed(self):
        self.check_lost(lambda connection: connection.shutdown(socket.SHUT_WR))

    def test_a_request_is_sent_again_if_its_kept_connection_was_reset(self):
        self.check_lost(reset)

    def test_a_request_whose_reply_has_begun_is_not_sent_again(self):
        _, answers, requests = self.ask_users(20)
        cut = []

        def act(h):
            cut.append(h.path)
            h.wfile.write(b"H")
            h.close_connection = True
            return True
        self.live.act = act
        self.release()
        self.assertEqual({a.status for _, a in answers}, {503})
        self.assertEqual(len([path for path in cut if "user-" in path]), requests)

    def test_a_failure_is_the_answer_of_each(self):
        self.fill_connections()

        def fail(h):
            h.answer(500, b"")
            return True
        strict, partial = [], []
        target = "/v1/series?" + query(user="k", **SPANS[0])
        for _ in range(3):
            self.later(target, strict)
            self.later(target + "&partial=allow", partial)
        wait_until(lambda: shared(self.api.url) == 5, lambda: shared(self.api.url))
        self.live.act = fail
        self.release()
        self.assertEqual([a.status for _, a in strict], [503] * 3)
        self.assertEqual([(a.status, a.json()["total"]) for _, a in partial], [(200, 1000)] * 3)
        for _, a in strict + partial:
            self.assertEqual([m["source"] for m in a.json()["missing"]], ["aggregator"], a)
        self.live.act = None
        self.assertEqual(self.api.get(target).status, 200)


class Running(harness.MillraceTest):
    """Sixteen clients ask one of four questions at once, while events arrive and slices are sealed and compacted, and the aggregator is killed and stopped.
    Counts only grow: no answer is below the one that another API gave before, to a client alone."""

    def setUp(self):
        super().setUp()
        data = self.path("data")
        self.config = self.write("p.conf", harness.pipeline_config(data, aggregator={"flush_interval": "50ms"}))
        self.pipeline = harness.Pipeline(self, self.config, data).wait_ready()
        self.api = self.pipeline.daemon_url("api")
        self.alone = self.start("api", "--config", self.config, "--aggregator-url", self.pipeline.daemon_url("aggregator"),
                                "--sortdb-url", self.pipeline.daemon_url("sortdb")).url
        address = urllib.parse.urlsplit(self.api)
        self.clients = [http.client.HTTPConnection(address.hostname, address.port, timeout=harness.PATIENCE) for _ in range(16)]
        self.addCleanup(lambda: [c.close() for c in self.clients])
        self.stop, self.posted, self.answered, self.wrong = threading.Event(), 0, 0, []

    def post(self, rng):
        while not self.stop.is_set():
            lines = [b'{"t":%d,"l":"user%d","c":"US"}' % (MARCH + rng.randrange(-90 * 24, 90 * 24) * HOUR, rng.randrange(3)) for _ in range(20)]
            reply = harness.request(self.pipeline.daemon_url("simplequeue"), "POST", "/mput", b"\n".join(lines))
            self.posted += 20 * (reply.status == 200)
            self.stop.wait(0.01)

    def rows(self, status, body):
        """None: the aggregator is down."""
        reply = json.loads(body)
        if status == 503 and reply["code"] == "upstream-unavailable":
            return None
        self.assertEqual(status, 200, body)
        return {r["t"]: r["n"] for r in reply["rows"]}

    def ask_alone(self, target):
        reply = harness.request(self.alone, "GET", target)
        return self.rows(reply.status, reply.body)

    def ask_at_once(self, targets):
        for c, target in zip(self.clients, targets):
            c.request("GET", target)
        replies = [c.getresponse() for c in self.clients]
        return [self.rows(r.status, r.read()) for r in replies]

    def watch(self, rng, asked):
        try:
            while not self.stop.is_set():
                targets = rng.sample(asked, 4) * (len(self.clients) // 4)
                low = {target: self.ask_alone(target) for target in targets[:4]}
                answers = self.ask_at_once(targets)
                high = {target: self.ask_alone(target) for target in targets[:4]}
                for target, got in zip(targets, answers):
                    if got is None:
                        continue
                    self.answered += low[target] is not None and high[target] is not None
                    if not all((low[target] or got)[t] <= n <= (high[target] or got)[t] for t, n in got.items()):
                        self.wrong.append((target, low[target], got, high[target]))
        except Exception as e:  # the thread's; shown by the test
            self.wrong.append(repr(e))
            raise

    def kill(self):
        killed = self.pipeline.kill9_daemon("aggregator")
        wait_until(lambda: self.pipeline.daemon_pid("aggregator") not in (None, killed), "a new aggregator")
        self.pipeline.wait_ready()

    def pause(self):
        before, pid = self.posted, self.pipeline.daemon_pid("aggregator")
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: self.posted >= before + 200, "events")
        finally:
            os.kill(pid, signal.SIGCONT)

    def compact(self):
        done = self.run_program("millrace", "compact", "--config", self.config)
        self.assertEqual(done.returncode, 0, done)

    def test_no_answer_is_older_than_its_question(self):
        rng = seeded()
        spans = [{"from_": MARCH - 90 * DAY, "to": MARCH + 90 * DAY}, {"from_": MARCH, "to": MARCH + 9 * DAY}]
        abouts = [{"user": "user0"}, {"user": "user1"}, {"user": "user2"}, {"feed": ""}, {"user": "user2", "by": "country", "sub": "US"}]
        asked = ["/v1/series?" + query(unit=unit, **about, **span) for span in spans for unit in ("day", "month") for about in abouts]
        threads = [threading.Thread(target=self.post, args=(rng,)), threading.Thread(target=self.watch, args=(rng, asked))]
        for t in threads:
            t.start()
        try:
            for act in [self.compact, self.kill, self.compact, self.pause] * harness.rounds(1):
                seen = self.posted, self.answered, shared(self.api)
                wait_until(lambda: self.wrong or all(now >= then + n for now, then, n in zip(
                    (self.posted, self.answered, shared(self.api)), seen, (200, 100, 30))), "events and shared answers")
                act()
        finally:
            self.stop.set()
            for t in threads:
                t.join()
        self.assertEqual(self.wrong, [])
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--config", self.config).returncode, 0)
        whole = "/v1/series?feed=&unit=month&" + query(from_=START - 400 * DAY, to=START + 800 * DAY)
        self.assertEqual([sum(rows.values()) for rows in self.ask_at_once([whole] * len(self.clients))], [self.posted] * len(self.clients))


if __name__ == "__main__":
    harness.main()
