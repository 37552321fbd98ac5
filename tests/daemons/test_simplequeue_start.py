"""What simplequeue says at its start of settings that do nothing, or not what they seem to."""
import os

import os

import harness
from queue_test import QueueTest


class StartTest(QueueTest):
    def said(self, *args):
        """The log of a start, and of the first put."""
        q = self.start("simplequeue", *args)
        self.expect(q.post("/put", b"x"), 200)
        return q.log

    def test_a_message_that_no_body_holds(self):
        warning = "warn simplequeue max_message has no effect above max_body, because larger bodies are refused"
        self.assertIn(warning + " max_message=16777216 max_body=1048576", self.said("--max-message=16M", "--max-body=1M"))
        for args in ((), ("--max-body=1000",), ("--max-message=2M", "--max-body=2M")):
            self.assertNotIn(warning, self.said(*args))

    def test_settings_of_the_disk_in_memory(self):
        warning = "warn simplequeue the setting has no effect without data_dir setting="
        args = ("--sync=never", "--segment-bytes=1M", "--scrub-rate=0")
        log = self.said(*args)
        for setting in ("sync", "segment_bytes", "scrub_rate"):
            self.assertIn(warning + setting, log)
        self.assertNotIn(warning, self.said("--data-dir=" + self.path("data"), *args))
        self.assertNotIn(warning, self.said())

    def test_an_overflow_log_in_a_new_data_directory(self):
        log = self.path("new", "overflow")
        q = self.start("simplequeue", "--data-dir=" + self.path("new"), "--overflow-log=" + log, "--max-depth=1")
        for text in (b"a", b"b"):
            self.expect(q.post("/put", text), 200)
        with open(log, "rb") as f:
            self.assertEqual(f.read(), b"a\n")

    def test_an_overflow_log_among_the_daemons_own_files(self):
        """By whatever path; what is there stays as it was, and the next start serves."""
        args = ("--data-dir=" + self.path("data"),)
        q = self.start("simplequeue", *args)
        self.expect(q.post("/put", b"kept"), 200)
        q.stop()
        queue = self.path("data", "queues", "default")
        segment = max((os.path.join(queue, name) for name in os.listdir(queue)), key=os.path.getsize)
        with open(segment, "rb") as f:
            before = f.read()
        os.symlink(segment, self.path("link"))
        os.symlink(self.path("data"), self.path("alias"))
        for path in (self.path("data", "lock"), segment, queue, self.path("data", "queues", "new"), self.path("link"),
                     os.path.join(queue, "new"), self.path("data", "queues", "..", "lock"), self.path("alias", "lock")):
            refused = self.run_program("simplequeue", "--port=0", "--overflow-log=" + path, *args)
            self.assertEqual(refused.returncode, 78, refused.stderr)
            self.assertIn(b"is the daemon's own file", refused.stderr)
        with open(segment, "rb") as f:
            self.assertEqual(f.read(), before)
        self.assertEqual(os.listdir(self.path("data", "queues")), ["default"])
        q = self.start("simplequeue", "--overflow-log=" + self.path("data", "overflow"), *args)
        self.assertEqual(q.get("/get").body, b"kept")

    def test_no_queue_is_made_where_the_directory_was_moved_from(self):
        data, moved = self.path("data"), self.path("moved")
        q = self.start("simplequeue", "--data-dir=" + data)
        self.expect(q.post("/put?queue=old", b"1"), 200)
        os.rename(data, moved)
        for _ in range(2):
            self.expect(q.post("/put?queue=new", b"2"), 503, "storage-failed")
        self.assertFalse(os.path.exists(data))
        self.assertEqual(q.log.count("not the directory that the daemon locked at its start"), 1)
        self.expect(q.post("/put?queue=old", b"3"), 200)
        os.mkdir(data)
        with open(os.path.join(data, "lock"), "w"):
            self.expect(q.post("/put?queue=new", b"4"), 503, "storage-failed")
        os.remove(os.path.join(data, "lock"))
        os.rmdir(data)
        os.rename(moved, data)
        self.expect(q.post("/put?queue=new", b"5"), 200)
        self.assertIn("queues can be created again", q.log)
        q.stop()
        q = self.start("simplequeue", "--data-dir=" + data)
        self.assertEqual((q.get("/get?queue=new").body, q.get("/mget?queue=old&items=5").body), (b"5", b"1\n3\n"))


if __name__ == "__main__":
    harness.main()
