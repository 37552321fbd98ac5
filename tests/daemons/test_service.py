"""docs/guide/service.md is true: its commands, executed in order as they stand in a copy of this machine; and what `make install` puts where."""
# label: surface
import glob
import os
import re
import shutil
import subprocess

import harness
import sandbox
from harness import ROOT

EXPOSURE_MAX = 25  # tenths


def commands():
    """(command, the lines that it prints) of the indented blocks."""
    found, text = [], harness.read_file(os.path.join(ROOT, "docs/guide/service.md")).decode()
    for block in re.findall(r"(?m)(?:^    .*\n)+", text):
        lines = [line[4:] for line in block.splitlines()]
        if lines[0].startswith(("#", "[", "15 ", "make package")):
            continue
        for line in lines:
            if lines[0].startswith("$ ") and not line.startswith("$ "):
                found[-1][1].append(line)
            else:
                found.append((line.removeprefix("$ "), []))
    return found


class Service(harness.MillraceTest):
    def install(self, prefix, **environment):
        done = subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", prefix], capture_output=True, text=True,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done)

    def test_its_commands_in_order(self):
        sandbox.skip_unless_possible(self)
        if not os.path.exists(os.path.join(ROOT, "web", "node_modules", ".package-lock.json")):
            harness.not_installed(self, "`make` has not installed the packages of web/, and the sandbox has no network for them: run `make`")
        guide = commands()
        self.assertGreater(len(guide), 10)
        more = ["ls -ld /var/lib/millrace /etc/millrace/millrace.conf", "cat /var/lib/millrace/archive/current/manifest.json",
                "ls millrace-data", "sudo -u millrace millrace compact", "sudo systemctl reload millrace", "sudo systemctl stop millrace"]
        results = sandbox.run(self, [command for command, _ in guide] + more,
                              environment={"PRESET": os.path.basename(harness.BUILD), "LC_ALL": "C.UTF-8"})
        for (command, expected), result in zip(guide, results):
            self.assertEqual(result.status, 0, (command, result.output))
            for line in expected:
                self.assertRegex(result.output, ".*".join(map(re.escape, line.split("…"))), command)
        ls, manifest, stray, *rest = results[len(guide):]
        self.assertRegex(ls.output, r"drwxr-x---.* millrace millrace .* /var/lib/millrace\n")
        self.assertRegex(manifest.output, r'"generation": *"?1\b', "the compaction has published into the pipeline's archive")
        self.assertNotEqual(stray.status, 0, "nothing is left in the working directory")
        for result in rest:
            self.assertEqual(result.status, 0, (result.command, result.output))

    def test_every_path_follows_the_prefix(self):
        prefix = self.path("prefix")
        self.install(prefix)
        made = [path for path in glob.glob(prefix + "/**", recursive=True) if os.path.isfile(path) and re.search(r"/(etc|lib/sys\w+\S*|lib/tmpfiles\.d)/", path)]
        self.assertEqual({os.path.relpath(path, prefix) for path in made},
                         {"etc/millrace/millrace.conf", "etc/logrotate.d/millrace", "lib/sysusers.d/millrace.conf", "lib/tmpfiles.d/millrace.conf",
                          *("lib/systemd/system/" + unit for unit in ("millrace.service", "millrace-compact.service", "millrace-compact.timer"))})
        for path in made:
            text = harness.read_file(path).decode()
            self.assertNotRegex(text, r"@[A-Z_]+@", path)
            for named in re.findall(r"/[\w./-]*millrace[\w./-]*", re.sub(r"(?m)^#.*", "", text)):
                self.assertTrue(named.startswith(prefix) or "://" in text, (path, named))
        shown = subprocess.run([prefix + "/bin/millrace", "up", "--check-config"], capture_output=True, text=True, cwd=self.dir)
        self.assertIn("data_dir = %s/var/lib/millrace" % prefix, shown.stdout, shown.stderr)
        self.assertIn("%s/etc/millrace/millrace.conf:" % prefix, shown.stdout)

    def test_a_daemon_reads_the_installed_file_unless_another_is_named(self):
        prefix = self.path("prefix")
        self.install(prefix)
        config = prefix + "/etc/millrace/millrace.conf"
        with open(config, "a") as f:
            f.write("[simplequeue]\nmax_depth = 77\n")
        other = self.write("other.conf", "[simplequeue]\nmax_depth = 66\n")
        queue = prefix + "/libexec/millrace/simplequeue"

        def depth(*args, **env):
            shown = subprocess.run([queue, "--check-config", *args], capture_output=True, text=True, env={**os.environ, **env})
            return re.search(r"max_depth = (\d+)", shown.stdout)[1]
        self.assertEqual(depth(), "77")
        self.assertEqual(depth("--config", other), "66")
        self.assertEqual(depth(MILLRACE_CONFIG=other), "66")
        self.assertEqual(depth(MILLRACE_CONFIG=""), "0")
        before = harness.read_file(config)
        self.install(prefix)
        self.assertEqual(harness.read_file(config), before, "a second installation keeps the configuration")

    def test_a_compaction_that_finds_no_pipeline_touches_nothing(self):
        done = self.run_program("millrace", "compact")
        self.assertEqual((done.returncode, os.listdir(self.dir)), (78, []), done)
        self.assertIn(b"no pipeline has run in millrace-data; start it with `millrace up`, or name another: ", done.stderr)
        with open(self.path("p.conf"), "w") as f:
            f.write("[millrace]\ndata_dir = elsewhere\n[input]\ntime = t\n[total all]\nkey = \"all\"\n")
        done = self.run_program("millrace", "compact", "--config", self.path("p.conf"))
        self.assertEqual((done.returncode, os.listdir(self.dir)), (78, ["p.conf"]), done)
        self.assertIn(b"no pipeline has run in elsewhere; start it with `millrace up`, or name another: ", done.stderr)

    def test_systemd_accepts_the_units_and_finds_them_safe(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        self.install(self.path("prefix"))
        units = self.path("prefix/lib/systemd/system")
        for name in os.listdir(units):
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", os.path.join(units, name)], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            if not name.endswith(".service"):
                continue
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=%d" % EXPOSURE_MAX, os.path.join(units, name)],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout[-400:] + done.stderr)

    def test_prefixes_of_a_system_have_their_files_in_etc_and_var(self):
        for prefix in ("/usr", "/usr/local"):
            root = self.path("root" + prefix.replace("/", "-"))
            self.install(prefix, DESTDIR=root)
            unit = harness.read_file(root + prefix + "/lib/systemd/system/millrace.service").decode()
            self.assertIn("ExecStart=%s/bin/millrace up\n" % prefix, unit)
            self.assertIn("ReadWritePaths=/var/lib/millrace /var/log/millrace\n", unit)
            self.assertIn("data_dir = /var/lib/millrace\n", harness.read_file(root + "/etc/millrace/millrace.conf").decode())


if __name__ == "__main__":
    harness.main()
