/* named_queue: a queue with its name, the marks of its producers and, with a data directory, a journal.
 *
 * A durable operation marks its messages as pending or busy, so that no other can use them, and appends one record.
 * `done` is called when the journal has committed or refused it; without a journal, before the operation returns.
 * Operations are committed in the order of the calls.
 *
 * 1. QUEUE_OK: `done` will be called exactly once. Anything else: nothing was changed, and `done` is not called.
 * 2. `done` gets QUEUE_OK: the record is committed. Anything else: the queue is unchanged.
 * 3. A duplicate put stores no message and uses no id.
 * 4. After a crash, the queue is restored from the committed records (docs/formats/simplequeue.md).
 * 5. Records before the first one that the queue needs are trimmed. The last record is never trimmed.
 * 6. On a full disk, messages can still be removed in any order, and delayed ones become ready: the space is
 *    reserved when a message is accepted (named_queue_op.c).
 * 7. Ids never repeat, even after a power cut under JOURNAL_SYNC_NEVER or a repair: after each hole of the journal
 *    the queue skips QUEUE_ID_HOLE ids, more than can be used between two syncs.
 * 8. Each id has an opening (queue_openings.h), by which the queue refuses the marks of another copy. The openings are in the
 *    records that assign ids, and in the OPEN records. On a full disk, a trim may lose them; then the queue also refuses the
 *    marks that name them.
 * 9. A settlement may name the follower's destination. In the same frame the queue raises the destination's mark, in
 *    the table of marks, to the id after the messages; with it a relay recognizes an old copy of the destination. It
 *    may stay too low if the disk or the table is full, but is never too high.
 * 10. The name of the follower survives a restart, so that no other reader gets in before it is back. On a full disk
 *    a change is only in memory until the next one.
 *
 * The owner of the journal set must call journal_set_poll. */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_H
#define SIMPLEQUEUE_NAMED_QUEUE_H

#include "journal/journal.h"
#include "simplequeue/queue/queue.h"
#include "simplequeue/queue/queue_openings.h"

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
    QUEUE_HELD,         /* a reader has leases */
    QUEUE_FOLLOWED,     /* the queue has a follower of another name */
    QUEUE_FOLLOW_ENDED, /* another follow has begun, or the queue was unfollowed */
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
    uint64_t follow;   /* the number of a follow */
    bool takes_over;   /* of a follow: the queue already had this follower */
};
typedef void queue_done_fn(const struct queue_outcome *outcome, void *arg);

struct queue_put {
    const struct bytes *messages; /* copied before named_queue_put returns; if none, only the mark changes */
    size_t n;
    struct bytes producer; /* empty: none */
    struct bytes opening;  /* a name, stored with `next`; empty: none */
    uint64_t mark, next;
    bool sets_mark; /* set the mark to `next` without a comparison; the put has no messages */
    usec_t delay;   /* 0: ready at once; otherwise moved to the end of the queue after this time */
};

struct named_queue;

struct named_queue_config {
    const char *name;
    struct queue_shared *shared;
    const struct queue_limits *limits;
    struct journal *journal; /* named_queue_free closes it; NULL: memory only */
    const char *id;          /* the id of a restored queue, copied; NULL or "": the journal's id */
    uint64_t trim_step;      /* the journal is trimmed in steps of about this many bytes */
    /* Called, never recursively, after each operation and load: messages may be ready or loaded, or the disk full
     * or free again. May be NULL. */
    void (*on_ready)(struct named_queue *q, void *arg);
    void *on_ready_arg;
};

/* Without a journal, an empty queue with a new id. With one, blocks while it reads the whole journal. NULL with
 * *result and the error if a record is damaged. */
struct named_queue *named_queue_open(const struct named_queue_config *config, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
/* No operation may be in progress. Call journal_set_flush before. */
void named_queue_free(struct named_queue **q);

const char *named_queue_name(const struct named_queue *q);
const char *named_queue_id(const struct named_queue *q); /* 32 hex digits */
struct queue *named_queue_core(
    const struct named_queue *q); /* to read, reserve, return, touch, release, rewind */
const struct journal *named_queue_journal(const struct named_queue *q);
/* The producer's committed mark; 0 with *known (may be NULL) false if it is unknown. */
uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known);
/* The opening stored with this mark; empty in a queue without a journal. Borrowed until the next poll. */
struct bytes named_queue_opening(const struct named_queue *q, const char *producer);
/* Calls fn for each producer that has a committed mark, in any order. */
void named_queue_producers(const struct named_queue *q, journal_producer_fn *fn, void *arg);
/* Empty without a journal. */
const struct queue_openings *named_queue_openings(const struct named_queue *q);
/* A pointer that the user of the queue may set and read. */
void named_queue_set_data(struct named_queue *q, void *data);
void *named_queue_data(const struct named_queue *q);
/* True if the disk had no space for the last put, unless set since. */
bool named_queue_disk_is_full(const struct named_queue *q);
/* For a caller that watches the disk itself. */
void named_queue_set_disk_full(struct named_queue *q, bool full);
/* Returns the reason why the queue's storage has failed, or NULL if it has not. */
const char *named_queue_failure(const struct named_queue *q);

