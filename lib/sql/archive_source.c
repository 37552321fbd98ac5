#include "sql/archive_source.h"

#include <stdlib.h>

#define AFTER_LOOKUPS "lookup}" /* sorts after every key that begins with "lookup|" */
#define AFTER_PARTS "z"         /* sorts after every character of a period's text, except the first */

struct archive_source {
    struct count_source base; /* first */
    const struct sorted_text *text;
    enum period_unit unit;
    size_t at;         /* the next line */
    struct bytes rest; /* the values of the current record that are not yet returned */
};

static size_t seek_after(const struct archive_source *s, struct bytes key, const char *more)
{
    struct buf sought = {0};
    buf_append_bytes(&sought, key);
    buf_append_str(&sought, more);
    size_t at = sorted_seek(s->text, buf_bytes(&sought));
    buf_free(&sought);
    return at;
}

/* True if the line at `after` is that of a period inside the rollup with this key. */
static bool has_parts(const struct archive_source *s, struct bytes key, size_t after)
{
    struct bytes rest = bytes_of(s->text->text.ptr + after, s->text->text.len - after);
    return rest.len > key.len && bytes_starts_with(rest, key) && rest.ptr[key.len] != s->text->separator;
}

/* Decides whether to yield a record, and moves to the next line that may be yielded. */
static bool take(struct archive_source *s, const struct record_key *k, struct bytes key, size_t after)
{
    s->at = after;
    if (!k->is_subtotal || k->unit == PERIOD_QUARTER)
        return true;
    bool parts = has_parts(s, key, after);
    if (k->unit <= s->unit) {
        if (parts)
            s->at = seek_after(s, key, AFTER_PARTS);
        return true;
    }
    return !parts;
}

static enum count_next next_record(struct count_source *base)
{
    struct archive_source *s = (struct archive_source *)base;
    struct bytes text = s->text->text;
    struct record_key k;
    while (s->at < text.len) {
        size_t begin = s->at, after = sorted_line_end(s->text, begin);
        struct bytes key = sorted_line_key(s->text, (struct sorted_span){begin, after});
        if (count_key_is_lookup(key)) {
            s->at = sorted_seek(s->text, BYTES_LITERAL(AFTER_LOOKUPS));
            continue;
        }
        if (!record_key_parse(key, &k) || begin + key.len + 1 > after) {
            error_set(&base->error, COUNT_DAMAGED, "%.300s: a malformed record", base->container);
            return COUNT_FAILED;
        }
        if (!take(s, &k, key, after))
            continue;
        size_t end = after - (text.ptr[after - 1] == '\n');
        base->key = bytes_of(key.ptr, key.len + 1);
        base->line = bytes_of(key.ptr, end - begin);
        s->rest = bytes_of(key.ptr + key.len + 1, end - begin - key.len - 1);
        return COUNT_FOUND;
    }
    return COUNT_END;
}

static enum count_next next_value(struct count_source *base)
{
    struct archive_source *s = (struct archive_source *)base;
    bool bad = false;
    if (record_next_count(&s->rest, &base->name, &base->count, &bad))
        return COUNT_FOUND;
    if (!bad)
        return COUNT_END;
    error_set(&base->error, COUNT_DAMAGED, "%.300s: a malformed record", base->container);
    return COUNT_FAILED;
}

static enum count_next skip_values(struct count_source *base, struct bytes name)
{
    struct archive_source *s = (struct archive_source *)base;
    size_t all = base->line.len, place = sorted_line_seek(base->line, s->text->separator, name);
    if (all - place < s->rest.len)
        s->rest = bytes_of(base->line.ptr + place, all - place);
    return COUNT_FOUND;
}

static void close_source(struct count_source *base)
{
    free(base);
}

struct count_source *archive_source_new(
    const struct sorted_text *text, const char *name, struct bytes from, enum period_unit unit)
{
    static const struct count_source_kind kind = {next_record, next_value, close_source, skip_values};
    struct archive_source *s = mem_zalloc(sizeof *s);
    s->base = (struct count_source){.kind = &kind, .container = name};
    s->text = text;
    s->unit = unit;
    s->at = sorted_seek(text, from);
    return &s->base;
}
