/* records: the text format in which counts are archived and served (docs/formats/records.md).
 *
 *     total     u|jehiah,c413:2 c41l:5                 hours ascending
 *     subtotal  c.u|jehiah.c41l,JP:1 US:4              sub keys in byte order, one record an hour
 *     rollup    c.u|jehiah.c41,JP:1 US:4               the same for a day (c41) or a month (c4); archives only
 *     quarter   c.u|jehiah.c41l2,JP:1                  the same for a quarter hour; the record of its hour is a rollup
 *     lookup    lookup|h0aMB8AuNw4=,http://www.facebook.com/
 *
 * A record is a line `key,value`. Records are sorted in the byte order of their lines. Therefore comparisons of keys
 * include the separator: `a!x,` sorts before `a,`.
 */
#ifndef MILLRACE_RECORDS_H
#define MILLRACE_RECORDS_H

#include "base/bytes.h"

#define RECORD_SEPARATOR ','
#define SECONDS_PER_DAY 86400
#define HOUR_TEXT_MAX 5   /* characters of an hour's text, without NUL */
#define PERIOD_TEXT_MAX 6 /* characters of a quarter hour's text, without NUL */
#define SECONDS_PER_HOUR 3600
#define SECONDS_PER_QUARTER 900
#define COMPONENT_HASH 12 /* characters of a hashed component */
/* Key that stands for all keys of a counter over max_keys. An event's own key never has this text (key_text.h). */
#define COMPONENT_OTHER "(other)"
#define RECORD_WHOLE_MAX ((size_t)4096) /* bytes; an answer may end inside a longer record */
#define NAMESPACE_MAX 16
#define HOUR_FIRST INT64_C(946684800) /* 2000-01-01T00 */
#define HOUR_END INT64_C(5995814400)  /* 2160-01-01T00: the end of the last hour */

/* The text of an hour consists of year - 2000, month, day and hour in base 32. From 2032 on, the year begins with a
 * letter from w to z. */
/* Converts seconds since 1970 to the text of the hour, with a NUL. Returns the length (4 or 5), or 0 if the year is not
 * 2000 to 2159. */
size_t hour_encode(int64_t seconds, char out[HOUR_TEXT_MAX + 1]);

/* A period is a quarter hour, an hour, a day or a month in UTC. The text of a quarter hour is that of its hour and one
 * more character, `0` to `3`. The text of a day is that of an hour without the last character; the text of a month has
 * one character less. */
enum period_unit { PERIOD_QUARTER = -1, PERIOD_HOUR, PERIOD_DAY, PERIOD_MONTH };
/* The name of a unit: quarter, hour, day or month. */
const char *period_unit_name(enum period_unit unit);
/* Returns false, without a change of *unit, if no unit has this name. */
bool period_unit_find(struct bytes name, enum period_unit *unit);
/* Converts seconds since 1970 to the text of the period that contains this second, with a NUL. Returns the length, or 0
 * if the year is not 2000 to 2159. */
size_t period_encode(enum period_unit unit, int64_t seconds, char out[PERIOD_TEXT_MAX + 1]);
/* Converts the text of a period to the period's first second. Returns false if the text is not a valid period. */
bool period_decode(struct bytes text, enum period_unit *unit, int64_t *seconds);
/* Converts the text of an hour or a quarter hour, the periods in the record of a total. */
bool total_period_decode(struct bytes text, enum period_unit *unit, int64_t *seconds);
/* Returns the first second after the period that begins at `start`. */
int64_t period_end(enum period_unit unit, int64_t start);
/* Returns the text of a larger period that contains a period. For the hour `c41l`, the day is `c41` and the month is
 * `c4`. For the quarter hour `c41l2`, the hour is `c41l`. */
static inline struct bytes period_enclosing(struct bytes text, enum period_unit from, enum period_unit to)
{
    return bytes_of(text.ptr, text.len - (size_t)(to - from));
}

/* True if the text is stored unchanged: the text is shorter than 12 bytes and contains none of space : , . | control or
 * DEL. */
bool component_is_plain(struct bytes text);
/* Shortens a text to `max` bytes; `max` is at least COMPONENT_BOUND_MIN. A longer text is cut between two UTF-8
 * characters. After the cut, "~" and 32 hexadecimal digits are appended: 16 digits of the MD5 of the whole text, and 16
 * digits of the MD5 of the cut text with the first 16. The last 16 digits mark a text as cut. A text that already has
 * such a mark is cut again, so that it cannot have the hash of another text. Returns `text` itself, or a text in
 * `space`. */
