/* suggest: the known name nearest to a mistyped one.
 *
 *     struct suggest s = suggest_for("max_dept");
 *     for (each known name) suggest_try(&s, name);
 *     if (s.nearest != NULL) ... "did you mean max_depth?"
 *
 * A name is near if at most two edits (delete, insert or replace a character) lead to it, ignoring case. */
#ifndef MILLRACE_SUGGEST_H
#define MILLRACE_SUGGEST_H

#include <stddef.h>

struct suggest {
    const char *name;    /* the mistyped name, borrowed */
    const char *nearest; /* NULL: none is near; borrowed from suggest_try */
    size_t distance;
};

struct suggest suggest_for(const char *name);
void suggest_try(struct suggest *s, const char *known);

#endif
