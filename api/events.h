/* events: converts a posted body with one event per line to the body of an /mput. Drops empty lines and each CR before an LF. */
#ifndef MILLRACE_EVENTS_H
#define MILLRACE_EVENTS_H

#include "base/bytes.h"

/* Appends the lines to *out and returns their number. */
size_t events_clean(struct bytes body, struct buf *out);

#endif
