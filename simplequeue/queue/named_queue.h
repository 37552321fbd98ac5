/* named_queue: a queue with its name and the marks of its producers. With a data directory, the queue has a journal.
 *
 * A durable operation first marks its messages as pending or busy, so that no other operation can use them, and then
 * appends one record to the journal. `done` is called when the journal has committed or refused the record. Without a
 * journal, `done` is called before the operation returns. Many operations may be in progress. They are committed in
 * the order of the calls.
 *
 * 1. If an operation returns QUEUE_OK, `done` will be called exactly once. If it returns anything else, it has
 *    changed nothing and will not call `done`.
 * 2. If `done` gets QUEUE_OK, the record is committed. If `done` gets another result, the queue is unchanged.
 * 3. A duplicate put stores no message and uses no id.
 * 4. After a crash, the queue is restored from the committed records (docs/formats/simplequeue.md).
 * 5. Records before the first one that the queue still needs are trimmed from the journal. The last record is never
 *    trimmed.
 * 6. When the disk is full, messages can still be removed in any order, and delayed messages still become ready. The
 *    disk space for these records is reserved when a message is accepted (named_queue_op.c).
 * 7. Ids never repeat, even if the journal has lost messages in a power cut under JOURNAL_SYNC_NEVER or a repair.
 *    After each hole of the journal the queue skips QUEUE_ID_HOLE ids. This is more than the number of ids that can
 *    be used between two syncs.
 * 8. Each id has an opening, which is in the queue's directory (journal/opening_list.h). With it a relay can distinguish
 *    the messages of a restored copy from those of the original. If a directory of an earlier version is opened on a
 *    full disk, the queue has no openings until the next start.
 * 9. An acknowledgement may name a destination. In the same frame the queue raises the destination's mark to the id
 *    after the acknowledged messages. The marks of destinations are in the table of the producers' marks. With this
 *    mark a relay recognizes an old copy of the destination. The mark may stay too low if the disk or the table is
 *    full, but it is never too high.
 *
 * This module does not use sockets or the event loop. The owner of the journal set must call journal_set_poll.
 * */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_H
#define SIMPLEQUEUE_NAMED_QUEUE_H

#include "journal/journal.h"
#include "simplequeue/queue/queue.h"

#define QUEUE_REPAIR_HINT "see `millrace journal check` and `repair`"
#define QUEUE_ID_HOLE (UINT64_C(1) << 32)

enum queue_result {
    QUEUE_OK,
    QUEUE_CONFLICT, /* the producer's mark differs */
    QUEUE_TOO_MANY_PRODUCERS,
    QUEUE_FULL,            /* above max_depth or max_bytes */
    QUEUE_MEMORY_FULL,     /* all queues together exceed max_memory */
    QUEUE_NEVER_FITS,      /* the put alone exceeds a limit */
    QUEUE_OVERFLOW_FAILED, /* full, and the overflow log cannot be written */
    QUEUE_TOO_LARGE,       /* larger than a journal frame */
    QUEUE_OVERLOADED,      /* too many bytes wait to be committed */
    QUEUE_MARK_BUSY,       /* the producer's mark is being set, or is to be set while it moves */
    QUEUE_NO_SPACE,
    QUEUE_LATCHED,    /* storage failed: no more writes */
    QUEUE_CLOSED,     /* the daemon stops */
    QUEUE_LEASE_LOST, /* the lease has none of these messages */
    QUEUE_NOTHING,    /* the message does not exist */
    QUEUE_TOO_MANY_QUEUES,
    QUEUE_LOADING, /* messages are being read from disk, see named_queue_prepare */
    QUEUE_NO_DESCRIPTORS,
};
const char *queue_strerror(enum queue_result r);
/* True if the put could succeed after some messages were removed. */
static inline bool queue_is_full(enum queue_result r)
{
    return r == QUEUE_FULL || r == QUEUE_MEMORY_FULL;
}

/* Deadlines use the monotonic clock. Records in the journal use the wall clock. */
struct queue_now {
    usec_t monotonic, wall;
};

/* 0: unlimited. */
struct queue_limits {
    uint64_t max_depth;  /* messages in a queue: ready, leased, busy, delayed or pending */
    uint64_t max_bytes;  /* bytes of messages in a queue */
    uint64_t max_memory; /* bytes of memory for the messages of all queues; with a journal, spill above it */
};

struct queue_outcome {
    enum queue_result result;
    bool duplicate;
    uint64_t first_id; /* of a put */
    uint64_t count;    /* messages put, removed, delayed, buried or moved */
};
typedef void queue_done_fn(const struct queue_outcome *outcome, void *arg);

struct queue_put {
    const struct bytes *messages; /* copied before named_queue_put returns; if none, only the mark changes */
    size_t n;
    struct bytes producer; /* empty: none */
    struct bytes opening;  /* stored with `next`; with the producer at most MARK_LABEL_MAX - 1 bytes */
    uint64_t mark, next;
    bool sets_mark; /* set the mark to `next` without a comparison; the put has no messages */
    usec_t delay;   /* 0: ready at once; otherwise moved to the end of the queue after this time */
};

struct named_queue;
struct openings;

