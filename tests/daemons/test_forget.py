"""millrace forget: no trace of a value in any file of a pipeline, and every other count as before."""
# seconds: 25
import base64
import hashlib
import os
import re
import shutil
import subprocess
import threading
import unittest

import harness
import xxh3
from harness import Pipeline, pipeline_config, query, request, wait_until

NAME = b"jehiah-the-forgotten"  # long enough to be stored as a hash, with a lookup
HOUR = 1331920800
COUNTERS = """
[input]
time = t
[total u]
key = user
label = user
[subtotal c.u]
key = c
label = country
[total l]
key = link
label = link
[subtotal u.l]
key = user
label = user
[total o]
key = lower(user)
label = lower
[total h]
key = host(link)
label = host
[unique v.h]
member = user
label = visitor
[unique w.h]
member = lower(user)
by = hour
"""


def event(i, user):
    return b'{"t":%d,"user":"%s","c":"%s","link":"http://example.org/%d"}\n' % (
        HOUR + i * 600, user, b"JP" if i % 2 else b"US", i % 5)


class Forget(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")

    def up(self, **sections):
        self.config = self.write("forget.conf", pipeline_config(self.data, COUNTERS, **sections))
        self.pipeline = Pipeline(self, self.config, self.data).wait_ready()
        return self.pipeline

    def run_program(self, *args):
        done = super().run_program(*args)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        return done

    def put(self, lines):
        self.assertEqual(self.pipeline.ask("simplequeue", "POST", "/mput", b"".join(lines)).status, 200)
        done = self.run_program("millrace", "status", "--config", self.config, "--wait")
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)

    def forget(self, *args, expect=0, field="user", value=NAME.decode()):
        done = self.run_program("millrace", "forget", "--config", self.config, "--field", field, "--value", value, *args)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout

    def files_with(self, text):
        found = []
        for directory, _, names in os.walk(self.data):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path) and text in harness.read_file(path):
                    found.append(os.path.relpath(path, self.data))
        return found

    def series(self, **params):
        reply = self.pipeline.ask("api", "GET", "/v1/series?" + query(unit="month", period="all", **params))
        self.assertEqual(reply.status, 200, reply)
        return reply.json()["total"]

    def breakdown(self, **params):
        reply = self.pipeline.ask("api", "GET", "/v1/breakdown?" + query(period="all", **params))
        self.assertEqual(reply.status, 200, reply)
        return {row["key"]: row["n"] for row in reply.json()["rows"]}

    def test_nothing_is_left(self):
        self.up(compactor={"keep": 3})
        lines = [event(i, NAME if i % 3 == 0 else b"other%d" % (i % 2)) for i in range(60)]
        self.put(lines[:40])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        rejected = [b'{"t":"no time","user":"%s"}\n' % NAME, b'not json: %s\n' % NAME, b'{"t":"no time","user":"kept"}\n']
        self.put(lines[40:] + rejected)
        before = {link: self.series(link=link) for link in ("http://example.org/%d" % i for i in range(5))}
        hosts = self.series(host="example.org")
        self.assertEqual(self.series(user=NAME.decode()), 20)
        self.assertTrue(self.files_with(NAME))
        self.assertIn(NAME.decode(), self.pipeline.ask("aggregator", "GET", "/stats?format=json").text)
        member = b"~%016x" % xxh3.seeded(NAME, 0)
        self.assertTrue(self.files_with(member))

        dry = self.forget("--dry-run")
        self.assertRegex(dry, r"stream +clicks +21 of 63 lines match")
        self.assertRegex(dry, r"clicks +1 line without a key contains the value; --contains erases it")
        self.assertRegex(dry, r"rejects +2 of 3 lines match")
        self.assertRegex(dry, r"archive +u +with its sub keys: would be removed\n")
        self.assertRegex(dry, r"archive +u.l +as a sub key: counts would move to \(other\)\n")
        self.assertRegex(dry, r"archive +v.h +as a member of sets: would be removed\n")
        for option in ("--dry-run", "--contains"):
            none = self.forget(option, value="a-misspelt-name")
            self.assertEqual(len(re.findall(r"archive .*: nothing found%s\n" % ("; slices are not searched" if option == "--dry-run" else ""), none)), 3, none)
            self.assertNotRegex(none, "removed|\\(other\\)|warning")
        self.assertRegex(self.forget("--dry-run", field="nofield"),
                         r"(?m)^warning +none of the searched events \(\d+\) has the field of --field=nofield: is the name right\?$")
        self.assertEqual(self.series(user=NAME.decode()), 20)

        text = self.forget("--contains")
        for target in ("/health?format=json", "/stats?format=json"):
            self.assertNotIn(NAME.decode(), self.pipeline.ask("aggregator", "GET", target).text)
        self.assertRegex(text, r"stream +clicks +22 of 63 lines erased")
        self.assertRegex(text, r"rejects +2 of 3 lines erased")
        # Another key of the same field may have counts of other values.
        self.assertRegex(text, r"archive +o +kept: it counts lower\(user\), not user")
        self.assertRegex(text, r"archive +w.h +kept: it counts lower\(user\), not user")
        self.assertRegex(text, r"archive +v.h +as a member of sets: removed")
        self.assertEqual(self.series(lower=NAME.decode()), 20)
        self.forget(field="lower(user)")
        self.assertEqual(self.series(lower=NAME.decode()), 0)
        self.assertEqual(self.files_with(NAME), [])
        stored = base64.b64encode(hashlib.md5(NAME).digest()[:8])
        self.assertEqual(self.files_with(stored), [])
        code = int(member[1:], 16).to_bytes(8, "little")
        self.assertEqual(self.files_with(member) + self.files_with(code), [])
        left = self.run_program("millrace", "compact", "--config", self.config, "--export").stdout
        sets = [line.partition(",")[2] for line in left.splitlines() if line.startswith(("v.h|", "w.h|"))]
        self.assertTrue(sets and all(text.startswith("@") for text in sets), left)

        self.assertEqual(self.series(user=NAME.decode()), 0)
        self.assertEqual({link: self.series(link=link) for link in before}, before)
        self.assertEqual(self.series(host="example.org"), hosts)
        self.assertEqual(self.series(user="other0"), sum(b"other0" in line for line in lines))
        shares = self.breakdown(link="http://example.org/0", by="user")
        self.assertEqual(sum(shares.values()), before["http://example.org/0"])
        self.assertEqual(shares["(other)"], sum(NAME in line and line.endswith(b'/0"}\n') for line in lines))
        rejects = self.run_program("millrace", "rejects", "--config", self.config)
        self.assertEqual((rejects.returncode, rejects.stdout.count("erased: {}"), rejects.stdout.count("kept")), (0, 2, 1), rejects)
        # Nothing is left to erase; and what was erased is not counted again.
        again = self.forget()
        self.assertRegex(again, r"stream +clicks +0 of 63 lines erased")
        back = self.run_program("millrace", "rejects", "--config", self.config, "--put-back", "--json")
        self.assertEqual(back.returncode, 0, back.stdout + back.stderr)
        self.put([event(1, b"other1")])
        self.assertEqual(self.series(user="other1"), sum(b"other1" in line for line in lines) + 1)

    def test_counters_of_the_past_and_of_the_future(self):
        """A counter that was removed keeps its counts in the archive; one that was just added has none yet."""
        self.up()
        self.put([event(i, NAME if i % 3 == 0 else b"other") for i in range(30)])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.pipeline.stop()
        global COUNTERS
        before = COUNTERS
        self.addCleanup(globals().__setitem__, "COUNTERS", before)
        COUNTERS = COUNTERS.replace("[total u]\nkey = user\nlabel = user\n[subtotal c.u]\nkey = c\nlabel = country\n", "")
        COUNTERS = COUNTERS.replace("[total o]\nkey = lower(user)\nlabel = lower\n", "[subtotal u.h]\nkey = user\nlabel = user\n")
        self.assertNotEqual(COUNTERS, before)
        self.up()
        self.assertRegex(self.forget("--dry-run"), r"archive +u.h +as a sub key: counts would move to \(other\), if the matching lines are counted\n")
        text = self.forget()
        self.assertRegex(text, r"archive +u +with its sub keys: removed")
        self.forget(field="lower(user)")
        self.assertEqual(self.files_with(NAME), [])

    def test_consumers_leave_out_erased_lines(self):
        """What reads the stream only afterwards: a recount, a filter, a forwarder, tail."""
        self.up()
        lines = [event(i, NAME if i % 3 == 0 else b"other") for i in range(30)]
        kept = [line for line in lines if NAME not in line]
        self.put(lines)
        self.forget()
        tail = self.run_program("millrace", "tail", "--config", self.config, "--from=earliest", "--follow=false")
        self.assertEqual(tail.stdout.encode(), b"".join(kept))
        pubsub = self.pipeline.daemon_url("pubsub")
        filtered = self.start("pubsub_filtered", "--pubsub-url=" + pubsub, "--stream=clicks", "--to-stream=copy",
                              "--from=earliest", "--drop=c")
        wait_until(lambda: request(pubsub, "GET", "/sub?stream=copy&from=earliest&follow=0").body.count(b"\n") == len(kept),
                   "the filtered lines")
        filtered.stop()
        sent = self.start("ps_to_http", "--pubsub-url=" + pubsub, "--stream=clicks", "--from=earliest",
                          "--destination=%s/pub?stream=sent" % pubsub, "--state=" + self.path("sent"))
        wait_until(lambda: request(pubsub, "GET", "/sub?stream=sent&from=earliest&follow=0").body == b"".join(kept),
                   "the lines that were sent")
        end = int(request(pubsub, "GET", "/producers?stream=clicks").json()["end"])
        queue = self.pipeline.daemon_url("simplequeue")
        plain = self.start("ps_to_http", "--pubsub-url=" + pubsub, "--stream=clicks", "--from=earliest", "--to-queue=plain", "--to-url=" + queue)
        wait_until(lambda: request(queue, "GET", "/producers?queue=plain").json()["producers"][0:1]
                   and int(request(queue, "GET", "/producers?queue=plain").json()["producers"][0]["mark"]) == end, "the mark of all lines")
        self.assertEqual(request(queue, "GET", "/dump?queue=plain").body.splitlines(), [line[:-1] for line in kept])
        plain.stop()
        sent.stop()
        self.assertIn(str(end), harness.read_file(self.path("sent")).decode())

    def test_a_queue_that_is_never_empty(self):
        """The messages of the beginning must be published, as the mark of queue_to_pubsub shows; later ones need not."""
        self.up()
        self.put([event(1, b"other")])
        queue, pubsub = self.pipeline.daemon_url("simplequeue"), self.pipeline.daemon_url("pubsub")
        stop = threading.Event()

        def put():
            self.assertEqual(request(queue, "POST", "/put?queue=busy", b"x").status, 200)
            return request(queue, "GET", "/stats?format=json").json()["queues"]["busy"]

        def publish():
            """As a reader does that is always one message behind."""
            mark = 0
            while not stop.wait(0.005):
                stats = put()
                after = int(stats["next_id"]) - 1
                if after > mark:
                    request(pubsub, "POST", "/pub?" + query(stream="clicks", producer=stats["queue_id"], mark=mark, next=after))
                mark = after

        put()
        text = self.forget("--wait=1s", expect=75)
        self.assertIn("messages still wait in the queue", text)
        reader = threading.Thread(target=publish)
        reader.start()
        try:
            text = self.forget()
        finally:
            stop.set()
            reader.join()
        self.assertNotIn("messages still wait in the queue", text)

    def test_a_copy_that_arrives_behind_the_search(self):
        """A filter has read the lines of one stream before they are erased, and stores them in another one afterwards."""
        self.up()
        lines = [event(i, NAME if i % 3 == 0 else b"other") for i in range(30)]
        self.put([event(1, b"other")])
        pubsub = self.pipeline.daemon_url("pubsub")
        self.assertEqual(request(pubsub, "POST", "/pub?stream=source", b"".join(lines)).status, 200)
        streams = request(pubsub, "GET", "/streams").json()["streams"]
        self.assertEqual([s["name"] for s in streams], ["clicks", "source"])  # in the order of the search
        source, end = streams[1]["id"], sum(map(len, lines))

        def store(begin, stop, body=None):
            reply = request(pubsub, "POST", "/pub?" + query(stream="clicks", producer=source, mark=begin, next=stop), body)
            self.assertEqual(reply.status, 200, reply)

        def copy():
            wait_until(lambda: request(pubsub, "GET", "/erase?stream=source").json()["state"] == "done", "the erasure")
            store(1, end, b"".join(lines))

        store(0, 1)
        copier = threading.Thread(target=copy)
        copier.start()
        text = self.forget()
        copier.join()
        self.assertRegex(text, r"(?s)stream +source +10 of 30 lines erased.*stream +clicks +10 of 31 lines erased")
        self.assertEqual([path for path in self.files_with(NAME) if path.startswith("pubsub")], [])

    def test_a_copy_that_does_not_go_on(self):
        self.up()
        self.put([event(i, NAME) for i in range(3)])
        pubsub = self.pipeline.daemon_url("pubsub")
        source = request(pubsub, "GET", "/streams").json()["streams"][0]["id"]
        self.assertEqual(request(pubsub, "POST", "/pub?" + query(stream="copy", producer=source, mark=0, next=1)).status, 200)
        self.assertRegex(self.forget("--wait=2s", expect=75), r"stream +copy +the copy of %s has not passed the erased" % source)

    def test_pubsub_goes_away_while_consumers_are_awaited(self):
        """One sentence says so, not one for each request."""
        self.up()
        self.put([event(i, NAME) for i in range(3)])
        self.assertEqual(self.pipeline.ask("pubsub", "POST", "/cursors?stream=clicks&name=slow&from=earliest").status, 200)
        forget = subprocess.Popen(
            [harness.program("millrace"), "forget", "--config", self.config, "--field=user", "--value=" + NAME.decode(), "--wait=5s"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(forget.kill)
        seen = []
        for line in forget.stdout:
            seen.append(line)
            if "lines erased" in line:
                break
        self.pipeline.stop()
        rest, errors = forget.communicate(timeout=harness.PATIENCE)
        self.assertNotEqual(forget.returncode, 0, rest + errors)
        self.assertEqual(errors.count("/cursors"), 0, errors)
        self.assertEqual(rest.count("slow") + rest.count("/cursors"), 1, rest)

    def test_a_text_without_records(self):
        """--drop-before removes records, but not the texts of their keys."""
        global COUNTERS
        self.addCleanup(globals().__setitem__, "COUNTERS", COUNTERS)
        COUNTERS = COUNTERS.replace("[subtotal u.l]\nkey = user\nlabel = user\n", "")
        self.up()
        self.put([event(i, NAME if i % 3 == 0 else b"other") for i in range(30)])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config, "--drop-before=2012-04-01").returncode, 0)
        self.assertEqual((self.series(user=NAME.decode()), self.series(user="other")), (0, 0))
        self.forget()
        self.assertEqual(self.files_with(NAME), [])

    def test_a_value_like_a_hash(self):
        """The archive stores long keys as 12 characters with = at the end; a key may look like that, too."""
        self.up()
        value = b"AbCdEfGhIjk="
        self.put([event(i, value if i % 3 == 0 else b"other") for i in range(30)])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.assertIn("AbCdEfGhIjk= has the form of the hash of a key", self.forget(value=value.decode()))
        self.assertEqual((self.series(user=value.decode()), self.series(user="other")), (0, 20))
        self.assertNotIn(value.decode(), self.breakdown(link="http://example.org/1", by="user"))

    def test_long_values_and_lines_without_a_key(self):
        """A value over max_text is stored under its cut text. A list cannot be a key, so the line is among the rejects."""
        self.up()
        long = NAME * 150
        listed = b'{"t":%d,"user":["%s"],"c":"JP","link":"http://example.org/1"}\n' % (HOUR, long)
        self.put([event(i, long if i % 3 == 0 else b"other") for i in range(30)] + [listed])
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.assertEqual(self.series(user=long.decode()), 10)
        text = self.forget("--contains", value=long.decode())
        self.assertRegex(text, r"stream +clicks +11 of 31 lines erased")
        self.assertRegex(text, r"rejects +1 of 1 line erased")
        self.forget(field="lower(user)", value=long.decode())
        self.assertEqual(self.series(user=long.decode()), 0)
        self.assertEqual(self.files_with(NAME), [])

    def test_a_daemon_that_is_away(self):
        self.up()
        self.put([event(i, NAME) for i in range(3)])
        self.pipeline.stop()
        done = self.run_program("millrace", "forget", "--config", self.config, "--field=user", "--value=" + NAME.decode())
        self.assertEqual(done.returncode, 75)
        self.assertIn("the pipeline of %s is stopped" % self.data, done.stderr)

    def test_files_that_are_not_searched_are_named(self):
        """What recounts, repairs, interrupted backups and people leave in the pipeline's directories."""
        self.up(simplequeue={"overflow_log": self.path("overflow.log")}, ps_to_file={"filename_format": self.path("%Y.ndjson")},
                ps_to_http={"rejects": self.path("refused.ndjson")})
        self.put([event(i, NAME if i % 3 == 0 else b"other") for i in range(30)])
        for command in ("compact", "recount"):
            done = self.run_program("millrace", command, "--config", self.config)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue([path for path in self.files_with(NAME) if path.startswith("recount/")])
        left = ["recount", "pubsub/streams/clicks~damaged-20260101T000000Z", "simplequeue/queues/default~damaged-20260101T000000Z",
                "aggregator/.backup", "aggregator/slices/old", "exported.csv"]
        for path in left[1:]:
            path = os.path.join(self.data, path)
            if not path.endswith((".csv", "old")):
                os.makedirs(path)
                path = os.path.join(path, "0000000000000001.seg")
            with open(path, "wb") as f:
                f.write(event(1, NAME))
        self.forget(expect=75, field="lower(user)")
        text = self.forget(expect=75)
        named = sorted(line.split()[1].rstrip(":") for line in text.splitlines() if line.startswith("left "))
        self.assertEqual([os.path.relpath(path, os.path.realpath(self.data)) for path in named], sorted(left), text)
        # Every file that still has the value is below one that is named.
        for path in self.files_with(NAME):
            self.assertTrue(any((path + "/").startswith(place + "/") for place in left), path)
        for path in ("overflow.log", "%Y.ndjson", "refused.ndjson"):
            self.assertRegex(text, r"kept +" + re.escape(self.path(path)))
        for path in left:
            path = os.path.join(self.data, path)
            (shutil.rmtree if os.path.isdir(path) else os.remove)(path)
        self.forget(field="lower(user)")
        self.assertNotRegex(self.forget(), "(?m)^left ")
        self.assertEqual(self.files_with(NAME), [])

    def test_the_refused_lines_of_put_are_searched(self):
        """A file of put/ is named only if it has the value, as bytes, escaped, or as the key in another spelling."""
        self.up()
        os.makedirs(self.data + "/put")
        value, refused = 'Fo"rgotten', os.path.join(os.path.realpath(self.data), "put", "default.web")
        for name, text in ((".rejects", b""), (".rejects.1", b'{"user":"other"}\nno json\n'), (".prom", b"# why no time\n"),
                           (".rejects.reasons", b"no time\n"), (".sources", b"")):
            with open(refused + name, "wb") as f:
                f.write(text)
        self.assertNotIn("left ", self.forget(value=value))
        for name, text in ((".rejects", b'{"a":"Fo\\"rgotten"}\n'), (".rejects.1", b'x\n\0Fo"rgotten'),
                           (".prom", b'# why Fo"rgotten\n'), (".rejects.reasons", b'found `Fo"rgotten`\n'), (".rejects", b'{"user":"F\\u006f\\"rgotten"}\n')):
            with open(refused + name, "r+b") as f:
                kept = f.read()
                f.write(text)
            text = self.forget(expect=75, value=value)
            self.assertEqual(re.findall(r"(?m)^left +(\S+): ", text), [refused + name])
            with open(refused + name, "wb") as f:
                f.write(kept)
        with open(refused + ".rejects", "wb") as f:
            f.write(b'{"user":"FO\\"RGOTTEN"}\n')
        self.forget(value=value)
        self.forget(expect=75, field="lower(user)", value=value.lower())

    def test_buried_messages_are_searched(self):
        self.up()
        queue = self.pipeline.daemon_url("simplequeue")
        lines = [event(1, NAME), event(2, b"other")] + [event(3, b"many")] * 150 + [event(4, NAME)]
        self.assertEqual(request(queue, "POST", "/mput?queue=set-aside", b"".join(lines)).status, 200)
        reserved = request(queue, "GET", "/reserve?queue=set-aside&items=1000")
        lease = reserved.headers["X-Millrace-Lease"]
        for line in reserved.body.splitlines():
            if line and not line.startswith(b"{"):
                where = query(queue="set-aside", lease=lease, id=line.split()[0].decode())
                self.assertEqual(request(queue, "POST", "/bury?" + where).status, 200)
        self.assertRegex(self.forget(expect=75), r"queue +set-aside +2 of 153 buried messages match; POST /kick")
        self.assertRegex(self.forget(value="nobody"), r"queue +set-aside +0 of 153 buried messages match")

    def test_usage(self):
        self.config = self.write("forget.conf", pipeline_config(self.data, COUNTERS))
        for args, text in ((["--field=user"], "needs --field and --value"), (["--value=x"], "needs --field and --value"),
                           (["--field=user", "--value="], "needs --field and --value"),
                           (['--field="user"', "--value=x"], "is not a field"),
                           (["--field=a..b", "--value=x"], "is not a field"),
                           # These keys have the counts of events without the field, and of keys over max_keys.
                           (["--field=user", "--value=None"], "also has counts of other events"),
                           (["--field=user", "--value=(other)"], r"write \(other) for the value (other)")):
            done = self.run_program("millrace", "forget", "--config", self.config, *args)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    harness.main()
