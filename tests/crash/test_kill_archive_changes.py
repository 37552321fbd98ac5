"""Import, drops and forget killed with -9 at any moment, and repeated: the bytes of an undisturbed run, and nothing left behind."""
# full: MILLRACE_ROUNDS=100
import os
import shutil
import signal
import subprocess
import time

import harness
from record_text import Counts, text_of

ACTS = ("import", "drop", "hours", "forget", "sub")


class KillArchiveChanges(harness.MillraceTest):
    def setUp(self):
        super().setUp()
        self.random = harness.seeded()
        self.first = self.write("first", text_of(Counts().random(self.random, 4000).pieces(self.random)))
        self.second = self.write("second", text_of(Counts().random(self.random, 8000, users=3000).pieces(self.random)))
        self.args = {"import": ["--memory=1M", "--import", self.second], "drop": ["--drop-before=2012-04-02", "--ns=c.u"],
                     "hours": ["--drop-hours-before=2012-04-02"], "forget": ["--forget=u|user7"],
                     "sub": ["--memory=1M", "--forget-sub=c.u|a long country"]}

    def begin(self, archive, *args):
        return subprocess.Popen([harness.program("compactor"), "--archive=" + archive, "--aggregator-url=none",
                                 "--sortdb-url=none", *args], stderr=subprocess.PIPE)

    def finish(self, archive, *args, expect=(0,)):
        process = self.begin(archive, *args)
        text = process.communicate(timeout=harness.PATIENCE)[1]
        self.assertIn(process.returncode, expect, text)
        return text

    def files(self, archive, generation="current"):
        path = os.path.join(archive, generation)
        return {name: harness.read_file(os.path.join(path, name)) for name in os.listdir(path)
                if name != "manifest.json"}

    def expected(self, act):
        """The files after an undisturbed act, and the time that it takes."""
        archive = self.path("expected-" + act)
        shutil.copytree(self.path("archive"), archive, symlinks=True)
        began = time.monotonic()
        self.finish(archive, *self.args[act])
        return self.files(archive), time.monotonic() - began

    def one_round(self, act, expected, usual):
        archive = self.path("round")
        shutil.rmtree(archive, ignore_errors=True)
        shutil.copytree(self.path("archive"), archive, symlinks=True)
        before = self.files(archive)
        for _ in range(self.random.randrange(1, 4)):
            process = self.begin(archive, *self.args[act])
            try:
                process.wait(self.random.uniform(0, 1.2 * usual))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.communicate()
            self.assertIn(self.files(archive), (before, expected), "all or nothing")
        text = self.finish(archive, *self.args[act], expect=(0, 78) if act == "import" else (0,))
        done_before = {"import": b"imported before", "hours": b"nothing new", "forget": b"no generation has the key",
                       "sub": b"no generation has the key"}.get(act, b"published")
        self.assertTrue(b"published" in text or done_before in text, text)
        self.assertEqual(self.files(archive), expected, act)
        if act in ("forget", "sub"):  # a generation that never had the key, or no longer has it, may remain
            for name in filter(str.isdigit, os.listdir(archive)):
                self.assertNotEqual(self.files(archive, name), before, act)
        self.assertFalse([name for name in os.listdir(archive) if name.endswith(".tmp") and name != "import.tmp"])

    def test_kill_anywhere(self):
        self.finish(self.path("archive"), "--shards=2", "--import", self.first)
        expected = {act: self.expected(act) for act in ACTS}
        for n in range(harness.rounds(6)):
            act = ACTS[n % len(ACTS)]
            self.one_round(act, *expected[act])


if __name__ == "__main__":
    harness.main()
