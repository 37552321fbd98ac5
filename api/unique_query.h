/* unique_query: parses the queries for sets of members: uniques, retention and cohort.
 *
 *     uniques     user=bitly&user=nasa&unit=day&window=30&stickiness=1      the keys are united
 *     retention   user=bitly&unit=week&units=13&lookback=12
 *     cohort      all=SET&any=SET&not=SET, each any number of times; SET is [PERIOD@]LABEL:KEY
 *
 * `count=LABEL` names a unique counter of the total. In SET, LABEL is the label or the namespace of a total, or the
 * namespace of a unique counter. KEY is the rest of the value. Therefore KEY may contain any byte. PERIOD is a period (period.h) or FROM..TO without colons, and
 * the default is the period of the query.
 *
 * 1. A set of UTC days answers only for whole UTC days. Any other query for such a set is refused with 422.
 * 2. A retention has at most 64 units, lookback included.
 * 3. The sets of a cohort have the same members: the settings `member` of their counters are equal. */
#ifndef MILLRACE_UNIQUE_QUERY_H
#define MILLRACE_UNIQUE_QUERY_H

#include "api/query.h"
#include "sets/set_algebra.h"

#define UNIQUE_WINDOW_MAX 366
#define UNIQUE_LOOKBACK_DEFAULT 12

/* A named set: the members of one key in [from, to). */
struct query_set {
    enum set_role role; /* in a cohort; otherwise SET_ALL */
    const struct counter *total, *unique;
    struct bytes key; /* full text, borrowed from the parameters or the counters */
    char stored[COMPONENT_HASH + 1];
    int64_t from, to; /* time to read, which includes a window's and a lookback's earlier units */
};

struct unique_query {
    struct query query;
    int64_t window;   /* units of each row; 1: no window */
    int64_t lookback; /* units before the first row of a retention */
    bool is_sticky;
    size_t n_sets; /* at least one */
    struct query_set sets[QUERY_SERIES_MAX];
};

/* Like query_parse, for QUERY_UNIQUES, QUERY_RETENTION and QUERY_COHORT. */
int unique_query_parse(const struct query_context *context, enum query_kind kind,
    const struct url_query *params, struct unique_query *out, struct query_error *error);

#endif
