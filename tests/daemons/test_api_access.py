"""Who may ask the API what: tokens with scopes, keys and rates, web pages of other origins, and the log of requests."""
# seconds: 15
import datetime
import json
import os
import re
import resource
import signal
import socket
import threading
import time
import unittest.mock

import harness
import test_api
from harness import query, request, wait_until
from test_api import MARCH, hour_text

PAGE = "https://stats.example"
EVENT = b'{"t":1332637200,"l":"bitly"}'
SPAN = {"from_": MARCH, "to": MARCH + 3600, "unit": "hour"}


class AccessTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.source = test_api.Source(self)
        self.config = self.write("test.conf", harness.sample_counters())

    def start_api(self, *args, **kw):
        self.api = self.start("api", "--config", self.config, "--queue-url", self.source.url, "--aggregator-url",
                              self.source.url, *args, **kw)

    def tokens(self, text, mode=0o600):
        path = self.write("tokens", text)
        os.chmod(path, mode)
        return "--tokens-file=" + path

    def ask(self, target, token=None, method="GET", body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            headers["Authorization"] = "Bearer " + token
        return request(self.api.url, method, target, body, headers=headers)


class TokensTest(AccessTest):
    def test_a_token_has_its_scopes_and_no_others(self):
        self.start_api(self.tokens("# name scopes token\n\nr read RR\nw write WW\nboth read,write BB\na admin AA\n"))
        calls = {"read": ("GET", "/v1/series?user=k", None), "write": ("POST", "/v1/events", EVENT),
                 "stats": ("GET", "/stats", None), "counters": ("GET", "/v1/counters", None),
                 "incr": ("POST", "/v1/incr?ns=u&key=k", None), "pixel": ("GET", "/v1/pixel.gif?l=k", None)}
        reads, writes = {"read", "stats", "counters"}, {"write", "incr", "pixel"}
        for token, may in (("RR", reads), ("WW", writes), ("BB", reads | writes), ("AA", set())):
            for name, (method, target, body) in calls.items():
                reply = self.ask(target, token, method, body)
                self.assertEqual(reply.status, 200 if name in may else 403, (token, name, reply))
                if name not in may:
                    self.assertEqual(reply.json()["code"], "forbidden")
        for wrong in (None, "R", "RRR", "rr", "", "x" * 600):
            reply = self.ask("/v1/series?user=k", wrong)
            self.assertEqual((reply.status, reply.header("WWW-Authenticate")), (401, "Bearer"), wrong)
        self.assertEqual((self.ask("/ping").status, self.ask("/health").status), (200, 200))

    def test_the_single_token_works_as_before_and_beside(self):
        single = self.write("single", "SS\n")
        os.chmod(single, 0o600)
        for args in ((), (self.tokens("r read RR\n"),)):
            self.start_api("--auth-token-file=" + single, *args)
            for method, target, body in (("GET", "/v1/series?user=k", None), ("POST", "/v1/events", EVENT)):
                self.assertEqual(self.ask(target, "SS", method, body).status, 200, (args, target))
            self.assertEqual(self.ask("/v1/series?user=k", "RR").status, 200 if args else 401)
            self.assertEqual(self.ask("/v1/series?user=k").status, 401)

    def test_a_token_sees_its_keys_only(self):
        self.start_api(self.tokens("shop read SS keys=u|shop,u|a%2Cb%2A,h|exa*\nall read RR\n"))
        for target, status in (("series?user=shop", 200), ("series?ns=u&key=shop", 200), ("series?user=a%2Cb%2A", 200),
                               ("breakdown?user=shop&by=country", 200), ("compare?user=shop", 200),
                               ("series?user=shop&by=country&sub=US", 200), ("counters", 200),
                               ("freshness", 200), ("series?user=shop&user=a%2Cb%2A", 200), ("series?user=shop&user=shop2", 403),
                               ("series?ns=u&key=shop&key=x", 403), ("series?user=shop&by=country&top=2", 200),
                               ("series?user=x&by=country&top=2", 403), ("series?feed=&by=user&top=2", 403),
                               ("series?user=shop2", 403), ("series?user=sho", 403), ("series?user=a%2Cbc", 403),
                               ("series?feed=", 403), ("top?counter=user", 403), ("breakdown?user=x&by=country", 403),
                               ("compare?user=x", 403), ("series?ns=c.u&key=x&sub=US", 403),
                               ("series?ns=zz&key=shop", 403)):
            reply = self.ask("/v1/" + target, "SS")
            self.assertEqual(reply.status, status, (target, reply))
            self.assertEqual(self.ask("/v1/" + target, "RR").status, 404 if "ns=zz" in target else 200, target)
        for path in ("/stats", "/metrics"):
            self.assertEqual(self.ask(path, "SS").status, 403, path)

    def test_every_route_that_shows_keys_checks_them(self):
        """A route that is not known to check keys is closed to a token with a list of keys."""
        self.start_api(self.tokens("shop read,write SS keys=u|shop\n"))
        api, listed = self.api, self.routes()
        self.api = api
        self.assertIn("/v1/series", listed)
        for path in listed:
            if path in ("/ping", "/health", "/v1/counters", "/v1/openapi.json", "/m.js"):
                continue
            for params in ("user=other", "counter=user", "prefix=o", "key=other", "ns=u&key=other"):
                reply = self.ask("%s?%s" % (path, params), "SS")
                if path not in ("/v1/events", "/v1/pixel.gif", "/v1/incr"):
                    self.assertIn(reply.status, (400, 403, 404, 405), (path, params))

    def routes(self):
        self.start_api()
        return re.findall(r"(?m)^(/\S+)", self.api.get("/").text)

    def test_a_rate_is_a_bound_of_one_token(self):
        self.start_api(self.tokens("slow read SS rate=3\nfree read FF\n"))

        def burst():
            replies = [self.ask("/v1/counters", "SS") for _ in range(12)]
            return [r for r in replies if r.status == 429]
        refused = wait_until(burst, "429")
        self.assertEqual({(r.json()["code"], r.header("Retry-After")) for r in refused}, {("too-many-requests", "1")})
        self.assertEqual({self.ask("/v1/counters", "FF").status for _ in range(12)}, {200})
        wait_until(lambda: self.ask("/v1/counters", "SS").status == 200, "the next second")

    def test_hup_reads_the_tokens_again(self):
        arg = self.tokens("one read AA\n")
        self.start_api(arg)
        self.tokens("two read BB\n")
        os.kill(self.api.pid, signal.SIGHUP)
        wait_until(lambda: self.ask("/v1/counters", "BB").status == 200, "the new token")
        self.assertEqual(self.ask("/v1/counters", "AA").status, 401)
        self.tokens("three read SECRET extra\n")
        os.kill(self.api.pid, signal.SIGHUP)
        wait_until(lambda: "the tokens in use stay in force" in self.api.log, lambda: self.api.log)
        self.assertEqual(self.ask("/v1/counters", "BB").status, 200)
        self.assertNotIn("SECRET", self.api.log)

    def test_a_request_in_progress_keeps_its_token(self):
        self.start_api(self.tokens("one read AA\n"))
        release = threading.Event()
        self.addCleanup(release.set)
        self.source.act = lambda h: not release.wait()  # then the usual answer
        c = harness.connect(self.api.url)
        c.request("GET", "/v1/series?user=k", headers={"Authorization": "Bearer AA"})
        wait_until(lambda: self.source.asked, "the question")
        self.tokens("two read BB\n")
        os.kill(self.api.pid, signal.SIGHUP)
        wait_until(lambda: self.ask("/v1/counters", "BB").status == 200, "the new tokens")
        release.set()
        self.assertEqual(c.getresponse().status, 200)
        c.close()

    def test_bad_files_are_refused_by_name(self):
        for text, why in (("a read\n", "line 1: write NAME"), ("\n# x\na reed T\n", "line 3: the scopes"),
                          ("a read T\nb read T\n", "line 2: the token is used twice"), ("a b c d\n", "line 1: the scopes"),
                          ("a read T\na read U\n", "line 2: the name is used twice"), ("a read T rate=0\n", "rate="),
                          ("a read T keys=shop\n", "keys="), ("a read T keys=u|a*b\n", "keys="), ("a read T keys=\n", "keys="),
                          ("a! read T\n", "line 1: the name"), ("a read T keys=u|%zz\n", "keys="),
                          ("a read %s\n" % ("x" * 513), "too long")):
            path = self.write("tokens", text)
            os.chmod(path, 0o600)
            daemon = self.daemon("api", "--config", self.config, "--queue-url", self.source.url, "--aggregator-url",
                                 self.source.url, "--tokens-file=" + path)
            wait_until(lambda: not daemon.alive(), lambda: daemon.log)
            self.assertIn(why, daemon.log, text)
        daemon = self.daemon("api", "--config", self.config, self.tokens("a read T\n", 0o644), "--queue-url",
                             self.source.url, "--aggregator-url", self.source.url)
        wait_until(lambda: "open to all users" in daemon.log, lambda: daemon.log)


class OriginsTest(AccessTest):
    def test_pages_of_listed_origins_read_answers(self):
        self.start_api("--allowed-origins=%s, http://10.0.0.1:3000" % PAGE)
        for origin in (PAGE, "HTTPS://STATS.example", "http://10.0.0.1:3000"):
            reply = self.ask("/v1/series?user=k", Origin=origin, Sec_Fetch_Site="cross-site")
            self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin"), reply.header("Vary")),
                             (200, origin, "Origin"))
            self.assertIn("ETag", reply.header("Access-Control-Expose-Headers"))
        wrong = self.ask("/v1/series?unit=x", Origin=PAGE)
        self.assertEqual((wrong.status, wrong.header("Access-Control-Allow-Origin")), (400, PAGE))
        for origin in ("https://evil.example", "http://stats.example", "https://stats.example:8443", "null",
                       "https://stats.example.evil.example"):
            reply = self.ask("/v1/series?user=k", Origin=origin)
            self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin"), reply.header("Vary")),
                             (403, None, "Origin"), origin)
        plain = self.ask("/v1/series?user=k")
        self.assertEqual((plain.status, plain.header("Access-Control-Allow-Origin"), plain.header("Vary")),
                         (200, None, "Origin"))

    def preflight(self, target, origin, method="GET"):
        return self.ask(target, method="OPTIONS", Origin=origin, Access_Control_Request_Method=method,
                        Access_Control_Request_Headers="authorization")

    def test_a_preflight_needs_no_token(self):
        self.start_api("--allowed-origins=" + PAGE, self.tokens("r read RR\n"))
        reply = self.preflight("/v1/series?user=k", PAGE)
        self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin"), reply.header("Vary")), (204, PAGE, "Origin"))
        self.assertEqual(reply.header("Access-Control-Allow-Methods"), "GET, HEAD, OPTIONS")
        self.assertEqual(reply.header("Access-Control-Allow-Headers"), "authorization")
        self.assertEqual(self.preflight("/v1/series", "https://evil.example").status, 403)
        unauthorized = self.ask("/v1/series?user=k", Origin=PAGE)
        self.assertEqual((unauthorized.status, unauthorized.header("Access-Control-Allow-Origin")), (401, PAGE))
        self.assertEqual(self.ask("/v1/series?user=k", "RR", Origin=PAGE).status, 200)

    def test_without_the_setting_only_events_are_for_pages(self):
        self.start_api()
        for path in ("/v1/series?user=k", "/v1/counters", "/stats"):
            reply = self.ask(path, Origin=PAGE)
            self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin")), (403, None), path)
            self.assertEqual(self.preflight(path, PAGE).status, 405, path)

    def test_every_page_may_post_events_with_credentials_and_any_headers(self):
        """navigator.sendBeacon always sends credentials, and tools that trace a page add headers to its requests."""
        for setting in ([], ["--allowed-origins=" + PAGE], ["--allowed-origins=*"]):
            self.start_api(*setting)
            for origin in (PAGE, "https://shop.example", "null", "http://localhost:3000", "capacitor://localhost"):
                for asked in ("content-type", "baggage,content-type,traceparent", "sentry-trace, x-datadog-origin"):
                    for path, method in (("/v1/events", "POST"), ("/v1/events?all_or_none=1", "POST"), ("/v1/pixel.gif", "GET")):
                        reply = self.ask(path, method="OPTIONS", Origin=origin, Host="stats.example", Sec_Fetch_Site="cross-site",
                                         Access_Control_Request_Method=method, Access_Control_Request_Headers=asked)
                        self.assertEqual((reply.status, reply.header("Access-Control-Allow-Headers")), (204, asked))
                        self.assertIn(method, reply.header("Access-Control-Allow-Methods"))
                        self.may_read(reply, origin)
                self.may_read(self.ask("/v1/events", method="POST", body=EVENT, Origin=origin, Content_Type="text/plain", Cookie="a=b"), origin, 200)
                self.may_read(self.ask("/v1/events", method="POST", body=b"x", Origin=origin, traceparent="00-1"), origin, 400)
                self.may_read(self.ask("/v1/pixel.gif?l=a", Origin=origin), origin, 200)
            preflight = self.preflight("/v1/series", "https://shop.example")
            self.assertEqual(preflight.header("Access-Control-Allow-Origin"), "*" if setting == ["--allowed-origins=*"] else None)
            self.api.stop()

    def may_read(self, reply, origin, status=204):
        self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin"), reply.header("Access-Control-Allow-Credentials"),
                          reply.header("Vary")), (status, origin, "true", "Origin"))

    def test_the_public_endpoints_below_another_path(self):
        for setting, prefix in (("/p", "/p"), ("/p/", "/p"), ("/a.b/c-d", "/a.b/c-d"), ("/", "")):
            self.start_api("--public-path=" + setting, "--public-port=0")
            public = "http://127.0.0.1:" + re.search(r'public port .*?port=(\d+)', self.api.log).group(1)
            for url in (self.api.url, public):
                for path in (prefix, "/v1"):
                    self.assertEqual(request(url, "POST", path + "/events", EVENT).json(), {"accepted": 1}, path)
                    self.assertEqual(request(url, "GET", path + "/pixel.gif?l=x").header("Content-Type"), "image/gif")
                    self.assertEqual(request(url, "GET", prefix + "/image.gif?l=image").header("Content-Type"), "image/gif")
                    self.assertEqual(json.loads(self.source.posted[-1][1])["l"], "image")
                    self.assertEqual(request(url, "OPTIONS", path + "/events", headers={"Origin": PAGE}).status, 204)
                self.assertEqual(request(url, "GET", prefix + "/counters").status, 404)
                self.assertEqual(request(url, "POST", prefix + "/incr?ns=u&key=k").status, 404)
            self.assertEqual(request(self.api.url, "GET", "/v1/counters").status, 200)
            self.assertEqual(request(self.api.url, "GET", prefix + "/events").status, 405)
            self.api.stop()
        for wrong in ("p", "//", "/p?x", "/a b", "/%41"):
            result = self.run_program("api", "--check-config", "--config", self.config, "--public-path=" + wrong)
            self.assertEqual(result.returncode, 78, wrong)
            self.assertIn(b"--public-path: it must be a path", result.stderr)

    def test_with_the_setting_no_page_sets_a_mark(self):
        self.start_api("--allowed-origins=" + PAGE)
        for marks in ("queue=q", "producer=p&mark=0&next=1"):
            self.assertEqual(self.ask("/v1/events?" + marks, method="POST", body=EVENT, Origin=PAGE).status, 403)

    def test_a_star_is_every_origin_and_other_lists_are_refused(self):
        self.start_api("--allowed-origins=*")
        reply = self.ask("/v1/counters", Origin="https://any.example")
        self.assertEqual((reply.status, reply.header("Access-Control-Allow-Origin"), reply.header("Vary")), (200, "*", None))
        for wrong in ("stats.example", "https://", "https://a.example/", "https://*.example", "https://a b://"):
            result = self.run_program("api", "--check-config", "--config", self.config, "--allowed-origins=" + wrong)
            self.assertEqual(result.returncode, 78, wrong)
            self.assertIn(b"--allowed-origins: must be a list", result.stderr)


