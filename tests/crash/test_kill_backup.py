"""millrace backup and millrace restore are killed with -9 at random moments, and once more: a directory with the name of the
backup is complete, the next run succeeds, and the restored copy goes on."""
# full: MILLRACE_ROUNDS=200
import glob
import importlib.util
import os
import shutil
import subprocess
import time

import harness

spec = importlib.util.spec_from_file_location("backup_case", os.path.join(harness.ROOT, "tests", "daemons", "test_backup.py"))
backup_case = importlib.util.module_from_spec(spec)
spec.loader.exec_module(backup_case)


class KillBackup(backup_case.BackupTest):
    def killed(self, delay, *args):
        """Returns whether the program was killed before its end."""
        program = subprocess.Popen([harness.program("millrace"), *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            program.wait(delay)
        except subprocess.TimeoutExpired:
            pass
        program.kill()
        text = program.communicate()[1]
        self.assertIn(program.returncode, (0, -9), text)
        return program.returncode != 0

    def timed(self, *args):
        begin = time.monotonic()
        done = self.run_program("millrace", *args)
        self.assertEqual(done.returncode, 0, done)
        return time.monotonic() - begin

    def test_kills(self):
        random, n_rounds = harness.seeded(), harness.rounds(3)
        pipeline = self.pipeline(self.path("data"))
        producers = [backup_case.Producer(pipeline, p) for p in range(backup_case.PRODUCERS)]
        for p in producers:
            p.post(1000)
            p.start()
        sent = [p.sent for p in producers]
        harness.wait_until(lambda: all(p.sent > n for p, n in zip(producers, sent)), "some more events")
        elsewhere = os.path.join(harness.OTHER_DIR, "millrace-kill-backup-%d" % os.getpid())
        self.addCleanup(shutil.rmtree, elsewhere, True)
        os.mkdir(elsewhere)
        n_killed = r = 0
        # More rounds while most programs have ended before they were killed, as on a machine that becomes faster.
        while r < n_rounds or n_killed <= n_rounds / 5 and r < 10 * n_rounds:
            to = os.path.join(elsewhere if r % 2 else self.dir, "b")
            new = self.path("new")
            took = self.timed("backup", "--config", pipeline.config_path, to)
            shutil.rmtree(to)
            sent = [p.sent for p in producers]
            n_killed += self.killed(random.random() * took, "backup", "--config", pipeline.config_path, to)
            if not os.path.exists(to):
                self.timed("backup", "--config", pipeline.config_path, to)
            self.timed("backup", "--verify", to)
            self.assertFalse(os.path.exists(to + ".tmp"))
            self.assertEqual(glob.glob(self.path("data", "*", ".backup")), [])
            took = self.timed("restore", to, "--to", new)
            shutil.rmtree(new)
            n_killed += self.killed(random.random() * took, "restore", to, "--to", new)
            if not os.path.exists(new):
                self.timed("restore", to, "--to", new)
            self.assertFalse(os.path.exists(new + ".restoring"))
            if r % 10 == 0:
                self.goes_on(new, sent)
            shutil.rmtree(new)
            shutil.rmtree(to)
            r += 1
        self.assertGreater(n_killed, n_rounds / 5)
        sent = {p.number: p.stop().sent for p in producers}
        self.assertEqual(self.check_prefix(pipeline, sent), sent, "the original is not disturbed")


if __name__ == "__main__":
    harness.main()
