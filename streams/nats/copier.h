/* copier: decides which messages of a JetStream stream a cell stores, and where it reads next
 * (docs/internals/cluster.md). The copier uses no clock and no sockets.
 *
 *     next queue ─▶ ask pubsub for its mark, once ─▶ read ─▶ publish ─▶ next queue
 *
 * A cell copies the queues of some partitions, each by itself. The lines of a queue are published to pubsub with the
 * queue's id as producer and message ids as marks. The mark M of a queue is the id after its last stored message.
 *
 * 1. A batch with ids A to B - 1 is compared with M. B <= M: a repetition, which is ignored. A < M < B: the lines before
 *    M are dropped. A = M: all lines are stored. A = B = M: a statement of time. A > M: a hole. pubsub compares M
 *    again, so two processes that copy the same queue store nothing twice. Repetitions and any order are harmless.
 * 2. A *place* is a message of the queue in the stream, with its sequence and its time. All messages of the queue up to
 *    its place are in effect. pubsub stores the place in the same frame as lines and mark, as a part of the producer's
 *    opening (OPENING.SEQUENCE.TIME). So the copier needs no file that agrees with the marks, and a restored pubsub
 *    has the places of its marks. A statement stores the place at most once a minute.
 * 3. One read gives at most one publish. A crash repeats the read or finds it stored.
 * 4. JetStream may use a sequence again, after a restore or in a stream that was made again. So after a start, on a new
 *    connection and before a search, a read begins with the place itself. If the stream has this message with its time,
 *    the messages before it are also those that were read. If the stream does not have it, three times, because a
 *    replica may lag, the copier reads from the beginning. A read that begins too early gives only repetitions.
 * 5. At a hole the place stays. The copier reads the queue again from the place, then from the beginning, to the end and
 *    beyond the batch with the hole, because a relay publishes lost messages again behind newer ones. Once M has reached
 *    the first ignored batch, the copier reads again from the place. A server answers from its own copy of the stream, which
 *    may be without messages that the other copies have. So after an unsuccessful search, the copier requests a
 *    connection to another server. Each new connection searches again. If this search is also unsuccessful, the hole
 *    is reported, and the search continues with new messages. At each of its first eight ends, and then at the 16th,
 *    the 32nd and so on, the copier requests another server again: each of these searches reads the whole queue. Each
 *    start searches again, and finds the hole if it is still there. The other queues continue.
 * 6. An old copy of a queue gives used ids to other messages. A batch with lines before M whose opening cannot be that
 *    of M's past is refused, and the queue waits. A message that is not a batch, and lines that pubsub refuses, are
 *    refused in the same way.
 * 7. While a queue waits, pubsub is asked for its mark again. So an operator passes a hole, or drops the lines of an old
 *    copy, by setting the mark of the producer (`millrace producers`).
 * 8. A time is the earlier of the relay's statement and JetStream's timestamp of the message that the relay knew to be
 *    stored before it asked the queue (nats_batch.h). If this message is not known, the time is ignored. A time is sent
 *    with the lines that it covers, or after them. A repetition with B < M states nothing.
 * 9. A cell copies the partitions that it owns by the records in its pubsub (nats/partitions.h). The record of the
 *    partition is the guard of each publish, so pubsub stores nothing of a partition that it has left. A partition that
 *    returns has other marks, so pubsub is asked for them.
 * 10. The owner of a moved partition writes the number of the move into the stream, as a *claim*. A cell that finds a claim
 *    with a higher number than its own record was restored from a copy that is older than the move: it stops the
 *    partition. */
#ifndef MILLRACE_COPIER_H
#define MILLRACE_COPIER_H

#include "nats/nats_batch.h"
#include "stream/publisher.h"

struct copier;

struct copy_place {
    uint64_t sequence; /* 0: before the first message */
    usec_t time;
};

struct copy_message {
    struct nats_batch batch;
    struct copy_place place;
    usec_t limit; /* JetStream's timestamp of message batch.until_after; 0: not known */
};

enum copy_action {
    COPY_IDLE, /* there is nothing to read at present: call copier_next again after a pause */
    COPY_ASK,  /* ask pubsub for the mark of queue_id: copier_asked */
    COPY_READ, /* read the messages of queue_id after sequence `after`: copier_read */
};
struct copy_step {
    enum copy_action action;
    const char *queue_id;
    uint64_t after;
    struct copy_place place;
};

/* The result of a read. The messages are borrowed until copier_run returns false. */
struct copy_read {
    const struct copy_message *messages;
    size_t n;
    bool is_end;  /* the queue has no more messages */
    bool is_bad;  /* the next message is not a batch of this queue, or its lines do not fit its ids */
    usec_t began; /* wall clock before the read */
};

/* The state of the stream that JetStream shows. */
struct copy_stream {
    uint64_t first, last; /* sequences */
    usec_t created;
    uint64_t connection; /* number of the connection to the server */
    usec_t time;         /* wall clock before the request */
};

struct copy_lag {
    uint64_t messages; /* of the stream, behind the position of the queue that is furthest behind */
    usec_t time;       /* age of the oldest time up to which a queue is copied */
};

struct copier *copier_new(usec_t now);
void copier_free(struct copier **c);

/* Sets the record of a partition in pubsub, which the cell at first does not own. Returns true if it has changed. */
bool copier_own(struct copier *c, unsigned partition, bool is_owner, uint64_t number);
void copier_claimed(struct copier *c, unsigned partition, uint64_t number); /* by another cell */

/* Forgets all marks, because pubsub has other marks, or has restarted, perhaps from a backup. */
void copier_begin(struct copier *c);
void copier_see(struct copier *c, const struct copy_stream *stream);
/* The stream has only the subjects that copier_found names before the next call of copier_find. */
void copier_find(struct copier *c);
void copier_found(struct copier *c, const char *subject);

/* Returns the same step until its outcome is reported. */
struct copy_step copier_next(struct copier *c);
void copier_asked(struct copier *c, uint64_t mark, struct bytes opening);
void copier_read(struct copier *c, const struct copy_read *read);
/* Call after copier_read. Returns false if nothing is to be published. The texts are valid until the outcome. A run with
 * next == mark is a statement. */
bool copier_run(struct copier *c, struct publisher_run *run);
/* Returns the number of stored lines. */
uint64_t copier_stored(struct copier *c);
void copier_refused(struct copier *c, const char *why); /* pubsub has not stored the run and never will */

/* Returns the number of queues that wait, and the reason of the first one. */
size_t copier_waiting(const struct copier *c, const char **why);
/* Returns true until copier_see shows another connection, which should be to another server (rule 5). */
bool copier_wants_server(const struct copier *c);
struct copy_lag copier_lag(const struct copier *c, usec_t now);
uint64_t copier_partitions(const struct copier *c); /* that the cell copies, as a set of bits */
/* Returns the number of the stream's queues of which no read has ended without a hole. copier_lag does not show how far
 * these are behind. */
size_t copier_unread(const struct copier *c);

#endif
