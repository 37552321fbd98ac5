"""Queues, relays, nats-server, pubsubs and copiers killed with -9 and stopped with SIGSTOP at random while numbered events flow,
their links to the server cut, and the server restored to an older copy of its directory: the cells together have each event once, in the
order of its queue. Also while partitions move between cells, by commands that are killed and stopped."""
# full: MILLRACE_ROUNDS=30
# parts: 2
import collections
import contextlib
import random
import signal
import subprocess
import threading
import time

import harness
from cell_test import Cell, CellTest, Host, Putter
from harness import wait_until
from nats_test import Client, Link

EVENTS_A_ROUND = 3000
SETTLE_SECONDS = 5


class Mover(threading.Thread):
    """Moves the partitions of hosts between cells, by commands that are killed or stopped at random."""

    def __init__(self, test, config):
        super().__init__(daemon=True)
        self.test, self.config, self.random = test, config, random.Random(test.random.random())
        self.is_ended, self.statuses = False, collections.Counter()

    def command(self, host, cell):
        return [harness.program("millrace"), "cell", "--config=" + self.config, "move", str(host.partition), "--to=" + cell.name, "--free-after=0"]

    def run(self):
        while not self.is_ended:
            host, cell = self.random.choice(self.hosts), self.random.choice(self.test.cells)
            command = subprocess.Popen(self.command(host, cell), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            act = self.random.choice((None, signal.SIGKILL, signal.SIGSTOP))
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(self.random.uniform(0, 0.3) if act else 5)
            if act == signal.SIGSTOP:  # other commands follow before it wakes up
                command.send_signal(act)
                self.test.addCleanup(command.kill)
                self.sleeping.append(command)
                if len(self.sleeping) > 3:
                    self.sleeping.pop(0).send_signal(signal.SIGCONT)
            else:  # it may wait for another move that was interrupted
                command.kill()
            if act != signal.SIGSTOP:
                self.statuses[command.wait()] += 1

    def begin(self, hosts):
        self.hosts, self.sleeping = hosts, []
        self.start()

    def end(self):
        """Ends each move."""
        self.is_ended = True
        self.join()
        for command in self.sleeping:
            command.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(5)
            command.kill()
            self.statuses[command.wait()] += 1
        left = list(self.hosts)

        def end_one():
            for host in left[:]:
                for cell in self.test.cells:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        done = subprocess.run(self.command(host, cell), capture_output=True, timeout=5)
                        if done.returncode == 0:
                            left.remove(host)
                            break
            return not left
        wait_until(end_one, lambda: "the moves of %s to end" % [host.name for host in left])


class KillCells(CellTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.links = []

    def nats_url(self):
        self.links.append(Link(self, self.server.port))
        return self.links[-1].url

    def cut_a_link(self):
        """Until the program in front of it connects again, or has ended."""
        link = self.random.choice(self.links)
        programs = {host.nats_url: host.relay for host in self.hosts} | {cell.nats_url: cell.copier for cell in self.cells}
        made = link.made
        link.cut()
        wait_until(lambda: link.made > made or not programs[link.url].alive(), lambda: "another connection\n" + programs[link.url].log)
        link.mend()
        self.start_ended()

    def restore_server(self):
        """A copy from before some messages that the relays know to be stored."""
        self.server.kill9()
        copied = time.monotonic()
        self.server.copy("older")
        self.server.start()
        relay, putter = self.hosts[0].relay.wait_ready(), self.putters[0]
        stored = relay.stats()["messages_delivered_total"]
        wait_until(lambda: relay.stats()["messages_delivered_total"] > stored or putter.n == putter.until, "more to be stored")
        self.server.kill9()
        if time.monotonic() - copied < SETTLE_SECONDS:  # else the queues may rightly have deleted what the copy has not
            self.server.restore("older")
        self.server.start()

    def acts(self):
        yield self.kill_server
        yield self.restore_server
        yield self.pause_server
        yield self.cut_a_link
        yield self.cut_a_link
        for host in self.hosts:
            yield host.kill_queue
            yield host.kill_relay
        for cell in self.cells:
            yield cell.restart_copier
            yield cell.kill_pubsub
            yield cell.pause_copier

    def disturb(self):
        n_rounds = harness.rounds(1)
        self.putters = [Putter(host, n_rounds * EVENTS_A_ROUND) for host in self.hosts]
        for putter in self.putters:
            putter.start()
        for r in range(n_rounds):
            acts = list(self.acts())
            places = sorted(self.random.randrange(r * EVENTS_A_ROUND, (r + 1) * EVENTS_A_ROUND) for _ in acts)
            for place, act in zip(places, self.random.sample(acts, len(acts))):
                wait_until(lambda place=place: self.putters[0].n >= place, "event %d to be put" % place, interval=0.001)
                print(act.__name__, "at", place, flush=True)
                act()
        for putter in self.putters:
            putter.join()

    def check(self):
        n = sum(len(putter.events) for putter in self.putters)
        wait_until(lambda: sum(len(cell.lines) for cell in self.cells) >= n,
                   lambda: "%d lines, there are %s\n%s" % (n, [len(cell.lines) for cell in self.cells],
                                                          "\n".join(cell.copier.log for cell in self.cells)))
        for host, putter in zip(self.hosts, self.putters):
            name = b'"%s"' % host.name.encode()
            found = [lines for lines in ([line for line in cell.lines if name in line] for cell in self.cells) if lines]
            self.assertEqual(len(found), 1)
            self.assertEqual(found[0], putter.events)
        self.assertEqual(self.totals(self.cells), {host.name: putter.until for host, putter in zip(self.hosts, self.putters)})

    def test_one_queue_into_one_cell(self):
        self.hosts = [Host(self, "app1", "--settle-after=%ds" % SETTLE_SECONDS)]
        self.cells = [Cell(self, "cell1")]
        self.disturb()
        self.check()

    def test_three_queues_into_two_cells(self):
        self.hosts = [Host(self, "app%d" % i, "--settle-after=%ds" % SETTLE_SECONDS) for i in range(3)]
        self.cells = [Cell(self, "cell1", "0-31"), Cell(self, "cell2", "32-63")]
        self.disturb()
        self.check()

    def test_moves_between_cells(self):
        self.hosts = [Host(self, "app%d" % i, "--settle-after=%ds" % SETTLE_SECONDS) for i in range(2)]
        self.cells = [Cell(self, "cell1", "0-63"), Cell(self, "cell2", "none"), Cell(self, "cell3", "none")]
        self.write("c.conf", "[input]\ntime = t\n[total q]\nkey = q\n")
        mover = Mover(self, self.write("cells.conf", "".join(
            "[cell %s]\npubsub_url = %s\naggregator_url = %s\narchive = /none/%s\n" % (
                cell.name, cell.url, self.start("aggregator", "--config=" + self.path("c.conf"), "--data-dir=" + self.path(cell.name + ".moves"),
                                                "--pubsub-url=" + cell.url, "--streams=clicks").url, cell.name) for cell in self.cells)))
        mover.begin(self.hosts)
        self.disturb()
        mover.end()
        print(dict(mover.statuses), flush=True)
        self.assertEqual(set(mover.statuses) - {0, 75, 64, -signal.SIGKILL}, set())  # 64: on its way to another cell
        records = [p for cell in self.cells for p in harness.request(cell.url, "GET", "/producers?stream=clicks").json().get("producers", [])
                   if p["producer"].startswith("partition.")]
        self.assertGreater(max(int(p["mark"]) for p in records), 0)
        events = sorted(event for putter in self.putters for event in putter.events)
        wait_until(lambda: sum(len(cell.lines) for cell in self.cells) >= len(events),
                   lambda: "%d lines, there are %s\n%s" % (len(events), [len(cell.lines) for cell in self.cells],
                                                          "\n".join(cell.copier.log for cell in self.cells)))
        self.assertEqual(sorted(line for cell in self.cells for line in cell.lines), events)
        for cell in self.cells:
            for host in self.hosts:
                numbers = [int(line.rsplit(b":", 1)[1][:-1]) for line in cell.lines if b'"%s"' % host.name.encode() in line]
                self.assertEqual(numbers, sorted(numbers))
        self.assertEqual(self.totals(self.cells), {host.name: putter.until for host, putter in zip(self.hosts, self.putters)})

    def test_a_purge_and_a_stream_that_is_made_again(self):
        """Exact, although the cell had not read the lost messages: the queue still has them."""
        host, cell = Host(self, "app1", "--settle-after=1h"), Cell(self, "cell1")
        lines = [b"line %d" % i for i in range(150)]
        host.put(lines[:50])
        cell.wait_lines(lines[:50])
        for i, verb in ((1, "STREAM.PURGE.clicks"), (2, "STREAM.DELETE.clicks")):
            cell.copier.kill9()
            host.put(lines[50 * i:50 * i + 50])
            host.wait_published()
            host.relay.kill9()
            self.api(verb)
            host.start_relay()
            cell.start_copier()
            cell.wait_lines(lines[:50 * i + 50])

    def test_an_expiry_of_messages_that_are_not_copied(self):
        """The hole stays: it is named until the operator passes it."""
        self.add_stream()
        host = Host(self, "app1", "--settle-after=1s")
        cell = Cell(self, "cell1")
        host.put([b"1", b"2"])
        cell.wait_lines([b"1", b"2"])
        cell.copier.kill9()
        host.put([b"3", b"4"])
        host.wait_published()
        wait_until(lambda: host.queue.stats()["queues"]["default"]["depth"] == 0, "all to be settled")
        self.set_max_age(2)
        wait_until(lambda: not any(body for _, body in self.batches()), "the lines to expire")
        self.set_max_age(3600)
        host.put([b"5"])
        host.wait_published()
        cell.start_copier()
        cell.wait_trouble("messages 3 to 4 of queue " + host.id)
        self.assertEqual(cell.set_mark(host.id, 3, 5), 0)
        cell.wait_lines([b"1", b"2", b"5"])
        wait_until(lambda: cell.health().status == 200, "/health to be well")

    def set_max_age(self, seconds):
        config = self.api("STREAM.INFO.clicks")["config"]
        self.api("STREAM.UPDATE.clicks", **{**config, "max_age": seconds * 10**9, "duplicate_window": 10**9})

    def batches(self):
        return Client(self.server).batches("clicks")


if __name__ == "__main__":
    harness.main()
