"""Verdicts of spamfilter's marks: pubsub_filtered, the API and `millrace put` ask the marks in process, and store the answer in the line."""
# seconds: 12
import json
import os
import re
import urllib.parse

import harness
import test_api
from harness import request, wait_until
from test_pubsub_filtered import FilteredTest

COMBINED = '192.0.2.7 - - [24/Mar/2012:09:00:00 +0000] "GET /a HTTP/1.1" 200 5 "%s" "a"\n'


class Marks:
    """A spamfilter whose updates are in its files after a moment."""

    def serve(self, *args):
        self.marks = self.path("marks")
        self.spamfilter = self.start("spamfilter", "--data-dir", self.marks, "--sync-every=10ms", *args)

    def update(self, target, *lines):
        self.assertEqual(self.spamfilter.post(target, "\n".join(lines)).status, 200)

    def load(self, *lines):
        self.write("marks/load/list", "".join(line + "\n" for line in lines))
        self.assertLess(self.spamfilter.post("/load?file=list").status, 300)
        wait_until(lambda: self.spamfilter.stats()["load"]["state"] == "done", lambda: self.spamfilter.stats()["load"])


def metric(daemon, name, labels=""):
    return int(re.search(r"(?m)^millrace_\w+_%s%s (\d+)$" % (name, re.escape(labels)), daemon.get("/metrics").text)[1])


def unchecked(daemon, reason):
    return metric(daemon, "links_unchecked_total", '{reason="%s"}' % reason)


class FilteredMarks(FilteredTest, Marks):
    def start_filter(self, *args):
        self.filter = self.filtered("--to_stream=out", "--marks_dir", self.path("marks"), *args).wait_ready()

    def pass_lines(self, *lines):
        """What has become of the lines."""
        before = len(self.lines("out"))
        self.publish(*lines)
        self.wait_filtered()
        return self.lines("out")[before:]

    def verdict(self, url):
        line, = self.pass_lines({"url": url})
        return json.loads(line)["marked"]

    def wait_verdict(self, url, mark):
        wait_until(lambda: self.verdict(url) == mark, lambda: "%s: %s, not %s" % (url, self.verdict(url), mark))


