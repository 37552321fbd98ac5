/* generation_merge: merges the current generation and sealed slices into the files of an unfinished generation.
 *
 * Of n threads, thread i merges the shards k with k % n == i. Each thread reads all slices, and merges only the records
 * of its own shards. With one thread, the caller's thread merges.
 *
 * 1. If the number of shards is unchanged, and neither a filter nor a later hours_from removes records, the old files
 *    are copied with changes (merge.h). In all other cases, the merge reads all records of the old files again and
 *    derives the rollups again.
 * 2. Every old file is read to its end and verified. The counts of each slice are audited (slice_audit.h).
 * 3. On success all files are synced, and `made` describes them.
 */
#ifndef MILLRACE_GENERATION_MERGE_H
#define MILLRACE_GENERATION_MERGE_H

#include "compactor/merge.h"
#include "compactor/record_filter.h"

struct generation_merge {
    const char *archive, *slices;
    const struct manifest *old;
    const char *old_archive;            /* directory of the archive with the generation `old` */
    struct manifest *made;              /* describes the unfinished generation; gets `files` and `texts` */
    uint64_t first, last;               /* numbers of the slices to merge; none if first > last */
    const struct count_sources *parts;  /* records to add (run.h), one part per thread; borrowed */
    uint32_t n_parts;                   /* 0: no records to add */
    const struct record_filter *filter; /* NULL: keep all */
    unsigned threads;                   /* maximum; 0: the number of processors */
    size_t memory;
    /* Called in the caller's thread with the sums of all threads. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* The number of threads that merge `shards` shards. `threads` is as in struct generation_merge. */
uint32_t generation_merge_threads(unsigned threads, uint32_t shards);

enum compact_result generation_merge(
    const struct generation_merge *g, struct merge_report *report, struct error *error);

#endif
