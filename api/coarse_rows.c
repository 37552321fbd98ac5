#include "api/coarse_rows.h"

#include <string.h>

bool coarse_rows_may_be(const struct coarse_counter *counter)
{
    return counter->of[COARSE_DAY].to > 0 || counter->of[COARSE_MONTH].to > 0;
}

static bool cuts(
    const struct coarse_span *span, enum unit unit, const struct calendar *calendar, int64_t bound)
{
    struct calendar units = *calendar;
    units.unit = unit;
    return bound > span->from && bound < span->to &&
           (strcmp(units.zone.name, span->zone) != 0 || units_start(&units, bound) != bound);
}

const char *coarse_rows_cut(
    const struct coarse_counter *counter, const struct calendar *calendar, int64_t from, int64_t to)
{
    static const enum unit units[] = {[COARSE_DAY] = UNIT_DAY, [COARSE_MONTH] = UNIT_MONTH};
    for (int u = COARSE_UNITS - 1; u >= 0; u--) {
        const struct coarse_span *span = &counter->of[u];
        bool overlaps = from < span->to && to > span->from;
        if (overlaps && (cuts(span, units[u], calendar, from) || cuts(span, units[u], calendar, to)))
            return coarse_unit_name((enum coarse_unit)u);
    }
    return NULL;
}
