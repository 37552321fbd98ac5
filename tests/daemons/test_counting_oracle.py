"""The library's counting, held byte for byte against the oracle's: real clicks, generated ones, and nasty lines.

Without ../shared the oracle is not there; then the digests of what it printed stand for it, in
tests/expected/counting.json, made by `MILLRACE_BUILD=... PYTHONPATH=tests/support test_counting_oracle.py --print`.
With it, the stored ones are checked too. It counts generated lines in the long round, and if the digests differ."""
# full: MILLRACE_ROUNDS=2
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

import answers
import harness

EXPECTED = os.path.join(harness.ROOT, "tests", "expected", "counting.json")
GENERATE = ["--events=15000", "--seed=11", "--users=300", "--links=2000", "--damaged=0.05", "--hostile=0.2"]
T = b'"t":1331923247'

VALUES = [
    b'null', b'true', b'false', b'""', b'"None"', b'0', b'-0', b'-1', b'007', b'1.0', b'1e2', b'1E400', b'-1e-400', b'1.', b'.5', b'+1',
    b'9223372036854775807', b'9223372036854775808', b'18446744073709551615', b'18446744073709551616', b'-9223372036854775808',
    b'-9223372036854775809', b'NaN', b'Infinity', b'-Infinity', b'[]', b'{}', b'[null]', b'"a', b"'a'", b'tru', b'"\\u0000"', b'"\x00"',
    b'"\x1f"', b'"\x7f"', b'"\\u007f"', b'"\t"', b'"\\t\\n\\r\\b\\f\\\\\\/\\""', b'"\\v"', b'"\\u12g4"', b'"\\uD83D\\uDE00"', b'"\\uD83D"',
    b'"\\uDE00"', b'"\\uDE00\\uD83D"', b'"\\uD83D\\u0041"', b'"\\\\uD83D"', b'"\xed\xa0\x80"', b'"\xff"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"',
    b'"\xf4\x8f\xbf\xbf"', b'"\xef\xbf\xbf"', b'"\xe6\x97\xa5\xe6\x9c\xac"', b'"eleven_byte"', b'"twelve_bytes"', b'"h0aMB8AuNw4="', b'"a b"',
    b'"a:b"', b'"a,b"', b'"a.b"', b'"a|b"', b'"(other)"', b'"lookup"', b'" "', b'"' + b'x' * 5000 + b'"',
]
URLS = [
    b'direct', b'http://', b'http:///', b'http://?', b'http://#', b'http://WWW.Example.com', b'http://a:1/', b'http://u:p@A/', b'http://a@b@C',
    b'http://[2001:DB8::1]:80/', b'http://[::1', b'http://[', b'http://[A]b:1', b'http://u@[A]', b'http://:1', b'http://@', b'x+y-z.1://Q/',
    b'1a://Q', b'://Q', b':Q', b'http:/Q', b'http//Q', b'mailto:A@B', b'http:', b'HTTPS://Q?A@B', b'http://Q#A@B', b'http://a b/',
    b'http://\xc3\x84B/', b'http://a\\nB/c', b'\\nhttp://A/', b'http://a\\\\B', b'a', b'http', b'h://@:1', b'http://A.B.C.D.E.F.G/',
]
TIMES = [
    b'946684800', b'946684799', b'946684799.999', b'5995814399', b'5995814399.5', b'5995814400', b'0', b'-1', b'1e9', b'1.331923247e9',
    b'1331923247.999', b'1e300', b'-1e300', b'18446744073709551615', b'"1331923247"', b'null', b'true', b'[]', b'{}', b'1956527999',
    b'1956528000', b'4107542400', b'4102444799', b'951782400', b'1330473600',
]
LINES = [
    b'{}', b'[]', b'1', b'null', b'"x"', b' ', b'\t', b'\r', b'{', b'}', b'{}{}', b'{},', b'x{}', b'{}x', b'{}\x00', b'\x00', b'\xef\xbb\xbf{' + T + b'}',
    b'{' + T + b',}', b'{' + T + b' ' + T + b'}', b'{' + T + b'}\r', b'{' + T + b'}\r\r', b'\x0b{' + T + b'}', b' \t{ ' + T + b' } \t', b'{\x0c' + T + b'}',
    b'{"t":null,' + T + b'}', b'{' + T + b',"t":null}', b'{"\\u0074":1331923247}', b'{' + T + b',"l":"a","\\u006c":"b"}', b'{' + T + b',"":1}',
    b'{' + T + b',"\\ud800":1}', b'{' + T + b',"\\ud83d\\ude00":1}', b'{"_heartbeat_":1}', b'{"_heartbeat_":null}', b'{"_heartbeat_":1',
    b'{"_heartbeat_":1,"t":[]}', b'{"_heartbeat_":"\\ud800"}', b'{"x":{"_heartbeat_":1},' + T + b'}', b'{"\\u005fheartbeat_":1}',
    b'{' + T + b',"x":' + b'[' * 100 + b']' * 100 + b'}', b'{' + T + b',"x":' + b'[' * 2000 + b']' * 2000 + b'}', b'[' * 100000,
    b'{' + T + b',"x":' + b'9' * 400 + b'}', b'{' + T + b',"x":0.' + b'9' * 400 + b'}', b'{' + T + b',"x":1' + b'0' * 400 + b'.0}', b'{' + T + b',l:1}',
    b'{' + T + b'} // note', b'{' + T + b',"x":"' + b'\\u0041' * 3000 + b'"}', b'{' + T + b',"t ":1,"L":"no","l":"yes"}',
]


