"""millrace file_to_queue (millrace put): packed files, going on after an interruption, pace, logs that are rotated."""
# full: MILLRACE_ROUNDS=100
import bz2
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


class QueueTest(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.start_queue("0")

    def start_queue(self, port):
        self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never", "--address=127.0.0.1",
                                "--port", port, port=False)

    def argv(self, *args):
        return [harness.program("millrace"), "file_to_queue", "--queue-url", self.queue.url, *args]

    def put(self, *args, **kw):
        return self.run_program("millrace", "file_to_queue", "--queue-url", self.queue.url, *args, **kw)

    def begin(self, *args, stdin=subprocess.DEVNULL):
        p = subprocess.Popen(harness.dies_with_us(self.argv(*args)), stderr=subprocess.PIPE, stdin=stdin)
        self.addCleanup(p.stderr.close)
        self.addCleanup(lambda: p.poll() is None and (p.kill(), p.wait()))
        return p

    def stored(self):
        out = []
        reply = self.queue.get("/dump")
        while True:
            out += reply.body.splitlines()
            if not reply.header("X-Millrace-Next"):
                return out
            reply = self.queue.get("/dump?from=" + reply.header("X-Millrace-Next"))

    def depth(self):
        return self.queue.stats()["depth"]

    def mark(self):
        return int(self.queue.get("/producer?producer=p").json()["mark"])


