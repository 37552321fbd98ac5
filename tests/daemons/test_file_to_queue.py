"""millrace file_to_queue (millrace put): packed files, resuming after an interruption, the rate, slow inputs and queues."""
# full: MILLRACE_ROUNDS=100
import bz2
import contextlib
import gzip
import lzma
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import time

import harness
from harness import wait_until
from put_case import QueueTest, numbered

IN_TIME = 25  # seconds: before a request is given up (30 s), for what takes one second at most

class Files(QueueTest):
    def test_packed_files(self):
        text = numbered(5000)
        gz = self.write("a.gz", gzip.compress(text[:20000]) + gzip.compress(text[20000:40000]))
        zst = self.write("b.zst", subprocess.run(["zstd", "-c"], input=text[40000:-1], capture_output=True,
                                                 check=True).stdout)
        done = self.put(gz, zst)
        self.assertEqual(done.returncode, 0, done)
        # a line that two files share is two lines
        self.assertEqual(b"".join(self.stored()), text.replace(b"\n", b""))

    def test_damaged_files(self):
        packed = gzip.compress(numbered(5000))
        for content, words in ((packed[:len(packed) // 2], b"truncated"),
                               (packed[:100] + b"\0" * 50 + packed[150:], b"damaged")):
            done = self.put(self.write("damaged.gz", content))
            self.assertEqual(done.returncode, 65, done)
            self.assertIn(words, done.stderr)

    def test_zstd_that_begins_with_what_is_to_be_skipped(self):
        """As pzstd writes files: a skippable frame with a length stands before each frame."""
        text = numbered(5000)
        packed = b""
        for i, part in enumerate((text[:20000], text[20000:])):
            frame = subprocess.run(["zstd", "-c"], input=part, capture_output=True, check=True).stdout
            packed += b"%c\x2a\x4d\x18\x04\0\0\0" % (0x50 + 15 * i) + struct.pack("<I", len(frame)) + frame
        done = self.put(self.write("pz.zst", packed + b"\x55\x2a\x4d\x18\0\0\0\0"))
        self.assertEqual((done.returncode, self.stored()), (0, text.splitlines()), done)

    def test_what_is_packed_otherwise_is_refused(self):
        """Such a file is refused before a line of any file is posted. A pipe is refused once it is read."""
        good = self.write("a", numbered(5))
        for packer, content in (("xz", lzma.compress(b"one\n")), ("bzip2", bz2.compress(b"one\n")),
                                ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7"), ("zip", b"PK\x03\x04\x14\0"),
                                ("compress", b"\x1f\x9d\x90on"), ("7z", b"7z\xbc\xaf\x27\x1c\0\4"),
                                ("lzip", b"LZIP\x01\x0c"), ("lzop", b"\x89LZO\0\r\n\x1a\n\x10")):
            name = self.write("packed", content)
            for args, stdin in (([good, name], b""), ([], content), (["--follow", "--producer=f", name], b"")):
                done = self.put(*args, input=stdin)
                self.assertEqual((done.returncode, self.depth()), (65, 0), done)
                self.assertIn(b"compressed with %s; decompress the file first" % packer.encode(), done.stderr)

    def test_text_that_begins_as_something_packed_does(self):
        lines = [b"BZh9 is how bzip2 begins", b"PK", b"7z"]
        for line in lines:
            self.assertEqual(self.put(self.write("a", line + b"\n")).returncode, 0)
        self.assertEqual(self.stored(), lines)

    def test_what_stands_behind_gzip(self):
        """Zeros after the packed data, as on tapes, are ignored. Other bytes end the run after the last packed line."""
        packed = gzip.compress(numbered(20)[:-1]) + gzip.compress(b"\n" + numbered(30, 20))
        done = self.put(self.write("tape.gz", packed + b"\0" * 600000))
        self.assertEqual((done.returncode, self.stored()), (0, numbered(50).splitlines()), done)
        for behind, at in ((b"garbage", 0), (b"\0" * 300000 + b"x", 300000), (b"\0" + packed, 1)):
            before = self.depth()
            done = self.put(self.write("garbage.gz", packed + behind))
            self.assertEqual((done.returncode, self.depth()), (65, before + 50), done)
            self.assertIn(b"trailing garbage from byte %d on" % (len(packed) + at), done.stderr)
            self.assertIn(b"posted by this run: the first 50 lines of %s\n" % self.path("garbage.gz").encode(), done.stderr)

    def test_all_names_are_looked_at_before_the_first_line(self):
        good, missing, directory = self.write("a", numbered(5000)), self.path("missing"), self.path("directory")
        os.mkdir(directory)
        done = self.put("--batch=100", good, missing, directory)
        self.assertEqual((done.returncode, self.depth()), (66, 0), done)
        for words in (missing + ": No such file", directory + ": Is a directory"):
            self.assertIn(words.encode(), done.stderr)

    def test_an_error_tells_how_much_of_which_files_was_posted(self):
        packed = gzip.compress(numbered(50000))
        first, second = self.write("a", numbered(250) + b"\n\n"), self.write("b", numbered(1))
        damaged = self.write("damaged.gz", packed[:len(packed) // 2])
        done = self.put("--batch=100", first, second, damaged, first)
        self.assertEqual(done.returncode, 65, done)
        self.assertGreater(self.depth(), 1000)
        self.assertIn(b"posted by this run: all 250 lines of %s, all 1 line of %s, the first %d lines of %s\n" % (
            first.encode(), second.encode(), self.depth() - 251, damaged.encode()), done.stderr)
        before = self.depth()
        done = self.put("--batch=200", first, self.write("empty.gz", packed[:30]))
        self.assertEqual(done.returncode, 65, done)
        self.assertEqual(self.depth() - before, 250, "what stands before the damage, also when it fills no batch")
        self.assertIn(b"posted by this run: all 250 lines of %s\n" % first.encode(), done.stderr)
        done = self.put(self.path("empty.gz"))
        self.assertIn(b"posted by this run: nothing\n", done.stderr)

    def test_an_interruption(self):
        """Killed or interrupted by Ctrl-C again and again, the command continues from the mark: each line is stored once, in order."""
        random = harness.seeded()
        whole = numbered(30000)
        files = [self.write("a", whole[:100000]), self.write("b.gz", gzip.compress(whole[100000:250000])),
                 self.write("c", whole[250000:-1])]
        # files end in the middle of a line: each part is a line of its own
        expected = whole[:100000].splitlines() + whole[100000:250000].splitlines() + whole[250000:].splitlines()
        for _ in range(harness.rounds(3)):
            before = self.mark()
            p = self.begin("--producer=p", "--batch=200", *files)
            wait_until(lambda: self.mark() > before or p.poll() is not None, "some progress")
            time.sleep(random.uniform(0, 0.02))
            p.send_signal(random.choice((signal.SIGKILL, signal.SIGINT)))
            p.wait()
        done = self.put("--producer=p", *files)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored(), expected)
        again = self.put("--producer=p", *files)
        self.assertIn(b"0 events posted", again.stderr)
        self.assertEqual(self.depth(), len(expected))

    def test_a_last_line_without_a_line_feed(self):
        """The last line is put, with a note. Once the file has the line feed, the next put continues after it."""
        name = self.write("a", "one\ntwo")
        done = self.put("--producer=p", name)
        self.assertEqual((done.returncode, self.stored()), (0, [b"one", b"two"]))
        self.assertIn(b"a ends without LF; posted its last line as it stands", done.stderr)
        self.assertNotIn(b"line feed", self.put("--producer=p", "--quiet", name).stderr)
        with open(name, "ab") as f:
            f.write(b"\nthree\n")
        done = self.put("--producer=p", name)
        self.assertEqual((done.returncode, self.stored()), (0, [b"one", b"two", b"three"]))
        self.assertNotIn(b"line feed", done.stderr)
        with open(name, "ab") as f:
            f.write(b"fo")
        self.assertEqual(self.put("--producer=p", name).returncode, 0)
        with open(name, "ab") as f:
            f.write(b"ur\n")
        done = self.put("--producer=p", name)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"no line ends at byte", done.stderr)

    def test_pace(self):
        began = time.monotonic()
        self.assertEqual(self.put("--rate=200", self.write("a", numbered(100))).returncode, 0)
        self.assertGreater(time.monotonic() - began, 0.4)
        self.assertEqual(self.depth(), 100)

    def seen_on_a_terminal(self, *args, status=0):
        controller, terminal = pty.openpty()
        p = subprocess.Popen(self.argv(*args), stderr=terminal, stdin=subprocess.DEVNULL)
        os.close(terminal)
        seen = b""
        while select.select([controller], [], [], harness.PATIENCE)[0]:
            try:
                piece = os.read(controller, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        os.close(controller)
        self.assertEqual(p.wait(harness.PATIENCE), status)
        return seen

    def test_progress_on_a_terminal(self):
        seen = self.seen_on_a_terminal("--rate=1000", "--batch=50", self.write("a", numbered(400)))
        self.assertRegex(seen, rb"\[#+ *\] +\d+ %  \d+ events  .* events/s  ETA \d+ s")
        self.assertIn(b"400 events posted", seen)

    def test_progress_of_small_packed_files(self):
        """Each of these files is read and unpacked in one step."""
        first = self.write("a.gz", gzip.compress(numbered(10000, 10000)))
        self.write("b", numbered(10000, 20000))
        subprocess.run(["zstd", "-q", self.path("b")], check=True)
        seen = self.seen_on_a_terminal("--rate=20000", "--batch=500", first, self.path("b.zst"))
        shown = [(int(percent), int(events)) for percent, events in re.findall(rb"(\d+) %  (\d+) events", seen)]
        sizes = [os.path.getsize(path) for path in (first, self.path("b.zst"))]
        self.assertGreater(len(shown), 3)
        for percent, events in shown:
            done = sizes[0] * min(events, 10000) / 10000 + sizes[1] * max(events - 10000, 0) / 10000
            self.assertAlmostEqual(percent, 100 * done / sum(sizes), delta=10, msg=shown)

    def test_a_message_is_on_a_line_of_its_own(self):
        """On a terminal, a message stands below the progress; otherwise it comes first."""
        damaged = self.write("a.gz", gzip.compress(numbered(2000))[:-4])
        unfinished = self.write("b", numbered(2000) + b"end")
        for path, status, why in ((damaged, 65, b"millrace put: %s: " % damaged.encode()),
                                  (unfinished, 0, b"millrace put: %s ends without" % unfinished.encode())):
            done = self.put(path)
            self.assertEqual((done.returncode, done.stderr[:len(why)]), (status, why))
            seen = self.seen_on_a_terminal("--batch=10", path, status=status)
            self.assertIn(b" events/s", seen)
            self.assertIn(b"\r\n" + why, seen)

    def test_help_says_the_name_it_is_called_by(self):
        for name in ("put", "file_to_queue"):
            for args in ((name, "--help"), ("help", name)):
                self.assertIn(b"\nusage: millrace %s [OPTION...] " % name.encode(),
                              self.run_program("millrace", *args).stdout)


class Waiting(QueueTest):
    """A put that waits for its input or for the queue reports the wait, has posted all complete lines, and can be stopped."""

    def stop(self, p, status):
        p.send_signal(signal.SIGTERM)
        ended = p.wait(IN_TIME)
        said = p.stderr.read()
        self.assertEqual(ended, status, said)
        return said

    @staticmethod
    def waits(p):
        """It has its signal handlers, and sleeps."""
        with open("/proc/%d/status" % p.pid) as f:
            fields = dict(line.split(":", 1) for line in f)
        return int(fields["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1 and fields["State"].split()[0] == "S"

    def test_lines_of_a_slow_pipe_are_not_kept_for_a_full_batch(self):
        for batch in (["--batch=1000"], ["--batch=1000", "--producer=p"]):
            before = self.depth()
            p = self.begin(*batch, stdin=subprocess.PIPE)
            p.stdin.write(numbered(3))
            p.stdin.flush()
            wait_until(lambda: self.depth() == before + 3, "three lines, though the pipe stays open")
            written = 3
            while self.depth() == before + 3:  # a trickle is never idle for long, and is not waited for either
                p.stdin.write(numbered(1, written))
                p.stdin.flush()
                written += 1
                time.sleep(0.03)
            self.assertLess(written, 1000, "not a full batch")
            p.stdin.write(b'{"n":')
            p.stdin.flush()
            wait_until(lambda: self.depth() == before + written, "all whole lines")
            self.stop(p, 130)
            self.assertEqual(self.stored()[before:], numbered(written).splitlines(), "half a line is none")
            p.stdin.close()

    def test_a_terminal_on_which_nothing_is_typed_can_be_left(self):
        p = self.begin(stdin=subprocess.PIPE)
        wait_until(lambda: self.waits(p), "it to wait for input")
        self.stop(p, 130)
        p.stdin.close()

    def test_a_queue_that_is_away_or_does_not_answer_does_not_hold_it(self):
        name = self.write("a", numbered(10))
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            p = self.begin("--producer=p", "--queue-url=http://127.0.0.1:%d" % silent.getsockname()[1], name)
            client = silent.accept()[0]
            client.recv(10)
            self.assertIn(b"stopped; 0 events of this run are stored", self.stop(p, 75))
            client.close()
        self.queue.stop()
        p = self.begin(name)
        wait_until(lambda: select.select([p.stderr], [], [], 0)[0], "it to say what it waits for")
        said = self.stop(p, 75)
        self.assertIn(b"no connection", said)
        self.assertIn(b"retrying", said)

    def test_it_gives_up_when_told_to(self):
        name = self.write("a", numbered(10))
        self.queue.stop()
        for args in ([name], ["--follow", "--producer=p", name]):
            began = time.monotonic()
            done = self.put("--timeout=2s", *args)
            self.assertEqual(done.returncode, 75, done)
            self.assertGreaterEqual(time.monotonic() - began, 2, "not before the time is over")
            self.assertIn(b"no progress within --timeout", done.stderr)

    def test_a_time_that_ends_during_the_connect(self):
        """Nothing was sent, so nothing can be stored."""
        name = self.write("a", numbered(10))
        with socket.socket() as busy, contextlib.ExitStack() as waiting:
            busy.bind(("127.0.0.1", 0))
            busy.listen(0)
            for _ in range(4):  # fill the list of connections that wait for an accept
                client = waiting.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(busy.getsockname())
            p = self.begin("--timeout=1s", "--queue-url=http://127.0.0.1:%d" % busy.getsockname()[1], name)
            self.assertEqual(p.wait(IN_TIME), 75)
            said = p.stderr.read()
            self.assertIn(b"no connection", said)
            self.assertIn(b"no progress within --timeout; 0 events", said)

    def test_a_queue_that_does_not_answer(self):
        """--timeout also ends a request, long before the client's own limit (30 s)."""
        name = self.write("a", numbered(10))
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            for args, said in (["--producer=p"], b"no progress within --timeout"), ([], b"the last batch may or may not be stored"):
                p = self.begin("--timeout=1s", "--queue-url=http://127.0.0.1:%d" % silent.getsockname()[1], *args, name)
                self.assertEqual(p.wait(IN_TIME), 75)
                shown = p.stderr.read()
                self.assertIn(said, shown)
                self.assertIn(b"no reply in time", shown)

    def test_a_token(self):
        os.chmod(self.write("token", "secret"), 0o600)
        self.queue = self.start("simplequeue", "--auth-token-file=" + self.path("token"))
        name = self.write("a", numbered(10))
        refused = self.put(name)
        self.assertEqual(refused.returncode, 65, refused)
        self.assertIn(b"the queue answered 401: a token is required (send Authorization: Bearer ", refused.stderr)
        self.assertEqual(self.put("--queue-token-file=" + self.path("token"), name).returncode, 0)
        self.assertEqual(self.put("--queue-token-file=" + self.path("none"), name).returncode, 78)

    def test_bad_settings(self):
        self.assertEqual(self.put("--queue-url=nonsense://", self.write("a", "x\n")).returncode, 64)
        done = self.put("--state", self.path("state"), self.write("a", "x\n"))
        self.assertEqual((done.returncode, self.depth()), (64, 0), done)
        self.assertIn(b"--state needs --producer", done.stderr)

    def test_a_standard_input_that_is_closed(self):
        for args in ([], ["-"], [self.write("a", "x\n"), "-"]):
            done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&-', "sh", *self.argv(*args)], capture_output=True,
                                  timeout=harness.PATIENCE)
            self.assertEqual((done.returncode, self.depth()), (66, 0), done)
            self.assertIn(b"standard input is closed", done.stderr)


if __name__ == "__main__":
    harness.main()
