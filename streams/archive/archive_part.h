/* archive_part: one file of an archive while lines come to it, NAME.part.
 *
 * 1. Lines are taken where they lie, as many pieces as come, and then written by archive_part_write or copied by
 *    archive_part_keep, before their bytes go. What is written is [0, written), what was taken is [0, state.length). A write that
 *    fails has changed nothing that counts: it is done again at the same place.
 * 2. The file has its name from the first archive_part_write after `named` is set: before that, no state that a crash leaves
 *    knows it. Until then it is nameless, and a crash takes it away; where there is no such file its lines are kept in memory, and
 *    that write makes one.
 * 3. Nothing is synced here: `unsynced` and `unsynced_name` tell whoever commits what to sync before a state says that the lines
 *    are there. He moves them to `syncing` and `syncing_name`, and back when his syncs did not come to be.
 * 4. What gets no more lines, is written and synced needs its descriptor no more: archive_part_close. */
#ifndef MILLRACE_ARCHIVE_PART_H
#define MILLRACE_ARCHIVE_PART_H

#include "streams/archive/archive_state.h"
#include "base/clock.h"

#include <sys/uio.h>

#define ARCHIVE_PART_BUFFER ((size_t)256 << 10) /* so much in memory is worth a write */
#define ARCHIVE_PART_PIECE ((size_t)32 << 10)   /* so much is, before it is copied */

/* Lines that lie where they came. */
struct archive_pieces {
    struct iovec *at; /* the first is kept free for what is pending */
    size_t n, room;
    size_t bytes; /* all of them */
};

struct archive_part {
    struct archive_file_state state;
    struct buf pending;          /* copied and not written */
    struct archive_pieces taken; /* neither; behind what is pending */
    uint64_t written;
    int fd;                     /* -1: not open */
    bool named;                 /* a state that is safe names it */
    bool made;                  /* the file is there, and ours */
    bool nameless;              /* fd is of a file that has no name yet */
    bool unsynced;              /* written to since the last sync began */
    bool unsynced_name;         /* has it since the last sync of its directory began */
    bool syncing, syncing_name; /* the sync under way is of these: a thread has fd */
    usec_t last_taken;          /* monotonic */
    bool tried;                 /* to be finished, perhaps by another life */
    char *lacks;                /* what its last try to be finished lacked; NULL: there was none in vain */
    usec_t finish_pause;        /* how long it waits after that, ... */
    usec_t finish_at;           /* ... until then */
    enum { PART_OPEN, PART_CLOSED, PART_SETTLED, PART_FINISHING, PART_FINISHED, PART_DROPPED } stage;
    /* CLOSED: no more lines. SETTLED: closed, and a safe state says so with its whole length. FINISHING: settled, and a thread
     * has it. DROPPED: finished, and the state that is being written knows it no more; until that one is safe its name is in
     * use. */
};

struct archive_part *archive_part_new(const char *name, const char *period, uint64_t first);
/* From a state: the file is cut back to its length. NULL with the reason. */
struct archive_part *archive_part_recover(
    const struct archive_file_state *state, char error[ARCHIVE_ERROR_TEXT]);
void archive_part_free(struct archive_part **p);
/* Makes the file of a new one, without a name, where that can be. */
void archive_part_make_nameless(struct archive_part *p);
bool archive_part_has_file(const struct archive_part *p); /* or may make it: archive_part_write writes */

/* `n` lines; `end` is behind them in the stream. */
void archive_part_take(struct archive_part *p, struct bytes lines, uint64_t n, uint64_t end);
/* Only when it is written and synced. */
void archive_part_close(struct archive_part *p);
/* What was taken is pending. */
void archive_part_keep(struct archive_part *p);
size_t archive_part_unwritten(const struct archive_part *p); /* bytes, pending or taken */
/* Writes what is pending, then what was taken, from where both lie. 0, or -1 with errno and the reason: all of it is pending. EEXIST:
 * somebody has made a file of this name since it was chosen, which stays as it is: it needs another, and a state that names it.
 * Does nothing while it has no file. */
int archive_part_write(struct archive_part *p, char error[ARCHIVE_ERROR_TEXT]);

#endif
