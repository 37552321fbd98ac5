"""A sealed slice is damaged on the disk: a read and the scrub find it, /health and millrace status name the slice and the
mend, other keys are answered, counting goes on, and the slice from a backup mends it."""
import glob
import os
import re
import shutil

import harness
from harness import wait_until

COUNTERS = "[input]\ntime = t\nmax_ahead = 0\n[total u]\nkey = l\n"
KEYS = 3000
ZEBRA = b'{"t":1331923249,"l":"zebra"}'


def event(i):
    return b'{"t":1331923249,"l":"user%06d"}' % i


class DamagedSlice(harness.MillraceTest):
    def up(self, rate):
        config = self.write("p.conf", harness.pipeline_config(
            self.path("data"), COUNTERS, aggregator={"scrub_rate": rate, "flush_interval": "1h"}))
        return harness.Pipeline(self, config, self.path("data")).wait_ready()

    def settled(self, pipeline):
        done = self.run_program("millrace", "status", "--wait", "--data-dir", self.path("data"))
        self.assertEqual(done.returncode, 0, "%s\n%s" % (done, pipeline.log))

    def count(self, pipeline, key):
        return pipeline.ask("aggregator", "GET", "/get?key=u%%7C%s" % key)

    def wait_count(self, pipeline, key, n):
        wait_until(lambda: self.count(pipeline, key).body.endswith(b":%d\n" % n), lambda: "%s\n%s" % (
            self.count(pipeline, key), pipeline.log))

    def sealed_and_damaged(self):
        """A pipeline with a sealed slice, in which the last block is damaged while the pipeline is stopped."""
        pipeline = self.up("0")
        for slice_number, events in enumerate(([event(3)], [*map(event, range(KEYS)), ZEBRA])):
            reply = pipeline.ask("simplequeue", "POST", "/mput", b"\n".join(events))
            self.assertEqual(reply.status, 200, reply)
            self.settled(pipeline)
            self.assertEqual(pipeline.ask("aggregator", "POST", "/seal?slice=%d" % (slice_number + 1)).status, 200)
        done = self.run_program("millrace", "backup", "--config", pipeline.config_path, self.path("b"))
        self.assertEqual(done.returncode, 0, done)
        self.slice = self.path("data", "aggregator", "slices", "0000000002.db")
        shutil.copy(self.slice, self.path("intact.db"))
        os.unlink(self.slice)
        shutil.copy(self.path("intact.db"), self.slice)  # without the backup's hard link
        pipeline.interrupt()
        harness.flip(self.slice, harness.read_file(self.slice).index(b"zebra"))
        return self.slice

    def is_named(self, pipeline):
        """Both /health and millrace status name the slice, what is unreadable and the mend."""
        words = (b"0000000002.db", b"block", b"restore", b"restart the aggregator")
        reply = pipeline.ask("aggregator", "GET", "/health")
        status = self.run_program("millrace", "status", "--data-dir", self.path("data"))
        line = b"".join(re.findall(rb"aggregator is damaged.*\n -> .*", status.stdout))
        return reply.status == 503 and status.returncode == 1 and all(w in reply.body and w in line for w in words)

    def goes_on(self, pipeline):
        """Other keys are answered, and events are counted."""
        self.wait_count(pipeline, "user000003", 2)
        self.assertEqual(pipeline.ask("simplequeue", "POST", "/put", event(3)).status, 200)
        self.wait_count(pipeline, "user000003", 3)
        pipeline.interrupt()

    def test_a_read_finds_it(self):
        self.sealed_and_damaged()
        pipeline = self.up("0")
        self.assertEqual(pipeline.ask("aggregator", "GET", "/health").status, 200)
        self.assertEqual(self.count(pipeline, "zebra").status, 503)
        wait_until(lambda: self.is_named(pipeline), lambda: pipeline.log)
        wait_until(lambda: "restart the aggregator" in pipeline.log, lambda: pipeline.log)
        self.assertEqual(pipeline.log.count("restart the aggregator"), 1, "logged once")
        self.assertEqual(self.count(pipeline, "zebra").status, 503)
        self.goes_on(pipeline)
        # Without a backup: the aggregator counts again from the end of the slice before.
        for path in glob.glob(self.path("data", "aggregator", "slices", "*")):
            if int(os.path.basename(path)[:10]) >= 2:
                os.rename(path, self.path("aside-" + os.path.basename(path)))
        self.is_mended(self.up("0"))

    def is_mended(self, pipeline):
        self.settled(pipeline)
        self.wait_count(pipeline, "zebra", 1)
        self.wait_count(pipeline, "user000003", 3)
        pipeline.interrupt()

    def test_the_scrub_finds_it_and_the_backup_mends_it(self):
        self.sealed_and_damaged()
        pipeline = self.up("8M")
        wait_until(lambda: self.is_named(pipeline), lambda: pipeline.log)
        metrics = pipeline.ask("aggregator", "GET", "/metrics").text
        self.assertEqual(re.search(r"(?m)^millrace_aggregator_scrub_damaged_total (\d+)", metrics)[1], "1")
        self.goes_on(pipeline)
        done = self.run_program("millrace", "restore", self.path("b"), "--to", self.path("r"))
        self.assertEqual(done.returncode, 0, done)
        shutil.copy(self.path("r", "aggregator", "slices", "0000000002.db"), self.slice)
        pipeline = self.up("8M")
        wait_until(lambda: "scrub_slices_total 2" in pipeline.ask("aggregator", "GET", "/metrics").text, lambda: pipeline.log)
        self.settled(pipeline)
        self.is_mended(pipeline)


if __name__ == "__main__":
    harness.main()
