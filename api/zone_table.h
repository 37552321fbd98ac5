/* zone_table: the offsets of a time zone from UTC, read from the zone's file (libcctz).
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

/* A span [from, to) with one offset. Before the table, `from` is INT64_MIN; after the table, `to` is INT64_MAX. The
 * offsets of adjacent spans differ. */
struct zone_span {
    int64_t from, to; /* Unix seconds */
    int32_t offset;   /* local time minus UTC, in seconds */
};

/* Reads the file of a zone into a table, which is never freed. Returns NULL if the file is not a zone. libcctz
 * keeps each path until the process ends, even if the file is not a zone. */
struct zone_table *zone_table_load(const char *path);
/* Returns the span that contains the time. Successive calls for times in one span are fast. */
struct zone_span zone_table_span(struct zone_table *t, int64_t utc);

#ifdef __cplusplus
}
#endif

#endif
