/* suggest: finds the known name that is nearest to a mistyped name.
 *
 *     struct suggest s = suggest_for("max_dept");
 *     for (each known name) suggest_try(&s, name);
 *     if (s.nearest != NULL) ... "did you mean max_depth?"
 *
 * A known name is near if at most two edits turn the mistyped name into the known name. An edit deletes, inserts or
 * replaces one character. The comparison ignores case. */
#ifndef MILLRACE_SUGGEST_H
#define MILLRACE_SUGGEST_H

#include <stddef.h>

struct suggest {
    const char *name;    /* the mistyped name, borrowed */
    const char *nearest; /* the nearest known name, borrowed from suggest_try; NULL: no known name is near */
    size_t distance;
};

struct suggest suggest_for(const char *name);
void suggest_try(struct suggest *s, const char *known);

#endif
