#include "aggregator/completeness.h"

#include <stdlib.h>

struct told {
    int64_t asked; /* 0: none */
    uint64_t *ends;
};

struct completeness {
    size_t n;
    struct told oldest, newest;
    int64_t until;
};

struct completeness *completeness_new(size_t n_streams)
{
    struct completeness *c = mem_zalloc(sizeof(*c));
    c->n = n_streams;
    c->oldest.ends = mem_zalloc((n_streams + 1) * sizeof(uint64_t));
    c->newest.ends = mem_zalloc((n_streams + 1) * sizeof(uint64_t));
    return c;
}

void completeness_free(struct completeness **c)
{
    if (!*c)
        return;
    free((*c)->oldest.ends);
    free((*c)->newest.ends);
    free(*c);
    *c = NULL;
}

static void copy_told(struct completeness *c, struct told *to, int64_t asked, const uint64_t *ends)
{
    to->asked = asked;
    memcpy(to->ends, ends, c->n * sizeof(*ends));
}

void completeness_told(struct completeness *c, int64_t asked, const uint64_t *ends)
{
    copy_told(c, &c->newest, asked, ends);
    if (c->oldest.asked == 0)
        copy_told(c, &c->oldest, asked, ends);
}

static bool is_reached(const struct completeness *c, const struct told *t, const uint64_t *offsets)
{
    for (size_t i = 0; i < c->n; i++) {
        if (offsets[i] < t->ends[i])
            return false;
    }
    return t->asked != 0;
}

int64_t completeness_until(struct completeness *c, const uint64_t *offsets)
{
    if (!is_reached(c, &c->oldest, offsets))
        return c->until;
    if (c->oldest.asked > c->until)
        c->until = c->oldest.asked;
    c->oldest.asked = 0;
    if (is_reached(c, &c->newest, offsets) && c->newest.asked > c->until)
        c->until = c->newest.asked;
    else if (c->newest.asked > c->until)
        copy_told(c, &c->oldest, c->newest.asked, c->newest.ends);
    return c->until;
}

uint64_t completeness_end(const struct completeness *c, size_t stream)
{
    return c->newest.ends[stream];
}
