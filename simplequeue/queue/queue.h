/* queue: the messages of one queue and their states, in memory. It knows neither journal nor sockets. Times are arguments, on the
 * monotonic clock.
 *
 *     pending --commit--> ready --reserve--> leased --hold--> busy --remove--> gone
 *                           ^                  |               |---delay---> delayed --due--> busy, moved
 *                           |<-return, expiry--'               |---bury----> buried  --kick-> busy, moved
 *                           `<-----------------abort-----------'
 *
 * A durable change has two steps. First the message is set aside (pending or busy). Once the journal has committed or
 * refused the record, the change is completed or undone. In between, no reader can get or lease the message, and its
 * lease may end.
 *
 * A message may be *spilled*: its length and its place in the journal are in memory, but its bytes are not (see
 * store.h). A spilled message keeps its state and its place in the order. Its bytes must be loaded before the message
 * is delivered.
 *
 * 1. Ids rise by one in the order of queue_add. The ids of refused messages are used again, unless later messages were committed. No two
 *    committed messages have the same id.
 * 2. The ready message with the lowest id is always taken first. A message that becomes ready again keeps its id, and
 *    thus its place.
 * 3. A message is under at most one lease. Lease numbers rise from lease_base and never repeat. Readers' epochs are
 *    taken from the same sequence.
 * 4. At any time, all leases belong to one reader's name. "" is the name of readers without a name.
 * 5. `tries` counts deliveries. It survives a restart only if a record of a delay, a burial, a move or a copy holds it.
 */
#ifndef SIMPLEQUEUE_QUEUE_H
#define SIMPLEQUEUE_QUEUE_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/heap.h"
#include "simplequeue/queue/store.h"

#define QUEUE_EPOCHS_MAX 64 /* known epochs of reader names; the oldest one is forgotten first */

enum message_state {
    MESSAGE_GONE,
    MESSAGE_PENDING, /* put, not committed */
    MESSAGE_READY,
    MESSAGE_LEASED,
    MESSAGE_BUSY, /* set aside until the journal has committed or refused its change */
    MESSAGE_DELAYED,
    MESSAGE_BURIED,
    MESSAGE_STATES
};

struct id_range {
    uint64_t first, last; /* both inclusive */
};
/* A rising sequence of ids, as ranges. A zeroed struct is empty. Owns its memory. */
struct id_ranges {
    struct id_range *at;
    size_t n, cap;
    uint64_t count; /* of ids */
};
void id_ranges_add(struct id_ranges *r, uint64_t id); /* extends the last range if possible */
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
#define QUEUE_MESSAGE_COST sizeof(struct message) /* memory of a message in addition to its bytes */
/* The memory that all messages would need if none were spilled, and if all were spilled. */
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

