/* journal_writer: writes batches to a journal's newest segment, begins the next one, and syncs. Used in the stages of a commit
 * (journal_commit.c), and by the owner while a journal is opened or closed.
 *
 * Two threads may use one journal's writer, one in each stage. The fields that stage two reads (end, position, durable,
 * latched) change under the lock. The batch takes the result. */
#ifndef MILLRACE_JOURNAL_WRITER_H
#define MILLRACE_JOURNAL_WRITER_H

#include "journal/journal_error.h"
#include "journal/journal_marks.h"
#include "base/clock.h"

struct batch;
struct journal;
struct segment;

struct writer {
    int fd;
    uint64_t sequence, seed, base;
    uint64_t position; /* of the next frame */
    uint64_t size;     /* of the file */
    uint64_t filled;   /* zeros or old bytes from position to here; behind it allocated blocks at most */
    uint64_t usual;    /* mean bytes of a commit; 0: none yet */
    bool recycled;     /* the file holds old bytes: each write ends with the zeros that end a segment */
    bool prepared;     /* the segment began in a spare file */

    uint64_t reserved; /* blocks are allocated up to this position, beyond the file's end */
    uint64_t
        found; /* what an earlier session reserved; appends without a reserve use it up. 0 after a new reserve */
    uint64_t wanted; /* the reserve in force: kept as far as it is not used */
    bool no_space;   /* the last reserve failed */

    uint64_t end;              /* offset behind the last frame written */
    uint64_t durable;          /* offset below which all is synced */
    uint64_t durable_position; /* and the position in this file */
    usec_t last_time;
    struct marks marks; /* of what is written: the next segment's table */
    bool announced;     /* the segment holds this session's boot id and policy */
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
};
extern size_t journal_write_chunk; /* bytes of one pwrite; replaceable for tests */

void writer_write(struct batch *b); /* stage one */
void writer_sync(struct batch *b);  /* stage two: as the policy says, unless an earlier sync covered it */
/* Whether writing the batch is a copy into the page cache and no more. */
bool writer_only_copies(struct journal *j, const struct batch *b);

/* Begins the next segment at `base`; `reach` is the end of the commit that needs it. 0, or -1 with errno. */
int writer_roll(struct journal *j, uint64_t base, uint64_t reach, struct segment **out);
/* Bytes of the reserve in force that are still there. */
uint64_t writer_unused_reserve(const struct writer *w);
/* After the file was cut: reserves as much of `bytes` as there still is. */
void writer_reserve_again(struct journal *j, uint64_t bytes);
/* Leaves the close frame and cuts the file to its end. */
void writer_close(struct journal *j);

#endif
