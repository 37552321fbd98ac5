/* run: one run of the compactor, from recovery to the clearing of merged slices. docs/formats/archive.md describes the
 * steps and why they are safe.
 *
 * A run is a table of steps. A run sends requests to the daemons only through struct run_control. Tests replace the
 * calls of run_control, and stop a run between and within steps.
 *
 * 1. A run repeated after a kill at any point produces the same bytes.
 * 2. The run calls clear only after `current` names a synced generation that includes the slices, and after reload has
 *    confirmed that every sortdb serves this generation.
 * 3. The slices after the manifest's `through` are merged exactly once, without a gap.
 * 4. The current generation is never written to.
 * 5. If the open slice cannot be sealed, the run merges the sealed slices and then reports the failure.
 * 6. A failed run removes its unfinished generation to free disk space.
 * 7. Without new slices and without a change, a run makes no generation. The run still calls reload and clear, because
 *    an interrupted run may not have called them. Changes are another number of shards, records to add, a filter, a
 *    later hours_from and a replacement.
 * 8. A replacement merges the records of another archive instead of the records of the current generation (replace.h).
 */
#ifndef MILLRACE_RUN_H
#define MILLRACE_RUN_H

#include "base/bytes.h"
#include "compactor/import.h"
#include "compactor/record_filter.h"
#include "compactor/result.h"
#include "counts/manifest.h"

/* The newest slice. quarters_since of all later slices is the same. */
struct run_newest {
    bool exists;
    int64_t quarters_since; /* 0: the slice counts by hour */
    /* The sums of an open slice of a stopped aggregator, which the run cannot merge. The owner of the run_spec frees
     * them. */
    struct value_sums sums;
};

/* The earlier of two times from which counts are of quarter hours; 0: there are no quarter hours. */
static inline int64_t run_earlier_quarters(int64_t x, int64_t y)
{
    return x == 0 || (y > 0 && y < x) ? y : x;
}

struct run_control {
    void *arg;
    /* Sets *open to the number of the open slice. Sets *is_empty if the slice has no counted, skipped or rejected
     * event. Sets *open to 0 if there is no aggregator; the run then merges no slices. */
    enum compact_result (*look)(void *arg, uint64_t *open, bool *is_empty, struct error *error);
    /* Seals slice n, unless slice n is already sealed. */
    enum compact_result (*seal)(void *arg, uint64_t n, struct error *error);
    /* Makes every sortdb serve the generation with this manifest_content. Sets *served to false if there is no
     * sortdb. */
    enum compact_result (*reload)(
        void *arg, uint64_t generation, uint64_t content, bool *served, struct error *error);
    enum compact_result (*clear)(void *arg, uint64_t through, struct error *error);
    /* Sets *hash to the XXH3 (64 bits) of the canonical text of the open slice's counters. A run calls `counters`
     * only for a replacement. */
    enum compact_result (*counters)(void *arg, uint64_t *hash, struct error *error);
    /* Describes the newest slice. Called only for an import. NULL: there is no aggregator. */
    enum compact_result (*newest)(void *arg, struct run_newest *out, struct error *error);
};

struct run_progress {
    const char *step;
    uint64_t done,
        total;        /* bytes that the merge has read, and will read (estimate); total is 0 in other steps */
    uint64_t records; /* number of records written */
};

#define RUN_MEMORY ((size_t)256 << 20)

struct run_spec {
    const char *archive; /* an existing directory, locked by the caller */
    const char *slices;
    uint32_t shards;  /* 0: unchanged, or 1 for a new archive */
    unsigned keep;    /* number of generations to keep, at least 1 */
    int64_t now;      /* wall clock, seconds */
    size_t memory;    /* memory for the merge in bytes; 0: RUN_MEMORY */
    unsigned threads; /* threads of the merge, at most one per shard; 0: the number of processors */
    /* Records to add, borrowed: totals, lookups, subtotals of hours, and subtotals of days before the archive's
     * hours_from. Part i of n_parts has the records of shards k with k % n_parts == i. One thread reads each part,
     * so a run with parts merges with n_parts threads, at most generation_merge_threads. */
    const struct count_sources *parts;
    uint32_t n_parts;
    const struct manifest_import *imports; /* the imported files, for the manifest */
    size_t n_imports;
    const struct value_sums *sums; /* absolute values of the added records; NULL: none */
    const char *new_counters; /* canonical lines of counters that only the added records have; NULL: none */
    struct import_periods periods;    /* periods of the sources */
    struct run_newest newest;         /* read before the sources were read */
    const struct coarse *coarse;      /* counts of the sources for whole days or months; NULL: none */
    const struct coarse *kept_coarse; /* spans of the archive that the filter keeps; NULL: all spans */
    /* Selects the counts to keep, in the archive and in the slices; NULL: all. */
    const struct record_filter *filter;
    int64_t hours_from;  /* drop subtotals of hours before this time, and keep their days; 0: drop no hours */
    const char *replace; /* directory of a recounted archive, locked by the caller; NULL: no replacement */
    bool discards_newer; /* delete newer generations that were current once */
    const char *change;  /* description of the change for the manifest; NULL: the run only merges slices */
    const struct run_control *control;
    void (*on_progress)(const struct run_progress *p, void *arg); /* may be NULL */
    void *arg;
};

struct run_outcome {
    bool must_ask;  /* the run was refused only because spec.discards_newer is false */
    bool published; /* the run made a new generation */
    bool served;    /* every sortdb serves the generation, and the merged slices were cleared */
    uint64_t generation, through;
    uint64_t slices, records, bytes; /* number of merged slices; size of the new generation */
    uint64_t collisions;             /* number of hashes that two different texts share */
    char collision[64];
};

enum compact_result run_compact(const struct run_spec *spec, struct run_outcome *out, struct error *error);

#endif
