/* event_body: converts the body of a post into events in the form that the queue stores: one JSON object per line.
 *
 * 1. A text that is not a JSON object is refused alone, by its line or its place in the array. An array whose end is not
 *    found is refused as a whole.
 * 2. An event keeps its bytes, except CRs at its end, line ends between members (now spaces), and the time of
 *    invariant 3.
 * 3. With `[input] time_default = now`, an event without the time field gets the current time as its first member.
 *
 * One thread at a time. */
#ifndef MILLRACE_EVENT_BODY_H
#define MILLRACE_EVENT_BODY_H

#include "base/clock.h"
#include "base/url.h"
#include "counts/counters.h"

#define EVENT_REPEAT_MAX 1000 /* events of one event_body_incr */
#define EVENT_REFUSALS_LISTED 1000
#define EVENTS_MAX 262144                 /* of a body, as of a put to the queue */
#define EVENT_BYTES_MAX ((size_t)4 << 20) /* a longer event is refused unread */

struct event_body;

/* The refused events of a body. The caller zeroes it, and frees `list`. */
struct event_refusals {
    bool all_or_none; /* of the caller: the first refused event refuses the body */
    bool too_many;    /* the body is refused, because it has more than EVENTS_MAX events */
    size_t n;
    struct buf list;    /* of the first, as elements of JSON: {"line":3,"reason":"..."} */
    struct error first; /* the first, or why the whole body is refused */
};

struct event_body *event_body_new(const struct counters *c); /* c must outlive it */
void event_body_free(struct event_body **e);

/* Each function appends lines to `out`, and returns 0, or -1 with the error. `now`: wall clock. */
/* The body is objects, one a line, or one array of objects. Empty lines are ignored. Adds to *n the number of events. -1 with
 * refused->first: the body is refused. */
int event_body_read(struct event_body *e, struct bytes body, usec_t now, struct buf *out, size_t *n,
    struct event_refusals *refused);
/* One event whose members are the parameters, as strings. Without a parameter for the time field, the event gets the current
 * time. A number in that parameter stays a number. */
int event_body_from_query(
    struct event_body *e, const struct url_query *query, usec_t now, struct buf *out, struct error *error);
/* `n` events that count under the key of this counter, and under `sub` if the counter is a subtotal. Other counters count the
 * events as `None`. Refuses a counter whose key is not a single field. */
int event_body_incr(struct event_body *e, const struct counter *counter, struct bytes key, struct bytes sub,
    size_t n, usec_t now, struct buf *out, struct error *error);

#endif
