#include "pubsub/stream/block_cache.h"

#include "base/lower_bound.h"
#include "pubsub/stream/line_index.h"

#include <assert.h>
#include <stdlib.h>

enum block_kind { BLOCK_SMALL, BLOCK_LARGE, BLOCK_SPANS, N_KINDS };
static const size_t blocks_max[N_KINDS] = {
    BLOCK_CACHE_SMALL_MAX, BLOCK_CACHE_LARGE_MAX, BLOCK_CACHE_SPANS_MAX};

struct block {
    enum block_kind kind;
    uint64_t offset, end;
    uint64_t use;    /* block_cache.uses at the last use */
    usec_t used;     /* time of the last use */
    usec_t verified; /* approximate time at which the bytes were verified */
    struct window *window;
    struct journal_file *file;
    uint64_t stamp;
    struct journal_span *spans;
    size_t n_spans;
};

/* Blocks in the order of their offsets, which all differ. */
struct block_list {
    struct block **at;
    size_t n, cap;
};

struct block_waiters {
    struct block_wait *first, *last;
};

/* A journal reader that stays open between reads. */
struct cache_reader {
    struct block_cache *cache;
    struct journal_reader *reader; /* NULL: free */
    uint64_t at;
    size_t reach; /* maximum bytes of the read in progress; 0: idle */
    bool large;   /* true: the read may return a large window or spans */
    uint64_t use;
    usec_t used;
    struct block_waiters waiters;
};

struct block_cache {
    struct journal *journal;
    struct block_list windows, spans;
    size_t count[N_KINDS];
    struct cache_reader readers[BLOCK_CACHE_READERS_MAX];
    struct block_waiters queue; /* subscribers that wait for an idle reader */
    uint64_t asked;             /* the highest offset that a subscriber has requested */
    uint64_t expected;          /* offset at which a subscriber waits for the next commit */
    uint64_t uses;
    usec_t now;
};

static void wait_in(struct block_waiters *list, struct block_wait *wait)
{
    assert(!wait->list);
    wait->list = list;
    wait->next = NULL;
    wait->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = wait;
    list->last = wait;
}

void block_wait_cancel(struct block_wait *wait)
{
    struct block_waiters *list = wait->list;
    if (!list)
        return;
    *(wait->previous ? &wait->previous->next : &list->first) = wait->next;
    *(wait->next ? &wait->next->previous : &list->last) = wait->previous;
    wait->list = NULL;
}

static void call_first(struct block_waiters *list, enum journal_result r, const struct journal_edges *edges)
{
    struct block_wait *wait = list->first;
    block_wait_cancel(wait);
    wait->done(wait, r, edges);
}

struct block_cache *block_cache_new(struct journal *j)
{
    struct block_cache *c = mem_zalloc(sizeof *c);
    c->journal = j;
    c->expected = UINT64_MAX;
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++)
        c->readers[i].cache = c;
    return c;
}

static struct block_list *list_of(struct block_cache *c, enum block_kind kind)
{
    return kind == BLOCK_SPANS ? &c->spans : &c->windows;
}

static void free_block(struct block *b)
{
    if (b->window)
        window_release(b->window);
    if (b->file)
        journal_file_release(b->file);
    free(b->spans);
    free(b);
}

static void drop(struct block_cache *c, struct block_list *list, size_t i)
{
    struct block *b = list->at[i];
    c->count[b->kind]--;
    list->n--;
    memmove(list->at + i, list->at + i + 1, (list->n - i) * sizeof *list->at);
    free_block(b);
}

/* Returns the number of blocks whose offset is at most `offset`. */
static size_t count_up_to(const struct block_list *list, uint64_t offset)
{
    if (list->n > 0 && list->at[list->n - 1]->offset <= offset)
        return list->n; /* most requests are for the newest block */
    return LOWER_BOUND(i, 0, list->n, list->at[i]->offset <= offset);
}

static void touch(struct block_cache *c, struct block *b)
{
    b->use = ++c->uses;
    b->used = c->now;
}

/* If two blocks begin at the same offset, the list keeps only the longer block. */
static void insert(struct block_cache *c, struct block *b)
{
    struct block_list *list = list_of(c, b->kind);
    size_t i = count_up_to(list, b->offset);
    if (i > 0 && list->at[i - 1]->offset == b->offset) {
        if (list->at[i - 1]->end >= b->end) {
            free_block(b);
            return;
        }
        drop(c, list, i - 1);
    }
    if (c->count[b->kind] >= blocks_max[b->kind]) {
        size_t least = SIZE_MAX;
        for (size_t k = 0; k < list->n; k++)
            if (list->at[k]->kind == b->kind &&
                (least == SIZE_MAX || list->at[k]->use < list->at[least]->use))
                least = k;
        drop(c, list, least);
    }
    ARRAY_ROOM(list->at, list->cap, list->n + 1);
    i = count_up_to(list, b->offset);
    memmove(list->at + i + 1, list->at + i, (list->n - i) * sizeof *list->at);
    list->at[i] = b;
    list->n++;
    c->count[b->kind]++;
    touch(c, b);
}

