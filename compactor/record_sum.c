#include "compactor/record_sum.h"

#include "counts/count_merge.h"
#include "counts/records.h"
#include "counts/set_text.h"
#include "sets/set.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct record_sum_count {
    struct bytes name;
    int64_t count;
};

static void add_text(struct record_sum *s, struct bytes text)
{
    if (s->text.ptr && bytes_equal(s->text, text))
        return;
    if (s->text.ptr) {
        buf_clear(&s->one);
        buf_clear(&s->other);
        lookup_unescape(s->text, &s->one);
        lookup_unescape(text, &s->other);
        if (!component_is_same(buf_bytes(&s->one), buf_bytes(&s->other))) {
            s->collisions++;
            snprintf(s->collision, sizeof s->collision, "%.*s", (int)s->key.len - 1, s->key.ptr);
        }
        if (bytes_compare(buf_bytes(&s->one), buf_bytes(&s->other)) < 0)
            return;
    }
    s->text = text;
}

static void add_into(struct record_sum *s, struct record_sum_count *to, int64_t count)
{
    if (__builtin_add_overflow(to->count, count, &to->count))
        s->wrong = "the sum exceeds 64 bits";
}

static int compare_names(const void *a, const void *b)
{
    const struct record_sum_count *one = a, *other = b;
    return bytes_compare(one->name, other->name);
}

static void sort_counts(struct record_sum *s)
{
    size_t n = 0;
    qsort(s->counts, s->n, sizeof *s->counts, compare_names);
    for (size_t i = 1; i < s->n; i++) {
        if (bytes_equal(s->counts[n].name, s->counts[i].name))
            add_into(s, &s->counts[n], s->counts[i].count);
        else
            s->counts[++n] = s->counts[i];
    }
    s->n = n + 1;
    s->unsorted = false;
}

/* Makes room for one more count. Before the array grows, sorting combines the counts of equal names. */
static void make_room(struct record_sum *s)
{
    if (s->n < s->room)
        return;
    if (s->unsorted)
        sort_counts(s);
    if (s->n < s->room / 2)
        return;
    ARRAY_ROOM(s->counts, s->room, s->room + 1);
}

static void add_count(struct record_sum *s, struct bytes name, int64_t count)
{
    make_room(s);
    struct record_sum_count *last = s->n ? &s->counts[s->n - 1] : NULL;
    int order = last ? bytes_compare(last->name, name) : -1;
    if (order == 0) {
        add_into(s, last, count);
        return;
    }
    s->unsorted = s->unsorted || order > 0;
    s->counts[s->n++] = (struct record_sum_count){name, count};
}

void record_sum_add_value(struct record_sum *s, struct bytes value)
{
    struct bytes rest = value, name;
    int64_t count;
    bool bad = false;
    while (record_next_count(&rest, &name, &count, &bad))
        add_count(s, name, count);
    assert(!bad);
}

static void add_set(struct record_sum *s, struct bytes value)
{
    struct set_text text = {0};
    struct bytes id, chunk;
    const char *why;
    if (!s->set)
        s->set = set_new();
    while (set_text_next(&text, &value, &id, &chunk, &why))
        set_add_chunk(s->set, id, chunk);
    assert(!why);
    set_text_free(&text);
}

static void append_set(struct record_sum *s)
{
    struct set_view v = set_view_of(s->set);
    struct set_chunks chunks = {.view = &v};
    struct bytes id, chunk;
    for (bool is_first = true; set_chunks_next(&chunks, &id, &chunk); is_first = false)
        set_text_append_chunk(is_first, id, chunk, &s->line);
    set_chunks_free(&chunks);
}

void record_sum_add(struct record_sum *s, struct bytes line)
{
    struct bytes value = bytes_of(line.ptr + s->key.len, line.len - s->key.len);
    if (count_key_is_lookup(s->key))
        add_text(s, value);
    else if (set_text_is(value))
        add_set(s, value);
    else
        record_sum_add_value(s, value);
}

void record_sum_begin(struct record_sum *s, struct bytes line)
{
    const char *separator = memchr(line.ptr, RECORD_SEPARATOR, line.len);
    assert(separator);
    s->key = bytes_of(line.ptr, (size_t)(separator + 1 - line.ptr));
    s->text = BYTES_NONE;
    set_free(&s->set);
    s->n = 0;
    s->unsorted = false;
    s->wrong = NULL;
    record_sum_add(s, line);
}

struct bytes record_sum_line(struct record_sum *s)
{
    buf_clear(&s->line);
    buf_append_bytes(&s->line, s->key);
    if (s->text.ptr)
        buf_append_bytes(&s->line, s->text);
    if (s->set)
        append_set(s);
    if (s->unsorted)
        sort_counts(s);
    for (size_t i = 0; i < s->n; i++) {
        if (i > 0)
            buf_append_char(&s->line, ' ');
        buf_append_bytes(&s->line, s->counts[i].name);
        buf_append_char(&s->line, ':');
        record_append_count(&s->line, s->counts[i].count);
    }
    if (s->set && s->n > 0)
        s->wrong = "both counts and sets";
    return s->wrong ? BYTES_NONE : buf_bytes(&s->line);
}

void record_sum_free(struct record_sum *s)
{
    free(s->counts);
    set_free(&s->set);
    buf_free(&s->line);
    buf_free(&s->one);
    buf_free(&s->other);
}
