/* counted_since: the time from which each later added counter counts.
 *
 * A counter that was added to the configuration later counts only the events of later slices. The counter's time is the
 * start of the first slice that has the counter. A counter of every slice has no time. The compactor keeps the times in
 * the manifest, and the aggregator updates them for the slices that the archive does not include.
 *
 * If a counter was removed and added again, its time is the start of the first slice after the latest addition.
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
    } * list;          /* sorted as the counters in their canonical text */
};

/* Updates the times for a slice that began at `started`. `counters` is the canonical text (counters.h) of the slice's
 * counters. `before` is that of the previous slice, and is empty for the first slice. */
void counted_since_follow(struct counted_since *s, const char *before, const char *counters, int64_t started);
/* True if the canonical text `counters` contains the counter with the namespace `ns`. */
bool counted_since_has(const char *counters, struct bytes ns);
/* Returns the time of a counter, or 0 if every slice has the counter. */
int64_t counted_since_of(const struct counted_since *s, struct bytes ns);
void counted_since_copy(const struct counted_since *from, struct counted_since *to);
void counted_since_free(struct counted_since *s);

#endif
