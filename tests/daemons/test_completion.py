"""The bash completion of millrace knows the subcommands, the programs and their options."""
# label: surface
import os
import subprocess

import harness

SCRIPT = """
source "$1"
compopt() { :; }  # only for a real completion
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_millrace
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Completion(harness.MillraceTest):
    def complete(self, *words):
        done = subprocess.run(["bash", "-c", SCRIPT, "bash", os.path.join(harness.ROOT, "etc", "completion", "millrace"),
                               harness.program("millrace"), *words], capture_output=True, timeout=harness.LONG, check=True)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().split()

    def test_names(self):
        self.assertEqual(self.complete("sta"), ["status"])
        self.assertEqual(sorted(self.complete("queue")), ["queue", "queue_exec", "queue_to_dynamodb", "queue_to_http", "queue_to_nats", "queue_to_pubsub"])
        self.assertEqual(self.complete("help", "sortd"), ["sortdb"])
        self.assertEqual(self.complete("help", "secur"), ["security"])
        self.assertEqual(self.complete("secur"), [])
        self.assertTrue({"up", "put", "api", "clickgen"} <= set(self.complete("")))
        self.assertEqual(self.complete("query", "co"), ["compare", "cohort", "counters"])
        self.assertEqual(self.complete("query", "f"), ["freshness"])
        self.assertEqual(self.complete("init", "sh"), ["shop"])

    def test_options(self):
        self.assertEqual(self.complete("status", "--ti"), ["--timeout="])
        self.assertEqual(self.complete("status", "--js"), ["--json"])
        for option in ("--top", "--sub", "--partial", "--period"):
            self.assertIn(option, self.complete("query", "series", option[:-1]))
        self.assertIn("--public-port=", self.complete("api", "--pub"))
        self.assertEqual(self.complete("status", "file"), [])
        self.assertEqual(self.complete("nothing", "--a"), [])


if __name__ == "__main__":
    harness.main()
