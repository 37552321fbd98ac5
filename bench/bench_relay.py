#!/usr/bin/env python3
"""What queue, queue_to_pubsub and pubsub move together: events of 450 bytes, put 100 a request, until the stream has them.

    bench_relay.py [ROUNDS]        run by scripts/bench, which names the build

Each round measures, in turn: sync=never, sync=0, and a bare loop that writes as many bytes as sync=0's two journals did,
in commits of 500 events, with fdatasync, two files at once as the two journals are. Medians, and of sync=0 the ratio within its round. Shown
besides: the processor time of each daemon for an event, which says what limits."""
import os
import socket
import statistics
import sys
import tempfile
import threading
import time

import harness
import measuring

EVENT = b"x" * 449
PER_REQUEST = 100
DAEMONS = ("simplequeue", "queue_to_pubsub", "pubsub")


def request_bytes():
    body = b"\n".join([EVENT + b"y"] * PER_REQUEST)
    return b"POST /mput HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def put(url, request, pieces):
    s = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while pieces.acquire(blocking=False):
        s.sendall(request)
        reply = s.recv(65536)
        while not reply.endswith(b"\r\n\r\n"):  # 200 has no body
            reply += s.recv(65536)
        if b" 200 " not in reply[:20]:
            raise AssertionError(reply)
    s.close()


def written_bytes(pid):
    with open("/proc/%d/io" % pid) as f:
        return int(dict(line.split(": ") for line in f.read().splitlines())["wchar"])


def stream_end(pubsub):
    streams = pubsub.get("/streams").json()["streams"]
    return int(streams[0]["end"]) if streams else 0


def run(sync, events, connections):
    """Events a second from the first put to the last event in the stream; processor seconds and bytes of each daemon."""
    bench = measuring.Bench()
    bench.setUp()
    try:
        queue = bench.start("simplequeue", "--data-dir=" + bench.path("q"), "--sync=" + sync, "--max-memory=4G")
        pubsub = bench.start("pubsub", "--data-dir=" + bench.path("p"), "--sync=" + sync)
        relay = bench.start("queue_to_pubsub", "--queue-url=" + queue.url, "--pubsub-url=" + pubsub.url,
                            *os.environ.get("RELAY_ARGS", "").split())
        daemons = dict(zip(DAEMONS, (queue, relay, pubsub)))
        before = {n: (measuring.cpu_seconds(d.pid), written_bytes(d.pid)) for n, d in daemons.items()}
        pieces = threading.Semaphore(events // PER_REQUEST)
        putters = [threading.Thread(target=put, args=(queue.url, request_bytes(), pieces)) for _ in range(connections)]
        start = time.monotonic()
        for p in putters:
            p.start()
        for p in putters:
            p.join()
        put_took = time.monotonic() - start
        harness.wait_until(lambda: stream_end(pubsub) >= events * (len(EVENT) + 2), "all events in the stream",
                           timeout=120, interval=0.005)
        took = time.monotonic() - start
        used = {n: (measuring.cpu_seconds(d.pid) - before[n][0], written_bytes(d.pid) - before[n][1]) for n, d in daemons.items()}
        return events / took, events / put_took, used
    finally:
        bench.doCleanups()


def bare(directory, sizes, commit):
    """Two threads, a file each as the two journals have; bytes a second of both together."""
    def write(name, size):
        piece = os.urandom(commit)
        fd = os.open(os.path.join(directory, name), os.O_CREAT | os.O_WRONLY, 0o600)
        for at in range(0, size, commit):
            os.pwrite(fd, piece, at % (64 << 20))
            os.fdatasync(fd)
        os.close(fd)
    for i in range(len(sizes)):  # blocks that exist already, as a journal's next segment's do
        with open(os.path.join(directory, "bare%d" % i), "wb") as f:
            f.write(bytes(64 << 20))
            f.flush()
            os.fsync(f.fileno())
    threads = [threading.Thread(target=write, args=("bare%d" % i, size)) for i, size in enumerate(sizes)]
    start = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(sizes) / (time.monotonic() - start)


def show(name, rates, used, events):
    costs = ", ".join("%s %.2f us" % (n, 1e6 * used[n][0] / events) for n in DAEMONS)
    dearest = max(DAEMONS, key=lambda n: used[n][0])
    print("%-12s %9.0f events/s   processor time an event: %s; %s limits" % (
        name, statistics.median(rates), costs, dearest))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    events = int(os.environ.get("EVENTS", "300000"))
    print("processors: %d" % len(os.sched_getaffinity(0)))
    never = [run("never", events, 4) for _ in range(rounds)]
    show("sync=never", [r[0] for r in never], never[-1][2], events)
    print("   put at %.0f events/s" % statistics.median(r[1] for r in never))
    synced, ratios = [], []
    for _ in range(rounds):
        result = run("0", events, 16)
        synced.append(result)
        sizes = [result[2][n][1] for n in ("simplequeue", "pubsub")]
        with tempfile.TemporaryDirectory(prefix="millrace-bench-") as directory:
            disk = bare(directory, sizes, 450 * 500)
        ratios.append(result[0] / (disk / (sum(sizes) / events)))
    show("sync=0", [r[0] for r in synced], synced[-1][2], events)
    print("   %.2f of what the disk allows for the bytes written" % statistics.median(ratios))


if __name__ == "__main__":
    main()
