"""GET /v1/lookup: the keys by the beginning of their texts, while the aggregator has them, after they were archived, and while both have a
part. The expected keys are the oracle's (real clicks) or come from the records of generated events."""
# full: MILLRACE_ROUNDS=2
import collections
import csv
import io
import json
import os
import unittest

import answers
import harness
from harness import query, rounds, seeded, wait_until
from record_text import stored

PAGES = 100  # at most, of a lookup with many keys
LIMIT_MAX = 1000  # keys of a page
TOTALS = {"all": "feed", "u": "user", "h": "link", "d": "domain"}
# Order of keys, hashes and escapes: plain keys beside texts with commas, backslashes and control bytes, prefixes of each other.
HARD = ["a", "a!x", "a+", "a,b", "a-", "aZ", "a\\b", "a\\", "a]", "a]&", "a\x01", "a\x7f", "a b", "ab", "a" * 11, "a" * 12, "b|c", "\u00e9",
        "h0aMB8AuNw4=", "h0aM", "http://www.facebook.com/", ",", "\\", "\\x2c", "(others)", "Z"]
HARD_COUNTERS = """
[input]
time = t
max_ahead = 0
[total u]
key = l
label = user
[total v]
key = m
label = page
[subtotal c.u]
key = c
label = country
"""


def in_order(text):
    """The text's place: as in a file of texts, with the comma that ends the key."""
    out = b""
    for byte in text:
        c = bytes([byte])
        out += b"\\\\" if c == b"\\" else b"\\x%02x" % byte if byte < 32 or byte in (127, 44) else c
    return out + b","


def ordered(keys):
    return dict(sorted(keys.items(), key=lambda item: in_order(item[0])))


def keys_of_records(lines):
    """text -> {namespace: count} of archive text."""
    records = dict(line.split(b",", 1) for line in lines)
    keys = collections.defaultdict(dict)
    for key, value in records.items():
        ns, _, component = key.partition(b"|")
        if b"." in ns or ns == b"lookup":
            continue
        text = records.get(b"lookup|" + component, component)
        text = text.decode("unicode_escape").encode("latin-1") if text != component else text
        keys[text][ns.decode()] = sum(int(pair.rpartition(b":")[2]) for pair in value.split(b" "))
    return dict(keys)


