/* store_page: one page of a store, in one of three forms. Only the store includes it.
 *
 *   PAGE_BLOCK  bytes and records in one piece of memory, as puts fill it
 *   PAGE_SLOTS  a record with its id for each message; the bytes in one piece of memory, or spilled
 *   PAGE_BARE   a length for each id, 0 for a removed message; all messages ready and never delivered, bytes spilled
 *
 * Spilling makes a page BARE if its messages allow it, else SLOTS. page_find makes a BARE page SLOTS, without the disk.
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
    bool kept; /* rewritten: the offset is not in the order of ids */
    uint64_t first_id;
    size_t span; /* ids, from first_id on */
    size_t held, ready, pending;
    uint64_t bytes;  /* of its messages */
    uint64_t offset; /* in the journal; no message lies below it */
    char *memory;    /* SLOTS: bytes only, NULL if spilled */
    size_t size, used;
    struct page_slot *slots; /* rising ids */
    size_t n_slots;
    uint32_t *lens;
};

/* `will_fill`: takes the whole page from the kernel at once, because it will fill soon. */
struct store_page *page_new(size_t len, uint64_t first_id, bool will_fill);
void page_free(struct store_page *p);
/* An empty block again. */
void page_reset(struct store_page *p, uint64_t first_id);
/* BLOCK only. */
bool page_fits(const struct store_page *p, size_t len);
struct message *page_add(struct store_page *p, struct bytes text);
/* Takes the last id back if its message was dropped. */
bool page_undo(struct store_page *p);

/* NULL if it is not in the page. Makes a BARE page SLOTS. */
struct message *page_find(struct store_page *p, uint64_t id);
/* The first message at or after `from` that is ready, or that is not; false if there is none. */
bool page_next(struct store_page *p, uint64_t from, bool ready, uint64_t *id);
/* A copy of the message's record; state STORE_GONE if it is not in the page. Keeps the page's form. */
struct message page_peek(const struct store_page *p, uint64_t id);
void page_drop(struct store_page *p, uint64_t id);

static inline bool page_is_spilled(const struct store_page *p)
{
    return p->form != PAGE_BLOCK && (!p->memory || p->loading);
}
/* Bytes of memory. */
uint64_t page_cost(const struct store_page *p);

/* Empty SLOTS, spilled. */
struct store_page *page_new_slots(uint64_t first_id, uint64_t offset);
/* Adds a ready, spilled message to SLOTS. Its id is at or above first_id and not in the page. */
void page_insert(struct store_page *p, uint64_t id, size_t len);
/* Whether a message is spilled. */
bool page_is_partial(const struct store_page *p);

/* Whether it takes much more memory than its messages need, and page_compact helps. */
bool page_is_sparse(const struct store_page *p);
/* Copies the messages to SLOTS of their size. */
void page_compact(struct store_page *p);

void page_spill(struct store_page *p);
void page_load_begin(struct store_page *p);
bool page_load(struct store_page *p, uint64_t id, struct bytes text);
bool page_load_end(struct store_page *p);

#endif
