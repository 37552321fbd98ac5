/* spelling: which of the known names somebody may have meant.
 *
 *     struct spelling s = spelling_of("max_dept");
 *     for (each known name) spelling_try(&s, name);
 *     if (s.nearest != NULL) ... "did you mean max_depth?"
 *
 * A name is near when at most two single-character changes (one left out, one too many, one other) lead to it,
 * whatever is in capitals.
 */
#ifndef MILLRACE_SPELLING_H
#define MILLRACE_SPELLING_H

#include <stddef.h>

struct spelling {
    const char *name;    /* what was written, borrowed */
    const char *nearest; /* NULL: nothing is near; borrowed from the caller of spelling_try */
    size_t distance;
};

struct spelling spelling_of(const char *name);
void spelling_try(struct spelling *s, const char *known);

#endif
