"""millrace status, doctor and forget on the host of an API with cells, which nats_to_pubsub fills: each cell `millrace up` with its own
configuration."""
# seconds: 40
import http.server
import json
import os
import signal
import threading
import time

import harness
from cell_test import CellTest, Host
from harness import USERS_BY_COUNTRY, wait_until

NAMES = ("east", "west")
DAEMONS = ("nats_to_pubsub", "pubsub", "aggregator", "sortdb")
T = 1332633600


class Cells(CellTest):
    def setUp(self):
        super().setUp()
        self.ports = {name: {daemon: self.keep_port() for daemon in DAEMONS} for name in NAMES}
        self.partitions = dict(zip(NAMES, ("0-31", "32-63")))
        self.cells = {}

    def up_cell(self, name, counters=USERS_BY_COUNTRY, daemons=DAEMONS):
        sections = {daemon: {"port": port} for daemon, port in self.ports[name].items()}
        sections["nats_to_pubsub"].update(nats_url=self.server.url, nats_timeout="1s", partitions=self.partitions[name])
        config = self.write(name + ".conf", harness.pipeline_config(
            self.path(name), counters, millrace={"run": " ".join(daemons)}, **sections))
        self.cells[name] = harness.Pipeline(self, config, self.path(name))

    def sections(self, **more):
        """`more`: further settings of each cell."""
        return "".join("[cell %s]\n" % name + "".join("%s_url = http://127.0.0.1:%s\n" % of for of in self.ports[name].items()) + more.get(name, "")
                       for name in NAMES)

    def begin(self, counters=USERS_BY_COUNTRY, **more):
        """Two cells, and the host of the API. `counters` are those of west."""
        self.add_stream(max_age=7 * 86400 * 10**9)
        self.up_cell("east")
        self.up_cell("west", counters)
        self.config = self.write("api.conf", harness.pipeline_config(
            self.path("api"), self.sections(**more) + USERS_BY_COUNTRY, millrace={"run": "api"},
            aggregator={"port": self.ports["east"]["aggregator"]}))  # does not run here
        self.api = harness.Pipeline(self, self.config, self.path("api"))
        for pipeline in (*self.cells.values(), self.api):
            pipeline.wait_ready()

    def begin_hosts(self, n, *users):
        """At least two hosts with queues of both cells, each with n events of each user. The id of a queue is random."""
        self.hosts = []
        while len(self.hosts) < 2 or {host.partition // 32 for host in self.hosts} != {0, 1}:
            self.hosts.append(Host(self, "app%d" % len(self.hosts), "--settle-after=1h"))
            self.hosts[-1].put([b'{"t":%d,"l":"%s","c":"JP"}' % (T + i, user.encode()) for i in range(n) for user in users])
        for host in self.hosts:
            host.wait_published()

    def counted(self):
        return sum(int(cell.ask("aggregator", "GET", "/stats?format=json").json()["events_total"]) for cell in self.cells.values())

    def tool(self, *args):
        return self.run_program("millrace", *args, "--config", self.config)

    def look_until(self, holds):
        def look():
            done = self.tool("status", "--sample=0", "--json")
            self.shown = done.returncode, json.loads(done.stdout)
            return holds(*self.shown) and self.shown[1]
        return wait_until(look, lambda: str(self.shown))

    def look_for(self, *problems):
        """Until status shows each of these."""
        return self.look_until(lambda _, look: all(any(text in p["problem"] for p in look["problems"]) for text in problems))

    def doctor_until(self, *texts):
        def found():
            self.shown = self.tool("doctor", "--fast").stdout.decode()
            return all(text in self.shown for text in texts)
        wait_until(found, lambda: "%s in\n%s" % (texts, self.shown))


class CellTools(Cells):
    def test_cells_are_shown(self):
        self.begin()
        self.begin_hosts(20, "a")
        total = 20 * len(self.hosts)
        wait_until(lambda: self.counted() == total, "all to be counted")
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.path("west.conf")).returncode, 0)
        look = self.look_until(lambda status, look: status == 0 and all(
            c["state"] == "ready" and c["complete_until"] and c["lag_seconds"] is not None for c in look["cells"]))
        self.assertEqual([(c["cell"], c["partitions"], c["not_ready"]) for c in look["cells"]],
                         [(name, self.partitions[name], None) for name in NAMES])
        self.assertLessEqual(look["complete_until"], min(c["complete_until"] for c in look["cells"]))
        self.assertTrue(all(c["disk_free_bytes"] > 0 for c in look["cells"]), look["cells"])
        self.assertIsNone(look["cells"][0]["archive_made"])
        made = look["cells"][1]["archive_made"]
        text = self.tool("status", "--sample=0").stdout.decode()
        self.assertRegex(text, r"(?m)^west +ready +20\S+Z +\d+\.\d s +[\d.]+ \wB +32-63$")
        history = lambda: self.api.ask("api", "GET", "/v1/pipeline").json()["history"]
        wait_until(lambda: history() and history()[-1]["archive_made"] == made, lambda: "the age of the archive: %s" % history())
        self.doctor_until("2 cells count like this configuration", "2 cells run ",
                          "%d ids of %d queues are copied = %d counted + 0 skipped + 0 rejected in 2 cells + 0 without a line" % (
                              total, len(self.hosts), total))
        self.cells["west"].interrupt()
        look = self.look_for("nats_to_pubsub of cell west (http://127.0.0.1:%s) is unreachable" % self.ports["west"]["nats_to_pubsub"],
                             "west/aggregator")
        self.assertEqual((look["cells"][1]["state"], look["cells"][1]["not_ready"]), ("unreachable", "nats_to_pubsub"))
        self.assertEqual(look["level"], "down")
        self.doctor_until("conservation: not compared: aggregator of cell west: ")

    def test_cells_that_do_not_fit_together_are_named(self):
        self.partitions["west"] = "30-50"
        self.begin(USERS_BY_COUNTRY.replace("key = c", "key = country"))
        self.look_for("cell west counts differently from this configuration", "cells east and west copy partitions 30-31 of clicks",
                             "no cell copies partitions 51-63 of clicks")
        self.look_until(lambda status, look: look["level"] == "needs attention")  # a busy daemon may be late once
        self.doctor_until("cell west counts otherwise: there `subtotal c.u key = c` is missing", "1 cell counts like this configuration")

    def test_a_cell_without_addresses_is_named(self):
        self.config = self.write("api.conf", harness.pipeline_config(
            self.path("api"), "[cell east]\nsortdb_url = http://127.0.0.1:1\n" + USERS_BY_COUNTRY, millrace={"run": "api"}))
        done = self.tool("doctor", "--fast")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("conservation: not compared: cell east has no aggregator_url", done.stdout.decode())

    def test_doctor_asks_all_cells_at_once(self):
        """So cells that hang cost one timeout together: each of these cells replies once all are asked."""
        barrier = threading.Barrier(3, timeout=harness.LONG)

        class Aggregator(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                if handler.path == "/counters":
                    barrier.wait()
                handler.send_response(200)
                handler.send_header("Content-Length", "2")
                handler.end_headers()
                handler.wfile.write(b"{}")

            def log_message(handler, *args):
                pass

        servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Aggregator) for _ in range(3)]
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        self.config = self.write("api.conf", harness.pipeline_config(self.path("api"), "".join(
            "[cell c%d]\narchive = /none/%d\naggregator_url = http://127.0.0.1:%d\n" % (i, i, server.server_port)
            for i, server in enumerate(servers)) + USERS_BY_COUNTRY, millrace={"run": "api"}))
        text = self.tool("doctor", "--fast").stdout.decode()
        self.assertEqual(text.count("counts otherwise: there"), 3, text)

    def test_a_queue_of_two_cells_counts_twice(self):
        self.partitions["west"] = "0-63"
        self.begin()
        self.begin_hosts(10, "a")
        doubled = sum(host.partition < 32 for host in self.hosts)
        total = 10 * (len(self.hosts) + doubled)
        wait_until(lambda: self.counted() == total, "all to be counted")
        self.doctor_until("%d ids of %d queues are copied, but %d counted" % (10 * len(self.hosts), len(self.hosts), total))


