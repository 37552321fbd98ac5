/* queue_log: encodes and decodes the records of a queue's journal, in memory. docs/formats/simplequeue.md describes the
 * layout.
 *
 * A record is the payload of one journal frame. An encoder appends to a buffer. A decoded record points into the
 * payload.
 *
 * 1. If queue_log_decode accepts a record, queue_record_next cannot fail.
 * 2. Every record contains an id that is at most the id of the next message. After older frames are trimmed, a
 *    restarted daemon therefore still knows the next id. */
#ifndef SIMPLEQUEUE_QUEUE_LOG_H
#define SIMPLEQUEUE_QUEUE_LOG_H

#include "base/bytes.h"
#include "base/clock.h"
#include "simplequeue/queue/queue.h"
#include "simplequeue/queue/queue_openings.h"

enum queue_record_type {
    RECORD_PUT = 1,  /* messages; `id` is the id of the first message */
    RECORD_REMOVE,   /* ranges of ids of removed messages */
    RECORD_DELAY,    /* ids and tries of messages that are delayed until `time` */
    RECORD_BURY,     /* ids and tries of messages that were buried at `time`, with a reason */
    RECORD_MOVE,     /* messages that become ready under new ids, and their old ids; `id`: the first new id */
    RECORD_OPEN,     /* the queue's openings, and the base of new lease numbers (`lease_base`) */
    RECORD_PUT_LATE, /* messages as in PUT, but delayed until `time` */
    RECORD_KEEP,     /* copies of messages with ids and states, so that older records can be trimmed */
};

enum queue_kept { KEPT_READY, KEPT_DELAYED, KEPT_BURIED };

struct queue_record {
    enum queue_record_type type;
    uint32_t n;          /* number of items */
    uint64_t id;         /* the first new id; in a record without messages, at most the next message's id */
    usec_t time;         /* DELAY, BURY, PUT_LATE: wall clock */
    uint64_t lease_base; /* OPEN: new lease numbers are above this base */
    struct bytes reason; /* BURY: the reason for the burial */
    struct bytes table, text; /* the items that queue_record_next has not yet returned */
};

struct queue_record_item {
    /* REMOVE: the range; DELAY, BURY, MOVE, KEEP: `first` and `last` are both the message's id before the change; OPEN: the opening's first id */
    struct id_range ids;
    uint32_t tries;       /* DELAY, BURY, MOVE, KEEP: number of deliveries */
    struct bytes opening; /* OPEN: an encoded opening (see opening_decode) */
    struct bytes message; /* PUT, PUT_LATE, MOVE, KEEP */
    enum queue_kept kept; /* KEEP: state of the message */
    usec_t time;          /* KEEP: wall-clock time when the message is due or was buried */
    struct bytes reason;  /* KEEP: reason for the burial */
};

/* Decodes the head of a record. Returns false, with a static text in *reason, if the record is invalid or has an
 * unknown version or type. */
bool queue_log_decode(struct bytes payload, struct queue_record *out, const char **reason);
/* Returns the size of the record at the beginning of `start`, 0 if the record is incomplete, or SIZE_MAX if the bytes
 * are not a record. */
size_t queue_log_measure(struct bytes start);
/* Returns true if the messages of the record have consecutive ids that begin with r->id. */
bool queue_record_is_dense(const struct queue_record *r);
/* Returns the number of messages that the record in `payload` stores; 0 if it stores none. */
uint64_t queue_log_count_messages(struct bytes payload);
/* Stores the next item of the record in *item. Returns false after the last item. */
bool queue_record_next(struct queue_record *r, struct queue_record_item *item);

/* Encoders. For PUT, PUT_LATE, MOVE and KEEP, the encoder excludes the bytes of the messages, and the caller must
 * append these bytes. In a KEEP record, the reason for a burial follows the bytes of its message. */
void queue_log_put(struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n);
/* Returns the size of a PUT record for `n` messages with `bytes` bytes in total. A PUT_LATE record is 8 bytes
 * longer. */
uint64_t queue_log_put_size(size_t n, uint64_t bytes);
void queue_log_put_late(
    struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n, usec_t due);
void queue_log_move(struct buf *out, uint64_t first_id, const struct queue_record_item *items, size_t n);
void queue_log_keep(struct buf *out, uint64_t next_id, const struct queue_record_item *items, size_t n);
void queue_log_remove(struct buf *out, uint64_t next_id, const struct id_ranges *ids);
void queue_log_open(
    struct buf *out, uint64_t next_id, uint64_t lease_base, const struct queue_openings *openings);
/* queue_log_delay and queue_log_bury read the tries of the messages from the queue. */
void queue_log_delay(struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_log_bury(
    struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t buried_at, struct bytes reason);

#endif
