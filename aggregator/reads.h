/* reads: looks up counts by key, prefix or range, over the slices and the batches in memory.
 *
 * A layer is a slice's reader or a batch. Each count is in exactly one layer, so an answer adds up all layers.
 *
 * reads_begin copies the counts that the read needs from the batch that still counts lines. After reads_begin, the read
 * shows one moment. Therefore reads_run may run in another thread while counting continues, provided that
 * aggregate_hold keeps the readers and the other batch unchanged. A copy takes a few milliseconds at most, because a
 * read that needs more counts waits until the batch is flushed.
 *
 * 1. If the query has `keys`, the records have the order of `keys`; otherwise they have the order of their keys. If the
 *    bounds end an answer, `next` is the position at which to continue: a key, or `KEY,NAME` inside a record.
 * 2. If any record matches, an answer contains at least one record or the first RECORD_WHOLE_MAX bytes of a record,
 *    even if the bounds are smaller. A lookup is never cut.
 * 3. If a layer cannot be read, the request fails instead of returning a partial answer.
 * Keys and the bounds of a range are compared with their separator appended. */
#ifndef MILLRACE_READS_H
#define MILLRACE_READS_H

#include "aggregator/key_search.h"
#include "aggregator/tally.h"
#include "counts/slice_reader.h"

#define READS_BATCHES 2

struct reads_layers {
    size_t n_readers, n_batches;
    struct slice_reader *const *readers; /* borrowed */
    /* the last batch still counts lines, the others do not change */
    const struct batch *batches[READS_BATCHES];
    const struct counters *counters;
};

struct reads_bounds {
    uint64_t max_records; /* 0: unlimited */
    /* limit of bytes before which the last record (or its last count) begins; 0: unlimited */
    size_t max_bytes;
    bool has_members; /* sets are printed with their chunks, otherwise with their size (counts/set_text.h) */
    /* number of `names`, in ascending order. Only counts of these names, and only records with such a count, are
     * read; 0: all names */
    size_t n_names;
    const struct bytes *names;
};

struct reads_answer {
    struct buf lines;
    uint64_t records;
    bool more;
    struct buf next; /* position at which to continue if `more` is set */
    struct error error;
};
void reads_answer_free(struct reads_answer *a);

/* Selects the records of `keys`, in this order. Without keys, selects the keys that begin with `prefix` and lie between
 * `start` and `end`, inclusive. An empty start or end means no bound. The record `start` is read from the count
 * `start_name` on. With `search`, selects the keys that the search finds; of the other members, only max_records
 * applies. */
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
/* Begins the read. The layers' readers and batches must outlive the read. Returns false if the read would copy too many
 * counts of the batch that still counts lines. The caller then flushes this batch and begins again. With `any_size`,
 * reads_begin copies any number of counts. */
bool reads_begin(struct reads *r, const struct reads_layers *l, bool any_size);
/* Drops the read's copies of counts, so that the read can begin again. */
void reads_end(struct reads *r);
/* Returns an estimate of the number of counts that the read looks at. */
size_t reads_work(const struct reads *r);
/* Reads the records into *answer, which the caller has zeroed. Returns 0, or -1 with answer->error. */
int reads_run(const struct reads *r, struct reads_answer *answer);
void reads_free(struct reads **r);

#endif
