/* cursor_keeper: moves a named cursor in each stream at pubsub, so that pubsub's retention never deletes uncounted
 * lines.
 *
 * 1. The keeper moves a cursor only to a position that a transaction of the slice has committed. Before the first
 *    commit, it moves the cursor to the position where counting begins. If lines after this position have expired, the
 *    keeper moves the cursor to the first remaining line. With this cursor, no more lines expire while the aggregator
 *    refuses the stream.
 * 2. Only the first request after a start may move a cursor back, because the slices may be a restored older copy. If
 *    pubsub refuses a later request, another process has moved the cursor, and the keeper logs the refusal.
 * 3. An owner's key protects the cursors, so that no other client moves them. The keeper creates the key once and
 *    stores it in DIR/cursor-key. A copy of the directory has the same key.
 * 4. A failed request is logged once and repeated at the next tick. After each start of pubsub, the keeper sends the
 *    position again, because pubsub may have lost the cursor.
 *
 * Only the loop's thread may use the keeper.
 */
#ifndef MILLRACE_CURSOR_KEEPER_H
#define MILLRACE_CURSOR_KEEPER_H

#include "aggregator/aggregate.h"
#include "base/random_id.h"

struct error;
struct follower;
struct http_client;
struct cursor_keeper;

/* Reads the owner's key, or creates the key. Returns 0, or -1 with the error and errno. */
int cursor_key_read(const char *dir, char key[RANDOM_ID_SIZE], struct error *error);
/* Borrows all arguments except `key`. In each stream the cursor has the name `name`. The followers must exist at the
 * first tick. Free the client before the keeper. */
struct cursor_keeper *cursor_keeper_new(struct http_client *client, const struct aggregate *a,
    struct follower *const *followers, size_t n_streams, const char *name, const char *key);
void cursor_keeper_free(struct cursor_keeper **k);
void cursor_keeper_tick(struct cursor_keeper *k);

#endif
