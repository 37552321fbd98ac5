/* app: the state that is shared by the aggregator's wiring and its HTTP endpoints. Only the loop's thread uses this
 * state. */
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
    struct counted_since
        since; /* time from which each counter counts; changes when the archive is replaced */
    struct stream_names streams;
    struct aggregate *aggregate; /* NULL until recovery is complete; so are the members below */
    struct count_watermark *watermark;
    struct minute_ring *minutes; /* set from the start; NULL: minutes_memory is 0 */
    struct follower *followers[COUNT_STREAMS_MAX];
    struct line_watch *watch;
    bool answers; /* every stream has caught up at least once since the start */
    /* requests that wait for a seal, and requests that wait for a clear */
    struct slice_waiter *seal_waiters, *clear_waiters;
    /* put-back request whose step is not committed yet; NULL: no such request */
    struct put_back_waiter *put_back_waiter;
    struct http_reads reads;
    size_t max_answer;
    bool is_damaged;  /* true: /health names a damaged slice (slice_scrub.h) */
    usec_t began;     /* trusted time at which counting began */
    char health[512]; /* latest reason that /health shows; "": the aggregator is ready */
};

/* Continues each seal, clear or put back that requests wait for. Answers the requests whose operation is complete or
 * refused. Call app_answer_waiters after aggregate_poll and before aggregate_tick. */
void app_answer_waiters(struct app *app);

extern const struct http_route app_routes[];
void app_extra_stats(void *ctx, bool json, struct buf *out);

/* Brings the window of the line watch up to the present moment. Call app_watch_lines before the window is shown. */
static inline void app_watch_lines(struct app *app)
{
    struct aggregate_numbers n;
    aggregate_numbers(app->aggregate, &n);
    line_watch_tick(app->watch, clock_monotonic(), &n.counted);
}

#endif
