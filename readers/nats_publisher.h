/* nats_publisher: stores the messages of a queue in a JetStream stream, in order and without a hole.
 *
 * nats.c blocks, so a thread performs one request at a time, and calls on_outcome on the loop's thread.
 *
 * 1. The mark is the id before which the stream has all messages that are not settled. A power cut may lose messages in the
 *    middle of a stream, and a publish may be stored behind a loss. So the last message of the subject does not have the
 *    mark: nats_publisher_ask reads the headers of the messages of about the last SCAN_PARTS * settle_after.
 * 2. A publish names the sequence of the last message that the publisher knows. If the subject has another last message,
 *    because the stream has lost messages, was purged, or another process has published, JetStream stores nothing: the
 *    outcome is NATS_CONFLICT. A publish omits this sequence if the acknowledgement before it came over the same
 *    connection a few milliseconds ago. A loss in these milliseconds leaves a hole, which the next nats_publisher_ask finds.
 * 3. After NATS_FAILED a publish may be stored nevertheless. The caller repeats the publish, and then gets NATS_CONFLICT.
 * 4. A batch without an opening has that of the batch before.
 * 5. Each request connects if there is no connection. A request takes at most about three times nats_timeout for each
 *    server that does not answer. If a request takes longer, because a TLS handshake does not end, the process exits with
 *    status 75 (EX_TEMPFAIL). */
#ifndef MILLRACE_NATS_PUBLISHER_H
#define MILLRACE_NATS_PUBLISHER_H

#include "nats/nats_batch.h"
#include "nats/nats_stream.h"

struct event_base;
struct nats_publisher;

enum nats_result {
    NATS_ASKED,    /* outcome.mark is the mark, and outcome.opening the opening of the message before it */
    NATS_STORED,   /* the stream has acknowledged the batch */
    NATS_CONFLICT, /* see 2; ask again */
    NATS_REFUSED,  /* the stream can never store the batch */
    NATS_FAILED,   /* repeat the request */
};

/* Valid until the next request. */
struct nats_outcome {
    enum nats_result result;
    uint64_t mark; /* 0: the subject has no message */
    const char *opening;
    size_t max_lines; /* maximum bytes of the lines of a batch; 0: not known */
    const char *why;  /* REFUSED, FAILED */
};

struct nats_publisher_config {
    struct event_base *base;
    natsOptions *options;      /* destroyed by nats_publisher_free */
    struct nats_stream stream; /* the texts are borrowed */
    usec_t timeout;            /* of a request */
    size_t servers;            /* number of servers */
    void (*on_outcome)(const struct nats_outcome *outcome, void *arg);
    void *arg;
};

/* Returns NULL with errno if the thread cannot be started. */
struct nats_publisher *nats_publisher_new(const struct nats_publisher_config *config);
/* Waits for the request in progress, or ends the process as in 5. */
void nats_publisher_free(struct nats_publisher **p);
/* Call the functions below only while no request is in progress. The texts are borrowed until the outcome. */
/* The messages before id `settled` are settled; 0: not known. */
void nats_publisher_ask(struct nats_publisher *p, const char *queue_id, uint64_t settled);
/* Call nats_publisher_send only after an outcome NATS_ASKED for the same queue. */
void nats_publisher_send(struct nats_publisher *p, const struct nats_batch *batch);

#endif
