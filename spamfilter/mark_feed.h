/* mark_feed: applies the updates in the lines of a pubsub stream, each once.
 *
 * A line is {"op":"add","url":"bad.example","id":1700000000}. `op` is add, remove, allow or disallow. `id` is as in a
 * request: without one, spamfilter chooses the id of an add, and the exact table gives that of a removal.
 *
 * 1. The updates and the cursor after their lines are stored in one step: the feed is a follower of the store
 *    (mark_change), and the cursor's tag is ID.OPENING of stream_client.h. After a kill, the feed continues at the cursor.
 * 2. A line without an effect is counted and logged: a line that is not an update, a removal of a mark that does not
 *    exist, or an add to a full layer. The feed continues.
 * 3. While a change is being stored, further updates collect. At MARK_FEED_MAX bytes the stream pauses. If the change is
 *    refused, mark_feed_tick repeats it.
 * 4. The feed stops if lines at the cursor have expired, or the stream is not that of the cursor (stream_client.h). Checks
 *    and requests work, and a notice of the daemon says why. */
#ifndef MILLRACE_MARK_FEED_H
#define MILLRACE_MARK_FEED_H

#include "spamfilter/spamfilter_server.h"

#define MARK_FEED_MAX ((size_t)1 << 20)

struct mark_feed;

/* Follows the stream of the daemon's settings. Returns NULL with the error if the token of pubsub cannot be read. */
struct mark_feed *mark_feed_new(struct spamfilter *server, struct error *error);
/* From now on, the feed calls no function of the store. */
void mark_feed_stop(struct mark_feed *f);
/* Call mark_feed_free after mark_store_close, because the store may have the feed's change. *f may be NULL. */
void mark_feed_free(struct mark_feed **f);
/* Call mark_feed_tick about once a second. */
void mark_feed_tick(struct mark_feed *f);

#endif
