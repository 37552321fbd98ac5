/* run: one run of the compactor, from what an interrupted one left to the cleared slices. docs/guide/archive.md has the
 * order and why it is safe.
 *
 * A run is a table of steps. It knows the daemons only as the four calls of run_control, so that tests put a model in
 * their place and stop the run between and within every step.
 *
 * 1. Killed anywhere, a run that starts again ends with the same bytes.
 * 2. clear is called only after `current` names a generation that includes those slices, that is synced, and
 *    reload has said that every sortdb serves it.
 * 3. A slice is merged exactly once: the slices after the manifest's `through`, without a gap.
 * 4. Nothing is written to a generation that is in force.
 * 5. What cannot be sealed now does not hold up what is sealed: the run does the rest, and then says why.
 * 6. A run that failed leaves no half-made generation behind: the room is needed by whoever else is short of it.
 * 7. Nothing new, and no other number of shards: no generation is made; reload and clear are called all the same, as an
 *    interrupted run may have owed them.
 */
#ifndef MILLRACE_RUN_H
#define MILLRACE_RUN_H

#include "base/bytes.h"
#include "compactor/result.h"

struct run_control {
    void *arg;
    /* The number of the open slice, and whether it holds nothing that was counted, skipped or rejected. */
    enum compact_result (*look)(void *arg, uint64_t *open, bool *is_empty, char error[COMPACT_ERROR_TEXT]);
    /* Slice n is sealed when it returns; it may be sealed already. */
    enum compact_result (*seal)(void *arg, uint64_t n, char error[COMPACT_ERROR_TEXT]);
    /* Every sortdb serves the generation with this manifest_content when it returns. *served is false when there is no
     * sortdb. */
    enum compact_result (*reload)(
        void *arg, uint64_t generation, uint64_t content, bool *served, char error[COMPACT_ERROR_TEXT]);
    enum compact_result (*clear)(void *arg, uint64_t through, char error[COMPACT_ERROR_TEXT]);
};

struct run_progress {
    const char *step;
    uint64_t done, total; /* bytes read by the merge, an estimate; total 0 in other steps */
    uint64_t records;     /* written */
};

struct run_spec {
    const char *archive; /* there, and locked by the caller */
    const char *slices;
    uint32_t shards; /* 0: as the generation in force, 1 for a new archive */
    unsigned keep;   /* generations, at least 1 */
    int64_t now;     /* wall clock, seconds */
    const struct run_control *control;
    void (*on_progress)(const struct run_progress *p, void *arg); /* may be NULL */
    void *arg;
};

struct run_outcome {
    bool published; /* a new generation was made */
    bool served;    /* by a sortdb, and so the slices were cleared */
    uint64_t generation, through;
    uint64_t slices, records, bytes; /* merged slices; what the new generation has */
    uint64_t collisions;             /* lookups with two texts */
    char collision[64];
};

enum compact_result run_compact(
    const struct run_spec *spec, struct run_outcome *out, char error[COMPACT_ERROR_TEXT]);

#endif
