#include "journal/journal_internal.h"

uint64_t journal_index_spacing = (uint64_t)512 << 10;

void frame_index_add(struct journal *j, struct segment *s, const struct index_entry *p)
{
    if (p->position < SEGMENT_HEADER + journal_index_spacing)
        return;
    struct journal_set *set = j->set;
    if (!set->index)
        set->index = mem_zalloc(FRAME_INDEX_SEGMENTS_MAX * sizeof *set->index);
    if (!s->index) { /* take a free slot, or the slot of the least recently used segment */
        struct frame_index *oldest = set->index;
        for (size_t i = 0; i < FRAME_INDEX_SEGMENTS_MAX && oldest->segment; i++)
            if (!set->index[i].segment || set->index[i].used < oldest->used)
                oldest = &set->index[i];
        if (oldest->segment)
            oldest->segment->index = NULL;
        oldest->segment = s;
        oldest->spacing = journal_index_spacing;
        oldest->n = 0;
        s->index = oldest;
    }
    struct frame_index *known = s->index;
    known->used = ++set->index_clock;
    size_t i = known->n;
    while (i > 0 && known->at[i - 1].position > p->position)
        i--;
    uint64_t before = i > 0 ? known->at[i - 1].position : SEGMENT_HEADER;
    if (p->position < before + known->spacing ||
        (i < known->n && known->at[i].position < p->position + known->spacing))
        return;
    memmove(known->at + i + 1, known->at + i, (known->n - i) * sizeof *known->at);
    known->at[i] = *p;
    if (++known->n < FRAME_INDEX_ENTRIES_MAX)
        return;
    for (i = 0; 2 * i + 1 < known->n; i++) /* remove every second entry */
        known->at[i] = known->at[2 * i + 1];
    known->n /= 2;
    known->spacing *= 2;
}

struct index_entry frame_index_find(struct journal *j, struct segment *s, uint64_t offset, usec_t time)
{
    size_t n = s->index ? s->index->n : 0;
    while (n > 0 && (s->index->at[n - 1].offset > offset || s->index->at[n - 1].latest >= time))
        n--;
    if (s->index)
        s->index->used = ++j->set->index_clock;
    return n > 0 ? s->index->at[n - 1] : (struct index_entry){SEGMENT_HEADER, s->base, 0};
}
