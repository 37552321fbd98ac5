"""sortdb with several threads: HUP every 50 ms between two archives under load. Every answer is of one generation and complete, every
thread serves the newest generation once /reload has answered, and memory and descriptors are level afterwards."""
# full: MILLRACE_ROUNDS=60
import os
import signal
import threading
import time

import harness
from harness import SANITIZED, connect, main, query, rounds, wait_until
from sortdb_case import point_at, write_generation, SortdbTest

THREADS = 4


def records(generation):
    return [(b"u|key%05d" % i, b"c413:%d" % generation) for i in range(8000)]


class Reader(threading.Thread):
    """Asks on a connection of its own until the test is over."""

    def __init__(self, url, over, target, lines):
        super().__init__(daemon=True)
        self.url, self.over, self.target, self.lines = url, over, target, lines
        self.answers, self.wrong = 0, []

    def run(self):
        c = connect(self.url)
        while not self.over.is_set() and not self.wrong:
            try:
                c.request("GET", self.target)
                r = c.getresponse()
                body = r.read()
            except OSError as e:
                self.wrong.append(e)
                break
            generation = r.headers["X-Millrace-Generation"]
            values = {line.rpartition(b":")[2] for line in body.splitlines()}
            if r.status != 200 or len(body.splitlines()) != self.lines or values != {generation.encode()}:
                self.wrong.append((self.target, r.status, len(body), values, generation))
            self.answers += 1
        c.close()


