"""`millrace put --format=combined` and etc/access.conf: a real nginx's default log, followed and counted; other lines are refused."""
import base64
import gzip
import json
import os
import re
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
    %(timed)s
    access_log %(dir)s/timed.log timed;
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
        sample = os.path.join(harness.ROOT, "etc", "access.conf")
        counters = harness.read_file(sample).decode()
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
        timed = re.search(rb"(?m)^    (log_format timed .*)$", harness.read_file(os.path.join(harness.ROOT, "docs", "guide", "logs.md")))[1].decode()
        config = self.write("nginx.conf", CONFIG % {"dir": self.dir, "timed": timed})
        server = subprocess.Popen(harness.dies_with_us([NGINX, "-p", self.dir, "-e", self.path("error.log"), "-c", config]),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (server.kill(), server.wait()))
        url = "unix:" + self.path("nginx.sock")
        wait_until(lambda: self.listens(url), "nginx to listen")  # its socket is there before it listens
        follower = self.daemon("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--format=combined",
                               "--follow", "--producer=web1", self.path("access.log"), port=False)
        users = ["bob smith", "[", "a [24/Mar/2012:09:00:00 +0000] \"GET / HTTP/1.1\" 200 1", " ", "", "-", "\u00e9"]
        for path, n in (("/a?x=1", 3), ("/b%20c", 2), ("/missing", 4)):
            for _ in range(n):
                user = base64.b64encode((users.pop() + ":secret").encode()).decode() if users else "!"
                harness.request(url, "GET", path, headers={"Referer": "http://www.example.org/x", "User-Agent": 'a "b"',
                                                           "Authorization": "Basic " + user})
        wait_until(lambda: self.breakdown("p.all") == {"/a": 3, "/b%20c": 2, "/missing": 4}, lambda: self.breakdown("p.all"))
        self.assertEqual(self.breakdown("s.all"), {"2xx": 5, "4xx": 4})
        self.assertEqual(self.breakdown("r.p", "/missing"), {"www.example.org": 4})
        follower.stop()
        done = self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--log-format", timed, self.path("timed.log"))
        self.assertEqual(done.returncode, 0, done)
        wait_until(lambda: self.times("/a") == [3, 3, 3], lambda: self.times("/a"))

    def times(self, path):
        """The numbers of times in the quantiles."""
        return [row["n"] for row in self.pipeline.ask("api", "GET", "/v1/quantile?" + harness.query(path=path, by="duration", period="all")).json()["rows"]]

    def test_a_line_in_another_format(self):
        log = self.write("a.log", (LINE % b"one" + b"no such line\n" + LINE % b"two").decode())
        done = self.put("--producer=p", log)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the line at byte %d of " % len(LINE % b"one"), done.stderr)
        self.assertRegex(done.stderr, b"expected a time such as .*; use no --format for JSON, --format=csv for CSV, and --log-format for another log")
        done = self.put("--producer=p", "--rejects=" + self.path("rejects"), log)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(harness.read_file(self.path("rejects")), b"no such line\n")
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 1}, lambda: self.breakdown("p.all"))

    def test_response_times(self):
        line = '192.0.2.7 [24/Mar/2012:09:00:00 +0000] "GET /cart HTTP/1.1" 200 0.%03d\n'
        log = self.write("times.log", "".join(line % ms for ms in range(1, 101)))
        done = self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--producer=p",
                                '--log-format=$remote_addr [$time_local] "$request" $status $request_time', log)
        self.assertEqual(done.returncode, 0, done)
        wait_until(lambda: self.breakdown("p.all") == {"/cart": 100}, lambda: self.breakdown("p.all"))
        reply = self.pipeline.ask("api", "GET", "/v1/quantile?path=/cart&by=duration&period=all").json()
        self.assertEqual([(r["q"], r["value"], r["n"]) for r in reply["rows"]], [(0.5, 0.0505, 100), (0.95, 0.0955, 100), (0.99, 0.0995, 100)])

    def follow(self, *args):
        return self.daemon("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--format=combined",
                           "--follow", "--producer=web1", *args, port=False)

    def metrics(self):
        try:
            text = harness.read_file(self.path("data", "put", "default.web1.prom")).decode()
        except FileNotFoundError:
            return {}
        return {line.split("{")[0]: int(line.split()[-1]) for line in text.splitlines() if line[:1] not in ("", "#")}

    def status(self):
        return self.run_program("millrace", "status", "--data-dir", self.path("data")).stdout.decode()

    def test_a_followed_log_goes_on_behind_other_lines(self):
        """They are kept, and are a problem of the pipeline."""
        log = self.write("access.log", (LINE % b"one" + b"no such line\n" + LINE % b"two").decode())
        follower = self.follow(log)
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 1}, lambda: self.breakdown("p.all"))
        self.assertEqual(harness.read_file(self.path("data", "put", "default.web1.rejects")), b"no such line\n")
        wait_until(lambda: self.metrics().get("millrace_put_refused_total") == 1, self.metrics)
        self.assertEqual(self.metrics()["millrace_put_posted_total"], 2)
        self.assertRegex(self.status(), r"put --producer=web1 refused 1 line; the last:\s+expected\s+a\s+time")
        follower.stop()
        self.assertEqual(self.metrics()["millrace_put_exit_status"], 0)
        self.assertRegex(self.status(), r"put --producer=web1 refused 1 line")
        follower = self.follow(self.write("access.log", ""))
        wait_until(lambda: self.metrics().get("millrace_put_refused_total") == 0, self.metrics)
        self.assertRegex(self.status(), r"an earlier millrace put --producer=web1 refused\s+lines")
        self.write("access.log", (b"no such line\n" + LINE % b"three").decode())
        wait_until(lambda: self.metrics().get("millrace_put_refused_total") == 1, self.metrics)
        self.assertRegex(self.status(), r"put --producer=web1 refused 1 line")
        os.remove(self.path("data", "put", "default.web1.rejects"))
        self.assertNotIn("refused", self.status())
        follower.stop()

    def problems(self):
        done = self.run_program("millrace", "status", "--data-dir", self.path("data"), "--sample=0", "--json")
        return [p["problem"] for p in json.loads(done.stdout)["problems"] if "put" in p["problem"]]

    def test_a_follower_that_does_not_run(self):
        """A follower that was killed, has ended or did not start is a problem until it runs again. A second follower of the log does not
        hide the problem."""
        log = self.write("access.log", (LINE % b"one").decode())
        follower = self.follow(log)
        wait_until(lambda: self.metrics().get("millrace_put_posted_total") == 1, self.metrics)
        self.assertEqual(self.problems(), [])
        for second in (self.follow(log), self.follow("--rejects=/", log), self.follow("--time-zone=No/Where", log)):
            self.assertNotEqual(second.process.wait(harness.PATIENCE), 0)
            self.assertEqual(self.problems(), [])
        follower.kill9()
        self.assertEqual(self.problems(), ["millrace put --follow --producer=web1 was killed"])
        for args, status in (("--rejects=/",), 73), (("--time-zone=No/Where",), 64):
            self.assertEqual(self.follow(*args, log).process.wait(harness.PATIENCE), status)
            self.assertEqual(self.problems(), ["millrace put --follow --producer=web1 has ended with exit status %d" % status])
        follower = self.follow(log)
        wait_until(lambda: self.problems() == [], self.problems)
        follower.stop()
        self.assertEqual(self.problems(), [])
        self.assertEqual(self.follow("--producer=trial", "--rejects=/", log).process.wait(harness.PATIENCE), 73)
        self.assertEqual(self.problems(), ["millrace put --follow --producer=trial has ended with exit status 73"])
        report = self.path("data", "put", "default.trial.prom")
        self.assertIn("delete " + report, " ".join(self.status().split()))
        os.remove(report)
        self.assertEqual(self.problems(), [])

    def test_a_log_that_was_packed_before_it_was_posted(self):
        """The message and `millrace status` name the byte after which lines are missing, and the command that posts exactly these lines."""
        log, packed = self.path("access.log"), self.path("access.log.2.gz")
        self.write("access.log", (LINE % b"one").decode())
        follower = self.follow(log)
        wait_until(lambda: self.metrics().get("millrace_put_posted_total") == 1, self.metrics)
        follower.kill9()
        os.rename(log, self.path("access.log.2"))
        self.write("access.log", (LINE % b"four").decode())
        with open(packed, "wb") as f:
            f.write(gzip.compress(LINE % b"one" + LINE % b"two" + LINE % b"three"))
        os.remove(self.path("access.log.2"))
        follower = self.follow(log)
        missing = "its lines after byte %d, and rotated files after it, are not posted" % len(LINE % b"one")
        problem = "web1: the log file before .*access.log was deleted or packed .*" + missing
        # The report of the killed follower stays until the new one has written its own.
        wait_until(lambda: re.search(problem, "\n".join(self.problems())), self.problems)
        wait_until(lambda: self.metrics().get("millrace_put_posted_total") == 1, self.metrics)
        follower.stop()
        self.assertIn(missing, follower.log)
        command = re.search(r"(zcat -f COPY \| tail -c \+\d+ \| millrace put),", " ".join(self.status().split()))[1]
        self.assertIn(command, follower.log)
        command = command.replace("COPY", packed).replace("millrace put", "%s put --data-dir=%s --format=combined" % (
            harness.program("millrace"), self.path("data")))
        self.assertEqual(subprocess.run(command, shell=True).returncode, 0)
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 1, "/three": 1, "/four": 1}, lambda: self.breakdown("p.all"))
        follower = self.follow(log)
        wait_until(lambda: self.problems() == [], self.problems)
        follower.stop()

    def test_the_report_belongs_to_the_follower_that_runs(self):
        """Two followers of a producer in different logs: the second moves the mark, so the first ends; the second reports then."""
        first_log = self.write("first.log", (LINE % b"one").decode())
        first = self.follow(first_log)
        wait_until(lambda: self.metrics().get("millrace_put_posted_total") == 1, self.metrics)
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/producers?producer=web1&mark=0").status, 200)
        second = self.follow(self.write("second.log", (LINE % b"two" * 3).decode()))
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 3}, lambda: self.breakdown("p.all"))
        with open(first_log, "ab") as f:
            f.write(LINE % b"three")
        self.assertEqual(first.process.wait(harness.PATIENCE), 75)
        wait_until(lambda: self.metrics().get("millrace_put_posted_total") == 3, self.metrics)
        self.assertEqual(self.problems(), [])
        second.stop()

    def test_logs_without_referrers_are_no_alarm(self):
        """A field that is always "-", or that the format "common" does not have, is not a misspelt one."""
        bare = b'192.0.2.7 - - [24/Mar/2012:09:00:00 +0000] "GET /x HTTP/1.1" 200 5'
        log = self.write("access.log", (bare + b' "-" "-"\n').decode() * 1000 + (bare + b"\n").decode() * 1000)
        done = self.put("--producer=p", log)
        self.assertEqual((done.returncode, b"warning" in done.stderr), (0, False), done)
        wait_until(lambda: self.breakdown("p.all") == {"/x": 2000}, lambda: self.breakdown("p.all"))
        self.assertEqual(self.pipeline.ask("aggregator", "GET", "/health").text, "ready\n")
        self.assertEqual(self.breakdown("r.all"), {"None": 2000})
        log = self.write("short.log", '192.0.2.7 [24/Mar/2012:09:00:00 +0000] "GET /x HTTP/1.1" 200\n' * 1000)
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), '--log-format=%h %t "%r" %>s', log)
        self.assertEqual((done.returncode, b"warning" in done.stderr), (0, False), done)

    def test_several_logs(self):
        """Patterns, also of logs that are made later; a rotated file belongs to its log; a log may first be the only one."""
        os.mkdir(self.path("logs"))
        self.write("logs/a.log", (LINE % b"a").decode())
        self.write("logs/a.log.2.gz", "not read")
        self.write("other", (LINE % b"other").decode())
        follower = self.follow(self.path("other"))
        want = {"/other": 1}
        wait_until(lambda: self.breakdown("p.all") == want, lambda: self.breakdown("p.all"))
        follower.stop()
        follower = self.follow(self.path("logs/*.log*"), self.path("other"))
        want["/a"] = 1
        wait_until(lambda: self.breakdown("p.all") == want, lambda: self.breakdown("p.all"))
        os.rename(self.path("logs/a.log"), self.path("logs/a.log.1"))
        self.write("logs/a.log", (LINE % b"a2").decode())
        self.write("logs/b.log", (LINE % b"b").decode() * 2)
        want.update({"/a2": 1, "/b": 2})
        wait_until(lambda: self.breakdown("p.all") == want, lambda: self.breakdown("p.all"))
        follower.stop()
        for name in ("a", "b"):
            with open(self.path("logs", name + ".log"), "ab") as f:
                f.write(LINE % b"more")
        follower = self.follow(self.path("logs/*.log*"), self.path("other"))
        want["/more"] = 2
        wait_until(lambda: self.breakdown("p.all") == want, lambda: self.breakdown("p.all"))
        follower.stop()

    def test_a_format_in_directives(self):
        log = self.write("a.log", '192.0.2.7|bob smith|[24/Mar/2012:09:00:00 +0000]|"GET /one HTTP/1.1"|200\n')
        done = self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"),
                                '--log-format=%h|%u|%t|"%r"|%>s', log)
        self.assertEqual(done.returncode, 0, done)
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1}, lambda: self.breakdown("p.all"))
        extended = self.write("w3c.log", "#Version: 1.0\n#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query sc-status\n"
                              "2012-03-24 09:00:00 192.0.2.7 GET /two a=b 200\n#Date: 2012-03-24 09:00:01\n")
        done = self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"),
                                "--log-format=%{%Y-%m-%d %H:%M:%S}t %h %m %U %q %>s", extended)
        self.assertEqual(done.returncode, 0, done)
        wait_until(lambda: self.breakdown("p.all") == {"/one": 1, "/two": 1}, lambda: self.breakdown("p.all"))
        for form in ("%h %u", "$remote_addr"):
            done = self.run_program("millrace", "put", "--config", self.config, "--data-dir", self.path("data"), "--log-format=" + form, log)
            self.assertEqual(done.returncode, 64, done)
            self.assertIn(b"the format has no time", done.stderr)


if __name__ == "__main__":
    harness.main()
