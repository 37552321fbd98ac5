/* generation_merge: merges the current generation and sealed slices into the files of an unfinished generation.
 *
 * Of n threads the i-th has the shards k with k % n == i, and sources of its own: the slices of all shards, of which it takes its
 * part. With one thread the merge is in the caller's thread.
 *
 * 1. If old and new files have the same shards, and nothing is removed, the old files are copied and amended
 *    (merge.h). Otherwise all records that are not derived are merged anew.
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
    const char *old_archive;            /* the archive with the generation `old` */
    struct manifest *made;              /* describes the unfinished generation; gets `files` and `texts` */
    uint64_t first, last;               /* slices; none if first > last */
    const struct count_sources *parts;  /* more records (run.h), as many parts as threads; borrowed */
    uint32_t n_parts;                   /* 0: none */
    const struct record_filter *filter; /* NULL: keep all */
    unsigned threads;                   /* at most; 0: the processors */
    size_t memory;
    /* Called in the caller's thread with the sums of all threads. */
    void (*on_progress)(const struct merge_report *so_far, void *arg);
    void *arg;
};

/* The threads of a merge of so many shards; `threads` as above. */
uint32_t generation_merge_threads(unsigned threads, uint32_t shards);

enum compact_result generation_merge(
    const struct generation_merge *g, struct merge_report *report, struct error *error);

#endif
