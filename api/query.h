/* query: the meaning of a request for counts: its counter, keys, time (period_query.h) and shape.
 *
 * A request names a counter by namespace (`ns=u&key=K`, `ns=c.u&key=K`) or by label (`user=K`, `user=K&by=country`).
 * The key of a counter over a constant may be omitted (`ns=all`, `feed=`). The span is `from=&to=` (hours that start
 * in [from, to)) or `units=N&unit_reference_ts=T` (the N units up to the unit that contains T), or `period=`
 * (period.h; `all`: all time). The default span is the last 30 units.
 *
 * With unit=minute or period=30m (1m to 120m, up to now), a series, a breakdown or a top is by minute. Such a query is
 * for one key, and a top for the keys of any total.
 *
 * A query for a series may ask for several series: of repeated keys or sub keys, or of the largest sub keys and all
 * others (top=).
 *
 * 1. A parameter that the endpoint does not take is refused (parameters.h).
 * 2. 0 <= from < to <= HOUR_END (from <= to if is_so_far), and all series together have at most max_rows rows. For `period=all`, series_trim
 *    checks the number of rows.
 * 3. Bounds that the client gives do not cut a counted period, unless the zone does.
 * 4. If the zone's offset from UTC is not a whole number of counted periods somewhere in the span, the answer cannot be
 *    computed exactly. Such a query is refused without `round=hour`.
 * 5. The sources know since when they count quarter hours. A query that was parsed with another time than the one in
 *    their replies is parsed again. */
#ifndef MILLRACE_QUERY_H
#define MILLRACE_QUERY_H

#include "counts/counters.h"
#include "counts/records.h"
#include "api/units.h"
#include "base/clock.h"
#include "base/url.h"

#define QUERY_MINUTES_MAX 120
#define QUERY_MINUTES_DEFAULT 30
#define QUERY_UNITS_DEFAULT 30
#define QUERY_RETENTION_UNITS 13
#define QUERY_LIMIT_DEFAULT 10
#define QUERY_LIMIT_MAX 10000
#define QUERY_PATIENCE_MAX 600 /* seconds */
#define QUERY_QUANTILES_MAX 10
#define QUERY_QUANTILE_SCALE 9
#define QUERY_QUANTILE_ONE INT64_C(1000000000) /* 10^QUERY_QUANTILE_SCALE */
#define QUERY_SERIES_MAX 100                   /* maximum number of keys or sub keys in one query */

/* QUERY_COMPARE: the series of a span and of an earlier span. QUERY_TOP is parsed into a breakdown of a counter
 * with a constant key, by the field of the given counter. QUERY_QUANTILE: quantiles of a subtotal by bucket. QUERY_UNIQUES and later kinds are queries for sets. */
enum query_kind {
    QUERY_SERIES,
    QUERY_BREAKDOWN,
    QUERY_COMPARE,
    QUERY_TOP,
    QUERY_QUANTILE,
    QUERY_UNIQUES,
    QUERY_RETENTION,
    QUERY_COHORT
};
enum query_format { QUERY_JSON, QUERY_CSV };

struct query {
    enum query_kind kind, asked; /* QUERY_BREAKDOWN also answers what was asked as QUERY_TOP */
    const struct counter *total;
    const struct counter *sub; /* subtotal of a breakdown or a series; NULL: the query is for the total */
    struct {
        const struct counter *total, *sub; /* as the query's `total` and `sub` */
    } events;                              /* mean=1: the divisor of the means; otherwise NULL */
    const struct counter *unique; /* unique counter of QUERY_UNIQUES and QUERY_RETENTION, under `total` */
    struct bytes key;             /* full text of the key, borrowed from the parameters or the counters */
    struct bytes sub_key;         /* full text of the sub key of a subtotal's series */
    char stored[COMPONENT_HASH + 1], stored_sub[COMPONENT_HASH + 1]; /* stored forms of key and sub_key */
    struct calendar calendar;
    int64_t
        quarters_since; /* counted periods are hours before this time, then quarter hours; 0: always hours */
    int64_t from, to;
    int64_t before_from, before_to; /* span that a comparison compares with */
    bool compares;                  /* QUERY_COMPARE, or a breakdown with against= */
    bool is_so_far; /* both spans of a compared breakdown end with the counted periods that have passed */
    /* If QUERY_COMPARE includes the unit in progress: the end of the last counted period that has passed, and of the
     * same part of the earlier span. 0: all units have ended, or none has begun. */
    int64_t part_end, before_part_end;
    /* The same for the row in progress and the row at its position in the earlier span. If a span begins within a unit,
     * the rows at this position may end at other parts of the spans. */
    int64_t row_part_end, before_row_part_end;
    const struct url_query *params; /* parameters for query_value */
    struct bytes repeated;          /* name of the repeated parameter of several series; BYTES_NONE: none */
    size_t n_values;                /* number of values of the repeated parameter */
    uint64_t top;                   /* number of largest sub keys with a series; 0: the query has no top= */
    uint64_t limit;
    bool has_after; /* after=: only the rows after a row with this count and text */
    int64_t after_n;
    struct bytes after_hex; /* hexadecimal digits */
    size_t n_quantiles;
    int64_t quantiles[QUERY_QUANTILES_MAX]; /* of QUERY_QUANTILE: each from 0 to QUERY_QUANTILE_ONE */
    bool is_over_time;                      /* of QUERY_QUANTILE: a row for each unit */
    enum query_format format;
    size_t n_cells;      /* number of cells whose counts are added; 0: as 1 */
    bool by_minute;      /* from the aggregator's ring of minutes; `from` and `to` are whole minutes */
    bool is_all;         /* period=all: `from` and `to` are the limits of the times that can be counted */
    bool cuts_hours;     /* a bound or a unit of the answer begins within a UTC hour */
    bool is_outward;     /* bounds=outward has moved a bound to the start of a counted period */
    bool is_rounded;     /* round=hour in a zone whose offset is not a whole number of hours */
    bool allows_partial; /* partial=: the answer may omit a source that fails */
    usec_t patience;     /* partial=SECONDS: timeout of a source; 0: the default timeout of the sources */
    int64_t now;         /* Unix seconds */
    const char *unit;    /* unit of the counter that a top shows; NULL: unit of `total` */
    /* If the counter is not configured, `total` and `sub` point to these counters if their namespace is not empty. */
    bool is_former;
    struct {
        char total_ns[NAMESPACE_MAX + 1], sub_ns[2 * NAMESPACE_MAX + 2], sub_label[NAMESPACE_MAX + 1];
        struct counter total, sub;
    } former;
};

