/* store: the messages of one queue, by id. Messages that are not needed soon are spilled: only their position in the
 * journal stays in memory.
 *
 * Ids are dense, so messages are stored in pages, in the order of ids. A page begins as one piece of memory. The
 * bytes of messages fill it from the front, and their records fill it from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * store_spill spills pages whose messages are all committed, and frees the bytes of these messages. A spilled page
 * contains the journal offset of its first record, and a record for each message. If all messages are ready and were
 * never delivered, it contains only a length of four bytes for each. To load a span of pages, the caller reads the
 * journal from span.offset on and passes each message to store_load.
 *
 * 1. Only store_spill removes the bytes of a message from memory, and only store_load loads these bytes. Bytes move
 *    to another address only when a message is dropped or a page is spilled. A `struct message *` is valid until the
 *    next call with the same store.
 * 2. A page is freed when its last message is dropped. When most messages of a page are dropped, the others move to a
 *    smaller piece of memory.
 * 3. store.next_id never decreases, except in store_undo, which makes the ids of uncommitted messages available
 *    again.
 * 4. The offset of a page is not above that of any committed message in the page. The offsets of pages are in the
 *    order of ids, except for pages that were rewritten (store_set_kept).
 * */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "base/bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a larger message has a page of its own */
#define STORE_NO_OFFSET UINT64_MAX

/* The states that the store uses. The queue defines further states with higher values. */
enum {
    STORE_GONE,    /* not in the store */
    STORE_PENDING, /* not committed: has no offset in the journal */
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

/* Bytes of memory for the pages of all stores of a daemon. */
struct store_memory {
    uint64_t all;
    uint64_t spilled; /* the part of `all` that spilled pages use */
};

struct store {
    struct store_page **pages; /* pages[head..n) in the order of ids */
    size_t head, n, cap;
    size_t hint;    /* the page used last */
    size_t spilled; /* pages */
    size_t changes; /* number of events that may have changed store_lowest_offset */
    uint64_t next_id;
    uint64_t loaded_first, loaded_last; /* the last loaded span; it stays in memory until another is loaded */
    struct store_memory *memory;
};

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory);
void store_free(struct store *s);

/* Adds a copy of the message with the id s->next_id, and increments s->next_id. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* Sets the id of the next message, which must not be below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);
/* Decreases next_id as long as the message before it has been dropped, but not below `floor`. */
void store_undo(struct store *s, uint64_t floor);

/* Returns NULL if the message is not in the store. */
struct message *store_find(struct store *s, uint64_t id);
/* Returns a copy of a message's record. The message must be in the store. If the message is spilled, this costs less
 * than store_find. */
struct message store_peek(struct store *s, uint64_t id);
/* These functions find the first message with an id of at least `from` that is ready, that is not ready, or in any
 * state. They return false if there is none. */
bool store_next_ready(struct store *s, uint64_t from, uint64_t *id);
bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m);
bool store_next_held(struct store *s, uint64_t from, uint64_t *id);
/* `state` must not be STORE_GONE. */
void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state);

/* Removes the message. */
void store_drop(struct store *s, uint64_t id);

struct store_span {
    uint64_t first_id, last_id; /* of whole pages */
    uint64_t offset;            /* where to begin reading their messages in the journal */
    bool kept;                  /* rewritten: the offset is not in the order of ids */
};

/* Makes `n` pending messages ready. Their record is at `offset`. Offsets must ascend with the ids. Returns the total
 * bytes of the messages. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* Returns the lowest journal offset that a message still needs, or STORE_NO_OFFSET if no message is committed. */
uint64_t store_lowest_offset(const struct store *s);

/* Adds a message that is ready and spilled. The journal has a copy at `offset`. The id must be below s->next_id and
 * not in the store. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Returns the total bytes of the messages in pages whose offset is below `offset`. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* Finds the first page whose offset is below `offset` and whose first id is at least `from`. Returns false if there
 * is none. */
bool store_next_below(const struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* Records that all messages of the page were appended to the journal again at `offset`. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Spills pages, beginning with the last ones, until `bytes` bytes of memory are freed. Does not spill the very last
 * page, pages with an id from keep_from to keep_to, pages that are being loaded, and pages that were loaded last.
 * Returns the number of freed bytes. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);
/* True if the message is in the store and spilled. */
bool store_is_spilled(struct store *s, uint64_t id);
/* Considers the ready messages with ids of at least `from`. Returns true if the first `items` messages, or the first
 * `bytes` bytes (in whole pages), are in memory. Otherwise *out is a span of about `chunk` bytes to load, or empty
 * (last_id 0) if all missing pages are being loaded. *through is the last id that was examined. */
bool store_in_memory(struct store *s, uint64_t from, size_t items, uint64_t bytes, uint64_t chunk,
    struct store_span *out, uint64_t *through);
/* Stores the page of a spilled message in *out. Returns false if the message is in memory or being loaded. */
bool store_span_of(struct store *s, uint64_t id, struct store_span *out);

/* To load a span, call store_load_begin, store_load for each message that is read from the journal, and
 * store_load_end. */
void store_load_begin(struct store *s, const struct store_span *span);
/* Ignores a message outside the span. Returns false if the length differs from that of the spilled message. */
bool store_load(struct store *s, uint64_t id, struct bytes text);
/* True if messages of the span are still missing. */
bool store_load_misses(struct store *s, const struct store_span *span);
/* Returns false if a message of the span is still missing. */
bool store_load_end(struct store *s, const struct store_span *span);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
