#include "archive/period_walk.h"

#define AFTER_PERIODS "z" /* sorts after every character of a period's text, except the first */

bool period_walk_init(struct period_walk *w, struct bytes start, struct bytes end, enum period_unit largest)
{
    struct record_key first, last;
    if (!record_key_parse(start, &first) || !record_key_parse(end, &last) || !first.is_subtotal ||
        !last.is_subtotal || last.unit > PERIOD_HOUR)
        return false;
    *w = (struct period_walk){.prefix = bytes_of(start.ptr, (size_t)(first.period.ptr - start.ptr)),
        .from = first.start,
        .to = period_end(last.unit, last.start),
        .largest = largest};
    return bytes_equal(w->prefix, bytes_of(end.ptr, (size_t)(last.period.ptr - end.ptr)));
}

/* The offset of the first line whose key is at or after `key` with `more` appended. */
static size_t seek(const struct period_walk *w, struct bytes key, struct bytes more)
{
    struct buf sought = {0};
    buf_append_bytes(&sought, key);
    buf_append_bytes(&sought, more);
    size_t at = sorted_seek(w->text, buf_bytes(&sought));
    buf_free(&sought);
    return at;
}

void period_walk_begin(struct period_walk *w, const struct sorted_text *text)
{
    char hour[HOUR_TEXT_MAX + 1];
    size_t n = hour_encode(w->from, hour);
    w->text = text;
    w->at = seek(w, w->prefix, period_enclosing(bytes_of(hour, n), PERIOD_HOUR, PERIOD_MONTH));
}

static struct bytes key_at(const struct period_walk *w, size_t at, size_t *end)
{
    *end = sorted_line_end(w->text, at);
    return at < *end ? sorted_line_key(w->text, (struct sorted_span){at, *end}) : BYTES_NONE;
}

/* Returns true if the next record after the record with this key is of a period inside the key's period. Does not
 * search for the end of the next record's line. */
static bool has_parts(const struct period_walk *w, struct bytes key, size_t after)
{
    struct bytes text = w->text->text, rest = bytes_of(text.ptr + after, text.len - after);
    return rest.len > key.len && bytes_starts_with(rest, key) && rest.ptr[key.len] != w->text->separator;
}

bool period_walk_next(struct period_walk *w, struct bytes *line)
{
    struct record_key k;
    for (;;) {
        size_t after, begin = w->at;
        struct bytes key = key_at(w, begin, &after);
        if (!bytes_starts_with(key, w->prefix) || !record_key_parse(key, &k) || k.start >= w->to)
            return false;
        int64_t end = period_end(k.unit, k.start);
        bool overlaps = end > w->from, is_within = k.start >= w->from && end <= w->to;
        bool parts = k.unit != PERIOD_QUARTER && has_parts(w, key, after);
        bool take = (is_within && k.unit <= w->largest) || (overlaps && k.unit != PERIOD_MONTH && !parts);
        w->at = parts && (take || !overlaps) ? seek(w, key, BYTES_LITERAL(AFTER_PERIODS)) : after;
        *line = bytes_of(w->text->text.ptr + begin, after - begin);
        if (take)
            return true;
    }
}
