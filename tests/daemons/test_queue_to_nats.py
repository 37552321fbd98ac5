"""queue_to_nats with a real nats-server: what it publishes, when it settles, what it refuses."""
# parts: 3
import os
import re
import shlex
import shutil
import socket
import subprocess
import zlib

import harness
import nats_keys
from harness import wait_until
from nats_test import Cell, Client, NatsServer, NatsTest

LOGINS = """
authorization { users = [ {user: "app", password: "secret"} ] }
"""
# The permissions that cluster.md lists. The other user creates the stream, and looks at it.
PERMISSIONS = """
authorization { users = [
    {user: "all", password: "secret"}
    {user: "app", password: "secret", permissions: {
        publish: ["clicks.>", "$JS.API.STREAM.INFO.clicks", "$JS.API.STREAM.MSG.GET.clicks",
                  "$JS.API.CONSUMER.CREATE.clicks", "$JS.API.CONSUMER.MSG.NEXT.clicks.*",
                  "$JS.API.CONSUMER.DELETE.clicks.*"],
        subscribe: ["_INBOX.>"]}}
] }
"""
ALL = {"user": "all", "pass": "secret"}
MANY = 3000


class QueueToNats(NatsTest):
    def setUp(self):
        super().setUp()
        self.server = NatsServer(self, "n1").start()
        self.queue = self.start_queue()

    def trouble(self, relay, text):
        """The relay is not ready, and says why."""
        relay.wait_listening()
        wait_until(lambda: text in relay.get("/health").text, lambda: "%s, /health is %s" % (text, relay.get("/health").text))
        self.assertEqual(relay.get("/health").status, 503)

    def add_stream(self, login=None, **config):
        reply = Client(self.server, **(login or {})).api("STREAM.CREATE.clicks", **{
            "name": "clicks", "subjects": ["clicks.*.*"], "retention": "limits", "storage": "file", "discard": "new",
            "num_replicas": 1, "max_age": 3600 * 10**9, "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, **config})
        self.assertNotIn("error", reply)

    def test_lines_with_their_ids_and_times(self):
        lines = [b"line %d" % i for i in range(5000)]
        self.put(lines[:10])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, lines[:10])
        self.put(lines[10:])
        self.wait_stored(self.server, lines)
        client = Client(self.server)
        batches = client.batches("clicks")
        info = client.api("STREAM.INFO.clicks", subjects_filter=">")
        queue_id = batches[0][0]["Millrace-Queue-Id"]
        self.assertEqual(set(info["state"]["subjects"]), {"clicks.%d.%s" % (zlib.crc32(queue_id.encode()) % 64, queue_id)})
        self.assertEqual(info["config"]["discard"], "new")
        self.assertEqual(info["config"]["max_age"], 7 * 86400 * 10**9)
        at = 0
        for head, _ in batches:
            self.assertEqual((head["Millrace-Queue-Id"], int(head["Millrace-Mark"])), (queue_id, at))
            self.assertEqual(len(head["Millrace-Opening"]), 24)
            self.assertTrue(head["Millrace-Name"].endswith(".default"))
            at = int(head["Millrace-Next"])
        wait_until(lambda: any("Millrace-Until" in head for head, _ in client.batches("clicks")[-3:]), "a statement of time")
        self.assertEqual(self.depth(), 5000)
        stats = relay.stats()
        self.assertEqual((stats["unsettled_messages"], stats["backlog_messages"], stats["jetstream_up"]), (5000, 0, 1))

    def test_messages_are_settled_after_their_time(self):
        lines = [b"line %d" % i for i in range(100)]
        self.put(lines)
        relay = self.relay(self.server, "--settle-after=300ms").wait_ready()
        self.wait_stored(self.server, lines)
        wait_until(lambda: self.depth() == 0, "the queue to be empty")
        relay.stop()

    def test_a_stop_keeps_the_follow_until_the_queue_is_handed_over(self):
        self.put([b"a", b"b"])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, [b"a", b"b"])
        relay.stop()
        self.assertIn("the queue stays followed", relay.log)
        other = self.relay(self.server, "--stream=views")  # has another subject: it would publish both messages again
        self.trouble(other, "the reader queue_to_nats.clicks follows this queue")
        self.assertEqual(self.depth(), 2)
        other.stop()
        config = self.write("hand.conf", "[queue_to_nats]\nnats_url = %s\nsettle_after = 500ms\nreplicas = 1\n" % self.server.url)
        last = self.run_program("millrace", "queue", "--hand-over", "--url=" + self.queue_url, "--config=" + config)
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertIn(b"the queue is handed over", last.stderr)
        last = self.run_program("millrace", "queue", "--hand-over", "--url=" + self.queue_url)
        self.assertEqual((last.returncode, last.stdout), (0, b"queue default has no follower: any relay may use it\n"))
        self.assertEqual(self.depth(), 0)
        self.put([b"c"])
        other = self.relay(self.server, "--stream=views").wait_ready()
        self.wait_stored(self.server, [b"c"], stream="views")
        self.assertEqual(self.stored(self.server).lines, [b"a", b"b"])

    def test_lines_that_are_too_long_are_buried(self):
        self.server.kill9()
        self.server = NatsServer(self, "n2", "max_payload: 70000\n").start()
        long = b"x" * 70000
        fits = [b"%05d" % i + b"y" * 40000 for i in range(40)]  # one to a batch
        self.put(fits[:20] + [long] + fits[20:] + [b"end"])
        self.relay(self.server, "--settle-after=300ms").wait_ready()
        self.wait_stored(self.server, [*fits, b"end"])
        wait_until(lambda: self.depth() == 0, "all but the buried message to be settled")
        dead = self.queue.get("/dead").json()["buried"]
        self.assertEqual([m["reason"] for m in dead],
                         ["longer than the nats-server's max_payload of 70000 bytes with its headers"])
        self.assertEqual(self.queue.post("/kick").status, 200)
        wait_until(lambda: len(self.queue.get("/dead").json()["buried"]) == 1, "it to be buried again")
        self.put([b"behind"])
        self.wait_stored(self.server, [*fits, b"end", b"behind"])

    def test_streams_that_do_not_fit_are_refused(self):
        for config, text in (({"retention": "workqueue"}, "retention `workqueue`"), ({"retention": "interest"}, "retention `interest`"),
                             ({"discard": "old", "max_bytes": 10**8}, "discard `old` with a limit"),
                             ({"discard": "old", "max_msgs": 10**8}, "discard `old` with a limit"),
                             ({"storage": "memory"}, "storage `memory`"), ({"max_age": 0}, "no max_age"),
                             ({"max_msgs_per_subject": 3}, "max_msgs_per_subject"), ({"max_msg_size": 1000}, "max_msg_size below 64 KiB"),
                             ({"max_age": 23 * 60 * 10**9}, "shorter than twice settle_after"), ({"no_ack": True}, "no_ack")):
            with self.subTest(text):
                self.add_stream(**config)
                relay = self.relay(self.server)
                self.trouble(relay, text)
                relay.stop()
                Client(self.server).api("STREAM.DELETE.clicks")
        relay = self.relay(self.server, "--no-create")
        self.trouble(relay, "stream clicks of JetStream: Not Found; create it")
        self.add_stream()  # it goes on by itself
        relay.wait_ready()
        relay.stop()
        self.trouble(self.relay(self.server, "--replicas=3"), "has 1 replicas, but `replicas` is 3")

    def test_settings_are_checked(self):
        def refused(text, *args):
            ran = self.run_program("queue_to_nats", "--check-config", *args)
            self.assertEqual((ran.returncode, text in ran.stderr.decode()), (78, True), ran.stderr)
        refused("nats_password_file", "--nats-user=u")
        refused("does not begin with nats://", "--nats-url=http://127.0.0.1:4222")
        refused("has a login", "--nats-url=nats://u:secret42@127.0.0.1:4222")
        refused("use one of them", "--nats-url=nats://127.0.0.1:1 tls://127.0.0.1:2")
        refused("must end in .clicks", "--reader=r")
        refused("is open to all users", "--nats-creds-file=" + self.write("creds", "x"))
        refused("nats_user is also set", "--nats-user=u", "--nats-password-file=/dev/null", "--nats-token-file=/dev/null")
        refused("No such file", "--nats-creds-file=" + self.path("none"))
        refused("not a name of JetStream", "--stream=a.b")
        refused("shorter than twice settle_after", "--max-age=23m")
        ran = self.run_program("queue_to_nats", "--check-config", "--stream=views")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(b"reader = queue_to_nats.views", ran.stdout)

    def test_logins_and_several_servers(self):
        private = NatsServer(self, "n3", LOGINS)
        self.put([b"a"])
        login = ("--nats-user=app", "--nats-password-file=" + self.private("password", "secret"))
        down = "nats://127.0.0.1:" + self.keep_port()
        relay = self.relay(private, *login, urls=down + " " + private.url)
        self.trouble(relay, "cannot connect to a nats-server")
        private.start()
        relay.wait_ready()
        self.wait_stored(private, [b"a"], user="app", **{"pass": "secret"})
        relay.stop()
        wrong = self.relay(private)
        self.trouble(wrong, "cannot connect to a nats-server")

    def test_a_password_that_changes_is_read_again(self):
        password = self.private("password", "secret")
        server = NatsServer(self, "n8", LOGINS).start()
        self.put([b"a"])
        relay = self.relay(server, "--nats-user=app", "--nats-password-file=" + password).wait_ready()
        server.kill9()
        self.write("n8.conf", harness.read_file(server.config).decode().replace("secret", "changed"))
        server.start()
        self.trouble(relay, "cannot connect to a nats-server")
        self.private("password", "changed")
        self.put([b"b"])
        self.wait_stored(server, [b"a", b"b"], user="app", **{"pass": "changed"})

    def test_permissions(self):
        """The relay may do no more than it needs, and its scan takes many requests."""
        self.server.kill9()
        self.server = NatsServer(self, "n9", PERMISSIONS).start()
        login = ("--no-create", "--nats-timeout=10s", "--nats-user=app", "--nats-password-file=" + self.private("password", "secret"))
        self.add_stream(ALL)
        self.put([b"a"])
        relay = self.relay(self.server, *login).wait_ready()
        self.wait_stored(self.server, [b"a"], **ALL)
        relay.stop()
        self.repeat_last(MANY, **ALL)
        self.put([b"b"])
        relay = self.relay(self.server, *login).wait_ready()
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1, "b to be published", timeout=harness.LONG)

    def repeat_last(self, n, **login):
        """Publishes the headers of the last message n times."""
        client = Client(self.server, **login)
        subject = next(iter(client.api("STREAM.INFO.clicks", subjects_filter=">")["state"]["subjects"]))
        head, _ = client.batches("clicks")[-1]
        header = "NATS/1.0\r\n%s\r\n" % "".join("%s: %s\r\n" % item for item in head.items())
        repeated = "HPUB %s %d %d\r\n%s\r\n" % (subject, len(header), len(header), header)
        client.send(repeated.encode() * n)
        wait_until(lambda: client.api("STREAM.INFO.clicks")["state"]["messages"] > n, "the repetitions to be stored")

    def test_a_stream_with_one_consumer(self):
        """The scan takes several consumers, one after the other."""
        self.add_stream(max_consumers=1)
        self.put([b"a"])
        options = ("--no-create", "--nats-timeout=100ms", "--settle-after=10m")
        relay = self.relay(self.server, *options).wait_ready()
        self.wait_stored(self.server, [b"a"])
        relay.stop()
        self.repeat_last(30000)
        self.put([b"b"])
        relay = self.relay(self.server, *options).wait_listening()
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1, lambda: relay.get("/health").text, timeout=harness.LONG)

    def private(self, name, text):
        """A file that other users may not read."""
        with open(self.path(name), "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(text)
        return self.path(name)

    def publishes(self, server, *login):
        self.put([b"a"])
        relay = self.relay(server, *login).wait_ready()
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1, "the message to be published")
        relay.stop()

    def test_nkey(self):
        key, stranger = (nats_keys.Key(self, nats_keys.USER, name) for name in ("key", "stranger"))
        server = NatsServer(self, "n6", "authorization { users = [ {nkey: %s} ] }\n" % key.public).start()
        self.trouble(self.relay(server, "--nats-nkey=" + stranger.public, "--nats-nkey-file=" + self.private("other", stranger.seed)),
                     "cannot connect to a nats-server")
        self.publishes(server, "--nats-nkey=" + key.public, "--nats-nkey-file=" + self.private("seed", key.seed))

    def test_credentials_file(self):
        config, credentials = nats_keys.operator_mode(self)
        server = NatsServer(self, "n7", config).start()
        self.trouble(self.relay(server), "cannot connect to a nats-server")
        self.publishes(server, "--nats-creds-file=" + self.private("creds", credentials))

    def test_tls(self):
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", self.path("key"), "-out", self.path("cert")],
                              capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        server = NatsServer(self, "n4", 'tls { cert_file: "%s", key_file: "%s" }\n' % (self.path("cert"), self.path("key"))).start()
        self.put([b"a"])
        stranger = self.relay(server)
        self.trouble(stranger, "cannot connect to a nats-server")
        stranger.stop()
        relay = self.relay(server, "--nats-ca-file=" + self.path("cert")).wait_ready()
        wait_until(lambda: relay.stats()["messages_delivered_total"] == 1, "the message to be published")

    def test_tls_addresses_send_no_password_without_tls(self):
        with socket.create_server(("127.0.0.1", 0)) as fake:
            self.relay(self.server, "--nats-user=app", "--nats-password-file=" + self.private("password", "secret42"),
                       urls="tls://127.0.0.1:%d" % fake.getsockname()[1])
            fake.settimeout(harness.PATIENCE)
            connection, _ = fake.accept()
            with connection:
                connection.settimeout(harness.PATIENCE)
                connection.sendall(b'INFO {"server_id":"x","version":"2.9.10","proto":1,"headers":true,"auth_required":true,"max_payload":1048576}\r\n')
                try:
                    got = connection.recv(4096)
                except ConnectionResetError:
                    got = b""
        self.assertNotIn(b"CONNECT", got)

    def test_a_handshake_that_does_not_end(self):
        with socket.create_server(("127.0.0.1", 0)) as fake:
            relay = self.relay(self.server, "--nats-timeout=500ms", urls="tls://127.0.0.1:%d" % fake.getsockname()[1])
            fake.settimeout(harness.PATIENCE)
            connection, _ = fake.accept()
            with connection:
                connection.sendall(b'INFO {"server_id":"x","version":"2.9.10","proto":1,"headers":true,"tls_required":true,"max_payload":1048576}\r\n')
                self.assertEqual(relay.process.wait(harness.PATIENCE), 75)
        self.assertIn("a request to a nats-server hangs", relay.log)

    def test_a_small_max_payload_buries_nothing(self):
        self.server.kill9()
        self.server = NatsServer(self, "n5", "max_payload: 1024\n").start()
        self.put([b"x" * 800] * 20)
        relay = self.relay(self.server)
        self.trouble(relay, "max_payload of the nats-server is less than 65536 bytes")
        self.assertEqual(relay.stats()["messages_buried_total"], 0)

    def test_a_hand_over_that_fails_says_so(self):
        self.put([b"a"])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, [b"a"])
        relay.stop()
        relay = self.relay(self.server, "--settle-after=1h", "--hand-over").wait_ready()
        relay.process.terminate()
        self.assertEqual(relay.process.wait(harness.PATIENCE), 75)
        self.assertIn("the queue is not handed over: repeat the command", relay.log)

    def test_settle_deletes_nothing_of_a_queue_that_is_not_an_old_copy(self):
        """The messages are acknowledged, and no stream has them."""
        self.put([b"a"])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, [b"a"])
        head, _ = Client(self.server).batches("clicks")[-1]
        self.server.kill9()
        self.put([b"b", b"c"])
        for stops in (False, True):
            if stops:
                relay.stop()
            for known, text in (((), b"needs --mark and --opening"), (("--mark=2",), b"is not an old copy"),
                                (("--mark=4",), b"is not an old copy"), (("--mark=2", "--opening=" + head["Millrace-Opening"]), b"is not an old copy")):
                done = self.run_program("millrace", "queue", "settle", "4", *known, "--url=" + self.queue.url)
                self.assertEqual((done.returncode, text in done.stderr, self.depth()), (64, True, 3), done)
        self.server.start()
        self.relay(self.server, "--settle-after=300ms").wait_ready()
        self.wait_stored(self.server, [b"a", b"b", b"c"])

    def test_an_old_copy_of_the_queue_is_refused(self):
        """What the log says leads on: each event is in the stream once, under the old id or the new one."""
        self.put([b"a"])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, [b"a"])
        relay.stop()
        self.queue.stop()
        shutil.copytree(self.path("q"), self.path("copy"))
        self.queue = self.start_queue()
        self.put([b"b"])
        relay = self.relay(self.server, "--settle-after=1h").wait_ready()
        self.wait_stored(self.server, [b"a", b"b"])
        relay.stop()
        self.queue.stop()
        shutil.rmtree(self.path("q"))
        os.rename(self.path("copy"), self.path("q"))
        self.queue = self.start_queue()
        self.put([b"c"])
        relay = self.relay(self.server)
        self.assertEqual(relay.process.wait(harness.PATIENCE), 65)
        self.assertIn("the queue is an old copy", relay.log)
        self.assertEqual(self.stored(self.server).lines, [b"a", b"b"])
        command = re.search(r"run: millrace (queue settle .*?); then start simplequeue once with --restored", relay.log).group(1)
        beyond = self.run_program("millrace", *shlex.split(command.replace("settle 2", "settle 3")))
        self.assertEqual((beyond.returncode, b"the other copy has other messages" in beyond.stderr, self.depth()), (64, True, 2), beyond)
        done = self.run_program("millrace", *shlex.split(command))
        self.assertEqual((done.returncode, self.depth()), (0, 1), done)
        self.queue.stop()
        done = self.run_program("simplequeue", "--restored", "--port=0", "--data-dir=" + self.path("q"))
        self.assertEqual(done.returncode, 0, done)
        self.start_queue()
        self.relay(self.server).wait_ready()
        wait_until(lambda: self.lines_of_queues() == [[b"a", b"b"], [b"c"]], lambda: str(self.lines_of_queues()))

    def lines_of_queues(self):
        cells = {}
        for head, body in Client(self.server).batches("clicks"):
            cells.setdefault(head["Millrace-Queue-Id"], Cell(self)).take([(head, body)])
        return [cell.lines for cell in cells.values()]


if __name__ == "__main__":
    harness.main()
