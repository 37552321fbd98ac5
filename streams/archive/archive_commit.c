#include "streams/archive/archive_commit.h"

#include "base/io.h"
#include "streams/archive/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

struct archive_committer {
    struct worker *worker;
    const char *state_path, *staging;
    struct archive_commit *commit;
};

struct archive_committer *archive_committer_new(
    const char *state_path, const char *staging, void (*done)(void *arg), void *arg)
{
    struct archive_committer *c = mem_zalloc(sizeof *c);
    c->worker = worker_new(done, arg);
    c->state_path = state_path;
    c->staging = staging;
    return c;
}

void archive_committer_free(struct archive_committer **c)
{
    if (*c == NULL)
        return;
    worker_free(&(*c)->worker);
    free(*c);
    *c = NULL;
}

static void run(void *arg)
{
    struct archive_committer *committer = arg;
    struct archive_commit *c = committer->commit;
    bool failed = false;
    /* The disk gets all writes before the first sync waits, so it needs fewer passes. */
    for (size_t i = 0; i < c->n_fds && c->n_fds > 1; i++)
        (void)sync_file_range(c->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
    for (size_t i = 0; i < c->n_fds && !failed; i++)
        failed = io->fdatasync(c->fds[i]) != 0;
    c->sync_failed = failed || (c->sync_staging && io_sync_dir(committer->staging) != 0);
    c->error = c->sync_failed ? errno : 0;
    if (c->error == 0 && archive_state_write(committer->state_path, &c->state) != 0)
        c->error = errno;
}

void archive_committer_start(struct archive_committer *c, struct archive_commit *commit)
{
    c->commit = commit;
    worker_start(c->worker, run, c);
}

void archive_committer_wait(struct archive_committer *c)
{
    worker_wait(c->worker);
}

bool archive_committer_is_idle(struct archive_committer *c)
{
    return worker_is_idle(c->worker);
}

void archive_commit_free(struct archive_commit *c)
{
    archive_state_free(&c->state);
    free(c->fds);
    *c = (struct archive_commit){.n_fds = 0};
}
