/* store: the messages of one queue, by id. Messages that are not needed soon are spilled: only their place in the
 * journal is kept in memory.
 *
 * Ids are dense, so messages lie in pages in the order of ids. A page begins as one piece of memory. Message bytes fill it from the
 * front, their records from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * store_spill frees the bytes of pages whose messages are all committed. A spilled page keeps the journal offset of its
 * first record. It also keeps a record for each message, or only a length of four bytes for each if all messages are
 * ready and were never delivered. To load a span of pages, the owner reads the journal from span.offset on and passes
 * each message to store_load.
 *
 * 1. Only store_spill and store_load change whether the bytes of a message are in memory. Bytes move only when a message is dropped
 *    or a page is spilled. A `struct message *` is valid until the next call for the store.
 * 2. A page is freed when its last message is dropped. When most messages of a page are gone, the others move to a
 *    smaller piece of memory.
 * 3. store.next_id only grows, except in store_undo, which takes back ids of messages that were never committed.
 * 4. Every committed message of a page lies in the journal at or above the page's offset. Offsets are in the order of ids, except
 *    in pages that were rewritten (store_set_kept).
 */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "base/bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a larger message has a page of its own */
#define STORE_NO_OFFSET UINT64_MAX

/* The states that the store uses. Higher states belong to the queue. */
enum {
    STORE_GONE,    /* not in the store */
    STORE_PENDING, /* not committed: has no place in the journal */
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
    uint64_t spilled; /* the part of `all` that spilled pages use */
};

struct store {
    struct store_page **pages; /* pages[head..n) in the order of ids */
    size_t head, n, cap;
    size_t hint;    /* the page used last */
    size_t spilled; /* pages */
    size_t changes; /* counts events that may have changed store_lowest_offset */
    uint64_t next_id;
    uint64_t loaded_first, loaded_last; /* the last span loaded: it stays until another is loaded */
    struct store_memory *memory;
};

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory);
void store_free(struct store *s);

/* Copies the message. Its id is s->next_id, which then rises by one. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* Sets the id of the next message, which must not be below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);
/* Lowers next_id past the dropped messages at the end, but not below `floor`. */
void store_undo(struct store *s, uint64_t floor);

/* Returns NULL if the message is not in the store. */
struct message *store_find(struct store *s, uint64_t id);
/* Returns a copy of a message's record. The message must be in the store. Cheaper than store_find for a spilled
 * message. */
struct message store_peek(struct store *s, uint64_t id);
/* Find the first message at or after `from` that is ready, that is not ready, and in any state. False if there is
 * none. */
bool store_next_ready(struct store *s, uint64_t from, uint64_t *id);
bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m);
bool store_next_held(struct store *s, uint64_t from, uint64_t *id);
/* `state` must not be STORE_GONE. */
void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state);

/* Removes the message. */
void store_drop(struct store *s, uint64_t id);

struct store_span {
    uint64_t first_id, last_id; /* of whole pages */
    uint64_t offset;            /* where their messages begin in the journal */
    bool kept;                  /* rewritten: the offset is not in the order of ids */
};

/* Makes `n` pending messages ready. Their record lies at `offset`; offsets rise with the ids. Returns the bytes of the messages. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* The lowest journal offset that a message needs; STORE_NO_OFFSET if none is committed. */
uint64_t store_lowest_offset(const struct store *s);

/* Adds a ready, spilled message; the journal holds a copy at `offset`. Its id must be below s->next_id and not in the
 * store. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Bytes of the messages in pages whose offset is below `offset`. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* The first page whose offset is below `offset` and whose ids begin at or after `from`. False if there is none. */
bool store_next_below(const struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* Records that all messages of the page were appended again at `offset`. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Spills pages, the last first, until `bytes` of memory are free. Does not spill the last page, pages with an id in
 * [keep_from, keep_to], and the pages that are being loaded or were loaded last. Returns the bytes freed. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);
/* True if the message is in the store and spilled. */
bool store_is_spilled(struct store *s, uint64_t id);
/* True if the first `items` ready messages from `from` on, or the first `bytes` bytes of them (in whole pages), are in
 * memory. If not, *out is a span of about `chunk` bytes to load; it is empty (last_id 0) if all missing pages are being
 * loaded. *through is the last id examined. */
bool store_in_memory(struct store *s, uint64_t from, size_t items, uint64_t bytes, uint64_t chunk,
    struct store_span *out, uint64_t *through);
/* The page of a spilled message; false if it is in memory or being loaded. */
bool store_span_of(struct store *s, uint64_t id, struct store_span *out);

/* Loading: store_load_begin, store_load for each message that the journal returns, store_load_end. */
void store_load_begin(struct store *s, const struct store_span *span);
/* Ignores a message outside the span. False if the length differs from that of the spilled message. */
bool store_load(struct store *s, uint64_t id, struct bytes text);
/* True if messages of the span are still missing. */
bool store_load_misses(struct store *s, const struct store_span *span);
/* False if a message is still missing. */
bool store_load_end(struct store *s, const struct store_span *span);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
