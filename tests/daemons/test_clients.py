"""clients/: the Python client and the JavaScript client, against real daemons that are killed meanwhile."""
# seconds: 15
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import unittest
import warnings

import harness
from harness import wait_until

CLIENTS = os.path.join(harness.ROOT, "clients")
sys.path.insert(0, os.path.join(CLIENTS, "python"))
import millrace  # noqa: E402


class Daemons(harness.MillraceTest):
    """Daemons that can be killed and come back at the same address."""

    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore", ResourceWarning)  # clients that are not closed
        self.random = harness.seeded()
        self.port = self.keep_port()

    def start_queue(self):
        self.queue = self.again("simplequeue", self.port)

    def start_pubsub(self):
        self.pubsub = self.again("pubsub", self.port)
        self.pubsub.post("/pub?stream=s", b'"first"\n')

    def again(self, name, port, *options):
        return self.start(name, "--data-dir=" + self.path(name), "--address=127.0.0.1", "--port=" + port, *options, port=False)

    def messages(self):
        text = self.queue.get("/dump").body
        return text.splitlines()

    def while_killed(self, act):
        """Kills the queue at random moments while act() runs."""
        thread = threading.Thread(target=act)
        thread.start()
        for _ in range(6):
            time.sleep(self.random.uniform(0, 0.2))
            self.queue.kill9()
            self.queue = self.again("simplequeue", self.port)
        thread.join(harness.PATIENCE)

    def publish_through_kills(self, enough):
        n = 0
        while not enough():
            for _ in range(20):
                self.assertEqual(self.pubsub.post("/pub?stream=s", b'"%d"\n' % n).status, 200)
                n += 1
            self.pubsub.kill9()
            self.pubsub = self.again("pubsub", self.port)
        return [str(i) for i in range(n)]