/* With QUEUE_CONFLICT, *mark is the committed mark. With sets_mark QUEUE_MARK_BUSY while a put of the producer is
 * in progress. */
enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark);

/* The result of a put of `n` messages with `bytes` bytes in a new queue: QUEUE_OK, QUEUE_MEMORY_FULL,
 * QUEUE_NEVER_FITS or QUEUE_TOO_LARGE. */
enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes);
/* Why there is no room for `n` messages with `bytes` bytes: QUEUE_FULL, QUEUE_MEMORY_FULL, or QUEUE_NEVER_FITS even
 * in an empty queue. */
enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes);

enum queue_eviction {
    EVICTION_ENOUGH,     /* there will be room when the messages *evicted are removed */
    EVICTION_PARTIAL,    /* evict more later: this call ended at a spilled message or at its limit */
    EVICTION_IMPOSSIBLE, /* nothing was changed: eviction cannot make room, or the first message is spilled */
};
/* Makes the oldest ready messages busy and adds them to *evicted (*evicted_bytes bytes so far), until their removal
 * makes room for `n` messages with `bytes` bytes. Then call named_queue_remove or named_queue_undo_evict. */
enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes);
/* Makes the messages ready again and *ids empty. */
void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids);

/* Removes messages that queue_take or named_queue_evict has made busy. If refused, they become ready again. */
enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg);

/* These apply to those messages of `ids` that are under the lease. */
enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);
/* The messages become ready after `delay` and get new ids. */
enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg);
enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg);
/* Moves up to max_items of the buried messages `ids`, the lowest ids first, to the end of the queue, ready and with new ids. */
struct queue_kick {
    const struct id_range *ids;
    size_t n, max_items;
    struct bytes text; /* copied; not empty: replaces the message, which is the only one */
    bool as_lines;     /* a message loses the line end at its end */
};
enum queue_result named_queue_kick(struct named_queue *q, const struct queue_kick *what, struct queue_now now,
    queue_done_fn *done, void *arg);
/* Removes those messages of `ids` that are buried. QUEUE_NOTHING: none is. */
enum queue_result named_queue_discard(struct named_queue *q, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);

/* Begins a follow of the reader: the queue admits no other reader from now on. QUEUE_HELD, or QUEUE_FOLLOWED by another
 * name. A follow under the name that the queue already has ends the present one. */
enum queue_result named_queue_follow(
    struct named_queue *q, const char *reader, struct queue_now now, queue_done_fn *done, void *arg);
/* Ends the follow at once. QUEUE_NOTHING: the queue has no follower. */
enum queue_result named_queue_unfollow(
    struct named_queue *q, struct queue_now now, queue_done_fn *done, void *arg);
/* Removes the sent messages with ids below `below`. `destination` names the store that has these messages now (invariant
 * 9); empty: none. QUEUE_NOTHING: there are none. */
#define QUEUE_DESTINATION_MAX 8 /* bytes, so that the record fits into the space that a put reserves for it */
enum queue_result named_queue_settle(struct named_queue *q, uint64_t below, struct bytes destination,
    struct queue_now now, queue_done_fn *done, void *arg);
/* Buries a sent message; QUEUE_LEASE_LOST if the message is not sent. */
enum queue_result named_queue_bury_sent(struct named_queue *q, uint64_t id, struct bytes reason,
    struct queue_now now, queue_done_fn *done, void *arg);

/* Before a take, a reserve or a read of `items` messages. QUEUE_LOADING: try again after on_ready. QUEUE_LATCHED: they
 * cannot be read. */
enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes);
/* As named_queue_prepare, for one message. */
enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id);

/* Make leased messages ready again, in their former order, without a record. They return the number of messages. */
uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n);
uint64_t named_queue_release(struct named_queue *q, const char *reader);

/* Leaves no message that was removed before the call in a file of the queue's directory. Live messages are rewritten, and
 * operations continue. `done` is not called; see named_queue_erasure.
 *
 * QUEUE_LATCHED and QUEUE_CLOSED: nothing was begun. If an erasure is running, the call has no effect. A restart ends the
 * erasure; another call completes it. On a full disk it fails, and what it has removed is removed. */
enum queue_result named_queue_erase(struct named_queue *q);

/* Before a flush at the stop, which would otherwise wait for the erasure. */
void named_queue_stop_erasure(struct named_queue *q);

enum queue_erase_state { QUEUE_ERASE_NONE, QUEUE_ERASE_RUNNING, QUEUE_ERASE_DONE, QUEUE_ERASE_FAILED };
struct queue_erasure {
    enum queue_erase_state state; /* of the last erasure; NONE: not since the start */
    uint64_t remaining;           /* bytes of the journal that are still to be trimmed */
    const char *error;            /* FAILED: the reason, valid until the next erasure; otherwise NULL */
};
struct queue_erasure named_queue_erasure(const struct named_queue *q);

/* Pauses deliveries for `length`, QUEUE_PAUSE_OPEN: without end. 0, or a restart, ends the pause. */
void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now);

/* Handles a due timer, already removed from the heap. A message whose delay has ended is kept for
 * named_queue_move_due. */
void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now);
/* Moves these messages to the end of the queue, once all due timers are handled. */
void named_queue_move_due(struct named_queue *q, struct queue_now now);

#endif
