#include "journal/journal_internal.h"

#include "base/text_hash.h"

#include <stdlib.h>

static struct bytes name_of(const struct mark *slot)
{
    return bytes_of(slot->name, slot->length);
}

static struct mark *slot_of(const struct marks *m, struct bytes name)
{
    size_t at = text_hash(name) & (m->capacity - 1);
    for (;; at = (at + 1) & (m->capacity - 1)) {
        struct mark *slot = &m->slots[at];
        if (slot->length == 0 || bytes_equal(name_of(slot), name))
            return slot;
    }
}

struct mark *marks_find(const struct marks *m, struct bytes name)
{
    if (m->capacity == 0)
        return NULL;
    struct mark *slot = slot_of(m, name);
    return slot->length ? slot : NULL;
}

struct mark *marks_add(struct marks *m, struct bytes name)
{
    if ((m->count + 1) * 2 > m->capacity) {
        struct marks old = *m;
        m->capacity = old.capacity ? old.capacity * 2 : 8;
        m->slots = mem_zalloc(m->capacity * sizeof *m->slots);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.slots[i].length)
                *slot_of(m, name_of(&old.slots[i])) = old.slots[i];
        free(old.slots);
    }
    struct mark *slot = slot_of(m, name);
    if (slot->length)
        return slot;
    memcpy(slot->name, name.ptr, name.len);
    slot->length = (uint8_t)name.len;
    m->count++;
    return slot;
}

void marks_commit(struct marks *m, struct bytes name, uint64_t mark)
{
    struct mark *slot = marks_add(m, name);
    slot->known = true;
    slot->committed = mark;
    if (slot->accepted < mark)
        slot->accepted = mark;
}

void marks_copy(struct marks *to, const struct marks *from)
{
    struct marks copy = {0};
    for (size_t i = 0; i < from->capacity; i++)
        if (from->slots[i].known)
            marks_commit(&copy, name_of(&from->slots[i]), from->slots[i].committed);
    marks_free(to);
    *to = copy;
}

void marks_table(const struct marks *m, struct buf *out)
{
    for (size_t i = 0; i < m->capacity; i++)
        if (m->slots[i].known)
            table_append_entry(out, name_of(&m->slots[i]), m->slots[i].committed);
}

bool marks_load(struct marks *m, struct bytes table)
{
    struct bytes name;
    uint64_t mark;
    bool bad;
    marks_free(m);
    while (table_next(&table, &name, &mark, &bad))
        marks_commit(m, name, mark);
    return !bad;
}

void marks_free(struct marks *m)
{
    free(m->slots);
    *m = (struct marks){0};
}
