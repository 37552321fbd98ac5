"""nats_to_pubsub with a real nats-server: what it copies, what it ignores, and where it waits."""
# parts: 3
import shutil
import signal
import socket
import time
import types

import harness
from cell_test import Cell, CellTest, Host
from harness import request, wait_until
from nats_test import Client, Link, NatsServer

EARLIER, LATER = "018bcfe56800" + "a" * 12, "018bcfe56fd0" + "b" * 12  # openings


class NatsToPubsub(CellTest):
    def test_lines_marks_and_times(self):
        host = Host(self, "app1", "--settle-after=1h")
        lines = [b"line %d" % i for i in range(3000)]
        host.put(lines[:10])
        cell = Cell(self, "cell")
        cell.wait_lines(lines[:10])
        host.put(lines[10:])
        cell.wait_lines(lines)
        began = time.time()
        wait_until(lambda: (cell.producer(host).get("until") or 0) > began, "a time that covers the lines")
        producer = cell.producer(host)
        self.assertEqual((producer["mark"], producer["name"]), ("3001", "app1"))
        self.assertRegex(producer["opening"], r"^[0-9a-f]{24}\.\d+\.\d+$")
        stats = cell.copier.wait_ready().stats()
        self.assertEqual((stats["lines_stored_total"], stats["waiting_queues"]), (3000, 0))
        cell.copier.stop()

    def test_two_cells_share_the_queues(self):
        hosts = [Host(self, "app%d" % i, "--settle-after=1h") for i in range(3)]
        cells = [Cell(self, "low", "0-31"), Cell(self, "high", "32-40 41-63")]
        for host in hosts:
            host.put([b"%s %d" % (host.name.encode(), i) for i in range(100)])
        for k, cell in enumerate(cells):
            expected = {host.name.encode() for host in hosts if host.partition // 32 == k}
            wait_until(lambda cell=cell, n=len(expected): len(cell.lines) >= 100 * n, "the lines of " + cell.name)
            lines = cell.lines
            self.assertEqual({line.split()[0] for line in lines}, expected)
            for name in expected:
                self.assertEqual([line for line in lines if line.split()[0] == name], [b"%s %d" % (name, i) for i in range(100)])

    def test_repetitions_and_overlaps(self):
        self.add_stream()
        self.publish("q1", 0, 1, [])
        self.publish("q1", 1, 4, [b"1", b"2", b"3"])
        self.publish("q1", 1, 3, [b"1", b"2"])
        self.publish("q1", 2, 9, [b"2", b"3", b"5", b"6", b"8"], Ids="2-3,5-6,8-8")
        self.publish("q1", 0, 1, [], opening=LATER)  # of a relay that begins again after a loss
        self.publish("q1", 9, 10, [b"9"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2", b"3", b"5", b"6", b"8", b"9"])

    def until(self, cell, queue_id):
        return request(cell.url, "GET", "/producer?stream=clicks&producer=" + queue_id).json().get("until")

    def test_a_clock_that_is_ahead_moves_no_time(self):
        """The time that JetStream gave to the message before the question to the queue limits a statement, however long its
        batch waited. A message of another queue, and a message that is gone, limit nothing, so the time is ignored."""
        self.add_stream()
        first = self.publish("q1", 0, 1, [])
        after = time.time()
        other = self.publish("q2", 0, 1, [])
        lost = self.publish("q1", 1, 2, [b"1"])
        self.publish("q1", 2, 3, [b"2"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2"])
        self.delete_message(lost)
        ahead = "%.6f" % (time.time() + 3600)
        wait_until(lambda: time.time() > after + 0.2, "time to pass")
        for named in (other, lost, 99, 0):
            self.publish("q1", 3, 3, [], Until=ahead, Until_After=named)
        self.publish("q1", 3, 4, [b"3"])
        cell.wait_lines([b"1", b"2", b"3"])
        self.assertIsNone(self.until(cell, "q1"))
        self.publish("q1", 4, 5, [b"4"], Until=ahead, Until_After=first)
        cell.wait_lines([b"1", b"2", b"3", b"4"])
        self.assertLessEqual(self.until(cell, "q1"), after)
        self.publish("q1", 5, 5, [], Until="%.6f" % (after - 60), Until_After=first)
        self.publish("q1", 5, 6, [b"5"])
        cell.wait_lines([b"1", b"2", b"3", b"4", b"5"])
        self.assertLess(self.until(cell, "q1"), after - 59)

    def test_a_start_continues_at_the_cursor(self):
        self.add_stream()
        self.publish("q1", 0, 1, [])
        cell = Cell(self, "cell")
        for i in range(1, 6):
            self.publish("q1", i, i + 1, [b"%d" % i])
            cell.wait_lines([b"%d" % k for k in range(1, i + 1)])
        cell.restart_copier()
        self.publish("q1", 6, 7, [b"6"])
        cell.wait_lines([b"%d" % k for k in range(1, 7)])
        self.assertLess(cell.copier.wait_ready().stats()["messages_read_total"], 5)

    def make_hole(self):
        """The cell lacks 3 and 4."""
        self.add_stream()
        self.publish("q1", 1, 3, [b"1", b"2"])
        lost = self.publish("q1", 3, 5, [b"3", b"4"])
        self.delete_message(lost)
        self.publish("q1", 5, 6, [b"5"])
        self.publish("q1", 6, 7, [b"6"])
        self.cell = Cell(self, "cell")
        self.cell.wait_trouble("messages 3 to 4 of queue q1")
        self.assertEqual(self.cell.lines, [b"1", b"2"])
        self.assertEqual(self.cell.copier.stats()["waiting_queues"], 1)

    def test_a_hole_is_found_at_each_start_until_the_operator_passes_it(self):
        self.make_hole()
        self.publish("q9", 1, 2, [b"another queue"])
        self.cell.wait_lines([b"1", b"2", b"another queue"])
        self.cell.restart_copier()
        self.cell.wait_trouble("millrace producers --set=q1 --from=3 --mark=5 ")
        self.assertNotEqual(self.cell.set_mark("q1", 2, 5), 0)
        self.assertEqual(self.cell.set_mark("q1", 3, 5), 0)
        self.cell.wait_lines([b"1", b"2", b"another queue", b"5", b"6"])
        wait_until(lambda: self.cell.health().status == 200, "/health to be well")
        self.cell.restart_copier()
        self.publish("q1", 7, 8, [b"7"])
        self.cell.wait_lines([b"1", b"2", b"another queue", b"5", b"6", b"7"])

    def test_batches_in_any_order(self):
        self.add_stream()
        for mark in (5, 3, 4, 1, 2):
            self.publish("q1", mark, mark + 1, [b"%d" % mark])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2", b"3", b"4", b"5"])

    def test_a_hole_is_filled_by_a_later_message(self):
        self.make_hole()
        self.publish("q1", 3, 6, [b"3", b"4", b"5"])
        self.cell.wait_lines([b"1", b"2", b"3", b"4", b"5", b"6"])
        wait_until(lambda: self.cell.health().status == 200, "/health to be well")

    def test_a_hole_in_one_replica_is_read_from_another(self):
        """Two servers begin with the same copy of the stream, and then one of them is without a message for ever."""
        self.add_stream()
        self.publish("q1", 1, 3, [b"1", b"2"])
        with_hole, other = self.server, NatsServer(self, "n2")
        with_hole.kill9()
        with_hole.copy("n2")
        with_hole.start()
        wait_until(lambda: "state" in Client(with_hole).api("STREAM.INFO.clicks"), "the stream")
        self.publish("q1", 5, 5, [])
        self.server = types.SimpleNamespace(url=with_hole.url + " " + other.url)
        cell = Cell(self, "cell")
        cell.wait_trouble("messages 3 to 4 of queue q1")
        self.server = other.start()
        wait_until(lambda: "state" in Client(other).api("STREAM.INFO.clicks"), "the stream of the other server")
        self.publish("q1", 3, 5, [b"3", b"4"])
        self.publish("q1", 5, 6, [b"5"])
        cell.wait_lines([b"1", b"2", b"3", b"4", b"5"])
        wait_until(lambda: cell.copier.stats()["waiting_queues"] == 0, "no queue to wait")

    def test_an_old_copy_of_a_queue_is_refused(self):
        self.add_stream()
        self.publish("q1", 1, 5, [b"1", b"2", b"3", b"4"], opening=EARLIER)
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2", b"3", b"4"])
        self.publish("q1", 3, 5, [b"x", b"y"], opening=LATER)
        cell.wait_trouble("queue q1 (")
        cell.restart_copier()
        cell.wait_trouble("millrace producers --set=q1 --from=5 --mark=5 drops these lines")
        self.assertEqual(cell.set_mark("q1", 5, 5), 0)
        self.publish("q1", 5, 6, [b"5"], opening=LATER)
        cell.wait_lines([b"1", b"2", b"3", b"4", b"5"])

    def test_a_message_of_another_program_is_refused(self):
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1"])
        for wrong in ({"next_": 4, "lines": [b"2"]}, {"next_": 3, "lines": [b"2"], "Ids": "2-1"}, {"next_": 3, "lines": [b"2"], "Until": "x"},
                      {"next_": 3, "lines": [b"2"], "other": b"Nats-Sequence: 1\r\n"},
                      {"next_": 3, "lines": [b"2"], "other": b"Nats-Time-Stamp: x\r\n"}):
            seq = self.publish("q1", 2, **wrong)
            cell.wait_trouble("the message of queue q1 in JetStream after sequence 1 is not a batch of a relay")
            self.delete_message(seq)
            wait_until(lambda: cell.health().status == 200, "/health to be well")
        self.publish("q1", 2, 3, [b"2"], partition=3)
        cell.wait_trouble("subject clicks.3.q1 of JetStream is not that of a relay")
        self.api("STREAM.PURGE.clicks", filter="clicks.3.q1")
        wait_until(lambda: cell.health().status == 200, "/health to be well")
        self.publish("q1", 2, 3, [b"2"])
        cell.wait_lines([b"1", b"2"])

    def test_another_stream_with_the_same_sequences(self):
        """The stream is deleted and made again while the cell is away, and longer than before. Its first message is the only
        one of a queue, so that no later one shows a hole."""
        self.add_stream()
        cell = Cell(self, "cell")
        for i in range(1, 6):
            self.publish("q0", i, i + 1, [b"%d" % i])
            cell.wait_lines([b"%d" % k for k in range(1, i + 1)])
        cell.copier.kill9()
        self.api("STREAM.DELETE.clicks")
        self.add_stream()
        self.publish("q15", 1, 2, [b"of another queue of the partition"])
        for i in range(5, 15):
            self.publish("q0", i, i + 1, [b"%d" % i])
        cell.start_copier()
        wait_until(lambda: len(cell.lines) == 15, lambda: "15 lines, there are %s" % cell.lines)
        self.assertEqual([line for line in cell.lines if b"of" not in line], [b"%d" % i for i in range(1, 15)])

    def test_the_stream_is_made_again_while_the_cell_reads(self):
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        self.publish("q1", 2, 3, [b"2"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2"])
        self.api("STREAM.DELETE.clicks")
        self.add_stream()
        self.publish("q1", 2, 4, [b"2", b"3"])
        cell.wait_lines([b"1", b"2", b"3"])

    def test_a_restored_pubsub_gets_what_it_lacks(self):
        """It has the cursors of its marks."""
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1"])
        cell.pubsub.stop()
        shutil.copytree(self.path("cell"), self.path("copy"))
        cell.start_pubsub()
        self.publish("q1", 2, 3, [b"2"])
        cell.wait_lines([b"1", b"2"])
        cell.pubsub.stop()
        shutil.rmtree(self.path("cell"))
        shutil.copytree(self.path("copy"), self.path("cell"))
        cell.start_pubsub()
        cell.wait_lines([b"1", b"2"])

    def test_links_that_are_cut_without_a_sign(self):
        """Relay and cell connect again, perhaps to another server. They do not wait until TCP or a ping notices the cut."""
        links = []

        def nats_url():
            links.append(Link(self, self.server.port))
            return links[-1].url
        self.nats_url = nats_url
        self.add_stream()
        cell = Cell(self, "cell1")
        cell.copier.wait_ready()
        self.cut(links)  # the cell has no queue to read
        host = Host(self, "app1", "--settle-after=1m")
        for i in range(3):
            host.put([b"%d" % i])
            cell.wait_lines([b"%d" % n for n in range(i + 1)])
            self.cut(links)

    def test_the_next_server_of_the_list(self):
        """Each new connection is to the next server that answers, also if all of them work."""
        links = [Link(self, self.server.port) for _ in range(3)]
        self.nats_url = lambda: " ".join([links[0].url, "nats://127.0.0.1:1", links[1].url, links[2].url])
        self.add_stream()
        Cell(self, "cell1")

        def nine_are_made():
            made = [link.made for link in links]
            self.assertLessEqual(max(made) - min(made), 1, made)
            for link in links:
                link.mend()
            return sum(made) >= 9
        wait_until(nine_are_made, "nine connections")

    def cut(self, links):
        """Until the programs connect again."""
        made = [link.made for link in links]
        for link in links:
            link.cut()
        wait_until(lambda: all(link.made > n for link, n in zip(links, made)), "other connections")
        for link in links:
            link.mend()

    def test_a_handshake_that_does_not_end(self):
        with socket.create_server(("127.0.0.1", 0)) as fake:
            copier = self.daemon("nats_to_pubsub", "--pubsub-url=" + Cell(self, "cell").url, "--nats-timeout=200ms",
                                 "--nats-url=tls://127.0.0.1:%d" % fake.getsockname()[1])
            fake.settimeout(harness.PATIENCE)
            connection, _ = fake.accept()
            with connection:
                connection.sendall(b'INFO {"server_id":"x","version":"2.9.10","proto":1,"headers":true,"tls_required":true,"max_payload":1048576}\r\n')
                self.assertEqual(copier.process.wait(harness.PATIENCE), 75)
        self.assertIn("a request to a nats-server hangs", copier.log)

    def test_lines_that_pubsub_refuses(self):
        """The queue waits; others continue."""
        self.add_stream()
        cell = Cell(self, "cell")
        cell.pubsub.stop()
        cell.start_pubsub("--max-line=10")
        self.publish("q1", 1, 2, [b"much too long a line"])
        cell.wait_trouble("pubsub refuses messages 0 to 1 of queue q1")
        self.publish("q2", 1, 2, [b"short"])
        cell.wait_lines([b"short"])
        cell.pubsub.stop()
        cell.start_pubsub()
        cell.wait_lines([b"short", b"much too long a line"])

    def test_a_stream_without_direct_gets(self):
        self.add_stream(allow_direct=False)
        cell = Cell(self, "cell")
        cell.wait_trouble("no allow_direct")

    def test_lag(self):
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1"])
        cell.pubsub.process.send_signal(signal.SIGSTOP)
        self.publish("q1", 2, 3, [b"2"])
        copier = cell.copier.wait_ready()
        wait_until(lambda: copier.stats()["lag_seconds"] > 1, "the lag to grow")
        cell.pubsub.process.send_signal(signal.SIGCONT)
        cell.wait_lines([b"1", b"2"])
        wait_until(lambda: cell.copier.stats()["lag_messages"] == 0 and cell.health().status == 200, "/health to be well")
        cell.restart_copier("--lag-limit=1ms")
        cell.wait_trouble("more than lag_limit")

    def test_wrong_settings_are_refused(self):
        for setting, why in (("--partitions=0-64", "not a range"), ("--partitions=5-3", "not a range"), ("--partitions= ", "no partition"),
                             ("--nats-stream=a.b", "not a name of JetStream")):
            with self.subTest(setting):
                r = self.run_program("nats_to_pubsub", "--check-config", setting)
                self.assertIn(why, r.stderr.decode())
                self.assertIn(r.returncode, (64, 78))


if __name__ == "__main__":
    harness.main()
