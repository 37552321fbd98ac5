"""`make run` as its user sees it: scripts/run, which it calls once everything is built."""
# label: surface
import gzip
import os
import pty
import re
import select
import subprocess
import time

import answers
import harness
from harness import wait_until

SCRIPT = os.path.join(harness.ROOT, "scripts", "run")


class MakeRun(harness.MillraceTest):
    def environment(self, **settings):
        return {**os.environ, "BUILD": harness.BUILD, "RUN_DIR": self.dir, "FREE_PORTS": "1", **settings}

    def run_once(self, **settings):
        return subprocess.run([SCRIPT], env=self.environment(ONCE="1", **settings), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=harness.LONG)

    def nothing_left(self):
        """No process has this test's directory on its command line."""
        def found():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/cmdline" % pid, "rb") as f:
                        if self.dir.encode() in f.read() and int(pid) != os.getpid():
                            return pid
                except OSError:
                    continue
            return None
        wait_until(lambda: found() is None, lambda: "process %s to end" % found())

    def test_prints_what_was_counted(self):
        events = answers.generate(self.path("events.ndjson"))
        expected = answers.stored()
        done = self.run_once(EVENTS=events, KEEP="1")
        self.assertEqual(done.returncode, 0, done)
        summary = expected["summary"]
        self.assertIn("Counted: %(events)d events; %(skipped)d heartbeats skipped, %(rejected)d lines rejected" % summary,
                      done.stdout)
        busiest = next(q for q in expected["queries"] if q["what"] == "series" and q["ns"] == "u")
        self.assertIn("Busiest user: %s, " % busiest["key"], done.stdout)
        self.assertNotRegex(done.stdout, r"127\.0\.0\.1:|localhost:", "the daemons have ended")
        for row in next(q for q in expected["queries"] if q["what"] == "breakdown" and q["ns"] == "c.u"
                        and q["key"] == busiest["key"])["rows"][:8]:
            self.assertRegex(done.stdout, r"(?m)^ +%d +[0-9.]+ %% +%s " % (row["n"], re.escape(row["key"])))
        grep = re.search(r"(?m)^  (/\S+/millrace grep --config=.* --ns=u --whole -- \S+)$", done.stdout).group(1)
        found = subprocess.run(grep, shell=True, capture_output=True, text=True).stdout
        self.assertEqual(sum(int(n) for n in re.findall(r":(\d+)", found)), sum(r["n"] for r in busiest["rows"]))
        self.nothing_left()

    def test_a_data_dir_of_its_own_and_a_hashed_key(self):
        """The data stay in the directory that the configuration names, and nothing else does. What the page begins with has the events."""
        with open(os.path.join(harness.ROOT, "etc", "clicks.conf")) as f:
            config = self.write("own.conf", re.sub(r"(?m)^data_dir = .*$", "data_dir = " + self.path("own data"), f.read()))
        runs = self.path("runs")
        os.mkdir(runs)
        events = self.write("e.ndjson", '{"t":1332637200,"l":"a user with a long name, and a comma","c":"JP"}\n' * 3)
        done = self.run_once(EVENTS=events, CONFIG=config, RUN_DIR=runs)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("Counted: 3 events;", done.stdout)
        self.assertIn("\nData:    %s\n" % self.path("own data"), done.stdout)
        self.assertTrue(os.path.isdir(self.path("own data", "archive", "current")))
        self.assertEqual(os.listdir(runs), [])
        grep = re.search(r"(?m)^Archive:\n  (/\S+/millrace grep .*)$", done.stdout).group(1)
        found = subprocess.run(grep, shell=True, capture_output=True, text=True)
        self.assertEqual(found.stdout, "u|a user with a long name, and a comma,c3p1:3\n", found)
        self.nothing_left()

    def test_generated_clicks_are_recent(self):
        """So that the page has events of today in every zone."""
        runs = self.path("runs")
        os.mkdir(runs)
        began = int(time.time())
        done = self.run_once(RUN_DIR=runs)
        self.assertEqual(done.returncode, 0, done)
        start, end = map(int, re.search(r"clickgen --events=50000 --start=(\d+) --end=(\d+)", done.stdout).groups())
        self.assertEqual(end - start, 7 * 86400)
        self.assertTrue(began <= end <= time.time())
        self.assertIn("Counted: ", done.stdout)
        self.assertEqual(os.listdir(runs), [])
        self.assertNotIn("millrace grep", done.stdout, "the data are removed")

    def test_other_events(self):
        packed = self.path("few.ndjson.gz")
        with gzip.open(packed, "wb") as f:
            f.write(b'{"t":1332637200,"l":"bitly","h":"a","u":"http://x.y/","c":"JP","r":"direct"}')
        done = self.run_once(EVENTS=packed)
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("Counted: 1 events;", done.stdout)
        done = self.run_once(EVENTS=self.write("none.ndjson", ""))
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("Counted: 0 events;", done.stdout)
        self.nothing_left()

    def test_what_it_cannot_read(self):
        done = self.run_once(EVENTS=self.path("nowhere"))
        self.assertEqual(done.returncode, 78, done)
        self.assertIn("EVENTS=" + self.path("nowhere"), done.stderr)
        done = self.run_once(EVENTS=self.write("e", ""), CONFIG=self.write("bad.conf", "[input]\ntime t\n"))
        self.assertEqual(done.returncode, 78, done)
        self.assertIn("bad.conf:2", done.stderr)
        self.nothing_left()

    def test_stays_up_in_a_pipe_until_sigterm(self):
        """As with nohup or tee; and the command that it names works."""
        events = self.write("e.ndjson", '{"t":1332637200,"l":"bitly"}\n')
        run = subprocess.Popen([SCRIPT], env=self.environment(EVENTS=events), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               text=True)
        seen = []
        for line in run.stdout:
            seen.append(line)
            if line.startswith("Running until Ctrl-C"):
                break
        shown = "".join(seen)
        self.assertEqual(len(re.findall(r"(?m)^  curl 'http://127\.0\.0\.1:\d+/v1/(series|breakdown)\?", shown)), 3, shown)
        self.assertIn("/sub?stream=clicks&from=earliest", shown)
        if os.path.isdir(os.path.join(harness.BUILD, "share", "millrace", "page")):
            self.assertRegex(seen[-2], r"^Page:    http://127\.0\.0\.1:\d+/\?from=1332637200&to=1332640800$")
        else:
            self.assertRegex(seen[-2], r"^Page:    not built: install Node\.js and npm")
        command = next(line for line in seen if line.startswith("Command: ")).split()[1:]
        self.assertTrue(os.path.isabs(command[0]), command)
        self.assertEqual(subprocess.run([*command, "--wait"], stdout=subprocess.DEVNULL, timeout=harness.LONG).returncode, 0)
        self.may_change_queues(re.search(r"curl '(http://127\.0\.0\.1:\d+)/v1", shown).group(1))
        run.terminate()
        run.wait(harness.PATIENCE)
        run.stdout.close()
        self.nothing_left()

    def may_change_queues(self, api):
        """The page of the sample may change queues without a token. Other pages may not."""
        act = lambda name, **headers: harness.request(api, "POST", "/v1/manage?act=%s&queue=sample" % name, headers=headers).status
        self.assertIn("admin", harness.request(api, "GET", "/v1/access").json()["scopes"])
        self.assertEqual([act("pause", Origin=api), act("empty", Origin=api)], [200, 200])
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
            self.assertEqual(act("empty", **headers), 403, headers)

    def test_stays_up_on_a_terminal_until_ctrl_c(self):
        events = self.write("e.ndjson", '{"t":1332637200,"l":"bitly"}\n')
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(SCRIPT, [SCRIPT], self.environment(EVENTS=events))
        seen = b""

        def stays_up():
            nonlocal seen
            if select.select([terminal], [], [], 0)[0]:
                seen += os.read(terminal, 65536)
            return b"Running until Ctrl-C" in seen
        wait_until(stays_up, lambda: "the run to stay up: %r" % seen)
        api = re.search(rb"API: +curl '(http://[^/]*)", seen).group(1).decode()
        self.assertEqual(harness.request(api, "GET", "/ping").body, b"OK")
        os.write(terminal, b"\x03")

        def ended():
            try:
                if select.select([terminal], [], [], 0)[0]:
                    os.read(terminal, 65536)
            except OSError:
                pass
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        wait_until(ended, "the run to end")
        os.close(terminal)
        self.nothing_left()


if __name__ == "__main__":
    harness.main()
