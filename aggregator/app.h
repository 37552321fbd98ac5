/* app: what the aggregator's wiring and its HTTP face share. */
#ifndef MILLRACE_AGGREGATOR_APP_H
#define MILLRACE_AGGREGATOR_APP_H

#include "aggregate.h"
#include "completeness.h"
#include "daemon.h"
#include "follower.h"

#define APP_MAX_STREAMS 64

struct app {
    struct daemon *daemon;
    struct counters *counters;
    struct aggregate *aggregate;
    struct completeness *completeness;
    size_t n_streams;
    struct follower *followers[APP_MAX_STREAMS];
    const char *streams[APP_MAX_STREAMS];
    char *stream_names;               /* what streams point into */
    bool answers;                     /* every stream was caught up: once true, it stays */
    struct seal_waiter *seal_waiters; /* requests that wait for the open slice to be sealed */
    size_t max_answer;
};

/* By wall clock seconds; 0 until known. */
int64_t app_complete_until(struct app *app);
uint64_t app_lag(const struct app *app, size_t stream);

/* Seals the open slice if somebody asked for it and the writer is idle, and answers them. Call it whenever the writer
 * may have become idle. */
void app_try_seal(struct app *app);

extern const struct http_route app_routes[];
http_handler http_seal, http_clear, http_slices;
void app_extra_stats(void *ctx, bool json, struct buf *out);

#endif
