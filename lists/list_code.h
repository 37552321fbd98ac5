/* list_code: the entries of a list, their merge, and the form of lists and items in the store.
 *
 * 1. An entry's *stamp* is the sequence of its last operation, times 2, plus 1 if that was a removal.
 * 2. list_merge takes the greatest time and the greatest stamp of each id. The result therefore depends neither on the order of
 *    merges nor on repetition. It keeps at most `limit` entries, the greatest by time and id. An entry moves only up, so an
 *    entry that was cut would be cut again.
 * 3. A removal of an id has no time (LIST_NO_TIME). Without another entry of the id, it is not in the list.
 *
 *   list: for each entry, the greatest first: time (the first), or the difference from the one before; difference of the stamps,
 *         zigzag; length of the id (1 byte); id
 *   item: number of lists; sequence of the last add, 0 without data; sequence of the last removal everywhere; data
 *
 * Numbers are varints: 7 bits a byte, the lowest first, and bit 7 set in all but the last. */
#ifndef MILLRACE_LISTS_LIST_CODE_H
#define MILLRACE_LISTS_LIST_CODE_H

#include "base/bytes.h"
#include "base/clock.h"

#define LIST_NO_TIME ((usec_t)-1)

struct unsaved_item;
struct list_entry {
    usec_t time;
    uint64_t stamp;
    struct bytes id;
    const struct unsaved_item *item; /* of an unsaved entry */
    uint32_t hash;                   /* of the id: text_hash */
    bool is_stored;                  /* decoded, also if it was changed then */
};
static inline bool list_entry_is_removed(const struct list_entry *e)
{
    return e->stamp & 1;
}
/* Compares by time, then by id: below 0 if `a` is before `b` in a list, because it is greater. */
int list_entry_compare(const struct list_entry *a, const struct list_entry *b);

struct list {
    struct list_entry *entries; /* the texts belong to others */
    size_t n;
    size_t cut;   /* entries after the first n, which the last merge has cut */
    size_t loose; /* entries after these: removals without another entry */
    size_t cap;
    uint32_t *slots; /* a hash table of the merge */
    size_t slots_cap;
};
void list_free(struct list *l);
/* Replaces the entries by those of an encoded list. Returns false if it is damaged. */
bool list_decode(struct list *l, struct bytes code);
void list_encode(const struct list *l, struct buf *out);
/* Adds an unmerged entry; call list_merge after the last. */
void list_add(struct list *l, const struct list_entry *e);
/* Merges the entries from `from` on into those before, which are merged already. */
void list_merge(struct list *l, size_t from, size_t limit);

struct list_item {
    uint64_t lists, sequence, removed;
    struct bytes data; /* points into the code */
};
bool list_item_decode(struct list_item *item, struct bytes code);
void list_item_encode(const struct list_item *item, struct buf *out);

#endif
