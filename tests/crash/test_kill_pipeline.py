"""Every daemon killed with -9 at random while events flow: answers on the way never fall and are never too high, and
in the end everything is counted as in a run that nobody disturbed."""
# full: MILLRACE_ROUNDS=200
import subprocess
import threading

import harness
from harness import wait_until

EVENTS_A_ROUND = 600
BATCH = 20
DAEMONS = ("simplequeue", "queue_to_pubsub", "pubsub", "sortdb", "aggregator", "api")
# Some years around all clicks, generated and real: each answer has a row for each month.
USER_TARGET = "/v1/series?" + harness.query(ns="all", unit="month", from_=1293840000, to=1420070400)
PAUSE = 0.005  # seconds between two answers of a watcher, in which the daemons have the processors


def generate(n):
    done = subprocess.run([harness.program("clickgen"), "--events=%d" % n, "--seed=11", "--users=50", "--links=200",
                           "--heartbeats=0.02", "--damaged=0.01"], capture_output=True, check=True)
    return done.stdout.splitlines(keepends=True)


def records(pipeline):
    lines, start = [], ""
    while start is not None:
        reply = pipeline.ask("aggregator", "GET", "/range?start=%s&end=%%ff" % start)
        assert reply.status in (200, 404), reply  # 404: no records
        lines += reply.body.splitlines()
        start = reply.header("X-Millrace-Next")
    return lines


class Poster:
    """Posts lines in order with a producer's marks and retries blindly, so that each is in the queue once."""

    def __init__(self, pipeline, lines, batch=BATCH):
        self.pipeline, self.lines, self.batch, self.sent = pipeline, lines, batch, 0

    def post(self, until):
        while self.sent < until:
            end = min(self.sent + self.batch, until)
            target = "/mput?" + harness.query(producer="test", mark=self.sent, next=end)
            self.attempted = end
            wait_until(lambda: self.accepted(target, b"".join(self.lines[self.sent:end])), "the queue to take a batch")
            self.sent = end

    def accepted(self, target, body):
        try:
            reply = self.pipeline.ask("simplequeue", "POST", target, body, timeout=10)
        except harness.UNREACHABLE:
            return False
        if reply.status not in (200, 503):
            raise AssertionError(reply)
        return reply.status == 200


class Watcher(threading.Thread):
    """Asks for a total again and again; remembers whatever was wrong."""

    def __init__(self, pipeline, poster):
        super().__init__(daemon=True)
        self.pipeline, self.poster, self.wrong, self.last, self.answers = pipeline, poster, [], 0, 0
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(PAUSE):
            try:
                reply = self.pipeline.ask("api", "GET", USER_TARGET, timeout=10)
            except harness.UNREACHABLE:
                continue
            if reply.status == 503:
                continue
            if reply.status != 200:
                self.wrong.append(repr(reply))
                continue
            total = reply.json()["total"]
            if total < self.last:
                self.wrong.append("%d after %d" % (total, self.last))
            if total > self.poster.attempted:
                self.wrong.append("%d of at most %d" % (total, self.poster.attempted))
            self.last = max(self.last, total)
            self.answers += 1


class KillPipeline(harness.MillraceTest):
    def pipeline(self, name):
        data = self.path(name)
        config = self.write(name + ".conf", harness.pipeline_config(data))
        return harness.Pipeline(self, config, data).wait_ready()

    def is_counted(self, pipeline):
        try:
            depth = pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
            ends = {s["name"]: s["end"] for s in pipeline.ask("pubsub", "GET", "/streams").json()["streams"]}
            reply = pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
            ready = pipeline.ask("aggregator", "GET", "/health").status == 200
        except (*harness.UNREACHABLE, ValueError, KeyError):
            return False
        return ready and depth == 0 and int(ends["clicks"]) > 0 and all(reply[s]["offset"] == e
                                                                        for s, e in ends.items())

    def undisturbed(self, lines):
        pipeline = self.pipeline("undisturbed")
        poster = Poster(pipeline, lines)
        poster.post(len(lines))
        wait_until(lambda: self.is_counted(pipeline), "all to be counted")
        expected = records(pipeline)
        pipeline.interrupt()
        return expected

    def kill_while_posting(self, pipeline, poster, random, until):
        """Each daemon once, in random order, at random places of the round's events."""
        victims = random.sample(DAEMONS, len(DAEMONS))
        places = sorted(random.randrange(poster.sent + 1, until) for _ in victims)
        for victim, place in zip(victims, places):
            poster.post(place)
            pipeline.kill9_daemon(victim)
        poster.post(until)

    def test_kill_every_daemon(self):
        random, n_rounds = harness.seeded(), harness.rounds(3)
        lines = generate(EVENTS_A_ROUND * n_rounds)
        expected = self.undisturbed(lines)
        pipeline = self.pipeline("disturbed")
        poster = Poster(pipeline, lines)
        poster.attempted = 0
        watcher = Watcher(pipeline, poster)
        watcher.start()
        for r in range(n_rounds):
            self.kill_while_posting(pipeline, poster, random, len(lines) * (r + 1) // n_rounds)
            wait_until(lambda: self.is_counted(pipeline), "round %d to be counted" % r)
            self.assertEqual(watcher.wrong, [])
        wait_until(lambda: watcher.last == sum(n for n in self.hourly(records(pipeline))), "the last answer")
        wait_until(lambda: watcher.answers > n_rounds, "some answers")
        watcher.over.set()
        watcher.join()
        self.assertEqual(watcher.wrong, [])
        self.assertEqual(records(pipeline), expected)
        pipeline.interrupt()

    def hourly(self, lines):
        for line in lines:
            if line.startswith(b"all|"):
                yield from (int(p.rpartition(b":")[2]) for p in line.partition(b",")[2].split(b" "))


if __name__ == "__main__":
    harness.main()
