#include "metricdb/store/block_merge.h"

#include "metricdb/store/series_walk.h"

#include <assert.h>
#include <sys/param.h>

struct merged_series {
    struct bucket_writer writer;
    struct block_series series;
};

static void add_bucket(struct merged_series *m, const struct bucket *b)
{
    if (m->series.n_buckets++ == 0)
        m->series.min_at = b->b.count + b->b.n_nan > 0 ? b->b.first : b->b.stale_at;
    m->series.max_at = bucket_end(&b->b);
    bucket_writer_add(&m->writer, b);
}

/* Reads the parts of the current series and writes its buckets. Returns 0, or -1 with the error. */
static int merge_series(
    const struct series_walk *w, int64_t width, struct merged_series *m, struct error *error)
{
    struct bucket_widener widener = {.width = width};
    bucket_writer_clear(&m->writer);
    m->writer.code = (struct bucket_code){0};
    m->series = (struct block_series){0};
    for (size_t i = 0; i < w->n_group; i++) {
        const struct walk_input *in = &w->inputs[w->group[i]];
        struct bucket_reader reader;
        struct bucket b, done;
        enum bucket_status status;
        bucket_reader_begin(&reader, in->series.pieces, block_info(in->block)->width, 0, BUCKET_TIME_MAX);
        while ((status = bucket_reader_next(&reader, &b)) == BUCKET_NEXT) {
            if (i == 0 && !widener.has_bucket)
                m->writer.code = reader.before;
            if (bucket_widener_add(&widener, &b, &done))
                add_bucket(m, &done);
        }
        if (status == BUCKET_DAMAGED)
            return block_damaged(in->block, "the buckets of a series", error);
    }
    if (widener.has_bucket)
        add_bucket(m, &widener.bucket);
    bucket_writer_seal(&m->writer);
    m->series.pieces = buf_bytes(&m->writer.out);
    return 0;
}

static int merge_all(struct series_walk *w, int64_t width, struct block_writer *out, const atomic_bool *stop,
    struct error *error)
{
    struct merged_series m = {0};
    int r;
    while ((r = series_walk_next(w, error)) > 0) {
        const struct walk_input *first = series_walk_current(w);
        if (atomic_load(stop))
            r = error_set(error, -1, "stopped");
        if (r < 0 || (r = merge_series(w, width, &m, error)) < 0)
            break;
        if (m.series.n_buckets > 0)
            block_writer_add(out, first->labels, first->series.n_labels, &m.series, NULL);
    }
    bucket_writer_free(&m.writer);
    return r;
}

struct block *block_merge(const char *dir, struct block *const *inputs, size_t n, int64_t width,
    uint32_t level, const atomic_bool *stop, struct error *error)
{
    struct block_info info = *block_info(inputs[n - 1]);
    struct block *result = NULL;
    struct series_walk walk;
    bool ok = true;
    assert(level > 0);
    info.width = width;
    info.level = level;
    info.from = block_info(inputs[0])->from;
    series_walk_begin(&walk, n);
    for (size_t i = 0; i < n; i++) {
        walk.inputs[i].block = inputs[i];
        walk.inputs[i].to = BUCKET_TIME_MAX;
        ok = ok && block_verify(inputs[i], error) == 0;
    }
    struct block_writer *out = ok ? block_writer_new(dir, &info, error) : NULL;
    ok = out && merge_all(&walk, width, out, stop, error) == 0;
    for (size_t i = 0; ok && i < n; i++)
        ok = block_check_whole(inputs[i], error) == 0;
    if (ok)
        result = block_writer_finish(out, error);
    block_writer_free(&out);
    series_walk_free(&walk);
    return result;
}
