#include "journal/journal_internal.h"

#include "base/text_hash.h"

#include <stdlib.h>

static struct bytes label_of(const struct mark *slot)
{
    return bytes_of(slot->label, slot->length);
}

static size_t name_length(struct bytes label)
{
    const char *nul = label.len ? memchr(label.ptr, '\0', label.len) : NULL;
    return nul ? (size_t)(nul - label.ptr) : label.len;
}

static struct mark *slot_of(const struct marks *m, struct bytes label)
{
    size_t name = name_length(label);
    size_t at = text_hash(bytes_of(label.ptr, name)) & (m->capacity - 1);
    for (;; at = (at + 1) & (m->capacity - 1)) {
        struct mark *slot = &m->slots[at];
        if (slot->name == 0 || (slot->name == name && memcmp(slot->label, label.ptr, name) == 0))
            return slot;
    }
}

struct mark *marks_find(const struct marks *m, struct bytes label)
{
    if (m->capacity == 0)
        return NULL;
    struct mark *slot = slot_of(m, label);
    return slot->name ? slot : NULL;
}

struct mark *marks_add(struct marks *m, struct bytes label)
{
    if ((m->count + 1) * 2 > m->capacity) {
        struct marks old = *m;
        m->capacity = old.capacity ? old.capacity * 2 : 8;
        m->slots = mem_zalloc(m->capacity * sizeof *m->slots);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.slots[i].name)
                *slot_of(m, label_of(&old.slots[i])) = old.slots[i];
        free(old.slots);
    }
    struct mark *slot = slot_of(m, label);
    if (slot->name)
        return slot;
    memcpy(slot->label, label.ptr, label.len);
    slot->length = (uint8_t)label.len;
    slot->name = (uint8_t)name_length(label);
    m->count++;
    return slot;
}

/* Moves the entries that directly follow the removed slot, because a search ends at a free slot. */
static void marks_remove(struct marks *m, struct bytes label)
{
    struct mark *slot = marks_find(m, label);
    if (!slot)
        return;
    size_t at = (size_t)(slot - m->slots);
    m->count--;
    for (*slot = (struct mark){0}; m->slots[at = (at + 1) & (m->capacity - 1)].name;) {
        struct mark moved = m->slots[at];
        m->slots[at] = (struct mark){0};
        *slot_of(m, label_of(&moved)) = moved;
    }
}

void marks_commit(struct marks *m, struct bytes label, uint64_t mark)
{
    if (mark == 0) {
        marks_remove(m, label);
        return;
    }
    struct mark *slot = marks_add(m, label);
    memcpy(slot->label, label.ptr, label.len);
    slot->length = (uint8_t)label.len;
    slot->known = true;
    slot->being_set = false;
    slot->committed = mark;
}

void marks_set(struct marks *m, struct bytes label, uint64_t mark)
{
    marks_commit(m, label, mark);
    if (mark > 0)
        marks_find(m, label)->accepted = mark;
}

void marks_copy(struct marks *to, const struct marks *from)
{
    struct marks copy = {0};
    for (size_t i = 0; i < from->capacity; i++)
        if (from->slots[i].known)
            marks_set(&copy, label_of(&from->slots[i]), from->slots[i].committed);
    marks_free(to);
    *to = copy;
}

void marks_table(const struct marks *m, struct buf *out)
{
    for (size_t i = 0; i < m->capacity; i++)
        if (m->slots[i].known)
            table_append_entry(out, label_of(&m->slots[i]), m->slots[i].committed);
}

bool marks_load(struct marks *m, struct bytes table)
{
    struct bytes label;
    uint64_t mark;
    bool bad;
    marks_free(m);
    while (table_next(&table, &label, &mark, &bad))
        marks_set(m, label, mark);
    return !bad;
}

void marks_free(struct marks *m)
{
    free(m->slots);
    *m = (struct marks){0};
}
