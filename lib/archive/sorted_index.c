#include "archive/sorted_index.h"

#include "base/lower_bound.h"
#include "base/simd.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <sys/mman.h>

#define INDEX_MAGIC 0x53496478u
#define INDEX_FANOUT 16
#define INDEX_KEYS (INDEX_FANOUT - 1)
#define INDEX_NODE_WORDS 16 /* a node has the keys, then the number of shared bytes */
#define INDEX_NODE_BYTES (INDEX_NODE_WORDS * sizeof(uint64_t))
#define INDEX_KEY_BYTES sizeof(uint64_t)
#define INDEX_SHARED_MAX 120 /* maximal number of a sample's bytes before its key */
#define INDEX_LEVELS_MAX 16
#define HUGE_PAGE ((size_t)2 << 20)
#define CACHE_LINE 64
#define HEAD_BYTES (INDEX_SHARED_MAX + INDEX_KEY_BYTES)

struct long_line {
    size_t begin, end;
};

/* The number of a node's keys before the searched key (low), and at or before the searched key (high). */
struct key_range {
    size_t low, high;
};

/* The beginning of a line without LF, padded with zeros. */
struct sample {
    char text[HEAD_BYTES];
};

/* The incomplete node of a level. */
struct open_node {
    struct sample before; /* the sample before the node's first sample */
    struct sample samples[INDEX_KEYS];
    unsigned n;
    uint64_t *to;
};

struct builder {
    size_t at, blocks;             /* bytes and blocks indexed so far */
    size_t line;                   /* the start of the line that contains the next byte */
    struct sample first, covering; /* samples of the first line and the latest line */
    size_t long_cap;
    struct open_node nodes[INDEX_LEVELS_MAX];
};

struct sorted_index {
    unsigned magic;
    struct bytes text;
    size_t blocks, last; /* `last` is the offset of the last line */
    /* Level k has the samples whose number is divisible by 16^k but not by 16^(k+1). */
    unsigned n_levels;
    uint64_t *levels[INDEX_LEVELS_MAX];
    uint64_t *words; /* all nodes */
    size_t n_words;
    struct long_line *long_lines;
    size_t n_long;
    struct builder *builder; /* NULL: the index is complete */
};

static size_t divide_up(size_t n, size_t by)
{
    return n / by + (n % by != 0);
}

static void place_levels(struct sorted_index *i)
{
    size_t first[INDEX_LEVELS_MAX] = {0}; /* index of each level's first word */
    for (size_t above = i->blocks; above > 1;) {
        above = divide_up(above, INDEX_FANOUT);
        first[i->n_levels++] = i->n_words;
        i->n_words += above * INDEX_NODE_WORDS;
    }
    size_t align = i->n_words * sizeof(uint64_t) >= HUGE_PAGE ? HUGE_PAGE : INDEX_NODE_BYTES;
    size_t bytes = (i->n_words * sizeof(uint64_t) / align + 1) * align;
    i->words = aligned_alloc(align, bytes);
    if (!i->words)
        abort();
    if (align == HUGE_PAGE)
        madvise(i->words, bytes, MADV_HUGEPAGE); /* a search touches a few random lines */
    for (unsigned k = 0; k < i->n_levels; k++)
        i->levels[k] = i->builder->nodes[k].to = i->words + first[k];
}

struct sorted_index *sorted_index_new(struct bytes text)
{
    struct sorted_index *i = mem_zalloc(sizeof *i);
    i->magic = INDEX_MAGIC;
    i->text = text;
    i->blocks = divide_up(text.len, SORTED_INDEX_BLOCK);
    i->builder = mem_zalloc(sizeof *i->builder);
    place_levels(i);
    return i;
}

static uint64_t key_at(const char *p)
{
    uint64_t key;
    memcpy(&key, p, sizeof key);
    return be64toh(key);
}

static struct sample take_sample(struct bytes text, size_t line)
{
    struct sample s = {{0}};
    size_t left = text.len - line, n = left < HEAD_BYTES ? left : HEAD_BYTES;
    const char *p = text.ptr + line, *lf = memchr(p, '\n', n);
    memcpy(s.text, p, lf ? (size_t)(lf - p) : n);
    return s;
}

