#include "compactor/line_sort.h"

#define STEP 8 /* number of bytes that a reference caches */
#define CACHE_BITS 64
#define BYTES 256   /* number of values of a byte */
#define SMALL 32    /* up to this number of references, insertion sort is fastest */
#define PREFETCH 16 /* number of references whose text is prefetched */

/* References whose lines share the first `depth` bytes. */
struct range {
    struct line_ref *refs;
    size_t n;
    uint32_t depth;
};

/* Returns the line's bytes from `depth` on as a number that sorts like the bytes. Bytes after the end of the line
 * are 0. */
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

/* Returns true if the cache contains the end of the line. The cache then ends with a NUL, because no line contains a
 * NUL. */
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

/* Caches the bytes from the range's depth on in each reference. */
static void fetch(const char *block, struct range r)
{
    for (size_t i = 0; i < r.n; i++) {
        if (i + PREFETCH < r.n)
            __builtin_prefetch(block + r.refs[i + PREFETCH].at + r.depth);
        r.refs[i].cache = load(block, &r.refs[i], r.depth);
    }
}

/* Returns the position (in the cache) of the first byte that is not the same in all lines, or CACHE_BITS if all bytes
 * are the same. */
static unsigned first_difference(const struct line_ref *refs, size_t n)
{
    uint64_t differ = 0;
    for (size_t i = 1; i < n; i++)
        differ |= refs[i].cache ^ refs[0].cache;
    return differ == 0 ? CACHE_BITS : CACHE_BITS - 8 - (unsigned)__builtin_clzll(differ) / 8 * 8;
}

static unsigned byte_at(const struct line_ref *r, unsigned place)
{
    return r->cache >> place & 0xff;
}

/* Sorts the references by one byte, in place. */
static void distribute(struct line_ref *refs, size_t n, unsigned place, size_t ends[BYTES])
{
    size_t next[BYTES], sum = 0;
    memset(ends, 0, BYTES * sizeof *ends);
    for (size_t i = 0; i < n; i++)
        ends[byte_at(&refs[i], place)]++;
    for (unsigned b = 0; b < BYTES; b++) {
        next[b] = sum;
        sum += ends[b];
        ends[b] = sum;
    }
    for (unsigned b = 0; b < BYTES; b++)
        while (next[b] < ends[b]) {
            struct line_ref moving = refs[next[b]];
            for (unsigned to; (to = byte_at(&moving, place)) != b;) {
                struct line_ref displaced = refs[next[to]];
                refs[next[to]++] = moving;
                moving = displaced;
            }
            refs[next[b]++] = moving;
        }
}

/* Recurses into all parts except the largest, and continues with the largest part. So the recursion is at most
 * log2(n) deep. */
static void sort_range(const char *block, struct range r)
{
    size_t ends[BYTES];
    while (r.n > SMALL) {
        unsigned place = first_difference(r.refs, r.n);
        if (place == CACHE_BITS) {
            if (is_at_end(r.refs->cache))
                return;
            r.depth += STEP;
            fetch(block, r);
            continue;
        }
        distribute(r.refs, r.n, place, ends);
        struct range largest = {r.refs, 0, r.depth};
        size_t from = 0;
        for (unsigned b = 0; b < BYTES; from = ends[b++]) {
            struct range part = {r.refs + from, ends[b] - from, r.depth}, smaller = part;
            if (part.n > largest.n) {
                smaller = largest;
                largest = part;
            }
            if (smaller.n > 1)
                sort_range(block, smaller);
        }
        r = largest;
    }
    insertion_sort(block, r);
}

void line_sort(const char *block, struct line_ref *refs, size_t n)
{
    sort_range(block, (struct range){refs, n, 0});
}
