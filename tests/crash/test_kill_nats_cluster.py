"""Three nats-servers with a replicated stream, killed, stopped and cut from each other while numbered events flow, one with a lost disk,
and all restored to a copy of their directories: a cell that reads the stream has each event once, in order, from whichever replicas
answer."""
# full: MILLRACE_ROUNDS=15
import shutil
import signal
import types

import harness
from cell_test import Cell
from harness import wait_until
from nats_test import Client, Link, NatsServer, NatsTest
from putter import Putter
from small_disk import SmallDisk

EVENTS_A_ROUND = 1000


class KillNatsCluster(NatsTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        ports = [int(self.keep_port()) for _ in range(3)]
        self.links = {(i, j): Link(self, ports[j]) for i in range(3) for j in range(3) if i != j}  # i connects to j
        routes = [", ".join('"%s"' % link.url for (i, _), link in self.links.items() if i == n) for n in range(3)]
        # Nothing listens at the advertised port, so that no route bypasses the links.
        cluster = 'cluster { name: "c", listen: "127.0.0.1:%d", advertise: "127.0.0.1:1", routes: [%s] }\n'
        self.servers = [NatsServer(self, "n%d" % i, cluster % (ports[i], routes[i])) for i in range(3)]
        self.down = NatsServer(self, "never")  # the first address of the list
        for server in self.servers:
            server.start()
        self.server = types.SimpleNamespace(url=" ".join(s.url for s in self.servers))

    def begin(self, *queue_args, settle_after="1h"):
        self.queue = self.start_queue(*queue_args)
        self.running = self.daemon("queue_to_nats", "--queue-url=" + self.queue_url, "--backoff-max=500ms", "--create", "--replicas=3",
                                   "--nats-timeout=3s", "--settle-after=" + settle_after,
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

    def cut_two_servers(self):
        """The leader and another one, because two followers may send each other nothing. The third one reaches both."""
        i = self.servers.index(self.leader())
        j = self.random.choice([n for n in range(3) if n != i])
        links = self.links[i, j], self.links[j, i]
        for link in links:
            link.cut()
        wait_until(lambda: any(link.lost for link in links), "the servers to send to each other")
        self.more_is_stored()
        for link in links:
            link.mend()

    def lose_a_disk(self):
        """The other servers fill the directory again."""
        server = self.random.choice(self.servers)
        server.kill9()
        shutil.rmtree(server.directory)
        server.start()
        self.more_is_stored()
        wait_until(lambda: server.name in self.names_of_current(), "%s to be rebuilt" % server.name, timeout=harness.LONG)

    def names_of_current(self):
        """The servers with all messages of the stream."""
        client = Client(self.servers[0])
        client.socket.settimeout(2)
        try:
            cluster = client.api("STREAM.INFO.clicks").get("cluster", {})
        except harness.UNREACHABLE:
            return []
        return [cluster.get("leader")] + [r["name"] for r in cluster.get("replicas", []) if r["current"]]

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
        self.begin()
        acts = [self.kill_leader, self.stop_a_server, self.cut_two_servers, self.lose_a_disk, self.restore_all]
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

    def put_until_it_is_full(self):
        lines = []
        while True:
            more = [b"%08d %s" % (len(lines) + i, b"x" * 1000) for i in range(100)]
            reply = harness.request(self.queue_url, "POST", "/mput", b"\n".join(more))
            if reply.status != 200:
                self.assertEqual((reply.status, reply.json()["code"]), (503, "storage-full"))
                return lines
            lines += more

    def test_a_queue_takes_events_without_a_quorum(self):
        """Until its disk is full. Everything arrives afterwards."""
        SmallDisk(self, "6m", "q")
        self.begin("--segment-bytes=256K", settle_after="2s")
        self.put([b"before"])
        self.cell.wait_lines([b"before"])
        for server in self.servers[1:]:
            server.kill9()
        lines = self.put_until_it_is_full()
        self.assertGreater(len(lines), 1000)
        for server in self.servers[1:]:
            server.start()
        self.cell.wait_lines([b"before", *lines])
        wait_until(lambda: harness.request(self.queue_url, "POST", "/put", b"after").status == 200, "puts to be taken again",
                   timeout=harness.LONG)
        self.cell.wait_lines([b"before", *lines, b"after"])


if __name__ == "__main__":
    harness.main()
