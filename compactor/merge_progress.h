/* progress: one line on a terminal that says how far a run is and when it will be done. */
#ifndef MILLRACE_PROGRESS_H
#define MILLRACE_PROGRESS_H

#include "base/clock.h"
#include "compactor/run.h"

struct progress {
    bool on;      /* standard error is a terminal */
    usec_t began; /* the merge */
    usec_t shown; /* the last line */
    const char *step;
};

void progress_begin(struct progress *p);
/* As run_spec's on_progress; arg is the struct progress. */
void progress_show(const struct run_progress *at, void *arg);
/* Wipes the line, so that what is printed next stands on a clean one. */
void progress_end(struct progress *p);

/* The line for `done` of `total` bytes after `elapsed`: "merge  43%  120 MB/s  0:12 left". Appends. */
void progress_line(const struct run_progress *at, usec_t elapsed, struct buf *out);

#endif
