#include "lists/list_code.h"

#include "base/text_hash.h"

#include <stdlib.h>

#define NONE UINT32_MAX

static void append_varint(struct buf *out, uint64_t n)
{
    for (; n > 127; n >>= 7)
        buf_append_char(out, (char)(n | 128));
    buf_append_char(out, (char)n);
}

static bool take_varint(struct bytes *code, uint64_t *n)
{
    *n = 0;
    for (unsigned shift = 0; code->len > 0 && shift < 64; shift += 7) {
        unsigned char c = (unsigned char)code->ptr[0];
        *code = bytes_of(code->ptr + 1, code->len - 1);
        *n |= (uint64_t)(c & 127) << shift;
        if (c < 128)
            return true;
    }
    return false;
}

static uint64_t zigzag(uint64_t difference)
{
    return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static uint64_t unzigzag(uint64_t n)
{
    return n >> 1 ^ (n & 1 ? UINT64_MAX : 0);
}

int list_entry_compare(const struct list_entry *a, const struct list_entry *b)
{
    return a->time != b->time ? (a->time > b->time ? -1 : 1) : bytes_compare(b->id, a->id);
}

void list_free(struct list *l)
{
    free(l->entries);
    free(l->slots);
    *l = (struct list){0};
}

void list_add(struct list *l, const struct list_entry *e)
{
    *ARRAY_ADD(l->entries, l->n, l->cap) = *e;
}

void list_encode(const struct list *l, struct buf *out)
{
    uint64_t time = 0, stamp = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct list_entry *e = &l->entries[i];
        append_varint(out, i == 0 ? (uint64_t)e->time : time - (uint64_t)e->time);
        append_varint(out, zigzag(stamp - e->stamp));
        append_varint(out, e->id.len);
        buf_append_bytes(out, e->id);
        time = (uint64_t)e->time;
        stamp = e->stamp;
    }
}

bool list_decode(struct list *l, struct bytes code)
{
    uint64_t time = 0, stamp = 0, earlier, change, len;
    l->n = l->cut = l->loose = 0;
    while (code.len > 0) {
        if (!take_varint(&code, &earlier) || !take_varint(&code, &change) || !take_varint(&code, &len) ||
            len == 0 || len > code.len)
            return false;
        time = l->n == 0 ? earlier : time - earlier;
        stamp -= unzigzag(change);
        struct bytes id = bytes_of(code.ptr, (size_t)len);
        list_add(l, &(struct list_entry){.time = (usec_t)time,
                        .stamp = stamp,
                        .id = id,
                        .hash = (uint32_t)text_hash(id),
                        .is_stored = true});
        code = bytes_of(code.ptr + len, code.len - (size_t)len);
    }
    return true;
}

/* Returns the place in the table of the index of an entry with the id, or of a free one. */
static uint32_t *find_slot(struct list *l, size_t mask, const struct list_entry *e)
{
    size_t i = e->hash & mask;
    for (; l->slots[i] != NONE; i = (i + 1) & mask) {
        const struct list_entry *other = &l->entries[l->slots[i]];
        if (other->hash == e->hash && bytes_equal(other->id, e->id))
            break;
    }
    return &l->slots[i];
}

/* Merges entries with the same id into the first. */
static void unite(struct list *l, size_t from)
{
    size_t room = 16, n = l->n;
    while (room < 2 * n)
        room *= 2;
    ARRAY_ROOM(l->slots, l->slots_cap, room);
    memset(l->slots, 0xff, room * sizeof *l->slots);
    for (size_t i = l->n = 0; i < n; i++) {
        struct list_entry *e = &l->entries[i];
        uint32_t *slot = find_slot(l, room - 1, e);
        if (i < from || *slot == NONE) {
            *slot = (uint32_t)l->n;
            l->entries[l->n++] = *e;
            continue;
        }
        struct list_entry *into = &l->entries[*slot];
        into->time = e->time > into->time ? e->time : into->time;
        into->stamp = e->stamp > into->stamp ? e->stamp : into->stamp;
        if (!list_entry_is_removed(e) || !into->item)
            into->item = e->item;
    }
}

static int compare(const void *a, const void *b)
{
    return list_entry_compare(a, b);
}

static void sort(struct list *l)
{
    size_t i = 1;
    while (i < l->n && compare(&l->entries[i - 1], &l->entries[i]) < 0)
        i++;
    if (i < l->n)
        qsort(l->entries, l->n, sizeof *l->entries, compare);
}

void list_merge(struct list *l, size_t from, size_t limit)
{
    unite(l, from);
    sort(l);
    size_t n = l->n, timed = n;
    while (timed > 0 && l->entries[timed - 1].time == LIST_NO_TIME)
        timed--;
    l->n = timed < limit ? timed : limit;
    l->cut = timed - l->n;
    l->loose = n - timed;
}

void list_item_encode(const struct list_item *item, struct buf *out)
{
    append_varint(out, item->lists);
    append_varint(out, item->sequence);
    append_varint(out, item->removed);
    buf_append_bytes(out, item->data);
}

bool list_item_decode(struct list_item *item, struct bytes code)
{
    bool is_valid = take_varint(&code, &item->lists) && take_varint(&code, &item->sequence) &&
                    take_varint(&code, &item->removed);
    item->data = code;
    return is_valid && item->lists > 0;
}