/* Writes a complete node. All samples of the node are between node->before and `after`. */
static void close_node(struct open_node *node, const struct sample *after)
{
    size_t shared = 0;
    while (shared < INDEX_SHARED_MAX && node->before.text[shared] == after->text[shared])
        shared++;
    for (unsigned k = 0; k < INDEX_KEYS; k++)
        node->to[k] = k < node->n ? key_at(node->samples[k].text + shared) : UINT64_MAX;
    node->to[INDEX_KEYS] = shared;
    node->to += INDEX_NODE_WORDS;
    node->before = *after;
    node->n = 0;
}

static void add_sample(struct builder *b, const struct sample *s)
{
    size_t rank = b->blocks++;
    if (rank == 0)
        b->first = *s;
    for (struct open_node *node = b->nodes; rank > 0; node++, rank /= INDEX_FANOUT) {
        if (rank == 1)
            node->before = b->first;
        if (rank % INDEX_FANOUT != 0) {
            node->samples[node->n++] = *s;
            return;
        }
        close_node(node, s);
    }
}

/* Adds the line that ends at `end` to the list of long lines, if the line is long. */
static void list_if_long(struct sorted_index *i, size_t end)
{
    struct builder *b = i->builder;
    if (end - b->line > SORTED_INDEX_LONG_LINE) {
        ARRAY_ROOM(i->long_lines, b->long_cap, i->n_long + 1);
        i->long_lines[i->n_long++] = (struct long_line){b->line, end};
    }
}

static void add_block(struct sorted_index *i, size_t n)
{
    struct builder *b = i->builder;
    const char *p = i->text.ptr + b->at, *first_lf = memchr(p, '\n', n),
               *before_last = memrchr(p, '\n', n - 1);
    size_t first = b->line == b->at ? 0 : first_lf ? (size_t)(first_lf - p) + 1 : n;
    size_t last = before_last ? (size_t)(before_last - p) + 1 : first;
    struct sample sample = b->covering;
    if (first < n) {
        sample = take_sample(i->text, b->at + first);
        b->covering = last == first ? sample : take_sample(i->text, b->at + last);
        i->last = b->at + last;
    }
    if (first_lf) {
        list_if_long(i, b->at + (size_t)(first_lf - p) + 1);
        b->line = p[n - 1] == '\n' ? b->at + n : i->last;
    }
    b->at += n;
    add_sample(b, &sample);
}

void sorted_index_extend(struct sorted_index *i, size_t end)
{
    struct builder *b = i->builder;
    while (end - b->at >= SORTED_INDEX_BLOCK)
        add_block(i, SORTED_INDEX_BLOCK);
    if (end < i->text.len)
        return;
    if (b->at < end)
        add_block(i, end - b->at);
    list_if_long(i, end);
    for (unsigned k = 0; k < i->n_levels; k++)
        close_node(&b->nodes[k], &b->covering);
    free(b);
    i->builder = NULL;
}

void sorted_index_free(struct sorted_index **ip)
{
    struct sorted_index *i = *ip;
    *ip = NULL;
    if (!i)
        return;
    assert(i->magic == INDEX_MAGIC);
    free(i->builder);
    free(i->long_lines);
    free(i->words);
    i->magic = 0;
    free(i);
}

int sorted_index_lock(const struct sorted_index *i)
{
    if (mlock(i->words, i->n_words * sizeof(uint64_t)) != 0)
        return -1;
    return mlock(i->long_lines, i->n_long * sizeof(struct long_line));
}

static struct key_range find_key_plain(const uint64_t *node, uint64_t key)
{
    const uint64_t *p = node;
    p += (size_t)(p[7] < key) * 8;
    p += (size_t)(p[3] < key) * 4;
    p += (size_t)(p[1] < key) * 2;
    p += p[0] < key;
    struct key_range r = {(size_t)(p - node), (size_t)(p - node)};
    while (r.high < INDEX_KEYS && node[r.high] == key)
        r.high++;
    return r;
}

