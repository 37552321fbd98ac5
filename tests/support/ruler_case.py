"""What the tests of the ruler share: a source of metrics that answers as a test says, and the daemons around the ruler."""
import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.parse

import harness
from harness import wait_until

RULE = "{alert: Down, expr: down, annotations: {summary: 'job {{ $labels.job }} is down'}}"


class Source:
    """`answers`: expression -> list of (labels, value), or a text: the error of a reply with status 422. Other expressions have no result."""

    def __init__(self, test):
        self.answers, self.is_gone = {}, False  # is_gone: connections end without an answer
        source = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                expr, time = form["query"][0], form["time"][0]
                if source.is_gone:
                    self.close_connection = True
                    return
                found = source.answers.get(expr, [])
                if isinstance(found, str):
                    status, reply = 422, {"status": "error", "errorType": "execution", "error": found}
                else:
                    result = [{"metric": labels, "value": [float(time), str(value)]} for labels, value in found]
                    status, reply = 200, {"status": "success", "data": {"resultType": "vector", "result": result}}
                body = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

            def handle(self):
                try:
                    super().handle()
                except OSError:  # the ruler was killed
                    pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        test.addCleanup(self.server.server_close)
        test.addCleanup(self.server.shutdown)


class RulerTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = Source(self)
        self.queue_url = "unix:" + self.path("q.sock")

    def write_rules(self, *rules, interval="1s", name="rules.yml"):
        """Replaces the file of rules, so that the ruler never sees half of it."""
        self.write(name + ".new", "groups:\n- name: g\n  interval: %s\n  rules:\n%s" % (interval, "".join("  - %s\n" % rule for rule in rules)))
        os.rename(self.path(name + ".new"), self.path(name))

    def simplequeue(self, **kw):
        return self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", listen=self.queue_url, **kw)

    def ruler(self, *args, source=None, ready=True, **kw):
        start = self.start if ready else self.daemon
        return start("ruler", "--files=" + self.path("rules*.yml"), "--data-dir=" + self.path("r"), "--metricdb-url=" + (source or self.source.url),
                     "--queue-url=" + self.queue_url, "--group-wait=0", "--group-interval=100ms", "--backoff-max=100ms", *args, **kw)

    def alerts(self, ruler, **labels):
        return [a for a in ruler.get("/api/v1/alerts").json()["data"]["alerts"] if labels.items() <= a["labels"].items()]

    def wait_state(self, ruler, state, **labels):
        """Waits until exactly one alert has these labels, with this state; None: no alert."""
        def states():
            return [a["state"] for a in self.alerts(ruler, **labels)]
        wait_until(lambda: states() == ([state] if state else []), lambda: "%s: %s" % (state, self.alerts(ruler)))

    def send(self, queue, url, *args):
        """A queue_to_http from a queue to a server, which may refuse the first messages."""
        return self.daemon("queue_to_http", "--queue-url=" + self.queue_url, "--queue=" + queue, "--destination=" + url, "--backoff-max=100ms",
                          "--content-type=application/json", "--wait=1s", *args)

    def run_other(self, *argv, log):
        """Starts a program of another package, which ends with the test."""
        program = shutil.which(argv[0])
        if not program:
            harness.not_installed(self, "%s is not installed (apt-get install %s)" % (argv[0], argv[0]))
        with open(self.path(log), "wb") as out:
            process = subprocess.Popen(harness.dies_with_us([program, *argv[1:]]), stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process
