"""What a client written for bitly's simplequeue sees: its command line, its endpoints asked as its clients ask them, its
numbers, its overflow log. Every expectation is what the original answers, but where that is a fault of it."""
import os
import signal
import urllib.parse

import harness
from harness import Daemon, wait_until
from queue_test import QueueTest


class BitlyTest(QueueTest):
    def original(self, *args):
        """Started as people start the original: underscores, values as words of their own."""
        argv = ["--enable_logging", "--address", "127.0.0.1", "--port", "0", "--allow-exit", *args]
        return Daemon(self, "simplequeue", *argv, port=False).wait_ready()

    def fetch(self, q, endpoint, params=None, body=None, status=200):
        """A request as in the tests of the original: urlencoded parameters, and POST if there is a body."""
        target = endpoint + ("?" + urllib.parse.urlencode(params) if params else "")
        reply = q.post(target, body) if body else q.get(target)
        self.assertEqual(reply.status, status, reply)
        return reply.body

    def numbers(self, q):
        """The numbers of /stats, which must be the same as text and as JSON."""
        text = dict(line.split(":", 1) for line in self.fetch(q, "/stats").decode().splitlines())
        json = q.get("/stats?format=json").json()
        names = ("puts", "gets", "depth", "depth_high_water", "bytes", "overflow")
        self.assertEqual(tuple(text)[:6], names, "the lines of the original come first, in its order")
        self.assertEqual([int(text[n]) for n in names], [json[n] for n in names])
        return {n: json[n] for n in names}

    def test_what_its_own_test_does(self):
        q = self.original()
        self.fetch(q, "/put", {"data": "12345"})
        self.fetch(q, "/put", {"data": "23456"})
        numbers = self.numbers(q)
        self.assertEqual((numbers["depth"], numbers["bytes"]), (2, 10))
        self.assertEqual([self.fetch(q, "/get") for _ in range(3)], [b"12345", b"23456", b""])
        numbers = self.numbers(q)
        self.assertEqual((numbers["depth"], numbers["bytes"], numbers["depth_high_water"]), (0, 0, 2))
        for text in ("12345", "23456", "34567", "45678"):
            self.fetch(q, "/put", {"data": text})
        self.assertEqual(self.fetch(q, "/mget", {"items": 5}), b"12345\n23456\n34567\n45678\n")
        for how in ({"params": {"data": "test1\ntest2\ntest3"}}, {"body": b"test1\ntest2\ntest3"}):
            self.fetch(q, "/mput", **how)
            self.assertEqual([self.fetch(q, "/get") for _ in range(3)], [b"test1", b"test2", b"test3"])
        self.fetch(q, "/exit")
        self.assertEqual(q.process.wait(harness.PATIENCE), 0)

    def test_requests_are_logged(self):
        q = self.original()
        self.fetch(q, "/mput", {"separator": "; "}, b"a; b")
        self.fetch(q, "/nope?" + 2000 * "x", status=404)
        put, nope = [line for line in q.log.splitlines() if " debug " in line and " request " in line and "health" not in line]
        self.assertRegex(put, r" request method=POST target=\"/mput\?separator=%3B\+\" body_bytes=4 status=200 ms=[0-9.e-]+$")
        self.assertRegex(nope, r" request method=GET target=/nope\?x{994} body_bytes=0 status=404 ")

    def test_what_clients_send(self):
        q = self.original()
        text = 'a b+c&d=%/"{é}'
        self.fetch(q, "/put", {"data": text})
        self.assertEqual(self.fetch(q, "/get").decode(), text)
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        self.expect(q.post("/put", b"data=a%20b", headers=form), 200)
        self.assertEqual(self.fetch(q, "/get"), b"data=a%20b", "a body is the message, whatever it is called")
        self.expect(q.post("/put?data=in+the+target", b"not this"), 200)
        self.assertEqual(self.fetch(q, "/get"), b"in the target")
        for endpoint in ("/put", "/mput"):
            self.assertIn(b"missing data", self.fetch(q, endpoint, status=400))
        for items in ("0", "-1", "x"):
            self.fetch(q, "/mget", {"items": items}, status=400)

    def test_separators(self):
        q = self.original("--mput_item_sep", "||", "--mget_item_sep", "<>", "--max_mget", "3")
        self.fetch(q, "/mput", body=b"a||b||||c||")
        self.assertEqual(self.fetch(q, "/mget", {"items": 100}), b"a<>b<>c")
        self.fetch(q, "/mput", {"separator": "\t", "data": "a\tb||c\t\td"})
        self.assertEqual(self.fetch(q, "/mget"), b"a")
        self.assertEqual(self.fetch(q, "/mget", {"items": 3, "separator": "--"}), b"b||c--d--")
        self.assertEqual(self.fetch(q, "/mget", {"items": 3}), b"")

    def test_what_differs_in_a_target(self):
        """As the guide says."""
        q = self.original()
        self.fetch(q, "/put?data=", status=400)
        self.assertEqual(q.get("/put?data=a#b").status, 200)
        self.assertEqual(q.get("/get").body, b"a#b")
        for target in ("/put?DATA=a", "/mput?data=a&Separator=,", "/mget?ITEMS=2"):
            self.assertEqual(q.get(target).json()["code"], "unknown-parameter", target)

    def test_what_is_refused_that_bitlys_took(self):
        q = self.original()
        for target in ("/put?data=%zz", "/stats?format=xml", "/mget?items=3x"):
            self.expect(q.get(target), 400)
        self.expect(q.get("/put?data=" + "x" * (47 << 10)), 200)
        self.expect(q.get("/put?data=" + "x" * (48 << 10)), 414)
        self.assertEqual(self.run_program("simplequeue", "--port=0", "--mget_item_sep=").returncode, 64)

    def test_any_bytes_but_none(self):
        """Messages of the original ended at the first NUL."""
        q = self.original("--max-message", "100")
        messages = [b"\0", b"a\0b\0", b"\xff\xfe\x80", b"\r\n\n", bytes(range(100))]
        for m in messages:
            self.fetch(q, "/put", body=m)
        self.assertEqual([self.fetch(q, "/get") for _ in messages], messages)
        self.fetch(q, "/put", body=b"x" * 100)
        self.fetch(q, "/put", body=b"x" * 101, status=413)
        self.fetch(q, "/mput", body=b"a\n" + b"x" * 100)
        self.fetch(q, "/mput", body=b"a\n" + b"x" * 101, status=413)
        self.assertEqual(self.numbers(q)["depth"], 3)
        self.fetch(q, "/mput", body=b"\n\n")
        self.assertEqual(self.numbers(q)["depth"], 3)

    def test_dump_leaves_what_it_shows(self):
        q = self.original()
        self.fetch(q, "/mput", body=b"a\nb\nc")
        for _ in range(2):
            self.assertEqual(self.fetch(q, "/dump"), b"a\nb\nc\n")
        self.assertEqual(self.numbers(q)["gets"], 0)

    def test_the_overflow_log(self):
        """The queue keeps the newest messages. SIGHUP reopens the log. At the end, the messages in memory also go to the log."""
        log = self.path("overflow.log")
        q = self.original("--overflow_log", log, "--max_depth", "3", "--max_bytes", "100")
        for n in range(5):
            self.fetch(q, "/put", {"data": "m%d" % n})
        os.rename(log, log + ".1")
        q.process.send_signal(signal.SIGHUP)
        wait_until(lambda: os.path.exists(log), "the log to be opened again")
        self.fetch(q, "/mput", body=b"m5\nm6")
        numbers = self.numbers(q)
        self.assertEqual((numbers["overflow"], numbers["depth"], numbers["puts"]), (4, 3, 7))
        self.fetch(q, "/exit")
        q.process.wait(harness.PATIENCE)
        self.assertEqual([harness.read_file(log + end) for end in (".1", "")], [b"m0\nm1\n", b"m2\nm3\nm4\nm5\nm6\n"])

    def test_full_without_a_log(self):
        """The original crashed on the second put."""
        q = self.original("--max_depth", "1")
        self.fetch(q, "/put", {"data": "a"})
        self.fetch(q, "/put", {"data": "b"}, status=503)
        self.assertEqual(self.fetch(q, "/get"), b"a")

    def test_reset(self):
        q = self.original()
        self.fetch(q, "/mput", body=b"a\nb")
        self.fetch(q, "/get")
        self.fetch(q, "/stats", {"reset": "1"})
        self.assertEqual(self.numbers(q), {"puts": 0, "gets": 0, "depth": 1, "depth_high_water": 1, "bytes": 1,
                                           "overflow": 0})


if __name__ == "__main__":
    harness.main()
