"""GET /v1/live/rate: the events a second that the web page shows, pushed by pubsub through the API."""
# seconds: 15
import os

import harness
from harness import request, wait_until
from rate_client import RateClient

CLIENTS_MAX = 128


class LiveRate(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.start_pipeline()

    def start_pipeline(self, name="data", **api):
        config = self.write(name + ".conf", harness.pipeline_config(self.path(name), api=api))
        self.pipeline = harness.Pipeline(self, config, self.path(name)).wait_ready()
        self.url = self.pipeline.daemon_url("api")

    def rate(self, target="/v1/live/rate", token=None):
        return RateClient(self, self.url, target, {"Authorization": "Bearer " + token} if token else {})

    def post(self, lines, token=None):
        reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join([b'{"t":1332637200,"l":"bitly"}'] * lines))
        self.assertEqual(reply.status, 200, reply)

    def test_two_clients_see_every_event_posted(self):
        clients = [self.rate(), self.rate("/v1/live/rate?stream=clicks")]
        for client in clients:
            self.assertEqual(client.reply.getheader("Cache-Control"), "no-store")
        for lines in (100, 1, 250):
            self.post(lines)
        self.assertEqual([client.reach(351) for client in clients], [351, 351])

    def test_a_restart_of_pubsub_ends_it_and_the_next_request_works(self):
        client = self.rate()
        self.pipeline.kill9_daemon("pubsub")
        while client.next():
            pass
        again = wait_until(self.counts, "an event")
        self.post(40)
        self.assertEqual(again.reach(40), 40)

    def counts(self):
        """A client that has an event. While pubsub starts, a reply ends without one."""
        client = self.rate()
        return client if client.next() else None

    def test_a_restart_of_the_api_ends_it(self):
        client = self.rate()
        self.pipeline.kill9_daemon("api")
        while client.next():
            pass
        self.assertEqual(self.rate().next()["lines"], 0)

    def test_without_pubsub(self):
        config = self.path("data.conf")
        api = self.start("api", "--config", config, "--archive=" + self.path("data", "archive"), "--pubsub_url=http://127.0.0.1:1")
        reply = api.get("/v1/live/rate")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"))

    def test_refusals(self):
        for target, status, code in (("?stream=none", 404, "unknown-stream"), ("?stream=../x", 400, "bad-parameter"),
                                     ("?count=1", 400, "unknown-parameter")):
            reply = request(self.url, "GET", "/v1/live/rate" + target)
            self.assertEqual((reply.status, reply.json()["code"]), (status, code), target)
        self.assertEqual(request(self.url, "HEAD", "/v1/live/rate").status, 405)

    def test_no_more_clients_than_the_limit(self):
        clients = [self.rate("/v1/live?stream=clicks")] + [self.rate() for _ in range(CLIENTS_MAX - 1)]
        for target in ("/v1/live/rate", "/v1/live?stream=clicks"):
            reply = request(self.url, "GET", target)
            self.assertEqual((reply.status, reply.json()["code"]), (503, "overloaded"), target)
        self.post(3)
        self.assertEqual(clients[-1].reach(3), 3)
        clients[1].close()
        wait_until(self.has_room, "room for another client")

    def has_room(self):
        connection = harness.connect(self.url)
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/live/rate")
        return connection.getresponse().status == 200

    def test_tokens(self):
        tokens = self.write("tokens", "r read RR\nw write WW\nshop read SS keys=u|shop\n")
        os.chmod(tokens, 0o600)
        self.start_pipeline("closed", tokens_file=tokens)
        for token, status in ((None, 401), ("WW", 403), ("SS", 403), ("XX", 401)):
            reply = request(self.url, "GET", "/v1/live/rate", headers={"Authorization": "Bearer " + token} if token else {})
            self.assertEqual(reply.status, status, token)
        client = self.rate(token="RR")
        self.post(5)
        self.assertEqual(client.reach(5), 5)

    def test_pages_of_other_origins(self):
        origin = "https://stats.example"
        self.start_pipeline("shared", allowed_origins=origin)
        client = RateClient(self, self.url, "/v1/live/rate", {"Origin": origin})
        self.assertEqual(client.reply.getheader("Access-Control-Allow-Origin"), origin)
        self.assertEqual(request(self.url, "GET", "/v1/live/rate", headers={"Origin": "https://other.example"}).status, 403)


if __name__ == "__main__":
    harness.main()
