"""Clicks posted to simplequeue come out of the API as the oracle says: the whole first half of the pipeline."""
# full: MILLRACE_ROUNDS=2
import os
import re
import unittest
import urllib.parse

import answers
import harness
from harness import wait_until

BATCH = 1000  # lines a request
FAR = 5995814400  # past the last hour there is


def post_lines(pipeline, data):
    """One file's bytes, as they are: a damaged last line without LF is a message like any other."""
    lines = data.split(b"\n")
    for i in range(0, len(lines), BATCH):
        body = b"\n".join(lines[i:i + BATCH])
        if body.strip(b"\n"):
            reply = pipeline.ask("simplequeue", "POST", "/mput", body)
            assert reply.status == 200, reply


def is_counted(pipeline):
    depth = pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["depth"]
    streams = pipeline.ask("pubsub", "GET", "/streams").json()["streams"]
    counted = pipeline.ask("aggregator", "GET", "/stats?format=json").json()["streams"]
    return depth == 0 and all(counted[s["name"]]["offset"] == s["end"] for s in streams)


class CountedExactly(harness.MillraceTest):
    def start_pipeline(self):
        data = self.path("data")
        config = self.write("pipeline.conf", harness.pipeline_config(data))
        return harness.Pipeline(self, config, data).wait_ready()

    def count(self, blobs):
        pipeline = self.start_pipeline()
        for data in blobs:
            post_lines(pipeline, data)
        wait_until(lambda: is_counted(pipeline), "everything to be counted", timeout=harness.LONG)
        return pipeline

    def ask(self, pipeline, target):
        reply = pipeline.ask("api", "GET", target)
        self.assertEqual(reply.status, 200, reply)
        return reply.json()

    def check_series(self, pipeline, q):
        span = q["rows"]
        target = "/v1/series?" + harness.query(ns=q["ns"], key=q["key"], unit=q["unit"],
                                               from_=span[0]["t"], to=span[-1]["t"] + 32 * 86400)
        got = self.ask(pipeline, target)
        rows = [{"t": r["t"], "n": r["n"]} for r in got["rows"] if r["n"]]
        self.assertEqual(rows, span, target)
        self.assertEqual(got["total"], sum(r["n"] for r in rows))

    def check_breakdown(self, pipeline, q):
        target = "/v1/breakdown?" + harness.query(ns=q["ns"], key=q["key"], from_=0, to=FAR, limit=len(q["rows"]))
        got = self.ask(pipeline, target)
        self.assertEqual([{"key": r["key"], "n": r["n"]} for r in got["rows"]], q["rows"], target)
        self.assertEqual(got["total"], sum(r["n"] for r in got["rows"]) + got["other"])

    def records(self, pipeline):
        """Every record, through the continuation of long answers."""
        lines, start = [], ""
        while True:
            reply = pipeline.ask("aggregator", "GET", "/range?start=%s&end=%%ff" % start)
            self.assertEqual(reply.status, 200, reply)
            lines += reply.body.splitlines()
            start = reply.header("X-Millrace-Next")
            if not start:
                return lines

    def check_sums(self, lines):
        """The sub-counts of every hour add up to the hour's total, for every subtotal there is."""
        totals, subs, kinds = {}, {}, {}
        for line in lines:
            key, _, value = line.partition(b",")
            ns, _, rest = key.partition(b"|")
            if ns == b"lookup":
                continue
            counts = [(p.rpartition(b":")[0], int(p.rpartition(b":")[2])) for p in value.split(b" ")]
            if b"." in ns:
                kind, _, total = ns.partition(b".")
                name, _, hour = rest.rpartition(b".")
                subs[ns, name, hour] = sum(n for _, n in counts)
                kinds.setdefault(total, set()).add(ns)
            else:
                for hour, n in counts:
                    totals[ns, rest, hour] = n
        self.assertTrue(totals)
        for (ns, name, hour), n in totals.items():
            for kind in kinds.get(ns, ()):
                self.assertEqual(subs[kind, name, hour], n, (kind, name, hour))

    def check_all(self, pipeline, expected):
        lines = self.records(pipeline)
        self.assertEqual(answers.archive_digest(lines), expected["archive"])
        self.check_sums(lines)
        for q in expected["queries"]:
            (self.check_series if q["what"] == "series" else self.check_breakdown)(pipeline, q)
        stats = pipeline.ask("aggregator", "GET", "/stats?format=json").json()
        self.assertEqual({k: stats[k] for k in ("events", "skipped", "rejected")}, expected["summary"])

    def rejects(self, pipeline):
        found = []
        for at, _, names in os.walk(os.path.join(pipeline.data_dir, "aggregator")):
            found += [os.path.join(at, n) for n in names if "rejects" in os.path.join(at, n)]
        return b"".join(harness.read_file(f) for f in sorted(found)).splitlines()

    @unittest.skipIf(harness.load_oracle() and harness.real_files() and harness.rounds(1) == 1, "see test_real_clicks")
    def test_generated_events(self):
        events = answers.generate(self.path("events.ndjson"))
        print("ran on: generated events, against tests/expected/generated.json", flush=True)
        expected = answers.stored()
        pipeline = self.count([harness.read_file(events)])
        self.check_all(pipeline, expected)
        pipeline.interrupt()
        self.assertEqual(len(self.rejects(pipeline)), expected["summary"]["rejected"])

    @unittest.skipUnless(harness.real_files(), "no real clicks here: see test_generated_events")
    def test_real_clicks(self):
        files, oracle = harness.real_sample(), harness.load_oracle()
        print("ran on: %d files of real clicks, against the oracle" % len(files), flush=True)
        expected = answers.answers(oracle, files)
        blobs = [harness.read_file(f) for f in files]
        pipeline = self.count(blobs)
        self.check_all(pipeline, expected)
        pipeline.interrupt()
        self.check_the_damaged_line(pipeline, blobs)

    def check_the_damaged_line(self, pipeline, blobs):
        """One line of the real feed is cut short; it ends its file, so the file's name for the test is the
        blob that does not end in LF."""
        offset = 0
        for data in blobs:
            if not data.endswith(b"\n"):
                break
            offset += len(data)
        line = data[data.rindex(b"\n") + 1:]
        offset += data.rindex(b"\n") + 1
        rejects = self.rejects(pipeline)
        self.assertEqual(len(rejects), 1, rejects)
        self.assertIn(b"clicks", rejects[0])
        self.assertTrue(re.search(rb"\b%d\b" % offset, rejects[0]), (offset, rejects[0]))
        self.assertIn(line[:40].replace(b'"', b'\\"').split(b"\\")[0], rejects[0])


if __name__ == "__main__":
    harness.main()
