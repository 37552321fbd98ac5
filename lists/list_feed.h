/* list_feed: makes the changes in the lines of a pubsub stream, each once.
 *
 * A line is {"op":"add","id":"i1","author":"ann","time":1700000000}, with `keys` instead of `author` for given lists; or
 * {"op":"remove","id":"i1"}, perhaps with `keys`; or {"op":"follow","follower":"bob","author":"ann"}, or unfollow. The settings
 * NAME_field give other paths of the fields. An id or a name may be an integer.
 *
 * 1. The operations and the cursor after their lines are one change of the lists (lists.h). After a kill, the feed continues at
 *    the cursor.
 * 2. A line that is not valid is counted and logged, and changes nothing.
 * 3. While a change is stored, further operations collect. At LIST_FEED_MAX bytes the stream pauses. A refused change is
 *    repeated.
 * 4. stream_feed.h describes when the feed stops. */
#ifndef MILLRACE_LIST_FEED_H
#define MILLRACE_LIST_FEED_H

#include "lists/lists_server.h"

#define LIST_FEED_MAX ((size_t)1 << 20)

enum list_feed_field {
    LIST_FEED_OP,
    LIST_FEED_ID,
    LIST_FEED_KEYS,
    LIST_FEED_AUTHOR,
    LIST_FEED_FOLLOWER,
    LIST_FEED_TIME,
    LIST_FEED_DATA,
    LIST_FEED_FIELDS
};
extern const char *const list_feed_fields[LIST_FEED_FIELDS]; /* names of the settings */

struct list_feed;

/* Follows the stream of the daemon's settings. Returns NULL with the error if the token of pubsub cannot be read. */
struct list_feed *list_feed_new(struct lists_server *server, struct error *error);
/* Calls no function of the lists any more. *f may be NULL. */
void list_feed_stop(struct list_feed *f);
/* Call after lists_close, because the lists may have the feed's change. */
void list_feed_free(struct list_feed **f);

#endif
