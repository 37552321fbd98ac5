/* coarse_rows: finds the rows of an answer whose bounds cut a day or a month that was imported whole (counts/coarse.h).
 *
 * The count of an imported day is stored in the first hour of the day. A row with only a part of the day includes
 * either the whole count or nothing. If the answer's time zone is not the time zone of the import, each bound within
 * the imported span cuts a unit. */
#ifndef MILLRACE_COARSE_ROWS_H
#define MILLRACE_COARSE_ROWS_H

#include "api/units.h"
#include "counts/coarse.h"

/* True if the counter has counts that were imported for whole days or months. */
bool coarse_rows_may_be(const struct coarse_counter *counter);
/* Returns the imported unit that the bounds of a row cut: "day" or "month". NULL: the bounds cut no unit. */
const char *coarse_rows_cut(
    const struct coarse_counter *counter, const struct calendar *calendar, int64_t from, int64_t to);

#endif
