"""What ps_to_file refuses at the start."""
import os
import signal

import harness
from harness import wait_until
from file_case import FileCase, event


class Refused(FileCase):
    def refused(self, status, *args, **kw):
        w = self.writer(*args, **kw)
        self.assertEqual(w.process.wait(harness.PATIENCE), status, w.log)
        return w.log

    def test_settings(self):
        self.assertIn("filename_format", self.refused(78, name=""))
        for conversion in ("%Q", "%_5EQ", "%"):
            self.assertIn("unknown strftime conversion %s;" % conversion, self.refused(78, name="s-%Y-%%" + conversion))
        for state in ("out/x.zst", "out/x.manifest.json", "out/x.gz", "out/s-20300101.ndjson", "out/s-20300101.ndjson.12"):
            self.assertIn("may be the name of an archived file", self.refused(78, "--state", self.path(state)))
        for option in ("--time_unit=ms", "--max_open=10", "--close_after=1m"):
            self.assertIn("only allowed with time_field", self.refused(78, option))
        self.assertIn("makes a name of 242 bytes; the maximum is 241", self.refused(78, name="out/%Y" + "x" * 238))
        self.assertIn("makes a name of 256 bytes; the maximum is 255", self.refused(78, name="%Y" + "x" * 252 + "/%d"))
        self.assertIn("path too long", self.refused(78, name="x/" * 2048 + "%d"))
        self.writer(name="out/%Y" + "x" * 237).wait_ready().stop()
        self.assertIn("must be earliest", self.refused(78, "--from=yesterday"))
        self.assertIn("not an address", self.refused(78, "--pubsub_url=nowhere:x"))

    def test_a_name_that_no_time_changes_is_told(self):
        for name in ("one.ndjson", "one-%%d.ndjson"):
            w = self.writer(name=name).wait_ready()
            self.assertIn("no conversion", w.log)
            w.stop()
        w = self.writer(name="%Y/%_m-%-d-%EY-%Oy.ndjson").wait_ready()
        self.assertNotIn("no conversion", w.log)
        w.stop()

    def test_a_second_writer(self):
        w = self.writer().wait_ready()
        self.assertIn("another process", self.refused(78))
        w.stop()

    def test_two_archives_of_the_same_names(self):
        """Both would write the same files. Archives with different names may share a directory."""
        other = ("--stream=other", "--state", self.path("other/state"))
        w = self.writer("--port=0", port=False).wait_ready()
        self.publish(event(1))
        self.wait_committed()
        self.assertIn("writes files with these names", self.refused(78, *other))
        self.assertIn("writes files with these names", self.refused(78, "--state", self.path("elsewhere")))
        beside = self.writer("--stream=other", name="out/other-%Y%m%d.ndjson").wait_listening()
        w.stop()
        self.assertIn("has unfinished files", self.refused(78, *other, name="out//s-%Y%m%d.ndjson"))
        os.rename(self.path("out/.ps_to_file-s.json"), self.path("moved"))
        w = self.writer("--state", self.path("moved")).wait_ready()
        w.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.committed("moved")["files"], "it to be finished")
        w.stop()
        self.writer(*other).wait_listening().stop()
        beside.stop()

    def test_another_stream(self):
        self.writer("--state", self.path("state")).wait_ready().stop()
        self.assertIn("of the stream s", self.refused(78, "--state", self.path("state"), "--stream=other"))

    def test_a_file_that_is_gone(self):
        w = self.writer().wait_ready()
        self.publish(event(1))
        self.wait_committed()
        w.stop()
        os.unlink(self.staged()[0])
        self.assertIn("No such file", self.refused(78))

    def test_a_state_of_another_version(self):
        os.mkdir(self.path("out"))
        self.write("out/.ps_to_file-s.json", '{"format":1}')
        self.assertIn("unknown format version", self.refused(78))

    def test_another_stream_under_the_name(self):
        w = self.writer().wait_ready()
        self.publish(event(1))
        self.wait_committed()
        w.stop()
        self.pubsub.stop()
        self.pubsub = self.start("pubsub", "--data_dir", self.path("fresh"), "--sync=never", "--streams=s")
        w = self.writer("--port=0", port=False).wait_listening()
        wait_until(lambda: w.get("/health").status == 503 and b"another stream" in w.get("/health").body, w.log)
        w.stop()
        self.assertEqual(harness.read_file(self.staged()[0]), event(1))


if __name__ == "__main__":
    harness.main()
