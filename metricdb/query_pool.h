/* query_pool: runs queries in threads of their own, so that no query delays the event loop.
 *
 * The owner fills a query_job and passes it to query_pool_start. A thread calls job->run, and the event loop then calls
 * job->done. A job belongs to the pool from query_pool_start until its `done`.
 *
 * 1. At most `threads` jobs run at once. Further jobs wait in their order. query_pool_start returns false if QUERY_WAITING_MAX jobs
 *    wait.
 * 2. query_pool_cancel sets job->is_cancelled, which `run` must look at. A waiting job ends without `run`.
 * 3. Each job gets exactly one call of `done`, in query_pool_free at the latest.
 *
 * Only the loop's thread may call the functions of this header. */
#ifndef MILLRACE_QUERY_POOL_H
#define MILLRACE_QUERY_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define QUERY_WAITING_MAX 100
#define QUERY_THREADS_MAX 64

struct event_base;
struct query_pool;

struct query_job {
    void (*run)(struct query_job *job);  /* in a thread of the pool */
    void (*done)(struct query_job *job); /* in the loop's thread; frees the job */
    atomic_bool is_cancelled;
    struct query_job *next; /* the pool's */
};

/* Returns NULL with errno if a thread cannot be started. */
struct query_pool *query_pool_new(struct event_base *base, size_t threads);
/* Cancels all jobs and waits for those that run. */
void query_pool_free(struct query_pool **p);
bool query_pool_start(struct query_pool *p, struct query_job *job);
/* `done` of a waiting job is called before query_pool_cancel returns. */
void query_pool_cancel(struct query_pool *p, struct query_job *job);
size_t query_pool_waiting(const struct query_pool *p);
size_t query_pool_running(const struct query_pool *p);

#endif
