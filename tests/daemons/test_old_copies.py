"""Directories restored to an older age beside others that are not: each goes on exactly, or refuses and says how to go on."""
# seconds: 35
# parts: 2
# full: MILLRACE_ROUNDS=2
import glob
import json
import os
import re
import shutil
import signal

import harness
from forward_case import Server
from harness import query, request, wait_until
from pubsub_case import PubsubTest
from relay_test import RelayTest

COUNTERS = "[input]\ntime = t\n[total all]\nkey = \"all\"\n"
LINES = 500


def block(n):
    """Lines of one length, so that offsets of different histories meet."""
    return b"".join(b'{"t":1331923249,"n":"%08d"}\n' % (n * LINES + i) for i in range(LINES))


class CopiesTest(PubsubTest):
    BLOCK = len(block(0))

    def pubsub(self, *args, **kw):
        self.stream = super().pubsub("--segment-bytes=64K", "--heartbeat=200ms", *args, **kw)
        return self.stream

    def fill(self, *blocks):
        for n in blocks:
            self.assertEqual(self.pub(block(n)).status, 200)

    def lives(self, *blocks):
        """A start of pubsub for each block."""
        for n in blocks:
            self.pubsub()
            self.fill(n)
            self.stream.stop()

    def backup(self, name):
        shutil.copytree(self.path(name), self.path(name + ".old"))

    def restore(self, name):
        shutil.rmtree(self.path(name))
        os.rename(self.path(name + ".old"), self.path(name))

    def refused_by(self, daemon, *words):
        def is_refused():
            reply = daemon.get("/health")
            return reply.status == 503 and all(w in reply.text for w in words)
        wait_until(is_refused, lambda: "%s\n%s" % (daemon.get("/health").text, daemon.log))


    def accepting(self, daemon):
        """The option that a refusal names."""
        return re.search(r"to continue there\S*.*, start the program once with (--accept-loss\S*?)\"", daemon.log)[1]


