/* import_date: the dates of imported counts: a month, a day, an hour or a time.
 *
 *     2024-01  202401                        a month
 *     2024-01-31  20240131                   a day
 *     2024-01-31T13  2024-01-31 13  2024013113    an hour
 *     2024-01-31T13:05:00  2024-01-31 13:05  a time (rfc3339_read_lenient)
 *
 * A zone may follow a date with dashes. Other dates are in the process's zone. An hour or time that its clocks
 * skip is wrong, and of two times that they show alike, the first counts. A day whose midnight they skip begins at
 * the next shown time. */
#ifndef MILLRACE_IMPORT_DATE_H
#define MILLRACE_IMPORT_DATE_H

#include "base/bytes.h"

enum import_unit { IMPORT_TIME, IMPORT_HOUR, IMPORT_DAY, IMPORT_MONTH };

struct import_date {
    enum import_unit unit;
    int64_t from, to; /* Unix seconds; of a time both are equal */
    bool is_naive;    /* without a zone */
};

/* IMPORT_TIME: no such unit. */
enum import_unit import_unit_named(const char *name);
/* `unit` is that of the dates, or IMPORT_TIME for the unit of their form. Returns NULL, or the reason, a constant
 * text. */
const char *import_date_read(struct bytes text, enum import_unit unit, struct import_date *out);

#endif
