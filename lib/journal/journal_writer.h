/* journal_writer: writes batches to a journal's newest segment, begins the next segment, and syncs. The stages of a commit use
 * it (journal_commit.c), and the owner while it opens or closes a journal.
 *
 * Two threads may use the writer of one journal, one in each stage. The fields that stage two reads (end, position, durable,
 * latched) change under the lock. The batch receives the result. */
#ifndef MILLRACE_JOURNAL_WRITER_H
#define MILLRACE_JOURNAL_WRITER_H

#include "journal/journal.h"
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
    uint64_t filled; /* zeros or old bytes lie between position and here; beyond, at most allocated blocks */
    uint64_t usual;  /* mean bytes of a commit; 0: none yet */
    bool recycled;   /* the file holds old bytes: each write ends with the zeros that end a segment */
    bool prepared;   /* the segment began in a spare file */

    uint64_t reserved; /* blocks are allocated up to this position, beyond the file's end */
    uint64_t
        found; /* end of an earlier session's reserve, for appends without a reserve; 0 after a new reserve */
    uint64_t wanted; /* the reserve in force: its unused part is kept */
    bool no_space;   /* the last reserve failed */

    uint64_t end;              /* offset behind the last frame written */
    uint64_t durable;          /* every offset below is synced */
    uint64_t durable_position; /* this file is synced up to here */
    usec_t last_time;
    struct marks marks; /* of the frames written: the next segment's table */
    bool announced;     /* the segment holds this session's boot id and policy */
    bool latched;
    char failure[JOURNAL_ERROR_TEXT];
};
extern size_t journal_write_chunk; /* bytes of one pwrite; replaceable for tests */

void writer_write(struct batch *b); /* stage one */
void writer_sync(
    struct batch *b); /* stage two; nothing to do if the policy needs no sync or an earlier sync covers it */
/* Whether writing the batch only copies into the page cache. */
bool writer_only_copies(struct journal *j, const struct batch *b);

/* Begins the next segment at `base`; `reach` is the end of the commit that needs the segment. 0, or -1 with errno. */
int writer_roll(struct journal *j, uint64_t base, uint64_t reach, struct segment **out);
/* The unused bytes of the reserve in force. */
uint64_t writer_unused_reserve(const struct writer *w);
/* After a cut of the file: reserves `bytes` again, or as many as the disk has room for. */
void writer_reserve_again(struct journal *j, uint64_t bytes);
/* Writes the close frame and closes the file. */
void writer_close(struct journal *j);

#endif
