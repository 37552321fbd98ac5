"""api/openapi.json beside the API: its endpoints and parameters, its examples against a running pipeline, replies against its schemas, and
the snippets of docs/api-clients.md."""
# label: surface
import json
import os
import re
import shutil
import subprocess
import urllib.parse

import harness
from harness import ROOT, Pipeline, pipeline_config, read_file, wait_until

CHECKER = os.path.join(ROOT, "tests", "openapi")
QUERIES = ("/v1/series", "/v1/breakdown", "/v1/compare", "/v1/top", "/v1/quantile", "/v1/uniques", "/v1/retention", "/v1/cohort")
UNIQUE = "\n[unique v.u]\nmember = v\nlabel = visitor\n"
VALUES = "[total spent]\nkey = l\nvalue = price\nscale = 2\nunit = EUR\n[total buys]\nkey = l\nhaving = price\n[subtotal ms.buys]\nkey = bucket(ms)\n"
SNIPPETS = {"sh": ("bash", "snippet.sh"), "python": ("python3", "snippet.py"), "javascript": ("node", "snippet.mjs"),
            "go": ("go", "snippet.go")}


def source(*path):
    return read_file(os.path.join(ROOT, *path)).decode()


def routes():
    """path -> its parameters, or None if the row of the table of routes does not list them."""
    found = {}
    row = r"HTTP_ROUTE\(\s*\"(/v1/[^\"]+)\",[^,]+,[^,]+,\s*\w+,\s*(NULL|\"[^\"]*\")"
    for path, params in re.findall(row, source("api", "http.c")):
        own = None if params == "NULL" else set(params.strip('"').split())
        found[path] = found[path] | own if path in found else own
    return found


def words_of(path, table):
    """The strings of a C array."""
    text = re.search(table + r"\[\] = \{(.*?)\}", source(*path), re.S)
    return set(re.findall(r'"([^"]*)"', text[1]))


class Document:
    def __init__(self, value):
        self.value = value
        self.operations = {(path, method): op for path, item in value["paths"].items() for method, op in item.items()}

    def resolve(self, node):
        while "$ref" in node:
            at = self.value
            for part in node["$ref"].split("/")[1:]:
                at = at[part]
            node = at
        return node

    def parameters(self, operation):
        return [self.resolve(p) for p in operation.get("parameters", [])]

    def names(self, path):
        """All parameters with a fixed name, of all methods of a path."""
        return {p["name"] for method in self.value["paths"][path].values() for p in self.parameters(method)
                if p["schema"].get("type") != "object"}

    def examples(self, operation):
        """name -> (target's query, body) of every example."""
        found = {}
        body = operation.get("requestBody", {"content": {}})["content"].get("application/json", {}).get("examples", {})
        for name in body:
            found[name] = [], json.dumps(body[name]["value"]).encode()
        for p in self.parameters(operation):
            for name, example in p.get("examples", {}).items():
                value = example["value"]
                pairs = list(value.items()) if isinstance(value, dict) else \
                    [(p["name"], one) for one in (value if isinstance(value, list) else [value])]
                found.setdefault(name, ([], None))[0].extend(pairs)
        return {name: (urllib.parse.urlencode(pairs), body) for name, (pairs, body) in (found or {"": ([], None)}).items()}


class OpenApiTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "api", "openapi.json")) as f:
            self.document = Document(json.load(f))
        config = self.write("test.conf", harness.sample_counters() + UNIQUE + VALUES)
        self.lone = self.start("api", "--config", config, "--queue-url", "http://127.0.0.1:1", "--aggregator-url",
                               "http://127.0.0.1:1", "--pubsub-url", "http://127.0.0.1:1")

    def test_the_api_serves_the_document(self):
        reply = self.lone.get("/v1/openapi.json")
        self.assertEqual((reply.status, reply.header("Content-Type")), (200, "application/json"))
        self.assertEqual(reply.body, read_file(os.path.join(ROOT, "api", "openapi.json")))
        again = self.lone.get("/v1/openapi.json", headers={"If-None-Match": reply.header("ETag")})
        self.assertEqual(again.status, 304)

    def test_it_has_the_endpoints_and_methods_of_the_code(self):
        listed = set(re.findall(r"(?m)^(/v1/\S+)", self.lone.get("/").text))
        self.assertEqual(listed, set(routes()))
        self.assertEqual(listed, set(self.document.value["paths"]))
        for path in listed:
            for method in ("GET", "POST", "PUT", "DELETE"):
                taken = self.status(method, path) != 405
                self.assertEqual(taken, (path, method.lower()) in self.document.operations, (method, path))

    def status(self, method, path):
        """Without the body, which may have no end."""
        connection = harness.connect(self.lone.url)
        self.addCleanup(connection.close)
        connection.request(method, path)
        return connection.getresponse().status

    def test_it_has_the_parameters_of_the_code(self):
        found = routes()
        self.assertEqual(found["/v1/events"], words_of(("api", "page", "events.c"), "marks") | {"all_or_none"})
        for path, params in found.items():
            if path == "/v1/pixel.gif":
                params = set()
            if path not in QUERIES:
                self.assertEqual(self.document.names(path), params, path)
        for path in QUERIES:
            self.assertEqual(self.document.names(path), self.taken(path), path)

    def taken(self, path):
        """The parameters of a query, except for the labels of counters, as the error about another parameter lists them."""
        named = "" if path in ("/v1/top", "/v1/cohort") else "ns=u&key=k&"
        reply = self.lone.get("%s?%scolour=red" % (path, named))
        self.assertEqual((reply.status, reply.json()["code"]), (400, "unknown-parameter"), path)
        return set(reply.json()["hint"].removeprefix("parameters: ").split())

    def test_a_query_refuses_parameters_that_the_document_does_not_have(self):
        every = set().union(*(self.taken(path) for path in QUERIES)) - {"all", "any", "not", "count", "window", "stickiness", "lookback", "q"}
        for path in QUERIES:
            operation = self.document.operations[path, "get"]
            query = next(iter(self.document.examples(operation).values()))[0]
            self.assertEqual(self.lone.get("%s?%s" % (path, query)).status, 503, "a good request reaches the sources")
            for name in every - self.document.names(path):
                for value in ("1", "before", "country", "user"):
                    reply = self.lone.get("%s?%s&%s=%s" % (path, query, name, value))
                    self.assertEqual((reply.status, reply.json()["code"]), (400, "bad-parameter"), (path, name, value))
                    self.assertIn("%s is a parameter of " % name, reply.json()["detail"])

    def test_the_units_are_those_of_the_code(self):
        """A unit that the API does not know is a bad parameter. A known unit may be refused for its counts, or reaches the sources."""
        for path in QUERIES:
            units = [p["schema"]["enum"] for p in self.document.parameters(self.document.operations[path, "get"]) if p["name"] == "unit"]
            named = {"/v1/top": "counter=u", "/v1/quantile": "ns=buys&key=k&by=ms"}.get(path, "ns=u&key=k&by=country" if path == "/v1/breakdown" else "ns=u&key=k")
            for unit in ("15m", "quarter", "hour", "day", "week", "mweek", "month", "quarters") if units else ():
                reply = self.lone.get("%s?%s&units=2&unit=%s" % (path, named, unit))
                self.assertEqual(reply.status == 400, unit not in units[0], (path, unit, reply))

    def test_every_parameter_has_an_example(self):
        named = {p["name"] for op in self.document.operations.values() for p in self.document.parameters(op)
                 if p.get("examples")}
        every = {p["name"] for op in self.document.operations.values() for p in self.document.parameters(op)}
        self.assertEqual(every - named, {"queue", "producer", "mark", "next", "url"})


