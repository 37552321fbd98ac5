#include "compactor/line_sort.h"

#define STEP 8          /* bytes that a reference caches */
#define SMALL 24        /* references that insertion sorts fastest */
#define PREFETCH 16     /* references ahead whose text is fetched from memory */
#define NINTHER_MIN 256 /* references from which on nine samples choose the pivot */

/* References whose lines share `depth` bytes. */
struct range {
    struct line_ref *refs;
    size_t n;
    uint32_t depth;
};

/* The bytes from `depth` on as a number that orders as they do. The bytes past the end of the line are 0. */
static uint64_t load(const char *block, const struct line_ref *r, uint32_t depth)
{
    uint64_t bytes;
    uint32_t left = r->len - depth;
    memcpy(&bytes, block + r->at + depth, sizeof bytes);
    bytes = __builtin_bswap64(bytes);
    if (left >= STEP)
        return bytes;
    return left == 0 ? 0 : bytes >> (STEP - left) * 8 << (STEP - left) * 8;
}

/* A line of which all bytes are cached or compared: no line contains a NUL. */
static bool is_at_end(uint64_t cache)
{
    return (cache & 0xff) == 0;
}

void line_sort_prepare(const char *block, struct line_ref *ref)
{
    ref->cache = load(block, ref, 0);
}

static bool is_less(const char *block, uint32_t depth, const struct line_ref *a, const struct line_ref *b)
{
    if (a->cache != b->cache || is_at_end(a->cache))
        return a->cache < b->cache;
    uint32_t from = depth + STEP;
    return bytes_compare(bytes_of(block + a->at + from, a->len - from),
               bytes_of(block + b->at + from, b->len - from)) < 0;
}

static void insertion_sort(const char *block, struct range r)
{
    for (size_t i = 1; i < r.n; i++) {
        struct line_ref moving = r.refs[i];
        size_t k = i;
        for (; k > 0 && is_less(block, r.depth, &moving, &r.refs[k - 1]); k--)
            r.refs[k] = r.refs[k - 1];
        r.refs[k] = moving;
    }
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c)
{
    if (a < b)
        return b < c ? b : a < c ? c : a;
    return a < c ? a : b < c ? c : b;
}

static uint64_t choose_pivot(const struct line_ref *refs, size_t n)
{
    size_t step = n / 9;
    if (n < NINTHER_MIN)
        return median(refs[0].cache, refs[n / 2].cache, refs[n - 1].cache);
    return median(median(refs[0].cache, refs[step].cache, refs[2 * step].cache),
        median(refs[3 * step].cache, refs[4 * step].cache, refs[5 * step].cache),
        median(refs[6 * step].cache, refs[7 * step].cache, refs[n - 1].cache));
}

static void swap(struct line_ref *a, struct line_ref *b)
{
    struct line_ref t = *a;
    *a = *b;
    *b = t;
}

/* Partitions the range by its pivot. The lines that equal the pivot share eight more bytes; they are done if they end there. */
static void partition(const char *block, struct range r, struct range parts[3])
{
    uint64_t pivot = choose_pivot(r.refs, r.n);
    size_t less = 0, at = 0, more = r.n;
    while (at < more) {
        if (r.refs[at].cache < pivot)
            swap(&r.refs[less++], &r.refs[at++]);
        else if (r.refs[at].cache > pivot)
            swap(&r.refs[at], &r.refs[--more]);
        else
            at++;
    }
    parts[0] = (struct range){r.refs, less, r.depth};
    parts[1] = (struct range){r.refs + less, is_at_end(pivot) ? 0 : more - less, r.depth + STEP};
    parts[2] = (struct range){r.refs + more, r.n - more, r.depth};
    const struct range *equal = &parts[1];
    for (size_t i = 0; i < equal->n; i++) {
        if (i + PREFETCH < equal->n)
            __builtin_prefetch(block + equal->refs[i + PREFETCH].at + equal->depth);
        equal->refs[i].cache = load(block, &equal->refs[i], equal->depth);
    }
}

/* Recurses into the two smaller parts and continues with the largest, so the recursion is at most log2(n) deep. */
static void sort_range(const char *block, struct range r)
{
    while (r.n > SMALL) {
        struct range parts[3];
        size_t largest = 0;
        partition(block, r, parts);
        for (size_t i = 1; i < 3; i++)
            largest = parts[i].n > parts[largest].n ? i : largest;
        for (size_t i = 0; i < 3; i++)
            if (i != largest)
                sort_range(block, parts[i]);
        r = parts[largest];
    }
    insertion_sort(block, r);
}

void line_sort(const char *block, struct line_ref *refs, size_t n)
{
    sort_range(block, (struct range){refs, n, 0});
}
