/* events: a posted body of events, one a line, made into what the queue takes: no empty lines, LF between, one CR
 * before an LF dropped. */
#ifndef MILLRACE_EVENTS_H
#define MILLRACE_EVENTS_H

#include "base/bytes.h"

/* Appends the lines to *out and returns how many there are. */
size_t events_clean(struct bytes body, struct buf *out);

#endif