class Python(Daemons):
    def setUp(self):
        super().setUp()
        self.start_queue()

    def test_puts_are_stored_once(self):
        failures = []

        def act():
            try:
                producer = millrace.Producer("app1", url=self.queue.url, timeout=5)
                for i in range(0, 2000, 4):
                    producer.put(*("m%d" % (i + k) for k in range(4)))
                self.assertEqual(producer.mark, 2000)
            except BaseException as error:
                failures.append(error)
        self.while_killed(act)
        self.assertEqual(failures, [])
        self.assertEqual(self.messages(), [b"m%d" % i for i in range(2000)])
        self.assertEqual(millrace.Producer("app1", url=self.queue.url).mark, 2000)

    def test_puts_without_a_name(self):
        producer = millrace.Producer(url=self.queue.url, patience=1)
        producer.put({"a": 1})
        producer.put("a\nb")
        self.queue.kill9()
        with self.assertRaises(millrace.Error) as caught:
            producer.put("lost")
        self.assertIn(caught.exception.code, ("not-sent", "no-reply"))
        self.queue = self.again("simplequeue", self.port)
        producer.put("c", b"d")
        self.assertEqual(self.queue.get("/mget?items=9&separator=%00").body, b'{"a":1}\x00a\nb\x00c\x00d\x00')
        for wrong in ((), ("",), ("a", "b\n"), ({"a": float("nan")},), ({"b": 1}, {"a": [float("-inf")]})):
            self.assertRaises(ValueError, producer.put, *wrong)
        self.assertRaises(ValueError, millrace.Producer, url="https://127.0.0.1")

    def test_errors_have_the_words_of_the_reply(self):
        with self.assertRaises(millrace.Error) as caught:
            millrace.Producer(url=self.queue.url, queue="a/b").put("x")
        error = caught.exception
        self.assertEqual((error.status, error.code, error.is_temporary), (400, "bad-parameter", False))
        self.assertIn("queue", str(error))
        self.assertEqual(str(millrace.Error(400, "unknown-parameter", "sit is unknown", "did you mean site?")),
                         "unknown-parameter: sit is unknown (did you mean site?)")
        self.assertEqual(str(millrace.Error(500, "", "HTTP status 500")), "HTTP status 500")
        one, two = (millrace.Producer("same", url=self.queue.url) for _ in range(2))
        self.assertEqual(two.mark, 0)
        one.put("x", next=700)
        with self.assertRaises(millrace.Error) as caught:
            two.put("y", "z", next=800)
        self.assertEqual((caught.exception.code, caught.exception.members["mark"]), ("mark-conflict", "700"))

    def test_work_that_fails_comes_again_and_is_buried(self):
        millrace.Producer("p", url=self.queue.url).put(*("w%d" % i for i in range(300)))
        queue, seen, errors = millrace.Queue(url=self.queue.url, reader="worker"), [], []

        def work(message):
            seen.append(message.data)
            if message.data == b"w7":
                raise RuntimeError("never works")
        stats = lambda: self.queue.stats()
        queue.consume(work, wait=0.1, tries=3, delay=0.001, on_error=errors.append,
                      stop=lambda: len(errors) == 3 and self.queue.get("/dump").body == b"")
        wait_until(lambda: self.queue.get("/dump").body == b"", "an empty queue")
        self.assertEqual((sorted(set(seen)), len(seen)), (sorted(b"w%d" % i for i in range(300)), 302))
        dead = self.queue.get("/dead?items=9").json()["buried"]
        self.assertEqual([(d["message"], d["reason"]) for d in dead], [("w7", "RuntimeError: never works")])

    def test_work_that_fails_is_raised(self):
        """Without on_error. The message comes again, and the others of the lease are not lost: also if work raises an Error of this client."""
        millrace.Producer("p", url=self.queue.url).put(b"a", b"b", b"c")
        done = set()
        for failure in (RuntimeError("no"), millrace.Error(503, "overloaded", "of another daemon")):
            queue, seen = millrace.Queue(url=self.queue.url, reader="worker"), []

            def work(message):
                seen.append(message.data)
                if message.data == b"b":
                    raise failure
            with self.assertRaises(type(failure)) as caught:
                queue.consume(work, wait=0.1, delay=0.001, stop=lambda: len(seen) == 9)
            self.assertIs(caught.exception, failure)
            self.assertEqual(seen[-1], b"b")
            queue.close()
            done.update(seen[:-1])
        queue, tries = millrace.Queue(url=self.queue.url, reader="worker"), {}
        queue.consume(lambda message: tries.update({message.data: message.tries}), wait=0.1, stop=lambda: b"b" in tries)
        self.assertEqual((tries[b"b"], done | set(tries)), (3, {b"a", b"b", b"c"}))
        wait_until(lambda: self.queue.get("/dump").body == b"", "an empty queue")

    def test_a_worker_outlives_the_queue_and_a_long_batch(self):
        """A lease of a second lasts for a batch of two, on a machine that does not stand still for the rest of a lease; messages that
        were not acknowledged come again after a kill."""
        harness.slower_and_slower(1, self.outlives)

    def outlives(self, lease):
        name, over = "lease-%d" % lease, threading.Event()
        millrace.Producer("p", name, url=self.queue.url).put(*("w%d" % i for i in range(40)))
        queue, seen, errors = millrace.Queue(name, url=self.queue.url, reader="worker"), [], []

        def work(message):
            seen.append(message.data)
            time.sleep(0.05 * lease)  # the time that the work takes
        worker = threading.Thread(target=queue.consume, args=(work,), kwargs={
            "lease": lease, "wait": 0.1, "on_error": errors.append, "stop": lambda: over.is_set() or len(set(seen)) == 41})
        worker.start()
        try:
            wait_until(lambda: len(seen) >= 40, "the batch")
            self.assertEqual((len(set(seen)), errors), (40, []))
            self.queue.kill9()
            self.queue = self.again("simplequeue", self.port)
            millrace.Producer("p", name, url=self.queue.url).put("last")
            worker.join(harness.PATIENCE)
            self.assertFalse(worker.is_alive())
        finally:
            over.set()
            worker.join()
        self.assertEqual(set(seen), {b"w%d" % i for i in range(40)} | {b"last"})

    def test_over_a_unix_socket_with_a_token(self):
        token = self.write("token", "secret")
        os.chmod(token, 0o600)
        d = self.start("simplequeue", "--address=unix:" + self.path("socket"), "--auth-token-file=" + token, port=False)
        url = "unix:" + self.path("socket")
        with self.assertRaises(millrace.Error) as caught:
            millrace.Producer(url=url).put("x")
        self.assertEqual(caught.exception.code, "unauthorized")
        millrace.Producer(url=url, token="secret").put("x")
        held = millrace.Queue(url=url, token="secret").reserve()
        self.assertEqual([(m.data, m.tries) for m in held.messages], [(b"x", 1)])
        d.stop()


def erase_first(test):
    """The stream has an erased line and then "second"."""
    test.pubsub.post("/pub?stream=s", b'"second"\n')
    identity = test.pubsub.get("/streams").json()["streams"][0]["id"]
    test.assertEqual(test.pubsub.post("/erase?stream=s&id=" + identity, b"0 8\n").status, 202)
    harness.wait_until(lambda: test.pubsub.get("/erase?stream=s").json()["state"] == "done", "the erasure")
    test.assertEqual(test.pubsub.get("/sub?stream=s&from=earliest&follow=0").body, b'{}     \n"second"\n')