class SortdbSwap(SortdbTest):
    def begin(self, *args):
        os.mkdir(self.path("archive"))
        for g in (1, 2):
            write_generation(self.path("archive"), g, g, records(g), 2)
        point_at(self.path("archive"), 1)
        return self.start("sortdb", "--archive", self.path("archive"), "--threads=%d" % THREADS, *args)

    def level(self, daemon, descriptors=None):
        """Resident memory and open descriptors (or wait until no more are open), once the replaced generations are unmapped: a
        reload that a signal asked for still holds files for a moment, and closes them after it has unmapped them."""
        def maps():
            with open("/proc/%d/maps" % daemon.process.pid) as f:
                return sum("shard-" in line and ".csv" in line for line in f)
        wait_until(lambda: maps() == 2, lambda: "one generation to be mapped: %d" % maps())
        last = {}

        def closed():
            last.update(daemon.stats())
            return last["http_connections"] == 1 and (descriptors is None or last["open_descriptors"] <= descriptors)
        wait_until(closed, lambda: "%s descriptors to be left open, not %d" % (descriptors, last["open_descriptors"]))
        with open("/proc/%d/statm" % daemon.process.pid) as f:
            resident = int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        return resident, last["open_descriptors"]

    def test_hup_under_load(self):
        daemon = self.begin()
        over = threading.Event()
        targets = [("/get?" + query(key="u|key00007"), 1), ("/mget?" + query(k="u|key00007") + "&" + query(k="u|key07999"), 2),
                   ("/fwmatch?" + query(key="u|key001"), 100), ("/fwmatch?" + query(key="u|"), 8000),
                   ("/range?" + query(start="u|key00100", end="u|key01099"), 1000)]
        daemon.get("/fwmatch?key=u")
        before = self.level(daemon)
        readers = [Reader(daemon.url, over, *targets[i % len(targets)]) for i in range(2 * len(targets))]
        for r in readers:
            r.start()
        end, n = time.monotonic() + rounds(1), 1

        def swapped():
            """For that long, and until each reader has answers of several generations."""
            nonlocal n
            n += 1
            point_at(self.path("archive"), 1 + n % 2)
            daemon.process.send_signal(signal.SIGHUP)
            return any(r.wrong for r in readers) or time.monotonic() > end and \
                min(r.answers for r in readers) > 5 and daemon.stats()["reloads_total"] > 20
        wait_until(swapped, lambda: "answers: %s" % [r.answers for r in readers], rounds(1) + harness.PATIENCE, interval=0.05)
        over.set()
        for r in readers:
            r.join()
        self.assertEqual([r.wrong for r in readers if r.wrong], [])
        point_at(self.path("archive"), 1)
        self.assertEqual(daemon.get("/reload?format=json").json()["generation"], 1)
        after = self.level(daemon, before[1])
        if not SANITIZED:  # which keeps what is freed
            self.assertLess(after[0], before[0] + (16 << 20), (before, after))

    def test_every_thread_serves_what_reload_has_answered(self):
        daemon = self.begin()
        connections = [connect(daemon.url) for _ in range(8 * THREADS)]
        for n in range(2, 40):
            g = 1 + n % 2
            point_at(self.path("archive"), g)
            self.assertEqual(daemon.get("/reload?format=json").json()["generation"], g)
            for c in connections:
                c.request("GET", "/get?" + query(key="u|key00007"))
                self.assertEqual(c.getresponse().read(), b"c413:%d\n" % g)
        for c in connections:
            c.close()

    def test_statistics_are_summed(self):
        daemon = self.begin()
        connections = [connect(daemon.url) for _ in range(40)]
        for c in connections:
            for _ in range(5):
                c.request("GET", "/get?" + query(key="u|key00007"))
                c.getresponse().read()
        s = daemon.stats()
        self.assertEqual((s["get_requests"], s["get_hits"], s["http_connections"]), (200, 200, 41))
        threads = len(os.listdir("/proc/%d/task" % daemon.process.pid))
        self.assertGreaterEqual(threads, THREADS + 1)  # the loop, its workers and the reloader
        for c in connections:
            c.close()
        wait_until(lambda: daemon.stats()["http_connections"] == 1, "the connections to be closed")

    def test_the_first_health_of_each_thread_during_statistics(self):
        """A thread registers a status when it first replies with it, and the statistics include the health."""
        os.mkdir(self.path("archive"))
        write_generation(self.path("archive"), 1, 1, records(1), 2)
        point_at(self.path("archive"), 1)
        for _ in range(rounds(4)):
            daemon = self.start("sortdb", "--archive", self.path("archive"), "--threads=64")
            over = threading.Event()

            def show(target):
                while not over.is_set():
                    daemon.get(target)
            watchers = [threading.Thread(target=show, args=(t,), daemon=True) for t in ("/stats?format=json", "/metrics", "/stats")]
            for w in watchers:
                w.start()
            connections = [connect(daemon.url) for _ in range(256)]
            for c in connections:
                c.request("GET", "/health")
            for c in connections:
                self.assertEqual(c.getresponse().status, 200)
                c.close()
            over.set()
            for w in watchers:
                w.join()
            daemon.stop()

    def test_a_reload_of_the_same_generation_reads_only_the_manifest(self):
        daemon = self.begin()
        directory = os.path.join(self.path("archive"), "%012d" % 1)
        before = daemon.stats()["reloads_total"]
        for _ in range(3):
            self.assertEqual(daemon.get("/reload?format=json").json()["generation"], 1)
        self.assertEqual(daemon.stats()["reloads_total"], before)
        with open(os.path.join(directory, "shard-0-of-2.csv"), "r+b") as f:
            f.write(b"v")
        self.assertEqual(daemon.get("/reload").status, 503)  # written in place: read again, and refused

    def test_stop_answers_every_thread(self):
        daemon = self.begin()
        connections = [connect(daemon.url) for _ in range(8 * THREADS)]
        for target in ("/ping", "/fwmatch?" + query(key="u|")):
            for c in connections:
                c.request("GET", target)
            if target == "/ping":
                self.assertEqual([c.getresponse().read() for c in connections], [b"OK"] * len(connections))
        daemon.process.send_signal(signal.SIGTERM)
        for c in connections:
            self.assertEqual(c.getresponse().read().count(b"\n"), 8000)
            c.close()
        self.assertEqual(daemon.process.wait(30), 0)


if __name__ == "__main__":
    main()
