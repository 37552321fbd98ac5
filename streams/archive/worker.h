/* worker: a thread beside the loop that does one slow thing at a time, such as a sync or the compression of a file.
 *
 * 1. worker_start only while it is idle; run(arg) is then called in the thread, once.
 * 2. done(context) is called from the thread when run has returned, and is to wake the loop, which finds
 *    worker_is_idle true from then on. What run wrote is seen by whoever found it idle. */
#ifndef MILLRACE_WORKER_H
#define MILLRACE_WORKER_H

#include <stdbool.h>

struct worker;

struct worker *worker_new(void (*done)(void *context), void *context);
/* Waits for what runs. */
void worker_free(struct worker **w);
void worker_start(struct worker *w, void (*run)(void *arg), void *arg);
bool worker_is_idle(struct worker *w);
void worker_wait(struct worker *w); /* until it is idle; blocks */

#endif
