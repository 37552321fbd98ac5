/* archive: the directory of generations (docs/guide/archive.md). What is done to it, each in its crash-safe order.
 *
 * 1. A directory that bears a generation's twelve digits is complete, checked and synced: it is made as N.tmp and
 *    gets its name by a rename after that; a removed one loses its name first, durably.
 * 2. `current` names the generation in force. It is replaced by rename; there is never an instant without it.
 * 3. What is there besides `current` and the generations up to it is what an interrupted run left: archive_recover
 *    and archive_undo remove it, so a run goes on as if that one had not been. A generation goes only when the
 *    caller has seen every slice that it holds and the one in force lacks: it may be there because somebody went
 *    back to an older one.
 * 4. Every change passes through io, so tests stop it anywhere.
 *
 * One process at a time: the caller holds the lock of the directory.
 */
#ifndef MILLRACE_ARCHIVE_H
#define MILLRACE_ARCHIVE_H

#include "counts/manifest.h"
#include "compactor/result.h"

/* Syncs the directory, and removes *.tmp: an interrupted run may have replaced `current`, or taken a generation's name away, and
 * not synced it, and what is done next (removing files, clearing slices) relies on it. Without `current`, an interrupted making of generation 0 is removed too; any other generation is
 * refused then, because something else took `current` away. */
enum compact_result archive_recover(const char *archive, char error[COMPACT_ERROR_TEXT]);
/* Removes the generations past the one in force. One that holds slices past `through` is refused. */
enum compact_result archive_undo(
    const char *archive, uint64_t in_force, uint64_t through, char error[COMPACT_ERROR_TEXT]);

/* Makes the empty generation 0 when nothing is in force. Call it after archive_recover. */
enum compact_result archive_init(
    const char *archive, uint32_t shards, int64_t now, char error[COMPACT_ERROR_TEXT]);

/* Appends the path of a generation, or of the one in the making ("....tmp"). */
void archive_path(const char *archive, uint64_t generation, bool in_the_making, struct buf *out);

/* In this order: N.tmp is made, filled by the caller, described, checked, named N, put in force. */
enum compact_result archive_begin(const char *archive, uint64_t generation, char error[COMPACT_ERROR_TEXT]);
/* Writes and syncs N.tmp/manifest.json. */
enum compact_result archive_describe(
    const char *archive, const struct manifest *m, char error[COMPACT_ERROR_TEXT]);
/* Reads every file of N.tmp back: order, counts, checksums. */
enum compact_result archive_check(const char *archive, uint64_t generation, char error[COMPACT_ERROR_TEXT]);
enum compact_result archive_publish(const char *archive, uint64_t generation, char error[COMPACT_ERROR_TEXT]);
enum compact_result archive_switch(const char *archive, uint64_t generation, char error[COMPACT_ERROR_TEXT]);

/* Removes what archive_begin began, if it is there and has no name yet. What cannot be removed is left to the next run. */
void archive_discard(const char *archive, uint64_t generation);

/* Removes all generations but the `keep` newest up to the one in force, and that one. */
enum compact_result archive_prune(
    const char *archive, uint64_t in_force, unsigned keep, char error[COMPACT_ERROR_TEXT]);

#endif
