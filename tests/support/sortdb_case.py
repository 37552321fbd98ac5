"""Sorted files, generations and a sortdb: what its tests share."""
import json
import os
import urllib.parse
import zlib

from harness import MillraceTest, query, wait_until
from xxh3 import xxh3

ALPHABET = [b"a", b"b", b"!", b"+", b"-", b".", b"\0", b"\x80", b"\xff", b" ", b"%", b"&"]


def sorted_file(records, separator=b"\t"):
    return b"".join(sorted(k + separator + v + b"\n" for k, v in records))


def shard_of(key, shards):
    """`key` is u|K, c.u|K.HOUR or lookup|HASH."""
    ns, rest = key.split(b"|", 1)
    if b"." in ns:
        ns, rest = ns.split(b".", 1)[1], rest.rsplit(b".", 1)[0]
    return zlib.crc32(ns + b"|" + rest) % shards


def write_generation(archive, number, through, records, shards=1, **more):
    """A whole generation; `current` is not touched. `more`: members of the manifest."""
    directory = os.path.join(archive, "%012d" % number)
    os.makedirs(directory)
    files = {"shard": [], "texts": []}
    for k in range(shards):
        own = [r for r in records if shards == 1 or shard_of(r[0], shards) == k]
        texts = [(text.replace(b",", b"\\x2c"), key[len("lookup|"):]) for key, text in own if key.startswith(b"lookup|")]
        for kind, content in ("shard", own), ("texts", texts):
            lines, name = sorted_file(content, b","), "%s-%d-of-%d.csv" % (kind, k, shards)
            with open(os.path.join(directory, name), "wb") as f:
                f.write(lines)
            files[kind].append({"name": name, "records": lines.count(b"\n"), "bytes": len(lines), "xxh3": xxh3(lines)})
    with open(os.path.join(directory, "manifest.json"), "w") as f:
        json.dump({"format": 5, "generation": number, "through": through, "until": 0, "made": 1353283200, "shards": shards,
                   "streams": {"clicks": {"id": "x", "end": "10"}}, "counters": "", "retired": "", "files": files["shard"],
                   "texts": files["texts"], "imports": [], **more}, f)
    return directory


def point_at(archive, number):
    link = os.path.join(archive, "current.new")
    os.symlink("%012d" % number, link)
    os.rename(link, os.path.join(archive, "current"))


class SortdbTest(MillraceTest):
    def replace(self, name, content):
        path = self.write(name + ".new", content)
        os.rename(path, self.path(name))
        return self.path(name)

    def serve(self, content, *args):
        return self.start("sortdb", "--db-file", self.replace("db", content), *args)

    def check_pages(self, daemon, target, expected, limit):
        """Follows X-Millrace-Next; the pages together must be the whole."""
        got, start = [], None
        while True:
            part = "" if start is None else "&start=" + start
            if start is not None and "start=" in target:
                part, target = "", "/range?" + query(start=urllib.parse.unquote_to_bytes(start)) + \
                    target[target.index("&end="):]
            r = daemon.get("%s%s&limit=%d" % (target, part, limit))
            self.assertEqual(r.status, 200, r)
            got += r.body.splitlines(True) if b"\r" not in r.body else [x + b"\n" for x in r.body.split(b"\n")[:-1]]
            start = r.header("X-Millrace-Next")
            if start is None:
                break
        self.assertEqual(b"".join(got), expected)

    def wait_unhealthy(self, daemon, text):
        def told():
            r = daemon.get("/health")
            return r.status == 503 and text in r.text
        wait_until(told, lambda: "%r on /health: %s" % (text, daemon.get("/health").text))
