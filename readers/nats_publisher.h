/* nats_publisher: stores the messages of a queue in a JetStream stream, in order and without a hole.
 *
 * A thread performs one request at a time (nats/nats_client.h). on_outcome is called on the loop's thread.
 *
 * 1. The mark is the id before which the stream has all messages that are not settled. An acknowledgement and the
 *    last message of the subject do not show that earlier messages are still there: a power cut may lose messages in
 *    the middle of a stream, and a publish may be stored behind a loss, or late. So nats_publisher_ask reads the
 *    headers of the messages from the place of the settled mark on, as a reader of the stream does. Each batch names
 *    this place, so that the next process begins there. A wrong place costs only time or a repetition.
 * 2. After NATS_FAILED a publish may be stored nevertheless, at any later time. A repetition and an overlap are
 *    harmless: readers ignore messages that they have (nats_batch.h).
 * 3. NATS_CONFLICT: the sequence of the acknowledgement shows a stream that was made again or restored.
 * 4. A batch without an opening has the opening of the previous batch.
 * 5. A request takes at most about three times nats_timeout for each server that does not answer. A request that
 *    hangs ends the process (nats/nats_client.h). */
#ifndef MILLRACE_NATS_PUBLISHER_H
#define MILLRACE_NATS_PUBLISHER_H

#include "nats/nats_batch.h"
#include "nats/nats_settings.h"
#include "nats/nats_stream.h"

struct event_base;
struct nats_publisher;

enum nats_result {
    NATS_ASKED,    /* outcome.mark is the mark, and outcome.opening the opening of the message before it */
    NATS_STORED,   /* the stream has acknowledged the batch */
    NATS_CONFLICT, /* see 3; ask again */
    NATS_REFUSED,  /* the stream can never store the batch */
    NATS_FAILED,   /* repeat the request */
};

/* Valid until the next request. */
struct nats_outcome {
    enum nats_result result;
    uint64_t mark, settled; /* ASKED */
    uint64_t aged;     /* ASKED: messages before this id are older than settle_after by JetStream's clock */
    uint64_t position; /* latest known sequence of the subject; 0: none */
    const char *opening;
    size_t max_lines; /* maximum bytes of the lines of a batch; 0: not known */
    const char *why;  /* REFUSED, FAILED */
};

struct nats_publisher_config {
    struct event_base *base;
    const char *name;              /* of the connections, for the nats-servers */
    const struct options *options; /* NATS_OPTIONS; each connection reads their files anew */
    struct nats_stream stream;     /* the texts are borrowed */
    void (*on_outcome)(const struct nats_outcome *outcome, void *arg);
    void *arg;
};

/* Returns NULL with the error if the settings are invalid, or if the thread cannot be started. */
struct nats_publisher *nats_publisher_new(const struct nats_publisher_config *config, struct error *error);
/* Waits for the request in progress, or ends the process (5). */
void nats_publisher_free(struct nats_publisher **p);
/* Call the functions below only while no request is in progress. The texts are borrowed until the outcome. */
/* The messages before id `settled` are settled; 0: not known. The scan ends early if the mark reaches `enough`; 0: it reads all. */
void nats_publisher_ask(struct nats_publisher *p, const char *queue_id, uint64_t settled, uint64_t enough);
/* Call nats_publisher_send only after an outcome NATS_ASKED for the same queue. */
void nats_publisher_send(struct nats_publisher *p, const struct nats_batch *batch);

#endif
