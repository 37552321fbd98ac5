/* sample_feed: stores the samples in the lines of a pubsub stream, each once, and cuts blocks.
 *
 * 1. The store's cursor is always after the lines whose samples it has (sample_store.h). After a kill, the feed continues at the
 *    cursor of the newest block.
 * 2. A thread writes a block. Meanwhile the stream pauses, and queries work. If a block cannot be written, the stream
 *    stays paused, and sample_feed_tick tries again.
 * 3. A named cursor at pubsub (cursor_keeper.h) keeps retention from deleting lines that no block has.
 * 4. Malformed lines and dropped samples are counted by reason. The feed continues.
 * 5. The feed stops if lines at the cursor have expired, or the stream is not that of the cursor (stream_client.h). Queries work, and a
 *    notice of the daemon says why.
 * 6. The daemon becomes ready when the feed has caught up with the stream, or when it cannot read the stream. */
#ifndef MILLRACE_METRICDB_SAMPLE_FEED_H
#define MILLRACE_METRICDB_SAMPLE_FEED_H

#include "daemon/daemon.h"
#include "metricdb/store/sample_store.h"

struct sample_feed;

/* Borrows the store. Returns NULL with the error. */
struct sample_feed *sample_feed_new(struct daemon *d, struct sample_store *store, struct error *error);
/* Waits for the block that is being written. Must be called before sample_store_close. *f may be NULL. */
void sample_feed_free(struct sample_feed **f);
/* Call sample_feed_tick about once a second. */
void sample_feed_tick(struct sample_feed *f);

#endif
