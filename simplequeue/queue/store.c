#include "simplequeue/queue/store.h"

#include "base/lower_bound.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEEP_PAGES 16 /* a store with more pages than this will probably fill its next page */
#define SPARSE 4 /* a page is sparse if it uses more than SPARSE times the memory that its messages need */

/* A page has one of three forms:
 *
 *     PAGE_BLOCK   bytes and records in one block of memory, filled by puts
 *     PAGE_SLOTS   a record with an id for each message; the bytes are in one block of memory, or spilled
 *     PAGE_BARE    only the length of each message (0 if removed); all messages are ready, never delivered and spilled
 *
 * A page that is spilled becomes BARE if its messages allow this form, and SLOTS if not. page_find converts BARE to
 * SLOTS without reading the disk. */
enum page_form { PAGE_BLOCK, PAGE_SLOTS, PAGE_BARE };

struct page_slot {
    uint64_t id;
    struct message m;
};

struct store_page {
    enum page_form form;
    bool loading;
    bool kept; /* the page was rewritten, and its offset is not in the order of ids */
    uint64_t first_id;
    size_t span; /* number of ids from first_id on */
    size_t held, ready, pending;
    uint64_t bytes;  /* bytes of the messages in the page */
    uint64_t offset; /* journal offset; no message of the page is at a lower offset */
    char *memory;    /* SLOTS: only the bytes of messages; NULL if the page is spilled */
    size_t size, used;
    struct page_slot *slots; /* in ascending order of ids */
    size_t n_slots;
    uint32_t *lens;
};

static bool page_is_spilled(const struct store_page *p)
{
    return p->form != PAGE_BLOCK && (!p->memory || p->loading);
}

static struct message *block_record(const struct store_page *p, size_t i)
{
    return (struct message *)(void *)(p->memory + p->size) - (i + 1);
}

/* Makes the page an empty block. */
static void page_reset(struct store_page *p, uint64_t first_id)
{
    assert(p->form == PAGE_BLOCK);
    p->kept = false;
    p->first_id = first_id;
    p->offset = STORE_NO_OFFSET;
    p->used = p->span = p->held = p->ready = p->pending = 0;
    p->bytes = 0;
}

/* If `will_fill` is true, all memory of the page is mapped at once, which avoids a page fault for each 4 KiB. */
static struct store_page *page_new(size_t len, uint64_t first_id, bool will_fill)
{
    size_t align = sizeof(struct message);
    size_t need = len + sizeof(struct message);
    size_t size = need > STORE_PAGE_BYTES ? need : STORE_PAGE_BYTES;
    struct store_page *p = mem_zalloc(sizeof *p);
    p->size = (size + align - 1) / align * align; /* aligns the records at the end of the page */
    p->memory = mem_alloc(p->size);
    page_reset(p, first_id);
    uintptr_t unit = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)p->memory;
    uintptr_t from = (begin + unit - 1) & ~(unit - 1), to = (begin + p->size) & ~(unit - 1);
    if (will_fill && to > from)
        (void)madvise(p->memory + (from - begin), to - from, MADV_POPULATE_WRITE);
    return p;
}

static void page_free(struct store_page *p)
{
    free(p->memory);
    free(p->slots);
    free(p->lens);
    free(p);
}

/* Returns the index of the first slot whose id is at least `id`. */
static size_t slot_index(const struct store_page *p, uint64_t id)
{
    return LOWER_BOUND(i, 0, p->n_slots, p->slots[i].id < id);
}

/* n_records and record_at access the records of a page of any form by index. */
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

/* Converts a page of any form to SLOTS. */
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

/* Returns the record in any state, or NULL if the page has no record for the id. */
static struct message *record_of(const struct store_page *p, uint64_t id)
{
    if (id < p->first_id || id - p->first_id >= p->span)
        return NULL;
    if (p->form == PAGE_BLOCK)
        return block_record(p, id - p->first_id);
    size_t i = slot_index(p, id);
    return i < p->n_slots && p->slots[i].id == id ? &p->slots[i].m : NULL;
}

