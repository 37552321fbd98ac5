/* archive: changes the directory of generations (docs/formats/archive.md) so that a crash at any point leaves it usable.
 *
 * 1. A directory named by a generation's twelve digits is complete, checked and synced. A run fills N.tmp, and
 *    renames N.tmp last. A removal first renames the directory to N.tmp, durably.
 * 2. The link `current` names the current generation. A run replaces `current` by rename, so `current` always exists.
 * 3. An interrupted run may leave *.tmp, and an interrupted `millrace distribute` copy-N. archive_recover removes
 *    both. A run may also leave a generation newer than `current`, which archive_undo removes. An operator who returns to
 *    an older generation also leaves newer generations. A later run must merge the slices of a removed generation again,
 *    so archive_undo fails if these slices were cleared.
 * 4. The link `newest` names the highest generation that was ever current, even if that generation was removed. So the
 *    number of a served generation is never used again. A switch makes `current.tmp` and `newest.tmp` before it renames
 *    `current.tmp` and then `newest.tmp`. So `newest.tmp` without `current.tmp` shows that `current` was replaced, and
 *    archive_recover finishes the switch. In a copy of an archive without `newest`, archive_recover makes the highest
 *    generation the newest.
 * 5. Every change uses the system calls of io.h, so tests can stop a change at any call.
 *
 * Only one process at a time may change an archive, so the caller holds the lock of the directory.
 */
#ifndef MILLRACE_ARCHIVE_H
#define MILLRACE_ARCHIVE_H

#include "base/io.h"
#include "counts/manifest.h"
#include "compactor/result.h"

/* Syncs the directory, because an interrupted run may not have synced its changes, and removes *.tmp. If `current`
 * is missing, removes an unfinished generation 0, and refuses any other generation, because no run removes
 * `current`. */
enum compact_result archive_recover(const char *archive, struct error *error);
/* Like archive_recover, but leaves the copy of the generation `kept`, and all generations without `current`. */
#define ARCHIVE_NONE UINT64_MAX
enum compact_result archive_recover_but(const char *archive, uint64_t kept, struct error *error);
/* Removes the generations newer than `current`. Refuses to remove a generation that includes slices after `through`,
 * the last slice that still exists. After an operator has returned to an older generation, generations that were
 * current once remain. Without `discards`, archive_undo refuses to remove them, lists their changes in the error and
 * sets *must_ask. */
enum compact_result archive_undo(const char *archive, const struct manifest *current, uint64_t through,
    bool discards, bool *must_ask, struct error *error);
/* Returns the highest number of a generation that was ever current. The next generation gets a higher number. */
uint64_t archive_newest(const char *archive, uint64_t current);

/* Creates the empty generation 0 if there is no current generation. Call archive_recover first. */
enum compact_result archive_init(const char *archive, uint32_t shards, int64_t now, struct error *error);

/* Reads the manifest of the current generation. */
enum compact_result archive_read_current(const char *archive, struct manifest *out, struct error *error);
/* Calls `visit` with the manifest of each generation except the current one, until a result is not COMPACT_OK. */
typedef enum compact_result archive_visitor(void *arg, const struct manifest *m, struct error *error);
enum compact_result archive_visit_others(
    const char *archive, uint64_t current, archive_visitor *visit, void *arg, struct error *error);
/* The path of a generation's directory; with `unfinished` the path ends in ".tmp". */
void archive_path(const char *archive, uint64_t generation, bool unfinished, char out[PATH_MAX]);

/* A new generation N is made in this order: archive_begin creates N.tmp, the caller fills N.tmp, archive_describe
 * writes the manifest, archive_publish renames N.tmp to N, and archive_switch makes N current. */
enum compact_result archive_begin(const char *archive, uint64_t generation, struct error *error);
/* Writes and syncs N.tmp/manifest.json. */
enum compact_result archive_describe(const char *archive, const struct manifest *m, struct error *error);
enum compact_result archive_publish(const char *archive, uint64_t generation, struct error *error);
enum compact_result archive_switch(const char *archive, uint64_t generation, struct error *error);

/* Removes N.tmp if it exists. If the removal fails, the next run removes N.tmp. */
void archive_discard(const char *archive, uint64_t generation);

/* The directory copy-N, into which `millrace distribute` copies a generation. archive_discard_copy removes it. */
void archive_copy_path(const char *archive, uint64_t generation, char out[PATH_MAX]);
void archive_discard_copy(const char *archive, uint64_t generation);

/* Removes all generations up to the current generation, except the newest `keep` generations. */
enum compact_result archive_prune(const char *archive, uint64_t current, unsigned keep, struct error *error);

#endif
