/* merge: merges sources of counts (count_merge.h) into the shards of a generation, in one pass.
 *
 *     u|jehiah,c413:2        and  u|jehiah,c413:1 c41l:5     ->  u|jehiah,c413:3 c41l:5
 *     c.u|jehiah.c41l,JP:1   and  c.u|jehiah.c41l,US:4       ->  c.u|jehiah.c41l,JP:1 US:4
 *
 * 1. Each record is written once, in order, to the shard of its key. A record of only one source is copied unchanged.
 * 2. The result depends neither on the order of the sources nor on earlier merges:
 *    merge(merge(A, B), C) = merge(A, B, C).
 * 3. The merge needs memory for one record and for the buffers of the sources and writers.
 */
#ifndef MILLRACE_MERGE_H
#define MILLRACE_MERGE_H

#include "compactor/record_source.h"
#include "compactor/shard_writer.h"

struct merge_report {
    uint64_t records; /* written */
    uint64_t bytes;   /* of the records written */
    uint64_t collisions;
    char collision[64]; /* the key of the latest collision */
};

struct merge_spec {
    struct count_source **sources;
    size_t n_sources;
    struct shard_writer **writers; /* as many as shards */
    uint32_t shards;
    /* Called at intervals and at the end; may be NULL. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* Reads every source to its end. */
enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, char error[COMPACT_ERROR_TEXT]);

#endif
