#include "pubsub/stream/stream_recovery.h"

#include "pubsub/stream/pubsub_settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct stream_recovery {
    struct stream_recovery_config config;
    pthread_t thread;
    struct cursors *cursors;
    enum streams_result result;
    char error[STREAM_RECOVERY_ERROR_TEXT];
};

static enum streams_result make_named(struct stream_recovery *o)
{
    const char *list = o->config.names;
    enum streams_result r = STREAMS_OK;
    struct bytes name;
    while (r == STREAMS_OK && bytes_next_word(&list, SETTINGS_SEPARATORS, &name)) {
        struct stream *s;
        char *text = bytes_dup(name);
        r = streams_make(o->config.cursors.streams, text, &s, o->error, sizeof(o->error));
        if (r == STREAMS_TOO_MANY)
            snprintf(o->error, sizeof(o->error), "streams: cannot make %s: max_streams is reached", text);
        free(text);
    }
    return r;
}

static void *run(void *arg)
{
    struct stream_recovery *o = arg;
    enum streams_result r = streams_recover(o->config.cursors.streams, o->error, sizeof(o->error));
    if (r == STREAMS_OK)
        r = make_named(o);
    if (r == STREAMS_OK && !cursors_open(&o->config.cursors, &o->cursors, o->error, sizeof(o->error)))
        r = STREAMS_STORAGE;
    o->result = r;
    o->config.done(o->config.arg);
    return NULL;
}

struct stream_recovery *stream_recovery_start(const struct stream_recovery_config *config)
{
    struct stream_recovery *o = mem_zalloc(sizeof(*o));
    o->config = *config;
    if (pthread_create(&o->thread, NULL, run, o) == 0)
        return o;
    free(o);
    return NULL;
}

enum streams_result stream_recovery_finish(
    struct stream_recovery **op, struct cursors **out, char error[STREAM_RECOVERY_ERROR_TEXT])
{
    struct stream_recovery *o = *op;
    pthread_join(o->thread, NULL);
    enum streams_result r = o->result;
    *out = o->cursors;
    memcpy(error, o->error, sizeof(o->error));
    free(o);
    *op = NULL;
    return r;
}