class Filtered(FilteredMarks):
    def test_the_verdict_is_the_last_member(self):
        self.serve()
        self.update("/add", "bad.example", "worse.example/x?y=1")
        self.start_filter("--drop=secret")
        self.wait_verdict("bad.example", "bad.example")
        self.assertEqual(self.pass_lines(
            b'{"n":1, "url":"https://www.bad.example:8443/a"}\n', b'{"url":"good.example"}\n', b' {"url":"bad.example" } \n', b'{}\n', b'{"secret":1}\n',
            b'{"marked":"forged","url":"http://WORSE.example/x?y=1#z"}\n', b'{"m\\u0061rked":"forged","marked":[2],"x":{"marked":3}}\n',
            b'{"url":7}\n', b'{"_heartbeat_":1,"url":"bad.example"}\n', b'{"url":"http://bad.example/\\ud83d\\ude00\\u0000"}\n'),
            [b'{"n":1, "url":"https://www.bad.example:8443/a","marked":"bad.example"}', b'{"url":"good.example","marked":null}',
             b' {"url":"bad.example","marked":"bad.example"}', b'{"marked":null}', b'{"marked":null}',
             b'{"url":"http://WORSE.example/x?y=1#z","marked":"worse.example/x?y=1"}', b'{"x":{"marked":3},"marked":null}',
             b'{"url":7,"marked":null}', b'{"_heartbeat_":1,"url":"bad.example","marked":"bad.example"}',
             b'{"url":"http://bad.example/\\ud83d\\ude00\\u0000","marked":"bad.example"}'])
        self.assertEqual((unchecked(self.filter, "link"), unchecked(self.filter, "marks")), (4, 0))
        self.assertGreaterEqual(metric(self.filter, "links_marked_total"), 6)
        self.assertEqual(self.filter.get("/health").text, "ready\n")
        self.assertEqual(self.filter.get("/sub?from=earliest&follow=0&if=marked%20%3D%20worse.example%2Fx%3Fy%3D1").body.splitlines(),
                         [b'{"url":"http://WORSE.example/x?y=1#z","marked":"worse.example/x?y=1"}',
                          b'{"_heartbeat_":1,"url":"bad.example","marked":"bad.example"}'])

    def test_hostile_links(self):
        self.serve()
        self.update("/add", "bad.example")
        self.start_filter("--marks_field=link.href")
        wait_until(lambda: b'"marked":"bad.example"' in self.pass_lines({"link": {"href": "bad.example"}})[0], lambda: self.lines("out"))
        longest = "http://bad.example/".ljust(65536, "a")
        deep = "http://" + "a." * 500 + "bad.example/" + "b/" * 5000
        got = self.pass_lines(*({"link": {"href": href}} for href in (longest, longest + "a", deep, "http://", "\0", "%", "http://[::1", "javascript:bad.example")),
                              b'{"link":{"href":"http://bad.example/\xff"}}\n', b'{"link":{"href":"http://bad.example/\\ud800"}}\n', b'{"link":["bad.example"]}\n')
        self.assertEqual([json.loads(line)["marked"] for line in got], ["bad.example", None, None, None, None, None, None, None, None])
        self.assertEqual(self.filter.stats()["lines_refused_total"], 2)

    def test_the_marks_change_meanwhile(self):
        """Also if spamfilter is killed, starts again, and replaces its file by a load."""
        self.serve()
        self.update("/add", "bad.example\t1", "worse.example\t2")
        self.start_filter()
        self.wait_verdict("a.bad.example", "bad.example")
        self.update("/allow", "a.bad.example")
        self.wait_verdict("a.bad.example", None)
        self.assertEqual(self.verdict("bad.example"), "bad.example")
        self.update("/disallow", "a.bad.example")
        self.update("/remove", "worse.example\t2")
        self.wait_verdict("a.bad.example", "bad.example")
        self.wait_verdict("worse.example", None)
        self.spamfilter.kill9()
        self.assertEqual(self.verdict("bad.example"), "bad.example")
        self.serve()
        self.update("/add", *("new%d.example" % i for i in range(1000)))
        self.wait_verdict("new999.example", "new999.example")
        self.load("listed.example")
        self.wait_verdict("bad.example", None)
        self.assertEqual(self.verdict("www.listed.example"), "listed.example")
        self.update("/add", "bad.example")
        self.wait_verdict("bad.example", "bad.example")
        self.assertEqual(unchecked(self.filter, "marks"), 0)

    def test_an_exception_is_in_its_file_before_a_load(self):
        self.serve("--sync-every=1h")
        self.update("/allow", "ok.listed.example")
        self.load("listed.example")
        self.assertEqual(harness.read_file(self.path("marks", "exceptions")), b"ok.listed.example\n")

    def test_without_marks_lines_pass(self):
        self.start_filter()
        self.assertEqual(self.verdict("bad.example"), None)
        self.assertEqual(unchecked(self.filter, "marks"), 1)
        warning = "ready\nwarning: links are not checked: %s: " % self.path("marks", "marks")
        self.assertIn(warning, self.filter.get("/health").text)
        self.assertIn("cannot read the marks", self.filter.log)
        self.serve()
        self.update("/add", "bad.example")
        self.wait_verdict("bad.example", "bad.example")
        wait_until(lambda: self.filter.get("/health").text == "ready\n", lambda: self.filter.get("/health").text)

    def test_drop_and_shadow(self):
        self.serve()
        self.update("/add", "bad.example")
        lines = [b'{"url":"bad.example","n":1,"marked":0}', b'{"url":"good.example"}', b'{"_heartbeat_":1,"url":"bad.example"}']
        for action, want in (("drop", lines[1:]), ("shadow", lines)):
            f = self.filtered("--to_stream=out_" + action, "--marks_dir", self.path("marks"), "--marks_action=" + action).wait_ready()
            wait_until(lambda: metric(f, "links_marked_total") > 0 or self.publish(b'{"url":"bad.example"}\n'), "a match")
            self.publish(*(line + b"\n" for line in lines))
            wait_until(lambda: self.mark("out_" + action) == self.end(), lambda: self.mark("out_" + action))
            got = self.lines("out_" + action)
            self.assertEqual(got[-len(want):], want)
            self.assertEqual(b'{"url":"bad.example","n":1,"marked":0}' in got, action == "shadow")
            self.assertEqual("shadow: a link is marked match=bad.example" in f.log, action == "shadow")
            self.assertGreaterEqual(metric(f, "links_marked_total"), 3)
            f.stop()

    def test_settings_that_contradict(self):
        for args, why in ((("--marks_field=a",), b"requires marks_dir"), (("--marks_action=drop",), b"requires marks_dir"),
                          (("--marks_dir=x", "--marks_action=hide"), b"verdict|drop|shadow"), (("--marks_dir=x", "--marks_field=a["), b"is not a field"),
                          (("--marks_dir=x", "--drop=url"), b"url is dropped or hashed"),
                          (("--marks_dir=x", "--marks_field=link.href", "--hash=link", "--hash_key_file", self.key), b"link.href is dropped or hashed"),
                          (("--marks_dir=x", "--hash=marked", "--hash_key_file", self.key), b"both dropped and hashed")):
            done = self.run_program("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=s", "--to_stream=out", *args, "--check-config")
            self.assertIn(done.returncode, (64, 78), (args, done))
            self.assertIn(why, done.stderr, args)
        done = self.run_program("pubsub_filtered", "--pubsub_url", self.pubsub.url, "--stream=s", "--to_stream=out", "--marks_dir=x", "--drop=url",
                                "--marks_action=drop", "--check-config")
        self.assertEqual(done.returncode, 0, done)


