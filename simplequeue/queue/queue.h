/* queue: the messages of one queue and the state of each. In memory: no journal, no sockets. Times are arguments, on the monotonic
 * clock.
 *
 *     pending --commit--> ready --reserve--> leased --hold--> busy --remove--> gone
 *                           ^                  |               |---delay---> delayed --due--> busy, moved
 *                           |<-return, expiry--'               |---bury----> buried  --kick-> busy, moved
 *                           `<-----------------abort-----------'
 *
 * A durable change has two steps. First the message is set aside (pending or busy). Once the journal has committed or refused the
 * record, the change is finished or undone. In between the message is neither shown nor leased, and its lease may end.
 *
 * A message may be *spilled*: its length and its place in the journal are in memory, its bytes are not (see store.h). It keeps its
 * state and its place in the order. Its bytes must be loaded before it is given out.
 *
 * 1. Ids rise by one in the order of queue_add and never repeat. The ids of refused messages are given again unless later ones were
 *    committed; then they stay unused.
 * 2. The lowest ready id is always taken first. A message that is put back keeps its id, and so its place.
 * 3. A message is under at most one lease. Lease numbers rise from lease_base and never repeat. Readers' epochs are numbers of the
 *    same sequence.
 * 4. All leases at a time belong to one reader's name; "" is the name of readers that give none.
 * 5. `tries` counts deliveries since the daemon started, or since the last record that holds them (a delay, a burial).
 */
#ifndef SIMPLEQUEUE_QUEUE_H
#define SIMPLEQUEUE_QUEUE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/heap.h"
#include "simplequeue/queue/store.h"

#define QUEUE_EPOCHS_MAX 64 /* reader names whose epoch is known; the one released longest ago is forgotten */

enum message_state {
    MESSAGE_GONE,
    MESSAGE_PENDING, /* put, not committed */
    MESSAGE_READY,
    MESSAGE_LEASED,
    MESSAGE_BUSY, /* set aside until the journal has committed a change of it */
    MESSAGE_DELAYED,
    MESSAGE_BURIED,
    MESSAGE_STATES
};

struct id_range {
    uint64_t first, last; /* both inclusive */
};
/* Rising ids as few ranges. A zeroed one is empty. Owns its memory. */
struct id_ranges {
    struct id_range *at;
    size_t n, cap;
    uint64_t count; /* of ids */
};
void id_ranges_add(struct id_ranges *r, uint64_t id); /* extends the last range if the id follows it */
void id_ranges_add_range(struct id_ranges *r, struct id_range range);
void id_ranges_free(struct id_ranges *r);

/* Visits each id of the ranges: for (struct id_walk w = {.ids = ids}; id_walk_next(&w);) use(w.id); */
struct id_walk {
    const struct id_ranges *ids;
    size_t range;
    uint64_t id; /* 0 before the first */
};
static inline bool id_walk_next(struct id_walk *w)
{
    if (w->id && w->id < w->ids->at[w->range].last) {
        w->id++;
        return true;
    }
    w->range += w->id > 0;
    if (w->range == w->ids->n)
        return false;
    w->id = w->ids->at[w->range].first;
    return true;
}

/* Shared by the queues of a daemon: a heap of all deadlines, and totals. */
struct queue_shared {
    struct heap deadlines;
    uint64_t bytes, messages;   /* in all queues, spilled or not */
    uint64_t owners;            /* bytes of memory for leases, delays and burials */
    struct store_memory memory; /* for messages */
};
#define QUEUE_MESSAGE_COST sizeof(struct message) /* beside its bytes */
/* Memory for all messages if none were spilled; memory that remains after all are. */
static inline uint64_t queue_shared_cost(const struct queue_shared *s)
{
    return s->bytes + s->messages * QUEUE_MESSAGE_COST + s->owners;
}
static inline uint64_t queue_shared_fixed(const struct queue_shared *s)
{
    return s->memory.spilled + s->owners;
}

enum queue_timer_kind { QUEUE_TIMER_LEASE, QUEUE_TIMER_DELAY, QUEUE_TIMER_PAUSE };
/* An entry of the heap of deadlines; `node` is its first member. */
struct queue_timer {
    struct heap_node node;
    enum queue_timer_kind kind;
    void *owner; /* of the queue */
    uint64_t id; /* LEASE: its number; DELAY: the message's id */
};

/* Read freely; only the queue changes it. */
struct queue_state {
    uint64_t n[MESSAGE_STATES];
    uint64_t bytes;                  /* committed */
    uint64_t pending_bytes;          /* not committed */
    uint64_t to_move, to_move_bytes; /* delayed messages, and those being moved because they are due */
    uint64_t next_id;    /* one past the last committed message; the next has it unless one is pending */
    uint64_t puts, gets; /* messages stored by puts; messages given out */
    uint64_t expired;    /* leases that ended by their deadline while they held messages */
    uint64_t depth_high_water;
    usec_t paused_until; /* 0: not paused */
    size_t leases;
    const char *reader; /* of the leases; meaningful while leases > 0 */
};

struct queue;
struct queue *queue_new(struct queue_shared *shared, uint64_t next_id, uint64_t lease_base, void *owner);
void queue_free(struct queue **q);
const struct queue_state *queue_state(const struct queue *q);
struct store *queue_store(
    struct queue *q); /* to spill and load messages, and for their places in the journal */
uint64_t queue_depth(const struct queue *q);      /* ready, leased, busy and delayed */
uint64_t queue_last_lease(const struct queue *q); /* the highest number given, or lease_base */

/* Puts. Commits and aborts come in the order of the adds. */

