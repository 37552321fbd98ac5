/* period_query: parses the time of a query: its calendar and zone, its span, and the span that a comparison compares
 * with.
 *
 * All functions return 0, or -1 with an error. */
#ifndef MILLRACE_PERIOD_QUERY_H
#define MILLRACE_PERIOD_QUERY_H

#include "api/parameters.h"

/* Sets calendar, from, to, before_from, before_to, part_end, before_part_end, is_outward, is_all and now. */
int period_query_parse(struct parameters *p);
/* True if the query is by minute: unit=minute, or a period such as 30m. */
bool period_query_is_by_minute(const struct parameters *p);
/* Sets cuts_hours. If the zone differs from UTC by a part of a counted period in the span, sets is_rounded, or refuses the
 * query without round=hour. Refuses unit=15m where counts are of hours. */
int period_query_check_zone(struct parameters *p, int64_t from, int64_t to);
/* Parses FROM..TO. `name` is the parameter that contains `text`. `forms` is the error if `text` has another form. */
int period_query_range(
    struct parameters *p, const char *name, const char *forms, struct bytes text, int64_t *from, int64_t *to);

#endif
