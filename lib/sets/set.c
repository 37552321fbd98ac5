#include "sets/set.h"

#include "sets/set_bits.h"

#include <assert.h>
#include <roaring/containers/containers.h>
#include <roaring/roaring.h>
#include <stdlib.h>

#define HASH_SHIFT 48
#define LOW_BITS 16
#define GROWTH_MIN 4096
#define ROARING_LIST_MAX 4096 /* numbers of a container that is a list */

struct set {
    roaring_bitmap_t *numbers;
    roaring_bitmap_t *added; /* numbers of the latest chunks, which came in ascending order; NULL: none */
    uint64_t *hashes;
    size_t n_sorted; /* hashes before this index ascend, and the others are in any order */
    size_t n_hashes, room;
};

struct set *set_new(void)
{
    struct set *s = mem_zalloc(sizeof *s);
    s->numbers = roaring_bitmap_create();
    return s;
}

void set_free(struct set **sp)
{
    struct set *s = *sp;
    if (!s)
        return;
    roaring_bitmap_free(s->numbers);
    if (s->added)
        roaring_bitmap_free(s->added);
    free(s->hashes);
    free(s);
    *sp = NULL;
}

static int compare_codes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Replaces the hashes by the union of two ascending lists. */
static void unite_hashes(struct set *s, const uint64_t *a, size_t n, const uint64_t *b, size_t m)
{
    uint64_t *to = mem_alloc((n + m) * sizeof *to);
    size_t i = 0, j = 0, k = 0;
    while (i < n && j < m) {
        uint64_t least = a[i] < b[j] ? a[i] : b[j];
        i += a[i] == least;
        j += b[j] == least;
        to[k++] = least;
    }
    for (; i < n; i++)
        to[k++] = a[i];
    for (; j < m; j++)
        to[k++] = b[j];
    free(s->hashes);
    s->hashes = to;
    s->room = n + m;
    s->n_hashes = s->n_sorted = k;
}

static void sort_hashes(struct set *s)
{
    size_t n = s->n_hashes - s->n_sorted, kept = 0;
    uint64_t *added = s->hashes + s->n_sorted;
    if (n == 0)
        return;
    qsort(added, n, sizeof *added, compare_codes);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || added[kept - 1] != added[i])
            added[kept++] = added[i];
    unite_hashes(s, s->hashes, s->n_sorted, added, kept);
}

static void add_hash(struct set *s, uint64_t code)
{
    bool is_last = s->n_sorted == s->n_hashes && (s->n_hashes == 0 || code > s->hashes[s->n_hashes - 1]);
    *ARRAY_ADD(s->hashes, s->n_hashes, s->room) = code;
    s->n_sorted += is_last;
    if (s->n_hashes - s->n_sorted >= GROWTH_MIN + s->n_sorted)
        sort_hashes(s);
}

void set_add(struct set *s, uint64_t code)
{
    if (code < SET_NUMBER_END)
        roaring_bitmap_add(s->numbers, (uint32_t)code);
    else
        add_hash(s, code);
}

/* A union takes time in proportion to all containers. So the chunks in `added` are united together. */
static void unite_added(struct set *s)
{
    if (!s->added)
        return;
    roaring_bitmap_or_inplace(s->numbers, s->added);
    roaring_bitmap_free(s->added);
    s->added = NULL;
}

static void add_codes(struct set *s, struct bytes id, struct bytes chunk)
{
    uint64_t codes[ROARING_LIST_MAX];
    size_t n = set_chunk_codes(id, chunk, codes, ROARING_LIST_MAX);
    for (size_t i = 0; i < n; i++)
        roaring_bitmap_add(s->numbers, (uint32_t)codes[i]);
}

/* Unites the numbers with a chunk. With a header of 16 bytes, a chunk is a container in Roaring's portable format
 * (github.com/RoaringBitmap/RoaringFormatSpec). The exception is a chunk of exactly 4,096 numbers: a bitmap here, and a
 * list there. */
static void add_container(struct set *s, struct bytes id, struct bytes chunk)
{
    enum { COOKIE = 12346, HEADER = 16 };
    if (set_chunk_size(id, chunk) == ROARING_LIST_MAX) {
        add_codes(s, id, chunk);
        return;
    }
    const uint32_t head[2] = {COOKIE, 1}, place = HEADER;
    uint16_t low[2] = {(uint16_t)((unsigned char)id.ptr[1] << 8 | (unsigned char)id.ptr[2]),
        (uint16_t)(set_chunk_size(id, chunk) - 1)};
    struct buf text = {0};
    buf_append(&text, head, sizeof head);
    buf_append(&text, low, sizeof low);
    buf_append(&text, &place, sizeof place);
    buf_append_bytes(&text, chunk);
    roaring_bitmap_t *one = roaring_bitmap_portable_deserialize_safe(text.ptr, text.len);
    assert(one);
    if (s->added && roaring_bitmap_maximum(s->added) >> LOW_BITS >= low[0])
        unite_added(s);
    if (s->added) {
        ra_append_copy(&s->added->high_low_container, &one->high_low_container, 0, false);
        roaring_bitmap_free(one);
    } else {
        s->added = one;
    }
    buf_free(&text);
}

