/* series_set: several series of one query, over the same units. The series are of several keys, of several sub keys
 * of one key, or of the largest sub keys and all others.
 *
 * Order of calls: series_set_init, series_set_name for each series, optionally series_set_name_others, series_set_add
 * for each record, series_set_trim. The caller then takes the rows of one member after the other.
 *
 * 1. Each record is read once, for all series together.
 * 2. The member that series_set_name_others adds counts all sub keys without a series of their own. All rows then add
 *    up to all events of the subtotal. */
#ifndef MILLRACE_SERIES_SET_H
#define MILLRACE_SERIES_SET_H

#include "api/series.h"

struct series_member {
    struct bytes text; /* text of the key or the sub key, borrowed; BYTES_NONE: all other sub keys */
    char stored[COMPONENT_HASH + 1];
    struct query query; /* copy of the set's query, with the key or the sub key of this series */
    struct series series;
};
struct series_set {
    const struct query *query;
    struct series_member *members; /* members in the order of the answer */
    size_t n, n_named;
    size_t *sorted; /* indexes of the named members, sorted by stored form */
    int64_t total;
    bool is_too_large; /* a sum exceeds 64 bits */
};

/* Up to `most` series can be named. The query must outlive the set. */
void series_set_init(struct series_set *set, const struct query *q, size_t most);
void series_set_name(struct series_set *set, struct bytes text, struct bytes stored);
/* Adds the member of all other sub keys. Must be called after all calls of series_set_name. */
void series_set_name_others(struct series_set *set);
void series_set_free(struct series_set *set);
/* Discards all counts. The series keep their names. */
void series_set_reset(struct series_set *set);
size_t series_set_bytes(const struct series_set *set);
/* Adds a record. Returns false if the record is malformed, out of order or of another counter. */
bool series_set_add(struct series_set *set, const struct record *r);
/* Limits all series to the same rows, as series_trim, and computes the total. */
bool series_set_trim(struct series_set *set, uint64_t max_rows);

#endif
