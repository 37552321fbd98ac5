/* query: parses and checks the parameters of a request.
 *
 * A request names a counter by namespace (`ns=u&key=K`, `ns=c.u&key=K`) or by label (`user=K`, `user=K&by=country`). The key of a
 * counter over a constant may be omitted (`ns=all`, `feed=`). The span is `from=&to=` (hours that start in [from, to)) or
 * `units=N&unit_reference_ts=T` (the N units up to the unit that contains T), or `period=` (period.h; `all`: all time). The default span
 * is the last 30 units.
 *
 * A series may be several: of several keys or sub keys (repeated), or of the largest sub keys and all others
 * (top=).
 *
 * 1. An unknown, repeated or contradictory parameter is refused, because a misspelling must not change the question silently.
 * 2. These names are parameters, never labels; use ns= for a counter with such a label:
 *       ns key by sub unit units unit_reference_ts from to period timezone hour_offset week_start round limit format
 *       against counter partial top
 * 3. 0 <= from < to <= HOUR_END, and all series together have at most max_rows rows. With `all` the series checks its rows (series_trim).
 * 4. If the local time of the zone is not a whole number of hours from UTC somewhere in the span, counts by UTC hour cannot answer exactly.
 *    Such a query is refused, unless it has `round=hour`. */
#ifndef MILLRACE_QUERY_H
#define MILLRACE_QUERY_H

#include "counts/counters.h"
#include "counts/records.h"
#include "api/units.h"
#include "base/clock.h"
#include "base/url.h"

#define QUERY_UNITS_DEFAULT 30
#define QUERY_LIMIT_DEFAULT 10
#define QUERY_LIMIT_MAX 10000
#define QUERY_PATIENCE_MAX 600 /* seconds */
#define QUERY_SERIES_MAX 100   /* keys or sub keys of one query */

/* A comparison has the series of a span and the series of an earlier span. A query for the top keys of a counter is
 * parsed into the breakdown by the same field of a counter with a constant key. */
enum query_kind { QUERY_SERIES, QUERY_BREAKDOWN, QUERY_COMPARE, QUERY_TOP };
enum query_format { QUERY_JSON, QUERY_CSV };

struct query {
    enum query_kind kind;
    const struct counter *total;
    const struct counter *sub; /* the subtotal of a breakdown or of a series; NULL: the total */
    struct bytes key;          /* the full text of the key; points into the parameters or the counters */
    struct bytes sub_key;      /* the sub key of a subtotal's series */
    char stored[COMPONENT_HASH + 1], stored_sub[COMPONENT_HASH + 1]; /* stored forms of key and sub_key */
    struct calendar calendar;
    int64_t from, to;
    int64_t before_from, before_to; /* of a comparison: the span to compare with */
    const struct url_query *params; /* for query_value */
    struct bytes repeated;          /* of several series: the parameter that repeats; BYTES_NONE: none */
    size_t n_values;                /* how often it is given */
    uint64_t top;                   /* series of the largest sub keys, and of all others; 0: none */
    uint64_t limit;
    enum query_format format;
    bool is_all;         /* period=all: from and to are the first and the last time that can be counted */
    bool is_rounded;     /* round=hour, in a zone that needs it */
    bool allows_partial; /* partial=: answer without a source that fails */
    usec_t patience;     /* partial=SECONDS: for a source; 0: the sources' timeout */
    int64_t now;         /* Unix seconds */
    /* A counter that is not configured: `total` and `sub` point here where the namespace is not empty. */
    bool is_former;
    struct {
        char total_ns[NAMESPACE_MAX + 1], sub_ns[2 * NAMESPACE_MAX + 2], sub_label[NAMESPACE_MAX + 1];
        struct counter total, sub;
    } former;
};

/* Copies a query. */
void query_copy(struct query *to, const struct query *from);
/* The i-th value of the parameter that repeats. */
struct bytes query_value(const struct query *q, size_t i);
/* Writes the stored form of a key or a sub key. The stored form contains no NUL, so `out` is a string. */
void query_store(struct bytes text, char out[COMPONENT_HASH + 1]);
/* How the hours of a record's period lie in the query's span. */
enum query_overlap { QUERY_OUTSIDE, QUERY_PARTLY, QUERY_WITHIN };
enum query_overlap query_overlap(const struct query *q, const struct record_key *period);
/* The longest period of an archive's records that never spans two rows of the answer. */
enum period_unit query_largest_period(const struct query *q);

/* The subtotal if there is one, else the total. */
static inline const struct counter *query_counter(const struct query *q)
{
    return q->sub ? q->sub : q->total;
}

/* True if the counter may have keys that max_keys counted as `(other)`. A former max_keys counts too, so the present
 * setting does not matter. */
static inline bool query_may_have_other(const struct query *q)
{
    return query_counter(q)->kind != COUNTER_CONSTANT;
}

/* The events in a query's span that max_keys counted as `(other)`. */
struct query_over {
    uint64_t counter; /* by the queried counter */
    uint64_t total;   /* by the total of the queried subtotal */
};

struct query_error {
    int status;
    const char *code;
    char detail[256];
    char hint[1024]; /* "": no hint */
};

struct query_context {
    const struct counters *counters;
    uint64_t max_rows;
    int64_t now;         /* unix seconds */
    bool accepts_former; /* ns= may name a counter that is not configured, which may have been removed */
};

/* Returns 0, or -1 with *error. The parameters and the counters must outlive *out. */
int query_parse(const struct query_context *context, enum query_kind kind, const struct url_query *params,
    struct query *out, struct query_error *error);

#endif
