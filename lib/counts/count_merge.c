#include "counts/count_merge.h"

#include "counts/records.h"
#include "counts/set_text.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY_SHOWN 80
#define COLLISION_TEXT 64

/* The first 16 bytes of a text as a number. Comparing prefixes decides most comparisons of texts. */
struct prefix {
    uint64_t high, low;
};

/* A source in a heap. The heap is ordered by the keys of the current records of the sources, or by the names of the
 * current values. */
struct head {
    struct prefix prefix; /* of `text` */
    struct bytes text;
    struct count_source *source;
};

struct heap {
    struct head *heads;
    size_t n, room;
};

struct count_merge {
    struct heap records;  /* sources whose next record has a key after `key` */
    struct heap values;   /* sources that have unmerged values of the current record */
    struct head *current; /* all sources that have the current record */
    size_t n_current, room_current;
    bool has_values;                  /* the heap `values` is filled */
    bool has_name;                    /* `name` holds the name of the previous value */
    bool had_chunk;                   /* the previous value was a chunk */
    struct prefix prefix, key_prefix; /* of `name` and `key` */
    struct buf hashes; /* united hashes with the id `name`, of which the first `taken` bytes were returned */
    size_t taken;
    bool has_begun;                    /* the key of the current record is printed */
    bool is_joined;                    /* the keys of the sources differ from `key` (count_merge_join) */
    struct buf key, name, text, other; /* `other`: memory for the union of two chunks */
    uint64_t collisions;
    char collision[COLLISION_TEXT];
    struct error error;
};

void count_sources_add(struct count_sources *s, struct count_source *source)
{
    s->list = mem_realloc(s->list, (s->n + 1) * sizeof(struct count_source *));
    s->list[s->n++] = source;
}

void count_sources_free(struct count_sources *s)
{
    for (size_t i = 0; i < s->n; i++)
        count_source_close(&s->list[i]);
    free(s->list);
    *s = (struct count_sources){0};
}

enum count_next count_source_follow(
    struct count_source *s, const struct count_source *inner, enum count_next r)
{
    s->key = inner->key;
    s->line = inner->line;
    s->is_set = inner->is_set;
    s->name = inner->name;
    s->text = inner->text;
    s->count = inner->count;
    if (r == COUNT_FAILED)
        s->error = inner->error;
    return r;
}

/* If two texts are no longer than a prefix and have equal prefixes, they differ at most in their length. */
static int compare_texts(struct prefix prefix_a, struct bytes a, struct prefix prefix_b, struct bytes b)
{
    if (prefix_a.high != prefix_b.high)
        return prefix_a.high < prefix_b.high ? -1 : 1;
    if (prefix_a.low != prefix_b.low)
        return prefix_a.low < prefix_b.low ? -1 : 1;
    if (a.len <= sizeof prefix_a && b.len <= sizeof prefix_b)
        return (a.len > b.len) - (a.len < b.len);
    return bytes_compare(a, b);
}

static int compare_heads(const struct head *a, const struct head *b)
{
    return compare_texts(a->prefix, a->text, b->prefix, b->text);
}

static bool is_less(const struct head *a, const struct head *b)
{
    return compare_heads(a, b) < 0;
}

static uint64_t load(const char *p)
{
    uint64_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_bswap64(bytes);
}

static struct prefix prefix_of(struct bytes text)
{
    struct prefix p = {0, 0};
    size_t word = sizeof p.high;
    if (text.len >= 2 * word)
        return (struct prefix){load(text.ptr), load(text.ptr + word)};
    if (text.len > word) /* `low`: the last 8 bytes without the bytes in `high` */
        return (struct prefix){load(text.ptr), load(text.ptr + text.len - word) << (2 * word - text.len) * 8};
    for (size_t i = 0; i < text.len; i++)
        p.high |= (uint64_t)(unsigned char)text.ptr[i] << (word - 1 - i) * 8;
    return p;
}

static struct head head_of(struct count_source *s, struct bytes text)
{
    return (struct head){prefix_of(text), text, s};
}

static void heap_push(struct heap *h, struct head head)
{
    size_t i = h->n++;
    for (; i > 0 && is_less(&head, &h->heads[(i - 1) / 2]); i = (i - 1) / 2)
        h->heads[i] = h->heads[(i - 1) / 2];
    h->heads[i] = head;
}

