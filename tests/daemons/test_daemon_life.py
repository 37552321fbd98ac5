"""What every daemon's life has in common, seen on the smallest one: settings, sockets, readiness, drain, status."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from unittest import mock

import harness
from harness import wait_until


def run_with(text):
    """The processes that have it in one of their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                found += [int(pid)] if text.encode() in f.read() else []
        except OSError:
            pass
    return found


def answers(daemon):
    try:
        return daemon.get("/ping").status == 200
    except harness.UNREACHABLE:
        return False


class DaemonLife(harness.MillraceTest):
    def run_to_end(self, *args, env=None):
        done = self.run_program("echo_daemon", *args, env=dict(os.environ, **(env or {})))
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_a_connection_from_before_the_stop_is_served(self):
        """Its client cannot know of the stop. On a machine that stood still for two seconds it is closed, and tried again."""
        def served():
            d = self.start("echo_daemon")
            place = d.url.split("//")[1].split(":")
            early = socket.create_connection((place[0], int(place[1])), timeout=harness.PATIENCE)
            self.addCleanup(early.close)
            wait_until(lambda: "http_connections 2" in d.get("/metrics").text, "both connections")
            began = time.monotonic()
            d.process.terminate()

            def is_refused():
                try:
                    socket.create_connection((place[0], int(place[1])), timeout=harness.PATIENCE).close()
                    return False
                except ConnectionResetError:  # it was in the backlog of the socket that was closed
                    return False
                except ConnectionRefusedError:
                    return True
            wait_until(is_refused, "it to accept no more")
            early.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            got = b"".join(iter(lambda: early.recv(4096), b""))
            self.assertEqual(d.process.wait(harness.PATIENCE), 0)
            self.assertTrue(got.endswith(b"OK") or time.monotonic() - began > 2, got)
            return got.endswith(b"OK")
        wait_until(served, "a machine that does not stand still")

    def refused(self, status, *args, env=None):
        got, _, err = self.run_to_end(*args, env=env)
        self.assertEqual(got, status, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        return err

    def hold(self, d):
        """A request that is in a handler until it is let go; returns a function that waits for its reply."""
        got = []
        thread = threading.Thread(target=lambda: got.append(d.get("/held")), daemon=True)
        thread.start()
        wait_until(lambda: d.get("/metrics").text.count("connections 2"), "the held request to be there")
        return lambda: (thread.join(harness.PATIENCE), got[0])[1]

    def test_help_and_version(self):
        status, out, _ = self.run_to_end("--help")
        self.assertEqual(status, 0)
        self.assertIn("--drain-timeout=TIME", out)
        self.assertIn("1..10", out)
        status, out, _ = self.run_to_end("--version")
        self.assertRegex(out, r"simplequeue \(millrace\) \d+\.\d+")

    def test_standard_descriptors_that_are_closed_are_held(self):
        """None of what it opens becomes its standard error, which log lines are written to."""
        program = harness.program("echo_daemon")
        for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
            os.chmod(self.write("closing", '#!/bin/sh\nexec %s "$@" %s\n' % (program, closed)), 0o755)
            port = self.keep_port()
            with mock.patch.object(harness, "program", lambda _: self.path("closing")):
                d = self.daemon("echo_daemon", "--address=127.0.0.1", "--port=" + port, port=False)
            d.url = "http://127.0.0.1:" + port
            wait_until(lambda: answers(d), "it to answer")
            for fd in filter(lambda fd: str(fd) in closed[::5], range(3)):
                self.assertEqual(os.readlink("/proc/%d/fd/%d" % (d.pid, fd)), "/dev/null", closed)
            d.stop()

    def test_settings_and_where_they_come_from(self):
        config = self.write("a.conf", "[simplequeue]\npace = 2\nlog_level = warn\nmax-body = 1M\n")
        args = ["--config", config, "--check-config", "--log_level=error"]
        status, out, err = self.run_to_end(*args, env={"MILLRACE_SIMPLEQUEUE_PACE": "3"})
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"(?m)^pace = 3 +; \$MILLRACE_SIMPLEQUEUE_PACE$")
        self.assertRegex(out, r"(?m)^log_level = error +; --log_level$")
        self.assertRegex(out, r"(?m)^max_body = 1M +; %s:4$" % config)
        self.assertRegex(out, r"(?m)^drain_timeout = 10s +; default$")

    def test_a_wrong_file_that_is_only_checked(self):
        config = self.write("a.conf", "[simplequeue]\nport = x\n")
        for args, said in ((["--check-config"], "wrong configuration"), ([], "cannot start")):
            status, out, err = self.run_to_end("--config", config, *args)
            self.assertEqual((status, out), (78, ""))
            self.assertRegex(err, r"error simplequeue %s error=.*a\.conf:2: " % said)

    def test_a_budget_that_no_request_fits_is_refused(self):
        """Bodies of max_body are taken from one client with the least that is allowed: no other is needed to be told 503."""
        self.assertIn("--max-buffered: too small for one request", self.refused(78, "--max-buffered=1M"))
        self.assertIn("--max-buffered: too small", self.refused(78, "--max-buffered=256M", "--max-body=128M"))
        self.refused(78, "--max-buffered=2303K", "--max-body=1M")
        q = self.start("simplequeue", "--max-buffered=2304K", "--max-body=1M")
        for size in (600000, 1 << 20, (1 << 20) - 1):
            self.assertEqual(q.post("/put", b"x" * size).status, 200, size)
            self.assertEqual(q.post("/mput", iter([b"x" * 7777] * (size // 7777))).status, 200, size)
        self.assertEqual(q.post("/put", b"x" * ((1 << 20) + 1)).status, 413)

    def test_the_default_budget_rises_with_the_largest_body(self):
        for body, shown in (("127M", "256M"), ("128M", str((256 << 20) + (256 << 10))), ("1G", str((2 << 30) + (256 << 10)))):
            status, out, err = self.run_to_end("--max-body=" + body, "--check-config")
            self.assertEqual(status, 0, err)
            self.assertRegex(out, r"(?m)^max_buffered = %s +; default$" % shown)
        status, out, err = self.run_to_end("--max-body=128M", "--max-buffered=1G", "--check-config")
        self.assertRegex(out, r"(?m)^max_buffered = 1G +; --max-buffered$", err)
        q = self.start("simplequeue", "--max-body=128M", "--max-message=1M")
        self.assertEqual(q.post("/mput", b"\n".join([b"x" * 1000000] * 60)).status, 200)

    def test_wrong_settings_name_their_source(self):
        self.assertIn("--pace", self.refused(64, "--pace=11"))
        self.assertIn("1..10", self.refused(64, "--pace", "11"))
        self.assertIn("did you mean --pace", self.refused(64, "--pcae=2"))
        self.assertIn("needs a value", self.refused(64, "--pace"))
        self.assertIn("unexpected argument", self.refused(64, "stray"))
        config = self.write("a.conf", "[pubsub]\nno_matter = 1\n[simplequeue]\n\npcae = 2\n")
        self.assertIn("a.conf:5", self.refused(78, "--config", config))
        config = self.write("a.conf", "[simplequeue]\npace = much\n")
        self.assertIn("a.conf:2", self.refused(78, "--config", config))
        self.assertIn("$MILLRACE_SIMPLEQUEUE_PCAE", self.refused(78, env={"MILLRACE_SIMPLEQUEUE_PCAE": "2"}))
        self.assertIn("nowhere.conf", self.refused(78, "--config=nowhere.conf"))

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            err = self.refused(78, "--port=%d" % port)
        self.assertIn("port %d" % port, err)
        self.assertIn("in use", err)
        self.assertRegex(err, r"process %d \([^)]+\) listens there: choose another --port" % os.getpid())

    def test_unix_socket(self):
        d = harness.Daemon(self, "echo_daemon", "--address=unix:%s" % self.path("s"), port=False).wait_ready()
        self.assertEqual(d.post("/echo", b"a\0b").body, b"a\0b")
        d.kill9()
        d = harness.Daemon(self, "echo_daemon", "--address=unix:%s" % self.path("s"), port=False).wait_ready()
        err = self.refused(78, "--address=unix:%s" % self.path("s"))
        self.assertIn(self.path("s") + ": Address already in use; another process listens there: choose another path", err)
        self.assertEqual(d.get("/ping").body, b"OK")
        d.stop()

    def test_a_file_that_is_no_socket_is_in_the_way(self):
        os.symlink("nowhere", self.path("link"))
        for path in (self.write("file", "kept"), self.path(), self.path("link")):
            err = self.refused(78, "--address=unix:" + path)
            self.assertIn("cannot listen on %s: the path names a file that is not a socket: choose another path" % path, err)
            self.assertNotIn("in use", err)
        with open(self.path("file")) as f:
            self.assertEqual(f.read(), "kept")

    def test_socket_from_a_service_manager(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            script = 'exec 3<&%d; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$0"' % s.fileno()
            with open(self.path("log"), "wb") as log:
                p = subprocess.Popen(["/bin/bash", "-c", script, harness.program("echo_daemon")],
                                     pass_fds=[s.fileno()], stderr=log)
        try:
            url = "http://127.0.0.1:%d" % port
            wait_until(lambda: harness.request(url, "GET", "/health").status == 200, "the passed socket to be served")
        finally:
            p.terminate()
            self.assertEqual(p.wait(harness.PATIENCE), 0)

    def test_tells_when_it_is_ready(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(self.path("notify"))
            s.settimeout(harness.PATIENCE)
            d = self.start("echo_daemon", env={"NOTIFY_SOCKET": self.path("notify")})
            told = [s.recv(1000)]
            while b"READY=1" not in told[-1]:
                told.append(s.recv(1000))
            d.stop()
            while b"STOPPING=1" not in told[-1]:
                told.append(s.recv(1000))

    def test_sigterm_finishes_what_is_in_flight(self):
        d = self.start("echo_daemon")
        reply = self.hold(d)
        idle = http.client.HTTPConnection("127.0.0.1", int(d.url.rsplit(":", 1)[1]))
        idle.request("GET", "/ping")
        idle.getresponse().read()
        d.stop(expect=0)
        self.assertEqual(reply().body, b"held until now\n")
        idle.close()

    def test_a_second_signal_or_the_timeout_ends_the_drain(self):
        d = self.start("echo_daemon", "--stubborn")
        d.process.terminate()
        wait_until(lambda: " stopping" in d.log, "the drain to begin")
        d.process.send_signal(signal.SIGTERM)
        self.assertEqual(d.process.wait(harness.PATIENCE), 75)
        self.assertIn("ended with unfinished work in flight", d.log)
        d = self.start("echo_daemon", "--stubborn", "--drain-timeout=50ms")
        d.stop(expect=75)

    def test_it_fails_with_its_status(self):
        d = self.start("echo_daemon")
        try:
            d.post("/fail")
        except harness.UNREACHABLE:
            pass
        self.assertEqual(d.process.wait(harness.PATIENCE), 75)

    def test_a_directory_has_one_owner(self):
        d = self.start("echo_daemon", "--data_dir", self.path("deep", "er"))
        err = self.refused(78, "--data_dir", self.path("deep", "er"), "--port=0")
        self.assertIn(str(d.pid), err)
        d.kill9()
        self.start("echo_daemon", "--data_dir", self.path("deep", "er")).stop()
        self.write("file", "")
        self.assertIn(self.path("file", "x"), self.refused(78, "--data_dir", self.path("file", "x"), "--port=0"))

    def test_a_supervised_start_waits_for_the_directory(self):
        """What is left of the life before may hold it a moment longer: that must not look like a wrong configuration."""
        d = self.start("echo_daemon", "--data_dir", self.path("d"))
        second = self.daemon("echo_daemon", "--data_dir", self.path("d"), env={"NOTIFY_SOCKET": self.path("nobody")})
        d.stop()
        second.wait_ready().stop()

    def test_background(self):
        """What was started ends when the daemon is ready, or with its status when it never will be."""
        args = ("echo_daemon", "--daemon", "--data_dir", self.path("d"))
        d = self.daemon(*args)
        self.assertEqual(d.process.wait(harness.PATIENCE), 0, d.log)
        with open(self.path("d", "lock")) as lock:
            pid = int(lock.readline())
        self.addCleanup(lambda: "stopped" in d.log or os.kill(pid, signal.SIGKILL))
        self.assertNotEqual(pid, d.pid)
        self.assertIn(" info simplequeue ready", d.log)
        d.url = "http://127.0.0.1:" + re.search(r"listening.* port=(\d+)", d.log)[1]
        self.assertEqual(d.post("/echo", b"x").body, b"x")
        second = self.daemon(*args)
        self.assertEqual(second.process.wait(harness.PATIENCE), 78, second.log)
        self.assertIn(str(pid), second.log)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: "stopped" in d.log, "the daemon to stop")

    def test_a_reader_whose_source_is_away_goes_into_the_background(self):
        """What was started ends, and what it left behind goes on trying."""
        away = "unix:" + self.path("away")
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in run_with(away)])
        for name, args in (
                ("queue_to_pubsub", ["--queue-url=" + away, "--pubsub-url=" + away]),
                ("ps_to_file", ["--pubsub_url=" + away, "--filename_format=" + self.path("out", "%Y")])):
            d = self.daemon(name, "--daemon", *args, port=False)
            self.assertEqual(d.process.wait(harness.PATIENCE), 0, d.log)
            left = run_with(away)
            self.assertEqual(len(left), 1, d.log)
            os.kill(left[0], signal.SIGTERM)
            wait_until(lambda: not run_with(away), lambda: d.log)

    def test_token(self):
        token = self.write("token", "s3cret\n")
        os.chmod(token, 0o644)
        self.assertIn("chmod", self.refused(78, "--auth-token-file", token))
        os.chmod(token, 0o600)
        d = harness.Daemon(self, "echo_daemon", "--auth-token-file", token).wait_ready()
        self.assertEqual(d.get("/ping").status, 200)
        self.assertEqual(d.post("/echo", b"x").status, 401)
        good = {"Authorization": "Bearer s3cret"}
        self.assertEqual(d.post("/echo", b"x", headers=good).body, b"x")
        self.assertEqual(d.post("/drop", b"x", headers=good).status, 200)
        self.assertEqual(d.post("/echo", b"x", headers={"Authorization": "Bearer s3creT"}).status, 401)
        open_one = self.start("echo_daemon")
        self.assertEqual(open_one.post("/drop").status, 403)
        self.assertEqual(self.start("echo_daemon", "--allow-exit").post("/drop").status, 200)
        self.write("token", "")
        self.refused(78, "--auth-token-file", token)

    def test_numbers(self):
        d = self.start("echo_daemon")
        for _ in range(3):
            d.post("/echo", b"x")
        metrics = d.get("/metrics")
        self.assertTrue(metrics.header("Content-Type").startswith("text/plain; version=0.0.4"))
        text = metrics.text
        self.assertRegex(text, r'(?m)^millrace_simplequeue_request_seconds_count\{endpoint="/echo"\} 3$')
        self.assertRegex(text, r'(?m)^millrace_simplequeue_request_seconds_bucket\{endpoint="/echo",le="\+Inf"\} 3$')
        self.assertRegex(text, r'(?m)^millrace_simplequeue_build_info\{version="[0-9.]+"\} 1$')
        self.assertEqual(text.count("# TYPE millrace_simplequeue_request_seconds histogram"), 1)
        self.assertGreater(d.stats()["resident_memory_bytes"], 1e6)
        self.assertIn("uptime_seconds: ", d.get("/stats").text)

    def test_json_logs(self):
        d = self.start("echo_daemon", "--log-format=json")
        d.stop()
        lines = [json.loads(line) for line in d.log.splitlines()]
        self.assertEqual(lines[-1]["message"], "stopped")
        self.assertEqual({line["part"] for line in lines}, {"simplequeue"})


if __name__ == "__main__":
    harness.main()