class OldCopies(CopiesTest):
    def aggregator(self, *args):
        self.counting = self.daemon(
            "aggregator", "--config=" + self.write("a.conf", COUNTERS), "--data-dir=" + self.path("a"), "--streams=s",
            "--pubsub-url=" + self.url, "--flush-interval=50ms", *args).wait_listening()
        return self.counting

    def total(self):
        reply = self.counting.get("/get?key=all%7Call")
        return sum(int(hour.split(":")[1]) for hour in reply.text.split()) if reply.status == 200 else 0

    def counted(self, blocks):
        wait_until(lambda: self.total() == blocks * LINES, lambda: "%d blocks: %d\n%s" % (blocks, self.total(), self.counting.log))

    def committed(self, blocks):
        self.counted(blocks)
        end = blocks * len(block(0))
        wait_until(lambda: self.counting.stats()["streams"]["s"]["offset"] == str(end), "the commit")
        wait_until(lambda: request(self.url, "GET", "/cursors").json()["cursors"][0]["offset"] == str(end), "the cursor")

    def stop_both(self):
        self.counting.stop()
        self.stream.stop()

    def refused(self, *words):
        self.refused_by(self.counting, *words)

    def held(self):
        """The stream's first offset if the aggregator's cursor is there."""
        earliest = request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]
        cursor = request(self.url, "GET", "/cursors").json()["cursors"][0]["offset"]
        return int(earliest) if cursor == earliest else None

    def test_pubsub_older_than_the_aggregator(self):
        """Refused also once the stream has grown past the cursor; --accept-loss counts what is new, and nothing twice.
        `original` and `copy` are the starts of each pubsub with lines of its own, before the aggregator connects to the copy."""
        for original, copy in ((1, 1), (2, 3)):
            with self.subTest(original=original, copy=copy):
                self.pubsub()
                self.aggregator()
                self.fill(0)
                self.committed(1)
                self.counting.stop()
                self.stream.stop()
                self.backup("p")
                for start in range(original):
                    self.pubsub()
                    self.fill(*range(1, 4) if original == 1 else [1 + start])
                    self.stream.stop()
                ours = 1 + (3 if original == 1 else original)
                self.pubsub()
                self.aggregator()
                self.committed(ours)
                self.stop_both()
                self.restore("p")
                for start in range(copy - 1):
                    self.pubsub()
                    self.fill(10 + start)
                    self.stream.stop()
                self.pubsub()
                self.aggregator()
                self.fill(10 + copy - 1)
                self.refused("restored copy", "from offset %d on it differs" % len(block(0)), "--accept-loss")
                self.fill(*range(10 + copy, 15))
                self.refused("restored copy")
                self.counting.stop()
                self.aggregator()
                self.refused("restored copy", "from offset %d on it differs" % len(block(0)))
                self.counting.stop()
                self.aggregator(self.accepting(self.counting))
                self.counted(ours + 5)
                self.stop_both()
                self.aggregator()
                self.pubsub()
                self.fill(15)
                self.counted(ours + 6)
                self.stop_both()
                for name in ("p", "a"):
                    shutil.rmtree(self.path(name))

    def test_how_the_place_is_found(self):
        """A copy of a running pubsub knows the opening of the cursor. If pubsub was opened since, the clocks tell the place."""
        for starts in 0, 5:
            with self.subTest(starts=starts):
                self.pubsub()
                self.aggregator()
                self.fill(0)
                self.committed(1)
                self.backup("p")
                for n in range(starts):
                    self.stream.stop()
                    self.pubsub()
                    self.fill(1 + n)
                if starts == 0:
                    self.fill(1)
                lines = 1 + max(starts, 1)
                self.committed(lines)
                self.stop_both()
                self.restore("p")
                self.lives(10, 11)
                self.pubsub()
                self.aggregator()
                self.refused("from offset %d on it differs from the lines read, which end at %d; the copy was opened there at 20"
                             % (self.BLOCK, lines * self.BLOCK), "; to continue there")
                self.assertEqual(self.accepting(self.counting), "--accept-loss" if starts == 0 else "--accept-loss-from=%d" % self.BLOCK)
                self.assertEqual("found by the clocks: compare with the time of the restore" in self.counting.log, starts > 0)
                self.counting.stop()
                self.aggregator(self.accepting(self.counting))
                self.counted(lines + 2)
                self.stop_both()
                for name in "p", "a":
                    shutil.rmtree(self.path(name))

    def repair(self, directory, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(b"\xff")
        done = self.run_program("millrace", "journal", "repair", directory)
        self.assertEqual(done.returncode, 0, done)

    def test_a_repair_that_loses_an_opening(self):
        """The cursor is in the lost part, which is a gap: no copy."""
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.stream.stop()
        before = set(glob.glob(self.path("p/streams/s/*.seg")))
        self.pubsub()
        self.fill(1)
        self.committed(2)
        self.stop_both()
        newest, = set(glob.glob(self.path("p/streams/s/*.seg"))) - before
        self.repair(self.path("p/streams/s"), newest, 20)
        self.pubsub()
        self.aggregator()
        self.fill(2)
        self.counted(3)

    def test_a_copy_that_was_opened_aside(self):
        """The original went on afterwards, so the clocks name a later place. The log lists all, and the operator names the right one."""
        self.pubsub()
        self.fill(0)
        self.stream.stop()
        shutil.copytree(self.path("p"), self.path("original"))
        self.pubsub()
        self.fill(10)
        self.stream.stop()
        os.rename(self.path("p"), self.path("p.old"))
        os.rename(self.path("original"), self.path("p"))
        self.pubsub()
        self.aggregator()
        self.fill(1, 2)
        self.committed(3)
        self.stop_both()
        self.restore("p")
        self.pubsub()
        self.fill(11, 12)
        self.aggregator()
        B = len(block(0))
        self.refused("from offset %d on it differs" % (2 * B), "found by the clocks")
        self.assertRegex(self.counting.log, r"openings of the restored copy stream=s openings=\"0 at \S+, %d at \S+, %d at " % (B, 2 * B))
        self.counting.stop()
        for wrong in B + 1, 4 * B:
            self.aggregator("--accept-loss-from=%d" % wrong)
            self.refused("--accept-loss-from=%d: no opening of the copy before the cursor begins there" % wrong)
            self.counting.stop()
        self.aggregator("--accept-loss")
        self.refused("start the program once with --accept-loss-from=%d" % (2 * B))
        self.counting.stop()
        self.aggregator("--accept-loss-from=%d" % B)
        self.counted(3 + 3)

    def test_pubsub_and_aggregator_of_one_age(self):
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.stop_both()
        self.backup("p")
        self.backup("a")
        self.pubsub()
        self.aggregator()
        self.fill(1)
        self.committed(2)
        self.stop_both()
        self.restore("p")
        self.restore("a")
        self.pubsub()
        self.aggregator()
        self.fill(2, 3)
        self.counted(3)

    def test_aggregator_older_than_pubsub(self):
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.backup("a")
        self.aggregator()
        self.fill(1, 2)
        self.committed(3)
        self.counting.stop()
        self.restore("a")
        self.aggregator()
        self.counted(3)

    def test_aggregator_older_than_what_is_retained(self):
        self.pubsub("--retain-bytes=64K")
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.backup("a")
        self.aggregator()
        self.fill(*range(1, 20))
        self.committed(20)
        wait_until(lambda: int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]) > 2 * len(block(0)),
                   "the retention")
        self.counting.stop()
        self.restore("a")
        self.aggregator()
        self.refused("have expired", "--accept-loss", "from offset %d" % len(block(0)))
        reply = self.counting.get("/get?key=all%7Call")
        self.assertEqual((reply.status, reply.json()["code"]), (503, "not-ready"))
        self.assertRegex(reply.json()["detail"], "^refusing stream s: .*have expired")
        earliest = wait_until(lambda: self.held(), "the cursor to hold what is left")
        self.fill(*range(20, 40))
        self.counting.stop()
        self.aggregator("--accept-loss")
        skipped = wait_until(lambda: re.search(r"skipping lost bytes.* after=(\d+)", self.counting.log), lambda: self.counting.log)
        self.assertEqual(int(skipped[1]), earliest, "nothing has expired since the refusal")
        left = 40 * LINES - earliest // (len(block(0)) // LINES)
        wait_until(lambda: self.total() == LINES + left, lambda: "%d: %d" % (LINES + left, self.total()))

    def test_a_stream_older_than_its_cursor(self):
        """Only the stream's directory is restored. Retention keeps what the copy accepts until the aggregator continues there."""
        self.pubsub("--retain-bytes=64K")
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.stream.stop()
        shutil.copytree(self.path("p/streams"), self.path("old"))
        self.pubsub("--retain-bytes=64K")
        self.fill(*range(1, 20))
        self.committed(20)
        self.stream.stop()
        shutil.rmtree(self.path("p/streams"))
        shutil.move(self.path("old"), self.path("p/streams"))
        for first in (20, 40):
            self.pubsub("--retain-bytes=64K")
            self.fill(*range(first, first + 20))
            self.refused("restored copy", "from offset %d on it differs" % len(block(0)))
            if first == 20:
                self.stream.stop()
        self.counting.stop()
        self.aggregator(self.accepting(self.counting))
        self.counted(20 + 40)
        wait_until(lambda: int(request(self.url, "GET", "/streams").json()["streams"][0]["earliest"]) > 30 * len(block(0)),
                   "the retention of what is counted")

    def test_a_stranger_cannot_move_or_delete_the_cursor(self):
        self.pubsub("--retain-bytes=64K")
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        self.fill(*range(1, 20))
        for headers in ({}, {"X-Millrace-Cursor-Key": "0" * 32}):
            for method, more in (("POST", "&from=latest"), ("DELETE", "")):
                reply = request(self.url, method, "/cursors?stream=s&name=aggregator" + more, headers=headers)
                self.assertProblem(reply, 403, "cursor-owned")
        self.aggregator()
        self.counted(20)

    def test_without_its_key_the_aggregator_says_so(self):
        """A new data directory is another owner: it counts, and names the cursor that it cannot move."""
        self.pubsub()
        self.aggregator()
        self.fill(0)
        self.committed(1)
        self.counting.stop()
        shutil.rmtree(self.path("a"))
        self.aggregator()
        self.fill(1)
        self.counted(2)
        wait_until(lambda: "cursor-owned" in self.counting.log, lambda: self.counting.log)
        self.stream.stop()
        self.pubsub("--allow-exit")
        self.assertEqual(request(self.url, "DELETE", "/cursors?stream=s&name=aggregator").status, 200)
        self.fill(2)
        self.committed(3)


