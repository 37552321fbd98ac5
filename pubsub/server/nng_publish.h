/* nng_publish: repeats what is published on an nng PUB socket: a live look at the streams that may lose messages, and says so.
 *
 * A message is `NAME OFFSET` LF, and then whole lines of the stream NAME from OFFSET on. Who subscribes to "NAME " gets
 * that stream. nng's PUB never waits: a peer that does not keep up loses the oldest messages that wait for it. The peer
 * sees it by the offset, which is then not the end of the message before, and reads what it missed by /sub.
 *
 * 1. Only committed lines are repeated, those of one stream in their order.
 * 2. Streams are repeated from their end at the start on, those made later from offset 0.
 * 3. tap_dropped_total counts what nng has dropped for its peers: at least so many, since what is in its buffers may go
 *    either way. What retention or a hole took before the tap had read it counts as a gap, while
 *    somebody is connected: else nobody missed it.
 *
 * The loop thread only; nng's own threads send.
 */
#ifndef MILLRACE_PUBSUB_NNG_PUBLISH_H
#define MILLRACE_PUBSUB_NNG_PUBLISH_H

#include "config/options.h"
#include "base/stats.h"
#include "pubsub/stream/streams.h"

struct nng_publish;

#define NNG_PUBLISH_QUEUE_MAX 128 /* messages that wait for a peer */

/* The streams are recovered. The numbers, all of which /metrics shows, live until nng_publish_close. NULL with the error. */
struct nng_publish *nng_publish_open(
    struct streams *streams, const char *urls, struct stats *stats, struct config_error *error);
void nng_publish_close(struct nng_publish **t);
/* Begins with streams that are new, and looks at what was dropped. Call it about once a second. */
void nng_publish_tick(struct nng_publish *t);

#endif
