/* outgoing: puts lines into one queue, at least once, one request at a time.
 *
 * outgoing_work asks `compose` for lines whenever no request is in progress and no wait lasts, and `on_end` gets the outcome.
 * Lines that the queue did not store are composed again later. */
#ifndef MILLRACE_OUTGOING_H
#define MILLRACE_OUTGOING_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/stats.h"

struct event_base;
struct http_pool;
struct outgoing;

struct outgoing_config {
    struct event_base *base;
    struct http_pool *pool; /* simplequeue; freed after the outgoing */
    const char *queue;      /* borrowed */
    usec_t backoff_min, backoff_max;
    struct stats *stats;
    struct bytes (*compose)(void *arg); /* returns lines, valid until on_end; empty: none are due */
    void (*on_end)(bool is_stored, const char *trouble, void *arg);
    void *arg;
};

struct outgoing *outgoing_new(const struct outgoing_config *config);
void outgoing_free(struct outgoing **o); /* calls on_end if a request is in progress */
void outgoing_work(struct outgoing *o);
/* Ends a request in progress as if the queue had not stored its lines. */
void outgoing_cancel(struct outgoing *o);
bool outgoing_is_busy(const struct outgoing *o);

#endif
