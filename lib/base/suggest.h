/* suggest: the known name nearest to a mistyped one.
 *
 *     struct suggest s = suggest_for("max_dept");
 *     for (each known name) suggest_try(&s, name);
 *     if (s.nearest != NULL) ... "did you mean max_depth?"
 *
 * A name is near when at most two single-character changes (one left out, one too many, one other) lead to it,
 * whatever is in capitals.
 */
#ifndef MILLRACE_SUGGEST_H
#define MILLRACE_SUGGEST_H

#include <stddef.h>

struct suggest {
    const char *name;    /* what was written, borrowed */
    const char *nearest; /* NULL: nothing is near; borrowed from the caller of suggest_try */
    size_t distance;
};

struct suggest suggest_for(const char *name);
void suggest_try(struct suggest *s, const char *known);

#endif
