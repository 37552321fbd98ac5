/* series_walk: the series of several blocks, each once, in the order of their labels, with the parts that the
 * blocks have. */
#ifndef MILLRACE_METRICDB_SERIES_WALK_H
#define MILLRACE_METRICDB_SERIES_WALK_H

#include "metricdb/store/block_file.h"
#include "metricdb/store/bucket_code.h"

/* A series in memory. */
struct walk_series {
    struct metric_label *labels;
    struct block_series series;
    char *pieces; /* of `series` */
};

/* One of the sorted lists. Set the first group of members. */
struct walk_input {
    struct block *block;             /* verified; or NULL and: */
    const struct walk_series *array; /* `n` series */
    size_t n;
    const uint64_t *bits; /* the series of the block to take; NULL: all */
    int64_t from, to;     /* series with samples of other times only are skipped */

    uint64_t next;
    bool is_taken, is_over; /* the current series was given; no more series */
    const struct metric_label *labels;
    struct block_series series; /* the current one */
    struct metric_label room[BLOCK_LABELS_MAX];
};

struct series_walk {
    struct walk_input *inputs; /* in the order of time */
    size_t n;
    size_t *group; /* the inputs that have the current series, in their order; room for n */
    size_t n_group;
};

void series_walk_begin(struct series_walk *w, size_t n);
void series_walk_free(struct series_walk *w);
/* Finds the next series. Returns 1, or 0 at the end, or -1 with the error if a block is damaged. The texts of
 * the labels belong to the inputs; labels and series are valid until the next call. */
int series_walk_next(struct series_walk *w, struct error *error);
/* One of the inputs that have the current series. */
static inline const struct walk_input *series_walk_current(const struct series_walk *w)
{
    return &w->inputs[w->group[0]];
}

/* Makes buckets wider, and joins the parts of a bucket. */
struct bucket_widener {
    int64_t width; /* at least */
    bool has_bucket;
    struct bucket bucket; /* begun */
};
/* Takes the next bucket in the order of time. Returns true if the bucket before is complete, in *done. */
bool bucket_widener_add(struct bucket_widener *w, const struct bucket *b, struct bucket *done);

#endif
