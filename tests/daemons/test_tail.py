"""millrace tail and top: a stream as a person looks at it, with conditions, fields and hostile lines."""
import glob
import os
import pty
import re
import select
import signal
import subprocess

import harness
from harness import request, wait_until
from pubsub_case import PubsubTest

LINES = [b'{"t":1,"l":"a","c":"US","user":{"id":7}}', b'{"t":2,"l":"b","c":"JP","user":{"id":8}}', b"not JSON",
         b'{"t":3,"l":"a","n":1.5,"ok":true,"no":null,"list":[1]}', b'{"l":"\\u001b[2J\\t\xc2\x9bx"}']


class Tail(PubsubTest):
    def setUp(self):
        super().setUp()
        self.pubsub()
        request(self.url, "POST", "/pub?stream=clicks", b"\n".join(LINES) + b"\n")

    def view(self, tool, *args, expect=0):
        done = self.run_program("millrace", tool, "--pubsub-url=" + self.url, *args)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def tail(self, *args):
        return self.view("tail", "--from=earliest", "--follow=false", *args).stdout.splitlines()

    def test_whole_stream_as_it_is(self):
        self.assertEqual(self.tail(), LINES)
        self.assertEqual(self.tail("--count=2"), LINES[:2])
        self.assertEqual(self.view("tail", "--follow=false").stdout, b"")
        offset = len(LINES[0]) + 1
        self.assertEqual(self.view("tail", "--from=-2", "--follow=false").stdout.splitlines(), LINES[-2:])
        self.assertEqual(self.view("tail", "--from=%d" % offset, "--count=1").stdout.strip(), LINES[1])

    def test_a_damaged_stream(self):
        path, = glob.glob(self.path("p", "streams", "clicks", "*.seg"))
        harness.flip(path, harness.read_file(path).index(LINES[0]) + 1)
        done = self.view("tail", "--from=earliest", "--follow=false", expect=75)
        self.assertIn(os.path.basename(path).encode() + b": damaged at byte", done.stderr)
        wait_until(lambda: b"damaged at byte" in request(self.url, "GET", "/health").body, "/health to name the damage")

    def test_conditions(self):
        self.assertEqual(self.tail("--if=l=a"), [LINES[0], LINES[3]])
        self.assertEqual(self.tail("--if", "l = a and c != US"), [LINES[3]])
        self.assertEqual(self.tail("--if=user.id >= 8"), [LINES[1]])
        self.assertEqual(self.tail("--if=not c"), LINES[3:])
        self.assertEqual(self.tail("--if=ok = true and no = null and n in (1.5, x)"), [LINES[3]])

    def test_a_costly_pattern(self):
        request(self.url, "POST", "/pub?stream=clicks", 2 * (b'{"l":"%s!"}\n' % (b"a" * 40)))
        done = self.view("tail", "--from=earliest", "--follow=false", "--if=l ~ ^(a+)+$")
        self.assertEqual(done.stdout.splitlines(), [LINES[0], LINES[3]])
        self.assertEqual(done.stderr.count(b"takes too many steps"), 1)

    def test_fields(self):
        self.assertEqual(self.tail("--fields=l,user.id", "--if=t or l = a"), [b"a\t7", b"b\t8", b"a\t"])
        self.assertEqual(self.tail("--fields=user,list,l", "--if=t=3"), [b"\t[...]\ta"])
        self.assertEqual(self.tail("--fields=l")[-1], b"\\x1b[2J\\x09\\xc2\\x9bx", "no control byte reaches the terminal")

    def test_colours(self):
        self.assertEqual(self.tail("--color=always", "--count=1"),
                         [b'{\x1b[36m"t"\x1b[0m:1,\x1b[36m"l"\x1b[0m:"a",\x1b[36m"c"\x1b[0m:"US",'
                          b'\x1b[36m"user"\x1b[0m:{\x1b[36m"id"\x1b[0m:7}}'])
        for extra, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            master, slave = pty.openpty()
            args = ["--from=earliest", "--follow=false", "--count=1"]
            done = subprocess.run([harness.program("millrace"), "tail", "--pubsub-url=" + self.url, *args], stdout=slave,
                                  env={**os.environ, **extra}, timeout=harness.LONG)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(b"\x1b[36m" in os.read(master, 4096), coloured)
            os.close(slave)
            os.close(master)

    def test_follows_until_it_is_stopped(self):
        p = subprocess.Popen([harness.program("millrace"), "tail", "--pubsub-url=" + self.url, "--if=l=z"], stdout=subprocess.PIPE)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        wait_until(lambda: b"clicks" in request(self.url, "GET", "/clients").body, "the subscription")
        request(self.url, "POST", "/pub?stream=clicks", b'{"l":"y"}\n{"l":"z"}\n')
        self.assertTrue(select.select([p.stdout], [], [], harness.PATIENCE)[0])
        self.assertEqual(p.stdout.readline(), b'{"l":"z"}\n')
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(harness.PATIENCE), 0)

    def test_wrong_usage(self):
        for args, text in ((["nonsense"], b"nonsense"), (["--if=l=="], b"--if: column 2: expected an operator, not == (did you mean =?)"), (["--if="], b"--if: column 1: expected a field"), (["--fields=a..b"], b"is not a field"), (["--from=yesterday"], b"--from must be"),
                           (["--from=999999"], b"--from: 416"), (["--stream=a/b"], b"not a name")):
            self.assertIn(text, self.view("tail", *args, expect=64).stderr)

    def test_top(self):
        text = self.view("top", "--from=earliest", "--follow=false", "--by=l").stdout.decode()
        self.assertRegex(text, r"^clicks: 4 lines in .*, 3 values of l\n")
        rows = [re.split(r" +", line.strip(), maxsplit=4) for line in text.splitlines()[1:]]
        self.assertEqual([(r[0], r[2], r[4]) for r in rows], [("2", "50.00", "a"), ("1", "25.00", "\\x1b[2J\\x09\\xc2\\x9bx"), ("1", "25.00", "b")])
        self.assertRegex(self.view("top", "--from=earliest", "--follow=false", "--if=l=a").stdout.decode(), r"^clicks: 2 lines in [^\n]*/s\n$")
        self.assertIn(b"is not a field", self.view("top", "--by=.", expect=64).stderr)

    def test_top_ends_after_its_window(self):
        harness.slower_and_slower(1, self.ends_after)

    def ends_after(self, seconds):
        p = subprocess.Popen([harness.program("millrace"), "top", "--pubsub-url=" + self.url, "--by=l", "--window=%ds" % seconds], stdout=subprocess.PIPE)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        posts = 0
        while p.poll() is None and posts < 100000:
            request(self.url, "POST", "/pub?stream=clicks", b'{"l":"now"}\n')
            posts += 1
        out, _ = p.communicate(timeout=harness.PATIENCE)
        self.assertEqual(p.returncode, 0)
        self.assertIn(b"now", out)

    def test_top_of_more_values_than_it_keeps(self):
        body = b"".join(b'{"l":"%d"}\n' % i + (b'{"l":"hot"}\n' if i % 10 == 0 else b"") for i in range(210000))
        for at in range(0, len(body), 1 << 20):
            request(self.url, "POST", "/pub?stream=many", body[at:at + (1 << 20)].rsplit(b"\n", 1)[0] + b"\n")
        text = self.view("top", "--stream=many", "--from=earliest", "--follow=false", "--by=l", "--rows=2").stdout.decode()
        self.assertRegex(text.splitlines()[1], r"^ +2\d{4} .*  hot$|.*\(other\)$")


