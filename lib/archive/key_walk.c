#include "archive/key_walk.h"

#include "counts/key_function.h"
#include "counts/records.h"

#include <stdlib.h>

#define WORK_MAX 20000              /* lines and searches of one walk, which take some milliseconds */
#define BYTES_MAX ((size_t)4 << 20) /* size of the records and texts that one walk adds up or searches */

/* A stream of texts, or of the keys of one total. */
struct stream {
    struct generation_cursor cursor;
    struct record record; /* the next record of the stream */
    struct bytes key;     /* the key of a total's record, or the text of a record of texts */
    struct buf text;      /* the key in the order of texts */
    bool is_live;
};

struct key_walk {
    const struct generation *g;
    struct key_walk_query q;
    struct stream *streams; /* one stream for each total, then the stream of texts */
    size_t n;
    struct buf key;          /* the key of the current search */
    struct buf text, folded; /* the text that the walk searches, unescaped and in small letters */
    size_t work, bytes;
    uint64_t keys; /* number of keys found */
};

/* Moves a stream to its next line. A line that is not a record ends the stream, because its file has changed. */
static void advance(const struct key_walk *w, struct stream *s)
{
    struct bytes line;
    bool is_total = s < &w->streams[w->n - 1];
    size_t ns = is_total ? w->q.ns[s - w->streams].len + 1 : 0;
    buf_clear(&s->text);
    s->is_live = generation_cursor_next(&s->cursor, 1, &line);
    if (!s->is_live)
        return;
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    s->is_live = record_split(line, RECORD_SEPARATOR, &s->record) && s->record.key.len >= ns;
    if (!s->is_live) {
        generation_cursor_refuse(&s->cursor, line);
        return;
    }
    s->key = bytes_of(s->record.key.ptr + ns, s->record.key.len - ns);
    if (is_total)
        text_key_encode(s->key, &s->text);
    else
        buf_append_bytes(&s->text, s->key);
}

static void set_key(struct key_walk *w, struct bytes ns, struct bytes key)
{
    buf_clear(&w->key);
    buf_append_bytes(&w->key, ns);
    buf_append_char(&w->key, '|');
    buf_append_bytes(&w->key, key);
}

/* Begins the stream of a total. The stream is empty if no plain key can have the prefix. The stream also has hashed
 * keys, which the walk skips. */
static void begin_total(struct key_walk *w, struct stream *s, struct bytes ns)
{
    struct buf start = {0};
    if (w->q.prefix.len > 0 && !component_is_plain(w->q.prefix))
        return;
    if (w->q.start.len > 0) {
        set_key(w, ns, BYTES_NONE);
        buf_append_bytes(&start, buf_bytes(&w->key));
        text_order_seek_plain(w->q.start, &start);
    }
    set_key(w, ns, w->q.prefix);
    generation_prefix(w->g, buf_bytes(&w->key), buf_bytes(&start), &s->cursor);
    buf_free(&start);
}

static bool begin_texts(struct key_walk *w, struct stream *s)
{
    struct buf prefix = {0}, start = {0};
    text_key_encode(w->q.prefix, &prefix);
    text_key_encode(w->q.start, &start);
    bool found = generation_texts(w->g, buf_bytes(&prefix), buf_bytes(&start), &s->cursor);
    buf_free(&prefix);
    buf_free(&start);
    return found;
}

static struct stream *first_stream(const struct key_walk *w)
{
    struct stream *first = NULL;
    for (size_t i = 0; i < w->n; i++) {
        struct stream *s = &w->streams[i];
        if (s->is_live && (!first || record_key_compare(
                                         buf_bytes(&s->text), buf_bytes(&first->text), RECORD_SEPARATOR) < 0))
            first = s;
    }
    return first;
}

static void append_total(
    struct key_walk *w, struct bytes text, size_t ns, struct bytes value, bool *is_first, struct buf *out)
{
    struct bytes hour;
    int64_t n, sum = 0;
    bool bad = false;
    w->bytes += value.len;
    while (record_next_count(&value, &hour, &n, &bad))
        count_sum_add(&sum, n);
    if (*is_first)
        buf_append_bytes(out, text);
    buf_append_char(out, *is_first ? RECORD_SEPARATOR : ' ');
    buf_append_bytes(out, w->q.ns[ns]);
    buf_append_char(out, ':');
    record_append_count(out, sum);
    *is_first = false;
}

