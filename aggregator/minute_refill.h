/* minute_refill: fills the ring of minutes (minute_ring.h) after a start, from the lines that were counted before.
 *
 * For each stream, one after another, the refill asks pubsub for the first line that was published at or after a time,
 * and adds the lines from there up to the cursor at the start. The time is MINUTE_RING_MINUTES and MINUTE_RING_AHEAD
 * minutes before the start. Meanwhile the followers count the lines after the cursor.
 *
 * 1. The ring gets each line once: the refill adds the lines before the cursor, and the follower adds the others.
 * 2. The refill counts the lines with the present configuration.
 * 3. The ring covers the minutes of the refill once all streams are read. If retention has deleted lines of this time,
 *    a later time is used. If lines are missing in between, the ring covers only the minutes after the start. A stream
 *    that was not counted before the start needs no refill.
 * 4. While the aggregate is full, the refill reads no lines. If pubsub does not answer, the refill waits.
 *
 * Only the loop's thread may use the refill. */
#ifndef MILLRACE_MINUTE_REFILL_H
#define MILLRACE_MINUTE_REFILL_H

#include "aggregator/aggregate.h"
#include "aggregator/minute_ring.h"

struct event_base;
struct http_client;
struct minute_refill;

struct minute_refill_config {
    struct event_base *base;
    struct http_client *client; /* must be freed before the refill */
    struct aggregate *aggregate;
    struct minute_ring *ring;
    size_t n_streams;
    size_t max_line;
    int64_t now; /* trusted time, Unix seconds */
};
/* Call minute_refill_new before the first line is counted. */
struct minute_refill *minute_refill_new(const struct minute_refill_config *config);
void minute_refill_free(struct minute_refill **r);
void minute_refill_stop(struct minute_refill *r);
/* Takes the next step. Call minute_refill_tick several times per second. */
void minute_refill_tick(struct minute_refill *r);

#endif
