#include "metricdb/query_pool.h"

#include "base/bytes.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"

#include <stdlib.h>

struct query_pool {
    struct loop_notify *notify;
    struct query_job *first, **end; /* the jobs that wait */
    size_t n_waiting, n_running, n;
    struct pool_thread {
        struct work_thread *thread;
        bool is_busy;
    } threads[QUERY_THREADS_MAX];
};

static void run(void *ctx, void *job)
{
    struct query_job *j = job;
    (void)ctx;
    j->run(j);
}

/* Removes a waiting job. Returns false if the job runs. */
static bool take_out(struct query_pool *p, struct query_job *job)
{
    struct query_job **at = &p->first;
    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = job->next;
    if (p->end == &job->next)
        p->end = at;
    p->n_waiting--;
    return true;
}

static void start_waiting(struct query_pool *p)
{
    for (size_t i = 0; i < p->n && p->first; i++) {
        struct query_job *job = p->first;
        if (p->threads[i].is_busy)
            continue;
        take_out(p, job);
        p->threads[i].is_busy = true;
        p->n_running++;
        work_thread_start(p->threads[i].thread, job);
    }
}

static void end_job(struct query_pool *p, struct pool_thread *t, struct query_job *job)
{
    t->is_busy = false;
    p->n_running--;
    job->done(job);
}

static void on_notify(void *arg)
{
    struct query_pool *p = arg;
    for (size_t i = 0; i < p->n; i++) {
        struct query_job *job = p->threads[i].is_busy ? work_thread_done(p->threads[i].thread) : NULL;
        if (job)
            end_job(p, &p->threads[i], job);
    }
    start_waiting(p);
}

struct query_pool *query_pool_new(struct event_base *base, size_t threads)
{
    struct query_pool *p = mem_zalloc(sizeof *p);
    p->end = &p->first;
    p->notify = loop_notify_new(base, on_notify, p);
    const struct work_thread_config config = {
        .run = run, .ctx = p, .notify = loop_notify_wake, .notify_arg = p->notify};
    while (p->notify && p->n < threads && (p->threads[p->n].thread = work_thread_new(&config)))
        p->n++;
    if (p->n < threads)
        query_pool_free(&p);
    return p;
}

void query_pool_free(struct query_pool **pp)
{
    struct query_pool *p = *pp;
    if (!p)
        return;
    while (p->first)
        query_pool_cancel(p, p->first);
    for (size_t i = 0; i < p->n; i++) {
        struct query_job *job = work_thread_free(&p->threads[i].thread);
        if (job)
            end_job(p, &p->threads[i], job);
    }
    loop_notify_free(&p->notify);
    free(p);
    *pp = NULL;
}

bool query_pool_start(struct query_pool *p, struct query_job *job)
{
    if (p->n_waiting == QUERY_WAITING_MAX)
        return false;
    job->next = NULL;
    *p->end = job;
    p->end = &job->next;
    p->n_waiting++;
    start_waiting(p);
    return true;
}

void query_pool_cancel(struct query_pool *p, struct query_job *job)
{
    atomic_store(&job->is_cancelled, true);
    if (take_out(p, job))
        job->done(job);
}

size_t query_pool_waiting(const struct query_pool *p)
{
    return p->n_waiting;
}

size_t query_pool_running(const struct query_pool *p)
{
    return p->n_running;
}
