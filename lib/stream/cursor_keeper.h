/* cursor_keeper: moves a named cursor in each stream at pubsub, so that pubsub's retention never deletes lines
 * that a consumer still needs.
 *
 * 1. The keeper moves a cursor only to the position that the consumer states: the position that its files have, or before the
 *    first commit the position where it begins. If lines after this position have expired, the keeper moves the cursor
 *    to the first remaining line. With this cursor, no more lines expire while the consumer refuses the stream.
 * 2. Only the first request after a start may move a cursor back, because the files may be a restored older copy. If
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

#include "stream/stream_client.h"

struct error;
struct http_client;
struct cursor_keeper;

/* Reads the owner's key, or creates the key. Returns 0, or -1 with the error and errno. */
int cursor_key_read(const char *dir, char key[RANDOM_ID_SIZE], struct error *error);
struct kept_position {
    const char *stream, *id; /* `id` is ID or ID.OPENING (stream_client.h); "": no position yet */
    uint64_t offset;
    const struct stream_place *place; /* of the latest response */
};
struct cursor_keeper_config {
    struct http_client *client; /* borrowed; free the client before the keeper */
    const char *name;           /* of the cursor in each stream; borrowed */
    const char *key;            /* of cursor_key_read; copied */
    size_t n_streams;
    /* Returns the position of a stream, whose texts are valid until the next tick. */
    struct kept_position (*position)(void *arg, size_t stream);
    void *arg;
};
struct cursor_keeper *cursor_keeper_new(const struct cursor_keeper_config *config);
void cursor_keeper_free(struct cursor_keeper **k);
void cursor_keeper_tick(struct cursor_keeper *k);

#endif
