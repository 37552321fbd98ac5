#include "api/zone_table.h"

#include <cctz/time_zone.h>
#include <algorithm>
#include <vector>

struct zone_table {
    std::vector<zone_span> spans;
    size_t latest; /* index of the span that was requested last */
};

struct zone_table *zone_table_load(const char *path)
{
    using instant = cctz::time_point<cctz::seconds>;
    cctz::time_zone zone;
    cctz::time_zone::civil_transition change;
    instant at{cctz::seconds(ZONE_TABLE_FIRST)}, end{cctz::seconds(ZONE_TABLE_END)};
    if (!cctz::load_time_zone(path, &zone))
        return nullptr;
    auto *t = new zone_table{};
    zone_span span{INT64_MIN, INT64_MAX, zone.lookup(at).offset};
    while (zone.next_transition(at, &change) && (at = zone.lookup(change.to).trans) < end) {
        int offset = zone.lookup(at).offset;
        if (offset == span.offset) /* only the abbreviation of the zone changes */
            continue;
        span.to = at.time_since_epoch().count();
        t->spans.push_back(span);
        span = {span.to, INT64_MAX, offset};
    }
    t->spans.push_back(span);
    return t;
}

struct zone_span zone_table_span(struct zone_table *t, int64_t utc)
{
    const zone_span *latest = &t->spans[t->latest];
    if (utc < latest->from || utc >= latest->to) {
        auto after = std::upper_bound(t->spans.begin(), t->spans.end(), utc,
            [](int64_t time, const zone_span &s) { return time < s.from; });
        t->latest = static_cast<size_t>(after - t->spans.begin()) - 1;
    }
    return t->spans[t->latest];
}
