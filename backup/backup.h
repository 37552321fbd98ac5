/* backup: copies a running pipeline from its files, without loss and without duplicates.
 *
 * docs/internals/backup.md describes the order of the steps and its proof. In short, consumers are copied before
 * producers, so that no cursor in the backup is after the end of its stream. Queues are copied last. The copy of a
 * queue ends before the first removal of a message that the copied streams do not contain.
 *
 * 1. A directory with the name of the backup is complete, verified and synced. An incomplete backup has the suffix
 *    ".tmp". If a backup fails or is killed, the next backup to the same directory removes the incomplete backup.
 * 2. The backup writes to none of the pipeline's files, except to SQLite's log index of the open slice. If backup and
 *    pipeline are on the same file system, the backup contains hard links to files that never change. On another file
 *    system, the backup links files that never change into PLACE/.backup, and then copies the files.
 * 3. The backup contains everything that was acknowledged before the start of the backup.
 *
 * Only one process at a time can back up a directory of the pipeline. All functions block. */
#ifndef MILLRACE_BACKUP_H
#define MILLRACE_BACKUP_H

#include "backup/backup_manifest.h"

enum backup_place {
    BACKUP_SIMPLEQUEUE,
    BACKUP_PUBSUB,
    BACKUP_AGGREGATOR,
    BACKUP_SPAMFILTER,
    BACKUP_LISTS,
    BACKUP_METRICDB,
    BACKUP_RULER,
    BACKUP_ARCHIVE,
    BACKUP_PLACES
};
/* The name of each place's directory in a backup. */
extern const char *const backup_place_names[BACKUP_PLACES];

#define BACKUP_CONFIG "pipeline.conf" /* name of the copy of the configuration in a backup */

struct backup_spec {
    /* Data directories of the daemons. A missing directory means that the daemon runs on another host. */
    const char *places[BACKUP_PLACES];
    const char *config; /* path of the configuration; NULL: no configuration is copied */
    const char *to;     /* path of the backup, which must not exist, in an existing directory */
    void (*on_progress)(const char *step, uint64_t done, uint64_t total, void *arg); /* numbers of bytes */
    void *arg;
};
/* Makes a backup. If the result is BACKUP_OK, the caller frees *out with backup_manifest_free. */
enum backup_result backup_make(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error);

/* Verifies the size and the checksum of every file of the backup spec->to. On failure, the error names the first wrong
 * file. If the result is BACKUP_OK, the caller frees *out. */
enum backup_result backup_verify(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error);
/* Copies and verifies the backup `from` to the data directory spec->to, which must be empty or missing. If the result
 * is BACKUP_OK, the caller frees *out. */
enum backup_result backup_restore(
    const struct backup_spec *spec, const char *from, struct backup_manifest *out, struct error *error);

#endif
