#include "aggregator/batch_writer.h"
#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct batch_writer {
    struct slice *slice;
    struct rejects *rejects;
    void (*notify)(void *arg);
    void *notify_arg;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct batch_job *todo, *done;
    bool busy, stopping;
};

static enum slice_result write_rejects(struct batch_writer *w, struct batch_job *job)
{
    if (job->rejects.len == 0 || rejects_write(w->rejects, job->rejects, job->rejects_at) == 0)
        return SLICE_OK;
    int e = errno;
    snprintf(job->error, sizeof(job->error), "write to the rejects file: %s", strerror(e));
    return errno_is_full(e) ? SLICE_FULL : SLICE_FAILED;
}

static void run_job(struct batch_writer *w, struct batch_job *job)
{
    if (job->checkpoint) {
        job->result = slice_checkpoint(w->slice, job->error);
        return;
    }
    job->result = write_rejects(w, job);
    if (job->result == SLICE_OK)
        job->result = slice_commit(w->slice, &job->batch, &job->written, job->error);
}

static void *run(void *arg)
{
    struct batch_writer *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->stopping)
            pthread_cond_wait(&w->wake, &w->lock);
        struct batch_job *job = w->todo;
        if (!job)
            break;
        w->todo = NULL;
        pthread_mutex_unlock(&w->lock);
        run_job(w, job);
        pthread_mutex_lock(&w->lock);
        w->done = job;
        w->notify(w->notify_arg);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct batch_writer *batch_writer_new(
    struct slice *slice, struct rejects *rejects, void (*notify)(void *arg), void *notify_arg)
{
    struct batch_writer *w = mem_zalloc(sizeof(*w));
    *w =
        (struct batch_writer){.slice = slice, .rejects = rejects, .notify = notify, .notify_arg = notify_arg};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (pthread_create(&w->thread, NULL, run, w) == 0)
        return w;
    free(w);
    return NULL;
}

void batch_writer_free(struct batch_writer **wp)
{
    struct batch_writer *w = *wp;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *wp = NULL;
}

void batch_writer_start(struct batch_writer *w, struct batch_job *job)
{
    pthread_mutex_lock(&w->lock);
    assert(!w->busy);
    w->busy = true;
    w->todo = job;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void batch_writer_run(struct batch_writer *w, struct batch_job *job)
{
    assert(!w->busy);
    run_job(w, job);
}

struct batch_job *batch_writer_done(struct batch_writer *w)
{
    pthread_mutex_lock(&w->lock);
    struct batch_job *job = w->done;
    w->done = NULL;
    w->busy = w->busy && !job;
    pthread_mutex_unlock(&w->lock);
    return job;
}
