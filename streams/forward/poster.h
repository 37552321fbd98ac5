/* poster: a stream's lines to servers that know nothing of marks, each at least once.
 *
 * Lines go out in batches, or one by one where a destination's URL holds %s, which stands for the line, escaped. Several
 * destinations take turns, and one that fails is set aside (http_pool.h).
 *
 * 1. The cursor is the offset below which every line has been answered well (2xx). Whoever stores it now and then, and
 *    begins from the stored one, has every line delivered at least once; only what was answered after the last storing
 *    is delivered again.
 * 2. A batch is tried until it is answered well. Any answer but 2xx is trouble, and tried again, unless skip_refused and it
 *    blames the request (http_pool_is_poison): then the batch is halved, in its place, until one line is left; when every
 *    destination that is up has refused that, it is left out, logged with its offsets and the answer, and counted. When poison_limit were left out and none was taken since, it is taken for the
 *    destination's fault: the next is trouble as without skip_refused, until one is taken. Where the answer does not set the destination aside a second lies
 *    between two tries of a batch, whatever others do meanwhile.
 * 3. At most `parallel` requests are under way. With one, a single destination gets the lines in order.
 * 4. It is full with more batches than parallel: then the source waits for on_room. What one read of the source brings is
 *    taken whole. */
#ifndef MILLRACE_POSTER_H
#define MILLRACE_POSTER_H

#include "base/bytes.h"
#include "http/client/http_pool.h"

struct poster;

struct poster_config {
    struct event_base *base;
    struct http_pool *pool; /* borrowed; freed before the poster, which has batches under way with it */
    bool get;               /* GET instead of POST: the line goes into the URL */
    size_t batch_lines, batch_bytes;
    size_t parallel;
    usec_t gather; /* how long lines may wait for their batch to be full; 0: they go at once */
    bool skip_refused;
    uint64_t poison_limit; /* 0: none */
    /* Told of a line, with its LF, before it is left out; false: it cannot be yet, and is tried again a second later. May be
     * NULL. */
    bool (*on_refused)(struct bytes line, void *arg);
    const char *content_type; /* borrowed */
    /* Each answer that is 2xx; may be NULL. */
    void (*on_delivered)(const struct http_reply_view *reply, void *arg);
    void (*on_room)(void *arg);   /* it is not full any more */
    void (*on_change)(void *arg); /* trouble came, changed or went; the cursor moved */
    void *arg;
};

struct poster_numbers {
    uint64_t lines, batches;    /* answered well */
    uint64_t failures, refused; /* tries that failed; lines left out */
    bool refuses_all;           /* poison_limit is reached, and another was refused */
};

struct poster *poster_new(const struct poster_config *config, uint64_t cursor);
void poster_free(struct poster **p);
/* Whole lines that begin where the last ended; `end` is behind them. */
void poster_take(struct poster *p, struct bytes lines, uint64_t end);
/* Nothing stands between the last line and this offset (a gap of the source). */
void poster_pass_over(struct poster *p, uint64_t end);
bool poster_is_full(const struct poster *p);
/* No more requests begin; on_change tells when those under way have been answered. */
void poster_stop(struct poster *p);
bool poster_is_idle(const struct poster *p); /* no request is under way */
uint64_t poster_cursor(const struct poster *p);
const char *poster_trouble(const struct poster *p); /* NULL: none */
struct poster_numbers poster_numbers(const struct poster *p);

#endif
