/* worker: a thread for slow work, such as a sync or a compression, one job at a time.
 *
 * 1. worker_start is called only while the worker is idle. The thread calls run(arg) once.
 * 2. After run has returned, the thread calls done(context) to wake the loop. From then on worker_is_idle returns true, and its caller sees
 *    everything that run wrote. */
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
