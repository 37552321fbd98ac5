#include "archive/sorted_text.h"

#include "counts/records.h"

static struct bytes line_bytes(const struct sorted_text *t, struct sorted_span line)
{
    size_t n = line.end - line.begin;
    if (n > 0 && t->text.ptr[line.end - 1] == '\n')
        n--;
    return bytes_of(t->text.ptr + line.begin, n);
}

size_t sorted_line_end(const struct sorted_text *t, size_t at)
{
    if (t->index)
        return sorted_index_line_end(t->index, at);
    const char *lf = at < t->text.len ? memchr(t->text.ptr + at, '\n', t->text.len - at) : NULL;
    return lf ? (size_t)(lf - t->text.ptr) + 1 : t->text.len;
}

struct bytes sorted_line_key(const struct sorted_text *t, struct sorted_span line)
{
    struct bytes bytes = line_bytes(t, line);
    struct record record;
    return record_split(bytes, t->separator, &record) ? record.key : bytes;
}

static const char *separator_in(const struct sorted_text *t, struct bytes key)
{
    return key.len > 0 ? memchr(key.ptr, t->separator, key.len) : NULL;
}

/* Returns the first line whose key is at or after `key`; with `is_past`, after `key`. No line has a key that
 * contains a separator. If `key` contains a separator, it sorts after all lines whose key is the part before the
 * separator. */
static size_t seek(const struct sorted_text *t, struct bytes key, bool is_past)
{
    const char *separator = separator_in(t, key);
    struct sorted_target target = {key, (unsigned char)t->separator, is_past || separator};
    if (separator)
        target.key.len = (size_t)(separator - key.ptr);
    return sorted_index_seek(t->index, &target);
}

size_t sorted_seek(const struct sorted_text *t, struct bytes key)
{
    return seek(t, key, false);
}

bool sorted_find(const struct sorted_text *t, struct bytes key, struct sorted_span *line)
{
    line->begin = sorted_seek(t, key);
    size_t left = t->text.len - line->begin;
    const char *p = t->text.ptr + line->begin;
    bool found = left > key.len && p[key.len] == t->separator && bytes_equal(bytes_of(p, key.len), key);
    line->end = found ? sorted_line_end(t, line->begin) : line->begin;
    return found;
}

struct sorted_span sorted_prefix(const struct sorted_text *t, struct bytes prefix)
{
    struct sorted_target target = {prefix, SORTED_NO_END, false};
    struct sorted_span span = {0, 0};
    if (separator_in(t, prefix)) /* no key contains a separator */
        return span;
    span.begin = sorted_index_seek(t->index, &target);
    target.is_past = true;
    span.end = sorted_index_seek(t->index, &target);
    if (span.end < span.begin) /* possible only in an unsorted text */
        span.end = span.begin;
    return span;
}

struct sorted_span sorted_range(const struct sorted_text *t, struct bytes start, struct bytes end)
{
    size_t begin = sorted_seek(t, start), behind = seek(t, end, true);
    return (struct sorted_span){begin, behind < begin ? begin : behind};
}

static struct bytes without_lf(struct bytes line)
{
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    return line;
}

static size_t first_value(struct bytes line, char separator)
{
    struct record record;
    return record_split(line, separator, &record) ? record.key.len + 1 : line.len;
}

/* Returns the start of the value that contains the byte before `at`, searching only [low, at). */
static size_t value_begin(struct bytes line, size_t low, size_t at)
{
    const char *space = memrchr(line.ptr + low, ' ', at - low);
    return space ? (size_t)(space - line.ptr) + 1 : low;
}

static size_t next_value(struct bytes line, size_t at, size_t high)
{
    const char *space = memchr(line.ptr + at, ' ', high - at);
    return space ? (size_t)(space - line.ptr) + 1 : high;
}

struct bytes sorted_line_name(struct bytes line, size_t place)
{
    line = without_lf(line);
    if (place >= line.len)
        return BYTES_NONE;
    const char *end = memchr(line.ptr + place, ' ', line.len - place);
    struct bytes value = bytes_of(line.ptr + place, (end ? (size_t)(end - line.ptr) : line.len) - place);
    const char *colon = memchr(value.ptr, ':', value.len);
    return bytes_of(value.ptr, colon ? (size_t)(colon - value.ptr) : value.len);
}

size_t sorted_line_seek(struct bytes line, char separator, struct bytes name)
{
    line = without_lf(line);
    size_t low = first_value(line, separator), high = line.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2, begin = value_begin(line, low, middle);
        if (bytes_compare(sorted_line_name(line, begin), name) < 0)
            low = next_value(line, middle, high);
        else
            high = begin;
    }
    return low;
}

size_t sorted_line_cut(struct bytes line, char separator, size_t limit)
{
    line = without_lf(line);
    size_t first = first_value(line, separator);
    if (limit >= line.len)
        return line.len;
    return limit <= first ? first : value_begin(line, first, limit);
}

const char *sorted_check_step(const struct sorted_text *t, struct sorted_check *c, size_t until)
{
    while (c->at < until && c->at < t->text.len) {
        struct sorted_span line = {c->at, sorted_line_end(t, c->at)};
        struct bytes this = line_bytes(t, line), last = line_bytes(t, c->previous);
        struct record record;
        if (!record_split(this, t->separator, &record))
            return SORTED_NO_SEPARATOR;
        if (c->records > 0 && bytes_compare(last, this) > 0)
            return SORTED_OUT_OF_ORDER;
        if (c->records > 0 && c->unique_keys && bytes_equal(sorted_line_key(t, c->previous), record.key))
            return SORTED_KEY_TWICE;
        c->previous = line;
        c->at = line.end;
        c->records++;
    }
    return NULL;
}
