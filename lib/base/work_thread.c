#include "base/work_thread.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct work_thread {
    struct work_thread_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Guarded by the lock. */
    void *todo, *done;
    bool busy, stopping;
};

static void *run(void *arg)
{
    struct work_thread *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->stopping)
            pthread_cond_wait(&w->wake, &w->lock);
        void *job = w->todo;
        if (!job)
            break;
        w->todo = NULL;
        pthread_mutex_unlock(&w->lock);
        w->config.run(w->config.ctx, job);
        pthread_mutex_lock(&w->lock);
        w->done = job;
        w->config.notify(w->config.notify_arg);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct work_thread *work_thread_new(const struct work_thread_config *config)
{
    struct work_thread *w = mem_zalloc(sizeof(*w));
    w->config = *config;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    int e = pthread_create(&w->thread, NULL, run, w);
    if (e == 0)
        return w;
    free(w);
    errno = e;
    return NULL;
}

void *work_thread_free(struct work_thread **wp)
{
    struct work_thread *w = *wp;
    if (!w)
        return NULL;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    void *job = w->done;
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *wp = NULL;
    return job;
}

void work_thread_start(struct work_thread *w, void *job)
{
    pthread_mutex_lock(&w->lock);
    assert(!w->busy);
    w->busy = true;
    w->todo = job;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void *work_thread_done(struct work_thread *w)
{
    pthread_mutex_lock(&w->lock);
    void *job = w->done;
    w->done = NULL;
    w->busy = w->busy && !job;
    pthread_mutex_unlock(&w->lock);
    return job;
}
