/* counted_since: from which time each counter counts, if it was added later than others.
 *
 * A counter that was added to the configuration has counted only the events of the slices since then. Their first slice's start
 * is the counter's time. A counter that every slice had has no time. The compactor keeps the times in the manifest, and the
 * aggregator continues them over the slices that the archive does not include.
 *
 * A counter that was removed and added again has the time at which it was added again.
 */
#ifndef MILLRACE_COUNTED_SINCE_H
#define MILLRACE_COUNTED_SINCE_H

#include "base/bytes.h"

#define COUNTED_SINCE_NS_TEXT 40 /* buffer for a namespace, "c.u" */

struct counted_since {
    size_t n;
    struct {
        char ns[COUNTED_SINCE_NS_TEXT];
        int64_t since; /* Unix seconds */
    } * list;          /* in the order of the counters' canonical text */
};

/* Continues the times over a slice. `before` is the canonical text of the counters before it (counters.h), empty before the first
 * slice; `counters` is that of the slice, which has begun at `started`. */
void counted_since_follow(struct counted_since *s, const char *before, const char *counters, int64_t started);
/* True if the canonical text has the counter. */
bool counted_since_has(const char *counters, struct bytes ns);
/* 0: the counter counts from the beginning. */
int64_t counted_since_of(const struct counted_since *s, struct bytes ns);
void counted_since_copy(const struct counted_since *from, struct counted_since *to);
void counted_since_free(struct counted_since *s);

#endif
