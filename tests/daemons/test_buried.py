"""Messages that no stream can store: the setting `lines` refuses them at the door, and `millrace queue` treats those that are
buried."""
import os
import pty
import re
import shlex
import subprocess

import harness
from harness import USERS_BY_COUNTRY, request, wait_until
from nng_client import Requester
from queue_test import OnDisk, QueueTest
from relay_test import RelayTest

PRETTY = b'{\n "t": 1332637200,\n "l": "pretty"\n}\n'


class Lines:
    """simplequeue --lines."""

    def ready(self, q):
        return q.get("/dump").body

    def test_the_last_line_end_is_dropped_and_another_is_refused(self):
        q = self.queue("--lines")
        for body in (b'{"l":"a"}\n', b'{"l":"b"}\r\n', b'{"l":"c"}'):
            self.expect(q.post("/put", body), 200)
        self.expect(q.post("/put?data=d%0A"), 200)
        self.assertEqual(self.ready(q), b'{"l":"a"}\n{"l":"b"}\n{"l":"c"}\nd\n')
        for body in (PRETTY, b"a\nb", b"a\n\n", b"\n\na", b"a\r\nb\r\n"):
            refused = self.expect(q.post("/put", body), 400, "not-a-line").json()
            self.assertIn("/mput", refused["hint"], body)
        self.expect(q.post("/put?data=a%0Ab"), 400, "not-a-line")
        for body in (b"\n", b"\r\n", b"\r", b""):
            self.expect(q.post("/put", body), 400, "missing-data")
        self.assertEqual(self.numbers(q)["depth"], 4)

    def test_mput(self):
        q = self.queue("--lines")
        self.expect(q.post("/mput", b"a\r\n\r\nb\n\n"), 200)
        self.expect(q.post("/mput?separator=;", b"c;d\n;\n;e\r\n"), 200)
        self.assertEqual(self.ready(q), b"a\nb\nc\nd\ne\n")
        self.expect(q.post("/mput?separator=;", b"f;g\nh"), 400, "not-a-line")
        self.expect(q.post("/mput", b"\r\n\r\n"), 200)
        self.assertEqual(self.numbers(q)["depth"], 5)

    def test_nng(self):
        q = self.queue("--lines", "--nng-listen=tcp://127.0.0.1:0")
        r = Requester("tcp://127.0.0.1:" + re.search(r"bound_port=(\d+)", q.log).group(1))
        self.addCleanup(r.close)
        self.assertEqual(r.ask(b"\na\r\n\r\nb")["status"], 200)
        self.assertEqual(self.ready(q), b"a\nb\n")

    def test_without_the_setting_every_byte_is_kept(self):
        q = self.queue()
        self.expect(q.post("/put", PRETTY), 200)
        self.assertEqual(q.get("/get").body, PRETTY)

    def bury(self, q, *messages):
        """Their ids."""
        for message in messages:
            self.expect(q.post("/put", message), 200)
        lease, taken = self.reserve(q, "items=%d" % len(messages))
        ids = [number for number, _, _ in taken]
        self.expect(q.post("/bury?reason=why&lease=%s&id=%s" % (lease, ",".join(map(str, ids)))), 200)
        return ids

    def buried(self, q):
        return [int(d["id"]) for d in q.get("/dead").json()["buried"]]

    def test_delete_kick_and_replace_by_id(self):
        q = self.queue("--allow-exit")
        a, b, c, d, e = self.bury(q, b"a", b"b", b"c\nx", b"d", b"e")
        self.assertEqual(request(q.url, "DELETE", "/dead?id=%d,%d" % (a, e + 9)).json(), {"deleted": 1})
        self.assertEqual(request(q.url, "DELETE", "/dead?id=%d" % a).json(), {"deleted": 0})
        self.assertEqual(q.post("/kick?id=%d-%d" % (d, e)).json(), {"kicked": 2})
        self.assertEqual(q.post("/kick?id=%d" % c, b"better").json(), {"kicked": 1})
        self.assertEqual(self.buried(q), [b])
        self.expect(q.post("/kick?id=%d-%d" % (b, c), b"two"), 400, "bad-parameter")
        self.expect(q.post("/kick?id=x"), 400, "bad-parameter")
        self.expect(request(q.url, "DELETE", "/dead"), 400, "missing-parameter")
        self.assertEqual(request(q.url, "DELETE", "/dead?queue=none&id=1").json(), {"deleted": 0})
        self.assertEqual(self.ready(q), b"d\ne\nbetter\n")
        q = self.again(q)
        self.assertEqual(self.buried(q), [b])
        self.assertEqual(self.ready(q), b"d\ne\nbetter\n")

    def test_a_kick_drops_a_line_end(self):
        q = self.queue("--lines=no")
        ids = self.bury(q, b"old\n", PRETTY, b"\n")
        q = self.again(q, "--lines")
        self.expect(q.post("/kick?id=%d" % ids[1], PRETTY), 400, "not-a-line")
        self.expect(q.post("/kick?id=%d" % ids[1], b"\n"), 400, "missing-data")
        self.assertEqual(q.post("/kick?items=9").json(), {"kicked": 3})
        self.assertEqual(self.ready(q), b"old\n" + PRETTY + b"\n\n")


class LinesOnDisk(Lines, OnDisk, QueueTest):
    pass


