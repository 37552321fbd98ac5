/* control: the four calls of a run (run.h) over HTTP, to the aggregator and every sortdb (docs/guide/protocol.md).
 *
 * Calls block while the daemon is alive. A daemon that is down, not ready or full is COMPACT_TRY_AGAIN. A 4xx is COMPACT_REFUSED, with the daemon's message. */
#ifndef MILLRACE_CONTROL_H
#define MILLRACE_CONTROL_H

#include "base/clock.h"
#include "compactor/run.h"

struct control;

struct control_config {
    /* "none": the run merges no slices. "stopped": the run merges the slices that an aggregator has sealed before it stopped;
     * the caller holds the lock of its directory. */
    const char *aggregator_url;
    const char *slices;      /* only for "stopped" */
    const char *sortdb_urls; /* separated by spaces or commas; "none": no sortdb serves the archive */
    const char *auth_token;  /* NULL: none */
    usec_t reply_timeout;    /* after this time without a reply, a daemon that answers /ping is asked again */
};

/* NULL with the error if an address is invalid. Copies everything. */
struct control *control_new(const struct control_config *config, struct error *error);
void control_free(struct control **c);
/* Valid until the control is freed. */
const struct run_control *control_calls(struct control *c);

#endif
