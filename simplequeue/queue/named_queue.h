/* named_queue: a queue with its name, its producers' marks and, when there is a data directory, its journal.
 *
 * Each operation that must be durable sets messages aside in the queue, appends one record, and tells the
 * outcome when the journal has committed or refused it. Without a journal the same happens at once: the
 * outcome is told before the call returns. Many operations may be under way; they commit in their order.
 *
 * 1. An operation that returns QUEUE_OK calls `done` exactly once; any other result has changed nothing and
 *    calls nothing.
 * 2. Outcome QUEUE_OK says that the record is committed. Anything else says that the queue is as before.
 * 3. A put that is a duplicate stores nothing and takes no id.
 * 4. After any crash the queue is what the committed records say: docs/formats/simplequeue.md.
 * 5. The journal is trimmed to what is still held, and never loses its last record.
 * 6. What is held can be removed on a full disk, in any order: by records while what the journal has reserved lasts, then by
 *    bits (gone.h). And what is delayed comes back there: what moving it takes is reserved before it is delayed.
 * 7. No id is given twice, also when the journal lost messages (a power cut under JOURNAL_SYNC_NEVER, a repair): behind
 *    each of its holes ids go on QUEUE_ID_HOLE higher, more than were ever given out unsynced.
 *
 * Knows neither sockets nor the event loop; `now` is given. The owner of the journal set polls it.
 */
#ifndef SIMPLEQUEUE_NAMED_QUEUE_H
#define SIMPLEQUEUE_NAMED_QUEUE_H

#include "journal/journal.h"
#include "simplequeue/queue/queue.h"

#define QUEUE_REPAIR_HINT "see `millrace journal check` and `repair`"
#define QUEUE_ID_HOLE (UINT64_C(1) << 32)

enum queue_result {
    QUEUE_OK,
    QUEUE_CONFLICT, /* the producer's mark is another */
    QUEUE_TOO_MANY_PRODUCERS,
    QUEUE_FULL,            /* over max_depth or max_bytes */
    QUEUE_MEMORY_FULL,     /* all queues together over max_memory */
    QUEUE_NEVER_FITS,      /* the put alone is over one of them */
    QUEUE_OVERFLOW_FAILED, /* full, and the overflow log did not take what was to make room */
    QUEUE_TOO_LARGE,       /* more than one journal frame can hold */
    QUEUE_OVERLOADED,      /* too much is waiting to be committed */
    QUEUE_NO_SPACE,
    QUEUE_LATCHED,    /* storage failed: no more writes */
    QUEUE_CLOSED,     /* the daemon stops */
    QUEUE_LEASE_LOST, /* none of the ids is under that lease */
    QUEUE_NOTHING,    /* nothing is ready, delayed or buried there */
    QUEUE_TOO_MANY_QUEUES,
    QUEUE_LOADING,        /* being read from disk: see named_queue_prepare */
    QUEUE_NO_DESCRIPTORS, /* out of descriptors: it was not made */
};
const char *queue_strerror(enum queue_result r);
/* Whether room in the queue would help. */
static inline bool queue_is_full(enum queue_result r)
{
    return r == QUEUE_FULL || r == QUEUE_MEMORY_FULL;
}

/* The two times: deadlines are on the first, what is stored on the second. */
struct queue_now {
    usec_t monotonic, wall;
};

struct queue_limits {
    uint64_t max_depth; /* messages ready, leased, delayed or pending in a queue; 0: no bound */
    uint64_t max_bytes; /* bytes held by a queue; 0: no bound */
    /* What messages of all queues take of memory; with a journal the rest is on disk. 0: no bound. */
    uint64_t max_memory;
};

struct queue_outcome {
    enum queue_result result;
    bool duplicate;
    uint64_t first_id; /* PUT: of what was put */
    uint64_t count;    /* messages put, removed, delayed, buried, moved */
};
typedef void queue_done_fn(const struct queue_outcome *outcome, void *arg);

struct queue_put {
    const struct bytes *messages; /* copied before named_queue_put returns; none: only the mark moves */
    size_t n;
    struct bytes producer; /* empty: none */
    uint64_t mark, next;
    usec_t delay; /* ready only so long after, under new ids; 0: at once */
};

struct named_queue;

