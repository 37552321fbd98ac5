"""m.js on the pages of other origins, in a real browser: each event that a visit posts, and no other; directly and behind nginx."""
# label: surface
# seconds: 15
# processors: 2
import collections
import gzip
import html
import json
import os
import re
import shutil
import subprocess
import urllib.parse

import harness
import http_stub
from harness import wait_until
from test_door import AGENTS

DRIVER = os.path.join(harness.ROOT, "tests", "page")
NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
NGINX_CONFIG = """
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
        listen 127.0.0.1:%(port)s;
%(guide)s
        location /stats/ { proxy_pass %(api)s/; }
    }
}
"""
STUB = "<script>window.millrace = window.millrace || function () { (millrace.q = millrace.q || []).push(arguments); }; millrace('early', { plan: 'pro' })</script>"
# For each scenario of site.mjs: the attributes of the script.
ATTRIBUTES = {"dnt": "data-dnt", "custom": 'data-exclude="/custom.%s/private/*, /custom.%s/x.y"', "hash": 'data-hash data-query="id, lang"',
              "manual": "data-manual"}
LINKS = """<p>
<a id=next href=b>next</a> <a id=in href="#top">in</a> <a id=mail href="mailto:a@example.org" onclick="return false">mail</a> <button id=button>b</button>
<a id=out href="%(other)s/away?x=1#y" target=_blank>o <b>out</b></a> <a id=stop href="%(other)s/stop" target=_blank onclick="event.stopPropagation()">stop</a>
<a id=pdf href="files/a.pdf?x=1" target=_blank>pdf</a> <a id=zip href="%(other)s/b.ZIP" target=_blank>zip</a> <a id=own href=report download>own</a>
<a id=leave href="%(other)s/left">leave</a> <span id=shadow></span>
<script>
document.getElementById("shadow").attachShadow({ mode: "open" }).innerHTML = '<a href="%(other)s/shadow" target=_blank><i>shadow</i></a>';
</script>"""


class Pages(http_stub.Handler):
    """/SCENARIO.VARIANT/... is a page with the script; any page of the hosts localhost and www.localhost is one of another site, without the script."""
    scripts = {}  # variant -> address of the script

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path.endswith(".pdf"):
            self.send_response(204)
            return self.end_headers()
        other = "http://localhost:%d" % self.server.server_address[1]
        if self.headers["Host"].startswith(("localhost", "www.localhost")):
            to = dict(urllib.parse.parse_qsl(url.query)).get("to", "")
            body = '<meta name=referrer content=unsafe-url><a id=link href="%s">to</a>' % html.escape(to)
        else:
            site = url.path.split("/")[1]
            scenario, _, variant = site.partition(".")
            script = '<script defer src="%s" data-site="%s" %s></script>' % (
                self.scripts.get(variant), site, ATTRIBUTES.get(scenario, "").replace("%s", variant))
            body = (STUB if scenario == "custom" else "") + script * (1 + (scenario == "twice")) + LINKS % {"other": other}
        body = ("<!doctype html><title>a page</title>" + body).encode()
        self.reply(200, body, Content_Type="text/html; charset=utf-8")


def expected(variant, other):
    """scenario -> its events, without the site."""
    def event(name, scenario, path, **more):
        empty = ["target"] + (["referrer"] + ["utm_" + key for key in ("source", "medium", "campaign", "term", "content")] if name == "view" else [])
        return {**dict.fromkeys(empty), "event": name, "path": "/%s.%s/%s" % (scenario, variant, path), "screen": "laptop", **more}

    def views(scenario, *paths):
        return [event("view", scenario, path) for path in paths]
    target = lambda name, to: event(name, "clicks", "a", target=to)
    own = "/clicks.%s/" % variant
    return {
        "views": [event("view", "views", "a", referrer=other + "/from", utm_source="news", utm_medium="e mail", utm_campaign="caf\u00e9&co"),
                  *views("views", "b", "c")],
        "spa": views("spa", "a", "b", "c", "d", "c", "c"),
        "clicks": [*views("clicks", "a"), *[target("outbound", other + "/away")] * 3, target("outbound", other + "/stop"),
                   target("download", own + "files/a.pdf"), target("download", other + "/b.ZIP"), target("download", own + "report"),
                   target("outbound", other + "/shadow"), target("outbound", other + "/left")],
        "dnt": [*views("dnt", "free"), event("signup", "dnt", "free")],
        "nodnt": views("nodnt", "a"),
        "beacon": views("beacon", "refuses", "throws", "missing"),
        "hidden": views("hidden", "seen"),
        "custom": [event("early", "custom", "a", plan="pro"), event("signup", "custom", "a", plan="pro", n=3),
                   {**event("own", "custom", "a"), "screen": "mine"}, event("small", "custom", "a", n=19000), *views("custom", "a", "xzy"),
                   event("early", "custom", "xzy", plan="pro")],
        "hash": [event("view", "hash", path, utm_term="z") for path in ("a?id=5#/one", "a?id=5#/two", "a?id=5&lang=de#/two", "a?id=5#access_token")],
        "automated": [],
        "file": [],
        "paths": [*views("paths", "a", "a", "caf%C3%A9/index.html"), *[event("view", "paths", path, utm_source=source) for path, source in ("as", "bt", "cu")],
                  {**event("view", "paths", ""), "path": "/paths." + variant}],
        "manual": [{**event("view", "manual", ""), "path": "/virtual"}],
        "twice": views("twice", "a"),
        "broken": [],
        "screens": [{**event("view", "screens", path), "screen": screen} for path, screen in (
            ("375", "phone"), ("667", "phone"), ("820", "tablet"), ("1366", "laptop"), ("1920", "desktop"))],
    }


