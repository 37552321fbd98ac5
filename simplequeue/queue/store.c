#include "simplequeue/queue/store_page.h"

#include <assert.h>
#include <stdlib.h>

#define DEEP 16 /* pages: a deeper store will probably fill the next one, too */

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory)
{
    *s = (struct store){.next_id = next_id, .memory = memory};
}

/* Around every change of a page. */
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

static void pages_make_room(struct store *s)
{
    if (s->n == s->cap && s->head >= s->cap / 2 && s->head > 0) {
        memmove(s->pages, s->pages + s->head, (s->n - s->head) * sizeof *s->pages);
        s->n -= s->head;
        s->head = 0;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 8;
        s->pages = mem_realloc(s->pages, s->cap * sizeof *s->pages);
    }
}

static void pages_append(struct store *s, struct store_page *p)
{
    pages_make_room(s);
    s->pages[s->n++] = p;
    charge(s, p);
}

static void pages_remove(struct store *s, size_t i)
{
    uncharge(s, s->pages[i]);
    page_free(s->pages[i]);
    s->changes++;
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

/* The page for the next message: the last one, if the message fits and its id follows. */
static struct store_page *page_for(struct store *s, size_t len)
{
    struct store_page *p = last_page(s);
    if (p && p->held == 0 && p->form == PAGE_BLOCK) {
        uncharge(s, p);
        page_reset(p, s->next_id);
        charge(s, p);
    }
    if (p && p->first_id + p->span == s->next_id && page_fits(p, len))
        return p;
    if (p && p->held == 0)
        pages_remove(s, s->n - 1);
    p = page_new(len, s->next_id, s->n - s->head >= DEEP);
    pages_append(s, p);
    return p;
}

/* The index of the last page whose first id is at or below `id`, or s->head. There must be pages. Mostly it is the page used last, or the
 * next. */
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

/* NULL if no page has the id. */
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
    struct store_page *p = page_for(s, text.len);
    struct message *m = page_add(p, text);
    m->state = state & 0xff;
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
    if (i == s->n - 1 || !page_is_sparse(p))
        return;
    uncharge(s, p);
    page_compact(p);
    charge(s, p);
}

/* Messages removed in order empty the first page, which is freed without a copy. Sparse pages behind it are compacted as they empty: at
 * each power of two of messages left, so that a drop costs little. */
static void drop_from(struct store *s, size_t i, uint64_t id)
{
    struct store_page *p = s->pages[i];
    page_drop(p, id);
    if (i > s->head && (p->held & (p->held - 1)) == 0) {
        compact(s, i - 1);
        compact(s, i);
    }
    if (p->held == 0 && i != s->n - 1)
        pages_remove(s, i);
}

void store_drop(struct store *s, uint64_t id)
{
    assert(page_of(s, id) && page_peek(page_of(s, id), id).state != STORE_GONE);
    drop_from(s, page_index(s, id), id);
}

static bool first_held(struct store_page *p, uint64_t from, uint64_t *id)
{
    uint64_t other;
    bool found = p->ready > 0 && page_next(p, from, true, id);
    if (p->held == p->ready || !page_next(p, from, false, &other) || (found && *id < other))
        return found;
    *id = other;
    return true;
}

bool store_next_held(struct store *s, uint64_t from, uint64_t *id)
{
    for (size_t i = s->n > s->head ? page_index(s, from) : s->n; i < s->n; i++)
        if (first_held(s->pages[i], from, id)) {
            s->hint = i;
            return true;
        }
    return false;
}

void store_drop_range(struct store *s, uint64_t first, uint64_t last, store_drop_fn *fn, void *arg)
{
    for (uint64_t id = first; store_next_held(s, id, &id) && id <= last; id++) {
        struct message m = page_peek(page_of(s, id), id);
        fn(id, &m, arg);
        drop_from(s, page_index(s, id), id);
    }
}

void store_undo(struct store *s, uint64_t floor)
{
    struct store_page *p;
    while ((p = last_page(s)) && s->next_id > floor && p->first_id + p->span == s->next_id) {
        uncharge(s, p);
        bool undone = page_undo(p);
        charge(s, p);
        if (!undone)
            return;
        s->next_id--;
        if (p->span == 0)
            pages_remove(s, s->n - 1);
    }
}

static uint64_t commit_in_page(struct store_page *p, uint64_t id, uint64_t end)
{
    uint64_t bytes = 0;
    p->ready += end - id;
    p->pending -= end - id;
    for (; id < end; id++) {
        struct message *m = page_find(p, id);
        assert(m && m->state == STORE_PENDING);
        m->state = STORE_READY;
        bytes += m->len;
    }
    return bytes;
}

uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset)
{
    uint64_t bytes = 0;
    for (uint64_t id = first, end; id < first + n; id = end) {
        struct store_page *p = page_of(s, id);
        assert(p && p->form != PAGE_BARE);
        end = p->first_id + p->span < first + n ? p->first_id + p->span : first + n;
        bytes += commit_in_page(p, id, end);
        if (p->offset == STORE_NO_OFFSET)
            p->offset = offset;
    }
    return bytes;
}

uint64_t store_lowest_offset(const struct store *s)
{
    uint64_t lowest = STORE_NO_OFFSET;
    for (size_t i = s->head; i < s->n; i++) {
        const struct store_page *p = s->pages[i];
        if (p->held == 0)
            continue;
        if (p->offset < lowest)
            lowest = p->offset;
        if (!p->kept)
            break;
    }
    return lowest;
}

/* Pages below an offset are rewritten ones, anywhere, and the first of the others. */
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

bool store_next_below(const struct store *s, uint64_t offset, uint64_t from, struct store_span *out)
{
    for (size_t i = s->head; i < s->n && !is_beyond(s->pages[i], offset); i++) {
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
}

static void pages_insert(struct store *s, size_t at, struct store_page *p)
{
    size_t after = at - s->head;
    pages_append(s, p);
    at = s->head + after;
    memmove(s->pages + at + 1, s->pages + at, (s->n - 1 - at) * sizeof *s->pages);
    s->pages[at] = p;
}

/* The page for an id that no page has: the one before it if it is of the same record, else a new one. */
static struct store_page *page_beside(struct store *s, uint64_t id, uint64_t offset)
{
    size_t at = s->n > s->head ? page_index(s, id) : s->head;
    struct store_page *before = at < s->n && s->pages[at]->first_id <= id ? s->pages[at] : NULL;
    if (before && before->kept && before->offset == offset && before->form == PAGE_SLOTS)
        return before;
    struct store_page *p = page_new_slots(id, offset);
    pages_insert(s, before ? at + 1 : at, p);
    return p;
}

void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset)
{
    struct store_page *p = page_of(s, id);
    assert(id < s->next_id && (!p || page_peek(p, id).state == STORE_GONE));
    if (!p)
        p = page_beside(s, id, offset);
    uncharge(s, p);
    if (!page_is_spilled(p))
        page_spill(p);
    p->kept = true;
    p->offset = p->offset < offset ? p->offset : offset;
    page_insert(p, id, len);
    charge(s, p);
}

static bool overlaps(const struct store_page *p, uint64_t first, uint64_t last)
{
    return p->first_id <= last && p->first_id + p->span > first;
}

static bool can_spill(const struct store *s, const struct store_page *p, uint64_t keep_from, uint64_t keep_to)
{
    return !overlaps(p, keep_from, keep_to) && !overlaps(p, s->loaded_first, s->loaded_last) &&
           !page_is_spilled(p) && p->held && p->pending == 0;
}

uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes)
{
    uint64_t freed = 0;
    for (size_t i = s->n; i > s->head + 1 && freed < bytes; i--) {
        struct store_page *p = s->pages[i - 2];
        if (!can_spill(s, p, keep_from, keep_to))
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

/* Adds the pages that the same read through the journal passes. */
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

bool store_in_memory(struct store *s, uint64_t from, size_t items, uint64_t bytes, uint64_t chunk,
    struct store_span *out, uint64_t *through)
{
    uint64_t n = 0, sum = 0;
    bool there = true;
    *through = from;
    *out = (struct store_span){0};
    for (size_t i = s->n > s->head ? page_index(s, from) : s->n; i < s->n && n < items && sum < bytes; i++) {
        const struct store_page *p = s->pages[i];
        if (p->ready == 0)
            continue;
        there = there && !page_is_spilled(p);
        if (page_is_spilled(p) && !p->loading) {
            extend_span(s, i, chunk, out);
            return false;
        }
        n += p->ready;
        sum += p->bytes;
        *through = p->first_id + p->span - 1;
    }
    return there;
}

void store_load_begin(struct store *s, const struct store_span *span)
{
    for (size_t i = page_index(s, span->first_id); i < s->n && s->pages[i]->first_id <= span->last_id; i++) {
        uncharge(s, s->pages[i]);
        page_load_begin(s->pages[i]);
        charge(s, s->pages[i]);
    }
}

bool store_load(struct store *s, uint64_t id, struct bytes text)
{
    struct store_page *p = page_of(s, id);
    return !p || p->form != PAGE_SLOTS || page_load(p, id, text);
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
        whole = page_load_end(p) && whole;
        charge(s, p);
    }
    return whole;
}