class Followed(Daemons):
    def setUp(self):
        super().setUp()
        self.start_pubsub()

    def test_a_subscriber_outlives_pubsub(self):
        seen, cursors, begun = [], [], threading.Event()

        def follow():
            for line in millrace.follow("s", self.pubsub.url, start="earliest"):
                seen.append(line.json())
                cursors.append(line.cursor)
                if len(seen) > 100:
                    return
        thread = threading.Thread(target=follow)
        thread.start()
        published = self.publish_through_kills(lambda: not thread.is_alive())
        self.assertEqual(seen, (["first"] + published)[:101])
        again = millrace.follow("s", self.pubsub.url, cursor=cursors[49])
        self.assertEqual([next(again).json() for _ in range(51)], seen[50:])

    def test_an_erased_line_is_left_out(self):
        erase_first(self)
        self.assertEqual(next(millrace.follow("s", self.pubsub.url, start="earliest")).data, b'"second"')

    def test_another_stream_is_refused(self):
        first = next(millrace.follow("s", self.pubsub.url, start="earliest"))
        self.pubsub.stop()
        shutil.rmtree(self.path("pubsub"))
        self.pubsub = self.again("pubsub", self.port)
        self.pubsub.post("/pub?stream=s", b'"other"\n')
        with self.assertRaises(millrace.Error) as caught:
            next(millrace.follow("s", self.pubsub.url, cursor=first.cursor))
        self.assertEqual(caught.exception.code, "wrong-stream")


class Packages(harness.MillraceTest):
    """What is published has the client, its types, its README and the licence."""

    def test_python(self):
        shutil.copytree(os.path.join(CLIENTS, "python"), self.path("python"))
        build = "import setuptools.build_meta as b; print(b.build_sdist(%r))" % self.dir
        done = subprocess.run([sys.executable, "-c", build], cwd=self.path("python"), capture_output=True, text=True)
        if "No module named 'setuptools'" in done.stderr:
            harness.not_installed(self, "python3-setuptools is not installed (scripts/setup --test)")
        self.assertEqual(done.returncode, 0, done)
        with tarfile.open(self.path(done.stdout.split()[-1])) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
            info = archive.extractfile(next(m for m in archive if m.name.endswith("/PKG-INFO"))).read().decode()
        self.assertLessEqual({"millrace/__init__.py", "millrace/py.typed", "README.md", "LICENSE", "pyproject.toml"}, names)
        self.assertRegex(info, r"(?m)^Name: millrace$")
        self.assertRegex(info, r"(?m)^License: MIT$")

    def test_javascript(self):
        if not shutil.which("npm"):
            harness.not_installed(self, "npm is not installed (scripts/setup --test)")
        done = subprocess.run(["npm", "pack", "--dry-run", "--json", "--cache", self.path("npm")], cwd=os.path.join(CLIENTS, "js"),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done)
        package, = json.loads(done.stdout)
        self.assertEqual({f["path"] for f in package["files"]},
                         {"LICENSE", "README.md", "millrace.d.ts", "millrace.js", "package.json"})


class Counts(harness.MillraceTest):
    def example(self, client, urls):
        """The example of a client's README, with the addresses of this pipeline."""
        with open(os.path.join(CLIENTS, client, "README.md")) as f:
            text = f.read().split("<!-- example -->\n", 1)[1]
        text = textwrap.dedent("\n".join(line for line in text.split("\n- **Times", 1)[0].splitlines()))
        for port, name in ((8080, "simplequeue"), (8081, "pubsub"), (8088, "api")):
            self.assertIn("http://127.0.0.1:%d" % port, text)
            text = text.replace("http://127.0.0.1:%d" % port, urls[name])
        return text

    def test_the_examples_of_the_readmes(self):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), harness.sample_counters()))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        urls = {name: pipeline.daemon_url(name) for name in ("simplequeue", "pubsub", "api")}
        counted = lambda: json.loads(harness.request(urls["api"], "GET", "/v1/series?user=bitly&unit=hour&from=1331920800&to=1331924400").body)["total"]
        environment = dict(os.environ, PYTHONPATH=os.path.join(CLIENTS, "python"))
        done = subprocess.run([sys.executable, "-c", self.example("python", urls)], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[:4], ["2", "bitly", "nasa", "[b'one', b'two']"])
        wait_until(lambda: counted() == 1, "the event")
        os.makedirs(self.path("node_modules"))
        os.symlink(os.path.join(CLIENTS, "js"), self.path("node_modules", "millrace"))
        script = self.write("example.mjs", self.example("js", urls))
        done = subprocess.run([Node(self).node, script], capture_output=True, text=True, cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[:4], ["2n", "[ 'bitly', 'nasa' ]", "one", "two"])

    def test_both_clients_read_the_counts_of_what_they_put(self):
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data"), harness.sample_counters() + "[subtotal ms.u]\nkey = bucket(ms)\n"))
        pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        url = {name: pipeline.daemon_url(name) for name in ("simplequeue", "api")}
        with_python, start = millrace.Producer("app", url=url["simplequeue"]), 1331920800
        with_python.put(*({"t": start + i, "l": "u%d" % (i % 3), "c": "US" if i % 2 else "JP", "ms": 120} for i in range(30)))
        warnings.simplefilter("ignore", ResourceWarning)
        api, span = millrace.Api(url["api"]), {"from_": start, "to": start + 3600}
        wait_until(lambda: api.series(feed="", **span)["total"] == 30, "the events")
        self.assertEqual([s["total"] for s in api.series(user=["u0", "u1"], unit="hour", **span)["series"]], [10, 10])
        expected = [("JP", 5), ("US", 5)]
        self.assertEqual([(r["key"], r["n"]) for r in api.breakdown(user="u0", by="country", **span)["rows"]], expected)
        self.assertEqual(api.compare(user="u0", **span)["before"]["total"], 0)
        self.assertEqual([r["key"] for r in api.lookup("u", ns="u", limit=1)], ["u0", "u1", "u2"])
        self.assertEqual(len(api.top("user", **span)["rows"]), 3)
        self.assertEqual([r["value"] for r in api.quantile(user="u0", by="ms", q="0.5,1", **span)["rows"]], [125, 125])
        self.assertEqual(api.freshness()["newest_event"], start + 29)
        with self.assertRaises(millrace.Error) as caught:
            api.series(usr="u0")
        self.assertIn("did you mean", str(caught.exception))
        js = Node(self).run("counts", url=url["api"], start=start)
        self.assertEqual(js, {"total": 30, "several": [10, 10], "rows": [list(e) for e in expected], "before": 0, "keys": ["u0", "u1", "u2"],
                              "top": 3, "median": 125, "newest": start + 29, "error": "unknown-counter"})


