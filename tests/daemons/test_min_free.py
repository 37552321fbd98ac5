"""min_free: new events are refused before the disk is full, with a warning at twice that, and accepted again without a restart or a write."""
import os

import harness
from harness import wait_until
from small_disk import SmallDisk

MB = 1 << 20
DEFAULT = {"MILLRACE_%s_MIN_FREE" % name: None for name in ("SIMPLEQUEUE", "PUBSUB")}


class MinFree(harness.MillraceTest):
    posts = {"simplequeue": ("/put", "puts"), "pubsub": ("/pub?stream=s", "publishes")}

    def open(self, name, *args, **kw):
        self.disk = SmallDisk(self, "64m", name)
        return self.start(name, "--data-dir=" + self.disk.path("data"), "--segment-bytes=1M", *args, **kw)

    def leave(self, size):
        """So many bytes of the disk stay free."""
        fs = os.statvfs(self.disk.directory)
        free = fs.f_bavail * fs.f_frsize
        if free > size:
            self.disk.take(free - size)
        else:
            self.disk.leave(size - free)

    def health(self, daemon, status, text):
        def says():
            reply = daemon.get("/health")
            return reply.status == status and text in reply.text
        wait_until(says, lambda: "%d %s, not %s" % (status, text, daemon.get("/health")))

    def check(self, name, *args, min_free=8 * MB, **kw):
        target, what = self.posts[name]
        daemon = self.open(name, *args, **kw)

        def post():
            return daemon.post(target, b"x\n").status
        self.assertEqual(post(), 200)
        self.leave(3 * min_free)
        self.health(daemon, 200, "ready")
        self.leave(3 * min_free // 2)
        self.health(daemon, 200, "warning: the disk is nearly full: below ")
        self.assertEqual(post(), 200)
        self.leave(min_free - MB // 2)
        wait_until(lambda: "the disk is full: " in daemon.get("/health").text, "a full disk on /health before anything is posted")
        wait_until(lambda: post() == 503, "a refusal")
        reply = daemon.post(target, b"x\n")
        self.assertEqual((reply.status, reply.json()["code"], reply.header("Retry-After")), (503, "storage-full", "1"), reply)
        self.health(daemon, 503, "refusing %s since " % what)
        self.health(daemon, 503, "the disk is full: ")
        self.leave(3 * min_free)
        self.health(daemon, 200, "ready")
        self.assertEqual(post(), 200)
        self.assertEqual(daemon.log.count("the disk is nearly full"), 1)
        return daemon

    def test_the_queue_refuses_and_resumes_and_can_be_drained_meanwhile(self):
        queue = self.check("simplequeue", "--min-free=8M")
        self.leave(4 * MB)
        wait_until(lambda: queue.post("/put", b"y").status == 503, "a refusal")
        self.assertEqual(queue.get("/get").body, b"x\n")

    def test_streams_refuse_and_resume_and_are_read_meanwhile(self):
        pubsub = self.check("pubsub", "--min-free=8M")
        self.leave(4 * MB)
        wait_until(lambda: pubsub.post("/pub?stream=s", b"y\n").status == 503, "a refusal")
        self.assertTrue(pubsub.get("/sub?stream=s&from=earliest&follow=0").body.startswith(b"x\nx\n"))

    def test_the_default_is_a_twentieth_of_a_small_disk(self):
        for name in self.posts:
            with self.subTest(name):
                self.check(name, min_free=64 * MB // 20, env=DEFAULT)

    def test_a_disk_that_was_full_is_noticed_without_a_write(self):
        for name, (target, what) in self.posts.items():
            with self.subTest(name):
                daemon = self.open(name, "--min-free=0")
                self.assertEqual(daemon.post(target, b"x\n").status, 200)
                self.disk.take_the_rest()
                for n in range(1000):
                    if daemon.post(target, b"x" * 100000 + b"\n").status == 503:
                        break
                self.health(daemon, 503, "refusing %s since " % what)
                self.disk.give_back()
                self.health(daemon, 200, "ready")


if __name__ == "__main__":
    harness.main()
