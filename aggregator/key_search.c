#include "aggregator/key_search.h"

#include "counts/key_function.h"
#include "counts/records.h"

#include <stdlib.h>

/* A lookup, or a key of a total. */
struct found {
    char *text; /* text as a key of a file of texts; allocated */
    size_t len;
    char stored[COMPONENT_HASH];
    size_t ns;
    int64_t count;
};

/* The smallest texts of those that were added. Texts at or after `end` are excluded. */
struct found_list {
    struct found *items;
    size_t n;
    struct buf end; /* empty: no text was excluded */
};

struct key_search {
    struct key_search_query q;
    struct buf start, text; /* texts as keys of a file of texts */
    struct buf folded;      /* a text in small letters */
    struct found_list lookups, keys;
    bool is_sorted;
};

static struct bytes text_of(const struct found *f)
{
    return bytes_of(f->text, f->len);
}

static int compare_texts(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    int order = record_key_compare(text_of(x), text_of(y), RECORD_SEPARATOR);
    return order != 0 ? order : (x->ns > y->ns) - (x->ns < y->ns);
}

static int compare_hashes(const void *a, const void *b)
{
    return memcmp(((const struct found *)a)->stored, ((const struct found *)b)->stored, COMPONENT_HASH);
}

static bool is_past(struct bytes text, const struct buf *end)
{
    return end->len > 0 && record_key_compare(text, buf_bytes(end), RECORD_SEPARATOR) >= 0;
}

/* Keeps only the smallest texts, at most SEARCH_KEPT. All entries of one text are kept or removed together. */
static void trim(struct found_list *l)
{
    qsort(l->items, l->n, sizeof *l->items, compare_texts);
    buf_clear(&l->end);
    buf_append_bytes(&l->end, text_of(&l->items[SEARCH_KEPT]));
    while (l->n > 0 && is_past(text_of(&l->items[l->n - 1]), &l->end))
        free(l->items[--l->n].text);
}

static void add(struct found_list *l, struct bytes text, const struct found *f)
{
    if (is_past(text, &l->end))
        return;
    if (!l->items)
        l->items = mem_alloc(2 * (size_t)SEARCH_KEPT * sizeof *l->items);
    char *copy = mem_alloc(text.len + 1);
    memcpy(copy, text.ptr, text.len);
    struct found *new = &l->items[l->n++];
    *new = *f;
    new->text = copy;
    new->len = text.len;
    if (l->n == 2 * (size_t)SEARCH_KEPT)
        trim(l);
}

static void free_list(struct found_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->items[i].text);
    free(l->items);
    buf_free(&l->end);
}

struct key_search *key_search_new(const struct key_search_query *q)
{
    struct key_search *s = mem_zalloc(sizeof *s);
    s->q = *q;
    text_key_encode(q->start, &s->start);
    return s;
}

void key_search_free(struct key_search **sp)
{
    struct key_search *s = *sp;
    *sp = NULL;
    if (!s)
        return;
    free_list(&s->lookups);
    free_list(&s->keys);
    buf_free(&s->start);
    buf_free(&s->text);
    buf_free(&s->folded);
    free(s);
}

/* Sets s->text. Returns false if the query does not seek the text, or the text is before the start. */
static bool is_wanted(struct key_search *s, struct bytes text)
{
    if (!bytes_starts_with(text, s->q.prefix) || !key_function_contains(text, s->q.contains, &s->folded))
        return false;
    buf_clear(&s->text);
    text_key_encode(text, &s->text);
    return s->start.len == 0 ||
           record_key_compare(buf_bytes(&s->text), buf_bytes(&s->start), RECORD_SEPARATOR) >= 0;
}

/* Returns the component in the key of a total or a lookup. */
static struct bytes component_of(struct bytes key)
{
    const char *bar = memchr(key.ptr, '|', key.len);
    size_t begin = bar ? (size_t)(bar - key.ptr) + 1 : key.len;
    return key.len > begin ? bytes_of(key.ptr + begin, key.len - begin - 1) : BYTES_NONE;
}

enum count_next key_search_take_lookup(struct key_search *s, struct count_merge *m)
{
    struct count_value value;
    struct found f = {0};
    struct bytes hash = component_of(count_merge_key(m));
    if (hash.len != COMPONENT_HASH)
        return COUNT_FOUND;
    memcpy(f.stored, hash.ptr, COMPONENT_HASH);
    enum count_next r = count_merge_next_value(m, &value);
    if (r == COUNT_FOUND && is_wanted(s, value.text))
        add(&s->lookups, buf_bytes(&s->text), &f);
    return r;
}

static bool find_text(struct key_search *s, struct bytes hash, struct bytes *text)
{
    struct found sought;
    if (!s->is_sorted && s->lookups.n > 0)
        qsort(s->lookups.items, s->lookups.n, sizeof *s->lookups.items, compare_hashes);
    s->is_sorted = true;
    memcpy(sought.stored, hash.ptr, COMPONENT_HASH);
    const struct found *f = s->lookups.n == 0 ? NULL
                                              : bsearch(&sought, s->lookups.items, s->lookups.n,
                                                    sizeof *s->lookups.items, compare_hashes);
    if (f)
        *text = text_of(f);
    return f != NULL;
}

enum count_next key_search_take_total(struct key_search *s, size_t ns, struct count_merge *m)
{
    struct found f = {.ns = ns};
    struct count_value value;
    struct bytes stored = component_of(count_merge_key(m)), text;
    enum count_next r;
    if (component_is_hash(stored)) {
        if (!find_text(s, stored, &text))
            return COUNT_FOUND;
    } else {
        if (!is_wanted(s, stored))
            return COUNT_FOUND;
        text = buf_bytes(&s->text);
    }
    while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND)
        count_sum_add(&f.count, value.count);
    add(&s->keys, text, &f);
    return r == COUNT_FAILED ? r : COUNT_FOUND;
}

static void append_line(const struct key_search *s, const struct found *f, size_t n, struct buf *out)
{
    buf_append_bytes(out, text_of(f));
    for (size_t i = 0; i < n; i++) {
        buf_append_char(out, i == 0 ? RECORD_SEPARATOR : ' ');
        buf_append_bytes(out, s->q.ns[f[i].ns]);
        buf_append_char(out, ':');
        record_append_count(out, f[i].count);
    }
    buf_append_char(out, '\n');
}

uint64_t key_search_print(struct key_search *s, struct buf *lines, bool *more, struct buf *next)
{
    const struct found_list *keys = &s->keys;
    const struct buf *end = &keys->end;
    uint64_t printed = 0;
    size_t i = 0, n;
    if (s->lookups.end.len > 0 && (end->len == 0 || is_past(buf_bytes(end), &s->lookups.end)))
        end = &s->lookups.end;
    if (keys->n > 0)
        qsort(keys->items, keys->n, sizeof *keys->items, compare_texts);
    for (; i < keys->n && printed < s->q.limit && !is_past(text_of(&keys->items[i]), end);
         i += n, printed++) {
        for (n = 1; i + n < keys->n && bytes_equal(text_of(&keys->items[i]), text_of(&keys->items[i + n]));)
            n++;
        append_line(s, &keys->items[i], n, lines);
    }
    bool is_within = i < keys->n && !is_past(text_of(&keys->items[i]), end);
    *more = is_within || end->len > 0;
    if (*more)
        text_key_decode(is_within ? text_of(&keys->items[i]) : buf_bytes(end), next);
    return printed;
}