/* Appends a line for the text of a hash. Returns false if no total has the hash. */
static bool append_hashed(struct key_walk *w, const struct stream *texts, struct buf *out)
{
    bool is_first = true;
    for (size_t i = 0; i + 1 < w->n; i++) {
        struct bytes line;
        struct record record;
        uint32_t shard;
        set_key(w, w->q.ns[i], texts->record.value);
        w->work++;
        if (!generation_find(w->g, buf_bytes(&w->key), &line, &shard))
            continue;
        line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
        if (record_split(line, RECORD_SEPARATOR, &record))
            append_total(w, buf_bytes(&texts->text), i, record.value, &is_first, out);
    }
    if (!is_first)
        buf_append_char(out, '\n');
    return !is_first;
}

/* Appends a line for the totals with this plain key, and moves their streams to the next key. */
static void append_plain(struct key_walk *w, struct bytes text, struct buf *out)
{
    struct buf same = {0};
    bool is_first = true;
    buf_append_bytes(&same, text);
    for (size_t i = 0; i + 1 < w->n; i++) {
        struct stream *s = &w->streams[i];
        if (!s->is_live || !bytes_equal(buf_bytes(&s->text), buf_bytes(&same)))
            continue;
        append_total(w, buf_bytes(&same), i, s->record.value, &is_first, out);
        advance(w, s);
    }
    buf_append_char(out, '\n');
    buf_free(&same);
}

static bool is_wanted(struct key_walk *w, const struct stream *s)
{
    if (w->q.contains.len == 0)
        return true;
    w->bytes += s->record.key.len + s->record.value.len;
    buf_clear(&w->text);
    text_key_decode(buf_bytes(&s->text), &w->text);
    return key_function_contains(buf_bytes(&w->text), w->q.contains, &w->folded);
}

static bool is_too_large(const struct key_walk *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->n && w->q.max_search > 0; i++)
        bytes += generation_cursor_bytes(&w->streams[i].cursor);
    return bytes > w->q.max_search;
}

bool key_walk_step(struct key_walk *w, struct key_walk_answer *a)
{
    struct stream *s = first_stream(w), *texts = &w->streams[w->n - 1];
    size_t effort = w->q.effort > 0 ? w->q.effort : 1;
    a->is_too_large = w->work == 0 && is_too_large(w);
    if (!s || a->is_too_large)
        return false;
    if (w->keys == w->q.limit || w->work >= effort * WORK_MAX || w->bytes >= effort * BYTES_MAX) {
        text_key_decode(buf_bytes(&s->text), &a->next);
        a->more = true;
        return false;
    }
    w->work++;
    if (!is_wanted(w, s)) {
        advance(w, s);
        return true;
    }
    if (s != texts && !component_is_hash(s->key)) {
        append_plain(w, buf_bytes(&s->text), &a->lines);
        w->keys++;
        return true;
    }
    w->keys += s == texts && append_hashed(w, s, &a->lines);
    advance(w, s);
    return true;
}

struct key_walk *key_walk_new(const struct generation *g, const struct key_walk_query *q)
{
    struct key_walk *w = mem_zalloc(sizeof *w);
    *w = (struct key_walk){.g = g, .q = *q, .n = q->n_ns + 1};
    w->streams = mem_zalloc(w->n * sizeof *w->streams);
    if (!begin_texts(w, &w->streams[q->n_ns])) {
        key_walk_free(&w);
        return NULL;
    }
    for (size_t i = 0; i < q->n_ns; i++)
        begin_total(w, &w->streams[i], q->ns[i]);
    for (size_t i = 0; i < w->n; i++)
        advance(w, &w->streams[i]);
    return w;
}

void key_walk_free(struct key_walk **wp)
{
    struct key_walk *w = *wp;
    *wp = NULL;
    if (!w)
        return;
    for (size_t i = 0; i < w->n; i++) {
        generation_cursor_free(&w->streams[i].cursor);
        buf_free(&w->streams[i].text);
    }
    free(w->streams);
    buf_free(&w->key);
    buf_free(&w->text);
    buf_free(&w->folded);
    free(w);
}

bool key_walk_run(const struct generation *g, const struct key_walk_query *q, struct key_walk_answer *a)
{
    struct key_walk *w = key_walk_new(g, q);
    bool found = w != NULL;
    while (w && key_walk_step(w, a))
        continue;
    key_walk_free(&w);
    return found;
}

void key_walk_answer_free(struct key_walk_answer *a)
{
    buf_free(&a->lines);
    buf_free(&a->next);
}
