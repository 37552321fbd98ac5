/* named_queue: a queue with its name, its producers' marks and, given a data directory, its journal.
 *
 * A durable operation sets messages aside in the queue, appends one record, and calls `done` once the journal has committed or refused
 * the record. Without a journal, `done` is called before the operation returns. Many operations may be in progress; they commit in
 * their order.
 *
 * 1. An operation that returns QUEUE_OK calls `done` exactly once. Any other result has changed nothing, and `done` is not called.
 * 2. Outcome QUEUE_OK: the record is committed. Any other outcome: the queue is unchanged.
 * 3. A duplicate put stores nothing and takes no id.
 * 4. After a crash, the committed records determine the queue: docs/formats/simplequeue.md.
 * 5. The journal is trimmed up to the first record that the queue needs. Its last record is never trimmed.
 * 6. On a full disk every message can still be removed, in any order, and every delayed message becomes ready. The
 *    space for these records is reserved when a message is accepted (named_queue_op.c).
 * 7. Ids never repeat, even if the journal lost messages (a power cut under JOURNAL_SYNC_NEVER, a repair): behind each
 *    hole of the journal they skip QUEUE_ID_HOLE ids, which is more than are ever used between two syncs.
 *
 * This module knows neither sockets nor the event loop. The owner of the journal set polls it.
 */
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
    QUEUE_FULL,            /* over max_depth or max_bytes */
    QUEUE_MEMORY_FULL,     /* all queues together are over max_memory */
    QUEUE_NEVER_FITS,      /* the put alone is over a limit */
    QUEUE_OVERFLOW_FAILED, /* full, and the overflow log cannot be written */
    QUEUE_TOO_LARGE,       /* over the size of a journal frame */
    QUEUE_OVERLOADED,      /* too many bytes wait to be committed */
    QUEUE_NO_SPACE,
    QUEUE_LATCHED,    /* storage failed: no more writes */
    QUEUE_CLOSED,     /* the daemon stops */
    QUEUE_LEASE_LOST, /* none of the ids is under that lease */
    QUEUE_NOTHING,    /* the message does not exist */
    QUEUE_TOO_MANY_QUEUES,
    QUEUE_LOADING, /* being read from disk: see named_queue_prepare */
    QUEUE_NO_DESCRIPTORS,
};
const char *queue_strerror(enum queue_result r);
/* Whether the put would succeed once enough messages were removed. */
static inline bool queue_is_full(enum queue_result r)
{
    return r == QUEUE_FULL || r == QUEUE_MEMORY_FULL;
}

/* Deadlines are on the monotonic clock, records on the wall clock. */
struct queue_now {
    usec_t monotonic, wall;
};

/* 0: unlimited. */
struct queue_limits {
    uint64_t max_depth;  /* messages ready, leased, delayed or pending in a queue */
    uint64_t max_bytes;  /* bytes of messages in a queue */
    uint64_t max_memory; /* bytes of memory for messages of all queues; with a journal, more messages spill */
};

struct queue_outcome {
    enum queue_result result;
    bool duplicate;
    uint64_t first_id; /* of a put */
    uint64_t count;    /* messages put, removed, delayed, buried or moved */
};
typedef void queue_done_fn(const struct queue_outcome *outcome, void *arg);

struct queue_put {
    const struct bytes *messages; /* copied before named_queue_put returns; none: only the mark moves */
    size_t n;
    struct bytes producer; /* empty: none */
    uint64_t mark, next;
    usec_t delay; /* 0: ready at once; else the messages move to the end after this time */
};

struct named_queue;

struct named_queue_config {
    const char *name;
    struct queue_shared *shared;
    const struct queue_limits *limits;
    struct journal *journal; /* closed by named_queue_free; NULL: memory only */
    const char *id;          /* of a copied queue; NULL or "": the journal's id. Copied */
    uint64_t trim_step;      /* the journal is trimmed in steps of about this many bytes */
    /* Called after an operation or a load, never from inside itself. Messages may have become ready or loaded, or the
     * disk full or writable again. May be NULL. */
    void (*on_ready)(struct named_queue *q, void *arg);
    void *on_ready_arg;
};

