/* suggest: the known name nearest to a mistyped one.
 *
 *     struct suggest s = suggest_for("max_dept");
 *     for (each known name) suggest_try(&s, name);
 *     if (s.nearest != NULL) ... "did you mean max_depth?"
 *
 * A known name is near if at most two edits turn the mistyped name into it. An edit deletes, inserts or replaces one
 * character. Case does not matter. */
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
