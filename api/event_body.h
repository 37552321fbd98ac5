/* event_body: converts the body of a post into events in the form that the queue stores: one JSON object per line.
 *
 * 1. If a line or an element of the array is not a JSON object, only this event is refused, and reported by its line or
 *    index. An array without an end is refused as a whole.
 * 2. The bytes of an event do not change, with these exceptions: CRs at the end are removed, line ends between members
 *    become spaces, invariant 3 adds a time, and a door adds members (enrich.h).
 * 3. With `[input] time_default = now`, an event without the time field gets the current time as its first member.
 *
 * One thread at a time. */
#ifndef MILLRACE_EVENT_BODY_H
#define MILLRACE_EVENT_BODY_H

#include "base/clock.h"
#include "base/url.h"
#include "counts/counters.h"
#include "enrich/enrich.h"

#define EVENT_REPEAT_MAX 1000 /* maximum number of events of one event_body_incr */
#define EVENT_REFUSALS_LISTED 1000
#define EVENTS_MAX 262144                 /* maximum number of events in a body, as in a put to the queue */
#define EVENT_BYTES_MAX ((size_t)4 << 20) /* maximum size of an event; longer events are not parsed */

struct event_body;

/* The refused events of a body. The caller zeroes the struct, and frees `list`. */
struct event_refusals {
    bool all_or_none; /* set by the caller: one refused event refuses the body */
    bool too_many;    /* the body is refused, because it has more than EVENTS_MAX events */
    size_t n;
    struct buf list;    /* first refused events, as JSON elements: {"line":3,"reason":"..."} */
    struct error first; /* error of the first refused event, or of the body */
};

struct event_body *event_body_new(const struct counters *c); /* `c` must outlive the result */
void event_body_free(struct event_body **e);
/* From now on, event_body_read and event_body_from_query add the members of the door's present client. `door` must outlive
 * `e`. */
void event_body_use_door(struct event_body *e, struct enrich *door);

/* The following functions append lines to `out`, and return 0, or -1 with the error. `now`: wall clock. */
/* Reads a body: one object per line, or one array of objects. Empty lines are ignored. Adds the number of events to
 * *n. Returns -1 with refused->first if the body is refused. */
int event_body_read(struct event_body *e, struct bytes body, usec_t now, struct buf *out, size_t *n,
    struct event_refusals *refused);
/* Makes one event, whose members are the parameters, as strings. A number in the time field's parameter stays a
 * number. Without this parameter, the event gets the current time. */
int event_body_from_query(
    struct event_body *e, const struct url_query *query, usec_t now, struct buf *out, struct error *error);
/* Makes `n` events that count under `key` of `counter`, and under `sub` if `counter` is a subtotal. Other counters
 * count these events as `None`. A door adds nothing, because the events are not of this client. Refuses a counter whose key is not a single field. */
int event_body_incr(struct event_body *e, const struct counter *counter, struct bytes key, struct bytes sub,
    size_t n, usec_t now, struct buf *out, struct error *error);

#endif