/* Copies the messages as pending. Returns the first id. */
uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n);
/* The added messages are ready. */
void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset);
/* The added messages are delayed until `due`. */
void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due);
void queue_add_abort(struct queue *q, uint64_t first_id, size_t n);
/* Counts messages as put: not those that were moved. */
void queue_count_puts(struct queue *q, size_t n);
/* Raises depth_high_water to the depth. Not between the two halves of a move. */
void queue_note_depth(struct queue *q);
void queue_reset_high_water(struct queue *q);

/* The bytes of a message in the queue, valid until a message is removed or spilled; ptr is NULL if it is spilled. */
struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries);

/* Getting. None goes past a spilled message: see queue_in_memory. */

/* Ready messages, the lowest ids first, become busy: at most max_items, and max_bytes together but at least one. Appends to *out. */
void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out);
/* Counts messages that queue_take set aside as given out. */
void queue_count_given(struct queue *q, uint64_t n);
/* Whether the reader may lease: nobody else has a lease. */
bool queue_admits(const struct queue *q, const char *reader);
/* As queue_take, but leases the messages until `deadline`. Stops before a message that queue_take or queue_block_reserves has set
 * aside: if it came back, a relay that goes by ids would already have passed it. Returns the lease's number, or 0 if nothing is ready.
 * The reader must be admitted. */
uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out);
/* As queue_take for eviction: only ids below `before`; counts neither as get nor as try; ignores a pause. `spilled`: takes spilled
 * messages too. */
void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out);
/* Bytes of committed messages that are not ready. Visits each of them. */
uint64_t queue_bytes_not_ready(struct queue *q);

/* Stops gets and leases until `until`, when its timer in the heap of deadlines ends, or until queue_resume (QUEUE_PAUSE_OPEN). Replaces an
 * earlier pause. Not kept over a restart. */
#define QUEUE_PAUSE_OPEN INT64_MAX
void queue_pause(struct queue *q, usec_t until);
void queue_resume(struct queue *q);

/* Leases. `wanted` may be in any order and overlap; each function returns the number of messages. */

/* Those of `wanted` that are leased under the number become busy. Appends to *out. */
uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out);
/* Busy messages that may yet return to their place: nothing behind them is reserved until they are decided. For delays and burials;
 * an acknowledged message does not return to another reader. */
void queue_block_reserves(struct queue *q, const struct id_ranges *ids);
/* Those of `wanted` that are leased under the number are ready again. */
uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n);
/* Changes the lease's deadline. False if nothing is leased under it any more. */
bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline);
/* Ends every lease of the reader and begins its next epoch (see reader_fencing.h). Returns the messages that are ready again. */
uint64_t queue_release(struct queue *q, const char *reader, uint64_t *epoch);
/* The epoch of the reader's last release; 0 if unknown. */
uint64_t queue_epoch(const struct queue *q, const char *reader);
/* The lease's timer ended: its messages are ready again. */
void queue_lease_expire(struct queue *q, uint64_t lease);

/* Busy messages: the change is committed, or aborted. */

void queue_remove(struct queue *q, const struct id_ranges *ids);
void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at);
/* Leased again if the lease still runs, else ready. */
void queue_abort(struct queue *q, const struct id_ranges *ids);

/* A delayed or buried message becomes busy, to be moved under a new id. False if it is neither. */
bool queue_set_aside(struct queue *q, uint64_t id);
/* Undoes queue_set_aside. A delayed message is due again at `retry_at`. */
void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at);
void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries);

/* Looking. Each finds the first such message at or after `from`; false if there is none. */

struct queue_burial {
    usec_t buried_at; /* wall clock */
    struct bytes reason;
};
struct queue_view {
    uint64_t id;
    enum message_state state;
    uint32_t tries;
    struct bytes text;                 /* ptr NULL: spilled */
    usec_t due;                        /* DELAYED */
    const struct queue_burial *burial; /* BURIED */
};
bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out);
bool queue_next_ready(struct queue *q, uint64_t from, uint64_t *id);
bool queue_next_buried(struct queue *q, uint64_t from, uint64_t *id, const struct queue_burial **burial);

/* Spilling (queue_spill.c). The owner loads messages through queue_store. */

#define QUEUE_WINDOW_MAX ((uint64_t)2 << 20) /* read-ahead: a 64th of the memory limit, within these bounds */
#define QUEUE_WINDOW_MIN ((uint64_t)128 << 10)

/* Spills committed messages while all queues together take more than `limit` bytes of memory: the newest first, but neither the
 * read-ahead nor demanded messages. Not from inside another call. */
void queue_spill(struct queue *q, uint64_t limit);
/* Whether the first `items` ready messages, or the first of `bytes` together, are in memory. If not, *out is what to load next, or
 * empty (last_id 0) while that is being loaded. The messages are demanded: they stay in memory until two loads have ended. */
bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out);
/* A load ended. */
void queue_demand_turn(struct queue *q);
/* Whether the read-ahead is incomplete, and *out is to be loaded. */
bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out);

/* Recovery: in the order of the journal, before all other calls. */

/* False if the id is below the next. */
bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset);
void queue_restore_next_id(struct queue *q, uint64_t next_id); /* at least this */
void queue_restore_lease_base(struct queue *q, uint64_t base); /* at least this */
/* A copy of the message lies at that offset. False if the message is in the queue already. */
bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset);
/* Removes the messages of the range that are in the queue. */
void queue_restore_remove(struct queue *q, struct id_range range);
/* A ready message is delayed. */
void queue_restore_delay(struct queue *q, uint64_t id, usec_t due);
/* The message becomes busy, for queue_delay or queue_bury. False if it is not in the queue, or busy. */
bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries);

#endif
