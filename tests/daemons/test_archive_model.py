"""Random imports, removals, changes of shards and re-imports of the export: after each, the archive's export equals a model, and --verify
finds nothing. The counts of `d` are values, which the configuration names before the archive does. Keys lie around the separators and begin other keys; days lie around months and years."""
# full: MILLRACE_ROUNDS=60
import collections
import os
import shutil

import harness
from harness import main, rounds
from record_text import DIGITS, text_of

STEPS = 15
FIRST_DAY = (2000, 1, 1)
DAYS = [(2011, 12, 30), (2011, 12, 31), (2012, 1, 1), (2012, 1, 2), (2012, 1, 31), (2012, 2, 1), (2012, 2, 29), (2013, 1, 1)]
KEYS = [b"a", b"b", b"bb", b"a!x", b"a-", b'"q"', b"0"]
NAMES = [b"JP", b"US", b"x", b"y!", b"0"]
TOTALS = [b"u", b"d"]
SUBTOTALS = [b"c.u", b"r.u", b"c.d", b"r.d"]


VALUES = "[input]\ntime = t\n[total d]\nkey = k\nvalue = v\nscale = 2\n"


def day_text(day):
    return (DIGITS[day[0] - 2000] + DIGITS[day[1]] + DIGITS[day[2]]).encode()


def date(day):
    return "%d-%02d-%02d" % day


def is_of(ns, chosen):
    """Whether a removal of the namespace `chosen` removes records of `ns`: its own, and a total's subtotals."""
    return chosen in (None, ns, ns.rpartition(b".")[2])


class Model:
    """The records of an export by (namespace, key, period): {hour or sub key: count}. A total has no period."""

    def __init__(self):
        self.records, self.hours_from = collections.defaultdict(collections.Counter), FIRST_DAY
        self.has_values = False  # the archive knows the total of values, also after its last record has gone

    def lines(self):
        out = []
        for (ns, key, period), counts in self.records.items():
            values = b" ".join(b"%s:%d" % value for value in sorted(counts.items()))
            out.append(b"%s|%s%s,%s" % (ns, key, b"." + period if period else b"", values))
        return sorted(out)

    def add(self, ns, key, period, name, n):
        if period and period[:3] < day_text(self.hours_from):
            period = period[:3]
        self.records[ns, key, period][name] += n

    def keep(self, is_kept):
        """Keeps the counts for which is_kept(namespace, key, day)."""
        old, self.records = self.records, collections.defaultdict(collections.Counter)
        for (ns, key, period), counts in old.items():
            for name, n in counts.items():
                if is_kept(ns, key, (period or name)[:3]):
                    self.add(ns, key, period, name, n)


class ArchiveModel(harness.MillraceTest):
    def compactor(self, *args, expect=0):
        done = self.run_program("compactor", "--archive=" + self.path("archive"), "--aggregator-url=none", "--sortdb-url=none", *args)
        self.assertEqual(done.returncode, expect, done.stderr.decode())
        return done.stdout

    def status_of_removal(self, chosen):
        """A namespace without a record is refused, unless the archive is empty or has its counter."""
        records = self.model.records
        if chosen == b"d" and self.model.has_values:
            return 0
        return 64 if chosen and records and not any(is_of(ns, chosen) for ns, _, _ in records) else 0

    def imports(self):
        lines = []
        for _ in range(self.random.choice([1, 3, 30, 300])):
            key, n = self.random.choice(KEYS), self.random.randrange(-5, 6)
            hour = day_text(self.random.choice(DAYS)) + DIGITS[self.random.randrange(24)].encode()
            if self.random.random() < 0.3:
                ns, period, names = self.random.choice(TOTALS), b"", [hour]
            else:
                ns, period, names = self.random.choice(SUBTOTALS), hour, sorted(set(self.random.choices(NAMES, k=2)))
            n = n if ns.endswith(b"d") else abs(n) + 1
            self.model.has_values |= ns.endswith(b"d")
            lines.append(b"%s|%s%s,%s" % (ns, key, b"." + period if period else b"", b" ".join(b"%s:%d" % (name, n) for name in names)))
            for name in names:
                self.model.add(ns, key, period, name, n)
        self.compactor("--import", self.write("lines", text_of(lines)), "--again", "--memory=1M", self.config,
                       "--shards=%d" % self.random.choice([1, 2, 5]))

    def drop(self):
        day, ns = self.random.choice(DAYS), self.random.choice([None, *TOTALS, *SUBTOTALS])
        expect = self.status_of_removal(ns)
        self.model.keep(lambda of, key, when: not is_of(of, ns) or when >= day_text(day))
        self.compactor("--drop-before=" + date(day), *(["--ns=" + ns.decode()] if ns else []), expect=expect)

    def drop_hours(self):
        day = self.random.choice(DAYS)
        self.model.hours_from = max(self.model.hours_from, day)
        self.model.keep(lambda ns, key, when: True)
        self.compactor("--drop-hours-before=" + date(day))

    def forget(self):
        key, ns = self.random.choice(KEYS), self.random.choice([None, *TOTALS])
        expect = self.status_of_removal(ns)
        self.model.keep(lambda of, other, when: other != key or not is_of(of, ns))
        self.compactor("--forget=" + ((ns + b"|" if ns else b"") + key).decode(), expect=expect)

    def reshard(self):
        self.compactor("--shards=%d" % self.random.choice([1, 3, 4, 7]))

    def import_export(self):
        path = self.write("exported", self.compactor("--export"))
        if os.path.getsize(path) == 0:
            return
        shutil.rmtree(self.path("archive"))
        self.model.has_values = any(is_of(ns, b"d") for ns, _, _ in self.model.records)
        folded = ["--drop-hours-before=" + date(self.model.hours_from)] if self.model.hours_from > FIRST_DAY else []
        self.compactor("--import", path, self.config, *folded)

    def test_any_sequence(self):
        self.random, self.config = harness.seeded(), "--config=" + self.write("values.conf", VALUES)
        for _ in range(rounds(2)):
            shutil.rmtree(self.path("archive"), ignore_errors=True)
            self.model, done = Model(), []
            self.compactor("--init")
            acts = [self.imports] * 6 + [self.drop, self.drop_hours, self.forget, self.reshard, self.import_export]
            for _ in range(STEPS):
                act = self.random.choice(acts)
                done.append(act.__name__)
                act()
                self.assertEqual(self.compactor("--export").splitlines(), self.model.lines(), done)
                self.compactor("--verify")


if __name__ == "__main__":
    main()