struct named_queue_config {
    const char *name;
    struct queue_shared *shared;
    const struct queue_limits *limits;
    struct journal *journal; /* named_queue_free closes it; NULL: memory only */
    const char *dir;         /* the directory of the journal, for the openings; not kept */
    bool existed;            /* before this start: a full disk that prevents its first opening is no fault */
    const char *id;          /* the id of a restored queue, copied; NULL or "": the journal's id */
    uint64_t trim_step;      /* the journal is trimmed in steps of about this many bytes */
    /* Called after each operation and each load: messages may be ready or loaded now, or the disk may have become
     * full or have room again. Never called recursively. May be NULL. */
    void (*on_ready)(struct named_queue *q, void *arg);
    void *on_ready_arg;
};

/* Without a journal, returns an empty queue with a new id. With a journal, blocks while it reads the whole journal.
 * If a record is damaged or the opening cannot be written, returns NULL with *result and the error. */
struct named_queue *named_queue_open(const struct named_queue_config *config, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
/* No operation may be in progress. Call journal_set_flush before. */
void named_queue_free(struct named_queue **q);

const char *named_queue_name(const struct named_queue *q);
const char *named_queue_id(const struct named_queue *q);     /* 32 hex digits */
struct queue *named_queue_core(const struct named_queue *q); /* to read, reserve, return, touch and release */
const struct journal *named_queue_journal(const struct named_queue *q);
/* Returns the producer's committed mark. If the producer is unknown, returns 0 and sets *known to false. `known` may
 * be NULL. */
uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known);
/* The opening stored with this mark; empty in a queue without a journal. Borrowed until the next poll. */
struct bytes named_queue_opening(const struct named_queue *q, const char *producer);
/* Calls fn for each producer that has a committed mark, in any order. */
void named_queue_producers(const struct named_queue *q, journal_producer_fn *fn, void *arg);
const struct openings *named_queue_openings(const struct named_queue *q); /* may be NULL */
/* A pointer that the user of the queue may set and read. */
void named_queue_set_data(struct named_queue *q, void *data);
void *named_queue_data(const struct named_queue *q);
/* True if the disk had no space for the last put, unless set since. */
bool named_queue_disk_is_full(const struct named_queue *q);
/* For a caller that watches the disk itself. */
void named_queue_set_disk_full(struct named_queue *q, bool full);
/* Returns the reason why the queue's storage has failed, or NULL if it has not. */
const char *named_queue_failure(const struct named_queue *q);

/* If the result is QUEUE_CONFLICT, *mark is the producer's committed mark. With sets_mark the result is
 * QUEUE_MARK_BUSY while a put of the producer is in progress. */
enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark);

/* Returns the result that a put of `n` messages with `bytes` bytes in total would have in a new queue: QUEUE_OK,
 * QUEUE_MEMORY_FULL, QUEUE_NEVER_FITS or QUEUE_TOO_LARGE. */
enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes);
/* Returns the reason why there is no room for `n` messages with `bytes` bytes in total: QUEUE_FULL or
 * QUEUE_MEMORY_FULL, or QUEUE_NEVER_FITS if even an empty queue would have no room. */
enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes);

enum queue_eviction {
    EVICTION_ENOUGH,     /* there will be room when the messages *evicted are removed */
    EVICTION_PARTIAL,    /* evict more later: this call ended at a spilled message or at its limit */
    EVICTION_IMPOSSIBLE, /* nothing was changed: eviction cannot make room, or the first message is spilled */
};
/* Makes the oldest ready messages busy and adds them to *evicted, until their removal makes room for `n` messages
 * with `bytes` bytes in total. Messages that are already in *evicted (*evicted_bytes bytes in total) count as
 * removed. Afterwards the caller must call named_queue_remove or named_queue_undo_evict. */
enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes);
/* Makes the messages ready again and *ids empty. */
void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids);

/* Removes messages that queue_take or named_queue_evict has made busy. If the journal refuses the record, the
 * messages become ready again. */
enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg);

/* The following functions apply to those messages of `ids` that belong to the lease with this number. */
/* `destination` names the store that has these messages now (invariant 9); empty: none. */
#define QUEUE_DESTINATION_MAX 8 /* bytes, so that the record fits into the space that a put reserves for it */
enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct bytes destination, struct queue_now now, queue_done_fn *done, void *arg);
/* The messages become ready after `delay` and get new ids. */
enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg);
enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg);
/* Moves up to max_items buried messages to the end of the queue, beginning with the lowest ids. The messages become
 * ready and get new ids. */
enum queue_result named_queue_kick(
    struct named_queue *q, size_t max_items, struct queue_now now, queue_done_fn *done, void *arg);

/* Call this function before a take or a reserve of `items` messages. QUEUE_OK: the messages are in memory.
 * QUEUE_LOADING: they are being loaded; try again after on_ready. QUEUE_LATCHED: they cannot be read. */
enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes);
/* As named_queue_prepare, for one message. */
enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id);

/* These functions make leased messages ready again, in their former order. They append no record. They return the
 * number of messages. */
uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n);
uint64_t named_queue_release(struct named_queue *q, const char *reader, uint64_t *epoch);

/* Pauses the queue for `length`: it delivers and leases no messages. With QUEUE_PAUSE_OPEN the pause has no end. With
 * 0 the function ends a pause. A restart also ends a pause. */
void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now);

/* Handles a timer of this queue that is due and was removed from the heap. If the delay of a message has ended, the
 * message is remembered for named_queue_move_due. */
void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now);
/* Moves the remembered messages to the end of the queue. Call this function after all timers that are due have been
 * handled. */
void named_queue_move_due(struct named_queue *q, struct queue_now now);

#endif