class Doors(harness.MillraceTest, Marks):
    def setUp(self):
        super().setUp()
        self.source = test_api.Source(self)

    def configure(self, door):
        return self.write("test.conf", '[input]\ntime = t\n[total all]\nkey = "all"\n[door]\nadd = marked\n' + door)

    def start_api(self, door):
        self.api = self.start("api", "--config", self.configure(door), "--queue-url", self.source.url, "--aggregator-url", self.source.url)

    def post(self, body):
        """The stored events."""
        self.assertEqual(request(self.api.url, "POST", "/v1/events", body).status, 200)
        return self.source.posted[-1][1].splitlines()

    def marked(self, url):
        return json.loads(self.post(json.dumps({"url": url}).encode())[0])["marked"]

    def wait_marked(self, url, mark):
        wait_until(lambda: self.marked(url) == mark, lambda: "%s: %s, not %s" % (url, self.marked(url), mark))

    def test_events_and_pixels(self):
        self.serve()
        self.update("/add", "bad.example")
        self.start_api("marks_dir = %s\n" % self.marks)
        self.wait_marked("bad.example", "bad.example")
        body = b'{"t":1,"marked":"forged","url":"www.bad.example/x"}\n{"m\\u0061rked":1,"marked":2}\n{"url":"http://bad.example/%s"}\n' % (b"a" * 70000)
        self.assertEqual(self.post(body), [b'{"t":1,"url":"www.bad.example/x","marked":"bad.example"}', b'{"marked":null}',
                                           b'{"url":"http://bad.example/%s","marked":null}' % (b"a" * 70000)])
        for url, mark in (("http://www.bad.example/?a=b", "bad.example"), ("good.example", None)):
            self.assertEqual(self.api.get("/v1/pixel.gif?t=1&marked=forged&url=" + urllib.parse.quote(url)).status, 200)
            self.assertEqual(json.loads(self.source.posted[-1][1]), {"t": 1, "url": url, "marked": mark})
        self.assertEqual(request(self.api.url, "POST", "/v1/events", b'{"url":"http://bad.example/\xff"}').status, 400)
        self.assertEqual((unchecked(self.api, "link"), unchecked(self.api, "marks")), (2, 0))
        self.spamfilter.kill9()
        self.assertEqual(self.marked("bad.example"), "bad.example")
        self.serve()
        self.load("listed.example")
        self.wait_marked("bad.example", None)
        self.assertEqual(self.marked("listed.example"), "listed.example")

    def test_the_directory_is_that_of_the_configuration(self):
        self.start_api("marks_field = to\n[spamfilter]\ndata_dir = %s\n" % self.path("marks"))
        self.assertEqual(self.post(b'{"to":"bad.example","url":"x.example"}'), [b'{"to":"bad.example","url":"x.example","marked":null}'])
        self.assertEqual(unchecked(self.api, "marks"), 1)
        wait_until(lambda: "warning: links are not checked: %s: " % self.path("marks", "marks") in self.api.get("/health").text,
                   lambda: self.api.get("/health").text)
        self.serve()
        self.update("/add", "bad.example")
        want = [b'{"to":"bad.example","url":"x.example","marked":"bad.example"}']
        wait_until(lambda: self.post(b'{"to":"bad.example","url":"x.example"}') == want, "the verdict")
        wait_until(lambda: self.api.get("/health").text == "ready\n", lambda: self.api.get("/health").text)

    def put(self, door, lines):
        """The verdicts, and the warning about the marks."""
        self.source.posted.clear()
        done = self.run_program("millrace", "put", "--config", self.configure(door), "--queue-url", self.source.url, "--quiet", "--format=combined",
                                self.write("access.log", lines))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line)["marked"] for _, body in self.source.posted for line in body.splitlines()], \
            next(iter(re.findall(r"warning: links are .*?: .*?: ", done.stderr.decode())), None)

    def test_put(self):
        door = "marks_dir = %s\nmarks_field = referrer\n" % self.path("marks")
        log = "".join(COMBINED % url for url in ("http://www.bad.example/x", "http://good.example/", "-", "http://bad.example/\\xff"))
        said = "warning: links are not checked: %s: " % self.path("marks", "marks")
        self.assertEqual(self.put(door, log), ([None] * 4, said))
        self.serve()
        self.update("/add", "bad.example")
        want = ["bad.example", None, None, "bad.example"], None
        wait_until(lambda: self.put(door, log) == want, lambda: self.put(door, log))
        self.spamfilter.kill9()
        self.assertEqual(self.put(door, log), want)

    def test_settings(self):
        for door, why in (("marks_field = a[\n", b"test.conf:7: marks_field must be a field"), ("marks_file = a\n", b"(did you mean marks_field?)")):
            done = self.run_program("api", "--config", self.configure(door), "--queue-url=http://127.0.0.1:1", "--check-config")
            self.assertEqual((done.returncode, why in done.stderr), (78, True), done.stderr)


