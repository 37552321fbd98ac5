/* status_problems: adds the problems of a look (pipeline_status.h), and writes the times and errors in their texts. */
#ifndef MILLRACE_STATUS_PROBLEMS_H
#define MILLRACE_STATUS_PROBLEMS_H

#include "tools/run/pipeline_status.h"

/* Adds a problem of the daemon s->daemon. `remedy` is copied; "": no remedy. */
void status_add_problem(struct pipeline_status *s, enum status_level level, const char *remedy,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
#define STATUS_AGE_TEXT 32
/* Writes an age in words, such as "3 minutes". A negative age counts as 0. */
void status_format_age(char out[STATUS_AGE_TEXT], int64_t seconds);
/* Returns "last error 3 minutes ago: TEXT". The caller frees the text. */
char *status_last_error(const struct pipeline_daemon *p);

#endif