#define COMPONENT_BOUND_MIN 64
struct bytes component_bound(struct bytes text, size_t max, struct buf *space);
/* Writes the base64 form of the first 8 bytes of the text's MD5: always 12 characters, the last one '='. A cut text has
 * the hash of the whole text, so that a key has the same hash for every `max`. */
void component_hash(struct bytes text, char out[COMPONENT_HASH + 1]);
/* True if both texts can belong to one key: they are equal, or at least one is cut. The caller has checked that the
 * hashes of `a` and `b` are equal. */
bool component_is_same(struct bytes a, struct bytes b);
/* Returns the stored form of a text: the text itself, or its hash, which is written to `space`. An empty text stays
 * empty. For a missing value, callers pass "None". */
struct bytes component_store(struct bytes text, char space[COMPONENT_HASH + 1]);
/* True if the stored form is a hash (12 bytes, the last one '='). Only a hash has a lookup record with the text. */
bool component_is_hash(struct bytes stored);
/* Returns the number of bytes before the first byte that no stored form contains: space : , . | control or DEL. */
size_t component_length(struct bytes text);
/* True if component_store can return this text. */
bool component_is_stored(struct bytes text);

/* Escapes a text for a lookup record: backslash as \\, control bytes as \xHH. */
void lookup_escape(struct bytes text, struct buf *out);
/* Reverses lookup_escape. Returns -1 if the text has an escape that lookup_escape does not write. */
int lookup_unescape(struct bytes text, struct buf *out);
/* Converts the escaped text of a lookup to its key in a file of texts: each comma becomes \x2c. */
void text_key_escape(struct bytes escaped, struct buf *out);
/* Converts a key in a file of texts back to the escaped text of the lookup. */
void text_key_unescape(struct bytes key, struct buf *out);
/* Convert a text without escapes to its key in a file of texts, and back. */
void text_key_encode(struct bytes text, struct buf *out);
void text_key_decode(struct bytes key, struct buf *out);

/* For walks in the order of texts, which is the order of the keys in a file of texts. Appends the key at which a search
 * for a total's plain keys (component_is_plain) at or after `text` must begin. */
void text_order_seek_plain(struct bytes text, struct buf *out);

bool namespace_is_valid(struct bytes text); /* [a-z0-9_]{1,16}, not "lookup" */

struct record {
    struct bytes key, value; /* borrowed from the line */
};
/* Splits a line, which has no LF, at the separator. Returns false if the line has no separator. */
bool record_split(struct bytes line, char separator, struct record *out);
/* Compares a and b, each with the separator appended, in the order of LC_ALL=C sort. */
static inline int record_key_compare(struct bytes a, struct bytes b, char separator)
{
    return bytes_compare_ended(a, b, separator);
}

/* Sets *name and *count to the next pair of `name:count name:count`. A count may be negative. Before the first call, set *rest to the whole
 * value. Returns false at the end. At a malformed pair, sets *bad and returns false. */
bool record_next_count(struct bytes *rest, struct bytes *name, int64_t *count, bool *bad);

/* Appends the decimal digits of a count, after '-' if the count is negative. */
void record_append_count(struct buf *out, int64_t count);

/* A sum of counts beyond 64 bits. No sum of valid counts has this value (docs/formats/records.md). */
#define COUNT_SUM_TOO_LARGE INT64_MIN
/* Adds to a sum. A sum beyond 64 bits becomes COUNT_SUM_TOO_LARGE and remains so. */
static inline void count_sum_add(int64_t *sum, int64_t n)
{
    if (*sum == COUNT_SUM_TOO_LARGE || n == COUNT_SUM_TOO_LARGE || __builtin_add_overflow(*sum, n, sum))
        *sum = COUNT_SUM_TOO_LARGE;
}

/* The parts of a key. "c.u|jehiah.c41l" has the ns "c.u", the key "jehiah" and the period "c41l". "u|jehiah" has an
 * empty period. */
struct record_key {
    struct bytes ns, key, period;
    int64_t start;         /* first second of the period */
    enum period_unit unit; /* unit of a subtotal's period */
    bool is_subtotal, is_lookup;
    bool
        is_set; /* the record has a set; set by the reader of the record, because the key does not show this */
};
bool record_key_parse(struct bytes key, struct record_key *out);

/* Returns the shard of a record: crc32 (zlib) modulo `shards`. For a total and its subtotals, the checksum is that of
 * "u|jehiah"; for a lookup, that of "lookup|hash". */
uint32_t record_shard(const struct record_key *k, uint32_t shards);

#endif
