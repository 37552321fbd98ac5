/* worker: a thread that does one slow thing at a time beside the loop, such as a sync or a compression.
 *
 * 1. Call worker_start only while it is idle. It calls run(arg) once, in the thread.
 * 2. It calls done(context) from the thread after run has returned, to wake the loop. From then on worker_is_idle is true, and
 *    what run wrote is visible to a caller that has seen it true. */
#ifndef MILLRACE_WORKER_H
#define MILLRACE_WORKER_H

#include <stdbool.h>

struct worker;

struct worker *worker_new(void (*done)(void *context), void *context);
/* Waits for run to return. */
void worker_free(struct worker **w);
void worker_start(struct worker *w, void (*run)(void *arg), void *arg);
bool worker_is_idle(struct worker *w);
void worker_wait(struct worker *w); /* until it is idle; blocks */

#endif