KEYS = "[input]\ntime = t\n[total u]\nkey = n\n"


class LiveCopies(CopiesTest):
    """The files of an open slice, copied one after another while the aggregator commits and merges: each copy is refused, or
    it answers exactly once it has caught up."""

    def aggregator(self, directory):
        return self.daemon("aggregator", "--config=" + self.write("a.conf", KEYS), "--data-dir=" + self.path(directory),
                           "--streams=s", "--pubsub-url=" + self.url, "--flush-interval=20ms", "--max-answer=64M",
                           "--cursor=" + directory)

    def test_a_live_copy_of_an_open_slice(self):
        self.pubsub()
        original = self.aggregator("a").wait_ready()
        slices, blocks = self.path("a/slices"), 0

        def fill(n):
            nonlocal blocks
            self.assertEqual(self.pub(b"".join(map(block, range(blocks, blocks + n)))).status, 200)
            blocks += n
            end = str(blocks * len(block(0)))
            wait_until(lambda: original.stats()["streams"]["s"]["offset"] == end, lambda: original.log)

        fill(3)
        for round_ in range(6 if harness.rounds(1) > 1 else 4):
            copy = "copy-%d" % round_
            os.makedirs(self.path(copy, "slices"))
            files = ["0000000001.db", "0000000001.db-wal"]
            for name in files if round_ % 2 else files[::-1]:
                if os.path.exists(os.path.join(slices, name)):
                    shutil.copy(os.path.join(slices, name), self.path(copy, "slices", name))
                fill(20)
                if round_ > 1:  # the log begins anew
                    original.stop()
                    original = self.aggregator("a").wait_ready()
                    fill(2)
            restored = self.aggregator(copy)

            def is_decided(restored=restored):
                try:
                    return restored.process.poll() is not None or (
                        " listening " in restored.log and restored.wait_listening().get("/health").status == 200)
                except (OSError, AssertionError):  # it refused the copy and ended
                    return False
            wait_until(is_decided, lambda: restored.log)
            if restored.process.poll() is not None:
                self.assertEqual(restored.process.wait(), 78, restored.log)
                continue
            end = str(blocks * len(block(0)))
            wait_until(lambda: restored.stats()["streams"]["s"]["offset"] == end, lambda: restored.log)
            reply = restored.get("/fwmatch?key=u%7C")
            expected = b"".join(b"u|%08d,c3gi:1\n" % n for n in range(blocks * LINES))
            if reply.status == 200:
                self.assertEqual(reply.body, expected)
            else:
                self.assertEqual(reply.status, 503, reply)
                wait_until(lambda: restored.get("/health").status == 503, lambda: restored.log)
            restored.stop()


