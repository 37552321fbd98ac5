#include "journal/journal_internal.h"

#include <stdlib.h>

uint64_t journal_places_apart = (uint64_t)512 << 10;

struct places {
    struct segment *segment; /* NULL: free */
    uint64_t used;           /* when, by the set's clock */
    uint64_t apart;
    size_t n;
    struct place at[PLACES_MOST]; /* ascending */
};

/* Those of the segment that was used longest ago, if none are free. */
static struct places *claim(struct journal_set *set, struct segment *s)
{
    if (!set->places)
        set->places = mem_zalloc(PLACES_SEGMENTS * sizeof *set->places);
    struct places *oldest = set->places;
    for (size_t i = 0; i < PLACES_SEGMENTS && oldest->segment; i++)
        if (!set->places[i].segment || set->places[i].used < oldest->used)
            oldest = &set->places[i];
    if (oldest->segment)
        oldest->segment->places = NULL;
    oldest->segment = s;
    oldest->apart = journal_places_apart;
    oldest->n = 0;
    return oldest;
}

/* How many of them are not behind the position. */
static size_t count_to(const struct places *p, uint64_t position)
{
    size_t n = p->n;
    while (n > 0 && p->at[n - 1].position > position)
        n--;
    return n;
}

static bool is_far_enough(const struct places *p, size_t i, uint64_t position)
{
    uint64_t before = i > 0 ? p->at[i - 1].position : SEGMENT_HEADER;
    return position >= before + p->apart && (i == p->n || p->at[i].position >= position + p->apart);
}

/* Every second goes. */
static void thin(struct places *p)
{
    for (size_t i = 0; 2 * i + 1 < p->n; i++)
        p->at[i] = p->at[2 * i + 1];
    p->n /= 2;
    p->apart *= 2;
}

void places_learn(struct journal *j, struct segment *s, const struct place *p)
{
    if (p->position < SEGMENT_HEADER + journal_places_apart)
        return;
    if (!s->places)
        s->places = claim(j->set, s);
    struct places *known = s->places;
    known->used = ++j->set->places_used;
    size_t i = count_to(known, p->position);
    if (!is_far_enough(known, i, p->position))
        return;
    memmove(known->at + i + 1, known->at + i, (known->n - i) * sizeof *known->at);
    known->at[i] = *p;
    if (++known->n == PLACES_MOST)
        thin(known);
}

static bool is_above(const struct place *p, uint64_t offset)
{
    return p->offset > offset;
}

static bool is_late(const struct place *p, uint64_t time)
{
    return p->time >= (usec_t)time;
}

static struct place last_before(
    struct journal *j, struct segment *s, uint64_t what, bool (*behind)(const struct place *p, uint64_t what))
{
    struct place begin = {SEGMENT_HEADER, s->base, s->last_time};
    if (!s->places)
        return begin;
    s->places->used = ++j->set->places_used;
    size_t n = s->places->n;
    while (n > 0 && behind(&s->places->at[n - 1], what))
        n--;
    return n > 0 ? s->places->at[n - 1] : begin;
}

struct place places_by_offset(struct journal *j, struct segment *s, uint64_t offset)
{
    return last_before(j, s, offset, is_above);
}

struct place places_by_time(struct journal *j, struct segment *s, usec_t time)
{
    return last_before(j, s, (uint64_t)time, is_late);
}

void places_forget(struct segment *s)
{
    if (s->places)
        s->places->segment = NULL;
    s->places = NULL;
}

size_t places_known(const struct segment *s)
{
    return s->places ? s->places->n : 0;
}
