"""A throw-away copy of this machine: commands run as root in an overlay of its file system, with processes and a loopback network of
their own. What they install, write or start is gone afterwards."""
import functools
import os
import re
import shlex
import shutil
import subprocess

import harness

SETUP = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
[ -z "$4" ] || cp -a "$4" "$1/over" # one layer must not be within another, as a directory below / would be
mount -t overlay overlay -o "lowerdir=${4:+$1/over:}${2:-/},upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs run
if [ -n "$3" ]; then # the checkout may be below /tmp or on another file system than /
    mkdir -p ".$3" "$1/checkout-upper" "$1/checkout-work"
    mount -t overlay overlay -o "lowerdir=$3,upperdir=$1/checkout-upper,workdir=$1/checkout-work" ".$3"
fi
ip link set lo up
cp "$1.script" tmp/script
cp "$1.files"/* tmp/ 2>/dev/null || true
exec chroot . /bin/bash /tmp/script
"""

MARK = "@@ done "

# Beside the machine's own commands: without a running systemd and without passwords.
SUDO = """#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2; shift 2
exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
"""


@functools.cache
def is_possible(directory):
    probe = ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c",
             "mount -t tmpfs tmpfs %s && cd %s && mkdir u w r && mount -t overlay overlay -o lowerdir=/,upperdir=u,workdir=w r && ip link set lo up"
             % (directory, directory)]
    return subprocess.run(probe, capture_output=True).returncode == 0


def skip_unless_possible(test):
    if not is_possible(os.path.dirname(test.dir)):
        test.skipTest("no right to mount an overlay of the machine")


class Result:
    def __init__(self, command, status, output):
        self.command, self.status, self.output = command, status, output


def run(test, commands, lower=None, environment=None, files=(), over="", timeout=harness.LONG):
    """Runs the lines of shell one after another, each where the one before it left. Returns a Result for each. `files` are copied to /tmp;
    `over` is a directory whose files are there as if they were below /."""
    support = os.path.dirname(os.path.realpath(__file__))
    script = ["export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
              "cat > /usr/local/sbin/sudo <<'END'\n" + SUDO + "END", "chmod 755 /usr/local/sbin/sudo",
              "cat > /usr/local/sbin/systemctl <<'END'\n" + harness.read_file(os.path.join(support, "systemctl.py")).decode() + "END",
              "chmod 755 /usr/local/sbin/systemctl",
              "cd " + shlex.quote(harness.ROOT if lower is None else "/root")]
    script += ["export %s=%s" % (k, shlex.quote(v)) for k, v in (environment or {}).items()]
    for number, command in enumerate(commands):
        script += [command, "status=$?; echo; echo '%s'%d $status" % (MARK, number)]
    directory = os.path.join(test.dir, "sandbox")
    os.makedirs(directory, exist_ok=True)
    os.makedirs(directory + ".files", exist_ok=True)
    for path in files:
        shutil.copy(path, directory + ".files")
    test.write("sandbox.script", "\n".join(script) + "\n")
    argv = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", SETUP, "sh", directory,
            *([lower, ""] if lower else ["", harness.ROOT]), over]
    with open(test.path("sandbox.log"), "wb") as log:
        status = subprocess.run(harness.dies_with_us(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=timeout).returncode
    text = harness.read_file(test.path("sandbox.log")).decode(errors="replace")
    results, rest = [], text
    for number, command in enumerate(commands):
        found = re.search(r"\n%s%d (\d+)\n" % (re.escape(MARK), number), rest)
        if not found:
            raise AssertionError("%r did not end (%d):\n%s" % (command, status, text[-6000:]))
        results.append(Result(command, int(found[1]), rest[:found.start()]))
        rest = rest[found.end():]
    return results
