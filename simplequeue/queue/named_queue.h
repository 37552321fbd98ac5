/* named_queue: a queue with its name, the marks of its producers and, with a data directory, a journal.
 *
 * A durable operation makes its messages pending or busy, so that no other operation can use them, and appends one
 * record. The queue calls `done` once the journal has committed or refused the record. Without a journal, the queue
 * calls `done` before the operation returns. The journal commits operations in the order of the calls.
 *
 * 1. If an operation returns QUEUE_OK, the queue calls `done` exactly once. After any other result, the queue is
 *    unchanged and does not call `done`.
 * 2. If `done` gets QUEUE_OK, the record is committed. After any other result, the queue is unchanged.
 * 3. A duplicate put stores no message and uses no id.
 * 4. After a crash, the queue is restored from the committed records (docs/formats/simplequeue.md).
 * 5. The queue trims the records before the first record that it needs, but never the last record.
 * 6. On a full disk, messages can still be removed in any order, and delayed messages still become ready. For this
 *    purpose, the queue reserves disk space when it accepts a message (named_queue_limits.c).
 * 7. Message ids never repeat, even after a repair, or after a power cut under JOURNAL_SYNC_NEVER. After each hole of
 *    the journal the queue skips QUEUE_ID_HOLE ids, which is more than it can assign between two syncs.
 * 8. Each message id belongs to an opening (a run of the daemon, queue_openings.h). Openings let the queue refuse the
 *    marks of another copy. The OPEN records, and the records that assign ids, contain the openings. On a full disk, a
 *    trim may delete openings. The queue then also refuses marks that name a deleted opening.
 * 9. named_queue_settle may name the follower's destination. In the same frame, the queue raises the destination's mark
 *    in the table of marks to the id after the settled messages. This mark lets a relay recognize an old copy of the
 *    destination. If the disk or the table is full, the mark may be too low. The mark is never too high.
 * 10. The follower's name survives a restart, so that no other reader can use the queue before the follower returns. On
 *    a full disk, a new name is stored only in memory until the next change of the name.
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
    QUEUE_FULL,            /* the queue would exceed max_depth or max_bytes */
    QUEUE_MEMORY_FULL,     /* all queues together exceed max_memory */
    QUEUE_NEVER_FITS,      /* the put alone exceeds a limit */
    QUEUE_OVERFLOW_FAILED, /* the queue is full, and the overflow log cannot be written */
    QUEUE_TOO_LARGE,       /* the put is larger than a journal frame */
    QUEUE_OVERLOADED,      /* too many bytes wait to be committed */
    QUEUE_MARK_BUSY, /* a request to set the producer's mark and a put of this producer are in progress at once */
    QUEUE_NO_SPACE,
    QUEUE_LATCHED,    /* the storage has failed, and the queue writes nothing more */
    QUEUE_CLOSED,     /* the daemon stops */
    QUEUE_LEASE_LOST, /* none of the messages is under the lease */
    QUEUE_NOTHING,    /* the message does not exist */
    QUEUE_TOO_MANY_QUEUES,
    QUEUE_LOADING, /* messages are being read from disk: see named_queue_prepare */
    QUEUE_NO_DESCRIPTORS,
    QUEUE_HELD,         /* a reader has leases */
    QUEUE_FOLLOWED,     /* the queue has a follower with another name */
    QUEUE_FOLLOW_ENDED, /* another follow has begun, or the queue was unfollowed */
};
const char *queue_strerror(enum queue_result r);
/* Returns true if a put with this result could succeed after some messages are removed. */
static inline bool queue_is_full(enum queue_result r)
{
    return r == QUEUE_FULL || r == QUEUE_MEMORY_FULL;
}

/* Deadlines use the monotonic time, journal records use the wall-clock time. */
struct queue_now {
    usec_t monotonic, wall;
};

/* In each limit, 0 means unlimited. */
struct queue_limits {
    uint64_t max_depth;  /* messages in a queue: ready, leased, busy, delayed or pending */
    uint64_t max_bytes;  /* bytes of messages in a queue */
    uint64_t max_memory; /* memory of the messages of all queues; queues with a journal spill above it */
};

struct queue_outcome {
    enum queue_result result;
    bool duplicate;
    uint64_t first_id; /* after a put: the id of the first message */
    uint64_t count;    /* messages put, removed, delayed, buried or moved */
    uint64_t follow;   /* after named_queue_follow: the number of the follow */
    bool takes_over;   /* after named_queue_follow: the queue already had this follower */
};
typedef void queue_done_fn(const struct queue_outcome *outcome, void *arg);

