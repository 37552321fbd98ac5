/* progress: one line on a terminal's standard error: how far long work has come, how fast, and the time left. */
#ifndef MILLRACE_PROGRESS_H
#define MILLRACE_PROGRESS_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;       /* standard error is a terminal, and the user did not ask for quiet */
    const char *unit; /* of the items: "events" */
    const char *step;
    usec_t began, drawn_at;
    uint64_t resumed; /* done before the work began; not counted in the speed */
};

void progress_begin(struct progress *p, const char *unit, bool quiet, usec_t now);
/* `done` of `all` in any measure; all 0: unknown. The clock restarts when `step` (may be NULL) changes. Draws at most ten times a
 * second, and always for a new step or when `last`, which ends the line. */
void progress_show(
    struct progress *p, const char *step, uint64_t done, uint64_t all, uint64_t items, bool last, usec_t now);
/* Call before any other output to standard error: ends a line that is still open. */
void progress_leave(void);
/* Erases a line that is still open. */
void progress_erase(void);

#endif
