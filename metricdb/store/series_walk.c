#include "metricdb/store/series_walk.h"

#include <stdlib.h>
#include <sys/param.h>

void series_walk_begin(struct series_walk *w, size_t n)
{
    *w = (struct series_walk){.n = n};
    w->inputs = mem_zalloc((n + 1) * sizeof *w->inputs);
    w->group = mem_alloc((n + 1) * sizeof *w->group);
    for (size_t i = 0; i < n; i++)
        w->inputs[i].is_taken = true;
}

void series_walk_free(struct series_walk *w)
{
    free(w->inputs);
    free(w->group);
}

static bool is_wanted(const struct walk_input *in)
{
    const struct block_series *s = &in->series;
    return s->n_buckets > 0 && s->max_at >= in->from && s->min_at <= in->to;
}

/* Moves to the next series of the input. Returns 0, or -1 with the error. */
static int advance(struct walk_input *in, struct error *error)
{
    uint64_t n = in->block ? block_info(in->block)->n_series : in->n;
    in->is_taken = false;
    while (in->next < n) {
        uint64_t i = in->next++;
        if (in->bits && (in->bits[i / 64] >> i % 64 & 1) == 0)
            continue;
        if (!in->block) {
            in->series = in->array[i].series;
            in->labels = in->array[i].labels;
        } else if (block_get_series(in->block, i, &in->series, error) != 0)
            return -1;
        if (!is_wanted(in))
            continue;
        if (!in->block)
            return 0;
        in->labels = in->room;
        return block_get_labels(in->block, &in->series, in->room, error);
    }
    in->is_over = true;
    return 0;
}

int series_walk_next(struct series_walk *w, struct error *error)
{
    w->n_group = 0;
    for (size_t i = 0; i < w->n; i++) {
        struct walk_input *in = &w->inputs[i];
        if (in->is_taken && !in->is_over && advance(in, error) != 0)
            return -1;
        if (in->is_over)
            continue;
        const struct walk_input *least = w->n_group > 0 ? series_walk_current(w) : NULL;
        int order = least ? metric_labels_compare(
                                in->labels, in->series.n_labels, least->labels, least->series.n_labels)
                          : 0;
        if (order < 0)
            w->n_group = 0;
        if (order <= 0)
            w->group[w->n_group++] = i;
    }
    for (size_t i = 0; i < w->n_group; i++)
        w->inputs[w->group[i]].is_taken = true;
    return w->n_group > 0;
}

bool bucket_widener_add(struct bucket_widener *w, const struct bucket *b, struct bucket *done)
{
    if (w->has_bucket && b->b.start < w->bucket.b.start + w->bucket.b.width) {
        bucket_fold(&w->bucket, b);
        return false;
    }
    struct bucket wide = *b;
    int64_t width = MAX(w->width, (int64_t)b->b.width);
    wide.b.width = (uint32_t)width;
    wide.b.start = width > b->b.width ? bucket_start(b->b.start, width) : b->b.start;
    bool is_done = w->has_bucket;
    *done = w->bucket;
    w->bucket = wide;
    w->has_bucket = true;
    return is_done;
}
