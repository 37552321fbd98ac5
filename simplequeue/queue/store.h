/* store: the messages of one queue, found by id. What is not needed soon has only its place in the journal.
 *
 * Ids are dense: each message takes the next one. So messages lie in pages in id order. A page begins as one
 * piece of memory that message bytes fill from the front and their records from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * A page whose messages are all committed can let go of their bytes (store_spill): it is *away* then. What it
 * keeps is the journal offset from which on they can be read again, and of messages at rest a length each, of
 * others a record. Loading brings the bytes back: store_away names a span of pages, their messages are read from
 * the journal from span.offset on, and each is handed to store_load. So a deep queue costs four bytes a message
 * and a page's head for each run of 64 KiB.
 *
 * 1. Bytes move only when a message is dropped or a page spilled; nothing but store_spill and store_load changes whether
 *    they are there. A `struct message *` is good until the next call for the store.
 * 2. A page is freed when none of its messages is held any more. When few are, behind the first page, they move to a
 *    smaller piece of memory: so what is held of messages that outlive those around them is in proportion to them.
 * 3. store.next_id only grows, but for store_undo, which takes back ids that nobody was shown.
 * 4. Every committed message of a page stands in the journal at or above the page's offset. Pages that were not
 *    kept (store_set_kept) have theirs in the order of ids.
 */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "base/bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a larger message has a page of its own */
#define STORE_NO_OFFSET UINT64_MAX

/* The states that the store knows; higher ones are the queue's. */
enum {
    STORE_GONE,    /* not held any more */
    STORE_PENDING, /* not committed: has no place in the journal yet */
    STORE_READY,   /* nothing is known of it but what it says; and its tries */
};

struct message {
    const char *ptr; /* NULL: away */
    void *owner;     /* what its state needs: a lease, a timer, a burial */
    uint32_t len;
    unsigned tries : 24; /* deliveries, up to STORE_TRIES_MAX */
    unsigned state : 8;
};
#define STORE_TRIES_MAX 0xffffff

struct store_page;

/* Shared by the stores of a daemon: what their pages cost. */
struct store_memory {
    uint64_t all;
    uint64_t spilled; /* of it, what pages cost that are away: this cannot be spilled */
};

struct store {
    struct store_page **pages; /* pages[head..n) in id order */
    size_t head, n, cap;
    size_t hint;    /* the page looked at last */
    size_t spilled; /* pages */
    size_t freed;   /* pages freed or kept so far: what store_lowest_offset says may have changed */
    uint64_t next_id;
    uint64_t loaded_first, loaded_last; /* the span loaded last: it is not spilled before another one is */
    struct store_memory *memory;
};

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory);
void store_free(struct store *s);

/* Copies the message; it has s->next_id, which moves on. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* The next message has this id, which is not below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);

/* NULL when it is not held. */
struct message *store_find(struct store *s, uint64_t id);
/* The first message at rest whose id is at or after `from`; false when there is none. */
bool store_next_ready(struct store *s, uint64_t from, uint64_t *id);
/* The first message held that is not at rest, likewise. */
bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m);
/* The first message held, likewise. */
bool store_next_held(struct store *s, uint64_t from, uint64_t *id);
/* Not STORE_GONE. */
void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state);

/* The message is held no more. */
void store_drop(struct store *s, uint64_t id);
/* All of the range that are held; `fn` sees each before. */
typedef void store_drop_fn(uint64_t id, struct message *m, void *arg);
void store_drop_range(struct store *s, uint64_t first, uint64_t last, store_drop_fn *fn, void *arg);
/* Takes back ids at the end that are dropped, down to `floor`, so that they are given again. */
void store_undo(struct store *s, uint64_t floor);

struct store_span {
    uint64_t first_id, last_id; /* of whole pages */
    uint64_t offset;            /* where their messages begin in the journal */
    bool kept;                  /* offset is not in the order of ids */
};

/* So many messages, all pending, are committed at that offset, and rest. Offsets come in the order of ids. Their bytes. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* At or below the journal offset of every message held, and above what is not needed. STORE_NO_OFFSET when none has
 * one. */
uint64_t store_lowest_offset(const struct store *s);

/* A committed message that the journal says again at `offset`, with an id below s->next_id that is not held: at rest, and
 * away. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Bytes of messages in pages with offsets below `offset`: what keeps the journal before it. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* The first such page at or after id `from`; false when there is none. */
bool store_next_below(const struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* All messages of the page, as far as they are held, stand in the journal at `offset` too. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Lets pages go away until `bytes` of memory are free: the last ones first, but no page with an id in [keep_from,
 * keep_to], none that is being loaded or was loaded last, and not the last one. How many bytes that freed. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);

/* False when the message's bytes are in memory, or it is not held. */
bool store_is_spilled(struct store *s, uint64_t id);
/* Whether messages at rest from `from` on, until there are `items` of them or `bytes` (of whole pages), are in memory.
 * If not, *out is a span of pages to load for it, of about `chunk` bytes, or empty (last_id 0) when all that is missing
 * is being loaded. `through` is the last id that was found there. */
bool store_in_memory(struct store *s, uint64_t from, size_t items, uint64_t bytes, uint64_t chunk,
    struct store_span *out, uint64_t *through);
/* The page of an id as a span; false when it is not away or being loaded. */
bool store_span_of(struct store *s, uint64_t id, struct store_span *out);
/* The pages of the span are being loaded: they are not spilled until store_load_end. */
void store_load_begin(struct store *s, const struct store_span *span);
/* A message read from the journal; what is not wanted is passed over. False when it is not what it was. */
bool store_load(struct store *s, uint64_t id, struct bytes text);
/* Whether messages of the span are still to be read. */
bool store_load_misses(struct store *s, const struct store_span *span);
/* False when something that is held was not read. */
bool store_load_end(struct store *s, const struct store_span *span);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
