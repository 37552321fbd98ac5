/* copier: decides which messages of a JetStream stream a cell stores, and where it reads next
 * (docs/internals/cluster.md). The copier uses no clock and no sockets.
 *
 *     list ─▶ read a partition ─▶ run, run, ... ─▶ read the next partition, or the same queue again
 *      ▲                            │
 *      └── pubsub has other marks, or has restarted
 *
 * A cell copies some partitions. The lines of a queue are published to pubsub with the queue's id as producer and message
 * ids as marks. The mark M of a queue is the id after its last stored message.
 *
 * 1. A batch with ids A to B - 1 is compared with M. B <= M: a repetition, which is ignored. A < M < B: the lines before
 *    M are dropped. A = M: all lines are stored. A = B = M: a statement of time. A > M: a hole. pubsub compares M
 *    again, so two processes that copy the same partition store nothing twice. Repetitions and any order are harmless.
 * 2. A *place* is a message of the stream, with its sequence and its time. The *cursor* of a partition is a place: this
 *    message and all messages of the partition before it are in effect. pubsub stores the cursor in the same frame
 *    as lines and mark, as a part of the producer's opening (OPENING.SEQUENCE.TIME). So no file must agree with the marks,
 *    and a restored pubsub has the cursors of its marks. A statement stores the cursor at most once a minute.
 * 3. A read gives a run for each queue that it has. Each run stores the cursor before the read, so a crash between two
 *    runs repeats the whole read. After a start the cursor of a partition is the latest one of its queues, by time.
 * 4. JetStream may use a sequence again. The reader therefore compares the message at the place (nats_reader.h). If the
 *    stream has this message, the messages before it are also those that were read. Otherwise the copier reads from
 *    the beginning. A read that begins too early gives only repetitions.
 * 5. At a hole the partition waits. The copier reads the queue's own subject, from the cursor that was stored with M,
 *    then from the beginning, to its end, and beyond the batch with the hole, because a relay publishes lost messages
 *    again behind newer ones. The partition continues once M has reached A. Otherwise the hole is reported, and new
 *    messages of the queue are read. The cursor stays before the batch, so each start searches again, and finds the
 *    hole if it is still there.
 * 6. An old copy of a queue gives used ids to other messages. A batch with lines before M whose opening cannot be that
 *    of M's past is refused, and the partition waits. A message that is not a batch is refused in the same way.
 * 7. An operator accepts a loss with the queue and both ids, A to B. A hole with exactly these ids is passed, and a
 *    refused batch within these ids is ignored. Because M then changes, the acceptance has no further effect.
 * 8. A time is the earlier of the relay's statement and JetStream's timestamp of this batch. It is sent with the lines
 *    that it covers, or after them. A repetition with B < M states nothing. */
#ifndef MILLRACE_COPIER_H
#define MILLRACE_COPIER_H

#include "nats/nats_batch.h"

struct copier;

struct copy_place {
    uint64_t sequence; /* 0: before the first message */
    usec_t time;
};

struct copy_message {
    struct nats_batch batch;
    bool is_batch; /* false: the message has another form */
    struct copy_place place;
};

/* The next read: the messages after `after`. The text is valid until copier_read. */
struct copy_source {
    unsigned partition;
    const char *queue_id; /* only the messages of this queue; NULL: all of the partition */
    struct copy_place after;
    bool is_idle; /* there is nothing to read at present: call copier_source again after a pause */
};

/* What a read has found. The messages are borrowed until copier_run returns false. */
struct copy_read {
    const struct copy_message *messages;
    size_t n;         /* 0: the end */
    uint64_t pending; /* messages of the source that follow */
    usec_t began;     /* wall clock before the read */
    bool is_lost;     /* the stream has another message at `after`; n is 0 */
};

/* A publish. The texts are valid until copier_stored. */
struct copy_run {
    const char *queue_id;
    uint64_t mark, next; /* next == mark: a statement, which has no lines */
    struct bytes lines;
    const char *opening; /* with the cursor; "": a statement that does not store it */
    usec_t until;        /* 0: not known */
    const char *name;    /* "": none */
};

struct copy_lag {
    uint64_t messages,
        bytes;   /* messages that are not read yet; the bytes are estimated from those that were read */
    usec_t time; /* age of the oldest time up to which a partition is copied */
};

/* True if `losses` has the form QUEUEID:A-B, with several separated by spaces or commas. It may be NULL. */
bool copier_check_losses(const char *losses);
/* `partitions` is a set of bits. `losses` (rule 7) is borrowed. */
struct copier *copier_new(uint64_t partitions, const char *losses, usec_t now);
void copier_free(struct copier **c);

/* Begins again with the producers of the stream: forgets all marks, cursors and runs. */
void copier_begin(struct copier *c);
void copier_listed(struct copier *c, struct bytes producer, uint64_t mark, struct bytes opening);

/* Returns the same source until copier_read. */
struct copy_source copier_source(struct copier *c);
void copier_read(struct copier *c, const struct copy_read *read);
/* Returns false if all messages of the read are in effect. */
bool copier_run(struct copier *c, struct copy_run *run);
/* Returns the number of stored lines. */
uint64_t copier_stored(struct copier *c);

/* Returns the number of partitions that wait, and the reason of the first one. */
size_t copier_waiting(const struct copier *c, const char **why);
struct copy_lag copier_lag(const struct copier *c, usec_t now);

#endif
