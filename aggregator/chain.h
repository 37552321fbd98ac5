/* chain: checks at opening that the archive and the slices form one sequence without gap or overlap.
 *
 * The archive holds the first part of each stream, the sealed slices hold the next parts in order, and the open slice holds
 * the last. Counts are exact only if each slice begins where its predecessor ended. Otherwise events would be lost or
 * counted twice, so the chain refuses to open and names the file.
 *
 * Invariants
 * 1. Slice numbers have no gap. Each slice begins where its predecessor ended. Only the newest may be open. If the
 *    newest slice is sealed, a crash interrupted the seal after its transaction. The next slice then begins where the
 *    newest ended.
 * 2. The archive's manifest names its last slice, `through`, and that slice's end in each stream. One slice connects to
 *    these positions: slice `through` ends there, or slice `through` + 1 begins there.
 * 3. The open slice is newer than `through`. An older open slice is a stale copy.
 * 4. If the configuration of counters has changed, the open slice is sealed as it is. A counter with an old name and a
 *    new key is refused, because old and new counts would add up although they count different things.
 *
 * Blocking; no other process may use the directory.
 */
#ifndef MILLRACE_CHAIN_H
#define MILLRACE_CHAIN_H

#include "counts/counters.h"
#include "aggregator/sealed.h"

struct chain_config {
    const char *slices_dir, *rejects_dir; /* both exist */
    const char *archive;                  /* its directory; NULL: no archive */
    const struct counters *counters;
};

/* The number and the start of the open slice, for slice_config. */
struct chain_next {
    uint64_t number;
    struct slice_tally before;
    struct slice_cursor *cursors;
    size_t n_cursors;
};
void chain_next_free(struct chain_next *next);

/* Fills the empty *sealed with the sealed slices, and *next with the number and start of the open slice. The open slice
 * need not exist yet. The caller frees both, also after a failure. */
enum slice_result chain_open(
    const struct chain_config *config, struct sealed *sealed, struct chain_next *next, struct error *error);
/* Sets *next to the slice after the newest sealed one. At least one must exist. */
void chain_follow(const struct sealed *sealed, struct chain_next *next);
/* The last slice that the current generation of the archive includes; 0: none, or no archive yet. SLICE_FOREIGN if the
 * archive does not belong to these slices: its last slice was never sealed here, or ended at another position. */
enum slice_result chain_archived(
    const char *archive, const struct sealed *sealed, uint64_t *through, struct error *error);

#endif
