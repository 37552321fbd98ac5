/* repeat: runs the compactor at scheduled times until SIGTERM or SIGINT.
 *
 * 1. Each run is a separate process, so its memory is freed at its end, and a stop can kill the run at any point
 *    (run.h). After a run fails or finds the archive locked, the schedule sets the time of the next try.
 * 2. The last complete run made the current generation, or is a later run of this process that found nothing new. A run
 *    that was due while no process ran begins at the start.
 * 3. sd_notify reports readiness and the time of the next run. */
#ifndef MILLRACE_REPEAT_H
#define MILLRACE_REPEAT_H

#include "compactor/schedule.h"

struct repeat_spec {
    struct schedule schedule;
    const char *archive;
    int (*run)(void *arg); /* performs one run; called in a new process; returns the exit status */
    void *arg;
};

/* Returns the exit status of the program. */
int repeat_runs(const struct repeat_spec *spec);

#endif
