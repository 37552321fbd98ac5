/* nats_reader: reads the messages of a queue from a JetStream stream, in order, and lists the stream's queues. The functions
 * block, so they are called on the thread of a nats_client. If they fail, they set the client's error.
 *
 * 1. A read asks for the next message of a subject after a sequence (a direct get), again and again. There is no consumer
 *    that could skip, repeat or lose messages. Any replica of the stream answers. One message is in flight.
 * 2. On a new connection, nats_reader_find must succeed before the next read, because the stream may be another one.
 * 3. The list of subjects is read only if their number has changed, on a new connection, in a stream that was made again, and
 *    every ten minutes: the server reads the index of each block of the stream for it.
 * 4. With each list, the reader compares the claims of the cell's partitions (copier.h, rule 10), and writes those that the
 *    stream does not have. The leader answers, because another replica may not have the latest claim yet. */
#ifndef MILLRACE_NATS_READER_H
#define MILLRACE_NATS_READER_H

#include "nats/nats_client.h"
#include "streams/nats/copier.h"

#define NATS_READ_MESSAGES 100
#define NATS_READ_BYTES ((size_t)3 << 20) /* a read ends with the message that reaches this size */

struct nats_claim {
    bool is_owner;
    uint64_t number, found; /* the cell's record; the latest claim in the stream */
};

/* Zeroed, with `stream` set. The results are valid until the next call. */
struct nats_reader {
    const char *stream;
    struct copy_read read;
    struct copy_stream state;
    uint64_t mean_bytes;                       /* of the stream's messages */
    usec_t max_age;                            /* of the stream's messages */
    const jsStreamStateSubjects *subjects;     /* NULL: as before */
    struct nats_claim claims[NATS_PARTITIONS]; /* the owner sets is_owner and number */
    bool is_changed;                           /* set by the owner: list the subjects in any case */
    /* private */
    jsStreamInfo *info;
    int64_t n_subjects;
    usec_t listed_at; /* 0: not yet */
    natsMsg *raw[NATS_READ_MESSAGES];
    struct copy_message messages[NATS_READ_MESSAGES];
};

/* Sets `read`. */
void nats_reader_read(struct nats_reader *r, struct nats_client *c, const struct copy_step *step);
/* Sets `state`, `mean_bytes`, `max_age` and `subjects`. */
void nats_reader_find(struct nats_reader *r, struct nats_client *c);
void nats_reader_forget(struct nats_reader *r); /* frees the results */

#endif