class Up(harness.MillraceTest):
    def test_a_pipeline_counts_by_mark(self):
        """A recount of the stream counts the same verdicts, whatever the marks are now."""
        counters = '[input]\ntime = t\n[total all]\nkey = "all"\n[subtotal m.all]\nkey = marked\nlabel = mark\n[door]\nadd = marked\n'
        data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(data, counters, spamfilter={"port": 0, "sync_every": "10ms"}))
        pipeline = harness.Pipeline(self, config, data).wait_ready()
        self.assertEqual(pipeline.ask("spamfilter", "POST", "/add?url=bad.example&id=1").status, 200)

        def post():
            self.assertEqual(pipeline.ask("api", "POST", "/v1/events", b'{"t":1332547200,"url":"http://bad.example/x"}').status, 200)

        def rows():
            found = pipeline.ask("api", "GET", "/v1/breakdown?ns=m.all&key=all&period=all").json()["rows"]
            return {row["key"]: row["n"] for row in found}

        def run(*command):
            done = self.run_program("millrace", *command, "--config", config)
            self.assertEqual(done.returncode, 0, done)
            return done.stdout.decode() + done.stderr.decode()
        wait_until(lambda: post() or "bad.example" in rows(), rows)
        self.assertEqual(pipeline.ask("spamfilter", "POST", "/remove?url=bad.example&id=1").status, 200)
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--config", config).returncode, 0)
        before = rows()
        run("compact")
        run("compact", "--replace=" + re.search(r"--replace=(\S+)", run("recount"))[1])
        self.assertEqual(rows(), before)


if __name__ == "__main__":
    harness.main()