/* Returns NULL if the message is not in the page. Converts a BARE page to SLOTS. */
static struct message *page_find(struct store_page *p, uint64_t id)
{
    if (p->form == PAGE_BARE)
        make_slots(p);
    struct message *m = record_of(p, id);
    return m && m->state != STORE_GONE ? m : NULL;
}

/* Returns a copy of the record. If the message is not in the page, the state of the copy is STORE_GONE. The form of
 * the page does not change. */
static struct message page_peek(const struct store_page *p, uint64_t id)
{
    struct message none = {0};
    if (p->form == PAGE_BARE)
        return id >= p->first_id && id - p->first_id < p->span ? record_at(p, id - p->first_id).m : none;
    const struct message *m = record_of(p, id);
    return m ? *m : none;
}

/* Sets *id to the first id from `from` on whose message is ready, or with `ready` false, whose message is not ready. */
static bool page_next(struct store_page *p, uint64_t from, bool ready, uint64_t *id)
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

/* Returns the bytes of memory that the page uses. */
static uint64_t page_cost(const struct store_page *p)
{
    uint64_t cost = sizeof *p;
    if (p->form == PAGE_BLOCK)
        return cost + p->used + p->span * sizeof(struct message);
    cost += p->n_slots * sizeof *p->slots + (p->memory ? p->size : 0);
    return cost + (p->lens ? p->span * sizeof *p->lens : 0);
}

/* Returns true if the bytes of any message in the page are not in memory. */
static bool page_is_partial(const struct store_page *p)
{
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].m.state != STORE_GONE && !p->slots[i].m.ptr)
            return true;
    return p->form == PAGE_BARE;
}

/* Returns true if lengths alone can describe the messages of the page, and need less memory than slots. */
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

static void page_spill(struct store_page *p)
{
    assert(p->held && p->pending == 0 && p->offset != STORE_NO_OFFSET);
    if (can_be_bare(p)) {
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
    } else if (p->form == PAGE_BLOCK) {
        make_slots(p);
    }
    for (size_t i = 0; i < p->n_slots; i++)
        p->slots[i].m.ptr = NULL;
    free(p->memory);
    p->memory = NULL;
    p->size = p->used = 0;
}

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory)
{
    *s = (struct store){.next_id = next_id, .memory = memory};
}

/* Call uncharge before and charge after each change of a page, so that the totals stay correct. */
static void uncharge(struct store *s, const struct store_page *p)
{
    bool spilled = page_is_spilled(p);
    s->spilled -= spilled;
    s->memory->all -= page_cost(p);
    s->memory->spilled -= spilled ? page_cost(p) : 0;
}

static void charge(struct store *s, const struct store_page *p)
{
    bool spilled = page_is_spilled(p);
    s->spilled += spilled;
    s->memory->all += page_cost(p);
    s->memory->spilled += spilled ? page_cost(p) : 0;
}

void store_free(struct store *s)
{
    for (size_t i = s->head; i < s->n; i++) {
        uncharge(s, s->pages[i]);
        page_free(s->pages[i]);
    }
    free(s->pages);
    *s = (struct store){0};
}

static void pages_append(struct store *s, struct store_page *p)
{
    if (s->n == s->cap && s->head >= s->cap / 2 && s->head > 0) {
        memmove(s->pages, s->pages + s->head, (s->n - s->head) * sizeof *s->pages);
        s->n -= s->head;
        s->head = 0;
    }
    *ARRAY_ADD(s->pages, s->n, s->cap) = p;
    charge(s, p);
}

static void pages_remove(struct store *s, size_t i)
{
    uncharge(s, s->pages[i]);
    page_free(s->pages[i]);
    s->changes++;
    s->lowest_known = false;
    if (i == s->head) {
        s->head++;
        return;
    }
    memmove(s->pages + i, s->pages + i + 1, (s->n - i - 1) * sizeof *s->pages);
    s->n--;
}

static struct store_page *last_page(const struct store *s)
{
    return s->n > s->head ? s->pages[s->n - 1] : NULL;
}

