"""What the measurements of daemons share. A measurement that is stopped, or whose caller ends, stops its daemons first."""
import ctypes
import os
import resource
import signal
import sys

import harness

PR_SET_PDEATHSIG = 1


def stopped(number, _):
    sys.exit(128 + number)


for _number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(_number, stopped)
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

ESTABLISHED = "01"  # in /proc/net/tcp
WANTED = int(os.environ.get("BYTES", 600 << 20))  # of a stream, at least


def pin(pid, processor):
    for task in os.listdir("/proc/%d/task" % pid):
        os.sched_setaffinity(int(task), {processor})


def prefer():
    """This program and what it starts from now on go before all others, where that is allowed: what is to be measured is how
    long a server takes, not how long it waits for a processor. Only for what leaves the processors idle most of the time:
    else the kernel's own threads wait too."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return True
    except OSError:
        return False


def cpu_seconds(pid):
    """Of all its threads, whatever else the machine does."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    """Processor time of the programs that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_asked(url):
    """Whether a request waits at that port that its daemon, which is stopped, has not read."""
    port = "%04X" % int(url.rsplit(":", 1)[1])
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return any(r[1].endswith(":" + port) and r[3] == ESTABLISHED and int(r[4].split(":")[1], 16) > 0 for r in rows)


class Bench(harness.MillraceTest):
    """Not a test: it takes the harness's directory, daemons and clean-up."""

    def runTest(self):
        pass


class Streams(Bench):
    def fill(self, clicks):
        """A pubsub on processor 0 whose stream `s` holds the lines of the file, over and over, WANTED bytes or more."""
        self.pubsub = self.start("pubsub", "--data-dir=" + self.path("data"), "--sync=never", "--streams=s")
        with open(clicks, "rb") as f:
            lines = f.read().splitlines(keepends=True)
        bodies = [b"".join(lines[i:i + 2000]) for i in range(0, len(lines), 2000)]
        self.bytes = self.events = 0
        while self.bytes < WANTED:
            for body in bodies:
                reply = self.pubsub.post("/pub?stream=s", body)
                if reply.status != 200:
                    raise AssertionError(reply)
            self.bytes = int(reply.json()["end"])
            self.events += len(lines)
        pin(self.pubsub.pid, 0)
