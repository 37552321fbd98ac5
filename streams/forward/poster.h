/* poster: sends a stream's lines to HTTP servers that keep no marks, each line at least once.
 *
 * Lines go out in batches, or one by one if a destination's URL contains %s, which stands for the escaped line. Several
 * destinations take turns; one that fails is set aside (http_pool.h).
 *
 * 1. The cursor is the offset below which every line was answered with 2xx. A caller that stores it, and begins at the stored one,
 *    delivers every line at least once: only lines answered after the last store are delivered again.
 * 2. A batch is retried until it is answered with 2xx. While an answer does not set the destination aside, two attempts
 *    are a second apart.
 * 3. With skip_refused, an answer that blames the request (http_pool_is_poison) halves the batch instead, in place, until one line is
 *    left. Once every destination that is up has refused that line, it is left out, logged with its offsets, and counted.
 *    After poison_limit such lines in a row the destination is assumed to be at fault, and lines are retried until one is accepted.
 * 4. At most `parallel` requests are under way. With one, a single destination gets the lines in order.
 * 5. It is full with more batches than `parallel`; the source then waits for on_room. A single read of the source is always taken
 *    whole. */
#ifndef MILLRACE_POSTER_H
#define MILLRACE_POSTER_H

#include "base/bytes.h"
#include "http/client/http_pool.h"

struct poster;

struct poster_config {
    struct event_base *base;
    struct http_pool *pool; /* borrowed; free it before the poster: its requests refer to batches */
    bool get;               /* GET instead of POST: the line goes into the URL */
    size_t batch_lines, batch_bytes;
    size_t parallel;
    usec_t gather; /* how long lines may wait for a full batch; 0: not at all */
    bool skip_refused;
    uint64_t poison_limit; /* 0: none */
    /* Called with a line and its LF before it is left out. False: keep it, and retry a second later. May be NULL. */
    bool (*on_refused)(struct bytes line, void *arg);
    const char *content_type; /* borrowed */
    /* Called for each 2xx answer. May be NULL. */
    void (*on_delivered)(const struct http_reply_view *reply, void *arg);
    void (*on_room)(void *arg);   /* no longer full */
    void (*on_change)(void *arg); /* the trouble or the cursor changed */
    void *arg;
};

struct poster_numbers {
    uint64_t lines, batches;    /* answered with 2xx */
    uint64_t failures, refused; /* failed attempts; lines left out */
    bool refuses_all;           /* poison_limit is reached, and another line was refused */
};

struct poster *poster_new(const struct poster_config *config, uint64_t cursor);
void poster_free(struct poster **p);
/* Whole lines that follow the last ones; `end` is the offset behind them. */
void poster_take(struct poster *p, struct bytes lines, uint64_t end);
/* There are no lines between the last one and this offset: a gap of the source. */
void poster_pass_over(struct poster *p, uint64_t end);
bool poster_is_full(const struct poster *p);
/* Starts no more requests. on_change is called when those under way are answered. */
void poster_stop(struct poster *p);
bool poster_is_idle(const struct poster *p); /* no request is under way */
uint64_t poster_cursor(const struct poster *p);
const char *poster_trouble(const struct poster *p); /* NULL: none */
struct poster_numbers poster_numbers(const struct poster *p);

#endif
