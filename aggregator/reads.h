/* reads: answers by key, prefix and range over every place that holds counts of one moment.
 *
 * A layer is the reader of a slice or a batch in memory. A count lies in exactly one layer; the answer adds them up.
 *
 * 1. An answer is whole records, in order, cut only between records. `next` is then the key to go on with.
 * 2. It has at least one record when there is one, whatever the bounds.
 * 3. When a layer cannot be read there is no answer, rather than a part of one.
 * Keys are ordered with their separator behind them, and so are the bounds of a range.
 */
#ifndef MILLRACE_READS_H
#define MILLRACE_READS_H

#include "aggregator/tally.h"
#include "counts/slice_reader.h"

#define READS_BATCHES 2

struct reads_layers {
    size_t n_readers, n_batches;
    struct slice_reader *const *readers; /* borrowed */
    const struct batch *batches[READS_BATCHES];
    const struct counters *counters;
};

struct reads_bounds {
    uint64_t max_records; /* 0: no bound */
    size_t max_bytes;     /* no record begins at or past it; 0: no bound */
};

struct reads_answer {
    struct buf lines;
    uint64_t records;
    bool more;
    struct buf next; /* when more: the key of the first record left out */
    char error[SLICE_ERROR_TEXT];
};
void reads_answer_free(struct reads_answer *a);

/* Each appends to the answer (a zeroed one is empty). 0, or -1 with answer->error. */
int reads_get(const struct reads_layers *l, struct bytes key, struct reads_answer *answer);
/* Keys that begin with `prefix`; with `start` (may be empty) only from that key on. */
int reads_prefix(const struct reads_layers *l, struct bytes prefix, struct bytes start,
    struct reads_bounds bounds, struct reads_answer *answer);
/* start <= key <= end. */
int reads_range(const struct reads_layers *l, struct bytes start, struct bytes end,
    struct reads_bounds bounds, struct reads_answer *answer);

#endif
