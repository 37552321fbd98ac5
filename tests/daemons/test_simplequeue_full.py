"""Full queues: what is refused, what goes to the overflow log, and that nothing is lost on the way unseen."""
# full: MILLRACE_ROUNDS=100
import os
import pty
import re
import resource
import select
import signal
import socket
import struct
import threading
import time

import harness
from harness import wait_until
from nng_client import Requester
from queue_test import Deep, InMemory, OnDisk, QueueTest, message, number


class Full:
    def log_lines(self, name="overflow"):
        try:
            with open(self.path(name), "rb") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []

    def overflowing(self, *args):
        return self.queue("--overflow-log=" + self.path("overflow"), *args)

    def test_the_oldest_go_to_the_log(self):
        q = self.overflowing("--max-depth=3")
        self.assertTrue(os.path.exists(self.path("overflow")), "made at the start")
        for n in range(5):
            self.expect(q.post("/put", b"m%d" % n), 200)
        self.assertEqual(self.log_lines(), [b"m0", b"m1"])
        self.assertEqual(self.expect(q.post("/mput", b"m5\nm6"), 200).header("X-Millrace-Ids"), "6-7")
        self.assertEqual(self.log_lines(), [b"m0", b"m1", b"m2", b"m3"])
        stats = q.stats()
        self.assertEqual((stats["overflow"], stats["depth"], stats["gets"]), (4, 3, 0))
        self.assertIn("overflow:4\n", q.get("/stats").text)
        self.assertEqual(self.metric(q, "overflowed_total"), 4)
        self.assertEqual(q.get("/mget?items=5").body, b"m4\nm5\nm6\n")

    def test_by_bytes(self):
        q = self.overflowing("--max-bytes=10")
        for text in (b"aaaa", b"bbbb", b"cc", b"ddddddd", b"e"):
            self.expect(q.post("/put", text), 200)
        self.assertEqual(self.log_lines(), [b"aaaa", b"bbbb"])
        self.assertEqual(q.get("/mget?items=5").body, b"cc\nddddddd\ne\n")
        self.expect(q.post("/put", b"0123456789"), 200)
        self.expect(q.post("/put", b"0123456789a"), 413, "too-large")
        self.assertEqual((self.log_lines(), q.stats()["depth"]), ([b"aaaa", b"bbbb"], 1))

    def test_a_kick_with_a_longer_body(self):
        """The limits hold for the new text; a text that is not longer always has room."""
        q = self.queue("--max-bytes=100", "--max-depth=2")
        q.post("/mput", b"old text\n" + 80 * b"x")
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?id=1&reason=why&lease=" + lease), 200)
        before = q.get("/dead").json()
        self.expect(q.post("/kick?id=1", 100000 * b"y"), 413, "too-large")
        self.expect(q.post("/kick?id=1", 21 * b"y"), 503, "queue-full")
        self.assertEqual((q.get("/dead").json(), self.numbers(q)["bytes"]), (before, 88))
        self.assertEqual(self.expect(q.post("/kick?id=1", 20 * b"y"), 200).json(), {"kicked": 1})
        self.assertEqual((q.get("/dump").body, self.numbers(q)["bytes"]), (80 * b"x" + b"\n" + 20 * b"y" + b"\n", 100))

    def test_a_kick_beyond_the_memory(self):
        q = self.queue("--max-memory=1M")
        q.post("/put", b"old")
        lease, _ = self.reserve(q, "items=1")
        self.expect(q.post("/bury?id=1&lease=" + lease), 200)
        reply = q.post("/kick?id=1", (1 << 20) * b"y")
        self.assertEqual(reply.status, 200 if isinstance(self, OnDisk) else 413, reply)

    def test_leased_messages_stay(self):
        q = self.overflowing("--max-depth=4")
        q.post("/mput", b"a\nb\nc\nd")
        lease, got = self.reserve(q, "items=2")
        self.assertEqual([m[0] for m in got], [1, 2])
        self.expect(q.post("/mput", b"e\nf\ng"), 503, "queue-full")
        self.assertEqual(self.log_lines(), [], "what cannot be enough is not begun")
        self.expect(q.post("/mput", b"e\nf"), 200)
        self.assertEqual(self.log_lines(), [b"c", b"d"])
        rest, _ = self.reserve(q, "items=2")
        self.expect(q.post("/put", b"g"), 503, "queue-full")
        self.assertEqual((self.numbers(q)["rejected"], self.metric(q, "rejected_total")), (2, 2))
        self.assertEqual(q.post("/ack?lease=%s&id=1-2" % lease).json(), {"acked": 2})
        q.post("/nack?lease=%s&id=5" % rest)
        self.expect(q.post("/mput", b"h\ni\nj"), 200)
        self.assertEqual(self.log_lines(), [b"c", b"d", b"e"])
        self.assertEqual(q.post("/ack?lease=%s&id=6" % rest).json(), {"acked": 1})

    def test_more_than_the_queue_holds_is_refused_whole(self):
        q = self.overflowing("--max-depth=3")
        q.post("/mput", b"a\nb\nc")
        self.expect(q.post("/mput", b"1\n2\n3\n4"), 413, "too-large")
        self.assertEqual((self.log_lines(), q.get("/mget?items=3").body), ([], b"a\nb\nc"))

    def test_what_could_never_be_stored_is_not_to_be_tried_again(self):
        for bound, fits, never in (("--max-depth=3", b"a\nb\nc\n", b"1\n2\n3\n4\n"), ("--max-bytes=6", b"aaa\nbbb\n", b"1234567\n")):
            for start in (self.queue, self.overflowing):
                q = start(bound)
                self.expect(q.post("/mput?queue=x", fits), 200)
                reply = self.expect(q.post("/mput?queue=x", never), 413, "too-large")
                self.assertIn("exceeds the limits of the queue", reply.json()["detail"])
                self.assertEqual(q.get("/mget?queue=x&items=5").body, fits)
                q.stop()

    def test_marks_and_retries(self):
        q = self.overflowing("--max-depth=1")
        for _ in range(2):
            self.expect(q.post("/put?producer=p&mark=0&next=1", b"a"), 200)
            self.expect(q.post("/put?producer=p&mark=1&next=2", b"b"), 200)
        self.assertEqual((self.log_lines(), q.get("/get").body), ([b"a"], b"b"))

    def test_hup_and_rotation(self):
        q = self.overflowing("--max-depth=1")
        q.post("/put", b"1")
        q.post("/put", b"2")
        os.rename(self.path("overflow"), self.path("overflow.1"))
        q.process.send_signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists(self.path("overflow")), "the log to be made again")
        q.post("/put", b"3")
        self.assertEqual((self.log_lines("overflow.1"), self.log_lines()), ([b"1"], [b"2"]))

    def test_a_log_that_fails_refuses_and_heals(self):
        os.mkdir(self.path("logs"))
        q = self.queue("--overflow-log=" + self.path("logs", "overflow"), "--max-depth=2")
        q.post("/mput", b"a\nb")
        os.rename(self.path("logs"), self.path("away"))
        reply = self.expect(q.post("/put", b"c"), 503, "queue-full")
        self.assertIn("the overflow log cannot be written", reply.json()["detail"])
        for _ in range(9):
            self.expect(q.post("/put", b"c"), 503, "queue-full")
        self.assertEqual(q.log.count("the overflow log failed: puts are refused queue=default"), 1)
        self.assertEqual(q.stats()["overflow_failures_total"], 10)
        os.rename(self.path("away"), self.path("logs"))
        self.expect(q.post("/put", b"c"), 200)
        self.assertEqual(q.log.count("the overflow log is written again queue=default"), 1)
        self.assertEqual(self.log_lines("logs/overflow"), [b"a"])
        self.assertEqual(q.get("/mget?items=3").body, b"b\nc\n")

    def test_a_full_disk_refuses(self):
        q = self.queue("--overflow-log=/dev/full", "--max-depth=1")
        self.expect(q.post("/put", b"a"), 200)
        for _ in range(2):
            self.expect(q.post("/put", b"b"), 503, "queue-full")
        self.assertEqual((q.stats()["overflow"], q.get("/get").body), (0, b"a"))

    def test_hup_tries_again_after_a_failure(self):
        """The end of the log is unknown after a failed write (/dev/full cannot be truncated), so nothing is appended until an operator
        sends SIGHUP."""
        os.symlink("/dev/full", self.path("overflow"))
        q = self.overflowing("--max-depth=1")
        self.expect(q.post("/put", b"a"), 200)
        self.expect(q.post("/put", b"b"), 503, "queue-full")
        os.remove(self.path("overflow"))
        self.expect(q.post("/put", b"b"), 503, "queue-full")
        q.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "overflow log reopened" in q.log, "the log to be opened again")
        self.expect(q.post("/put", b"b"), 200)
        self.assertEqual(self.log_lines(), [b"a"])

    def test_what_never_fits_is_told_so_behind_others_too(self):
        """Also if the put waits among puts for which room is made."""
        q = self.overflowing("--max-depth=2")
        over = threading.Event()

        def write():
            while not over.is_set():
                q.post("/put", b"x")
        threads = [threading.Thread(target=write) for _ in range(6)]
        for t in threads:
            t.start()
        replies = {q.post("/mput", b"1\n2\n3").status for _ in range(100)}
        over.set()
        for t in threads:
            t.join()
        self.assertEqual(replies, {413})

    def test_a_line_cut_short_keeps_to_itself(self):
        self.write("overflow", b"whole\ncut sho")
        q = self.overflowing("--max-depth=1")
        for text in (b"a", b"b", b"c"):
            q.post("/put", text)
        self.assertEqual(self.log_lines(), [b"whole", b"cut sho", b"a", b"b"])

    def test_nothing_is_lost_among_many(self):
        """Many put at once into a small queue that is read meanwhile: each message is in one place, in order."""
        q = self.overflowing("--max-depth=20")
        writers, each, taken = 6, 60, []

        def write(w):
            c = harness.connect(q.url)
            for n in range(each):
                c.request("POST", "/put", b"%d %d" % (w, n))
                reply = c.getresponse()
                reply.read()
                assert reply.status == 200, reply.status
            c.close()
        threads = [threading.Thread(target=write, args=(w,)) for w in range(writers)]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            taken += q.get("/mget?items=3").body.split()
            time.sleep(0.002)
        for t in threads:
            t.join()
        taken += q.get("/mget?items=100").body.split()
        logged = b" ".join(self.log_lines()).split()
        found = [tuple(map(int, p)) for p in zip(taken[::2], taken[1::2])]
        found_in_log = [tuple(map(int, p)) for p in zip(logged[::2], logged[1::2])]
        self.assertEqual(sorted(found + found_in_log), [(w, n) for w in range(writers) for n in range(each)])
        self.assertEqual(q.stats()["overflow"], len(found_in_log))
        for w in range(writers):
            for place in (found, found_in_log):
                mine = [n for writer, n in place if writer == w]
                self.assertEqual(mine, sorted(mine))

    def test_a_long_poll_is_served_while_others_overflow(self):
        q = self.overflowing("--max-depth=2")
        over = []

        def write():
            n = 0
            while not over:
                q.post("/put", b"%d" % n)
                n += 1
        t = threading.Thread(target=write)
        t.start()
        for _ in range(20):
            lease, got = self.reserve(q, "wait=30000")
            self.assertTrue(got)
            q.post("/ack?lease=%s&id=%d" % (lease, got[0][0]))
        over.append(True)
        t.join()


