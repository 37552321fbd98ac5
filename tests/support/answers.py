"""What the pipeline must answer, as the oracle says it: from the oracle itself (real clicks) or from what it
printed once for generated events (tests/expected/generated.json; run this file to make it anew).

An answer set is a dict:
  summary   {"events", "skipped", "rejected"}
  archive   sha256 of the text of all counts, and the number of its lines
  rollups   the same with the rollups of an archive
  queries   [{"what": "series", "ns", "key", "unit", "rows": [{"t", "n"}]},
             {"what": "breakdown", "ns", "key", "rows": [{"key", "n"}]}]       over all time, UTC, units without clicks left out
"""
import collections
import datetime
import fcntl
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile

import harness

EXPECTED = os.path.join(harness.ROOT, "tests", "expected", "generated.json")
CONFIG = os.path.join(harness.ROOT, "etc", "clicks.conf")
GENERATE = ["clickgen", "--events=20000", "--seed=7", "--start=1331856000", "--end=1332460800", "--users=300",
            "--links=2000", "--heartbeats=0.03", "--damaged=0.01"]
UNITS = ("hour", "day", "week", "mweek", "month")
BUSIEST = 20
ROWS = 200  # of a breakdown
FEWER_ROWS = 20  # of a query in the file that is kept


def digest_of(oracle, files):
    """What a count depends on: the oracle, the counters, and each file's name, size and time."""
    seen = hashlib.sha256(harness.read_file(oracle.__file__) + harness.read_file(CONFIG))
    for f in files:
        status = os.stat(f)
        seen.update(repr((f, status.st_size, status.st_mtime_ns)).encode())
    return seen.hexdigest()[:16]


def count(oracle, files):
    """The oracle's counts of these files. They are kept beside the builds, so that the runs of all builds count once; a test
    that comes while another counts waits for it."""
    builds = os.path.join(harness.ROOT, "build")
    kept = os.path.join(builds if os.path.isdir(builds) else harness.BUILD, "oracle-%s.pickle" % digest_of(oracle, files))
    counts = oracle.Counts(CONFIG)
    with open(kept + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(kept):
            with open(kept, "rb") as f:
                vars(counts).update(pickle.load(f))
            return counts
        counts.read(files)
        with open(kept + ".new", "wb") as f:
            pickle.dump(vars(counts), f)
        os.rename(kept + ".new", kept)
    return counts


def text(counts, stored):
    return counts.lookups.get(stored, stored).decode()


def busiest(counts, ns):
    """Full texts of the namespace's keys with the most events, ties by text."""
    sums = [(sum(hours.values()), text(counts, key)) for (n, key), hours in counts.total.items() if n == ns]
    return [key for _, key in sorted(sums, key=lambda s: (-s[0], s[1].encode()))[:BUSIEST]]


def series(oracle, counts, ns, key, unit):
    rows = collections.Counter()
    for hour, n in counts.total[(ns, oracle.component(key.encode(), {}))].items():
        rows[oracle.unit_start(hour, unit, datetime.timezone.utc)] += n
    return [{"t": t, "n": n} for t, n in sorted(rows.items())]


def breakdowns(oracle, counts):
    """(ns, stored key) -> sub key's text -> n, over all hours."""
    out = collections.defaultdict(collections.Counter)
    for (name, key, _), subs in counts.sub.items():
        out[name, key].update(subs)
    return out


def breakdown_rows(counts, subs, most):
    """The largest counts, and among equal ones the lowest texts."""
    rows = sorted(subs.items(), key=lambda kv: (-kv[1], counts.lookups.get(kv[0], kv[0])))[:most]
    return [{"key": text(counts, s), "n": n} for s, n in rows]


def answers(oracle, files, most=ROWS):
    counts = count(oracle, files)
    lines = sorted(counts.archive(1, 0))
    subs = breakdowns(oracle, counts)
    queries = []
    for ns, _ in counts.totals:
        for key in busiest(counts, ns):
            for unit in UNITS:
                queries.append({"what": "series", "ns": ns, "key": key, "unit": unit,
                                "rows": series(oracle, counts, ns, key, unit)})
            stored = oracle.component(key.encode(), {})
            for name, _ in counts.subs:
                if name.split(".", 1)[1] == ns:
                    queries.append({"what": "breakdown", "ns": name, "key": key,
                                    "rows": breakdown_rows(counts, subs[name, stored], most)})
    return {"summary": {"events": counts.events, "skipped": counts.skipped, "rejected": counts.rejected},
            "archive": archive_digest(lines), "rollups": archive_digest(sorted(counts.archive(1, 0, True))),
            "queries": queries}


def archive_digest(lines):
    data = b"".join(line + b"\n" for line in lines)
    return {"lines": len(lines), "sha256": hashlib.sha256(data).hexdigest()}


def generate(path):
    with open(path, "wb") as out:
        subprocess.run([harness.program(GENERATE[0]), *GENERATE[1:]], stdout=out, check=True)
    return path


def stored():
    with open(EXPECTED) as f:
        return json.load(f)


def fewer(answer):
    """Fewer queries for the file that is kept: the busiest three of each counter."""
    seen = collections.defaultdict(list)
    kept = []
    for q in answer["queries"]:
        keys = seen[q["ns"].split(".")[-1]]
        if q["key"] not in keys and len(keys) < 3:
            keys.append(q["key"])
        if q["key"] in keys and q["unit" if "unit" in q else "what"] in ("day", "week", "breakdown"):
            kept.append(dict(q, rows=q["rows"][:FEWER_ROWS]))
    return dict(answer, queries=kept)


def make_expected():
    oracle = harness.load_oracle()
    if oracle is None:
        sys.exit("the oracle is not here: set MILLRACE_SHARED")
    with tempfile.TemporaryDirectory() as d:
        events = generate(os.path.join(d, "events.ndjson"))
        answer = fewer(answers(oracle, [events], FEWER_ROWS))
    command = "python3 tests/support/answers.py   (events: %s; oracle.py with etc/clicks.conf)" % " ".join(GENERATE)
    os.makedirs(os.path.dirname(EXPECTED), exist_ok=True)
    with open(EXPECTED, "w") as f:
        json.dump({"made_by": command, **answer}, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    make_expected()
