"""Runs a test file: python3 -S start.py FILE [ARGUMENT...]. To load all that a test may use costs the processor more than many a test does.
So the file is read compiled, if it has not changed, and a module of the list is loaded once a test uses it. With -S the interpreter
ignores the packages of the machine, of which some run code at each start."""
import importlib
import importlib.machinery
import os
import sys
import types

SELDOM_USED = ("bz2", "difflib", "ipaddress", "lzma", "pprint", "ssl", "textwrap", "tokenize")  # other modules import them


def load_once_used(name):
    module = sys.modules[name] = types.ModuleType(name)

    def load(attribute):
        if sys.modules[name] is module:
            del sys.modules[name]
        real = importlib.import_module(name)
        vars(module).update(vars(real), __getattr__=lambda missing: getattr(real, missing))
        return getattr(real, attribute)
    module.__getattr__ = load


def main():
    for name in SELDOM_USED:
        load_once_used(name)
    del sys.argv[0]
    path = globals()["__file__"] = os.path.abspath(sys.argv[0])
    sys.path.insert(0, os.path.dirname(path))
    exec(importlib.machinery.SourceFileLoader("__main__", path).get_code("__main__"), globals())


main()
