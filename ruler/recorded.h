/* recorded: the series that a rule publishes to the stream, and their stale markers.
 *
 * 1. A line is a sample in the scraper's form (docs/internals/metrics.md). Labels are in the order of names.
 * 2. A series that the previous evaluation has and this one does not gets "stale". After a start the previous evaluation
 *    is not known: such a series ends by the age of its last sample. */
#ifndef MILLRACE_RECORDED_H
#define MILLRACE_RECORDED_H

#include "ruler/alerts.h"

struct recorded {
    char **all; /* series as JSON, sorted */
    size_t n, cap;
};

struct recorded_lines {
    struct buf text;
    uint64_t n;
};

/* Appends a line for each sample under the name and labels of a recording rule. Returns 0, or -1 with the error. */
int recorded_take(struct recorded *r, const struct rule *rule, const struct query_result *result,
    uint64_t limit, int64_t at, struct recorded_lines *out, struct error *error);
/* Appends a line ALERTS{alertstate=...} for each pending and firing alert. */
void recorded_take_alerts(
    struct recorded *r, const struct alert_list *list, int64_t at, struct recorded_lines *out);
void recorded_free(struct recorded *r);

#endif
