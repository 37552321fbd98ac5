/* import_date: the dates of imported counts: a month, a day, an hour or a time.
 *
 *     2024-01  202401                        a month
 *     2024-01-31  20240131                   a day
 *     2024-01-31T13  2024-01-31 13  2024013113    an hour
 *     2024-01-31T13:05:00  2024-01-31 13:05  a time (rfc3339_read_lenient)
 *
 * A zone may follow a date with dashes. Other dates are in the process's zone. An hour or time that the clocks of the
 * zone skip is wrong. Of two equal times after clocks are set back, the first counts. A day without midnight begins
 * at its first shown time. */
#ifndef MILLRACE_IMPORT_DATE_H
#define MILLRACE_IMPORT_DATE_H

#include "base/bytes.h"

enum import_unit { IMPORT_TIME, IMPORT_HOUR, IMPORT_DAY, IMPORT_MONTH };

struct import_date {
    enum import_unit unit;
    int64_t from, to; /* Unix seconds; equal for a time */
    bool is_naive;    /* the text has no zone */
};

/* Returns the unit with this name, or IMPORT_TIME for an unknown name. */
enum import_unit import_unit_named(const char *name);
/* Reads a date of the unit `unit`; IMPORT_TIME: the form of the text determines the unit. Returns NULL, or a constant
 * text with the reason why the text is wrong. */
const char *import_date_read(struct bytes text, enum import_unit unit, struct import_date *out);

#endif
