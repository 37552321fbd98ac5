"""Doors: what the API and `millrace put` add to events. The visitors are those of a model in Python."""
# seconds: 22
import base64
import hashlib
import hmac
import ipaddress
import json
import os
import re
import subprocess
import time
from unittest import mock

import harness
import test_api
import xxh3
from clocks import Clocks
from harness import request, wait_until

DAY = 86400
COUNTERS = "[input]\ntime = t\n[total all]\nkey = \"all\"\n"
AGENT = 'Mozilla/5.0 (X11; "Linux" x86_64)'
MAKE_MMDB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "make_mmdb.pl")
LINE = '%s - - [%s] "GET /a HTTP/1.1" 200 5 "-" "%s"\n'


# Texts of uap-core's own tests with its answers (browser, os), and the kind of device
AGENTS = [
    ("Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10_6_5; en-us) AppleWebKit/533.18.1 (KHTML, like Gecko) Version/5.0.2 Safari/533.18.5",
     "Safari", "Mac OS X", "desktop", False),
    ("Mozilla/5.0 (iPad; U; CPU OS 3_2 like Mac OS X; en-us) AppleWebKit/531.21.10 (KHTML, like Gecko) Version/4.0.4 Mobile/7B367 Safari/531.21.10",
     "Mobile Safari", "iOS", "tablet", False),
    ("Mozilla/5.0 (Linux; Android 4.4.2; Nexus 5 Build/KOT49H) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/35.0.1916.122 Mobile Safari/537.36",
     "Chrome Mobile", "Android", "phone", False),
    ("Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 5.1; Trident/4.0; GTB6; .NET CLR 2.0.50727; .NET CLR 1.1.4322)", "IE", "Windows", "desktop", False),
    ("Roku/DVP-6.2 (096.02E06005A)", "Roku", "Roku", "tv", False),
    ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot", "Other", "other", True),
    ("PostmanRuntime/7.20.1", "PostmanRuntime", "Other", "other", True),
]
# Addresses in the city.mmdb of make_mmdb.pl
PLACES = {"1.2.3.4": ("US", "US-MA", "Boston"), "5.6.7.8": ("DE", "DE-NW", "Cologne"), "2a02:1::9": ("DE", "DE-NW", "Cologne"),
          "7.7.7.7": ("FR", None, None), "192.0.2.7": (None, None, None)}

places_files = {}  # written once


def keys_of(path):
    """{day: key}"""
    with open(path) as f:
        return {int(day): bytes.fromhex(key) for day, key in re.findall(r"^key (\d+) (\w{64})$", f.read(), re.M)}


def visitor(key, address, agent, site=""):
    ip = ipaddress.ip_address(address)
    packed = b"\x10" + bytes(10) + b"\xff\xff" + ip.packed if ip.version == 4 else b"\x08" + ip.packed[:8]
    digest = hmac.new(key, packed + site.encode() + b"\0" + agent.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:12]).decode()