void set_add_chunk(struct set *s, struct bytes id, struct bytes chunk)
{
    if (id.ptr[0] == 0) {
        add_container(s, id, chunk);
        return;
    }
    for (size_t i = 0; i < chunk.len / sizeof(uint64_t); i++) {
        uint64_t code;
        memcpy(&code, chunk.ptr + i * sizeof code, sizeof code);
        add_hash(s, code);
    }
}

void set_add_view(struct set *s, const struct set_view *v)
{
    if (v->numbers)
        roaring_bitmap_or_inplace(s->numbers, v->numbers);
    sort_hashes(s);
    if (v->n_hashes > 0)
        unite_hashes(s, s->hashes, s->n_hashes, v->hashes, v->n_hashes);
}

struct set_view set_view_of(struct set *s)
{
    unite_added(s);
    sort_hashes(s);
    return (struct set_view){s->numbers, s->hashes, s->n_hashes};
}

uint64_t set_view_size(const struct set_view *v)
{
    return (v->numbers ? roaring_bitmap_get_cardinality(v->numbers) : 0) + v->n_hashes;
}

void set_container_add(const struct roaring_bitmap_s *of, size_t i, bool is_first, uint64_t *bits)
{
    const roaring_array_t *a = &of->high_low_container;
    uint8_t type = a->typecodes[i];
    const void *container = container_unwrap_shared(a->containers[i], &type);
    if (is_first && type != BITSET_CONTAINER_TYPE_CODE)
        memset(bits, 0, SET_BITS_BYTES);
    if (type == BITSET_CONTAINER_TYPE_CODE) {
        const uint64_t *from = ((const bitset_container_t *)container)->array;
        if (is_first)
            memcpy(bits, from, SET_BITS_BYTES);
        else
            set_bits_or(bits, from);
    } else if (type == ARRAY_CONTAINER_TYPE_CODE) {
        const array_container_t *list = container;
        set_bits_add_list(bits, list->array, (size_t)list->cardinality);
    } else {
        const run_container_t *runs = container;
        for (int32_t k = 0; k < runs->n_runs; k++)
            set_bits_add_range(
                bits, runs->runs[k].value, (uint32_t)runs->runs[k].value + runs->runs[k].length);
    }
}

void set_chunks_seek(struct set_chunks *c, uint64_t code)
{
    const struct set_view *v = c->view;
    size_t n = v->numbers ? (size_t)v->numbers->high_low_container.size : 0, end = v->n_hashes;
    while (c->container < n &&
           (code >= SET_NUMBER_END || v->numbers->high_low_container.keys[c->container] < code >> LOW_BITS))
        c->container++;
    while (c->hash < end) {
        size_t middle = c->hash + (end - c->hash) / 2;
        if (v->hashes[middle] < code)
            c->hash = middle + 1;
        else
            end = middle;
    }
}

bool set_chunks_next(struct set_chunks *c, struct bytes *id, struct bytes *chunk)
{
    const struct set_view *v = c->view;
    *id = bytes_of(c->id, sizeof c->id);
    if (v->numbers && c->container < (size_t)v->numbers->high_low_container.size) {
        uint64_t bits[SET_BITS_WORDS];
        set_chunk_id((uint64_t)v->numbers->high_low_container.keys[c->container] << LOW_BITS, c->id);
        set_container_add(v->numbers, c->container++, true, bits);
        buf_clear(&c->chunk);
        set_chunk_append_bits(bits, &c->chunk);
        *chunk = buf_bytes(&c->chunk);
        return true;
    }
    size_t first = c->hash;
    if (first == v->n_hashes)
        return false;
    set_chunk_id(v->hashes[first], c->id);
    while (c->hash < v->n_hashes && c->hash - first < SET_CHUNK_HASHES &&
           v->hashes[c->hash] >> HASH_SHIFT == v->hashes[first] >> HASH_SHIFT)
        c->hash++;
    *chunk = bytes_of(v->hashes + first, (c->hash - first) * sizeof *v->hashes);
    return true;
}

void set_chunks_free(struct set_chunks *c)
{
    buf_free(&c->chunk);
}
