/* queue_log: the records that a queue keeps in its journal. docs/formats/simplequeue.md has the layout.
 *
 * A record is one journal frame's payload. Encoding appends to a buffer; decoding checks every bound
 * before it says anything, and borrows from the payload. Memory only.
 *
 * 1. What queue_log_decode accepts, queue_record_next walks without another check failing.
 * 2. Every record names an id that the next message has at least (next_id, or its own first one), so that
 *    ids go on where they were although the frames that gave them are trimmed.
 */
#ifndef SIMPLEQUEUE_QUEUE_LOG_H
#define SIMPLEQUEUE_QUEUE_LOG_H

#include "base/bytes.h"
#include "base/clock.h"
#include "simplequeue/queue/queue.h"

enum queue_record_type {
    RECORD_PUT = 1,  /* messages; `id` is the first one's */
    RECORD_REMOVE,   /* ranges of ids that are gone */
    RECORD_DELAY,    /* ids with their tries, due at `time` */
    RECORD_BURY,     /* ids with their tries, buried at `time`, with a reason */
    RECORD_MOVE,     /* messages that became ready late, with the id each had; `id` is the first new one */
    RECORD_OPEN,     /* the daemon opened the queue: its lease numbers are above `lease_base` */
    RECORD_PUT_LATE, /* as PUT, but the messages are delayed until `time` */
    RECORD_KEEP,     /* messages with their ids and states, said again so that older records can be trimmed */
};

enum queue_kept { KEPT_READY, KEPT_DELAYED, KEPT_BURIED };

struct queue_record {
    enum queue_record_type type;
    uint32_t n;          /* items */
    uint64_t id;         /* the first new id; for a record without messages: at least the next message's */
    usec_t time;         /* DELAY, BURY, PUT_LATE: wall clock */
    uint64_t lease_base; /* OPEN */
    struct bytes reason; /* BURY */
    struct bytes table, text; /* what queue_record_next has yet to give */
};

struct queue_record_item {
    struct id_range ids;  /* REMOVE: the range; DELAY, BURY, MOVE, KEEP: the (old) id, twice */
    uint32_t tries;       /* DELAY, BURY, MOVE, KEEP */
    struct bytes message; /* PUT, PUT_LATE, MOVE, KEEP */
    enum queue_kept kept; /* KEEP, and what follows: */
    usec_t time;          /* wall clock: delayed until, or buried at */
    struct bytes reason;
};

/* False when it is no such record, or one of a newer version; *reason (static text) says what is wrong. */
bool queue_log_decode(struct bytes payload, struct queue_record *out, const char **reason);
/* The size of the record at the start of a run of payloads; 0 when not all of it is there, SIZE_MAX when it is none. */
size_t queue_log_measure(struct bytes start);
/* Whether it gives messages new ids: those from `id` on, one after the other. */
bool queue_record_is_dense(const struct queue_record *r);
/* The next item; false at the end. */
bool queue_record_next(struct queue_record *r, struct queue_record_item *item);

/* PUT, PUT_LATE and MOVE append what goes before the messages' bytes, which follow one after the other; KEEP what goes before
 * the items' bytes, the message's and its reason's in turn. */
void queue_log_put(struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n);
/* What a PUT record of so many messages of so many bytes takes, these included; a PUT_LATE is a little longer. */
uint64_t queue_log_put_size(size_t n, uint64_t bytes);
void queue_log_put_late(
    struct buf *out, uint64_t first_id, const struct bytes *messages, size_t n, usec_t due);
void queue_log_move(struct buf *out, uint64_t first_id, const struct queue_record_item *items, size_t n);
void queue_log_keep(struct buf *out, uint64_t next_id, const struct queue_record_item *items, size_t n);
void queue_log_remove(struct buf *out, uint64_t next_id, const struct id_ranges *ids);
void queue_log_open(struct buf *out, uint64_t next_id, uint64_t lease_base);
/* `tries` are asked of the queue, in which the messages still are. */
void queue_log_delay(struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_log_bury(
    struct buf *out, struct queue *q, const struct id_ranges *ids, usec_t buried_at, struct bytes reason);

#endif
