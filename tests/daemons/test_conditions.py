"""Conditions of [input]: what the aggregator counts, skips and rejects of clicks under one, and what it prints of them."""
import json

import harness
from input_case import InputTest

COUNTERS = "[input]\ntime = t\n%s[total all]\nkey = \"all\"\n[total c]\nkey = c\n"
COSTLY = b'{"t":1331923247,"u":"%s!"}\n' % (b"a" * 40)


class Conditions(InputTest):
    def configure(self, settings):
        self.config = self.write("test.conf", "[aggregator]\ndata_dir = %s\n" % self.path("data") + COUNTERS % settings)

    def checked(self, expect=0):
        done = self.run_program("aggregator", "--config", self.config, "--check-config")
        self.assertEqual(done.returncode, expect, done)
        return " ".join((done.stdout if expect == 0 else done.stderr).decode().split())

    def test_clicks_under_a_condition(self):
        clicks = self.generate(5000, damaged=0)
        self.write("clicks", clicks)
        self.configure("skip_if = _heartbeat_ or c = US\nkeep_if = lower(c) in (jp, de) or u !~ ^http://[a-m]\n")
        said = self.count("clicks")

        events = [json.loads(line) for line in clicks.splitlines()]
        kept = [e for e in events if "_heartbeat_" not in e and e.get("c") != "US" and (
            e.get("c") in ("JP", "DE") or not e.get("u", "").startswith(tuple("http://" + c for c in "abcdefghijklm")))]
        self.assertTrue(100 < len(kept) < len(events) - 1000, (len(kept), len(events)))
        self.assertIn("counted %d, rejected 0, skipped %d;" % (len(kept), len(events) - len(kept)), said)
        everything = {b"all": 0, b"c": 0}
        for line in self.counted().splitlines():
            key, _, hours = line.partition(b",")
            if b"|" in key and not key.startswith(b"lookup"):
                everything[key.split(b"|")[0].split(b".")[0]] += sum(int(hour.split(b":")[1]) for hour in hours.split())
        self.assertEqual(everything, {b"all": len(kept), b"c": len(kept)})

    def test_a_costly_pattern_rejects_the_line(self):
        self.write("lines", COSTLY + b'{"t":1331923247,"u":"aaa"}\n{"t":1331923247}\n')
        self.configure("skip_if = u ~ ^(a+)+$\n")
        self.assertIn("counted 1, rejected 1, skipped 1;", self.count("lines"))
        self.assertEqual(json.loads(self.rejects()[0])["reason"], "skip_if or keep_if takes too many steps")

    def test_check_config(self):
        self.configure("skip_if = bot = true  ; no robots\nkeep_if = status >= 200 and path(u) !~ ^/a;b\n")
        shown = self.checked()
        self.assertIn("[input] time = t ; ", shown)
        self.assertIn("skip_if = bot = true ; ", shown)
        self.assertIn("keep_if = status >= 200 and path(u) !~ ^/a;b ; ", shown)
        for settings, words in (("skip_if = a == 1\n", "test.conf:5: skip_if: column 3: expected an operator, not == (did you mean =?)"),
                                ("skip_if = a\nkeep_if =\n", "test.conf:6: keep_if: column 1: expected a field at the end"),
                                ("keep_iff = a\n", "did you mean keep_if?")):
            self.configure(settings)
            self.assertIn(words, self.checked(78))


if __name__ == "__main__":
    harness.main()
