"""`make run-cluster` as its user sees it: scripts/run-cluster with few clicks, under addresses of its own."""
# label: surface
# seconds: 60
# parts: 2
# processors: 2
import importlib.machinery
import importlib.util
import os
import random
import re
import shutil
import signal
import subprocess
import types

import harness
from harness import wait_until

SCRIPT = os.path.join(harness.ROOT, "scripts", "run-cluster")
CLICKS = 2000


def load_script():
    loader = importlib.machinery.SourceFileLoader("run_cluster", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class RunCluster(harness.MillraceTest):
    def begin(self, **environment):
        for name in ("nats-server", "haproxy"):
            if not shutil.which(name):
                harness.not_installed(self, name + " is not installed (scripts/setup --cluster)")
        self.net = "127.%d.%d" % (random.randrange(64, 128), random.randrange(256))
        run = subprocess.Popen([SCRIPT], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={
            **os.environ, "BUILD": harness.BUILD, "RUN_DIR": self.dir, "NET": self.net, "ONCE": "1", "CLICKS": str(CLICKS), **environment})
        self.addCleanup(run.stdout.close)
        return run

    def read_to(self, run, text):
        """What the run prints, up to a line with `text`."""
        shown = ""
        for line in run.stdout:
            shown += line
            if text in line:
                return shown
        self.fail(shown)

    def nothing_runs(self):
        def found():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if int(pid) != os.getpid() and self.dir.encode() in harness.read_file("/proc/%s/cmdline" % pid):
                        return pid
                except OSError:
                    continue
            return None
        wait_until(lambda: found() is None, lambda: "process %s to end" % found())

    def test_every_click_is_counted_once(self):
        run = self.begin()
        shown = run.communicate()[0]
        self.assertEqual(run.returncode, 0, shown)
        self.assertRegex(shown, r"Killing nats\d, the leader of the stream, and nats_to_pubsub of cell\d")
        checks = re.findall(r"put (\d+) = published (\d+) = counted (\d+) \+ skipped (\d+); (\d+) keys", shown)
        self.assertEqual(len(checks), 2, shown)
        for put, published, counted, skipped, keys in checks:
            self.assertEqual((int(put), int(published), int(counted) + int(skipped)), (CLICKS, CLICKS, CLICKS))
            self.assertGreater(int(keys), 100)
        self.assertEqual(len(re.findall(r"(?m)^  cell\d .* [1-9]\d* counted", shown)), 2, "the queues are in two cells")
        self.nothing_runs()
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_surplus_event_fails_it(self):
        run = self.begin()
        self.read_to(run, "Killing nats")
        self.assertEqual(harness.request("http://%s.11:8080" % self.net, "POST", "/put", b'{"t":1332633600}').status, 200)
        shown = run.communicate()[0]
        self.assertEqual(run.returncode, 1, shown)
        self.assertRegex(shown, r"in %d lines, but put %d, published" % (CLICKS, CLICKS + 1))
        self.nothing_runs()

    def test_a_stop_leaves_nothing(self):
        """Also of a user without /usr/sbin in PATH."""
        for signum in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            run = self.begin(PATH="/usr/local/bin:/usr/bin:/bin")
            self.read_to(run, "Starting the hosts")
            run.send_signal(signum)
            shown = run.communicate()[0]
            self.assertEqual(run.returncode, 130, shown)
            self.nothing_runs()
            self.assertEqual(os.listdir(self.dir), [])

    def test_more_queues_than_cells_share_the_cells(self):
        """In an own etc/cluster/hosts. Here each start of a queue gives it the next cell."""
        script, started = load_script(), []
        hosts = {"queue.conf": [types.SimpleNamespace(name=self.path("app%d" % i)) for i in range(4)], "cell.conf": [0, 1, 2]}

        def start(starting):
            started.extend(starting)
            self.assertLess(len(started), 100, "the queues to have cells")
        cluster = types.SimpleNamespace(of=hosts.get, start=start, cell_of=lambda host: len(started) % 3)
        script.Cluster.start_queues(cluster)
        self.assertEqual(len(started), 4)

    def test_a_key_with_another_count_is_named(self):
        script = load_script()
        lines = [b'{"t":1332633600,"l":"ann","c":"JP","h":"x"}', b'{"t":1332633600,"l":"bob","c":null}', b'{"_heartbeat_":1}']
        answers = {("feed", "all", "country"): {"JP": 1, "None": 1}, ("feed", "all", "user"): {"ann": 1, "bob": 1},
                   ("feed", "all", "link"): {"x": 1, "None": 1}, ("user", "ann", "country"): {"JP": 1}, ("user", "bob", "country"): {"None": 1}}
        self.assertEqual(script.count(lines), answers)

        def breakdown(**question):
            by = question.pop("by")
            (label, key), = question.items()
            return answers[(label, key, by)]
        cluster = types.SimpleNamespace(put_ids=lambda: [3, 0], published=lambda: [1, 2], counted=lambda: [(1, 0, 0), (1, 1, 0)], breakdown=breakdown)
        script.check(cluster, lines)
        for change in ({"JP": 2}, {"JP": 1, "US": 1}, {}):
            answers[("user", "ann", "country")] = change
            with self.assertRaisesRegex(script.Failure, "user ann, by country: .*expected"):
                script.check(cluster, lines)


if __name__ == "__main__":
    harness.main()
