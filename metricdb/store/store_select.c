/* Queries: the series of blocks and memory that match, and their buckets. */
#include "metricdb/store/series_walk.h"
#include "metricdb/store/store_parts.h"

#include <stdlib.h>
#include <sys/param.h>

/* Where a series of the answer begins in the arrays. */
struct found_series {
    size_t labels, n_labels, buckets, n_buckets;
};

/* A query, and then the memory of its answer. */
struct store_query {
    struct sample_store *s;
    const struct metric_request *request;
    struct label_match *match;
    int64_t width, from, to; /* the span in whole buckets */
    struct block **blocks;   /* a reference each */
    size_t n_blocks;
    uint64_t **bits; /* of each block: the series that match */
    /* The matching series in memory. */
    struct walk_series *open;
    size_t n_open, open_cap;
    /* The answer. */
    struct found_series *found;
    size_t n_found, found_cap;
    struct metric_label *labels;
    size_t n_labels, labels_cap;
    struct sample_bucket *buckets;
    size_t n_buckets, buckets_cap;
    struct metric_series *series;
};

static void query_free(struct store_query **qp)
{
    struct store_query *q = *qp;
    for (size_t i = 0; i < q->n_blocks; i++) {
        block_unref(&q->blocks[i]);
        free(q->bits[i]);
    }
    for (size_t i = 0; i < q->n_open; i++) {
        free(q->open[i].labels);
        free(q->open[i].pieces);
    }
    label_match_free(&q->match);
    free(q->blocks);
    free(q->bits);
    free(q->open);
    free(q->found);
    free(q->labels);
    free(q->buckets);
    free(q->series);
    free(q);
    *qp = NULL;
}

static void free_selection(struct metric_selection *selection)
{
    struct store_query *q = selection->memory;
    query_free(&q);
}

static int too_many(struct error *error, const char *what, size_t max)
{
    return error_set(error, METRIC_TOO_MANY,
        "the query needs more than %zu %s: select fewer series or a shorter time", max, what);
}

/* Copies a matching series of the memory. The texts follow the labels. */
static void copy_open(struct store_query *q, const struct open_series *o)
{
    struct walk_series *w = ARRAY_ADD(q->open, q->n_open, q->open_cap);
    struct buf pieces = {0};
    size_t size = o->n_labels * sizeof *o->labels;
    w->labels = mem_alloc(size + o->key_len);
    char *key = memcpy((char *)w->labels + size, o->key, o->key_len);
    for (uint32_t i = 0; i < o->n_labels; i++) {
        w->labels[i] = o->labels[i];
        w->labels[i].name.ptr = key + (o->labels[i].name.ptr - o->key);
        w->labels[i].value.ptr = key + (o->labels[i].value.ptr - o->key);
    }
    open_series_copy(o, &pieces, &w->series);
    w->pieces = pieces.ptr;
}

static int by_labels(const void *a, const void *b)
{
    const struct walk_series *x = a, *y = b;
    return metric_labels_compare(x->labels, x->series.n_labels, y->labels, y->series.n_labels);
}

/* Sets the span that is read: whole buckets of a width, and of those used before. */
static void widen_span(struct store_query *q, int64_t width)
{
    int64_t from = MIN(MAX(q->request->from, 0), BUCKET_TIME_MAX),
            to = MIN(MAX(q->request->to, 0), BUCKET_TIME_MAX);
    q->from = MIN(q->from, bucket_start(from, width));
    q->to = MAX(q->to, bucket_start(to, width) + width);
}

/* Takes a snapshot of the store: references of blocks, and a copy of the matching series in memory.
 */
static int take_snapshot(struct store_query *q, struct error *error)
{
    struct sample_store *s = q->s;
    int r = METRIC_OK;
    pthread_rwlock_rdlock(&s->lock);
    q->blocks = mem_zalloc((s->blocks.n + 1) * sizeof *q->blocks);
    q->bits = mem_zalloc((s->blocks.n + 1) * sizeof *q->bits);
    size_t n = block_list_choose(&s->blocks, q->width, q->blocks);
    for (size_t i = 0; i < n; i++) {
        const struct block_info *info = block_info(q->blocks[i]);
        widen_span(q, MAX(q->width, info->width));
        if (info->n_buckets > 0 && info->max_at >= q->from && info->min_at <= q->to)
            q->blocks[q->n_blocks++] = block_ref(q->blocks[i]);
    }
    widen_span(q, q->width);
    for (const struct open_series *o = s->series; o && r == METRIC_OK; o = o->hh.next) {
        if (!o->is_touched || o->state.last_at < q->from || o->min_at > q->to ||
            !label_match_series(q->match, o->labels, o->n_labels))
            continue;
        if (q->n_open == q->request->max_series)
            r = too_many(error, "series", q->request->max_series);
        else
            copy_open(q, o);
    }
    pthread_rwlock_unlock(&s->lock);
    if (q->n_open > 0)
        qsort(q->open, q->n_open, sizeof *q->open, by_labels);
    return r;
}

static int match_blocks(struct store_query *q, struct series_walk *walk, struct error *error)
{
    for (size_t i = 0; i < walk->n; i++) {
        walk->inputs[i].from = q->from;
        walk->inputs[i].to = q->to;
    }
    for (size_t i = 0; i < q->n_blocks; i++) {
        struct block *b = q->blocks[i];
        q->bits[i] = mem_alloc((block_info(b)->n_series / 64 + 1) * sizeof(uint64_t));
        if (block_verify(b, error) != 0 || block_match(b, q->match, q->bits[i], error) != 0)
            return error_set(error, METRIC_FAILED, "%s", error->text);
        walk->inputs[i].block = b;
        walk->inputs[i].bits = q->bits[i];
    }
    walk->inputs[q->n_blocks].array = q->open;
    walk->inputs[q->n_blocks].n = q->n_open;
    return METRIC_OK;
}

