/* coarse_rows: finds the rows of an answer whose bounds cut a day or a month that was imported whole (counts/coarse.h).
 *
 * The count of such a day stands in the day's first hour, so a row that has only a part of the day has all of its count or none. In another
 * zone than that of the import, each bound within the span cuts a unit. */
#ifndef MILLRACE_COARSE_ROWS_H
#define MILLRACE_COARSE_ROWS_H

#include "api/units.h"
#include "counts/coarse.h"

/* True if the counter has any such count. */
bool coarse_rows_may_be(const struct coarse_counter *counter);
/* The unit that the bounds of a row cut, "day" or "month". NULL: none. */
const char *coarse_rows_cut(
    const struct coarse_counter *counter, const struct calendar *calendar, int64_t from, int64_t to);

#endif
