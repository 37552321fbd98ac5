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

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct id_range *)a)->first, y = ((const struct id_range *)b)->first;
    return (x > y) - (x < y);
}

bool id_list_parse(struct bytes text, struct id_range **out, size_t *n)
{
    size_t items = 1, kept = 0;
    if (text.len && text.ptr[text.len - 1] == '\n')
        text.len--;
    if (text.len && text.ptr[text.len - 1] == '\r')
        text.len--;
    for (size_t i = 0; i < text.len; i++)
        items += text.ptr[i] == ',';
    struct id_range *at = *out = mem_alloc(items * sizeof **out);
    *n = 0;
    for (size_t from = 0; from <= text.len; ++*n) {
        const char *comma = from < text.len ? memchr(text.ptr + from, ',', text.len - from) : NULL;
        size_t end = comma ? (size_t)(comma - text.ptr) : text.len;
        if (from == end || !parse_range(bytes_of(text.ptr + from, end - from), &at[*n])) {
            free(at);
            *out = NULL;
            return false;
        }
        from = end + 1;
    }
    qsort(at, *n, sizeof *at, compare);
    for (size_t i = 1; i < *n; i++) /* joins adjacent ranges */
        if (at[kept].last == UINT64_MAX || at[i].first <= at[kept].last + 1)
            at[kept].last = at[i].last > at[kept].last ? at[i].last : at[kept].last;
        else
            at[++kept] = at[i];
    *n = kept + 1;
    return true;
}
