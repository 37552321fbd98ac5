/* zone_table: the offsets of a time zone from UTC, from its file (libcctz).
 *
 * The table covers ZONE_TABLE_FIRST to ZONE_TABLE_END. */
#ifndef MILLRACE_ZONE_TABLE_H
#define MILLRACE_ZONE_TABLE_H

#include "base/bytes.h"

#define ZONE_TABLE_FIRST INT64_C(-63158400) /* 1968 */
#define ZONE_TABLE_END INT64_C(6027436800)  /* 2161 */

#ifdef __cplusplus
extern "C" {
#endif

struct zone_table;

/* The zone keeps its offset from `from` to before `to`, which are INT64_MIN and INT64_MAX beyond the table. The offsets of adjacent spans
 * differ. */
struct zone_span {
    int64_t from, to; /* Unix seconds */
    int32_t offset;   /* local time minus UTC, in seconds */
};

/* Reads the file of a zone, which is never freed. NULL: the file is not the file of a zone. libcctz keeps each path until the process
 * ends, even a path of no zone. */
struct zone_table *zone_table_load(const char *path);
/* The span that contains the time. Asking for times one after the other is cheap. */
struct zone_span zone_table_span(struct zone_table *t, int64_t utc);

#ifdef __cplusplus
}
#endif

#endif
