"""/v1/manage, with which the page shows and changes queues and streams; tokens limited to views; the page in a frame."""
# seconds: 8
import os
import re
import signal

import harness
from harness import query, request, wait_until

ADMIN, VIEWER = "operatorsecret", "viewersecret"
HOSTILE = '<img src=x onerror="attacked=1">\u202e'


class ManageTest(harness.MillraceTest):
    def secret(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o600)
        return path

    def setUp(self):
        super().setUp()
        own = self.secret("daemons", "daemonsecret\n")
        self.queue, self.other = (self.start("simplequeue", "--data-dir=" + self.path(name), "--auth-token-file=" + own) for name in ("q1", "q2"))
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("ps"), "--streams=clicks", "--auth-token-file=" + own)
        self.tokens = self.secret("tokens", "viewer read %s\noperator read,admin %s\n" % (VIEWER, ADMIN))
        self.api = self.start("api", "--config", self.write("c.conf", harness.sample_counters()), "--aggregator-url=http://127.0.0.1:1", "--queue-url=" + self.queue.url,
                              "--queues=" + self.other.url, "--pubsub-url=" + self.pubsub.url, "--queue-token-file=" + own, "--pubsub-token-file=" + own,
                              "--tokens-file=" + self.tokens)

    def on(self, daemon, method, target, body=None):
        reply = request(daemon.url, method, target, body, {"Authorization": "Bearer daemonsecret"})
        self.assertEqual(reply.status, 200, reply)
        return reply

    def ask(self, method, target, token=ADMIN, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(self.api.url, method, target, body, {**headers, **({"Authorization": "Bearer " + token} if token else {})})

    def act(self, act, token=ADMIN, body=None, status=200, **parameters):
        reply = self.ask("POST", "/v1/manage?" + query(act=act, **parameters), token, body)
        self.assertEqual(reply.status, status, reply)
        return reply.json()

    def show(self, what, token=VIEWER, **parameters):
        reply = self.ask("GET", "/v1/manage?" + query(show=what, **parameters), token)
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def bury(self, *messages, daemon=None, reason="why"):
        daemon = daemon or self.queue
        for message in messages:
            self.on(daemon, "POST", "/put?queue=q", message.encode())
        reserved = self.on(daemon, "POST", "/reserve?queue=q&items=%d" % len(messages))
        ids = re.findall(rb"(?m)^(\d+) \d+ \d+$", reserved.body)
        self.on(daemon, "POST", "/bury?" + query(queue="q", lease=reserved.header("X-Millrace-Lease"), id=",".join(i.decode() for i in ids), reason=reason))
        return [i.decode() for i in ids]

    def numbers(self, daemon=None):
        return self.on(daemon or self.queue, "GET", "/stats?format=json").json()["queues"]["q"]

    def test_buried_messages_are_shown_edited_put_back_and_deleted(self):
        ids = self.bury(HOSTILE, "two", "three", "four", reason=HOSTILE)
        buried = self.show("buried", queue="q", items=3)["buried"]
        self.assertEqual([(m["id"], m["message"], m["reason"]) for m in buried], list(zip(ids[:3], (HOSTILE, "two", "three"), [HOSTILE] * 3)))
        self.assertEqual(self.show("buried", queue="q", **{"from": ids[3]})["buried"][0]["message"], "four")
        self.assertEqual(self.act("edit", queue="q", id=ids[0], body="mended".encode()), {"kicked": 1})
        self.assertEqual(self.act("kick", queue="q", id=ids[1]), {"kicked": 1})
        self.assertEqual(self.act("delete", queue="q", id=ids[2]), {"deleted": 1})
        self.assertEqual(self.on(self.queue, "GET", "/dump?queue=q").body, b"mended\ntwo\n")
        self.assertEqual([m["message"] for m in self.show("buried", queue="q")["buried"]], ["four"])
        self.assertEqual(self.act("edit", queue="q", id=ids[3], status=400)["code"], "missing-data")
        self.assertEqual(self.act("kick", queue="q", id=ids[3], body=b"not an edit"), {"kicked": 1})
        self.assertEqual(self.on(self.queue, "GET", "/dump?queue=q").body, b"mended\ntwo\nfour\n")

    def test_a_queue_is_paused_emptied_and_its_leases_end(self):
        self.on(self.queue, "POST", "/mput?queue=q", b"a\nb\nc")
        self.assertEqual(self.act("pause", queue="q"), {"paused": True})
        self.assertEqual((self.numbers()["paused"], self.on(self.queue, "GET", "/get?queue=q").body), (1, b""))
        self.assertEqual(self.act("pause", queue="q", for_=0), {"paused": False})
        self.on(self.queue, "POST", "/reserve?queue=q&reader=r&lease=600000")
        self.assertEqual(self.numbers()["leased"], 1)
        self.assertEqual(self.act("release", queue="q", reader="r"), {"released": 1})
        self.assertEqual(self.act("empty", queue="q"), {"dropped": 3})
        self.assertEqual(self.numbers()["depth"], 0)

    def test_the_queues_of_other_hosts(self):
        self.on(self.other, "POST", "/put?queue=q", b"there")
        self.on(self.queue, "POST", "/put?queue=q", b"here")
        daemons = wait_until(lambda: [d for d in self.ask("GET", "/v1/pipeline", VIEWER).json()["daemons"] if d["name"] == "simplequeue" and d["stats"]],
                             "both queues") and self.ask("GET", "/v1/pipeline", VIEWER).json()["daemons"]
        self.assertEqual([d["url"] for d in daemons if d["name"] == "simplequeue"], [self.queue.url, self.other.url])
        self.assertEqual(self.act("empty", queue="q", url=self.other.url), {"dropped": 1})
        self.assertEqual((self.numbers()["depth"], self.numbers(self.other)["depth"]), (1, 0))
        for url in (self.pubsub.url, self.api.url, "http://127.0.0.1:1", "", self.other.url + "/"):
            self.assertEqual(self.act("empty", queue="q", url=url, status=404)["code"], "unknown-daemon", url)

    def test_streams_producers_and_cursors(self):
        self.on(self.pubsub, "POST", "/pub?" + query(stream="clicks", producer="p1", mark=0, next=1, until=1332637200, name="web1"), b"line\n")
        self.on(self.pubsub, "POST", "/cursors?stream=clicks&name=c&from=earliest")
        producer = self.show("producers", stream="clicks")["producers"][0]
        self.assertEqual((producer["producer"], producer["name"], producer["left_out"]), ("p1", "web1", False))
        self.assertTrue(self.act("leave-out", stream="clicks", producer="p1")["left_out"])
        self.assertTrue(self.show("producers", stream="clicks")["producers"][0]["left_out"])
        self.assertEqual(self.show("cursors", stream="clicks")["cursors"][0]["lag_bytes"], 5)
        self.assertTrue(self.act("delete-cursor", stream="clicks", name="c")["deleted"])
        self.assertEqual(self.show("cursors", stream="clicks"), {"cursors": []})
        self.assertEqual(self.show("subscribers"), {"clients": []})

    def test_only_the_acts_of_the_table_with_their_parameters(self):
        for what, parameters in (("exit", {}), ("/exit", {}), ("buried", {}), ("", {}), ("empty?x", {})):
            self.assertEqual(self.act(what, queue="q", status=400, **parameters)["code"], "bad-parameter", what)
        self.assertEqual(self.act("empty", stream="clicks", status=400)["code"], "bad-parameter")
        self.assertEqual(self.act("leave-out", stream="clicks", producer="p", name="x", status=400)["code"], "bad-parameter")
        reply = self.ask("POST", "/v1/manage?act=pause&queue=q&reset=1")
        self.assertEqual((reply.status, reply.json()["code"]), (400, "unknown-parameter"))
        self.assertEqual(self.act("empty", queue="q&reset=1", status=400)["code"], "bad-parameter")  # the daemon sees one value
        self.assertTrue(self.queue.alive() and self.pubsub.alive())
        self.assertEqual(self.ask("GET", "/v1/manage?show=empty&queue=q").status, 400)
        self.assertEqual(self.ask("GET", "/v1/manage?act=empty&queue=q").status, 400)

    def test_a_change_needs_an_admin_and_a_page_of_the_api(self):
        self.on(self.queue, "POST", "/put?queue=q", b"x")
        target = "/v1/manage?act=empty&queue=q"
        for token, status in ((VIEWER, 403), ("wrong", 401), (None, 401)):
            self.assertEqual(self.ask("POST", target, token).status, status, token)
        self.assertIn("admin", self.ask("POST", target, VIEWER).json()["hint"])
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
                        {"Host": "evil.example"}):
            self.assertEqual(self.ask("POST", target, **headers).status, 403, headers)
        self.assertEqual(self.ask("POST", target, None, Cookie="token=" + ADMIN).status, 401)
        self.assertEqual(self.ask("GET", target).status, 400)
        self.assertEqual(self.numbers()["depth"], 1)
        page = "https://stats.example"  # may read answers with a token, but change nothing
        api = self.start("api", "--config", self.path("c.conf"), "--aggregator-url=http://127.0.0.1:1", "--queue-url=" + self.queue.url,
                         "--tokens-file=" + self.tokens, "--allowed-origins=" + page)
        headers = {"Authorization": "Bearer " + ADMIN, "Origin": page}
        self.assertEqual(request(api.url, "GET", "/v1/access", headers=headers).status, 200)
        self.assertEqual(request(api.url, "POST", target, headers=headers).json()["code"], "foreign-origin")
        self.assertEqual(self.numbers()["depth"], 1)
        self.assertEqual(self.ask("POST", target, Origin=self.api.url).status, 200)
        self.assertEqual(self.numbers()["depth"], 0)

    def test_without_any_token_the_error_names_the_setting(self):
        api = self.start("api", "--config", self.path("c.conf"), "--aggregator-url=http://127.0.0.1:1", "--queue-url=" + self.queue.url,
                         "--pubsub-url=" + self.pubsub.url)
        reply = request(api.url, "POST", "/v1/manage?act=empty&queue=q")
        self.assertEqual(reply.status, 403)
        self.assertIn("--auth-token-file", reply.json()["hint"])
        access = request(api.url, "GET", "/v1/access").json()
        self.assertEqual(access, {"token": "", "scopes": ["read", "write"], "views": None, "has_keys": False})
        free = self.start("simplequeue")  # permits admin requests to nobody
        api = self.start("api", "--config", self.path("c.conf"), "--aggregator-url=http://127.0.0.1:1", "--queue-url=" + free.url, "--allow-exit")
        reply = request(api.url, "POST", "/v1/manage?act=empty&queue=default")
        self.assertEqual(reply.status, 403)
        self.assertIn("auth_token_file under [simplequeue]", reply.json()["hint"])

    def test_each_change_is_logged(self):
        self.on(self.queue, "POST", "/put?queue=q", b"x")
        self.act("pause", queue="q", for_=1)
        self.act("empty", queue="q")
        self.act("edit", queue="q", id="7", body=b"PRIVATE")
        self.show("buried", queue="q")
        self.ask("POST", "/v1/manage?act=empty&queue=q", VIEWER)
        lines = [line for line in self.api.log.splitlines() if " managed " in line]
        self.assertEqual([re.search(r"act=(\S+) token=(\S+) client=(\S+):\d+ daemon=(\S+) url=(\S+) .*status=(\d+)", line).groups() for line in lines],
                         [(act, "operator", "127.0.0.1", "simplequeue", self.queue.url, "200") for act in ("pause", "empty", "edit")])
        self.assertIn("/empty?queue=q", lines[1])
        self.assertRegex(lines[0], r"^\d{4}-\d\d-\d\dT")
        for secret in (ADMIN, VIEWER, "daemonsecret", "PRIVATE"):
            self.assertNotIn(secret, self.api.log)

    def test_a_daemon_that_hangs_or_is_away(self):
        os.kill(self.queue.pid, signal.SIGKILL)
        wait_until(lambda: not self.queue.alive(), "its end")
        reply = self.act("empty", queue="q", status=503)
        self.assertEqual(reply["code"], "upstream-unavailable")
        self.assertIn("before you repeat", reply["hint"])
        line = next(line for line in self.api.log.splitlines() if " managed " in line)
        self.assertRegex(line, r"status=0 error=\S+")


