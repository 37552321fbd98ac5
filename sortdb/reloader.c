#include "sortdb/reloader.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct reloader {
    struct reloader_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;
    /* Under the lock. */
    uint64_t requested, begun; /* tickets */
    bool ended;
    struct reloader_outcome outcome;
    /* Thread only. */
    struct generation_info opened; /* the newest successful opening */
    bool has_opened;
};

static void *run(void *arg)
{
    struct reloader *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        /* Waits until a reload is requested and the loop has collected the previous outcome. */
        while (!atomic_load(&r->stop) && (r->requested == r->begun || r->ended))
            pthread_cond_wait(&r->changed, &r->lock);
        r->begun = r->requested;
        struct reloader_outcome o = {.ticket = r->begun};
        if (atomic_load(&r->stop))
            break;
        pthread_mutex_unlock(&r->lock);
        o.result = generation_open(
            &r->config.source, r->has_opened ? &r->opened : NULL, &r->stop, &o.generation, o.error);
        if (o.result == SORTED_FILE_OK) {
            r->opened = generation_info(o.generation);
            r->has_opened = true;
        }
        pthread_mutex_lock(&r->lock);
        r->outcome = o;
        r->ended = true;
        pthread_mutex_unlock(&r->lock);
        r->config.notify(r->config.notify_arg);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

struct reloader *reloader_new(const struct reloader_config *config)
{
    struct reloader *r = mem_zalloc(sizeof(*r));
    r->config = *config;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    int failed = pthread_create(&r->thread, NULL, run, r);
    if (failed)
        abort(); /* out of memory, as in mem_alloc */
    return r;
}

void reloader_free(struct reloader **rp)
{
    struct reloader *r = *rp;
    *rp = NULL;
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->stop, true);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    if (r->ended)
        generation_unref(&r->outcome.generation);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

uint64_t reloader_request(struct reloader *r)
{
    pthread_mutex_lock(&r->lock);
    if (r->requested == r->begun)
        r->requested++;
    uint64_t ticket = r->requested;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return ticket;
}

bool reloader_take(struct reloader *r, struct reloader_outcome *out)
{
    pthread_mutex_lock(&r->lock);
    bool ended = r->ended;
    if (ended)
        *out = r->outcome;
    r->ended = false;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return ended;
}
