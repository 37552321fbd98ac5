/* minute_read: counts the rows of a minute ring (minute_ring.h) for one request.
 *
 * A read has one of two forms. A *series* has the count of one key, or of one sub key of a key, in each minute. A
 * *ranking* has the largest sub keys of a key of a subtotal over all minutes together, or without a key the largest
 * keys of a total.
 *
 * minute_read_new takes the parts of the ring, so that the read shows one moment. After that, another thread may run
 * the read while events are added, provided that the ring is held. minute_read_run takes time in proportion to the rows
 * of the minutes. */
#ifndef MILLRACE_MINUTE_READ_H
#define MILLRACE_MINUTE_READ_H

#include "aggregator/minute_ring.h"
#include "counts/counters.h"

struct minute_query {
    size_t counter;        /* index of a counter (totals, then subtotals) */
    struct bytes key, sub; /* stored forms; empty: a ranking */
    int64_t from, to;      /* minutes */
    uint64_t limit;        /* rows of a ranking */
};

/* The positions of the counters' texts and values in each row. */
struct minute_columns {
    const struct counters *counters;
    const size_t *text_of;  /* of each counter's key, as in counters.h */
    const size_t *value_of; /* of each counter's value, or MINUTE_COUNTS; NULL: all counters count events */
    size_t n_values;
};

struct minute_read;

/* Copies the query. The counters and the columns must outlive the read. */
struct minute_read *minute_read_new(
    const struct minute_query *q, const struct minute_columns *columns, const struct minute_ring *ring);
/* Appends the records of docs/guide/protocol.md (/minutes). */
void minute_read_run(const struct minute_read *r, struct buf *out);
void minute_read_free(struct minute_read **r);

#endif
