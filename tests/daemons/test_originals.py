"""The command lines of bitly's simplehttp do their work (docs/guide/from-simplehttp.md)."""
import json
import os
import re
import shlex
import signal

import harness
from harness import wait_until


class Originals(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.port = self.keep_port()
        self.pubsub = self.start("pubsub", "--address=127.0.0.1", "--port=" + self.port, port=False)
        self.source = "--pubsub-url=%s/sub?multipart=0" % self.pubsub.url

    def publish(self, *objects):
        for o in objects:
            self.assertEqual(self.pubsub.post("/pub", json.dumps(o).encode()).status, 200)

    def refused(self, status, name, *args):
        done = self.run_program(name, *args)
        self.assertEqual(done.returncode, status, done)
        return done.stderr.decode()

    def queue(self):
        return self.start("simplequeue", "--address=127.0.0.1", "--port=0", "--enable-logging", "--max_depth=100",
                          "--max_bytes=1000000", "--max_mget=50", "--mget_item_sep=\n", "--mput_item_sep=\n",
                          "--overflow_log=" + self.path("overflow"), port=False)

    def wait_messages(self, queue, n, forwarder):
        wait_until(lambda: queue.stats()["depth"] == n, lambda: "%d messages: %s\n%s" % (n, queue.stats(), forwarder.log))
        messages = queue.get("/mget?items=%d&separator=%%01" % n).body
        self.assertNotIn(b"\n", messages)
        return [json.loads(m) for m in messages.split(b"\1")]


class Pubsub(Originals):
    def test_the_port_alone(self):
        self.assertIn("data_dir is not set", self.pubsub.log)
        self.assertIn("pubsub-data", self.pubsub.log)
        self.publish({"n": 1})
        self.pubsub.kill9()
        self.pubsub = self.start("pubsub", "--address=127.0.0.1", "--port=" + self.port, port=False)
        self.assertEqual(self.pubsub.get("/sub?stream=default&from=earliest&follow=0").body, b'{"n": 1}\n')
        self.assertIn("pubsub-data is in use", self.refused(78, "pubsub", "--port=0"))
        self.pubsub.stop()
        installed = {"MILLRACE_CONFIG": self.write("millrace.conf", "[millrace]\ndata_dir = %s\n" % self.path("other"))}
        self.pubsub = self.start("pubsub", "--address=127.0.0.1", "--port=" + self.port, port=False, env=installed)
        self.assertEqual(self.pubsub.get("/sub?stream=default&from=earliest&follow=0").body, b'{"n": 1}\n')


class PsToFile(Originals):
    def test_its_command_line(self):
        self.publish({"n": 1}, {"n": 2})
        p = self.daemon("ps_to_file", self.source, "--filename-format=" + self.path("out", "%Y.log"), port=False)
        wait_until(lambda: os.path.isdir(self.path("out")), lambda: p.log)

        def found():
            p.process.send_signal(signal.SIGHUP)
            names = [n for n in os.listdir(self.path("out")) if n.endswith(".log")]
            return names and harness.read_file(self.path("out", names[0]))
        self.assertEqual(wait_until(found, lambda: "a file:\n" + p.log), b'{"n": 1}\n{"n": 2}\n')
        self.assertIn("pubsub_url has a better form pubsub_url=%s stream=default" % self.pubsub.url, p.log)
        p.stop()

    def test_what_the_url_may_say(self):
        def args(url, *more):
            return (url, "--filename-format=" + self.path("out", "%Y.log"), "--check-config", *more)
        self.assertIn("unknown parameter filter_subject", self.refused(78, "ps_to_file", *args(self.source + "&filter_subject=x")))
        self.assertIn("not an address", self.refused(78, "ps_to_file", *args("--pubsub-url=%s/other" % self.pubsub.url)))
        done = self.run_program("ps_to_file", *args("--pubsub-url=http://sub.invalid/sub?multipart=0"))
        self.assertRegex(done.stdout.decode(), r"(?m)^pubsub_url = http://sub.invalid +;")
        named = self.source + "&stream=t"
        self.assertIn("names another stream, t", self.refused(78, "ps_to_file", *args(named, "--stream=u")))
        for more, stream in ((self.source,), "default"), ((named,), "t"), ((self.source, "--stream=u"), "u"):
            done = self.run_program("ps_to_file", *args(*more))
            self.assertEqual(done.returncode, 0, done)
            self.assertRegex(done.stdout.decode(), r"(?m)^stream = %s +;" % stream)
            self.assertRegex(done.stdout.decode(), r"(?m)^pubsub_url = %s +; --pubsub-url$" % self.pubsub.url)


class PsToHttp(Originals):
    def test_gets_and_posts(self):
        for option in "--destination-get-url=%s/put?data=%%s", "--destination-post-url=%s/put":
            q = self.queue()
            p = self.daemon("ps_to_http", self.source, option % q.url, "--max-silence=60", port=False)
            self.publish({"n": 1, "text": "a&b +%é"})
            first = self.wait_messages(q, len(self.lines()), p)
            self.assertEqual(first, self.lines())
            p.stop()
            self.assertIn('setting has a better name setting=%s use="destination method=' %
                          option[2:].split("=")[0].replace("-", "_"), p.log)
            self.assertIn("setting has no effect setting=max_silence", p.log)
            # The state in the working directory is of this destination.
            self.publish({"n": 2})
            p = self.daemon("ps_to_http", self.source, option % q.url, port=False)
            self.assertEqual(self.wait_messages(q, 1, p), [{"n": 2}])
            p.stop()

    def lines(self):
        body = self.pubsub.get("/sub?stream=default&from=earliest&follow=0").body
        return [json.loads(line) for line in body.splitlines()]

    def test_several_destinations(self):
        a, b = self.queue(), self.queue()
        both = ["--destination-get-url=%s/put?data=%%s" % q.url for q in (a, b)]
        self.assertIn("set --round-robin", self.refused(78, "ps_to_http", self.source, *both))
        p = self.daemon("ps_to_http", self.source, *both, "--round-robin", port=False)
        self.publish(*({"n": n} for n in range(10)))
        wait_until(lambda: a.stats()["depth"] + b.stats()["depth"] == 10, lambda: p.log)
        self.assertEqual((a.stats()["depth"], b.stats()["depth"]), (5, 5))
        p.stop()

    def test_what_is_refused(self):
        get, post = "--destination-get-url=http://127.0.0.1:1/?%s", "--destination-post-url=http://127.0.0.1:1/"
        self.assertIn("--destination-post-url sets method = POST, but --destination-get-url sets GET",
                      self.refused(64, "ps_to_http", self.source, get, post))
        self.assertIn("is not an address", self.refused(78, "ps_to_http", self.source, self.source, get))
        self.assertIn("requires batch=1", self.refused(78, "ps_to_http", "--destination=http://x/", "--bare-line"))
        self.assertIn("requires %s", self.refused(78, "ps_to_http", self.source, get.replace("%s", "")))


class Filtered(Originals):
    def passes(self, *args):
        f = self.start("pubsub_filtered", self.source, "--address=127.0.0.1", "--port=0", *args, port=False)
        got = [json.loads(line) for line in f.get("/sub?multipart=0&from=earliest&follow=0").body.splitlines()]
        return f, got

    def test_its_command_line(self):
        self.publish({"c": "US", "ip": "10.1.2.3", "a": "x"}, {"c": "DE"}, {"c": "USA"}, {"c": "US", "ip": "10.1.2.3"})
        f, got = self.passes("--blacklist-fields=a,b", "--encrypted-fields=ip", "--keep-if=c = US")
        self.assertRegex(got[0]["ip"], "^h:")
        self.assertEqual(got, 2 * [{"c": "US", "ip": got[0]["ip"]}])
        self.assertIn("this run's tokens differ", f.log)
        for name, use in (("blacklist_fields", "drop"), ("encrypted_fields", "hash")):
            self.assertIn("setting has a better name setting=%s use=%s source=--" % (name, use), f.log)
        f.process.send_signal(signal.SIGHUP)
        self.assertEqual(f.get("/ping").status, 200)
        f.stop()
        self.assertIn("unknown option --expected-key", self.refused(64, "pubsub_filtered", "--port=0", "--expected-key=c"))
        f, again = self.passes("--encrypted-fields=ip", "--keep-if=c ~ ^US")
        self.assertEqual([line["c"] for line in again], ["US", "USA", "US"])
        self.assertNotEqual(again[0]["ip"], got[0]["ip"], "another run has another key")
        f.stop()


class FileToSq(Originals):
    def test_its_command_line(self):
        q = self.queue()
        path = self.write("in", '{"n":1}\n{"n":2}\n')
        done = self.run_program("millrace", "put", "--input_file=" + path, "--simplequeue_url=" + q.url,
                                "--max_queue_depth=10", "--concurrent_requests=5", "--check_simplequeue_interval=1",
                                "--stats_interval=60")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(q.get("/mget?items=2&separator=").body, b'{"n":1}{"n":2}')
        self.assertEqual(q.post("/mput?separator=", b"a").status, 400)
        self.assertIn("unknown option --filter_require", self.refused(64, "millrace", "put", "--filter_require=a=b", path))


class Guide(harness.MillraceTest):
    def test_its_command_lines(self):
        text = harness.read_file(os.path.join(harness.ROOT, "docs/guide/from-simplehttp.md")).decode()
        for port in "8080", "8081", "8082", "8083":
            text = text.replace("127.0.0.1:" + port, "127.0.0.1:PORT" + port[-1]).replace("=" + port, "=PORT" + port[-1])
        for n in "0123":
            text = text.replace("PORT" + n, self.keep_port())
        text = text.replace("/var/log", self.path("log"))
        self.write("users.tab", "a\t1\n")
        run = {}
        for line in re.findall(r"(?m)^    millrace (.*)$", text):
            name, *args = shlex.split(line)
            run[name] = self.daemon(name, *args, port=False)
            if "--port" in line:
                run[name].wait_listening()
            if name == "pubsub":
                run[name].wait_ready()
                self.assertEqual(run[name].post("/pub", b'{"a":1,"ip":"10.1.2.3"}').status, 200)
        self.assertEqual(set(run), {"pubsub", "simplequeue", "ps_to_file", "ps_to_http", "pubsub_filtered", "sortdb"})
        self.assertEqual(run["sortdb"].wait_ready().get("/get?key=a").body, b"1\n")
        filtered = run["pubsub_filtered"].wait_ready().get("/sub?from=earliest&follow=0").body
        self.assertRegex(filtered, rb'^\{"ip":"h:[^"]+"\}\n$')
        wait_until(lambda: run["simplequeue"].wait_ready().stats()["depth"] == 1, lambda: run["ps_to_http"].log)
        wait_until(lambda: os.path.isdir(self.path("log")), lambda: run["ps_to_file"].log)


class Sortdb(Originals):
    def test_its_command_line(self):
        path = self.write("db", "a,1\nb,2\n")
        db = self.start("sortdb", "--db-file=" + path, "--field-separator=,", "--memory-lock", "--enable-logging",
                        "--address=127.0.0.1", "--port=0", port=False)
        self.assertEqual(db.get("/get?key=b").body, b"2\n")


if __name__ == "__main__":
    harness.main()
