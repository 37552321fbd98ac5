"""Queue, relay and nats-server killed with -9 and stopped with SIGSTOP at random while numbered events flow, and the server
restored to an older copy of its directory: a cell that reads the stream has each event once, in order."""
# full: MILLRACE_ROUNDS=60
import signal
import time

import harness
from harness import wait_until
from nats_test import Cell, Client, NatsServer, NatsTest, gave_up
from putter import Putter

EVENTS_A_ROUND = 4000


class KillNatsRelay(NatsTest):
    SETTLE_SECONDS = 5
    SETTLE = "--settle-after=%ds" % SETTLE_SECONDS

    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.server = NatsServer(self, "n1").start()
        self.queue = self.start_queue()
        self.running = self.relay(self.server, self.SETTLE).wait_ready()

    def kill_queue(self):
        self.queue.kill9()
        self.queue = self.start_queue()

    def kill_relay(self, settle=SETTLE):
        self.running.kill9()
        self.running = self.relay(self.server, settle)

    def kill_server(self):
        self.server.kill9()
        self.server.start()

    def pause_relay(self):
        """Another relay takes over, and the first one wakes up."""
        self.running.process.send_signal(signal.SIGSTOP)
        paused, self.running = self.running, self.relay(self.server, self.SETTLE).wait_ready()
        paused.process.send_signal(signal.SIGCONT)
        paused.kill9()

    def pause_server(self):
        """Until a publish has failed."""
        failed = self.running.wait_ready().stats()["deliveries_failed_total"]
        self.server.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: gave_up(self.running, failed), "a publish to fail")
        self.server.process.send_signal(signal.SIGCONT)
        if not self.running.alive():
            self.running = self.relay(self.server, self.SETTLE)

    def restore_server(self):
        """A copy from before some messages that the relay knows to be stored."""
        self.server.kill9()
        copied = time.monotonic()
        self.server.copy("older")
        self.server.start()
        stored = self.running.wait_ready().stats()["messages_delivered_total"]
        wait_until(lambda: self.running.stats()["messages_delivered_total"] > stored or self.putter.put == self.putter.until,
                   "more to be stored")
        self.server.kill9()
        if time.monotonic() - copied < self.SETTLE_SECONDS:  # else the queue may rightly have deleted what the copy has not
            self.server.restore("older")
        self.server.start()

    def test_each_event_is_in_the_stream(self):
        acts = [self.kill_queue, self.kill_relay, self.kill_server, self.pause_relay, self.pause_server, self.restore_server]
        n_rounds = harness.rounds(1)
        self.putter = Putter(self.queue_url, n_rounds * EVENTS_A_ROUND)
        self.putter.start()
        for r in range(n_rounds):
            places = sorted(self.random.randrange(r * EVENTS_A_ROUND, (r + 1) * EVENTS_A_ROUND) for _ in acts)
            for place, act in zip(places, self.random.sample(acts, len(acts))):
                wait_until(lambda place=place: self.putter.put >= place, lambda place=place: "event %d to be put" % place, interval=0.001)
                print(act.__name__, "at", place, flush=True)
                act()
        self.putter.join()
        expected = [b"event %08d" % i for i in range(n_rounds * EVENTS_A_ROUND)]
        self.wait_stored(self.server, expected)
        wait_until(lambda: self.depth() == 0, "all to be settled")
        self.assertEqual(self.stored(self.server).lines, expected)

    def purge(self):
        self.assertTrue(Client(self.server).api("STREAM.PURGE.clicks")["success"])

    def delete(self):
        """The relay makes the stream again."""
        self.assertTrue(Client(self.server).api("STREAM.DELETE.clicks")["success"])

    def test_a_stream_that_lost_all_gets_what_the_queue_still_has(self):
        lines = [b"line %d" % i for i in range(100)]
        self.running.stop()
        for i, act in enumerate((self.purge, self.delete)):
            with self.subTest(act.__name__):
                self.running = self.relay(self.server, "--settle-after=1h").wait_ready()
                self.put(lines[50 * i:50 * i + 50])
                wait_until(lambda: self.running.stats()["backlog_messages"] == 0, "all to be stored")
                act()
                self.kill_relay("--settle-after=1h")
                self.wait_stored(self.server, lines[:50 * i + 50])
                self.running.wait_ready().stop()

    def test_a_loss_of_settled_messages_is_a_hole(self):
        """A cell that has the lost messages goes on. One that has not sees the hole, because the mark does not pretend."""
        self.put([b"a", b"b"])
        self.wait_stored(self.server, [b"a", b"b"])
        wait_until(lambda: self.depth() == 0, "both to be settled")
        self.purge()
        self.put([b"c"])
        client = Client(self.server)
        wait_until(lambda: any(body for _, body in client.batches("clicks")), "c to be stored")
        cell = Cell(self, mark=3)
        cell.take(client.batches("clicks"))
        self.assertEqual(cell.lines, [b"c"])
        self.assertEqual(cell.holes, [])
        late = Cell(self, mark=2)
        late.take(client.batches("clicks"))
        self.assertEqual((late.lines, late.holes[0]), ([], (2, 3)))

    def test_a_loss_in_the_middle_is_found_at_the_next_start(self):
        """The last message is still there, and so is the mark that it names."""
        self.lose_the_middle("1h", lambda: self.kill_relay("--settle-after=1h"))

    def test_a_loss_in_the_middle_is_found_before_the_queue_deletes(self):
        """Nothing fails, and the relay goes on. It is stopped meanwhile, so that it cannot settle before the loss."""
        self.lose_the_middle("10s", lambda: self.running.process.send_signal(signal.SIGCONT))
        wait_until(lambda: self.depth() == 0, "all to be settled")

    def lose_the_middle(self, settle, then):
        self.running.stop()
        self.running = self.relay(self.server, "--settle-after=" + settle).wait_ready()
        lines = [b"line %d" % i for i in range(5)]
        for i, line in enumerate(lines):
            self.put([line])
            self.wait_stored(self.server, lines[:i + 1])
        self.running.process.send_signal(signal.SIGSTOP)
        self.assertEqual(self.depth(), len(lines))
        client = Client(self.server)
        last = client.api("STREAM.INFO.clicks")["state"]["last_seq"]
        middle = [seq for seq in range(1, last + 1) if client.message("clicks", seq)[1] == b"line 2\n"]
        self.assertTrue(client.api("STREAM.MSG.DELETE.clicks", seq=middle[0])["success"])
        self.assertEqual(self.stored(self.server).lines, lines[:2])
        then()
        self.wait_stored(self.server, lines)


if __name__ == "__main__":
    harness.main()
