/* promql_arena: memory that is freed all at once: the parts of a parsed expression, and the values of an evaluation.
 *
 * Allocation never fails. `used` counts every byte, and the owner stops before a limit of its own. */
#ifndef MILLRACE_PROMQL_ARENA_H
#define MILLRACE_PROMQL_ARENA_H

#include "base/bytes.h"

struct arena {
    struct arena_block *newest;
    size_t left; /* free bytes at the end of the newest block */
    size_t used;
};

void *arena_alloc(struct arena *a, size_t size); /* zeroed, and aligned for any type */
struct bytes arena_copy(struct arena *a, struct bytes text);
void arena_free(struct arena *a);

#endif
