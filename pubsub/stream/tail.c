#include "pubsub/stream/tail.h"

#include "pubsub/stream/line_index.h"

#include <assert.h>
#include <stdlib.h>

#define TAIL_READ_MAX ((size_t)256 * 1024) /* at a time */
#define TAIL_WINDOWS (TAIL_BYTES_MAX / WINDOW_BLOCK)

struct tail {
    struct journal *journal;
    struct journal_reader *reader;
    struct window *ring[TAIL_WINDOWS];
    size_t first, n;
    uint64_t end;   /* of the windows; where the reader is, or is to be opened */
    uint64_t asked; /* where the fastest is */
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

/* One with room. */
static struct window *last_window(struct tail *t)
{
    if (t->n && window_room(at(t, t->n - 1)) > 0)
        return at(t, t->n - 1);
    if (t->n == TAIL_WINDOWS)
        drop_first(t);
    return t->ring[(t->first + t->n++) % TAIL_WINDOWS] = window_new(t->end);
}

static void append(struct tail *t, struct bytes data, uint64_t lines)
{
    while (data.len) {
        struct window *w = last_window(t);
        size_t room = window_room(w);
        struct bytes part = bytes_of(data.ptr, data.len < room ? data.len : room);
        uint64_t ends = part.len == data.len ? lines : bytes_count_lines(part);
        window_add(w, part, ends);
        t->end += part.len;
        lines -= ends;
        data = bytes_of(data.ptr + part.len, data.len - part.len);
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

static void stop_reader(struct tail *t)
{
    journal_reader_close(&t->reader);
    t->reading = false;
}

static void stop(struct tail *t)
{
    stop_reader(t);
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
        append(t, w->data, bytes_count_lines(w->data));
    } else if (w->result != JOURNAL_END) {
        t->broken = true;
        stop(t);
    }
    t->grown(t->arg);
}

/* A new beginning, at the place of somebody who is close to the end. */
static bool begin(struct tail *t, uint64_t offset)
{
    if (journal_committed_end(t->journal) - offset > TAIL_REACH)
        return false;
    stop(t);
    t->end = t->asked = offset;
    return true;
}

/* Reads on from where the windows end. */
static bool read_on(struct tail *t)
{
    struct journal_edges edges;
    if (!t->reader && journal_reader_open(t->journal, t->end, &t->reader, &edges) != JOURNAL_OK)
        return false;
    t->reading = true;
    journal_reader_read(t->reader, TAIL_READ_MAX, window_read, t);
    return true;
}

enum tail_answer tail_ask(struct tail *t, uint64_t offset, struct bytes *piece, struct window **window)
{
    assert(offset < journal_committed_end(t->journal));
    struct window *w = find(t, offset);
    if (offset > t->asked)
        t->asked = offset;
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
    bool follows = (t->n || t->reader) && offset == t->end;
    if (!follows && (offset < t->end || !begin(t, offset)))
        return TAIL_NOT;
    return read_on(t) ? TAIL_WAITS : TAIL_NOT;
}

void tail_expect(struct tail *t, uint64_t offset)
{
    if (t->broken || t->reading)
        return;
    if (t->end != offset)
        stop(t);
    t->end = t->asked = offset;
}

/* The reader has not passed this: it is opened again when it is needed. What is being read now may be the same bytes. */
void tail_add(struct tail *t, uint64_t offset, struct bytes data, uint64_t lines)
{
    if (t->broken || t->reading || t->end != offset || offset + data.len > t->asked + TAIL_AHEAD)
        return;
    stop_reader(t);
    append(t, data, lines);
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
