#include "tail.h"

#include <assert.h>
#include <stdlib.h>

#define TAIL_READ ((size_t)256 * 1024) /* at a time */
#define TAIL_WINDOWS (TAIL_BYTES / WINDOW_BLOCK)

struct tail {
    struct journal *journal;
    struct journal_reader *reader;
    struct window *ring[TAIL_WINDOWS];
    size_t first, n;
    uint64_t end; /* where the reader is */
    bool reading, broken;
    void (*grown)(void *arg);
    void *arg;
};

struct tail *tail_new(struct journal *j, void (*grown)(void *arg), void *arg)
{
    struct tail *t = mem_zalloc(sizeof *t);
    *t = (struct tail){.journal = j, .grown = grown, .arg = arg};
    return t;
}

/* ---- the windows ---- */

static struct window *at(const struct tail *t, size_t i)
{
    return t->ring[(t->first + i) % TAIL_WINDOWS];
}

static uint64_t end_of(const struct window *w)
{
    return window_offset(w) + window_bytes(w).len;
}

static void drop_first(struct tail *t)
{
    window_release(at(t, 0));
    t->first = (t->first + 1) % TAIL_WINDOWS;
    t->n--;
}

static void append(struct tail *t, struct bytes data)
{
    while (data.len) {
        size_t n = t->n ? window_add(at(t, t->n - 1), data) : 0;
        data = bytes_of(data.ptr + n, data.len - n);
        t->end += n;
        if (!data.len)
            return;
        if (t->n == TAIL_WINDOWS)
            drop_first(t);
        t->ring[(t->first + t->n++) % TAIL_WINDOWS] = window_new(t->end);
    }
}

/* The windows follow each other; most ask for the newest. */
static struct window *find(const struct tail *t, uint64_t offset)
{
    for (size_t i = t->n; i-- > 0;) {
        struct window *w = at(t, i);
        if (offset >= window_offset(w))
            return offset < end_of(w) ? w : NULL;
    }
    return NULL;
}

/* ---- reading ---- */

static void stop(struct tail *t)
{
    journal_reader_close(&t->reader);
    t->reading = false;
    while (t->n)
        drop_first(t);
}

void tail_free(struct tail **t)
{
    if (!*t)
        return;
    stop(*t);
    free(*t);
    *t = NULL;
}

static void window_read(const struct journal_window *w, void *arg)
{
    struct tail *t = arg;
    t->reading = false;
    if (w->result == JOURNAL_OK) {
        append(t, w->data);
    } else if (w->result != JOURNAL_END) {
        t->broken = true;
        stop(t);
    }
    t->grown(t->arg);
}

/* A new beginning, at the place of somebody who is close to the end. */
static bool begin(struct tail *t, uint64_t offset)
{
    struct journal_edges edges;
    if (journal_committed_end(t->journal) - offset > TAIL_REACH)
        return false;
    stop(t);
    if (journal_reader_open(t->journal, offset, &t->reader, &edges) != JOURNAL_OK)
        return false;
    t->end = offset;
    return true;
}

enum tail_answer tail_ask(struct tail *t, uint64_t offset, struct bytes *piece, struct window **window)
{
    assert(offset < journal_committed_end(t->journal));
    struct window *w = find(t, offset);
    if (w) {
        size_t skip = (size_t)(offset - window_offset(w));
        *piece = bytes_of(window_bytes(w).ptr + skip, window_bytes(w).len - skip);
        *window = w;
        return TAIL_HAS;
    }
    if (t->broken)
        return TAIL_NOT;
    if (t->reading && offset >= t->end)
        return TAIL_WAITS;
    bool follows = t->reader && offset == t->end;
    if (!follows && (offset < t->end || !begin(t, offset)))
        return TAIL_NOT;
    t->reading = true;
    journal_reader_read(t->reader, TAIL_READ, window_read, t);
    return TAIL_WAITS;
}

void tail_forget(struct tail *t, uint64_t offset)
{
    while (t->n && end_of(at(t, 0)) <= offset)
        drop_first(t);
}

void tail_trim(struct tail *t, uint64_t earliest)
{
    bool was_reading = t->reading;
    if (!t->reader || t->end >= earliest)
        return;
    stop(t);
    if (was_reading)
        t->grown(t->arg);
}
