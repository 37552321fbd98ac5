/* journal_prealloc: prepares the file `spare` for the next segment. A commit then writes into blocks that the file already has, and
 * its sync changes no metadata. The filler thread allocates the file and fills it with zeros while no commit runs. The file of a
 * trimmed segment may become the spare file instead.
 *
 * The spare file's contents mean nothing until the writer gives it a header with a new salt and a segment's name. So nothing
 * that a crash leaves in it can do harm. */
#ifndef MILLRACE_JOURNAL_PREALLOC_H
#define MILLRACE_JOURNAL_PREALLOC_H

#include "base/bytes.h"
#include "base/clock.h"

#define PREALLOC_NAME "spare"

struct journal;
struct segment;

enum prealloc_state {
    PREALLOC_NONE,
    PREALLOC_REQUESTED, /* on set->to_fill */
    PREALLOC_BUSY,      /* one thread uses the name */
    PREALLOC_READY,
    PREALLOC_NO_SPACE, /* the next segment asks again */
};
struct prealloc {
    enum prealloc_state state;
    bool recycled;  /* holds old bytes instead of zeros */
    bool abandon;   /* the journal is being closed */
    bool allocated; /* BUSY, and its blocks are allocated: a committer may take it at once */
    bool hurry;     /* a committer waits for it */
    bool trimmed;   /* a segment was trimmed since zeros were last requested */
    usec_t busy;    /* time of the last commit */
    uint64_t size;
    uint64_t filled; /* written up to here; beyond, only allocated */
    int failed;      /* errno of a failed write or sync: the next commit latches */
};
extern usec_t
    journal_prealloc_idle; /* time without a commit before zeros are written; replaceable for tests */

void *filler_main(void *set);

/* Stage one of a commit. */
void prealloc_request(struct journal *j); /* the current segment is filling up */
bool prealloc_is_ready(struct journal *j);
/* Takes the spare file; its name stays in use until prealloc_release. False: there is none. */
bool prealloc_take(struct journal *j, struct prealloc *out);
void prealloc_release(struct journal *j);
void prealloc_discard(struct journal *j); /* frees its blocks for a commit that finds no room */

/* Reader thread: turns a trimmed segment's file into the spare file. 1: done. 0: not wanted. -1 with errno. */
int prealloc_recycle(struct journal *j, const struct segment *s);

/* Owner. */
void prealloc_adopt(struct journal *j); /* opening: takes over an earlier session's spare file */
void prealloc_close(struct journal *j); /* waits until no thread uses the file */
uint64_t prealloc_bytes(const struct journal *j);

#endif
