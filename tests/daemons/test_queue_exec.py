"""queue_exec: any command for what is on a queue, also one that fails, hangs, floods or is killed."""
import os
import re
import signal

import harness
from harness import MillraceTest, wait_until


def is_gone(pid):
    """Also when it is a zombie that nobody reaps here."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().split()[2] == "Z"
    except OSError:
        return True


class Exec(MillraceTest):
    def setUp(self):
        super().setUp()
        self.queue = self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never")
        self.out = self.path("out")

    def exec(self, *args, ready=True):
        start = self.start if ready else self.daemon
        return start("queue_exec", "--address=127.0.0.1", "--port=0", "--queue-url=" + self.queue.url,
                     "--backoff-min=10ms", "--backoff-max=200ms", *args, port=False)

    def script(self, text):
        path = self.write("script", "#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def put(self, n, start=0):
        self.queue.post("/mput", b"\n".join(b"%d" % i for i in range(start, start + n)))

    def numbers(self, queue="default"):
        return self.queue.stats()["queues"][queue]

    def wait_empty(self):
        wait_until(lambda: self.numbers()["depth"] == 0, lambda: "all to be acknowledged: %s" % self.numbers())

    def read(self, name="out"):
        try:
            with open(self.path(name), "rb") as f:
                return f.read()
        except OSError:
            return b""


class Flow(Exec):
    def test_lines_on_standard_input(self):
        self.put(1000)
        self.queue.post("/put", b"two\nlines")
        self.exec("--batch=100", "--command=cat >> %s; echo run >> %s" % (self.out, self.path("runs")))
        self.wait_empty()
        self.assertEqual(self.read(), b"".join(b"%d\n" % i for i in range(1000)))
        self.assertEqual(self.read("runs").count(b"run"), 10)
        self.assertEqual([d["reason"] for d in self.queue.get("/dead").json()["buried"]], ["contains a line feed"])

    def test_framed_any_bytes(self):
        self.queue.post("/put", b"two\nlines \x00")
        self.queue.post("/put", b"\n")
        self.exec("--format=framed", "--command=cat >> " + self.out)
        self.wait_empty()
        self.assertEqual(self.read(), b"1 1 11\ntwo\nlines \x00\n2 1 1\n\n\n")

    def test_a_program_with_arguments(self):
        self.put(3)
        self.exec("--", "tee", "-a", self.out)
        self.wait_empty()
        self.assertEqual(self.read(), b"0\n1\n2\n")

    def test_a_command_that_does_not_read_its_input(self):
        self.queue.post("/mput", b"\n".join([b"x" * 1000] * 1000))
        self.exec("--items=1000", "--batch=1000", "--command=true")
        self.wait_empty()

    def test_help_says_that_the_rate_bounds_a_batch(self):
        for name in ("queue_exec", "queue_to_http"):
            self.assertIn("if `rate` is set, at most rate / 20 + 1", " ".join(self.run_program(name, "--help").stdout.decode().split()))

    def test_the_configuration_says_where_the_queue_is(self):
        """What is in force is shown, and where it is from."""
        config = self.write("c", "[simplequeue]\nport = 18080\n")
        for args, row in (([], rb"http://127\.0\.0\.1:8080 +; default"),
                          (["--config=" + config], rb"http://127\.0\.0\.1:18080 +; \[simplequeue\]"),
                          (["--queue-url=http://a:1"], rb"http://a:1 +; --queue-url")):
            done = self.run_program("queue_exec", "--command=true", "--check-config", *args)
            self.assertRegex(done.stdout, rb"(?m)^queue_url = " + row + b"$")

    def test_bad_settings(self):
        for args in ([], ["--command=true", "--", "true"], ["--command=true", "--queue=a/b"],
                     ["--command=true", "--batch=1000", "--items=10"]):
            done = self.run_program("queue_exec", *args)
            self.assertEqual(done.returncode, 78, (args, done))
            self.assertTrue(done.stderr)


class Faults(Exec):
    def test_a_failing_command_gets_the_same_again_less_and_less_often(self):
        fail = self.write("fail", "")
        script = self.script("cat > %s; date +%%s%%N >> %s; [ ! -e %s ] && cat %s >> %s" % (
            self.path("in"), self.path("tries"), fail, self.path("in"), self.out))
        self.put(50)
        daemon = self.exec("--", script, ready=False).wait_listening()
        wait_until(lambda: self.read("tries").count(b"\n") >= 6, "some tries")
        times = [int(t) / 1e9 for t in self.read("tries").split()]
        self.assertGreater(times[5] - times[4], 0.05)
        self.assertIn(b"exit status 1", daemon.get("/health").body)
        os.unlink(fail)
        self.wait_empty()
        self.assertEqual(self.read(), b"".join(b"%d\n" % i for i in range(50)))
        wait_until(lambda: daemon.get("/health").status == 200, "it to be ready")

    def test_one_that_hangs_is_killed_with_all_that_it_started(self):
        hang = self.write("hang", "")
        script = self.script("trap '' TERM\nif [ -e %s ]; then sleep 1000 & echo $! >> %s; wait; sleep 1000; fi\ncat > %s" % (
            hang, self.path("pids"), self.out))
        self.put(5)
        daemon = self.exec("--timeout=1s", "--", script, ready=False).wait_listening()
        wait_until(lambda: self.read("pids").count(b"\n") >= 2, "it to be tried again")
        first = int(self.read("pids").split()[0])
        wait_until(lambda: is_gone(first), "what it started to be killed")
        self.assertIn(b"timeout: killed by signal 9", daemon.get("/health").body)
        os.unlink(hang)
        self.wait_empty()
        self.assertEqual(self.read(), b"0\n1\n2\n3\n4\n")

    def test_leases_last_as_long_as_the_command(self):
        harness.slower_and_slower(1.5, self.a_command_longer_than_its_lease)

    def a_command_longer_than_its_lease(self, lease):
        queue, out, enough = "lease%d" % (lease * 1000), self.path("out%g" % lease), self.path("enough%g" % lease)
        script = self.script("cat >> %s; until [ -e %s ]; do sleep 0.05; done" % (out, enough))
        self.queue.post("/mput?queue=" + queue, b"0\n1\n2")
        before = self.touches()
        d = self.exec("--queue=" + queue, "--lease=%dms" % (lease * 1000), "--", script)
        try:
            wait_until(lambda: self.touches() >= before + 4, "more than a lease, extended each third of it",
                       harness.PATIENCE + 2 * lease)
            self.write(enough, "")
            wait_until(lambda: self.numbers(queue)["depth"] == 0, "all to be acknowledged")
            d.stop()
        finally:
            d.kill9()  # whatever the next attempt sees is its own
        self.assertEqual(self.read(out), b"0\n1\n2\n", "nothing was given out again meanwhile")
        self.assertEqual(self.numbers(queue)["expired"], 0)

    def touches(self):
        told = re.search(r'requests_total\{endpoint="/touch",status="200"\} (\d+)', self.queue.get("/metrics").text)
        return int(told.group(1)) if told else 0

    def log_of(self, commands, output_max):
        """What such a run leaves in the log, and how many bytes it says it left out."""
        self.put(1)
        script = self.script("cat > /dev/null; %s; exit 3" % commands)
        daemon = self.exec("--output-max=" + output_max, "--backoff-max=30s", "--backoff-min=30s", "--", script, ready=False)
        daemon.wait_listening()
        wait_until(lambda: b"exit status 3: last" in daemon.get("/health").body, "its end")
        return daemon.log, daemon.stats()["output_not_logged_bytes_total"]

    def test_a_flood_is_read_and_not_logged(self):
        log, hidden = self.log_of("echo first; yes flood | head -c 19999998; echo last >&2", "1K")
        self.assertIn("line=first", log)
        self.assertLess(len(log), 40000)
        self.assertGreater(hidden, 15000000)

    def test_line_feeds_are_bytes_of_the_output(self):
        log, hidden = self.log_of("yes y | head -n 1000; echo; echo; printf last", "100")
        self.assertEqual((log.count("line=y"), hidden), (50, 2006 - 100))

    def test_one_that_is_killed_is_run_again(self):
        script = self.script("echo $$ >> %s; [ $(wc -l < %s) -gt 1 ] || sleep 1000; cat >> %s" % (
            self.path("pids"), self.path("pids"), self.out))
        self.put(3)
        self.exec("--", script, ready=False)
        pid = wait_until(lambda: self.read("pids").split(), "it to run")[0]
        os.kill(int(pid), 9)
        self.wait_empty()
        self.assertEqual(self.read(), b"0\n1\n2\n")

    def test_poison_by_exit_status_65(self):
        script = self.script("cat > %s; if grep -q bad %s; then echo the bad one; exit 65; fi; cat %s >> %s" % (
            self.path("in"), self.path("in"), self.path("in"), self.out))
        self.queue.post("/mput", b"a\nb\nbad\nc")
        self.exec("--", script)
        self.wait_empty()
        self.assertEqual(self.read(), b"a\nb\nc\n")
        dead = self.queue.get("/dead").json()["buried"]
        self.assertEqual([(d["message"], d["reason"]) for d in dead], [("bad", "exit status 65: the bad one")])

    def test_burials_are_logged_and_a_flood_of_them_as_a_number(self):
        self.queue.post("/mput?separator=%00", b"\0".join(b"two\nlines" for _ in range(150)))
        daemon = self.exec("--command=true")
        self.wait_empty()
        daemon.stop()
        self.assertIn("warn queue_exec buried queue=default id=1 reason=\"contains a line feed\"\n", daemon.log)
        self.assertGreaterEqual(daemon.log.count(" buried queue=default id="), 100)
        self.assertIn("more messages buried queue=default messages=50\n", daemon.log)

    def test_the_command_does_not_outlive_a_killed_reader(self):
        self.put(1)
        daemon = self.exec("--", self.script("echo $$ >> %s; exec sleep 1000" % self.path("pids")), ready=False)
        pid = int(wait_until(lambda: self.read("pids").split(), "it to run")[0])
        daemon.kill9()
        wait_until(lambda: is_gone(pid), "it to be killed")

    def test_stop_waits_for_the_run(self):
        self.put(1)
        script = self.script("echo run >> %s; until [ -e %s ]; do sleep 0.05; done; cat >> %s" % (
            self.path("runs"), self.path("enough"), self.out))
        daemon = self.exec("--drain-timeout=1h", "--", script, ready=False)
        wait_until(lambda: self.read("runs"), "it to run")
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: " stopping" in daemon.log, "it to be told")
        self.assertTrue(daemon.alive())
        self.write("enough", "")
        self.assertEqual(daemon.process.wait(harness.PATIENCE), 0, daemon.log)
        self.assertEqual(self.read(), b"0\n")
        self.assertEqual(self.numbers()["depth"], 0)

    def test_a_stop_gives_back_what_was_not_begun(self):
        """At once, while it waits for the run, whose messages stay leased."""
        self.put(10)
        script = self.script("echo >> %s; until [ -e %s ]; do sleep 0.05; done; cat >> %s"
                             % (self.path("begun"), self.path("enough"), self.out))
        daemon = self.exec("--batch=2", "--", script, ready=False)
        wait_until(lambda: self.read("begun"), "it to run")
        daemon.process.send_signal(signal.SIGTERM)
        wait_until(lambda: self.numbers()["ready"] == 8, self.numbers)
        self.assertEqual(self.numbers()["leased"], 2)
        self.write("enough", "")
        self.assertEqual(daemon.process.wait(harness.PATIENCE), 0, daemon.log)
        self.assertEqual(self.read(), b"0\n1\n")
        self.assertEqual(self.queue.get("/mget?items=10").body.split(), [b"%d" % i for i in range(2, 10)])

    def test_a_run_that_outlasts_the_stop_is_killed_and_given_back(self):
        self.put(10)
        script = self.script("echo $$ >> %s; exec sleep 1000" % self.path("pids"))
        daemon = self.exec("--batch=2", "--drain-timeout=100ms", "--", script, ready=False)
        pid = int(wait_until(lambda: self.read("pids").split(), "it to run")[0])
        daemon.stop(expect=75)
        self.assertTrue(is_gone(pid))
        self.assertIn("cut short", daemon.log)
        self.assertEqual((self.numbers()["ready"], self.numbers()["leased"]), (10, 0))
        self.assertEqual(self.queue.get("/mget?items=10").body.split(), [b"%d" % i for i in range(10)])


if __name__ == "__main__":
    harness.main()
