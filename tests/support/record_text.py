"""Records as archive text, for tests: made from counts, and read back. docs/formats/records.md describes the text."""
import base64
import collections
import functools
import hashlib

DIGITS = "0123456789abcdefghijklmnopqrstuv"


@functools.cache
def stored(text):
    """The stored form of a component."""
    if len(text) < 12 and not any(c < 0x21 or c == 0x7F or chr(c) in ":,.|" for c in text):
        return text
    return base64.b64encode(hashlib.md5(text).digest()[:8])


def hour(month, day, h):
    """An hour of 2012."""
    return ("c" + DIGITS[month] + DIGITS[day] + DIGITS[h]).encode()


class Counts:
    """Clicks of users by country, as `total u` and `subtotal c.u` count them."""

    def __init__(self):
        self.totals = collections.defaultdict(collections.Counter)
        self.subs = collections.defaultdict(collections.Counter)
        self.lookups = {}

    def component(self, text):
        s = stored(text)
        if s != text:
            self.lookups[s] = text
        return s

    def add(self, user, country, when, n=1):
        user, country = self.component(user), self.component(country)
        self.totals[b"u|" + user][when] += n
        self.subs[b"c.u|" + user + b"." + when][country] += n

    def random(self, rng, n, users=200):
        below = lambda limit: int(rng.random() * limit)  # several times as fast as randrange
        for _ in range(n):
            user = b"user%d" % below(users)
            if below(5) == 0:
                user = b"http://example.org/" + user
            country = (b"US", b"JP", b"DE", b"a long country")[below(4)]
            self.add(user, country, hour(3 + below(3), 1 + below(3), below(24)), 1 + below(8))
        return self

    def lines(self):
        """Each record once, in order, without rollups."""
        lines = [key + b"," + b" ".join(h + b":%d" % n for h, n in sorted(hours.items()))
                 for records in (self.totals, self.subs) for key, hours in records.items()]
        return sorted(lines + [b"lookup|" + h + b"," + text for h, text in self.lookups.items()])

    def pieces(self, rng):
        """The same counts as many records in any order, and some lookups twice."""
        lines = [key + b"," + name + b":%d" % n for records in (self.totals, self.subs)
                 for key, names in records.items() for name, n in names.items()]
        lines += 2 * [b"lookup|" + h + b"," + text for h, text in self.lookups.items()]
        rng.shuffle(lines)
        return lines


def text_of(lines):
    return b"".join(line + b"\n" for line in lines)