/* Returns the index of the last page whose first id is at most `id`, or s->head. The store must have pages. First
 * tries the last used page and the next page. */
static size_t page_index(struct store *s, uint64_t id)
{
    for (size_t i = s->hint; i >= s->head && i < s->n && i <= s->hint + 1 && s->pages[i]->first_id <= id; i++)
        if (i + 1 == s->n || s->pages[i + 1]->first_id > id)
            return s->hint = i;
    size_t low = s->head, high = s->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->pages[middle]->first_id <= id)
            low = middle;
        else
            high = middle;
    }
    return s->hint = low;
}

/* Returns NULL if no page covers the id. */
static struct store_page *page_of(struct store *s, uint64_t id)
{
    if (s->n == s->head)
        return NULL;
    struct store_page *p = s->pages[page_index(s, id)];
    return id >= p->first_id && id - p->first_id < p->span ? p : NULL;
}

struct message *store_add(struct store *s, struct bytes text, unsigned state)
{
    assert(state != STORE_GONE && text.len > 0 && text.len <= UINT32_MAX);
    struct store_page *p = last_page(s);
    if (p && p->held == 0 && p->form == PAGE_BLOCK) {
        uncharge(s, p);
        page_reset(p, s->next_id);
        charge(s, p);
    }
    bool fits = p && p->form == PAGE_BLOCK && p->first_id + p->span == s->next_id &&
                p->used + text.len + (p->span + 1) * sizeof(struct message) <= p->size;
    if (!fits) {
        if (p && p->held == 0)
            pages_remove(s, s->n - 1);
        p = page_new(text.len, s->next_id, s->n - s->head >= DEEP_PAGES);
        pages_append(s, p);
    }
    struct message *m = block_record(p, p->span++);
    *m = (struct message){.ptr = p->memory + p->used, .len = (uint32_t)text.len, .state = state & 0xff};
    memcpy(p->memory + p->used, text.ptr, text.len);
    p->used += text.len;
    p->bytes += text.len;
    p->held++;
    p->ready += state == STORE_READY;
    p->pending += state == STORE_PENDING;
    s->memory->all += text.len + sizeof *m;
    s->next_id++;
    return m;
}

void store_skip_to(struct store *s, uint64_t id)
{
    assert(id >= s->next_id);
    s->next_id = id;
}

struct message *store_find(struct store *s, uint64_t id)
{
    struct store_page *p = page_of(s, id);
    if (!p)
        return NULL;
    if (p->form != PAGE_BARE)
        return page_find(p, id);
    uncharge(s, p);
    struct message *m = page_find(p, id);
    charge(s, p);
    return m;
}

static bool next_id(struct store *s, uint64_t from, bool ready, uint64_t *id)
{
    if (s->n == s->head)
        return false;
    for (size_t i = page_index(s, from); i < s->n; i++) {
        struct store_page *p = s->pages[i];
        if ((ready ? p->ready : p->held - p->ready) > 0 && page_next(p, from, ready, id)) {
            s->hint = i;
            return true;
        }
    }
    return false;
}

bool store_next_ready(struct store *s, uint64_t from, uint64_t *id)
{
    return next_id(s, from, true, id);
}

bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m)
{
    if (!next_id(s, from, false, id))
        return false;
    *m = store_find(s, *id);
    return true;
}

void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state)
{
    struct store_page *p = page_of(s, id);
    p->ready += (state == STORE_READY) - (m->state == STORE_READY);
    p->pending += (state == STORE_PENDING) - (m->state == STORE_PENDING);
    m->state = state & 0xff;
}