class Node:
    """clients/js/test/driver.mjs, which does one thing with the JavaScript client and prints the result."""

    def __init__(self, test):
        self.node = shutil.which("node")
        if not self.node:
            harness.not_installed(test, "node")

    def begin(self, what, **task):
        return subprocess.Popen([self.node, os.path.join(CLIENTS, "js", "test", "driver.mjs"), json.dumps({"what": what, **task})],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, process):
        out, err = process.communicate(timeout=harness.PATIENCE)
        if process.returncode:
            raise AssertionError("exit status %d: %s %s" % (process.returncode, err, out[-300:]))
        return json.loads(out)

    def run(self, what, **task):
        return self.end(self.begin(what, **task))


class JavaScript(Daemons):
    def setUp(self):
        super().setUp()
        self.node = Node(self)

    def test_puts_are_stored_once(self):
        self.start_queue()
        result = []
        self.while_killed(lambda: result.append(self.node.run("put", url=self.queue.url, n=1000)))
        self.assertEqual(result, [{"mark": "1000"}])
        self.assertEqual(self.messages(), [b"m%d" % i for i in range(1000)])

    def test_an_erased_line_is_left_out(self):
        self.start_pubsub()
        erase_first(self)
        self.assertEqual(self.node.run("follow", url=self.pubsub.url, n=1)["lines"], ["second"])

    def test_puts_without_a_name_and_errors(self):
        self.start_queue()
        self.assertEqual(self.node.run("errors", url=self.queue.url),
                         {"wrong": 3, "codes": ["bad-parameter", "mark-conflict"], "mark": "700",
                          "text": "unknown-parameter: sit is unknown (did you mean site?)"})
        self.queue.kill9()
        self.assertEqual(self.node.run("refused", url=self.queue.url), {"code": "not-sent"})

    def test_work_that_fails_comes_again_and_is_buried(self):
        self.start_queue()
        millrace.Producer("p", url=self.queue.url).put(*("w%d" % i for i in range(300)))
        worker = self.node.begin("work", url=self.queue.url, wrong="w7", tries=3, enough=302)
        got = self.node.end(worker)
        self.assertEqual((got["distinct"], got["errors"]), (300, ["Error: never works"] * 3))
        self.assertEqual([d["reason"] for d in self.queue.get("/dead?items=9").json()["buried"]], ["Error: never works"])
        self.assertEqual(self.messages(), [])

    def test_a_subscriber_outlives_pubsub(self):
        self.start_pubsub()
        reader = self.node.begin("follow", url=self.pubsub.url, n=101)
        published = self.publish_through_kills(lambda: reader.poll() is not None)
        got = self.node.end(reader)
        self.assertEqual(got["lines"], (["first"] + published)[:101])
        self.assertEqual(self.node.run("follow", url=self.pubsub.url, cursor=got["cursors"][49], n=51)["lines"], got["lines"][50:])


if __name__ == "__main__":
    harness.main()