struct queue_put {
    const struct bytes *messages; /* copied before named_queue_put returns; n == 0: only the mark changes */
    size_t n;
    struct bytes producer; /* empty: none */
    struct bytes opening;  /* a name to be stored with `next`; empty: none */
    uint64_t mark, next;
    bool sets_mark; /* set the mark to `next` without a comparison; the put has no messages */
    usec_t delay; /* time after which the messages move to the end of the queue; 0: they are ready at once */
};

struct named_queue;

struct named_queue_config {
    const char *name;
    struct queue_shared *shared;
    const struct queue_limits *limits;
    struct journal *journal; /* named_queue_free closes it; NULL: memory only */
    const char *id;          /* the id of a restored queue, copied; NULL or "": the journal's id */
    uint64_t trim_step;      /* approximate bytes that a trim removes from the journal */
    /* Called after each operation and load. Messages may then be ready or loaded, and the state of the disk may have
     * changed. Never called recursively. May be NULL. */
    void (*on_ready)(struct named_queue *q, void *arg);
    void *on_ready_arg;
};

/* Without a journal, returns an empty queue with a new id. With a journal, reads the whole journal, and blocks
 * meanwhile. If a record is damaged, returns NULL with *result and the error. */
struct named_queue *named_queue_open(const struct named_queue_config *config, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
/* Call journal_set_flush before named_queue_free, so that no operation is in progress. */
void named_queue_free(struct named_queue **q);

const char *named_queue_name(const struct named_queue *q);
const char *named_queue_id(const struct named_queue *q); /* 32 hex digits */
struct queue *named_queue_core(
    const struct named_queue *q); /* for reserving, touching, rewinding and reading */
const struct journal *named_queue_journal(const struct named_queue *q);
/* Returns the producer's committed mark. For an unknown producer, returns 0 and sets *known to false. `known` may be
 * NULL. */
uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known);
/* Returns the opening that is stored with the producer's mark, valid until the next journal_set_poll. Without a
 * journal, it is empty. */
struct bytes named_queue_opening(const struct named_queue *q, const char *producer);
/* Calls fn for each producer that has a committed mark, in any order. */
void named_queue_producers(const struct named_queue *q, journal_producer_fn *fn, void *arg);
/* Returns the queue's openings. Without a journal, the list is empty. */
const struct queue_openings *named_queue_openings(const struct named_queue *q);
/* Stores a pointer for the user of the queue. */
void named_queue_set_data(struct named_queue *q, void *data);
void *named_queue_data(const struct named_queue *q);
/* Returns true if the disk had no space for the last put, or the value of a later named_queue_set_disk_full. */
bool named_queue_disk_is_full(const struct named_queue *q);
/* Sets the result of named_queue_disk_is_full, for a caller that watches the disk. */
void named_queue_set_disk_full(struct named_queue *q, bool full);
/* Returns the reason why the queue's storage has failed, or NULL if it has not. */
const char *named_queue_failure(const struct named_queue *q);

/* With QUEUE_CONFLICT, stores the committed mark in *mark. A put with sets_mark gets QUEUE_MARK_BUSY while another put
 * of the producer is in progress. */
enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark);

/* Returns the result that a put of `n` messages with `bytes` bytes would have in a new queue: QUEUE_OK,
 * QUEUE_MEMORY_FULL, QUEUE_NEVER_FITS or QUEUE_TOO_LARGE. */
enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes);
/* Returns the reason why the queue has no room for `n` messages with `bytes` bytes: QUEUE_FULL or QUEUE_MEMORY_FULL;
 * QUEUE_NEVER_FITS if an empty queue would also refuse the messages. */
enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes);

enum queue_eviction {
    EVICTION_ENOUGH,  /* the removal of the messages *evicted will make enough room */
    EVICTION_PARTIAL, /* evict more later: stopped at a spilled message or after EVICT_ITEMS_MAX messages */
    EVICTION_IMPOSSIBLE, /* the queue is unchanged: eviction cannot make room, or the first message is spilled */
};
/* Makes the oldest ready messages busy and adds their ids to *evicted, and their bytes to *evicted_bytes. Stops when
 * the removal of these messages makes room for `n` messages with `bytes` bytes. The caller must then call
 * named_queue_remove or named_queue_undo_evict. */
enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes);
/* Makes evicted messages ready again, and makes *ids empty. */
void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids);

/* Removes messages that queue_take or named_queue_evict has made busy. If the removal is refused, these messages become
 * ready again. */
enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg);

