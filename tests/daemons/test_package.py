"""`make package`: in a copy of this machine the package is installed, upgraded while events flow, and removed.
MILLRACE_CLEAN=1: also in a new Debian that has nothing but what the package depends on, and lintian finds no error."""
# label: surface
# seconds: 30
# full: MILLRACE_CLEAN=1
import os
import re
import shutil
import subprocess
import tempfile

import harness
import sandbox

EVENT = """'{"when":'$(date +%s)',"url":"http://example.org/a","country":"JP"}'"""
PUT = "curl -s -o /dev/null -w '%{http_code}\\n' -d " + EVENT + " http://127.0.0.1:8080/put"


class Package(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        if self._testMethodName == "test_in_a_clean_chroot" and not os.environ.get("MILLRACE_CLEAN"):
            self.skipTest("a long round: MILLRACE_CLEAN=1")
        if harness.SANITIZED:
            self.skipTest("a package of a sanitized build is of no use")
        for name in ("cpack", "dpkg-shlibdeps", "dpkg-deb"):
            if not shutil.which(name):
                self.skipTest("no " + name)
        done = subprocess.run(["cpack", "--config", os.path.join(harness.BUILD, "CPackConfig.cmake"), "-B", self.path("package"),
                               "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"],
                              capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done)
        name, = [f for f in os.listdir(self.path("package")) if f.endswith(".deb")]
        self.package = self.path("package", name)

    def newer(self):
        """The same package with a higher version."""
        tree, path = self.path("tree"), self.path("package", "newer.deb")
        subprocess.run(["dpkg-deb", "-R", self.package, tree], check=True)
        control = os.path.join(tree, "DEBIAN", "control")
        with open(control) as f:
            text = re.sub(r"(?m)^Version: .*$", "Version: 99.0", f.read())
        with open(control, "w") as f:
            f.write(text)
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Z", "none", "-b", tree, path], check=True, capture_output=True)
        return path

    def test_the_package(self):
        with self.subTest("lintian"):
            if os.environ.get("MILLRACE_CLEAN") and shutil.which("lintian"):
                done = subprocess.run(["lintian", "--fail-on", "error", self.package], capture_output=True, text=True, timeout=harness.LONG)
                self.assertEqual(done.returncode, 0, done.stdout)
        with self.subTest("description"):
            text = subprocess.run(["dpkg-deb", "-f", self.package, "Description"], capture_output=True, text=True, check=True).stdout
            self.assertRegex(text, r"^.+\n( \S.*\n)+$", "a line that begins with two spaces is shown as it stands")
        sandbox.skip_unless_possible(self)
        self.walk(None)

    def test_in_a_clean_chroot(self):
        if not shutil.which("debootstrap"):
            harness.not_installed(self, "debootstrap is not installed (scripts/setup --test)")
        sandbox.skip_unless_possible(self)
        depends = subprocess.run(["dpkg-deb", "-f", self.package, "Depends"], capture_output=True, text=True, check=True).stdout
        names = [re.match(r"[a-z0-9.+-]+", one.strip())[0] for one in depends.split(",")]
        mirror = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True).stdout.split()
        root = tempfile.mkdtemp(prefix="millrace-clean-", dir="/var/tmp")  # not where devices are forbidden
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        done = subprocess.run(["debootstrap", "--variant=minbase", "--include=" + ",".join(sorted({*names, "curl", "python3"})),
                               "bookworm", root, *mirror[:1]], capture_output=True, text=True, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        self.assertFalse(os.path.exists(os.path.join(root, "usr/bin/gcc")))
        self.walk(root)

    def walk(self, lower):
        os.rename(self.package, self.path("package", "first.deb"))
        self.package = self.path("package", "first.deb")
        steps = {
            "a running systemd": "rm -f /usr/sbin/policy-rc.d; mkdir -p /run/systemd/system; userdel millrace 2>/dev/null; true",
            # The triggers are of other packages: man-db would read every manual page of the machine.
            "install": "dpkg --no-triggers --force-unsafe-io -i /tmp/first.deb",
            "ready": "systemctl is-active millrace && millrace status --wait",
            "owner": "stat -c %U:%a /var/lib/millrace",
            "config": "echo '# mine' >> /etc/millrace/millrace.conf",
            "put": PUT,
            "flow": "(while [ ! -e /tmp/stop ]; do " + PUT + "; sleep 0.05; done > /tmp/codes 2>&1) & sleep 0.5",
            "pids before": "grep -o '\"pid\":[0-9]*' /var/lib/millrace/run.json",
            "upgrade": "dpkg --no-triggers --force-unsafe-io -i /tmp/newer.deb",
            "settled": "sleep 1; millrace status --wait",
            "pids after": "grep -o '\"pid\":[0-9]*' /var/lib/millrace/run.json",
            "stop": "touch /tmp/stop; wait; sort /tmp/codes | uniq -c",
            "counted": "millrace status --wait && millrace query series --site example.org --period 24h --format json",
            "mine": "grep -c '# mine' /etc/millrace/millrace.conf",
            "remove": "dpkg --no-triggers --force-unsafe-io -r millrace",
            "gone": "ls /usr/bin/millrace",
            "running": "systemctl is-active millrace",
            "data": "ls /var/lib/millrace",
            "purge": "dpkg --no-triggers --force-unsafe-io --purge millrace; ls -d /etc/millrace/millrace.conf; ls /var/lib/millrace",
        }
        done = dict(zip(steps, sandbox.run(self, list(steps.values()), lower=lower, files=[self.package, self.newer()])))
        for step in steps:
            self.assertEqual(done[step].status == 0, step not in ("gone", "running"), (step, done[step].status, done[step].output))
        self.assertEqual(done["owner"].output.strip(), "millrace:750")
        counts = done["stop"].output.split()
        codes = dict(zip(counts[1::2], map(int, counts[0::2])))
        self.assertEqual(codes.keys(), {"200"}, "no put was refused while the service changed to the new version")
        self.assertFalse(set(done["pids before"].output.split()[1:]) & set(done["pids after"].output.split()[1:]), "every daemon is new")
        self.assertIn('"total":%d,' % (codes["200"] + 1), done["counted"].output)
        for step in ("data", "purge"):
            self.assertIn("pubsub", done[step].output)
        self.assertIn("cannot access '/etc/millrace/millrace.conf'", done["purge"].output)


if __name__ == "__main__":
    harness.main()
