/* journal_prealloc: prepares the file of the next segment, so that a commit writes into blocks the file already has and its
 * sync changes no metadata. The filler thread allocates the file `spare` and, while nothing is being committed, fills it with
 * zeros; or a trimmed segment's file becomes the spare one.
 *
 * The spare file's contents mean nothing before segment_create gives it a header with a new salt and a segment's name. So
 * nothing that a crash leaves in it can do harm. */
#ifndef MILLRACE_JOURNAL_PREALLOC_H
#define MILLRACE_JOURNAL_PREALLOC_H

#include "base/bytes.h"
#include "base/clock.h"

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
    bool recycled;  /* holds old bytes, not zeros */
    bool abandon;   /* the journal is being closed */
    bool allocated; /* BUSY, and good enough to be taken at once */
    bool hurry;     /* a committer waits for it */
    bool trimmed;   /* a segment was trimmed since zeros were last requested */
    usec_t busy;    /* time of the last commit */
    uint64_t size;
    uint64_t filled; /* written up to here, not only allocated */
    int failed;      /* errno of a failed write or sync: the next commit latches on it */
};
extern usec_t journal_prealloc_idle; /* without a commit, before zeros are written; replaceable for tests */

void *filler_main(void *set);

/* Stage one of a commit. */
void prealloc_request(struct journal *j); /* the current segment is filling up */
bool prealloc_is_ready(struct journal *j);
int prealloc_error(struct journal *j);
/* Takes the spare file, until prealloc_release says that its name is free. False: there is none. */
bool prealloc_take(struct journal *j, struct prealloc *out);
void prealloc_release(struct journal *j);
void prealloc_discard(struct journal *j); /* frees its blocks for a commit that finds no room */

/* Reader thread: a trimmed segment becomes the spare file. 1; 0: not wanted; -1 with errno. */
int prealloc_recycle(struct journal *j, const struct segment *s);

/* Owner. */
void prealloc_adopt(struct journal *j); /* opening: takes over an earlier session's spare file */
void prealloc_close(struct journal *j); /* waits until no thread uses it */
uint64_t prealloc_bytes(const struct journal *j);

#endif
