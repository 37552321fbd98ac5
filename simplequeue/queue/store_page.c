#include "simplequeue/queue/store_page.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct message *block_record(const struct store_page *p, size_t i)
{
    return (struct message *)(void *)(p->memory + p->size) - (i + 1);
}

/* Maps the memory at once instead of by a page fault for each 4 KiB. */
static void populate(char *memory, size_t size)
{
    uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + unit - 1) & ~(unit - 1),
              to = ((uintptr_t)memory + size) & ~(unit - 1);
    if (to > from)
        (void)madvise(memory + (from - (uintptr_t)memory), to - from, MADV_POPULATE_WRITE);
}

struct store_page *page_new(size_t len, uint64_t first_id, bool will_fill)
{
    size_t align = sizeof(struct message);
    size_t need = len + sizeof(struct message);
    size_t size = need > STORE_PAGE_BYTES ? need : STORE_PAGE_BYTES;
    struct store_page *p = mem_zalloc(sizeof *p);
    p->size = (size + align - 1) / align * align; /* so that records at the end are aligned */
    p->memory = mem_alloc(p->size);
    if (will_fill)
        populate(p->memory, p->size);
    page_reset(p, first_id);
    return p;
}

void page_free(struct store_page *p)
{
    free(p->memory);
    free(p->slots);
    free(p->lens);
    free(p);
}

void page_reset(struct store_page *p, uint64_t first_id)
{
    assert(p->form == PAGE_BLOCK);
    p->kept = false;
    p->first_id = first_id;
    p->offset = STORE_NO_OFFSET;
    p->used = p->span = p->held = p->ready = p->pending = 0;
    p->bytes = 0;
}

bool page_fits(const struct store_page *p, size_t len)
{
    return p->form == PAGE_BLOCK && p->used + len + (p->span + 1) * sizeof(struct message) <= p->size;
}

struct message *page_add(struct store_page *p, struct bytes text)
{
    struct message *m = block_record(p, p->span++);
    *m = (struct message){.ptr = p->memory + p->used, .len = (uint32_t)text.len};
    memcpy(p->memory + p->used, text.ptr, text.len);
    p->used += text.len;
    p->bytes += text.len;
    p->held++;
    return m;
}

bool page_undo(struct store_page *p)
{
    if (p->form != PAGE_BLOCK || p->span == 0)
        return false;
    const struct message *m = block_record(p, p->span - 1);
    if (m->state != STORE_GONE)
        return false;
    p->used = (size_t)(m->ptr - p->memory);
    p->span--;
    return true;
}

