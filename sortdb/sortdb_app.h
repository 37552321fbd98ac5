/* sortdb_app: the state that the parts of the server share. Loop thread only. */
#ifndef MILLRACE_SORTDB_APP_H
#define MILLRACE_SORTDB_APP_H

#include "daemon/daemon.h"
#include "sortdb/reloader.h"

#include <sys/queue.h>

/* A /reload request waiting for its opening. */
struct reload_call {
    TAILQ_ENTRY(reload_call) link;
    struct app *app;
    struct http_request *req;
    uint64_t ticket;
};

struct app {
    struct daemon *daemon;
    struct reloader *reloader;
    struct generation *generation;            /* served; NULL until the first is open */
    char reload_error[GENERATION_ERROR_TEXT]; /* error of the last reload; "" if it succeeded */
    char health[GENERATION_ERROR_TEXT];       /* last reported reason; "" when ready */
    size_t max_answer;
    struct buf scratch; /* for short answers */
    TAILQ_HEAD(, reload_call) calls;
    struct stats_counter *get_hits, *get_misses, *fwmatch_hits, *fwmatch_misses;
    struct stats_counter *reloads, *failed_reloads;
};

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);
/* Answers the calls up to this ticket; `error` NULL: the opening succeeded. */
void app_answer_calls(struct app *app, uint64_t ticket, const char *error);

#endif
