/* cursor_keeper: tells pubsub how far each stream is counted and committed, by a named cursor on it, so that retention
 * never passes what is not counted.
 *
 * 1. A cursor is moved only to where a committed transaction of the slice has got to.
 * 2. The first word after a start may move a cursor back: the slices may be an old copy, and what they have is what
 *    counts. Later ones may not: somebody else moves it then, which is said in the log.
 * 3. What fails is tried again at the next tick, and said once.
 *
 * The loop thread only.
 */
#ifndef MILLRACE_CURSOR_KEEPER_H
#define MILLRACE_CURSOR_KEEPER_H

#include "aggregator/aggregate.h"

struct http_client;
struct cursor_keeper;

/* `name` is the cursors' and is borrowed, as is everything; the client must be freed first. */
struct cursor_keeper *cursor_keeper_new(
    struct http_client *client, const struct aggregate *a, size_t n_streams, const char *name);
void cursor_keeper_free(struct cursor_keeper **k);
void cursor_keeper_tick(struct cursor_keeper *k);

#endif
