#include "simplequeue/queue/queue_openings.h"

#include <stdio.h>

void queue_openings_add(struct queue_openings *o, const char *opening, uint64_t first)
{
    if (o->n && strcmp(o->at[o->n - 1].opening, opening) == 0)
        return;
    while (o->n && o->at[o->n - 1].first >= first)
        o->n--;
    if (o->n == QUEUE_OPENINGS_MAX)
        memmove(o->at, o->at + 1, --o->n * sizeof *o->at);
    struct queue_opening *last = &o->at[o->n++];
    last->first = first;
    snprintf(last->opening, sizeof last->opening, "%s", opening);
}

const struct queue_opening *queue_openings_of(const struct queue_openings *o, uint64_t id)
{
    size_t n = o->n;
    while (n > 1 && o->at[n - 1].first > id)
        n--;
    return n ? &o->at[n - 1] : NULL;
}

uint64_t queue_openings_end(const struct queue_openings *o, const struct queue_opening *of)
{
    return of && of + 1 < o->at + o->n ? of[1].first : UINT64_MAX;
}

bool queue_openings_is_past(const struct queue_openings *o, uint64_t next_id, uint64_t mark,
    struct bytes opening, struct queue_difference *out)
{
    uint64_t end = next_id;
    const struct queue_opening *of_last = mark <= next_id ? queue_openings_of(o, mark - 1) : NULL;
    bool is_known = opening.len == 0 || (of_last && !of_last->opening[0] && of_last->first < mark);
    for (size_t i = o->n; i-- > 0 && !is_known;) {
        is_known = bytes_equal_str(opening, o->at[i].opening);
        if (is_known)
            end = i + 1 < o->n ? o->at[i + 1].first : next_id;
        else if (opening_is_after(o->at[i].opening, opening))
            end = o->at[i].first;
    }
    *out = (struct queue_difference){end < mark ? end : mark, is_known};
    return mark <= 1 || (is_known && mark <= end);
}
