/* merge: merges added counts into the shards of a generation, with rollups and texts, in one pass.
 *
 *     u|jehiah,c413:2        and  u|jehiah,c413:1 c41l:5     ->  u|jehiah,c413:3 c41l:5
 *     c.u|jehiah.c41l,JP:1   and  c.u|jehiah.c41l,US:4       ->  c.u|jehiah.c41l,JP:1 US:4
 *
 * The old files of a shard have the rollups of their counts. The added sources have hours, and the days whose hours
 * were dropped. Old files without rollups, or of another number of shards, are added sources too.
 *
 * 1. Each record is written once, in order, to the shard of its key. Old records before the next added one are copied
 *    as bytes, in large pieces.
 * 2. The result depends neither on the order of the sources nor on earlier merges:
 *    merge(merge(A, B), C) = merge(A, B, C). The old rollup plus the added hours is the new rollup, so old hours are not
 *    read for it. A month without an old rollup has at most one day, and a day at most one hour: that record is the sum.
 * 3. Of each subtotal the added records of one month are held, since the month precedes them (held_records.h). Half of
 *    `memory` holds them, a quarter sorts texts; buffers need the rest. An old record is held only under rule 2.
 * 4. For days before `hours_from`, subtotals of hours become part of the day's record, which is always written.
 */
#ifndef MILLRACE_MERGE_H
#define MILLRACE_MERGE_H

#include "compactor/record_reader.h"
#include "compactor/shard_writer.h"
#include <stdatomic.h>

struct merge_report {
    uint64_t records; /* read from the added sources */
    uint64_t bytes;   /* written */
    uint64_t collisions;
    char collision[64]; /* the key of the latest collision */
};

struct merge_shard {
    struct record_reader *old, *old_texts; /* NULL: none */
    struct shard_writer *records, *texts;  /* NULL: no source has records of this shard */
};

struct merge_spec {
    struct count_source **sources; /* added */
    size_t n_sources;
    struct merge_shard *shards; /* all shards of the generation */
    uint32_t n_shards;
    int64_t hours_from;
    size_t memory;
    const char *directory;      /* for temporary files, which have no names */
    const atomic_bool *stopped; /* another thread has failed: end early; may be NULL */
    /* Called at intervals and at the end; may be NULL. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* Reads every source and every old file to its end. The caller finishes the writers. */
enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, struct error *error);

#endif
