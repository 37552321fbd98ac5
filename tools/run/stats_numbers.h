/* stats_numbers: numbers in a daemon's reply to /stats?format=json. */
#ifndef MILLRACE_STATS_NUMBERS_H
#define MILLRACE_STATS_NUMBERS_H

#include "json/json_fields.h"

/* Returns the number at a JSON pointer. -1: there is none. `stats` may be NULL. */
double stats_number(const struct json_doc *stats, const char *pointer);
/* Returns the sum or the maximum of a metric's values whose labels contain a text. `member` is a pointer within a value, or
 * "". -1: no such value. */
double stats_metric(
    const struct json_doc *stats, const char *name, const char *label, const char *member, bool sum);

#endif
