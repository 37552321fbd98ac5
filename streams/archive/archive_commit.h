/* archive_commit: makes an archive's lines durable, in a thread of its own: syncs the files and the staging directory, then replaces
 * the state. One commit at a time. */
#ifndef MILLRACE_ARCHIVE_COMMIT_H
#define MILLRACE_ARCHIVE_COMMIT_H

#include "streams/archive/archive_state.h"

struct archive_commit {
    struct archive_state state; /* the new state */
    int *fds;                   /* files to sync before the state is replaced */
    size_t n_fds;
    bool sync_staging; /* sync the staging directory too */
    int error;         /* errno of the failure, or 0 */
    bool sync_failed;  /* a sync failed, rather than writing the state */
};

struct archive_committer;

/* `done` is called from the thread. The paths are borrowed. */
struct archive_committer *archive_committer_new(
    const char *state_path, const char *staging, void (*done)(void *arg), void *arg);
/* Waits for the commit under way. */
void archive_committer_free(struct archive_committer **c);
void archive_committer_start(
    struct archive_committer *c, struct archive_commit *commit); /* borrowed until idle */
void archive_committer_wait(struct archive_committer *c);
bool archive_committer_is_idle(struct archive_committer *c);
void archive_commit_free(struct archive_commit *c); /* and zeroes it */

#endif
