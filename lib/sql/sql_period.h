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

/* The name of a unit: "quarter", "hour", "day" or "month". */
const char *sql_unit_name(enum period_unit unit);
/* Returns false if no unit has this name. */
bool sql_unit_read(struct bytes name, enum period_unit *unit);

/* Writes the text of the period that begins at `start`, with a NUL. Returns the length. */
size_t sql_period_write(enum period_unit unit, int64_t start, char out[SQL_PERIOD_TEXT]);

/* The first second of the period that contains `time`. */
int64_t sql_period_floor(enum period_unit unit, int64_t time);

/* Finds a span of time for a comparison with `text`, which may be any text. A period whose text sorts before `text`, or equals
 * it, begins before *end. A period whose text sorts after `text`, or equals it, begins at or after *from. Returns false if
 * `text` does not begin with a year from 2000 to 2159; nothing is then known. */
bool sql_period_span(struct bytes text, int64_t *from, int64_t *end);

#endif