class Forget(Cells):
    NAME = "o'hara-the-forgotten"

    def shell(self):
        return "shell = PATH=%s:$PATH sh\n" % os.path.dirname(harness.program("millrace"))

    def files_with(self, text):
        found = []
        for name in NAMES:
            for directory, _, files in os.walk(self.path(name)):
                found += [os.path.join(directory, f) for f in files
                          if os.path.isfile(os.path.join(directory, f)) and text in harness.read_file(os.path.join(directory, f))]
        return found

    def forget(self, expect, *args):
        done = self.tool("forget", "--field=l", "--value=" + self.NAME, *args)
        self.assertEqual(done.returncode, expect, done)
        return done.stdout.decode()

    def begin_with(self, **settings):
        self.begin(**{name: "config = %s\n" % self.path(name + ".conf") + more for name, more in settings.items()})
        self.begin_hosts(5, self.NAME, "a")
        wait_until(lambda: self.counted() == 10 * len(self.hosts), "all to be counted")
        self.assertTrue(self.files_with(self.NAME.encode()))

    def test_a_value_is_erased_in_all_cells(self):
        self.begin_with(east=self.shell(), west=self.shell())
        dry = self.forget(0, "--dry-run")
        self.assertRegex(dry, r"(?s)cell +east .*stream +clicks +\d+ of \d+ lines match.*cell +west .*stream +clicks +\d+ of \d+ lines match")
        self.assertTrue(self.files_with(self.NAME.encode()))
        copier = self.cells["west"].daemon_pid("nats_to_pubsub")
        os.kill(copier, signal.SIGSTOP)
        text = self.forget(75, "--wait=1s")
        self.assertRegex(text, r"cell +west +nats_to_pubsub of cell west: .*; events that it copies later remain")
        os.kill(copier, signal.SIGCONT)
        self.cells["east"].interrupt()
        text = self.forget(75, "--wait=2s")
        self.assertRegex(text, r"cell +east +not done \(status \d+\); repeat the command")
        self.assertRegex(text, r"cell +west +done")
        self.up_cell("east")
        self.cells["east"].wait_ready()
        text = self.forget(0, "--wait=%ds" % harness.PATIENCE)
        self.assertRegex(text, r"kept +JetStream +the text, until 20\S+Z \(max_age of the stream\)")
        self.assertEqual(self.files_with(self.NAME.encode()), [])
        series = self.api.ask("api", "GET", "/v1/series?user=a&period=all&unit=month").json()
        self.assertEqual(series["total"], 5 * len(self.hosts))

    def test_the_cell_of_this_host_is_erased_after_its_copies(self):
        self.add_stream(max_age=7 * 86400 * 10**9)
        self.up_cell("west")
        self.up_cell("east", self.sections(west="config = %s\n" % self.path("west.conf") + self.shell()) + USERS_BY_COUNTRY, (*DAEMONS, "api"))
        self.config = self.path("east.conf")
        for pipeline in self.cells.values():
            pipeline.wait_ready()
        self.begin_hosts(5, self.NAME, "a")
        wait_until(lambda: self.counted() == 10 * len(self.hosts), "all to be counted")
        copier = self.cells["east"].daemon_pid("nats_to_pubsub")
        os.kill(copier, signal.SIGSTOP)
        text = self.forget(75, "--wait=1s")
        os.kill(copier, signal.SIGCONT)
        self.assertRegex(text, r"^cell +east .*; events that it copies later remain\n")
        self.forget(0, "--wait=%ds" % harness.PATIENCE)
        self.assertEqual(self.files_with(self.NAME.encode()), [])

    def test_a_queue_that_is_never_empty_on_the_host_of_an_app(self):
        """queue_to_nats keeps the messages of the last second, and shows what it has settled."""
        self.add_stream(max_age=7 * 86400 * 10**9)
        self.config = self.write("app.conf", harness.pipeline_config(
            self.path("app"), USERS_BY_COUNTRY, millrace={"run": "simplequeue queue_to_nats"}, simplequeue={"port": self.keep_port()},
            queue_to_nats={"port": self.keep_port(), "nats_url": self.server.url, "settle_after": "1s", "replicas": 1}))
        app = harness.Pipeline(self, self.config, self.path("app")).wait_ready()
        is_ended = threading.Event()

        def put():
            while not is_ended.is_set():
                app.ask("simplequeue", "POST", "/mput", b'{"t":%d,"l":"a","c":"JP"}' % T)
                time.sleep(0.01)
        putter = threading.Thread(target=put, daemon=True)
        putter.start()
        self.addCleanup(putter.join)
        self.addCleanup(is_ended.set)
        depth = lambda: app.ask("simplequeue", "GET", "/stats?format=json").json()["queues"]["default"]["depth"]
        wait_until(lambda: depth() > 0, "messages in the queue")
        text = self.forget(0, "--wait=%ds" % harness.PATIENCE)
        self.assertIn("files of acknowledged messages are deleted\n", text)
        self.assertGreater(depth(), 0)

    def test_what_cannot_be_erased_is_named(self):
        """A cell without a shell, and partitions that no cell copies."""
        self.partitions["west"] = "32-62"
        self.begin_with(east=self.shell(), west="")
        text = self.forget(75, "--wait=%ds" % harness.PATIENCE)
        self.assertRegex(text, r"cells +no cell copies partitions 63 of clicks; their events are not erased")
        self.assertIn("not done: on its host, run millrace forget --local --config='%s' --field='l' --value='o'\\''hara-the-forgotten' --wait=%d000ms" %
                      (self.path("west.conf"), harness.PATIENCE), text)
        self.assertTrue(all(path.startswith(self.path("west")) for path in self.files_with(self.NAME.encode())))
        self.assertNotIn("cell ", self.forget(0, "--local"))


if __name__ == "__main__":
    harness.main()
