/* recovery: aggregate_open in a thread of its own.
 *
 * It takes as long as the log of a crash and the chain of slices require. Meanwhile the daemon answers that it is not ready.
 */
#ifndef MILLRACE_OPENING_H
#define MILLRACE_OPENING_H

#include "aggregator/aggregate.h"

struct opening;

/* Everything that config points to must stay until opening_finish. `done` is called in the new thread at its end. `wall` is
 * the wall clock. NULL: the thread cannot be started. */
struct opening *opening_start(
    const struct aggregate_config *config, usec_t wall, void (*done)(void *arg), void *arg);
bool opening_is_over(const struct opening *o);
/* Waits for the thread, then returns as aggregate_open. */
enum slice_result opening_finish(struct opening **o, struct aggregate **out, char error[SLICE_ERROR_TEXT]);

#endif
