#include "pubsub/stream_recovery.h"

#include "pubsub/pubsub_settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct opening {
    struct opening_config config;
    pthread_t thread;
    struct cursors *cursors;
    enum streams_result result;
    char error[OPENING_ERROR_TEXT];
};

static enum streams_result make_named(struct opening *o)
{
    const char *list = o->config.names;
    enum streams_result r = STREAMS_OK;
    struct bytes name;
    while (r == STREAMS_OK && bytes_next_word(&list, SETTINGS_SEPARATORS, &name)) {
        struct stream *s;
        char *text = bytes_dup(name);
        r = streams_make(o->config.cursors.streams, text, &s, o->error, sizeof(o->error));
        if (r == STREAMS_TOO_MANY)
            snprintf(o->error, sizeof(o->error), "streams: %s would be one more than max_streams", text);
        free(text);
    }
    return r;
}

static enum streams_result open_all(struct opening *o)
{
    enum streams_result r = streams_recover(o->config.cursors.streams, o->error, sizeof(o->error));
    if (r == STREAMS_OK)
        r = make_named(o);
    if (r == STREAMS_OK && !cursors_open(&o->config.cursors, &o->cursors, o->error, sizeof(o->error)))
        r = STREAMS_STORAGE;
    return r;
}

static void *run(void *arg)
{
    struct opening *o = arg;
    o->result = open_all(o);
    o->config.done(o->config.arg);
    return NULL;
}

struct opening *opening_start(const struct opening_config *config)
{
    struct opening *o = mem_zalloc(sizeof(*o));
    o->config = *config;
    if (pthread_create(&o->thread, NULL, run, o) == 0)
        return o;
    free(o);
    return NULL;
}

enum streams_result opening_finish(struct opening **op, struct cursors **out, char error[OPENING_ERROR_TEXT])
{
    struct opening *o = *op;
    pthread_join(o->thread, NULL);
    enum streams_result r = o->result;
    *out = o->cursors;
    memcpy(error, o->error, sizeof(o->error));
    free(o);
    *op = NULL;
    return r;
}