class ViewsTest(harness.MillraceTest):
    def start_api(self, *args, tokens=None):
        config = self.write("c.conf", harness.sample_counters())
        if tokens:
            path = self.write("tokens", tokens)
            os.chmod(path, 0o600)
            args += ("--tokens-file=" + path,)
        return self.start("api", "--config", config, "--queue-url=http://127.0.0.1:1", "--aggregator-url=http://127.0.0.1:1", "--pubsub-url=http://127.0.0.1:1", *args)

    def test_a_token_of_some_views_calls_only_their_endpoints(self):
        """Every endpoint that is not listed here is closed, also one that is added later."""
        always = {"/v1/changes", "/v1/counters", "/v1/freshness", "/v1/openapi.json", "/v1/access"}
        counts = {"/v1/" + name for name in ("series", "breakdown", "compare", "top", "quantile", "uniques", "retention", "cohort", "lookup")}
        permits = {"overview": counts | {"/v1/live/rate"}, "key": counts, "live": {"/v1/live", "/v1/live/rate"}, "queues": {"/v1/manage", "/v1/pipeline"},
                   "pipeline": {"/v1/pipeline"}, "metrics": {"/api/v1/rules", "/api/v1/alerts", "/api/v1/metadata", "/api/v1/*"}}
        api = self.start_api(tokens="".join("t%s read,write,admin %s views=%s\n" % (v, v * 3, v) for v in permits) + "both read BOTH views=key,live keys=u|shop\n")
        paths = re.findall(r"(?m)^(/\S*)", request(api.url, "GET", "/").text)
        opened = {"/", "/m.js", "/ping", "/health", "/reload"}
        self.assertLess(opened | counts | {"/v1/access"}, set(paths))
        permits["both"] = counts - {"/v1/lookup"}  # keys= closes the endpoints that show other keys
        for view, may in permits.items():
            token = "BOTH" if view == "both" else view * 3
            for path in sorted(set(paths) - opened):
                for method in ("GET", "POST"):
                    reply = request(api.url, method, path.replace("*", "query") + "?x=1", b"{}" if method == "POST" else None, {"Authorization": "Bearer " + token})
                    if reply.status == 405:
                        continue
                    self.assertEqual(reply.status == 403, path not in may | always, (view, method, path, reply))
        access = request(api.url, "GET", "/v1/access", headers={"Authorization": "Bearer BOTH"}).json()
        self.assertEqual(access, {"token": "both", "scopes": ["read"], "views": ["key", "live"], "has_keys": True})
        for other in ("series?user=shop2", "breakdown?user=x&by=country", "top?counter=user", "series?user=shop&user=x"):
            self.assertEqual(request(api.url, "GET", "/v1/" + other, headers={"Authorization": "Bearer BOTH"}).status, 403, other)
        self.assertEqual(request(api.url, "GET", "/v1/series?user=shop", headers={"Authorization": "Bearer BOTH"}).status, 503)  # reaches the sources
        self.assertNotIn("BOTH", api.log)

    def test_wrong_views_are_refused(self):
        for line in ("a read T views=\n", "a read T views=keys\n", "a read T views=key views=live\n", "a read T views=key,,x\n"):
            path = self.write("tokens", line)
            os.chmod(path, 0o600)
            api = self.daemon("api", "--config", self.write("c.conf", harness.sample_counters()), "--tokens-file=" + path)
            wait_until(lambda: not api.alive(), lambda: api.log)
            self.assertRegex(api.log, "views= must list|write NAME", line)

    def test_a_frame_only_for_the_listed_origins(self):
        html = {"Accept": "text/html"}
        frame = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe", **html}

        def ancestors(api, target, headers):
            reply = request(api.url, "GET", target, headers=headers)
            self.assertIn(reply.status, (200, 404), reply)
            policy = reply.header("Content-Security-Policy")
            return policy and policy.partition("frame-ancestors ")[2].split()
        api = self.start_api("--embed-origins=https://shop.example, http://10.0.0.1:3000")
        if ancestors(api, "/", html) is None:
            harness.not_installed(self, "the page is not built (make page)")
        self.assertEqual(ancestors(api, "/?view=key&embed=1", frame), ["https://shop.example", "http://10.0.0.1:3000"])
        for target in ("/", "/?embed=2", "/?embed=", "/app.js?embed=1"):
            self.assertEqual(ancestors(api, target, html), ["'none'"], target)
        self.assertEqual(request(api.url, "GET", "/v1/counters", headers=frame).status, 403)
        self.assertEqual(request(api.url, "GET", "/reload", headers=frame).status, 403)
        self.assertEqual(ancestors(self.start_api(), "/?embed=1", frame), ["'none'"])
        for wrong in ("shop.example", "https://a.example; script-src *", "https://a.example;x", "https://a.example/x"):
            result = self.run_program("api", "--check-config", "--config", self.path("c.conf"), "--embed-origins=" + wrong)
            self.assertEqual(result.returncode, 78, wrong)
            self.assertIn(b"--embed-origins: must be a list", result.stderr)


if __name__ == "__main__":
    harness.main()