def numbered(n, start=0):
    return b"".join(b'{"n":%d}\n' % i for i in range(start, start + n))


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
        """As pzstd writes it: before each frame stands how long that is."""
        text = numbered(5000)
        packed = b""
        for i, part in enumerate((text[:20000], text[20000:])):
            frame = subprocess.run(["zstd", "-c"], input=part, capture_output=True, check=True).stdout
            packed += b"%c\x2a\x4d\x18\x04\0\0\0" % (0x50 + 15 * i) + struct.pack("<I", len(frame)) + frame
        done = self.put(self.write("pz.zst", packed + b"\x55\x2a\x4d\x18\0\0\0\0"))
        self.assertEqual((done.returncode, self.stored()), (0, text.splitlines()), done)

    def test_what_is_packed_otherwise_is_refused(self):
        """Before a line of any file is sent; from a pipe as soon as it is read."""
        good = self.write("a", numbered(5))
        for packer, content in (("xz", lzma.compress(b"one\n")), ("bzip2", bz2.compress(b"one\n")),
                                ("lz4", b"\x04\x22\x4d\x18\x64\x40\xa7"), ("zip", b"PK\x03\x04\x14\0"),
                                ("compress", b"\x1f\x9d\x90on"), ("7z", b"7z\xbc\xaf\x27\x1c\0\4"),
                                ("lzip", b"LZIP\x01\x0c"), ("lzop", b"\x89LZO\0\r\n\x1a\n\x10")):
            name = self.write("packed", content)
            for args, stdin in (([good, name], b""), ([], content), (["--follow", "--producer=f", name], b"")):
                done = self.put(*args, input=stdin)
                self.assertEqual((done.returncode, self.depth()), (65, 0), done)
                self.assertIn(b"it is packed with %s: unpack it" % packer.encode(), done.stderr)

    def test_text_that_begins_as_something_packed_does(self):
        lines = [b"BZh9 is how bzip2 begins", b"PK", b"7z"]
        for line in lines:
            self.assertEqual(self.put(self.write("a", line + b"\n")).returncode, 0)
        self.assertEqual(self.stored(), lines)

    def test_what_stands_behind_gzip(self):
        """Zeros, as tapes have them, are nothing; for anything else it ends behind the last line of what is packed."""
        packed = gzip.compress(numbered(20)[:-1]) + gzip.compress(b"\n" + numbered(30, 20))
        done = self.put(self.write("tape.gz", packed + b"\0" * 600000))
        self.assertEqual((done.returncode, self.stored()), (0, numbered(50).splitlines()), done)
        for behind, at in ((b"garbage", 0), (b"\0" * 300000 + b"x", 300000), (b"\0" + packed, 1)):
            before = self.depth()
            done = self.put(self.write("garbage.gz", packed + behind))
            self.assertEqual((done.returncode, self.depth()), (65, before + 50), done)
            self.assertIn(b"from byte %d on there is something behind what is packed" % (len(packed) + at), done.stderr)
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
        """Cut off again and again, by kill and by Ctrl-C, it goes on from the mark: all once, in order."""
        random = harness.seeded()
        whole = numbered(30000)
        files = [self.write("a", whole[:100000]), self.write("b.gz", gzip.compress(whole[100000:250000])),
                 self.write("c", whole[250000:-1])]
        # files end in the middle of a line: each part is a line of its own
        expected = whole[:100000].splitlines() + whole[100000:250000].splitlines() + whole[250000:].splitlines()
        for _ in range(harness.rounds(5)):
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

    def test_another_input_under_the_name(self):
        self.assertEqual(self.put("--producer=p", self.write("a", "0123456789\n" * 10)).returncode, 0)
        for content, words in (("x" * 200 + "\n", b"no line ends at byte 110"), ("short\n", b"another input")):
            done = self.put("--producer=p", self.write("b", content))
            self.assertEqual(done.returncode, 65, done)
            self.assertIn(words, done.stderr)
        self.assertEqual(self.depth(), 10)

    def test_a_last_line_without_a_line_feed(self):
        """It is put and told; when it gets its line feed later, what follows goes on behind it."""
        name = self.write("a", "one\ntwo")
        done = self.put("--producer=p", name)
        self.assertEqual((done.returncode, self.stored()), (0, [b"one", b"two"]))
        self.assertIn(b"a ends without a line feed: its last line was put as it stands", done.stderr)
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
        """Each is read at once, and unpacked at once."""
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
        """Below what is drawn on a terminal, and first in a file."""
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
    """What it waits for may take long; it says so, keeps nothing back meanwhile and can be stopped."""

    def stop(self, p, status):
        """Long before --timeout (60 s), and, but under a sanitizer, before a request is given up (30 s)."""
        p.send_signal(signal.SIGTERM)
        ended = p.wait(harness.SOON)
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
            self.assertIn(b"stopped; the first 0 bytes are stored", self.stop(p, 75))
            client.close()
        self.queue.stop()
        p = self.begin(name)
        wait_until(lambda: select.select([p.stderr], [], [], 0)[0], "it to say what it waits for")
        said = self.stop(p, 75)
        self.assertIn(b"no connection", said)
        self.assertIn(b"trying on", said)

    def test_it_gives_up_when_told_to(self):
        name = self.write("a", numbered(10))
        self.queue.stop()
        for args in ([name], ["--follow", "--producer=p", name]):
            began = time.monotonic()
            done = self.put("--timeout=2s", *args)
            self.assertEqual(done.returncode, 75, done)
            self.assertGreaterEqual(time.monotonic() - began, 2, "not before the time is over")
            self.assertIn(b"no progress within --timeout", done.stderr)

    def test_a_token(self):
        os.chmod(self.write("token", "secret"), 0o600)
        self.queue = self.start("simplequeue", "--auth-token-file=" + self.path("token"))
        name = self.write("a", numbered(10))
        refused = self.put(name)
        self.assertEqual(refused.returncode, 65, refused)
        self.assertIn(b"401", refused.stderr)
        self.assertEqual(self.put("--queue-token-file=" + self.path("token"), name).returncode, 0)
        self.assertEqual(self.put("--queue-token-file=" + self.path("none"), name).returncode, 78)

    def test_bad_settings(self):
        self.assertEqual(self.put("--queue-url=nonsense://", self.write("a", "x\n")).returncode, 64)
        done = self.put("--state", self.path("state"), "--producer=p", self.write("a", "x\n"))
        self.assertEqual((done.returncode, self.depth()), (64, 0), done)
        self.assertIn(b"--state is for --follow", done.stderr)

    def test_a_standard_input_that_is_closed(self):
        for args in ([], ["-"], [self.write("a", "x\n"), "-"]):
            done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&-', "sh", *self.argv(*args)], capture_output=True,
                                  timeout=harness.PATIENCE)
            self.assertEqual((done.returncode, self.depth()), (66, 0), done)
            self.assertIn(b"standard input is closed", done.stderr)


