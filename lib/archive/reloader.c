#include "archive/reloader.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define RETRY_NSEC 20000000  /* interval of checks whether replaced generations can be freed */
#define SCRUB_NSEC 250000000 /* interval of the steps of the scrub */
#define NSEC_PER_SEC 1000000000

struct reloader {
    struct reloader_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;
    /* The following fields are protected by the lock. */
    uint64_t requested, begun; /* tickets */
    bool ended;
    struct reloader_outcome outcome;
    /* Only the reloader's thread uses the following fields. */
    struct kept *opened; /* list of opened generations, the newest first */
};

/* The reloader's own reference to a generation that it has opened. */
struct kept {
    struct generation *generation;
    struct kept *next;
};

/* Frees generations to which only the reloader still has a reference, except the newest generation. */
static void free_replaced(struct reloader *r)
{
    struct kept **at = r->opened ? &r->opened->next : NULL;
    while (at && *at) {
        struct kept *k = *at;
        if (!generation_is_unshared(k->generation)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        generation_unref(&k->generation);
        free(k);
    }
}

static struct reloader_outcome open_newest(struct reloader *r, uint64_t ticket)
{
    struct reloader_outcome o = {.ticket = ticket};
    struct generation_info served = {0};
    if (r->opened && generation_is_current(r->opened->generation, &r->config.source))
        return o;
    if (r->opened)
        served = generation_info(r->opened->generation);
    o.error.code =
        generation_open(&r->config.source, r->opened ? &served : NULL, &r->stop, &o.generation, &o.error);
    if (o.error.code == SORTED_FILE_OK) {
        struct kept *k = mem_alloc(sizeof *k);
        *k = (struct kept){generation_ref(o.generation), r->opened};
        r->opened = k;
    }
    return o;
}

/* Waits for a signal of the condition, at most `nsec`. Returns true if the time has passed. */
static bool wait(struct reloader *r, long nsec)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += nsec;
    until.tv_sec += until.tv_nsec / NSEC_PER_SEC;
    until.tv_nsec %= NSEC_PER_SEC;
    return pthread_cond_timedwait(&r->changed, &r->lock, &until) == ETIMEDOUT;
}

/* Waits until a reload is requested and the loop has collected the previous outcome. Meanwhile frees replaced
 * generations. Scrubs the newest generation while no replaced generation remains. */
static void wait_for_request(struct reloader *r)
{
    while (!atomic_load(&r->stop) && (r->requested == r->begun || r->ended)) {
        bool has_replaced = r->opened && r->opened->next,
             is_idle = wait(r, has_replaced ? RETRY_NSEC : SCRUB_NSEC);
        pthread_mutex_unlock(&r->lock);
        free_replaced(r);
        if (r->opened && is_idle && !has_replaced)
            generation_scrub(r->opened->generation, RELOADER_SCRUB_RATE * SCRUB_NSEC / NSEC_PER_SEC);
        pthread_mutex_lock(&r->lock);
    }
}

static void *run(void *arg)
{
    struct reloader *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        wait_for_request(r);
        uint64_t ticket = r->begun = r->requested;
        if (atomic_load(&r->stop))
            break;
        pthread_mutex_unlock(&r->lock);
        struct reloader_outcome o = open_newest(r, ticket);
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
    struct reloader *r = mem_zalloc(sizeof *r);
    r->config = *config;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &clock);
    pthread_condattr_destroy(&clock);
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
    while (r->opened) {
        struct kept *k = r->opened;
        r->opened = k->next;
        generation_unref(&k->generation);
        free(k);
    }
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
