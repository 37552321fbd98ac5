"""ps_to_http stops leaving lines out after poison_limit refusals in a row."""
import time

import harness
from forward_case import ForwardTest
from harness import wait_until


class PoisonLimit(ForwardTest):
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


if __name__ == "__main__":
    harness.main()
