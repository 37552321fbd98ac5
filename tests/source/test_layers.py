"""The layers of the source: no circle of includes, no circle of calls between files, no include that points up, no two
headers of one name. Calls are read from the symbols of the object files, so a call through a pointer is not seen."""
import collections
import glob
import json
import os
import re
import subprocess
import unittest

import harness
from harness import ROOT

PARTS = ("simplequeue", "pubsub", "readers", "streams", "aggregator", "compactor", "sortdb", "spamfilter", "lists", "metricdb", "scraper", "ruler", "api", "backup", "tools")


def rooms():
    """{room: rooms that it may include}, from the table in ARCHITECTURE.md."""
    text = harness.read_file(os.path.join(ROOT, "ARCHITECTURE.md")).decode()
    found, lib = {}, []
    for room, may_use in re.findall(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|", text, re.M):
        named = set(re.findall("`([^`]+)`", may_use))
        found[room] = named | set(lib if re.search("above|lib,|lib $", may_use) else ())
        lib += [room] if room.startswith("lib/") else []
    return found


def sources(*endings):
    found = []
    for part in ("lib", *PARTS):
        for ending in endings:
            found += glob.glob(os.path.join(ROOT, part, "**", "*" + ending), recursive=True)
    return sorted(os.path.relpath(path, ROOT) for path in found)


def included(path):
    """The files of the tree that a file includes."""
    for name in re.findall(r'^#include "([^"]+)"', harness.read_file(os.path.join(ROOT, path)).decode(), re.M):
        for where in ("lib", ""):
            if os.path.exists(os.path.join(ROOT, where, name)):
                yield os.path.join(where, name)
                break
        else:
            raise AssertionError("%s includes %s by a name that is no path" % (path, name))


def circles(arrows):
    """The strongly connected parts of a graph {node: set of nodes} with more than one node (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in arrows.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            part = set()
            while node not in part:
                part.add(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return found


def calls():
    """{source: set of sources that define what it names}, from the symbols of the product's object files."""
    objects = {}
    for entry in json.loads(harness.read_file(os.path.join(harness.BUILD, "compile_commands.json"))):
        path = os.path.relpath(entry["file"], ROOT)
        target = re.search(r" -o (\S+)", entry["command"])[1]
        if path.split(os.sep)[0] in ("lib", *PARTS) and "/tests" not in "/" + target:
            objects[os.path.join(entry["directory"], target)] = path
    defined, wanted = collections.defaultdict(set), collections.defaultdict(set)
    for line in subprocess.run(["nm", "-A", *objects], capture_output=True, check=True).stdout.decode().splitlines():
        target, entry = line.rsplit(":", 1)
        kind, symbol = entry.split()[-2:]
        if kind == "U":
            wanted[objects[target]].add(symbol)
        elif kind in "TDBR":
            defined[symbol].add(objects[target])
    return {path: {next(iter(defined[s])) for s in symbols if len(defined[s]) == 1}
            for path, symbols in wanted.items()}


class LayersTest(unittest.TestCase):
    def test_no_two_headers_of_one_name(self):
        names = collections.Counter(os.path.basename(path) for path in sources(".h"))
        self.assertEqual([name for name, n in names.items() if n > 1], [])

    def test_no_circle_of_includes(self):
        self.assertEqual(circles({path: set(included(path)) for path in sources(".c", ".cc", ".h")}), [])

    def test_the_table_of_rooms_names_the_includes(self):
        """Each include between two rooms is allowed, and each room that a row names is used."""
        table, used, wrong = rooms(), collections.defaultdict(set), []
        for path in sources(".c", ".cc", ".h"):
            room = os.path.dirname(path)
            for other in included(path):
                used[room].add(os.path.dirname(other))
                if os.path.dirname(other) not in {room} | table[room]:
                    wrong.append((path, other))
        self.assertEqual(wrong, [])
        self.assertEqual({room: named for room, may_use in table.items()
                          if (named := {r for r in may_use - used[room] if not r.startswith("lib/")})}, {})

    def test_no_circle_of_calls(self):
        self.assertEqual(circles(calls()), [])

    def test_the_files_of_the_queue_call_only_files_above_them(self):
        """The order of the table in docs/internals/simplequeue.md, and that it has every file of the folder."""
        page = harness.read_file(os.path.join(ROOT, "docs", "internals", "simplequeue.md")).decode()
        rows = re.findall(r"^\| (`\w+\.c`.*?) \|", page, re.M)
        row_of = {"simplequeue/queue/" + name: i for i, row in enumerate(rows) for name in re.findall(r"\w+\.c", row)}
        arrows = {path: called for path, called in calls().items() if os.path.dirname(path) == "simplequeue/queue"}
        self.assertEqual(set(row_of), {path for path in sources(".c") if os.path.dirname(path) == "simplequeue/queue"})
        self.assertEqual([(path, other) for path, called in arrows.items() for other in called & set(row_of)
                          if path != other and row_of[other] > row_of[path]], [])

    def test_circles_are_found(self):
        self.assertEqual(circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}), [["b", "c"]])


if __name__ == "__main__":
    unittest.main()
