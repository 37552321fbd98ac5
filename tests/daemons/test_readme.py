"""README.md is true: its commands, executed in order as they stand, print what it says."""
# label: surface
import json
import os
import re
import select
import subprocess
import time

import harness
from harness import ROOT, wait_until

PORTS = {"8080": "simplequeue", "8081": "pubsub", "8088": "api"}


def sections():
    """title -> the lines of its indented blocks; an empty line ends a block."""
    found, title = {}, ""
    for line in harness.read_file(os.path.join(ROOT, "README.md")).decode().splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("    ") or not line:
            found.setdefault(title, []).append(line[4:])
    return found


def pattern_of(expected):
    """What the lines match: … stands for any text, and a continued line of JSON begins with a space."""
    text = re.sub(r"\n ", "" if expected[0].startswith("{") else "\n ", "\n".join(expected)).replace(", … ", "…").replace(" … ", "…").replace(" …", "…")
    return re.compile(".*".join(re.escape(part) for part in text.split("…")), re.S)


class Readme(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        os.environ["LC_ALL"] = "C.UTF-8"
        self.addCleanup(os.environ.pop, "LC_ALL")
        self.environment = dict(os.environ, PATH=os.path.dirname(harness.program("millrace")) + ":" + os.environ["PATH"])
        self.running = []
        self.addCleanup(self.end)

    def end(self):
        for process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=harness.LONG)

    def shell(self, command):
        """Runs a command with the pipeline's ports in the place of the usual ones."""
        run = self.run_file()
        for port, daemon in PORTS.items():
            if daemon in run:
                command = command.replace("http://127.0.0.1:" + port, run[daemon]["url"])
        process = subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.dir, env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.running.append(process)
        return process

    def run_file(self):
        try:
            with open(self.path("millrace-data", "run.json")) as f:
                return json.load(f)["daemons"]
        except (OSError, ValueError):
            return {}

    def prints(self, command, expected):
        """The command prints this, perhaps not the first time; one that goes on is ended."""
        pattern, seen = pattern_of(expected), ""

        def printed():
            nonlocal seen
            process, seen, end = self.shell(command), "", time.monotonic() + 3
            while time.monotonic() < end and not pattern.search(seen):
                if select.select([process.stdout], [], [], 0.1)[0]:
                    piece = os.read(process.stdout.fileno(), 65536).decode()
                    seen += piece
                    if not piece:
                        break
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=harness.LONG)
            return pattern.search(seen)
        wait_until(printed, lambda: "%s to print %s, not %s" % (command, pattern.pattern, seen))

    def test_its_commands_in_order(self):
        own, ask = sections()["Count your own events"], sections()["Ask"]
        commands = [line for line in own if line.startswith(("millrace ", "curl "))]
        config = [line for line in own if line not in commands]
        self.write("views.conf", "\n".join(config) + "\n")
        self.write("events.ndjson", '{"when":%d,"url":"http://example.net/","country":"JP"}\n' % time.time())
        self.assertEqual(len(commands), 2, commands)
        self.shell(commands[0] + " --free-ports")
        wait_until(lambda: len(self.run_file()) == 9 and all(d["state"] == "ready" for d in self.run_file().values()), self.run_file)
        posted = self.shell(commands[1])
        posted.communicate(timeout=harness.LONG)
        self.assertEqual(posted.returncode, 0)
        done = 0
        while ask:
            line = ask.pop(0)
            expected = []
            while line.startswith("$ ") and ask and ask[0]:
                expected.append(ask.pop(0))
            if expected:
                self.prints(line[2:], expected)
                done += 1
            elif line.startswith("millrace put --follow"):
                self.shell(line)
                self.prints("curl 'http://127.0.0.1:8088/v1/series?site=example.net&period=24h'", ['"total":1,'])
                done += 1
            elif line.startswith("millrace tail"):
                self.prints(line, ["example.org/a…example.net/"])
                done += 1
            elif line:
                process = self.shell(line)
                output = process.communicate(timeout=harness.LONG)
                self.assertEqual(process.returncode, 0, output)
                done += 1
        self.assertEqual(done, 10)
        self.assertTrue(os.path.isdir(self.path("views-backup")))

    def test_make_run(self):
        """The settings of its table are those of the Makefile and of scripts/run; test_make_run.py runs the script."""
        makefile = harness.read_file(os.path.join(ROOT, "Makefile")).decode()
        script = harness.read_file(os.path.join(ROOT, "scripts", "run")).decode()
        named = re.findall(r"`make ([\w-]+)((?: [A-Z_]+=\S+)*)`", harness.read_file(os.path.join(ROOT, "README.md")).decode())
        self.assertGreater(len(named), 5)
        for target, settings in named:
            self.assertRegex(makefile, r"(?m)^%s:" % target)
            for setting in re.findall(r"([A-Z_]+)=", settings):
                self.assertIn(setting, script if target == "run" else makefile)


if __name__ == "__main__":
    harness.main()
