/* archive_part: one file of an archive while lines are added to it, in the staging directory.
 *
 * 1. Lines are added without a copy, as pieces of the caller's memory. Before the caller frees that memory,
 *    archive_part_write must write them or archive_part_keep must copy them. [0, written) is in the file, [written,
 *    state.length) in memory. A failed write is repeated at the same position.
 * 2. The first write creates the file, and the directory in which it will be published. Both must be on one file
 *    system.
 * 3. This module syncs nothing. `unsynced` and `unsynced_name` tell a commit what to sync before it stores a state that
 *    includes the lines. The commit moves both to `syncing` and `syncing_name`, and back if a sync fails.
 * 4. A complete file that is written and synced needs no descriptor: call archive_part_close. */
#ifndef MILLRACE_ARCHIVE_PART_H
#define MILLRACE_ARCHIVE_PART_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

#include <sys/uio.h>

#define ARCHIVE_PART_BUFFER ((size_t)256 << 10) /* write as soon as this many bytes are in memory */
#define ARCHIVE_PART_PIECE ((size_t)32 << 10)   /* write a piece of this many bytes instead of copying it */

/* Lines that are still in the caller's memory. */
struct archive_pieces {
    struct iovec *at; /* the first element is reserved for `pending` */
    size_t n, room;
    size_t bytes; /* the sum of all pieces */
};

/* OPEN: lines are added. CLOSED: complete. SETTLED: a durable state records the file as complete. FINISHING: a thread
 * is publishing the file. */
enum archive_part_stage { PART_OPEN, PART_CLOSED, PART_SETTLED, PART_FINISHING };

struct archive_part {
    struct archive_file_state state;
    enum archive_part_stage stage;
    struct buf pending;          /* copied, not written */
    struct archive_pieces taken; /* neither copied nor written; they follow the pending bytes */
    uint64_t written;
    int fd;                     /* -1: not open */
    bool created;               /* the file exists */
    bool unsynced;              /* has bytes written since the last sync began */
    bool unsynced_name;         /* created since the last sync of its directory began */
    bool syncing, syncing_name; /* a commit is syncing these; its thread uses fd */
    usec_t last_taken;          /* monotonic */
    bool tried;                 /* this process or an earlier one may have tried to publish the file */
    char *shortage;             /* why the last attempt failed, or NULL */
    usec_t finish_pause;        /* pause between two attempts */
    usec_t finish_at;           /* time of the next attempt */
};

/* `staged` is the new file's path. */
struct archive_part *archive_part_new(const char *name, const char *staged, uint64_t first);
/* Opens the staged file of a state's entry and truncates the file to the length in the entry. Returns NULL with the
 * reason. */
struct archive_part *archive_part_recover(const struct archive_file_state *state, struct error *error);
void archive_part_free(struct archive_part **p);

/* Adds `n` lines. `end` is the stream's offset after them. */
void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end);
/* Copies the lines that are not written. */
void archive_part_keep(struct archive_part *p);
size_t archive_part_unwritten(const struct archive_part *p); /* in bytes */
/* Writes all lines. Returns 0. On failure copies the unwritten lines and returns -1 with errno and the error. */
int archive_part_write(struct archive_part *p, struct error *error);
void archive_part_close(struct archive_part *p); /* the descriptor */

#endif
