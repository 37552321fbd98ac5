/* nats_stream: the JetStream stream of a cluster: which settings it must have, and its creation.
 *
 * A stream fits if its messages leave it only by age, and if it loses no acknowledged message with one server. */
#ifndef MILLRACE_NATS_STREAM_H
#define MILLRACE_NATS_STREAM_H

#include "base/clock.h"
#include "base/error.h"

#include <nats/nats.h>

/* Minimum max_payload of a server and max_msg_size of a stream. With a lower limit, set by mistake, all messages of a queue would be
 * buried. */
#define NATS_PAYLOAD_MIN 65536

struct nats_stream {
    const char *name;
    bool create;         /* create the stream if it does not exist */
    int64_t replicas;    /* minimum number of replicas */
    usec_t max_age;      /* only for the creation */
    int64_t max_bytes;   /* only for the creation: refuse messages beyond this size; 0: unlimited */
    usec_t settle_after; /* minimum age at which messages may leave the stream */
};

/* Returns 0 if the stream exists, perhaps after its creation, and fits. Otherwise returns -1 with the error, which names
 * the setting. */
int nats_stream_check(jsCtx *js, const struct nats_stream *stream, struct error *error);

#endif
