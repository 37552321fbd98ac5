"""What the API serves for the web page: its files, the state of the pipeline, and live streams. test_page.py uses the page in a browser."""
import gzip
import json
import os
import re
import signal
import socket
import time
import urllib.parse

import harness
from harness import wait_until
from page_case import PAGE, PageCase


class Served(PageCase):
    def test_files_and_refusals(self):
        self.start_pipeline()
        html = {"Accept": "text/html,*/*"}
        page = self.pipeline.ask("api", "GET", "/", headers=html)
        self.assertEqual(page.status, 200)
        self.assertIn("default-src 'none'", page.header("Content-Security-Policy"))
        self.assertIn("/v1/series", self.pipeline.ask("api", "GET", "/").text)
        sizes = {}
        for path in ("/", "/map.json", *("/" + name for name in re.findall(r'(?:href|src)="([^"?#]+)"', page.text))):
            plain = self.pipeline.ask("api", "GET", path, headers=html)
            packed = self.pipeline.ask("api", "GET", path, headers={"Accept-Encoding": "gzip", **html})
            self.assertEqual(gzip.decompress(packed.body), plain.body)
            sizes[path] = len(packed.body)
            again = self.pipeline.ask("api", "GET", path, headers={"If-None-Match": plain.header("ETag"), **html})
            self.assertEqual((again.status, again.body), (304, b""))
        self.assertLess(sizes.pop("/map.json"), 30 * 1000)
        self.assertLess(sum(sizes.values()), 60 * 1000, sizes)  # the first view
        self.assertLess(sum(os.path.getsize(os.path.join(PAGE, name)) for name in os.listdir(PAGE) if name.endswith(".gz")), 120 * 1000)
        self.assertEqual(self.pipeline.ask("api", "GET", "/app.css/../../etc/passwd").status, 404)
        link = self.pipeline.ask("api", "GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", **html})
        self.assertEqual(link.status, 200)
        other = self.pipeline.ask("api", "GET", "/", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image", **html})
        self.assertEqual(other.status, 403)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live").status, 400)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live?stream=none").status, 404)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live?stream=../x").status, 400)

    def test_a_rebuild_makes_the_same_files(self):
        done = self.run_program(os.path.join(harness.ROOT, "scripts", "page"), self.path("again"))
        self.assertEqual(done.returncode, 0, done.stderr)
        again = os.path.join(self.path("again"), "share", "millrace", "page")
        self.assertEqual(sorted(os.listdir(PAGE)), sorted(os.listdir(again)))
        for name in os.listdir(PAGE):
            self.assertEqual(harness.read_file(os.path.join(PAGE, name)), harness.read_file(os.path.join(again, name)), name)

    def test_the_pipeline(self):
        self.start_pipeline()

        def states():
            reply = self.pipeline.ask("api", "GET", "/v1/pipeline").json()
            return {d["name"]: d["state"] for d in reply["daemons"]}
        everything = ("simplequeue", "queue_to_pubsub", "pubsub", "aggregator", "sortdb", "api")
        wait_until(lambda: states() == dict.fromkeys(everything, "ready"), states)
        reply = self.pipeline.ask("api", "GET", "/v1/pipeline").json()
        self.assertEqual(next(d for d in reply["daemons"] if d["name"] == "pubsub")["stats"]["streams"]["clicks"]["end"], "0")
        os.kill(self.pipeline.daemon_pid("sortdb"), 19)  # SIGSTOP
        wait_until(lambda: states() == {**dict.fromkeys(everything, "ready"), "sortdb": "unreachable"}, states)
        os.kill(self.pipeline.daemon_pid("sortdb"), 18)
        wait_until(lambda: states()["sortdb"] == "ready", states)

    def test_a_daemon_with_another_token(self):
        token, other = self.write("token", "secret"), self.write("other", "another")
        for path in (token, other):
            os.chmod(path, 0o600)
        config = self.write("closed.conf", harness.pipeline_config(self.path("closed"), pubsub={"auth_token_file": token}))
        closed = harness.Pipeline(self, config, self.path("closed")).wait_ready()
        peers = (("aggregator", "aggregator"), ("sortdb", "sortdb"), ("queue", "simplequeue"), ("pubsub", "pubsub"), ("queue_to_pubsub", "queue_to_pubsub"))
        api = self.start("api", "--config", config, "--pubsub_token_file=" + other, *("--%s_url=%s" % (option, closed.daemon_url(name)) for option, name in peers))
        reply = api.get("/v1/live?stream=clicks")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"))
        self.assertIn("pubsub_token_file", reply.text)

        def details():
            return {d["name"]: d["detail"] for d in api.get("/v1/pipeline").json()["daemons"]}
        wait_until(lambda: "token" in details()["pubsub"] and not details()["sortdb"], details)

    def test_live_lines_of_a_condition(self):
        self.start_pipeline()
        now = int(time.time())

        def put(*events):
            self.put([json.dumps({"t": now, "l": "bitly", **e}).encode() for e in events])
        put(*({"n": n} for n in range(300)))
        for wrong, detail in (("n%20==%201", "if: column 3: expected an operator, not == (did you mean =?)"), ("", "if: column 1: expected a field at the end")):
            reply = self.pipeline.ask("api", "GET", "/v1/live?stream=clicks&if=" + wrong)
            self.assertEqual((reply.status, reply.json()["code"], reply.json()["detail"]), (400, "bad-parameter", detail))
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/live?stream=none&if=n").status, 404)
        c = harness.connect(self.base)
        c.request("GET", "/v1/live?stream=clicks&last=250&" + harness.query(if_="n in (40, 60, 80) or n >= 298 and l ~ ^bit"))
        reply = c.getresponse()
        self.assertEqual((reply.status, reply.getheader("Content-Type")), (200, "text/event-stream"))

        def data(n):
            lines = []
            while len(lines) < n:
                line = reply.readline()
                self.assertNotEqual(line, b"", "the reply goes on")
                if line.startswith(b"data: "):
                    lines.append(json.loads(line[6:])["n"])
            return lines
        self.assertEqual(data(4), [60, 80, 298, 299])
        put(*({"n": n % 100} for n in range(1000)), {"n": 500})
        self.assertEqual(data(21), [n for _ in range(10) for n in (40, 60, 80)][:21])
        self.assertEqual(data(10), [n for _ in range(10) for n in (40, 60, 80)][21:] + [500])
        c.close()

    def test_a_costly_condition_leaves_the_loop_to_others(self):
        self.start_pipeline()
        now = int(time.time())
        self.put([json.dumps({"t": now, "l": "a" * 40 + "!"}).encode()] * 20000)
        c = harness.connect(self.base)
        c.request("GET", "/v1/live?stream=clicks&from=earliest&" + harness.query(if_="l ~ ^(a+)+$"))
        reply = c.getresponse()
        while reply.readline() != b"event: undecided\n":
            pass
        self.assertIn(b"too many steps", reply.readline())
        self.assertEqual(self.pipeline.ask("api", "GET", "/health").status, 200)
        c.close()

    def test_a_stop_with_a_stalled_page(self):
        self.start_pipeline()
        now = int(time.time())
        self.put([json.dumps({"t": now, "l": "bitly", "pad": "x" * 2000}).encode()] * 5000)
        url = urllib.parse.urlsplit(self.base)
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect((url.hostname, url.port))
            stalled.sendall(b"GET /v1/live?stream=clicks&from=earliest HTTP/1.1\r\nHost: %s\r\n\r\n" % url.netloc.encode())
            sent = [0]

            def has_stalled():
                sent.append(self.pipeline.ask("pubsub", "GET", "/stats?format=json").json()["sent_bytes_total"])
                return sent[-1] == sent[-2] > 10 << 20  # the aggregator has read all, and the page nothing more
            wait_until(has_stalled, lambda: "the page to stall: %s" % sent, interval=0.3)
            first = self.pipeline.daemon_pid("api")
            os.kill(first, signal.SIGTERM)
            wait_until(lambda: self.pipeline.daemon_pid("api") not in (None, 0, first), "the API to stop and start")
            wait_until(lambda: "api stopped" in self.pipeline.log, lambda: self.pipeline.log)
        self.assertNotIn("undelivered", self.pipeline.log)


if __name__ == "__main__":
    harness.main()