#ifdef __x86_64__
/* Compares all keys of a node at once. AVX2 compares signed numbers, so the highest bits are inverted. */
SIMD static struct key_range find_key_wide(const uint64_t *node, uint64_t key)
{
    const __m256i flip = _mm256_set1_epi64x(INT64_MIN), sought = _mm256_set1_epi64x((int64_t)key),
                  flipped = _mm256_xor_si256(sought, flip);
    unsigned less = 0, equal = 0;
    for (unsigned i = 0; i < INDEX_NODE_WORDS; i += 4) {
        __m256i keys = simd_at((const char *)(node + i));
        __m256i is_less = _mm256_cmpgt_epi64(flipped, _mm256_xor_si256(keys, flip)),
                is_equal = _mm256_cmpeq_epi64(keys, sought);
        less |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(is_less)) << i;
        equal |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(is_equal)) << i;
    }
    unsigned keys = (1u << INDEX_KEYS) - 1; /* mask of the keys, without the number of shared bytes */
    size_t low = (size_t)__builtin_popcount(less & keys);
    return (struct key_range){low, low + (size_t)__builtin_popcount(equal & keys)};
}
#endif

static struct key_range find_key(const uint64_t *node, uint64_t key)
{
#ifdef __x86_64__
    if (simd_available())
        return find_key_wide(node, key);
#endif
    return find_key_plain(node, key);
}

/* The listed long line that contains the byte at `at`, or NULL. */
static const struct long_line *long_line_at(const struct sorted_index *i, size_t at)
{
    size_t k = LOWER_BOUND(j, 0, i->n_long, i->long_lines[j].end <= at);
    return k < i->n_long && i->long_lines[k].begin <= at ? &i->long_lines[k] : NULL;
}

size_t sorted_index_line_end(const struct sorted_index *i, size_t at)
{
    struct bytes text = i->text;
    if (at >= text.len)
        return text.len;
    size_t n = text.len - at < SORTED_INDEX_LONG_LINE ? text.len - at : SORTED_INDEX_LONG_LINE;
    const char *lf = memchr(text.ptr + at, '\n', n);
    if (lf)
        return (size_t)(lf - text.ptr) + 1;
    const struct long_line *line = long_line_at(i, at);
    if (line)
        return line->end;
    lf = memchr(text.ptr + at, '\n', text.len - at);
    return lf ? (size_t)(lf - text.ptr) + 1 : text.len;
}

/* The start of the line that contains the byte at `at`, which must not be the line's first byte. */
static size_t covering_line(const struct sorted_index *i, size_t at)
{
    const char *p = i->text.ptr;
    size_t window = at - 1 < SORTED_INDEX_LONG_LINE ? at - 1 : SORTED_INDEX_LONG_LINE;
    const char *lf = memrchr(p + at - 1 - window, '\n', window);
    if (lf)
        return (size_t)(lf - p) + 1;
    const struct long_line *line = long_line_at(i, at);
    return line ? line->begin : window == at - 1 ? 0 : at;
}

/* The start of a block's sample. */
static size_t sample_line(const struct sorted_index *i, size_t block)
{
    size_t at = block * SORTED_INDEX_BLOCK, left = i->text.len - at;
    if (at == 0)
        return 0;
    const char *lf =
        memchr(i->text.ptr + at - 1, '\n', left < SORTED_INDEX_BLOCK ? left : SORTED_INDEX_BLOCK);
    return lf ? (size_t)(lf - i->text.ptr) + 1 : covering_line(i, at);
}

static bool is_before(struct bytes text, size_t line, const struct sorted_target *target)
{
    const char *p = text.ptr + line;
    size_t left = text.len - line, n = left < target->key.len ? left : target->key.len;
    int order = n ? memcmp(p, target->key.ptr, n) : 0;
    if (order != 0 || n < target->key.len)
        return order <= 0;
    if (target->end == SORTED_NO_END)
        return target->is_past;
    if (n == left)
        return true;
    int byte = (unsigned char)p[n];
    return byte != target->end ? byte < target->end : target->is_past;
}

/* Copies the first bytes of a target, padded so that the copy sorts like the target. */
static void make_head(const struct sorted_target *target, char head[HEAD_BYTES])
{
    size_t n = target->key.len < HEAD_BYTES ? target->key.len : HEAD_BYTES;
    memset(head, target->is_past ? 0xff : 0, HEAD_BYTES);
    if (n)
        memcpy(head, target->key.ptr, n);
    if (n < HEAD_BYTES && target->end != SORTED_NO_END)
        head[n] = (char)target->end;
}

