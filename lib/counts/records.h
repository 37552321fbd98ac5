/* records: the text format in which counts are archived and served (docs/formats/records.md).
 *
 *     total     u|jehiah,c413:2 c41l:5                 hours ascending
 *     subtotal  c.u|jehiah.c41l,JP:1 US:4              sub keys in byte order, one record an hour
 *     rollup    c.u|jehiah.c41,JP:1 US:4               the same for a day (c41) or a month (c4); archives only
 *     lookup    lookup|h0aMB8AuNw4=,http://www.facebook.com/
 *
 * A record is a line `key,value`. Records are in the byte order of their lines, so comparisons include the separator:
 * `a!x,` sorts before `a,`.
 */
#ifndef MILLRACE_RECORDS_H
#define MILLRACE_RECORDS_H

#include "base/bytes.h"

#define RECORD_SEPARATOR ','
#define SECONDS_PER_DAY 86400
#define HOUR_TEXT_MAX 5           /* characters of an hour, without NUL */
#define COMPONENT_HASH 12         /* characters of a hashed component */
#define COMPONENT_OTHER "(other)" /* a counter's keys over max_keys; not the key of an event (key_text.h) */
#define RECORD_WHOLE_MAX ((size_t)4096) /* bytes; an answer may end inside a longer record */
#define NAMESPACE_MAX 16
#define HOUR_FIRST INT64_C(946684800) /* 2000-01-01T00 */
#define HOUR_END INT64_C(5995814400)  /* 2160-01-01T00: the end of the last hour */

/* An hour's text is year - 2000, month, day and hour in base 32. From 2032 on, the year begins with a letter from w to z. */
/* Converts seconds since 1970 to NUL-terminated text. Returns the length (4 or 5), or 0 if the year is not 2000..2159. */
size_t hour_encode(int64_t seconds, char out[HOUR_TEXT_MAX + 1]);
/* Converts text to the first second of the hour. False if the text is not a valid hour (month 0, 31 February, ...). */
bool hour_decode(struct bytes text, int64_t *seconds);

/* A period is an hour, a day or a month in UTC. The text of a day or a month is the hour's text without its last one or
 * two characters. */
enum period_unit { PERIOD_HOUR, PERIOD_DAY, PERIOD_MONTH };
/* Converts text to the first second of the period. False if the text is not a valid period. */
bool period_decode(struct bytes text, enum period_unit *unit, int64_t *seconds);
/* The first second after the period. */
int64_t period_end(enum period_unit unit, int64_t start);
/* The text of the enclosing period of a larger unit: `c41l` -> day `c41`, month `c4`. */
static inline struct bytes period_enclosing(struct bytes text, enum period_unit from, enum period_unit to)
{
    return bytes_of(text.ptr, text.len - (size_t)(to - from));
}

/* True if the text is stored unchanged: shorter than 12 bytes, without space : , . | control or DEL. */
bool component_is_plain(struct bytes text);
/* Bounds a text to `max` bytes; `max` is at least COMPONENT_BOUND_MIN. A longer text is cut between two UTF-8
 * characters. Then "~" and 32 hexadecimal digits follow: 16 of the MD5 of the whole text, and 16 of the MD5 of the
 * cut text before them, which show that a text is cut. A text that already looks cut is cut again, so that it cannot
 * have the hash of another text. The result is `text`, or is stored in `space`. */
#define COMPONENT_BOUND_MIN 64
struct bytes component_bound(struct bytes text, size_t max, struct buf *space);
/* The base64 form of the first 8 bytes of the MD5: always 12 characters, the last one '='. A cut text has the hash of
 * the whole text, so that a key keeps its hash if `max` changes. */
void component_hash(struct bytes text, char out[COMPONENT_HASH + 1]);
/* True if both can be texts of one key: they are equal, or at least one is cut. Their hashes are equal. */
bool component_is_same(struct bytes a, struct bytes b);
/* The stored form: the text itself, or its hash, which is written to `space`. An empty text stays empty; callers pass
 * "None" for a missing value. */
struct bytes component_store(struct bytes text, char space[COMPONENT_HASH + 1]);
/* True if the stored form is a hash (12 bytes ending in '='). A lookup record then holds the text. */
bool component_is_hash(struct bytes stored);
/* The bytes before the first that a stored form never has: space : , . | control or DEL. */
size_t component_length(struct bytes text);
/* True if component_store can have returned this text. */
bool component_is_stored(struct bytes text);

/* Escapes a text for a lookup record: backslash as \\, control bytes as \xHH. */
void lookup_escape(struct bytes text, struct buf *out);
/* Returns -1 for an escape that lookup_escape does not produce. */
int lookup_unescape(struct bytes text, struct buf *out);
/* The key of a text in a texts file: a lookup's escaped text, in which each comma becomes \x2c. */
void text_key_escape(struct bytes escaped, struct buf *out);
/* Converts the key back to the lookup's escaped text. */
void text_key_unescape(struct bytes key, struct buf *out);
/* The key of a text that is not escaped, and back. */
void text_key_encode(struct bytes text, struct buf *out);
void text_key_decode(struct bytes key, struct buf *out);

/* In the order of texts, plain keys (component_is_plain) have the place of their text keys. Appends the key at
 * which a search for the plain keys of a total from `text` on must begin. */
void text_order_seek_plain(struct bytes text, struct buf *out);

bool namespace_is_valid(struct bytes text); /* [a-z0-9_]{1,16}, not "lookup" */

struct record {
    struct bytes key, value; /* borrowed from the line */
};
/* Splits a line, given without LF. False if the line has no separator. */
bool record_split(struct bytes line, char separator, struct record *out);
/* Compares a and b, each followed by the separator, in the order of LC_ALL=C sort. */
int record_key_compare(struct bytes a, struct bytes b, char separator);

/* Iterates over `name:count name:count`. Start with *rest = value. Returns false at the end. At a malformed pair, sets
 * *bad and returns false. */
bool record_next_count(struct bytes *rest, struct bytes *name, uint64_t *count, bool *bad);

/* The parts of a key: "c.u|jehiah.c41l" -> ns "c.u", key "jehiah", period "c41l"; "u|jehiah" -> period empty. */
struct record_key {
    struct bytes ns, key, period;
    int64_t start;         /* the period's first second */
    enum period_unit unit; /* of a subtotal; PERIOD_DAY and PERIOD_MONTH are rollups */
    bool is_subtotal, is_lookup;
};
bool record_key_parse(struct bytes key, struct record_key *out);

/* crc32 (zlib), modulo shards, of "u|jehiah" for a total and its subtotals, and of "lookup|hash" for a lookup. */
uint32_t record_shard(const struct record_key *k, uint32_t shards);

#endif
