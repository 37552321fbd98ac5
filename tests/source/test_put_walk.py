"""docs/internals/put.md is the way of a put: each function is in its file, is named by a function before it, and the way is short."""
import os
import re
import unittest

import harness
from harness import ROOT

PAGE = os.path.join(ROOT, "docs", "internals", "put.md")
FUNCTIONS_MAX, FILES_MAX = 30, 12


def source(path):
    return harness.read_file(os.path.join(ROOT, path)).decode()


def walk(page):
    """[(function, file)], in the order of the tables."""
    return re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.M)


def by_pointer(page):
    """The functions that the page lists as called through a pointer."""
    return set(re.findall(r"`(\w+)`", re.search(r"^Called through a pointer.*?:(.*?)\n\n", page, re.M | re.S)[1]))


def body(text, function):
    """The definition of a function, without its name; None: the text has none."""
    found = re.search(r"^\w[^;{}=#/]*?\b%s\([^;{}]*\)\n(\{\n.*?^\})" % function, text, re.M | re.S)
    return found and found[1]


def unnamed(steps, text_of):
    """The functions that no function before them names."""
    before, missing = "", set()
    for function, path in steps:
        if not re.search(r"\b%s\b" % function, before):
            missing.add(function)
        before += body(text_of(path), function)
    return missing


class PutWalkTest(unittest.TestCase):
    def setUp(self):
        self.page = harness.read_file(PAGE).decode()
        self.steps = walk(self.page)

    def test_each_function_is_in_its_file(self):
        self.assertEqual([step for step in self.steps if not body(source(step[1]), step[0])], [])

    def test_each_function_is_named_by_one_before_it(self):
        self.assertEqual(unnamed(self.steps, source), by_pointer(self.page))

    def test_each_function_called_through_a_pointer_is_passed_on(self):
        """Somewhere its name is an argument or a member, not a call."""
        texts = "".join(source(os.path.join(folder, name)) for part in ("lib", "simplequeue")
                        for folder, _, names in os.walk(os.path.join(ROOT, part)) for name in names if name.endswith(".c"))
        self.assertEqual([f for f in by_pointer(self.page) if not re.search(r"[,(=] *%s[,;)]" % f, texts)], [])

    def test_the_way_is_short(self):
        functions = [function for function, _ in self.steps]
        self.assertEqual(len(functions), len(set(functions)))
        self.assertLessEqual(len(functions), FUNCTIONS_MAX)
        self.assertLessEqual(len({path for _, path in self.steps}), FILES_MAX)
        self.assertEqual((functions[0], functions[-1]), ("on_socket", "http_output_flush"))

    def test_a_missing_link_is_found(self):
        texts = {"x.c": "int a(int n)\n{\n    return b(n);\n}\n\nint b(int n)\n{\n    return c(n);\n}\n\nint c(int n)\n{\n    return n;\n}\n"}
        self.assertEqual(unnamed([("a", "x.c"), ("b", "x.c"), ("c", "x.c")], texts.get), {"a"})
        self.assertEqual(unnamed([("a", "x.c"), ("c", "x.c")], texts.get), {"a", "c"})


if __name__ == "__main__":
    unittest.main()
