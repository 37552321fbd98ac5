/* sql_period: the text of a period in SQL.
 *
 *     quarter  2026-11-30 13:15:00      a quarter hour, as SQLite's datetime() writes
 *     hour     2026-11-30 13:00:00      likewise
 *     day      2026-11-30               as SQLite's date() writes
 *     month    2026-11-01               the month's first day
 *
 * All texts are UTC. The order of the texts is the order of the periods, and a day or a month sorts before its hours. */
#ifndef MILLRACE_SQL_PERIOD_H
#define MILLRACE_SQL_PERIOD_H

#include "counts/records.h"

#define SQL_PERIOD_TEXT 20

/* Writes the text of the period that begins at `start`, with a NUL. Returns the length. With PERIOD_QUARTER, `start` may be any
 * second. */
size_t sql_period_write(enum period_unit unit, int64_t start, char out[SQL_PERIOD_TEXT]);

/* The first second of the period that contains `time`. */
int64_t sql_period_floor(enum period_unit unit, int64_t time);

/* Returns the start of the first quarter hour whose text is not before `text`, which may be any text. The result
 * divides the periods of each unit: a period whose text is before `text` does not begin later, and any other period
 * does not begin earlier. */
int64_t sql_period_search(struct bytes text);

#endif
