#include "streams/archive/worker.h"

#include "base/bytes.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*run)(void *arg); /* NULL: idle */
    void *arg;
    void (*done)(void *context);
    void *context;
    bool ending;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->run == NULL && !w->ending)
            pthread_cond_wait(&w->changed, &w->lock);
        if (w->run == NULL)
            break;
        pthread_mutex_unlock(&w->lock);
        w->run(w->arg);
        pthread_mutex_lock(&w->lock);
        w->run = NULL;
        pthread_cond_broadcast(&w->changed);
        w->done(w->context);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct worker *worker_new(void (*done)(void *context), void *context)
{
    struct worker *w = mem_zalloc(sizeof *w);
    sigset_t all, before;
    w->done = done;
    w->context = context;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    /* The loop handles all signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&w->thread, NULL, work, w) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w;
}

void worker_free(struct worker **wp)
{
    struct worker *w = *wp;
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *wp = NULL;
}

void worker_start(struct worker *w, void (*run)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->lock);
    assert(w->run == NULL);
    w->run = run;
    w->arg = arg;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

bool worker_is_idle(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool idle = w->run == NULL;
    pthread_mutex_unlock(&w->lock);
    return idle;
}

void worker_wait(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->run != NULL)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