class DoorTest(harness.MillraceTest):
    """It is noon when a test begins, because the visitors of two days have two keys."""

    def setUp(self):
        super().setUp()
        self.keys = self.path("visitor.keys")
        self.clocks = Clocks(self)
        self.to_noon = DAY // 2 - int(time.time()) % DAY
        self.set_days(0, 0)
        shifted = mock.patch.dict(os.environ, self.clocks.env)
        shifted.start()
        self.addCleanup(shifted.stop)

    def now(self):
        return int(time.time()) + self.to_noon

    def set_days(self, wall, boot):
        """Sets the clocks of all programs to so many days after the begin of the test."""
        self.clocks.set(wall=self.to_noon + wall * DAY, boot=boot * DAY)

    def configure(self, door):
        return self.write("test.conf", COUNTERS + ("[door]\n" + door.replace("KEYS", "visitor_key_file = " + self.keys) if door else ""))

    def make_places(self):
        """Writes city.mmdb and country.mmdb, and returns the first path."""
        if not places_files:
            if subprocess.run(["perl", "-MMaxMind::DB::Writer", "-e", "1"], stderr=subprocess.DEVNULL).returncode:
                harness.not_installed(self, "libmaxmind-db-writer-perl is not installed (scripts/setup --test)")
            subprocess.run(["perl", MAKE_MMDB, self.dir], check=True)
            places_files.update({name: harness.read_file(self.path(name)) for name in ("city.mmdb", "country.mmdb")})
        for name, content in places_files.items():
            with open(self.path(name), "wb") as f:
                f.write(content)
        return self.path("city.mmdb")

    def visitor(self, when, *args):
        return visitor(keys_of(self.keys)[int(when) // DAY], *args)


class ApiDoorCase(DoorTest):
    def start_api(self, door, *args, **kw):
        self.source = test_api.Source(self)
        self.api = self.start("api", "--config", self.configure(door), "--queue-url", self.source.url, "--aggregator-url",
                              self.source.url, *args, **kw)

    def stored(self):
        return self.source.posted[-1][1]

    def post(self, *events, **headers):
        """The stored events."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        body = "\n".join(json.dumps(e) for e in events).encode()
        self.assertEqual(request(self.api.url, "POST", "/v1/events", body, headers=headers).status, 200)
        return [json.loads(line) for line in self.stored().splitlines()]

    def metric(self, reason):
        return int(re.search(r'events_without_visitor_total\{reason="%s"\} (\d+)' % reason, self.api.get("/metrics").text)[1])


class ApiDoorTest(ApiDoorCase):
    def test_without_a_door_nothing_changes(self):
        self.start_api("")
        body = b'{"t":1,  "visitor":"a" ,"ip":"b", "visitor":"c"}\n'
        self.api.post("/v1/events", body, headers={"User-Agent": AGENT, "X-Forwarded-For": "192.0.2.7"})
        self.assertEqual(self.stored(), body)
        self.assertNotIn("without_visitor", self.api.get("/metrics").text)

    def test_the_visitor_is_the_models(self):
        self.start_api("add = visitor\nKEYS\nclient_address = X-Forwarded-For\n")
        now = self.now()
        for address in ("192.0.2.7", "2001:db8:1:2::3"):
            url = {"url": "https://Shop.example:8443/a"}
            for more, site in ((url, "shop.example"), ({"url": "/a"}, "/a"), ({}, ""), ({"site": "a.example", **url}, "a.example"), ({"site": 7, **url}, "7"),
                               ({"site": None, **url}, "shop.example"), ({"site": "", **url}, "shop.example"), ({"site": ["a"]}, "")):
                event = {"t": now, "visitor": "forged", "ip": "6.6.6.6", **more}
                got, = self.post(event, User_Agent=AGENT, X_Forwarded_For="6.6.6.6, " + address)
                want = {name: value for name, value in event.items() if name not in ("ip", "visitor")}
                self.assertEqual(got, {**want, "visitor": self.visitor(now, address, AGENT, site)})
        self.assertNotIn(b"192.0.2.7", self.stored())
        got = self.api.get("/v1/pixel.gif?t=%d&visitor=x&ip=y" % now, headers={"User-Agent": AGENT, "X-Forwarded-For": "192.0.2.7"})
        self.assertEqual(got.status, 200)
        self.assertEqual(json.loads(self.stored()), {"t": now, "visitor": self.visitor(now, "192.0.2.7", AGENT)})
        self.assertEqual(self.api.get("/v1/incr?ns=all&key=all").status, 200)
        self.assertNotIn(b"visitor", self.stored())
        array = request(self.api.url, "POST", "/v1/events", b'[{"t":%d}, {"t":1}\n,\n{"t":null}, {"t":%d}]' % (now, now + 3 * DAY),
                        headers={"X-Forwarded-For": "192.0.2.7"})
        self.assertEqual(array.json(), {"accepted": 4})
        first, *rest = [json.loads(line) for line in self.stored().splitlines()]
        self.assertEqual(first["visitor"], self.visitor(now, "192.0.2.7", ""))
        self.assertEqual([event["visitor"] for event in rest], [None, None, None])
        self.assertEqual([self.metric(reason) for reason in ("late", "time", "early", "address")], [1, 1, 1, 0])
        self.post({"t": now})  # of the proxy, without the header
        self.assertEqual(self.metric("address"), 1)
        self.assertEqual(os.stat(self.keys).st_mode & 0o777, 0o600)

    def test_several_headers_are_one_list(self):
        """A proxy that adds a line of its own, behind the client's."""
        self.start_api("add = ip\nclient_address = X-Forwarded-For\ntrusted_proxies = 127.0.0.1 10.0.0.0/8\n")
        c = harness.connect(self.api.url)
        self.addCleanup(c.close)
        c.putrequest("POST", "/v1/events")
        for name, value in (("X-Forwarded-For", "6.6.6.6"), ("x-forwarded-for", "192.0.2.7"), ("X-FORWARDED-FOR", "10.1.1.1"), ("Content-Length", "7")):
            c.putheader(name, value)
        c.endheaders(b'{"t":1}')
        self.assertEqual(c.getresponse().status, 200)
        self.assertEqual(json.loads(self.stored()), {"t": 1, "ip": "192.0.2.7"})

    def test_the_address_of_the_connection(self):
        self.start_api("add = ip\n", "--public-path=/p")
        self.assertEqual(self.api.post("/p/events", b'{"ip":1}').status, 200)
        self.assertEqual(json.loads(self.stored()), {"ip": "127.0.0.1"})
        self.assertEqual(self.post({"ip": 1, "t": 1}, X_Forwarded_For="192.0.2.7"), [{"t": 1, "ip": "127.0.0.1"}])
        self.start_api("add = ip\nclient_address = X-Real-IP\n", "--address=unix:" + self.path("sock"))
        self.assertEqual(self.post({"t": 1}, X_Real_IP="[2001:db8::1]:9"), [{"t": 1, "ip": "2001:db8::1"}])

    def test_a_proxy_without_client_address(self):
        """A header of a proxy on this host is a warning in /health, unless the header or the address has no effect."""
        for adds, header, value, warns in (("ip", "X-Forwarded-For", "192.0.2.7, 10.0.0.1", True), ("visitor", "X-Real-IP", "192.0.2.7", True),
                                           ("ip\nclient_address = X-Real-IP", "X-Forwarded-For", "192.0.2.7", False), ("bot", "X-Forwarded-For", "192.0.2.7", False),
                                           ("ip", "X-Forwarded-For", "127.0.0.1", False), ("ip", "X-Forwarded-For", "nonsense", False)):
            with self.subTest(adds + header + value):
                self.start_api("add = %s\nKEYS\n" % adds)
                self.post({"t": 1})
                self.post({"t": 1}, **{header.replace("-", "_"): value})
                self.post({"t": 1})
                warning = "warning: behind a proxy, all clients have the proxy's address: set client_address = %s in [door]\n" % header
                self.assertEqual(self.api.get("/health").text, "ready\n" + (warning if warns else ""))
                self.api.stop()

    def test_a_proxy_that_has_gone(self):
        """The warning ends an hour after the last request that shows the proxy."""
        self.start_api("add = ip\n")
        self.post({"t": 1}, X_Real_IP="192.0.2.7")
        self.assertIn("all clients have the proxy's address", self.api.get("/health").text)
        self.clocks.set(boot=3000)
        self.post({"t": 1}, X_Real_IP="192.0.2.7")
        self.clocks.set(boot=6000)
        self.post({"t": 1})
        self.assertIn("all clients have the proxy's address", self.api.get("/health").text)
        self.clocks.set(boot=6700)
        wait_until(lambda: self.api.get("/health").text == "ready\n", lambda: self.api.get("/health").text)

    def test_all_members(self):
        """With uap-core's rules and a file of the form of MaxMind's, as the model says; a client can set none of them."""
        names = "ip country region city browser os device bot".split()
        forged = {name: "forged" for name in ["visitor", *names]}
        self.start_api("add = visitor %s\nKEYS\nclient_address = X-Forwarded-For\ngeo_file = %s\n" % (" ".join(names), self.make_places()))
        now = self.now()
        for (agent, *values), (address, place) in zip(AGENTS * 2, [*PLACES.items()] * 3):
            want = {"t": now, "ip": address, **dict(zip(names[1:], [*place, *values])), "visitor": self.visitor(now, address, agent)}
            self.assertEqual(self.post({"t": now, **forged}, User_Agent=agent, X_Forwarded_For=address), [want])
        c = harness.connect(self.api.url)
        self.addCleanup(c.close)
        c.request("POST", "/v1/events", b'{"t":1}')  # without an agent and an address
        self.assertEqual(c.getresponse().status, 200)
        want = {"t": 1, **{name: None for name in ["visitor", *names]}, "browser": "Other", "os": "Other", "device": "other", "bot": True}
        self.assertEqual(json.loads(self.stored()), want)

    def test_files_that_cannot_be_used(self):
        """A door does not start without the files of its members, and names the remedy. --check-config does so, too."""
        self.write("damaged.mmdb", harness.read_file(self.make_places())[:-50].decode("latin-1"))
        lines = self.write("access.log", LINE % ("192.0.2.7", PutDoorTest.stamp(0), "a"))
        for door, why in (("add = country\ngeo_file = %s\n" % self.path("none.mmdb"), b"none.mmdb: No such file or directory; download the file again"),
                          ("add = city\ngeo_file = %s\n" % self.path("damaged.mmdb"), b"damaged.mmdb: "),
                          ("add = bot\nuser_agent_rules = %s\n" % self.path("none.yaml"), b"none.yaml: No such file or directory; install the Debian package uap-core"),
                          ("add = bot\nuser_agent_rules = %s\n" % lines, b"access.log")):
            config = self.configure(door)
            for program in (("api", "--port=0"), ("millrace", "put", "--format=combined", lines)):
                done = self.run_program(*program, "--config", config, "--queue-url", "http://127.0.0.1:1")
                self.assertEqual((done.returncode, why in done.stderr), (78, True), done.stderr)
            done = self.run_program("api", "--config", config, "--queue-url", "http://127.0.0.1:1", "--check-config")
            self.assertEqual((done.returncode, why in done.stderr), (78, True), done.stderr)

    def test_a_replaced_file(self):
        places = self.make_places()
        self.start_api("add = country city\nclient_address = X-Forwarded-For\ngeo_file = %s\n" % places)

        def city():
            return self.post({}, X_Forwarded_For="1.2.3.4")[0]["city"]
        whole = harness.read_file(places)
        self.assertEqual(city(), "Boston")
        os.rename(self.path("country.mmdb"), places)
        wait_until(lambda: city() is None, city)
        with open(places, "wb") as f:
            f.write(whole[:100])
        wait_until(lambda: "warning: events still get places from the former geo_file: %s: " % places in self.api.get("/health").text,
                   lambda: self.api.get("/health").text)
        self.assertEqual(self.post({}, X_Forwarded_For="1.2.3.4"), [{"country": "US", "city": None}])
        with open(places, "wb") as f:
            f.write(whole)
        wait_until(lambda: city() == "Boston", city)
        wait_until(lambda: self.api.get("/health").text == "ready\n", lambda: self.api.get("/health").text)

    def test_a_key_file_that_cannot_be_used(self):
        for door, why in (("add = visitor\n", "needs visitor_key_file"), ("add = visitor\nKEYS/no/such\n", "No such file"),
                          ("add = visitor\nKEYS\nsalt = x\n", "[door] has no setting 'salt'")):
            done = self.run_program("api", "--config", self.configure(door), "--queue-url", "http://127.0.0.1:1", "--port=0")
            self.assertEqual((done.returncode, why in done.stderr.decode()), (78, True), done.stderr)
        config = self.configure("add = visitor\nKEYS\n")
        for mode, why in ((0o600, b"is not a file of visitor keys; delete it"), (0o644, b"is open to other users: chmod 600")):
            self.write("visitor.keys", "x")
            os.chmod(self.keys, mode)
            for args in ("--port=0", "--check-config"):
                done = self.run_program("api", "--config", config, "--queue-url", "http://127.0.0.1:1", args)
                self.assertEqual((done.returncode, why in done.stderr), (78, True), done.stderr)
        os.unlink(self.keys)
        done = self.run_program("api", "--config", self.configure("add = visitor ip\nKEYS\n"), "--check-config")
        self.assertEqual((done.returncode, b"[door" in done.stdout and b"visitor_key_file = " in done.stdout), (0, True), done)
        self.assertFalse(os.path.exists(self.keys), "a check makes no file")


class DaysTest(ApiDoorCase):
    """The clock goes on by days while the API runs."""

    def visitor_at(self, when):
        return self.post({"t": when}, User_Agent="a")[0].get("visitor")

    def test_a_key_lives_until_a_day_after_its_day(self):
        self.start_api("add = visitor\nKEYS\n")
        now = self.now()
        first, secret = self.visitor_at(now), keys_of(self.keys)[now // DAY].hex()
        self.assertEqual(first, self.visitor(now, "127.0.0.1", "a"))
        self.set_days(40, 0)  # a jump for a moment
        self.assertEqual(self.visitor_at(now), first)
        self.set_days(1, 1)
        second = self.visitor_at(now + DAY)
        self.assertEqual(second, self.visitor(now + DAY, "127.0.0.1", "a"))
        self.assertEqual(self.visitor_at(now), first)
        os.chmod(self.keys, 0o640)
        self.set_days(2, 2)
        self.assertIsNone(self.visitor_at(now + 2 * DAY))
        self.assertEqual(self.visitor_at(now + DAY), second)
        wait_until(lambda: "warning: events get no visitor: %s is open to other users: chmod 600" % self.keys in self.api.get("/health").text,
                   lambda: self.api.get("/health").text)
        os.chmod(self.keys, 0o600)
        wait_until(lambda: "visitor" not in self.api.get("/health").text, lambda: self.api.get("/health").text)
        self.assertNotIn(secret, harness.read_file(self.keys).decode())
        self.assertEqual(sorted(keys_of(self.keys)), [now // DAY + 1, now // DAY + 2])
        self.assertIsNone(self.visitor_at(now))
        self.assertEqual((self.metric("key_file"), self.metric("late")), (1, 1))


class PutDoorTest(DoorTest):
    def setUp(self):
        super().setUp()
        self.source = test_api.Source(self)

    def put(self, door, lines, *args):
        """The stored events, and the messages."""
        self.source.posted.clear()
        done = self.run_program("millrace", "put", "--config", self.configure(door), "--queue-url", self.source.url, "--quiet", *(args or ("--format=combined",)),
                                self.write("access.log", lines))
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for _, body in self.source.posted for line in body.splitlines()], done.stderr.decode()

    @staticmethod
    def stamp(when):
        return time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(when))

    def test_a_line_has_the_visitor_of_the_api(self):
        now = self.now()
        lines = LINE % ("192.0.2.7", self.stamp(now), AGENT.replace('"', "\\x22")) + LINE % ("192.0.2.7", self.stamp(now - 3 * DAY), "curl")
        (new, old), messages = self.put("add = visitor\nKEYS\n", lines)
        self.assertEqual(new, {"time": now, "user": None, "method": "GET", "path": "/a", "protocol": "HTTP/1.1", "status": 200, "bytes": 5,
                               "referrer": None, "agent": AGENT, "visitor": self.visitor(now, "192.0.2.7", AGENT)})
        self.assertEqual((old["agent"], old["visitor"], "host" in old), ("curl", None, False))
        self.assertIn("1 event has no visitor (1 late)", messages)
        (kept, _), _ = self.put("add = visitor ip\nKEYS\n", lines)
        self.assertEqual((kept["host"], kept["ip"], kept["visitor"]), ("192.0.2.7", "192.0.2.7", new["visitor"]))
        (plain, _), messages = self.put("", lines)
        self.assertEqual((plain["host"], "visitor" in plain, messages), ("192.0.2.7", False, ""))

    def test_all_members(self):
        """The members of the API. A line of the format "common" has no agent, so the agent's members are unknown."""
        names = "ip country region city browser os device bot".split()
        door = "add = visitor %s\nKEYS\ngeo_file = %s\n" % (" ".join(names), self.make_places())
        now, clients = self.now(), list(zip(AGENTS, [*PLACES.items()] * 2))
        lines = [LINE % (address, self.stamp(now), agent[0]) for agent, (address, _) in clients]
        lines += [LINE % ("1.2.3.4", self.stamp(now), "-"), LINE.replace(' "-" "%s"', "") % ("1.2.3.4", self.stamp(now))]
        got, _ = self.put(door, "".join(lines))
        want = [(address, *place, *values, self.visitor(now, address, agent)) for (agent, *values), (address, place) in clients]
        bare = "1.2.3.4", *PLACES["1.2.3.4"]
        want += [(*bare, *values, self.visitor(now, "1.2.3.4", "")) for values in (("Other", "Other", "other", True), [None] * 4)]
        self.assertEqual([tuple(event[name] for name in [*names, "visitor"]) for event in got], want)

    def test_yesterdays_log(self):
        """A door made the key on its day, and the log is posted on the next day, or too late."""
        now = self.now()
        line = LINE % ("192.0.2.7", self.stamp(now), "a")
        (first,), _ = self.put("add = visitor\nKEYS\n", line)
        for days, visitor in ((1, first["visitor"]), (2, None)):
            self.set_days(days, days)
            (got,), _ = self.put("add = visitor\nKEYS\n", line)
            self.assertEqual(got.get("visitor"), visitor)

    def test_a_follower_counts_lines_without_a_visitor(self):
        log, prom = self.write("followed.log", LINE % ("192.0.2.7", self.stamp(0), "a")), self.path("data", "put", "default.p.prom")
        os.mkdir(self.path("data"))
        queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never")
        config = self.write("test.conf", "[millrace]\ndata_dir = %s\n" % self.path("data") + COUNTERS + "[door]\nadd = visitor\nvisitor_key_file = %s\n" % self.keys
                            + "[simplequeue]\nport = %s\n" % queue.url.rsplit(":", 1)[1])
        p = subprocess.Popen(harness.dies_with_us([harness.program("millrace"), "put", "--config", config, "--format=combined", "--follow",
                                                   "--producer=p", log]), stderr=subprocess.PIPE)
        self.addCleanup(p.stderr.close)
        self.addCleanup(lambda: (p.kill(), p.wait()))
        metric = b'millrace_put_events_without_visitor_total{queue="default",producer="p"} 1\n'
        wait_until(lambda: os.path.exists(prom) and metric in harness.read_file(prom), lambda: p.poll())

    def test_the_virtual_host_is_the_site(self):
        now = self.now()
        (got,), _ = self.put("add = visitor\nKEYS\n", "Shop.example:443 " + LINE % ("192.0.2.7", self.stamp(now), "a"), "--format=vhost_combined")
        self.assertEqual(got["visitor"], self.visitor(now, "192.0.2.7", "a", "shop.example"))

    def follow(self, *args):
        p = subprocess.Popen(harness.dies_with_us([harness.program("millrace"), "put", "--follow", "--producer=p", *args]),
                             stderr=subprocess.PIPE)
        self.addCleanup(p.stderr.close)
        self.addCleanup(lambda: (p.kill(), p.wait()))
        return p

    def test_a_follower_that_starts_before_its_pipeline(self):
        """It waits for the queue, and learns of the door then."""
        data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(data, COUNTERS + "[door]\nadd = visitor\nvisitor_key_file = %s\n" % self.keys))
        log = self.write("followed.log", LINE % ("192.0.2.7", self.stamp(self.now()), "a"))
        p = self.follow("--format=combined", "--config", self.write("put.conf", "[millrace]\ndata_dir = %s\n[simplequeue]\nport = 1\n" % data), log)
        wait_until(lambda: b"retrying" in p.stderr.readline(), "the queue to be asked")
        pipeline = harness.Pipeline(self, config, data).wait_ready()
        stored = wait_until(lambda: harness.request(pipeline.daemon_url("pubsub"), "GET", "/sub?stream=clicks&from=earliest&follow=0").body, "the line")
        self.assertIn(b'"visitor":', stored)
        self.assertNotIn(b"192.0.2.7", stored)

    def test_a_put_before_the_first_start_of_the_pipeline(self):
        """Its lines may need a door, so none is posted, even if a queue answers already."""
        data, port = self.path("data"), self.source.server_address[1]
        config = self.write("put.conf", "[millrace]\ndata_dir = %s\n[simplequeue]\nport = %d\n" % (data, port))
        log = self.write("access.log", LINE % ("192.0.2.7", self.stamp(self.now()), "a"))
        done = self.run_program("millrace", "put", "--format=combined", "--timeout=300ms", "--config", config, log)
        self.assertEqual((done.returncode, self.source.posted), (75, []), done.stderr)
        self.assertIn(b"waiting for the first start of a pipeline in %s, " % data.encode(), done.stderr)
        p = subprocess.Popen(harness.dies_with_us([harness.program("millrace"), "put", "--format=combined", "--config", config, log]), stderr=subprocess.PIPE)
        self.addCleanup(p.stderr.close)
        wait_until(lambda: b"waiting for the first start" in p.stderr.readline(), "the put to wait")
        own = self.write("p.conf", harness.pipeline_config(data, COUNTERS + "[door]\nadd = visitor\nvisitor_key_file = %s\n" % self.keys))
        pipeline = harness.Pipeline(self, own, data).wait_ready()
        self.assertEqual(p.wait(harness.PATIENCE), 0)
        stored = wait_until(lambda: harness.request(pipeline.daemon_url("pubsub"), "GET", "/sub?stream=clicks&from=earliest&follow=0").body, "the line")
        self.assertIn(b'"visitor":', stored)
        self.assertEqual((b"192.0.2.7" in stored, self.source.posted), (False, []))

    def test_a_door_that_cannot_be_read_ends_the_put(self):
        log = self.write("access.log", LINE % ("192.0.2.7", self.stamp(0), "a"))
        self.write("broken.conf", "[door\n")
        os.mkdir(self.path("data"))
        self.write("data/run.json", json.dumps({"pid": os.getpid(), "config": self.path("broken.conf"), "daemons": {}}))
        done = self.run_program("millrace", "put", "--data-dir", self.path("data"), "--queue-url", self.source.url, "--format=combined", log)
        self.assertEqual((done.returncode, self.source.posted), (78, []), done.stderr)
        self.assertIn(b"cannot read the [door] of the pipeline, use --config", done.stderr)

    def test_no_message_has_an_address(self):
        config = self.configure("add = visitor\nKEYS\n")
        queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never")
        p = self.follow("--config", config, "--format=vhost_combined", "--queue-url", queue.url, "--rejects", self.path("rejects"),
                        self.write("followed.log", LINE % ("192.0.2.7", self.stamp(0), "a")))
        wait_until(lambda: os.path.exists(self.path("rejects")) and harness.read_file(self.path("rejects")).count(b"\n") == 1, "the rejects")
        p.terminate()
        p.wait()
        messages = p.stderr.read()
        self.assertIn(b"cannot be posted: (hidden) is not a virtual host: use --format=combined", messages)
        self.assertNotIn(b"192.0.2.7", messages)

    def test_headers_of_proxies(self):
        now = self.now()
        door = "add = visitor\nKEYS\nclient_address = X-Forwarded-For\ntrusted_proxies = 10.0.0.0/8\n"
        for text, line in (('%h %t "%{X-Forwarded-For}i"', '10.0.0.1 [%s] "6.6.6.6, 192.0.2.7"\n'), ("%{X-Forwarded-For}i %t", "6.6.6.6, 192.0.2.7, 10.0.0.1 [%s]\n"),
                           ("$remote_addr [$time_local] $http_x_forwarded_for", "6.6.6.6, 192.0.2.7, 10.0.0.1 [%s] -\n")):
            (got,), _ = self.put(door, line % self.stamp(now), "--log-format=" + text)
            self.assertEqual(got, {"time": now, "visitor": self.visitor(now, "192.0.2.7", "")})
        (got,), _ = self.put(door.replace("X-Forwarded-For", "X-Real-IP"), '10.0.0.1 [%s] "192.0.2.7"\n' % self.stamp(now),
                             '--log-format=%h %t "%{X-Real-IP}i"')
        self.assertEqual(got, {"time": now, "visitor": self.visitor(now, "192.0.2.7", "")})

    def test_variables_of_nginx_with_addresses(self):
        names = ["proxy_protocol_addr", "proxy_add_x_forwarded_for", "http_x_real_ip", "http_cf_connecting_ip", "http_true_client_ip", "realip_remote_addr"]
        line = "192.0.2.7 [%s] %s\n" % (self.stamp(self.now()), " ".join('"192.0.2.%d"' % i for i in range(10, 10 + len(names))))
        (got,), _ = self.put("add = visitor\nKEYS\n", line, "--log-format=$remote_addr [$time_local] " + " ".join('"$%s"' % name for name in names))
        self.assertEqual(set(got), {"time", "visitor"})

    def test_lines_that_are_events_pass_unchanged(self):
        line = '{"t":1, "visitor":"x","ip":"y"}\n'
        self.put("add = visitor\nKEYS\n", line, "--format=lines")
        self.assertEqual(self.source.posted[0][1].decode(), line)

    def test_a_wrong_key_file_ends_the_put(self):
        done = self.run_program("millrace", "put", "--config", self.configure("add = visitor\nKEYS/x\n"), "--queue-url", self.source.url,
                                "--format=combined", self.write("access.log", LINE % ("192.0.2.7", self.stamp(0), "a")))
        self.assertEqual((done.returncode, self.source.posted), (78, []), done.stderr)


class PipelineTest(DoorTest):
    def test_status_doctor_and_backup(self):
        """Relative paths are below the data directory, for each door."""
        data = self.path("data")
        self.keys = os.path.join(data, "visitor.keys")
        places = self.make_places()
        counters = "[input]\ntime = time\n[total all]\nkey = \"all\"\n[subtotal v.all]\nkey = visitor\n[door]\nadd = visitor city\n"
        config = self.write("p.conf", harness.pipeline_config(self.path("other"), counters + "visitor_key_file = visitor.keys\ngeo_file = ../city.mmdb\n"))
        pipeline = harness.Pipeline(self, config, data, "--data-dir", data).wait_ready()
        now = self.now()
        self.assertEqual(pipeline.ask("api", "POST", "/v1/events", b'{"time":%d}' % now, headers={"User-Agent": "a"}).status, 200)
        secret = keys_of(self.keys)[now // DAY].hex()
        lines = self.write("access.log", LINE % ("127.0.0.1", PutDoorTest.stamp(now), "a"))
        for given in ((), ("--config", config)):
            done = self.run_program("millrace", "put", "--data-dir", data, *given, "--format=combined", lines)
            self.assertEqual((done.returncode, b"visitor" in done.stderr), (0, False), done)
        self.assertEqual(self.run_program("millrace", "status", "--wait", "--data-dir", data).returncode, 0)
        rows = pipeline.ask("api", "GET", "/v1/breakdown?ns=v.all&key=all&period=all").json()["rows"]
        self.assertEqual({row["key"]: row["n"] for row in rows}, {self.visitor(now, "127.0.0.1", "a"): 3})
        os.truncate(places, 100)

        def problems():
            done = self.run_program("millrace", "status", "--data-dir", data, "--sample=0", "--json")
            return [p["problem"] for p in json.loads(done.stdout)["problems"] if "events still get places from the former geo_file: " in p["problem"]]
        wait_until(problems, problems)

        def doctor():
            done = self.run_program("millrace", "doctor", "--fast", "--json", "--config", config, "--data-dir", data)
            return next((f["result"], f["finding"], f["remedy"]) for f in json.loads(done.stdout)["findings"] if f["check"] == "visitors")
        self.assertEqual(doctor()[0], "ok")
        self.assertEqual(self.run_program("millrace", "backup", "--config", config, "--data-dir", data, self.path("copy")).returncode, 0)
        for directory, _, names in os.walk(self.path("copy")):
            for name in names:
                self.assertNotIn(secret.encode(), harness.read_file(os.path.join(directory, name)), name)
                self.assertNotIn("visitor.keys", name)
        done = self.run_program("millrace", "forget", "--config", config, "--data-dir", data, "--field", "l", "--value", "x", "--dry-run")
        self.assertEqual((done.returncode, b"visitor.keys" in done.stdout + done.stderr), (0, False), done)
        os.chmod(self.keys, 0o644)
        result, finding, remedy = doctor()
        self.assertEqual((result, "mode 644" in finding), ("fail", True))
        subprocess.run(["sh", "-c", remedy], check=True)
        self.assertEqual(doctor()[0], "ok")
        text = harness.read_file(self.keys)
        self.write("data/visitor.keys", text.replace(b"period day", b"period dax"))
        self.assertIn("is damaged", doctor()[1])
        old = re.sub(rb"key \d+ ", b"key 15000 ", text[:text.index(b"checksum")])
        self.write("data/visitor.keys", old + b"checksum %s\n" % xxh3.xxh3(old).encode())
        self.assertEqual(doctor()[0], "warn")
        self.assertIn("should be deleted", doctor()[1])


if __name__ == "__main__":
    harness.main()
