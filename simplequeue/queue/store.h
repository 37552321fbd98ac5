/* store: the messages of one queue, found by id. Messages that are not needed soon keep only their place in the journal.
 *
 * Ids are dense, so messages lie in pages in the order of ids. A page begins as one piece of memory. Message bytes fill it from the
 * front, their records from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * store_spill frees the bytes of pages whose messages are all committed. A spilled page keeps the journal offset from which its
 * messages can be read again, a length for each ready message, and a record for each other message. To load a span of pages, the
 * owner reads the journal from span.offset on and hands each message to store_load. So a deep queue costs four bytes a message and a
 * page's head for each 64 KiB.
 *
 * 1. Only store_spill and store_load change whether bytes are in memory. They move only when a message is dropped or a page
 *    spilled. A `struct message *` is valid until the next call for the store.
 * 2. A page is freed with its last message. Few messages that outlive their neighbours move to a smaller piece of memory.
 * 3. store.next_id only grows, except in store_undo, which takes back ids that nobody has seen.
 * 4. Every committed message of a page lies in the journal at or above the page's offset. Offsets are in the order of ids, except
 *    in pages that were rewritten (store_set_kept).
 */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "base/bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a larger message has a page of its own */
#define STORE_NO_OFFSET UINT64_MAX

/* The states that the store knows; higher ones are the queue's. */
enum {
    STORE_GONE,    /* not in the store */
    STORE_PENDING, /* not committed: no place in the journal yet */
    STORE_READY,   /* no owner */
};

struct message {
    const char *ptr; /* NULL: spilled */
    void *owner;     /* a lease, a delay or a burial */
    uint32_t len;
    unsigned tries : 24; /* deliveries, up to STORE_TRIES_MAX */
    unsigned state : 8;
};
#define STORE_TRIES_MAX 0xffffff

struct store_page;

/* Shared by the stores of a daemon: bytes of memory for their pages. */
struct store_memory {
    uint64_t all;
    uint64_t spilled; /* of it, for spilled pages */
};

struct store {
    struct store_page **pages; /* pages[head..n) in the order of ids */
    size_t head, n, cap;
    size_t hint;    /* the page used last */
    size_t spilled; /* pages */
    size_t changes; /* how often store_lowest_offset may have changed */
    uint64_t next_id;
    uint64_t loaded_first, loaded_last; /* the last span loaded; it is not spilled before another is loaded */
    struct store_memory *memory;
};

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory);
void store_free(struct store *s);

/* Copies the message under the id s->next_id, which moves on. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* The next message has this id, which is not below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);
/* Takes back dropped ids at the end, down to `floor`. */
void store_undo(struct store *s, uint64_t floor);

/* NULL if it is not in the store. */
struct message *store_find(struct store *s, uint64_t id);
/* A copy of the record of a message in the store. Cheaper than store_find for a spilled message. */
struct message store_peek(struct store *s, uint64_t id);
/* Three searches for the first message at or after `from`: a ready one, one that is not ready, any. False if there is none. */
bool store_next_ready(struct store *s, uint64_t from, uint64_t *id);
bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m);
bool store_next_held(struct store *s, uint64_t from, uint64_t *id);
/* Not to STORE_GONE. */
void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state);

/* Removes the message. */
void store_drop(struct store *s, uint64_t id);

struct store_span {
    uint64_t first_id, last_id; /* of whole pages */
    uint64_t offset;            /* where their messages begin in the journal */
    bool kept;                  /* rewritten: the offset is not in the order of ids */
};

/* So many pending messages are committed at that offset, and ready. Offsets come in the order of ids. Returns their bytes. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* The lowest journal offset that a message needs; STORE_NO_OFFSET if none is committed. */
uint64_t store_lowest_offset(const struct store *s);

/* Adds a message that the journal holds again at `offset`: ready and spilled. Its id is below s->next_id and not in the store. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Bytes of messages in pages with offsets below `offset`. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* The first such page at or after id `from`; false if there is none. */
bool store_next_below(const struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* All messages of the page were appended again at `offset`. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Spills pages until `bytes` of memory are free, the last first: none with an id in [keep_from, keep_to], none being loaded or loaded
 * last, and not the last page. Returns the bytes freed. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);
/* Whether the message is in the store and spilled. */
bool store_is_spilled(struct store *s, uint64_t id);
/* Whether the ready messages from `from` on are in memory, until there are `items` of them or `bytes` (of whole pages). If not, *out is
 * a span of about `chunk` bytes to load, or empty (last_id 0) if all that is missing is being loaded. *through is the last id seen. */
bool store_in_memory(struct store *s, uint64_t from, size_t items, uint64_t bytes, uint64_t chunk,
    struct store_span *out, uint64_t *through);
/* The page of a spilled message; false if it is in memory or being loaded. */
bool store_span_of(struct store *s, uint64_t id, struct store_span *out);

/* Loading: begin, each message that the journal has, end. */
void store_load_begin(struct store *s, const struct store_span *span);
/* Skips messages that are not wanted. False if the message differs from the one that was spilled. */
bool store_load(struct store *s, uint64_t id, struct bytes text);
/* Whether messages of the span are still missing. */
bool store_load_misses(struct store *s, const struct store_span *span);
/* False if a message is still missing. */
bool store_load_end(struct store *s, const struct store_span *span);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
