/* rfc3339: reads and writes times as text, such as 2012-03-16T18:40:47.5+01:00. */
#ifndef MILLRACE_RFC3339_H
#define MILLRACE_RFC3339_H

#include "base/bytes.h"

/* Reads a time with its zone (Z or an offset). The date and the time may be separated by T, t or a space. Ignores a
 * fraction of a second. Converts a leap second to the previous second. Stores Unix seconds in *out. Returns false if
 * the text is malformed or the date does not exist. */
bool rfc3339_read(struct bytes text, int64_t *out);
/* The origin of a time's zone. A time without a zone is in the process's zone (TZ), whose clocks may show a time twice,
 * or skip it. */
enum rfc3339_zone {
    RFC3339_ZONED,
    RFC3339_NAIVE,
    RFC3339_TWICE,   /* the result is the first of both times */
    RFC3339_SKIPPED, /* clocks skip the time; the result is computed as if they did not */
};
/* Reads a time like rfc3339_read, and accepts the forms of databases and libraries: the zones +0000, +00, " UTC"
 * and " GMT", a blank before a zone, no seconds, and no zone. With `zone` NULL, a time without a zone is
 * malformed. */
bool rfc3339_read_lenient(struct bytes text, int64_t *out, enum rfc3339_zone *zone);
/* Reads a text by a form of strptime. A form without %z and %s has no zone. */
bool rfc3339_read_form(const char *text, const char *form, int64_t *out, enum rfc3339_zone *zone);
/* Returns false if strptime does not know a part of the form. */
bool rfc3339_form_is_valid(const char *form);
/* Makes this IANA zone the process's zone (TZ). False: there is no such zone. */
bool rfc3339_use_zone(const char *zone);
/* Reads n characters as a decimal number. Returns -1 unless all n characters are digits. */
int rfc3339_digits(const char *at, int n);

#define RFC3339_TEXT 24
/* Writes Unix seconds as "2012-03-16T17:40:47Z", or "-" if the text would not fit in `out`. Returns `out`. */
const char *rfc3339_write(int64_t seconds, char out[RFC3339_TEXT]);

#endif
