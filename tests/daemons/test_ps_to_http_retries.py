"""ps_to_http retries what is not answered with 2xx, a second apart."""
import time

import harness
from forward_case import ForwardTest, Server
from harness import wait_until


class Retries(ForwardTest):
    def test_only_what_blames_the_line_leaves_it_out(self):
        """A mistyped address or token does not: that would lose the stream."""
        self.publish(5)
        servers = {status: Server(self) for status in (404, 401, 403, 405)}
        running = {}
        for status, server in servers.items():
            server.mood = status
            running[status] = self.to_http("--destination", server.url + "/in", "--state", self.path("state-%d" % status),
                                           "--skip_refused", "--timeout=10m", "--port=0", port=False).wait_listening()
        for status, p in running.items():
            said = b"/in answered %d" % status
            wait_until(lambda: said in p.get("/health").body, lambda: p.get("/health").text)
            servers[status].mood = 200
        for status, p in running.items():
            wait_until(lambda: servers[status].lines() == self.sent(), "all to arrive")
            wait_until(lambda: p.stats()["lines_delivered_total"] == 5, "it to be known")
            self.assertEqual(p.stats()["lines_refused_total"], 0)
            p.stop()

    def test_what_is_no_answer_is_asked_again_after_a_while(self):
        asked, servers = {302: [], 408: []}, {302: self.server, 408: Server(self)}
        running = []
        self.publish(1)
        for status, server in servers.items():
            server.mood = lambda body, status=status: asked[status].append(time.monotonic()) or status
            running.append(self.to_http("--destination", server.url, "--state", self.path("state-%d" % status)))
        for status, server in servers.items():
            wait_until(lambda: len(asked[status]) >= 2, "another try")
            server.mood = 200
            self.assert_spaced(asked[status])
        for server in servers.values():
            wait_until(lambda: server.lines() == self.sent(), "all to arrive")
        for p in running:
            p.stop()

    def test_what_is_refused_is_left_alone_while_others_go_on(self):
        tries = []

        def mood(body):
            if b'{"n":0}' not in body:
                return 200
            tries.append(time.monotonic())
            return 400
        self.server.mood = mood
        p = self.post("--batch=1", "--parallel=2").wait_listening()
        self.publish(300)
        wait_until(lambda: len(self.server.bodies) == 299 and len(tries) >= 2, "the others, and another try")
        self.assert_spaced(tries)
        p.stop()


if __name__ == "__main__":
    harness.main()
