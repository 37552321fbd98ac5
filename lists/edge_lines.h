/* edge_lines: lines that connect followers with authors, as operations.
 *
 * A line is FOLLOWER, a tab, and AUTHOR. A line without a tab is split at its first space. Empty lines are skipped. Adjacent lines
 * of one author become one operation. */
#ifndef MILLRACE_EDGE_LINES_H
#define MILLRACE_EDGE_LINES_H

#include "lists/list_op.h"

struct edge_lines {
    enum list_op_type type; /* LIST_FOLLOW or LIST_UNFOLLOW */
    struct buf author, names;
    size_t n_names; /* lines that are not appended yet */
};

/* Returns NULL, or the reason why a line is not valid. May append an operation to `ops`. */
const char *edge_lines_take(struct edge_lines *e, struct bytes line, struct buf *ops);
/* Appends the last operation. */
void edge_lines_end(struct edge_lines *e, struct buf *ops);
void edge_lines_free(struct edge_lines *e);

#endif
