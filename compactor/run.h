/* run: one run of the compactor, from recovery to the cleared slices (docs/guide/archive.md has the steps and why they are safe).
 *
 * A run is a table of steps. A run sends requests to the daemons only through the four calls of run_control. Tests
 * replace these calls, and stop the run between and within steps.
 *
 * 1. A run repeated after a kill at any point produces the same bytes.
 * 2. The run calls clear only after `current` names a synced generation that includes the slices, and after reload has
 *    confirmed that every sortdb serves this generation.
 * 3. The slices after the manifest's `through` are merged exactly once, without a gap.
 * 4. The current generation is never written to.
 * 5. If the open slice cannot be sealed, the run merges the sealed ones and then reports the failure.
 * 6. A failed run removes its unfinished generation, to free the space.
 * 7. Without new slices and without a change, a run makes no generation. The run still calls reload and clear, because
 *    an interrupted run may have missed them. Changes are another number of shards, sources,
 *    a filter, a later hours_from and a replacement.
 * 8. A replacement merges another archive's records in the place of the current generation's (replace.h).
 */
#ifndef MILLRACE_RUN_H
#define MILLRACE_RUN_H

#include "base/bytes.h"
#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

struct run_control {
    void *arg;
    /* The number of the open slice, and whether it is empty: no event counted, skipped or rejected. 0: there is no aggregator,
     * and the run merges no slices. */
    enum compact_result (*look)(void *arg, uint64_t *open, bool *is_empty, struct error *error);
    /* Seals slice n, unless it is sealed already. */
    enum compact_result (*seal)(void *arg, uint64_t n, struct error *error);
    /* Makes every sortdb serve the generation with this manifest_content. *served is false if there is no sortdb. */
    enum compact_result (*reload)(
        void *arg, uint64_t generation, uint64_t content, bool *served, struct error *error);
    enum compact_result (*clear)(void *arg, uint64_t through, struct error *error);
    /* The XXH3 (64 bits) of the open slice's counters, as canonical text. Only for a replacement. */
    enum compact_result (*counters)(void *arg, uint64_t *hash, struct error *error);
};

struct run_progress {
    const char *step;
    uint64_t done, total; /* bytes read by the merge, an estimate; total 0 in other steps */
    uint64_t records;     /* written */
};

#define RUN_MEMORY ((size_t)256 << 20)

struct run_spec {
    const char *archive; /* exists, and is locked by the caller */
    const char *slices;
    uint32_t shards;  /* 0: unchanged, 1 for a new archive */
    unsigned keep;    /* generations, at least 1 */
    int64_t now;      /* wall clock, seconds */
    size_t memory;    /* bytes for the merge; 0: RUN_MEMORY */
    unsigned threads; /* for the merge, at most one a shard; 0: the processors */
    /* Records to add: totals, lookups, subtotals of hours, and of days before the archive's hours_from. Borrowed. Part i of
     * n_parts has the records of shards k with k % n_parts == i. Each part is read by one thread, so a run with parts merges
     * with n_parts threads. At most generation_merge_threads. */
    const struct count_sources *parts;
    uint32_t n_parts;
    const struct manifest_import *imports; /* the files that the sources are of, for the manifest */
    size_t n_imports;
    const struct coarse *coarse; /* of the sources; NULL: none */
    /* The counts to keep, in the archive and in the slices; NULL: all. */
    const struct record_filter *filter;
    int64_t hours_from;  /* drops the subtotals of earlier hours and keeps their days; 0: drops none */
    const char *replace; /* a recounted archive, locked by the caller; NULL: none */
    bool discards_newer; /* generations that were current once, but are newer than the current one */
    const char *change;  /* for the manifest; NULL: the run merges slices only */
    const struct run_control *control;
    void (*on_progress)(const struct run_progress *p, void *arg); /* may be NULL */
    void *arg;
};

struct run_outcome {
    bool must_ask;  /* refused only because spec.discards_newer is false */
    bool published; /* a new generation was made */
    bool served;    /* every sortdb serves the generation, and the merged slices were cleared */
    uint64_t generation, through;
    uint64_t slices, records, bytes; /* merged slices; size of the new generation */
    uint64_t collisions;             /* hashes that two different texts share */
    char collision[64];
};

enum compact_result run_compact(const struct run_spec *spec, struct run_outcome *out, struct error *error);

#endif
