/* key_search: the keys of totals in slices and batches, in the order of their texts, as sortdb has them (archive/key_walk.h).
 *
 * Slices have no lookups in the order of texts. So a search reads all their lookups, and then all records of the totals.
 *
 * 1. Lines, `next` and their order are those of key_walk. Each line has the sums over all layers.
 * 2. Of the keys that it finds, a search holds the first SEARCH_KEPT twice at most.
 */
#ifndef MILLRACE_KEY_SEARCH_H
#define MILLRACE_KEY_SEARCH_H

#include "counts/count_merge.h"

#define SEARCH_KEPT 4096

struct key_search_query {
    struct bytes prefix, start; /* texts, not escaped */
    const struct bytes *ns;     /* of totals; different, fewer than SEARCH_KEPT */
    size_t n_ns;
    uint64_t limit;
};

struct key_search;

/* Borrows the query's texts. */
struct key_search *key_search_new(const struct key_search_query *q);
void key_search_free(struct key_search **s);

/* Take the current record of the merge: first every lookup, then every record of each total. Return COUNT_FAILED if a value cannot be read. */
enum count_next key_search_take_lookup(struct key_search *s, struct count_merge *m);
enum count_next key_search_take_total(struct key_search *s, size_t ns, struct count_merge *m);

/* Appends the lines. Returns the number of keys. *more: more keys follow, from the text `next` on. */
uint64_t key_search_print(struct key_search *s, struct buf *lines, bool *more, struct buf *next);

#endif
