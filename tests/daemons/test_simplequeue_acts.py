"""What an operator does to simplequeue: pause, empty, exit, reset; and puts that wait. Who may is asked for each."""
import os
import shutil
import threading
import time

import harness
from harness import wait_until
from queue_test import InMemory, OnDisk, QueueTest, reserved

ACTS = ("/pause", "/empty", "/exit", "/stats?reset=1")


class Acts:
    def test_acts_are_refused_unless_allowed(self):
        q = self.queue()
        q.post("/put", b"x")
        for act in ACTS:
            for method in ("GET", "POST"):
                with self.subTest(method + act):
                    if method == "GET" and act in ("/pause", "/empty"):
                        self.expect(q.get(act), 405, "method-not-allowed")
                    elif not (method == "POST" and "stats" in act):
                        self.expect(harness.request(q.url, method, act), 403, "forbidden")
        self.assertEqual(self.numbers(q)["puts"], 1)
        self.assertEqual(q.get("/get").body, b"x")

    def test_what_drops_nothing_is_no_act(self):
        """Who may read a queue may look at it and have its buried messages tried again."""
        q = self.queue()
        q.post("/mput", b"a\nb")
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?lease=%s&id=1" % lease), 200)
        self.assertEqual(len(self.expect(q.get("/dead"), 200).json()["buried"]), 1)
        self.assertEqual(self.expect(q.get("/dump"), 200).body, b"b\n")
        self.assertEqual(self.expect(q.post("/kick"), 200).json(), {"kicked": 1})
        self.assertEqual(q.get("/mget?items=2").body, b"b\na")

    def test_a_token_opens_them(self):
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        q = self.daemon("simplequeue", "--auth-token-file=" + token, *self.place()).wait_listening()
        bearer = {"Authorization": "Bearer secret"}
        wait_until(lambda: q.get("/health").status == 200, "it to be ready")
        for act in ACTS:
            self.expect(harness.request(q.url, "GET" if "stats" in act else "POST", act), 401, "unauthorized")
        self.expect(q.post("/put", b"x", headers=bearer), 200)
        self.expect(q.get("/stats?reset=1", headers=bearer), 200)
        self.assertEqual(q.post("/pause", headers=bearer).json(), {"paused": True})
        self.assertEqual(q.post("/empty", headers=bearer).json(), {"dropped": 1})
        self.expect(q.post("/exit", headers=bearer), 200)
        self.assertEqual(q.process.wait(harness.PATIENCE), 0)

    def test_exit_finishes_what_is_in_flight(self):
        q = self.queue("--allow-exit")
        replies = []
        t = threading.Thread(target=lambda: replies.append(q.get("/reserve?wait=60000")))
        t.start()
        wait_until(lambda: q.stats()["waiting"] == 1, "it to wait")
        self.expect(q.get("/exit"), 200)
        t.join()
        self.assertEqual((replies[0].status, replies[0].body), (200, b""))
        self.assertEqual(q.process.wait(harness.PATIENCE), 0)

    def test_pause_holds_back_and_nothing_else(self):
        q = self.queue("--allow-exit")
        q.post("/mput", b"a\nb\nc")
        lease, _ = self.reserve(q, "items=2")
        self.assertEqual(q.post("/pause").json(), {"paused": True})
        self.expect(q.post("/put", b"d"), 200)
        for target in ("/get", "/mget?items=5", "/reserve?wait=20"):
            self.assertEqual(self.expect(q.get(target), 200).body, b"")
        self.assertEqual(q.post("/ack?lease=%s&id=1" % lease).json(), {"acked": 1})
        self.assertEqual(q.post("/nack?lease=%s&id=2" % lease).json(), {"nacked": 1})
        self.assertEqual(q.get("/dump").body, b"b\nc\nd\n")
        self.assertEqual((self.numbers(q)["paused"], self.metric(q, "queue_paused")), (1, 1))
        self.assertIn("default.paused:1\n", q.get("/stats").text)
        replies = []
        t = threading.Thread(target=lambda: replies.append(q.get("/reserve?wait=60000&items=5")))
        t.start()
        wait_until(lambda: q.stats()["waiting"] == 1, "it to wait")
        self.assertEqual(q.post("/pause?for=0").json(), {"paused": False})
        t.join()
        self.assertEqual([m[0] for m in reserved(replies[0])], [2, 3, 4])
        self.assertEqual(self.numbers(q)["paused"], 0)

    def test_pause_ends_by_itself(self):
        q = self.queue("--allow-exit")
        self.assertEqual(q.post("/pause?for=300000&queue=new").json(), {"paused": True})
        q.post("/put?queue=new", b"a")
        self.assertEqual(q.get("/get?queue=new").body, b"")
        began = time.monotonic()
        self.assertEqual(q.post("/pause?for=200&queue=new").json(), {"paused": True})
        self.assertEqual(reserved(q.get("/reserve?queue=new&wait=30000")), [(1, 1, b"a")])
        self.assertGreaterEqual(time.monotonic() - began, 0.2)
        self.assertEqual(self.numbers(q, "new")["paused"], 0)
        for bad in ("-1", "x", "", "99999999999999"):
            self.expect(q.post("/pause?for=" + bad), 400, "bad-parameter")

    def test_a_lease_that_expires_in_a_pause_returns_and_waits(self):
        q = self.queue("--allow-exit")
        q.post("/put", b"a")
        self.reserve(q, "lease=50")
        q.post("/pause")
        wait_until(lambda: self.numbers(q)["ready"] == 1, "the lease to end")
        self.assertEqual(q.get("/reserve").body, b"")
        q.post("/pause?for=0")
        self.assertEqual(self.reserve(q, "items=1")[1], [(1, 2, b"a")])

    def test_empty_drops_what_is_ready(self):
        q = self.queue("--allow-exit", "--max-mget=100")
        many = 25000
        q.post("/mput", b"\n".join(b"%d" % n for n in range(many)))
        lease, _ = self.reserve(q, "items=3")
        q.post("/bury?lease=%s&id=2" % lease)
        q.post("/nack?lease=%s&id=3&delay=60000" % lease)
        q.post("/put?queue=other", b"stays")
        self.assertEqual(self.expect(q.post("/empty"), 200).json(), {"dropped": many - 3})
        self.assertEqual(q.post("/empty").json(), {"dropped": 0})
        self.assertEqual(q.post("/empty?queue=none").json(), {"dropped": 0})
        numbers = self.numbers(q)
        self.assertEqual((numbers["ready"], numbers["leased"], numbers["delayed"], numbers["buried"]), (0, 1, 1, 1))
        self.assertEqual((numbers["gets"], numbers["next_id"]), (3, str(many + 1)))
        self.assertEqual(q.post("/ack?lease=%s&id=1" % lease).json(), {"acked": 1})
        self.assertEqual(q.post("/put", b"next").header("X-Millrace-Id"), str(many + 1))
        self.assertEqual(q.get("/get").body, b"next")
        self.assertEqual(q.get("/get?queue=other").body, b"stays")

    def test_reset(self):
        q = self.queue("--allow-exit")
        q.post("/mput", b"a\nb\nc")
        q.get("/mget?items=2")
        self.reserve(q, "lease=20")
        wait_until(lambda: self.numbers(q)["expired"] == 1, "the lease to end")
        stats = q.get("/stats?reset=1&format=json").json()
        self.assertEqual([stats[k] for k in ("puts", "gets", "depth", "depth_high_water", "bytes")], [0, 0, 1, 1, 1])
        q.post("/put", b"d")
        text = q.get("/stats?reset=0").text
        for line in ("puts:1\n", "gets:0\n", "depth:2\n", "depth_high_water:2\n"):
            self.assertIn(line, text)
        self.expect(q.get("/stats?reset=2"), 400, "bad-parameter")
        for slip in ("Reset=1", "RESET=1", "rest=1", "FORMAT=json"):
            self.expect(q.get("/stats?" + slip), 400, "unknown-parameter")
        self.expect(q.get("/stats?_=1&format=text&format=json"), 200)
        for name, value in (("messages_put", 4), ("messages_got", 3), ("leases_expired", 1)):
            self.assertEqual(self.metric(q, name + "_total"), value, "what Prometheus sees never goes back")
        self.assertIn("\n# TYPE millrace_simplequeue_messages_put_total counter\n", q.get("/metrics").text)

    def test_what_is_moved_is_not_counted_twice(self):
        q = self.queue()
        self.expect(q.post("/mput?delay=100", b"a\nb\nc"), 200)
        wait_until(lambda: self.numbers(q)["ready"] == 3, "the delay to end")
        self.assertEqual((self.numbers(q)["depth"], self.numbers(q)["depth_high_water"]), (3, 3))
        self.expect(q.post("/put?queue=k", b"x"), 200)
        lease, _ = self.reserve(q, "queue=k")
        self.expect(q.post("/bury?queue=k&lease=%s&id=1" % lease), 200)
        self.assertEqual(q.post("/kick?queue=k").json(), {"kicked": 1})
        self.assertEqual((self.numbers(q, "k")["depth"], self.numbers(q, "k")["depth_high_water"]), (1, 1))

    def test_a_delayed_put(self):
        q = self.queue()
        q.post("/mput?delay=60000&producer=p&mark=0&next=2", b"x\ny")
        again = q.post("/mput?delay=60000&producer=p&mark=0&next=2", b"x\ny")
        self.assertEqual(again.header("X-Millrace-Duplicate"), "1")
        self.expect(q.post("/put", b"now"), 200)
        self.assertEqual(q.get("/get").body, b"now")
        self.assertEqual((self.numbers(q)["delayed"], q.stats()["depth"]), (2, 2))
        self.assertEqual(q.post("/put?delay=300", b"late").header("X-Millrace-Id"), "4")
        self.assertEqual(self.reserve(q, "wait=30000")[1], [(5, 1, b"late")])
        for bad in ("-1", "x", "99999999999999"):
            self.expect(q.post("/put?delay=" + bad, b"x"), 400, "bad-parameter")


