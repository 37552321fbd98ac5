/* store: the messages of one queue in memory, found by id.
 *
 * Ids are dense: each message takes the next one. So messages lie in pages in id order, a page being one
 * piece of memory that message bytes fill from the front and their records from the back:
 *
 *     | bytes of 7 | bytes of 8 | bytes of 9 | ...free... | record 9 | record 8 | record 7 |
 *
 * Finding an id is a binary search over pages and an index; a message costs its bytes and one record.
 *
 * 1. Bytes never move while their message is held: a span stays good until store_drop.
 * 2. A page is freed when none of its messages is held any more. One that is held keeps its page.
 * 3. store.next_id only grows, but for store_undo, which takes back ids that nobody was shown.
 */
#ifndef SIMPLEQUEUE_STORE_H
#define SIMPLEQUEUE_STORE_H

#include "bytes.h"

#define STORE_PAGE_BYTES (64 * 1024) /* a larger message has a page of its own */
#define STORE_NO_OFFSET UINT64_MAX

struct message {
    const char *ptr;
    void *owner; /* what its state needs: a lease, a timer, a burial */
    uint32_t len;
    unsigned tries : 24; /* deliveries, up to STORE_TRIES_MAX */
    unsigned state : 8;  /* 0: not held any more; the others are the queue's */
};
#define STORE_TRIES_MAX 0xffffff

struct store_page;

struct store {
    struct store_page **pages; /* pages[head..n) in id order */
    size_t head, n, cap;
    uint64_t next_id;
};

void store_init(struct store *s, uint64_t next_id);
void store_free(struct store *s);

/* Copies the message; it has s->next_id, which moves on. Its state is `state`, which is not 0. */
struct message *store_add(struct store *s, struct bytes text, unsigned state);
/* The next message has this id, which is not below s->next_id. */
void store_skip_to(struct store *s, uint64_t id);

/* NULL when it is not held. */
struct message *store_find(const struct store *s, uint64_t id);
/* The first message held whose id is at or after `from`; false when there is none. */
bool store_next(const struct store *s, uint64_t from, uint64_t *id, struct message **m);

/* The message is held no more. */
void store_drop(struct store *s, uint64_t id);
/* Takes back ids at the end that are dropped, down to `floor`, so that they are given again. */
void store_undo(struct store *s, uint64_t floor);

/* Notes where in the journal a committed message is. Offsets come in the order of ids. */
void store_set_offset(struct store *s, uint64_t id, uint64_t offset);
/* At or below the journal offset of every message held, and above what is not needed: that of the oldest
 * page. STORE_NO_OFFSET when none has one. */
uint64_t store_lowest_offset(const struct store *s);

static inline struct bytes message_bytes(const struct message *m)
{
    return bytes_of(m->ptr, m->len);
}

#endif
