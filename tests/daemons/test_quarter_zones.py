"""Answers from quarter hours, counts and values, in random zones and units, equal a model with zoneinfo and decimals: before and after
compactions, and around a switch from hours to quarter hours. What hours cannot answer is refused with the time from which it can be
answered."""
# full: MILLRACE_ROUNDS=100
import collections
import datetime
import itertools
import json
import zoneinfo
from decimal import Decimal

import harness
import test_quarters
from test_quarters import DAY, HOUR, PART

ZONES = ("Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide", "Asia/Tehran", "America/New_York", "Pacific/Chatham",
         "Australia/Lord_Howe", "UTC")
# Days around which some zone changes its offset.
TIMES = tuple(int(datetime.datetime(*d, 12, tzinfo=datetime.timezone.utc).timestamp())
              for d in ((2022, 3, 21), (2022, 9, 21), (2025, 9, 27), (2025, 10, 4), (2025, 11, 2), (2026, 4, 4)))
UNITS = ("15m", "hour", "day", "week", "mweek", "month")
FIRST = 946684800  # 2000-01-01, since when a pipeline counts quarter hours that never counted hours
KEYS = ("a", "a!x", "a-", "twelve_bytes")
QUESTIONS = 25


class Zone:
    def __init__(self, name):
        self.name, self.tz = name, zoneinfo.ZoneInfo(name)

    def offset(self, t):
        return int(datetime.datetime.fromtimestamp(t, self.tz).utcoffset().total_seconds())

    def midnight(self, date):
        return int(datetime.datetime.combine(date, datetime.time(), self.tz).timestamp())

    def start(self, t, unit):
        """Of the unit that contains t."""
        if unit in ("15m", "hour"):
            s = t - (t + self.offset(t)) % (PART if unit == "15m" else HOUR)
            while self.offset(s) != self.offset(t):
                s += PART
            return s
        date = datetime.datetime.fromtimestamp(t, self.tz).date()
        if unit == "month":
            date = date.replace(day=1)
        elif unit != "day":
            date -= datetime.timedelta(days=(date.weekday() + (unit == "week")) % 7)
        return self.midnight(date)


