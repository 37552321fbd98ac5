/* records: the texts that counts are kept and served in. Source: the project's record format (docs/formats/records.md).
 *
 *     total     u|jehiah,c413:2 c41l:5                 hours ascending
 *     subtotal  c.u|jehiah.c41l,JP:1 US:4              sub keys in byte order, one record an hour
 *     lookup    lookup|h0aMB8AuNw4=,http://www.facebook.com/
 *
 * A record is a line `key,value`. Records are ordered as whole lines in byte order, so every comparison is of
 * key plus RECORD_SEPARATOR: `a!x,` sorts before `a,`.
 */
#ifndef MILLRACE_RECORDS_H
#define MILLRACE_RECORDS_H

#include "base/bytes.h"

#define RECORD_SEPARATOR ','
#define HOUR_TEXT_MAX 5   /* characters of an hour, without NUL */
#define COMPONENT_HASH 12 /* characters of a hashed component */
#define NAMESPACE_MAX 16
#define HOUR_FIRST INT64_C(946684800) /* 2000-01-01T00 */
#define HOUR_END INT64_C(5995814400)  /* 2160-01-01T00: the first second that no hour holds */

/* Hours: year-2000, month, day, hour in base 32; w-z lead the years from 2032. */
/* Seconds since 1970 -> text, NUL-terminated; its length (4 or 5), or 0 when the year is not 2000..2159. */
size_t hour_encode(int64_t seconds, char out[HOUR_TEXT_MAX + 1]);
/* Text -> the hour's first second; false when it is no hour (month 0, 31 February, ...). */
bool hour_decode(struct bytes text, int64_t *seconds);

/* True when the text is stored as it is: under 12 bytes and no space : , . | control or DEL. */
bool component_is_plain(struct bytes text);
/* base64 of the first 8 bytes of MD5: always 12 characters, the last one '='. */
void component_hash(struct bytes text, char out[COMPONENT_HASH + 1]);
/* The stored form: the text itself, or its hash written to `space`. An empty text is stored as the empty
 * component; callers give "None" for a missing one. */
struct bytes component_store(struct bytes text, char space[COMPONENT_HASH + 1]);
/* True when the stored form is a hash (12 bytes ending in '='), so that a lookup record has the text. */
bool component_is_hash(struct bytes stored);

/* Lookups: a backslash and control bytes are escaped, \\ and \xHH. */
void lookup_escape(struct bytes text, struct buf *out);
/* -1 when an escape is not one that lookup_escape makes. */
int lookup_unescape(struct bytes text, struct buf *out);

bool namespace_is_valid(struct bytes text); /* [a-z0-9_]{1,16}, not "lookup" */

struct record {
    struct bytes key, value; /* of the line */
};
/* A line without its LF; false when it has no separator. */
bool record_split(struct bytes line, char separator, struct record *out);
/* Compares key + separator of a and b, as LC_ALL=C sort orders the lines. */
int record_key_compare(struct bytes a, struct bytes b, char separator);

/* Walks `name:count name:count`: start with *rest = value; false at the end. A pair that is malformed sets
 * *bad and ends the walk. */
bool record_next_count(struct bytes *rest, struct bytes *name, uint64_t *count, bool *bad);

/* The parts of a key: "c.u|jehiah.c41l" -> ns "c.u", key "jehiah", hour "c41l"; "u|jehiah" -> hour empty. */
struct record_key {
    struct bytes ns, key, hour;
    bool is_subtotal, is_lookup;
};
bool record_key_parse(struct bytes key, struct record_key *out);

/* What decides the shard: "u|jehiah" for a total and its subtotals, "lookup|hash" for a lookup. Appends. */
void record_shard_text(const struct record_key *k, struct buf *out);
/* crc32 (zlib) of that text, modulo shards. */
uint32_t record_shard(const struct record_key *k, uint32_t shards);

#endif