class Tool(RelayTest):
    def queue_tool(self, *args, status=0, stdin=subprocess.DEVNULL, **kw):
        done = self.run_program("millrace", "queue", "--url=" + self.queue_url, *args, stdin=stdin, **kw)
        self.assertEqual(done.returncode, status, done)
        return (done.stderr if status else done.stdout).decode()

    def with_buried(self, *messages):
        """Their ids. The queue takes any bytes, and the relay buries all that are no lines."""
        queue, _ = self.start_queue(), self.start_pubsub()
        self.start_relay()
        for message in messages:
            queue.post("/put", message)
        wait_until(lambda: self.queue_numbers()["buried"] == len(messages), "the messages to be buried")
        return queue

    def test_every_act(self):
        self.with_buried(b"one\n", PRETTY, b"two\nthree", b"x\ny", b"z\n\n")
        text = self.queue_tool()
        self.assertRegex(text, r'^1 \S+Z contains a line feed: "one\\n"\n2 \S+Z ')
        self.assertEqual(text.count("\n"), 5)
        self.assertEqual(self.queue_tool("list"), text)
        self.assertEqual(self.queue_tool("show", "2").encode(), PRETTY + b"\n")
        self.assertEqual(self.queue_tool("delete", "4-5"), "deleted 2\n")
        self.assertEqual(self.queue_tool("edit", "2", stdin=None, input=b'{"l":"pretty"}\n'), "kicked 1\n")
        self.wait_stream(b'{"l":"pretty"}\n')
        self.assertIn("no such buried message", self.queue_tool("kick", "4,5,77", status=64))
        self.assertIn("no buried message 4", self.queue_tool("edit", "4", status=64))
        self.assertIn("empty", self.queue_tool("edit", "3", status=65))
        self.assertEqual(self.queue_tool("kick", "all"), "kicked 2\n")
        wait_until(lambda: self.queue_numbers()["buried"] == 2, "the kicked messages to be buried again")
        self.assertEqual(self.queue_tool("delete", "all"), "deleted 2\n")
        for act in ("delete", "kick"):
            self.assertEqual(self.queue_tool(act, "all"), "nothing is buried\n")
        self.assertEqual(self.queue_numbers()["buried"], 0)
        self.assertEqual(self.queue_tool(), "")

    def test_a_refused_edit(self):
        queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", "--lines", listen=self.queue_url)
        queue.post("/put", b"one")
        lease = queue.get("/reserve").headers["X-Millrace-Lease"]
        self.assertEqual(queue.post("/bury?id=1&lease=" + lease, b"").status, 200)
        self.assertIn("line feed", self.queue_tool("edit", "1", stdin=None, input=b"a\nb\n", status=65))
        self.assertIn('"one"', self.queue_tool())

    def test_the_editor(self):
        self.with_buried(b"a\nb")
        script = self.write("editor", 'tr "\\n" " " < "$1" > new && cat new > "$1"\n')
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        env = dict(os.environ, VISUAL="sh " + script)
        self.assertEqual(self.queue_tool("edit", "1", stdin=theirs, env=env), "kicked 1\n")
        os.close(theirs)
        self.wait_stream(b"a b\n")

    def test_wrong_words(self):
        for args in (["nonsense"], ["show"], ["kick"], ["show", "x"], ["delete", "1;2"], ["list", "1"], ["--queue=a/b"]):
            self.queue_tool(*args, status=64)
        self.assertIn("q.sock", self.queue_tool(status=75))


class Up(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")

    def up(self, **kw):
        config = self.write("p.conf", harness.pipeline_config(self.data, USERS_BY_COUNTRY, **kw))
        return harness.Pipeline(self, config, self.data).wait_ready()

    def test_events_with_line_ends_are_counted_or_refused(self):
        pipeline = self.up()
        event = b'{"t":1332637200,"l":"trail","c":"US"}\n'
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", event).status, 200)
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", PRETTY).json()["code"], "not-a-line")
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--data-dir", self.data).returncode, 0)
        pipeline.interrupt()

    def test_the_remedy_of_status(self):
        """Messages of a time without the setting."""
        pipeline = self.up(simplequeue={"lines": "no"})
        for body in (b'{"t":1332637200,"l":"trail","c":"US"}\n', PRETTY):
            self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", body).status, 200)
        buried = lambda: pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["queues"]["default"]["buried"]
        wait_until(lambda: buried() == 2, "both to be buried")
        pipeline.interrupt()
        pipeline = self.up()
        text = self.run_program("millrace", "status", "--json", "--data-dir", self.data).stdout.decode()
        remedy = re.search(r"millrace queue [^\"]*--queue=default", text).group(0)
        tool = shlex.split(remedy)[1:]
        listed = self.run_program("millrace", *tool).stdout.decode()
        ids = re.findall(r"^(\d+) ", listed, re.M)
        self.assertEqual(len(ids), 2, listed)
        self.assertEqual(self.run_program("millrace", *tool, "kick", ids[0]).stdout, b"kicked 1\n")
        self.assertEqual(self.run_program("millrace", *tool, "edit", ids[1],
                                          input=b'{"t":1332637200,"l":"pretty","c":"JP"}\n').stdout, b"kicked 1\n")
        counts = lambda user: pipeline.ask("api", "GET", "/v1/series?user=%s&from=1332633600&to=1332640800" % user).json()["total"]
        wait_until(lambda: (counts("trail"), counts("pretty")) == (1, 1), "both events to be counted")
        self.assertEqual(buried(), 0)
        pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