class MemoryTest(Full, InMemory, QueueTest):
    def test_of_all_queues_together(self):
        q = self.overflowing("--max-memory=180")
        self.expect(q.post("/follow?queue=b&reader=r"), 200)
        for _ in range(2):
            self.expect(q.post("/put?queue=a", b"a" * 40), 200)
        self.expect(q.post("/put?queue=b", b"b" * 30), 503, "queue-full")
        self.expect(q.post("/put?queue=a", b"A" * 30), 200)
        self.assertEqual(self.log_lines("overflow.a"), [b"a" * 40])
        self.assertEqual((self.log_lines(), self.numbers(q, "a")["overflow"], self.numbers(q, "b")["rejected"]),
                         ([], 1, 1))
        self.expect(q.post("/put?queue=b", b"b" * 30), 200)

    def test_reject_is_the_default_and_may_be_asked_for(self):
        for args in (("--max-depth=1",),
                     ("--max-depth=1", "--when-full=reject", "--overflow-log=" + self.path("unused"))):
            q = self.queue(*args)
            self.expect(q.post("/put", b"a"), 200)
            self.expect(q.post("/put", b"b"), 503, "queue-full")
            self.assertEqual((q.stats()["overflow"], self.numbers(q)["rejected"]), (0, 1))
        self.assertFalse(os.path.exists(self.path("unused")))

    def test_settings_that_cannot_be(self):
        bad = self.run_program("simplequeue", "--port=0", "--when-full=overflow")
        self.assertEqual(bad.returncode, 78)
        self.assertIn(b"overflow_log", bad.stderr)
        bad = self.run_program("simplequeue", "--port=0", "--overflow-log=" + self.path("no", "such"))
        self.assertEqual(bad.returncode, 78)
        self.assertIn(self.path("no", "such").encode(), bad.stderr)

    def test_what_is_no_file_is_refused_at_the_start(self):
        os.mkfifo(self.path("fifo"))
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.path("socket"))
            for name in ("fifo", "socket"):
                bad = self.run_program("simplequeue", "--port=0", "--overflow-log=" + self.path(name))
                self.assertEqual(bad.returncode, 78, bad.stderr)
                self.assertIn(self.path(name).encode(), bad.stderr)
        pipe = self.run_program("simplequeue", "--port=0", "--overflow-log=/dev/stdout")
        self.assertEqual(pipe.returncode, 78, pipe.stderr)
        self.assertIn(b"neither a file nor a character device", pipe.stderr)

    def test_a_device_takes_all_queues(self):
        """It has no offsets and nothing to sync, and FILE.NAME would be a file beside the devices."""
        mine, theirs = pty.openpty()  # a terminal: pwrite fails there
        self.addCleanup(os.close, mine)
        self.addCleanup(os.close, theirs)
        for device in ("/dev/null", os.ttyname(theirs)):
            q = self.queue("--overflow-log=" + device, "--max-depth=1")
            for text in (b"a", b"b", b"c"):
                self.expect(q.post("/put", text), 200)
                self.expect(q.post("/put?queue=x", text), 200)
            self.assertEqual((self.numbers(q)["overflow"], self.numbers(q, "x")["overflow"]), (2, 2))
            q.stop(0)
            self.assertFalse(os.path.exists(device + ".x"))
        shown = b""
        while len(shown) < len("a\r\n") * 6:
            shown += os.read(mine, 100)
        self.assertEqual(shown.replace(b"\r", b""), b"a\na\nb\nb\nc\nc\n")

    def test_a_terminal_that_takes_nothing_does_not_hold_up_a_stop(self):
        mine, theirs = pty.openpty()  # nobody reads it
        self.addCleanup(os.close, mine)
        self.addCleanup(os.close, theirs)
        q = self.queue("--overflow-log=" + os.ttyname(theirs), "--max-depth=1")
        replies = [q.post("/put", b"x" * 3000 + b"\n" * 1000) for _ in range(20)]
        self.assertEqual(replies[-1].status, 503, "the terminal has room for few of them")
        q.process.send_signal(signal.SIGTERM)
        q.process.wait(harness.PATIENCE)

    def test_a_stop_writes_what_memory_holds(self):
        q = self.overflowing()
        q.post("/mput", b"1\n2\n3\n4\n5")
        q.post("/put?queue=other", b"6")
        lease, _ = self.reserve(q, "items=3")
        q.post("/bury?lease=%s&id=1" % lease)
        q.post("/nack?lease=%s&id=2&delay=60000" % lease)
        q.stop()
        self.assertEqual(self.log_lines(), [b"3", b"4", b"5", b"2", b"1"])
        self.assertEqual(self.log_lines("overflow.other"), [b"6"])

    def test_a_stop_writes_however_much_is_delayed_or_leased(self):
        n = 3500
        q = self.overflowing()
        self.expect(q.post("/mput?delay=600000", b"\n".join(b"%d" % i for i in range(n, 2 * n))), 200)
        self.expect(q.post("/mput", b"\n".join(b"%d" % i for i in range(n))), 200)
        c = harness.connect(q.url)
        for _ in range(n):
            c.request("GET", "/reserve?lease=600000")
            self.assertTrue(c.getresponse().read())
        c.close()
        self.expect(q.post("/put?queue=late&delay=600000", b"other"), 200)
        q.stop()
        self.assertEqual(self.log_lines(), [b"%d" % i for i in range(2 * n)])
        self.assertEqual(self.log_lines("overflow.late"), [b"other"])


    def test_a_stop_that_cannot_write_says_what_is_lost(self):
        os.mkdir(self.path("logs"))
        q = self.queue("--overflow-log=" + self.path("logs", "overflow"))
        self.expect(q.post("/mput", b"1\n2"), 200)
        self.expect(q.post("/put?queue=other", b"3"), 200)
        os.rename(self.path("logs"), self.path("away"))
        q.stop(74)
        self.assertNotIn("moved the messages", q.log)
        lost = re.findall(r"messages are lost: the overflow log failed queue=(\w+) messages=(\d+) error=", q.log)
        self.assertEqual(sorted(lost), [("default", "2"), ("other", "1")])

    def test_a_stop_says_what_is_kept_and_what_is_lost(self):
        q = self.overflowing()
        self.expect(q.post("/mput", b"1\n2"), 200)
        self.expect(q.post("/put?queue=other", b"3"), 200)
        os.mkdir(self.path("overflow.other"))
        q.stop(74)
        self.assertEqual(self.log_lines(), [b"1", b"2"])
        self.assertRegex(q.log, "moved the messages of the queue to the overflow log queue=default messages=2")
        self.assertNotRegex(q.log, "moved the messages of the queue to the overflow log queue=other")
        self.assertRegex(q.log, "messages are lost: the overflow log failed queue=other messages=1 ")

    def test_a_file_past_its_limit_is_no_kill(self):
        q = self.overflowing("--max-depth=1")
        self.expect(q.post("/put", b"a"), 200)
        limits = resource.prlimit(q.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(q.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        self.expect(q.post("/put", b"b"), 503, "queue-full")
        resource.prlimit(q.pid, resource.RLIMIT_FSIZE, limits)
        self.expect(q.post("/put", b"b"), 200)
        self.assertEqual(self.log_lines(), [b"a"])


class DiskTest(Full, OnDisk, QueueTest):
    def test_a_batch_that_the_log_takes_after_the_drain_timed_out(self):
        """The stop waits for the log's thread, and the removal of the batch is committed behind it."""
        mine, theirs = pty.openpty()
        self.addCleanup(os.close, mine)
        self.addCleanup(os.close, theirs)
        q = self.queue("--overflow-log=" + os.ttyname(theirs), "--max-depth=1", "--drain-timeout=100ms")
        text = b"x" * 3000 + b"\n" * 20000  # more than a terminal holds
        self.expect(q.post("/put", text), 200)
        with socket.create_connection(("127.0.0.1", int(q.url.rsplit(":", 1)[1])), harness.PATIENCE) as c:
            c.sendall(b"POST /put HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\ny")
            wait_until(lambda: select.select([mine], [], [], 0)[0], "the batch to be written")
            q.process.terminate()
            self.assertEqual(c.recv(1), b"", "closed without a reply: the drain timed out")
        shown = b""
        while len(shown.replace(b"\r", b"")) < len(text) + 1:
            shown += os.read(mine, 65536)
        q.stop(75)
        self.assertEqual(self.queue("--max-depth=1").stats()["depth"], 0)

    def test_a_journal_past_its_limit_is_no_kill(self):
        q = self.queue("--segment-bytes=64K")
        self.expect(q.post("/put?queue=a", b"one"), 200)
        limits = resource.prlimit(q.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(q.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        refused = self.expect(q.post("/put?queue=b", b"x"), 503, "storage-failed")
        self.assertIn("File too large", refused.json()["detail"])
        self.expect(q.post("/put?queue=a", b"two"), 503, "storage-failed")
        self.assertEqual(q.get("/ping").status, 200)
        q.kill9()
        q = self.queue("--segment-bytes=64K")
        self.assertEqual(self.numbers(q, "a")["depth"], 1)
        self.expect(q.post("/put?queue=a", b"two"), 200)
        self.expect(q.post("/put?queue=b", b"y"), 200)

    def test_looking_goes_on_when_storage_failed(self):
        """After a failed write of one queue, all queues give out and change nothing any more."""
        url = "ipc://" + self.path("socket")
        q = self.queue("--segment-bytes=64K", "--nng-listen=" + url)
        self.expect(q.post("/put?queue=a&producer=p&mark=0&next=7", b"bad"), 200)
        lease, _ = self.reserve(q, "queue=a")
        self.expect(q.post("/bury?queue=a&lease=%s&id=1&reason=why" % lease), 200)
        self.expect(q.post("/put?queue=a", b"one"), 200)
        self.expect(q.post("/put?queue=b", b"other"), 200)
        waited = []
        waiter = threading.Thread(target=lambda: waited.append(q.get("/reserve?queue=w&wait=%d" % (1000 * harness.LONG)).body))
        waiter.start()
        wait_until(lambda: q.stats()["waiting"] == 1, "it to wait")
        limits = resource.prlimit(q.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(q.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        refused = self.expect(q.post("/put?queue=a", b"two"), 503, "storage-failed")
        waiter.join()
        self.assertEqual(waited, [b""])
        resource.prlimit(q.pid, resource.RLIMIT_FSIZE, limits)  # nobody knows what it loses next
        nng = Requester(url)
        self.addCleanup(nng.close)
        for name in (b"b", b"new"):
            self.assertEqual(nng.ask(b"queue=" + name + b"\nx")["code"], "not-ready")
        self.assertNotIn("new", q.stats()["queues"])
        self.expect(q.get("/health"), 503)
        self.assertEqual(self.expect(q.get("/dump?queue=a"), 200).body, b"one\n")
        self.assertEqual(self.expect(q.get("/dump?queue=b"), 200).body, b"other\n")
        self.assertEqual(self.expect(q.get("/dead?queue=a"), 200).json()["buried"][0]["message"], "bad")
        self.assertEqual(self.expect(q.get("/producer?queue=a&producer=p"), 200).json()["mark"], "7")
        self.assertEqual((self.numbers(q, "a")["depth"], self.numbers(q, "b")["depth"]), (1, 1))
        for name in ("a", "b"):
            for target in ("/put", "/mput", "/get", "/mget", "/reserve", "/release", "/follow?reader=r", "/unfollow", "/kick", "/ack?lease=1&id=1"):
                target += ("&" if "?" in target else "?") + "queue=" + name
                self.expect(q.post(target, b"x"), 503, "not-ready")
        self.assertIn("this put may be stored nevertheless", refused.json()["hint"])

    def test_storage_that_fails_while_queues_are_opened_is_no_readiness(self):
        """Opening a queue writes to its file."""
        q = self.queue()
        self.expect(q.post("/put", b"x" * 9000), 200)
        q.stop()
        size = os.path.getsize(self.path("data/queues/default/0000000000000001.seg"))
        script = self.path("limited")
        with open(script, "w") as f:
            f.write("#!/bin/sh\nexec prlimit --fsize=%d %s \"$@\"\n" % (size, harness.program("simplequeue")))
        os.chmod(script, 0o700)
        q = harness.Daemon(self, script, "--data-dir=" + self.path("data"), "--sync=never")
        q.wait_listening()
        wait_until(lambda: "storage failed" in q.log and q.get("/dump").status == 200, lambda: q.log)
        self.expect(q.get("/health"), 503)
        self.expect(q.post("/reserve"), 503, "not-ready")

    def test_a_stop_writes_nothing(self):
        q = self.overflowing()
        q.post("/mput", b"1\n2")
        q.post("/put?delay=60000", b"3")
        q.stop()
        self.assertEqual(self.log_lines(), [])
        q = self.overflowing()
        self.assertEqual((self.numbers(q)["ready"], self.numbers(q)["delayed"]), (2, 1))

    def test_puts_that_are_being_committed_are_waited_for(self):
        """Such messages cannot be evicted yet, so other puts wait, and none is refused."""
        q = self.start("simplequeue", "--data-dir=" + self.path("data"), "--sync=100", "--max-depth=1",
                       "--overflow-log=" + self.path("overflow"))
        replies = []
        threads = [threading.Thread(target=lambda n=n: replies.append(q.post("/put", b"%d" % n).status))
                   for n in range(5)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(replies, [200] * 5)
        self.assertEqual(sorted(self.log_lines() + [q.get("/get").body]), [b"%d" % n for n in range(5)])

    def test_a_client_that_leaves_while_it_waits_evicts_nothing(self):
        """Its put leaves the line: no room is made for it, and the put behind it is next."""
        harness.slower_and_slower(0.5, self.leaves_the_line)

    def leaves_the_line(self, seconds):
        data = "data-%g" % seconds
        q = self.start("simplequeue", "--data-dir=" + self.path(data), "--sync=%d" % (seconds * 1000), "--max-depth=1",
                       "--overflow-log=" + self.path("overflow"))
        self.expect(q.post("/put", b"first"), 200)
        self.assertEqual(q.get("/get").body, b"first")
        puts = [harness.connect(q.url) for _ in range(2)]
        for text, c in zip((b"kept", b"gone"), puts):
            c.connect()  # a turn handles all that was read at once: with the reply to the ping the put waits
            c.sock.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
                           b"POST /put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n" + text)
            self.assertIn(b"OK", c.sock.recv(4096))
        puts[1].sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        puts[1].close()
        self.assertTrue(puts[0].sock.recv(4096).startswith(b"HTTP/1.1 200 "))
        puts[0].close()
        wait_until(lambda: q.stats()["depth"] == 1, "the put to be stored")
        q.stop()
        self.assertEqual(self.log_lines(), [])

    def test_kill9_loses_nothing(self):
        """Each acknowledged message is in the queue or in the log, whenever the daemon is killed. Some may be in both."""
        random = harness.seeded()
        acknowledged = []

        def write(q, round_, w):
            try:
                for n in range(10000):
                    text = b"%d.%d.%d" % (round_, w, n)
                    if q.post("/put", text).status == 200:
                        acknowledged.append(text)
            except harness.UNREACHABLE:
                pass
        for round_ in range(harness.rounds(2)):
            q = self.overflowing("--max-depth=10")
            threads = [threading.Thread(target=write, args=(q, round_, w)) for w in range(3)]
            before = len(acknowledged)
            for t in threads:
                t.start()
            wait_until(lambda: len(acknowledged) >= before + 25, "it to overflow")
            time.sleep(random.uniform(0, 0.25))
            q.kill9()
            for t in threads:
                t.join()
        q = self.overflowing("--max-depth=10")
        there = set(self.log_lines()) | set(q.get("/mget?items=100").body.split())
        self.assertEqual(set(acknowledged) - there, set())
        self.assertGreater(len(self.log_lines()), 10)


class DeepFullTest(Deep):
    def overflow(self, *bounds):
        """The first half of the messages is in the log, the other half in the queue, although most messages were only on disk."""
        n, log = 20000, self.path("overflow")
        q = self.queue("--max-memory=1M", "--overflow-log=" + log, *bounds)
        self.fill(q, 0, n // 2)
        self.fill(q, n // 2, n - 5000, each=100)
        self.fill(q, n - 5000, n, each=5000)
        with open(log, "rb") as f:
            self.assertEqual([number(m) for m in f.read().splitlines()], list(range(n // 2)))
        self.assertEqual((q.stats()["overflow"], q.stats()["depth"]), (n // 2, n // 2))
        self.drain(q, n // 2, n)

    def lowered(self, memory, *bounds):
        """After a restart with a bound far below the messages of the queue, the first put moves all messages over the bound to the log, in
        parts. A move that cannot make enough room does not begin."""
        n, log = 30000, self.path("overflow")
        q = self.queue("--max-memory=" + memory)
        self.fill(q, 0, n)
        q.kill9()
        q = self.queue("--max-memory=" + memory, "--overflow-log=" + log, *bounds)
        lease, got = self.reserve(q, "items=150&lease=600000")
        self.expect(q.post("/put", message(n)), 503, "queue-full")
        with open(log, "rb") as f:
            self.assertEqual(f.read(), b"")
        self.assertEqual(q.post("/nack?lease=%s&id=1-100" % lease).json(), {"nacked": 100})
        self.expect(q.post("/put", message(n)), 200)
        with open(log, "rb") as f:
            gone = [number(m) for m in f.read().splitlines()]
        self.assertEqual(gone, list(range(100)) + list(range(150, n - 49)))
        self.assertEqual((q.stats()["overflow"], q.stats()["depth"]), (len(gone), 100))
        self.assertEqual(q.post("/release").json()["released"], 50)
        left = [number(m) for m in q.get("/mget?items=101").body.split(b"\n")[:-1]]
        self.assertEqual(left, list(range(100, 150)) + list(range(n - 49, n + 1)))

    def test_a_lower_bound_by_number(self):
        self.lowered("1M", "--max-depth=100")

    def test_a_lower_bound_by_bytes(self):
        self.lowered("1M", "--max-bytes=%d" % (450 * 100))

    def test_a_lower_bound_in_memory(self):
        self.lowered("1G", "--max-depth=100")

    def test_a_log_that_fails_in_the_middle_of_it(self):
        """The put is refused, the failure is counted once, and all messages stay in their places."""
        n = 30000
        q = self.queue()
        self.fill(q, 0, n)
        q.kill9()
        q = self.queue("--overflow-log=/dev/full", "--max-depth=100")
        self.expect(q.post("/put", b"x"), 503, "queue-full")
        self.assertEqual(q.stats()["overflow_failures_total"], 1)
        self.drain(q, 0, n)

    def test_messages_on_disk_overflow_by_number(self):
        self.overflow("--max-depth=10000")

    def test_messages_on_disk_overflow_by_bytes(self):
        self.overflow("--max-bytes=%d" % (450 * 10000))


if __name__ == "__main__":
    harness.main()
