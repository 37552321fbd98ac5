/* zone_file: reads a time zone's file (TZif, RFC 8536) into a table of its offsets from UTC.
 *
 * 1. The table covers ZONE_TABLE_FIRST to ZONE_TABLE_END. After the last change that the file lists, its rule (the footer, a TZ string of
 *    POSIX) gives the changes.
 * 2. Changes are in ascending order, and each changes the offset.
 * 3. A file of version 1, one that counts leap seconds, or a malformed one is refused. */
#ifndef MILLRACE_ZONE_FILE_H
#define MILLRACE_ZONE_FILE_H

#include "base/bytes.h"

#define ZONE_TABLE_FIRST INT64_C(-63158400) /* 1968 */
#define ZONE_TABLE_END INT64_C(6027436800)  /* 2161 */
#define ZONE_FILE_MAX ((size_t)256 << 10)

struct zone_change {
    int64_t at;     /* Unix seconds */
    int32_t offset; /* local time minus UTC from then on, in seconds */
};
struct zone_table {
    int32_t first; /* the offset before the first change */
    size_t n, room;
    struct zone_change *changes;
    size_t latest; /* the number of changes up to the time that was asked for last */
};
/* The zone keeps its offset from `from` to before `to`, which are INT64_MIN and INT64_MAX beyond the table. */
struct zone_span {
    int64_t from, to;
    int32_t offset;
};

/* On success the caller frees out->changes. */
bool zone_file_parse(struct bytes file, struct zone_table *out);
/* The span that contains the time. Asking for times one after the other is cheap. */
struct zone_span zone_table_span(struct zone_table *t, int64_t utc);

#endif
