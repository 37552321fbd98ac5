/* series_set: several series of one query, over the same units: of several keys, of several sub keys of one key, or of the largest sub keys
 * and all others.
 *
 * Order of calls: series_set_init, series_set_name for each series, perhaps series_set_name_others, series_set_add for each record,
 * series_set_trim; then the caller takes the rows of each member in turn.
 *
 * 1. A record is read once, whatever the number of series.
 * 2. The member of the others counts all other sub keys, so that all rows add up to all events of the subtotal. */
#ifndef MILLRACE_SERIES_SET_H
#define MILLRACE_SERIES_SET_H

#include "api/series.h"

struct series_member {
    struct bytes text; /* of the key or the sub key; borrowed; BYTES_NONE: all others */
    char stored[COMPONENT_HASH + 1];
    struct query query; /* with this key or sub key */
    struct series series;
};
struct series_set {
    const struct query *query;
    struct series_member *members; /* in the order of the answer */
    size_t n, n_named;
    size_t *sorted; /* the named members in the order of their stored forms */
    uint64_t total;
    bool is_too_large; /* a sum exceeds 2^64 - 1 */
};

/* Up to `most` series can be named. The query must outlive the set. */
void series_set_init(struct series_set *set, const struct query *q, size_t most);
void series_set_name(struct series_set *set, struct bytes text, struct bytes stored);
/* After all names. */
void series_set_name_others(struct series_set *set);
void series_set_free(struct series_set *set);
/* Discards all counts. The series keep their names. */
void series_set_reset(struct series_set *set);
size_t series_set_bytes(const struct series_set *set);
/* False: the record is malformed, out of order or of another counter. */
bool series_set_add(struct series_set *set, const struct record *r);
/* As series_trim; all series get the same rows. Computes the total. */
bool series_set_trim(struct series_set *set, uint64_t max_rows);

#endif
