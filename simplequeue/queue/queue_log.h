/* queue_log: encodes and decodes the records of a queue's journal, in memory. docs/formats/simplequeue.md has the layout.
 *
 * A record is the payload of one journal frame. An encoder appends to a buffer. A decoded record points into the payload.
 *
 * 1. After queue_log_decode accepts a record, queue_record_next needs no further check.
 * 2. Every record carries an id, at most the id of the next message, so that ids continue after older frames are
 *    trimmed.
 */
#ifndef SIMPLEQUEUE_QUEUE_LOG_H
#define SIMPLEQUEUE_QUEUE_LOG_H

#include "base/bytes.h"
#include "base/clock.h"
#include "simplequeue/queue/queue.h"

enum queue_record_type {
    RECORD_PUT = 1,  /* messages; `id` is the id of the first */
    RECORD_REMOVE,   /* ranges of removed ids */
    RECORD_DELAY,    /* ids with their tries, due at `time` */
    RECORD_BURY,     /* ids with their tries, buried at `time`, with a reason */
    RECORD_MOVE,     /* messages that are ready under new ids, with their old ids; `id` is the first new id */
    RECORD_OPEN,     /* the daemon opened the queue; its lease numbers are above `lease_base` */
    RECORD_PUT_LATE, /* like PUT, but the messages are delayed until `time` */
    RECORD_KEEP,     /* copies of messages with their ids and states, so that older records can be trimmed */
};

enum queue_kept { KEPT_READY, KEPT_DELAYED, KEPT_BURIED };

struct queue_record {
    enum queue_record_type type;
    uint32_t n;  /* items */
    uint64_t id; /* the first new id; in a record without messages, at most the id of the next message */
    usec_t time; /* DELAY, BURY, PUT_LATE: wall clock */
    uint64_t lease_base;      /* OPEN */
    struct bytes reason;      /* BURY */
    struct bytes table, text; /* the items that queue_record_next has yet to return */
};

struct queue_record_item {
    struct id_range ids;  /* REMOVE: the range; DELAY, BURY, MOVE, KEEP: the (old) id, twice */
    uint32_t tries;       /* DELAY, BURY, MOVE, KEEP */
    struct bytes message; /* PUT, PUT_LATE, MOVE, KEEP */
    enum queue_kept kept; /* KEEP only, as the next two fields */
    usec_t time;          /* wall clock: when due, or when buried */
    struct bytes reason;
};

/* False, with a static text in *reason, if the payload is not a record of a known version and type. */
bool queue_log_decode(struct bytes payload, struct queue_record *out, const char **reason);
/* The size of the first record in a run of payloads; 0 if it is incomplete, SIZE_MAX if it is not a record. */
size_t queue_log_measure(struct bytes start);
/* True if the messages have consecutive ids from `id` on. */
bool queue_record_is_dense(const struct queue_record *r);
/* Messages in a record that stores messages; 0 for any other bytes. */
uint64_t queue_log_count_messages(struct bytes payload);
/* The next item; false after the last. */
bool queue_record_next(struct queue_record *r, struct queue_record_item *item);

/* Encoders. For PUT, PUT_LATE, MOVE and KEEP the encoders append only the part before the messages' bytes. The caller
 * adds these bytes; in a KEEP, the bytes of its reason follow each message. */
void queue_log_put(struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n);
/* The size of a PUT record of `n` messages and their `bytes`. A PUT_LATE is 8 bytes longer. */
uint64_t queue_log_put_size(size_t n, uint64_t bytes);
void queue_log_put_late(
    struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n, usec_t due);
void queue_log_move(struct buf *out, uint64_t first_id, const struct queue_record_item *items, size_t n);
void queue_log_keep(struct buf *out, uint64_t next_id, const struct queue_record_item *items, size_t n);
void queue_log_remove(struct buf *out, uint64_t next_id, const struct id_ranges *ids);
void queue_log_open(struct buf *out, uint64_t next_id, uint64_t lease_base);
/* queue_log_delay and queue_log_bury read the tries from the queue. */
void queue_log_delay(struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_log_bury(
    struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t buried_at, struct bytes reason);

#endif