class RunningPipeline(harness.MillraceTest):
    def test_the_stream_is_that_of_the_running_pipeline(self):
        """Without --config, run.json names the configuration."""
        data = self.path("data")
        config = self.write("p.conf", harness.pipeline_config(data, harness.USERS_BY_COUNTRY, millrace={"streams": "views more"}, pubsub={"streams": None}))
        pipeline = harness.Pipeline(self, os.path.basename(config), data)
        pipeline.wait_ready()
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", LINES[0]).status, 200)
        where = "--data-dir=" + data
        self.assertEqual(self.run_program("millrace", "status", "--wait", where).returncode, 0)
        seen = ("--from=earliest", "--follow=false")
        self.assertEqual(self.run_program("millrace", "tail", where, *seen).stdout, LINES[0] + b"\n")
        self.assertRegex(self.run_program("millrace", "top", where, *seen, "--by=l").stdout, rb"^views: 1 line in .*, 1 value of l\n")
        self.assertIn(b" mark 2 ", self.run_program("millrace", "producers", where).stdout)
        other = self.run_program("millrace", "tail", where, "--follow=false", "--stream=clicks")
        self.assertEqual((other.returncode, other.stderr), (64, b"millrace tail: there is no stream clicks (pubsub has more, views; name one with "
                                                               b"--stream, or the pipeline's configuration with --config)\n"))


if __name__ == "__main__":
    harness.main()
