#include "aggregator/minute_ring.h"

#include <assert.h>
#include <stdlib.h>

#define SLOTS                                                                                                \
    160 /* more than all minutes that can have rows: the past ones, the present one and those ahead */
_Static_assert(MINUTE_RING_MINUTES + 1 + MINUTE_RING_AHEAD < SLOTS, "each minute of the ring has a slot");
#define FIRST_ROWS 32
#define CHUNK_MAX ((size_t)64 << 10)

/* The texts of the ids in some chunks. */
struct texts {
    const struct interner *interner; /* NULL: replaced */
    char (*names)[COMPONENT_HASH];   /* set when the interner is replaced */
    uint32_t n_names;
    size_t users; /* number of chunks with these ids, and 1 for the texts in use */
    struct texts *older;
};

struct chunk {
    struct chunk *older; /* of the same minute */
    struct texts *texts;
    size_t n, room;
    char rows[];
};

struct minute_ring {
    size_t max_bytes, bytes, n_values, row_bytes;
    int64_t now;    /* present minute */
    int64_t first;  /* no earlier minute has rows, or will have */
    int64_t since;  /* minute_ring_cover */
    int64_t missed; /* earlier minutes may miss rows, because a held ring had no free slot for them */
    struct chunk *minutes[SLOTS];
    struct texts *texts; /* texts in use, then the older ones */
    size_t row_texts;
    bool is_held;
};

struct minute_ring *minute_ring_new(size_t max_bytes)
{
    struct minute_ring *r = mem_zalloc(sizeof *r);
    r->max_bytes = max_bytes;
    return r;
}

static struct chunk **slot_of(struct minute_ring *r, int64_t minute)
{
    return &r->minutes[minute % SLOTS];
}

static size_t chunk_bytes(const struct minute_ring *r, const struct chunk *c)
{
    return sizeof *c + c->room * r->row_bytes;
}

static size_t names_bytes(uint32_t n)
{
    return (size_t)n * COMPONENT_HASH;
}

/* Frees the texts that no chunk uses. */
static void release(struct minute_ring *r, struct texts *texts)
{
    struct texts **link = &r->texts;
    if (--texts->users > 0)
        return;
    while (*link != texts)
        link = &(*link)->older;
    *link = texts->older;
    r->bytes -= names_bytes(texts->n_names);
    free(texts->names);
    free(texts);
}

/* Drops the rows of a minute. */
static void drop(struct minute_ring *r, int64_t minute)
{
    struct chunk *c = *slot_of(r, minute);
    for (struct chunk *older; c; c = older) {
        older = c->older;
        r->bytes -= chunk_bytes(r, c);
        release(r, c->texts);
        free(c);
    }
    *slot_of(r, minute) = NULL;
}

static void drop_before(struct minute_ring *r, int64_t minute)
{
    if (r->is_held || minute <= r->first)
        return;
    int64_t at = minute - r->first > SLOTS ? minute - SLOTS : r->first;
    for (; at < minute; at++)
        drop(r, at);
    r->first = minute;
}

/* Drops the minutes that have passed, and then the oldest ones until the rows and the names fit. */
static void fit(struct minute_ring *r)
{
    drop_before(r, r->now - MINUTE_RING_MINUTES);
    int64_t end = r->first + SLOTS;
    for (int64_t m = r->first; !r->is_held && r->bytes > r->max_bytes && m < end; m++)
        if (*slot_of(r, m))
            drop_before(r, m + 1);
}

void minute_ring_free(struct minute_ring **rp)
{
    struct minute_ring *r = *rp;
    if (!r)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        drop(r, (int64_t)i);
    if (r->texts)
        release(r, r->texts);
    assert(!r->texts && r->bytes == 0);
    free(r);
    *rp = NULL;
}

void minute_ring_set_row(struct minute_ring *r, size_t n_texts, size_t n_values)
{
    size_t align = n_values > 0 ? sizeof(int64_t) : sizeof(uint32_t);
    r->n_values = n_values;
    r->row_texts = n_texts;
    r->row_bytes = (n_values * sizeof(int64_t) + n_texts * sizeof(uint32_t) + align - 1) / align * align;
}

