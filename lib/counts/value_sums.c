#include "counts/value_sums.h"

#include "counts/counters.h"

#include <stdio.h>
#include <stdlib.h>

void value_sums_free(struct value_sums *s)
{
    free(s->list);
    *s = (struct value_sums){0};
}

struct value_sums value_sums_copy(const struct value_sums *s)
{
    struct value_sums copy = {mem_alloc((s->n + 1) * sizeof *copy.list), s->n};
    if (s->n > 0)
        memcpy(copy.list, s->list, s->n * sizeof *copy.list);
    return copy;
}

struct value_sum *value_sums_at(struct value_sums *s, struct bytes ns)
{
    size_t at = 0;
    while (at < s->n && bytes_compare(bytes_str(s->list[at].ns), ns) < 0)
        at++;
    if (at < s->n && bytes_equal_str(ns, s->list[at].ns))
        return &s->list[at];
    s->list = mem_realloc(s->list, (s->n + 1) * sizeof *s->list);
    memmove(&s->list[at + 1], &s->list[at], (s->n++ - at) * sizeof *s->list);
    s->list[at].sum = 0;
    snprintf(s->list[at].ns, sizeof s->list[at].ns, "%.*s", (int)ns.len, ns.ptr);
    return &s->list[at];
}

struct value_sum *value_sums_find(const struct value_sums *s, struct bytes ns)
{
    const char *dot = s->n > 0 && ns.len > 0 ? memchr(ns.ptr, '.', ns.len) : NULL;
    if (dot)
        ns = bytes_of(dot + 1, ns.len - (size_t)(dot + 1 - ns.ptr));
    for (size_t i = 0; i < s->n; i++)
        if (bytes_equal_str(ns, s->list[i].ns))
            return &s->list[i];
    return NULL;
}

void value_sums_note(struct value_sums *s, const char *counters)
{
    struct bytes ns;
    unsigned scale;
    while (counters_text_next_value(&counters, &ns, &scale))
        if (ns.len <= NAMESPACE_MAX)
            value_sums_at(s, ns);
}

bool value_sum_add(struct value_sum *s, uint64_t more)
{
    bool fits = more <= VALUE_SUM_MAX - s->sum;
    s->sum = fits ? s->sum + more : VALUE_SUM_MAX;
    return fits;
}

const char *value_sums_add(struct value_sums *s, const struct value_sums *from)
{
    const char *over = NULL;
    for (size_t i = 0; i < from->n; i++)
        if (!value_sum_add(value_sums_at(s, bytes_str(from->list[i].ns)), from->list[i].sum))
            over = from->list[i].ns;
    return over;
}
