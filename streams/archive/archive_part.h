/* archive_part: one file of an archive while lines are added to it, in the staging directory.
 *
 * 1. Lines are added without a copy, as pieces of the caller's memory. Before that memory goes away, archive_part_write writes
 *    them, or archive_part_keep copies them. [0, written) is in the file, [written, state.length) in memory. A failed write is
 *    repeated at the same place.
 * 2. The first write creates the file, and the directory that it will be published in.
 * 3. Nothing is synced here. `unsynced` and `unsynced_name` say what a commit has to sync before a state may count the lines. The
 *    commit moves them to `syncing` and `syncing_name`, and back if a sync fails.
 * 4. A complete file that is written and synced needs no descriptor: archive_part_close. */
#ifndef MILLRACE_ARCHIVE_PART_H
#define MILLRACE_ARCHIVE_PART_H

#include "base/clock.h"
#include "streams/archive/archive_state.h"

#include <sys/uio.h>

#define ARCHIVE_PART_BUFFER ((size_t)256 << 10) /* this much in memory is worth a write */
#define ARCHIVE_PART_PIECE ((size_t)32 << 10)   /* this much is, before it is copied */

/* Lines in the caller's memory. */
struct archive_pieces {
    struct iovec *at; /* the first is reserved for the pending bytes */
    size_t n, room;
    size_t bytes; /* in all of them */
};

/* OPEN: takes lines. CLOSED: complete. SETTLED: a durable state says so, with its full length. FINISHING: a thread publishes it. */
enum archive_part_stage { PART_OPEN, PART_CLOSED, PART_SETTLED, PART_FINISHING };

struct archive_part {
    struct archive_file_state state;
    enum archive_part_stage stage;
    struct buf pending;          /* copied and not written */
    struct archive_pieces taken; /* neither; they follow the pending bytes */
    uint64_t written;
    int fd;                     /* -1: not open */
    bool created;               /* the file exists */
    bool unsynced;              /* written to since the last sync began */
    bool unsynced_name;         /* created since the last sync of its directory began */
    bool syncing, syncing_name; /* a commit is syncing these; its thread uses fd */
    usec_t last_taken;          /* monotonic */
    bool tried;                 /* an attempt to finish it was made, perhaps by another process */
    char *shortage;             /* why the last attempt failed; NULL: none failed */
    usec_t finish_pause;        /* between two attempts */
    usec_t finish_at;           /* no attempt before */
};

/* `staged` is the new file's path. */
struct archive_part *archive_part_new(const char *name, const char *staged, uint64_t first);
/* From a state: cuts the file back to its length. NULL with the reason. */
struct archive_part *archive_part_recover(
    const struct archive_file_state *state, char error[ARCHIVE_ERROR_TEXT]);
void archive_part_free(struct archive_part **p);

/* `n` lines; `end` is the offset behind them in the stream. */
void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end);
/* Copies what is not written. */
void archive_part_keep(struct archive_part *p);
size_t archive_part_unwritten(const struct archive_part *p); /* in bytes */
/* Writes all of it. 0, or -1 with errno and the reason: then all of it is copied. */
int archive_part_write(struct archive_part *p, char error[ARCHIVE_ERROR_TEXT]);
/* Only when it is written and synced. */
void archive_part_close(struct archive_part *p);

#endif
