/* events: turns a posted body of events, one a line, into the body of an /mput: drops empty lines and a CR before an LF. */
#ifndef MILLRACE_EVENTS_H
#define MILLRACE_EVENTS_H

#include "base/bytes.h"

/* Appends the lines to *out and returns their number. */
size_t events_clean(struct bytes body, struct buf *out);

#endif