class RunningTest(harness.MillraceTest):
    """All on one pipeline, which has the events of the document's example."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "api", "openapi.json")) as f:
            self.document = Document(json.load(f))
        path = self.write("millrace.conf", pipeline_config(self.path("data"), harness.sample_counters() + UNIQUE + VALUES))
        self.up = Pipeline(self, path, self.path("data")).wait_ready()
        self.url = self.up.daemon_url("api")
        self.checked = []

    def call(self, path, method, query="", body=None):
        """Asks, and notes the reply for the checker."""
        headers = {"Content-Type": "application/json"} if body else {}
        reply = harness.request(self.url, method.upper(), path + ("?" + query if query else ""), body, headers)
        name = "%s %s?%s: %d" % (method, path, query, reply.status)
        responses = self.document.operations[path, method]["responses"]
        self.assertIn(str(reply.status), responses, (name, reply))
        content = self.document.resolve(responses[str(reply.status)]).get("content", {})
        kind = reply.header("Content-Type").partition(";")[0]
        self.assertIn(kind, content, name)
        if kind.endswith("json"):
            place = responses[str(reply.status)].get("$ref", "#/paths/%s/%s/responses/%d" % (path.replace("/", "~1"), method, reply.status))
            pointer = "%s/content/%s/schema" % (place[1:], kind.replace("/", "~1"))
            self.checked.append({"name": name, "pointer": pointer, "body": reply.json()})
        return reply

    def counted(self, path, query, want):
        return wait_until(lambda: harness.request(self.url, "GET", "%s?%s" % (path, query)).json() == want,
                          lambda: harness.request(self.url, "GET", "%s?%s" % (path, query)).text)

    def run_examples(self):
        operations = sorted(self.document.operations.items(), key=lambda item: item[0] != ("/v1/events", "post"))
        for (path, method), operation in operations:
            if "text/event-stream" in operation["responses"]["200"]["content"]:
                self.run_stream(path, operation)
                continue
            content = operation["responses"]["200"]["content"].get("application/json", {})
            answers = content.get("examples", {})
            examples = self.document.examples(operation)
            self.assertLessEqual(set(answers), set(examples), path)
            for name in sorted(examples, key=lambda n: n not in answers):
                query, body = examples[name]
                if name in answers and method == "get" and path != "/v1/incr":
                    self.counted(path, query, answers[name]["value"])
                reply = self.call(path, method, query, body)
                is_admin = path == "/v1/sql" or (path, method) == ("/v1/manage", "post")  # this pipeline has no token
                self.assertEqual(reply.status, 403 if is_admin else 200, (path, name, reply))
                if name in answers:
                    self.assertEqual(reply.json(), answers[name]["value"], (path, name))

    def run_stream(self, path, operation):
        """The reply has no end: its first event is checked. So is the example."""
        pointer = "/paths/%s/get/responses/200/content/text~1event-stream/x-data" % path.replace("/", "~1")
        for name, (query, _) in self.document.examples(operation).items():
            connection = harness.connect(self.url)
            self.addCleanup(connection.close)
            connection.request("GET", "%s?%s" % (path, query))
            reply = connection.getresponse()
            self.assertEqual((reply.status, reply.getheader("Content-Type")), (200, "text/event-stream"), (path, query))
            event = next(line for line in reply if line.startswith(b"data:")).decode()
            example = operation["responses"]["200"]["content"]["text/event-stream"].get("examples", {}).get(name, {"value": event})
            for text in (event, example["value"]):
                self.checked.append({"name": "%s: %s" % (path, name), "pointer": pointer, "body": json.loads(text[5:])})

    def run_errors(self):
        for path, method, query, body, status in (
                ("/v1/series", "get", "", None, 400), ("/v1/series", "get", "usr=x", None, 404),
                ("/v1/series", "get", "user=x&timezone=Asia/Kolkata", None, 422), ("/v1/series", "get", "user=x&timezon=UTC", None, 400),
                ("/v1/breakdown", "get", "user=x&by=nothing", None, 404), ("/v1/top", "get", "counter=domain", None, 404),
                ("/v1/compare", "get", "user=x&against=x", None, 400), ("/v1/uniques", "get", "user=x&hour_offset=1", None, 422),
                ("/v1/uniques", "get", "link=x", None, 404), ("/v1/cohort", "get", "not=user:x", None, 400),
                ("/v1/retention", "get", "user=x&units=65", None, 400), ("/v1/counters", "get", "x=1", None, 400),
                ("/v1/freshness", "get", "x=1", None, 400), ("/v1/lookup", "get", "", None, 400),
                ("/v1/events", "post", "", b"[1]", 400), ("/v1/events", "post", "producer=p&mark=5&next=6", b"{}", 409),
                ("/v1/events", "post", "", b"{}\n1", 200), ("/v1/events", "post", "all_or_none=1", b"{}\n1", 400),
                ("/v1/incr", "get", "ns=zz&key=k", None, 404), ("/v1/incr", "post", "ns=d&key=k", None, 422)):
            self.assertEqual(self.call(path, method, query, body).status, status, (path, query))

    def run_snippets(self):
        blocks = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", source("docs", "api-clients.md"))
        self.assertEqual({language for language, _ in blocks}, set(SNIPPETS))
        for language, text in blocks:
            program, name = SNIPPETS[language]
            for path, item in self.document.value["paths"].items():
                if item.get("get", {}).get("tags") not in (["page"], ["admin"]):  # for the web page, or with a token
                    self.assertIn(path, text, language)
            if not shutil.which(program):
                self.assertEqual(language, "go", "scripts/setup --test installs %s" % program)
                continue
            file = self.write(name, text.replace("http://127.0.0.1:8088", self.url))
            argv = [program, "run", file] if program == "go" else [program, file]
            env = {**os.environ, "GOCACHE": os.environ.get("GOCACHE", "/tmp/go-cache-%d" % os.getuid()), "GO111MODULE": "off"}
            done = subprocess.run(argv, capture_output=True, timeout=harness.LONG, env=env, cwd=os.path.dirname(file))
            self.assertEqual(done.returncode, 0, (language, done.stderr.decode()))
            said = done.stdout.decode()
            for word in ("accepted", "bitly", "distinct", "change", "additive", "retained", "sets", "totals", "newest_event", 'data: {"time":', "3.1.0"):
                self.assertIn(word, said, language)

    def test_examples_errors_schemas_and_snippets(self):
        self.run_examples()
        self.run_errors()
        self.run_snippets()
        if not os.path.isdir(os.path.join(CHECKER, "node_modules")):
            harness.not_installed(self, "no packages in tests/openapi: run scripts/setup --test")
        self.assertGreater(len(self.checked), 30)
        done = subprocess.run(["node", os.path.join(CHECKER, "check.mjs"), os.path.join(ROOT, "api", "openapi.json")],
                              input=json.dumps(self.checked).encode(), capture_output=True, timeout=harness.LONG)
        self.assertEqual((done.returncode, done.stdout.decode()), (0, ""), done.stderr.decode())


if __name__ == "__main__":
    harness.main()
