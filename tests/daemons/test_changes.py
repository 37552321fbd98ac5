"""GET /v1/changes: which answers of the API may have changed, pushed to web pages."""
# seconds: 15
import os
import signal

import harness
from harness import request, wait_until
from rate_client import EventClient

CLIENTS_MAX = 128


class Follower(EventClient):
    """A client of /v1/changes."""

    def __init__(self, test, url, token=None):
        super().__init__(test, url, "/v1/changes", {"Authorization": "Bearer " + token} if token else None)
        self.test = test

    def until(self, condition, what):
        """The first event for which the condition holds. Events arrive each second, so a limit on them is a limit on time."""
        for _ in range(int(harness.PATIENCE)):
            event = self.next()
            self.test.assertIsNotNone(event, what)
            if condition(event):
                return event
        self.test.fail(what)

    def settled(self):
        """An event that equals the one before it, apart from the time."""
        last = self.next()
        for _ in range(int(harness.PATIENCE)):
            event = self.next()
            if all(event[name] == last[name] for name in ("counts", "daemons")) and event["complete_until"]:
                return event
            last = event
        self.test.fail("two events are never equal")


class Changes(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.start_pipeline()

    def start_pipeline(self, name="data", **api):
        config = self.write(name + ".conf", harness.pipeline_config(self.path(name), api=api))
        self.pipeline = harness.Pipeline(self, config, self.path(name)).wait_ready()
        self.url = self.pipeline.daemon_url("api")

    def put(self, lines):
        reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join([b'{"t":1332637200,"l":"bitly"}'] * lines))
        self.assertEqual(reply.status, 200, reply)

    def test_counts_change_when_events_are_counted(self):
        followers = [Follower(self, self.url), Follower(self, self.url)]
        before = followers[0].settled()
        self.put(3)
        for follower in followers:
            follower.until(lambda event: event["counts"] != before["counts"], "the change of the counts")
        answer = self.pipeline.ask("api", "GET", "/v1/series?ns=u&key=bitly&from=1332633600&to=1332720000&unit=day").json()
        self.assertGreater(answer["total"], 0, "the change is not announced before the counts have it")
        until = followers[0].settled()["complete_until"]
        self.assertGreaterEqual(followers[0].until(lambda event: event["complete_until"] > until, "complete_until moves")["complete_until"], until)

    def test_a_daemon_that_hangs_changes_the_daemons(self):
        follower = Follower(self, self.url)
        before = follower.settled()
        pid = self.pipeline.daemon_pid("queue_to_pubsub")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        hangs = follower.until(lambda event: event["daemons"] != before["daemons"], "the daemon that hangs")
        self.assertEqual(hangs["counts"], before["counts"])
        os.kill(pid, signal.SIGCONT)
        follower.until(lambda event: event["daemons"] == before["daemons"], "the daemon that goes on")

    def test_an_aggregator_that_hangs_changes_the_counts(self):
        follower = Follower(self, self.url)
        before = follower.settled()
        pid = self.pipeline.daemon_pid("aggregator")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        follower.until(lambda event: event["counts"] != before["counts"], "answers are without the aggregator")
        follower.until(lambda event: event["complete_until"] is None, "complete_until is not known")

    def test_an_archive_changes_the_counts(self):
        self.put(3)
        follower = Follower(self, self.url)
        before = follower.settled()
        done = self.run_program("millrace", "compact", "--config", self.path("data.conf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        follower.until(lambda event: event["counts"] != before["counts"], "the new archive")

    def test_published_lines(self):
        follower = Follower(self, self.url)
        before = follower.until(lambda event: event["published"] is not None, "the number of lines")
        self.put(7)
        self.put(5)
        after = follower.until(lambda event: event["published"] == before["published"] + 12, "all lines")
        self.assertGreater(after["time"], before["time"])
        pid = self.pipeline.daemon_pid("pubsub")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        follower.until(lambda event: event["published"] is None, "pubsub does not answer")

    def test_the_end_of_the_api_ends_it(self):
        follower = Follower(self, self.url)
        self.assertIsNotNone(follower.next())
        os.kill(self.pipeline.daemon_pid("api"), signal.SIGTERM)
        while follower.next():
            pass
        wait_until(lambda: "api stopped" in self.pipeline.log, lambda: self.pipeline.log)

    def test_no_more_clients_than_the_limit(self):
        followers = [Follower(self, self.url) for _ in range(CLIENTS_MAX)]
        reply = request(self.url, "GET", "/v1/changes")
        self.assertEqual((reply.status, reply.json()["code"], reply.headers["Retry-After"]), (503, "overloaded", "10"))
        self.assertIsNotNone(followers[-1].next())
        followers[0].close()
        wait_until(self.has_room, "room for another client")
        self.assertEqual(request(self.url, "HEAD", "/v1/changes").status, 405)
        self.assertEqual(request(self.url, "GET", "/v1/changes?of=counts").status, 400)

    def has_room(self):
        connection = harness.connect(self.url)
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/changes")
        return connection.getresponse().status == 200

    def test_tokens(self):
        tokens = self.write("tokens", "r read RR\nw write WW\nshop read SS keys=u|shop\nl read LL views=live\nk read KK views=key\n")
        os.chmod(tokens, 0o600)
        self.start_pipeline("closed", tokens_file=tokens)
        for token, status in ((None, 401), ("WW", 403), ("XX", 401)):
            reply = request(self.url, "GET", "/v1/changes", headers={"Authorization": "Bearer " + token} if token else {})
            self.assertEqual(reply.status, status, token)
        hashes, numbers = ["complete_until", "counts", "daemons"], ["published", "time"]
        for token, members in (("RR", hashes + numbers), ("LL", hashes + numbers), ("SS", hashes), ("KK", hashes)):
            self.assertEqual(sorted(Follower(self, self.url, token).next()), sorted(members), token)


if __name__ == "__main__":
    harness.main()
