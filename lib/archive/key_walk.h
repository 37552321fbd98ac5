/* key_walk: the keys of totals in a generation, in the order of their texts (docs/formats/records.md).
 *
 * The walk finds plain keys in the records of the totals, and the texts of hashed keys in the `texts` files of the
 * manifest. A hashed key belongs to a total if the total has a record of the hash. The walk merges the `texts` files
 * with the plain keys of each total, because both are in the same order.
 *
 * 1. A line is `TEXT,NS:N NS:N`: the text, and for each total that has the key, in the order of the request, the
 *    sum of its hours, or COUNT_SUM_TOO_LARGE. Lines are in the order of texts.
 * 2. A walk ends after `limit` lines, or after a bounded amount of work. `next` is then the text at which another walk
 *    continues; `next` sorts after `start`. Therefore a walk may find few keys, or no key, although more keys follow.
 * 3. A step handles one text. For each total, a step makes one search, and each search may wait for the disk. */
#ifndef MILLRACE_KEY_WALK_H
#define MILLRACE_KEY_WALK_H

#include "archive/generation.h"

struct key_walk;

struct key_walk_query {
    struct bytes prefix, start; /* texts, not escaped; an empty start begins at the first key */
    struct bytes contains;      /* only texts that contain this text, in any case of ASCII letters */
    const struct bytes *ns;     /* the namespaces of different totals */
    size_t n_ns;
    uint64_t limit;
    uint64_t
        max_search; /* a walk is refused if the records and texts from `start` on have more bytes; 0: no limit */
    unsigned effort; /* multiplies the work of a walk whose caller handles other events between steps; 0: 1 */
};

struct key_walk_answer {
    struct buf lines;
    bool is_too_large; /* max_search refused the walk */
    bool more;
    struct buf next; /* if `more`: the text at which to continue, not escaped */
};
void key_walk_answer_free(struct key_walk_answer *a);

/* The generation, and all texts of the query, must outlive the walk. Returns NULL if the generation has no `texts`
 * files. */
struct key_walk *key_walk_new(const struct generation *g, const struct key_walk_query *q);
void key_walk_free(struct key_walk **w);
/* Handles the next text, and appends its line, if any, to the answer. The caller zeroes the answer before the first
 * step. Returns false if the walk has ended. */
bool key_walk_step(struct key_walk *w, struct key_walk_answer *a);
/* Performs a whole walk. Returns false if the generation has no `texts` files. */
bool key_walk_run(const struct generation *g, const struct key_walk_query *q, struct key_walk_answer *a);

#endif
