/* poster: sends a stream's lines to HTTP servers that keep no marks, each line at least once.
 *
 * Lines are sent in batches. If a destination's URL contains %s, which stands for the escaped line, each request has one line. Several
 * destinations take turns; a failing one is taken down for a while (http_pool.h).
 *
 * 1. Every line below the cursor was answered with 2xx. A caller that stores the cursor, and continues from the stored one after a
 *    crash, delivers every line at least once. Only lines answered after the last store are delivered again.
 * 2. A batch is retried until it is answered with 2xx. If the answer does not take the destination down, the next attempt follows
 *    after a second.
 * 3. With skip_refused, an answer that blames the request (http_pool_is_poison) halves the batch, until one line is left. Once
 *    every destination that is up has refused that line, the poster leaves it out, logs its offsets and counts it. After
 *    poison_limit such lines in a row the poster assumes that the destination is at fault: it retries until a line is accepted.
 * 4. At most `parallel` requests are under way. With one, a single destination gets the lines in order.
 * 5. With more batches than `parallel` the poster is full, and the source pauses until on_room. One read of the source is always
 *    taken whole. */
#ifndef MILLRACE_POSTER_H
#define MILLRACE_POSTER_H

#include "base/bytes.h"
#include "http/client/http_pool.h"

struct poster;

struct poster_config {
    struct event_base *base;
    struct http_pool *pool; /* borrowed; freed before the poster, because its requests refer to batches */
    bool get;               /* GET instead of POST: the line goes into the URL */
    size_t batch_lines, batch_bytes;
    size_t parallel;
    usec_t gather; /* the longest time that a line waits for a full batch */
    bool skip_refused;
    uint64_t poison_limit; /* 0: unlimited */
    /* Called with a line and its LF before it is left out. False: retry the line a second later instead. May be NULL. */
    bool (*on_refused)(struct bytes line, void *arg);
    const char *content_type; /* borrowed */
    /* Called for each 2xx answer. May be NULL. */
    void (*on_delivered)(const struct http_reply_view *reply, void *arg);
    void (*on_room)(void *arg);   /* the poster is no longer full */
    void (*on_change)(void *arg); /* the trouble or the cursor has changed */
    void *arg;
};

struct poster_numbers {
    uint64_t lines, batches;    /* answered with 2xx */
    uint64_t failures, refused; /* failed attempts; lines left out */
    bool refuses_all;           /* poison_limit is reached, and another line was refused */
};

struct poster *poster_new(const struct poster_config *config, uint64_t cursor);
void poster_free(struct poster **p);
/* Takes whole lines that follow the last ones. `end` is the stream's offset behind them. */
void poster_take(struct poster *p, struct bytes lines, uint64_t end);
/* Moves past a gap of the source, which ends at this offset. */
void poster_pass_over(struct poster *p, uint64_t end);
bool poster_is_full(const struct poster *p);
/* Starts no more requests. on_change is called when the requests under way are answered. */
void poster_stop(struct poster *p);
bool poster_is_idle(const struct poster *p); /* no request is under way */
uint64_t poster_cursor(const struct poster *p);
const char *poster_trouble(const struct poster *p); /* NULL: none */
struct poster_numbers poster_numbers(const struct poster *p);

#endif
