"""ps_to_http publishes to a stream or a queue of millrace exactly once."""
# full: MILLRACE_ROUNDS=200
import os
import shutil
import socket
import threading
import time

import harness
from forward_case import ForwardCase
from harness import wait_until
from sink import destination, most_tries


class IntoOurOwn(ForwardCase):
    def test_a_stream_is_not_put_into_itself(self):
        """The client would endlessly read the lines that it has written."""
        self.publish()
        for url in (self.pubsub.url, self.pubsub.url.replace("127.0.0.1", "localhost")):
            p = self.to_http("--to_stream=s", "--to_url", url)
            self.assertEqual(p.process.wait(harness.PATIENCE), 78, url)
            self.assertIn("into itself", p.log)
        other = self.start("pubsub", "--data-dir", self.path("other"), "--sync=never", "--streams=s",
                           "--address=127.0.0.1")
        self.finish("--to_stream=s", "--to_url", other.url,
                    there=lambda: other.get("/sub?stream=s&from=earliest&follow=0").body.splitlines())

    def elsewhere(self):
        """Another address of this pubsub, which a comparison of texts does not find."""
        return "http://0.0.0.0:" + self.port

    def stored(self, daemon=None):
        return (daemon or self.pubsub).get("/sub?stream=s&from=earliest&follow=0").body.splitlines()

    def assert_ends_into_itself(self, p):
        self.assertEqual(p.process.wait(harness.PATIENCE), 78, p.log)
        self.assertIn("into itself", p.log)

    def test_a_stream_is_not_put_into_itself_by_another_of_its_addresses(self):
        """No line is sent, also if pubsub is started later than the client."""
        self.publish(5)
        args = ("--to_stream=s", "--to_url", self.elsewhere())
        self.assert_ends_into_itself(self.to_http(*args))
        self.pubsub.stop()
        p = self.to_http(*args).wait_listening()
        wait_until(lambda: "no connection" in p.get("/health").text, lambda: p.get("/health").text)
        self.start_pubsub()
        self.assert_ends_into_itself(p)
        self.assertEqual(self.stored(), self.sent())

    def answered_late(self):
        """An address of pubsub whose first connection is passed on only once the event `may go on` is set: (url, begun, may go on)."""
        listener = socket.create_server(("127.0.0.1", 0))
        begun, may_go_on = threading.Event(), threading.Event()

        def pump(source, sink):
            try:
                while piece := source.recv(1 << 16):
                    sink.sendall(piece)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def serve():
            with listener, listener.accept()[0] as client:
                begun.set()
                may_go_on.wait(harness.PATIENCE)
                with socket.create_connection(("127.0.0.1", int(self.port))) as server:
                    back = threading.Thread(target=pump, args=(server, client), daemon=True)
                    back.start()
                    pump(client, server)
                    back.join()
        threading.Thread(target=serve, daemon=True).start()
        self.addCleanup(may_go_on.set)
        return "http://127.0.0.1:%d" % listener.getsockname()[1], begun, may_go_on

    def test_a_restart_between_the_answers_lets_nothing_in(self):
        """The old connection still brings an answer of the killed pubsub."""
        self.publish(100000)
        url, begun, may_go_on = self.answered_late()
        p = self.to_http("--to_stream=s", "--to_url", url)
        self.assertTrue(begun.wait(harness.PATIENCE))
        self.pubsub.kill9()
        self.start_pubsub()
        may_go_on.set()
        self.assert_ends_into_itself(p)
        self.assertEqual(len(self.stored()), self.n)

    def test_a_destination_that_becomes_the_stream_itself(self):
        """The address first belongs to another pubsub. The next answer shows the change before a line is stored."""
        there, own = self.path("there.sock"), "unix:" + self.path("own.sock")
        other = self.start("pubsub", "--data-dir", self.path("other"), "--sync=never", listen="unix:" + there)
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("pubsub"), "--sync=never", listen=own)
        p = self.to_http("--to_stream=s", "--to_url", other.url).wait_ready()
        self.publish(5)
        wait_until(lambda: self.stored(other) == self.sent(), "the copy")
        os.unlink(there)
        os.symlink(self.path("own.sock"), there)
        other.kill9()
        self.publish(5)
        self.assert_ends_into_itself(p)
        self.assertEqual(self.stored(), self.sent())

    def test_a_destination_that_turns_out_to_be_the_stream_itself(self):
        """The destination has no marks, so only its first answer shows this, after one batch."""
        self.publish(10)
        self.assert_ends_into_itself(self.to_http("--destination", self.elsewhere() + "/pub?stream=s", "--batch=4",
                                                  "--state", self.path("state")))
        self.assertEqual(self.stored(), self.sent() + self.sent()[:4])

    def test_a_copy_of_the_stream_is_another(self):
        """Restored beside it, with the id that it was copied with; another stream of one pubsub is another, too."""
        self.publish(3)
        self.pubsub.stop()
        shutil.copytree(self.path("pubsub"), self.path("copy"))
        self.start_pubsub()
        other = self.start("pubsub", "--data-dir", self.path("copy"), "--sync=never", "--address=127.0.0.1")
        ids = [d.get("/streams").json()["streams"][0]["id"] for d in (self.pubsub, other)]
        self.assertEqual(ids[0], ids[1])
        p = self.to_http("--to_stream=s", "--to_url", other.url, "--from=latest").wait_ready()
        strange = self.to_http("--destination", self.elsewhere() + "/pub?stream=t", "--state", self.path("state"))
        self.publish(4)
        wait_until(lambda: self.stored(other) == self.sent(), lambda: "%s\n%s" % (self.stored(other), p.log))
        wait_until(lambda: self.pubsub.get("/sub?stream=t&from=earliest&follow=0").body.splitlines() == self.sent(),
                   lambda: strange.log)
        p.stop()
        strange.wait_ready().stop()

    def finish(self, *args, there):
        p = self.to_http(*args).wait_listening()
        wait_until(lambda: len(there()) >= self.n, lambda: "%d lines, %d are there\n%s" % (self.n, len(there()), p.log))
        self.assertEqual(there(), self.sent())
        p.stop()

    def rounds(self, *args, there, restarts):
        """The client is killed in each round, and other daemons are restarted at random while it runs."""
        random = harness.seeded()
        for _ in range(harness.rounds(3)):
            p = self.to_http(*args)
            for _ in range(5):
                self.publish(random.randrange(1, 80))
                time.sleep(random.uniform(0, 0.03))
                if random.randrange(5) == 0:
                    random.choice(restarts)()
            p.kill9()
        self.finish(*args, there=there)

    def restart_pubsub(self):
        self.pubsub.kill9()
        self.start_pubsub()

    def test_metrics_show_one_that_is_down_and_up_again(self):
        port = self.keep_port()
        url = "http://127.0.0.1:" + port
        start = ("pubsub", "--data-dir", self.path("other"), "--sync=never", "--address=127.0.0.1", "--port", port)
        other = self.start(*start, port=False)
        p = self.to_http("--to_stream=copy", "--to_url", url).wait_ready()
        self.publish(5)
        wait_until(lambda: other.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines() == self.sent(), "the copy")
        wait_until(lambda: destination(p, url)["up"] == 1, "it to be up")
        before = destination(p, url)["faults_total"]
        began = time.monotonic()
        other.kill9()
        self.publish(5)
        wait_until(lambda: destination(p, url)["faults_total"] >= before + 4, "some tries")
        down = destination(p, url)
        self.assertLessEqual(down["faults_total"] - before, most_tries(time.monotonic() - began))
        self.assertEqual(down["up"], 0)
        self.assertEqual(p.get("/health").status, 503)
        other = self.start(*start, port=False)
        wait_until(lambda: destination(p, url)["up"] == 1, "it to be up")
        wait_until(lambda: other.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines() == self.sent(), "the copy")
        wait_until(lambda: p.get("/health").status == 200, "it to be well again")
        p.stop()

    def test_a_stream_each_line_once(self):
        self.rounds("--to_stream=copy", "--to_url", self.pubsub.url, restarts=[self.restart_pubsub],
                    there=lambda: self.pubsub.get("/sub?stream=copy&from=earliest&follow=0").body.splitlines())

    def test_a_queue_each_line_once(self):
        port = self.keep_port()

        def start():
            self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never",
                                    "--address=127.0.0.1", "--port", port, port=False)

        def restart():
            self.queue.kill9()
            start()
        start()
        self.rounds("--to_queue=in", "--to_url", self.queue.url, restarts=[restart, self.restart_pubsub],
                    there=lambda: self.queue.get("/dump?queue=in").body.splitlines())


if __name__ == "__main__":
    harness.main()
