/* recovery: aggregate_open in a thread of its own.
 *
 * Recovery reads the log left by a crash and checks the chain of slices. Meanwhile the daemon answers that it is not ready.
 */
#ifndef MILLRACE_OPENING_H
#define MILLRACE_OPENING_H

#include "aggregator/aggregate.h"

struct opening;

/* Borrows all that config points to until opening_finish. The new thread calls `done` at its end. `wall` is the wall
 * clock. Returns NULL if the thread cannot be started. */
struct opening *opening_start(
    const struct aggregate_config *config, usec_t wall, void (*done)(void *arg), void *arg);
bool opening_is_over(const struct opening *o);
/* Waits for the thread and returns the result of aggregate_open. */
enum slice_result opening_finish(struct opening **o, struct aggregate **out, char error[SLICE_ERROR_TEXT]);

#endif
