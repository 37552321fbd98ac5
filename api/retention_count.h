/* retention_count: in which units the members of each first unit are seen.
 *
 * Units are consecutive periods, such as weeks. Each view is a set of members of one unit; the members of a unit are
 * the union of its views. All sets are read once, as set_algebra.h does, with an accumulator for each unit. */
#ifndef MILLRACE_RETENTION_COUNT_H
#define MILLRACE_RETENTION_COUNT_H

#include "sets/set.h"

#define RETENTION_UNITS_MAX 64

/* Sets table[first * n_units + later] to the number of members that are in the unit `later` and whose first unit is
 * `first`, for first <= later. unit_of[i] is the unit of views[i]. */
void retention_count(
    const struct set_view *views, const uint32_t *unit_of, size_t n, uint32_t n_units, uint64_t *table);

#endif