/* The last block whose sample is before the target. */
struct place {
    size_t block;
    size_t shared; /* number of bytes that the target shares with all lines up to the next block's sample */
    uint64_t key;  /* the target's bytes after the shared bytes */
};

/* Finds the last block whose sample is before the target. The first sample must be before the target, and the last
 * line at or after the target. */
static struct place find_block(const struct sorted_index *i, const struct sorted_target *target)
{
    char head[HEAD_BYTES];
    struct place place = {0, 0, 0};
    size_t at = 0; /* number of the node in its level; after the loop, number of the block */
    make_head(target, head);
    place.key = key_at(head);
    for (unsigned k = i->n_levels; k-- > 0;) {
        const uint64_t *node = i->levels[k] + at * INDEX_NODE_WORDS;
        __builtin_prefetch(node); /* the processor then fetches both cache lines of the node */
        if (k == 0)               /* the page of text with the result: fetch its address translation, too */
            __builtin_prefetch(i->text.ptr + at * INDEX_FANOUT * SORTED_INDEX_BLOCK);
        place.shared = node[INDEX_KEYS];
        place.key = key_at(head + place.shared);
        struct key_range keys = find_key(node, place.key);
        size_t low = keys.low, high = keys.high;
        at *= INDEX_FANOUT;
        while (low < high) { /* for samples with the same 8 bytes, compare the whole lines */
            size_t middle = (low + high) / 2, block = (at + middle + 1) << (4 * k);
            if (block < i->blocks && is_before(i->text, sample_line(i, block), target))
                low = middle + 1;
            else
                high = middle;
        }
        at += low;
    }
    place.block = at;
    return place;
}

static bool is_before_near(
    struct bytes text, size_t line, const struct place *place, const struct sorted_target *target)
{
    if (text.len - line >= place->shared + INDEX_KEY_BYTES) {
        uint64_t key = key_at(text.ptr + line + place->shared);
        if (key != place->key)
            return key < place->key;
    }
    return is_before(text, line, target);
}

#ifdef __x86_64__
/* Finds the first line after `from` at or after the target. Searches only the first bytes; returns 0 if these have
 * no such line. */
SIMD static size_t scan_wide(
    struct bytes text, size_t from, const struct place *place, const struct sorted_target *target)
{
    for (size_t end = from + SORTED_INDEX_BLOCK + SIMD_STEP; from < end && text.len - from >= SIMD_STEP;
         from += SIMD_STEP) {
        const char *p = text.ptr + from;
        uint64_t lfs = simd_bits(simd_equal(simd_at(p), '\n'), simd_equal(simd_at(p + SIMD_STEP / 2), '\n'));
        for (; lfs; lfs &= lfs - 1) {
            size_t line = from + (size_t)__builtin_ctzll(lfs) + 1;
            if (line == text.len || !is_before_near(text, line, place, target))
                return line;
        }
    }
    return 0;
}
#endif

/* Returns the first line that begins at or after `at` and is at or after the target. */
static size_t scan(
    const struct sorted_index *i, size_t at, const struct place *place, const struct sorted_target *target)
{
    struct bytes text = i->text;
#ifdef __x86_64__
    size_t found = simd_available() ? scan_wide(text, at > 0 ? at - 1 : 0, place, target) : 0;
    if (found > 0)
        return found;
#endif
    if (at > 0) {
        const char *lf = memchr(text.ptr + at - 1, '\n', text.len - at + 1);
        at = lf ? (size_t)(lf - text.ptr) + 1 : text.len;
    }
    while (at < text.len && is_before_near(text, at, place, target))
        at = sorted_index_line_end(i, at);
    return at;
}

size_t sorted_index_seek(const struct sorted_index *i, const struct sorted_target *target)
{
    struct bytes text = i->text;
    if (text.len == 0)
        return 0;
    assert(!i->builder);
    if (!is_before(text, 0, target))
        return 0;
    if (is_before(text, i->last, target))
        return text.len;
    struct place place = find_block(i, target);
    size_t at = place.block * SORTED_INDEX_BLOCK;
    for (size_t line = at; line < at + SORTED_INDEX_BLOCK + CACHE_LINE && line < text.len; line += CACHE_LINE)
        __builtin_prefetch(text.ptr + line);
    return scan(i, at, &place, target);
}