/* Copies the stored forms of an interner that is replaced. */
static void keep_names(struct minute_ring *r, struct texts *texts)
{
    uint32_t n = texts->users > 1 ? interner_count(texts->interner) : 0;
    texts->names = mem_alloc(names_bytes(n) + 1);
    texts->n_names = n;
    for (uint32_t id = 0; id < n; id++)
        memcpy(texts->names[id], interner_get(texts->interner, id)->stored, COMPONENT_HASH);
    r->bytes += names_bytes(n);
    texts->interner = NULL;
}

void minute_ring_set_texts(struct minute_ring *r, const struct interner *interner)
{
    struct texts *former = r->texts, *texts = mem_zalloc(sizeof *texts);
    *texts = (struct texts){.interner = interner, .users = 1, .older = former};
    r->texts = texts;
    if (!former)
        return;
    keep_names(r, former);
    release(r, former);
    fit(r);
}

void minute_ring_set_now(struct minute_ring *r, int64_t now)
{
    r->now = now / SECONDS_PER_MINUTE;
    fit(r);
}

/* Adds a chunk to the minute. Chunks double in size as they fill, so that quiet minutes and late events need little
 * memory. */
static struct chunk *add_chunk(struct minute_ring *r, struct chunk **slot)
{
    bool is_full = *slot && (*slot)->n == (*slot)->room;
    size_t most = CHUNK_MAX / r->row_bytes, room = is_full ? 2 * (*slot)->room : FIRST_ROWS;
    room = room < most ? room : most > 0 ? most : 1;
    struct chunk *c = mem_alloc(sizeof *c + room * r->row_bytes);
    *c = (struct chunk){.older = *slot, .texts = r->texts, .room = room};
    r->texts->users++;
    r->bytes += chunk_bytes(r, c);
    return *slot = c;
}

void minute_ring_add(struct minute_ring *r, int64_t time, const uint32_t *ids, const int64_t *values)
{
    int64_t minute = time / SECONDS_PER_MINUTE;
    if (minute < r->first || minute > r->now + MINUTE_RING_AHEAD)
        return;
    if (minute >= r->first + SLOTS) {
        r->missed = minute >= r->missed ? minute + 1 : r->missed;
        return;
    }
    struct chunk **slot = slot_of(r, minute), *c = *slot;
    if (!c || c->n == c->room || c->texts != r->texts) {
        c = add_chunk(r, slot);
        fit(r);
        if (*slot != c) /* the event's own minute was dropped */
            return;
    }
    char *row = c->rows + c->n * r->row_bytes;
    if (r->n_values > 0)
        memcpy(row, values, r->n_values * sizeof *values);
    memcpy(row + r->n_values * sizeof *values, ids, r->row_texts * sizeof *ids);
    c->n++;
}

void minute_ring_cover(struct minute_ring *r, int64_t minute)
{
    r->since = minute;
}

int64_t minute_ring_from(const struct minute_ring *r)
{
    int64_t covered = r->since > r->missed ? r->since : r->missed;
    return covered > r->first ? covered : r->first;
}

size_t minute_ring_bytes(const struct minute_ring *r)
{
    return r->bytes;
}

void minute_ring_hold(struct minute_ring *r, bool hold)
{
    r->is_held = hold;
    fit(r);
}

static struct minute_part part_of(const struct minute_ring *r, int64_t minute, const struct chunk *c)
{
    const struct texts *t = c->texts;
    return (struct minute_part){.minute = minute,
        .rows = c->rows,
        .n = c->n,
        .row_bytes = r->row_bytes,
        .texts = t->interner,
        .names = (const char(*)[COMPONENT_HASH])t->names,
        .n_ids = t->interner ? interner_count(t->interner) : t->n_names};
}

struct minute_part *minute_ring_parts(const struct minute_ring *r, int64_t from, int64_t to, size_t *n)
{
    struct minute_part *parts = NULL;
    size_t room = 0;
    *n = 0;
    from = from > r->first ? from : r->first;
    to = to < r->first + SLOTS ? to : r->first + SLOTS;
    for (const struct texts *t = r->texts; t; t = t->older)
        for (int64_t m = from; m < to; m++)
            for (const struct chunk *c = r->minutes[m % SLOTS]; c; c = c->older)
                if (c->texts == t)
                    *ARRAY_ADD(parts, *n, room) = part_of(r, m, c);
    return parts;
}
