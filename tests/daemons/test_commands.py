"""The subcommands of millrace with options that have no effect, and with things that do not exist."""
import gzip
import os
import re
import shutil
import subprocess

import harness
from harness import Pipeline, pipeline_config


class NoEffect(harness.MillraceTest):
    """An option that has no effect with the others is refused before anything is done."""

    def check(self, command, *args):
        done = self.run_program("millrace", *command.split(), *args)
        self.assertEqual(done.returncode, 64, (command, done))
        return done.stderr.decode().strip()

    def test_options_of_the_command_line(self):
        for command, text in (
                ("compact --ns=u", "--ns needs --drop-before"),
                ("compact --forget=u|a --ns=u", "--ns needs --drop-before"),
                ("compact --again", "--again needs --import"),
                ("compact --verify --aggregator-url=none", "--aggregator-url has no effect with --verify"),
                ("compact --export --keep=3", "--keep has no effect with --export"),
                ("compact --forget=a --keep=3", "--keep has no effect with --forget"),
                ("rejects --count --put-back", "--count has no effect with --put-back"),
                ("rejects --dry-run", "--dry-run needs --put-back"),
                ("rejects --aggregator-url=unix:x", "--aggregator-url needs --put-back"),
                ("rejects --put-back --dry-run --aggregator-url=unix:x", "--aggregator-url has no effect with --dry-run"),
                ("rejects --put-back somewhere", "leave out somewhere"),
                ("forget --field=a --value=b --dry-run --wait=5s", "--wait has no effect with --dry-run"),
                ("producers --mark=5", "--mark needs --set"),
                ("producers --queue=default --stream=clicks", "--stream has no effect with --queue"),
                ("producers --producer=a --set=b --mark=5", "--producer has no effect with --set"),
                ("producers --remove=a --producer=a", "--producer has no effect with --remove"),
                ("top --rows=5", "--rows needs --by"),
                ("backup --verify --data-dir=x y", "--data-dir has no effect with --verify"),
                ("status --timeout=5s", "--timeout needs --wait"),
                ("status --watch --wait", "--wait has no effect with --watch"),
                ("journal check --payload x", "usage: millrace journal"),
                ("recount --from", "--from needs files")):
            self.assertIn(text, self.check(command, "--config=") if "journal" not in command else self.check(command), command)

    def test_a_setting_of_the_file_stays_for_other_runs(self):
        """Only the command line names what a run is to do."""
        archive = self.path("archive")
        config = self.write("c.conf", "[compactor]\nkeep = 5\nmemory = 8M\narchive = %s\n[sortdb]\narchive = %s\n" % (archive, archive))
        os.environ["MILLRACE_COMPACT_KEEP"] = "4"
        self.addCleanup(os.environ.pop, "MILLRACE_COMPACT_KEEP")
        self.assertEqual(self.run_program("compactor", "--config", config, "--init").returncode, 0)
        done = self.run_program("millrace", "compact", "--config", config, "--verify")
        self.assertEqual(done.returncode, 0, done)

    def test_help_names_the_section_of_the_settings(self):
        self.assertIn(b"setting under [compactor] in the", self.run_program("millrace", "compact", "--help").stdout)
        config = self.write("c.conf", "[compactor]\nkeep = 5\n")
        self.assertIn(b"setting under [put] in the", self.run_program("millrace", "put", "--help").stdout)
        self.assertEqual(self.run_program("millrace", "compact", "--config", config, "--check-config").returncode, 0)


def documented():
    """The exit statuses of the tables in millrace.md: of all commands, and of status and doctor."""
    text = harness.read_file(os.path.join(harness.ROOT, "docs", "guide", "millrace.md")).decode()
    tables = re.findall(r"\| exit status \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", text)
    return [{int(n) for n in re.findall(r"(?m)^\| (\d+) \|", table)} for table in tables[:2]]


