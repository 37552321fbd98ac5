/* merge: merges ordered sources into the shards of a generation, in one pass.
 *
 * A heap holds the next record of each source. A record of one source is copied; records with one key are added:
 *     u|jehiah,c413:2        and  u|jehiah,c413:1 c41l:5     ->  u|jehiah,c413:3 c41l:5
 *     c.u|jehiah.c41l,JP:1   and  c.u|jehiah.c41l,US:4       ->  c.u|jehiah.c41l,JP:1 US:4
 * Of two texts under one lookup the smaller is kept, and the collision is reported.
 *
 * 1. The output is in order and has every key once, because every source is and does.
 * 2. The result does not depend on the order of the sources or of merges: merge(merge(A, B), C) = merge(A, B, C).
 * 3. Memory: that of the sources and writers, and twice the longest record.
 */
#ifndef MILLRACE_MERGE_H
#define MILLRACE_MERGE_H

#include "compactor/record_source.h"
#include "compactor/shard_writer.h"

struct merge_report {
    uint64_t records; /* written */
    uint64_t bytes;   /* of lines read from the sources */
    uint64_t collisions;
    char collision[64]; /* the key of the last one */
};

struct merge_spec {
    struct record_source **sources;
    size_t n_sources;
    struct shard_writer **writers; /* as many as shards */
    uint32_t shards;
    /* Called every few thousand records and at the end; may be NULL. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* Reads every source to its end. */
enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, char error[COMPACT_ERROR_TEXT]);

/* Adds two values of totals or of subtotals and appends the sum. False: malformed, or overflow. */
bool merge_counts(struct bytes a, struct bytes b, struct buf *out);

#endif
