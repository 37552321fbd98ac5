/* reads: looks up counts by key, prefix or range, over the slices and the batches in memory.
 *
 * A layer is a slice's reader or a batch. Each count is in exactly one layer; an answer adds up all layers.
 *
 * 1. An answer consists of whole records. The records of reads_get are in the order of the request, all others in the
 *    order of keys. If the bounds end an answer early, `next` is the key of the first record left out.
 * 2. Despite the bounds, an answer contains at least one record if any matches.
 * 3. If a layer cannot be read, the request fails instead of returning a partial answer.
 * Keys, and the bounds of a range, are ordered with their separator appended.
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
    uint64_t max_records; /* 0: unlimited */
    size_t max_bytes;     /* the last record begins before this; 0: unlimited */
    size_t n_names; /* of reads_range: only these names, and only records with one of them; 0: all names */
    const struct bytes *names;
};

struct reads_answer {
    struct buf lines;
    uint64_t records;
    bool more;
    struct buf next; /* if more records match: the key of the next */
    char error[SLICE_ERROR_TEXT];
};
void reads_answer_free(struct reads_answer *a);

/* Each function appends to the answer, which is zeroed at first, and returns 0, or -1 with answer->error. */

/* Reads the records of these keys, in this order, with one walk over the batches. */
int reads_get(const struct reads_layers *l, const struct bytes *keys, size_t n, struct reads_bounds bounds,
    struct reads_answer *answer);
/* Reads keys that begin with `prefix`, from `start` on unless `start` is empty. */
int reads_prefix(const struct reads_layers *l, struct bytes prefix, struct bytes start,
    struct reads_bounds bounds, struct reads_answer *answer);
/* Reads the keys from start to end inclusive. */
int reads_range(const struct reads_layers *l, struct bytes start, struct bytes end,
    struct reads_bounds bounds, struct reads_answer *answer);

#endif
