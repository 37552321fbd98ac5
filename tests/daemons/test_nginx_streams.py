"""Replies without end through a real nginx with its default settings: each line arrives while the reply goes on."""
import contextlib
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
events {}
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    server {
        listen unix:%(dir)s/nginx.sock;
        location /v1/ { proxy_pass %(api)s; }
        location / { proxy_pass %(pubsub)s; }
        location /filtered/ { proxy_pass %(filtered)s/; }
    }
}
"""
EVENTS = {"Accept": "text/event-stream"}


class NginxStreams(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        if not NGINX:
            harness.not_installed(self, "nginx is not installed (scripts/setup --test)")
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.pubsub.post("/pub?stream=clicks", b"first\n")
        self.pubsub.post("/pub", b"first\n")
        config = self.write("test.conf", harness.sample_counters())
        api = self.start("api", "--config", config, "--queue-url=http://127.0.0.1:1", "--aggregator-url=http://127.0.0.1:1",
                         "--pubsub-url=" + self.pubsub.url)
        filtered = self.start("pubsub_filtered", "--pubsub-url=" + self.pubsub.url, "--stream=clicks", "--drop=x")
        config = self.write("nginx.conf", CONFIG % {"dir": self.dir, "api": api.url, "pubsub": self.pubsub.url, "filtered": filtered.url})
        with open(self.path("nginx.out"), "wb") as out:
            self.nginx = subprocess.Popen(
                harness.dies_with_us([NGINX, "-p", self.dir, "-e", self.path("error.log"), "-c", config]), stdout=out, stderr=out)
        self.addCleanup(lambda: self.nginx.poll() is None and (self.nginx.kill(), self.nginx.wait()))
        wait_until(self.listens, lambda: "nginx to listen: %s" % harness.read_file(self.path("nginx.out")))

    def listens(self):
        self.assertIsNone(self.nginx.poll(), harness.read_file(self.path("nginx.out")))
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.path("nginx.sock")) == 0

    @contextlib.contextmanager
    def reply(self, target, headers):
        c = harness.connect("unix:" + self.path("nginx.sock"))
        c.request("GET", target, headers=headers)
        try:
            reply = c.getresponse()
            self.assertEqual((reply.status, reply.getheader("Cache-Control")), (200, "no-store"), target)
            yield reply
        finally:
            c.close()

    def read_until(self, reply, text):
        """read1 returns what has come, and fails after PATIENCE."""
        got = b""
        while text not in got:
            piece = reply.read1(65536)
            self.assertTrue(piece, got)
            got += piece

    def test_lines_arrive_one_by_one(self):
        for target, headers in (("/sub?stream=clicks", {}), ("/sub?stream=clicks&from=earliest", {}), ("/sub?stream=clicks", EVENTS),
                                ("/sub?stream=clicks&multipart=1&from=earliest", {}), ("/sub", {}), ("/sub?multipart=0", {}),
                                ("/v1/live?stream=clicks", EVENTS), ("/filtered/sub", {})):
            to = "/pub" if target.startswith("/sub") and "stream" not in target else "/pub?stream=clicks"
            with self.subTest(target=target, headers=headers), self.reply(target, headers) as reply:
                for i in range(3):
                    line = b'{"t":1332637200,"l":"through%d"}' % i
                    self.pubsub.post(to, line + b"\n")
                    self.read_until(reply, line)

    def test_the_rate(self):
        for target in ("/rate", "/rate?stream=clicks", "/v1/live/rate", "/v1/live/rate?stream=clicks"):
            with self.subTest(target=target), self.reply(target, EVENTS) as reply:
                self.read_until(reply, b"data:")


if __name__ == "__main__":
    harness.main()
