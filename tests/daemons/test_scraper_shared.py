"""Scrapers that share targets through a real ZooKeeper, while scrapers, the server and the network between them fail."""
# seconds: 60
# parts: 3
import os
import signal
import time

import harness
from harness import wait_until
from zookeeper_case import Client, Network, SharedTest, repeated

TARGETS = 40
LAST = str(TARGETS - 1)


class Members(SharedTest):
    def setUp(self):
        super().setUp()
        self.address = self.target({"/metrics": "a 1\n"}).address
        self.pubsub()
        self.assertEqual(self.put((self.address, {}, TARGETS)).returncode, 0)

    def start_all(self, **servers):
        for name in "abc":
            self.member(name, servers=servers.get(name))
        shares = self.wait_owned(TARGETS, *"abc")
        self.assertTrue(all(shares.values()), shares)
        self.since = time.time()  # before, the first scraper had targets of the others
        for i in (next(iter(share)) for share in shares.values()):
            self.wait_slots(2, i, self.since)
        return shares

    def skipped(self):
        return sum(scraper.stats()["scrapes_skipped_total"] for scraper in self.names.values() if scraper.alive())

    def check_move(self, shares, after, begin, end, skipped=0):
        """Only the share of b has moved, between the two times; the others have each slot once. Returns what b's targets missed."""
        for name in "ac":
            self.assertLessEqual(shares[name], after[name])
        for share in after.values():
            self.wait_slots(3, next(iter(share)), end)
        times, missing = self.times(), {}
        self.assertEqual(len(times), TARGETS)
        for i, of_target in times.items():
            missing[i] = self.missing(of_target)
        unmoved = shares["a"] | shares["c"]
        self.assertLessEqual(sum(len(missing[i]) for i in unmoved), skipped, missing)
        self.assertLessEqual(sum(not begin - 1 - self.interval <= t <= end + 1 for i in shares["b"] for t in missing[i]), skipped, (missing, begin, end))
        twice = {i: {t: by for t, by in of_target.items() if len(by) > 1} for i, of_target in times.items()}
        self.assertFalse(any(twice[i] for i in unmoved), twice)
        self.assert_no_markers()
        return times, missing

    @repeated
    def test_a_killed_scraper(self):
        """A kill moves only the scraper's share. After its restart it takes the same share again."""
        self.interval = int(2 * self.timeout)  # above the timeout and a tick
        shares = self.start_all()
        begin = time.time()
        self.names["b"].kill9()
        after = self.wait_owned(TARGETS, *"ac")
        end = time.time()
        times, missing = self.check_move(shares, after, begin, end, self.skipped())
        worst = max(len(missing[i]) for i in shares["b"])
        print("missing slots of a moved target: at most %d; moved %.1f s after the kill" % (worst, end - begin))
        self.assertLessEqual(worst, (end - begin + 0.5) // self.interval + 1 + self.skipped())
        old = {i: max(t for t, by in times[i].items() if "b" in by) for i in shares["b"]}
        for i, t in old.items():
            self.assertLess(t, min(t for t, by in times[i].items() if "b" not in by), "a slot of b after its share has moved")
        self.member("b")
        self.assertEqual(self.wait_owned(TARGETS, *"abc"), shares)
        self.wait_slots(3, next(iter(shares["b"])), time.time())
        self.assert_no_markers()

    @repeated
    def test_a_stopped_scraper(self):
        """SIGTERM gives the targets away at once, and a start takes them back: each move costs at most one slot."""
        shares = self.start_all()
        begin = time.time()
        self.names["b"].stop()
        after = self.wait_owned(TARGETS, *"ac")
        self.check_move(shares, after, begin, time.time(), self.skipped())

    def check_lease(self, shares, away, back):
        """b published nothing between the end of its lease and its return, and no slot that another scraper has."""
        times = self.times()
        for i in shares["b"]:
            late = [t for t, by in times[i].items() if "b" in by and away + self.timeout <= t < back]
            self.assertEqual(late, [], "b published although its session was uncertain")
            taken = [t for t, by in times[i].items() if by != ["b"]]
            self.assertFalse([t for t in taken if t <= away], "taken before the session could be over")
            twice = [t for t, by in times[i].items() if len(by) > 1 and t < back]
            self.assertEqual(twice, [])

    @repeated
    def test_a_frozen_scraper(self):
        """SIGSTOP beyond the timeout: at SIGCONT the scraper publishes no slot that has passed meanwhile."""
        shares = self.start_all()
        self.names["b"].process.send_signal(signal.SIGSTOP)
        away = time.time()
        after = self.wait_owned(TARGETS, *"ac")
        for share in after.values():
            self.wait_slots(3, next(iter(share & shares["b"])), time.time())  # all slots of b's targets have passed
        back = time.time()
        self.names["b"].process.send_signal(signal.SIGCONT)
        self.assertEqual(self.wait_owned(TARGETS, *"abc"), shares)
        self.wait_slots(2, next(iter(shares["b"])), time.time())
        self.check_lease(shares, away, back)
        self.assert_no_markers()

    @repeated
    def test_network_away(self):
        """A scraper without a network to ZooKeeper stops by itself, before others have its targets, and comes back with a new session."""
        network = Network(self, self.server)
        shares = self.start_all(b=network.address)
        away = time.time()
        network.is_away = True
        wait_until(lambda: not self.gauge("b", "lease_certain"), "the end of the lease")
        wait_until(lambda: "no certain session with ZooKeeper" in self.names["b"].get("/health").text, "the warning")
        self.assertEqual(self.names["b"].get("/health").status, 200)
        after = self.wait_owned(TARGETS, *"ac")
        for share in after.values():
            self.wait_slots(2, next(iter(share & shares["b"])), time.time())
        self.assertFalse(self.gauge("b", "lease_certain"))
        back = time.time()
        network.is_away = False
        self.assertEqual(self.wait_owned(TARGETS, *"abc"), shares)
        self.check_lease(shares, away, back)
        self.assert_no_markers()


class Server(SharedTest):
    def setUp(self):
        super().setUp()
        self.pubsub()
        self.assertEqual(self.put((self.target({"/metrics": "a 1\n"}).address, {}, TARGETS)).returncode, 0)

    @repeated
    def test_server_killed_and_started_again(self):
        """Without a server no target is scraped. The server's next start continues the sessions: each scraper keeps its share."""
        for name in "ab":
            self.member(name)
        shares = self.wait_owned(TARGETS, *"ab")
        self.wait_slots(2, LAST, 0)
        self.server.kill9()
        wait_until(lambda: not any(self.gauge(n, "lease_certain") for n in "ab"), "the end of the leases")
        ended = {n: self.gauge(n, "scrapes_total") + TARGETS for n in "ab"}  # scrapes in progress end
        before = {n: self.gauge(n, "scrapes_skipped_total") for n in "ab"}
        wait_until(lambda: all(self.gauge(n, "scrapes_skipped_total") > before[n] + 2 * TARGETS / 3 for n in "ab"), "slots that pass")
        self.assertTrue(all(self.gauge(n, "scrapes_total") <= ended[n] for n in "ab"))
        wait_until(lambda: "no certain session" in self.names["a"].get("/health").text, "the warning")
        self.server.start()
        self.assertEqual(self.wait_owned(TARGETS, *"ab"), shares)
        self.wait_slots(2, LAST, time.time())
        wait_until(lambda: self.names["a"].get("/health").text.strip() == "ready", "no warning")
        self.assertFalse([t for of in self.times().values() for t, by in of.items() if len(by) > 1])
        self.assert_no_markers()


class Nodes(SharedTest):
    def test_the_list(self):
        """Nodes of targets are read at once. A bad node keeps its earlier targets, and a node that is gone has none."""
        self.pubsub()
        address = self.target({"/metrics": "a 1\n"}).address
        scraper = self.member("a")
        self.assertEqual(self.put((address, {}, 3)).returncode, 0)
        self.assertEqual(self.put((address, {"job": "more"}, 5), name="more").returncode, 0)
        wait_until(lambda: len(scraper.get("/targets").json()) == 8, "both nodes")
        wait_until(lambda: all(t["up"] for t in scraper.get("/targets").json()), "scrapes")
        client = Client(self.server)
        self.assertEqual(client.set("/millrace/targets/web", b"[{\"targets\": [5]}]"), 0)
        wait_until(lambda: "ZooKeeper /millrace/targets/web: group 1: a target is not a text" in scraper.get("/health").text, "the error to be named")
        self.assertEqual(len(scraper.get("/targets").json()), 8)
        self.assertEqual(client.delete("/millrace/targets/more"), 0)
        self.assertEqual(self.put((address, {}, 2)).returncode, 0)
        wait_until(lambda: len(scraper.get("/targets").json()) == 2 and scraper.get("/health").text.strip() == "ready", "two targets")
        wait_until(lambda: sum(v == "stale" for _, _, v in self.published("a")) == 6, "markers of the six that left the list")

    def test_a_name_in_use(self):
        """The second scraper of a name waits until the first has gone."""
        self.pubsub()
        address = self.target({"/metrics": "a 1\n"}).address
        self.assertEqual(self.put((address, {}, 3)).returncode, 0)
        first = self.member("a")
        self.wait_owned(3, "a")
        second = self.member("a")
        wait_until(lambda: "another process has the node /millrace/scrapers/a" in second.get("/health").text, "the warning")
        self.assertEqual((second.get("/targets").json(), second.stats()["scrapes_total"]), ([], 0))
        first.kill9()
        self.wait_owned(3, "a")
        wait_until(lambda: second.stats()["scrapes_stored_total"] > 3, "scrapes")

    def test_a_node_that_an_operator_deletes(self):
        self.pubsub()
        address = self.target({"/metrics": "a 1\n"}).address
        self.assertEqual(self.put((address, {}, 3)).returncode, 0)
        scraper = self.member("a")
        self.wait_owned(3, "a")
        rounds = scraper.stats()["zookeeper_rounds_total"]
        self.assertEqual(Client(self.server).delete("/millrace/scrapers/a"), 0)
        wait_until(lambda: scraper.stats()["zookeeper_rounds_total"] > rounds + 1, "rounds")
        self.wait_owned(3, "a")
        self.assertEqual(scraper.stats()["zookeeper_connections_total"], 1)

    def test_refused_files(self):
        """--put-targets stores all files or none."""
        address = "--zookeeper=" + self.server.address
        good = self.write("good", "[]")
        os.mkfifo(self.path("pipe"))
        for name, text, status, error in (("bad", "[{\"targets\": [5]}]", 65, b"group 1: a target is not a text"), ("a b", None, 66, b"No such file"),
                                          ("long", "[%s]" % (" " * 1000000), 66, b"longer than 1 MB"), ("pipe", None, 66, b"not a regular file")):
            if text is not None:
                self.write(name, text)
            run = self.run_program("scraper", address, "--put-targets=" + good, "--put-targets=" + self.path(name))
            self.assertEqual(run.returncode, status, run.stderr)
            self.assertIn(error, run.stderr)
        self.assertEqual(Client(self.server).set("/millrace/targets/good", b"[]"), -101, "no node")
        self.server.kill9()
        run = self.run_program("scraper", address, "--zookeeper-timeout=500ms", "--put-targets=" + good)
        self.assertEqual(run.returncode, 75, run.stderr)
        self.assertIn(b"cannot store the targets in ZooKeeper", run.stderr)
        for args, error in ((["--zookeeper=x:0"], b"is not HOST:PORT"), (["--zookeeper=unix:/x"], b"is not HOST:PORT"),
                            ([address, "--zookeeper-path=/a//b"], b"is not a path such as /millrace"), ([address, "--shard=1/2"], b"shard")):
            run = self.run_program("scraper", "--check-config", *args)
            self.assertIn(run.returncode, (64, 78))
            self.assertIn(error, run.stderr)


if __name__ == "__main__":
    harness.main()
