/* put_counted: what the aggregator of the pipeline counts and rejects while `millrace put` runs.
 *
 * A put succeeds once the queue has the lines. If the aggregator cannot count them, `put` says so at its end, because its
 * user does not watch the aggregator's log. Other producers' lines are included. */
#ifndef MILLRACE_PUT_COUNTED_H
#define MILLRACE_PUT_COUNTED_H

#include "tools/tool.h"

struct put_counted {
    struct pipeline pipeline;
    const char *url; /* of the aggregator; NULL: it does not run */
    uint64_t lines, rejected;
};

/* Reads the aggregator's totals. */
void put_counted_begin(struct put_counted *c, const struct config *config, const char *data_dir);
/* Waits a moment until the aggregator has taken `posted` more lines. Prints how many were rejected and why, and the configured fields
 * that no event has. Ends *c, which may be zeroed. */
void put_counted_report(struct put_counted *c, uint64_t posted);

#endif