static void sift_down(struct heap *h, struct head moving)
{
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && is_less(&h->heads[child + 1], &h->heads[child]))
            child++;
        if (!is_less(&h->heads[child], &moving))
            break;
        h->heads[i] = h->heads[child];
    }
    h->heads[i] = moving;
}

static struct head heap_pop(struct heap *h)
{
    struct head first = h->heads[0];
    h->n--;
    sift_down(h, h->heads[h->n]);
    return first;
}

/* Same as heap_push followed by heap_pop. */
static struct head heap_exchange(struct heap *h, struct head head)
{
    if (h->n == 0 || !is_less(&h->heads[0], &head))
        return head;
    struct head first = h->heads[0];
    sift_down(h, head);
    return first;
}

void count_merge_reset(struct count_merge *m, struct count_source **sources, size_t n)
{
    ARRAY_ROOM(m->records.heads, m->records.room, n);
    ARRAY_ROOM(m->values.heads, m->values.room, n);
    ARRAY_ROOM(m->current, m->room_current, n);
    m->records.n = m->n_current = 0;
    buf_clear(&m->key);
    m->key_prefix = (struct prefix){0, 0};
    /* No source has a current record yet, so count_merge_next_record first moves all sources in `current`. */
    for (size_t i = 0; i < n; i++)
        m->current[m->n_current++] = (struct head){.source = sources[i]};
}

struct count_merge *count_merge_new(struct count_source **sources, size_t n)
{
    struct count_merge *m = mem_zalloc(sizeof *m);
    count_merge_reset(m, sources, n);
    return m;
}

void count_merge_free(struct count_merge **mp)
{
    struct count_merge *m = *mp;
    if (!m)
        return;
    free(m->records.heads);
    free(m->values.heads);
    free(m->current);
    buf_free(&m->key);
    buf_free(&m->name);
    buf_free(&m->text);
    buf_free(&m->other);
    buf_free(&m->hashes);
    free(m);
    *mp = NULL;
}

static enum count_next source_failed(struct count_merge *m, const struct count_source *s)
{
    m->error = s->error;
    return COUNT_FAILED;
}

