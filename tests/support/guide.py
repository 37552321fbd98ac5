"""The commands of a guide's indented blocks, executed in order as they stand in a copy of this machine (sandbox.py). Lines that follow a
command with `$ `, and lines of JSON, are what it prints."""
import atexit
import functools
import os
import re
import shutil
import subprocess
import tempfile

import harness
import sandbox

PRELUDE = r"""
curl() { if [[ " $*" =~ " -"[a-zA-Z]*f ]]; then command curl "$@"; else command curl -sS --fail-with-body "$@"; fi; } # an error reply is a failure
export -f curl
exec {never}<> <(:) # never has anything to read
# nap [SECONDS]: sleeps without a process of its own.
nap() { read -rt "${1-0.05}" -u "$never" _ || true; }
# has FILE TEXT: like grep -qF, without a process of its own.
has() { local text; IFS= read -rd '' text < "$1"; [[ $text == *"$2"* ]]; }
# end PID: ends what was begun, also if it has no session of its own yet; the command's status.
end() { until kill -TERM -- "-$1" 2>/dev/null || ! kill -0 "$1" 2>/dev/null; do nap 0.01; done; wait "$1"; }
# begin NAME COMMAND: starts it in a session of its own. Nothing is left in the files of what had the name before.
begin() { : > "/tmp/$1.out"; : > "/tmp/$1.err"; setsid bash -c "$2" > "/tmp/$1.out" 2> "/tmp/$1.err" < /dev/null & eval "pid_$1=$!"; }
# poll COMMAND: until it succeeds, at most for 120 s.
poll() { local until=$((SECONDS + 120)) pause=0.05; while ((SECONDS < until)); do eval "$1" > /dev/null 2>&1 && return; nap $pause; pause=0.1; done; echo "not within 120 s: $1"; return 1; }
# serve COMMAND: a daemon that runs from when it is ready until the next serve.
serve() { [ -z "${pid_serve-}" ] || end "$pid_serve"; begin serve "$1"; poll 'has /tmp/serve.err " ready" || ! kill -0 $pid_serve'; kill -0 $pid_serve || { cat /tmp/serve.err; return 1; }; }
# until_ CONDITION COMMAND: a command that goes on; once CONDITION holds, it is ended with SIGTERM. One look decides, also about a command that
# has ended by itself before it.
until_() {
    local alive status met=1 until=$((SECONDS + 120)) pause=0.05
    begin follow "$2"
    while ((SECONDS < until)); do
        kill -0 $pid_follow 2>/dev/null; alive=$?
        eval "$1" > /tmp/met 2>/dev/null && met=0 && break
        [ $alive = 0 ] || break
        nap $pause
        pause=0.1
    done
    kill -0 $pid_follow 2>/dev/null; alive=$?; end $pid_follow; status=$?
    cat /tmp/met /tmp/follow.out; [ $met = 0 ] || { cat /tmp/follow.err; return 1; }
    [ $alive != 0 ] || [ $status = 143 ] || [ $status = 0 ]
}
"""

# On top of installed().
INSTALL = ["mkdir -p /root/work && cd /root/work && cp -r %s/etc . && hash -r" % harness.ROOT]


@functools.cache
def installed():
    """A directory with the files of `cmake --install`, for all guides of a test; it is gone with the test's other files."""
    tree = tempfile.mkdtemp(prefix="installed-", dir=os.environ.get("MILLRACE_TEST_DIR"))
    os.chmod(tree, 0o755)
    done = subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", "/usr/local"], env={**os.environ, "DESTDIR": tree},
                          capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    atexit.register(shutil.rmtree, tree, ignore_errors=True)
    return tree


def pipeline(config="etc/clicks.conf", events=2000):
    """The pipeline of a configuration as an installed one, at the usual ports, with generated events in it and in clicks.ndjson."""
    made = [*INSTALL, "mkdir -p /etc/millrace /var/lib/millrace",
            "sed 's,^data_dir.*,data_dir = /var/lib/millrace,' %s > clicks.conf && cp clicks.conf /etc/millrace/millrace.conf" % config,
            # Some guides change a mark, and then the relay refuses to go on.
            "up() { begin up 'millrace up --config=clicks.conf'; poll 'has /tmp/up.err \"pipeline ready\" || has /tmp/up.err \"pipeline runs without its failed\" || ! kill -0 $pid_up'; kill -0 $pid_up; }", "up"]
    if events:
        made += ["millrace gen --events=%d --start=$(($(date +%%s) - 90000)) --span=1d > clicks.ndjson" % events, "millrace put --quiet clicks.ndjson", "millrace status --wait > /dev/null"]
    return made


class Block:
    def __init__(self, line, lines):
        self.line, self.lines = line, lines


