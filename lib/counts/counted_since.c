#include "counts/counted_since.h"

#include <stdlib.h>
#include <string.h>

/* Sets *ns to the namespace of a line such as `total u key = l`. Returns false if the line is not the line of a
 * counter. */
static bool namespace_of(struct bytes line, struct bytes *ns)
{
    static const struct bytes kinds[] = {
        BYTES_LITERAL("total "), BYTES_LITERAL("subtotal "), BYTES_LITERAL("unique ")};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (line.len <= kinds[i].len || memcmp(line.ptr, kinds[i].ptr, kinds[i].len) != 0)
            continue;
        const char *begin = line.ptr + kinds[i].len;
        const char *end = memchr(begin, ' ', line.len - kinds[i].len);
        *ns = bytes_of(begin, end ? (size_t)(end - begin) : 0);
        return ns->len > 0 && ns->len < COUNTED_SINCE_NS_TEXT;
    }
    return false;
}

bool counted_since_has(const char *counters, struct bytes wanted)
{
    struct bytes line, ns;
    while (bytes_next_word(&counters, "\n", &line))
        if (namespace_of(line, &ns) && bytes_equal(ns, wanted))
            return true;
    return false;
}

static void add(struct counted_since *s, struct bytes ns, int64_t since)
{
    s->list = mem_realloc(s->list, (s->n + 1) * sizeof *s->list);
    memcpy(s->list[s->n].ns, ns.ptr, ns.len);
    s->list[s->n].ns[ns.len] = '\0';
    s->list[s->n++].since = since;
}

void counted_since_follow(struct counted_since *s, const char *before, const char *counters, int64_t started)
{
    struct counted_since next = {.n = 0};
    struct bytes line, ns;
    while (bytes_next_word(&counters, "\n", &line)) {
        if (!namespace_of(line, &ns) ||
            counted_since_of(&next, ns) > 0) /* a counter may have several lines */
            continue;
        int64_t since = *before && !counted_since_has(before, ns) ? started : counted_since_of(s, ns);
        if (since > 0)
            add(&next, ns, since);
    }
    counted_since_free(s);
    *s = next;
}

int64_t counted_since_of(const struct counted_since *s, struct bytes ns)
{
    for (size_t i = 0; i < s->n; i++)
        if (bytes_equal_str(ns, s->list[i].ns))
            return s->list[i].since;
    return 0;
}

void counted_since_copy(const struct counted_since *from, struct counted_since *to)
{
    *to = (struct counted_since){.n = from->n, .list = mem_alloc((from->n + 1) * sizeof *to->list)};
    if (from->n > 0)
        memcpy(to->list, from->list, from->n * sizeof *to->list);
}

void counted_since_free(struct counted_since *s)
{
    free(s->list);
    *s = (struct counted_since){.n = 0};
}