static struct block *block_new(const struct block_cache *c, enum block_kind kind, uint64_t offset)
{
    struct block *b = mem_zalloc(sizeof *b);
    b->kind = kind;
    b->offset = b->end = offset;
    b->verified = c->now;
    return b;
}

static struct block *find(const struct block_list *list, uint64_t offset)
{
    size_t n = count_up_to(list, offset);
    return n && offset < list->at[n - 1]->end ? list->at[n - 1] : NULL;
}

bool block_cache_get(struct block_cache *c, const struct block_request *want, struct block_piece *piece)
{
    assert(want->offset < want->end);
    if (want->offset > c->asked)
        c->asked = want->offset;
    struct block *b = find(&c->windows, want->offset);
    if (b) {
        size_t skip = (size_t)(want->offset - b->offset);
        uint64_t len = (want->end < b->end ? want->end : b->end) - want->offset;
        *piece = (struct block_piece){
            .window = b->window, .bytes = bytes_of(window_bytes(b->window).ptr + skip, (size_t)len)};
        touch(c, b);
        return true;
    }
    b = want->large ? find(&c->spans, want->offset) : NULL;
    if (!b)
        return false;
    if (c->now - b->verified > BLOCK_CACHE_TRUST || !journal_file_is_unchanged(b->file, b->stamp)) {
        drop(c, &c->spans, count_up_to(&c->spans, want->offset) - 1);
        return false;
    }
    touch(c, b);
    size_t first = 0, high = b->n_spans, n = 0;
    while (first < high) {
        size_t middle = first + (high - first) / 2;
        if (b->spans[middle].offset < want->offset)
            first = middle + 1;
        else
            high = middle;
    }
    if (first == b->n_spans || b->spans[first].offset != want->offset)
        return false;
    uint64_t bytes = 0;
    while (n < BLOCK_PIECE_SPANS_MAX && first + n < b->n_spans && b->spans[first + n].offset < want->end &&
           bytes < BLOCK_PIECE_BYTES)
        bytes += b->spans[first + n++].len;
    *piece = (struct block_piece){.file = b->file, .spans = b->spans + first, .n_spans = n};
    return true;
}

static void close_reader(struct cache_reader *r)
{
    journal_reader_close(&r->reader);
    r->reach = 0;
}

/* Calls the waiters of a read that began at `at`. First calls the waiters that need an idle reader, because the
 * waiters of the read will find their bytes in the cache. */
static void call_waiters(
    struct cache_reader *r, uint64_t at, enum journal_result result, const struct journal_edges *edges)
{
    struct block_cache *c = r->cache;
    struct block_waiters waiters = r->waiters;
    r->waiters = (struct block_waiters){0};
    for (struct block_wait *wait = waiters.first; wait; wait = wait->next)
        wait->list = &waiters;
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++)
        while (c->queue.first && !c->readers[i].reach)
            call_first(&c->queue, JOURNAL_OK, NULL);
    while (waiters.first)
        call_first(&waiters, waiters.first->offset == at ? result : JOURNAL_OK, edges);
}

/* Makes a block of the result of a read. A small window is a copy, because a slow client could pin the reader's large
 * buffer for a long time. */
static void block_read(const struct journal_window *w, void *arg)
{
    struct cache_reader *r = arg;
    struct block_cache *c = r->cache;
    uint64_t at = r->at;
    enum journal_result result = w->result == JOURNAL_END ? JOURNAL_OK : w->result;
    struct journal_edges edges = w->edges;
    r->reach = 0;
    if (w->result == JOURNAL_OK) {
        enum block_kind kind = w->n_spans                   ? BLOCK_SPANS
                               : w->data.len > WINDOW_BYTES ? BLOCK_LARGE
                                                            : BLOCK_SMALL;
        struct block *b = block_new(c, kind, w->offset);
        if (kind == BLOCK_SPANS) {
            b->spans = mem_alloc(w->n_spans * sizeof *w->spans);
            memcpy(b->spans, w->spans, w->n_spans * sizeof *w->spans);
            b->n_spans = w->n_spans;
            b->file = journal_file_hold(w->file);
            b->stamp = w->stamp;
            b->end = w->spans[w->n_spans - 1].offset + w->spans[w->n_spans - 1].len;
        } else {
            uint64_t lines = bytes_count_lines(w->data);
            b->end += w->data.len;
            b->window = kind == BLOCK_LARGE ? window_of(w->memory, lines) : window_new();
            if (kind == BLOCK_SMALL)
                window_add(b->window, w->data, lines);
        }
        r->at = b->end;
        insert(c, b);
    } else if (w->result != JOURNAL_END) {
        close_reader(r);
    }
    if (r->large)
        window_return_memory(w->memory);
    call_waiters(r, at, result, &edges);
}

