/* nng_publish: sends committed lines on an nng PUB socket, as a lossy live feed.
 *
 * A message consists of `NAME OFFSET`, an LF, and whole lines of the stream NAME that begin at OFFSET. A peer
 * subscribes to "NAME ". A PUB socket never waits: if a peer is slow, nng drops the oldest message that waits for the
 * peer. The peer detects the loss, because the offset of the next message is not the end of the previous message. The
 * peer can read the missing lines with /sub.
 *
 * 1. The lines of one stream are sent in order.
 * 2. For streams that exist at startup, only new lines are sent. A new stream is sent from offset 0.
 * 3. tap_dropped_total counts messages that were certainly dropped for slow peers. The actual number may be higher,
 *    because tap_dropped_total excludes messages that may still wait. tap_gaps_total counts gaps while a peer is
 *    connected; in a gap, lines were deleted or lost before they were sent.
 *
 * Call all functions on the event loop's thread. nng's own threads send the messages. */
#ifndef MILLRACE_PUBSUB_NNG_PUBLISH_H
#define MILLRACE_PUBSUB_NNG_PUBLISH_H

#include "config/options.h"
#include "base/stats.h"
#include "pubsub/stream/streams.h"

struct nng_publish;

#define NNG_PUBLISH_QUEUE_MAX 128 /* maximum number of messages that wait for a peer */

/* Opens the socket; the streams must be recovered. On failure, returns NULL with the error. */
struct nng_publish *nng_publish_open(
    struct streams *streams, const char *urls, struct stats *stats, struct error *error);
void nng_publish_close(struct nng_publish **t);
/* Starts to send new streams and counts dropped messages. Call nng_publish_tick about once per second. */
void nng_publish_tick(struct nng_publish *t);

#endif
