#include "aggregator/storage.h"

#include "aggregator/chain.h"
#include "base/errno_class.h"
#include "base/log.h"
#include "base/work_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPIRE_EVERY (60 * USEC_PER_SEC)

struct storage {
    struct storage_config config;
    struct slice *slice; /* only the thread uses `slice` and `rejects` */
    struct rejects *rejects;
    struct rejects_place front; /* committed front */
    struct chain_archive archive;
    usec_t expired_at;
    struct work_thread *thread;
};

enum slice_result storage_fail_errno(const char *what, const char *path, struct error *error)
{
    return error_set(error, errno_is_full(errno) ? SLICE_FULL : SLICE_FAILED, "cannot %s %.300s: %s", what,
        path, errno == ERANGE ? "shorter than recorded" : strerror(errno));
}

/* Deletes expired rejects if rejects were added or put back, and otherwise every EXPIRE_EVERY. */
static void expire_rejects(struct storage *s, usec_t trusted, bool has_grown)
{
    const struct slice_state *state = slice_committed(s->slice);
    struct rejects_place front = rejects_front(state->cursors, state->n_cursors);
    usec_t now = clock_monotonic();
    if (!has_grown && rejects_compare(front, s->front) == 0 && now - s->expired_at < EXPIRE_EVERY)
        return;
    s->front = front;
    s->expired_at = now;
    if (rejects_expire(s->config.rejects_dir, &s->config.rejects_limits, front, trusted) != 0)
        log_warn("cannot delete expired rejects", LOG_S("path", s->config.rejects_dir),
            LOG_S("error", strerror(errno)));
}

static enum slice_result renew_archive(struct storage *s, struct storage_job *job)
{
    return s->config.archive ? chain_renew_archive(s->config.archive, &s->archive, &job->error) : SLICE_OK;
}

static enum slice_result commit(struct storage *s, struct storage_job *job)
{
    struct count_source *sources[BATCH_SOURCES];
    struct bytes rejects = buf_bytes(&job->batch->rejects);
    if (rejects.len > 0 && rejects_write(s->rejects, rejects, job->rejects_at, &s->config.rejects_limits,
                               s->front, clock_monotonic()) != 0)
        return storage_fail_errno("write to", "the rejects file", &job->error);
    enum slice_result r = job->commit.seal ? slice_merge_abandon(s->slice, &job->error) : SLICE_OK;
    if (r != SLICE_OK)
        return r;
    job->commit.sources = sources;
    job->commit.n_sources = batch_sources(job->batch, s->config.counters, &(struct count_range){0}, sources);
    r = slice_commit(s->slice, &job->commit, &job->written, &job->error);
    for (size_t i = 0; i < job->commit.n_sources; i++)
        count_source_close(&sources[i]);
    struct storage_job ignored = {0};
    if (r == SLICE_OK && renew_archive(s, &ignored) != SLICE_OK)
        log_warn("cannot read the archive's sums of values", LOG_S("error", ignored.error.text));
    if (r == SLICE_OK)
        expire_rejects(s, job->trusted, rejects.len > 0);
    return r;
}

static enum slice_result fold(struct storage *s, struct storage_job *job)
{
    bool whole;
    enum slice_result r = slice_checkpoint(s->slice, &whole, &job->error);
    return r == SLICE_OK && whole ? slice_reader_open_moved(job->begin.path, &job->reader, &job->error) : r;
}

static enum slice_result begin(struct storage *s, struct storage_job *job)
{
    rejects_close(&s->rejects);
    slice_close(&s->slice);
    enum slice_result r = slice_open(&job->begin, &s->slice, &job->error);
    if (r != SLICE_OK)
        return r;
    if (rejects_open(s->config.rejects_dir, job->begin.number, slice_committed(s->slice)->rejects_length,
            &s->rejects) != 0)
        return storage_fail_errno("open the rejects in", s->config.rejects_dir, &job->error);
    expire_rejects(s, job->trusted, true);
    r = renew_archive(s, job);
    if (r != SLICE_OK)
        return r;
    return slice_reader_open(job->begin.path, &job->reader, &job->error);
}

static enum slice_result clear(struct storage *s, struct storage_job *job)
{
    uint64_t archived;
    if (renew_archive(s, job) != SLICE_OK ||
        chain_archived(job->archive, job->sealed, &archived, &job->error) != SLICE_OK)
        return SLICE_FOREIGN;
    if (job->through <= archived)
        return sealed_unlink(job->sealed, job->through, &job->removed, &job->error);
    return error_set(
        &job->error, SLICE_FOREIGN, "the current archive includes only slices up to %" PRIu64, archived);
}

static void run_job(void *ctx, void *arg)
{
    struct storage *s = ctx;
    struct storage_job *job = arg;
    bool whole;
    size_t runs;
    switch (job->kind) {
    case STORAGE_COMMIT:
        job->result = commit(s, job);
        break;
    case STORAGE_MERGE:
        runs = slice_committed(s->slice)->n_runs;
        job->result = slice_merge_step(s->slice, &job->written, &job->error);
        job->runs_changed = slice_committed(s->slice)->n_runs != runs;
        break;
    case STORAGE_CHECKPOINT:
        job->result = slice_checkpoint(s->slice, &whole, &job->error);
        break;
    case STORAGE_FOLD:
        job->result = fold(s, job);
        break;
    case STORAGE_CLOSE:
        slice_close(&s->slice);
        break;
    case STORAGE_BEGIN:
        job->result = begin(s, job);
        break;
    case STORAGE_CLEAR:
        job->result = clear(s, job);
        break;
    case STORAGE_CLOSE_CLEARED: /* does not change the result, which is that of STORAGE_CLEAR */
        sealed_close_readers(job->readers, job->removed);
        break;
    }
    job->log_pages = s->slice ? slice_log_pages(s->slice) : 0;
    job->merge_is_due = s->slice && slice_merge_is_due(s->slice);
    job->merge_is_behind = s->slice && slice_merge_is_behind(s->slice);
}

struct storage *storage_new(const struct storage_config *config)
{
    struct storage *s = mem_zalloc(sizeof *s);
    s->config = *config;
    s->thread = work_thread_new(&(struct work_thread_config){
        .run = run_job, .ctx = s, .notify = config->notify, .notify_arg = config->notify_arg});
    if (s->thread)
        return s;
    free(s);
    return NULL;
}

void storage_free(struct storage **sp)
{
    struct storage *s = *sp;
    if (!s)
        return;
    struct storage_job *done = work_thread_free(&s->thread);
    if (done && done->reader)
        slice_reader_close(&done->reader);
    rejects_close(&s->rejects);
    slice_close(&s->slice);
    chain_archive_free(&s->archive);
    free(s);
    *sp = NULL;
}

void storage_begin(struct storage *s, struct storage_job *job)
{
    run_job(s, job);
}

const struct slice_state *storage_state(const struct storage *s)
{
    return slice_committed(s->slice);
}

const struct chain_archive *storage_archive(const struct storage *s)
{
    return &s->archive;
}

void storage_start(struct storage *s, struct storage_job *job)
{
    work_thread_start(s->thread, job);
}

struct storage_job *storage_done(struct storage *s)
{
    return work_thread_done(s->thread);
}
