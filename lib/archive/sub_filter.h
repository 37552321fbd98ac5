/* sub_filter: selects sub keys from records of subtotals. */
#ifndef MILLRACE_SUB_FILTER_H
#define MILLRACE_SUB_FILTER_H

#include "base/bytes.h"

/* Appends the record `line` with only the sub keys `subs`, and an LF. Appends nothing if the record has no such sub
 * key. The line may end with an LF. */
void sub_filter_append(
    struct bytes line, char separator, const struct bytes *subs, size_t n_subs, struct buf *out);

#endif
