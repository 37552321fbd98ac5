"""Three nats-servers with a replicated stream, killed and stopped while numbered events flow, and all restored to a copy of their
directories: a cell that reads the stream has each event once, in order, from whichever replicas answer."""
# full: MILLRACE_ROUNDS=15
import signal
import types

import harness
from cell_test import Cell
from harness import wait_until
from nats_test import Client, NatsServer, NatsTest
from putter import Putter

EVENTS_A_ROUND = 1000


class KillNatsCluster(NatsTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        routes = [int(self.keep_port()) for _ in range(3)]
        cluster = 'cluster { name: "c", listen: "127.0.0.1:%d", routes: [' + ", ".join('"nats://127.0.0.1:%d"' % port for port in routes) + "] }\n"
        self.servers = [NatsServer(self, "n%d" % i, cluster % port) for i, port in enumerate(routes)]
        self.down = NatsServer(self, "never")  # the first address of the list
        for server in self.servers:
            server.start()
        self.server = types.SimpleNamespace(url=" ".join(s.url for s in self.servers))
        self.queue = self.start_queue()
        self.running = self.daemon("queue_to_nats", "--queue-url=" + self.queue_url, "--backoff-max=500ms", "--create", "--replicas=3",
                                   "--nats-timeout=3s", "--settle-after=1h",
                                   "--nats-url=" + " ".join(s.url for s in [self.down, *self.servers])).wait_ready()
        self.cell = Cell(self, "cell")

    def delivered(self):
        return self.running.stats()["messages_delivered_total"]

    def more_is_stored(self):
        before = self.delivered()
        wait_until(lambda: self.delivered() > before or self.putter.put == self.putter.until, "more to be stored", timeout=harness.LONG)

    def name_of_leader(self):
        """While the servers have no leader, a request gets no answer."""
        client = Client(self.servers[0])
        client.socket.settimeout(2)
        try:
            return client.api("STREAM.INFO.clicks").get("cluster", {}).get("leader")
        except harness.UNREACHABLE:
            return None

    def leader(self):
        name = wait_until(self.name_of_leader, "a leader")
        return next(s for s in self.servers if s.name == name)

    def kill_leader(self):
        server = self.leader()
        server.kill9()
        self.more_is_stored()
        server.start()

    def stop_a_server(self):
        server = self.random.choice(self.servers)
        server.process.send_signal(signal.SIGSTOP)
        self.more_is_stored()
        server.process.send_signal(signal.SIGCONT)

    def restore_all(self):
        """What a power cut of all servers may leave: the queue still has what is missing."""
        for act in (lambda s: s.copy("older-" + s.name), lambda s: s.restore("older-" + s.name)):
            for server in self.servers:
                server.kill9()
            for server in self.servers:
                act(server)
                server.start()
            self.more_is_stored()

    def test_each_event_is_in_the_stream(self):
        acts = [self.kill_leader, self.stop_a_server, self.restore_all]
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
        events = [b"event %08d" % i for i in range(n_rounds * EVENTS_A_ROUND)]
        self.wait_stored(self.servers[0], events)
        self.cell.wait_lines(events)


if __name__ == "__main__":
    harness.main()
