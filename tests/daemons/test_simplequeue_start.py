"""What simplequeue says at its start of settings that do nothing, or not what they seem to."""
import harness
from queue_test import QueueTest


class StartTest(QueueTest):
    def said(self, *args):
        """The log of a start, and of the first put."""
        q = self.start("simplequeue", *args)
        self.expect(q.post("/put", b"x"), 200)
        return q.log

    def test_a_message_that_no_body_holds(self):
        warning = "warn simplequeue no message of max_message can be put: max_body is less"
        self.assertIn(warning + " max_message=16777216 max_body=1048576", self.said("--max-message=16M", "--max-body=1M"))
        for args in ((), ("--max-body=1000",), ("--max-message=2M", "--max-body=2M")):
            self.assertNotIn(warning, self.said(*args))

    def test_settings_of_the_disk_in_memory(self):
        warning = "warn simplequeue the setting does nothing without a data_dir setting="
        args = ("--sync=never", "--segment-bytes=1M", "--scrub-rate=0")
        log = self.said(*args)
        for setting in ("sync", "segment_bytes", "scrub_rate"):
            self.assertIn(warning + setting, log)
        self.assertNotIn(warning, self.said("--data-dir=" + self.path("data"), *args))
        self.assertNotIn(warning, self.said())


if __name__ == "__main__":
    harness.main()
