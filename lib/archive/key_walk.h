/* key_walk: the keys of totals in a generation, in the order of their texts (docs/formats/records.md).
 *
 * A plain key is in the records of its total. The text of a hashed key is in the files of texts; the key is one of a total if the total
 * has a record of the hash. The walk merges the files of texts with the plain keys of each total, all of which are in one order.
 *
 * 1. A line is `TEXT,NS:N NS:N`: the text, and for each total that has the key, in the order of the request, the
 *    sum of its hours, at most 2^64 - 1. Lines are in the order of texts.
 * 2. A walk ends after `limit` lines, or after a bounded amount of work. `next` is then the text to continue with; it sorts after `start`.
 *    So a walk may find few keys, or none, although more follow.
 * 3. A step looks at one text. It makes a search for each total, and each search may wait for the disk. */
#ifndef MILLRACE_KEY_WALK_H
#define MILLRACE_KEY_WALK_H

#include "archive/generation.h"

struct key_walk;

struct key_walk_query {
    struct bytes prefix, start; /* texts, not escaped; an empty start begins at the first key */
    const struct bytes *ns;     /* of totals; different */
    size_t n_ns;
    uint64_t limit;
};

struct key_walk_answer {
    struct buf lines;
    bool more;
    struct buf next; /* if `more`: not escaped */
};
void key_walk_answer_free(struct key_walk_answer *a);

/* The generation and what the query points to must outlive the walk. NULL: the generation has no files of texts. */
struct key_walk *key_walk_new(const struct generation *g, const struct key_walk_query *q);
void key_walk_free(struct key_walk **w);
/* Appends the next line, if this text has one, to the answer, which is zeroed at first. False: the walk has ended. */
bool key_walk_step(struct key_walk *w, struct key_walk_answer *a);
/* All steps. False: the generation has no files of texts. */
bool key_walk_run(const struct generation *g, const struct key_walk_query *q, struct key_walk_answer *a);

#endif
