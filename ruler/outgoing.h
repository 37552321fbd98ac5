/* outgoing: sends the messages of one way to its queue, at least once, one request at a time.
 *
 * outgoing_work composes messages whenever no request is in progress and no wait lasts. Messages that the queue did not
 * store are composed again later. Alerts are matched with silences in parts, one part in each turn of the loop.
 * Meanwhile notices wait. */
#ifndef MILLRACE_OUTGOING_H
#define MILLRACE_OUTGOING_H

#include "ruler/ruler_server.h"

struct outgoing;

/* `pool` is that of simplequeue; freed after the outgoing. Returns NULL if the way has no queue. */
struct outgoing *outgoing_new(struct ruler *r, enum alert_way way, struct http_pool *pool);
/* Each of these may be called with NULL. */
void outgoing_free(struct outgoing **o);
void outgoing_work(struct outgoing *o);
/* Ends a request in progress as if the queue had not stored its messages, so that the book may be freed. */
void outgoing_cancel(struct outgoing *o);

#endif
