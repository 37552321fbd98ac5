"""The read protocol answers alike for what is live and for what is archived, for keys on which line order and key order
disagree, hashed ones, ones that are the beginning of others, and far years."""
import datetime
import json
import os

import harness
from harness import USERS_BY_COUNTRY, wait_until

KEYS = ("a", "a!x", "a+", "a,b", "a-", "a.b", "aa", "ab", "abc", "a" * 11, "a" * 12, "b|c", "d:e", "f g", "\u00e9", "\x7f",
        "h0aMB8AuNw4=", "http://www.facebook.com/")
YEARS = (2000, 2012, 2031, 2032, 2063, 2064, 2159)


class SameAnswers(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(self.data, USERS_BY_COUNTRY))
        self.pipeline = harness.Pipeline(self, config, self.data).wait_ready()

    def put_everything(self):
        lines = []
        for year in YEARS:
            t = int(datetime.datetime(year, 12, 31, 23, tzinfo=datetime.timezone.utc).timestamp())
            lines += [json.dumps({"t": t, "l": key, "c": key}).encode() for key in KEYS]
        reply = self.pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(lines))
        self.assertEqual(reply.status, 200, reply)
        wait_until(lambda: self.pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events"] == len(lines),
                   "everything to be counted")

    def targets(self, lines):
        keys = [line.split(b",", 1)[0] for line in lines]
        absent = [b"u|", b"u|a!", b"u|zz", b"c.u|a.", b"lookup|", b"v|a", b"u|a,"]
        for key in keys + absent:
            yield "/get?" + harness.query(key=key)
            yield "/fwmatch?" + harness.query(key=key)
            yield "/fwmatch?" + harness.query(key=key[:-1])
        yield "/mget?" + "&".join(harness.query(k=k) for k in (keys + absent)[::3])
        yield from ("/get", "/mget", "/mget?key", "/mget?kk=a", "/fwmatch", "/range", "/range?start=a", "/range?end=a",
                    "/range?start=b&end=a", "/range?start=a&end=a%21", "/fwmatch?key=u&limit=0", "/range?start=&end=&limit=x")
        for more in ("&rollups=hour", "&rollups=month&sub=a", "&rollups=day&sub=a&sub=h0aMB8AuNw4%3D"):
            yield "/range?start=c.u%7Ca.01&end=c.u%7Ca.zvcvn" + more
            yield "/range?start=c.u%7Ca.c1&end=c.u%7Ca.ccv1" + more
        yield "/range?start=c.u%7Ch0aMB8AuNw4%3D.01&end=c.u%7Ch0aMB8AuNw4%3D.zvcvn&rollups=day&sub=h0aMB8AuNw4%3D"
        edges = (keys + absent)[::5]
        for start in edges:
            for end in edges:
                yield "/range?" + harness.query(start=start, end=end)
                yield "/range?" + harness.query(start=start, end=end, limit=3)

    def answers(self, daemon, lines):
        out, url = {}, self.pipeline.daemon_url(daemon)
        for target in self.targets(lines):
            r = harness.request(url, "GET", target)
            self.assertIn(r.status, (200, 400, 404), (target, r))
            out[target] = (r.status, r.json()["code"] if r.status == 400 else r.body, r.header("X-Millrace-Next"))
        return out

    def test_live_and_archived(self):
        self.put_everything()
        lines = self.pipeline.ask("aggregator", "GET", "/fwmatch?key=").body.splitlines()
        # A record a key, a subtotal a key and year, and a lookup a key that is not plain.
        self.assertGreater(len(lines), len(KEYS) * (1 + len(YEARS)))
        self.assertEqual(lines, sorted(lines))
        live = self.answers("aggregator", lines)
        done = self.run_program("millrace", "compact", "--config", self.pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)
        archived = self.answers("sortdb", lines)
        for target, answer in live.items():
            self.assertEqual(archived[target], answer, target)
        shard = harness.read_file(os.path.join(self.data, "archive", "current", "shard-0-of-1.csv"))
        self.assertEqual(shard.splitlines(), lines)
        self.assertEqual(self.pipeline.ask("aggregator", "GET", "/fwmatch?key=").status, 410)
        self.pipeline.interrupt()


if __name__ == "__main__":
    harness.main()
