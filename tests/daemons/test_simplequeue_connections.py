"""Many clients of simplequeue at once, most of them of no use: the others are served, and what is too much is refused."""
import json
import os
import re
import resource
import socket
import threading

import harness
from harness import wait_until
from queue_test import InMemory, OnDisk, QueueTest, reserved


IDLE = 10000


class ConnectionsTest(InMemory, QueueTest):
    def connection(self, q):
        s = socket.create_connection(("127.0.0.1", int(q.url.rsplit(":", 1)[1])), harness.PATIENCE)
        self.addCleanup(s.close)
        return s

    def connections(self, q, n, text=b""):
        sockets = [self.connection(q) for _ in range(n)]
        for s in sockets:
            s.sendall(text)
        return sockets

    def slow_headers(self, sockets, over):
        """Sends bytes one by one, which never become a request."""
        while not over.wait(0.05):
            for s in sockets:
                try:
                    s.sendall(b"X")
                except OSError:
                    pass

    def need_files(self):
        """Raises the limit of open files for IDLE connections of this process and of the daemon, or skips the test."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = IDLE + 1000
        if hard != resource.RLIM_INFINITY and hard < needed:
            self.skipTest("%d connections need %d open files, and there may be %d (ulimit -Hn)" % (IDLE, needed, hard))
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

    def turns(self, q, n):
        """A put and a get of what was put, n times."""
        c = harness.connect(q.url)
        for i in range(n):
            c.request("POST", "/put", b"%d" % i)
            self.assertEqual(c.getresponse().read(), b"")
            c.request("GET", "/get")
            self.assertEqual(c.getresponse().read(), b"%d" % i)
        c.close()

    def test_the_others_are_served(self):
        """The other clients neither leave nor get a reply meanwhile, and their connections stay open."""
        self.need_files()
        q = self.queue("--max-mget=1000", "--header-timeout=1h")  # the idle are there to the end, however slow the machine
        big = b"\n".join([b"x" * 1000000] * 8)
        for _ in range(5):
            q.post("/mput?queue=big", big)
        idle = self.connections(q, IDLE)
        waiting = self.connections(q, 200, b"GET /reserve?queue=none&wait=600000 HTTP/1.1\r\nHost: x\r\n\r\n")
        deaf = self.connections(q, 20, b"GET /dump?queue=big HTTP/1.1\r\nHost: x\r\n\r\n")
        slow = self.connections(q, 100, b"GET /get HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        over = threading.Event()
        dribble = threading.Thread(target=self.slow_headers, args=(slow, over))
        dribble.start()
        wait_until(lambda: q.stats()["waiting"] == 200, "all of them to wait")
        self.turns(q, 500)
        stats = q.stats()
        over.set()
        dribble.join()
        self.assertEqual(stats["waiting"], 200)
        self.assertGreater(stats["http_connections"], IDLE + 200)
        self.assertEqual([len(c) for c in (idle, waiting, deaf, slow)], [IDLE, 200, 20, 100])

    def test_each_who_waits_gets_one(self):
        q = self.queue()
        replies, lock = [], threading.Lock()

        def wait_for_one():
            reply = q.get("/reserve?wait=60000&reader=r")
            with lock:
                replies.extend(reserved(reply))
        threads = [threading.Thread(target=wait_for_one) for _ in range(200)]
        for t in threads:
            t.start()
        wait_until(lambda: q.stats()["waiting"] == 200, "all of them to wait")
        q.post("/mput", b"\n".join(b"%d" % n for n in range(200)))
        for t in threads:
            t.join()
        self.assertEqual(sorted(m[0] for m in replies), list(range(1, 201)))

    def test_connections_beyond_the_bound_are_refused_politely(self):
        q = self.queue("--max-connections=10")
        held = self.connections(q, 10)
        refused = self.connection(q)
        refused.sendall(b"GET /get HTTP/1.1\r\nHost: x\r\n\r\n")
        head = refused.recv(10000)
        self.assertTrue(head.startswith(b"HTTP/1.1 503 "), head)
        self.assertIn(b"Retry-After: ", head)
        for s in held[:3]:
            s.close()
        wait_until(lambda: self.alive(q), "there to be room again")

    def alive(self, q):
        try:
            return q.get("/ping").status == 200
        except harness.UNREACHABLE:
            return False


class DescriptorsTest(OnDisk, QueueTest):
    def test_without_one_a_new_queue_is_refused_by_that_name(self):
        """No other request is refused: existing queues take messages, and new queues are made once a descriptor is free again."""
        q = self.queue()
        self.expect(q.post("/put?queue=a", b"one"), 200)
        c = harness.connect(q.url)
        self.addCleanup(c.close)

        def post(target, body):
            c.request("POST", target, body)
            reply = c.getresponse()
            return reply.status, reply.headers["Retry-After"], reply.read()
        self.assertEqual(post("/put?queue=a", b"two")[0], 200)
        limits = resource.prlimit(q.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(q.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        status, again, problem = post("/put?queue=b", b"x")
        self.assertEqual((status, again, json.loads(problem)["code"]), (503, "1", "out-of-descriptors"))
        self.assertEqual(post("/put?queue=a", b"three")[0], 200)
        resource.prlimit(q.pid, resource.RLIMIT_NOFILE, limits)
        self.expect(q.post("/put?queue=b", b"y"), 200)
        self.assertEqual(q.get("/health").status, 200)
        self.assertEqual(q.get("/mget?queue=a&items=9").body.split(b"\n"), [b"one", b"two", b"three", b""])
        self.assertEqual(q.get("/get?queue=b").body, b"y")

    def limited(self, files, *args):
        """A queue that may have so many open files, from its start on."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        argv = harness.program("simplequeue")
        script = self.path("limited-%d" % files)
        with open(script, "w") as f:
            f.write("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n" % (files, argv))
        os.chmod(script, 0o700)
        q = harness.Daemon(self, script, "--data-dir=" + self.path("data"), "--sync=never", *args)
        return q.wait_ready()

    LACK = " error simplequeue cannot create queues: requests that need a new queue are refused "

    def test_a_limit_with_room_for_no_queue(self):
        """The start says so, and the first put that is refused, once; and so does /metrics."""
        q = self.limited(32)
        self.assertRegex(q.log, r"warn simplequeue the limit of open files is too low for max_queues: .* max_queues=1000 "
                                r"room_for=0 limit_wanted=\d+")
        for _ in range(3):
            self.expect(q.post("/put", b"x"), 503, "out-of-descriptors")
        self.assertEqual(q.log.count(self.LACK), 1, q.log)
        self.assertRegex(q.log, self.LACK + "queue=default error=\"out of file descriptors\" hint=.*LimitNOFILE")
        self.assertEqual((q.stats()["queues_unmade_total"], q.stats()["limit_queues"]), (3, 0))

    def test_a_lack_is_told_once_until_it_is_over(self):
        q = self.queue("--max-queues=3")
        limits = resource.prlimit(q.pid, resource.RLIMIT_NOFILE)
        c = harness.connect(q.url)
        self.addCleanup(c.close)

        def put(name):
            c.request("POST", "/put?queue=" + name, b"x")
            reply = c.getresponse()
            reply.read()
            return reply.status
        self.assertEqual(put("first"), 200, "the connection is there")
        for round_, name in enumerate(("a", "b")):
            resource.prlimit(q.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
            self.assertEqual([put(name), put(name)], [503, 503])
            resource.prlimit(q.pid, resource.RLIMIT_NOFILE, limits)
            self.assertEqual(put(name), 200)
            self.assertEqual(q.log.count(self.LACK), round_ + 1, q.log)
            self.assertEqual(q.log.count(" info simplequeue queues can be created again"), round_ + 1, q.log)
        self.assertEqual([put("c"), put("c")], [503, 503])
        self.assertEqual(q.log.count(self.LACK), 3, q.log)
        self.assertIn("max_queues is reached", q.log)

    def test_limits_that_were_asked_for_and_are_too_high(self):
        args = ("--max-queues=25", "--max-connections=100")
        q = self.limited(128, *args)
        said = re.search(r"too low for max_queues.* max_queues=25 room_for=20 limit_wanted=(\d+)", q.log)
        self.assertTrue(said, q.log)
        connections = re.search(r"fewer connections than max_connections.* max_connections=100 room_for=96 limit_wanted=(\d+)", q.log)
        self.assertTrue(connections, q.log)
        q.stop()
        q = self.limited(int(connections[1]) - 1, *args)
        self.assertIn("fewer connections than max_connections", q.log)
        q.stop()
        q = self.limited(max(int(said[1]), int(connections[1])), *args)
        self.assertNotIn("limit_wanted", q.log)

    def make_queues(self, q, n):
        for i in range(n):
            reply = q.post("/put?queue=q%d" % i, b"x")
            if reply.status != 200:
                self.expect(reply, 503, "out-of-descriptors")
                return i
        return n

    def test_queues_leave_connections_their_descriptors(self):
        """Also after a restart, when they are opened before anybody connects."""
        q = self.limited(128)
        made = self.make_queues(q, 60)
        self.assertGreater(made, 5)
        self.assertLess(made, 60)
        self.assertEqual(len(q.stats()["queues"]), made)
        self.expect(q.post("/put?queue=q0", b"y"), 200)
        q.stop()
        q = self.limited(128)
        self.assertNotIn("limit_needed", q.log)
        held = [harness.connect(q.url) for _ in range(24)]
        for c in held:
            self.addCleanup(c.close)
            c.request("GET", "/ping")
            reply = c.getresponse()
            self.assertEqual((reply.status, reply.read()), (200, b"OK"))
        self.expect(q.post("/put?queue=more", b"x"), 503, "out-of-descriptors")
        self.expect(q.post("/put?queue=q0", b"z"), 200)

    def test_too_many_queues_for_the_descriptors_are_told_at_the_start(self):
        q = self.queue()
        self.assertEqual(self.make_queues(q, 25), 25)
        q.stop()
        q = self.limited(128)
        told = re.search(r"queues=25 room_for=(\d+) limit_needed=(\d+)", q.log)
        self.assertTrue(told, q.log)
        self.assertIn("LimitNOFILE", q.log)
        self.assertLess(int(told[1]), 25)
        self.expect(q.post("/put?queue=q19", b"x"), 200)
        q.stop()
        q = self.limited(int(told[2]))
        self.assertNotIn("limit_needed", q.log)
        q.stop()
        q = self.limited(int(told[2]) - 3)
        self.assertIn("limit_needed=" + told[2], q.log)


if __name__ == "__main__":
    harness.main()
