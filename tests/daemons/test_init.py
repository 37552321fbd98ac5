"""millrace init: each kind of pipeline runs by the commands that it prints, on the usual ports of a copy of this machine."""
# label: surface
# seconds: 15
import os
import subprocess

import guide
import harness
import sandbox

# kind -> the key of the breakdown that the third command prints
KINDS = {"website": "/", "shop": "shoe-42", "api": "2xx", "clicks": "US"}
REVENUE = "true; millrace query breakdown --config=millrace.conf --revenue all --by product --mean 1"


class Init(harness.MillraceTest):
    def init(self, *args, **kw):
        return subprocess.run([harness.program("millrace"), "init", *args], cwd=self.dir, capture_output=True, text=True, timeout=harness.LONG, **kw)

    def commands(self, kind, directory):
        done = self.init(kind, directory)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = [line[2:] for line in done.stdout.splitlines() if line.startswith("  ")]
        self.assertEqual([line.split(" -")[0] for line in found], ["cd " + directory, "millrace up", "curl", "millrace query breakdown"])
        return found

    def test_the_commands_count_an_event(self):
        sandbox.skip_unless_possible(self)
        script = [guide.PRELUDE, *guide.INSTALL]
        for kind in KINDS:
            enter, up, post, query = self.commands(kind, kind)
            script += ["cd /root/work && millrace init %s %s && %s" % (kind, kind, enter),
                       "begin up '%s' && poll 'has /tmp/up.err \"pipeline ready\"'" % up, post,
                       "millrace status --wait --config=millrace.conf > /dev/null", query,
                       *([REVENUE] if kind == "shop" else []), "end $pid_up"]
        results = sandbox.run(self, script, environment={"LC_ALL": "C.UTF-8"}, over=guide.installed())
        for result in results:
            self.assertEqual(result.status, 0, (result.command, result.output[-3000:]))
        self.assertRegex(next(r.output for r in results if r.command == REVENUE), r"(?m)^ +49\.90 € +100\.00 % .* 49\.9000 € of 1 +shoe-42$")
        outputs = [r.output for r in results if r.command.startswith("millrace query")]
        for (kind, key), output in zip(KINDS.items(), outputs, strict=True):
            self.assertRegex(output, r"(?m)^ +1 +100\.00 %% +\S+  %s$" % key, kind)
            self.assertRegex(output, r"(?m)^ +1 +total$", kind)

    def test_the_file_is_the_sample(self):
        self.assertEqual([line.split()[0] for line in self.init("--list").stdout.splitlines()], list(KINDS))
        for kind in KINDS:
            self.init(kind, "deep/" + kind)
            self.assertEqual(harness.read_file(self.path("deep", kind, "millrace.conf")), harness.read_file(os.path.join(harness.ROOT, "etc", kind + ".conf")))
            self.assertEqual(os.listdir(self.path("deep", kind)), ["millrace.conf"])

    def test_a_file_is_never_replaced(self):
        self.write("millrace.conf", "mine")
        done = self.init("shop")
        self.assertEqual((done.returncode, done.stdout), (73, ""))
        self.assertIn("millrace.conf exists", done.stderr)
        self.assertEqual(harness.read_file(self.path("millrace.conf")), b"mine")
        self.assertEqual([name for name in os.listdir(self.dir) if "millrace.conf" in name], ["millrace.conf"])

    def test_wrong_usage(self):
        for args, status, text in ((("websit",), 64, "did you mean website?"), (("nothing",), 64, "clicks on short links"), ((), 64, "usage:"),
                                   (("shop", "a", "b"), 64, "usage:"), (("shop", "--list"), 64, "usage:"), (("shop", "/proc/none"), 73, "/proc/none")):
            done = self.init(*args)
            self.assertEqual(done.returncode, status, args)
            self.assertIn(text, done.stderr, args)


if __name__ == "__main__":
    harness.main()
