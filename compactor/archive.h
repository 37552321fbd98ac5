/* archive: changes the directory of generations (docs/guide/archive.md) so that a crash at any point leaves it usable.
 *
 * 1. A directory named by a generation's twelve digits is complete, checked and synced. A run fills N.tmp and renames it
 *    last. A removal first renames the directory to N.tmp, durably.
 * 2. `current` names the current generation and is replaced by rename, so it always exists.
 * 3. An interrupted run may leave *.tmp, which archive_recover removes, and a generation newer than `current`, which
 *    archive_undo removes. An operator who returns to an older generation also leaves newer generations. The counts of
 *    a newer generation can be merged again only from its slices, so archive_undo fails if these were cleared.
 * 4. The link `newest` names the highest generation that was ever current, also after that generation was removed. So no number of a
 *    generation that was served is used again.
 * 5. Every change goes through io, so tests can stop it anywhere.
 *
 * One process at a time: the caller holds the lock of the directory.
 */
#ifndef MILLRACE_ARCHIVE_H
#define MILLRACE_ARCHIVE_H

#include "base/io.h"
#include "counts/manifest.h"
#include "compactor/result.h"

/* Syncs the directory, because an interrupted run may have changed it without a sync, and removes *.tmp. Without `current`, removes an
 * unfinished generation 0 and refuses any other generation, because no run removes `current`. */
enum compact_result archive_recover(const char *archive, struct error *error);
/* Removes the generations newer than `current`. Refuses to remove a generation that includes slices after `through`,
 * the last slice that still exists. Refuses to remove generations that were current once, with a list of what they changed and *must_ask
 * set, unless `discards`: an operator returned to an older generation. */
enum compact_result archive_undo(const char *archive, const struct manifest *current, uint64_t through,
    bool discards, bool *must_ask, struct error *error);
/* The highest number of a generation that was ever current: that of the next one is higher. */
uint64_t archive_newest(const char *archive, uint64_t current);

/* Creates the empty generation 0 if there is no current one. Call after archive_recover. */
enum compact_result archive_init(const char *archive, uint32_t shards, int64_t now, struct error *error);

/* Reads the manifest of the current generation. */
enum compact_result archive_read_current(const char *archive, struct manifest *out, struct error *error);
/* The path of a generation's directory; with `unfinished` the path ends in ".tmp". */
void archive_path(const char *archive, uint64_t generation, bool unfinished, char out[PATH_MAX]);

/* In this order: begin creates N.tmp, the caller fills it, describe, publish renames it to N, switch makes it current. */
enum compact_result archive_begin(const char *archive, uint64_t generation, struct error *error);
/* Writes and syncs N.tmp/manifest.json. */
enum compact_result archive_describe(const char *archive, const struct manifest *m, struct error *error);
enum compact_result archive_publish(const char *archive, uint64_t generation, struct error *error);
enum compact_result archive_switch(const char *archive, uint64_t generation, struct error *error);

/* Removes N.tmp if it exists. After a failure, the next run removes it. */
void archive_discard(const char *archive, uint64_t generation);

/* Removes all generations up to the current one, except the newest `keep`. */
enum compact_result archive_prune(const char *archive, uint64_t current, unsigned keep, struct error *error);

#endif
