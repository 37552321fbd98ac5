/* backup: copies a running pipeline from its files, without loss and without duplicates (docs/internals/backup.md).
 *
 * docs/internals/backup.md has the order of the steps and its proof. In short: consumers are copied before producers, so
 * each cursor in the backup is at or behind the end of its stream. A queue is copied last, up to the first removal of a
 * message that the copied streams do not have.
 *
 * 1. A directory with the name of the backup is complete, verified and synced. Until then it has the suffix ".tmp".
 *    After a failure, and after a kill at any point, the next backup to the same directory removes it.
 * 2. The pipeline's files are never written to, with one exception: SQLite's log index of the open slice. On the same
 *    file system, the backup has hard links to files that never change. On another, links to these files are in PLACE/.backup
 *    until they are copied.
 * 3. Everything acknowledged before the start is in the backup.
 *
 * One process at a time for each directory of the pipeline. Blocking. */
#ifndef MILLRACE_BACKUP_H
#define MILLRACE_BACKUP_H

#include "backup/backup_manifest.h"

enum backup_place { BACKUP_SIMPLEQUEUE, BACKUP_PUBSUB, BACKUP_AGGREGATOR, BACKUP_ARCHIVE, BACKUP_PLACES };
/* The place's directory in a backup. */
extern const char *const backup_place_names[BACKUP_PLACES];

#define BACKUP_CONFIG "pipeline.conf" /* in a backup: the copy of the configuration */

struct backup_spec {
    const char
        *places[BACKUP_PLACES]; /* directories; if one does not exist, its daemon runs on another host */
    const char *config;         /* path of the configuration; NULL: none */
    const char *to;             /* must not exist; its parent must */
    void (*on_progress)(const char *step, uint64_t done, uint64_t total, void *arg); /* bytes */
    void *arg;
};
/* With BACKUP_OK, free *out with backup_manifest_free. */
enum backup_result backup_make(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error);

/* Reads every file of a backup and compares its size and checksum. Names the first wrong file. Frees nothing on
 * failure: *out is set only with BACKUP_OK. */
enum backup_result backup_verify(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error);
/* Copies a verified backup from `from` to the data directory spec->to, which must not exist or be empty. */
enum backup_result backup_restore(
    const struct backup_spec *spec, const char *from, struct backup_manifest *out, struct error *error);

#endif