def nasty_lines():
    """Each value in every place where a key is asked for, each address, each time, and lines of their own kind."""
    lines = [b'{%s,"%s":%s}' % (T, field, value) for value in VALUES for field in (b"l", b"h", b"c", b"u", b"r", b"other")]
    lines += [b'{%s,"u":"%s","r":"%s"}' % (T, url, url) for url in URLS]
    lines += [b'{"t":%s,"l":"bitly","c":"US"}' % time for time in TIMES]
    return b"".join(line + b"\n" for line in lines + LINES)


def generated_lines():
    return subprocess.run([harness.program("clickgen"), *GENERATE], stdout=subprocess.PIPE, check=True).stdout


def digest(text):
    return hashlib.sha256(text).hexdigest()


def shown(counts):
    """The oracle's archive text, and its summary."""
    text = b"".join(line + b"\n" for line in sorted(counts.archive(1, 0)))
    return text, "events %d skipped %d rejected %d\n" % (counts.events, counts.skipped, counts.rejected)


def write_config():
    """The sample counters without a bound on texts, of which the oracle knows nothing."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf", prefix="millrace-test-", delete=False) as f:
        with open(os.path.join(harness.ROOT, "etc", "clicks.conf")) as sample:
            f.write(sample.read() + "\n[counters]\nmax_text = 1M\n")
    return f.name


def oracle_counts(oracle, config, blobs):
    """What the oracle says of these files' bytes."""
    counts = oracle.Counts(config)
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as directory:
        for i, data in enumerate(blobs):
            with open(os.path.join(directory, str(i)), "wb") as f:
                f.write(data)
        counts.read([os.path.join(directory, str(i)) for i in range(len(blobs))])
    return shown(counts)


class CountingOracle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.oracle = harness.load_oracle()
        with open(EXPECTED) as f:
            cls.stored = json.load(f)
        cls.config = write_config()
        cls.addClassCleanup(os.unlink, cls.config)
        print("compared with: %s" % ("the oracle" if cls.oracle else "what the oracle printed, " + EXPECTED),
              file=sys.stderr, flush=True)

    def count(self, data):
        done = subprocess.run([harness.program("count_lines"), self.config], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=harness.LONG)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, done.stderr.decode()

    def check(self, got, expected):
        """Names the first records that differ; whole texts would be too long to read."""
        self.assertEqual(got[1], expected[1])
        if got[0] != expected[0]:
            mine, theirs = got[0].split(b"\n"), expected[0].split(b"\n")
            self.fail("only here: %r\nonly the oracle: %r" % (sorted(set(mine) - set(theirs))[:3], sorted(set(theirs) - set(mine))[:3]))

    def check_both_ways(self, name, data):
        got = self.count(data)
        digests = [digest(got[0]), got[1]]
        if self.oracle and (name == "nasty" or harness.rounds(1) > 1 or digests != self.stored[name]):
            self.check(got, oracle_counts(self.oracle, self.config, [data]))
        self.assertEqual(digests, self.stored[name])
        lines = got[0].split(b"\n")[:-1]
        self.assertEqual(lines, sorted(lines))

    def test_nasty_lines(self):
        self.check_both_ways("nasty", nasty_lines())

    def test_generated_lines(self):
        self.check_both_ways("generated", generated_lines())

    def test_each_nasty_line_is_judged_alike(self):
        """One verdict a line, so that two wrongs do not make a right sum."""
        if not self.oracle:
            self.skipTest("the oracle is not here")
        data, expected = nasty_lines(), self.oracle.Counts(self.config)
        lines = [line for line in (line.removesuffix(b"\r") for line in data.split(b"\n")) if line]
        done = subprocess.run([harness.program("count_lines"), self.config, "verdicts"], input=data, stdout=subprocess.PIPE, check=True,
                              timeout=harness.LONG)
        verdicts = done.stdout.decode().split("\n")[:-1]
        self.assertEqual(len(verdicts), len(lines))
        for line, verdict in zip(lines, verdicts):
            before = (expected.skipped, expected.rejected)
            expected.add_line(line)
            kind = "skipped" if expected.skipped > before[0] else "rejected" if expected.rejected > before[1] else "event"
            self.assertEqual(verdict.split(":")[0], kind, (line[:100], verdict))

    def test_real_clicks(self):
        files = harness.real_sample()
        if not files:
            self.skipTest("the real clicks are not here")
        blobs = [harness.read_file(path) for path in files]
        self.check(self.count(b"".join(b if b.endswith(b"\n") else b + b"\n" for b in blobs)), shown(answers.count(self.oracle, files)))


def print_expected():
    oracle = harness.load_oracle()
    printed, config = {}, write_config()
    for name, data in (("nasty", nasty_lines()), ("generated", generated_lines())):
        text, summary = oracle_counts(oracle, config, [data])
        printed[name] = [digest(text), summary]
    os.unlink(config)
    json.dump(printed, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    print_expected() if "--print" in sys.argv else unittest.main()
