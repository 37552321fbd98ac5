/* put_counted: finds the lines of a `millrace put` that the aggregator of the pipeline cannot count.
 *
 * A put succeeds once the queue has the lines. Its user does not watch the aggregator's log. So put applies the
 * counters of the pipeline's configuration to its own lines as the aggregator does. At its end, put reports the
 * lines that cannot be counted. Lines of other senders, and of earlier puts, have no part in the report. */
#ifndef MILLRACE_PUT_COUNTED_H
#define MILLRACE_PUT_COUNTED_H

#include "counts/counters.h"
#include "tools/tool.h"

struct put_counted {
    struct config
        *own_config; /* configuration of the running pipeline; NULL: the given configuration is used */
    struct counters *counters;
    struct counters_reader *reader; /* NULL: no counters are configured */
    uint64_t lines, rejected;
    const char *time_column; /* column of --time-field; NULL: none */
    struct buf first;        /* reason and position of the first rejected line */
};

void put_counted_begin(struct put_counted *c, const struct config *config, const char *data_dir);
/* A line begins at `offset` of an input. */
void put_counted_add(struct put_counted *c, struct bytes line, const char *input, uint64_t offset);
/* If the queue has stored a line, prints the number of lines that cannot be counted, the reasons, and the configured
 * fields that no event has. Returns 0, or EX_DATAERR if no line can be counted. Ends *c, which may be zeroed. */
int put_counted_report(struct put_counted *c, bool is_posted);

#endif