class QuarterZones(test_quarters.Programs):
    times = TIMES

    def begin(self, name, quarters=None):
        self.times = (self.random.choice(TIMES),)
        super().begin(name, quarters)

    # The model.

    def since(self):
        return self.model.since and max(self.model.since, FIRST) if self.model.since is not None else None

    def length(self, t):
        """Of the period that is counted at t."""
        return PART if self.model.since is not None and t >= self.model.since else HOUR

    def starts(self, key, country=None):
        """The starts of the counted periods of all events."""
        return [e["t"] - e["t"] % self.length(e["t"]) for e in self.events if e["l"] == key and country in (None, e["c"])]

    def is_part(self, zone, start, end):
        return any(zone.offset(t) % self.length(t) for t in range(start, end, PART))

    def refusal(self, zone, unit, start, end, rounds):
        """The code with which such a series is refused, or None."""
        if not (self.is_part(zone, start, end + 1) or zone.offset(end) % self.length(end)) and any(t % self.length(t) for t in (start, end)):
            return "bad-parameter"
        if unit == "15m" and (self.model.since is None or start < self.model.since):
            return "no-quarter-hours"
        return None if rounds or not self.is_part(zone, start, end) else "part-hour-zone"

    def amounts(self, key, country):
        """The starts of the counted periods of all events with a value, and the values."""
        return [(e["t"] - e["t"] % self.length(e["t"]), Decimal(e["p"])) for e in self.events
                if e["l"] == key and country in (None, e["c"]) and e.get("p") is not None]

    def rows(self, zone, unit, starts, span):
        rows = collections.Counter(zone.start(t, unit) for t in starts if span[0] <= t < span[1])
        return sorted(rows.items())

    def sums(self, zone, unit, amounts, span):
        rows = collections.Counter()
        for t, n in amounts:
            rows[zone.start(t, unit)] += n if span[0] <= t < span[1] else 0
        return sorted((t, n) for t, n in rows.items() if n)

    # Questions.

    def ask(self, what, **params):
        params = {name: value for name, value in params.items() if value is not None}
        return self.api.get("/v1/%s?%s" % (what, harness.query(**params)))

    def span(self):
        start = self.times[0] - self.times[0] % DAY + self.random.randrange(-20, 60) * HOUR
        length = self.random.choice([HOUR, 5 * HOUR, DAY, 2 * DAY, 9 * DAY])
        cut = [self.random.choice([0, 0, 0, 1, 2, 3]) * PART for _ in range(2)]
        return start + cut[0], start + length + cut[1]

    def random_span(self, zone, unit):
        """Of whole units, or any quarter hours."""
        start, end = self.span()
        if unit not in ("15m", "week", "mweek", "month") and self.random.random() < 0.5:
            start, end = zone.start(start, unit), zone.start(end, unit)
        return (start, end) if start < end else (start, start + DAY)

    def check_refused(self, reply, code, where):
        self.assertIn(reply.status, (400, 422), where)
        self.assertEqual(reply.json()["code"], code, where)
        if code != "bad-parameter" and self.model.since is not None:
            since = datetime.datetime.fromtimestamp(max(self.model.since, FIRST), datetime.timezone.utc)
            self.assertIn(since.strftime("%Y-%m-%dT%H:%M:%S"), reply.body.decode(), where)

    def check_series(self, zone, unit, span, rounds):
        key, country, total = self.random.choice(KEYS), self.random.choice([None, "JP", "US"]), self.random.choice("uur")
        name = self.random.choice(["15m", "quarter"]) if unit == "15m" else unit
        params = dict(ns=("c." if country else "") + total, key=key, sub=country, unit=name, timezone=zone.name, from_=span[0], to=span[1],
                      round=rounds and "hour" or None)
        reply, refused = self.ask("series", **params), self.refusal(zone, unit, *span, rounds)
        where = (self.log, self.since(), params, reply.body)
        if refused:
            return self.check_refused(reply, refused, where)
        self.assertEqual(reply.status, 200, where)
        answer, is_part = json.loads(reply.body, parse_float=Decimal), self.is_part(zone, *span)
        expected = self.rows(zone, unit, self.starts(key, country), span) if total == "u" else self.sums(zone, unit, self.amounts(key, country), span)
        self.assertEqual([(r["t"], r["n"]) for r in answer["rows"] if r["n"]], expected, where)
        self.assertEqual(answer["total"], sum(r["n"] for r in answer["rows"]), where)
        self.assertEqual(answer.get("approximate", False), is_part, where)
        return None

    def check_compare(self, zone, unit, span, rounds):
        key, country = self.random.choice(KEYS), self.random.choice([None, "JP"])
        before = span[0] - (span[1] - span[0]), span[0]
        params = dict(ns="c.u" if country else "u", key=key, sub=country, unit=unit, timezone=zone.name, from_=span[0], to=span[1],
                      round=rounds and "hour" or None)
        refused = self.refusal(zone, unit, *span, rounds)
        if not refused and (self.refusal(zone, unit, *before, rounds) or (unit == "15m" and before[0] < (self.since() or 0))):
            return
        reply = self.ask("compare", **params)
        where = (self.log, self.since(), params, reply.body)
        if refused:
            self.assertIn(reply.status, (400, 422), where)
            return
        starts = self.starts(key, country)
        self.assertEqual(reply.status, 200, where)
        self.assertEqual([(r["t"], r["n"]) for r in reply.json()["rows"] if r.get("n")], self.rows(zone, unit, starts, span), where)
        self.assertEqual(reply.json()["before"]["total"], sum(before[0] <= t < before[1] for t in starts), where)

    def check_breakdown(self, zone, unit, span, rounds):
        key = self.random.choice(KEYS)
        params = dict(ns="c.u", key=key, timezone=zone.name, from_=span[0], to=span[1], round=rounds and "hour" or None)
        reply, refused = self.ask("breakdown", **params), self.refusal(zone, "day", *span, rounds)
        where = (self.log, self.since(), params, reply.body)
        if refused:
            return self.check_refused(reply, refused, where)
        self.assertEqual(reply.status, 200, where)
        expected = {c: sum(span[0] <= t < span[1] for t in self.starts(key, c)) for c in ("JP", "US")}
        self.assertEqual({r["key"]: r["n"] for r in reply.json()["rows"] if r["key"] != "None"},
                         {c: n for c, n in expected.items() if n}, where)
        return None

    def check_uniques(self, zone, unit, span, rounds):
        """Of the sets by quarter hour of a pipeline that never counted hours, and of the sets by hour."""
        key, quarter = self.random.choice(KEYS), self.random.random() < 0.7
        if quarter and self.since() != FIRST:
            return
        params = dict(ns="q.u" if quarter else "v.u", key=key, unit=unit, timezone=zone.name, from_=span[0], to=span[1],
                      round=rounds and "hour" or None)
        reply = self.ask("uniques", **params)
        where = (self.log, self.since(), params, reply.body)
        length = PART if quarter else HOUR
        is_part = any(zone.offset(t) % length for t in range(*span, PART))
        if (is_part and not rounds) or (not quarter and unit == "15m") or (not is_part and any(t % length for t in span)) or \
                self.refusal(zone, unit, *span, rounds):
            self.assertIn(reply.status, (400, 422), where)
            return
        self.assertEqual(reply.status, 200, where)
        members = collections.defaultdict(set)
        for e in self.events:
            start = e["t"] - e["t"] % length
            if e["l"] == key and span[0] <= start < span[1]:
                members[zone.start(start, unit)].add(e["v"])
        rows = [(t, len(m)) for t, m in sorted(members.items())]
        self.assertEqual([(r["t"], r["n"]) for r in reply.json()["rows"] if r["n"]], rows, where)
        self.assertEqual(reply.json()["total"], len(set().union(*members.values())), where)

    def members(self, key, span):
        return {e["v"] for e in self.events if e["l"] == key and span[0] <= e["t"] - e["t"] % PART < span[1]}

    def check_cohort(self, zone, unit, span, rounds):
        """The members of one key in a span that are not members of another key in the span before."""
        if self.since() != FIRST or self.refusal(zone, "day", *span, False):
            return
        key, other = self.random.sample(KEYS, 2)
        before = 2 * span[0] - span[1], span[0]
        reply = self.ask("cohort", all="%d..%d@q.u:%s" % (*span, key), **{"not": "%d..%d@q.u:%s" % (*before, other)}, timezone=zone.name)
        self.assertEqual(reply.status, 200, reply)
        self.assertEqual(reply.json()["n"], len(self.members(key, span) - self.members(other, before)), (self.log, zone.name, span, reply.body))

    def check_retention(self, zone, unit, span, rounds):
        """Of days: the members that were first seen in each, and seen again in each later day."""
        if self.since() != FIRST:
            return
        key, days = self.random.choice(KEYS), [zone.start(span[0], "day")]
        while len(days) < 5:
            days.append(zone.start(days[-1] + 26 * HOUR, "day"))
        reply = self.ask("retention", ns="q.u", key=key, unit="day", lookback=0, timezone=zone.name, from_=days[0], to=days[-1])
        self.assertEqual(reply.status, 200, reply)
        seen, expected = set(), []
        sets = [self.members(key, s) for s in zip(days, days[1:])]
        for i, members in enumerate(sets):
            expected.append((days[i], len(members - seen), [len((members - seen) & later) for later in sets[i + 1:]]))
            seen |= members
        self.assertEqual([(r["t"], r["n"], [c["n"] for c in r["retained"]]) for r in reply.json()["rows"]], expected, (self.log, zone.name, reply.body))

    def ask_random(self):
        for _ in range(QUESTIONS):
            zone, unit = Zone(self.random.choice(ZONES)), self.random.choice(UNITS)
            check = self.random.choice([self.check_series] * 3 + [self.check_breakdown, self.check_compare, self.check_uniques, self.check_cohort, self.check_retention])
            check(zone, unit, self.random_span(zone, unit), self.random.random() < 0.3)

    def ask_around_the_switch(self):
        zone, hours = Zone("Asia/Kolkata"), range(-2 * HOUR, 2 * HOUR + 1, PART)
        for start, end in itertools.combinations(hours, 2):
            for check in (self.check_series, self.check_breakdown, self.check_compare):
                check(zone, self.random.choice(UNITS), (self.model.since + start, self.model.since + end), True)

    def check_answers(self, ask=None):
        self.wait_counted()
        archive = self.path(self.name, "archive")
        from_sortdb = self.random.random() < 0.4
        sortdb = from_sortdb and self.start("sortdb", "--archive", archive)
        self.api = self.start("api", "--config", self.config, "--aggregator-url", self.aggregator.url,
                              *(["--sortdb-url", sortdb.url] if from_sortdb else ["--archive", archive]))
        harness.wait_until(lambda: self.api.get("/health").status == 200, "the archive to be opened", timeout=harness.LONG)
        (ask or self.ask_random)()
        self.api.stop()
        if sortdb:
            sortdb.stop()

    def test_spans_that_begin_or_end_near_the_switch(self):
        """Before the switch a span has the hours that begin in it, and from the switch on the quarter hours."""
        self.begin("near", False)
        for first in (-2 * HOUR, 0):
            for n in range(8):
                self.publish([{"t": self.times[0] + first + n * PART, "l": k, "c": c, "v": n} for k in KEYS for c in ("JP", "US")])
            self.switch()
        self.assertEqual(self.model.since, self.times[0])
        self.check_answers(self.ask_around_the_switch)
        self.compact()
        self.check_answers(self.ask_around_the_switch)

    def test_any_program(self):
        for i in range(harness.rounds(5)):
            self.begin("p%d" % i)
            acts = [self.post, self.check_answers] * 2 + [self.compact, self.kill, self.seal, self.switch]
            for act in [self.post, self.check_answers, self.random.choice([self.switch, self.compact]), self.post] + \
                    [self.random.choice(acts) for _ in range(4)] + [self.post, self.check_answers, self.compact, self.check_answers]:
                self.log.append(act.__name__)
                act()
            self.aggregator.stop()
            self.pubsub.close()


if __name__ == "__main__":
    harness.main()
