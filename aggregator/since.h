/* since: the times of the configured counters (counts/counted_since.h), from the archive's manifest, the slices after it and the
 * open slice. */
#ifndef MILLRACE_SINCE_H
#define MILLRACE_SINCE_H

#include "aggregator/aggregate.h"
#include "counts/counted_since.h"

/* Reads the manifest of the archive, unless `archive` is NULL. If it cannot be read, *since stays as it is. */
void since_read(const struct aggregate *a, const char *archive, const struct counters *counters,
    struct counted_since *since);

#endif
