/* cursor_keeper: keeps a named cursor on each stream at pubsub, so that retention never passes lines that are not counted.
 *
 * 1. A cursor moves only to where a committed transaction of the slice has got to; at first to where the stream begins.
 * 2. The first request after a start may move a cursor back: the slices may be an older copy, which counts again from there.
 *    Later requests may not: then another process moves the cursor, which is logged.
 * 3. A request that fails is repeated at the next tick, and logged once.
 *
 * The loop's thread only.
 */
#ifndef MILLRACE_CURSOR_KEEPER_H
#define MILLRACE_CURSOR_KEEPER_H

#include "aggregator/aggregate.h"

struct http_client;
struct cursor_keeper;

/* Borrows all arguments. `name` is that of the cursors. Free the client first. */
struct cursor_keeper *cursor_keeper_new(
    struct http_client *client, const struct aggregate *a, size_t n_streams, const char *name);
void cursor_keeper_free(struct cursor_keeper **k);
void cursor_keeper_tick(struct cursor_keeper *k);

#endif