static enum count_next record_failed(struct count_merge *m, const struct count_source *s,
    enum count_failure why, const char *what, struct bytes key)
{
    error_set(&m->error, why, "%.300s: %s at \"%.*s\"", s->container ? s->container : "memory", what,
        (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
    return COUNT_FAILED;
}

enum count_next count_merge_next_record(struct count_merge *m)
{
    /* latest source, not pushed into the heap yet, because most records are in one source only */
    struct head last = {.source = NULL};
    for (size_t i = 0; i < m->n_current; i++) {
        struct count_source *s = m->current[i].source;
        enum count_next r = s->kind->next_record(s);
        if (r == COUNT_FAILED)
            return source_failed(m, s);
        if (r == COUNT_END)
            continue;
        struct head head = head_of(s, s->key);
        if (compare_texts(head.prefix, head.text, m->key_prefix, buf_bytes(&m->key)) <= 0)
            return record_failed(m, s, COUNT_DAMAGED, "out of order", s->key);
        if (last.source)
            heap_push(&m->records, last);
        last = head;
    }
    m->n_current = 0;
    m->has_values = m->has_name = m->has_begun = m->is_joined = false;
    m->hashes.len = m->taken = 0;
    if (!last.source && m->records.n == 0)
        return COUNT_END;
    m->current[m->n_current++] = last.source ? heap_exchange(&m->records, last) : heap_pop(&m->records);
    while (m->records.n > 0 && compare_heads(&m->records.heads[0], &m->current[0]) == 0)
        m->current[m->n_current++] = heap_pop(&m->records);
    m->key_prefix = m->current[0].prefix;
    buf_clear(&m->key);
    buf_append_bytes(&m->key, m->current[0].text);
    return COUNT_FOUND;
}

enum count_next count_merge_join(struct count_merge *m, struct bytes key)
{
    for (size_t i = 0; i < m->n_current; i++) {
        struct count_source *s = m->current[i].source;
        enum count_next r = s->kind->next_record(s);
        if (r != COUNT_FOUND)
            return r == COUNT_FAILED ? source_failed(m, s) : r;
    }
    m->has_values = m->has_name = m->has_begun = false;
    m->hashes.len = m->taken = 0;
    m->is_joined = true;
    m->key_prefix = prefix_of(key);
    buf_clear(&m->key);
    buf_append_bytes(&m->key, key);
    return COUNT_FOUND;
}

struct bytes count_merge_key(const struct count_merge *m)
{
    return buf_bytes(&m->key);
}

bool count_merge_is_set(const struct count_merge *m)
{
    return m->n_current > 0 && m->current[0].source->is_set;
}

struct bytes count_merge_line(const struct count_merge *m)
{
    return m->n_current == 1 && !m->is_joined ? m->current[0].source->line : BYTES_NONE;
}

/* Sets out->text to the smallest text that a source has for the lookup. */
static enum count_next take_text(struct count_merge *m, struct count_value *out)
{
    bool is_first = true;
    if (m->has_values)
        return COUNT_END;
    m->has_values = true;
    for (size_t i = 0; i < m->n_current; i++) {
        struct count_source *s = m->current[i].source;
        enum count_next r;
        for (; (r = s->kind->next_value(s)) == COUNT_FOUND; is_first = false) {
            int order = is_first ? -1 : bytes_compare(s->text, buf_bytes(&m->text));
            if (!is_first && !component_is_same(s->text, buf_bytes(&m->text))) {
                m->collisions++;
                snprintf(m->collision, sizeof m->collision, "%.*s", (int)m->key.len - 1, m->key.ptr);
            }
            if (order >= 0)
                continue;
            buf_clear(&m->text);
            buf_append_bytes(&m->text, s->text);
        }
        if (r == COUNT_FAILED)
            return source_failed(m, s);
    }
    *out = (struct count_value){.text = buf_bytes(&m->text)};
    return is_first ? record_failed(
                          m, m->current[0].source, COUNT_DAMAGED, "a lookup has no text", buf_bytes(&m->key))
                    : COUNT_FOUND;
}

/* A prefix made of the id and of the code, so that chunks of hashes with the same id are in the order of their
 * codes. */
static struct prefix prefix_of_hash(uint64_t code)
{
    return (struct prefix){UINT64_C(1) << 56 | code >> 8, code << 56};
}

static size_t hashes_in(struct bytes chunk)
{
    return chunk.len / sizeof(uint64_t);
}

static bool has_hashes(const struct count_source *s)
{
    return s->text.ptr && set_chunk_is_hashes(s->name);
}

static struct head head_of_value(struct count_source *s)
{
    struct head head = {.text = s->name, .source = s};
    head.prefix = has_hashes(s) ? prefix_of_hash(set_chunk_hash(s->text, 0)) : prefix_of(s->name);
    return head;
}

static enum count_next fetch_value(struct count_merge *m, struct count_source *s)
{
    enum count_next r = s->kind->next_value(s);
    if (r != COUNT_FOUND)
        return r == COUNT_FAILED ? source_failed(m, s) : r;
    struct head head = head_of_value(s);
    if (m->has_name && compare_texts(head.prefix, head.text, m->prefix, buf_bytes(&m->name)) <= 0)
        return record_failed(m, s, COUNT_DAMAGED, "names out of order", buf_bytes(&m->key));
    heap_push(&m->values, head);
    return r;
}

/* Takes a value without the heap, because only one source has the record. */
static enum count_next take_only(struct count_merge *m, struct count_value *out)
{
    struct count_source *s = m->current[0].source;
    enum count_next r = s->kind->next_value(s);
    if (r != COUNT_FOUND)
        return r == COUNT_FAILED ? source_failed(m, s) : r;
    struct head head = head_of_value(s);
    if (m->has_name && compare_texts(head.prefix, head.text, m->prefix, buf_bytes(&m->name)) <= 0)
        return record_failed(m, s, COUNT_DAMAGED, "names out of order", buf_bytes(&m->key));
    buf_clear(&m->name);
    buf_append_bytes(&m->name, s->name);
    m->prefix = has_hashes(s) ? prefix_of_hash(set_chunk_hash(s->text, hashes_in(s->text) - 1)) : head.prefix;
    m->has_name = true;
    *out = (struct count_value){.name = buf_bytes(&m->name), .text = s->text, .count = s->count};
    return COUNT_FOUND;
}

static enum count_next skip_values(struct count_merge *m, struct count_source *s, struct bytes name)
{
    if (!s->kind->skip_values || s->kind->skip_values(s, name) != COUNT_FAILED)
        return COUNT_FOUND;
    return source_failed(m, s);
}

/* Pushes the next value of each source into the heap. Each source first skips values before `name` if it can skip. */
static enum count_next fill_heap(struct count_merge *m, struct bytes name)
{
    m->values.n = 0;
    m->has_values = true;
    for (size_t i = 0; i < m->n_current; i++) {
        struct count_source *s = m->current[i].source;
        if ((name.len > 0 && skip_values(m, s, name) == COUNT_FAILED) || fetch_value(m, s) == COUNT_FAILED)
            return COUNT_FAILED;
    }
    return COUNT_FOUND;
}

enum count_next count_merge_skip_values(struct count_merge *m, struct bytes name)
{
    if (m->n_current == 1)
        return skip_values(m, m->current[0].source, name);
    if (!m->has_values)
        return fill_heap(m, name);
    while (m->values.n > 0 && bytes_compare(m->values.heads[0].text, name) < 0) {
        struct count_source *s = heap_pop(&m->values).source;
        if (skip_values(m, s, name) == COUNT_FAILED || fetch_value(m, s) == COUNT_FAILED)
            return COUNT_FAILED;
    }
    return COUNT_FOUND;
}

/* Sets out->text to the union of the chunks of the value's sources so far and the chunk of `s`. */
static enum count_next add_chunk(
    struct count_merge *m, const struct count_source *s, bool is_first, struct count_value *out)
{
    if (!s->text.ptr || (!is_first && !out->text.ptr))
        return record_failed(m, s, COUNT_DAMAGED, "both counts and sets", buf_bytes(&m->key));
    buf_clear(&m->other);
    if (is_first)
        buf_append_bytes(&m->other, s->text);
    else
        set_chunk_append_union(out->name, out->text, s->text, &m->other);
    struct buf united = m->other;
    m->other = m->text;
    m->text = united;
    out->text = buf_bytes(&m->text);
    return COUNT_FOUND;
}

/* Returns the number of united hashes that are complete as the next value; 0 if a source may have a hash below the last
 * of them. */
static size_t settled_hashes(const struct count_merge *m)
{
    size_t n = hashes_in(buf_bytes(&m->hashes));
    const struct count_source *next = m->values.n > 0 ? m->values.heads[0].source : NULL;
    bool continues = next && has_hashes(next) && bytes_equal(next->name, buf_bytes(&m->name));
    if (n > SET_CHUNK_HASHES)
        n = SET_CHUNK_HASHES;
    if (continues && (n < SET_CHUNK_HASHES ||
                         set_chunk_hash(buf_bytes(&m->hashes), n - 1) >= set_chunk_hash(next->text, 0)))
        return 0;
    return n;
}

/* Takes the next chunk of hashes. Sources may have any number of overlapping chunks with one id. The chunks are united
 * in the order of their first hashes, until all remaining chunks begin after the next value. */
static enum count_next take_hashes(struct count_merge *m, struct count_value *out)
{
    size_t n;
    m->hashes.len -= m->taken;
    if (m->hashes.len > 0)
        memmove(m->hashes.ptr, m->hashes.ptr + m->taken, m->hashes.len);
    m->taken = 0;
    if (m->hashes.len == 0) {
        buf_clear(&m->name);
        buf_append_bytes(&m->name, m->values.heads[0].text);
    }
    while ((n = settled_hashes(m)) == 0) {
        struct count_source *s = heap_pop(&m->values).source;
        buf_clear(&m->other);
        set_chunk_append_union(s->name, buf_bytes(&m->hashes), s->text, &m->other);
        struct buf united = m->other;
        m->other = m->hashes;
        m->hashes = united;
        if (fetch_value(m, s) == COUNT_FAILED)
            return COUNT_FAILED;
    }
    m->taken = n * sizeof(uint64_t);
    m->prefix = prefix_of_hash(set_chunk_hash(buf_bytes(&m->hashes), n - 1));
    m->has_name = m->had_chunk = true;
    *out = (struct count_value){.name = buf_bytes(&m->name), .text = bytes_of(m->hashes.ptr, m->taken)};
    return COUNT_FOUND;
}

enum count_next count_merge_next_value(struct count_merge *m, struct count_value *out)
{
    if (count_key_is_lookup(buf_bytes(&m->key)))
        return take_text(m, out);
    if (m->n_current == 1)
        return take_only(m, out);
    if (!m->has_values && fill_heap(m, BYTES_NONE) == COUNT_FAILED)
        return COUNT_FAILED;
    bool has_rest = m->hashes.len > m->taken;
    if (m->values.n == 0 && !has_rest)
        return COUNT_END;
    if (has_rest || (has_hashes(m->values.heads[0].source) && (!m->has_name || m->had_chunk)))
        return take_hashes(m, out);
    struct head first = heap_pop(&m->values);
    if (m->has_name && m->had_chunk != (first.source->text.ptr != NULL))
        return record_failed(m, first.source, COUNT_DAMAGED, "both counts and sets", buf_bytes(&m->key));
    m->had_chunk = first.source->text.ptr != NULL;
    buf_clear(&m->name);
    buf_append_bytes(&m->name, first.text);
    m->prefix = first.prefix;
    m->has_name = true;
    *out = (struct count_value){.name = buf_bytes(&m->name)};
    for (bool is_first = true;; is_first = false) {
        struct count_source *s = first.source;
        if (s->text.ptr || out->text.ptr) {
            if (add_chunk(m, s, is_first, out) == COUNT_FAILED)
                return COUNT_FAILED;
        } else if (__builtin_add_overflow(out->count, s->count, &out->count))
            return record_failed(m, s, COUNT_TOO_LARGE, "the sum exceeds 64 bits", buf_bytes(&m->key));
        if (fetch_value(m, s) == COUNT_FAILED)
            return COUNT_FAILED;
        if (m->values.n == 0 ||
            compare_texts(m->values.heads[0].prefix, m->values.heads[0].text, m->prefix, out->name) != 0)
            return COUNT_FOUND;
        first = heap_pop(&m->values);
    }
}

enum count_next count_merge_fail(struct count_merge *m, const char *what)
{
    return record_failed(m, m->current[0].source, COUNT_DAMAGED, what, buf_bytes(&m->key));
}

const struct error *count_merge_error(const struct count_merge *m)
{
    return &m->error;
}

uint64_t count_merge_collisions(const struct count_merge *m, const char **key)
{
    *key = m->collision;
    return m->collisions;
}

enum count_next count_merge_print_size(
    struct count_merge *m, const struct count_value *first, struct buf *out)
{
    struct set_text_size size = {0};
    struct count_value value = *first;
    enum count_next r = COUNT_FOUND;
    for (; r == COUNT_FOUND; r = count_merge_next_value(m, &value)) {
        if (!value.text.ptr)
            return count_merge_fail(m, "both counts and sets");
        set_text_add(&size, value.name, value.text);
    }
    if (r == COUNT_END)
        set_text_append_size(&size, out);
    return r;
}

static enum count_next print(struct count_merge *m, struct buf *out, size_t enough, bool is_short)
{
    struct bytes line = count_merge_line(m);
    struct count_value value;
    enum count_next r = COUNT_END;
    if (line.ptr) {
        buf_append_bytes(out, line);
        buf_append_char(out, '\n');
        return r;
    }
    bool is_lookup = count_key_is_lookup(buf_bytes(&m->key));
    if (!m->has_begun)
        buf_append_bytes(out, buf_bytes(&m->key));
    m->has_begun = true;
    while (out->len < enough) {
        bool is_first = !m->has_name;
        r = count_merge_next_value(m, &value);
        if (is_short && r == COUNT_FOUND && value.text.ptr && !is_lookup)
            r = count_merge_print_size(m, &value, out);
        if (r != COUNT_FOUND) {
            buf_append_char(out, '\n');
            return r;
        }
        if (is_lookup) {
            lookup_escape(value.text, out);
            continue;
        }
        if (value.text.ptr) {
            set_text_append_chunk(is_first, value.name, value.text, out);
            continue;
        }
        if (!is_first)
            buf_append_char(out, ' ');
        buf_append_bytes(out, value.name);
        buf_append_char(out, ':');
        record_append_count(out, value.count);
    }
    return COUNT_FOUND;
}

enum count_next count_merge_print_piece(struct count_merge *m, struct buf *out, size_t enough)
{
    return print(m, out, enough, false);
}

enum count_next count_merge_print(struct count_merge *m, struct buf *out)
{
    return print(m, out, SIZE_MAX, false);
}

enum count_next count_merge_print_short(struct count_merge *m, struct buf *out)
{
    return print(m, out, SIZE_MAX, true);
}
