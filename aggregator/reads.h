/* reads: looks up counts by key, prefix or range, over the slices and the batches in memory.
 *
 * A layer is a slice's reader or a batch. Each count is in exactly one layer; an answer adds up all layers.
 *
 * reads_begin copies the counts that it needs from the batch that is still counting. From then on the read shows one
 * moment. So reads_run may run in another thread while counting continues, if the readers and the other batch do not
 * change (aggregate_hold). A copy takes a few milliseconds at most: a read that needs more counts waits until the batch is flushed.
 *
 * 1. Records of keys come in the order of the request, all others in the order of keys. If the bounds end an
 *    answer, `next` is the place to continue at: a key, or `KEY,NAME` inside a record.
 * 2. Despite the bounds, an answer contains at least one record if any matches, or RECORD_WHOLE_MAX bytes of it. A lookup is never cut.
 * 3. If a layer cannot be read, the request fails instead of returning a partial answer.
 * Keys, and the bounds of a range, are ordered with their separator appended. */
#ifndef MILLRACE_READS_H
#define MILLRACE_READS_H

#include "aggregator/key_search.h"
#include "aggregator/tally.h"
#include "counts/slice_reader.h"

#define READS_BATCHES 2

struct reads_layers {
    size_t n_readers, n_batches;
    struct slice_reader *const *readers; /* borrowed */
    const struct batch
        *batches[READS_BATCHES]; /* the last one still counts lines, the others do not change */
    const struct counters *counters;
};

struct reads_bounds {
    uint64_t max_records; /* 0: unlimited */
    size_t
        max_bytes;  /* the last record begins before this, and if it is long, its last count; 0: unlimited */
    size_t n_names; /* only these names, which are sorted, and only records with one of them; 0: all names */
    const struct bytes *names;
};

struct reads_answer {
    struct buf lines;
    uint64_t records;
    bool more;
    struct buf next; /* if more matches: where to continue */
    struct error error;
};
void reads_answer_free(struct reads_answer *a);

/* The records of `keys`, in this order; without keys, the keys that begin with `prefix` and are between start and end,
 * inclusive. An empty start or end means no bound. The record `start` is read from the count `start_name` on. With
 * `search`, the keys that the search finds; all else but max_records is ignored. */
struct reads_query {
    const struct key_search_query *search; /* NULL: records */
    const struct bytes *keys;
    size_t n_keys;
    struct bytes prefix, start, start_name, end;
    struct reads_bounds bounds;
};

struct reads;

/* Copies the query. */
struct reads *reads_new(const struct reads_query *q);
/* Begins the read. The layers' readers and batches must outlive the read. Returns false if the batch that still counts has too many
 * counts to copy: flush it, and begin again. With `any_size`, copies any number. */
bool reads_begin(struct reads *r, const struct reads_layers *l, bool any_size);
/* Drops the copies of counts, so that the read can begin anew. */
void reads_end(struct reads *r);
/* An estimate of the counts that the read will look at. */
size_t reads_work(const struct reads *r);
/* Reads into the answer, which is zeroed at first. Returns 0, or -1 with answer->error. */
int reads_run(const struct reads *r, struct reads_answer *answer);
void reads_free(struct reads **r);

#endif