/* Only the queue changes it. */
struct queue_state {
    uint64_t n[MESSAGE_STATES];
    uint64_t bytes;                  /* committed */
    uint64_t pending_bytes;          /* not committed */
    uint64_t to_move, to_move_bytes; /* messages that are delayed, or due and being moved */
    uint64_t next_id;    /* one above the last committed id; pending messages have this id and higher ones */
    uint64_t puts, gets; /* messages stored by puts; messages delivered */
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
uint64_t queue_last_lease(const struct queue *q); /* the highest number used, or lease_base */

/* Puts. Commits and aborts come in the order of the adds. */

/* Copies the messages as pending. Returns the first id. */
uint64_t queue_add(struct queue *q, const struct bytes *messages, size_t n);
/* Makes the added messages ready. */
void queue_add_commit(struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset);
/* Delays the added messages until `due`. */
void queue_add_commit_delayed(
    struct queue *q, uint64_t first_id, size_t n, uint64_t journal_offset, usec_t due);
void queue_add_abort(struct queue *q, uint64_t first_id, size_t n);
/* Counts messages as put. A moved message is not counted again. */
void queue_count_puts(struct queue *q, size_t n);
/* Raises depth_high_water to the depth. Do not call it while a move has added its copies but not yet removed the
 * originals. */
void queue_note_depth(struct queue *q);
void queue_reset_high_water(struct queue *q);

/* The bytes of a message in the queue, valid until a message is removed or spilled; ptr is NULL if it is spilled. */
struct bytes queue_message(struct queue *q, uint64_t id, uint32_t *tries);

/* Getting. These functions stop before a spilled message: see queue_in_memory. */

/* Makes ready messages busy, the lowest ids first: at most max_items, and at most max_bytes in total, but at least one
 * message. Appends to *out. */
void queue_take(struct queue *q, size_t max_items, size_t max_bytes, struct id_ranges *out);
/* Counts messages of queue_take as delivered, after their removal is committed. */
void queue_count_given(struct queue *q, uint64_t n);
/* True if the reader may lease, because no other reader has a lease. */
bool queue_admits(const struct queue *q, const char *reader);
/* As queue_take, but leases the messages until `deadline`. Stops before a message that queue_take or
 * queue_block_reserves has set aside, because that message may become ready again and relays need messages in the order
 * of ids. Returns the lease's number, or 0 if nothing is ready. The reader must be admitted. */
uint64_t queue_reserve(struct queue *q, const char *reader, size_t max_items, size_t max_bytes,
    usec_t deadline, struct id_ranges *out);
/* As queue_take, for eviction: takes only ids below `before`, counts neither gets nor tries, and ignores a pause. `spilled`: also takes
 * spilled messages. */
void queue_evict(struct queue *q, size_t max_items, uint64_t before, bool spilled, struct id_ranges *out);
/* Bytes of committed messages that are not ready. The cost is linear in their number. */
uint64_t queue_bytes_not_ready(struct queue *q);

/* Stops gets and leases until queue_resume. Unless `until` is QUEUE_PAUSE_OPEN, a timer in the heap of deadlines fires
 * at that time. Replaces an earlier pause. A restart ends the pause. */
#define QUEUE_PAUSE_OPEN INT64_MAX
void queue_pause(struct queue *q, usec_t until);
void queue_resume(struct queue *q);

/* Leases. `wanted` may be in any order and overlap; each function returns the number of messages. */

/* Makes busy the messages of `wanted` that are leased under the number `lease`. Appends to *out. */
uint64_t queue_hold(
    struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n, struct id_ranges *out);
/* Blocks reserves of messages behind these busy ones until their change is committed or aborted. Used for delays and
 * burials, whose failure returns a message to its place. */
void queue_block_reserves(struct queue *q, const struct id_ranges *ids);
/* Makes ready again the messages of `wanted` that are leased under the number `lease`. */
uint64_t queue_return(struct queue *q, uint64_t lease, const struct id_range *wanted, size_t n);
/* Changes the lease's deadline. False if no message is leased under it. */
bool queue_touch(struct queue *q, uint64_t lease, usec_t deadline);
/* Ends every lease of the reader and begins its next epoch, which is above every earlier one and never 0. A reader
 * sends its epoch with each reserve, and is refused once another process has released under the same name. Returns the
 * number of messages that became ready. */
uint64_t queue_release(struct queue *q, const char *reader, uint64_t *epoch);
/* The epoch of the reader's last release; 0 if unknown. Epochs are only in memory: after a restart, every reader must
 * release again. */
uint64_t queue_epoch(const struct queue *q, const char *reader);
/* The lease's timer has fired: makes the lease's messages ready again. */
void queue_lease_expire(struct queue *q, uint64_t lease);

/* The change of these busy messages is committed, or aborted. */

void queue_remove(struct queue *q, const struct id_ranges *ids);
void queue_delay(struct queue *q, const struct id_ranges *ids, usec_t due);
void queue_bury(struct queue *q, const struct id_ranges *ids, struct bytes reason, usec_t buried_at);
/* The messages are leased again if their lease still runs, else ready. */
void queue_abort(struct queue *q, const struct id_ranges *ids);

/* Makes a delayed or buried message busy, to be moved under a new id. False if it is neither delayed nor buried. */
bool queue_set_aside(struct queue *q, uint64_t id);
/* Undoes queue_set_aside. A delayed message is due again at `retry_at`. */
void queue_put_back(struct queue *q, uint64_t id, usec_t retry_at);
void queue_set_tries(struct queue *q, uint64_t id, uint32_t tries);

/* Searches. Each function finds the first matching message at or after `from`; false if there is none. */

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

/* Spilling. The owner loads messages through queue_store. */

#define QUEUE_WINDOW_MAX ((uint64_t)2 << 20) /* read-ahead: a 64th of the memory limit, within these bounds */
#define QUEUE_WINDOW_MIN ((uint64_t)128 << 10)

/* Spills committed messages, the newest first, while all queues together take more than `limit` bytes of memory. Never
 * spills the read-ahead or demanded messages. Do not call it from inside another function of the queue. */
void queue_spill(struct queue *q, uint64_t limit);
/* True if the first `items` ready messages, or the first `bytes` bytes of them, are in memory. If not, *out is the span
 * to load next; it is empty (last_id 0) while that span is being loaded. The messages count as demanded: they stay in
 * memory until two more loads have ended. */
bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out);
/* Called when a load has ended. */
void queue_demand_turn(struct queue *q);
/* True if the read-ahead is incomplete and *out should be loaded. */
bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out);

/* Recovery: call these in the order of the journal, before all other functions. */

/* False if the id is below the next id. */
bool queue_restore_add(
    struct queue *q, uint64_t first_id, const struct bytes *messages, size_t n, uint64_t offset);
void queue_restore_next_id(struct queue *q, uint64_t next_id); /* at least this */
void queue_restore_lease_base(struct queue *q, uint64_t base); /* at least this */
/* Adds a message of which the journal has a copy at `offset`. False if the message is already in the queue. */
bool queue_restore_kept(struct queue *q, uint64_t id, struct bytes message, uint32_t tries, uint64_t offset);
/* Removes the messages of the range that are in the queue. */
void queue_restore_remove(struct queue *q, struct id_range range);
/* Delays a ready message. */
void queue_restore_delay(struct queue *q, uint64_t id, usec_t due);
/* Makes the message busy, for queue_delay or queue_bury. False if the message is not in the queue, or is busy. */
bool queue_restore_hold(struct queue *q, uint64_t id, uint32_t tries);

#endif