class OldQueues(RelayTest):
    """A queue's directory beside a pubsub that has newer messages of the queue, or has not."""

    def setUp(self):
        super().setUp()
        self.streams = self.start_pubsub()
        self.expected = b""

    def open(self):
        self.queue = self.start_queue()
        self.queue_id = self.queue_identity()["queue_id"]

    def put(self, name, n):
        lines = b"".join(b"%s %d\n" % (name.encode(), i) for i in range(n))
        self.assertEqual(self.queue.post("/mput", lines).status, 200)
        return lines

    def publish_all(self):
        relay = self.start_relay()
        self.wait_stream(self.expected)
        relay.stop()

    def original(self, copies_while_running=False, sessions=1, publishes_each=True):
        """Ten messages are published, and copied. Then the original publishes twenty more, or one in each session."""
        self.open()
        self.expected = self.put("first", 10)
        self.publish_all()
        if not copies_while_running:
            self.queue.stop()
        shutil.copytree(self.path("q"), self.path("old"))
        for i in range(sessions):
            if i or not copies_while_running:
                self.queue.stop()
                self.open()
            self.expected += self.put("lost %d" % i, max(20 // sessions, 1))
            if publishes_each or i + 1 == sessions:
                self.publish_all()
        self.queue.stop()

    def restore(self):
        shutil.rmtree(self.path("q"))
        os.rename(self.path("old"), self.path("q"))

    def refused(self, words, relay=None, is_certain=False):
        """The relay ends with 65, again and again, publishes nothing, and states the command that goes on."""
        for _ in range(2):
            relay = relay or self.relay()
            self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
            began = self.began(11)
            for word in ["old copy", self.queue_id, "stream clicks", "id 11 on, in the opening that began at %s, are not published" % began] + words:
                self.assertIn(word, relay.log)
            for word in ["found by the clocks", "the time of the restore", "from id 1 at 2", "from id 11 at " + began]:
                (self.assertNotIn if is_certain else self.assertIn)(word, relay.log)
            command = re.search(r"millrace (producers --stream=clicks --set=\S+ --mark=\w+)", relay.log)
            self.assertTrue(command, relay.log)
            relay = None
        self.assertEqual(self.stream(), self.expected)
        self.assertTrue(command[1].endswith("--mark=11"), command[1])
        return command[1].split()

    def began(self, first):
        """When the opening with this first id began, as the queue says when it refuses an unknown mark."""
        follow = self.ask_queue("/follow?reader=queue_to_pubsub").json()["follow"]
        reply = self.ask_queue("/reserve?from=0&settle=2&opening=unknown&follow=" + follow, "GET")
        self.assertEqual((reply.status, reply.json()["code"]), (409, "other-history"), reply.text)
        return next(o["began"] for o in reply.json()["openings"] if o["first"] == str(first))

    def go_on(self, command):
        done = self.run_program("millrace", *command, "--url=" + self.pubsub_url)
        self.assertEqual(done.returncode, 0, done)
        self.publish_all()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "every message to be acknowledged")

    def test_an_older_copy_that_publishers_pushed_past_the_mark(self):
        cases = [("few own messages", False, 1, 5), ("as many as were lost", False, 1, 20),
                 ("opened several times before the relay", False, 4, 10), ("copied while it ran, opened several times", True, 3, 20)]
        if harness.rounds(1) > 1:
            cases += [("more own messages", False, 1, 30), ("copied while it ran", True, 1, 30)]
        for name, running, openings, own in cases:
            with self.subTest(name):
                self.original(running)
                self.restore()
                own_lines = b""
                for i in range(openings):
                    if i:
                        self.queue.stop()
                    self.open()
                    own_lines += self.put("own %d" % i, own)
                command = self.refused(["up to id 30"], is_certain=running)
                self.expected += own_lines
                self.go_on(command)
                self.queue.stop()
                self.open()
                self.expected += self.put("later", 3)
                self.publish_all()
            self.start_again()

    def start_again(self):
        """With an empty queue and an empty stream."""
        self.queue.stop()
        self.streams.stop()
        shutil.rmtree(self.path("q"))
        shutil.rmtree(self.path("p"))
        self.streams = self.start_pubsub()
        self.expected = b""

    def test_a_relay_that_runs_on_meanwhile(self):
        self.original()
        self.open()
        relay = self.start_relay()
        self.queue.stop()
        self.restore()
        self.open()
        own = self.put("own", 30)
        command = self.refused(["up to id 30"], relay)
        self.expected += own
        self.go_on(command)

    def test_a_repair_that_loses_an_opening(self):
        """The ids of the lost messages are skipped, and the relay goes on."""
        self.open()
        self.expected = self.put("kept", 3)
        self.publish_all()
        self.queue.stop()
        segment = self.path("q/queues/default/0000000000000001.seg")
        before = harness.read_file(segment)
        self.open()
        self.expected += self.put("lost", 3)
        self.publish_all()
        self.queue.stop()
        after = harness.read_file(segment)
        at = next(i for i, byte in enumerate(before) if i >= len(after) or after[i] != byte) if before != after[:len(before)] else len(before)
        with open(segment, "r+b") as f:
            f.seek(at + 20)
            f.write(b"\xff")
        done = self.run_program("millrace", "journal", "repair", self.path("q/queues/default"))
        self.assertEqual(done.returncode, 0, done)
        self.open()
        self.expected += self.put("later", 3)
        self.publish_all()

    def test_an_original_and_a_copy_that_were_opened_often(self):
        for sessions, openings, publishes_each in ((30, 3, False), (10, 2, True))[:harness.rounds(1)]:
            with self.subTest(sessions=sessions):
                self.original(sessions=sessions, publishes_each=publishes_each)
                self.restore()
                own = b""
                for i in range(openings):
                    self.open()
                    own += self.put("own %d" % i, 30)
                    if i + 1 < openings:
                        self.queue.stop()
                command = self.refused(["up to id %d" % (10 + max(20 // sessions, 1) * sessions)])
                self.expected += own
                self.go_on(command)
            self.start_again()

    def test_what_goes_on_without_any_act(self):
        def restart():
            self.queue.stop()

        def kill():
            self.queue.kill9()

        def move():
            self.queue.stop()
            os.rename(self.path(self.data), self.path("moved"))
            self.data = "moved"

        def idle():
            for _ in range(3):
                self.queue.stop()
                self.queue = self.start_queue(self.data)
            self.queue.stop()

        def set_the_mark():
            """Then it has no opening."""
            self.queue.stop()
            mark = self.mark(self.queue_id)
            self.assertEqual(request(self.pubsub_url, "POST", "/producers?" + query(
                stream="clicks", producer=self.queue_id, mark=mark)).json()["opening"], "")

        def copy_of_all_that_is_published():
            self.queue.stop()
            shutil.copytree(self.path(self.data), self.path("copy"))
            shutil.rmtree(self.path(self.data))
            self.data = "copy"

        self.data = "q"
        self.open()
        for i, act in enumerate((restart, kill, move, idle, set_the_mark, copy_of_all_that_is_published, restart)):
            with self.subTest(act.__name__):
                self.expected += self.put("before %d" % i, 5)
                self.publish_all()
                unpublished = self.put("between %d" % i, 5)
                act()
                self.queue = self.start_queue(self.data)
                self.expected += unpublished + self.put("after %d" % i, 5)
                self.publish_all()

    def test_a_queue_that_is_older_but_has_all_ids(self):
        """The copy has published nothing since, and neither has the original."""
        self.open()
        self.expected = self.put("first", 10)
        self.publish_all()
        self.queue.stop()
        shutil.copytree(self.path("q"), self.path("old"))
        self.open()
        self.put("lost with the queue", 7)
        self.queue.stop()
        self.restore()
        self.open()
        self.expected += self.put("own", 30)
        self.publish_all()

    def test_a_queue_and_pubsub_of_one_age(self):
        """The messages that only the lost directories had are lost; each other one is published once."""
        self.open()
        self.expected = self.put("first", 10)
        self.publish_all()
        kept = self.put("not published yet", 5)
        self.queue.stop()
        self.streams.stop()
        for name in ("q", "p"):
            shutil.copytree(self.path(name), self.path(name + ".old"))
        self.streams = self.start_pubsub()
        self.open()
        held, self.expected = self.expected, self.expected + kept + self.put("lost", 7)
        self.publish_all()
        self.queue.stop()
        self.streams.stop()
        for name in ("q", "p"):
            shutil.rmtree(self.path(name))
            os.rename(self.path(name + ".old"), self.path(name))
        self.streams = self.start_pubsub()
        self.open()
        self.expected = held + kept + self.put("own", 30)
        self.publish_all()

    def old_pubsub(self, published=True, streams="p"):
        """pubsub is copied when it has ten messages, or none of this queue. Then twenty more are published."""
        self.open()
        self.expected = b""
        if published:
            self.expected = self.put("first", 10)
            self.publish_all()
        else:
            self.assertEqual(request(self.pubsub_url, "POST", "/pub?stream=clicks", b"other\n").status, 200)
            self.expected = b"other\n"
        held = self.expected
        self.streams.stop()
        shutil.copytree(self.path("p"), self.path("p.old"))
        self.streams = self.start_pubsub()
        self.expected += self.put("lost", 20)
        self.publish_all()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "the acknowledgements")
        self.streams.stop()
        shutil.rmtree(self.path("p"))
        os.rename(self.path("p.old"), self.path("p"))
        self.expected = held

    def stays_behind(self, missing, first):
        """The relay ends with 65, again and again, publishes nothing, and states the command that goes on."""
        for _ in range(2):
            relay = self.relay()
            self.assertEqual(relay.process.wait(harness.PATIENCE), 65, relay.log)
            for word in ["stream clicks is an old copy: %d %s, ids %d to %d" % (missing, "message" if missing == 1 else "messages", first, first + missing - 1), "missing"]:
                self.assertIn(word, relay.log)
            command = re.search(r"millrace (producers --queue=default --set=[0-9a-f]{8} --mark=%d)" % first, relay.log)
            self.assertTrue(command, relay.log)
        self.assertEqual(self.stream(), self.expected)
        return command[1].split()

    def go_on_without(self, command):
        done = self.run_program("millrace", *command, "--url=" + self.queue.url)
        self.assertEqual(done.returncode, 0, done)
        self.publish_all()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "every message to be acknowledged")

    def test_pubsub_older_than_the_queue(self):
        """Whatever the queue accepts, and however often it starts, before pubsub is back."""
        for published, restart in ((True, False), (True, True), (False, True)):
            with self.subTest(published=published, restart=restart):
                self.old_pubsub(published)
                if restart:
                    self.queue.stop()
                    self.open()
                later = self.put("later", 3)
                if restart:
                    self.queue.kill9()
                    self.open()
                self.streams = self.start_pubsub()
                command = self.stays_behind(*((20, 11) if published else (20, 1)))
                self.expected += later
                self.go_on_without(command)
                self.queue.stop()
                self.open()
                self.expected += self.put("even later", 3)
                self.publish_all()
            self.start_again()

    def test_pubsub_and_aggregator_of_one_age_beside_a_newer_queue(self):
        """Both agree with each other, so only the queue knows."""
        def aggregator():
            return self.start("aggregator", "--config=" + self.write("a.conf", COUNTERS), "--data-dir=" + self.path("a"),
                              "--streams=clicks", "--pubsub-url=" + self.pubsub_url, "--flush-interval=50ms")
        self.open()
        self.expected = block(0)
        self.assertEqual(self.queue.post("/mput", block(0)).status, 200)
        self.publish_all()
        counting = aggregator()
        wait_until(lambda: counting.stats()["streams"]["clicks"]["offset"] == str(len(block(0))), "the commit")
        counting.stop()
        self.streams.stop()
        for name in "p", "a":
            shutil.copytree(self.path(name), self.path(name + ".old"))
        self.streams = self.start_pubsub()
        self.assertEqual(self.queue.post("/mput", block(1)).status, 200)
        self.expected += block(1)
        self.publish_all()
        wait_until(lambda: self.queue_numbers()["depth"] == 0, "the acknowledgements")
        self.streams.stop()
        for name in "p", "a":
            shutil.rmtree(self.path(name), ignore_errors=True)
            os.rename(self.path(name + ".old"), self.path(name))
        self.streams = self.start_pubsub()
        counting = aggregator()
        self.expected = block(0)
        self.assertEqual(self.queue.post("/mput", block(2)).status, 200)
        command = self.stays_behind(LINES, LINES + 1)
        self.expected += block(2)
        self.go_on_without(command)
        wait_until(lambda: "%d" % (2 * LINES) in counting.get("/get?key=all%7Call").text, lambda: counting.log)

    def test_what_is_no_old_copy_of_pubsub(self):
        """Another stream, another consumer, buried and taken messages: the relay goes on."""
        self.open()
        self.expected = self.put("first", 10)
        self.publish_all()
        self.put("taken", 5)
        self.assertEqual(self.queue.get("/mget?items=2").status, 200)
        lease = self.ask_queue("/reserve?items=2&reader=other")
        self.assertEqual(self.ask_queue("/ack?lease=%s&id=13-14" % lease.headers["X-Millrace-Lease"]).json()["acked"], 2)
        lease = self.ask_queue("/reserve?items=1&reader=other")
        self.assertEqual(self.ask_queue("/bury?lease=%s&id=15" % lease.headers["X-Millrace-Lease"]).json()["buried"], 1)
        self.expected += self.put("later", 3)
        self.publish_all()
        relay = self.start_relay("--stream=elsewhere")
        self.put("elsewhere", 3)
        wait_until(lambda: self.queue_numbers()["depth"] == 0, lambda: relay.log)
        relay.stop()
        self.expected += self.put("back", 3)
        self.publish_all()

    def stored(self):
        reply = request(self.pubsub_url, "GET", "/producer?" + query(stream="clicks", producer=self.queue_id)).json()
        return int(reply["mark"]), reply["opening"]

    def test_the_mark_names_the_opening(self):
        """It assigned the id of the message before the mark, whichever opening publishes this message."""
        self.open()
        first = self.queue_numbers()["opening"]
        self.assertRegex(first, "^[0-9a-f]{24}$")
        self.expected = self.put("first", 10)
        self.publish_all()
        self.assertEqual(self.stored(), (11, first))
        self.expected += self.put("not published yet", 1)
        self.queue.stop()
        self.open()
        second = self.queue_numbers()["opening"]
        self.assertNotEqual(first, second)
        self.assertEqual(self.queue_identity()["opening"], first)
        self.publish_all()
        self.assertEqual(self.stored(), (12, first))
        self.expected += self.put("second", 1)
        self.assertEqual(self.queue_identity()["opening"], second)
        self.publish_all()
        self.assertEqual(self.stored(), (13, second))


class OldCopiesOfStreams(CopiesTest):
    """The programs that store a cursor of their own: cells in which pubsub is older, refused until --accept-loss."""

    def tool(self, name, *args):
        self.reader = self.daemon(name, "--pubsub-url=" + self.url, "--stream=s", "--commit-every=20ms", *args).wait_listening()
        return self.reader

    def state(self):
        with open(self.state_path) as f:
            return json.load(f)

    def stored(self, blocks):
        def is_stored():
            try:
                return self.state()["offset"] == str(blocks * self.BLOCK)
            except OSError:
                return False
        wait_until(is_stored, lambda: "%d blocks to be stored\n%s" % (blocks, self.reader.log))

    def restarted(self, start, *args):
        self.reader.stop()
        return start(*args)

    def grown_past_the_cursor(self, start):
        """The reader has blocks 0 to 3. The restored pubsub has block 0, and then 10 to 14."""
        self.pubsub()
        start()
        self.fill(0)
        self.stored(1)
        self.reader.stop()
        self.stream.stop()
        self.backup("p")
        self.lives(1, 2, 3)
        self.pubsub()
        start()
        self.stored(4)

    def refused_whatever_comes(self, start):
        self.reader.stop()
        self.stream.stop()
        self.restore("p")
        self.pubsub()
        start()
        why = "from offset %d on it differs" % self.BLOCK
        self.fill(10)
        self.refused_by(self.reader, "restored copy", why, "--accept-loss")
        self.assertIn(why, self.reader.log)
        self.fill(11, 12, 13, 14)
        self.refused_by(self.reader, "restored copy")
        self.restarted(start)
        self.refused_by(self.reader, why)
        self.stored(4)

    def learns_the_opening_of_each_start(self, start):
        """Starts of pubsub between two reads: the state's cursor is accepted wherever it ends."""
        self.pubsub()
        start()
        for n in range(3):
            self.fill(3 * n)
            self.stored(3 * n + 1)
            self.reader.stop()
            for k in 1, 2:
                self.fill(3 * n + k)
                self.stream.stop()
                self.pubsub()
            start()
            self.stored(3 * n + 3)
        reply = self.sub(str(9 * self.BLOCK), id=self.state()["id"] + "." + self.state()["opening"])
        self.assertEqual(reply.status, 200)
        self.restarted(start)
        self.fill(9)
        self.stored(10)


class MarksOfOpenings(CopiesTest):
    def test_a_mark_in_an_earlier_opening_than_the_first_request(self):
        """The first request is from the latest line; the mark at the destination belongs to an opening before."""
        def forward():
            return self.start("ps_to_http", "--pubsub-url=" + self.url, "--stream=s", "--from=latest", "--to-stream=t",
                              "--to-url=" + self.url)

        def copied(*blocks):
            expected = b"".join(map(block, blocks))
            wait_until(lambda: self.sub(stream="t").body == expected, lambda: forwarder.log)

        self.pubsub()
        self.fill(0)
        forwarder = forward()
        self.fill(1)
        copied(1)
        forwarder.stop()
        self.stream.stop()
        self.pubsub()
        self.fill(2)
        forwarder = forward()
        copied(1, 2)

    def test_the_marks_of_a_filter_that_is_behind_its_source(self):
        """The lines of several openings wait to be filtered: each mark has the opening of its own line."""
        costly = b'{"c":"%s!"}\n' % (b"a" * 40)
        for n in range(10):
            if n:
                self.stream.stop()
            self.pubsub()
            self.assertEqual(self.pub((costly * 4 + b'{"c":"a"}\n') * 3).status, 200)
        self.assertEqual(self.pub(b"here\n", stream="t").status, 200)
        end, identity = self.sub("latest").header("X-Millrace-Offset"), self.sub().header("X-Millrace-Stream-Id")
        self.start("pubsub_filtered", "--pubsub-url=" + self.url, "--stream=s", "--to-stream=t",
                   "--keep-if=c ~ ^(a+)+$", "--port=0")
        producer = "/producer?" + query(stream="t", producer=identity)
        wait_until(lambda: request(self.url, "GET", producer).json()["mark"] == end, "all lines to be filtered")
        dump = self.run_program("millrace", "journal", "dump", self.path("p/streams/t")).stdout.decode()
        seen = set(re.findall(r" producer=%s mark=(\d+) opening=([0-9a-f]*)" % identity, dump))
        self.assertIn(end, [mark for mark, _ in seen])
        for mark, opening in seen:
            self.assertEqual(self.sub(mark, id=identity + "." + opening).status, 200, (mark, opening))


class OldCopiesOfMarks(CopiesTest):
    """The programs whose cursor is a mark in the destination: it names an opening of the source."""

    def setUp(self):
        super().setUp()
        target, queue = "unix:" + self.path("t.sock"), "unix:" + self.path("q.sock")
        self.start("pubsub", "--data-dir=" + self.path("t"), "--sync=never", listen=target)
        self.start("simplequeue", "--data-dir=" + self.path("q"), "--sync=never", listen=queue)
        source = ("--pubsub-url=" + self.url, "--stream=s")
        self.programs = (
            (target, "stream", ("ps_to_http", *source, "--port=0", "--to-stream=t", "--to-url=" + target)),
            (queue, "queue", ("ps_to_http", *source, "--port=0", "--to-queue=t", "--to-url=" + queue)),
            (target, "stream", ("pubsub_filtered", *source, "--port=0", "--drop=x", "--to-stream=f", "--to-pubsub-url=" + target)),
            (target, "stream", ("ps_to_http", *source, "--port=0", "--to-stream=p", "--to-url=" + target, "--producer=" + "p" * 50)))

    def copied(self, url, kind, *blocks):
        def found():
            if kind == "queue":
                return request(url, "GET", "/dump?queue=t").body
            return request(url, "GET", "/sub?follow=0&from=earliest&stream=" + self.to).body
        wait_until(lambda: found() == b"".join(map(block, blocks)), lambda: self.reader.log)

    def forward(self, program):
        self.reader = self.daemon(*program).wait_listening()

    def test_a_mark_in_a_restored_source_is_refused_whatever_comes(self):
        for url, kind, program in self.programs:
            with self.subTest(program=program):
                self.to = re.search("--to-(?:stream|queue)=(.)", " ".join(program))[1]
                self.pubsub()
                self.forward(program)
                self.fill(0)
                self.copied(url, kind, 0)
                self.reader.stop()
                self.stream.stop()
                self.backup("p")
                self.lives(1, 2, 3, 4)
                self.pubsub()
                self.forward(program)
                self.copied(url, kind, 0, 1, 2, 3, 4)
                self.reader.stop()
                self.stream.stop()
                self.restore("p")
                self.lives(10, 11)
                self.pubsub()
                self.forward(program)
                where = "from offset %d on it" % self.BLOCK
                self.refused_by(self.reader, "restored copy", where)
                self.fill(12, 13)
                self.refused_by(self.reader, "restored copy", where)
                self.copied(url, kind, 0, 1, 2, 3, 4)
                command = re.search(r"millrace (producers --\S+ --set=\S+ --mark=\d+)", self.reader.log)
                self.assertTrue(command, self.reader.log)
                self.reader.stop()
                done = self.run_program("millrace", *command[1].split(), "--url=" + url)
                self.assertEqual(done.returncode, 0, done)
                self.forward(program)
                self.copied(url, kind, 0, 1, 2, 3, 4, *range(10, 14))
                self.reader.stop()
                self.stream.stop()
                shutil.rmtree(self.path("p"))


class OldCopiesOfFiles(OldCopiesOfStreams):
    def writer(self, *args):
        self.state_path = self.path("f/.ps_to_file-s.json")
        return self.tool("ps_to_file", "--port=0", "--filename-format=" + self.path("f/s-%Y.ndjson"), *args)

    def by_event(self, *args):
        return self.writer("--time-field=t", *args)

    def roll(self):
        self.reader.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.state()["files"], lambda: "all files to be finished\n" + self.reader.log)

    def manifests(self):
        found = []
        for path in glob.glob(self.path("f/*.manifest.json")):
            with open(path) as f:
                m = json.load(f)
            m["text"] = harness.read_file(self.path("f/" + m["file"]))
            self.assertEqual(len(m["text"]), int(m["bytes"]))
            self.assertEqual((m["end"], m["opening"]), (str(int(m["first"]) + len(m["text"])), m["opening"]))
            found.append(m)
        return sorted(found, key=lambda m: (m["text"][-20:], int(m["first"])))

    def test_each_line_is_in_one_file(self):
        for start in self.writer, self.by_event:
            with self.subTest(start=start.__name__):
                self.grown_past_the_cursor(start)
                self.refused_whatever_comes(start)
                self.assertEqual(len(self.state()["files"]), 1)
                self.restarted(start, self.accepting(self.reader))
                self.stored(6)
                self.restarted(start)
                self.fill(15)
                self.stored(7)
                self.roll()
                found = self.manifests()
                self.assertEqual([m["text"] for m in found], [b"".join(map(block, range(4))), b"".join(map(block, range(10, 16)))])
                self.assertEqual([(m["first"], m["end"]) for m in found],
                                 [("0", str(4 * self.BLOCK)), (str(self.BLOCK), str(7 * self.BLOCK))])
                statuses = [self.sub(m["end"], id=m["id"] + "." + m["opening"]).status for m in found]
                self.assertEqual(statuses, [409, 200], "a manifest names the history of its lines")
                self.reader.stop()
                self.stream.stop()
                for name in "p", "f":
                    shutil.rmtree(self.path(name))

    def test_files_of_one_range_in_two_histories(self):
        """Each keeps its manifest, though the stream's id, the offsets, the lines and the bytes are the same."""
        self.pubsub()
        self.writer()
        self.fill(0)
        self.stored(1)
        self.roll()
        self.reader.stop()
        self.stream.stop()
        self.backup("p")
        self.pubsub()
        self.writer()
        self.fill(1)
        self.stored(2)
        self.roll()
        self.fill(2)
        self.stored(3)
        self.reader.stop()
        self.stream.stop()
        self.restore("p")
        self.pubsub()
        self.fill(11)
        self.writer("--accept-loss")
        self.refused_by(self.reader, "found by the clocks")
        self.restarted(self.writer, self.accepting(self.reader))
        self.stored(2)
        self.roll()
        self.fill(12)
        self.stored(3)
        self.roll()
        self.assertEqual([m["text"] for m in self.manifests()], [block(n) for n in (0, 1, 2, 11, 12)])

    def test_killed_while_going_back(self):
        self.grown_past_the_cursor(self.writer)
        self.refused_whatever_comes(self.writer)
        self.reader.stop()
        accepting = self.accepting(self.reader)
        self.tool("ps_to_file", "--port=0", "--filename-format=" + self.path("f/s-%Y.ndjson"), accepting).kill9()
        self.writer()
        wait_until(lambda: self.reader.get("/health").status == 200 or "restored copy" in self.reader.get("/health").text,
                   lambda: self.reader.log)
        self.restarted(self.writer, accepting)
        self.stored(6)
        self.roll()
        self.assertEqual(b"".join(m["text"] for m in self.manifests()), b"".join(map(block, [0, 1, 2, 3, 10, 11, 12, 13, 14])))

    def test_openings(self):
        self.learns_the_opening_of_each_start(self.writer)


class OldCopiesOfDeliveries(OldCopiesOfStreams):
    def setUp(self):
        super().setUp()
        self.server = Server(self)
        self.state_path = self.path("http.state")

    def sender(self, *args):
        return self.tool("ps_to_http", "--port=0", "--destination=" + self.server.url + "/in", "--state=" + self.state_path, *args)

    def test_each_line_is_delivered(self):
        self.grown_past_the_cursor(self.sender)
        self.refused_whatever_comes(self.sender)
        self.restarted(self.sender, self.accepting(self.reader))
        self.stored(6)
        self.restarted(self.sender)
        self.fill(15)
        self.stored(7)
        self.assertEqual(b"".join(self.server.bodies), b"".join(map(block, [0, 1, 2, 3, 10, 11, 12, 13, 14, 15])))

    def test_openings(self):
        self.learns_the_opening_of_each_start(self.sender)


if __name__ == "__main__":
    harness.main()