static void compact(struct store *s, size_t i)
{
    struct store_page *p = s->pages[i];
    uint64_t need = sizeof *p + p->bytes + p->held * sizeof *p->slots;
    bool is_sparse = p->held > 0 && p->pending == 0 && p->memory && !p->loading &&
                     page_cost(p) > SPARSE * need && !page_is_partial(p);
    if (i == s->n - 1 || !is_sparse)
        return;
    uncharge(s, p);
    char *memory = mem_alloc(p->bytes);
    size_t used = 0;
    make_slots(p);
    for (size_t k = 0; k < p->n_slots; k++) {
        struct message *m = &p->slots[k].m;
        m->ptr = memcpy(memory + used, m->ptr, m->len);
        used += m->len;
    }
    free(p->memory);
    p->memory = memory;
    p->size = p->used = used;
    charge(s, p);
}

/* Messages that are removed in order empty the first page, which is then freed without copying. Other pages are checked
 * for compaction only when the number of their messages falls to a power of two, so that most drops are cheap. */
void store_drop(struct store *s, uint64_t id)
{
    assert(page_of(s, id) && page_peek(page_of(s, id), id).state != STORE_GONE);
    size_t i = page_index(s, id);
    struct store_page *p = s->pages[i];
    const struct message was = page_peek(p, id);
    p->held--;
    s->lowest_known = s->lowest_known && p->held > 0;
    p->bytes -= was.len;
    p->ready -= was.state == STORE_READY;
    p->pending -= was.state == STORE_PENDING;
    if (p->form == PAGE_BARE) {
        p->lens[id - p->first_id] = 0;
    } else {
        struct message *m = record_of(p, id);
        m->state = STORE_GONE;
        m->owner = NULL;
    }
    if (i > s->head && (p->held & (p->held - 1)) == 0) {
        compact(s, i - 1);
        compact(s, i);
    }
    if (p->held == 0 && i != s->n - 1)
        pages_remove(s, i);
}

bool store_next_held(struct store *s, uint64_t from, uint64_t *id)
{
    for (size_t i = s->n > s->head ? page_index(s, from) : s->n; i < s->n; i++) {
        struct store_page *p = s->pages[i];
        uint64_t other;
        bool found = p->ready > 0 && page_next(p, from, true, id);
        if (p->held > p->ready && page_next(p, from, false, &other) && (!found || other < *id)) {
            *id = other;
            found = true;
        }
        if (found) {
            s->hint = i;
            return true;
        }
    }
    return false;
}

struct message store_peek(struct store *s, uint64_t id)
{
    return page_peek(page_of(s, id), id);
}

void store_undo(struct store *s, uint64_t floor)
{
    struct store_page *p;
    while ((p = last_page(s)) && s->next_id > floor && p->first_id + p->span == s->next_id) {
        const struct message *m = p->form == PAGE_BLOCK && p->span ? block_record(p, p->span - 1) : NULL;
        if (!m || m->state != STORE_GONE)
            return;
        uncharge(s, p);
        p->used = (size_t)(m->ptr - p->memory);
        p->span--;
        charge(s, p);
        s->next_id--;
        if (p->span == 0)
            pages_remove(s, s->n - 1);
    }
}

uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset)
{
    uint64_t bytes = 0;
    for (uint64_t id = first, end; id < first + n; id = end) {
        struct store_page *p = page_of(s, id);
        assert(p && p->form != PAGE_BARE);
        end = p->first_id + p->span < first + n ? p->first_id + p->span : first + n;
        p->ready += end - id;
        p->pending -= end - id;
        for (; id < end; id++) {
            struct message *m = page_find(p, id);
            assert(m && m->state == STORE_PENDING);
            m->state = STORE_READY;
            bytes += m->len;
        }
        if (p->offset == STORE_NO_OFFSET)
            p->offset = offset;
        s->lowest = offset < s->lowest ? offset : s->lowest;
    }
    return bytes;
}

/* Stores the result, because after an erasure many pages are rewritten, and later calls must not visit all of these
 * pages. */
uint64_t store_lowest_offset(struct store *s)
{
    uint64_t lowest = STORE_NO_OFFSET;
    if (s->lowest_known)
        return s->lowest;
    for (size_t i = s->head; i < s->n; i++) {
        const struct store_page *p = s->pages[i];
        if (p->held == 0)
            continue;
        if (p->offset < lowest)
            lowest = p->offset;
        if (!p->kept)
            break;
    }
    s->lowest = lowest;
    s->lowest_known = true;
    return lowest;
}

