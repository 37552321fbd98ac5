"""What the tests of pubsub share: a daemon on a Unix socket of the test's own directory, and how it is asked."""
import harness
from harness import MillraceTest, query, request


class PubsubTest(MillraceTest):
    def setUp(self):
        super().setUp()
        self.url = "unix:" + self.path("p.sock")

    def pubsub(self, *args, sync="never"):
        return self.start("pubsub", "--data-dir=" + self.path("p"), "--sync=" + sync, *args, listen=self.url)

    def pub(self, body, stream="s", **marks):
        return request(self.url, "POST", "/pub?" + query(stream=stream, **marks), body)

    def sub(self, from_="earliest", stream="s", **more):
        begin = {} if from_ is None else {"from_": from_}
        return request(self.url, "GET", "/sub?" + query(stream=stream, **begin, follow=0, **more))

    def follow(self, from_="earliest", stream="s"):
        """A response that stays open: (connection, response)."""
        c = harness.connect(self.url)
        c.request("GET", "/sub?" + query(stream=stream, from_=from_))
        return c, c.getresponse()

    def assertProblem(self, reply, status, code):
        self.assertEqual((reply.status, reply.json()["code"]), (status, code), reply)
        return reply.json()
