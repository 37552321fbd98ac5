/* app: what the parts of the program share. The loop's thread only. */
#ifndef MILLRACE_SORTDB_APP_H
#define MILLRACE_SORTDB_APP_H

#include "daemon/daemon.h"
#include "sortdb/reloader.h"

#include <sys/queue.h>

/* A /reload that waits for its opening. */
struct reload_call {
    TAILQ_ENTRY(reload_call) link;
    struct app *app;
    struct http_request *req;
    uint64_t ticket;
};

struct app {
    struct daemon *daemon;
    struct reloader *reloader;
    struct generation *generation;       /* served; NULL until the first is open */
    char trouble[GENERATION_ERROR_TEXT]; /* why the newest reload failed; "" when it did not */
    char health[GENERATION_ERROR_TEXT];  /* what was said last; "" when ready */
    size_t max_answer;
    struct buf scratch; /* short answers are put together here */
    TAILQ_HEAD(, reload_call) calls;
    struct stats_counter *get_hits, *get_misses, *fwmatch_hits, *fwmatch_misses;
    struct stats_counter *reloads, *failed_reloads;
};

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);
/* Answers the calls with a ticket up to this one; `trouble` NULL: the opening was good. */
void app_answer_calls(struct app *app, uint64_t ticket, const char *trouble);

#endif