class Refused(QueueTest):
    """Lines that the queue refuses for themselves: with --rejects they are kept, and hold nothing up."""
    LONGEST = 1000

    def start_queue(self, port):
        self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never", "--address=127.0.0.1",
                                "--port", port, "--max-message=%d" % self.LONGEST, port=False)

    def text(self, n, long):
        """n lines of which those numbered in `long` are too long; they, and the others."""
        lines = [b"%d" % i + (b"x" * self.LONGEST if i in long else b"") for i in range(n)]
        kept = [line for line in lines if len(line) > self.LONGEST]
        return b"".join(line + b"\n" for line in lines), kept, [line for line in lines if len(line) <= self.LONGEST]

    def kept(self):
        return harness.read_file(self.path("rejects")).splitlines()

    def put_aside(self, *args, **kw):
        return self.put("--rejects", self.path("rejects"), *args, **kw)

    def test_they_are_kept_and_the_rest_is_put(self):
        text, long, short = self.text(3000, {0, 7, 8, 1999, 2000, 2999})
        name = self.write("a", text)
        for args in ([name], ["--batch=7", "--producer=q", name], ["--producer=p", name]):
            before = self.depth()
            done = self.put_aside(*args)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.stored()[before:], short)
            self.assertEqual(self.kept(), long)
            self.assertIn(b"refuses the line at byte 0 of %s (1001 bytes)" % name.encode(), done.stderr)
            self.assertIn(b"6 lines that the queue refuses are in", done.stderr)
            os.unlink(self.path("rejects"))
        self.assertEqual(self.mark(), len(text))
        self.assertEqual(self.put_aside("--producer=p", name).returncode, 0)
        self.assertEqual(self.kept(), [], "all was put")

    def test_without_a_file_for_them_the_first_ends_it_and_is_named(self):
        text, long, short = self.text(100, {50, 60})
        first, second = self.write("a", numbered(3)), self.write("b", text)
        done = self.put("--producer=p", first, second)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"refuses the line at byte %d of %s (1002 bytes)" % (text.index(b"50x"), second.encode()), done.stderr)
        self.assertIn(b"--rejects=FILE", done.stderr)
        self.assertIn(b"all 3 lines of %s, the first 50 lines of %s" % (first.encode(), second.encode()), done.stderr)
        self.assertEqual(self.stored(), numbered(3).splitlines() + short[:50])
        self.assertEqual(self.put_aside("--producer=p", first, second).returncode, 0)
        self.assertEqual(self.stored(), numbered(3).splitlines() + short)
        self.assertEqual(self.kept(), long)

    def test_a_followed_log_goes_on_behind_them(self):
        text, long, short = self.text(300, {3, 4, 250})
        log = self.write("access.log", text[:2000])
        p = self.begin("--follow", "--producer=p", "--rejects", self.path("rejects"), log)
        with open(log, "ab") as f:
            f.write(text[2000:])
        wait_until(lambda: self.mark() == len(text), "all to be put, or kept")
        os.rename(log, log + ".1")
        wait_until(lambda: os.stat(self.write("clock", "")).st_mtime_ns > os.stat(log + ".1").st_mtime_ns,
                   "the file system's clock to have gone on")
        self.write("access.log", text)
        wait_until(lambda: self.mark() == 2 * len(text), "the next log likewise")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(harness.PATIENCE), 0)
        self.assertEqual((self.stored(), self.kept()), (short + short, long + long))
        done = self.put("--follow", "--producer=p", self.write("access.log", text + b"y" * 1001 + b"\n"))
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"refuses the line at byte %d of %s (1001 bytes)" % (len(text), log.encode()), done.stderr)

    def test_killed_at_random_none_is_missing_and_the_others_are_there_once(self):
        random = harness.seeded()
        text, long, short = self.text(5000, set(random.sample(range(5000), 100)))
        name = self.write("a", text)
        for _ in range(harness.rounds(5)):
            before = self.mark()
            p = self.begin("--producer=p", "--batch=200", "--rejects", self.path("rejects"), name)
            wait_until(lambda: self.mark() > before or p.poll() is not None, "some progress")
            p.kill()
            p.wait()
        done = self.put_aside("--producer=p", "--batch=200", name)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored(), short)
        kept = [line for line in self.kept() if line in set(long)]  # what was cut off in the middle is there again
        self.assertEqual(sorted(set(kept)), sorted(long))

    def test_half_a_line_that_a_crash_left_is_ended(self):
        text, long, _ = self.text(5, {2})
        self.write("rejects", "half")
        self.assertEqual(self.put_aside(self.write("a", text)).returncode, 0)
        self.assertEqual(self.kept(), [b"half", *long])

    def test_requests_that_the_server_does_not_take(self):
        """It refuses these before it has read them: they are too long as a whole, or for one line."""
        self.queue = self.start("simplequeue", "--max-body=64K")
        long = b"y" * 100000
        done = self.put_aside("--producer=p", "--batch=100000",
                              self.write("a", numbered(9000) + long + b"\n" + numbered(9000, 9000)))
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual((self.stored(), self.kept()), (numbered(18000).splitlines(), [long]))

    def test_they_are_not_kept_in_what_is_read(self):
        """They would be refused again, and kept again, without end."""
        text, _, _ = self.text(5, {2})
        name = self.write("a", text)
        os.link(name, self.path("link"))
        os.mkdir(self.path("elsewhere"))
        os.symlink(name, self.path("elsewhere/link"))
        for rejects, args, stdin in ((name, ["--batch=1", name], None), (self.path("link"), ["--batch=1", name], None),
                                     (name, ["--batch=1"], name), (name, ["--batch=1", "-"], name),
                                     (name + ".rejects", ["--follow", "--producer=p", name], None),
                                     (name, ["--follow", "--producer=p", name], None),
                                     (self.path("elsewhere/link"), ["--follow", "--producer=p", name], None)):
            with open(stdin or os.devnull) as f:
                p = self.begin("--rejects", rejects, *args, stdin=f)
            wait_until(lambda: p.poll() is not None or self.queue.stats()["depth"] > 0, "it to end, or to begin")
            self.assertEqual((p.poll(), self.depth()), (64, 0), args)
            self.assertEqual(harness.read_file(name), text)
        self.assertEqual(self.put("--rejects", name + ".rejects", name).returncode, 0, "nothing is followed")

    def test_a_file_that_cannot_be_made(self):
        done = self.put("--rejects", self.path("none", "rejects"), self.write("a", numbered(3)))
        self.assertEqual((done.returncode, self.depth()), (73, 0), done)


