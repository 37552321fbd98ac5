/* nng_publish: repeats committed lines on an nng PUB socket, as a lossy live feed.
 *
 * A message is `NAME OFFSET`, LF, and whole lines of the stream NAME from OFFSET on. A peer subscribes to "NAME ". PUB
 * never waits: a slow peer loses the oldest of its waiting messages. The peer detects the loss when a message's offset
 * is not the end of the previous message, and reads the missing lines with /sub.
 *
 * 1. The lines of one stream are sent in order.
 * 2. Streams that exist at startup are repeated from their end on, new streams from offset 0.
 * 3. tap_dropped_total is a lower bound of the messages dropped for slow peers: waiting messages may still be lost.
 *    tap_gaps_total counts runs of lines that were deleted or lost before they were sent, while a peer was connected.
 *
 * The loop thread only; nng's own threads send. */
#ifndef MILLRACE_PUBSUB_NNG_PUBLISH_H
#define MILLRACE_PUBSUB_NNG_PUBLISH_H

#include "config/options.h"
#include "base/stats.h"
#include "pubsub/stream/streams.h"

struct nng_publish;

#define NNG_PUBLISH_QUEUE_MAX 128 /* messages that wait for a peer */

/* The streams must be recovered. Returns NULL with the error. */
struct nng_publish *nng_publish_open(
    struct streams *streams, const char *urls, struct stats *stats, struct config_error *error);
void nng_publish_close(struct nng_publish **t);
/* Starts to repeat new streams, and counts dropped messages. Call it about once a second. */
void nng_publish_tick(struct nng_publish *t);

#endif