# For each subcommand: arguments, exit status while the pipeline runs, and while it is down (None: not asked).
CASES = {
    "init": [("nope", 64, 64), ("shop LINES", 73, 73), ("--list", 0, 0)],
    "up": [("--config=nofile", 78, None)],
    "put": [("nofile", 66, 66), ("EMPTY", 66, 66), ("CUT", 65, 65), ("--rejects=nowhere/x LINES", 73, 73), ("--rejects=/dev/null LINES", 73, 73), ("LINES --timeout=100ms", 0, 75),
            ("--producer=p --state=nowhere/x LINES", 73, 73), ("--producer=p --state=EMPTY LINES", 73, 73),
            ("--producer=q --follow --state=nowhere/x LINES", 73, None), ("--producer=q --follow --state=EMPTY LINES", 73, None),
            ("--producer=q --follow EMPTY", 66, None), ("--producer=a/b LINES", 64, 64), ("--encoding=latin9x LINES", 64, 64),
            ("--format=nope LINES", 64, 64), ("--time-zone=Mars/Base LINES", 64, 64), ("--format=csv --time-format=%Q LINES", 64, 64), ("--time-field=t LINES", 64, 64),
            ("--log-format=%h LINES", 64, 64), ("--queue-token-file=nofile LINES", 78, 78)],
    "query": [("series --nope=a", 64, 75), ("breakdown --user=a --by=nope", 64, 75), ("top --counter=nope", 64, 75),
              ("lookup --counter=nope --prefix=a", 64, 75), ("nope", 64, 64), ("counters --data-dir=nowhere", 78, 78),
              ("counters --config=nofile", 78, 78)],
    "status": [("", (0, 1), 2), ("--data-dir=nowhere", 78, 78)],
    "doctor": [("--fast", (0, 1), 2), ("--data-dir=nowhere", 78, 78)],
    "tail": [("--stream=clics --follow=false", 64, 75), ("--data-dir=nowhere", 78, 78)],
    "top": [("--stream=clics --window=1s --once", 64, 75), ("--stream=clics --follow=false", 64, 75)],
    "compact": [("--import nofile", 66, 75), ("--import EMPTY", 66, 75), ("--import CUT", 1, 75), ("--import LINES", 78, 75), ("--export EMPTY", 66, 66),
                ("--import --format=csv --encoding=latin9x LINES", 64, 75), ("--import --format=csv --counter=nope LINES", 64, 75),
                ("--import --format=csv --time-zone=Mars/Base LINES", 64, 75), ("--drop-before=2012-02-30", 64, 75), ("--export nowhere/x", 66, 66), ("--replace=nowhere", 66, 75), ("--forget=nope|a", 64, 75),
                ("", 0, 75), ("--aggregator-url=stopped", None, 0), ("--aggregator-url=none --import CUT", None, 1), ("--verify", 0, 0)],
    "distribute": [("", 64, 64), ("--archive=nowhere /x", 66, 66), ("http://x", 64, 64), ("--sortdb-url=none --ssh=false away:/x", 75, 75)],
    "recount": [("--from nofile", 66, 75), ("", 0, 75)],
    "journal": [("check nowhere", 66, 66), ("dump nowhere", 66, 66), ("repair nowhere", 66, 66), ("check EMPTY", 66, 66), ("dump EMPTY", 66, 66),
                ("repair EMPTY", 66, 66), ("nope EMPTY", 64, 64)],
    "rejects": [("nowhere", 66, 66), ("--put-back", 0, 75)],
    "forget": [("--field=user --value=nope", 0, 75), ("--field=user", 64, 64)],
    "grep": [("--archive=nowhere x", 66, 66), ("--archive=EMPTY x", 66, 66), ("", 64, 64)],
    "sql": [("--archive=nowhere SELECT(n)FROM/**/counts", 66, 66), ("SELECT(n)FROM/**/counts", 0, 0), ("nope", 64, 64)],
    "slice": [("nofile", 66, 66), ("EMPTY", 66, 66), ("LINES", 78, 78)],
    "queue": [("list", 0, 75), ("list --queue=nope", 64, 75), ("show x", 64, (64, 75)), ("show 5", 64, 75), ("delete 5", 64, 75),
              ("kick all", 0, 75), ("nope", 64, 64)],
    "producers": [("--stream=clics", 64, 75), ("--queue=nope", 64, 75), ("--queue=default --remove=nope", 64, 75),
                  ("--stream=clicks --leave-out=nope", 64, 75)],
    "backup": [("nowhere/x", 66, 66), ("EMPTY", 73, 73), ("--verify nowhere", 66, 66), ("--verify EMPTY", 66, 66),
               ("copy --data-dir=nowhere", 66, 66)],
    "dynamo": [("", 64, 64), ("get t a=b", 64, 64), ("put t a=b", 64, 64), ("get t a=b --region=x --endpoint=unix:nowhere", 75, 75)],
    "compare_lists": [("", 64, 64), ("http://127.0.0.1:1 http://127.0.0.1:1", 75, 75)],
    "cell": [("list", 78, 78), ("move 64 --to=x", 64, 64), ("nope", 64, 64)],
    "restore": [("nowhere --to=new", 66, 66), ("EMPTY --to=new", 66, 66), ("SAVED --to=LINES", 73, 73), ("SAVED --to=SAVED", 73, 73)],
    "help": [("nope", 64, 64)],
    "version": [("", 0, 0)],
}
SAME = {"file_to_queue": "put", "gen": "the program clickgen"}
OWN_TABLE = ("status", "doctor")
NO_CONFIG = ("init", "journal", "slice", "help", "version")


