#!/usr/bin/env python3
"""Makes a program of the example in a header's first comment, the first run of lines indented there, with the address it
names replaced by $URL: header_example.py HEADER PROGRAM.c"""
import os
import re
import sys

INDENT = " *     "


def example(text):
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(INDENT))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith(INDENT))
    return "\n".join(line[len(INDENT):] for line in lines[start:end])


def main():
    header, program = sys.argv[1:]
    with open(header) as f:
        text = re.sub(r'"http://[\d.:]*"', 'getenv("URL")', example(f.read()))
    includes = ("event2/event.h", "stdio.h", "stdlib.h")
    with open(program, "w") as f:
        f.write('#include "http_client.h"\n#include "%s"\n' % os.path.basename(header) +
                "".join("#include <%s>\n" % name for name in includes) + text + "\n")


if __name__ == "__main__":
    main()
