"""What a web page of another site can have a browser of this host send: no daemon does it, but for what is made for pages."""
import re

import harness
from harness import MillraceTest, Pipeline, pipeline_config

FOREIGN = ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
           {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "cross-site"})
DAEMONS = ("simplequeue", "pubsub", "aggregator", "sortdb", "api")
PUBLIC = {("api", "/v1/events")}
EVENT = b'{"t":1332637200,"l":"bitly"}'


class StrangersTest(MillraceTest):
    def pipeline(self, **sections):
        path = self.write("millrace.conf", pipeline_config(self.path("data"), **sections))
        return Pipeline(self, path, self.path("data")).wait_ready()

    def test_no_endpoint_answers_a_page_of_another_origin(self):
        up = self.pipeline()
        refused = 0
        for name in DAEMONS:
            for path in re.findall(r"(?m)^(/\S*)", up.ask(name, "GET", "/").text):
                for headers in FOREIGN if (name, path) not in PUBLIC else ():
                    replies = [up.ask(name, method, path, headers=headers) for method in ("GET", "POST", "DELETE")]
                    taken = [reply for reply in replies if reply.status != 405]
                    self.assertEqual([r for r in taken if r.status != 403], [], (name, path, headers))
                    refused += len(taken)
                    self.assertTrue(taken, (name, path))
        self.assertGreater(refused, 200)

    def test_our_own_pages_and_programs_are_answered(self):
        up = self.pipeline(simplequeue={"allowed_hosts": "stats.example, shop.example"})
        url = up.daemon_url("simplequeue")
        port = url.rsplit(":", 1)[1]
        for headers in ({}, {"Host": "localhost:" + port}, {"Host": "queuehost:" + port}, {"Origin": url},
                        {"Host": "stats.example"}, {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
            self.assertEqual(up.ask("simplequeue", "GET", "/ping", headers=headers).status, 200, headers)
        self.assertEqual(up.ask("simplequeue", "GET", "/ping", headers={"Host": "evil.example"}).status, 403)

    def test_a_page_posts_events_but_moves_no_mark_and_names_no_queue(self):
        up = self.pipeline()
        page = {"Origin": "http://shop.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
        for wanted in ("producer=app7&mark=0&next=18446744073709551615", "queue=other", "producer=app7", "mark=0&next=1"):
            reply = up.ask("api", "POST", "/v1/events?" + wanted, EVENT, headers=page)
            self.assertEqual((reply.status, reply.json()["code"]), (403, "foreign-origin"), wanted)
        self.assertEqual(up.ask("api", "POST", "/v1/events", EVENT, headers=page).status, 200)
        reply = up.ask("api", "POST", "/v1/events?producer=app7&mark=0&next=1", EVENT)
        self.assertEqual(reply.status, 200)
        self.assertIs(reply.json().get("duplicate", False), False, "the mark of app7 had not moved")

    def test_a_unix_socket_is_out_of_a_browsers_reach(self):
        queue = self.start("simplequeue", listen="unix:" + self.path("socket"))
        self.assertEqual(queue.get("/ping", headers={"Host": "any.example"}).status, 200)

    def test_a_list_of_hosts_that_is_none(self):
        for wrong in ("http://stats.example", "stats.example:80", "*.example"):
            result = self.run_program("simplequeue", "--check-config", "--allowed-hosts=" + wrong)
            self.assertEqual(result.returncode, 78, wrong)
            self.assertIn(b"allowed_hosts", result.stderr)


if __name__ == "__main__":
    harness.main()