void query_copy(struct query *to, const struct query *from);
/* Returns the i-th value of the repeated parameter. */
struct bytes query_value(const struct query *q, size_t i);
/* Writes the stored form of a key or a sub key. The stored form contains no NUL, so `out` is a string. */
void query_store(struct bytes text, char out[COMPONENT_HASH + 1]);
/* Returns the time from which counted periods are quarter hours, or HOUR_END. */
static inline int64_t query_quarters_from(const struct query *q)
{
    return q->quarters_since > 0 ? q->quarters_since : HOUR_END;
}
/* Returns the seconds of a period that is counted at the time `t`. */
static inline int64_t query_resolution(const struct query *q, int64_t t)
{
    return q->by_minute ? MINUTE_SECONDS : t < query_quarters_from(q) ? HOUR_SECONDS : QUARTER_SECONDS;
}
/* Return the last time at or before `t`, and the first at or after `t`, at which a counted period begins. */
static inline int64_t query_whole_before(const struct query *q, int64_t t)
{
    return t - t % query_resolution(q, t);
}
static inline int64_t query_whole_after(const struct query *q, int64_t t)
{
    int64_t start = query_whole_before(q, t);
    return start < t ? start + query_resolution(q, start) : t;
}
/* Sets the start of the first row of a span, and a time before which every row starts. The rows are the units in which
 * the counted periods of the span begin. A span without such periods has a single row. */
static inline void query_rows(const struct query *q, int64_t from, int64_t to, int64_t *first, int64_t *end)
{
    int64_t begin = query_whole_after(q, from), last = query_whole_before(q, to - 1);
    *first = units_start(&q->calendar, begin <= last ? begin : from);
    *end = (begin <= last ? last : from) + 1;
}
/* Relation of a record's period to the query's span. */
enum query_overlap { QUERY_OUTSIDE, QUERY_PARTLY, QUERY_WITHIN };
enum query_overlap query_overlap(const struct query *q, const struct record_key *period);
/* Returns the longest period of archive records that is always within one row of the answer. */
enum period_unit query_largest_period(const struct query *q);

/* True if the answer is one sum of all time, whose first and last hour the records of days and months do not show. */
static inline bool query_is_sum_of_all(const struct query *q)
{
    return q->is_all && (q->kind == QUERY_BREAKDOWN || (q->kind == QUERY_QUANTILE && !q->is_over_time));
}
/* Returns the subtotal if the query has a subtotal, else the total. */
static inline const struct counter *query_counter(const struct query *q)
{
    return q->sub ? q->sub : q->total;
}

/* True if the counter may have keys that max_keys counted as `(other)`. The current max_keys does not matter,
 * because an earlier configuration may have had a max_keys. */
static inline bool query_may_have_other(const struct query *q)
{
    return query_counter(q)->kind != COUNTER_CONSTANT;
}

/* Adds the absolute value of a count. Returns false if the sum exceeds 64 bits. */
static inline bool query_add_absolute(int64_t *sum, int64_t n)
{
    return n != INT64_MIN && !__builtin_add_overflow(*sum, n < 0 ? -n : n, sum);
}

/* Numbers of events in a query's span that were counted as `(other)` because of max_keys. */
struct query_over {
    int64_t counter; /* counted by the queried counter */
    int64_t total;   /* counted by the total of the queried subtotal */
};

struct query_error {
    int status;
    const char *code;
    char detail[256];
    char hint[4096]; /* "": no hint */
};

struct query_context {
    const struct counters *counters;
    uint64_t max_rows;
    int64_t now;            /* Unix seconds */
    int64_t quarters_since; /* as in the query */
    const char *streams;    /* counted streams, separated by commas or blanks; NULL: clicks */
    bool accepts_former;    /* ns= may name a counter that is not configured, such as a removed counter */
};

/* Appends the key of a total, or with a `period` in its stored form the key of a subtotal. */
void query_append_key(const char *ns, const char *stored, const char *period, struct buf *target);
struct query_range {
    const char *ns, *stored;
    int64_t from, to;
    bool is_by_day;           /* the first record may be that of a day, which sorts before its hours */
    enum period_unit largest; /* longest period of archive records */
};
/* Appends the target of the question for the records of the counted periods in [from, to), adjacent in key order. If no
 * period starts in the span, one is still requested for complete_until; the answer omits this period. */
void query_append_range(const struct query *q, const struct query_range *r, struct buf *target);

/* True if the rows are those of UTC days, or of longer units in UTC. */
bool query_is_utc(const struct query *q);

/* Parses the parameters into *out. Returns 0, or -1 with *error. The parameters and the counters must outlive *out. */
int query_parse(const struct query_context *context, enum query_kind kind, const struct url_query *params,
    struct query *out, struct query_error *error);

#endif
