#include "journal/journal_frame_index.h"
#include "journal/journal_internal.h"

#include <stdlib.h>

uint64_t journal_index_spacing = (uint64_t)512 << 10;

struct frame_index {
    struct segment *segment; /* NULL: free */
    uint64_t used;           /* by the set's index_clock */
    uint64_t apart;
    size_t n;
    struct index_entry at[FRAME_INDEX_ENTRIES_MAX]; /* ascending */
};

/* A free slot, or that of the least recently used segment. */
static struct frame_index *claim(struct journal_set *set, struct segment *s)
{
    if (!set->index)
        set->index = mem_zalloc(FRAME_INDEX_SEGMENTS_MAX * sizeof *set->index);
    struct frame_index *oldest = set->index;
    for (size_t i = 0; i < FRAME_INDEX_SEGMENTS_MAX && oldest->segment; i++)
        if (!set->index[i].segment || set->index[i].used < oldest->used)
            oldest = &set->index[i];
    if (oldest->segment)
        oldest->segment->index = NULL;
    oldest->segment = s;
    oldest->apart = journal_index_spacing;
    oldest->n = 0;
    return oldest;
}

/* The number of entries at or below the position. */
static size_t count_to(const struct frame_index *p, uint64_t position)
{
    size_t n = p->n;
    while (n > 0 && p->at[n - 1].position > position)
        n--;
    return n;
}

static bool is_far_enough(const struct frame_index *p, size_t i, uint64_t position)
{
    uint64_t before = i > 0 ? p->at[i - 1].position : SEGMENT_HEADER;
    return position >= before + p->apart && (i == p->n || p->at[i].position >= position + p->apart);
}

/* Drops every second entry. */
static void thin(struct frame_index *p)
{
    for (size_t i = 0; 2 * i + 1 < p->n; i++)
        p->at[i] = p->at[2 * i + 1];
    p->n /= 2;
    p->apart *= 2;
}

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p)
{
    if (p->position < SEGMENT_HEADER + journal_index_spacing)
        return;
    if (!s->index)
        s->index = claim(j->set, s);
    struct frame_index *known = s->index;
    known->used = ++j->set->index_clock;
    size_t i = count_to(known, p->position);
    if (!is_far_enough(known, i, p->position))
        return;
    memmove(known->at + i + 1, known->at + i, (known->n - i) * sizeof *known->at);
    known->at[i] = *p;
    if (++known->n == FRAME_INDEX_ENTRIES_MAX)
        thin(known);
}

static bool is_above(const struct index_entry *p, uint64_t offset)
{
    return p->offset > offset;
}

static bool is_late(const struct index_entry *p, uint64_t time)
{
    return p->time >= (usec_t)time;
}

static struct index_entry last_before(struct journal *j, struct segment *s, uint64_t what,
    bool (*behind)(const struct index_entry *p, uint64_t what))
{
    struct index_entry begin = {SEGMENT_HEADER, s->base, s->last_time};
    if (!s->index)
        return begin;
    s->index->used = ++j->set->index_clock;
    size_t n = s->index->n;
    while (n > 0 && behind(&s->index->at[n - 1], what))
        n--;
    return n > 0 ? s->index->at[n - 1] : begin;
}

struct index_entry frame_index_find_offset(struct journal *j, struct segment *s, uint64_t offset)
{
    return last_before(j, s, offset, is_above);
}

struct index_entry frame_index_find_time(struct journal *j, struct segment *s, usec_t time)
{
    return last_before(j, s, (uint64_t)time, is_late);
}

void frame_index_drop(struct segment *s)
{
    if (s->index)
        s->index->segment = NULL;
    s->index = NULL;
}

size_t frame_index_count(const struct segment *s)
{
    return s->index ? s->index->n : 0;
}
