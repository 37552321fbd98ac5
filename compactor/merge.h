/* merge: merges the counts of sources into the shards of a generation in one pass, and derives rollups and texts.
 *
 *     u|jehiah,c413:2        and  u|jehiah,c413:1 c41l:5     ->  u|jehiah,c413:3 c41l:5
 *     c.u|jehiah.c41l,JP:1   and  c.u|jehiah.c41l,US:4       ->  c.u|jehiah.c41l,JP:1 US:4
 *
 * The old files of a shard include rollups. The added sources have hours or quarter hours, and the days whose hours were
 * dropped. If the
 * number of shards changes or records are removed, the old files become added sources, without their rollups.
 *
 * 1. Each record is written once, in order, to the shard of its key. Old records before the next added record are
 *    copied as bytes, in large pieces.
 * 2. The result depends neither on the order of the sources nor on earlier merges: merge(merge(A, B), C) = merge(A, B,
 *    C). A new rollup is the sum of the old rollup and the added records, so old parts are not read. A month without an
 *    old rollup has at most one old day, a day at most one old hour, and an hour at most one old quarter hour. This
 *    single record replaces the old rollup in the sum.
 * 3. The added records of one month of a subtotal are held, because the month's record precedes them (held_records.h).
 *    Half of `memory` is for held records, a quarter for sorting texts, and the rest for buffers. An old record is held
 *    only if rule 2 needs it in place of a rollup.
 * 4. Sets are merged by set_merge.h, in the same pass over the added sources.
 * 5. For days before `hours_from`, the counts of hours are added to the day's record, which is always written.
 */
#ifndef MILLRACE_MERGE_H
#define MILLRACE_MERGE_H

#include "compactor/record_reader.h"
#include "compactor/set_merge.h"
#include "compactor/shard_writer.h"
#include <stdatomic.h>

struct merge_report {
    uint64_t records; /* number of records read from the added sources */
    uint64_t bytes;   /* number of bytes written */
    uint64_t collisions;
    char collision[64]; /* the key of the latest collision */
};

struct merge_shard {
    struct record_reader *old, *old_texts; /* NULL: none */
    struct shard_writer *records, *texts;  /* NULL: another thread writes this shard */
    struct set_merge *sets;                /* merges the sets of the shard */
};

struct merge_spec {
    struct count_source **sources; /* the added sources */
    size_t n_sources;
    struct merge_shard *shards; /* all shards of the generation */
    uint32_t n_shards;
    int64_t hours_from;
    size_t memory;
    const char *directory;      /* directory for temporary files, which have no names */
    const atomic_bool *stopped; /* true ends the merge early: another thread has failed; may be NULL */
    /* Called at intervals and at the end; may be NULL. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* Reads every source and every old file to its end. The caller finishes the writers. */
enum compact_result merge_run(
    const struct merge_spec *spec, struct merge_report *report, struct error *error);

#endif
