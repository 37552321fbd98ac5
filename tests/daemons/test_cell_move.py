"""`millrace cell move` with two cells and a real nats-server, under load: the command is killed after each of its requests and
repeated. Each event is in one cell, in the order of its queue, and no answer's complete_until is too late."""
# seconds: 100
# parts: 5
import base64
import contextlib
import shutil
import signal
import subprocess
import threading
import time

import harness
import http_stub
from cell_test import Cell, CellTest, Host, Putter
from harness import query, request, wait_until
from nats_test import Client


class Proxy:
    """In front of a cell's pubsub. Calls `before` before each request that changes something, and `on_change` after it, before its
    reply."""

    def __init__(self, test, url, before, on_change=lambda path: None):
        class Handler(http_stub.Handler):
            def forward(handler):
                body = handler.body()
                if handler.command == "POST":
                    before()
                try:
                    reply = request(url, handler.command, handler.path, body)
                except harness.UNREACHABLE:
                    handler.close_connection = True  # the cell is down
                    return
                if handler.command == "POST":
                    on_change(handler.path)
                headers = {name.replace("-", "_"): reply.headers[name] for name in ("X-Millrace-Era", "X-Millrace-Time")
                           if name in reply.headers}
                with contextlib.suppress(BrokenPipeError):  # the command was killed
                    handler.reply(reply.status, reply.body, **headers)

            do_GET = do_POST = forward

        self.url = http_stub.serve(test, Handler).url


