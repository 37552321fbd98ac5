"""The subcommands of millrace with options that have no effect."""
import os

import harness


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


if __name__ == "__main__":
    harness.main()