/* Returns true if a search for pages below `offset` can end at this page. The offsets of pages that were not rewritten
 * ascend. */
static bool is_beyond(const struct store_page *p, uint64_t offset)
{
    return p->held > 0 && !p->kept && p->offset >= offset;
}

uint64_t store_bytes_below(const struct store *s, uint64_t offset)
{
    uint64_t bytes = 0;
    for (size_t i = s->head; i < s->n && !is_beyond(s->pages[i], offset); i++)
        bytes += s->pages[i]->offset < offset ? s->pages[i]->bytes : 0;
    return bytes;
}

static struct store_span span_of(const struct store_page *p)
{
    return (struct store_span){p->first_id, p->first_id + p->span - 1, p->offset, p->kept};
}

bool store_next_below(struct store *s, uint64_t offset, uint64_t from, struct store_span *out)
{
    size_t first = s->n > s->head ? page_index(s, from) : s->n;
    for (size_t i = first; i < s->n && !is_beyond(s->pages[i], offset); i++) {
        const struct store_page *p = s->pages[i];
        if (p->held && p->pending == 0 && p->offset < offset && p->first_id >= from) {
            *out = span_of(p);
            return true;
        }
    }
    return false;
}

void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset)
{
    struct store_page *p = page_of(s, page->first_id);
    if (!p || p->first_id != page->first_id)
        return;
    p->offset = offset;
    p->kept = true;
    s->changes++;
    s->lowest_known = false;
}

/* If no page covers the id, adds the message to the preceding page of the same record, or to a new page. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset)
{
    struct store_page *p = page_of(s, id);
    assert(id < s->next_id && (!p || page_peek(p, id).state == STORE_GONE));
    if (!p) {
        size_t at = s->n > s->head ? page_index(s, id) : s->head;
        struct store_page *before = at < s->n && s->pages[at]->first_id <= id ? s->pages[at] : NULL;
        if (before && before->kept && before->offset == offset && before->form == PAGE_SLOTS) {
            p = before;
        } else {
            size_t after = (before ? at + 1 : at) - s->head;
            p = mem_zalloc(sizeof *p);
            *p = (struct store_page){.form = PAGE_SLOTS, .first_id = id, .offset = offset};
            pages_append(s, p);
            at = s->head + after;
            memmove(s->pages + at + 1, s->pages + at, (s->n - 1 - at) * sizeof *s->pages);
            s->pages[at] = p;
        }
    }
    uncharge(s, p);
    if (!page_is_spilled(p))
        page_spill(p);
    if (p->form == PAGE_BARE)
        make_slots(p);
    size_t slot = slot_index(p, id);
    p->slots = mem_realloc(p->slots, (p->n_slots + 1) * sizeof *p->slots);
    memmove(p->slots + slot + 1, p->slots + slot, (p->n_slots - slot) * sizeof *p->slots);
    p->slots[slot] = (struct page_slot){id, {.len = (uint32_t)len, .state = STORE_READY}};
    p->n_slots++;
    p->held++;
    p->ready++;
    p->bytes += len;
    if (id - p->first_id >= p->span)
        p->span = (size_t)(id - p->first_id + 1);
    p->kept = true;
    p->offset = p->offset < offset ? p->offset : offset;
    s->lowest_known = false;
    charge(s, p);
}

static bool overlaps(const struct store_page *p, uint64_t first, uint64_t last)
{
    return p->first_id <= last && p->first_id + p->span > first;
}

uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes)
{
    uint64_t freed = 0;
    for (size_t i = s->n; i > s->head + 1 && freed < bytes; i--) {
        struct store_page *p = s->pages[i - 2];
        if (page_is_spilled(p) || !p->held || p->pending || overlaps(p, keep_from, keep_to) ||
            overlaps(p, s->loaded_first, s->loaded_last))
            continue;
        uint64_t before = page_cost(p);
        uncharge(s, p);
        page_spill(p);
        charge(s, p);
        freed += before - page_cost(p);
    }
    return freed;
}

bool store_is_spilled(struct store *s, uint64_t id)
{
    const struct store_page *p = s->spilled ? page_of(s, id) : NULL;
    if (!p || p->form == PAGE_BLOCK)
        return false;
    struct message m = page_peek(p, id);
    return m.state != STORE_GONE && !m.ptr;
}

bool store_span_of(struct store *s, uint64_t id, struct store_span *out)
{
    const struct store_page *p = store_is_spilled(s, id) ? page_of(s, id) : NULL;
    if (!p || !page_is_spilled(p) || p->loading)
        return false;
    *out = span_of(p);
    return true;
}

/* Extends the span by the following pages that the same read of the journal can load. */
static void extend_span(const struct store *s, size_t i, uint64_t chunk, struct store_span *out)
{
    uint64_t bytes = s->pages[i]->bytes;
    *out = span_of(s->pages[i]);
    while (!out->kept && ++i < s->n && bytes < chunk) {
        const struct store_page *p = s->pages[i];
        if (!page_is_spilled(p) || p->loading || p->kept)
            return;
        bytes += p->bytes;
        out->last_id = p->first_id + p->span - 1;
    }
}

