"""What a web page of another site can have a browser of this host send: no daemon does it, but for what is made for pages."""
import os
import re
import resource
import socket
import subprocess

import harness
from harness import MillraceTest, Pipeline, pipeline_config

FOREIGN = ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"},
           {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "cross-site"},
           {"Sec-Fetch-Site": "same-site"})
DAEMONS = ("simplequeue", "pubsub", "aggregator", "sortdb", "api")
PUBLIC = {("api", "/v1/events"), ("api", "/v1/pixel.gif"), ("api", "/m.js")}
EVENT = b'{"t":1332637200,"l":"bitly"}'
TOKEN = {"Authorization": "Bearer secret"}


class StrangersTest(MillraceTest):
    def pipeline(self, **sections):
        path = self.write("millrace.conf", pipeline_config(self.path("data"), **sections))
        return Pipeline(self, path, self.path("data")).wait_ready()

    def test_no_endpoint_answers_a_page_of_another_origin(self):
        up = self.pipeline()
        refused = 0
        for name in DAEMONS:
            for path in re.findall(r"(?m)^(/\S*)", up.ask(name, "GET", "/").text):
                for headers in FOREIGN if (name, path) not in PUBLIC else ():
                    replies = [up.ask(name, method, path, headers=headers) for method in ("GET", "POST", "DELETE")]
                    taken = [reply for reply in replies if reply.status != 405]
                    self.assertEqual([r for r in taken if r.status != 403], [], (name, path, headers))
                    refused += len(taken)
                    self.assertTrue(taken, (name, path))
        self.assertGreater(refused, 200)

    def test_our_own_pages_and_programs_are_answered(self):
        up = self.pipeline(simplequeue={"allowed_hosts": "stats.example, shop.example"})
        url = up.daemon_url("simplequeue")
        port = url.rsplit(":", 1)[1]
        for headers in ({}, {"Host": "localhost:" + port}, {"Host": "queuehost:" + port}, {"Origin": url},
                        {"Host": "stats.example"}, {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"},
                        {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
            self.assertEqual(up.ask("simplequeue", "GET", "/ping", headers=headers).status, 200, headers)
        self.assertEqual(up.ask("simplequeue", "GET", "/ping", headers={"Host": "evil.example"}).status, 403)

    def test_the_host_of_a_target_is_judged_as_a_host(self):
        up = self.pipeline(simplequeue={"allowed_hosts": "stats.example"})
        where = up.daemon_url("simplequeue")[len("http://"):].split(":")

        def status(target, host):
            with socket.create_connection((where[0], int(where[1]))) as s:
                s.sendall(b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, host))
                return int(s.makefile("rb").readline().split()[1])
        for target in (b"http://127.0.0.1:8080/ping", b"http://localhost/ping", b"http://stats.example:1/ping", b"http://localhost",
                       b"http://localhost?a=/"):
            self.assertEqual(status(target, b"localhost"), 200, target)
            self.assertEqual(status(target, b"evil.example"), 403, target)
        for target in (b"http://evil.example/ping", b"http://evil.example:80/put?data=x", b"http://evil.example", b"http:///ping",
                       b"http://evil.example?a=//localhost/", b"http://x@evil.example/ping", b"http://localhost@evil.example/ping",
                       b"http://127.0.0.1.evil.example/mget"):
            self.assertEqual(status(target, b"localhost"), 403, target)
        self.assertEqual(up.ask("simplequeue", "GET", "/stats?format=json").json()["depth"], 0)

    def test_a_page_posts_events_but_moves_no_mark_and_names_no_queue(self):
        up = self.pipeline()
        page = {"Origin": "http://shop.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
        for wanted in ("producer=app7&mark=0&next=18446744073709551615", "queue=other", "producer=app7", "mark=0&next=1"):
            reply = up.ask("api", "POST", "/v1/events?" + wanted, EVENT, headers=page)
            self.assertEqual((reply.status, reply.json()["code"]), (403, "foreign-origin"), wanted)
        self.assertEqual(up.ask("api", "POST", "/v1/events", EVENT, headers=page).status, 200)
        reply = up.ask("api", "POST", "/v1/events?producer=app7&mark=0&next=1", EVENT)
        self.assertEqual(reply.status, 200)
        self.assertIs(reply.json().get("duplicate", False), False, "the mark of app7 had not moved")

    def public_port(self, up):
        """The URL of the API's public port, from the log of `millrace up`."""
        found = harness.wait_until(lambda: re.search(r"public port .*?port=(\d+)", up.log), lambda: up.log)
        return "http://127.0.0.1:" + found[1]

    def test_the_public_port_takes_events_and_nothing_else(self):
        token = self.write("token", "secret")
        os.chmod(token, 0o600)
        up = self.pipeline(api={"public_port": 0, "auth_token_file": token, "public_max_body": 1000})
        url = self.public_port(up)
        for path in re.findall(r"(?m)^(/\S*)", up.ask("api", "GET", "/", headers={"Authorization": "Bearer secret"}).text):
            for method in ("GET", "POST", "DELETE") if ("api", path) not in PUBLIC else ():
                reply = harness.request(url, method, path, headers={"Authorization": "Bearer secret"})
                self.assertEqual(reply.status, 404, (method, path))
                self.assertNotIn("GET /", reply.text, "the public port serves no list of endpoints")
        page = {"Origin": "http://shop.example", "Host": "clicks.example"}
        self.assertEqual(harness.request(url, "POST", "/v1/events", EVENT, headers=page).status, 200)
        self.assertEqual(up.ask("simplequeue", "GET", "/stats?format=json").json()["puts"], 1)
        for wanted in ("queue=other", "producer=app7&mark=0&next=1"):
            self.assertEqual(harness.request(url, "POST", "/v1/events?" + wanted, EVENT).status, 403, wanted)
        self.assertEqual(harness.request(url, "POST", "/v1/events", EVENT * 50).status, 413)
        self.assertEqual(harness.request(url, "GET", "/v1/pixel.gif?l=bitly&queue=other", headers=page).status, 200)
        self.assertEqual(up.ask("simplequeue", "GET", "/stats?format=json").json()["puts"], 2)
        self.assertEqual(up.ask("api", "POST", "/v1/events", EVENT).status, 401, "the daemon's own port asks for the token")

    def test_the_public_port_bounds_its_rate(self):
        up = self.pipeline(api={"public_port": 0, "public_rate": 1})
        url = self.public_port(up)
        replies = [harness.request(url, "POST", "/v1/events", EVENT) for _ in range(20)]
        refused = [r for r in replies if r.status == 429]
        self.assertTrue(refused and len(refused) < 20)
        self.assertTrue(all(r.json()["code"] == "too-many-requests" and r.header("Retry-After") for r in refused))
        self.assertEqual(up.ask("api", "POST", "/v1/events", EVENT).status, 200, "the daemon's own port has no such bound")

    def test_free_ports_cover_the_public_port(self):
        with socket.socket() as used:
            used.bind(("127.0.0.1", 0))
            used.listen()
            path = self.write("millrace.conf", pipeline_config(self.path("data"), api={"public_port": used.getsockname()[1]}))
            up = Pipeline(self, path, self.path("data"), "--free-ports").wait_ready()
            self.assertEqual(harness.request(self.public_port(up), "POST", "/v1/events", EVENT).status, 200)

    def test_public_connections_leave_half_of_the_descriptors(self):
        up = self.pipeline(api={"public_port": 0})
        port = int(self.public_port(up).rsplit(":", 1)[1])
        pid = up.daemon_pid("api")
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (400, limits[1]))  # less than max_connections asks for
        for _ in range(400):
            c = socket.create_connection(("127.0.0.1", port), harness.PATIENCE)
            self.addCleanup(c.close)
        self.assertEqual(up.ask("api", "GET", "/ping").status, 200)

    def test_a_unix_socket_is_out_of_a_browsers_reach(self):
        queue = self.start("simplequeue", listen="unix:" + self.path("socket"))
        self.assertEqual(queue.get("/ping", headers={"Host": "any.example"}).status, 200)

    def test_a_list_of_hosts_that_is_none(self):
        for wrong in ("http://stats.example", "stats.example:80", "*.example"):
            result = self.run_program("simplequeue", "--check-config", "--allowed-hosts=" + wrong)
            self.assertEqual(result.returncode, 78, wrong)
            self.assertIn(b"--allowed-hosts", result.stderr)


class OtherHostsTest(MillraceTest):
    """A network of its own. A client of OTHER has an address that is not of loopback, as a client on another host."""
    OTHER = "10.0.0.1"

    def setUp(self):
        super().setUp()
        self.enter_own_network()
        subprocess.run(["ip", "address", "add", self.OTHER + "/32", "dev", "lo"], check=True)

    def daemons_of(self, *token):
        config = self.write("a.conf", "[input]\ntime = t\n[total all]\nkey = \"all\"\n")
        token = ["--auth-token-file=" + path for path in token]
        queue, pubsub = [self.start(name, *token, listen="0.0.0.0") for name in ("simplequeue", "pubsub")]
        for d, target in ((queue, "/put"), (pubsub, "/pub?stream=clicks")):
            self.assertEqual(d.post(target, EVENT, headers=TOKEN).status, 200)
        return queue, pubsub, self.start(
            "aggregator", "--config=" + config, "--data-dir=" + self.path("counts"), "--pubsub-url=" + pubsub.url,
            "--archive=" + self.path("archive"), *token, *[t.replace("auth", "pubsub") for t in token], listen="0.0.0.0")

    def acts(self, daemons, headers):
        """The status of each act, asked for from this host and from another one."""
        targets = ("/producers?producer=p&mark=1", "/producers?stream=clicks&producer=p&mark=1",
                   "/seal?slice=1", "/clear?through=1", "/putback?until_slice=1&until_offset=0")
        served = (*daemons[:2], *[daemons[2]] * 3)
        for d, target in zip(served, targets):
            port = d.url.rsplit(":", 1)[1]
            yield [harness.request("http://%s:%s" % (host, port), "POST", target, b"", headers).status
                   for host in ("127.0.0.1", self.OTHER)]

    def test_acts_on_counts_and_marks_are_for_this_host(self):
        for here, other in self.acts(self.daemons_of(), {}):
            self.assertNotIn(here, (401, 403, 404))
            self.assertEqual(other, 403)

    def test_with_a_token_it_is_for_the_token(self):
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        daemons = self.daemons_of(token)
        self.assertEqual([*self.acts(daemons, {})], [[401, 401]] * 5)
        for statuses in self.acts(daemons, TOKEN):
            self.assertFalse({401, 403, 404}.intersection(statuses), statuses)


class LinksTest(MillraceTest):
    def setUp(self):
        super().setUp()
        self.victim = self.write("victim", "kept")
        self.config = self.write("a.conf", "[input]\ntime = t\n[total all]\nkey = \"all\"\n")

    def link(self, *place):
        path = self.path(*place)
        os.makedirs(os.path.dirname(path))
        os.symlink(self.victim, path)

    def start_until_refused(self, name, *args):
        d = self.daemon(name, *args)
        harness.wait_until(lambda: "Too many levels of symbolic links" in d.log, lambda: d.log)
        self.assertEqual(harness.read_file(self.victim), b"kept")

    def test_a_lock(self):
        """Another user's link in the place of a lock would have the daemon truncate what it names."""
        for name in ("simplequeue", "pubsub", "aggregator"):
            self.link(name, "lock")
            self.start_until_refused(name, "--data-dir=" + self.path(name), "--config=" + self.config)

    def test_rejects(self):
        self.link("a", "rejects", "0000000001.ndjson")
        pubsub = self.start("pubsub", "--data-dir=" + self.path("p"))
        pubsub.post("/pub?stream=s", b"no event\n")
        self.start_until_refused("aggregator", "--data-dir=" + self.path("a"), "--config=" + self.config, "--streams=s",
                                 "--pubsub-url=" + pubsub.url)


if __name__ == "__main__":
    harness.main()
