#include "api/histogram.h"

#include "counts/bucket.h"
#include "counts/key_function.h"
#include <stdlib.h>

#define FIRST_COUNTS 1024

/* A bucket whose name is stored as a hash. */
struct hashed_bucket {
    char hash[COMPONENT_HASH];
    int bucket;
};

static int compare_hashes(const void *a, const void *b)
{
    return memcmp(a, b, COMPONENT_HASH);
}

/* Fills the table of all buckets whose names are stored as hashes. */
static void hash_names(struct hashed_bucket *table, size_t *n)
{
    char name[BUCKET_TEXT_MAX], space[COMPONENT_HASH + 1];
    for (int i = -BUCKET_LAST; i <= BUCKET_LAST; i++) {
        struct bytes stored = component_store(bytes_of(name, bucket_print(i, name)), space);
        if (!component_is_hash(stored))
            continue;
        memcpy(table[*n].hash, stored.ptr, COMPONENT_HASH);
        table[(*n)++].bucket = i;
    }
    qsort(table, *n, sizeof *table, compare_hashes);
}

/* Reads a sub key in its stored form. Returns false if the sub key is not a bucket. */
static bool read_stored(struct bytes stored, int *bucket)
{
    static struct hashed_bucket table[2 * BUCKET_LAST + 1];
    static size_t n;
    if (n == 0)
        hash_names(table, &n);
    const struct hashed_bucket *found =
        component_is_hash(stored) ? bsearch(stored.ptr, table, n, sizeof *table, compare_hashes) : NULL;
    if (!found)
        return bucket_parse(stored, bucket);
    *bucket = found->bucket;
    return true;
}

void histogram_free(struct histogram *h)
{
    free(h->counts);
    *h = (struct histogram){0};
}

static int compare(const void *a, const void *b)
{
    const struct histogram_count *x = a, *y = b;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

void histogram_finish(struct histogram *h)
{
    size_t n = 0;
    if (h->n > 1)
        qsort(h->counts, h->n, sizeof *h->counts, compare);
    for (size_t i = 0; i < h->n; i++) {
        if (n > 0 && compare(&h->counts[n - 1], &h->counts[i]) == 0)
            h->counts[n - 1].n += h->counts[i].n;
        else
            h->counts[n++] = h->counts[i];
    }
    h->n = n;
}

/* Appends a count. If the counts fill their memory, first adds up those of the same unit and bucket. */
static void append(struct histogram *h, struct histogram_count count)
{
    if (h->n == h->cap) {
        histogram_finish(h);
        if (h->n >= h->cap / 2) {
            h->cap = h->cap ? 2 * h->cap : FIRST_COUNTS;
            h->counts = mem_realloc(h->counts, h->cap * sizeof *h->counts);
        }
    }
    h->counts[h->n++] = count;
}

/* True if all counts of the period belong to one row of the answer. */
static bool takes(struct series *s, const struct record_key *period)
{
    if (s->query->is_over_time)
        return series_takes(s, period);
    enum query_overlap overlap = query_overlap(s->query, period);
    s->needs_dropped_hours |= overlap == QUERY_PARTLY;
    return overlap == QUERY_WITHIN;
}

/* Adds to the sums of the series. Returns false if the periods of a source are out of order. */
static bool add_sum(struct series *s, int64_t start, int64_t n)
{
    if (s->query->is_over_time)
        return series_add_count(s, start, n);
    s->is_too_large |= !query_add_absolute(&s->absolute, n);
    s->total += s->is_too_large ? 0 : n;
    return true;
}

bool histogram_add(struct histogram *h, struct series *s, const struct record *r)
{
    const struct query *q = s->query;
    struct bytes value = r->value, name;
    struct record_key key;
    int64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, q->sub->ns))
        return false;
    if (!takes(s, &key))
        return true;
    int64_t unit = q->is_over_time ? units_order(&q->calendar, key.start) : 0;
    while (record_next_count(&value, &name, &n, &bad)) {
        struct histogram_count count = {.unit = unit, .n = n};
        if (bytes_equal_str(name, KEY_NONE))
            continue;
        if (!read_stored(name, &count.bucket))
            h->has_others = true;
        else if (add_sum(s, key.start, n))
            append(h, count);
        else
            return false;
    }
    return !bad;
}

bool histogram_quantile(const struct histogram *h, int64_t unit, int64_t q, int *bucket)
{
    size_t first = 0, end = h->n;
    while (first < end) {
        size_t middle = (first + end) / 2;
        if (h->counts[middle].unit < unit)
            first = middle + 1;
        else
            end = middle;
    }
    int64_t n = 0, below = 0;
    for (end = first; end < h->n && h->counts[end].unit == unit; end++)
        n += h->counts[end].n;
    if (n <= 0)
        return false;
    __extension__ typedef __int128 wide;
    int64_t rank = (int64_t)(((wide)q * n + QUERY_QUANTILE_ONE - 1) / QUERY_QUANTILE_ONE);
    size_t at = first;
    while (at + 1 < end && (below += h->counts[at].n) < rank)
        at++;
    *bucket = h->counts[at].bucket;
    return true;
}
