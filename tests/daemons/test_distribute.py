"""millrace distribute copies the current generation to directories and, over a played ssh, to hosts: repeated, killed, damaged on the way,
of another pipeline, and with a destination that is away."""
# seconds: 30
import os
import shutil
import signal
import subprocess

import harness
from harness import wait_until
from sortdb_case import point_at, write_generation

SSH = """#!/bin/sh
case $1 in -l) to=$2@$3; shift 3 ;; *) to=$1; shift ;; esac
echo "$to" >> "$LOG"
[ "$to" = away ] && exit 255
exec sh -c "$*"
"""
# The script runs rsync, and then damages or stops as the test says. $BREAK is a command with the directory of the copy in $to.
RSYNC = """#!/bin/sh
for to in "$@"; do :; done
case " $* " in *" --server "*) exec "$REAL" "$@" ;; esac
"$REAL" "$@" || exit
to=${to#*:}
eval "$BREAK"
"""


class Distribute(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.archive, self.copy = self.path("archive"), self.path("copy")
        os.mkdir(self.archive)
        if not shutil.which("rsync"):
            harness.not_installed(self, "rsync")
        self.ssh = self.script("ssh", SSH)

    def script(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o755)
        return path

    def publish(self, number, count=None, **more):
        """A generation whose counts are its number."""
        records = [(b"u|k%d" % i, b"c413:%d" % (count or number)) for i in range(2000)]
        write_generation(self.archive, number, number, records, shards=2, **more)
        point_at(self.archive, number)

    def distribute(self, *args, status=0, to=None, env=None):
        done = self.run_program("millrace", "distribute", "--archive=" + self.archive, *args, *(to or [self.copy]),
                                env={**os.environ, "LOG": self.path("log"), **(env or {})})
        self.assertEqual(done.returncode, status, done)
        return done.stdout.decode() if status == 0 else done.stderr.decode()

    def broken(self, act):
        """Environment with an rsync that does `act` after the copy."""
        os.makedirs(self.path("bin"), exist_ok=True)
        self.script("bin/rsync", RSYNC)
        return {"PATH": self.path("bin") + ":" + os.environ["PATH"], "REAL": shutil.which("rsync"), "BREAK": act}

    def files(self, archive=None):
        archive = archive or self.copy
        return {name: [harness.read_file(os.path.join(archive, name, f)) for f in sorted(os.listdir(os.path.join(archive, name)))]
                for name in sorted(os.listdir(archive)) if name.startswith("0")}

    def check_copied(self, number, kept=None):
        kept = kept or [number]
        self.assertEqual(os.readlink(os.path.join(self.copy, "current")), "%012d" % number)
        self.assertEqual(self.files(), {name: files for name, files in self.files(self.archive).items() if int(name) in kept})

    def serve(self):
        self.sortdb = self.start("sortdb", "--archive", self.copy)
        return "--sortdb-url=" + self.sortdb.url

    def served(self):
        return self.sortdb.get("/get?key=u%7Ck7").body.decode().strip()

    def test_generations_are_copied_served_and_removed(self):
        self.publish(1)
        self.assertEqual(self.distribute("--sortdb-url=none"), self.copy + ": generation 1 was copied\n")
        self.assertEqual(self.distribute("--sortdb-url=none"), self.copy + ": generation 1 is there\n")
        self.check_copied(1)
        url = self.serve()
        for number in (2, 3, 4):
            self.publish(number)
            self.assertIn("needs generation %d " % number, self.distribute("--dry-run", url))
            self.assertEqual(self.served(), "c413:%d" % (number - 1))
            self.distribute(url)
            self.assertEqual(self.served(), "c413:%d" % number)
            self.check_copied(number, [number - 1, number])
        point_at(self.archive, 3)  # the operator returns to an older generation
        self.distribute(url)
        self.assertEqual(self.served(), "c413:3")
        self.assertEqual(os.readlink(os.path.join(self.copy, "newest")), "%012d" % 4)

    def test_hosts_are_reached_by_ssh(self):
        self.publish(1)
        ssh = ("--ssh=" + self.ssh, "--program=" + harness.program("millrace"), "--sortdb-url=none")
        odd = self.path("a copy's $HOME")
        got = self.distribute(*ssh, to=["east:" + self.copy, "me@west:" + odd])
        self.assertEqual(got, "east:%s: generation 1 was copied\nme@west:%s: generation 1 was copied\n" % (self.copy, odd))
        self.check_copied(1)
        self.assertEqual(self.files(odd), self.files(self.archive))
        self.assertEqual(self.distribute(*ssh, to=["east"]), "east: generation 1 is there\n")  # the same directory
        self.assertEqual(set(harness.read_file(self.path("log")).decode().split()), {"east", "me@west"})
        self.publish(2)
        error = self.distribute(*ssh, status=75, to=["away:" + self.copy, "east:" + self.copy])
        self.assertIn("away:%s: generation 2 is not served there" % self.copy, error)
        self.check_copied(2, [1, 2])  # also the destinations after it
        for to in ("http://east", "east:relative", ":/x"):
            self.assertIn("is not a destination", self.distribute(*ssh, status=64, to=[to]), to)
        self.distribute(status=64, to=["-oProxyCommand=x"])

    def test_a_copy_that_is_damaged_is_named_and_never_served(self):
        self.publish(1)
        self.distribute("--sortdb-url=none")
        url = self.serve()
        self.publish(2)
        for act, status, why in (("printf x | dd of=$to/shard-1-of-2.csv bs=1 seek=20 conv=notrunc status=none", 1, "000000000002.tmp/shard-1-of-2.csv: "),
                                 ("truncate -s 30 $to/shard-0-of-2.csv", 75, "the copy is incomplete"),
                                 ("rm $to/texts-0-of-2.csv", 75, "the copy is incomplete"),
                                 ("echo >> $to/manifest.json", 75, "the copy is incomplete"),
                                 ("exit 12", 75, "rsync ended with status 12")):
            error = self.distribute(url, status=status, env=self.broken(act))
            self.assertIn(why, error)
            self.assertEqual(self.served(), "c413:1")
            self.assertEqual(os.readlink(os.path.join(self.copy, "current")), "%012d" % 1)
            self.assertFalse(os.path.exists(os.path.join(self.copy, "%012d" % 2)))
        self.distribute(url)
        self.assertEqual(self.served(), "c413:2")
        self.check_copied(2, [1, 2])

    def test_a_killed_copy_is_repeated(self):
        self.publish(1)
        self.distribute("--sortdb-url=none")
        url = self.serve()
        for number, act in ((2, "kill -9 $PPID"), (3, "rm $to/shard-0-of-2.csv; touch $to/.shard-0-of-2.csv.x7Yz; kill -9 $PPID"),
                            (4, "truncate -s 100 $to/shard-0-of-2.csv; kill -9 $PPID")):
            self.publish(number)
            self.distribute(url, status=-signal.SIGKILL, env=self.broken(act))
            self.assertEqual(self.served(), "c413:%d" % (number - 1))
            self.distribute(url)
            self.assertEqual(self.served(), "c413:%d" % number)
            self.check_copied(number, [number - 1, number])

    def test_the_rest_of_a_cut_connection_changes_no_served_generation(self):
        """The first rsync still runs on the destination. Once it finds its connection cut, it replaces a file by its part."""
        self.publish(1)
        self.distribute("--sortdb-url=none")
        url = self.serve()
        self.publish(2)
        came, cut = self.path("came"), self.path("cut")
        env = self.broken("cd $to; touch %s; while [ ! -e %s ]; do sleep 0.01; done; printf x > .part; mv .part shard-1-of-2.csv; exit 12"
                          % (came, cut))
        first = subprocess.Popen([harness.program("millrace"), "distribute", "--archive=" + self.archive, url, self.copy],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})
        try:
            wait_until(lambda: os.path.exists(came), "the first copy")
            self.distribute(url)
            self.check_copied(2, [1, 2])
        finally:
            self.write("cut", "")
            first.communicate()
        self.check_copied(2, [1, 2])
        self.sortdb.kill9()
        self.serve()
        self.assertEqual(self.served(), "c413:2")

    def test_killed_at_random_while_sortdb_answers(self):
        """The compactor of the destination too, with its files on the way (unit_receive stops it at every operation)."""
        random = harness.seeded()
        self.publish(1)
        self.distribute("--sortdb-url=none")
        url = self.serve()
        for number in range(2, 2 + harness.rounds(4)):
            self.publish(number)
            for _ in range(3):
                process = subprocess.Popen([harness.program("millrace"), "distribute", "--archive=" + self.archive, url, self.copy],
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
                try:
                    process.communicate(timeout=random.random() * 0.15)
                except subprocess.TimeoutExpired:
                    pass
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.communicate()
                self.assertIn(self.served(), ("c413:%d" % (number - 1), "c413:%d" % number))
            self.distribute(url)
            self.assertEqual(self.served(), "c413:%d" % number)
            self.check_copied(number, [number - 1, number])

    def test_another_archive_is_refused(self):
        self.publish(1)
        self.distribute("--sortdb-url=none")
        before = self.files()
        self.archive = self.path("other")
        os.mkdir(self.archive)
        self.publish(1, 7)
        self.assertIn("is another generation 1", self.distribute("--sortdb-url=none", status=78))
        self.publish(2, streams={"clicks": {"id": "y", "end": "10"}})
        self.assertIn("is the archive of another pipeline (stream clicks)", self.distribute("--sortdb-url=none", status=78))
        self.assertEqual({k: v for k, v in self.files().items() if not k.endswith(".tmp")}, before)
        self.assertEqual(os.readlink(os.path.join(self.copy, "current")), "%012d" % 1)
        self.assertIn("current", self.distribute(status=66, to=["/x", "--archive=" + self.path("none")]))

    def test_a_sortdb_that_is_away_or_serves_another_archive_keeps_the_older_generations(self):
        self.publish(1)
        self.distribute("--sortdb-url=none")
        url = self.serve()
        for number in (2, 3):
            self.publish(number)
            self.distribute("--sortdb-url=http://127.0.0.1:1", status=75)
        self.assertEqual(self.served(), "c413:1")  # it still reads a generation that is there
        self.check_copied(3, [1, 2, 3])
        self.distribute(url)
        self.check_copied(3, [2, 3])


if __name__ == "__main__":
    harness.main()
