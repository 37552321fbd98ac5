"""run_test and scripts/test: nothing of a test outlives it, however it ends, and a test that fails is run once more, alone."""
import os
import signal
import subprocess
import sys
import unittest

import harness
from harness import MillraceTest, wait_until

RUN_TEST = harness.program("run_test")
# Begins a process in a session of its own, which ignores SIGTERM, and leaves files that only root could delete.
LEAVES = "mkdir -m 0 $TMPDIR/closed; : > $MILLRACE_OTHER_DIR/file; setsid sh -c 'trap : TERM; echo $$ > %s; while :; do sleep 1; done' & " \
         "until [ -s %s ]; do sleep 0.02; done; echo $TMPDIR $MILLRACE_OTHER_DIR; "


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class RunTest(MillraceTest):
    def begin(self, then, seconds="600", **more):
        script = LEAVES % (self.path("pid"), self.path("pid")) + then
        return subprocess.Popen([RUN_TEST, seconds, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "MILLRACE_TEST_DIR": self.dir, "MILLRACE_TEST_STRETCH": ""}, **more)

    def left(self):
        return int(harness.read_file(self.path("pid")))

    def assert_nothing_is_left(self, said):
        for directory in said.splitlines()[0].split():
            self.assertFalse(os.path.exists(directory), directory)
        self.assertFalse(is_alive(self.left()))

    def test_the_status_is_the_tests(self):
        for then, status in (("exit 0", 0), ("exit 3", 3), ("exit 77", 77), ("kill -9 $$", 137)):
            with self.subTest(then):
                p = self.begin(then)
                said, _ = p.communicate(timeout=harness.PATIENCE)
                self.assertEqual(p.returncode, status)
                self.assert_nothing_is_left(said)
                os.unlink(self.path("pid"))

    def test_the_time_is_limited(self):
        p = self.begin("sleep 600", seconds="1")
        said, why = p.communicate(timeout=harness.PATIENCE)
        self.assertEqual(p.returncode, 124)
        self.assertIn("stopped after 1 s", why)
        self.assert_nothing_is_left(said)

    def test_it_may_say_where_it_is(self):
        p = self.begin("trap 'sleep 2; echo last words; exit 3' ABRT; while :; do sleep 0.1; done", seconds="1")
        said, why = p.communicate(timeout=harness.PATIENCE)
        self.assertEqual(p.returncode, 124, why)
        self.assertIn("last words", said)
        self.assert_nothing_is_left(said)

    def test_it_is_stopped(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            p = self.begin("sleep 600")
            said = p.stdout.readline()
            p.send_signal(number)
            p.communicate(timeout=harness.PATIENCE)
            self.assertEqual(p.returncode, 128 + number)
            self.assert_nothing_is_left(said)
            os.unlink(self.path("pid"))

    def test_the_process_above_it_is_killed(self):
        """As ctest is, by a stop of make."""
        env = {**os.environ, "MILLRACE_TEST_DIR": self.dir, "MILLRACE_TEST_STRETCH": ""}
        above = subprocess.Popen([sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", RUN_TEST, "600", "sh", "-c",
                                  LEAVES % (self.path("pid"), self.path("pid")) + "sleep 600"], stdout=subprocess.PIPE, text=True, env=env)
        said = above.stdout.readline()
        above.kill()
        above.communicate(timeout=harness.PATIENCE)  # until the last process that could write is gone
        for directory in said.split():
            wait_until(lambda: not os.path.exists(directory), directory)
        self.assertFalse(is_alive(self.left()))


FLAKY = """
cmake_minimum_required(VERSION 3.25)
project(flaky NONE)
enable_testing()
add_test(NAME good COMMAND true)
foreach(i RANGE 1 3)
  add_test(NAME once_${i} COMMAND sh -c "test -e $ENV{PLACE}/${i} || { : > $ENV{PLACE}/${i}; exit 1; }")
endforeach()
add_test(NAME bad COMMAND false)
"""


class Alone(MillraceTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", FLAKY)
        subprocess.run(["cmake", "-S", self.dir, "-B", self.path("build")], env={**os.environ, "PLACE": self.dir}, check=True,
                       stdout=subprocess.DEVNULL)

    def run_script(self, ci, *args):
        done = subprocess.run([os.path.join(harness.ROOT, "scripts", "test"), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env={**os.environ, "BUILD": self.path("build"), "TESTS": "4", "CI": ci})
        alone = [line.split()[3].rstrip(",") for line in done.stdout.splitlines() if line.startswith("passed only alone: ")]
        return done.returncode, alone, done.stdout

    def test_what_passes_alone_is_named(self):
        status, alone, said = self.run_script("", "-E", "bad")
        self.assertEqual((status, alone), (0, ["once_1", "once_2", "once_3"]), said)
        self.assertRegex(said.splitlines()[-1], "^100% tests passed, 0 tests failed out of 3")
        self.assertEqual(self.run_script("", "-E", "bad")[:2], (0, []))

    def test_few_may_in_ci(self):
        self.assertEqual(self.run_script("true", "-E", "bad|once_3")[:2], (0, ["once_1", "once_2"]))

    def test_many_may_not_in_ci(self):
        status, alone, said = self.run_script("true", "-E", "bad")
        self.assertEqual((status, len(alone)), (1, 3), said)
        self.assertIn("3 tests passed only alone", said)

    def test_what_fails_twice_fails(self):
        status, alone, said = self.run_script("", "-R", "bad|good|once_1")
        self.assertNotEqual(status, 0, said)
        self.assertEqual(alone, ["once_1"], said)


if __name__ == "__main__":
    harness.main()
