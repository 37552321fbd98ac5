/* day_counts: adds up the counts of one UTC day in a total's value ("c413:2 c41l:5 ...").
 *
 * Only the well-formed counts at the beginning of the value are read. Reading stops before the first count
 * that is malformed, of another day, or of an hour out of bounds. The caller must check this count. */
#ifndef MILLRACE_DAY_COUNTS_H
#define MILLRACE_DAY_COUNTS_H

#include "counts/records.h"

struct day_counts {
    char day[HOUR_TEXT_MAX]; /* the hours' texts without their last character */
    size_t len;              /* length of `day`: 3, or 4 from the year 2032 on */
    char first, last; /* last characters of the first and the last hour to read: '0' to '9', 'a' to 'n' */
};

/* Removes counts from the beginning of *value and adds them to *sum. Returns the last character of the latest
 * removed hour, or NUL if no count was removed. */
char day_counts_take(const struct day_counts *d, struct bytes *value, int64_t *sum);

#endif
