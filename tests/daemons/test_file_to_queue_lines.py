"""millrace file_to_queue: lines that the queue refuses, and lines that are too long."""
# full: MILLRACE_ROUNDS=100
import gzip
import os
import signal
import subprocess

import harness
from harness import wait_until
from put_case import LongLinesTest, QueueTest, numbered


class Refused(QueueTest):
    """The queue refuses single lines. With --rejects these lines are kept, and the other lines are posted."""
    LONGEST = 1000

    def start_queue(self, port):
        self.queue = self.start("simplequeue", "--data-dir", self.path("queue"), "--sync=never", "--address=127.0.0.1",
                                "--port", port, "--max-message=%d" % self.LONGEST, port=False)

    def text(self, n, long):
        """(n lines, the lines that are too long, the other lines). `long` has the numbers of the lines that are too long."""
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
            self.assertIn(b"the line at byte 0 of %s (1001 bytes) cannot be posted" % name.encode(), done.stderr)
            self.assertIn(b"6 refused lines are in", done.stderr)
            os.unlink(self.path("rejects"))
        self.assertEqual(self.mark(), len(text))
        self.assertEqual(self.put_aside("--producer=p", name).returncode, 0)
        self.assertEqual(self.kept(), [], "all was put")

    def test_the_oldest_go_beyond_a_size(self):
        text, long, short = self.text(30, set(range(20)))
        done = self.put_aside("--rejects-max-bytes=8K", self.write("a", text))
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored(), short)
        kept = harness.read_file(self.path("rejects.1")).splitlines() + self.kept()
        self.assertEqual(kept, long[-len(kept):])
        self.assertTrue(4 < len(kept) <= 8, len(kept))
        self.assertIn(b"rejects has reached rejects_max_bytes or rejects_max_age: its oldest lines are deleted\n", done.stderr)

    def test_without_a_file_for_them_the_first_ends_it_and_is_named(self):
        text, long, short = self.text(100, {50, 60})
        first, second = self.write("a", numbered(3)), self.write("b", text)
        done = self.put("--producer=p", first, second)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the line at byte %d of %s (1002 bytes) cannot be posted" % (text.index(b"50x"), second.encode()), done.stderr)
        self.assertIn(b"--rejects=FILE", done.stderr)
        self.assertIn(b"a message of 1002 bytes; the limit is 1000; raise max_message of [simplequeue]\n", done.stderr)
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

    def test_killed_at_random_none_is_missing_and_the_others_are_there_once(self):
        random = harness.seeded()
        text, long, short = self.text(5000, set(random.sample(range(5000), 100)))
        name = self.write("a", text)
        for _ in range(harness.rounds(3)):
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
        """The server refuses these requests before it has read them, because the whole request or one line is too long."""
        self.queue = self.start("simplequeue", "--max-body=64K")
        long = b"y" * 100000
        done = self.put_aside("--producer=p", "--batch=100000",
                              self.write("a", numbered(9000) + long + b"\n" + numbered(9000, 9000)))
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertEqual((self.stored(), self.kept()), (numbered(18000).splitlines(), [long]))
        self.assertIn(b"(100000 bytes) cannot be posted: the body is too large; raise max_body of [simplequeue]\n", done.stderr)

    def test_they_are_not_kept_in_what_is_read(self):
        """Otherwise the kept lines would be read, refused and kept again without end."""
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


class TooLong(LongLinesTest):
    @staticmethod
    def reads(p):
        """Bytes that it has read."""
        with open("/proc/%d/io" % p.pid) as f:
            return int(f.readline().split()[1])

    def test_they_are_passed_over_with_rejects(self):
        lines = numbered(5)
        first = self.LIMIT
        name = self.sparse("a", first, b"\n" + lines[:16], self.LIMIT + (4 << 20), b"\n" + lines[16:], self.LIMIT + 5)
        places = [(0, first + 1), (first + 17, self.LIMIT + (4 << 20) + 1), (os.path.getsize(name) - self.LIMIT - 5, self.LIMIT + 5)]
        for args in (["--producer=p"], ["--batch=1"]):
            before = self.depth()
            done = self.put("--rejects", self.path("rejects"), *args, name)
            self.assertEqual(done.returncode, 0, done)
            self.assertEqual(self.stored()[before:], lines.splitlines())
            self.assertEqual(self.passed(done.stderr), places, done.stderr)
            self.assertEqual(self.unended(done.stderr), [at for at, _ in places[1:]], "once each; the first ended at once")
            self.assertIn(b"3 lines that were too long to be read were skipped", done.stderr)
            self.assertEqual(os.path.getsize(self.path("rejects")), 0)
        self.assertEqual(self.mark(), os.path.getsize(name))
        done = self.put("--rejects", self.path("rejects"), "--producer=p", name)
        self.assertEqual((done.returncode, self.passed(done.stderr), self.depth()), (0, [], 10), "all was put")

    def test_without_rejects_the_first_ends_it_and_is_named(self):
        lines = numbered(5)
        packed = self.write("a.gz", gzip.compress(lines[:16] + b"x" * (self.LIMIT + 1) + b"\n" + lines[16:], 1))
        other = self.write("b", numbered(2, 7))
        done = self.put("--producer=p", other, packed)
        self.assertEqual(done.returncode, 65, done)
        self.assertEqual(self.passed(done.stderr), [(16, self.LIMIT + 2)], done.stderr)
        self.assertIn(b"all 2 lines of %s, the first 2 lines of %s" % (other.encode(), packed.encode()), done.stderr)
        self.assertEqual(self.stored(), (numbered(2, 7) + lines[:16]).splitlines())
        done = self.put("--producer=p", "--rejects", self.path("rejects"), other, packed)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.stored(), (numbered(2, 7) + lines).splitlines())

    def test_the_longest_that_is_read_is_put_or_kept(self):
        name = self.sparse("a", self.LIMIT - 1, b"\n" + numbered(1))
        done = self.put("--rejects", self.path("rejects"), name)
        self.assertEqual((done.returncode, self.passed(done.stderr), self.stored()), (0, [], numbered(1).splitlines()), done)
        self.assertEqual(os.path.getsize(self.path("rejects")), self.LIMIT)

    def test_memory_is_bounded(self):
        p = self.begin("--rejects", self.path("rejects"), self.sparse("a", numbered(1), 5 * self.LIMIT, b"\n"))
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((p.returncode, self.passed(said)), (0, [(8, 5 * self.LIMIT + 1)]), said)
        if not harness.SANITIZED:
            self.assertLess(used.ru_maxrss, 4 * self.LIMIT >> 10, "KiB")

    def test_without_rejects_one_that_never_ends_is_not_waited_for(self):
        endless = subprocess.Popen(harness.dies_with_us(["sh", "-c", "tr '\\0' x < /dev/zero"]), stdout=subprocess.PIPE)
        self.addCleanup(lambda: (endless.kill(), endless.wait()))
        with endless.stdout:
            p = self.begin(stdin=endless.stdout)
        said = p.stderr.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual((p.returncode, self.unended(said)), (65, [0]), said)
        if not harness.SANITIZED:
            self.assertLess(used.ru_maxrss, 4 * self.LIMIT >> 10, "KiB")

    def test_an_endless_hole_can_be_stopped(self):
        with open("/dev/zero", "rb") as zeros:
            p = self.begin(stdin=zeros)
        wait_until(lambda: self.reads(p) > 1 << 20, "it to read")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(harness.PATIENCE), 130)

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


if __name__ == "__main__":
    harness.main()
