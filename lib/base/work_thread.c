#include "base/work_thread.h"

#include "base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct work_thread {
    struct work_thread_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* The lock guards the following members. */
    void *todo, *done;
    bool busy, stopping;
};

static void *run(void *arg)
{
    struct work_thread *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->todo && !w->stopping)
            pthread_cond_wait(&w->changed, &w->lock);
        void *job = w->todo;
        if (!job)
            break;
        w->todo = NULL;
        pthread_mutex_unlock(&w->lock);
        w->config.run(w->config.ctx, job);
        pthread_mutex_lock(&w->lock);
        w->done = job;
        pthread_cond_broadcast(&w->changed);
        w->config.notify(w->config.notify_arg);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct work_thread *work_thread_new(const struct work_thread_config *config)
{
    struct work_thread *w = mem_zalloc(sizeof *w);
    w->config = *config;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    /* The owner's thread handles all signals except SIGBUS, which the kernel sends to the thread of the faulting
     * instruction. */
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    void *job = w->done;
    pthread_cond_destroy(&w->changed);
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
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void *take_done(struct work_thread *w, bool waits)
{
    pthread_mutex_lock(&w->lock);
    while (waits && w->busy && !w->done)
        pthread_cond_wait(&w->changed, &w->lock);
    void *job = w->done;
    w->done = NULL;
    w->busy = w->busy && !job;
    pthread_mutex_unlock(&w->lock);
    return job;
}

void *work_thread_done(struct work_thread *w)
{
    return take_done(w, false);
}

void *work_thread_wait(struct work_thread *w)
{
    return take_done(w, true);
}
