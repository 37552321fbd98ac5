/* recorded: the series that a rule publishes to the stream, and their stale markers.
 *
 * 1. A line is a sample in the scraper's form (docs/internals/metrics.md). Labels are in the order of names.
 * 2. A series that the previous evaluation has and this one does not gets "stale". After a start the previous evaluation
 *    is not known: such a series ends by the age of its last sample. */
#ifndef MILLRACE_RECORDED_H
#define MILLRACE_RECORDED_H

#include "ruler/alerts.h"

struct recorded_lines {
    struct buf text;
    uint64_t n;
};

/* Appends a line for each sample of a sorted result and each marker. Moves the samples to *before, which has those of the
 * previous evaluation. */
void recorded_take(
    struct query_result *before, struct query_result *result, int64_t at, struct recorded_lines *out);
/* Appends a line ALERTS{alertstate=...} for each pending and firing alert. */
void recorded_take_alerts(
    struct query_result *before, const struct alert_list *list, int64_t at, struct recorded_lines *out);

#endif
