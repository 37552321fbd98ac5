/* cursor_keeper: moves a named cursor in each stream at pubsub, so that retention never deletes lines that are not counted.
 *
 * 1. The keeper moves a cursor only to a position that a transaction of the slice has committed, or, before the
 *    first, to where counting begins. If lines after that position have expired, the cursor moves to the first
 *    remaining line, so that no more lines expire while the aggregator refuses the stream.
 * 2. Only the first request after a start may move a cursor back, because the slices may be a restored older copy. If
 *    pubsub refuses a later request, another process has moved the cursor, and the keeper logs the refusal.
 * 3. The cursors have an owner's key, so that no other client moves them. The keeper creates the key once and stores it in
 *    DIR/cursor-key. A copy of the directory has the same key.
 * 4. A failed request is logged once and repeated at the next tick. After a start of pubsub, which may have lost the
 *    cursor, the keeper sends the position again.
 *
 * The loop's thread only.
 */
#ifndef MILLRACE_CURSOR_KEEPER_H
#define MILLRACE_CURSOR_KEEPER_H

#include "aggregator/aggregate.h"
#include "base/random_id.h"

struct error;
struct follower;
struct http_client;
struct cursor_keeper;

/* Reads the key, or creates it. Returns 0, or -1 with the error and errno. */
int cursor_key_read(const char *dir, char key[RANDOM_ID_SIZE], struct error *error);
/* Borrows all arguments but `key`. All cursors have the name `name`. The followers of the streams must exist at the first tick.
 * Free the client first. */
struct cursor_keeper *cursor_keeper_new(struct http_client *client, const struct aggregate *a,
    struct follower *const *followers, size_t n_streams, const char *name, const char *key);
void cursor_keeper_free(struct cursor_keeper **k);
void cursor_keeper_tick(struct cursor_keeper *k);

#endif
