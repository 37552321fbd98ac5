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
    char *stream_names; /* what streams point into */
    bool answers;       /* every stream was caught up: once true, it stays */
    size_t max_answer;
};

/* By wall clock seconds; 0 until known. */
int64_t app_complete_until(struct app *app);
uint64_t app_lag(const struct app *app, size_t stream);

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);

#endif
