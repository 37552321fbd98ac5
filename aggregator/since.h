/* since: computes the times of the configured counters (counts/counted_since.h) from the archive's manifest, the slices
 * after it and the open slice. */
#ifndef MILLRACE_SINCE_H
#define MILLRACE_SINCE_H

#include "aggregator/aggregate.h"
#include "counts/counted_since.h"

/* Sets *since. Reads the manifest of the archive unless `archive` is NULL. If the manifest cannot be read, *since does
 * not change. */
void since_read(const struct aggregate *a, const char *archive, const struct counters *counters,
    struct counted_since *since);

#endif
