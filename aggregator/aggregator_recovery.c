#include "aggregator/aggregator_recovery.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct opening {
    struct aggregate_config config;
    usec_t wall;
    void (*done)(void *arg);
    void *arg;
    pthread_t thread;
    atomic_bool over;
    struct aggregate *aggregate;
    enum slice_result result;
    char error[SLICE_ERROR_TEXT];
};

static void *run(void *arg)
{
    struct opening *o = arg;
    o->result = aggregate_open(&o->config, o->wall, &o->aggregate, o->error);
    atomic_store(&o->over, true);
    o->done(o->arg);
    return NULL;
}

bool opening_is_over(const struct opening *o)
{
    return atomic_load(&o->over);
}

struct opening *opening_start(
    const struct aggregate_config *config, usec_t wall, void (*done)(void *arg), void *arg)
{
    struct opening *o = mem_zalloc(sizeof(*o));
    *o = (struct opening){.config = *config, .wall = wall, .done = done, .arg = arg};
    if (pthread_create(&o->thread, NULL, run, o) == 0)
        return o;
    free(o);
    return NULL;
}

enum slice_result opening_finish(struct opening **op, struct aggregate **out, char error[SLICE_ERROR_TEXT])
{
    struct opening *o = *op;
    pthread_join(o->thread, NULL);
    enum slice_result r = o->result;
    *out = o->aggregate;
    snprintf(error, SLICE_ERROR_TEXT, "%s", o->error);
    free(o);
    *op = NULL;
    return r;
}
