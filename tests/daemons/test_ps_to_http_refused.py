"""ps_to_http leaves out lines that every destination refuses, and only those."""
# full: MILLRACE_ROUNDS=200
import os

import harness
from forward_case import ForwardTest, Server
from harness import wait_until
from sink import Sink


class Refused(ForwardTest):
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
        self.assertIn("line skipped", p.log)
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
            return [line for line in p.log.splitlines() if "line skipped" in line]
        wait_until(lambda: len(left_out()) == 4, lambda: p.log)
        for n, line in zip(wrong, left_out()):
            begin = sum(len(x) + 1 for x in self.sent()[:n])
            self.assertIn("from=%d to=%d" % (begin, begin + len(self.sent()[n]) + 1), line)
            self.assertIn('no {\\"n\\":%d}/' % n, line)
        p.stop()

    def test_lines_that_are_refused_are_kept(self):
        """While refused lines cannot be stored, they are not skipped."""
        self.server.mood = lambda body: 422 if b'{"n":3}' in body or b'{"n":7}' in body else 200
        self.publish(10)
        p = self.post("--skip_refused", "--rejects", self.path("later/rejects"), "--timeout=10m", "--port=0",
                      port=False).wait_listening()
        wait_until(lambda: b"cannot store a refused line" in p.get("/health").body, lambda: p.log)
        os.mkdir(self.path("later"))
        rest = [line for n, line in enumerate(self.sent()) if n not in (3, 7)]
        wait_until(lambda: self.server.lines() == rest and p.stats()["lines_refused_total"] == 2, lambda: p.log)
        self.assertEqual(harness.read_file(self.path("later/rejects")), b'{"n":3}\n{"n":7}\n')
        p.stop()

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
        for _ in range(harness.rounds(3)):
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


if __name__ == "__main__":
    harness.main()
