/* backup_manifest: the file backup.json of each backup. The manifest describes the contents of the backup, and lists
 * every file with its checksum.
 *
 * 1. The last line contains the checksum (XXH3, 64 bits, seed 0) of all bytes before this line. A manifest with another
 *    checksum, or with a path that leads out of the backup, is refused.
 * 2. A newer format is refused. Unknown members are ignored. */
#ifndef MILLRACE_BACKUP_MANIFEST_H
#define MILLRACE_BACKUP_MANIFEST_H

#include "backup/file_tree.h"
#include "journal/journal.h"

#define BACKUP_MANIFEST "backup.json"
#define BACKUP_FORMAT 1

struct backup_journal {
    bool is_queue;
    char name[NAME_LEN_MAX + 1], id[JOURNAL_ID_TEXT];
    uint64_t first, end; /* offset of the first copied byte, and offset after the last copied byte */
    uint64_t next_id;    /* for a queue: the id of the message after the newest message */
};
struct backup_cursor {
    char stream[NAME_LEN_MAX + 1];
    uint64_t offset; /* the counts include the lines before this offset */
};
struct backup_manifest {
    uint64_t began, made;             /* Unix times of the start and the end of the backup */
    uint64_t generation, through;     /* number and last slice of the archive's generation */
    uint64_t first_slice, last_slice; /* numbers of the first and last slice; 0: no slices */
    struct backup_journal *journals;
    size_t n_journals;
    struct backup_cursor *cursors;
    size_t n_cursors;
    struct tree_list files;
};

void backup_manifest_print(const struct backup_manifest *m, struct buf *out);
/* Returns BACKUP_OK, BACKUP_DAMAGED, or BACKUP_FAILED for a newer format. If the result is BACKUP_OK, the caller frees
 * *out with backup_manifest_free. */
enum backup_result backup_manifest_parse(struct bytes text, struct backup_manifest *out, struct error *error);
/* Reads and parses DIR/backup.json. Returns BACKUP_MISSING if DIR is not a complete backup. */
enum backup_result backup_manifest_read(const char *dir, struct backup_manifest *out, struct error *error);
void backup_manifest_free(struct backup_manifest *m);
/* Prints the contents of the backup on standard output, for the operator. */
void backup_manifest_show(const struct backup_manifest *m);

#endif
