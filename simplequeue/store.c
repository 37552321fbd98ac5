#include "store.h"

#include <assert.h>
#include <stdlib.h>

struct store_page {
    uint64_t first_id;
    uint64_t offset; /* of the first committed message; see store_set_offset */
    size_t size;     /* of `memory` */
    size_t used;     /* bytes from the front */
    size_t n, held;  /* records, and how many of them are of messages held */
    char memory[];
};

static struct message *page_record(const struct store_page *p, size_t i)
{
    char *end = (char *)(uintptr_t)p->memory + p->size;
    return (struct message *)(void *)end - (i + 1);
}

static bool page_fits(const struct store_page *p, size_t len)
{
    return p->used + len + (p->n + 1) * sizeof(struct message) <= p->size;
}

static void page_reset(struct store_page *p, uint64_t first_id)
{
    p->first_id = first_id;
    p->offset = STORE_NO_OFFSET;
    p->used = p->n = p->held = 0;
}

static struct store_page *page_new(size_t len, uint64_t first_id)
{
    size_t align = sizeof(struct message);
    size_t size = STORE_PAGE_BYTES - sizeof(struct store_page);
    size_t need = len + sizeof(struct message);
    size = need > size ? need : size;
    size = (size + align - 1) / align * align; /* so that records at the end are aligned */
    struct store_page *p = mem_alloc(sizeof *p + size);
    p->size = size;
    page_reset(p, first_id);
    return p;
}

void store_init(struct store *s, uint64_t next_id)
{
    *s = (struct store){.next_id = next_id};
}

void store_free(struct store *s)
{
    for (size_t i = s->head; i < s->n; i++)
        free(s->pages[i]);
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
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 8;
        s->pages = mem_realloc(s->pages, s->cap * sizeof *s->pages);
    }
    s->pages[s->n++] = p;
}

static void pages_remove(struct store *s, size_t i)
{
    free(s->pages[i]);
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

/* The page that the next message goes to: the last one while it has room and its ids go on. */
static struct store_page *page_for(struct store *s, size_t len)
{
    struct store_page *p = last_page(s);
    if (p && p->held == 0)
        page_reset(p, s->next_id);
    if (p && p->first_id + p->n == s->next_id && page_fits(p, len))
        return p;
    if (p && p->held == 0)
        pages_remove(s, s->n - 1);
    p = page_new(len, s->next_id);
    pages_append(s, p);
    return p;
}

struct message *store_add(struct store *s, struct bytes text, unsigned state)
{
    assert(state != 0 && text.len <= UINT32_MAX);
    struct store_page *p = page_for(s, text.len);
    struct message *m = page_record(p, p->n++);
    *m = (struct message){.ptr = p->memory + p->used, .len = (uint32_t)text.len};
    m->state = state & 0xff;
    memcpy(p->memory + p->used, text.ptr, text.len);
    p->used += text.len;
    p->held++;
    s->next_id++;
    return m;
}

void store_skip_to(struct store *s, uint64_t id)
{
    assert(id >= s->next_id);
    s->next_id = id;
}

/* The index of the last page whose first id is at or below `id`, or s->head. */
static size_t page_index(const struct store *s, uint64_t id)
{
    size_t low = s->head, high = s->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (s->pages[middle]->first_id <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static struct message *page_find(const struct store_page *p, uint64_t id)
{
    if (id < p->first_id || id - p->first_id >= p->n)
        return NULL;
    struct message *m = page_record(p, id - p->first_id);
    return m->state ? m : NULL;
}

struct message *store_find(const struct store *s, uint64_t id)
{
    return s->n > s->head ? page_find(s->pages[page_index(s, id)], id) : NULL;
}

bool store_next(const struct store *s, uint64_t from, uint64_t *id, struct message **m)
{
    if (s->n == s->head)
        return false;
    for (size_t i = page_index(s, from); i < s->n; i++) {
        struct store_page *p = s->pages[i];
        uint64_t at = from > p->first_id ? from - p->first_id : 0;
        for (; p->held && at < p->n; at++) {
            *m = page_record(p, at);
            *id = p->first_id + at;
            if ((*m)->state)
                return true;
        }
    }
    return false;
}

void store_drop(struct store *s, uint64_t id)
{
    size_t i = page_index(s, id);
    struct store_page *p = s->pages[i];
    struct message *m = page_find(p, id);
    assert(m);
    m->state = 0;
    m->owner = NULL;
    if (--p->held == 0 && i != s->n - 1)
        pages_remove(s, i);
}

void store_undo(struct store *s, uint64_t floor)
{
    struct store_page *p;
    while ((p = last_page(s)) && s->next_id > floor && p->n && p->first_id + p->n == s->next_id) {
        struct message *m = page_record(p, p->n - 1);
        if (m->state)
            return;
        p->used = (size_t)(m->ptr - p->memory);
        p->n--;
        s->next_id--;
        if (p->n == 0)
            pages_remove(s, s->n - 1);
    }
}

void store_set_offset(struct store *s, uint64_t id, uint64_t offset)
{
    struct store_page *p = s->pages[page_index(s, id)];
    if (p->offset == STORE_NO_OFFSET)
        p->offset = offset;
}

uint64_t store_lowest_offset(const struct store *s)
{
    for (size_t i = s->head; i < s->n; i++)
        if (s->pages[i]->held)
            return s->pages[i]->offset;
    return STORE_NO_OFFSET;
}