/* named_queue_ack, named_queue_delay and named_queue_bury change those messages of `ids` that are under the lease. */
enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);
/* The messages become ready after `delay` and get new ids. */
enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg);
enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg);
/* Moves buried messages of `ids`, the lowest ids first, to the end of the queue. The moved messages are ready and have
 * new ids. The limits of the queue apply to a text longer than the present one (named_queue_why_full). */
struct queue_kick {
    const struct id_range *ids;
    size_t n, max_items; /* ranges; maximum messages to move */
    struct bytes text;   /* new text, if `ids` is a single message; copied; empty: keep the text */
    bool as_lines;       /* remove a line end at the end of each message */
};
enum queue_result named_queue_kick(struct named_queue *q, const struct queue_kick *what, struct queue_now now,
    queue_done_fn *done, void *arg);
/* Removes those messages of `ids` that are buried. QUEUE_NOTHING: no message of `ids` is buried. */
enum queue_result named_queue_discard(struct named_queue *q, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);

/* Makes the reader the queue's follower and begins a new follow. From now on the queue refuses other readers. If the
 * reader already follows the queue, the previous follow ends. QUEUE_HELD: a reader has leases. QUEUE_FOLLOWED: the
 * follower has another name. */
enum queue_result named_queue_follow(
    struct named_queue *q, const char *reader, struct queue_now now, queue_done_fn *done, void *arg);
/* Ends the present follow. QUEUE_NOTHING: the queue has no follower. */
enum queue_result named_queue_unfollow(
    struct named_queue *q, struct queue_now now, queue_done_fn *done, void *arg);
/* Removes the first messages, at most 100,000, whose ids are less than `below` and that were sent to the follower.
 * `destination` names the
 * store that now has these messages (invariant 9); empty: no name. QUEUE_NOTHING: no sent message has such an id. */
#define QUEUE_DESTINATION_MAX 8 /* bytes; a put reserves space for a REMOVE record with such a destination */
enum queue_result named_queue_settle(struct named_queue *q, uint64_t below, struct bytes destination,
    struct queue_now now, queue_done_fn *done, void *arg);
/* Buries a message that was sent to the follower. QUEUE_LEASE_LOST: the message was not sent. */
enum queue_result named_queue_bury_sent(struct named_queue *q, uint64_t id, struct bytes reason,
    struct queue_now now, queue_done_fn *done, void *arg);

/* Call named_queue_prepare before a take, a reserve or a read of `items` messages. QUEUE_LOADING: call
 * named_queue_prepare again after on_ready. QUEUE_LATCHED: the messages cannot be read from disk. */
enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes);
/* Call named_queue_prepare_message, as named_queue_prepare, before a read of one message. */
enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id);

/* named_queue_return and named_queue_release make leased messages ready again, in their former order, without a record.
 * Each function returns the number of messages that became ready. */
uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n);
uint64_t named_queue_release(struct named_queue *q, const char *reader);

/* Erases all messages that were removed before the call from the files of the queue's directory. Live messages are
 * rewritten, and operations continue. named_queue_erasure returns the progress.
 *
 * QUEUE_LATCHED and QUEUE_CLOSED: no erasure was begun. While an erasure is running, named_queue_erase has no effect. A
 * restart ends an erasure early, and another call completes it. On a full disk an erasure fails, but bytes that were
 * already erased remain erased. */
enum queue_result named_queue_erase(struct named_queue *q);

/* Call named_queue_stop_erasure before the last journal_set_flush, because the flush waits for a running erasure. */
void named_queue_stop_erasure(struct named_queue *q);

enum queue_erase_state { QUEUE_ERASE_NONE, QUEUE_ERASE_RUNNING, QUEUE_ERASE_DONE, QUEUE_ERASE_FAILED };
struct queue_erasure {
    enum queue_erase_state
        state;          /* state of the last erasure; NONE: no erasure since the start of the daemon */
    uint64_t remaining; /* bytes of the journal that the erasure has not yet trimmed */
    const char *error;  /* FAILED: the reason, valid until the next erasure. Other states: NULL */
};
struct queue_erasure named_queue_erasure(const struct named_queue *q);

/* Pauses deliveries for the time `length`. QUEUE_PAUSE_OPEN: the pause has no end. A length of 0, or a restart, ends
 * the pause. */
void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now);

/* Handles a due timer that the caller has removed from the heap. If the timer is that of a delay, keeps the message for
 * named_queue_move_due. */
void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now);
/* Moves the messages whose delay has ended to the end of the queue. Call this function after all due timers. */
void named_queue_move_due(struct named_queue *q, struct queue_now now);

#endif
