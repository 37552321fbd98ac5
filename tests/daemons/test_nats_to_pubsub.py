"""nats_to_pubsub with a real nats-server: what it copies, what it ignores, and where it waits."""
import shutil
import signal
import time

import harness
from cell_test import Cell, CellTest, Host
from harness import request, wait_until

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
        self.assertEqual((stats["lines_stored_total"], stats["lag_messages"], stats["waiting_partitions"]), (3000, 0, 0))
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

    def test_a_time_is_not_later_than_the_message(self):
        self.add_stream()
        self.publish("q1", 0, 1, [])
        before = time.time()
        self.publish("q1", 1, 2, [b"1"], Until="%.6f" % (before + 3600))
        after = time.time()
        cell = Cell(self, "cell")
        cell.wait_lines([b"1"])
        until = request(cell.url, "GET", "/producer?stream=clicks&producer=q1").json()["until"]
        self.assertGreaterEqual(until, before - 0.001)
        self.assertLessEqual(until, after + 0.001)

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
        """The cell lacks 3 and 4; another queue of the partition has lines behind the hole."""
        self.add_stream()
        self.publish("q1", 1, 3, [b"1", b"2"])
        lost = self.publish("q1", 3, 5, [b"3", b"4"])
        self.delete_message(lost)
        self.publish("q1", 5, 6, [b"5"])
        self.publish("q1", 6, 7, [b"6"])
        self.cell = Cell(self, "cell")
        self.cell.wait_trouble("messages 3 to 4 of queue q1")
        self.assertEqual(self.cell.lines, [b"1", b"2"])
        self.assertEqual(self.cell.copier.stats()["waiting_partitions"], 1)

    def test_a_hole_is_found_at_each_start_until_it_is_accepted(self):
        self.make_hole()
        for accepted in ("q1:3-6", "q1:2-5", "q2:3-5"):
            self.cell.restart_copier("--accept-loss=" + accepted)
            self.cell.wait_trouble("accept_loss=q1:3-5 ")
        self.cell.restart_copier("--accept-loss=q2:1-2,q1:3-5")
        self.cell.wait_lines([b"1", b"2", b"5", b"6"])
        wait_until(lambda: self.cell.health().status == 200, "/health to be well")
        self.cell.restart_copier()
        self.publish("q1", 7, 8, [b"7"])
        self.cell.wait_lines([b"1", b"2", b"5", b"6", b"7"])

    def test_a_hole_is_filled_by_a_later_message(self):
        self.make_hole()
        self.publish("q1", 3, 6, [b"3", b"4", b"5"])
        self.cell.wait_lines([b"1", b"2", b"3", b"4", b"5", b"6"])
        wait_until(lambda: self.cell.health().status == 200, "/health to be well")

    def test_an_old_copy_of_a_queue_is_refused(self):
        self.add_stream()
        self.publish("q1", 1, 5, [b"1", b"2", b"3", b"4"], opening=EARLIER)
        cell = Cell(self, "cell")
        cell.wait_lines([b"1", b"2", b"3", b"4"])
        self.publish("q1", 3, 5, [b"x", b"y"], opening=LATER)
        cell.wait_trouble("queue q1 (")
        cell.restart_copier()
        cell.wait_trouble("accept_loss=q1:3-5 drops these lines")
        cell.restart_copier("--accept-loss=q1:1-5")
        self.publish("q1", 5, 6, [b"5"], opening=LATER)
        cell.wait_lines([b"1", b"2", b"3", b"4", b"5"])

    def test_a_message_of_another_program_is_refused(self):
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        cell = Cell(self, "cell")
        cell.wait_lines([b"1"])
        for wrong in ({"queue_id": "q1", "mark": 2, "next_": 4, "lines": [b"2"]},
                      {"queue_id": "q1", "mark": 2, "next_": 3, "lines": [b"2"], "partition": 3}):
            seq = self.publish(**wrong)
            cell.wait_trouble("message %d of JetStream" % seq)
            self.delete_message(seq)
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

    def test_lag(self):
        self.add_stream()
        self.publish("q1", 1, 2, [b"1"])
        cell = Cell(self, "cell", "0-63", "--lag-limit=1s")
        cell.wait_lines([b"1"])
        cell.pubsub.process.send_signal(signal.SIGSTOP)
        self.publish("q1", 2, 3, [b"2"])
        cell.wait_trouble("more than lag_limit")
        self.assertGreater(cell.copier.stats()["lag_seconds"], 1)
        cell.pubsub.process.send_signal(signal.SIGCONT)
        cell.wait_lines([b"1", b"2"])
        wait_until(lambda: cell.health().status == 200, "/health to be well")

    def test_wrong_settings_are_refused(self):
        for setting, why in (("--partitions=0-64", "not a range"), ("--partitions=5-3", "not a range"), ("--partitions= ", "no partition"),
                             ("--accept-loss=q1:5", "not of the form"), ("--accept-loss=q1:5-5", "not of the form"),
                             ("--accept-loss=5-7", "not of the form"), ("--nats-stream=a.b", "not a name of JetStream")):
            with self.subTest(setting):
                r = self.run_program("nats_to_pubsub", "--check-config", setting)
                self.assertIn(why, r.stderr.decode())
                self.assertIn(r.returncode, (64, 78))


if __name__ == "__main__":
    harness.main()
