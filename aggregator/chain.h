/* chain: checks, before the slices are opened, that the archive and the slices form one sequence without gap or
 * overlap.
 *
 * The archive holds the first part of each stream, the sealed slices hold the next parts in order, and the open slice
 * holds the last part. Counts are exact only if each slice begins where its predecessor ended, because otherwise events
 * are lost or counted twice. If a slice begins elsewhere, chain_open fails with an error that names the file.
 *
 * Invariants
 * 1. Slice numbers have no gap, and each slice begins where its predecessor ended. Only the newest slice may be open.
 *    If the newest slice is sealed, a crash interrupted the seal after its transaction, and the open slice begins where
 *    the newest slice ended.
 * 2. The archive's manifest has the number `through` of the archive's last slice, and the end of this slice in each
 *    stream. Slice `through` must end there, or slice `through` + 1 must begin there.
 * 3. The open slice must be newer than `through`, because an older open slice is a stale copy.
 * 4. If the configuration of counters has changed, the open slice is sealed without further counts. A counter with an
 *    old name and a new key is refused, because old and new counts would be added up although they count different
 *    things.
 * 5. Counts from quarters_since on are of quarter hours. With resolution = 15m, quarters_since is the hour after the
 *    latest hour with counts in the archive or in a slice. If counts of quarter hours exist, resolution = 1h is
 *    refused.
 *
 * The functions block. No other process may use the directory.
 */
#ifndef MILLRACE_CHAIN_H
#define MILLRACE_CHAIN_H

#include "counts/counters.h"
#include "aggregator/sealed.h"

struct chain_config {
    const char *slices_dir, *rejects_dir; /* existing directories */
    const char *archive;                  /* directory of the archive; NULL: there is no archive */
    const struct counters *counters;
};

/* The number of the open slice and the position at which the slice begins, for slice_config. */
struct chain_next {
    uint64_t number;
    int64_t quarters_since;
    struct slice_tally before;
    struct slice_cursor *cursors;
    size_t n_cursors;
};
void chain_next_free(struct chain_next *next);

/* The sums of absolute values (value_sums.h) in the archive's current generation. */
struct chain_archive {
    bool is_read;
    uint64_t generation, through;
    struct value_sums sums;
};
void chain_archive_free(struct chain_archive *known);
/* Reads the manifest if the current generation is not *known. Without an archive, sets no sums. */
enum slice_result chain_renew_archive(const char *archive, struct chain_archive *known, struct error *error);

/* Fills the empty *sealed with the sealed slices, and *next with the number and start of the open slice, which need not
 * exist yet. The caller frees *sealed and *next, even after a failure. */
enum slice_result chain_open(
    const struct chain_config *config, struct sealed *sealed, struct chain_next *next, struct error *error);
/* Sets *next to the slice after the newest sealed slice. At least one slice must be sealed. */
void chain_follow(const struct sealed *sealed, struct chain_next *next);
/* Sets *through to the last slice that the current generation of the archive includes, or to 0 if the archive includes
 * no slice. SLICE_FOREIGN: the archive does not belong to these slices, because its last slice was never sealed here or
 * ended at another position. */
enum slice_result chain_archived(
    const char *archive, const struct sealed *sealed, uint64_t *through, struct error *error);

#endif
