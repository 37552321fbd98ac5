/* store: the messages of one queue, by id. Messages that are not needed soon are spilled: only their position in the
 * journal stays in memory.
 *
 * Messages are stored in pages, in the order of ids. A page is one piece of memory, with the bytes of messages from
 * the front and their records from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * store_spill frees the bytes of pages whose messages are all committed. A spilled page keeps the journal offset of
 * its first record, and a record for each message; only their lengths if all are ready and were never delivered. To
 * load a span, the caller reads the journal from span.offset on and passes each message to store_load.
 *
 * 1. Only store_spill removes the bytes of a message, and only store_load loads them. A `struct message *` is valid
 *    until the next call with the same store.
 * 2. A page is freed with its last message, and shrinks when most are dropped.
 * 3. store.next_id never decreases, except in store_undo, for uncommitted messages.
 * 4. A page's offset is not above that of any committed message in it. Offsets are in the order of ids, except of
 *    rewritten pages (store_set_kept). */
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
    size_t hint;       /* the page used last */
    size_t spilled;    /* pages */
    size_t changes;    /* number of events that may have changed store_lowest_offset */
    uint64_t lowest;   /* the result of store_lowest_offset ... */
    bool lowest_known; /* ... unless false */
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
/* A copy of a message's record; cheaper than store_find for a spilled one. It must be in the store. */
struct message store_peek(struct store *s, uint64_t id);
/* Find the first message with an id of at least `from` that is ready, not ready, or in any state. False: none. */
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

/* Makes `n` pending messages ready, with their record at `offset`; offsets ascend with the ids. Returns their
 * bytes. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* Returns the lowest journal offset that a message still needs, or STORE_NO_OFFSET if no message is committed. */
uint64_t store_lowest_offset(struct store *s);

/* Adds a ready, spilled message with a copy at `offset`. The id must be below s->next_id and not in the store. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Returns the total bytes of the messages in pages whose offset is below `offset`. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* Finds the first page whose offset is below `offset` and whose first id is at least `from`. Returns false if there
 * is none. */
bool store_next_below(struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* Records that all messages of the page were appended to the journal again at `offset`. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Spills pages, the last first, until `bytes` bytes are freed, but not the very last page, ids from keep_from to
 * keep_to, and pages being loaded or loaded last. Returns the bytes freed. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);
/* True if the message is in the store and spilled. */
bool store_is_spilled(struct store *s, uint64_t id);
/* True if the first `items` ready messages from `from` on, or the first `bytes` bytes of them, are in memory. Else
 * *out is a span of about `chunk` bytes to load, or empty (last_id 0) if all are being loaded. *through is the last
 * id examined. `follows`: ready messages in the page of `from` do not
 * add to these sums, because they may be below `from`. */
bool store_in_memory(struct store *s, uint64_t from, bool follows, size_t items, uint64_t bytes,
    uint64_t chunk, struct store_span *out, uint64_t *through);
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
