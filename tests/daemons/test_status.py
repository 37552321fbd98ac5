"""millrace status: states in words, what is wrong, what to do, and exit statuses for monitoring."""
# seconds: 21
import fcntl
import glob
import http.server
import json
import os
import pty
import pwd
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import harness
from clocks import Clocks
from harness import USERS_BY_COUNTRY, wait_until
from small_disk import SmallDisk


class StatusTest(harness.MillraceTest):
    def up(self, *args, data=None, counters=USERS_BY_COUNTRY, **kw):
        self.data = data or self.path("data")
        config = self.write("p.conf", harness.pipeline_config(self.data, counters, **kw))
        return harness.Pipeline(self, config, self.data, *args)

    def status(self, *args):
        return self.run_program("millrace", "status", "--data-dir", self.data, *args)

    def look(self, *args):
        """The exit status and the answer."""
        done = self.status("--sample=0", "--json", *args)
        return done.returncode, json.loads(done.stdout)

    def look_until(self, holds):
        """The answer of the first look of which holds(exit status, answer) is true: between two looks a state may change, and a
        daemon that is slow may not answer one of them in time."""
        return wait_until(lambda: (lambda status, look: holds(status, look) and look)(*self.look()), self.text)

    def state(self, name):
        return self.look()[1]["daemons"][name]["state"]

    def text(self):
        return self.status("--sample=0").stdout.decode()

    def test_fine(self):
        pipeline = self.up().wait_ready()
        look = self.look_until(lambda status, look: status == 0)
        self.assertEqual((look["level"], look["problems"], look["days_until_full"]), ("fine", [], None))
        self.assertEqual({d["state"] for d in look["daemons"].values()} - {"off"}, {"ready"})
        self.assertEqual(look["daemons"]["compactor"]["state"], "off", "every = 0")
        pipeline.interrupt()
        done = self.status()
        self.assertEqual(done.returncode, 2)
        self.assertIn("the pipeline of %s is stopped\n -> start it: millrace up --config=%s\n" % (self.data, self.path("p.conf")),
                      done.stdout.decode())

    def test_a_stopped_service_is_started_by_systemctl(self):
        self.up().wait_ready().interrupt()
        path = os.path.join(self.data, "run.json")
        with open(path) as f:
            run = json.load(f)
        with open(path, "w") as f:
            json.dump({**run, "service": "millrace"}, f)
        status, look = self.look()
        self.assertEqual((status, [p["remedy"] for p in look["problems"]]), (2, ["start it: systemctl start millrace"]))

    def test_a_killed_up_is_not_running(self):
        """Also before its parent has seen its end, and after another process got its number."""
        pipeline = self.up("--run=simplequeue,pubsub").wait_ready()
        last = os.stat(os.path.join(self.data, "run.json")).st_mtime
        os.kill(pipeline.pid, signal.SIGKILL)
        os.waitid(os.P_PID, pipeline.pid, os.WEXITED | os.WNOWAIT)
        last_word = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last))
        said = "the pipeline of %s is stopped: millrace up is not running (run.json was last written at %s)" % (self.data, last_word)
        self.assertEqual([p["problem"] for p in self.look()[1]["problems"]], [said])
        pipeline.process.wait(harness.PATIENCE)
        run = pipeline.run_file()
        self.write("data/run.json", json.dumps({**run, "pid": os.getpid()}))
        os.utime(os.path.join(self.data, "run.json"), (last, last))
        self.assertEqual([p["problem"] for p in self.look()[1]["problems"]], [said])

    def test_a_wait_ends_with_a_start_that_failed(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            self.assertEqual(self.up(pubsub={"port": taken.getsockname()[1]}).process.wait(harness.PATIENCE), 78)
        done = self.run_program("millrace", "status", "--config", self.path("p.conf"), "--wait", "--timeout=1000s")
        self.assertEqual(done.returncode, 2, done)
        self.assertRegex(done.stderr.decode(), r"`millrace up` has ended: .*pubsub.*\n")

    def test_up_holds_its_directory_before_it_has_written_run_json(self):
        """The test plays a `millrace up` that has just begun, first after an earlier run, then in a fresh directory."""
        self.up("--run=simplequeue,pubsub").wait_ready().interrupt()
        with open(os.path.join(self.data, "lock"), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("4711\n")
            lock.truncate()
            lock.flush()
            for args in (("--data-dir", self.data), ("--config", self.path("p.conf"))):
                done = self.run_program("millrace", "status", "--sample=0", "--json", *args)
                look = json.loads(done.stdout)
                self.assertEqual([(p["problem"], p["level"]) for p in look["problems"]], [("`millrace up` (process 4711) is starting", "needs attention")])
                self.assertEqual((done.returncode, look["ready"], {d["state"] for d in look["daemons"].values()} - {"off"}), (1, False, {"starting"}))
            os.remove(os.path.join(self.data, "run.json"))
            done = self.run_program("millrace", "status", "--sample=0", "--config", self.path("p.conf"))
            self.assertIn("`millrace up` (process 4711) is starting\n", done.stdout.decode())
            self.assertNotIn("not started", done.stdout.decode())

    def test_a_pipeline_that_was_never_started_is_one_problem(self):
        ports = {name: {"port": self.keep_port()} for name in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api")}
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY, **ports))
        done = self.run_program("millrace", "status", "--sample=0", "--config", config)
        text = done.stdout.decode()
        self.assertEqual((done.returncode, text.count("!!")), (2, 1), text)
        self.assertIn("the pipeline of %s is not started: no daemon answers, and the directory does not exist\n -> start it: millrace up" % self.path("data"), text)
        self.assertIn("; if it was started elsewhere, run this command in the directory of `millrace up`", text)
        os.mkdir(self.path("data"))
        text = self.run_program("millrace", "status", "--sample=0", "--config", config).stdout.decode()
        self.assertIn("the pipeline of %s is not started: no daemon answers\n -> start it: millrace up" % self.path("data"), text)

    def test_a_relative_directory_that_is_elsewhere(self):
        """The daemons answer, but their files are not below the working directory."""
        ports = {name: {"port": self.keep_port()} for name in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api")}
        pipeline = self.up(**ports).wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        config = self.write("q.conf", harness.pipeline_config("elsewhere", USERS_BY_COUNTRY, **ports))
        problem = "the directory %s does not exist, so disk, archive, restarts and puts are not known" % self.path("elsewhere")
        done = self.run_program("millrace", "status", "--sample=0", "--json", "--config", config)
        look = json.loads(done.stdout)
        self.assertEqual(([p["problem"] for p in look["problems"]], look["level"], done.returncode), ([problem], "needs attention", 1))
        self.assertIn("--data-dir=DIR", look["problems"][0]["remedy"])
        self.assertEqual({d["restarts"] for d in look["daemons"].values()}, {None})
        done = self.run_program("millrace", "doctor", "--fast", "--config", config)
        self.assertIn("fail  disk          elsewhere: No such file or directory\n   -> run this command in the directory of `millrace up`", done.stdout.decode())
        text = self.run_program("millrace", "doctor", "--config", config).stdout.decode()
        self.assertRegex(text, r"conservation  queue default: not compared: the simplequeue at \S+ does not use the directory elsewhere/simplequeue\n")
        self.assertNotIn("taken elsewhere", text)
        for name, *args in (("rejects",), ("distribute", "/tmp/copy"), ("grep", "a")):
            done = self.run_program("millrace", name, "--config", config, *args)
            self.assertEqual((done.returncode, done.stdout), (66, b""), done)
            self.assertIn(b": No such file or directory; run this command in the directory of `millrace up`", done.stderr)
        done = self.run_program("millrace", "backup", "--config", config, "copy")
        self.assertEqual((done.returncode, os.path.exists(self.path("copy"))), (66, False))
        self.assertIn(b"no data of a pipeline at elsewhere/simplequeue; run this command in the directory of `millrace up`", done.stderr)

    def test_another_pipeline_at_the_addresses_of_a_stopped_one(self):
        """No command asks the other pipeline, or posts to it. A daemon of the stopped pipeline that runs by itself is used."""
        ports = {name: {"port": self.keep_port()} for name in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api")}
        other = self.up("--run=simplequeue,pubsub", data=self.path("other"), **ports).wait_ready()
        config, data = self.write("mine.conf", harness.pipeline_config(self.path("mine"), USERS_BY_COUNTRY, **ports)), self.path("mine")
        events = self.write("events", '{"t":1332637200,"l":"a"}\n')
        self.assertEqual(self.run_program("millrace", "up", "--config", config).returncode, 78)

        def tool(name, *args):
            done = self.run_program("millrace", name, "--config", config, *args)
            return done.returncode, (done.stdout + done.stderr).decode()
        status, text = tool("status", "--sample=0", "--json")
        look = json.loads(text)
        self.assertEqual((status, len(look["problems"])), (2, 1), look)
        self.assertRegex(look["problems"][0]["problem"],
                         r"^the pipeline of %s is stopped: the start at \S+Z failed: (simplequeue|pubsub): cannot listen on 127\.0\.0\.1 port (%s|%s): "
                         r"Address already in use; process \d+ \(\w+\) listens there: set \[(simplequeue|pubsub)\] port, or start with --free-ports$"
                         % (data, ports["simplequeue"]["port"], ports["pubsub"]["port"]))
        self.assertEqual(look["problems"][0]["remedy"], "correct this, then start it: millrace up --config=" + config)
        self.assertEqual({d["state"] for d in look["daemons"].values()}, {"stopped"})
        for done in (tool("query", "freshness"), tool("put", "--timeout=1s", events), tool("put", "--timeout=1s", "--producer=p", events),
                     tool("producers"), tool("queue", "list"), tool("rejects", "--put-back"), tool("tail", "--follow=false"),
                     tool("top", "--once"), tool("recount"), tool("compact"), tool("forget", "--field=l", "--value=a")):
            self.assertEqual(done[0], 75, done[1])
            self.assertIn("the pipeline of %s is stopped" % data, done[1])
        self.assertIn("the pipeline is stopped, so events needs file", tool("sql", "select count(*) from events where stream = 'clicks'")[1])
        self.assertEqual(other.ask("simplequeue", "GET", "/stats?format=json").json()["queues"], {})
        other.interrupt()
        queue = self.start("simplequeue", "--data-dir", os.path.join(data, "simplequeue"), "--port=" + ports["simplequeue"]["port"], port=False)
        self.assertEqual(tool("put", events)[0], 0)
        self.assertEqual(queue.stats()["depth"], 1)

    def test_the_reason_why_a_start_failed_remains_until_the_next_start(self):
        self.up("--run=simplequeue,pubsub").wait_ready().kill9()
        taken = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(taken.close)
        port = taken.getsockname()[1]
        said = ["the pipeline of %s is stopped: the start at " % self.data, " failed: pubsub: cannot listen on 127.0.0.1 port %d: " % port]

        def problem():
            found, = self.look()[1]["problems"]
            return found["problem"]
        self.assertEqual(self.up("--run=simplequeue,pubsub", pubsub={"port": port}).process.wait(harness.PATIENCE), 78)
        self.assertEqual([part in problem() for part in said], [True, True], problem())
        wrong = self.up("--run=simplequeue,pubsub", pubsub={"sync": "never at all"})
        self.assertEqual(wrong.process.wait(harness.PATIENCE), 78)
        self.assertIn(" failed: the configuration is wrong: millrace up --check-config --config=%s shows the error" % self.path("p.conf"), problem())
        pipeline = self.up("--run=simplequeue,pubsub").wait_ready()
        second = self.up("--run=simplequeue,pubsub")
        self.assertEqual(second.process.wait(harness.PATIENCE), 78, "the directory is in use")
        self.look_until(lambda status, look: status == 0)
        pipeline.interrupt()
        self.assertEqual(problem(), "the pipeline of %s is stopped" % self.data)

    def test_tail_waits_for_a_stopped_pipeline(self):
        """The other pipeline at its addresses is not shown."""
        ports = {name: {"port": self.keep_port()} for name in ("simplequeue", "pubsub")}
        self.up("--run=simplequeue,pubsub", data=self.path("mine"), **ports).wait_ready().interrupt()
        other = self.up("--run=simplequeue,pubsub", data=self.path("other"), **ports).wait_ready()
        other.ask("pubsub", "POST", "/pub?stream=clicks", b'{"l":"other"}\n')

        def tail():
            p = subprocess.Popen([harness.program("millrace"), "tail", "--from=earliest", "--data-dir", self.path("mine")],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for clean in (p.stderr.close, p.stdout.close, p.wait, p.kill):
                self.addCleanup(clean)
            self.assertEqual(p.stderr.readline().decode(), "millrace tail: the pipeline of %s is stopped; waiting for it\n" % self.path("mine"))
            return p
        ended, waits = tail(), tail()
        ended.send_signal(signal.SIGINT)
        self.assertEqual((ended.wait(harness.PATIENCE), ended.stdout.read()), (0, b""))
        other.interrupt()
        mine = self.up("--run=simplequeue,pubsub", data=self.path("mine"), **ports).wait_ready()
        mine.ask("pubsub", "POST", "/pub?stream=clicks", b'{"l":"mine"}\n')
        self.assertEqual(waits.stdout.readline(), b'{"l":"mine"}\n')

    def test_a_queue_that_no_reader_takes_from(self):
        pipeline = self.up().wait_ready()
        problem = "messages wait in queue other%s, and no reader has taken one since simplequeue started"

        def put(queue):
            self.assertEqual(pipeline.ask("simplequeue", "POST", "/put?queue=" + queue, b'{"t":1332637200,"l":"a"}').status, 200)
        put("other")
        put("default")
        look = self.look_until(lambda status, look: status == 1 and [p["problem"] for p in look["problems"]] == [problem % ""])
        self.assertEqual(look["problems"][0]["remedy"], "post events to the queue default, which is counted; or start a reader: "
                         "millrace help readers")
        for name, more in (("z1", " and in 1 more queue"), ("z2", " and in 2 more queues")):
            put(name)
            self.look_until(lambda status, look: [p["problem"] for p in look["problems"]] == [problem % more])
        for name in ("z1", "z2", "other"):
            self.assertEqual(pipeline.ask("simplequeue", "GET", "/get?queue=" + name).status, 200)
        put("other")
        self.look_until(lambda status, look: status == 0)

    def test_another_program_at_a_daemons_port(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        names = ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api")
        ports = {name: {"port": server.server_port if name == "aggregator" else self.keep_port()} for name in names}
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY, **ports))
        done = self.run_program("millrace", "status", "--sample=0", "--json", "--config", config)
        look = json.loads(done.stdout)
        self.assertEqual([p["problem"] for p in look["problems"]], ["the pipeline of %s is not started: no daemon answers, and the directory does not exist" % self.path("data")])
        self.assertEqual(look["daemons"]["aggregator"]["detail"], "another program answers at http://127.0.0.1:%d" % server.server_port)
        self.assertEqual({d["state"] for d in look["daemons"].values()}, {"unreachable", "off"})

    def test_a_directory_of_another_user(self):
        self.up().wait_ready().interrupt()
        os.chmod(self.data, 0o700 if os.geteuid() == 0 else 0)
        self.addCleanup(os.chmod, self.data, 0o700)
        other = {"user": "nobody"} if os.geteuid() == 0 else {}
        me = pwd.getpwuid(os.geteuid()).pw_name
        for args in (("--data-dir", self.data), ("--config", os.path.join(self.dir, "p.conf"))):
            config = self.path("p.conf")
            os.chmod(self.dir, 0o755)
            os.chmod(config, 0o644)
            done = self.run_program("millrace", "status", "--sample=0", *args, **other)
            said = (done.stdout + done.stderr).decode()
            self.assertIn("run.json: Permission denied; %s belongs to user %s" % (self.data, me), said)
            self.assertNotIn("unreachable: ", said)
        done = self.run_program("pubsub", "--port=0", "--data-dir", os.path.join(self.data, "pubsub"), **other)
        self.assertEqual(done.returncode, 78, done)
        self.assertIn("Permission denied; %s belongs to user %s" % (self.data, me), done.stderr.decode())

    def test_a_daemons_own_words(self):
        """Reason, remedy and level are the daemon's; status adds nothing. The test plays the API. unit/daemon/test_notices.c has the
        remedies of files that a daemon may not read."""
        words = {"text": "the words", "remedy": "let user x read it: `millrace doctor` names the command"}
        other = {"text": "an archive", "remedy": "", "level": "down"}
        seen = [(503, "refusing", "down", "api is refusing: the words", 2), (503, "damaged", "needs attention", "api is damaged: the words", 2),
                (200, "ready", "needs attention", "api: warning: the words", 2)]
        answers = [(status, {"state": state, "notices": [{**words, "level": level}, other]}) for status, state, level, _, _ in seen]
        answers.append((503, {"code": "overloaded", "detail": "too many connections", "hint": "close connections"}))
        seen.append((503, "overloaded", None, "api is overloaded: too many connections", 2))

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                status, body = answers[0] if self.path == "/health?format=json" else (404, {})
                self.send_response(status)
                body = json.dumps(body).encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        ports = {name: {"port": self.keep_port()} for name in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb")}
        config = self.write("p.conf", harness.pipeline_config(self.path("data"), USERS_BY_COUNTRY, **ports, api={"port": server.server_address[1]}))
        for _, state, level, said, status in seen:
            done = self.run_program("millrace", "status", "--sample=0", "--json", "--config", config)
            look = json.loads(done.stdout)
            found = [(p["problem"], p["remedy"], p["level"]) for p in look["problems"] if p["problem"].startswith("api")]
            expected = [(said, "close connections", "down")] if level is None else [(said, words["remedy"], level), ("api: warning: an archive", "", "down")]
            self.assertEqual((done.returncode, look["daemons"]["api"]["state"], found), (status, state, expected))
            # A daemon that does not answer is started with the configuration that status was given.
            self.assertIn("start it: millrace up --config=" + config, [p["remedy"] for p in look["problems"]])
            answers.pop(0)

    def test_a_wrong_clock_is_called_that(self):
        pipeline = self.up().wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        self.look_until(lambda status, look: (status, look["complete_until"] is not None) == (0, True))
        clocks = Clocks(self)

        def at(seconds):
            clocks.set(wall=seconds)
            done = subprocess.run([harness.program("millrace"), "status", "--sample=0", "--data-dir", self.data], capture_output=True,
                                  timeout=harness.LONG, env={**os.environ, **clocks.env})
            self.assertNotRegex(done.stdout.decode(), r"-\d+ (seconds|minutes|hours|days)|full in")
            return done.stdout.decode()
        said = r"this host's clock says \d{4}-\S+Z; (the archive was made at|counts are complete until|`millrace up` measured the disk at) \d{4}-\S+Z\n -> set the clock: "
        text = at(-3 * 86400)
        self.assertRegex(text, said)
        self.assertRegex(text, r"\narchive         generation \d+ of \S+Z\n", "no age of an archive from the future")
        self.assertNotIn("this host's clock", at(0))
        at(400 * 86400)

    def test_a_clock_that_jumped_ahead(self):
        """Counts are complete only until the jump, until an hour has passed."""
        clocks = Clocks(self)
        self.data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(self.data, USERS_BY_COUNTRY))
        pipeline = harness.Pipeline(self, config, self.data, env=clocks.env).wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        wait_until(lambda: self.look()[1]["complete_until"], self.text)
        clocks.set(wall=400 * 86400)

        def text():
            return subprocess.run([harness.program("millrace"), "status", "--sample=0", "--data-dir", self.data], capture_output=True,
                                  timeout=harness.LONG, env={**os.environ, **clocks.env}).stdout.decode()
        said = r"this host's clock says \S+Z; it has jumped, and counts are complete until \S+Z\n -> if the clock is wrong, set it: .*; if it is right, wait an hour\n"
        wait_until(lambda: re.search(said, text()), text)
        clocks.set(wall=0)
        wait_until(lambda: "this host's clock" not in text(), text)

    def test_events_from_the_future_name_both_clocks(self):
        pipeline = self.up(counters=USERS_BY_COUNTRY.replace("max_ahead = 0", "max_ahead = 1d")).wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":%d,"l":"a"}' % (time.time() + 400 * 86400))
        said = r"more than max_ahead in the future; .*; this host's clock says \d{4}-\S+Z; events say \d{4}-\S+Z\n -> if this host's clock is wrong: "
        wait_until(lambda: re.search(said, self.text()), self.text)

    def test_a_damaged_stream_that_stopped_the_pipeline(self):
        pipeline = self.up().wait_ready()
        pipeline.ask("pubsub", "POST", "/pub?stream=clicks", b'{"t":1332637200,"l":"a"}\n' * 100)
        pipeline.interrupt()
        segment = sorted(glob.glob(self.data + "/pubsub/streams/clicks/*.seg"))[-1]
        with open(segment, "r+b") as f:
            f.seek(300)
            f.write(b"\xff" * 8)
        pipeline = self.up()
        self.assertEqual(pipeline.process.wait(harness.PATIENCE), 78)
        done = self.status()
        self.assertEqual(done.returncode, 2)
        text = done.stdout.decode()
        self.assertIn("the pipeline of %s is stopped: pubsub ended with exit status 78: " % self.data, text)
        self.assertIn(segment, text)
        self.assertIn(" -> millrace journal repair %s (millrace help damage), then start it: millrace up --config="
                      % os.path.dirname(segment), text)

    def test_the_owner_starts_a_stopped_pipeline(self):
        self.up().wait_ready().interrupt()
        if os.geteuid() != 0:
            self.skipTest("needs root, to give the directory to another user")
        os.chown(self.data, pwd.getpwnam("nobody").pw_uid, -1)
        self.assertIn("\n -> start it: sudo -u nobody millrace up --config=", self.text())

    def test_a_full_queue(self):
        pipeline = self.up("--run=simplequeue,pubsub", simplequeue={"max_depth": 2}).wait_ready()
        self.assertEqual([pipeline.ask("simplequeue", "POST", "/put", b"x").status for _ in range(4)], [200, 200, 503, 503])
        problems = [("queue default: full", "start or speed up its readers, or raise max_depth or max_bytes")]
        self.look_until(lambda status, look: (status, [(p["problem"], p["remedy"]) for p in look["problems"]]) == (1, problems))
        said = "puts are refused queue=default error=\"the queue is full\" depth=2"
        wait_until(lambda: said in pipeline.log, lambda: pipeline.log)
        self.assertEqual(pipeline.log.count(said), 1, pipeline.log)
        self.assertEqual(pipeline.ask("simplequeue", "GET", "/get").body, b"x")
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", b"x").status, 200)
        self.look_until(lambda status, look: status == 0)

    def test_tokens_and_the_pipelines_own_configuration(self):
        """The configuration that `millrace up` reads names the tokens, and the queue that is counted."""
        self.write("token", "secret")
        os.chmod(self.path("token"), 0o600)
        file = self.path("token")
        pipeline = self.up(simplequeue={"auth_token_file": file}, pubsub={"auth_token_file": file},
                           aggregator={"auth_token_file": file, "pubsub_token_file": file},
                           queue_to_pubsub={"queue": "views", "queue_token_file": file, "pubsub_token_file": file}).wait_ready()
        headers = {"Authorization": "Bearer secret"}
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put?queue=views", b'{"t":1332637200,"l":"a"}', headers=headers).status, 200)
        self.assertEqual(self.status("--wait").returncode, 0, self.text())

    def test_numbers_behind_another_token(self):
        """A daemon whose numbers are not known is not called fine."""
        for name, text in (("token", "secret"), ("other", "another")):
            self.write(name, text)
            os.chmod(self.path(name), 0o600)
        self.up("--run=simplequeue,pubsub", simplequeue={"auth_token_file": self.path("token")}, pubsub={"auth_token_file": self.path("token")}).wait_ready()
        self.look_until(lambda status, look: status == 0)
        config = harness.read_file(self.path("p.conf")).decode().replace(self.path("token"), self.path("other"))
        config = self.write("q.conf", config)
        remedy = "if a token is wrong or unreadable, correct auth_token_file, or run this command as another user"

        def problem():
            look = json.loads(self.run_program("millrace", "status", "--sample=0", "--json", "--config", config).stdout)
            self.assertEqual((look["level"], look["settled"]), ("needs attention", False))
            (found,) = look["problems"]
            self.assertEqual(found["remedy"], remedy)
            return found["problem"]
        self.assertRegex(problem(), r"^the numbers of simplequeue, pubsub are not known: pubsub: /stats\?format=json: .*token")
        os.chmod(self.path("other"), 0o644)
        self.assertRegex(problem(), r"^the numbers of simplequeue, pubsub are not known: the token file \S+ is open to all users: chmod o= ")
        done = self.run_program("millrace", "query", "freshness", "--config", self.write("api.conf", "[api]\nauth_token_file = %s\n" % self.path("other")))
        self.assertEqual(done.returncode, 78, done)
        self.assertIn(b"the token file %s is open to all users" % self.path("other").encode(), done.stderr)

    def test_rates_and_waiting_events(self):
        pipeline = self.up().wait_ready()
        lines = b'{"t":1332637200,"l":"a"}\n' * 100
        stop = threading.Event()

        def post():
            while not stop.wait(0.05):
                pipeline.ask("simplequeue", "POST", "/mput", lines)
        poster = threading.Thread(target=post)
        poster.start()

        def rates():
            daemons = json.loads(self.status("--sample=1s", "--json").stdout)["daemons"]
            return [daemons[name].get("events_per_second") or 0 for name in ("simplequeue", "queue_to_pubsub", "pubsub", "aggregator")]
        try:
            wait_until(lambda: all(50 < rate < 5000 for rate in rates()), rates)
        finally:
            stop.set()
            poster.join()
        self.assertEqual(self.status("--wait").returncode, 0)
        os.kill(pipeline.daemon_pid("queue_to_pubsub"), signal.SIGSTOP)
        self.addCleanup(os.kill, pipeline.daemon_pid("queue_to_pubsub"), signal.SIGCONT)
        pipeline.ask("simplequeue", "POST", "/mput", lines)
        said = {"level": "down", "problem": "queue_to_pubsub is suspended", "remedy": "kill -CONT %d" % pipeline.daemon_pid("queue_to_pubsub")}
        self.look_until(lambda status, look: look["daemons"]["simplequeue"]["waiting"] == 100 and
                        look["daemons"]["simplequeue"]["lag_seconds"] > 0 and said in look["problems"])
        os.kill(pipeline.daemon_pid("queue_to_pubsub"), signal.SIGCONT)
        self.assertEqual(self.status("--wait").returncode, 0)

    def disk_problems(self, look):
        return [(p["level"], p["problem"], p["remedy"]) for p in look["problems"] if "disk" in p["problem"] + p["remedy"]]

    def test_a_full_disk(self):
        """It is one problem, which names all that it stops."""
        disk = SmallDisk(self, "256m")
        pipeline = self.up(data=disk.path("data")).wait_ready()
        disk.take_the_rest()
        line = b'{"t":1332637200,"l":"%s"}' % (b"x" * 500000)
        wait_until(lambda: pipeline.ask("simplequeue", "POST", "/put", line).status == 503, "a put to be refused")
        wait_until(lambda: pipeline.ask("pubsub", "POST", "/pub?stream=clicks", line).status == 503, "a publish to be refused")
        said = re.compile(r"the disk of %s has [\d.]+ k?B of 268 MB free; this stops new events, (the relay, )?publishes(, .*)?" % self.data)
        look = self.look_until(lambda status, look: status == 2 and look["daemons"]["simplequeue"]["state"] == "refusing" and
                               any(said.fullmatch(problem) for _, problem, _ in self.disk_problems(look)))
        (level, _, remedy), = self.disk_problems(look)
        self.assertEqual((level, remedy), ("down", "free disk space; it resumes by itself"))
        self.assertRegex(self.text(), r"\ndisk            [\d.]+ k?B of 268 MB free")
        disk.give_back()
        wait_until(lambda: pipeline.ask("simplequeue", "POST", "/put", b"{}").status == 200, "puts to be taken")
        self.look_until(lambda status, look: look["daemons"]["simplequeue"]["state"] == "ready" and not self.disk_problems(look))

    def test_restarts_that_run_json_does_not_have(self):
        disk = SmallDisk(self, "256m")
        pipeline = self.up(data=disk.path("data")).wait_ready()
        disk.take_the_rest()
        pipeline.kill9_daemon("api")
        said = "%s/run.json is older than the last restart of api, so the number of restarts is not known" % self.data
        look = self.look_until(lambda status, look: look["daemons"]["api"]["state"] == "ready" and said in [p["problem"] for p in look["problems"]])
        self.assertIsNone(look["daemons"]["api"]["restarts"])
        self.assertEqual(look["daemons"]["pubsub"]["restarts"], 0)
        self.assertRegex(self.text(), r"\napi +ready .* -  127")
        disk.give_back()
        self.look_until(lambda status, look: look["daemons"]["api"]["restarts"] == 1 and said not in [p["problem"] for p in look["problems"]])

    def test_a_full_disk_of_one_daemon(self):
        disk = SmallDisk(self, "64m")
        self.data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(self.data, USERS_BY_COUNTRY, simplequeue={"data_dir": disk.path("queue")}))
        harness.Pipeline(self, config, self.data, "--run=simplequeue,pubsub", env={"MILLRACE_SIMPLEQUEUE_MIN_FREE": "3M"}).wait_ready()
        disk.take_the_rest()
        said = re.compile(r"the disk of %s has [\d.]+ k?B of 67\.1 MB free, min_free is 3\.1 MB; this stops new events" % disk.path("queue"))
        self.look_until(lambda status, look: [(level, bool(said.fullmatch(problem)), remedy) for level, problem, remedy in self.disk_problems(look)] ==
                        [("down", True, "free disk space; it resumes by itself")])

    def test_a_crash_loop_shows_the_reason(self):
        pipeline = self.up().wait_ready()
        pipeline.kill9_daemon("api")
        wait_until(lambda: "signal 9" in str(self.look()[1]["daemons"]["api"]["last_error"]), self.text)
        restarted = re.compile(r"api was restarted 1 time, the last \d+ seconds ago; last error \d+ seconds ago: signal 9\n")
        wait_until(lambda: restarted.search(self.text()), self.text)
        run = wait_until(lambda: (lambda run: run["daemons"]["api"]["state"] == "ready" and run)(pipeline.run_file()), self.text)
        os.mkdir(self.path("copy"))

        def after(seconds):
            """The screen of a restart so long ago, and of a later error without a restart."""
            run["daemons"]["api"].update(restarted_at=int(time.time()) - seconds, error_at=int(time.time()) - 180, error="another error")
            with open(self.path("copy", "run.json"), "w") as f:
                json.dump(run, f)
            return self.run_program("millrace", "status", "--sample=0", "--data-dir", self.path("copy")).stdout.decode()
        self.assertIn("api was restarted 1 time, the last 40 minutes ago; last error 3 minutes ago: another error\n", after(2430))
        healthy = after(3700)
        self.assertNotIn("was restarted", healthy)
        self.assertRegex(healthy, r"\napi +ready .* 1  127")
        shard, = glob.glob(os.path.join(self.data, "archive", "current", "shard-*.csv"))
        with open(shard, "ab") as f:
            f.write(b"damage")
        pipeline.kill9_daemon("sortdb")
        wait_until(lambda: self.state("sortdb") == "restarting", self.text)

        def shows_it():
            """In one look: between two of them the daemon may be starting again."""
            status, look = self.look()
            return status == 2 and "shard-0-of-1.csv" in (look["daemons"]["sortdb"]["last_error"] or "")
        wait_until(shows_it, self.text)
        # From now on in every look, also while the daemon is starting again.
        for _ in range(20):
            status, look = self.look()
            sortdb = look["daemons"]["sortdb"]
            self.assertEqual((status, sortdb["state"]), (2, "restarting"), look)
            problem = next(p for p in look["problems"] if p["problem"].startswith("sortdb is restarting: "))
            self.assertIn("restore the file that the reason names", problem["remedy"], look)

    def test_an_archive_that_the_api_cannot_open(self):
        pipeline = self.up("--run=simplequeue,pubsub,aggregator,api", api={"archive": self.path("data", "archive")}).wait_ready()
        wait_until(lambda: "api is refusing queries since " in self.text(), self.text)
        status, look = self.look()
        self.assertEqual((status, look["daemons"]["api"]["state"]), (2, "refusing"))
        self.assertIn("restore the file that the reason names", next(p["remedy"] for p in look["problems"] if p["problem"].startswith("api is")))
        self.assertEqual(pipeline.ask("api", "GET", "/").status, 200)

    def test_a_suspended_aggregator(self):
        """No query can be answered, but events are stored."""
        pipeline = self.up().wait_ready()
        self.look_until(lambda status, look: status == 0)
        pid = pipeline.daemon_pid("aggregator")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists("/proc/%d" % pid) and os.kill(pid, signal.SIGCONT))
        remedy = "repair the source that the reason names; queries then work again"
        look = self.look_until(lambda status, look: (status, look["daemons"]["api"]["state"]) == (2, "refusing"))
        found = {p["problem"].split(" is ")[0]: p for p in look["problems"]}
        self.assertIn(": aggregator at http", found["api"]["problem"])
        self.assertEqual(found["api"]["remedy"], remedy)
        self.assertEqual(found["aggregator"]["remedy"], "kill -CONT %d" % pid)
        self.assertEqual(pipeline.ask("api", "POST", "/v1/events", b'{"t":1332637200,"l":"a"}').status, 200)
        page = pipeline.ask("api", "GET", "/v1/pipeline").json()["daemons"][-1]
        self.assertEqual((page["name"], page["state"]), ("api", "not ready"))
        self.assertIn("does not answer queries", page["detail"])
        os.kill(pid, signal.SIGKILL)
        self.look_until(lambda status, look: {d["state"] for d in look["daemons"].values()} <= {"ready", "off"} and look["complete_until"])

    def test_a_daemon_with_too_many_connections(self):
        """It does not recover by itself."""
        pipeline = self.up(aggregator={"max_connections": 20}, api={"max_connections": 20}).wait_ready()
        self.look_until(lambda status, look: status == 0)
        for name in ("aggregator", "api"):
            host, port = pipeline.daemon_url(name)[len("http://"):].split(":")
            clients = []
            for _ in range(100):
                clients.append(socket.create_connection((host, int(port))))
                self.addCleanup(clients[-1].close)
            look = self.look_until(lambda status, look: (status, look["daemons"][name]["state"]) == (2, "overloaded"))
            found = [p for p in look["problems"] if p["problem"].startswith(name + " is overloaded: too many connections")]
            self.assertIn("close connections", found[0]["remedy"])
            for client in clients:
                client.close()
            self.look_until(lambda status, look: look["daemons"][name]["state"] == "ready")

    def test_daemons_that_do_not_run_are_off(self):
        self.up("--run=simplequeue,pubsub").wait_ready()
        look = self.look_until(lambda status, look: status == 0)
        self.assertEqual([look["daemons"][n]["state"] for n in ("simplequeue", "pubsub", "queue_to_pubsub", "aggregator", "sortdb", "api")],
                         ["ready", "ready", "off", "off", "off", "off"])
        self.assertEqual(self.status("--wait").returncode, 0)

    def test_rejected_lines(self):
        pipeline = self.up().wait_ready()
        pipeline.ask("simplequeue", "POST", "/mput", b"\n".join([b'{"t":"noon"}'] * 30))
        expected = ("0 events counted, 30 lines rejected in the last minute: field t is not a time; first at offset 0 of clicks: `{\"t\":\"noon\"}`",
                    " -> correct [input] or the sender; then millrace rejects --put-back\n",
                    " 0 counted, 30 rejected: 30 field t is not a time\n")
        wait_until(lambda: (lambda shown: all(line in shown for line in expected))(self.text()), self.text)
        self.assertRegex(self.text(), r"\nlast (minute|[1-9]\d? s) +0 counted")
        self.assertEqual(self.look()[0], 1)

    def test_the_most_frequent_reasons_are_shown(self):
        pipeline = self.up().wait_ready()
        pipeline.ask("simplequeue", "POST", "/mput", b"\n".join([b'{"t":7}', b'{"l":"x"}'] + [b"[]"] * 3 + [b"x"] * 4))
        wait_until(lambda: re.search(r"9 rejected: 4 not JSON[^,]*, 3 not an object, 2 for other reasons\n", self.text()), self.text)

    def test_a_producer_that_holds_completeness_back(self):
        pipeline = self.up().wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        pipeline.ask("pubsub", "POST", "/pub?stream=clicks&producer=web2&mark=0&next=1&until=%d" % (time.time() - 1000),
                     b'{"t":1332637200,"l":"b"}\n')
        self.look_until(lambda status, look: (status, look["held_by"]) == (1, "clicks/web2"))
        held = re.compile(r"complete until  \S+ \(\d+ minutes ago\), held back by clicks/web2\n")
        shown = wait_until(lambda: (lambda shown: held.search(shown) and shown)(self.text()), self.text)
        self.assertIn("warning: producer clicks/web2 holds completeness back\n", shown)
        self.assertIn(" -> start that producer's host, or exclude the producer: millrace producers --leave-out", shown)
        self.assertIn("holds completeness back", pipeline.ask("aggregator", "GET", "/health").text)
        pipeline.ask("pubsub", "POST", "/producers?stream=clicks&producer=web2&mark=0")
        self.look_until(lambda status, look: (status, look["held_by"]) == (0, ""))

    def test_a_failed_compaction(self):
        pipeline = self.up(compactor={"every": "1h"}).wait_ready()
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        self.assertEqual(self.status("--wait").returncode, 0)
        pipeline.interrupt()
        with open(glob.glob(os.path.join(self.data, "archive", "current", "shard-*.csv"))[0], "ab") as f:
            f.write(b"damage")
        manifest = os.path.join(self.data, "archive", "current", "manifest.json")
        text = harness.read_file(manifest).decode()
        with open(manifest, "w") as f:
            f.write(re.sub(r'"made": ?\d+', '"made":1000000000', text))
        self.up(compactor={"every": "1h"})
        wait_until(lambda: any(p["problem"].startswith("compaction: the last run failed; next run at ")
                               for p in self.look()[1]["problems"]), self.text)

    def test_a_compaction_by_hand_ends_the_failure(self):
        """Also if it finds nothing new."""
        self.up(compactor={"every": "1h"}).wait_ready().interrupt()
        archive = os.path.join(self.data, "archive")

        def is_failed():
            return any(p["problem"].startswith("compaction: the last run failed; ") for p in self.look()[1]["problems"])
        for event in (b'{"t":1332637200,"l":"a"}', None):
            manifest = os.path.join(archive, "current", "manifest.json")
            text = harness.read_file(manifest).decode()
            with open(manifest, "w") as f:
                f.write(re.sub(r'"made": ?\d+', '"made":1000000000', text))
            lock = os.path.join(archive, "lock")
            os.remove(lock)
            os.mkdir(lock)
            pipeline = self.up(compactor={"every": "1h"}).wait_ready()
            wait_until(is_failed, self.text)
            os.rmdir(lock)
            if event:
                pipeline.ask("simplequeue", "POST", "/put", event)
                self.assertEqual(self.status("--wait").returncode, 0)
            began = int(time.time())
            wait_until(lambda: int(time.time()) > began, "the next second, because the times of runs are in seconds")
            generation = os.readlink(os.path.join(archive, "current"))
            done = self.run_program("millrace", "compact", "--data-dir", self.data)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(os.readlink(os.path.join(archive, "current")) == generation, event is None)
            wait_until(lambda: not is_failed(), self.text)
            pipeline.interrupt()

    def test_a_removed_file_of_the_archive(self):
        """The API has mapped it, so that queries still work."""
        self.up().wait_ready()
        name = os.path.join(os.path.realpath(os.path.join(self.data, "archive", "current")), "shard-0-of-1.csv")
        self.look_until(lambda status, look: status == 0)
        os.rename(name, self.path("kept"))
        text = "the archive's file %s does not exist" % name
        self.look_until(lambda status, look: (status, [p["problem"] for p in look["problems"]]) == (1, [text]))
        os.rename(self.path("kept"), name)
        self.look_until(lambda status, look: status == 0)

    def test_a_suspended_compactor(self):
        pipeline = self.up(compactor={"every": "1h"}).wait_ready()
        self.look_until(lambda status, look: status == 0)
        pid = pipeline.daemon_pid("compactor")
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists("/proc/%d" % pid) and os.kill(pid, signal.SIGCONT))
        look = self.look_until(lambda status, look: (status, look["daemons"]["compactor"]["state"]) == (1, "suspended"))
        self.assertEqual([p["remedy"] for p in look["problems"]], ["kill -CONT %d" % pid])
        os.kill(pid, signal.SIGCONT)
        self.look_until(lambda status, look: status == 0)

    def test_a_suspended_up(self):
        """As by Ctrl-Z."""
        pipeline = self.up().wait_ready()
        self.look_until(lambda status, look: status == 0)
        pid = pipeline.process.pid
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists("/proc/%d" % pid) and os.kill(pid, signal.SIGCONT))
        look = self.look_until(lambda status, look: status == 1 and look["problems"])
        self.assertIn("(process %d) is suspended" % pid, look["problems"][0]["problem"])
        self.assertEqual(look["problems"][0]["remedy"], "kill -CONT %d, or fg in its shell" % pid)
        os.kill(pid, signal.SIGCONT)
        self.look_until(lambda status, look: status == 0)

    def test_days_until_the_disk_is_full(self):
        """From the sample that `millrace up` left."""
        self.data = self.path("data")
        os.mkdir(self.data)
        fs = os.statvfs(self.data)
        free = fs.f_bavail * fs.f_frsize

        def run_file(used_in_a_day):
            self.write("data/run.json", json.dumps({"pid": os.getpid(), "ended": False, "daemons": {}, "disk": {
                "at": int(time.time()) - 86400, "free": free + used_in_a_day}}))
        run_file(free // 10)
        self.assertAlmostEqual(self.look()[1]["days_until_full"], 10, delta=1)
        run_file(free)
        status, look = self.look()
        self.assertAlmostEqual(look["days_until_full"], 1, delta=0.2)
        self.assertEqual(status, 1)
        self.assertIn("is full within three days", look["problems"][0]["problem"])
        run_file(0)

    def test_the_link_current_is_wrong(self):
        """It names a removed generation, or one that is older than the newest: neither needs a backup."""
        pipeline = self.up().wait_ready()
        archive = os.path.join(self.data, "archive")

        def link(name, generation, age=0):
            os.symlink("%012d" % generation, os.path.join(archive, "new"))
            os.rename(os.path.join(archive, "new"), os.path.join(archive, name))
            os.utime(os.path.join(archive, name), (time.time() - age,) * 2, follow_symlinks=False)

        link("current", 99)
        pipeline.ask("sortdb", "POST", "/reload")
        look = self.look_until(lambda status, look: look["daemons"]["sortdb"]["state"] == "damaged")
        remedies = [p["remedy"] for p in look["problems"]]
        self.assertTrue(any(r.startswith("make `current` a link to a generation that exists") for r in remedies), look)
        self.assertFalse(any("backup" in r for r in remedies), look)
        link("current", 0)
        pipeline.ask("sortdb", "POST", "/reload")
        link("newest", 1)
        self.look_until(lambda status, look: look["problems"] == [])
        os.mkdir(os.path.join(archive, "%012d" % 1))
        link("newest", 1, age=60)
        look = self.look_until(lambda status, look: status == 1)
        self.assertEqual([p["problem"] for p in look["problems"]],
                         ["the archive's current generation is 0, but generation 1 is newer"])
        os.rmdir(os.path.join(archive, "%012d" % 1))  # as --discard-newer does
        self.look_until(lambda status, look: look["problems"] == [])

    def test_an_older_generation_than_the_cleared_slices(self):
        pipeline = self.up().wait_ready()
        archive, compact = os.path.join(self.data, "archive"), ("compact", "--config", pipeline.config_path)
        pipeline.ask("simplequeue", "POST", "/put", b'{"t":1332637200,"l":"a"}')
        self.look_until(lambda status, look: look["complete_until"] is not None)
        self.assertEqual(self.run_program("millrace", *compact).returncode, 0)
        self.look_until(lambda status, look: look["problems"] == [])

        def link(generation):
            os.symlink("%012d" % generation, os.path.join(archive, "new"))
            os.rename(os.path.join(archive, "new"), os.path.join(archive, "current"))
            pipeline.ask("sortdb", "POST", "/reload")

        link(0)
        text = "the archive's current generation 0 goes to slice 0, but slices up to 1 were cleared"
        look = self.look_until(lambda status, look: text in [p["problem"] for p in look["problems"]])
        remedy, = (p["remedy"] for p in look["problems"] if p["problem"] == text)
        self.look_until(lambda status, look: look["daemons"]["api"]["state"] == "refusing")
        for more in ((), ("--discard-newer",)):
            done = self.run_program("millrace", *compact, *more)
            self.assertEqual((done.returncode, remedy in done.stderr.decode().replace('\\"', '"')), (78, True), done)
        link(1)
        self.look_until(lambda status, look: look["problems"] == [])

    def screen(self, *args, env=()):
        """What a terminal of 80 x 24 gets."""
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.execve(harness.program("millrace"), ["millrace", "status", "--data-dir", self.data, *args],
                      {**os.environ, **dict(env)})
        seen = b""
        try:
            while True:
                seen += os.read(terminal, 65536)
        except OSError:
            pass
        os.close(terminal)
        os.waitpid(pid, 0)
        return seen.decode().replace("\r\n", "\n")

    def test_one_screen(self):
        """Also with more problems than it has room for; colour only there, and not with NO_COLOR."""
        pipeline = self.up(simplequeue={"allow_exit": "true"}).wait_ready()
        for q in range(20):
            self.assertEqual(pipeline.ask("simplequeue", "POST", "/put?queue=a-queue-with-a-long-name-%d" % q, b"x").status, 200)
            self.assertEqual(pipeline.ask("simplequeue", "POST", "/pause?queue=a-queue-with-a-long-name-%d" % q).status, 200)
        pipeline.ask("simplequeue", "POST", "/mput", b"\n".join([b'{"t":"noon","text":"%s"}' % (b"x" * 300)] * 30))
        wait_until(lambda: "rejected in the last minute" in self.text(), self.text)
        colored = self.screen()
        self.assertIn("\033[33mmillrace: needs attention\033[0m", colored)
        plain = self.screen(env={"NO_COLOR": "1"}.items())
        self.assertNotIn("\033", plain)
        self.assertNotIn(b"\033", self.status().stdout)
        lines = plain.splitlines()
        self.assertLessEqual(len(lines), 23, plain)
        self.assertLessEqual(max(map(len, lines)), 80, plain)
        self.assertRegex(plain, r"    and \d+ more: millrace status --json\n")
        for name in ("simplequeue", "compactor", "complete until", "disk", "last "):
            self.assertIn("\n" + name, plain)

    def test_watch(self):
        self.up().wait_ready()
        watching = subprocess.Popen([harness.program("millrace"), "status", "--data-dir", self.data, "--watch=100ms"],
                                    stdout=subprocess.PIPE)
        seen = b""
        while seen.count(b"millrace: fine") < 3:
            self.assertTrue(select.select([watching.stdout], [], [], harness.PATIENCE)[0], seen)
            seen += os.read(watching.stdout.fileno(), 65536)
        watching.stdout.close()
        self.assertEqual(watching.wait(harness.PATIENCE), 0)


if __name__ == "__main__":
    harness.main()
