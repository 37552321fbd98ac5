/* progress: a line on the terminal that shows how much of a long task is done, its speed and the time left. */
#ifndef MILLRACE_PROGRESS_H
#define MILLRACE_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;       /* standard error is a terminal and quiet is false */
    const char *unit; /* name of the items, such as "events" */
    const char *step;
    usec_t began, drawn_at;
    uint64_t resumed; /* amount done before this run, not counted in the speed */
};

void progress_begin(struct progress *p, const char *unit, bool quiet, usec_t now);
/* Shows `done` of `all`, in any unit. `all` is 0 if the total is unknown. `step` may be NULL; a new step restarts the
 * measurement of the speed. progress_show draws at most ten times per second, but always for a new step and if `last`
 * is true. If `last` is true, progress_show also ends the line. */
void progress_show(
    struct progress *p, const char *step, uint64_t done, uint64_t all, uint64_t items, bool last, usec_t now);
/* Ends an open progress line. Call progress_leave before any other output to standard error. */
void progress_leave(void);
/* Erases an open progress line. */
void progress_erase(void);

#endif