def sample(first="[input]"):
    """etc/website.conf from this section on: by default the counters, which exclude the door."""
    text = harness.read_file(os.path.join(harness.ROOT, "etc", "website.conf")).decode()
    return text[text.index(first):]


class Website(harness.MillraceTest):
    def start_pipeline(self, counters=None, **api):
        api = {"public_port": 0, "public_path": "/p", **api}
        config = self.write("site.conf", harness.pipeline_config(self.path("data"), counters or sample(), api=api))
        self.pipeline = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.api = self.pipeline.daemon_url("api")
        self.public = "http://127.0.0.1:" + re.search(r"public port .*?port=(\d+)", self.pipeline.log)[1]

    def start_nginx(self):
        guide = harness.read_file(os.path.join(harness.ROOT, "docs", "guide", "website.md")).decode()
        locations = re.findall(r"(?m)^    location .*\{\n(?:     .*\n)*    \}\n", guide)
        self.assertEqual([location.count("http://127.0.0.1:8089") for location in locations], [1, 1])
        port = self.keep_port()
        config = self.write("nginx.conf", NGINX_CONFIG % {"dir": self.dir, "port": port, "api": self.api,
                                                          "guide": "".join(locations).replace("http://127.0.0.1:8089", self.public)})
        with open(self.path("nginx.out"), "wb") as out:
            nginx = subprocess.Popen(harness.dies_with_us([NGINX, "-p", self.dir, "-e", self.path("error.log"), "-c", config]), stdout=out, stderr=out)
        self.addCleanup(lambda: nginx.poll() is None and (nginx.kill(), nginx.wait()))
        url = "http://127.0.0.1:" + port

        def serves():
            self.assertIsNone(nginx.poll(), harness.read_file(self.path("nginx.out")))
            try:
                return harness.request(url, "GET", "/p/m.js").status == 200
            except OSError:
                return False
        wait_until(serves, "nginx to serve the script")
        return url

    def serve_pages(self):
        return http_stub.serve(self, Pages).server_port

    def events(self):
        """site -> a counter of its events, as texts."""
        found = collections.defaultdict(collections.Counter)
        for line in self.pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body.splitlines():
            event = json.loads(line)
            self.assertGreater(event.pop("time"), 1.6e9)
            found[event.pop("site")][json.dumps(event, sort_keys=True)] += 1
        return dict(found)

    def breakdown(self, **parameters):
        reply = self.pipeline.ask("api", "GET", "/v1/breakdown?" + urllib.parse.urlencode({"period": "24h", "limit": 1000, **parameters}))
        self.assertEqual(reply.status, 200, reply)
        return {row["key"]: row["n"] for row in reply.json()["rows"]}

    def test_visits(self):
        if not (NGINX and shutil.which("node") and harness.chromium() and os.path.isdir(os.path.join(DRIVER, "node_modules"))):
            harness.not_installed(self, "the test needs nginx, Node.js, npm and Chromium (scripts/setup --test)")
        self.start_pipeline()
        nginx = self.start_nginx()
        port = self.serve_pages()
        site, other = "http://127.0.0.1:%d" % port, "http://localhost:%d" % port
        Pages.scripts = {"direct": self.api + "/m.js", "path": self.api + "/p/m.js?v=1", "public": self.public + "/m.js", "nginx": nginx + "/p/m.js",
                         "prefix": nginx + "/stats/m.js"}
        everything = {variant: expected(variant, other) for variant in Pages.scripts}
        for variant in ("path", "public", "prefix"):  # they differ from others in the address alone
            everything[variant] = {name: everything[variant][name] for name in ("views", "beacon")}
        wanted = {"%s.%s" % (scenario, variant): collections.Counter(json.dumps(e, sort_keys=True) for e in events)
                  for variant, scenarios in everything.items() for scenario, events in scenarios.items() if events}
        for variant, script in Pages.scripts.items():
            self.write(variant + ".html", '<script defer src="%s" data-site="file.%s"></script>' % (script, variant))
        settings = {"chromium": harness.chromium(), "dir": self.dir, "patience": harness.PATIENCE, "site": site, "other": other, "variants": {name: list(scenarios) for name, scenarios in everything.items()}}
        with subprocess.Popen(harness.dies_with_us(["node", os.path.join(DRIVER, "site.mjs"), json.dumps(settings)]),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as browser:
            self.addCleanup(browser.kill)
            first = browser.stdout.readline()
            self.assertEqual(first, "visited\n", first + ("" if first == "visited\n" else browser.stdout.read()))
            wait_until(lambda: sum(map(sum, map(dict.values, self.events().values()))) >= sum(map(sum, map(dict.values, wanted.values()))),
                       lambda: "all events: %s" % self.missing(wanted))
            out = browser.communicate(timeout=harness.LONG)[0]
            self.assertEqual((browser.returncode, out), (0, ""))
        self.maxDiff = None
        self.assertEqual(self.events(), wanted)
        total = sum(map(sum, map(dict.values, wanted.values())))
        wait_until(lambda: sum(self.breakdown(feed="all", by="site").values()) == total, lambda: self.breakdown(feed="all", by="site"))
        self.check_counts(wanted)

    def missing(self, wanted):
        found = self.events()
        return {site: dict(events - found.get(site, collections.Counter())) for site, events in wanted.items() if events != found.get(site)}

    def check_counts(self, wanted):
        everything = [json.loads(text) for events in wanted.values() for text in events.elements()]
        self.assertEqual(self.breakdown(feed="all", by="event"), collections.Counter(e["event"] for e in everything))
        views = [e for e in everything if e["event"] == "view"]
        for label, value in (("page", lambda e: e["path"]), ("source", lambda e: e["utm_source"] or "None"), ("screen", lambda e: e["screen"]),
                             ("campaign", lambda e: e["utm_campaign"] or "None"), ("referrer", lambda e: "localhost" if e["referrer"] else "None")):
            self.assertEqual(self.breakdown(event="view", by=label), collections.Counter(map(value, views)), label)
        for name in ("outbound", "download"):
            self.assertEqual(self.breakdown(event=name, by="target"), collections.Counter(e["target"] for e in everything if e["event"] == name))
        self.assertEqual(self.breakdown(site="clicks.direct", by="event"), {"view": 1, "outbound": 6, "download": 3})

    def test_the_script_is_small_cached_and_open_to_all_origins(self):
        token = self.write("token", "secret\n")
        os.chmod(token, 0o600)
        self.start_pipeline(auth_token_file=token)
        page = {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "script", "Host": "stats.example"}
        texts = {}
        for url, path in ((self.api, "/m.js"), (self.api, "/p/m.js"), (self.public, "/m.js"), (self.public, "/p/m.js")):
            plain = harness.request(url, "GET", path, headers=page)
            self.assertEqual((plain.status, plain.header("Content-Type")), (200, "text/javascript; charset=utf-8"))
            self.assertEqual((plain.header("Cache-Control"), plain.header("Cross-Origin-Resource-Policy")), ("public, max-age=86400", "cross-origin"))
            packed = harness.request(url, "GET", path, headers={"Accept-Encoding": "br, gzip", **page})
            self.assertEqual((packed.header("Content-Encoding"), gzip.decompress(packed.body)), ("gzip", plain.body))
            self.assertLess(len(packed.body), 1500)
            again = harness.request(url, "GET", path, headers={"If-None-Match": plain.header("ETag"), **page})
            self.assertEqual((again.status, again.body), (304, b""))
            self.assertEqual(texts.setdefault(path, plain.body), plain.body)
        self.assertIn(b'"v1/events"', texts["/m.js"])
        self.assertIn(b'"events"', texts["/p/m.js"])
        self.assertEqual(harness.request(self.api, "GET", "/q/m.js").status, 404)

    def post(self, agent, client, **members):
        headers = {"User-Agent": agent, **({"X-Forwarded-For": client} if client else {})}
        event = {"event": "view", "site": "a.example", "path": "/", **members}
        self.assertEqual(harness.request(self.public, "POST", "/p/events", json.dumps(event).encode(), headers=headers).status, 200)

    def test_visitors(self):
        """The sample's door: a visitor for each client and site, and crawlers that are stored and not counted. Countries need a file."""
        self.start_pipeline(sample("[door]"))
        linux, mac, crawler = "Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0", AGENTS[0][0], AGENTS[-2][0]
        self.post(linux, "192.0.2.7")
        self.post(linux, "192.0.2.7", path="/b")
        self.post(linux, "192.0.2.7", site="b.example")
        self.post(mac, "192.0.2.7")
        self.post(linux, "192.0.2.8")
        self.post(crawler, "192.0.2.9")
        self.post(linux, None)  # on the host itself, without the proxy
        done = self.run_program("millrace", "status", "--wait", "--config", self.pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)
        lines = self.pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body
        events = [json.loads(line) for line in lines.splitlines()]
        first, again, elsewhere, other, third, bot, unknown = [event["visitor"] for event in events]
        self.assertEqual((again, unknown), (first, None))
        self.assertEqual(len({first, elsewhere, other, third, bot}), 5)
        self.assertNotIn(b"192.0.2", lines)
        self.assertEqual([event["bot"] for event in events], [False] * 5 + [True, False])
        self.assertEqual(self.breakdown(feed="all", by="site"), {"a.example": 5, "b.example": 1})
        self.assertEqual(self.breakdown(site="a.example", by="page"), {"/": 4, "/b": 1})
        self.assertEqual(self.breakdown(event="view", by="browser"), {"Firefox": 5, "Safari": 1})
        self.assertEqual(self.breakdown(site="b.example", by="system"), {"Linux": 1})
        for key, visitors in (("site=a.example", 3), ("event=view", 4), ("page=/b", 1)):
            reply = self.pipeline.ask("api", "GET", "/v1/uniques?count=visitor&unit=hour&period=24h&timezone=Asia/Tokyo&" + key)
            self.assertEqual(reply.json().get("total"), visitors, reply)
        for time, notes in (("unit=day&units=2", 1), ("unit=day&units=1", 0)):
            reply = self.pipeline.ask("api", "GET", "/v1/uniques?event=view&format=csv&" + time)
            self.assertEqual(len(reply.headers.get_all("X-Millrace-Visitor-Key", [])), notes, reply.headers)

    def make_places(self, setting):
        """A file of the name that the setting has."""
        if subprocess.run(["perl", "-MMaxMind::DB::Writer", "-e", "1"], stderr=subprocess.DEVNULL).returncode:
            harness.not_installed(self, "libmaxmind-db-writer-perl is not installed (scripts/setup --test)")
        subprocess.run(["perl", os.path.join(harness.ROOT, "tests", "support", "make_mmdb.pl"), self.dir], check=True)
        os.rename(self.path("country.mmdb"), self.path(os.path.basename(setting)))
        return self.path(os.path.basename(setting))

    def test_the_sample_with_countries(self):
        """The comments of the sample, as the configuration that they describe."""
        text = re.sub(r"(?m)^# (?=\[subtotal country|key = country|label = country|max_keys)", "", sample("[door]"))
        add, geo = re.findall(r"(?m)^#   ((?:add|geo_file) = .*)", text)
        text = re.sub(r"(?m)^add = .*", add + "\ngeo_file = " + self.make_places(geo), text)
        config = self.write("site.conf", harness.pipeline_config(self.path("data"), text.replace("# keep_if", "keep_if")))
        for program in ("api", "aggregator"):
            done = self.run_program(program, "--check-config", "--config", config)
            self.assertEqual(done.returncode, 0, done)
        self.assertEqual(text.count("[subtotal country."), 3)
        self.assertIn(b"keep_if = site in (example.org, shop.example.org) ", done.stdout)

    def test_the_root_as_public_path(self):
        """The script then posts to /events, which blockers do not block, and not to /v1/events."""
        self.start_pipeline(public_path="/")
        self.assertIn('"events"', harness.request(self.public, "GET", "/m.js").text)
        self.assertEqual(harness.request(self.public, "POST", "/events", b'{"event":"view"}').json(), {"accepted": 1})

    def test_the_page_knows_the_path_of_the_script(self):
        config = self.write("test.conf", harness.sample_counters())
        for setting, path in ((None, "m.js"), ("/", "m.js"), ("/p", "p/m.js"), ("/a.b/c-d/", "a.b/c-d/m.js")):
            api = self.start("api", "--config", config, "--queue-url=http://127.0.0.1:1", "--aggregator-url=http://127.0.0.1:1",
                             *(["--public-path=" + setting] if setting else []))
            self.assertEqual(api.get("/v1/counters").json()["script"], path)
            self.assertEqual(api.get("/" + path).header("Content-Type"), "text/javascript; charset=utf-8")
            api.stop()


if __name__ == "__main__":
    harness.main()
