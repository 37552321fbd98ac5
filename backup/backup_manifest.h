/* backup_manifest: the file that makes a directory a backup: what the backup has, and every file with its checksum.
 *
 * 1. The last line has the checksum (XXH3, 64 bits, seed 0) of all bytes before it. A text with another checksum, or
 *    with a path that leads out of the backup, is refused.
 * 2. A newer format is refused. Unknown members are ignored.
 */
#ifndef MILLRACE_BACKUP_MANIFEST_H
#define MILLRACE_BACKUP_MANIFEST_H

#include "backup/file_tree.h"
#include "journal/journal.h"

#define BACKUP_MANIFEST "backup.json"
#define BACKUP_FORMAT 1

struct backup_journal {
    bool is_queue;
    char name[NAME_LEN_MAX + 1], id[JOURNAL_ID_TEXT];
    uint64_t first, end; /* offsets */
    uint64_t next_id;    /* of a queue: the messages before this id were accepted */
};
struct backup_cursor {
    char stream[NAME_LEN_MAX + 1];
    uint64_t offset; /* the counts have the lines before it */
};
struct backup_manifest {
    uint64_t began, made; /* wall clock, seconds. Everything acknowledged before `began` is in the backup */
    uint64_t generation, through;     /* of the archive */
    uint64_t first_slice, last_slice; /* 0: none */
    struct backup_journal *journals;
    size_t n_journals;
    struct backup_cursor *cursors;
    size_t n_cursors;
    struct tree_list files;
};

void backup_manifest_print(const struct backup_manifest *m, struct buf *out);
/* With BACKUP_OK, free *out with backup_manifest_free. BACKUP_DAMAGED, or BACKUP_FAILED for a newer format. */
enum backup_result backup_manifest_parse(struct bytes text, struct backup_manifest *out, struct error *error);
/* Reads DIR/backup.json. BACKUP_MISSING: DIR is not a complete backup. */
enum backup_result backup_manifest_read(const char *dir, struct backup_manifest *out, struct error *error);
void backup_manifest_free(struct backup_manifest *m);
/* Describes the contents on standard output, for the operator. */
void backup_manifest_show(const struct backup_manifest *m);

#endif
