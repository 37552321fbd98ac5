/* unsaved: the changes in memory that the store does not have.
 *
 * 1. Unsaved keys, edges and items form a queue in the order of their first change. A *batch* is the beginning of the queue,
 *    taken out to be saved. A key that changes while it is in the batch gets a second object.
 * 2. An item is a version: an add with its data, or a removal from all lists. The loop never changes it, so the thread that
 *    saves the batch reads it without a lock. A version is saved after or together with the earlier versions of its id. The
 *    newest version also has the sequence of the last unsaved removal.
 * 3. A key has the log of its entries. When it has twice as many as a list stores, it is merged. An entry that is cut then stays
 *    only if the store has its item, because the stored list may have the id with a later time. A log is not merged while the
 *    batch has the key.
 * 4. Because of the order, a removal is saved after all keys with entries that it hides.
 * 5. `memory` counts what the allocator takes for all this, without the arrays of the hash tables (about 2 bytes an object).
 *
 * The time is monotonic. All calls are in the loop's thread. */
#ifndef MILLRACE_LISTS_UNSAVED_H
#define MILLRACE_LISTS_UNSAVED_H

#include "base/text_hash.h"

#include "base/clock.h"
#include "lists/list_code.h"

#include <sys/queue.h>
#include <uthash.h>

/* An element of the queue. */
struct unsaved_change {
    STAILQ_ENTRY(unsaved_change) link;
    enum unsaved_type { UNSAVED_KEY, UNSAVED_EDGE, UNSAVED_ITEM } type;
    uint64_t sequence; /* of the first operation */
    usec_t since;
};
STAILQ_HEAD(unsaved_queue, unsaved_change);
struct unsaved_item {
    struct unsaved_change change; /* first; sequence 0: outside of the queue */
    UT_hash_handle hh;
    size_t refs;
    uint64_t added;   /* sequence of the add; 0: a removal, without data */
    uint64_t removed; /* sequence of the last unsaved removal; 0: none */
    bool is_newest;   /* in the table of items */
    uint32_t data_len;
    uint8_t id_len;
    uint32_t hash;
    char text[]; /* id, data */
};
struct unsaved_entry {
    usec_t time;
    uint64_t stamp;
    struct unsaved_item *item;
};

struct unsaved_key {
    struct unsaved_change change; /* first */
    UT_hash_handle hh;
    struct unsaved_entry *entries;
    size_t n, cap;
    size_t len;
    char text[];
};
struct unsaved_edge {
    struct unsaved_change change; /* first */
    UT_hash_handle hh;
    STAILQ_ENTRY(unsaved_edge) next; /* of the author */
    struct unsaved_author *author;
    bool follows;
    bool is_latest; /* of this author and follower */
    uint8_t follower_len;
    char text[]; /* name of the author with its length, follower */
};
struct unsaved_author {
    UT_hash_handle hh;
    STAILQ_HEAD(, unsaved_edge) edges;
    uint8_t len;
    char text[];
};

struct unsaved {
    size_t limit;                                  /* entries that a list stores */
    bool (*is_stored)(struct bytes id, void *arg); /* whether the store has an item */
    void *arg;
    struct unsaved_key *keys, *batch_keys;
    struct unsaved_item *items; /* the newest versions */
    struct unsaved_edge *edges; /* the latest of each author and follower */
    struct unsaved_author *authors;
    struct unsaved_queue queue, batch;
    struct unsaved_edge *walk; /* the next edge of unsaved_walk_next */
    size_t memory;
    uint64_t n_keys, n_entries, n_edges; /* with those of the batch */
    struct list scratch;
};

void unsaved_init(struct unsaved *u, size_t limit, bool (*is_stored)(struct bytes id, void *arg), void *arg);
void unsaved_free(struct unsaved *u);

/* Returns a new version with one reference: an add, or a removal without data. */
struct unsaved_item *unsaved_put_item(
    struct unsaved *u, struct bytes id, struct bytes data, bool is_removal, uint64_t sequence, usec_t now);
/* Returns an item that only carries an id, with one reference. */
struct unsaved_item *unsaved_item_name(struct unsaved *u, struct bytes id);
void unsaved_item_release(struct unsaved *u, struct unsaved_item *item);
/* Returns the newest version of an id with this text_hash, or NULL. */
const struct unsaved_item *unsaved_find_item(struct unsaved *u, struct bytes id, uint32_t hash);

/* Adds an entry to a key, or a removal if the time is LIST_NO_TIME, by the operation with this sequence. */
void unsaved_put(struct unsaved *u, struct bytes key, struct unsaved_item *item, usec_t time,
    uint64_t sequence, usec_t now);
void unsaved_put_edge(struct unsaved *u, struct bytes author, struct bytes follower, bool follows,
    uint64_t sequence, usec_t now);

/* Appends a key's unsaved entries to a list, for list_merge. */
void unsaved_append_entries(const struct unsaved_key *key, struct list *list);
/* Appends the unsaved entries of a key, those of the batch first. */
void unsaved_append_all(struct unsaved *u, struct bytes key, struct list *list);

/* The unsaved edges of an author: begin, then next until NULL. Edges may be saved and freed in between. */
void unsaved_walk_begin(struct unsaved *u, struct bytes author);
const struct unsaved_edge *unsaved_walk_next(struct unsaved *u);
/* Returns the latest unsaved edge, or NULL. */
const struct unsaved_edge *unsaved_find_edge(struct unsaved *u, struct bytes author, struct bytes follower);

/* The oldest change outside of the batch, or NULL. */
const struct unsaved_change *unsaved_oldest(const struct unsaved *u);
/* Moves at most `n` changes into the empty batch, and no more after about `bytes` bytes. */
void unsaved_begin_batch(struct unsaved *u, size_t n, size_t bytes);
void unsaved_end_batch(struct unsaved *u); /* frees the batch */

#endif
