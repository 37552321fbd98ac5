"""ps_to_http with several destinations, and with one that fails for a while."""
import threading
import time

import harness
from forward_case import Deaf, ForwardTest, Server
from harness import wait_until
from sink import Sink, destination, most_tries


class Destinations(ForwardTest):
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
        """The other destination gets all lines for 20 timeouts, and the first one gets its share when it answers. On a machine that stood
        still the other one may not answer in time either."""
        harness.slower_and_slower(0.3, self.holds_up_one_request)

    def holds_up_one_request(self, timeout):
        deaf = Deaf(self)
        url = deaf.url + "/in?x=1"
        p = self.post("--batch=1", "--timeout=%dms" % (1000 * timeout), servers=[deaf, self.server]).wait_listening()
        try:
            self.spared_until_it_answers(p, deaf, url)
            p.stop()
        except BaseException:
            p.kill9()  # the next attempt goes on from its state
            raise

    def spared_until_it_answers(self, p, deaf, url):
        self.publish(20)
        wait_until(lambda: set(self.server.lines()) == set(self.sent()), "all to arrive, what it was sent too")
        row = destination(p, url)
        self.assertEqual((deaf.asked, row["up"], row["requests_total"]), (["POST /in?x=1 HTTP/1.1"], 0, 1))
        deaf.close()
        back = Sink(self, deaf.port)

        def has_its_share():
            self.publish(2)
            return back.taken()
        wait_until(has_its_share, lambda: p.log)
        self.assertEqual(destination(p, url)["up"], 1)
        wait_until(lambda: set(self.server.lines() + back.messages()) == set(self.sent()), "all to arrive")


if __name__ == "__main__":
    harness.main()
