/* progress: one line on a terminal's standard error that says how far long work has got, how fast, and how long yet. */
#ifndef MILLRACE_PROGRESS_H
#define MILLRACE_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown; /* standard error is a terminal and nobody asked for quiet */
    usec_t began, last;
    uint64_t before; /* done already when it began: it tells nothing of the speed */
};

void progress_begin(struct progress *p, bool quiet, usec_t now);
/* done and all in bytes; all 0: unknown. Draws at most ten times a second, always when `last`. */
void progress_show(struct progress *p, uint64_t done, uint64_t all, uint64_t events, bool last, usec_t now);
/* Before anything else is said on standard error: a line that is drawn there is ended. */
void progress_leave(void);

#endif
