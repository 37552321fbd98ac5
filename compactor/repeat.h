/* repeat: runs the compactor by a schedule until SIGTERM or SIGINT.
 *
 * 1. Each run is a separate process: its memory is freed at its end, and a stop can kill it at any point (run.h). A
 *    run that fails, or that finds the archive locked, is repeated by the schedule.
 * 2. The time of the last complete run is the time of the current generation, or of a later run of this process that
 *    found nothing new. So a start after a missed time runs at once.
 * 3. Readiness and the next time go to sd_notify. */
#ifndef MILLRACE_REPEAT_H
#define MILLRACE_REPEAT_H

#include "compactor/schedule.h"

struct repeat_spec {
    struct schedule schedule;
    const char *archive;
    int (*run)(void *arg); /* one run; called in a new process. Returns its exit status */
    void *arg;
};

/* Returns the exit status. */
int repeat_runs(const struct repeat_spec *spec);

#endif