class Missing(harness.MillraceTest):
    """A missing file, directory, stream, queue, namespace or counter, or a daemon that is down, is said with a documented status."""

    def setUp(self):
        super().setUp()
        self.config = self.write("c.conf", pipeline_config(self.path("data"), harness.USERS_BY_COUNTRY))
        self.lines = self.write("lines", b'{"t":1331923249,"l":"a","c":"US"}\n')
        os.mkdir(self.path("empty"))
        self.write("cut.gz", gzip.compress(b"lines\n" * 1000)[:-20])

    def walk(self, name, is_down):
        all_statuses, of_status = documented()
        for args, running, down in CASES[name]:
            words = [word.replace("LINES", self.lines).replace("EMPTY", self.path("empty")).replace("CUT", self.path("cut.gz"))
                     .replace("SAVED", self.path("saved")) for word in args.split()]
            if name not in NO_CONFIG and "--config" not in args and "--data-dir" not in args:
                words.insert(1 if name == "query" else 0, "--config=" + self.config)
            expected = down if is_down else running
            if expected is None:
                continue
            done = self.run_program("millrace", name, *words)
            expected = expected if isinstance(expected, tuple) else (expected,)
            self.assertIn(done.returncode, expected, (name, args, done))
            table = of_status if name in OWN_TABLE and done.returncode < 64 else all_statuses
            self.assertIn(done.returncode, table, (name, args))
            if done.returncode >= 64:
                self.assertTrue(done.stderr.strip(), (name, args, done))
            shutil.rmtree(self.path("nowhere"), ignore_errors=True)

    def test_each_subcommand(self):
        text = self.run_program("millrace", "help").stdout.decode()
        names = set(re.findall(r"(?m)^  ([a-z_]+) ", text.partition("Daemons")[0]))
        self.assertEqual(names, set(CASES) | set(SAME))
        pipeline = Pipeline(self, self.config, self.path("data")).wait_ready()
        self.run_program("millrace", "put", "--config", self.config, self.lines)
        self.run_program("millrace", "status", "--config", self.config, "--wait")
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        self.assertEqual(self.run_program("millrace", "backup", "--config", self.config, self.path("saved")).returncode, 0)
        for name in CASES:
            self.walk(name, False)
            shutil.rmtree(self.path("data", "recount"), ignore_errors=True)
        pipeline.stop()
        for name in CASES:
            self.walk(name, True)

    def test_a_full_standard_output(self):
        Pipeline(self, self.config, self.path("data")).wait_ready()
        self.run_program("millrace", "put", "--config", self.config, self.lines)
        self.run_program("millrace", "status", "--config", self.config, "--wait")
        for args in ("help", "help logs", "version", "-V", "query counters CONFIG", "query series --user=a --period=all CONFIG", "status CONFIG",
                     "tail --follow=false --from=earliest CONFIG", "producers CONFIG", "put --help", "query --help"):
            argv = [word.replace("CONFIG", "--config=" + self.config) for word in args.split()]
            with open("/dev/full", "wb") as full:
                done = subprocess.run([harness.program("millrace"), *argv], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 74, (args, done))
            self.assertIn(b"cannot write to standard output: No space left", done.stderr)

    def test_unreadable_files(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        os.chmod(self.dir, 0o777)
        os.chmod(self.lines, 0)
        program = harness.program("millrace")
        for path in (self.dir, program):
            if subprocess.run([*nobody, "test", "-r", path]).returncode:
                self.skipTest("what is above %s is closed to others" % path)
        for args in ("put --queue-url=http://127.0.0.1:1", "slice", "compactor --aggregator-url=none --sortdb-url=none --archive=a --import"):
            done = subprocess.run([*nobody, program, *args.split(), self.lines], cwd=self.dir, capture_output=True)
            self.assertEqual(done.returncode, 66, (args, done))
            self.assertIn(b"Permission denied", done.stderr)

    def test_a_follower_that_may_not_write_in_the_data_directory(self):
        """The message names the directory and its owner, also if the files beside the log cannot be written either."""
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        os.chmod(self.dir, 0o755)
        os.mkdir(self.path("data"), 0o500 if nobody else 0o400)
        os.mkdir(self.path("logs"))
        log = self.write("logs/access.log", "")
        os.chmod(self.path("logs"), 0o555)
        program = harness.program("millrace")
        for path in (self.dir, program):
            if subprocess.run([*nobody, "test", "-r", path]).returncode:
                self.skipTest("what is above %s is closed to others" % path)
        done = subprocess.run([*nobody, program, "put", "--config", self.config, "--follow", "--producer=p", log], capture_output=True)
        self.assertEqual(done.returncode, 73, done)
        refused = subprocess.run([*nobody, program, "backup", "--config", self.config, self.path("logs", "copy")], capture_output=True)
        self.assertEqual((refused.returncode, b"simplequeue: Permission denied" in refused.stderr), (66, True), refused)
        self.assertIn("cannot write in %s/put: Permission denied, so `millrace status` does not show this put" % self.path("data"), done.stderr.decode())
        if nobody:
            self.assertIn("; %s belongs to user " % self.path("data"), done.stderr.decode())

    def test_a_damaged_archive_without_new_counts(self):
        """No repetition helps, so the status is not that of a daemon that is down."""
        Pipeline(self, self.config, self.path("data")).wait_ready()
        self.run_program("millrace", "put", "--config", self.config, self.lines)
        self.run_program("millrace", "status", "--config", self.config, "--wait")
        self.assertEqual(self.run_program("millrace", "compact", "--config", self.config).returncode, 0)
        shard = self.path("data", "archive", "current", "shard-0-of-1.csv")
        text = harness.read_file(shard)
        with open(shard, "wb") as f:
            f.write(text.replace(b"u|a", b"uXa"))
        done = self.run_program("millrace", "compact", "--config", self.config)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(b"damaged", done.stderr)

    def test_views_of_an_unknown_stream(self):
        """One that ends by itself names the nearest stream; one that follows says that it waits."""
        pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub"), "--streams=clicks")
        for command in (["tail", "--follow=false"], ["top", "--once"]):
            done = self.run_program("millrace", *command, "--stream=clics", "--pubsub-url=" + pubsub.url)
            self.assertEqual(done.returncode, 64, done)
            self.assertIn(b"there is no stream clics (did you mean clicks?)", done.stderr)
        known = b" (pubsub has clicks; name one with --stream, or the pipeline's configuration with --config)"
        for command in (["tail", "--follow=false", "--pubsub-url"], ["top", "--once", "--pubsub-url"], ["producers", "--url"]):
            done = self.run_program("millrace", *command, pubsub.url, "--stream=views")
            self.assertEqual((done.returncode, known in done.stderr), (64, True), done)
        harness.request(pubsub.url, "POST", "/pub?stream=clicks", b"x\n")
        tail = subprocess.Popen([harness.program("millrace"), "tail", "--stream=later", "--count=1", "--from=earliest",
                                 "--pubsub-url=" + pubsub.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(tail.kill)
        self.assertIn(b"there is no stream later (pubsub has clicks; ", tail.stderr.readline())
        harness.request(pubsub.url, "POST", "/pub?stream=later", b"x\n")
        self.assertEqual(tail.communicate(timeout=harness.PATIENCE)[0], b"x\n")
        self.assertEqual(tail.returncode, 0)

    def test_a_pubsub_that_goes_away_during_a_view(self):
        pubsub = self.start("pubsub", "--data-dir=" + self.path("pubsub"), "--streams=clicks")
        top = subprocess.Popen([harness.program("millrace"), "top", "--stream=clicks", "--once", "--window=5s", "--pubsub-url=" + pubsub.url],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(top.kill)
        harness.wait_until(lambda: harness.request(pubsub.url, "GET", "/clients").body.strip(), "the view to follow")
        pubsub.stop()
        out, err = top.communicate(timeout=harness.PATIENCE)
        self.assertEqual((top.returncode, b"no connection" in err), (75, True), (out, err))


if __name__ == "__main__":
    harness.main()
