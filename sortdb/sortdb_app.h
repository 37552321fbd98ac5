/* sortdb_app: the data that the parts of sortdb share.
 *
 * The main loop opens generations (reloader.h) and publishes them to all threads. The main loop and each worker serve
 * requests, and have a struct server each. A server keeps a reference to the generation that it serves, and checks for
 * a newer generation at each request.
 *
 * 1. A request reads only one generation. A request that begins after the reply to a reload reads the reload's
 *    generation or a newer generation, in every thread.
 * 2. Any thread may use the members of `app` that `lock` protects. All other members belong to the main loop. A server
 *    belongs to its thread.
 * 3. The reloader's thread unmaps a replaced generation after the last answer from this generation. */
#ifndef MILLRACE_SORTDB_APP_H
#define MILLRACE_SORTDB_APP_H

#include "daemon/daemon.h"
#include "daemon/loop_notify.h"
#include "archive/reloader.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/queue.h>

/* A /reload request that waits until the reloader has opened the files. */
struct reload_call {
    TAILQ_ENTRY(reload_call) link;
    struct server *server;
    struct http_request *req;
    uint64_t ticket;
};

struct server {
    struct app *app;
    struct generation *generation; /* the generation that the server serves; NULL: none is open yet */
    uint64_t version;              /* value of app->version when the server took `generation` */
    struct buf scratch;            /* buffer for short answers */
    TAILQ_HEAD(, reload_call) calls;
    struct loop_notify *notify; /* wakes the server's loop after app_publish */
};

struct app {
    struct server main;
    struct server *workers;
    size_t n_workers;
    struct daemon *daemon;
    struct reloader *reloader;
    struct error health; /* the error that /health shows */
    size_t max_answer;
    struct stats_counter *get_hits, *get_misses, *fwmatch_hits, *fwmatch_misses;
    struct stats_counter *reloads, *failed_reloads;
    _Atomic uint64_t version; /* number of published generations */
    pthread_mutex_t lock;
    /* `lock` protects the following members. */
    struct generation *generation; /* the newest generation; NULL: none is open yet */
    uint64_t answered;             /* the outcome of reload calls up to this ticket is known */
    struct error reload_error;     /* error of the last reload; code 0: the reload succeeded */
};
static_assert(offsetof(struct app, main) == 0, "handlers get the address of their server");

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);
void server_begin(struct server *s, struct app *app, struct event_base *base);
void server_end(struct server *s);
/* Returns a reference to the newest generation, or NULL if no generation is open. May be called from any thread. */
struct generation *app_generation(struct app *app);
/* Publishes the outcome of a reload. Takes over the reference to the generation in `o`. */
void app_publish(struct app *app, const struct reloader_outcome *o);
/* Makes every server take the newest generation and answer its reload calls. */
void app_answer_calls(struct app *app);

#endif
