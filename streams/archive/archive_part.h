/* archive_part: one file of an archive, in the staging directory, while lines are added to the file.
 *
 * 1. A part first refers to lines in the caller's memory. Before the caller frees this memory, archive_part_write must
 *    write the lines, or archive_part_keep must copy them. The bytes [0, written) are in the file, and the bytes
 *    [written, state.length) are in memory. A failed write is repeated at the same position.
 * 2. The first write creates the staged file, and the directory in which the file will be published. The staging
 *    directory and this directory must be on the same file system.
 * 3. This module syncs nothing. Before a commit stores a state that includes the lines, the commit must sync the file
 *    if `unsynced` is true, and the file's directory if `unsynced_name` is true. The commit moves both flags to
 *    `syncing` and `syncing_name`, and back if a sync fails.
 * 4. A complete file that is written and synced needs no descriptor, so the caller closes it by archive_part_close. */
#ifndef MILLRACE_ARCHIVE_PART_H
#define MILLRACE_ARCHIVE_PART_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

#include <sys/uio.h>

#define ARCHIVE_PART_BUFFER ((size_t)256 << 10) /* number of bytes in memory that triggers a write */
#define ARCHIVE_PART_PIECE ((size_t)32 << 10)   /* size from which a piece is written instead of copied */

/* Lines that are still in the caller's memory. */
struct archive_pieces {
    struct iovec *at; /* the pieces, after a first element that is reserved for `pending` */
    size_t n, room;
    size_t bytes; /* total length of the pieces */
};

enum archive_part_stage {
    PART_OPEN,      /* lines are being added */
    PART_CLOSED,    /* the file is complete */
    PART_SETTLED,   /* a durable state records the file as complete */
    PART_FINISHING, /* a thread is publishing the file */
};

struct archive_part {
    struct archive_file_state state;
    enum archive_part_stage stage;
    struct buf pending;          /* lines that are copied but not written */
    struct archive_pieces taken; /* lines after the pending bytes that are neither copied nor written */
    uint64_t written;            /* number of bytes in the file */
    int fd;                      /* descriptor of the file; -1: closed */
    bool created;                /* the file exists */
    bool unsynced;               /* bytes were written since the last sync began */
    bool unsynced_name;          /* the file was created since the last sync of its directory began */
    bool syncing, syncing_name;  /* a commit is syncing the file or its directory; its thread uses fd */
    usec_t last_taken;           /* monotonic time at which lines were last added */
    bool tried;                  /* this or an earlier process may have tried to publish the file */
    char *shortage;              /* reason why the last attempt to publish failed, or NULL */
    usec_t finish_pause;         /* pause between two attempts to publish */
    usec_t finish_at;            /* time of the next attempt to publish */
};

/* Creates a part for lines from offset `first` on. `name` is the path of the published file, `staged` the path of the
 * staged file. */
struct archive_part *archive_part_new(const char *name, const char *staged, uint64_t first);
/* Opens the staged file of an entry of the state, and truncates the file to the length in the entry. Returns NULL with
 * the error. */
struct archive_part *archive_part_recover(const struct archive_file_state *state, struct error *error);
void archive_part_free(struct archive_part **p);

/* Adds `n` lines. `end` is the stream's offset after the lines. */
void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end);
/* Copies the lines that are neither written nor copied. */
void archive_part_keep(struct archive_part *p);
size_t archive_part_unwritten(const struct archive_part *p); /* returns the number of bytes in memory */
/* Writes all lines. Returns 0, or -1 with errno and the error after copying the unwritten lines. */
int archive_part_write(struct archive_part *p, struct error *error);
void archive_part_close(struct archive_part *p); /* closes the descriptor */

#endif
