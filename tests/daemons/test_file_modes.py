"""Who may read what a daemon keeps: its user and group. What applications handed over is not for everybody on the host."""
import os
import stat

import harness
from harness import wait_until
from queue_test import QueueTest

OTHERS = stat.S_IROTH | stat.S_IWOTH
FOR_ALL = (".db", ".db-wal", ".db-shm", "run.json", "manifest.json", ".csv")  # counts, and where daemons listen


class FileModesTest(QueueTest):
    def set_umask(self, mask):
        self.addCleanup(os.umask, os.umask(mask))

    def modes(self, directory):
        """{path: mode} of all files below."""
        return {path: stat.S_IMODE(os.stat(path).st_mode) for path in self.files(directory)}

    @staticmethod
    def files(directory):
        return [os.path.join(at, name) for at, _, names in os.walk(directory) for name in names]

    def queue_files(self):
        """Of a queue with several segments, an overflow log, and an id of its own."""
        data = "--data-dir=" + self.path("data")
        settings = (data, "--sync=0", "--segment-bytes=64K", "--max-depth=100", "--overflow-log=" + self.path("overflow.log"))
        q = self.start("simplequeue", *settings)
        for i in range(40):
            self.expect(q.post("/mput", b"\n".join([b"x" * 900] * 20)), 200)
        q.stop()
        self.assertEqual(self.run_program("simplequeue", "--restored", "--port=0", data).returncode, 0)
        modes = self.modes(self.path("data"))
        modes[self.path("overflow.log")] = stat.S_IMODE(os.stat(self.path("overflow.log")).st_mode)
        names = {os.path.basename(path) for path in modes}
        self.assertLessEqual({"lock", "queue-id"}, names)
        self.assertGreater(sum(name.endswith(".seg") for name in names), 1)
        return modes

    def test_a_queue_is_its_groups_to_read(self):
        self.set_umask(0o022)
        for path, mode in self.queue_files().items():
            self.assertEqual(mode, 0o640, path)

    def test_the_umask_may_take_that_too(self):
        self.set_umask(0o077)
        for path, mode in self.queue_files().items():
            self.assertEqual(mode, 0o600, path)

    def test_a_pipeline(self):
        """Streams, named cursors, rejected events."""
        self.set_umask(0o022)
        config = self.write("pipeline.conf", harness.pipeline_config(self.path("data")))
        up = harness.Pipeline(self, config, self.path("data")).wait_ready()
        self.expect(up.ask("simplequeue", "POST", "/put", b"no event"), 200)

        def rejected():  # other files come and go meanwhile
            return any("rejects" in path and os.path.getsize(path) for path in self.files(self.path("data")))
        wait_until(rejected, "the event to be rejected")
        up.stop()
        modes = self.modes(self.path("data"))
        private = [path for path in modes if not path.endswith(FOR_ALL)]
        for kind in ("queues/default", "streams/clicks", "cursors", "rejects", "lock"):
            self.assertTrue(any(kind in path for path in private), (kind, private))
        self.assertEqual([path for path in private if modes[path] & OTHERS or not modes[path] & stat.S_IRGRP], [])


if __name__ == "__main__":
    harness.main()