static int add_bucket(struct store_query *q, const struct bucket *b, struct error *error)
{
    if (b->b.start + b->b.width <= q->request->from || b->b.start > q->request->to)
        return METRIC_OK;
    if (q->n_buckets == q->request->max_buckets)
        return too_many(error, "buckets", q->request->max_buckets);
    *ARRAY_ADD(q->buckets, q->n_buckets, q->buckets_cap) = b->b;
    return METRIC_OK;
}

/* Reads the buckets of the current series from one input. */
static int read_input(
    struct store_query *q, const struct walk_input *in, struct bucket_widener *widener, struct error *error)
{
    struct bucket_reader reader;
    struct bucket b, done;
    enum bucket_status status;
    int r = METRIC_OK;
    int64_t width = in->block ? block_info(in->block)->width : q->s->config.resolution;
    bucket_reader_begin(&reader, in->series.pieces, width, q->from, q->to);
    while (r == METRIC_OK && (status = bucket_reader_next(&reader, &b)) != BUCKET_END) {
        if (status == BUCKET_DAMAGED) {
            block_damaged(in->block, "the buckets of a series", error);
            return error_set(error, METRIC_FAILED, "%s", error->text);
        }
        if (bucket_widener_add(widener, &b, &done))
            r = add_bucket(q, &done, error);
    }
    return r;
}

static int add_series(struct store_query *q, const struct series_walk *walk, struct error *error)
{
    const struct walk_input *first = series_walk_current(walk);
    struct found_series f = {q->n_labels, first->series.n_labels, q->n_buckets, 0};
    struct bucket_widener widener = {.width = q->width};
    int r = METRIC_OK;
    for (size_t i = 0; r == METRIC_OK && !q->request->labels_only && i < walk->n_group; i++)
        r = read_input(q, &walk->inputs[walk->group[i]], &widener, error);
    if (r == METRIC_OK && widener.has_bucket)
        r = add_bucket(q, &widener.bucket, error);
    f.n_buckets = q->n_buckets - f.buckets;
    if (r != METRIC_OK || (f.n_buckets == 0 && !q->request->labels_only))
        return r;
    if (q->n_found == q->request->max_series)
        return too_many(error, "series", q->request->max_series);
    ARRAY_ROOM(q->labels, q->labels_cap, q->n_labels + f.n_labels);
    memcpy(q->labels + q->n_labels, first->labels, f.n_labels * sizeof *q->labels);
    q->n_labels += f.n_labels;
    *ARRAY_ADD(q->found, q->n_found, q->found_cap) = f;
    return METRIC_OK;
}

static int read_all(struct store_query *q, struct error *error)
{
    const struct metric_request *request = q->request;
    struct series_walk walk;
    series_walk_begin(&walk, q->n_blocks + 1);
    int r = match_blocks(q, &walk, error), more = 1;
    while (r == METRIC_OK && (more = series_walk_next(&walk, error)) > 0)
        r = request->stop && request->stop(request->stop_context)
                ? error_set(error, METRIC_STOPPED, "the query was stopped before its end")
                : add_series(q, &walk, error);
    for (size_t i = 0; more == 0 && i < q->n_blocks; i++)
        more = block_check_whole(q->blocks[i], error);
    if (r == METRIC_OK && more < 0)
        r = error_set(error, METRIC_FAILED, "%s", error->text);
    series_walk_free(&walk);
    return r;
}

static void give(struct store_query *q, struct metric_selection *selection)
{
    q->series = mem_alloc((q->n_found + 1) * sizeof *q->series);
    for (size_t i = 0; i < q->n_found; i++) {
        const struct found_series *f = &q->found[i];
        q->series[i] = (struct metric_series){q->labels + f->labels, f->n_labels,
            f->n_buckets > 0 ? q->buckets + f->buckets : NULL, f->n_buckets};
    }
    *selection = (struct metric_selection){
        .series = q->series, .n_series = q->n_found, .memory = q, .free = free_selection};
}

/* The coarsest width of the store that the query can use. */
static int64_t choose_width(const struct sample_store *s, int64_t max_width)
{
    size_t i = s->n_widths - 1;
    while (i > 0 && s->widths[i] > max_width)
        i--;
    return s->widths[i];
}

static enum metric_result store_select(void *context, const struct metric_request *request,
    struct metric_selection *selection, struct error *error)
{
    struct sample_store *s = context;
    struct error unused;
    error = error ? error : &unused;
    *selection = (struct metric_selection){0};
    struct store_query *q = mem_zalloc(sizeof *q);
    q->s = s;
    q->request = request;
    q->width = choose_width(s, request->max_width);
    q->from = BUCKET_TIME_MAX;
    q->match = label_match_new(request->matchers, request->n_matchers, error);
    int r = q->match ? take_snapshot(q, error) : METRIC_BAD_PATTERN;
    if (r == METRIC_OK)
        r = read_all(q, error);
    if (r == METRIC_OK && label_match_failed(q->match, error))
        r = METRIC_BAD_PATTERN;
    if (r == METRIC_OK)
        give(q, selection);
    else
        query_free(&q);
    return (enum metric_result)r;
}

static int64_t store_closed(void *context, uint64_t *epoch)
{
    struct sample_store *s = context;
    pthread_rwlock_rdlock(&s->lock);
    int64_t closed = s->newest - SAMPLE_STORE_LATE;
    *epoch = s->late + s->stats.deleted;
    pthread_rwlock_unlock(&s->lock);
    return closed;
}

struct metric_source sample_store_source(struct sample_store *s)
{
    return (struct metric_source){.context = s, .select = store_select, .closed = store_closed};
}
