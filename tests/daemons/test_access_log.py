"""`millrace put --format=combined` and etc/access.conf: a real nginx's default log, followed and counted; other lines are refused."""
import os
import shutil
import socket
import subprocess

import harness
from harness import wait_until

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
CONFIG = """
daemon off;
master_process off;
pid %(dir)s/nginx.pid;
error_log %(dir)s/error.log;
events {}
http {
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    access_log %(dir)s/access.log;
    server {
        listen unix:%(dir)s/nginx.sock;
        location / { return 204; }
        location /missing { return 404; }
    }
}
"""
LINE = b'192.0.2.7 - - [24/Mar/2012:09:00:00 +0000] "GET /%s?x=1 HTTP/1.1" 200 5 "http://example.org/" "curl"\n'


class AccessLog(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(harness.ROOT, "etc", "access.conf")) as f:
            counters = f.read()
        text = harness.pipeline_config(self.path("data"), counters[counters.index("[input]"):], pubsub={"streams": "requests"},
                                       queue_to_pubsub={"stream": "requests"}, aggregator={"streams": "requests"})
        self.config = self.write("access.conf", text)
        self.pipeline = harness.Pipeline(self, self.config, self.path("data")).wait_ready()

    def put(self, *args, **kw):
        return self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--format=combined", *args, **kw)

    def breakdown(self, ns, key="all"):
        reply = self.pipeline.ask("api", "GET", "/v1/breakdown?" + harness.query(ns=ns, key=key, period="all")).json()
        return {row["key"]: row["n"] for row in reply["rows"]}

    def listens(self, url):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(url[len("unix:"):]) == 0

    def test_nginx(self):
        if not NGINX:
            harness.not_installed(self, "nginx is not installed (apt-get install nginx)")
        config = self.write("nginx.conf", CONFIG % {"dir": self.dir})
        server = subprocess.Popen(harness.dies_with_us([NGINX, "-p", self.dir, "-e", self.path("error.log"), "-c", config]),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.wait()))
        url = "unix:" + self.path("nginx.sock")
        wait_until(lambda: self.listens(url), "nginx to listen")  # its socket is there before it listens
        follower = self.daemon("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--format=combined",
                               "--follow", "--producer=web1", self.path("access.log"), port=False)
        for path, n in (("/a?x=1", 3), ("/b%20c", 2), ("/missing", 4)):
            for _ in range(n):
                harness.request(url, "GET", path, headers={"Referer": "http://www.example.org/x", "User-Agent": 'a "b"'})
        wait_until(lambda: self.breakdown("p.all") == {"/a": 3, "/b%20c": 2, "/missing": 4}, lambda: self.breakdown("p.all"))
        self.assertEqual(self.breakdown("s.all"), {"2xx": 5, "4xx": 4})
        self.assertEqual(self.breakdown("r.p", "/missing"), {"www.example.org": 4})
        follower.stop()

    def test_a_line_in_another_format(self):
        log = self.write("a.log", (LINE % b"one" + b"no such line\n" + LINE % b"two").decode())
        done = self.put("--producer=p", log)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the line at byte %d of " % len(LINE % b"one"), done.stderr)
        self.assertIn(b"expected a time such as", done.stderr)
        done = self.put("--producer=p", "--rejects=" + self.path("rejects"), log)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(harness.read_file(self.path("rejects")), b"no such line\n")
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 1}, lambda: self.breakdown("p.all"))


if __name__ == "__main__":
    harness.main()
