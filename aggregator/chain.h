/* chain: the slices of a directory as one sequence that continues the archive.
 *
 * A stream's events are in the archive up to the end of its last slice, then in the sealed slices one after another, then in
 * the open one. Counts are exact only if each slice begins where the one before ended. The chain checks that once, at
 * opening, and refuses by name whatever does not fit: counting on would double or lose events.
 *
 * Invariants
 * 1. Slice numbers have no gap, each slice begins where the one before ended, and only the newest may be open. A seal that
 *    was interrupted leaves it open or sealed; if it is sealed, the next slice begins here.
 * 2. The oldest slice is at most the one behind the archive's `through`. Slice `through` ends, and the one behind it begins,
 *    where the manifest says.
 * 3. The open slice is behind `through`: an older one is an old copy.
 * 4. An open slice of other counters is sealed as it is before anything is counted under the new ones. A counter with an old
 *    name and another key is refused, in slices and archive alike: two meanings would add up under one name.
 *
 * Blocking; no other process may use the directory.
 */
#ifndef MILLRACE_CHAIN_H
#define MILLRACE_CHAIN_H

#include "counts/counters.h"
#include "aggregator/sealed.h"

struct chain_config {
    const char *slices_dir, *rejects_dir; /* both exist */
    const char *archive;                  /* its directory; NULL: none is configured */
    const struct counters *counters;
};

/* Where the open slice begins, for slice_config. */
struct chain_next {
    uint64_t number;
    struct slice_tally before;
    struct slice_cursor *cursors;
    size_t n_cursors;
};
void chain_next_free(struct chain_next *next);

/* Adds the sealed slices to *sealed (empty before) and finds where the open one begins, whether it exists or not. The caller
 * frees both, whatever the result. */
enum slice_result chain_open(const struct chain_config *config, struct sealed *sealed,
    struct chain_next *next, char error[SLICE_ERROR_TEXT]);
/* The slice after the newest sealed one; there must be one. */
void chain_follow(const struct sealed *sealed, struct chain_next *next);
/* The last slice that the archive in force holds; 0: none, or no archive yet. SLICE_FOREIGN when it is not an archive of
 * these slices: it ends elsewhere than the sealed slice of that number does, or there was never one. */
enum slice_result chain_archived(
    const char *archive, const struct sealed *sealed, uint64_t *through, char error[SLICE_ERROR_TEXT]);

/* DIR/0000000042.db and DIR/0000000042.ndjson; the caller frees them. */
char *chain_slice_path(const char *slices_dir, uint64_t number);
char *chain_rejects_path(const char *rejects_dir, uint64_t number);

#endif