class CellMove(CellTest):
    def setUp(self):
        super().setUp()
        self.kill_at = self.changes = self.hold_at = None
        self.hosts = [Host(self, "app%d" % i, "--settle-after=1h") for i in range(2)]
        self.write("c.conf", "[input]\ntime = t\n[total q]\nkey = q\n")
        self.write("api.conf", "")
        self.write("direct.conf", "")
        self.cells, self.aggregators = {}, {}
        self.add_cell("east", "0-63")
        self.add_cell("west", "none")

    def add_cell(self, name, partitions):
        cell = self.cells[name] = Cell(self, name, partitions)
        self.aggregators[name] = self.start("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path(name + ".a"),
                                            "--pubsub-url=" + cell.url, "--streams=clicks")
        for config, url in (("api.conf", Proxy(self, cell.url, self.before, self.on_change).url), ("direct.conf", cell.url)):
            with open(self.path(config), "a") as f:
                f.write("[cell %s]\npubsub_url = %s\naggregator_url = %s\narchive = /none/%s\n" % (
                    name, url, self.aggregators[name].url, name))

    def before(self):
        self.sent += 1
        if self.sent == self.hold_at:
            self.is_held.set()
            self.release.wait()

    def on_change(self, path):
        self.changes.append(path)
        if self.kill_at == len(self.changes) or (isinstance(self.kill_at, str) and self.kill_at in path):
            self.command.kill()
            self.command.wait()

    def start_held(self, at, *args):
        """Starts a command that sleeps before its request number `at`. Returns False if it has ended without this request."""
        self.changes, self.sent, self.hold_at = [], 0, at
        self.is_held, self.release = threading.Event(), threading.Event()
        self.addCleanup(self.release.set)
        self.command = subprocess.Popen([harness.program("millrace"), "cell", "--config=" + self.path("api.conf"), *args, "--free-after=0"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait_until(lambda: self.is_held.is_set() or self.command.poll() is not None, "the command to sleep")
        return self.is_held.is_set()

    def wake(self):
        self.hold_at = None
        self.release.set()
        self.output = self.command.communicate(timeout=harness.LONG)[1].decode()
        return self.command.returncode

    def cell(self, *args):
        return self.run_program("millrace", "cell", "--config=" + self.path("api.conf"), *args)

    def move(self, partition, to, kill_at=None):
        """Returns its exit status, below 0 after a kill: after so many changes, or after a change with this text."""
        self.changes, self.kill_at, self.sent = [], kill_at, 0
        self.command = subprocess.Popen([harness.program("millrace"), "cell", "--config=" + self.path("api.conf"), "move",
                                         str(partition), "--to=" + to, "--free-after=0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while self.command.poll() is None:
            self.check_time(*(name for name in self.cells if name != to), to)
        self.output = self.command.communicate()[1].decode()
        return self.command.returncode

    def check_time(self, *cells):
        """The new cell is asked last: the times of the old one are freed only when those of the new one are held."""
        acknowledged = [putter.acknowledged[:] for putter in self.putters]
        replies = [self.aggregators[name].get("/range?start=&end=%ff") for name in cells]
        complete = min(int(reply.headers["X-Millrace-Complete-Until"]) for reply in replies)
        counted = sum(int(line.rsplit(b":", 1)[1]) for reply in replies for line in reply.body.splitlines())
        accepted = sum(max((n for at, n in list_ if at < complete), default=0) for list_ in acknowledged)
        self.assertGreaterEqual(counted, accepted)

    def put(self):
        self.putters = [Putter(host, 1 << 60) for host in self.hosts]
        for putter in self.putters:
            putter.start()
        east = self.cells["east"]  # a queue that has published nothing yet holds no time back
        wait_until(lambda: all(east.producer(host)["mark"] != "0" for host in self.hosts), "the first lines of each queue")
        end = int(harness.request(east.url, "GET", "/streams").json()["streams"][0]["end"])
        wait_until(lambda: int(self.aggregators["east"].stats()["streams"]["clicks"]["offset"]) >= end, "the first counts")

    def stop_put(self):
        for putter in self.putters:
            putter.until = 0
        for putter in self.putters:
            putter.join()
            putter.until = putter.n

    def check_lines(self):
        """Each event once. Each cell has the events of its turns in their order."""
        expected = sorted(event for putter in self.putters for event in putter.events)
        wait_until(lambda: sum(len(cell.lines) for cell in self.cells.values()) >= len(expected),
                   lambda: "%d lines, there are %s" % (len(expected), {name: len(cell.lines) for name, cell in self.cells.items()}))
        self.assertEqual(sorted(line for cell in self.cells.values() for line in cell.lines), expected)
        for cell in self.cells.values():
            lines = cell.lines
            for host in self.hosts:
                numbers = [int(line.rsplit(b":", 1)[1][:-1]) for line in lines if b'"%s"' % host.name.encode() in line]
                self.assertEqual(numbers, sorted(numbers))

    def owner(self, partition):
        return self.cell("list").stdout.decode().splitlines()[partition]

    def test_a_move_that_is_killed_after_each_request(self):
        self.put()
        host = self.hosts[0]
        to, killed, moves = "west", 0, 0
        while True:
            killed += 1
            is_killed = self.move(host.partition, to, killed) < 0
            if is_killed:
                self.assertEqual(self.move(host.partition, to), 0, self.output)
            moves += 1
            self.assertEqual(self.owner(host.partition), "%2d %s move %d" % (host.partition, to, moves))
            until = self.cells[to].producer(host)
            wait_until(lambda: self.cells[to].producer(host)["mark"] != until["mark"], "lines in the new cell")
            to = "east" if to == "west" else "west"
            if not is_killed:
                break
        self.assertGreaterEqual(killed, 6)
        self.stop_put()
        self.check_lines()

    def test_two_moves_in_opposite_directions_that_are_killed(self):
        """Each at each step, then repeated. Neither waits for a time that the other one holds back."""
        while self.hosts[0].partition == self.hosts[1].partition:
            self.hosts[1] = Host(self, self.hosts[1].name + "b", "--settle-after=1h")
        self.put()
        self.move_directly(self.hosts[1].partition, "west")
        goals, kill_at, is_killed = ["west", "east"], 0, True
        while is_killed:
            kill_at += 1
            moves = list(zip(self.hosts, goals))
            is_killed = any([self.move(host.partition, to, kill_at) < 0 for host, to in moves])
            for host, to in moves if kill_at % 2 else moves[::-1]:
                self.assertEqual(self.move(host.partition, to), 0, self.output)
            for host, to in moves:
                self.assertIn(" %s move " % to, self.owner(host.partition))
                self.wait_lines_of(host, to)
            goals.reverse()
        self.assertGreaterEqual(kill_at, 6)
        self.stop_put()
        self.check_lines()

    def move_directly(self, partition, to):
        r = self.run_program("millrace", "cell", "--config=" + self.path("direct.conf"), "move", str(partition), "--to=" + to,
                             "--free-after=0")
        self.assertEqual(r.returncode, 0, r.stderr)

    def test_two_commands_to_different_cells(self):
        self.add_cell("north", "none")
        self.put()
        host = self.hosts[0]
        self.assertTrue(self.start_held(1, "move", str(host.partition), "--to=west"))
        self.move_directly(host.partition, "north")
        self.assertEqual(self.wake(), 75)
        self.assertIn("another command", self.output)
        mark = self.cells["north"].producer(host)["mark"]
        wait_until(lambda: self.cells["north"].producer(host)["mark"] != mark, "lines in the new cell")
        self.assertEqual(self.owner(host.partition), "%2d north move 1" % host.partition)
        self.stop_put()
        self.check_lines()

    def test_a_command_that_sleeps_before_each_request_while_the_partition_returns(self):
        self.put()
        host, east = self.hosts[0], self.cells["east"]
        at = 1
        while self.start_held(at, "move", str(host.partition), "--to=west"):
            self.move_directly(host.partition, "west")
            self.move_directly(host.partition, "east")
            wait_until(lambda: not east.producer(host)["left_out"], "a time in the old cell")
            host.relay.kill9()  # the queue states no time any more
            self.assertEqual(self.wake(), 75, self.output)
            self.assertIn("another command", self.output)
            self.assertFalse(east.producer(host)["left_out"])
            host.start_relay()
            at += 1
        self.assertGreaterEqual(at, 5)
        self.stop_put()
        self.check_lines()

    def test_a_copy_from_before_the_move_stops(self):
        self.put()
        host, east = self.hosts[0], self.cells["east"]
        self.back_up(east)
        self.assertEqual(self.move(host.partition, "west"), 0)
        wait_until(lambda: self.claim(host.partition) == b"1", "the claim")
        self.api("STREAM.PURGE.clicks", filter="clicks.%d.owner" % host.partition)
        self.cells["west"].restart_copier()
        wait_until(lambda: self.claim(host.partition) == b"1", "the claim that the stream has lost")
        mark = self.cells["west"].producer(host)["mark"]
        wait_until(lambda: self.cells["west"].producer(host)["mark"] != mark, "lines in the new cell")
        east.copier.kill9()
        self.restore(east)
        mark = east.producer(host)["mark"]
        east.start_copier()
        east.wait_trouble("partition %d has moved to another cell (move 1)" % host.partition)
        other = east.producer(self.hosts[1])["mark"]
        if self.hosts[1].partition != host.partition:
            wait_until(lambda: east.producer(self.hosts[1])["mark"] != other, "lines of the other partition")
        self.assertEqual(self.move(host.partition, "west"), 0)
        self.assertIn("copy from before the move", self.output)
        wait_until(lambda: east.health().status == 200, "/health to be well")
        self.assertEqual(east.producer(host)["mark"], mark)
        self.assertTrue(east.producer(host)["left_out"])
        self.stop_put()

    def back_up(self, cell):
        cell.copier.kill9()
        cell.pubsub.stop()
        shutil.copytree(self.path(cell.name), self.path("copy"))
        cell.start_pubsub()
        cell.start_copier()

    def restore(self, cell):
        """Without its copier."""
        cell.pubsub.stop()
        shutil.rmtree(self.path(cell.name))
        shutil.copytree(self.path("copy"), self.path(cell.name))
        cell.start_pubsub()

    def wait_lines_of(self, host, name):
        mark = self.cells[name].producer(host)["mark"]
        wait_until(lambda: self.cells[name].producer(host)["mark"] != mark, "lines of %s in %s" % (host.name, name))

    def test_a_move_ends_an_interrupted_one_before_it_begins(self):
        """Otherwise the cell that it leaves may be complete beyond events that it has not counted, when no other cell waits for them."""
        self.add_cell("north", "none")
        self.put()
        host = self.hosts[0]
        self.assertLess(self.move(host.partition, "west", "opening=owned"), 0)
        self.wait_lines_of(host, "west")
        self.assertEqual(self.move(host.partition, "north"), 0, self.output)
        states = [path.split("opening=")[1].split("&")[0] for path in self.changes
                  if "producer=partition.%d&" % host.partition in path and "opening=" in path]
        self.assertEqual(states, ["left.west", "leaving.north", "arriving", "owned", "left.north"])
        self.assertTrue(self.cells["east"].producer(host)["left_out"])
        self.assertEqual(self.owner(host.partition), "%2d north move 2" % host.partition)
        self.assertIn("back up cell east now", self.output)
        self.assertEqual(self.move(host.partition, "west"), 0, self.output)
        self.assertEqual(self.output.count("back up cell"), 1)
        self.stop_put()
        self.check_lines()

    def test_an_owner_that_is_restored_gets_the_marks_of_the_last_one(self):
        self.add_cell("north", "none")
        self.put()
        host, west = self.hosts[0], self.cells["west"]
        self.back_up(west)
        self.move_directly(host.partition, "north")
        self.wait_lines_of(host, "north")
        self.assertLess(self.move(host.partition, "east", "opening=owned"), 0)
        self.wait_lines_of(host, "east")
        self.move_directly(host.partition, "west")
        self.wait_lines_of(host, "west")
        west.copier.kill9()
        self.restore(west)
        self.move_directly(host.partition, "west")
        west.start_copier()
        self.wait_lines_of(host, "west")
        self.assertEqual(self.owner(host.partition), "%2d west move 3" % host.partition)
        self.stop_put()
        self.check_lines()

    def test_the_old_cell_is_free_after_the_new_one_is_held(self):
        """The aggregator of the new cell stops for longer than free_after, and then is complete at once."""
        replied, left = [], []

        class Aggregator(http_stub.Handler):
            def do_GET(handler):
                replied.append(time.monotonic())
                handler.reply(200, b'{"streams":{"clicks":{"complete_until":%d}}}' % (time.time() + 3600))

        aggregator = http_stub.serve(self, Aggregator).url
        pubsub = Proxy(self, self.cells["east"].url, lambda: None,
                       lambda path: left.append(time.monotonic()) if "opening=left" in path else None)
        self.write("late.conf", "".join("[cell %s]\npubsub_url = %s\naggregator_url = %s\narchive = /none/%s\n" % (
            name, url, aggregator, name) for name, url in (("east", pubsub.url), ("west", self.cells["west"].url))))
        wait_until(lambda: self.owner(5) == " 5 east", "the partitions of east")
        r = self.run_program("millrace", "cell", "--config=" + self.path("late.conf"), "move", "5", "--to=west", "--free-after=2s")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertGreaterEqual(left[0] - replied[0], 2)

    def test_a_silent_queue_holds_no_time_back_after_a_move(self):
        self.putters = []
        host, east, west = self.hosts[0], self.cells["east"], self.cells["west"]
        host.put([Putter(host, 1).event(0)])
        wait_until(lambda: east.producer(host)["mark"] == "2" and east.producer(host).get("until"), "a time of the queue")
        host.relay.kill9()
        reply = request(east.url, "POST", "/producers?" + query(stream="clicks", producer=host.id, left_out=1))
        self.assertEqual(reply.status, 200)
        self.assertTrue(east.producer(host)["left_out"])
        self.assertEqual(self.move(host.partition, "west"), 0, self.output)
        self.assertEqual(west.producer(host)["mark"], "2")

        def has_read(stats):
            return stats["messages_read_total"] > 0 and stats["unread_queues"] == 0
        for _ in range(2):  # a copier repeats the last statement at its start
            wait_until(lambda: has_read(west.copier.wait_ready().stats()), "the copier to have read the queue")
            self.assertTrue(west.producer(host)["left_out"])
            west.restart_copier()
        host.start_relay()
        wait_until(lambda: west.producer(host).get("left_out") is False, "a time of the queue in the new cell")

    def test_a_cell_whose_pubsub_is_restored_reads_the_claims_again(self):
        """Its copier sleeps meanwhile, and the record of the partition is the one that it knows."""
        self.put()
        host, east = self.hosts[0], self.cells["east"]
        for to in ("west", "east"):
            self.move_directly(host.partition, to)
        wait_until(lambda: self.claim(host.partition) == b"2", "the claim")
        self.back_up(east)
        self.wait_lines_of(host, "east")
        east.copier.process.send_signal(signal.SIGSTOP)
        self.move_directly(host.partition, "west")
        wait_until(lambda: self.claim(host.partition) == b"3", "the second claim")
        self.restore(east)
        mark = east.producer(host)["mark"]
        east.copier.process.send_signal(signal.SIGCONT)
        east.wait_trouble("partition %d has moved to another cell (move 3)" % host.partition)
        self.assertEqual(east.producer(host)["mark"], mark)
        self.stop_put()

    def test_a_publish_that_waits_while_pubsub_is_restored(self):
        """It is of a time before the move, as pubsub's log is again."""
        host, east = self.hosts[0], self.cells["east"]
        gate, is_held = threading.Event(), threading.Event()
        gate.set()
        self.addCleanup(gate.set)
        proxy = Proxy(self, east.url, lambda: gate.is_set() or is_held.set() or gate.wait())
        east.copier.kill9()
        copier = self.daemon("nats_to_pubsub", "--pubsub-url=" + proxy.url, "--nats-url=" + self.server.url, "--nats-timeout=1s")
        host.put([Putter(host, 1).event(0)])
        wait_until(lambda: east.producer(host)["mark"] == "2", "the first line")
        gate.clear()
        host.put([Putter(host, 1).event(1)])
        wait_until(is_held.is_set, "a publish to wait")
        east.pubsub.stop()
        shutil.copytree(self.path("east"), self.path("copy"))
        east.start_pubsub()
        self.move_directly(host.partition, "west")
        self.cells["west"].wait_lines([Putter(host, 1).event(1)])
        self.restore(east)
        gate.set()
        wait_until(lambda: "has moved to another cell (move 1)" in copier.wait_listening().get("/health").text, "the claim")
        self.assertEqual(east.producer(host)["mark"], "2")

    def claim(self, partition):
        reply = Client(self.server).api("STREAM.MSG.GET.clicks", last_by_subj="clicks.%d.owner" % partition)
        return "message" in reply and base64.b64decode(reply["message"]["data"])

    def test_what_is_refused(self):
        for args, why in ((["move", "64", "--to=east"], "from 0 to 63"), (["move", "1"], "--to"), (["move", "1", "--to=x"], "no section"),
                          (["x"], "give list")):
            r = self.cell(*args)
            self.assertEqual(r.returncode, 64)
            self.assertIn(why, r.stderr.decode())
        wait_until(lambda: self.owner(5) == " 5 east", "the partitions of east")
        self.putters = []
        self.assertLess(self.move(5, "west", 1), 0)
        self.assertIn("leaves east: millrace cell move 5 --to=west", self.owner(5))
        wait_until(lambda: "partition 5 is on its way to cell west" in self.cells["east"].health().text, "a warning")
        self.assertEqual(self.cells["east"].health().status, 200)
        self.assertEqual(self.cell("move", "5", "--to=east").returncode, 64)
        self.assertEqual(self.move(5, "west"), 0)
        self.assertEqual(self.owner(5), " 5 west move 1")
        self.cells["west"].pubsub.stop()
        r = self.cell("move", "6", "--to=west")
        self.assertEqual(r.returncode, 75)
        self.assertIn("cell west", r.stderr.decode())


if __name__ == "__main__":
    harness.main()
