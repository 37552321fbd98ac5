"""millrace file_to_queue --follow: logs that grow, are rotated and truncated."""
# full: MILLRACE_ROUNDS=100
import os
import select
import signal
import subprocess
import time

import harness
from harness import wait_until
from put_case import LongLinesTest, QueueTest, numbered


class Follow(QueueTest):
    def setUp(self):
        super().setUp()
        self.n = 0
        self.follower = None  # of follow()
        self.log = self.path("access.log")
        open(self.log, "wb").close()

    def log_lines(self, n, path=None):
        with open(path or self.log, "ab") as f:
            f.write(numbered(n, self.n))
        self.n += n

    def follow(self, *args):
        """Starts a follower, and waits until it has opened the log."""
        p = self.begin("--follow", "--producer=p", self.log, *args)
        wait_until(lambda: any(name.startswith(self.log) for name in self.open_files(p)) or
                   p.poll() is not None, "the log to be open")
        self.follower = p
        return p

    @staticmethod
    def open_files(p):
        """The names of the open files. A descriptor may be closed before its name is read."""
        names = []
        try:
            for fd in os.listdir("/proc/%d/fd" % p.pid):
                names.append(os.readlink("/proc/%d/fd/%s" % (p.pid, fd)))
        except OSError:
            pass
        return names

    def read_of(self, p):
        """The number of bytes of the log that the process has read; 0: the log is not open."""
        for fd in os.listdir("/proc/%d/fd" % p.pid):
            try:
                if os.readlink("/proc/%d/fd/%s" % (p.pid, fd)) == self.log:
                    with open("/proc/%d/fdinfo/%s" % (p.pid, fd)) as f:
                        return int(f.readline().split()[1])
            except OSError:
                pass
        return 0

    def wait_stored(self):
        wait_until(lambda: self.depth() >= self.n or self.follower and self.follower.poll() is not None,
                   lambda: "%d lines, %d are there" % (self.n, self.depth()))
        if self.depth() < self.n:
            self.fail("the follower ended: " + self.follower.stderr.read().decode(errors="replace"))
        self.assertEqual(self.stored(), numbered(self.n).splitlines())

    def rotate(self):
        """Renames the logs, and waits until a new log will have a later time than the renamed one."""
        for i in range(400, 0, -1):
            if os.path.exists("%s.%d" % (self.log, i)):
                os.rename("%s.%d" % (self.log, i), "%s.%d" % (self.log, i + 1))
        os.rename(self.log, self.log + ".1")
        wait_until(self.is_later, "the file system's clock to have gone on")

    def is_later(self):
        """True if a file that is made now is newer than the log that was renamed last."""
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

    def test_a_hole_after_copytruncate(self):
        """The writer has not opened its log with O_APPEND, so that the kernel fills what was truncated with NULs."""
        fd = os.open(self.log, os.O_WRONLY)
        self.addCleanup(os.close, fd)
        os.write(fd, numbered(30000))
        p = self.follow("--quiet")
        self.n = 30000
        self.wait_stored()
        os.truncate(self.log, 0)
        self.assertIn(b"was truncated", p.stderr.readline())
        hole = os.lseek(fd, 0, os.SEEK_CUR)
        os.write(fd, numbered(5, 30000))
        self.n += 5
        self.wait_stored()
        os.write(fd, numbered(5, 30005))
        self.n += 5
        self.wait_stored()
        self.assertEqual(self.stored(), numbered(self.n).splitlines())
        self.assertEqual(self.mark(), hole + os.path.getsize(self.log))  # the offsets continue, with the NULs
        self.assertIn(b"skipped %d NUL bytes in %s" % (hole, self.log.encode()), p.stderr.readline())
        p.terminate()
        self.assertEqual(p.wait(harness.PATIENCE), 0)

    def test_a_line_that_is_too_long_to_be_read_does_not_stop_it(self):
        """Also if the follower is killed within the line, and if the file ends within the line."""
        def grow(n):
            with open(self.log, "ab") as f:
                f.write(b"x")
            os.truncate(self.log, os.path.getsize(self.log) + n - 1)
            wait_until(lambda: self.read_of(p) == os.path.getsize(self.log), "it to be read")
        rejects, long = ("--rejects", self.path("rejects")), LongLinesTest.LIMIT
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
        for _ in range(harness.rounds(2)):
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
        """A follower waits longer than the --timeout of a put that ends by itself."""
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
        self.assertIn(self.log.encode() + b" was truncated", self.interrupt(p))

    def test_a_file_that_was_cut_and_has_grown_longer_again(self):
        """The file changes between two looks of the follower, or while no follower runs. The copy that logrotate's copytruncate makes has
        the truncated lines."""
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
            self.assertIn(self.log.encode() + b" was truncated", self.interrupt(p))

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
            self.assertEqual(self.queue.post("/producers?producer=p&mark=%d" % self.mark(), b"").status, 200)
            os.unlink(self.path(".access.log.p"))

    def test_two_hosts_with_one_producer(self):
        """No line of the second host counts as stored, whether or not the first follower has ended, and whether or not the state file was
        lost."""
        p = self.follow()
        self.log_lines(10)
        self.wait_stored()
        second = self.write("second.log", numbered(1000, 5000))
        done = self.put("--follow", "--producer=p", second)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"another follower has set the producer's mark", done.stderr)
        self.assertEqual(self.queue.post("/producers?producer=p&mark=%d" % len(numbered(8, 5000)), b"").status, 200)
        other = self.begin("--follow", "--producer=p", second)
        wait_until(lambda: self.depth() == 10 + 1000 - 8, self.depth)
        before = self.depth()
        self.log_lines(10)
        self.assertEqual(p.wait(harness.PATIENCE), 75)
        self.assertIn(b"another put uses the producer p; the current batch is not stored", p.stderr.read())
        self.assertEqual(self.depth(), before)
        self.interrupt(other)

    def test_a_file_that_is_gone_is_told(self):
        p = self.follow()
        self.log_lines(10)
        self.wait_stored()
        self.interrupt(p)
        with open(self.log, "rb"):  # open until the new file exists, which otherwise may get the same inode
            os.unlink(self.log)
            self.log_lines(5)
        p = self.follow()
        self.wait_stored()
        self.assertIn(b"its lines after byte %d, and rotated files after it, are not posted" % len(numbered(10)), self.interrupt(p))

    def test_messages_that_no_process_reads(self):
        """The pipe of standard error is full: lines are posted, and a signal ends the follower."""
        reader, pipe = os.pipe()
        os.set_blocking(pipe, False)
        for end in (reader, pipe):
            self.addCleanup(os.close, end)
        try:
            while True:
                os.write(pipe, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(pipe, True)
        with open(self.log, "w") as f:
            f.write("no line of a log\n" * 3 + '192.0.2.7 - - [24/Mar/2012:09:00:00 +0900] "GET /a HTTP/1.1" 200 5\n')
        p = subprocess.Popen(harness.dies_with_us(self.argv("--follow", "--producer=p", "--format=combined", self.log)), stderr=pipe)
        self.addCleanup(lambda: p.poll() is None and (p.kill(), p.wait()))
        wait_until(lambda: self.depth() == 1, "the line behind the refused lines")
        p.terminate()
        self.assertEqual(p.wait(harness.PATIENCE), 0)

    def test_usage(self):
        self.assertEqual(self.put("--follow", self.log).returncode, 64)
        self.assertEqual(self.put("--follow", "--producer=p", "-").returncode, 64)
        os.mkfifo(self.path("fifo"))
        done = self.put("--follow", "--producer=p", self.path("fifo"))
        self.assertEqual(done.returncode, 66, done)
        self.assertIn(b"not a regular file", done.stderr)


if __name__ == "__main__":
    harness.main()
