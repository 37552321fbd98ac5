/* control: implements the calls of struct run_control (run.h) as HTTP requests to the aggregator and every sortdb
 * (docs/guide/protocol.md).
 *
 * A call waits for the reply as long as the daemon is alive. If the daemon recovers after its start, a call waits up to
 * reply_timeout. A call returns COMPACT_TRY_AGAIN if the daemon is down, not ready or full. A reply with 4xx is COMPACT_REFUSED, with the daemon's message. */
#ifndef MILLRACE_CONTROL_H
#define MILLRACE_CONTROL_H

#include "base/clock.h"
#include "compactor/run.h"

struct control;

struct control_config {
    /* "none": the run merges no slices. "stopped": the run merges the slices that the stopped aggregator has sealed,
     * and the caller holds the lock of the aggregator's directory. */
    const char *aggregator_url;
    const char *slices; /* directory of the slices; only for "stopped" */
    const char
        *sortdb_urls; /* addresses, separated by spaces or commas; "none": no sortdb serves the archive */
    const char *auth_token; /* NULL: none */
    usec_t reply_timeout;   /* after this time without a reply, a daemon that answers /ping is asked again */
};

/* Returns NULL with the error if an address is invalid. Copies the config. */
struct control *control_new(const struct control_config *config, struct error *error);
void control_free(struct control **c);
/* Valid until the control is freed. */
const struct run_control *control_calls(struct control *c);

#endif
