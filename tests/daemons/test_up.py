"""`millrace up`: order, readiness, restarts, Ctrl-C, and what it refuses."""
# seconds: 25
import glob
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading

import harness
from harness import USERS_BY_COUNTRY, wait_until
from small_disk import SmallDisk

HOUR = 1332637200


def event(user, country="US"):
    return json.dumps({"t": HOUR, "l": user, "c": country}).encode()


class Up(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.stop_reading = threading.Event()

    def config(self, counters=USERS_BY_COUNTRY, **sections):
        return self.write("pipeline.conf", harness.pipeline_config(self.path("data"), counters, **sections))

    def up(self, *args, **kw):
        return harness.Pipeline(self, self.config(**kw), self.path("data"), *args)

    def put(self, pipeline, *events):
        reply = pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(events))
        self.assertEqual(reply.status, 200, reply)

    def total(self, pipeline, user):
        """The API's answer, or None while it has none (503, or its process is away)."""
        target = "/v1/series?" + harness.query(user=user, unit="hour", from_=HOUR, to=HOUR + 3600)
        try:
            reply = pipeline.ask("api", "GET", target)
        except harness.UNREACHABLE:
            return None
        self.assertIn(reply.status, (200, 503), reply)
        return reply.json()["total"] if reply.status == 200 else None

    def wait_total(self, pipeline, user, n):
        wait_until(lambda: self.total(pipeline, user) == n, lambda: "%d for %s, not %s" % (
            n, user, self.total(pipeline, user)))

    def test_counts_and_stops(self):
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"), event("bitly", "JP"), event("nasa"))
        self.wait_total(pipeline, "bitly", 2)
        pids = [d["pid"] for d in pipeline.run_file()["daemons"].values()]
        self.assertEqual(len({os.getpgid(p) for p in pids}), len(pids), "a process group each")
        pipeline.interrupt()
        for pid in pids:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        self.assert_stopped()
        stops = [line.split()[0] for line in pipeline.log.splitlines() if " stopped" in line and "|" in line]
        self.assertEqual(stops, sorted(stops, key=["api", "queue_to_pubsub", "aggregator", "sortdb",
                                                   "simplequeue", "pubsub"].index))

    def assert_stopped(self):
        """Its ports may be another's by now: status says that it has ended, and asks nobody."""
        done = self.run_program("millrace", "status", "--data-dir", self.path("data"))
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(b"is stopped", done.stdout)
        self.assertNotIn(b" ready ", done.stdout)
        self.assertNotIn(b"http", done.stdout)

    def test_a_daemon_that_dies_comes_back(self):
        pipeline = self.up().wait_ready()
        n = 0
        for name in ("aggregator", "pubsub", "queue_to_pubsub", "simplequeue", "sortdb", "api"):
            before = pipeline.daemon_pid(name)
            url = pipeline.daemon_url(name)
            pipeline.kill9_daemon(name)
            self.put(pipeline, event("bitly"))
            n += 1
            self.wait_total(pipeline, "bitly", n)
            wait_until(lambda: pipeline.daemon_pid(name) not in (0, None, before) and
                       pipeline.run_file()["daemons"][name]["state"] == "ready", name + " to be ready again")
            self.assertEqual(pipeline.daemon_url(name), url, "a restart keeps the address")
        pipeline.interrupt()

    def test_once_a_full_disk_has_space_run_json_names_the_daemons_again(self):
        disk = SmallDisk(self, "256m")
        config = self.write("pipeline.conf", harness.pipeline_config(disk.path("data"), USERS_BY_COUNTRY))
        pipeline = harness.Pipeline(self, config, disk.path("data")).wait_ready()
        before = pipeline.daemon_pid("api")
        disk.take_the_rest()
        pipeline.kill9_daemon("api")
        wait_until(lambda: "cannot write run.json" in pipeline.log, "the disk to be noticed")
        wait_until(lambda: pipeline.ask("api", "GET", "/ping").status == 200, "the api to be back")
        disk.give_back()
        wait_until(lambda: pipeline.run_file()["daemons"]["api"]["state"] == "ready" and
                   pipeline.daemon_pid("api") != before, "run.json to name the new process")
        self.assertEqual(pipeline.log.count("cannot write run.json"), 1)
        pipeline.interrupt()

    def test_without_descriptors_it_tries_again_until_there_are_some(self):
        """None for the pipe, one of the two that it takes; and nothing is left open."""
        pipeline = self.up().wait_ready()
        limits = resource.prlimit(pipeline.pid, resource.RLIMIT_NOFILE)

        def fails_under(limit):
            resource.prlimit(pipeline.pid, resource.RLIMIT_NOFILE, (limit, limits[1]))
            before = pipeline.log.count("by=pipe")
            wait_until(lambda: pipeline.log.count("by=pipe") > before + 1, lambda: pipeline.log)

        def used():
            return {int(fd) for fd in os.listdir("/proc/%d/fd" % pipeline.pid)}
        resource.prlimit(pipeline.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        pipeline.kill9_daemon("sortdb")
        fails_under(3)
        before = used()
        free = [fd for fd in range(4, 1000) if fd not in before]
        fails_under(free[0] + 1)
        fails_under(3)
        self.assertEqual(used(), before)
        resource.prlimit(pipeline.pid, resource.RLIMIT_NOFILE, limits)
        pipeline.wait_ready()
        self.assertEqual(pipeline.ask("sortdb", "GET", "/ping").status, 200)
        pipeline.interrupt()

    def status_of(self, name):
        done = self.run_program("millrace", "status", "--json", "--sample=0", "--data-dir", self.path("data"))
        return done.returncode, json.loads(done.stdout)["daemons"][name]

    def wait_status(self, text):
        """Who does not answer the tool at once is shown as away."""
        wait_until(lambda: text in self.status_of("simplequeue")[1]["detail"], lambda: self.status_of("simplequeue"))

    def test_status_tells_what_is_wrong_with_a_queue(self):
        pipeline = self.up(simplequeue={"max_depth": 2, "allow_exit": "true"}).wait_ready()

        def ask(target, body=b"", status=200):
            self.assertEqual(pipeline.ask("simplequeue", "POST", target, body).status, status)
        ask("/pause?queue=side")
        ask("/mput?queue=side", b"a\nb")
        ask("/put?queue=side", b"c", 503)
        self.wait_status("2 in other queues, queue side: paused, queue side: full, queue side: 1 rejected")
        ask("/pause?queue=side&for=0")
        lease = pipeline.ask("simplequeue", "POST", "/reserve?queue=side").header("X-Millrace-Lease")
        ask("/bury?queue=side&id=1&lease=" + lease)
        self.wait_status(", queue side: 1 buried, ")
        self.wait_status(", queue side: 1 rejected")
        pipeline.interrupt()

    def test_what_no_restart_can_heal_is_left_alone_and_said(self):
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        identity = pipeline.ask("simplequeue", "GET", "/stats?format=json").json()["queues"]["default"]["queue_id"]
        producer = "stream=clicks&producer=" + identity
        mark = pipeline.ask("pubsub", "GET", "/producer?" + producer).json()["mark"]
        moved = pipeline.ask("pubsub", "POST", "/pub?%s&mark=%s&next=%d" % (producer, mark, 1000), event("other"))
        self.assertEqual(moved.status, 200, moved)
        self.put(pipeline, event("bitly"))
        wait_until(lambda: pipeline.run_file()["daemons"]["queue_to_pubsub"]["state"] == "failed", "the relay to end")
        status, relay = self.status_of("queue_to_pubsub")
        self.assertEqual((status, relay["state"]), (2, "failed"))
        self.assertIn("Another program has raised the mark", relay["detail"])
        self.assertIn("millrace producers --stream=clicks --set=" + identity, relay["detail"])  # the command that goes on
        self.assertEqual(pipeline.run_file()["daemons"]["queue_to_pubsub"]["restarts"], 0)
        self.wait_total(pipeline, "other", 1)  # the others go on
        pipeline.interrupt()

    def assert_ingestion_goes_on(self, pipeline, without="aggregator"):
        """An event reaches its stream, and the API names the daemon that it cannot ask."""
        wait_until(lambda: self.state(pipeline, "queue_to_pubsub") == self.state(pipeline, "api") == "ready",
                   lambda: "relay and api to be ready:\n" + pipeline.log)
        self.put(pipeline, event("late"))
        wait_until(lambda: b"late" in pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body,
                   lambda: "the event to be in its stream:\n" + pipeline.log)

        def names_it():
            """Another daemon that is still starting may be named first."""
            reply = pipeline.ask("api", "GET", "/v1/series?user=bitly&unit=day")
            self.assertEqual((reply.status, reply.json()["code"]), (503, "upstream-unavailable"), reply)
            return without in reply.json()["detail"]
        wait_until(names_it, lambda: "the API to name %s:\n%s" % (without, pipeline.log))

    def state(self, pipeline, name):
        return pipeline.run_file()["daemons"].get(name, {}).get("state")

    def count_one_and_stop(self, total=1):
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", total)
        pipeline.interrupt()

    def test_a_damaged_slice_does_not_stop_ingestion(self):
        self.count_one_and_stop()
        for path in glob.glob(self.path("data", "aggregator", "slices", "*.db")):
            with open(path, "r+b") as f:
                f.write(b"damaged" * 20)
        pipeline = self.up()
        self.assert_ingestion_goes_on(pipeline)
        wait_until(lambda: self.state(pipeline, "aggregator") == "failed", lambda: pipeline.log)
        status, aggregator = self.status_of("aggregator")
        self.assertEqual((status, aggregator["state"]), (2, "failed"), aggregator)
        self.assertNotIn("pipeline ready", pipeline.log)
        pipeline.interrupt()

    def test_a_missing_archive_is_refused(self):
        """An empty archive in its place would hide its counts."""
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        archive, away = self.path("data", "archive"), self.path("away")
        self.assertEqual(self.run_program("millrace", "compact", "--config", pipeline.config_path).returncode, 0)
        os.rename(archive, away)
        refusal = "the archive %s is missing" % archive
        pipeline.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "changes nothing" in pipeline.log, lambda: pipeline.log)
        self.assertIn(refusal, pipeline.log)
        self.assertEqual(self.total(pipeline, "bitly"), 1)
        done = self.run_program("millrace", "compact", "--config", pipeline.config_path)
        self.assertEqual(done.returncode, 78, done)
        self.assertIn(refusal.encode(), done.stderr)
        pipeline.interrupt()
        for args in ((), ("--check-config",)):
            done = self.run_program("millrace", "up", "--config", pipeline.config_path, *args)
            self.assertEqual(done.returncode, 78, done)
            self.assertIn(refusal.encode(), done.stderr)
            self.assertFalse(os.path.exists(archive))
        os.rename(away, archive)
        pipeline = self.up().wait_ready()
        self.wait_total(pipeline, "bitly", 1)
        pipeline.interrupt()
        shutil.rmtree(archive)
        command = re.search(rb"millrace (compactor --archive=\S+ --init)", done.stderr)[1].decode().split()
        self.assertEqual(self.run_program("millrace", *command).returncode, 0)
        self.assertEqual(os.readlink(os.path.join(archive, "current")), "0" * 12)

    def test_one_section_moves_the_archive_of_all(self):
        """Whichever section names it, the first start makes it there, and each daemon and command uses it."""
        for n, section in enumerate(("compactor", "sortdb")):
            data, archive = self.path("data%d" % n), self.path("elsewhere-" + section)
            config = self.write("p.conf", harness.pipeline_config(data, USERS_BY_COUNTRY, **{section: {"archive": archive}}))
            pipeline = harness.Pipeline(self, config, data).wait_ready()
            self.put(pipeline, event("bitly"))
            self.wait_total(pipeline, "bitly", 1)
            self.assertEqual(self.run_program("millrace", "compact", "--config", config).returncode, 0)
            self.assertEqual(self.run_program("millrace", "grep", "--config", config, "bitly").returncode, 0)
            self.wait_total(pipeline, "bitly", 1)
            self.assertEqual((os.path.exists(os.path.join(data, "archive")), os.path.exists(os.path.join(archive, "current"))), (False, True))
            pipeline.interrupt()

    def test_a_damaged_archive_does_not_stop_ingestion(self):
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        done = self.run_program("millrace", "compact", "--config", pipeline.config_path)
        self.assertEqual(done.returncode, 0, done)
        pipeline.interrupt()
        shard, = glob.glob(self.path("data", "archive", "current", "shard-*.csv"))
        harness.flip(shard, os.path.getsize(shard) // 2)
        pipeline = self.up()
        self.assert_ingestion_goes_on(pipeline, "archive")
        wait_until(lambda: self.state(pipeline, "sortdb") == "failed", lambda: pipeline.log)
        status, sortdb = self.status_of("sortdb")
        self.assertEqual((status, sortdb["state"]), (2, "failed"), sortdb)
        self.assertIn(os.path.basename(shard) + ": has checksum", sortdb["detail"])
        look = self.run_program("millrace", "status", "--sample=0", "--config", pipeline.config_path).stdout.decode()
        self.assertIn("\n -> restore the file that the reason names from a backup (millrace help recovery), then restart `millrace up`\n", look)
        pipeline.interrupt()

    def test_a_new_version_takes_the_sockets_over_and_nothing_is_refused(self):
        pipeline = self.up().wait_ready()
        before = {name: d for name, d in pipeline.run_file()["daemons"].items()}
        stop, posted, refused = threading.Event(), [0], []

        def post():
            while not stop.is_set():
                try:
                    reply = pipeline.ask("simplequeue", "POST", "/put", event("bitly"))
                    posted[0] += reply.status == 200
                    if reply.status != 200:
                        refused.append(reply)
                except harness.UNREACHABLE as e:
                    refused.append(e)
        thread = threading.Thread(target=post)
        thread.start()
        wait_until(lambda: posted[0] > 20, "posts")
        os.kill(pipeline.pid, signal.SIGUSR2)
        wait_until(lambda: pipeline.log.count("pipeline ready") == 2, lambda: pipeline.log)
        pipeline.wait_ready()
        at = posted[0]
        wait_until(lambda: posted[0] > at + 20, "posts")
        stop.set()
        thread.join()
        self.assertEqual(refused, [])
        after = pipeline.run_file()["daemons"]
        for name, d in before.items():
            self.assertEqual(after[name]["url"], d["url"])
            self.assertNotEqual(after[name]["pid"], d["pid"])
        self.wait_total(pipeline, "bitly", posted[0])
        pipeline.interrupt()

    def test_a_reporting_side_that_cannot_start_does_not_stop_ingestion(self):
        self.write("archive", "a file, not a directory")
        archive = {"archive": self.path("archive")}
        pipeline = self.up(sortdb=archive, aggregator=archive, compactor={**archive, "every": "1d"}, api={"tokens_file": self.path("none")})
        wait_until(lambda: self.state(pipeline, "queue_to_pubsub") == "ready" and
                   all(said in pipeline.log for said in ("error sortdb cannot serve", "error api cannot start")), lambda: pipeline.log)
        self.put(pipeline, event("late"))
        wait_until(lambda: b"late" in pipeline.ask("pubsub", "GET", "/sub?stream=clicks&from=earliest&follow=0").body,
                   lambda: "the event to be in its stream:\n" + pipeline.log)
        wait_until(lambda: "cannot read the tokens file" in self.status_of("api")[1]["detail"], lambda: self.status_of("api"))
        self.assertEqual((self.state(pipeline, "simplequeue"), self.state(pipeline, "pubsub")), ("ready", "ready"))
        pipeline.interrupt()

    def test_a_stream_that_is_gone_does_not_stop_ingestion(self):
        self.count_one_and_stop()
        shutil.rmtree(self.path("data", "pubsub"))
        pipeline = self.up()
        self.assert_ingestion_goes_on(pipeline)
        wait_until(lambda: self.status_of("aggregator")[1]["state"] == "refusing", lambda: self.status_of("aggregator"))
        detail = self.run_program("millrace", "status", "--data-dir", self.path("data")).stdout.decode()
        self.assertIn("give the stream a new name", detail)
        aggregator = self.status_of("aggregator")[1]
        self.assertEqual((aggregator["lag_seconds"], aggregator["waiting"]), (None, None), aggregator)
        self.assertIn("lag not known", aggregator["detail"])
        pipeline.interrupt()
        pipeline = self.up(millrace={"streams": "clicks2"}, pubsub={"streams": None})
        wait_until(lambda: self.state(pipeline, "aggregator") == "ready", lambda: pipeline.log)
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 2)
        pipeline.interrupt()

    def test_a_restored_stream_is_accepted_by_a_variable(self):
        self.count_one_and_stop()
        for name in ("pubsub", "simplequeue"):
            shutil.copytree(self.path("data", name), self.path("copy", name))
        self.count_one_and_stop(2)
        for name in ("pubsub", "simplequeue"):
            shutil.rmtree(self.path("data", name))
            os.rename(self.path("copy", name), self.path("data", name))
        pipeline = self.up()
        wait_until(lambda: "is a restored copy" in (self.status_of("aggregator")[1]["detail"] or ""), lambda: pipeline.log)
        place = re.search(r"--accept-loss-from=(\d+)", self.status_of("aggregator")[1]["detail"])[1]
        pipeline.interrupt()
        pipeline = harness.Pipeline(self, pipeline.config_path, self.path("data"), env={"MILLRACE_AGGREGATOR_ACCEPT_LOSS_FROM": place})
        pipeline.wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 3)
        pipeline.interrupt()

    def test_a_wrong_setting_of_the_aggregator_stops_the_pipeline(self):
        status, log = self.failing(aggregator={"max_memry": 5})
        self.assertEqual(status, 78, log)
        self.assertIn("max_memry", log)

    def test_the_relay_shows_its_numbers(self):
        pipeline = self.up().wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        # The event may be counted before the relay has read pubsub's reply.
        wait_until(lambda: "millrace_queue_to_pubsub_messages_delivered_total 1\n" in pipeline.ask("queue_to_pubsub", "GET", "/metrics").text,
                   "it to count its delivery")
        wait_until(lambda: self.status_of("queue_to_pubsub")[1]["state"] == "ready", "it to be shown")
        pipeline.interrupt()

    def test_ctrl_c_in_mid_flow_loses_nothing(self):
        n = 0
        for _ in range(3):
            pipeline = self.up().wait_ready()
            for _ in range(40):
                self.put(pipeline, *[event("bitly")] * 25)
                n += 25
            pipeline.interrupt()
        pipeline = self.up().wait_ready()
        self.wait_total(pipeline, "bitly", n)
        pipeline.interrupt()

    def test_killed_itself_it_leaves_nothing_running(self):
        pipeline = self.up().wait_ready()
        pids = [d["pid"] for d in pipeline.run_file()["daemons"].values()]
        pipeline.kill9()

        def gone(pid):
            try:
                os.kill(pid, 0)
                return False
            except ProcessLookupError:
                return True
        wait_until(lambda: all(gone(p) for p in pids), "the daemons to end")
        self.assert_stopped()
        self.up().wait_ready().interrupt()

    def start_beside_orphan(self, **kw):
        """The pipeline whose predecessor was killed while a daemon answers: a client sends its request slowly. Returns the pipeline, once
        its start waits, and the client's socket."""
        config = {"simplequeue": {"port": self.keep_port()}, **kw}
        before = self.up(**config).wait_ready()
        client = socket.create_connection(("127.0.0.1", int(before.daemon_url("simplequeue").rsplit(":", 1)[1])))
        self.addCleanup(client.close)
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIn(b"200", client.recv(1000))
        client.sendall(b"POST /put HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n123")
        self.assertEqual(before.ask("simplequeue", "GET", "/ping").status, 200)  # a turn of its loop later
        before.kill9()
        pipeline = self.up(**config)
        wait_until(lambda: "waiting for the daemons of an earlier start" in pipeline.log, lambda: pipeline.log)
        return pipeline, client

    def test_a_start_waits_for_the_daemons_of_one_that_was_killed(self):
        pipeline, client = self.start_beside_orphan()
        client.close()
        pipeline.wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        pipeline.interrupt()

    def test_a_start_ends_with_75_beside_a_daemon_that_does_not_end(self):
        pipeline, _ = self.start_beside_orphan(millrace={"stop_timeout": "200ms"})
        self.assertEqual(pipeline.process.wait(harness.PATIENCE), 75, pipeline.log)
        self.assertIn("daemons of an earlier start still run", pipeline.log)
        self.assertIn("fuser " + self.path("data", "daemons.lock"), pipeline.log)

    def test_a_reload_and_a_new_version_during_the_start_wait(self):
        pipeline, client = self.start_beside_orphan()
        os.kill(pipeline.pid, signal.SIGHUP)
        os.kill(pipeline.pid, signal.SIGUSR2)
        client.close()
        wait_until(lambda: "configuration read" in pipeline.log and "changing to the new version" in pipeline.log, lambda: pipeline.log)
        pipeline.wait_ready()
        self.put(pipeline, event("bitly"))
        self.wait_total(pipeline, "bitly", 1)
        pipeline.interrupt()

    def test_a_check_that_is_killed_says_nothing_about_the_configuration(self):
        """A program of the build whose check never ends by itself."""
        build = self.path("build")
        for part in ("bin", "libexec"):
            os.makedirs(os.path.join(build, part))
        shutil.copy(harness.program("millrace"), os.path.join(build, "bin"))
        shutil.copytree(os.path.dirname(harness.program("pubsub")), os.path.join(build, "libexec", "millrace"), symlinks=True)
        path = os.path.join(build, "libexec", "millrace", "pubsub")
        os.unlink(path)
        self.write(os.path.relpath(path, self.dir), "#!/bin/sh\nkill -9 $$\n")
        os.chmod(path, 0o755)
        done = subprocess.run([os.path.join(build, "bin", "millrace"), "up", "--config", self.config()], capture_output=True,
                              timeout=harness.LONG, cwd=self.dir)
        self.assertEqual(done.returncode, 75, done)
        self.assertIn(b"ended by signal 9", done.stderr)
        self.assertIn(b"could not be checked", done.stderr)
        self.assertNotIn(b"is wrong", done.stderr)

    def up_with_log(self, log):
        """A pipeline whose log goes to that descriptor."""
        argv = [harness.program("millrace"), "up", "--config", self.config()]
        process = subprocess.Popen(harness.dies_with_us(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir,
                                   env={**os.environ, **harness.PATIENT})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_run_file(self, found, what):
        def look():
            try:
                with open(self.path("data", "run.json")) as f:
                    run = json.load(f)
            except (OSError, ValueError):
                return None
            return run if found(run) else None
        return wait_until(look, what)

    def counts_without_a_log(self, process, break_log):
        """It counts, says how many lines of its log are gone, and Ctrl-C ends it."""
        run = self.wait_run_file(lambda r: r["pid"] == process.pid and all(d["state"] == "ready" for d in r["daemons"].values()), "all to be ready")
        break_log()
        os.kill(run["daemons"]["api"]["pid"], signal.SIGKILL)  # it is restarted, with lines in the log
        run = self.wait_run_file(lambda r: r["log_lines_dropped"] > 0 and r["daemons"]["api"]["state"] == "ready", "lines to be dropped")
        reply = harness.request(run["daemons"]["simplequeue"]["url"], "POST", "/put", event("bitly"))
        self.assertEqual(reply.status, 200, reply)
        done = self.run_program("millrace", "status", "--wait", "--data-dir", self.path("data"))
        self.assertIn(b" lines of the log were dropped", done.stdout)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(harness.PATIENCE), 0)

    def test_without_a_reader_of_its_log_it_goes_on(self):
        """`millrace up 2>&1 | logger`, and the logger is killed."""
        reader, writer = os.pipe()
        process = self.up_with_log(writer)
        os.close(writer)
        drained = threading.Thread(target=self.read_until_closed, args=(reader,), daemon=True)
        drained.start()
        self.counts_without_a_log(process, lambda: (self.stop_reading.set(), drained.join(), os.close(reader)))

    def read_until_closed(self, reader):
        os.set_blocking(reader, False)
        while not self.stop_reading.wait(0.01):
            try:
                os.read(reader, 1 << 16)
            except BlockingIOError:
                pass

    def test_a_reader_of_its_log_that_reads_nothing_stops_nothing(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        other = os.open("/proc/self/fd/%d" % writer, os.O_WRONLY | os.O_NONBLOCK)
        try:
            while os.write(other, b"filler\n" * 9):
                pass
        except BlockingIOError:
            os.close(other)
        process = self.up_with_log(writer)
        os.close(writer)
        self.counts_without_a_log(process, lambda: None)

    def test_tells_its_service_manager(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(self.path("notify"))
            s.settimeout(harness.PATIENCE)
            os.environ["NOTIFY_SOCKET"] = self.path("notify")
            try:
                pipeline = self.up().wait_ready()
            finally:
                del os.environ["NOTIFY_SOCKET"]
            self.assertIn(b"READY=1", s.recv(1000))
            pipeline.interrupt()
            self.assertIn(b"STOPPING=1", s.recv(1000))

    def test_a_full_readiness_socket_loses_no_daemon(self):
        """A daemon becomes ready while `up` cannot take its message: `up` shows it as ready afterwards."""
        pipeline = self.up().wait_ready()
        pubsub = pipeline.daemon_pid("pubsub")
        with open("/proc/%d/environ" % pubsub) as f:
            name = re.search(r"NOTIFY_SOCKET=@([^\0]*)", f.read())[1]
        os.kill(pubsub, signal.SIGSTOP)  # the aggregator cannot catch up
        old = pipeline.kill9_daemon("aggregator")
        wait_until(lambda: pipeline.daemon_pid("aggregator") not in (0, old), "a new aggregator")
        pipeline.process.send_signal(signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while True:
                    s.sendto(b"X=1", b"\0" + name.encode())
            os.kill(pubsub, signal.SIGCONT)
            wait_until(lambda: pipeline.ask("aggregator", "GET", "/health").status == 200, "the aggregator to be ready")
        pipeline.process.send_signal(signal.SIGCONT)
        pipeline.wait_ready()

    def failing(self, *args, **kw):
        up = self.up(*args, **kw)
        status = up.process.wait(harness.PATIENCE)
        return status, up.log

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            status, log = self.failing(pubsub={"port": port})
        self.assertEqual(status, 78, log)
        self.assertIn("pubsub", log)
        self.assertIn("port %d" % port, log)
        self.assertIn("in use", log)
        self.assertIn("process %d (" % os.getpid(), log)
        self.assertIn("listens there: set [pubsub] port, or start with --free-ports", log)

    def test_unknown_setting(self):
        status, log = self.failing(simplequeue={"max_dept": 5})
        self.assertEqual(status, 78, log)
        self.assertIn("max_dept", log)
        self.assertRegex(log, r"pipeline\.conf:\d+")

    def test_a_mistyped_name_is_told_the_right_one(self):
        for counters, name in (("\n[input]\ntiem = t\n", "(did you mean time?)"), (USERS_BY_COUNTRY + "lable = x\n", "(did you mean label?)"),
                               (USERS_BY_COUNTRY + "[pubsbu]\n", "(did you mean [pubsub]?)")):
            status, log = self.failing(counters=counters)
            self.assertEqual(status, 78, log)
            self.assertIn(name, log)

    def test_unknown_daemon(self):
        status, log = self.failing("--run=simplequeue,pubsubb")
        self.assertEqual(status, 78, log)
        self.assertIn("pubsubb", log)

    def test_duplicate_counter(self):
        status, log = self.failing(counters=USERS_BY_COUNTRY + "\n[total u]\nkey = h\n")
        self.assertEqual(status, 78, log)
        self.assertRegex(log, r"pipeline\.conf:\d+.*total u")

    def test_unwritable_directory(self):
        self.write("data", "a file, not a directory")
        status, log = self.failing()
        self.assertEqual(status, 78, log)
        self.assertIn(self.path("data"), log)

    def test_a_directory_has_one_pipeline(self):
        pipeline = self.up().wait_ready()
        status, log = self.failing()
        self.assertEqual(status, 78, log)
        self.assertIn(str(pipeline.pid), log)
        pipeline.interrupt()

    def test_check_config(self):
        config = self.config(pubsub={"sync": "never"})
        done = self.run_program("millrace", "up", "--config", config, "--check-config")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(b"# aggregator", done.stdout)
        self.assertIn(b"not a power cut ([pubsub] sync = never)", done.stdout)
        self.assertFalse(os.path.exists(self.path("data")), "checking makes nothing")
        bad = self.config(pubsub={"sync": "sometimes"})
        done = self.run_program("millrace", "up", "--config", bad, "--check-config")
        self.assertEqual(done.returncode, 78, done)
        self.assertIn(b"sync", done.stderr)
        same = {"pubsub": {"port": 9000}, "simplequeue": {"port": 9000}}
        for sections, said in ((same, "[pubsub] and [simplequeue] have the same port 9000"),
                               ({"aggregator": {"skip_if": "bot = true"}}, "aggregator has no setting skip_if: it belongs in [input]"),
                               ({"sortdb": {"public_path": "/p"}}, "sortdb has no setting public_path: it belongs in [api]"),
                               ({"millrace": {"data_dir": ""}}, "data_dir is empty")):
            done = self.run_program("millrace", "up", "--config", self.config(**sections), "--check-config")
            self.assertEqual((done.returncode, said in done.stderr.decode()), (78, True), done.stderr)
        done = self.run_program("millrace", "up", "--config", self.config(**same), "--check-config", "--free-ports")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_needs_a_configuration(self):
        done = self.run_program("millrace", "up")
        self.assertEqual(done.returncode, 64, done)
        self.assertIn(b"--config", done.stderr)


if __name__ == "__main__":
    harness.main()
