/* nats_batch: the messages of a queue in a JetStream stream (docs/internals/cluster.md).
 *
 * The relay of a queue publishes to one subject, STREAM.PARTITION.QUEUEID. A JetStream message is a *batch*: its body has
 * the lines of some messages of the queue, and its headers have the ids of these messages.
 *
 * 1. A batch with marks A and B has all messages of the queue with an id of at least A and less than B that exist and
 *    are not buried.
 * 2. Exactly once rests on the ids alone. A reader with mark M ignores a batch with B <= M, drops the lines before M of a
 *    batch with A < M, and ignores a batch with A > M: its relay will publish the missing messages again.
 * 3. Each line has an id: `ids` lists the ids of the lines in order. If `ids` is empty, line i has the id A + i.
 * 4. The partition of a queue never changes. */
#ifndef MILLRACE_NATS_BATCH_H
#define MILLRACE_NATS_BATCH_H

#include "base/bytes.h"
#include "base/clock.h"
#include "nats/partitions.h"

#include <nats/nats.h>

#define NATS_SUBJECT_MAX 160        /* bytes of a subject, with its NUL */
#define NATS_BATCH_HEADERS_MAX 4096 /* bytes of the headers, also of those that nats.c adds */

struct nats_batch {
    const char *queue_id;
    uint64_t mark, next; /* A and B; A == B: no lines, only a statement of `until` */
    const char *opening; /* the opening (journal/opening.h) of message B - 1; "": unknown */
    usec_t until; /* earlier accepted messages of the queue are in this or an earlier batch; 0: not known */
    /* A reader lowers `until` to JetStream's timestamp of the message with this sequence, which was stored before the relay
     * asked the queue. 0: not known. */
    uint64_t until_after;
    /* For the next relay: messages before id `settled` were settled, and no message of the subject before sequence
     * `settled_at` has a later id. 0: not known. */
    uint64_t settled, settled_at;
    const char *name;   /* name by which people know the queue; "": none */
    const char *ids;    /* such as "7-9,12-12"; "": see 3 */
    struct bytes lines; /* each with its LF */
};

void nats_subject(const char *stream, const char *queue_id, char out[NATS_SUBJECT_MAX]);

/* Makes a message of the batch. Returns NATS_MAX_PAYLOAD if headers and lines are longer than `max_payload`, and
 * NATS_INSUFFICIENT_BUFFER if the headers are longer than NATS_BATCH_HEADERS_MAX. The caller destroys the message. */
natsStatus nats_batch_encode(
    const struct nats_batch *b, const char *subject, size_t max_payload, natsMsg **out);
/* Reads a message. The texts of `out` belong to the message. Returns false if a header is missing or invalid. */
bool nats_batch_decode(natsMsg *m, struct nats_batch *out);
/* Appends the lines with an id of at least `from` to *out, unless `out` is NULL. Returns false if the lines do not fit the
 * ids (3). */
bool nats_batch_lines(const struct nats_batch *b, uint64_t from, struct buf *out);
/* Returns the id of the first line of a batch with lines that fit the ids. */
uint64_t nats_batch_first_id(const struct nats_batch *b);

#endif
