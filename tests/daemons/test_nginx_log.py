"""docs/guide/nginx.md's recipe for nginx, word for word, with a real nginx: whatever its clients send, each line is strict JSON that says
what was sent, and none is lost or doubled while the log is rotated."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import harness
from harness import wait_until
from put_case import QueueTest

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")

# What nginx has by default is root's. The recipe's country comes from a module that needs a database.
CONFIG = """
daemon off;
master_process off;
pid %(dir)s/nginx.pid;
events {}
http {
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    map $remote_addr $geoip_country_code { default "US"; }
    %(recipe)s
    server {
        listen unix:%(dir)s/nginx.sock;
        location / { return 204; }
    }
}
"""

HOSTILE = ['"', '\\', '\\"', '"}', '\\u0022', "'", '{"a":1}', '</script>', '%22%0a', '\u00e9\u20ac\U0001f600', '\u2028', '$msec', '']
BEYOND_ASCII = [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80"]  # no UTF-8
CONTROLS = [bytes([c]) for c in (*range(1, 10), 11, 12, *range(14, 32), 127)]  # a NUL, CR or LF is no header


def recipe():
    """The configuration as the document has it."""
    with open(os.path.join(harness.ROOT, "docs", "guide", "nginx.md")) as f:
        text = f.read()
    return text[text.index("    log_format"):].partition("\n\n")[0]


class NginxLog(QueueTest):
    def setUp(self):
        super().setUp()
        if not NGINX:
            harness.not_installed(self, "nginx is not installed (apt-get install nginx)")
        self.log = self.path("clicks.log")
        text = recipe().replace("/var/log/nginx/clicks.log", self.log)
        self.assertIn(self.log, text)
        config = self.write("nginx.conf", CONFIG % {"dir": self.dir, "recipe": text})
        with open(self.path("nginx.out"), "wb") as out:
            self.nginx = subprocess.Popen(
                harness.dies_with_us([NGINX, "-p", self.dir, "-e", self.path("error.log"), "-c", config]), stdout=out, stderr=out)
        self.addCleanup(lambda: self.nginx.poll() is None and (self.nginx.kill(), self.nginx.wait()))
        wait_until(self.listens, lambda: "nginx to listen: %s" % harness.read_file(self.path("nginx.out")))
        self.follower = self.begin("--follow", "--producer=web1", self.log)
        wait_until(lambda: os.path.exists(self.path(".clicks.log.web1")), "the log to be followed")

    def listens(self):
        self.assertIsNone(self.nginx.poll(), harness.read_file(self.path("nginx.out")))
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.path("nginx.sock")) == 0

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(harness.PATIENCE)
        s.connect(self.path("nginx.sock"))
        return s

    def ask(self, target, headers=()):
        """Any bytes as they are; the answer's status."""
        lines = [b"GET " + target + b" HTTP/1.1", *(b"%s: %s" % h for h in headers), b"Connection: close", b"", b""]
        with self.connect() as s:
            s.sendall(b"\r\n".join(lines))
            reply = b""
            while piece := s.recv(65536):
                reply += piece
        return int(reply.split()[1])

    def wait_lines(self, n):
        wait_until(lambda: self.depth() >= n, lambda: "%d lines, %d came: %r" % (n, self.depth(), self.stored()))
        return [{name: value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
                 for name, value in json.loads(line.decode("utf-8", "surrogateescape")).items()} for line in self.stored()]

    def end(self):
        self.follower.send_signal(signal.SIGTERM)
        said = self.follower.stderr.read()
        self.assertEqual(self.follower.wait(harness.PATIENCE), 0, said)
        self.nginx.send_signal(signal.SIGQUIT)
        self.assertEqual(self.nginx.wait(harness.PATIENCE), 0)

    def test_what_is_asked_is_what_comes(self):
        values = [v.encode() for v in HOSTILE] + BEYOND_ASCII
        sent = [(b"/a?b=" + v, b"h.example", b"http://r/" + v, b"agent/" + v) for v in values]
        sent += [(b"/", b"h", b"r" + v + b"r", b"a" + v + b"a") for v in CONTROLS]
        began = time.time()
        for target, host, referer, agent in sent:
            status = self.ask(target, [(b"Host", host), (b"Referer", referer), (b"User-Agent", agent)])
            self.assertEqual(status, 204, (target, agent))
        self.assertEqual(self.ask(b"/bare", [(b"Host", b"h")]), 204)
        lines = self.wait_lines(len(sent) + 1)
        self.assertEqual([(e["url"], e["site"], e["referrer"], e["agent"]) for e in lines], sent + [(b"/bare", b"h", b"", b"")])
        for e in lines:
            self.assertEqual(e["country"], b"US")
            self.assertTrue(began - 1 <= e["time"] <= time.time() + 1, e)
        self.end()

    def test_what_is_no_request_makes_no_line_that_is_no_json(self):
        for target in (b"/a\x01b", b"/a\x7fb", b"no-slash", b"/a b"):
            self.assertEqual(self.ask(target, [(b"Host", b"h")]), 400, target)
        self.assertEqual(self.ask(b"/", [(b"Host", b"h"), (b"User-Agent", b"a\x00b")]), 400)
        self.assertEqual(self.ask(b"/last", [(b"Host", b"h")]), 204)
        self.assertEqual(self.wait_lines(6)[-1]["url"], b"/last")
        self.end()

    def test_rotation(self):
        n = 0
        for rotation in range(4):
            for where in ("log", "renamed log", "log anew"):
                if where == "renamed log":
                    os.rename(self.log, "%s.%d" % (self.log, rotation))
                if where == "log anew":
                    self.nginx.send_signal(signal.SIGUSR1)
                    wait_until(lambda: os.path.exists(self.log), "the log to be made anew")
                for _ in range(20):
                    self.assertEqual(self.ask(b"/%d" % n, [(b"Host", b"h")]), 204)
                    n += 1
        lines = self.wait_lines(n)
        self.assertEqual([e["url"] for e in lines], [b"/%d" % i for i in range(n)])
        self.end()


if __name__ == "__main__":
    harness.main()
