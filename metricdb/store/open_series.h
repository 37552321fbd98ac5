/* open_series: a series in memory, with its last sample and its buckets since the last cut. */
#ifndef MILLRACE_METRICDB_OPEN_SERIES_H
#define MILLRACE_METRICDB_OPEN_SERIES_H

#include "base/text_hash.h"
#include "metricdb/store/block_file.h"
#include "metricdb/store/bucket_code.h"
#include "metricdb/store/sample_store.h"

#include <uthash.h>

struct open_series {
    struct block_state state;
    struct metric_label *labels; /* their texts are in `key` */
    uint32_t n_labels;
    bool is_touched; /* has a sample since the last cut */
    bool has_open;
    struct bucket open;          /* the bucket that may get more samples */
    struct bucket_writer closed; /* the buckets since the last cut before it */
    uint32_t n_closed;
    int64_t min_at; /* the first time since the last cut */
    UT_hash_handle hh;
    size_t key_len;
    char key[]; /* each name and value, with its length before it */
};

/* Writes the key of the labels: sorted, without empty values. Returns the number of labels, or 0 if the
 * labels are no series (SAMPLE_BAD_LABELS). */
uint32_t open_series_key(struct buf *key, const struct metric_label *labels, size_t n);
struct open_series *open_series_new(struct bytes key, uint32_t n_labels, const struct block_state *state);
void open_series_free(struct open_series **o);
size_t open_series_memory(const struct open_series *o);
/* Adds a sample that is later than the last one. `width` is that of the finest buckets. */
void open_series_add(struct open_series *o, const struct sample *sample, int64_t width);
/* Appends the pieces since the last cut, sealed. out->pieces points into the buffer. */
void open_series_copy(const struct open_series *o, struct buf *pieces, struct block_series *out);
/* The state's `idle` in the next block. */
uint32_t open_series_next_idle(const struct open_series *o);
/* True if a cut at the time `wall` (milliseconds; 0: not known) forgets the series. A series with a sample of
 * the future is not forgotten. */
bool open_series_is_forgotten(const struct open_series *o, int64_t wall);
/* Removes the buckets that the next block contains. */
void open_series_begin_block(struct open_series *o);

#endif
