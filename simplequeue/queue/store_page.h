/* store_page: one page of a store, in one of three forms. Only the store includes it.
 *
 *   PAGE_BLOCK  bytes and records in one piece of memory, as puts fill it
 *   PAGE_SLOTS  a record with its id for each message held; their bytes in one piece of memory, or away
 *   PAGE_BARE   a length for each id, 0 for what is gone: all at rest, none ever delivered, bytes away
 *
 * A page that is spilled becomes BARE where that says all there is to say of it, else SLOTS. Asking a BARE page for
 * a message makes it SLOTS, which needs no disk.
 */
#ifndef SIMPLEQUEUE_STORE_PAGE_H
#define SIMPLEQUEUE_STORE_PAGE_H

#include "simplequeue/queue/store.h"

enum page_form { PAGE_BLOCK, PAGE_SLOTS, PAGE_BARE };

struct page_slot {
    uint64_t id;
    struct message m;
};

struct store_page {
    enum page_form form;
    bool loading;
    bool kept; /* its messages were appended again: offset is not in the order of ids */
    uint64_t first_id;
    size_t span; /* ids from first_id on that are its own */
    size_t held, ready, pending;
    uint64_t bytes;  /* of messages held */
    uint64_t offset; /* every committed message stands in the journal at or above it */
    char *memory;    /* SLOTS: of bytes only, NULL when they are away */
    size_t size, used;
    struct page_slot *slots; /* rising ids */
    size_t n_slots;
    uint32_t *lens;
};

/* `will_fill`: it will be, soon, so all of its memory may be taken at once. */
struct store_page *page_new(size_t len, uint64_t first_id, bool will_fill);
void page_free(struct store_page *p);
/* An empty block again. */
void page_reset(struct store_page *p, uint64_t first_id);
/* BLOCK only. */
bool page_fits(const struct store_page *p, size_t len);
struct message *page_add(struct store_page *p, struct bytes text);
/* Takes the last id back if it is of no message held. */
bool page_undo(struct store_page *p);

/* NULL when it is not held. Makes a BARE page SLOTS. */
struct message *page_find(struct store_page *p, uint64_t id);
/* The first message held at or after `from` that is at rest, or that is not; false when there is none. */
bool page_next(struct store_page *p, uint64_t from, bool ready, uint64_t *id);
/* A copy of the message's record, without changing the page's form; state STORE_GONE when it is not held. */
struct message page_peek(const struct store_page *p, uint64_t id);
void page_drop(struct store_page *p, uint64_t id);

static inline bool page_is_spilled(const struct store_page *p)
{
    return p->form != PAGE_BLOCK && (!p->memory || p->loading);
}
/* What it costs, whatever is held of it. */
uint64_t page_cost(const struct store_page *p);

/* SLOTS of nothing yet, away. */
struct store_page *page_new_slots(uint64_t first_id, uint64_t offset);
/* A message that is away joins SLOTS, at rest; its id is at or above first_id and not held. */
void page_insert(struct store_page *p, uint64_t id, size_t len);
/* Whether a message held is away. */
bool page_is_partial(const struct store_page *p);

/* Whether it costs much more than what is held of it, and can be made smaller. */
bool page_is_sparse(const struct store_page *p);
/* SLOTS of what is held, in memory of their own. */
void page_compact(struct store_page *p);

void page_spill(struct store_page *p);
void page_load_begin(struct store_page *p);
bool page_load(struct store_page *p, uint64_t id, struct bytes text);
bool page_load_end(struct store_page *p);

#endif
