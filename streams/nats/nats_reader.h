/* nats_reader: reads the messages of a partition, or of one queue, from a JetStream stream, in order.
 *
 * nats.c blocks, so a thread performs one request at a time, and calls on_outcome on the loop's thread.
 *
 * 1. The caller names the place after which it reads. A *consumer* of JetStream only saves the search for this place. If
 *    the consumer is not at the place, or a message does not have the consumer's next number, the consumer is made anew
 *    at the place.
 * 2. A new consumer is used only if the stream has, at the place, a message with the time of the place, or if all
 *    messages up to the place have expired. Otherwise the outcome is NATS_LOST_PLACE. The check follows the creation, so a
 *    stream that is made again in between is found, too.
 * 3. JetStream acknowledges nothing and repeats nothing. Consumers are kept in memory by one server, which deletes them
 *    after a minute without a read. A connection has its own consumers.
 * 4. A read asks for at most NATS_READ_MESSAGES messages and NATS_READ_BYTES (or one message of max_payload). No other
 *    read is in progress, so at most these bytes are in flight. Servers skip messages if tens of megabytes are.
 * 5. Each request connects if there is no connection. A request takes at most about three times nats_timeout for each
 *    server that does not answer. */
#ifndef MILLRACE_NATS_READER_H
#define MILLRACE_NATS_READER_H

#include "base/stats.h"
#include "streams/nats/copier.h"

#define NATS_READ_MESSAGES 1000
#define NATS_READ_BYTES (INT64_C(4) << 20)

struct event_base;
struct nats_reader;

enum nats_read_result {
    NATS_READ,       /* `read` has the next messages */
    NATS_LOST_PLACE, /* read.is_lost is set */
    NATS_READ_FAILED /* repeat the request */
};

/* Valid until the next request. */
struct nats_read_outcome {
    enum nats_read_result result;
    struct copy_read read;
    const char *why; /* READ_FAILED */
};

struct nats_reader_config {
    struct event_base *base;
    natsOptions *options; /* destroyed by nats_reader_free */
    const char *stream;   /* borrowed */
    usec_t timeout;       /* of a request */
    struct stats_counter *consumers_made;
    void (*on_outcome)(const struct nats_read_outcome *outcome, void *arg);
    void *arg;
};

/* Returns NULL if the thread cannot be started, with errno. */
struct nats_reader *nats_reader_new(const struct nats_reader_config *config);
/* Waits for the request in progress. */
void nats_reader_free(struct nats_reader **r);
/* Call nats_reader_read only while no request is in progress. The source's text is borrowed until the outcome. */
void nats_reader_read(struct nats_reader *r, const struct copy_source *source);

#endif
