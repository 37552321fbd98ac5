"""`millrace put --producer`: a mark belongs to a content, so another file is posted whole, and the same one under any name only once."""
import gzip
import os
import socket
import subprocess
import threading
from urllib.parse import urlsplit

import harness
from harness import wait_until
from put_case import QueueTest, numbered


class Holder:
    """A proxy before the queue that keeps requests with lines, and sends them later, after their client has ended."""

    def __init__(self, url):
        self.queue = (urlsplit(url).hostname, urlsplit(url).port)
        self.held, self.holds = [], True
        self.before = lambda: None  # called before a request with lines that is not held
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.server.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = client.recv(1 << 16)
                if not piece:
                    return
                head += piece
            head, body = head.split(b"\r\n\r\n", 1)
            lengths = [int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length:")]
            while lengths and len(body) < lengths[0]:
                body += client.recv(1 << 16)
            whole = head + b"\r\nConnection: close\r\n\r\n" + body
            if b"/mput" in head and self.holds:
                self.held.append(whole)
                client.recv(1)  # until the client ends
                return
            if b"/mput" in head:
                self.before()
            client.sendall(self.forward(whole))

    def forward(self, request):
        reply = b""
        with socket.create_connection(self.queue) as s:
            s.sendall(request)
            while piece := s.recv(1 << 16):
                reply += piece
        return reply

    def release(self):
        while self.held:
            self.forward(self.held.pop())


class Sources(QueueTest):
    def put_all(self, *files, producer="p", **kw):
        done = self.put("--producer=" + producer, *files, **kw)
        self.assertEqual(done.returncode, 0, done)
        return done

    def posted(self, *files, **kw):
        """What a put adds to the queue."""
        before = self.depth()
        self.put_all(*files, **kw)
        return self.stored()[before:]

    def test_the_next_log_under_the_same_name(self):
        for day, n in enumerate((100, 150, 60, 60)):
            lines = [b'{"day":%d,"n":%d}' % (day, i) for i in range(n)]
            self.assertEqual(self.posted(self.write("access.log.1", b"\n".join(lines) + b"\n")), lines)
            self.assertEqual(self.posted(self.path("access.log.1")), [], "a repetition")

    def test_texts_of_other_systems_that_grow(self):
        """UTF-16 with its mark, as PowerShell writes it, and lines that end in CR."""
        for name, encode in (("wide", lambda text: text.encode("utf-16")), ("cr", lambda text: text.replace("\n", "\r").encode())):
            for n, want in ((2, 2), (2, 0), (5, 3)):
                lines = ['{"file":"%s","n":%d}' % (name, i) for i in range(n)]
                posted = self.posted(self.write(name, encode("\n".join(lines) + "\n")), producer=name)
                self.assertEqual(posted, [line.encode() for line in lines[n - want:]])

    def test_contents_with_the_same_beginning(self):
        """The day's CSV has the same first line each day."""
        for day, n in enumerate((100, 150, 60)):
            self.write("day.csv", "day,n\n" + "".join("%d,%d\n" % (day, i) for i in range(n)))
            before = self.depth()
            self.put_all("--format=csv", self.path("day.csv"))
            self.assertEqual(self.depth() - before, n)
            self.put_all("--format=csv", self.path("day.csv"))
            self.assertEqual(self.depth() - before, n)

    def test_a_content_is_known_by_no_name(self):
        """A window of logs that are renamed, packed and deleted as logrotate does; each grows before."""
        days = [[b'{"day":%d,"n":%d}' % (day, n) for n in range(50)] for day in range(5)]
        packed = [b"\n".join(lines) + b"\n" for lines in days]
        for day, lines in enumerate(days):
            self.write("log", b"\n".join(lines[:20]) + b"\n")
            self.assertEqual(self.posted(self.path("log")), lines[:20])
            self.write("log.1", packed[day])
            names = [self.path("log.1")]
            if day > 0:
                names.append(self.write("log.2.gz", gzip.compress(packed[day - 1])))
            self.assertEqual(self.posted(*names), lines[20:])
            self.assertEqual(self.posted(*reversed(names)), [])
        self.assertEqual(self.stored(), sum(days, []))

    def test_a_hole(self):
        """Larger than the longest line; the file is known again behind it."""
        with open(self.path("a"), "wb") as f:
            f.write(numbered(3))
            f.truncate(f.seek(70 << 20, os.SEEK_CUR))
            f.write(numbered(3, 3))
            f.truncate(f.seek(100, os.SEEK_CUR))
        self.assertEqual(self.posted(self.path("a")), numbered(6).splitlines())
        with open(self.path("a"), "ab") as f:
            f.write(b"\0" + numbered(2, 6))
        self.assertEqual(self.posted(self.path("a")), numbered(2, 6).splitlines())
        self.assertEqual(self.posted(self.path("a")), [])

    def test_nothing_but_a_hole(self):
        self.assertIn(b"skipped 300 NUL bytes", self.put_all(self.write("a", b"\0" * 300)).stderr)

    def test_a_content_that_ends_where_another_has_a_hole(self):
        self.assertEqual(self.posted(self.write("a", numbered(5))), numbered(5).splitlines())
        b = numbered(2) + b"\0" * 300 + numbered(7, 20)
        self.assertEqual(self.posted(self.write("b", b)), (numbered(2) + numbered(7, 20)).splitlines())
        self.assertEqual(self.posted(self.write("b", b + numbered(1, 40))), numbered(1, 40).splitlines())
        self.assertEqual(self.posted(self.path("a")), [])

    def test_a_mark_in_a_hole(self):
        """An operator has set the mark."""
        name = self.write("a", numbered(3) + b"\0" * 300 + numbered(3, 3))
        self.put_all(self.write("b", numbered(3, 50)))
        mark = len(numbered(3)) + 100
        self.assertEqual(self.queue.post("/producers?producer=p&mark=%d" % mark, b"").status, 200)
        done = self.put("--producer=p", name)
        self.assertEqual((done.returncode, self.depth()), (65, 3), done)
        self.assertIn(b"no line ends at byte %d" % mark, done.stderr)

    def test_the_state_file_has_a_line_for_each_content(self):
        state = "--state=" + self.path("state")

        def lines():
            return len([line for line in harness.read_file(self.path("state")).splitlines() if line])
        for n in range(1, 6):
            self.assertEqual(self.posted(state, self.write("a", numbered(n))), numbered(1, n - 1).splitlines())
        self.assertEqual(lines(), 0, "only one content")
        for _ in range(3):
            self.put_all(state, self.path("a"), self.write("b", numbered(2, 50)))
        self.assertEqual(self.stored(), (numbered(5) + numbered(2, 50)).splitlines())
        self.assertEqual(lines(), 2)

    def test_files_of_several_directories(self):
        for name in ("x", "y"):
            os.mkdir(self.path(name))
        a, b = self.write("x/a", numbered(3)), self.write("y/b", numbered(4, 10))
        for name in (a, b):
            self.put_all(name)
        for files in ((a,), (b, a), (a, b)):
            self.assertEqual(self.posted(*files), [])
        port = urlsplit(self.queue.url).port
        self.assertEqual(os.listdir(self.path("state-home", "millrace")), ["127.0.0.1_%d.default.p.sources" % port])
        env = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_STATE_HOME")}
        self.put_all(self.write("x/c", numbered(1, 30)), env=env)
        self.assertIn(".default.p.sources", os.listdir(self.path("x")))
        self.put_all(self.write("x/d", numbered(1, 40)), env={**env, "HOME": self.path("y")})
        self.assertEqual(len(os.listdir(self.path("y", ".local", "state", "millrace"))), 1)

    def test_a_pipe_is_a_new_content_each_time(self):
        for run in range(3):
            lines = numbered(40, 100 * run)
            for _ in range(2):
                self.assertEqual(self.posted("-", input=lines), lines.splitlines())
        self.assertEqual(self.posted("/dev/stdin", input=numbered(40, 500)), numbered(40, 500).splitlines())
        os.mkfifo(self.path("fifo"))
        for _ in range(2):
            threading.Thread(target=self.write, args=("fifo", numbered(40)), daemon=True).start()
            self.assertEqual(self.posted(self.path("fifo")), numbered(40).splitlines())
        name = self.write("a", numbered(10))
        self.assertEqual(self.posted(name), numbered(10).splitlines())
        self.assertEqual(self.posted("-", input=numbered(10)), numbered(10).splitlines())
        self.assertEqual(self.posted(name), [])

    def test_a_file_on_standard_input_is_a_file(self):
        name = self.write("a", numbered(10))
        for want in (10, 0):
            before = self.depth()
            with open(name, "rb") as f:
                self.put_all(stdin=f)
            self.assertEqual(self.depth() - before, want)
        self.assertEqual(self.posted(name), [])

    def test_a_second_put_waits_for_the_first(self):
        """As a piped logger that the server starts before the old one has ended."""
        state = "--state=" + self.path("state")
        first = self.begin("--producer=p", state, stdin=subprocess.PIPE)
        first.stdin.write(numbered(10))
        first.stdin.flush()
        wait_until(lambda: self.depth() == 10, "the first lines")
        second = self.begin("--producer=p", state, stdin=subprocess.PIPE)
        self.assertIn(b"waiting for another put of the producer p", second.stderr.readline())
        second.stdin.write(numbered(10, 100))
        second.stdin.close()
        first.stdin.write(numbered(10, 10))
        first.stdin.close()
        self.assertEqual((first.wait(harness.PATIENCE), second.wait(harness.PATIENCE)), (0, 0))
        self.assertEqual(self.stored(), (numbered(20) + numbered(10, 100)).splitlines())
        held = self.begin("--producer=p", state, stdin=subprocess.PIPE)
        held.stdin.write(numbered(1))
        held.stdin.flush()
        wait_until(lambda: self.depth() == 31, "the lock")
        done = self.put("--producer=p", state, "--timeout=200ms", self.write("a", numbered(5)))
        self.assertEqual(done.returncode, 75, done)
        held.stdin.close()
        held.wait(harness.PATIENCE)

    def test_another_put_elsewhere(self):
        """Two puts with other state files: no batch counts as stored because the other put has moved the mark."""
        for number, second in enumerate((numbered(5, 100), numbered(10, 10), numbered(10))):
            before = self.depth()
            first = self.begin("--producer=p", "--state=" + self.path("state"), stdin=subprocess.PIPE)
            first.stdin.write(numbered(10))
            first.stdin.flush()
            wait_until(lambda: self.depth() == before + 10, "the first lines")
            self.put_all("--state=%s.%d" % (self.path("state"), number), "-", input=second)
            first.stdin.write(numbered(10, 10))
            first.stdin.close()
            self.assertEqual(first.wait(harness.PATIENCE), 75)
            self.assertIn(b"another put uses the producer p; the current batch is not stored", first.stderr.read())
            self.assertEqual(self.stored()[before:], (numbered(10) + second).splitlines())

    def late(self, first, *files, producer="p", **kw):
        """A put of `first` is killed while its request is under way. The queue stores the request just before the first of `files`."""
        holder = Holder(self.queue.url)
        self.addCleanup(holder.server.close)
        state = "--state=" + self.path("state")
        killed = self.begin("--queue-url=" + holder.url, "--producer=" + producer, state, first)
        wait_until(lambda: holder.held, "a request")
        killed.kill()
        killed.wait()
        holder.holds, holder.before = False, holder.release
        done = self.put("--queue-url=" + holder.url, "--producer=" + producer, state, *files, **kw)
        self.assertEqual(holder.held, [])
        return done, state

    def test_a_late_request(self):
        """The request of a killed put is stored before that of the next put, which may not be taken for a duplicate."""
        posted, a, b = self.write("g", numbered(2, 50)), self.path("a"), self.path("b")
        for run, files in enumerate(((b,), (posted, b))):
            lines = numbered(3, 100 * run + 60), numbered(4, 100 * run + 70)
            self.write("a", lines[0])
            self.write("b", lines[1])
            self.put_all("--state=" + self.path("state"), posted)
            before = self.depth()
            done, state = self.late(a, *files)
            self.assertEqual(done.returncode, 75, done)
            self.put_all(state, *files)
            self.put_all(state, a)
            self.assertEqual(sorted(self.stored()[before:]), sorted(b"".join(lines).splitlines()))

    def test_a_late_request_of_the_same_file(self):
        """Its lines are stored once, whether the batch ends before, at or after the end of the late one."""
        for run, batch in enumerate((2, 6, 100)):
            name = self.write("a", numbered(6, 10 * run))
            before = self.depth()
            done, state = self.late(name, "--batch=%d" % batch, name, producer="q%d" % run)
            self.assertEqual(done.returncode, 75 if batch < 6 else 0, done)
            self.put_all(state, name, producer="q%d" % run)
            self.assertEqual(self.stored()[before:], numbered(6, 10 * run).splitlines())

    def test_a_late_request_of_a_follower(self):
        """It ends behind the first batches of the next follower, which goes on."""
        log, holder = self.write("log", numbered(6)), Holder(self.queue.url)
        self.addCleanup(holder.server.close)
        argv = "--queue-url=" + holder.url, "--follow", "--producer=f", log
        killed = self.begin(*argv)
        wait_until(lambda: holder.held, "a request")
        killed.kill()
        killed.wait()
        holder.holds, holder.before = False, holder.release
        follower = self.begin("--batch=2", *argv)
        wait_until(lambda: self.depth() == 6, "the late request")
        with open(log, "ab") as f:
            f.write(numbered(3, 6))
        wait_until(lambda: self.depth() == 9 or follower.poll() is not None, self.depth)
        self.assertEqual((follower.poll(), self.stored()), (None, numbered(9).splitlines()))

    def test_kinds_of_producers(self):
        """A followed log has its place in a file of its own."""
        log = self.write("log", numbered(5))
        follower = self.begin("--follow", "--producer=f", log)
        wait_until(lambda: self.depth() == 5, "the log")
        follower.terminate()
        self.assertEqual(follower.wait(harness.PATIENCE), 0)
        done = self.put("--producer=f", log)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the producer f follows a log", done.stderr)
        self.put_all(log)
        done = self.put("--follow", "--producer=p", log)
        self.assertEqual(done.returncode, 65, done)
        self.assertIn(b"the producer p has posted files", done.stderr)

    def test_a_mark_that_an_operator_has_set(self):
        name = self.write("a", numbered(10))
        self.put_all(self.write("b", numbered(3, 50)))
        self.assertEqual(self.queue.post("/producers?producer=p&mark=%d" % len(numbered(4)), b"").status, 200)
        self.assertEqual(self.posted(name), numbered(6, 4).splitlines())
        self.assertEqual(self.posted(name), [])

    def test_without_a_state_file_it_posts_nothing(self):
        done = self.put("--producer=p", "--state=" + self.path("none", "state"), self.write("a", numbered(3)))
        self.assertEqual((done.returncode, self.depth()), (73, 0), done)
        self.assertIn(b"--state names another file", done.stderr)


if __name__ == "__main__":
    harness.main()