class TooLong(QueueTest):
    """Lines that are too long to be read. They are holes of sparse files, so that nothing of that size is written."""
    LIMIT = 64 << 20

    def sparse(self, name, *pieces):
        """Of bytes, and numbers of NULs."""
        with open(self.path(name), "wb") as f:
            for piece in pieces:
                if isinstance(piece, bytes):
                    f.write(piece)
                else:
                    f.truncate(f.seek(piece, os.SEEK_CUR))
        return self.path(name)

    def passed(self, stderr):
        """(offset, length) of those that were told."""
        return [(int(at), int(n)) for at, n in re.findall(rb"the line at byte (\d+) of \S+ is too long to be read \((\d+) bytes", stderr)]

    def unended(self, stderr):
        """Offsets of those that were told before they ended."""
        return [int(at) for at in re.findall(rb"the line at byte (\d+) of .+ is too long to be read \(no line feed in 67108864 bytes\)", stderr)]

    def test_they_are_passed_over_with_rejects(self):
        lines = numbered(5)
        first = self.LIMIT
        name = self.sparse("a", first, b"\n" + lines[:16], 3 * self.LIMIT, b"\n" + lines[16:], self.LIMIT + 5)
        places = [(0, first + 1), (first + 17, 3 * self.LIMIT + 1), (os.path.getsize(name) - self.LIMIT - 5, self.LIMIT + 5)]
        for args in (["--producer=p"], ["--batch=1"]):
            before = self.depth()
            done = self.put("--rejects", self.path("rejects"), *args, name)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.stored()[before:], lines.splitlines())
            self.assertEqual(self.passed(done.stderr), places, done.stderr)
            self.assertEqual(self.unended(done.stderr), [at for at, _ in places[1:]], "once each; the first ended at once")
            self.assertIn(b"3 lines that were too long to be read were passed over", done.stderr)
            self.assertEqual(os.path.getsize(self.path("rejects")), 0)
        self.assertEqual(self.mark(), os.path.getsize(name))
        done = self.put("--rejects", self.path("rejects"), "--producer=p", name)
        self.assertEqual((done.returncode, self.passed(done.stderr), self.depth()), (0, [], 10), "all was put")

    def test_without_rejects_the_first_ends_it_and_is_named(self):
        lines = numbered(5)
        packed = self.write("a.gz", gzip.compress(lines[:16] + b"\0" * (self.LIMIT + 1) + b"\n" + lines[16:], 1))
        other = self.write("b", numbered(2))
        done = self.put("--producer=p", other, packed)
        self.assertEqual(done.returncode, 65, done)
        self.assertEqual(self.passed(done.stderr), [(16, self.LIMIT + 2)], done.stderr)
        self.assertIn(b"all 2 lines of %s, the first 2 lines of %s" % (other.encode(), packed.encode()), done.stderr)
        self.assertEqual(self.stored(), (numbered(2) + lines[:16]).splitlines())
        done = self.put("--producer=p", "--rejects", self.path("rejects"), other, packed)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored(), (numbered(2) + lines).splitlines())

    def test_the_longest_that_is_read_is_put_or_kept(self):
        name = self.sparse("a", self.LIMIT - 1, b"\n" + numbered(1))
        done = self.put("--rejects", self.path("rejects"), name)
        self.assertEqual((done.returncode, self.passed(done.stderr), self.stored()), (0, [], numbered(1).splitlines()), done)
        self.assertEqual(os.path.getsize(self.path("rejects")), self.LIMIT)

    def test_memory_is_bounded(self):
        p = self.begin("--rejects", self.path("rejects"), self.sparse("a", numbered(1), 10 * self.LIMIT, b"\n"))
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((p.returncode, self.passed(said)), (0, [(8, 10 * self.LIMIT + 1)]), said)
        if not harness.SANITIZED:
            self.assertLess(used.ru_maxrss, 4 * self.LIMIT >> 10, "KiB")

    def test_without_rejects_one_that_never_ends_is_not_waited_for(self):
        with open("/dev/zero", "rb") as zeros:
            p = self.begin(stdin=zeros)
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((p.returncode, self.unended(said)), (65, [0]), said)
        if not harness.SANITIZED:
            self.assertLess(used.ru_maxrss, 4 * self.LIMIT >> 10, "KiB")

    def test_what_stands_before_one_that_does_not_end_is_put_and_it_can_be_stopped(self):
        read, write = os.pipe()
        p = self.begin("--rejects", self.path("rejects"), stdin=read)
        os.close(read)
        with open(write, "wb") as pipe:
            pipe.write(numbered(3))
            for _ in range(70):
                pipe.write(b"x" * (1 << 20))
            pipe.flush()
            wait_until(lambda: self.depth() == 3, "the lines before it")
            p.send_signal(signal.SIGTERM)
            self.assertEqual(p.wait(harness.PATIENCE), 130)
        said = p.stderr.read()
        self.assertEqual((self.unended(said), self.passed(said)), ([len(numbered(3))], []), "it has not ended")
        self.assertEqual(self.stored(), numbered(3).splitlines())


