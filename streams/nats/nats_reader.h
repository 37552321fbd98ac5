/* nats_reader: reads the messages of a queue from a JetStream stream, in order, and lists the stream's queues.
 *
 * nats.c blocks, so a thread performs one request at a time (nats/nats_client.h), and calls on_outcome on the loop's thread.
 *
 * 1. A read asks for the next message of a subject after a sequence (a direct get), again and again. There is no consumer
 *    that could skip, repeat or lose messages. Any replica of the stream answers. One message is in flight.
 * 2. On a new connection, nats_reader_find must succeed before the next read, because the stream may be another one.
 * 3. The list of subjects is read only if their number has changed, and every ten minutes: the server reads the index of each
 *    block of the stream for it. */
#ifndef MILLRACE_NATS_READER_H
#define MILLRACE_NATS_READER_H

#include "streams/nats/copier.h"

#define NATS_READ_MESSAGES 100
#define NATS_READ_BYTES ((size_t)3 << 20) /* a read ends with the message that reaches this size */

struct event_base;
struct nats_reader;

/* Valid until the next request. */
struct nats_read_outcome {
    const char *error; /* "": none; otherwise repeat the request */
    struct copy_read read;
    /* Of nats_reader_find. */
    const jsStreamInfo *info;
    uint64_t connection;                   /* nats_client_number */
    const jsStreamStateSubjects *subjects; /* NULL: as before */
};

struct nats_reader_config {
    struct event_base *base;
    natsOptions *options; /* destroyed by nats_reader_free */
    const char *stream;   /* borrowed */
    usec_t timeout;       /* of a request */
    size_t servers;       /* number of servers */
    void (*on_outcome)(const struct nats_read_outcome *outcome, void *arg);
    void *arg;
};

/* Returns NULL with errno if the thread cannot be started. */
struct nats_reader *nats_reader_new(const struct nats_reader_config *config);
/* Waits for the request in progress, or ends the process (nats/nats_client.h). */
void nats_reader_free(struct nats_reader **r);
/* Call the functions below only while no request is in progress. The step's text is borrowed until the outcome. */
void nats_reader_read(struct nats_reader *r, const struct copy_step *step);
void nats_reader_find(struct nats_reader *r);

#endif
