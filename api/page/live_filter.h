/* live_filter: selects Server-Sent Events by a condition (counts/condition.h) on the line of a stream in their data.
 *
 * 1. An event passes unchanged if its data are a JSON object for which the condition is true. An event with a name, such
 *    as a gap, and an event without data also pass.
 * 2. The id of the last removed event passes without data, so that a client that connects again does not get events
 *    from before this id.
 * 3. If the condition takes too many steps, the event is removed, and the client once gets an event `undecided`. */
#ifndef MILLRACE_API_LIVE_FILTER_H
#define MILLRACE_API_LIVE_FILTER_H

#include "base/bytes.h"
#include "base/error.h"

struct live_filter;

/* Returns NULL with the error of condition_new. */
struct live_filter *live_filter_new(struct bytes condition, struct error *error);
void live_filter_free(struct live_filter **f);
/* Takes the next line of the events' text, without its LF. Appends the text of an event that passes to *out. */
void live_filter_take(struct live_filter *f, struct bytes line, struct buf *out);
/* Appends the id of the last removed event, unless an id that follows has passed. May be called between any two lines. */
void live_filter_pass_id(struct live_filter *f, struct buf *out);

#endif