enum journal_result block_cache_read(struct block_cache *c, const struct block_request *want,
    struct block_wait *wait, struct journal_edges *edges)
{
    /* Prefer an idle reader at the wanted offset, then a reader that is not open, then the idle reader that was used
     * least recently. */
    struct cache_reader *r = NULL;
    wait->offset = want->offset;
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++) {
        struct cache_reader *o = &c->readers[i];
        if (o->at <= want->offset && want->offset - o->at < o->reach && (want->large || !o->large)) {
            wait_in(&o->waiters, wait);
            return JOURNAL_OK;
        }
        if (o->reach || (r && r->reader && r->at == want->offset))
            continue;
        if (!r || !o->reader || o->at == want->offset || (r->reader && o->use < r->use))
            r = o;
    }
    if (!r) {
        wait_in(&c->queue, wait);
        return JOURNAL_OK;
    }
    if (!r->reader || r->at != want->offset) {
        close_reader(r);
        enum journal_result result = journal_reader_open(c->journal, want->offset, &r->reader, edges);
        if (result != JOURNAL_OK)
            return result;
        r->at = want->offset;
    }
    wait_in(&r->waiters, wait);
    r->large = want->large;
    r->use = ++c->uses;
    r->used = c->now;
    if (want->large) {
        struct journal_span_request how = {
            window_may_be_large() ? BLOCK_CACHE_LARGE_BYTES : WINDOW_BYTES, bytes_count_lines};
        struct buf memory = window_take_memory();
        r->reach = how.max_bytes;
        journal_reader_spans(r->reader, &how, &memory, block_read, r);
    } else {
        r->reach = WINDOW_BYTES;
        journal_reader_read(r->reader, WINDOW_BYTES, block_read, r);
    }
    return JOURNAL_OK;
}

void block_cache_expect(struct block_cache *c, uint64_t offset)
{
    c->expected = c->asked = offset;
}

void block_cache_add(struct block_cache *c, uint64_t offset, struct bytes data, uint64_t lines)
{
    struct block *b = c->windows.n ? c->windows.at[c->windows.n - 1] : NULL;
    if (!b || b->end != offset)
        b = NULL;
    if ((!b && c->expected != offset) || offset + data.len > c->asked + BLOCK_CACHE_AHEAD)
        return;
    while (data.len) {
        if (!b || window_room(b->window) == 0) {
            b = block_new(c, BLOCK_SMALL, offset);
            b->window = window_new();
            insert(c, b);
        }
        size_t room = window_room(b->window);
        struct bytes part = bytes_of(data.ptr, data.len < room ? data.len : room);
        uint64_t ends = part.len == data.len ? lines : bytes_count_lines(part);
        window_add(b->window, part, ends);
        touch(c, b);
        b->end = offset += part.len;
        lines -= ends;
        data = bytes_of(data.ptr + part.len, data.len - part.len);
    }
}

void block_cache_clear(struct block_cache *c)
{
    while (c->windows.n)
        drop(c, &c->windows, c->windows.n - 1);
    while (c->spans.n)
        drop(c, &c->spans, c->spans.n - 1);
}

void block_cache_free(struct block_cache **p)
{
    struct block_cache *c = *p;
    if (!c)
        return;
    assert(!c->queue.first);
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++) {
        assert(!c->readers[i].waiters.first);
        close_reader(&c->readers[i]);
    }
    block_cache_clear(c);
    free(c->windows.at);
    free(c->spans.at);
    free(c);
    *p = NULL;
}

static void tidy_list(struct block_cache *c, struct block_list *list, uint64_t lowest)
{
    for (size_t i = list->n; i-- > 0;) {
        const struct block *b = list->at[i];
        if (c->now - b->used > BLOCK_CACHE_TRUST || (b->kind == BLOCK_SMALL && b->end <= lowest))
            drop(c, list, i);
    }
}

void block_cache_tidy(struct block_cache *c, uint64_t lowest, usec_t now)
{
    c->now = now;
    tidy_list(c, &c->windows, lowest);
    tidy_list(c, &c->spans, lowest);
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++)
        if (!c->readers[i].reach && now - c->readers[i].used > BLOCK_CACHE_TRUST)
            close_reader(&c->readers[i]);
}

void block_cache_trim(struct block_cache *c, uint64_t earliest)
{
    while (c->windows.n && c->windows.at[0]->offset < earliest)
        drop(c, &c->windows, 0);
    while (c->spans.n && c->spans.at[0]->offset < earliest)
        drop(c, &c->spans, 0);
    for (size_t i = 0; i < BLOCK_CACHE_READERS_MAX; i++) {
        struct cache_reader *r = &c->readers[i];
        if (!r->reader || r->at >= earliest)
            continue;
        bool was_reading = r->reach > 0;
        close_reader(r);
        if (was_reading)
            call_waiters(r, r->at, JOURNAL_OK, NULL);
    }
}
