/* app: the state that the aggregator's wiring and its HTTP endpoints share. The loop's thread only. */
#ifndef MILLRACE_AGGREGATOR_APP_H
#define MILLRACE_AGGREGATOR_APP_H

#include "aggregator/aggregate.h"
#include "daemon/daemon.h"
#include "aggregator/follower.h"
#include "aggregator/line_watch.h"
#include "aggregator/http_reads.h"
#include "counts/counted_since.h"
#include "aggregator/count_watermark.h"
#include "aggregator/aggregator_settings.h"

struct app {
    struct daemon *daemon;
    struct counters *counters;
    struct counted_since since; /* of the counters; a replaced archive changes it */
    struct stream_names streams;
    struct aggregate *aggregate; /* NULL until recovery is complete, as are the members below */
    struct count_watermark *watermark;
    struct follower *followers[COUNT_STREAMS_MAX];
    struct line_watch *watch;
    bool answers;                                      /* every stream has caught up at least once */
    struct slice_waiter *seal_waiters, *clear_waiters; /* requests that wait for a seal or a clear */
    struct put_back_waiter *put_back_waiter; /* the put-back request whose step is not committed yet */
    struct http_reads reads;
    size_t max_answer;
    bool is_damaged;  /* /health names a damaged slice (slice_scrub.h) */
    usec_t began;     /* trusted time at which counting began */
    char health[512]; /* the latest reason reported to /health; "": ready */
};

/* Requests may wait for a seal, a clear or a put back. Continues these operations, and answers the requests whose
 * operation is complete or refused. Call it after aggregate_poll and before aggregate_tick. */
void app_answer_waiters(struct app *app);

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);

/* Brings the window up to this moment, before it is shown. */
static inline void app_watch_lines(struct app *app)
{
    struct aggregate_numbers n;
    aggregate_numbers(app->aggregate, &n);
    line_watch_tick(app->watch, clock_monotonic(), &n.counted);
}

#endif
