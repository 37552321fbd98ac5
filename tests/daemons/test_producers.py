"""millrace producers: a wrong mark is seen and set right."""
import json
import os
import re
import time

import harness
from harness import query, request, wait_until
from relay_test import RelayTest
from sink import Sink

HIGHEST = 2**64 - 1


class ProducersTest(RelayTest):
    def producers(self, *args, url=None, status=0):
        done = self.run_program("millrace", "producers", "--url=" + (url or self.pubsub_url), *args)
        self.assertEqual(done.returncode, status, done)
        return (done.stdout if status == 0 else done.stderr).decode()

    def listed(self, *args, **kw):
        return json.loads(self.producers("--json", *args, **kw))["producers"]

    def test_a_producer_of_a_queue_whose_mark_a_stranger_moved(self):
        for args in (["--data-dir=" + self.path("q")], []):
            with self.subTest(args):
                queue = self.start("simplequeue", *args)
                self.assertEqual(queue.post("/put?producer=app7&mark=0&next=200", b"a").status, 200)
                self.assertEqual(queue.post("/put?" + query(producer="app7", mark=200, next=HIGHEST), b"x").status, 200)
                lost = queue.post("/put?producer=app7&mark=200&next=201", b"b")
                self.assertEqual(lost.header("X-Millrace-Duplicate"), "1")
                shown = self.listed("--queue=default", url=queue.url)
                self.assertEqual(shown, [{"producer": "app7", "mark": str(HIGHEST), "opening": ""}])
                self.assertEqual(self.producers("--queue=default", "--set=app7", "--mark=200", url=queue.url).split(),
                                 ["app7", "mark", "200"])
                stored = queue.post("/put?producer=app7&mark=200&next=201", b"b")
                self.assertEqual((stored.status, stored.header("X-Millrace-Duplicate")), (200, None))
                if args:
                    queue.kill9()
                    queue = self.start("simplequeue", *args)
                self.assertEqual(queue.get("/producer?producer=app7").json()["mark"], "201")
                self.assertEqual(queue.get("/mget?items=9").body.split(), [b"a", b"x", b"b"])
                queue.stop()

    def test_a_mistyped_producer_is_named_and_not_created(self):
        queue = self.start("simplequeue")
        self.assertEqual(queue.post("/put?producer=app7&mark=0&next=200", b"a").status, 200)
        pubsub = self.start("pubsub", "--streams=clicks", "--data-dir=" + self.path("typo"))
        self.assertEqual(pubsub.post("/pub?stream=clicks&producer=app7&mark=0&next=200", b"a").status, 200)
        for at, url in (("--queue=default", queue.url), ("--stream=clicks", pubsub.url)):
            for name, hint in (("app8", " (did you mean app7?)"), ("elsewhere", "")):
                said = self.producers(at, "--set=" + name, "--mark=5", url=url, status=64)
                self.assertIn("there is no producer %s%s; --new creates it" % (name, hint), said)
            self.assertEqual([p["producer"] for p in self.listed(at, url=url)], ["app7"])
            self.producers(at, "--set=elsewhere", "--mark=5", "--new", url=url)
            self.assertEqual([p["producer"] for p in self.listed(at, url=url)], ["app7", "elsewhere"])
        self.producers("--stream=clicks", "--leave-out=app8", url=pubsub.url, status=64)
        self.assertEqual(len(self.listed("--stream=clicks", url=pubsub.url)), 2)

    def test_a_removed_producer(self):
        """Removed for good, also after a kill; a full table then has room for another."""
        for kind, n, where in (("queue", 9, ["--data-dir=" + self.path("q")]), ("queue", 9, []),
                               ("stream", 9, ["--data-dir=" + self.path("p"), "--max-producers=9"])):
            with self.subTest(kind=kind, where=where):
                begin = lambda: self.start("simplequeue" if kind == "queue" else "pubsub", *where)
                d, at = begin(), "--%s=clicks" % kind
                post = "/mput?queue=clicks&" if kind == "queue" else "/pub?stream=clicks&"
                c = harness.connect(d.url)
                for i in range(n):
                    c.request("POST", post + "producer=p%d&mark=0&next=1" % i, b"x")
                    self.assertEqual(c.getresponse().read() is not None, True)
                c.close()
                if kind == "stream":
                    self.assertEqual(d.post(post + "producer=new&mark=0&next=1", b"x").json()["code"], "too-many-producers")
                self.producers(at, "--remove=p7", url=d.url)
                self.assertIn("no producer p7", self.producers(at, "--remove=p7", url=d.url, status=64))
                self.assertEqual(d.post(post + "producer=new&mark=0&next=1", b"x").status, 200)
                if where:
                    d.kill9()
                    d = begin()
                left = {p["producer"] for p in self.listed(at, url=d.url)}
                self.assertEqual(left, {"p%d" % i for i in range(n) if i != 7} | {"new"})
                d.stop()

    def test_with_a_token_a_stranger_makes_no_producer_queue_or_stream(self):
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        for daemon, post, list_, other in (("simplequeue", "/put?", "/producers?queue=default", "/put?queue=theirs"),
                                           ("pubsub", "/pub?stream=clicks&", "/producers?stream=clicks", "/pub?stream=theirs")):
            with self.subTest(daemon):
                d = self.start(daemon, "--data-dir=" + self.path(daemon), "--auth-token-file=" + token)
                ours = {"Authorization": "Bearer secret"}
                self.assertEqual(d.post(post + "producer=ours&mark=0&next=1", b"x", headers=ours).status, 200)
                for method, target in (("POST", post + "producer=theirs&mark=0&next=1"), ("GET", list_), ("POST", other),
                                       ("POST", list_ + "&producer=ours&mark=9"), ("DELETE", list_ + "&producer=ours")):
                    self.assertEqual(request(d.url, method, target, b"x").status, 401, target)
                listed = request(d.url, "GET", list_, headers=ours).json()["producers"]
                self.assertEqual([(p["producer"], p["mark"]) for p in listed], [("ours", "1")])
                self.assertNotIn("theirs", request(d.url, "GET", "/stats?format=json", headers=ours).text)
                d.stop()

    def test_a_queues_mark_that_a_stranger_moved(self):
        queue, pubsub = self.start_queue(), self.start_pubsub()
        queue.post("/mput", b"a\nb\n")
        relay = self.start_relay()
        self.wait_stream(b"a\nb\n")
        relay.stop()
        identity = self.queue_numbers()["queue_id"]
        mark = self.mark(identity)
        self.assertEqual(self.publish(identity, mark, 2**63 - 1).status, 200)
        queue.post("/mput", b"c\nd\n")
        relay = self.relay()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
        row, = self.listed("--stream=clicks", "--producer=" + identity[:8])
        self.assertEqual((row["producer"], row["mark"]), (identity, str(2**63 - 1)))
        self.assertIn("ahead of the queue, whose next id is 5", relay.log)
        looks, sets = re.findall(r"millrace producers (--stream=clicks --\S+=[0-9a-f]{32}(?: --mark=\d+)?)", relay.log)[:2]
        self.assertIn("mark %d" % (2**63 - 1), self.producers(*looks.split()))
        self.assertIn("%s mark 3" % identity, self.producers(*sets.split()))
        pubsub.kill9()
        self.start_pubsub()
        self.start_relay()
        self.wait_stream(b"a\nb\nc\nd\n")
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "the acknowledgements")

    def test_the_list(self):
        self.start_pubsub()
        for name in ("b", "a.2", "a.1"):
            self.publish(name, 0, 5, b"x\n")
        self.publish("f" * 32, 0, 7)
        self.assertEqual([row["producer"] for row in self.listed()], ["a.1", "a.2", "b", "f" * 32])
        self.assertEqual(self.listed("--producer=a"), [{"producer": "a.%d" % i, "mark": "5", "opening": ""} for i in (1, 2)])
        self.assertIn("mark 7", self.producers("--producer=f"))
        self.assertEqual(self.listed("--producer=z"), [])

    def test_what_is_refused(self):
        self.start_pubsub()
        self.publish("p", 0, 5, b"x\n")
        for args in (["--set=p"], ["--mark=1"], ["--set=p", "--mark=-1"],
                     ["--set=p", "--mark=" + str(2**64)], ["--set=p/q", "--mark=1"], ["--stream=a b"], ["--stream=none"]):
            self.producers(*args, status=64)
        self.assertEqual(self.mark("p"), 5)
        self.producers(url="unix:" + self.path("nothing"), status=75)

    def test_another_server_set_no_mark(self):
        sink = Sink(self)  # answers 200 to anything
        said = self.producers("--stream=s", "--set=p", "--mark=3", url=sink.url, status=75)
        self.assertIn("this is not an answer of pubsub or simplequeue", said)
        self.assertEqual(len(sink.requests), 1)

    def test_a_set_takes_the_token_and_no_page_of_another_origin(self):
        token = self.write("token", b"open-sesame\n")
        os.chmod(token, 0o600)
        pubsub = self.start("pubsub", "--data-dir=" + self.path("p"), "--auth-token-file=" + token)
        with_token = {"Authorization": "Bearer open-sesame"}
        target = "/producers?stream=s&producer=p&mark=0"
        self.assertEqual(request(pubsub.url, "POST", "/pub?stream=s&producer=p&mark=0&next=5", b"x\n", headers=with_token).status, 200)
        self.assertEqual(request(pubsub.url, "POST", target).status, 401)
        self.assertEqual(request(pubsub.url, "POST", target, headers=dict(with_token, Origin="http://evil.example")).status, 403)
        self.assertIn("token", self.producers("--stream=s", "--set=p", "--mark=0", url=pubsub.url, status=64))
        self.producers("--stream=s", "--set=p", "--mark=3", "--token-file=" + token, url=pubsub.url)
        reply = request(pubsub.url, "GET", "/producer?stream=s&producer=p", headers=with_token).json()
        self.assertEqual(reply["mark"], "3")

    def test_an_opening_has_the_letters_of_a_name(self):
        self.start_pubsub()

        def pub(**more):
            return request(self.pubsub_url, "POST", "/pub?" + query(stream="clicks", **more), b"x\n")
        longest = "n" * 64
        self.assertEqual(pub(producer=longest, mark=0, next=1, opening="0" * 64).status, 200)
        for bad in (dict(producer=longest, opening="0" * 65), dict(producer="p", opening="a b"),
                    dict(producer="p", opening="a\0b")):
            reply = pub(mark=1, next=2, **bad)
            self.assertEqual((reply.status, reply.json()["code"]), (400, "bad-parameter"))
        self.assertEqual(pub(opening="a").status, 400)
        self.assertEqual(self.listed(), [{"producer": longest, "mark": "1", "opening": "0" * 64}])

    def test_a_publish_with_a_guard(self):
        self.start_pubsub()

        def pub(body=b"x\n", **more):
            reply = request(self.pubsub_url, "POST", "/pub?" + query(stream="clicks", producer="p", **more), body)
            return reply.status, reply.json().get("code")
        self.assertEqual(pub(mark=0, next=1, guard="g", guard_mark=3), (409, "guard-conflict"))
        self.assertEqual(pub(mark=0, next=1, guard="g", guard_mark=0), (200, None))
        self.publish("g", 0, 3, b"")
        self.assertEqual(pub(mark=1, next=2, guard="g", guard_mark=0), (409, "guard-conflict"))
        self.assertEqual(pub(mark=0, next=1, guard="g", guard_mark=0), (409, "guard-conflict"))
        self.assertEqual(pub(b"", mark=1, until=1, guard="g", guard_mark=0), (409, "guard-conflict"))
        self.assertEqual(pub(b"", mark=1, until=1, guard="g", guard_mark=3), (200, None))
        self.assertEqual(pub(mark=1, next=2, guard="g", guard_mark=3), (200, None))
        self.assertEqual(pub(mark=2, next=3, guard="a b", guard_mark=3), (400, "bad-parameter"))
        era = request(self.pubsub_url, "GET", "/producer?stream=clicks&producer=p").headers["X-Millrace-Era"]
        self.assertEqual(pub(mark=2, next=3, guard="g", guard_mark=3, era="another-0"), (409, "guard-conflict"))
        self.assertEqual(pub(mark=2, next=3, guard="g", guard_mark=3, era=era), (200, None))
        self.assertEqual(pub(mark=3, next=4, era="another-0"), (200, None))
        begins = request(self.pubsub_url, "GET", "/producers?stream=clicks&begins=g").json()
        self.assertEqual([p["producer"] for p in begins["producers"]], ["g"])
        self.assertLess(abs(begins["time"] - time.time()), 3600)

    def test_an_opening_can_be_stored_without_lines(self):
        """As a relay does with a mark that an operator has set."""
        self.start_pubsub()
        self.publish("p", 0, 5, b"x\n")

        def pub(mark, next_, body=b"", **more):
            return request(self.pubsub_url, "POST", "/pub?" + query(stream="clicks", producer="p", mark=mark, next=next_, **more), body)
        self.assertEqual(pub(5, 5, opening="a").status, 200)
        self.assertEqual(self.listed(), [{"producer": "p", "mark": "5", "opening": "a"}])
        self.assertEqual(pub(6, 6, opening="b").status, 409)
        self.assertTrue(pub(4, 4, opening="b").json()["duplicate"])
        for mark, body, more in ((5, b"x\n", {"opening": "b"}), (5, b"", {}), (0, b"", {"opening": "b"})):
            self.assertEqual(pub(mark, mark, body, **more).status, 400)
        self.assertEqual(self.listed(), [{"producer": "p", "mark": "5", "opening": "a"}])
        self.assertEqual(self.stream(), b"x\n")


if __name__ == "__main__":
    harness.main()
