/* sub_filter: takes some sub keys from records of subtotals. */
#ifndef MILLRACE_SUB_FILTER_H
#define MILLRACE_SUB_FILTER_H

#include "base/bytes.h"

/* Appends the record of this line with only these sub keys, and an LF. Appends nothing if the record has none of them. The line may end with
 * an LF. */
void sub_filter_append(
    struct bytes line, char separator, const struct bytes *subs, size_t n_subs, struct buf *out);

#endif