def blocks(*path):
    """The runs of indented lines. Lists indent by two or seven; a fence is not indented. What a `$ ` command prints may have empty lines."""
    found, current, fenced = [], None, False
    for number, line in enumerate(harness.read_file(os.path.join(harness.ROOT, *path)).decode().splitlines(), 1):
        fenced ^= line.startswith("```")
        if line.startswith("    ") and not fenced:
            if current is None:
                current = Block(number, [])
                found.append(current)
            current.lines += [""] * (number - current.line - len(current.lines)) + [line[4:]]
        elif line or not current or not current.lines[0].startswith("$ "):
            current = None
    return found


class Step:
    def __init__(self, place, command):
        self.place, self.command, self.expected = place, command, []


def steps(path, skipped):
    """Every command, with its printed lines. `skipped` has the first characters of blocks that are not commands; each must be in the
    guide."""
    found, used = [], set()
    for block in blocks(*path):
        name = next((s for s in skipped if block.lines[0].startswith(s)), None)
        if name is not None:
            used.add(name)
            continue
        dollars = any(line.startswith("$ ") for line in block.lines)
        for at, line in enumerate(block.lines):
            if line.startswith("{") or (found and line.startswith(" ") and block.lines[0].startswith("{")):
                found[-1].expected.append(re.sub(r"\s+# .*", "", line))
            elif found and found[-1].command.endswith("\\") or (at and line.startswith(" ") and not dollars):
                found[-1].command += "\n" + line
            elif dollars and not line.startswith(("$ ", "millrace ", "curl ")) and any(l.startswith("$ ") for l in block.lines[:at]):
                found[-1].expected.append(line)
            elif line.startswith(("while ", "touch clicks.log")) or (at and found[-1].command.startswith("touch clicks.log")):
                if at:
                    found[-1].command += "\n" + line
                else:
                    found.append(Step("%s:%d" % (path[-1], block.line + at), line))
            else:
                found.append(Step("%s:%d" % (path[-1], block.line + at), re.sub(r"\s{2,}# .*", "", line.removeprefix("$ "))))
    missing = set(skipped) - used
    if missing:
        raise AssertionError("%s has no block that begins with %s" % (path[-1], missing))
    return found


def pattern(lines, vary=()):
    """… and ... stand for any text, and so do the texts of `vary`; the first digits of an id for any id."""
    text = "\n".join(lines) if not lines[0].startswith("{") else "".join(line.strip() if at else line for at, line in enumerate(lines))
    for one in vary:
        text = text.replace(one, "…")
    parts = re.split(r"\s*(?:\.\.\.+|…)\s*", re.sub(r"\b[0-9a-f]{4,8}\.\.\.", "...", text))
    return ".*".join(re.escape(part) for part in parts)


def numbers_apart(text):
    """The same pattern for other numbers: of an example whose answer depends on the time."""
    text = re.sub(r"(true|false)(?=\\?[},])", "(true|false)", re.sub(r"(\\ )+", r"\\s+", re.sub(r"[█-▏]+(\\\s)*", ".*", text)))
    return re.sub(r'"\d{4}(\\?-\d\d){2}"', '"[^"]*"', re.sub(r"(?<![\w\"-])\d+(\\\.\d+)?(?![\w-])", r"([\\d.]+|null)", text))


def walk(test, path, given, treat=(), skipped=(), loose=False, vary=(), files=()):
    """Runs `given`, then each command of the guide. `treat` is a list of (the command's beginning, how): `how` is a template in which {} is the
    command, quoted, and {raw} the command itself; each is used in order, once, or for every command that begins so if it is repeated."""
    sandbox.skip_unless_possible(test)
    todo = [(None, line) for line in [PRELUDE, *given]]
    treat, unused = list(treat), {start for start, _ in treat}
    for step in steps(path, skipped):
        how = next((i for i, (start, _) in enumerate(treat) if step.command.startswith(start)), None)
        shell = step.command
        if how is not None:
            start, template = treat[how]
            unused.discard(start)
            if sum(s == start for s, _ in treat) > 1:
                treat.pop(how)
            shell = template.replace("{}", "'" + step.command.replace("'", "'\\''") + "'").replace("{raw}", step.command)
        todo.append((step, shell))
    test.assertEqual(unused, set(), "no command of %s begins so" % path[-1])
    results = sandbox.run(test, [shell for _, shell in todo], environment={"LC_ALL": "C.UTF-8"}, files=files, over=installed())
    ran = 0
    for (step, shell), result in zip(todo, results):
        place = step.place if step else "given"
        test.assertEqual(result.status, 0, "%s: %s\n%s" % (place, shell, result.output[-3000:]))
        if step:
            ran += 1
            if step.expected:
                wanted = pattern(step.expected, vary)
                test.assertRegex(re.sub(r"\r", "", result.output), re.compile(numbers_apart(wanted) if loose else wanted, re.S), place)
    return ran
