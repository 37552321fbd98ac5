/* key_search: finds the keys of totals in slices and batches, in the order of their texts. sortdb finds keys in the
 * same order (archive/key_walk.h).
 *
 * The text of a hashed key is in a separate record of the slice, its lookup (counts/records.h). Lookups are not sorted
 * by text. Therefore a search first reads all lookups, and then the records of the totals.
 *
 * 1. The lines, their order and `next` are the same as those of key_walk. Each line has the sums over all layers.
 * 2. A search holds at most twice the first SEARCH_KEPT keys that it finds.
 */
#ifndef MILLRACE_KEY_SEARCH_H
#define MILLRACE_KEY_SEARCH_H

#include "counts/count_merge.h"

#define SEARCH_KEPT 4096

struct key_search_query {
    struct bytes prefix, start; /* texts without escapes */
    struct bytes contains;      /* as in key_walk.h */
    const struct bytes *ns;     /* namespaces of totals, all different; fewer than SEARCH_KEPT */
    size_t n_ns;
    uint64_t limit;
};

struct key_search;

/* Borrows the query's texts. */
struct key_search *key_search_new(const struct key_search_query *q);
void key_search_free(struct key_search **s);

/* Take the current record of the merge into the search. First pass every lookup to key_search_take_lookup, then every
 * record of each total to key_search_take_total. Return COUNT_FAILED if a value cannot be read. */
enum count_next key_search_take_lookup(struct key_search *s, struct count_merge *m);
enum count_next key_search_take_total(struct key_search *s, size_t ns, struct count_merge *m);

/* Appends the lines of the search's result. Returns the number of keys. If *more is set, more keys follow, from the
 * text `next` on. */
uint64_t key_search_print(struct key_search *s, struct buf *lines, bool *more, struct buf *next);

#endif
