#include "simplequeue/queue/id_list.h"

#include <stdlib.h>

static bool parse_range(struct bytes text, struct id_range *out)
{
    const char *dash = text.len ? memchr(text.ptr, '-', text.len) : NULL;
    size_t first = dash ? (size_t)(dash - text.ptr) : text.len;
    if (!bytes_to_u64(bytes_of(text.ptr, first), &out->first))
        return false;
    out->last = out->first;
    if (dash && !bytes_to_u64(bytes_of(dash + 1, text.len - first - 1), &out->last))
        return false;
    return out->first <= out->last;
}

static struct bytes without_line_end(struct bytes text)
{
    if (text.len && text.ptr[text.len - 1] == '\n')
        text.len--;
    if (text.len && text.ptr[text.len - 1] == '\r')
        text.len--;
    return text;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct id_range *)a)->first, y = ((const struct id_range *)b)->first;
    return (x > y) - (x < y);
}

/* Joins adjacent sorted ranges. Returns the number of ranges left. */
static size_t join(struct id_range *at, size_t n)
{
    size_t kept = 0;
    for (size_t i = 1; i < n; i++)
        if (at[kept].last == UINT64_MAX || at[i].first <= at[kept].last + 1)
            at[kept].last = at[i].last > at[kept].last ? at[i].last : at[kept].last;
        else
            at[++kept] = at[i];
    return kept + 1;
}

static size_t count_items(struct bytes text)
{
    size_t n = 1;
    for (size_t i = 0; i < text.len; i++)
        n += text.ptr[i] == ',';
    return n;
}

bool id_list_parse(struct bytes text, struct id_range **out, size_t *n)
{
    text = without_line_end(text);
    *n = 0;
    *out = mem_alloc(count_items(text) * sizeof **out);
    for (size_t at = 0; at <= text.len; ++*n) {
        const char *comma = at < text.len ? memchr(text.ptr + at, ',', text.len - at) : NULL;
        size_t end = comma ? (size_t)(comma - text.ptr) : text.len;
        if (at == end || !parse_range(bytes_of(text.ptr + at, end - at), &(*out)[*n])) {
            free(*out);
            *out = NULL;
            return false;
        }
        at = end + 1;
    }
    qsort(*out, *n, sizeof **out, compare);
    *n = join(*out, *n);
    return true;
}
