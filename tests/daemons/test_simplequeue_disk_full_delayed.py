"""A full disk and delayed messages: the room that they need to become ready again is reserved."""
import os
import shutil
import time

import harness
from harness import wait_until
from queue_test import OnSmallDisk, message


class DelayedDiskFullTest(OnSmallDisk):
    def check_delayed(self, *args):
        """A delayed message is written again when it is due. The room for it was reserved, also after a kill."""
        args = ("--segment-bytes=256K", "--max-memory=256K", *args)
        q = self.open(*args)
        n = 0
        while q.post("/put", message(n, 20000)).status == 200:
            n += 1
            if q.post("/put?delay=%d" % (1 if n % 4 == 1 else 1000), message(n, 20000)).status == 200:
                n += 1
        self.disk.take_the_rest()
        self.assertGreater(n, 100)
        q.kill9()
        self.disk.take_the_rest()
        q = self.open(*args)
        self.disk.take_the_rest()
        self.assertEqual(sorted(self.take_all(q, n)), list(range(n)))
        self.assertEqual(self.numbers(q)["depth"], 0)
        self.disk.give_back()
        wait_until(lambda: q.post("/put", b"again").status == 200, "puts to be taken again")

    def test_what_is_delayed_comes(self):
        self.check_delayed("--sync=never")

    def test_what_is_delayed_comes_synced(self):
        self.check_delayed("--sync=0")

    def test_what_has_no_room_to_come_back_is_not_delayed(self):
        """A message that has no room to come back stays under its lease. It can be put back without a delay, and the other messages can be
        acknowledged."""
        q = self.open("--segment-bytes=256K", "--sync=never")
        n = self.fill_up(q, 4000)
        self.disk.take_the_rest()
        lease, got = self.reserve(q, "items=%d&lease=600000" % n)
        self.expect(q.post("/nack?lease=%s&id=1-%d&delay=1" % (lease, n)), 503, "storage-full")
        self.assertEqual((self.numbers(q)["leased"], self.numbers(q)["delayed"]), (len(got), 0))
        self.expect(q.post("/nack?lease=%s&id=1" % lease), 200)
        self.assertEqual(self.reserve(q, "items=10")[1], [(1, 2, message(0, 4000))])
        self.expect(q.post("/ack?lease=%s&id=2-%d" % (lease, n)), 200)
        self.disk.give_back()

    def check_others_leave_the_room(self, settle, n):
        """Acknowledgements or burials of other messages, one by one, leave the reserve of delayed messages whole. Then the test takes the
        rest of the disk."""
        q, late = self.open("--segment-bytes=64K", "--sync=never"), 20
        for i in range(0, n, 1000):
            self.expect(q.post("/mput", b"\n".join(message(k, 10) for k in range(i, min(i + 1000, n)))), 200)
        lease, got = self.reserve(q, "items=%d&lease=600000" % n)
        for i in range(n, n + late):
            self.expect(q.post("/put?delay=2000", message(i, 4000)), 200)
        for status, body in self.pipelined(q, [settle % (lease, i) for i, _, _ in got]):
            self.assertEqual((status, bool(body)), (200, True))
        self.disk.take_the_rest()
        self.assertEqual(sorted(self.take_all(q, late)), list(range(n, n + late)))

    def test_removals_leave_what_is_delayed_its_room(self):
        self.check_others_leave_the_room("/ack?lease=%s&id=%d", 4000)

    def test_burials_leave_what_is_delayed_its_room(self):
        self.check_others_leave_the_room("/bury?lease=%s&id=%d&reason=" + "r" * 300, 1000)

    def check_delayed_over_a_stop(self, fills, *args):
        """Reserved room stays reserved after a restart. A restart reserves missing room if the disk has it."""
        q, n = self.open(*args), 10
        for i in range(n):
            self.expect(q.post("/put?delay=1000", message(i, 20000)), 200)
        if fills == "before":
            self.disk.take_the_rest()
        q.stop()
        if fills == "before":
            self.disk.take_the_rest()
        q = self.open(*args)
        self.disk.take_the_rest()
        self.assertEqual(sorted(self.take_all(q, n)), list(range(n)))

    def test_what_is_delayed_comes_after_a_stop(self):
        self.check_delayed_over_a_stop("before", "--segment-bytes=256K", "--sync=never")

    def test_what_is_delayed_comes_after_a_stop_synced(self):
        self.check_delayed_over_a_stop("before", "--sync=0")

    def test_what_is_delayed_comes_after_a_stop_with_room(self):
        self.check_delayed_over_a_stop("after", "--segment-bytes=256K", "--sync=never")

    def test_as_much_as_there_is_room_for_comes(self):
        """Without the reserve, too much is due at once, so less is moved at a time."""
        n, delay, delayed = 40, 0.3, 0
        while delayed < n:  # what is due before the kill moves into other segments, and the room may then not do
            shutil.rmtree(self.disk.path("data"), ignore_errors=True)
            q, delay = self.open("--segment-bytes=256K", "--sync=never"), 2 * delay
            for i in range(n):
                self.expect(q.post("/put?delay=%d" % (delay * 1000), message(i, 20000)), 200)
            delayed = self.numbers(q)["delayed"]
            q.kill9()
        due = time.time() + delay
        wait_until(lambda: time.time() > due, "all to be due")
        newest = max(self.disk.path("data", "queues", "default", name) for name in
                     os.listdir(self.disk.path("data", "queues", "default")) if name.endswith(".seg"))
        os.truncate(newest, os.stat(newest).st_size)  # gives back what was reserved behind its end
        self.disk.take_the_rest()
        self.disk.leave(700 << 10)
        q = self.open("--segment-bytes=256K", "--sync=never")
        self.assertEqual(sorted(self.take_all(q, n, rest=False)), list(range(n)))


if __name__ == "__main__":
    harness.main()
