#include "journal/journal_marks.h"
#include "journal/journal_format.h"

#include <stdlib.h>
#include <xxhash.h>

static struct mark *slot_of(const struct marks *m, struct bytes name)
{
    size_t at = XXH3_64bits(name.ptr, name.len) & (m->capacity - 1);
    for (;; at = (at + 1) & (m->capacity - 1)) {
        struct mark *slot = &m->slots[at];
        if (slot->length == 0 || bytes_equal(bytes_of(slot->name, slot->length), name))
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

static void resize(struct marks *m, size_t capacity)
{
    struct marks old = *m;
    m->slots = mem_zalloc(capacity * sizeof *m->slots);
    m->capacity = capacity;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].length)
            *slot_of(m, bytes_of(old.slots[i].name, old.slots[i].length)) = old.slots[i];
    free(old.slots);
}

struct mark *marks_add(struct marks *m, struct bytes name)
{
    if ((m->count + 1) * 2 > m->capacity)
        resize(m, m->capacity ? m->capacity * 2 : 8);
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

void marks_roll_back(struct marks *m)
{
    struct marks kept = {0};
    for (size_t i = 0; i < m->capacity; i++) {
        struct mark *slot = &m->slots[i];
        if (slot->length && slot->known)
            marks_commit(&kept, bytes_of(slot->name, slot->length), slot->committed);
    }
    marks_free(m);
    *m = kept;
}

void marks_table(const struct marks *m, struct buf *out)
{
    for (size_t i = 0; i < m->capacity; i++) {
        struct mark *slot = &m->slots[i];
        if (slot->length && slot->known)
            table_append_entry(out, bytes_of(slot->name, slot->length), slot->committed);
    }
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

void marks_copy(struct marks *to, const struct marks *from)
{
    marks_free(to);
    for (size_t i = 0; i < from->capacity; i++) {
        struct mark *slot = &from->slots[i];
        if (slot->length && slot->known)
            marks_commit(to, bytes_of(slot->name, slot->length), slot->committed);
    }
}

void marks_free(struct marks *m)
{
    free(m->slots);
    *m = (struct marks){0};
}
