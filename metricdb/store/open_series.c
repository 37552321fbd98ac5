#include "metricdb/store/open_series.h"

#include "base/byte_order.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static_assert(SAMPLE_LABELS_MAX <= BLOCK_LABELS_MAX, "each series fits into a block");

static int by_name(const void *a, const void *b)
{
    const struct metric_label *x = a, *y = b;
    return bytes_compare(x->name, y->name);
}

uint32_t open_series_key(struct buf *key, const struct metric_label *given, size_t n)
{
    struct metric_label labels[SAMPLE_LABELS_MAX];
    uint32_t used = 0;
    bool is_sorted = true;
    size_t bytes = 0;
    buf_clear(key);
    for (size_t i = 0; i < n; i++) {
        if (given[i].value.len == 0)
            continue;
        bytes += given[i].name.len + given[i].value.len;
        if (used == SAMPLE_LABELS_MAX || given[i].name.len == 0 || bytes > SAMPLE_LABEL_BYTES_MAX)
            return 0;
        labels[used++] = given[i];
        is_sorted = is_sorted && (used < 2 || by_name(&labels[used - 2], &labels[used - 1]) < 0);
    }
    if (!is_sorted)
        qsort(labels, used, sizeof *labels, by_name);
    for (uint32_t i = 0; i < 2 * used; i++) {
        struct bytes text = i % 2 == 0 ? labels[i / 2].name : labels[i / 2].value;
        char length[4];
        if (!is_sorted && i % 2 == 0 && i > 0 && bytes_equal(text, labels[i / 2 - 1].name))
            return 0;
        put_le32(length, (uint32_t)text.len);
        buf_append(key, length, sizeof length);
        buf_append_bytes(key, text);
    }
    return used;
}

/* Later buckets are predicted from the last number. */
static void begin_code(struct open_series *o)
{
    o->closed =
        (struct bucket_writer){.code = {.has_number = o->state.has_number, .number = o->state.number}};
}

struct open_series *open_series_new(struct bytes key, uint32_t n_labels, const struct block_state *state)
{
    struct open_series *o = mem_zalloc(sizeof *o + key.len);
    o->labels = mem_alloc(n_labels * sizeof *o->labels);
    o->n_labels = n_labels;
    o->key_len = key.len;
    memcpy(o->key, key.ptr, key.len);
    const char *p = o->key;
    for (uint32_t i = 0; i < 2 * n_labels; i++) {
        struct bytes text = bytes_of(p + 4, get_le32(p));
        *(i % 2 == 0 ? &o->labels[i / 2].name : &o->labels[i / 2].value) = text;
        p = text.ptr + text.len;
    }
    o->state = *state;
    begin_code(o);
    return o;
}

void open_series_free(struct open_series **op)
{
    struct open_series *o = *op;
    bucket_writer_free(&o->closed);
    free(o->labels);
    free(o);
    *op = NULL;
}

size_t open_series_memory(const struct open_series *o)
{
    return sizeof *o + o->key_len + o->n_labels * sizeof *o->labels + o->closed.out.cap;
}

static struct bucket bucket_of(const struct open_series *o, const struct sample *sample, int64_t width)
{
    double v = sample->value;
    struct bucket b = {.b = {.start = bucket_start(sample->at, width), .width = (uint32_t)width}};
    if (sample->is_stale) {
        b.b.stale_at = sample->at;
        return b;
    }
    b.b.first = b.b.last_at = sample->at;
    b.b.last = v;
    b.b.n_nan = isnan(v);
    if (isnan(v))
        return b;
    b.b.count = 1;
    b.b.sum = b.b.min = b.b.max = b.number = v;
    b.b.rise = o->state.has_number ? bucket_rise(o->state.number, v) : 0;
    return b;
}

void open_series_add(struct open_series *o, const struct sample *sample, int64_t width)
{
    struct bucket b = bucket_of(o, sample, width);
    bool is_same = o->has_open && o->open.b.start == b.b.start;
    if (o->has_open && !is_same) {
        bucket_writer_add(&o->closed, &o->open);
        o->n_closed++;
    }
    if (is_same)
        bucket_fold(&o->open, &b);
    else
        o->open = b;
    o->has_open = true;
    o->min_at = o->is_touched ? o->min_at : sample->at;
    o->is_touched = true;
    o->state.last_at = sample->at;
    if (b.b.count > 0) {
        o->state.number = b.number;
        o->state.has_number = true;
    }
}

void open_series_copy(const struct open_series *o, struct buf *pieces, struct block_series *out)
{
    size_t before = pieces->len;
    *out = (struct block_series){.n_labels = o->n_labels};
    if (!o->is_touched)
        return;
    bucket_writer_copy(&o->closed, o->has_open ? &o->open : NULL, pieces);
    out->min_at = o->min_at;
    out->max_at = o->state.last_at;
    out->n_buckets = o->n_closed + o->has_open;
    out->pieces = bytes_of(pieces->ptr + before, pieces->len - before);
}

uint32_t open_series_next_idle(const struct open_series *o)
{
    return o->is_touched ? 0 : o->state.idle + 1;
}

bool open_series_is_forgotten(const struct open_series *o, int64_t wall)
{
    return open_series_next_idle(o) >= SAMPLE_STORE_IDLE_CUTS &&
           o->state.last_at <= wall - SAMPLE_STORE_IDLE_TIME;
}

void open_series_begin_block(struct open_series *o)
{
    o->state.idle = open_series_next_idle(o);
    o->has_open = o->is_touched = false;
    o->n_closed = 0;
    bucket_writer_free(&o->closed);
    begin_code(o);
}
