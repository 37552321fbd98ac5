"""A copied data directory: with an id of its own it is another queue, whose relay is not told that all is published."""
import os
import shutil

import harness
from harness import MillraceTest
from queue_test import OnDisk, QueueTest


class RestoredTest(OnDisk, QueueTest):
    def id_of(self, q, name="default"):
        return q.post("/release?queue=" + name).header("X-Millrace-Queue-Id")

    def restore(self, directory):
        return self.run_program("simplequeue", "--restored", "--port=0", "--data-dir=" + directory)

    def copy(self):
        """A data directory with two queues and one message leased, and a copy of it: their ids."""
        q = self.queue()
        q.post("/mput?producer=p&mark=0&next=3", b"a\nb\nc")
        q.post("/put?queue=other", b"x")
        self.reserve(q, "items=1")
        ids = self.id_of(q), self.id_of(q, "other")
        q.stop()
        shutil.copytree(self.path("data"), self.path("copy"))
        return ids

    def test_a_copy_gets_new_ids_and_keeps_them(self):
        first = self.copy()
        done = self.restore(self.path("copy"))
        self.assertEqual(done.returncode, 0, done.stderr)
        copy = self.start("simplequeue", "--data-dir=" + self.path("copy"))
        second = self.id_of(copy), self.id_of(copy, "other")
        self.assertEqual(len(set(first + second)), 4)
        for queue_id in second:
            self.assertRegex(queue_id, "^[0-9a-f]{32}$")
        self.assertEqual(self.reserve(copy, "items=9")[1], [(1, 1, b"a"), (2, 1, b"b"), (3, 1, b"c")])
        self.assertEqual(copy.post("/put?producer=p&mark=0&next=3", b"a").header("X-Millrace-Duplicate"), "1")
        new = self.id_of(copy, "new")
        copy.kill9()
        copy = self.start("simplequeue", "--data-dir=" + self.path("copy"))
        self.assertEqual((self.id_of(copy), self.id_of(copy, "other"), self.id_of(copy, "new")), second + (new,))
        original = self.queue()
        self.assertEqual((self.id_of(original), self.id_of(original, "other")), first)

    def test_a_copy_of_a_copy(self):
        self.copy()
        ids = set()
        for _ in range(3):
            self.assertEqual(self.restore(self.path("copy")).returncode, 0)
            copy = self.start("simplequeue", "--data-dir=" + self.path("copy"))
            ids.add(self.id_of(copy))
            copy.stop()
        self.assertEqual(len(ids), 3)

    def test_a_mistyped_directory_is_not_made(self):
        done = self.restore(self.path("copi"))
        self.assertEqual(done.returncode, 78)
        self.assertIn(b"the directory must be a copy of a data directory", done.stderr)
        self.assertFalse(os.path.exists(self.path("copi")))

    def test_a_directory_in_use_keeps_its_ids(self):
        q = self.queue()
        before = self.id_of(q)
        done = self.restore(self.path("data"))
        self.assertEqual(done.returncode, 78)
        self.assertIn(b"in use", done.stderr)
        self.assertEqual(self.id_of(self.again(q)), before)

    def test_a_journal_that_begins_anew_is_another_queue(self):
        """Its messages' ids begin again, so that they must not do so under an id that had them."""
        self.copy()
        self.restore(self.path("copy"))
        directory = self.path("copy", "queues", "default")
        for name in os.listdir(directory):
            if name != "queue-id":
                os.unlink(os.path.join(directory, name))
        with open(os.path.join(directory, "queue-id")) as f:
            used = f.read().split()
        copy = self.start("simplequeue", "--data-dir=" + self.path("copy"))
        reply = copy.post("/put", b"x")
        self.assertEqual(reply.header("X-Millrace-Id"), "1")
        self.assertNotIn(reply.header("X-Millrace-Queue-Id"), used)

    def test_a_damaged_id_is_no_id(self):
        self.copy()
        path = self.path("copy", "queues", "default", "queue-id")
        one = b"0" * 32
        for text in (b"", b"\n", one, one + b"\n", one + b" " + one, one + one + b" \n", b"G" + one[1:] + b" " + one + b"\n",
                     one + b" " + one[1:] + b"\n\n", one + b" " + one + b"\n\n", b"\0" * 66):
            self.write(os.path.relpath(path, self.dir), text)
            bad = self.run_program("simplequeue", "--port=0", "--data-dir=" + self.path("copy"))
            self.assertEqual(bad.returncode, 78, text)
            self.assertIn(b"queue-id", bad.stderr)
        self.assertEqual(self.restore(self.path("copy")).returncode, 0)


class SettingsTest(MillraceTest):
    def test_only_by_hand_and_with_a_directory(self):
        bad = self.run_program("simplequeue", "--restored", "--port=0")
        self.assertEqual(bad.returncode, 78)
        self.assertIn(b"data_dir", bad.stderr)
        config = self.write("millrace.conf", "[simplequeue]\ndata_dir = data\nrestored = true\n")
        bad = self.run_program("simplequeue", "--port=0", "--config", config)
        self.assertEqual(bad.returncode, 78)
        self.assertIn(b"restored", bad.stderr)


if __name__ == "__main__":
    harness.main()