struct named_queue_config {
    const char *name;
    struct queue_shared *shared;
    const struct queue_limits *limits;
    struct journal *journal;         /* closed by named_queue_free; NULL: memory only */
    const struct id_ranges *removed; /* of an older version's file: see removed_bits.h; NULL: none */
    const char *id;                  /* of a copy that has its own; NULL or "": the journal's. Copied */
    uint64_t trim_step;              /* bytes of what is not needed worth a trim */
    /* Called when something was decided: a message may have become ready, or been read from disk, and the disk be full, have
     * room again or fail. May be NULL. */
    void (*on_ready)(struct named_queue *q, void *arg);
    void *on_ready_arg;
};

/* A queue of a new id when there is no journal. With one, the queue is what the journal says: this blocks.
 * NULL with the reason in error when a record is damaged. */
struct named_queue *named_queue_open(
    const struct named_queue_config *config, struct queue_now now, char *error, size_t error_size);
/* What is under way must have been told: journal_set_flush. */
void named_queue_free(struct named_queue **q);

/* Whether the journal holds everything that the queue was opened with, so that `removed` is not needed again. */
bool named_queue_is_recorded(const struct named_queue *q);

const char *named_queue_name(const struct named_queue *q);
const char *named_queue_id(const struct named_queue *q); /* 32 hex digits; the journal's when there is one */
struct queue *named_queue_core(struct named_queue *q);   /* to read, reserve, return, touch, release */
const struct queue *named_queue_core_const(const struct named_queue *q);
/* The producer's committed mark; 0 for one never seen (and *known, which may be NULL, false). */
uint64_t named_queue_mark(const struct named_queue *q, const char *producer, bool *known);
const struct journal *named_queue_journal(const struct named_queue *q);
/* The pointer that on_ready's owner keeps beside the queue. */
void named_queue_set_data(struct named_queue *q, void *data);
void *named_queue_data(const struct named_queue *q);

/* On QUEUE_CONFLICT *mark is the producer's mark as far as it is committed. */
enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark);

/* What a put of so many messages of so many bytes would meet in a queue that is yet to be made: QUEUE_OK, QUEUE_MEMORY_FULL,
 * QUEUE_NEVER_FITS or QUEUE_TOO_LARGE. */
enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes);

/* Why so many messages of so many bytes have no room: QUEUE_FULL, QUEUE_MEMORY_FULL, or QUEUE_NEVER_FITS when an empty queue would
 * have none either: who tries again would do so for ever. */
enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes);

/* What queue_take set aside is removed. On refusal it is ready again, in its place. */
enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg);

enum queue_eviction {
    EVICTION_ENOUGH, /* there is, once they are gone */
    EVICTION_PARTIAL, /* there can be: more must follow them, but this is enough at once, or what follows is away */
    EVICTION_IMPOSSIBLE, /* nothing was changed: it cannot be made, or the first of them is away */
};
/* Sets the oldest ready messages aside until `n` messages of so many `bytes` would fit besides those in *evicted, the
 * new ones being added to it, and their bytes to *evicted_bytes. Next comes named_queue_remove or
 * named_queue_undo_evict. */
enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes);
/* What was set aside is ready again, in its place; *ids is empty then. */
void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids);

enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg);
/* Ready again `delay` from now under a new id. */
enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg);
enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg);
/* Up to max_items buried messages, the lowest ids first, are ready again under new ids. */
enum queue_result named_queue_kick(
    struct named_queue *q, size_t max_items, struct queue_now now, queue_done_fn *done, void *arg);

/* Before a take or reserve of so many: QUEUE_OK when what it will find is in memory; QUEUE_LOADING when that is being
 * read, and on_ready is called when it is worth asking again; QUEUE_LATCHED when it cannot be read. */
enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes);
/* Likewise for one message's bytes. */
enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id);
/* Whether the disk had no room for the last put. */
bool named_queue_disk_is_full(const struct named_queue *q);
/* NULL, or why the queue's storage failed. */
const char *named_queue_failure(const struct named_queue *q);

/* Puts messages back in their place: nothing to commit. How many. */
uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n);
uint64_t named_queue_release(struct named_queue *q, const char *reader, uint64_t *epoch);

/* Nothing is taken or reserved for `length`, QUEUE_PAUSE_OPEN: until it is ended; 0 ends it. Not kept over a restart. */
void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now);

/* A timer of this queue has come (and is out of the heap). What was delayed is gathered: */
void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now);
/* Moves what has come due to the end. After the timers of this queue in a turn. */
void named_queue_move_due(struct named_queue *q, struct queue_now now);

#endif
