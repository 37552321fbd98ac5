"""millrace recount and compact --replace: the archive under new counters equals that of an undisturbed run."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import harness
import test_quarters
from harness import wait_until
from small_disk import SmallDisk
from recount_case import RecountTest


class Recount(RecountTest):
    def change_counters(self, first=4000, second=2000):
        """Some events are archived under the old counters, some are in slices, and the aggregator has new counters now."""
        self.init()
        lines = self.lines(first + 3 * second)
        self.post(lines[:first])
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.post(lines[first:first + second])
        self.wait_counted()
        self.aggregator.stop()
        self.rest = lines[first + second:]
        self.count(self.new)
        self.post(self.rest[:second])
        self.wait_counted()

    def post_meanwhile(self, lines):
        """Posts them in small batches, until stopped; the thread and its stop."""
        stopping = threading.Event()

        def post():
            for i in range(0, len(lines), 50):
                if stopping.wait(0.05):
                    return
                self.post(lines[i:i + 50])
        thread = threading.Thread(target=post)
        thread.start()

        def stop():
            stopping.set()
            thread.join()
        self.addCleanup(stop)
        return stop

    def test_equals_an_undisturbed_run(self):
        self.change_counters()
        self.assertIn("has other counters, and the archive does not include it; run `millrace compact", self.millrace("recount", expect=78))
        self.millrace("compact")
        stop = self.post_meanwhile(self.rest[2000:])
        said = self.millrace("recount")
        self.assertRegex(said, r"aggregator: counted \d+, rejected \d+, skipped \d+ in this run")
        self.assertRegex(said, r"(?m)not JSON")
        self.assertIn("subtotal z.u key = tz", said)
        rejects = re.search(r"`millrace (rejects \S+)` prints the lines that the recount rejected", said)[1].split()
        shown = self.run_program("millrace", *rejects)
        self.assertIn(b"not JSON", shown.stdout, shown)
        self.assertIn("millrace compact --config=%s --replace=%s" % (self.new, self.recounted), said)
        before = self.manifest()
        self.millrace("compact", "--replace=" + self.recounted)
        after = self.manifest()
        self.assertEqual((after["change"], after["retired"], after["generation"]), ("replace", "", before["generation"] + 1))
        self.assertEqual(after["recounted"]["streams"], {"clicks": before["streams"]["clicks"]["end"]})
        self.millrace("compact", "--replace=" + self.recounted)  # again: nothing happens
        self.assertEqual(self.manifest()["recounted"], after["recounted"])
        self.assertGreater(self.posted, int(before["streams"]["clicks"]["end"]))
        stop()
        self.check_exact()
        self.millrace("compact", "--verify")

    def test_a_recount_begins_quarter_hours_earlier(self):
        """Late events, which a slice counted by hour before its own quarters_since, move to the first quarter of their hours."""
        old, new = (self.configuration(name, test_quarters.COUNTERS % added)
                    for name, added in (("hours.conf", ("", "")), ("quarters.conf", test_quarters.QUARTERS)))
        random, model, start = harness.seeded(), test_quarters.Model(), 1956484800  # in 2031 and 2032
        model.since = 0

        def events(n):
            return [{"t": start + random.randrange(86400), "l": random.choice("ab"), "c": random.choice(["JP", "US"]),
                     "v": random.randrange(9)} for _ in range(n)]
        counted, late = events(200) + [{"t": start + 86399, "l": "a", "c": "JP", "v": 1}], events(40)
        self.init()
        self.post([json.dumps(e).encode() for e in counted])
        self.count(old)
        self.millrace("compact", config=old)
        self.aggregator.stop()
        self.count(new)
        self.millrace("compact", config=new)
        self.post([json.dumps(e).encode() for e in late])
        self.wait_counted()
        self.millrace("recount", config=new)
        self.millrace("compact", "--replace=" + self.recounted, config=new)
        self.assertEqual(self.manifest()["quarters_since"], 946684800)
        for e in counted + [{**e, "t": e["t"] // 3600 * 3600} for e in late]:
            model.add(e)
        shard = os.path.join(self.archive, "current", "%s-0-of-1.csv")
        for kind, lines in (("shard", model.lines()), ("sets", model.set_lines())):
            got = harness.read_file(shard % kind).decode().splitlines()
            self.assertEqual([line for line in got if not line.startswith("lookup|")], lines)
        done = self.run_program("compactor", "--archive=" + self.archive, "--verify")
        self.assertEqual(done.returncode, 0, done)

    def test_a_full_disk_is_a_temporary_failure(self):
        """Wherever the disk becomes full, the status is 75, and the same command continues."""
        disk = SmallDisk(self, "64m", name="run")
        self.change_counters()
        self.millrace("compact")
        disk.take_the_rest()
        statuses = []
        while not statuses or statuses[-1] != 0:
            done = self.run_program("millrace", "recount", "--config", self.new)
            statuses.append(done.returncode)
            self.assertIn(done.returncode, (0, 75), done)
            disk.leave(16 << 10 if len(statuses) < 30 else 4 << 20)
        self.assertGreater(len(statuses), 2)
        self.millrace("compact", "--replace=" + self.recounted)

    def test_hours_that_were_dropped_stay_dropped(self):
        self.change_counters()
        self.millrace("compact")
        latest = max(int(t) for t in re.findall(rb'"t": ?([0-9]{10})\b', b" ".join(self.rest)))
        day = "--drop-hours-before=" + time.strftime("%Y-%m-%d", time.gmtime(latest + 86400))
        self.millrace("compact", day)
        self.millrace("recount")
        self.millrace("compact", "--replace=" + self.recounted)
        whole = self.undisturbed()
        done = self.run_program("compactor", "--archive=" + self.path("expected"), "--aggregator-url=none", "--sortdb-url=none", day)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.files(), self.files(self.path("expected")))
        self.assertNotEqual(self.files(), whole)


class Guide(harness.MillraceTest):
    """The commands of docs/guide/counting.md, as they stand there, beside `millrace up`."""

    def up(self, counters):
        config = self.write("clicks.conf", harness.pipeline_config(self.path("millrace-data"), counters))
        return harness.Pipeline(self, config, self.path("millrace-data")).wait_ready()

    def test_change_your_counters(self):
        with open(os.path.join(harness.ROOT, "docs", "guide", "counting.md")) as f:
            section = f.read().partition("\n## Change your counters\n")[2].partition("\n## ")[0]
        commands = re.findall(r"(?m)^[0-9]\. `(.*)`$", section)
        self.assertEqual([c.split()[:2] for c in commands], [["millrace", "compact"], ["millrace", "recount"],
                                                            ["millrace", "compact"], ["rm", "-r"]])
        times = [1331942400 + 600 * i for i in range(60)]  # of one day
        body = b"\n".join(b'{"t":%d,"l":"bitly","c":"US"}' % t for t in times)
        span = "&from=%d&to=%d&bounds=outward" % (times[0], times[-1] + 1)
        pipeline = self.up("[input]\ntime = t\n[total u]\nkey = l\nlabel = user\n")
        self.assertEqual(pipeline.ask("pubsub", "POST", "/pub?stream=clicks", body).status, 200)
        wait_until(lambda: pipeline.ask("aggregator", "GET", "/stats?format=json").json()["events_total"] == 60, "the events")
        pipeline.interrupt()
        pipeline = self.up(harness.USERS_BY_COUNTRY)
        ask = "/v1/series?user=bitly&by=country&sub=US" + span
        wait_until(lambda: pipeline.ask("api", "GET", ask).status == 200, "an answer")
        self.assertEqual([row["n"] for row in pipeline.ask("api", "GET", ask).json()["rows"]], [None])
        for command in commands:
            done = subprocess.run(command, shell=True, capture_output=True, cwd=self.dir, env=dict(
                os.environ, PATH=os.path.dirname(harness.program("millrace")) + ":" + os.environ["PATH"]))
            self.assertEqual(done.returncode, 0, (command, done.stderr))
        self.assertEqual([row["n"] for row in pipeline.ask("api", "GET", ask).json()["rows"]], [60])
        pipeline.interrupt()



class CountedSince(RecountTest):
    """Series of a counter that was added later, from the start of the stream on."""

    def setUp(self):
        super().setUp()
        for config in (self.new, self.old):
            with open(config, "a") as f:
                f.write("\n[api]\naddress = unix:%s\n" % self.path("api.socket"))

    def ask(self, by, kind="series", more=""):
        reply = self.api.get("/v1/%s?user=%s&by=%s%s%s" % (kind, self.user, by, self.span, more))
        self.assertEqual(reply.status, 200, reply)
        return reply

    def point_at(self, generation):
        """docs/guide/compactor.md, "Return to an older generation"."""
        link = os.path.join(self.archive, "current")
        os.symlink("%012d" % generation, link + ".new")
        os.rename(link + ".new", link)
        self.assertEqual(self.sortdb.post("/reload").status, 200)

    def check_since(self, least):
        """Rows before the counter was added are null, and only those; an older counter has no such rows."""
        got = self.ask("country", more="&unit=hour&sub=US").json()
        since = got["counted_since"]
        self.assertTrue(least <= since <= time.time(), (least, since))
        self.assertEqual([row["n"] is None for row in got["rows"]], [row["t"] < since for row in got["rows"]])
        self.assertIn(None, [row["n"] for row in got["rows"]])
        older = self.ask("referrer", more="&unit=hour&sub=None").json()
        self.assertNotIn("counted_since", older)
        self.assertNotIn(None, [row["n"] for row in older["rows"]])
        csv = self.ask("country", more="&unit=hour&sub=US&format=csv").text.splitlines()
        self.assertRegex(csv[1], r"^[0-9]+,[^,]*,,(true|false)$")
        self.assertEqual(self.ask("country", "breakdown").json()["counted_since"], since)
        compared = self.ask("country", "compare", "&unit=hour&sub=US").json()
        self.assertEqual((compared["counted_since"], compared["rows"][0]["n"], compared["rows"][0]["change"]), (since, None, None))
        return since

    def test_rows_before_are_null_until_a_recount(self):
        lines = self.lines(3000)
        self.user = json.loads(next(line for line in lines if line.endswith(b"}") and b'"l"' in line))["l"]
        first = min(int(t) for t in re.findall(rb'"t": ?([0-9]{10})\b', b" ".join(lines)))
        self.span = "&from=%d&to=%d" % (first - first % 3600, first - first % 3600 + 3600 * 24 * 30)
        self.init()
        self.post(lines[:1000])
        self.count(self.old)
        self.aggregator.stop()
        began = int(time.time())
        self.count(self.new)
        self.api = self.serve("api", "--config=" + self.new)
        self.post(lines[1000:2000])
        self.wait_counted()
        since = self.check_since(began)
        later = dict.fromkeys(("c.u", "v.u", "w.u"), since)
        self.aggregator.stop()
        self.count(self.new)
        self.assertEqual(self.check_since(began), since)
        self.millrace("compact")
        self.assertEqual(self.manifest()["since"], later)
        self.assertEqual(self.check_since(began), since)
        self.post(lines[2000:])
        self.wait_counted()
        self.millrace("compact")
        self.assertEqual((self.manifest()["since"], self.check_since(began)), (later, since))
        table = self.run_program("millrace", "query", "series", "--config", self.new, "--user", self.user, "--by", "country",
                                 "--sub", "US", "--from", str(first), "--to", str(first + 7200), "--bounds", "outward")
        self.assertIn(b"`millrace recount` counts the time before", table.stdout, table.stderr)
        self.millrace("recount")
        self.millrace("compact", "--replace=" + self.recounted)
        self.assertNotIn("since", self.manifest())
        self.assertNotIn("counted_since", self.ask("country", more="&sub=US").json())
        self.point_at(self.manifest()["generation"] - 1)
        self.assertEqual(self.check_since(began), since)
        self.point_at(self.manifest()["generation"] + 1)
        self.check_exact()


class Files(RecountTest):
    def archive_stream(self, chunks, *args):
        """The stream's lines in files of ps_to_file, one for each chunk."""
        writer = self.daemon("ps_to_file", "--pubsub-url=" + self.pubsub.url, "--commit-every=20ms",
                             "--filename-format=" + self.path("out", "clicks-%Y.ndjson"), *args)
        names = self.path("out", "clicks-*.manifest.json")
        wait_until(lambda: harness.catches(writer.pid, signal.SIGHUP), "the writer to listen")
        manifests = []
        for i, chunk in enumerate(chunks, 1):
            self.post(chunk)

            def is_finished():
                writer.process.send_signal(signal.SIGHUP)
                manifests.clear()
                for name in glob.glob(names):
                    with open(name) as f:
                        manifests.append(json.load(f))
                return max((int(m["end"]) for m in manifests), default=0) == self.posted
            wait_until(is_finished, "file %d" % i, interval=0.05)
        writer.stop()
        return [os.path.join(self.path("out"), m["file"]) for m in sorted(manifests, key=lambda m: int(m["first"]))]

    def expire(self, end):
        """Of the stream, only the lines from the offset `end` on are sure to be left."""
        wait_until(lambda: {c["offset"] for c in self.pubsub.get("/cursors").json()["cursors"]} == {str(self.posted)},
                   lambda: "the cursors to reach the end: " + self.pubsub.get("/cursors").text)
        self.pubsub.stop()
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never", "--segment-bytes=64K",
                                 "--retain-bytes=%d" % (self.posted - end))
        wait_until(lambda: self.pubsub.get("/sub?stream=clicks&from=0&follow=0").status == 410, "lines to expire")

    def begin(self, lines):
        self.pubsub.stop()
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never", "--segment-bytes=64K")
        self.init()
        self.post(lines[:500])
        self.count(self.old)
        self.millrace("compact", config=self.old)
        self.aggregator.stop()
        self.count(self.new)

    def test_files_stand_for_lines_that_have_expired(self):
        lines = self.lines(3000)
        self.begin(lines)
        files = self.archive_stream([lines[500:1000], lines[1000:1750], lines[1750:2250]], "--compress=zstd")
        self.assertTrue(len(files) >= 3 and all(".zst" in name for name in files), files)
        end = self.posted
        self.post(lines[2250:])
        self.wait_counted()
        self.millrace("compact")
        expected = self.undisturbed()
        self.expire(end)
        said = self.millrace("recount", expect=65)
        self.assertRegex(said, r"stream clicks: lines from offset 0 to \d+ have expired; if files of ps_to_file have the missing lines, name these files with "
                         "millrace recount --from")
        missing = self.millrace("recount", "--from", *files[1:], expect=65)
        self.assertRegex(missing, r"lines from offset 0 to \d+ have expired")
        self.assertRegex(self.millrace("recount", "--from", *files, files[0], expect=65), "overlap in stream clicks")
        packed = harness.read_file(files[2])
        text = subprocess.run(["zstd", "-dqc", files[2]], capture_output=True, check=True).stdout
        changed = text[:-10] + bytes([text[-10] ^ 1]) + text[-9:]
        with open(files[2], "wb") as f:
            subprocess.run(["zstd", "-qc"], input=changed, stdout=f, check=True)
        self.assertIn(files[2] + ": the file differs from its manifest", self.millrace("recount", "--from", *files, expect=65))
        with open(files[2], "wb") as f:
            f.write(packed)
        self.millrace("recount", "--from", *files)
        self.assertEqual(self.files(self.recounted), expected)
        shutil.rmtree(self.recounted)
        files = self.archive_stream([self.lines(200, seed=2)])  # the archive ends within the last file
        manifests = [re.sub(r"\.zst$", "", name) + ".manifest.json" for name in files]
        self.assertEqual([name for name in manifests if not os.path.exists(name)], [])
        self.millrace("recount", "--from", *files, *manifests)
        self.assertEqual(self.files(self.recounted), expected)
        self.millrace("compact", "--replace=" + self.recounted)
        self.check_exact()

    def test_a_file_whose_own_name_ends_in_gz(self):
        """Its manifest is NAME.gz.manifest.json."""
        lines = self.lines(1500)
        self.begin(lines)
        files = self.archive_stream([lines[500:1000]], "--filename-format=" + self.path("out", "clicks-%Y.ndjson.gz"))
        self.assertTrue(all(os.path.exists(name + ".manifest.json") for name in files) and files, files)
        self.wait_counted()
        self.millrace("compact")
        expected = self.undisturbed()
        self.millrace("recount", "--from", *files)
        self.assertEqual(self.files(self.recounted), expected)

    def test_stopped_inside_a_file(self):
        """The rest of the file then comes from pubsub, which had been restarted before the file's lines."""
        self.init()
        self.archive_stream([self.lines(1000)])
        self.pubsub.stop()
        self.pubsub = self.serve("pubsub", "--data-dir=" + self.path("pubsub"), "--sync=never")
        self.post([b'{"t":%d,"l":"u%d","c":"US"}' % (1332637200 + i, i % 5000) for i in range(150000)])
        files = self.archive_stream([self.lines(100, seed=2)])
        self.count(self.new)
        self.millrace("compact")
        command = [harness.program("aggregator"), "--config=" + self.new, "--data-dir=" + self.path("counting"),
                   "--archive=" + self.path("none"), "--pubsub-url=" + self.pubsub.url, "--recount=" + self.archive]

        slices = self.path("counting", "slices", "*")

        def size(path):
            try:
                return os.path.getsize(path)
            except FileNotFoundError:  # SQLite's journals come and go
                return 0

        def stop_inside():
            shutil.rmtree(self.path("counting"), ignore_errors=True)
            os.mkdir(self.path("counting"))
            p = subprocess.Popen(["nice", "-n19", *command] + ["--flush-interval=10ms"] + files, stderr=subprocess.PIPE, text=True)
            wait_until(lambda: p.poll() is not None or sum(map(size, glob.glob(slices))) > 500000, "counts", interval=0.001)
            p.send_signal(signal.SIGINT)
            said = p.communicate()[1]
            return p.returncode == 130 and 1000 < sum(map(int, re.search(r"in all (\d+), (\d+), (\d+)", said).groups())) < 151000
        wait_until(stop_inside, "a stop inside the second file")
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sum(map(int, re.search(r"in all (\d+), (\d+), (\d+)", done.stderr).groups())), 151100)


if __name__ == "__main__":
    harness.main()
