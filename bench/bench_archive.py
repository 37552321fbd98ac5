#!/usr/bin/env python3
"""How fast ps_to_file takes a stream, beside a bare loop that receives the same bytes from the same pubsub over the same kind
of connection and writes them into a file.

    bench_archive.py CLICKS [ROUNDS]        run by scripts/bench, which names the build

A stream of real events lies in pubsub, which has processor 0, as has whoever looks how far it has got; who takes it has
processor 1. The clock runs from when pubsub may answer (it is stopped while the taker starts) until the files hold all but the
last 256 KiB, which ps_to_file may keep for a moment: of compressed ones, until every file is packed and has its manifest.
ps_to_file syncs once a second, as it does by default, and so does the bare loop. Shown are medians, and of each way the ratio
to the bare loop of the same round; processor time is the taker's, all its threads."""
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import harness
import measuring

KEPT = 256 << 10
LOOK = 0.005  # seconds between two looks
WAYS = {
    "arrival": ["--filename_format={dir}/%Y/clicks-%m%d-%H.ndjson"],
    "event time": ["--filename_format={dir}/%Y/clicks-%m%d-%H.ndjson", "--time_field=t"],
    "arrival, zstd": ["--filename_format={dir}/%Y/clicks-%m%d-%H%M%S.ndjson", "--compress=zstd"],
}


def written(directory):
    """Bytes in its files, looked at as cheaply as can be: what looks takes time from what is measured. A file that has been given
    its final name since it was listed is counted the next time."""
    total = 0
    for year in os.scandir(directory):
        for entry in os.scandir(year.path) if year.is_dir() else ():
            try:
                total += entry.stat().st_size if not entry.name.endswith(".json") else 0
            except FileNotFoundError:
                pass
    return total


class Archiving(measuring.Streams):
    def timed(self, start, is_done):
        """Seconds from when pubsub goes on, which is stopped until it has been asked."""
        os.kill(self.pubsub.pid, signal.SIGSTOP)
        try:
            start()
            harness.wait_until(lambda: measuring.is_asked(self.pubsub.url), "the stream to be asked for", interval=0.001)
        finally:
            os.kill(self.pubsub.pid, signal.SIGCONT)
        began = time.monotonic()
        harness.wait_until(is_done, "all of the stream", timeout=60, interval=LOOK)
        return time.monotonic() - began

    def bare(self):
        path = self.path("bare")
        running = []
        port = self.pubsub.url.rsplit(":", 1)[1]

        def start():
            running.append(subprocess.Popen(harness.dies_with_us(
                ["taskset", "-c", "1", harness.program("bench_archive"), port, str(self.bytes), path, "1000"]),
                stdout=subprocess.PIPE, text=True))
        took = self.timed(start, lambda: os.path.getsize(path) >= self.bytes - KEPT)
        used = float(running[0].communicate()[0])
        os.unlink(path)
        return took, used

    def archive(self, way):
        directory = self.path("archive")
        os.mkdir(directory)
        packed = "zstd" in way
        daemons = []

        def start():
            daemons.append(self.daemon("ps_to_file", "--pubsub_url=" + self.pubsub.url, "--stream=s",
                                       *[a.format(dir=directory) for a in WAYS[way]]).wait_listening())
            measuring.pin(daemons[0].pid, 1)

        def is_done():
            if not packed:
                return written(directory) >= self.bytes - KEPT
            if taken(daemons[0]) < self.bytes:
                return False
            os.kill(daemons[0].pid, signal.SIGHUP)  # the last file is finished too
            return sum(int(json.load(open(f))["bytes"]) for f in manifests_in(directory)) >= self.bytes
        took = self.timed(start, is_done)
        used = measuring.cpu_seconds(daemons[0].pid)
        daemons[0].stop()
        shutil.rmtree(directory)
        return took, used


def manifests_in(directory):
    return glob.glob(os.path.join(directory, "*", "*.manifest.json"))


def taken(daemon):
    return daemon.stats()["written_bytes_total"]


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    bench = Archiving()
    bench.setUp()
    try:
        bench.fill(sys.argv[1])
        measuring.pin(os.getpid(), 0)  # it looks at many files
        bench.bare()
        seen = {name: [] for name in ("bare loop", *WAYS)}
        for _ in range(rounds):
            seen["bare loop"].append(bench.bare())
            for way in WAYS:
                seen[way].append(bench.archive(way))
        for name, results in seen.items():
            took = statistics.median(r[0] for r in results)
            ratio = statistics.median(b[0] / r[0] for b, r in zip(seen["bare loop"], results))
            used = statistics.median(r[1] for r in results)
            print("%-14s %6.0f MB/s  %.2f of the bare loop   %.2f ms of processor time a MB" % (
                name, bench.bytes / 1e6 / took, ratio, 1e9 * used / bench.bytes))
    finally:
        bench.doCleanups()


if __name__ == "__main__":
    main()
