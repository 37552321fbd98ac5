/* nng_publish: repeats committed lines on an nng PUB socket, a lossy live feed.
 *
 * A message is `NAME OFFSET`, LF, and whole lines of stream NAME from OFFSET on. A peer subscribes to "NAME ". PUB never waits: a
 * slow peer loses the oldest messages that wait for it. It detects the loss by the offset, which is then not the end of the
 * message before, and reads the missing lines with /sub.
 *
 * 1. The committed lines of one stream come in their order.
 * 2. Streams that exist at the start are repeated from their end on, later ones from offset 0.
 * 3. tap_dropped_total is a lower bound of the messages dropped for peers: buffered ones may still be lost. tap_gaps_total
 *    counts runs of lines that retention or a hole took first, while a peer was connected.
 *
 * The loop thread only; nng's own threads send.
 */
#ifndef MILLRACE_PUBSUB_NNG_PUBLISH_H
#define MILLRACE_PUBSUB_NNG_PUBLISH_H

#include "config/options.h"
#include "base/stats.h"
#include "pubsub/stream/streams.h"

struct nng_publish;

#define NNG_PUBLISH_QUEUE_MAX 128 /* messages waiting for a peer */

/* The streams are recovered. NULL with the error. */
struct nng_publish *nng_publish_open(
    struct streams *streams, const char *urls, struct stats *stats, struct config_error *error);
void nng_publish_close(struct nng_publish **t);
/* Takes up new streams and counts dropped messages; call it about once a second. */
void nng_publish_tick(struct nng_publish *t);

#endif