class MemoryTest(Acts, InMemory, QueueTest):
    def place(self):
        return []


class DiskTest(Acts, OnDisk, QueueTest):
    def place(self):
        return ["--data-dir=" + self.path("data")]

    def test_the_high_water_begins_again_at_the_depth(self):
        q = self.queue()
        self.expect(q.post("/mput", b"a\nb\nc"), 200)
        self.assertEqual(q.get("/mget?items=2").body, b"a\nb")
        self.assertEqual(self.numbers(q)["depth_high_water"], 3)
        q.stop()
        self.assertEqual(self.numbers(self.queue())["depth_high_water"], 1)

    def test_what_is_no_queue_is_passed_over(self):
        q = self.queue()
        self.expect(q.post("/put?queue=kept", b"x"), 200)
        q.stop()
        open(self.path("data", "queues", "stray"), "w").close()
        q = self.queue()
        self.assertEqual(list(q.stats()["queues"]), ["kept"])
        self.assertIn("ignored a file in the directory of the queues name=stray", q.log)

    def test_a_queue_is_removed_with_its_directory(self):
        q = self.queue("--max-queues=2")
        self.expect(q.post("/put?queue=a", b"x"), 200)
        before = q.post("/put?queue=b", b"x").header("X-Millrace-Queue-Id")
        self.assertIn("delete the directory of a queue", self.expect(q.post("/put?queue=c", b"x"), 503, "too-many-queues").json()["hint"])
        q.stop()
        shutil.rmtree(self.path("data", "queues", "b"))
        q = self.queue("--max-queues=2")
        self.assertEqual(list(q.stats()["queues"]), ["a"])
        self.assertNotEqual(self.expect(q.post("/put?queue=b", b"y"), 200).header("X-Millrace-Queue-Id"), before)

    def test_a_restart_keeps_delayed_puts_and_what_was_emptied(self):
        q = self.queue("--allow-exit")
        q.post("/mput", b"a\nb")
        self.assertEqual(q.post("/empty").json(), {"dropped": 2})
        q.post("/put?delay=86400000", b"tomorrow")
        q.post("/put?delay=1200", b"late")
        q.post("/pause")
        q = self.again(q)
        numbers = self.numbers(q)
        self.assertEqual((numbers["ready"] + numbers["delayed"], numbers["paused"]), (2, 0))
        self.assertEqual(self.reserve(q, "wait=30000")[1], [(5, 1, b"late")])
        q = self.again(q)
        self.assertEqual((self.numbers(q)["delayed"], self.numbers(q)["next_id"]), (1, "6"))


if __name__ == "__main__":
    harness.main()