bool store_in_memory(struct store *s, uint64_t from, bool follows, size_t items, uint64_t bytes,
    uint64_t chunk, struct store_span *out, uint64_t *through)
{
    uint64_t n = 0, sum = 0;
    bool there = true;
    *through = from;
    *out = (struct store_span){0};
    size_t first = s->n > s->head ? page_index(s, from) : s->n;
    for (size_t i = first; i < s->n && n < items && sum < bytes; i++) {
        const struct store_page *p = s->pages[i];
        if (p->ready == 0)
            continue;
        there = there && !page_is_spilled(p);
        if (page_is_spilled(p) && !p->loading) {
            extend_span(s, i, chunk, out);
            return false;
        }
        bool counts = i > first || !follows;
        n += counts ? p->ready : 0;
        sum += counts ? p->bytes : 0;
        *through = p->first_id + p->span - 1;
    }
    return there;
}

void store_load_begin(struct store *s, const struct store_span *span)
{
    for (size_t i = page_index(s, span->first_id); i < s->n && s->pages[i]->first_id <= span->last_id; i++) {
        struct store_page *p = s->pages[i];
        assert(page_is_spilled(p) && !p->loading);
        uncharge(s, p);
        if (p->form == PAGE_BARE)
            make_slots(p);
        p->size = p->bytes;
        p->memory = mem_alloc(p->size ? p->size : 1);
        p->used = 0;
        p->loading = true;
        charge(s, p);
    }
}

bool store_load(struct store *s, uint64_t id, struct bytes text)
{
    struct store_page *p = page_of(s, id);
    struct message *m = p && p->form == PAGE_SLOTS && p->loading ? record_of(p, id) : NULL;
    if (!m || m->state == STORE_GONE || m->ptr)
        return true;
    if (m->len != text.len || p->used + text.len > p->size)
        return false;
    memcpy(p->memory + p->used, text.ptr, text.len);
    m->ptr = p->memory + p->used;
    p->used += text.len;
    return true;
}

bool store_load_misses(struct store *s, const struct store_span *span)
{
    const struct store_page *p = page_of(s, span->first_id);
    return p && page_is_partial(p);
}

bool store_load_end(struct store *s, const struct store_span *span)
{
    bool whole = true;
    s->loaded_first = span->first_id;
    s->loaded_last = span->last_id;
    if (s->n == s->head)
        return true;
    for (size_t i = page_index(s, span->first_id); i < s->n && s->pages[i]->first_id <= span->last_id; i++) {
        struct store_page *p = s->pages[i];
        if (!p->loading)
            continue;
        uncharge(s, p);
        p->loading = false;
        if (page_is_partial(p)) {
            page_spill(p);
            whole = false;
        }
        charge(s, p);
    }
    return whole;
}