/* The index of the first slot at or above `id`. */
static size_t slot_index(const struct store_page *p, uint64_t id)
{
    size_t low = 0, high = p->n_slots;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->slots[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Records of all forms, by index. */
static size_t n_records(const struct store_page *p)
{
    return p->form == PAGE_SLOTS ? p->n_slots : p->span;
}

static struct page_slot record_at(const struct store_page *p, size_t i)
{
    if (p->form == PAGE_SLOTS)
        return p->slots[i];
    if (p->form == PAGE_BLOCK)
        return (struct page_slot){p->first_id + i, *block_record(p, i)};
    uint32_t len = p->lens[i];
    return (struct page_slot){p->first_id + i, {.len = len, .state = len ? STORE_READY : STORE_GONE}};
}

/* SLOTS of the page's messages, whatever its form. */
static void make_slots(struct store_page *p)
{
    struct page_slot *slots = mem_alloc((p->held ? p->held : 1) * sizeof *slots);
    size_t n = 0;
    for (size_t i = 0; n < p->held; i++) {
        struct page_slot slot = record_at(p, i);
        if (slot.m.state != STORE_GONE)
            slots[n++] = slot;
    }
    free(p->slots);
    free(p->lens);
    p->slots = slots;
    p->n_slots = n;
    p->lens = NULL;
    p->form = PAGE_SLOTS;
}

/* The record in any state; NULL if there is none. */
static struct message *record_of(const struct store_page *p, uint64_t id)
{
    if (id < p->first_id || id - p->first_id >= p->span)
        return NULL;
    if (p->form == PAGE_BLOCK)
        return block_record(p, id - p->first_id);
    size_t i = slot_index(p, id);
    return i < p->n_slots && p->slots[i].id == id ? &p->slots[i].m : NULL;
}

struct message *page_find(struct store_page *p, uint64_t id)
{
    if (p->form == PAGE_BARE)
        make_slots(p);
    struct message *m = record_of(p, id);
    return m && m->state != STORE_GONE ? m : NULL;
}

struct message page_peek(const struct store_page *p, uint64_t id)
{
    struct message none = {0};
    if (p->form == PAGE_BARE)
        return id >= p->first_id && id - p->first_id < p->span ? record_at(p, id - p->first_id).m : none;
    const struct message *m = record_of(p, id);
    return m ? *m : none;
}

bool page_next(struct store_page *p, uint64_t from, bool ready, uint64_t *id)
{
    size_t i = p->form == PAGE_SLOTS ? slot_index(p, from) : from > p->first_id ? from - p->first_id : 0;
    for (; i < n_records(p); i++) {
        struct page_slot slot = record_at(p, i);
        *id = slot.id;
        if (slot.m.state != STORE_GONE && (slot.m.state == STORE_READY) == ready)
            return true;
    }
    return false;
}

void page_drop(struct store_page *p, uint64_t id)
{
    const struct message was = page_peek(p, id);
    p->held--;
    p->bytes -= was.len;
    p->ready -= was.state == STORE_READY;
    p->pending -= was.state == STORE_PENDING;
    if (p->form == PAGE_BARE) {
        p->lens[id - p->first_id] = 0;
        return;
    }
    struct message *m = record_of(p, id);
    m->state = STORE_GONE;
    m->owner = NULL;
}

uint64_t page_cost(const struct store_page *p)
{
    uint64_t cost = sizeof *p;
    if (p->form == PAGE_BLOCK)
        return cost + p->used + p->span * sizeof(struct message);
    cost += p->n_slots * sizeof *p->slots + (p->memory ? p->size : 0);
    return cost + (p->lens ? p->span * sizeof *p->lens : 0);
}

#define SPARSE 4 /* times the memory needed */

bool page_is_sparse(const struct store_page *p)
{
    uint64_t need = sizeof *p + p->bytes + p->held * sizeof *p->slots;
    return p->held > 0 && p->pending == 0 && p->memory && !p->loading && page_cost(p) > SPARSE * need &&
           !page_is_partial(p);
}

void page_compact(struct store_page *p)
{
    char *memory = mem_alloc(p->bytes);
    size_t used = 0;
    make_slots(p);
    for (size_t i = 0; i < p->n_slots; i++) {
        struct message *m = &p->slots[i].m;
        m->ptr = memcpy(memory + used, m->ptr, m->len);
        used += m->len;
    }
    free(p->memory);
    p->memory = memory;
    p->size = p->used = used;
}

/* Whether lengths alone describe the messages, in less memory than slots. */
static bool can_be_bare(const struct store_page *p)
{
    if (p->held != p->ready || p->span * sizeof *p->lens > p->held * sizeof *p->slots)
        return false;
    for (size_t i = 0; i < n_records(p); i++) {
        struct message m = record_at(p, i).m;
        if (m.state != STORE_GONE && m.tries > 0)
            return false;
    }
    return true;
}

static void make_bare(struct store_page *p)
{
    uint32_t *lens = mem_zalloc(p->span * sizeof *lens);
    for (size_t i = 0; i < n_records(p); i++) {
        struct page_slot slot = record_at(p, i);
        if (slot.m.state != STORE_GONE)
            lens[slot.id - p->first_id] = slot.m.len;
    }
    free(p->slots);
    p->slots = NULL;
    p->n_slots = 0;
    p->lens = lens;
    p->form = PAGE_BARE;
}

void page_spill(struct store_page *p)
{
    assert(p->held && p->pending == 0 && p->offset != STORE_NO_OFFSET);
    if (can_be_bare(p))
        make_bare(p);
    else if (p->form == PAGE_BLOCK)
        make_slots(p);
    for (size_t i = 0; i < p->n_slots; i++)
        p->slots[i].m.ptr = NULL;
    free(p->memory);
    p->memory = NULL;
    p->size = p->used = 0;
}

struct store_page *page_new_slots(uint64_t first_id, uint64_t offset)
{
    struct store_page *p = mem_zalloc(sizeof *p);
    p->form = PAGE_SLOTS;
    p->kept = true;
    p->first_id = first_id;
    p->offset = offset;
    return p;
}

void page_insert(struct store_page *p, uint64_t id, size_t len)
{
    if (p->form == PAGE_BARE)
        make_slots(p);
    size_t at = slot_index(p, id);
    p->slots = mem_realloc(p->slots, (p->n_slots + 1) * sizeof *p->slots);
    memmove(p->slots + at + 1, p->slots + at, (p->n_slots - at) * sizeof *p->slots);
    p->slots[at] = (struct page_slot){id, {.len = (uint32_t)len, .state = STORE_READY}};
    p->n_slots++;
    p->held++;
    p->ready++;
    p->bytes += len;
    if (id - p->first_id >= p->span)
        p->span = (size_t)(id - p->first_id + 1);
}

bool page_is_partial(const struct store_page *p)
{
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].m.state != STORE_GONE && !p->slots[i].m.ptr)
            return true;
    return p->form == PAGE_BARE;
}

void page_load_begin(struct store_page *p)
{
    assert(page_is_spilled(p) && !p->loading);
    if (p->form == PAGE_BARE)
        make_slots(p);
    p->size = p->bytes;
    p->memory = mem_alloc(p->size ? p->size : 1);
    p->used = 0;
    p->loading = true;
}

bool page_load(struct store_page *p, uint64_t id, struct bytes text)
{
    struct message *m = record_of(p, id);
    if (!p->loading || !m || m->state == STORE_GONE || m->ptr)
        return true;
    if (m->len != text.len || p->used + text.len > p->size)
        return false;
    memcpy(p->memory + p->used, text.ptr, text.len);
    m->ptr = p->memory + p->used;
    p->used += text.len;
    return true;
}

bool page_load_end(struct store_page *p)
{
    p->loading = false;
    if (!page_is_partial(p))
        return true;
    page_spill(p);
    return false;
}
