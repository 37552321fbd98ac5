#include "journal/journal_job.h"

#include "base/errno_class.h"
#include "base/log.h"
#include "journal/journal_frame_index.h"
#include "journal/journal_handoff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_MAX ((size_t)256 << 10)
#define SHORTAGE_LOG_INTERVAL (10 * USEC_PER_SEC)

uint64_t journal_step_max = (uint64_t)1 << 20;
usec_t journal_retry_pause = 20 * USEC_PER_MSEC;

void job_submit(struct journal *j, struct job *job)
{
    struct journal_set *set = j->set;
    job->journal = j;
    job->next = NULL;
    j->jobs++;
    set_lock(set);
    *set->jobs_tail = job;
    set->jobs_tail = &job->next;
    bool wake = set->reader_waits;
    set_unlock(set);
    if (wake) /* after unlocking, so that the reader need not wait for the lock */
        pthread_cond_signal(&set->reads);
}

void job_read_failed(struct job *job, enum cursor_status status)
{
    struct journal_set *set = job->journal->set;
    int system = status == CURSOR_IO ? job->cursor->system : 0;
    job->again = errno_is_fd_limit(system) || system == ENOMEM;
    if (!job->again) {
        cursor_failure(job->cursor, status, job->segment->path, job->failure);
        job->result = system ? JOURNAL_IO : JOURNAL_DAMAGED;
        return;
    }
    usec_t now = clock_monotonic();
    job->not_before = now + journal_retry_pause;
    set_lock(set);
    set->last_shortage = now;
    set_unlock(set);
    if (set->shortage_logged && now - set->shortage_logged < SHORTAGE_LOG_INTERVAL)
        return;
    set->shortage_logged = now;
    log_warn("a read waits: out of descriptors or memory", LOG_S("path", job->segment->path),
        LOG_S("error", strerror(system)));
}

enum cursor_status job_enter(struct job *job)
{
    struct cursor *c = job->cursor;
    int fd = fd_cache_get(&job->journal->set->files, job->segment);
    if (fd < 0) {
        c->system = errno;
        return CURSOR_IO;
    }
    if (c->fd < 0)
        cursor_begin(c, fd, job->segment->seed, job->segment->base);
    c->fd = fd;
    c->borrowed = true;
    return CURSOR_FRAME;
}

void job_begin(struct job *job)
{
    struct cursor *c = job->cursor;
    if (job->begin.position > c->position) {
        c->position = job->begin.position;
        c->offset = job->begin.offset;
    }
    job->begin.position = c->position;
    c->chunk = CHUNK_MAX;
}

void job_pass(struct job *job, const struct frame *f)
{
    struct cursor *c = job->cursor;
    uint64_t last = job->n_indexed ? job->indexed[job->n_indexed - 1].position : job->begin.position;
    cursor_skip(c, f);
    job->again = c->position >= job->begin.position + journal_step_max;
    if (job->n_indexed < JOB_ENTRIES_MAX && c->position >= last + journal_index_spacing)
        job->indexed[job->n_indexed++] = (struct index_entry){c->position, c->offset, f->time};
}

/* Takes the first job that is due. Without one, *due is the time of the next job; 0: there is none. */
static struct job *take_job(struct journal_set *set, usec_t *due)
{
    usec_t now = 0;
    *due = 0;
    for (struct job **at = &set->jobs, *job; (job = *at) != NULL; at = &job->next) {
        if (job->not_before && !now)
            now = clock_monotonic();
        if (job->not_before > now) {
            *due = *due && *due < job->not_before ? *due : job->not_before;
            continue;
        }
        *at = job->next;
        if (set->jobs_tail == &job->next)
            set->jobs_tail = at;
        return job;
    }
    return NULL;
}

void *reader_main(void *arg)
{
    struct journal_set *set = arg;
    for (;;) {
        struct job *job;
        usec_t due;
        set_lock(set);
        while ((job = take_job(set, &due)) == NULL && !set->stop) {
            set->reader_waits = true;
            set_sleep(set, &set->reads, due);
            set->reader_waits = false;
        }
        set_unlock(set);
        if (!job)
            return NULL;
        if (job->run)
            job->run(job);
        set_lock(set);
        bool was_empty = !set->jobs_done;
        job->next = NULL;
        *set->jobs_done_tail = job;
        set->jobs_done_tail = &job->next;
        set_signal_owner(set, was_empty);
        set_unlock(set);
        if (was_empty)
            set->config.notify(set->config.notify_arg);
    }
}

void job_report_failure(const struct job *job)
{
    struct journal *j = job->journal;
    if (job->failure[0] && !j->latched)
        memcpy(j->failure, job->failure, sizeof j->failure);
}

void job_deliver(struct job *job)
{
    for (size_t i = 0; i < job->n_indexed; i++)
        frame_index_add(job->journal, job->segment, &job->indexed[i]);
    job->journal->jobs--;
    job->deliver(job);
    if (job->wants_spans && job->spans.fd >= 0)
        io->close(job->spans.fd);
    free(job->spans.spans);
    buf_free(&job->out);
    free(job);
}
