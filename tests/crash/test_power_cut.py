"""The power goes at random places while real daemons are at work: builds of simplequeue and pubsub that log their file
operations do the work once; then what a cut would have left is rebuilt for many places of the log and served by the
daemons as they are. Under sync=0 nothing acknowledged before the cut is missing, and nothing is there that was not sent. Also
when the daemon was killed before, and what it had not made safe was found, and shown, by its next life."""
# full: MILLRACE_ROUNDS=300
import os
import shutil
import threading

import harness
import power_cut
from harness import MillraceTest, wait_until

WRITERS = 4
MESSAGES = 25  # of the life that is killed, and of the next


class PowerCutTest(MillraceTest):
    def logging(self, name, *args, **env):
        """A logging build of the daemon at work on `data`; and where its log has got to."""
        log = self.path(name + ".iolog")
        d = self.daemon(name + "_iolog", "--data-dir=" + self.path("data"), *args, env={"MILLRACE_IO_LOG": log, **env})
        return d, lambda: os.path.getsize(log), log

    def logged(self, name, *args):
        d, *rest = self.logging(name, *args)
        return d.wait_ready(), *rest

    def write_all(self, d, reached, target, requests):
        """[(place in the log when it was acknowledged, message)] of all writers, each with a producer's name."""
        acknowledged, lock = [], threading.Lock()

        def write(w):
            connection = harness.connect(d.url)
            for n in range(requests):
                message = b"%d %d %s\n" % (w, n, b"y" * (n * 37 % 900))
                connection.request("POST", "%sproducer=w%d&mark=%d&next=%d" % (target, w, n, n + 1), message)
                reply = connection.getresponse()
                reply.read()
                assert reply.status == 200, reply.status
                with lock:
                    acknowledged.append((reached(), message))
            connection.close()
        threads = [threading.Thread(target=write, args=(w,)) for w in range(WRITERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(acknowledged), WRITERS * requests)
        return acknowledged

    def cuts(self, log_path, acknowledged, rounds=None):
        """Directories as cuts left them, each with the messages that were acknowledged before."""
        random = harness.seeded()
        log = harness.read_file(log_path)
        for n in range(rounds or harness.rounds(6)):
            end = random.choice(acknowledged)[0] if n % 3 else random.randrange(acknowledged[0][0], len(log) + 1)
            root = self.path("cut%d" % n)
            os.mkdir(root)
            power_cut.cut(log, end, random, self.path("data"), root)
            yield root, [m for at, m in acknowledged if at <= end]
            shutil.rmtree(root)

    def check(self, there, before, sent):
        """`there` has the messages that are served after the cut, in this order."""
        self.assertEqual(len(set(there)), len(there), "nothing is there twice")
        self.assertLessEqual(set(there), sent)
        self.assertLessEqual(set(before), set(there), "nothing acknowledged is lost")
        for w in range(WRITERS):
            mine = [int(m.split()[1]) for m in there if m.startswith(b"%d " % w)]
            self.assertEqual(mine, list(range(len(mine))), "each writer's own order, without a gap")

    def queued(self, root):
        """The messages of a queue that is started on `root`, a directory as a cut left it."""
        again = self.start("simplequeue", "--data-dir=" + root, "--segment-bytes=64K")
        there = []
        while message := again.get("/get").body:
            there.append(message)
        again.stop()
        return there

    def test_simplequeue(self):
        q, reached, log = self.logged("simplequeue", "--segment-bytes=64K")
        acknowledged = self.write_all(q, reached, "/put?", 120)
        q.kill9()
        sent = {m for _, m in acknowledged}
        for root, before in self.cuts(log, acknowledged):
            self.check(self.queued(root), before, sent)

    def test_pubsub(self):
        p, reached, log = self.logged("pubsub", "--segment-bytes=64K", "--streams=s")
        acknowledged = self.write_all(p, reached, "/pub?stream=s&", 150)
        p.kill9()
        sent = {m for _, m in acknowledged}
        for root, before in self.cuts(log, acknowledged):
            again = self.start("pubsub", "--data-dir=" + root, "--segment-bytes=64K", "--streams=s")
            lines = again.get("/sub?stream=s&from=earliest&follow=0").body.splitlines(keepends=True)
            marks = [again.get("/producer?stream=s&producer=w%d" % w).json() for w in range(WRITERS)]
            again.stop()
            self.check(lines, before, sent)
            for w, mark in enumerate(marks):
                mine = sum(line.startswith(b"%d " % w) for line in lines)
                self.assertEqual(int(mark["mark"]), mine, "the mark is that of the lines kept")

    @staticmethod
    def message(n):
        return b"0 %d %s\n" % (n, b"y" * (n * 1370 % 9000))

    def kill_at_work(self, kill, name, target, *args):
        """A life with one writer, killed behind its operation number `kill`."""
        d, _, _ = self.logging(name, *args, MILLRACE_IO_KILL=str(kill))
        try:
            d.wait_ready()
            for n in range(MESSAGES):
                d.post("%sproducer=w0&mark=%d&next=%d" % (target, n, n + 1), self.message(n))
                if name == "pubsub":
                    d.post("/cursors?stream=s&name=c&from=%d" % sum(len(self.message(k)) for k in range(n + 1)))
        except (AssertionError, *harness.UNREACHABLE):
            wait_until(lambda: not d.alive(), "its end")
        if d.alive():
            d.kill9()

    def life_after(self, kill, name, target, *args):
        """The next life gets all messages again, and more; stored messages are acknowledged as duplicates. Returns the log, the place in
        the log of each acknowledgement and, for pubsub, of each offset of the cursor that pubsub has printed."""
        self.kill_at_work(kill, name, target, *args)
        d, reached, log = self.logged(name, *args)
        acknowledged, told = [], []
        for n in range(MESSAGES + 5):
            if name == "pubsub":
                told += [(reached(), int(c["offset"])) for c in d.get("/cursors").json()["cursors"]]
            reply = d.post("%sproducer=w0&mark=%d&next=%d" % (target, n, n + 1), self.message(n))
            self.assertEqual(reply.status, 200)
            acknowledged.append((reached(), self.message(n)))
        d.kill9()
        return log, acknowledged, told

    @staticmethod
    def some_kills():
        """One while directories and files are made, one at work."""
        random = harness.seeded()
        for _ in range(max(1, harness.rounds(15) // 15)):
            yield from (random.randrange(1, 12), random.randrange(12, 130))

    def cuts_after_kills(self, name, target, *args, kills=None):
        for kill in kills or self.some_kills():
            log, acknowledged, told = self.life_after(kill, name, target, *args)
            for root, before in self.cuts(log, acknowledged, rounds=3):
                yield root, before, told
            os.unlink(log)
            shutil.rmtree(self.path("data"))

    def test_simplequeue_killed_first(self, kills=None):
        sent = {self.message(n) for n in range(MESSAGES + 5)}
        for root, before, _ in self.cuts_after_kills("simplequeue", "/put?", "--segment-bytes=64K", kills=kills):
            self.check(self.queued(root), before, sent)

    def test_pubsub_killed_first(self, kills=None):
        sent = {self.message(n) for n in range(MESSAGES + 5)}
        args = ("--segment-bytes=64K", "--streams=s")
        for root, before, told in self.cuts_after_kills("pubsub", "/pub?stream=s&", *args, kills=kills):
            again = self.start("pubsub", "--data-dir=" + root, *args)
            lines = again.get("/sub?stream=s&from=earliest&follow=0").body.splitlines(keepends=True)
            cursors = [int(c["offset"]) for c in again.get("/cursors").json()["cursors"]]
            again.stop()
            self.check(lines, before, sent)
            self.assertEqual(cursors, told and [told[0][1]], "nobody moved it in the second life")


if __name__ == "__main__":
    harness.main()
