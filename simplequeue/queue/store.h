/* store: contains the messages of one queue, by id. The store spills messages that are not needed soon: it frees their
 * bytes, and keeps their positions in the journal.
 *
 * Messages are stored in pages, in the order of ids. A page is one block of memory. The bytes of messages begin at the
 * front of the page, and their records at the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * store_spill frees the message bytes of pages whose messages are all committed. A spilled page contains a journal
 * offset, and a record for each message. If all messages of the page are ready and were never delivered, it contains
 * only their lengths. To load a span, the caller reads the journal from span.offset on and passes each message to
 * store_load.
 *
 * 1. Only store_spill frees the bytes of a message that stays in the store, and only store_load loads these bytes. A
 *    `struct message *` is valid until the next call with the same store.
 * 2. The store frees a page with its last message, and shrinks a page that has lost most of its messages.
 * 3. store.next_id decreases only in store_undo, for uncommitted messages.
 * 4. The offset of a page is at most the journal offset of any committed message in the page. The offsets of pages
 *    ascend with the ids, except for rewritten pages (store_set_kept). */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "base/bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a message that is larger than a page has its own page */
#define STORE_NO_OFFSET UINT64_MAX

/* The message states that the store uses. The queue defines further states with higher values. */
enum {
    STORE_GONE,    /* the message is not in the store */
    STORE_PENDING, /* the message is not committed and has no journal offset */
    STORE_READY,   /* the message has no owner */
};

struct message {
    const char *ptr; /* NULL: spilled */
    void *owner;     /* the message's lease, delay or burial */
    uint32_t len;
    unsigned tries : 24; /* number of deliveries, at most STORE_TRIES_MAX */
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
    size_t hint;     /* the page used last */
    size_t spilled;  /* number of spilled pages */
    size_t changes;  /* number of events that may have changed store_lowest_offset */
    uint64_t lowest; /* the result of store_lowest_offset, if lowest_known */
    bool lowest_known;
    uint64_t next_id;
    uint64_t loaded_first, loaded_last; /* the last loaded span, which stays in memory until the next load */
    struct store_memory *memory;
};

void store_init(struct store *s, uint64_t next_id, struct store_memory *memory);
void store_free(struct store *s);

/* Adds a copy of the message with the id s->next_id, and increments s->next_id. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* Sets the id of the next message, which must not be below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);
/* Decreases next_id as long as the message next_id - 1 is not in the store, but not below `floor`. */
void store_undo(struct store *s, uint64_t floor);

/* Returns NULL if the message is not in the store. */
struct message *store_find(struct store *s, uint64_t id);
/* Returns a copy of a message's record. The message must be in the store. For a spilled message, store_peek is cheaper
 * than store_find. */
struct message store_peek(struct store *s, uint64_t id);
/* Find the first message whose id is at least `from`: store_next_ready a ready message, store_next_unready one that is not
 * ready, store_next_held one in any state. Return false if no message matches. */
bool store_next_ready(struct store *s, uint64_t from, uint64_t *id);
bool store_next_unready(struct store *s, uint64_t from, uint64_t *id, struct message **m);
bool store_next_held(struct store *s, uint64_t from, uint64_t *id);
/* `state` must not be STORE_GONE. */
void store_set_state(struct store *s, uint64_t id, struct message *m, unsigned state);

/* Removes the message. */
void store_drop(struct store *s, uint64_t id);

struct store_span {
    uint64_t first_id, last_id; /* ids of whole pages */
    uint64_t offset;            /* journal offset at which to start reading */
    bool kept;                  /* the page was rewritten, and its offset is not in the order of ids */
};

/* Makes `n` pending messages ready. `offset` is the journal offset of their record, and must ascend with the ids.
 * Returns the bytes of the messages. */
uint64_t store_commit(struct store *s, uint64_t first, uint64_t n, uint64_t offset);
/* Returns the lowest journal offset that a message still needs, or STORE_NO_OFFSET if no message is committed. */
uint64_t store_lowest_offset(struct store *s);

/* Adds a ready, spilled message whose copy is in the journal at `offset`. The id must be below s->next_id and not in
 * the store. */
void store_insert(struct store *s, uint64_t id, size_t len, uint64_t offset);
/* Returns the total bytes of the messages in pages whose offset is below `offset`. */
uint64_t store_bytes_below(const struct store *s, uint64_t offset);
/* Finds the first page whose offset is below `offset` and whose first id is at least `from`. Returns false if no page
 * matches. */
bool store_next_below(struct store *s, uint64_t offset, uint64_t from, struct store_span *out);
/* Sets the offset of a page whose messages were all appended to the journal again at `offset`. */
void store_set_kept(struct store *s, const struct store_span *page, uint64_t offset);

/* Spills pages, beginning with the last but one, until `bytes` bytes are freed. Excludes pages with ids from keep_from
 * to keep_to, pages that are being loaded, and the last loaded span. Returns the number of bytes freed. */
uint64_t store_spill(struct store *s, uint64_t keep_from, uint64_t keep_to, uint64_t bytes);
/* Returns true if the message is in the store and spilled. */
bool store_is_spilled(struct store *s, uint64_t id);
/* Returns true if the first `items` ready messages from `from` on, or the first `bytes` bytes of them, are in memory.
 * If false, *out is a span of about `chunk` bytes to load, or empty (last_id 0) if all needed spans are being loaded.
 * *through is the last id of the last page examined. If `follows` is true, `items` and `bytes` exclude the page of
 * `from`, whose ready messages may be below `from`. */
bool store_in_memory(struct store *s, uint64_t from, bool follows, size_t items, uint64_t bytes,
    uint64_t chunk, struct store_span *out, uint64_t *through);
/* Stores the page of a spilled message in *out. Returns false if the message is in memory or being loaded. */
bool store_span_of(struct store *s, uint64_t id, struct store_span *out);

/* To load a span, call store_load_begin, store_load for each message that is read from the journal, and
 * store_load_end. */
void store_load_begin(struct store *s, const struct store_span *span);
/* Loads a message, or ignores it if it is outside the span. Returns false if `text` and the spilled message differ in
 * length. */
bool store_load(struct store *s, uint64_t id, struct bytes text);
/* Returns true if messages of the span are not yet loaded. */
bool store_load_misses(struct store *s, const struct store_span *span);
/* Ends the load of the span. Returns false if a message of the span was not loaded. */
bool store_load_end(struct store *s, const struct store_span *span);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