class Follow(QueueTest):
    def setUp(self):
        super().setUp()
        self.n = 0
        self.log = self.path("access.log")
        open(self.log, "wb").close()

    def log_lines(self, n, path=None):
        with open(path or self.log, "ab") as f:
            f.write(numbered(n, self.n))
        self.n += n

    def follow(self, *args):
        """At work: it has the file open."""
        p = self.begin("--follow", "--producer=p", self.log, *args)
        wait_until(lambda: any(name.startswith(self.log) for name in self.open_files(p)) or
                   p.poll() is not None, "the log to be open")
        return p

    @staticmethod
    def open_files(p):
        """Their names; a descriptor may be gone before it is looked at."""
        names = []
        try:
            for fd in os.listdir("/proc/%d/fd" % p.pid):
                names.append(os.readlink("/proc/%d/fd/%s" % (p.pid, fd)))
        except OSError:
            pass
        return names

    def read_of(self, p):
        """How far of the log it has read; 0: it has not opened it."""
        for fd in os.listdir("/proc/%d/fd" % p.pid):
            try:
                if os.readlink("/proc/%d/fd/%s" % (p.pid, fd)) == self.log:
                    with open("/proc/%d/fdinfo/%s" % (p.pid, fd)) as f:
                        return int(f.readline().split()[1])
            except OSError:
                pass
        return 0

    def wait_stored(self):
        wait_until(lambda: self.depth() >= self.n, lambda: "%d lines, %d are there" % (self.n, self.depth()))
        self.assertEqual(self.stored(), numbered(self.n).splitlines())

    def rotate(self):
        """What is made next is seen to be the next: nobody makes two logs within a step of the file system's clock."""
        for i in range(400, 0, -1):
            if os.path.exists("%s.%d" % (self.log, i)):
                os.rename("%s.%d" % (self.log, i), "%s.%d" % (self.log, i + 1))
        os.rename(self.log, self.log + ".1")
        wait_until(self.is_later, "the file system's clock to have gone on")

    def is_later(self):
        """A file that is made now is newer than what was rotated last."""
        return os.stat(self.write("clock", "")).st_mtime_ns > os.stat(self.log + ".1").st_mtime_ns

    def interrupt(self, p):
        p.send_signal(signal.SIGINT)
        said = p.stderr.read()
        self.assertEqual(p.wait(harness.PATIENCE), 0, said)
        return said

    def test_a_growing_file(self):
        p = self.follow()
        for n in (1, 50, 3000):
            self.log_lines(n)
            self.wait_stored()
        with open(self.log, "ab") as f:
            f.write(b'{"n":')
            f.flush()
            wait_until(lambda: self.read_of(p) == os.path.getsize(self.log), "it to be read")
            time.sleep(0.3)  # however long nothing follows
            self.assertEqual(self.depth(), self.n, "half a line is none")
            f.write(b"%d}\n" % self.n)
        self.n += 1
        self.wait_stored()
        self.interrupt(p)

    def test_a_line_that_is_too_long_to_be_read_does_not_stop_it(self):
        """Also when it is killed in the middle, and when the line has not ended where its file has."""
        def grow(n):
            os.truncate(self.log, os.path.getsize(self.log) + n)
            wait_until(lambda: self.read_of(p) == os.path.getsize(self.log), "it to be read")
        rejects, long = ("--rejects", self.path("rejects")), TooLong.LIMIT
        self.log_lines(3)
        p = self.follow(*rejects)
        self.wait_stored()
        before = self.mark()
        grow(long + 1)
        grow(long)
        self.assertEqual(self.mark(), before)
        p.kill()
        p.wait()
        p = self.follow(*rejects)
        with open(self.log, "ab") as f:
            f.write(b"\n")
        self.log_lines(2)
        self.wait_stored()
        self.assertEqual(self.mark(), os.path.getsize(self.log))
        end = os.path.getsize(self.log)
        grow(long + 1)
        self.rotate()
        self.log_lines(2)
        self.wait_stored()
        said = self.interrupt(p)
        for at, n in ((before, 2 * long + 2), (end, long + 1)):
            self.assertIn(b"the line at byte %d of %s is too long to be read (%d bytes" % (at, self.log.encode(), n), said)
        self.assertIn(b"2 lines that were too long to be read", said)

    def test_rotation_while_it_looks_and_while_it_does_not(self):
        p = self.follow()
        wait_until(lambda: os.path.exists(self.path(".access.log.p")), "the state")
        self.log_lines(10)
        with open(self.log, "ab"):  # so is it with its writer
            self.rotate()
            self.log_lines(5, self.log + ".1")
        open(self.log, "wb").close()
        self.log_lines(10)
        self.wait_stored()
        p.kill()
        p.wait()
        self.log_lines(10)
        for _ in range(2):
            self.rotate()
            self.log_lines(10)
        p = self.follow()
        self.wait_stored()
        self.interrupt(p)

    def test_it_is_killed_and_the_log_rotated_at_random(self):
        random = harness.seeded()
        for _ in range(harness.rounds(4)):
            p = self.follow()
            wait_until(lambda: os.path.exists(self.path(".access.log.p")), "the state")
            for _ in range(random.randrange(1, 6)):
                self.log_lines(random.randrange(1, 400))
                if random.random() < 0.25:
                    self.rotate()
                    self.log_lines(1)
                time.sleep(random.uniform(0, 0.1))
            p.kill()
            p.wait()
        p = self.follow()
        self.wait_stored()
        self.interrupt(p)

    def test_it_outlasts_a_queue_that_is_away(self):
        """Longer than --timeout has it for what ends by itself."""
        self.queue.stop()
        port = self.keep_port()
        self.start_queue(port)
        p = self.follow()
        self.log_lines(10)
        self.wait_stored()
        self.queue.kill9()
        self.log_lines(10)
        time.sleep(65 if harness.rounds(0) >= 100 else 1)  # the outage's length is what is tested
        self.assertIsNone(p.poll())
        self.start_queue(port)
        self.wait_stored()
        self.interrupt(p)

    def test_a_log_that_is_not_made_yet(self):
        os.unlink(self.log)
        p = self.begin("--follow", "--producer=p", self.log)
        wait_until(lambda: select.select([p.stderr], [], [], 0)[0], "it to say what it waits for")
        self.log_lines(10)
        self.wait_stored()
        self.assertIn(b"waiting for", self.interrupt(p))

    def test_the_rate_also_after_a_while_without_lines(self):
        p = self.follow("--rate=100")
        self.log_lines(1)
        self.wait_stored()
        time.sleep(1.2)  # what was not used
        began = time.monotonic()
        self.log_lines(100)
        self.wait_stored()
        self.assertGreater(time.monotonic() - began, 0.8)
        self.interrupt(p)

    def test_what_lies_beside_the_log_and_is_none(self):
        """Its own state under a rotated file's name, and packed copies."""
        self.log_lines(10)
        p = self.follow("--state", self.log + ".state")
        self.wait_stored()
        for suffix in (".2.xz", ".3.bz2", ".4.gz", ".5.zst"):
            self.write("access.log" + suffix, "packed\n")
        self.rotate()
        self.log_lines(10)
        self.wait_stored()
        self.interrupt(p)

    def test_a_file_cut_to_nothing(self):
        p = self.follow()
        self.log_lines(100)
        self.wait_stored()
        os.truncate(self.log, 0)
        self.log_lines(3)
        self.wait_stored()
        self.assertIn(self.log.encode() + b" was cut", self.interrupt(p))

    def test_a_file_that_was_cut_and_has_grown_longer_again(self):
        """Between two looks, and while nobody looks: the copy of logrotate's copytruncate has what was cut off."""
        for away, back in ((lambda: p.send_signal(signal.SIGSTOP), lambda: (p.send_signal(signal.SIGCONT), p)[1]),
                           (lambda: (p.kill(), p.wait()), self.follow)):
            p = self.follow()
            self.log_lines(100)
            self.wait_stored()
            wait_until(lambda: b"seen" in harness.read_file(self.path(".access.log.p")), "what was read to be noted")
            away()
            os.truncate(self.log, 0)
            self.log_lines(5000)
            p = back()
            self.wait_stored()
            self.log_lines(10)
            self.wait_stored()
            self.assertIn(self.log.encode() + b" was cut", self.interrupt(p))

    def test_a_log_that_is_followed_already(self):
        p = self.follow()
        self.log_lines(10)
        self.wait_stored()
        for args in ([], ["--timeout=2s"]):
            done = self.put("--follow", "--producer=p", self.log, *args)
            self.assertEqual(done.returncode, 78, done)
            self.assertIn(b"another process follows this log under the same name", done.stderr)
        self.log_lines(10)
        self.wait_stored()
        self.interrupt(p)

    def test_many_that_begin_together_one_follows(self):
        for _ in range(harness.rounds(3)):
            followers = [self.begin("--follow", "--producer=p", self.log) for _ in range(4)]
            wait_until(lambda: sum(p.poll() is None for p in followers) == 1, "all others to end")
            self.log_lines(10)
            self.wait_stored()
            for p in followers:
                if p.poll() is None:
                    self.interrupt(p)
                else:
                    self.assertEqual(p.returncode, 78, p.stderr.read())
            os.unlink(self.path(".access.log.p"))

    def test_a_file_that_is_gone_is_told(self):
        p = self.follow()
        self.log_lines(10)
        self.wait_stored()
        self.interrupt(p)
        os.unlink(self.log)
        self.log_lines(5)
        p = self.follow()
        self.wait_stored()
        self.assertIn(b"is missing", self.interrupt(p))

    def test_usage(self):
        self.assertEqual(self.put("--follow", self.log).returncode, 64)
        self.assertEqual(self.put("--follow", "--producer=p", "-").returncode, 64)


if __name__ == "__main__":
    harness.main()
