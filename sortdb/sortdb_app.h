/* sortdb_app: the state that the parts of the server share.
 *
 * The main loop opens generations (reloader.h) and publishes them. Each thread that serves requests has a `server`: the loop's own, and
 * one for each worker. A server keeps a reference to the generation that it serves and looks for a newer one at each request.
 *
 * 1. A request reads one generation. Requests that begin after the reply to a reload read the generation of that reload or a newer one, in
 *    every thread.
 * 2. Members of `app` under the lock may be used by any thread. All others belong to the main loop. A server belongs to its thread.
 * 3. The reloader's thread unmaps replaced generations, after the last answer from them.
 */
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

/* A /reload request waiting for its opening. */
struct reload_call {
    TAILQ_ENTRY(reload_call) link;
    struct server *server;
    struct http_request *req;
    uint64_t ticket;
};

struct server {
    struct app *app;
    struct generation *generation; /* NULL until the first is open */
    uint64_t version;              /* of app->version, when `generation` was taken */
    struct buf scratch;            /* for short answers */
    TAILQ_HEAD(, reload_call) calls;
    struct loop_notify *notify; /* after a publication */
};

struct app {
    struct server main;
    struct server *workers;
    size_t n_workers;
    struct daemon *daemon;
    struct reloader *reloader;
    struct error health; /* last reported */
    size_t max_answer;
    struct stats_counter *get_hits, *get_misses, *fwmatch_hits, *fwmatch_misses;
    struct stats_counter *reloads, *failed_reloads;
    _Atomic uint64_t version; /* number of publications */
    pthread_mutex_t lock;
    /* Under the lock. */
    struct generation *generation; /* the newest; NULL until the first is open */
    uint64_t answered;             /* reload calls up to this ticket have their outcome */
    struct error reload_error;     /* of the last reload; code 0: it succeeded */
};
static_assert(offsetof(struct app, main) == 0, "handlers get the address of their server");

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);
void server_begin(struct server *s, struct app *app, struct event_base *base);
void server_end(struct server *s);
/* Any thread: a reference to the newest generation, or NULL. */
struct generation *app_generation(struct app *app);
/* Publishes the outcome of an opening. Takes over the generation. */
void app_publish(struct app *app, const struct reloader_outcome *o);
/* Makes every server take the newest generation and answer its calls. */
void app_answer_calls(struct app *app);

#endif
