/* chain: the slices of a directory as one sequence that continues the archive.
 *
 * A stream's events are in the archive up to the end of its last slice, then in the sealed slices, one after
 * another, then in the open one. So counts are exact only as long as each begins where the one before ended. That is
 * checked once, at opening; whatever does not fit is refused by name, since counting on would double or lose events.
 *
 * Invariants
 * 1. Slice numbers have no gap, each slice begins where the one before ended, and only the newest may be open. One left open by a seal that was interrupted before
 *    its transaction is open; by one interrupted after it, sealed: then the next slice begins here.
 * 2. The oldest slice is at most the one behind what the archive goes through. Where the two meet, the slice that is
 *    archived ends, or the one behind it begins, where the manifest says.
 * 3. The open slice is behind what the archive goes through: an older one is an old copy.
 * 4. Every slice says under which counters it was counted. An open one of other counters is sealed as it is, before
 *    anything is counted under the new ones. A counter of one name and another key is refused, in slices and archive
 *    alike: two meanings would add up under one name.
 *
 * Blocking; nothing else may use the directory.
 */
#ifndef MILLRACE_CHAIN_H
#define MILLRACE_CHAIN_H

#include "counts/counters.h"
#include "aggregator/sealed.h"

struct chain_config {
    const char *slices_dir, *rejects_dir; /* both exist */
    const char *archive;                  /* its directory, or NULL: none is known */
    const struct counters *counters;
};

/* Where the open slice begins: what slice_config takes of one that is made now. */
struct chain_next {
    uint64_t number;
    struct slice_tally before;
    struct slice_cursor *cursors;
    size_t n_cursors;
};
void chain_next_free(struct chain_next *next);

/* Takes the sealed slices into *sealed (empty before) and tells where the open one begins, whether it is there already
 * or not. Whatever the result, the caller frees both. */
enum slice_result chain_open(const struct chain_config *config, struct sealed *sealed,
    struct chain_next *next, char error[SLICE_ERROR_TEXT]);
/* What follows the newest sealed slice; there must be one. */
void chain_follow(const struct sealed *sealed, struct chain_next *next);
/* The last slice that the archive in force holds; 0: none, or no archive yet. SLICE_FOREIGN when it is not an archive of
 * these slices: it ends elsewhere than the sealed slice of that number does, or there was never one. */
enum slice_result chain_archived(
    const char *archive, const struct sealed *sealed, uint64_t *through, char error[SLICE_ERROR_TEXT]);

/* DIR/0000000042.db and DIR/0000000042.ndjson; the caller frees them. */
char *chain_slice_path(const char *slices_dir, uint64_t number);
char *chain_rejects_path(const char *rejects_dir, uint64_t number);

#endif