class LookupTest(harness.MillraceTest):
    def begin(self, counters):
        data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(data, counters))
        self.pipeline = harness.Pipeline(self, config, data).wait_ready()
        self.published = 0

    def publish(self, lines):
        for i in range(0, len(lines), 2000):
            reply = self.pipeline.ask("pubsub", "POST", "/pub?stream=clicks", b"\n".join(lines[i:i + 2000]))
            self.assertEqual(reply.status, 200, reply)
        end = int(reply.json()["end"])
        stats = lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        wait_until(lambda: int(stats()["streams"]["clicks"]["offset"]) == end, "all to be counted", timeout=harness.LONG)

    def compact(self, *args):
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path, *args)
        self.assertEqual(done.returncode, 0, done)

    def ask(self, **params):
        return self.pipeline.ask("api", "GET", "/v1/lookup?" + query(**params))

    def walk(self, limit, **params):
        """All rows, in pages."""
        rows, more = [], {}
        while True:
            r = self.ask(limit=limit, **params, **more)
            self.assertEqual(r.status, 200, r)
            page = r.json()
            found = {row["key"] for row in page["rows"]}
            self.assertLessEqual(len(found), limit)
            rows += [(row["key"], row["ns"], row["label"], row["n"]) for row in page["rows"]]
            if "continuation" not in page:
                self.assertIsNone(r.header("X-Millrace-Continuation"))
                return rows
            self.assertEqual(r.header("X-Millrace-Continuation"), page["continuation"])
            more = {"continuation": page["continuation"]}

    def expected(self, keys, labels, prefix, only=None, part=b""):
        """`keys` are ordered. `bytes.lower` changes the letters A to Z only."""
        return [(text.decode(), ns, labels[ns], of[ns]) for text, of in keys.items() if text.startswith(prefix) and part.lower() in text.lower()
                for ns in labels if ns in of and only in (None, ns)]

    def check_walk(self, limit, expected, **params):
        """Pages have more than `limit` keys if there would be more than PAGES pages."""
        limit = min(max(limit, len(expected) // PAGES), LIMIT_MAX)
        self.assertEqual(self.walk(limit, **params), expected, (params, limit))

    def check(self, keys, labels, prefixes, limits):
        rng = seeded()
        for prefix in prefixes:
            limit = rng.choice(limits)
            self.check_walk(limit, self.expected(keys, labels, prefix), prefix=prefix)
            ns = rng.choice(list(labels))
            own = self.expected(keys, labels, prefix, ns)
            self.check_walk(limit, own, prefix=prefix, ns=ns)
            self.check_walk(limit, own, prefix=prefix, counter=labels[ns])
        texts = sorted(text.decode() for text in keys if text)
        for prefix in prefixes:
            text, ns, limit = rng.choice(texts), rng.choice(list(labels)), rng.choice(limits)
            if harness.SANITIZED:  # each page searches the archive, and small pages are many
                limit = max(limits)
            start = rng.randrange(len(text))
            part = "".join(rng.choice((c, c.upper(), c.lower()) if c.isascii() else (c,)) for c in text[start:start + rng.choice((1, 2, 5, 20))])
            expected = lambda *which: self.expected(keys, labels, *which, part.encode())
            self.check_walk(limit, expected(b"", None), contains=part)
            self.check_walk(limit, expected(b"", ns), contains=part, ns=ns)
            self.check_walk(limit, expected(prefix, None), contains=part, prefix=prefix)
        self.check_walk(9, self.expected(keys, labels, b"", None, "\u00c9".encode()), contains="\u00c9")  # not the small letter


class TestHardKeys(LookupTest):
    def test_every_prefix_live_mixed_and_archived(self):
        self.begin(HARD_COUNTERS)
        events = [json.dumps({"t": 1332637200 + 3600 * i, "l": k, "m": HARD[i // 2], "c": "http://never.a.total/"}).encode()
                  for i, k in enumerate(HARD)]
        self.publish(events)
        keys = collections.defaultdict(collections.Counter)
        for i, k in enumerate(HARD):
            keys[k.encode()]["u"] += 1
            keys[HARD[i // 2].encode()]["v"] += 1
        keys = ordered(keys)
        labels = {"u": "user", "v": "page"}
        prefixes = sorted({k.encode()[:n] for k in HARD for n in range(len(k.encode()) + 1)})
        prefixes = [p for p in prefixes if p.decode(errors="ignore").encode() == p] + [b"nothing", b"http://never"]
        some = prefixes if rounds(1) > 1 else seeded().sample(prefixes, len(prefixes) // 4)  # all where both have a part
        self.check(keys, labels, some, (1, 2, 3, 100))
        self.compact()
        self.check(keys, labels, some, (1, 2, 3, 100))
        for daemon in ("sortdb", "aggregator"):
            r = self.pipeline.ask(daemon, "GET", "/keys?prefix=" + ("&after=1" if daemon == "aggregator" else ""))
            self.assertEqual((r.status, r.json()["code"]), (400, "bad-parameter"))
        self.publish(events[:9])
        for i, k in enumerate(HARD[:9]):
            keys[k.encode()]["u"] += 1
            keys[HARD[i // 2].encode()]["v"] += 1
        self.check(keys, labels, prefixes, (1, 2, 3, 100))
        self.compact("--shards=3")
        self.check(keys, labels, some, (1, 2, 3, 100))

    def test_a_key_behind_many_that_are_none(self):
        """sortdb ends its work for an answer before it has passed over all texts that are only sub keys."""
        texts = [b"sub-only-%05d" % i for i in range(45000)]
        lines = sorted(b"lookup|%s,%s\n" % (stored(t), t) for t in texts + [b"sz-the-only-key"])
        lines += [b"u|%s,c413:7\n" % stored(b"sz-the-only-key")]
        self.begin(HARD_COUNTERS)
        self.compact("--import", self.write("records", b"".join(sorted(lines))))
        self.pipeline.ask("sortdb", "POST", "/reload")
        r = self.pipeline.ask("sortdb", "GET", "/keys?prefix=s&ns=u")
        self.assertEqual((r.status, r.body), (200, b""))
        self.assertTrue(r.header("X-Millrace-Next").startswith("sub-only-"))
        r = self.ask(prefix="s").json()
        self.assertEqual((r["rows"], "continuation" in r),
                         ([{"key": "sz-the-only-key", "ns": "u", "label": "user", "n": 7}], False))

    def test_a_part_of_few_keys_of_many(self):
        """One answer, though sortdb ends its work often. A search of more than max_search is refused."""
        texts = [b"http://example.com/%05d" % i for i in range(45000)]
        found = [b"http://example.com/%05d/Needle" % i for i in (7, 30000, 44999)]
        keys = {stored(t): t for t in texts + found}
        lines = [b"lookup|%s,%s\n" % pair for pair in keys.items()] + [b"u|%s,c413:7\n" % key for key in keys]
        self.begin(HARD_COUNTERS)
        self.compact("--import", self.write("records", b"".join(sorted(lines))))
        for daemon in ("sortdb", "api"):
            self.pipeline.ask(daemon, "POST", "/reload")
        page = self.ask(contains="needle").json()
        self.assertEqual(([(row["key"], row["n"]) for row in page["rows"]], page["contains"], "continuation" in page),
                         ([(text.decode(), 7) for text in found], "needle", False))
        page = self.pipeline.ask("sortdb", "GET", "/keys?prefix=&contains=needle&ns=u")
        self.assertTrue(page.status == 200 and page.header("X-Millrace-Next"), page)
        sortdb = "--sortdb-url=" + self.pipeline.daemon_url("sortdb")
        for source in (sortdb, "--archive=" + os.path.join(self.path("data"), "archive")):
            for limit in ("1G", "2M"):
                api = self.start("api", "--config", self.pipeline.config_path, "--aggregator-url", self.pipeline.daemon_url("aggregator"),
                                 "--max-search", limit, source)
                reply = wait_until(lambda: [r for r in [api.get("/v1/lookup?contains=NEEDLE")] if r.status != 503], "an answer")[0]
                if limit == "1G":
                    page = reply.json()
                    self.assertEqual(([row["key"].encode() for row in page["rows"]], "continuation" in page), (found, False), source)
                else:
                    self.assertEqual((reply.status, reply.json()["code"]), (422, "search-too-large"), (source, reply))
                    self.assertEqual(len(api.get("/v1/lookup?prefix=http&limit=9").json()["rows"]), 9)

    def test_a_sum_over_64_bits_is_refused(self):
        """Of an archive whose manifest does not have the sum of an import."""
        self.begin(HARD_COUNTERS)
        for key in (b"a", b"b"):
            for hour, n in ((b"c413", 2**62), (b"c414", 2**62 - (key == b"a"))):
                self.compact("--import", self.write("records", b"u|%s,%s:%d\n" % (key, hour, n)))
                path = self.path("data", "archive", "current", "manifest.json")
                manifest = harness.read_file(path)
                self.assertIn(b'"u":"%d"' % n, manifest)
                self.write(path, manifest.replace(b'"u":"%d"' % n, b'"u":"0"'))
        self.pipeline.ask("sortdb", "POST", "/reload")
        self.assertEqual([row["n"] for row in self.ask(prefix="a").json()["rows"]], [2 ** 63 - 1])
        r = self.ask(prefix="b")
        self.assertEqual((r.status, r.json()["code"]), (422, "sum-too-large"), r)
        self.publish([b'{"t":1332637200,"l":"a"}'] * 2)
        r = self.ask(prefix="a")
        self.assertEqual((r.status, r.json()["code"]), (422, "sum-too-large"), r)

    def test_parameters(self):
        self.begin(HARD_COUNTERS)
        self.publish([b'{"t":1332637200,"l":"a,\\"b","m":"x","c":"JP"}'])
        for counter, end in (("usr", "label: did you mean user?"), ("city", "label")):
            self.assertTrue(self.ask(prefix="a", counter=counter).json()["detail"].endswith(end), counter)
        for params, status, code in (({}, 400, "bad-parameter"), ({"prefix": "a", "prefx": "b"}, 400, "unknown-parameter"),
                                     ({"prefix": "a", "ns": "u", "counter": "user"}, 400, "bad-parameter"),
                                     ({"prefix": "a", "ns": "c.u"}, 404, "unknown-counter"),
                                     ({"prefix": "a", "counter": "country"}, 404, "unknown-counter"),
                                     ({"prefix": "a", "limit": 0}, 400, "bad-parameter"),
                                     ({"prefix": "a", "limit": 1001}, 400, "bad-parameter"),
                                     ({"prefix": "a", "format": "xml"}, 400, "bad-parameter"),
                                     ({"prefix": "a", "continuation": "6"}, 400, "bad-parameter"),
                                     ({"prefix": "a", "continuation": ""}, 400, "bad-parameter"),
                                     ({"prefix": "a", "continuation": "zz"}, 400, "bad-parameter")):
            r = self.ask(**params)
            self.assertEqual((r.status, r.json()["code"]), (status, code), params)
        self.assertEqual(self.pipeline.ask("api", "GET", "/v1/lookup?prefix=a&prefix=b").status, 400)
        r = self.ask(prefix="a", format="csv")
        self.assertEqual(list(csv.reader(io.StringIO(r.body.decode()))), [["key", "ns", "label", "n"], ['a,"b', "u", "user", "1"]])
        said = self.run_program("millrace", "query", "lookup", "--config", self.pipeline.config_path, "--prefix", "")
        self.assertEqual((said.returncode, said.stdout.split()), (0, [b"1", b"user", b'a,"b', b"1", b"page", b"x"]), said)
        said = self.run_program("millrace", "query", "lookup", "--config", self.pipeline.config_path, "--contains", ',"B')
        self.assertEqual((said.returncode, said.stdout.split()), (0, [b"1", b"user", b'a,"b']), said)
        said = self.run_program("millrace", "query", "lookup", "--config", self.pipeline.config_path, "--prefix", "", "--limit", "1")
        self.assertIn(b"--continuation 78", said.stdout)


class TestClicks(LookupTest):
    def clicks(self):
        """The lines, and text -> {namespace: count}."""
        files = harness.real_sample() if rounds(1) > 1 else harness.real_files()[:2]
        if not files:
            return [line for line in harness.read_file(answers.generate(self.path("events"))).split(b"\n") if line], None
        counts = answers.count(harness.load_oracle(), files)
        keys = collections.defaultdict(dict)
        for (ns, stored), hours in counts.total.items():
            keys[counts.lookups.get(stored, stored)][ns] = sum(hours.values())
        return [line for f in files for line in harness.read_file(f).split(b"\n") if line], dict(keys)

    def test_the_oracles_keys(self):
        lines, keys = self.clicks()
        self.begin(harness.sample_counters())
        self.publish(lines)
        if keys is None:
            keys = keys_of_records(self.pipeline.ask("aggregator", "GET", "/fwmatch?key=").body.splitlines())
        rng = seeded()
        texts = sorted(keys)
        some = rng.sample(texts, 3 * rounds(1))
        prefixes = [t[:n] for t in some for n in (2, 5, len(t)) if t[:n].decode(errors="ignore").encode() == t[:n]]
        labels = {ns: label for ns, label in TOTALS.items() if any(ns in k for k in keys.values())}
        limits = (10, 1000)
        keys = ordered(keys)
        self.check_walk(LIMIT_MAX, self.expected(keys, labels, b""), prefix=b"")
        self.check(keys, labels, prefixes, limits)
        self.compact()
        self.check_walk(LIMIT_MAX, self.expected(keys, labels, b""), prefix=b"")
        self.check(keys, labels, prefixes, limits)
        self.publish(lines)
        twice = {text: {ns: 2 * n for ns, n in of.items()} for text, of in keys.items()}
        self.check(twice, labels, prefixes, limits)
        self.compact("--shards=4")
        self.check_walk(LIMIT_MAX, self.expected(twice, labels, b""), prefix=b"")
        self.check(twice, labels, prefixes, limits)


if __name__ == "__main__":
    harness.main()