/* Without a journal, returns an empty queue with a new id. With a journal, reads all of it, and blocks; returns NULL
 * with the reason in error if a record is damaged. */
struct named_queue *named_queue_open(
    const struct named_queue_config *config, struct queue_now now, char *error, size_t error_size);
/* Only while no operation is in progress: after journal_set_flush. */
void named_queue_free(struct named_queue **q);

const char *named_queue_name(const struct named_queue *q);
const char *named_queue_id(const struct named_queue *q);     /* 32 hex digits */
struct queue *named_queue_core(const struct named_queue *q); /* to read, reserve, return, touch and release */
const struct journal *named_queue_journal(const struct named_queue *q);
/* The producer's committed mark; 0 if it is unknown (*known, which may be NULL, is false). */
uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known);
/* A pointer for the owner of on_ready to use. */
void named_queue_set_data(struct named_queue *q, void *data);
void *named_queue_data(const struct named_queue *q);
/* Whether the disk had no space for the last put. */
bool named_queue_disk_is_full(const struct named_queue *q);
/* The reason why the queue's storage failed; NULL if it did not. */
const char *named_queue_failure(const struct named_queue *q);

/* On QUEUE_CONFLICT *mark is the producer's committed mark. */
enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark);

/* The result of a put of `n` messages and `bytes` to a queue that does not exist yet: QUEUE_OK, QUEUE_MEMORY_FULL, QUEUE_NEVER_FITS or
 * QUEUE_TOO_LARGE. */
enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes);
/* The reason why `n` messages of `bytes` together do not fit: QUEUE_FULL, QUEUE_MEMORY_FULL, or QUEUE_NEVER_FITS if even an empty queue
 * would refuse them. */
enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes);

enum queue_eviction {
    EVICTION_ENOUGH,  /* the messages fit once *evicted are removed */
    EVICTION_PARTIAL, /* more must be evicted later: a spilled message, or a call's limit, ended this call */
    EVICTION_IMPOSSIBLE, /* nothing was changed: eviction cannot help, or the first message is spilled */
};
/* Sets the oldest ready messages aside until `n` messages of `bytes` together fit, and adds them to *evicted. Messages
 * already in *evicted, with *evicted_bytes in total, count as removed. named_queue_remove or named_queue_undo_evict
 * must follow. */
enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes);
/* The messages are ready again, and *ids is empty. */
void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids);

/* Removes the messages that queue_take or named_queue_evict set aside. On refusal they are ready again. */
enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg);

/* The following functions act on the messages of `ids` that are leased under the number `lease`. */
enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);
/* The messages become ready after `delay`, under new ids. */
enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg);
enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg);
/* Moves up to max_items buried messages, the lowest ids first, to the end of the queue, ready and under new ids. */
enum queue_result named_queue_kick(
    struct named_queue *q, size_t max_items, struct queue_now now, queue_done_fn *done, void *arg);

/* Call it before a take or a reserve of `items` messages. QUEUE_OK: they are in memory. QUEUE_LOADING: they are being
 * loaded; try again after on_ready. QUEUE_LATCHED: they cannot be read. */
enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes);
/* As named_queue_prepare, for one message. */
enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id);

/* The messages return to their place, without a record. Both functions return the number of messages. */
uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n);
uint64_t named_queue_release(struct named_queue *q, const char *reader, uint64_t *epoch);

/* Stops gets and leases for `length`; QUEUE_PAUSE_OPEN: until another call ends the pause; 0 ends it. A restart ends
 * the pause, too. */
void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now);

/* Handles a timer of this queue that has fired and left the heap. Collects messages whose delay ended, for
 * named_queue_move_due. */
void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now);
/* Moves the collected messages to the end. Call it after the queue's timers of a turn of the loop. */
void named_queue_move_due(struct named_queue *q, struct queue_now now);

#endif
