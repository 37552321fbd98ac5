/* opening: aggregate_open in a thread of its own. It takes as long as the log that a crash left and the chain of slices are
 * long, and meanwhile the daemon answers that it is not ready.
 */
#ifndef MILLRACE_OPENING_H
#define MILLRACE_OPENING_H

#include "aggregator/aggregate.h"

struct opening;

/* What config points to must stay until opening_finish. `done` is called in the opening's thread when it is over. NULL when
 * no thread can be had. `wall` is the wall clock. */
struct opening *opening_start(
    const struct aggregate_config *config, usec_t wall, void (*done)(void *arg), void *arg);
bool opening_is_over(const struct opening *o);
/* Waits for the end of it; then as aggregate_open. */
enum slice_result opening_finish(struct opening **o, struct aggregate **out, char error[SLICE_ERROR_TEXT]);

#endif