class RequestLogTest(AccessTest):
    def lines(self, path):
        return [json.loads(line) for line in harness.read_file(path).decode().splitlines()]

    def whole_lines(self, path):
        """Those that are there while the log may be written to."""
        return [json.loads(line) for line in harness.read_file(path).decode().split("\n")[:-1]]

    def wait_lines(self, path, n):
        """The lines of other requests than the harness's."""
        def lines():
            found = [e for e in self.whole_lines(path) if e["path"] not in ("/health", "/ping")] if os.path.exists(path) else []
            return len(found) >= n and found
        return wait_until(lines, lambda: harness.read_file(path))

    def start_log(self, *args):
        log = self.path("requests.log")
        self.start_api("--request-log=" + log, *args)
        return log

    def test_a_line_for_each_request(self):
        with unittest.mock.patch.dict(os.environ, TZ="Asia/Tokyo"):  # the times are UTC anyway
            log = self.start_log(self.tokens("shop read SECRET\n"))
        began = time.time()
        reply = self.ask("/v1/series?user=PRIVATE", "SECRET")
        self.ask("/v1/%22quoted%22", "SECRET")
        self.ask("/v1/series?user=PRIVATE", "WRONGWORD")
        with socket.create_connection(("127.0.0.1", int(self.api.url.rsplit(":", 1)[1]))) as s:
            s.sendall(b"GARBAGE\r\n\r\n")
            s.recv(1000)
        ended = time.time()
        lines = self.wait_lines(log, 4)
        self.assertEqual([(e["token"], e["method"], e["path"], e["status"]) for e in lines],
                         [("shop", "GET", "/v1/series", 200), (None, "GET", "/v1/%22quoted%22", 404),
                          (None, "GET", "/v1/series", 401), (None, "", "", 400)])
        first = lines[0]
        self.assertEqual(set(first), {"time", "remote", "token", "method", "path", "status", "bytes", "usec"})
        self.assertRegex(first["remote"], r"^127\.0\.0\.1:\d+$")
        for e in lines:
            self.assertRegex(e["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertTrue(began - 0.1 <= datetime.datetime.fromisoformat(e["time"][:-1] + "+00:00").timestamp() <= ended + 0.1, e)
        self.assertGreater(first["bytes"], len(reply.body))
        self.assertTrue(0 < first["usec"] < (time.time() - began) * 1e6)
        self.ask("/v1/" + "x" * 3000, "SECRET")
        more = self.wait_lines(log, 5)
        self.assertEqual((more[:4], more[4]["path"]), (lines, "/v1/" + "x" * 996))
        text = harness.read_file(log)
        for secret in (b"SECRET", b"PRIVATE", b"WRONGWORD"):
            self.assertNotIn(secret, text)

    def test_a_client_that_leaves(self):
        log = self.start_log()
        release = threading.Event()
        self.addCleanup(release.set)
        self.source.act = lambda h: release.wait()
        c = harness.connect(self.api.url)
        c.request("GET", "/v1/series?user=k")
        wait_until(lambda: self.source.asked, "the question")
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        c.close()
        line = self.wait_lines(log, 1)[0]
        self.assertEqual((line["path"], line["status"], line["bytes"]), ("/v1/series", 0, 0))

    def test_a_client_that_leaves_within_the_reply(self):
        log = self.start_log()
        with socket.create_connection(("127.0.0.1", int(self.api.url.rsplit(":", 1)[1]))) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(b"GET /v1/series?user=k&unit=hour&from=0&to=360000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual(s.recv(15), b"HTTP/1.1 200 OK")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        line = self.wait_lines(log, 1)[0]
        self.assertEqual((line["status"], line.get("cut")), (200, True))

    def test_a_link_is_not_followed(self):
        link = self.path("link")
        os.symlink(self.path("elsewhere"), link)
        daemon = self.daemon("api", "--config", self.config, "--queue-url", self.source.url, "--aggregator-url",
                             self.source.url, "--request-log=" + link)
        wait_until(lambda: not daemon.alive(), lambda: daemon.log)
        self.assertIn(link, daemon.log)
        self.assertFalse(os.path.exists(self.path("elsewhere")))

    def test_hup_begins_a_new_file(self):
        log = self.start_log()
        self.ask("/v1/counters")
        os.rename(log, log + ".1")
        os.kill(self.api.pid, signal.SIGHUP)
        wait_until(lambda: os.path.exists(log), "the new file")
        self.ask("/v1/series?user=k")
        self.assertEqual([e["path"] for e in self.wait_lines(log, 1)], ["/v1/series"])
        self.assertIn("/v1/counters", [e["path"] for e in self.lines(log + ".1")])
        self.assertEqual(os.stat(log).st_mode & 0o777 & 0o007, 0)

    def test_a_stop_writes_the_last_lines(self):
        log = self.start_log()
        for _ in range(50):
            self.ask("/v1/counters")
        self.api.stop()
        self.assertEqual(len([e for e in self.lines(log) if e["path"] == "/v1/counters"]), 50)

    def statistics(self):
        """All requests so far, and lines lost."""
        text = self.ask("/metrics").text
        replies = sum(int(n) for n in re.findall(r"(?m)^millrace_api_requests_total\{[^}]*\} (\d+)", text))
        return replies, int(re.search(r"millrace_api_request_log_lost_total (\d+)", text)[1])

    def test_a_full_disk_loses_whole_lines_and_no_reply(self):
        log = self.start_log()
        for _ in range(3):  # the limit is also that of the daemon's own log, which stays shorter
            self.ask("/v1/" + "x" * 3000)
        self.wait_lines(log, 3)
        limits = resource.prlimit(self.api.pid, resource.RLIMIT_FSIZE)

        def fill():
            # There is room for a part of a line, so that no flush succeeds, however few lines it has.
            resource.prlimit(self.api.pid, resource.RLIMIT_FSIZE, (os.path.getsize(log) + 100, limits[1]))
            for _ in range(2):  # flushes that fail one after the other
                before = self.statistics()[1]
                wait_until(lambda: self.statistics()[1] > before, lambda: self.api.log)
            wait_until(lambda: harness.read_file(log)[-1:] in (b"", b"\n"), "what was written of a line to be cut off")
            resource.prlimit(self.api.pid, resource.RLIMIT_FSIZE, limits)
            n = len(self.whole_lines(log))
            wait_until(lambda: self.ask("/v1/counters") and len(self.whole_lines(log)) > n, "lines again")
        for times in (1, 2):
            fill()
            self.assertEqual(self.api.log.count("cannot write the request log"), times, self.api.log)
        lost = self.statistics()[1]
        self.assertEqual(lost, self.statistics()[1])
        replies, _ = self.statistics()  # and this request itself
        self.api.stop()
        self.assertEqual(len(self.lines(log)) + lost, replies + 1)


if __name__ == "__main__":
    harness.main()
